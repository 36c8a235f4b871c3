// Package replay answers one question: what did past exchanges leave? It reads archives of captured robots.txt files
// (package warc) and files of bodies, and returns the sites of each night with their answers, as a scan
// would.
//
//	input ─► ahead ─┐                       ┌─► night ─► entries, by URL
//	                ├─► records ─► spool ───┤
//	input ─► ahead ─┘    by night and URL   └─► …
//
// A site gets one row a night, but an archive has a capture for each exchange: for each redirect hop and each retry.
// The row is made of the first capture of its /robots.txt with a status of 2xx or 4xx, which settles it. 408 and 429 do
// not: a retry may succeed. If none settles it, the last capture counts, and before any row without an answer (see the
// flag unseen). Its redirects are followed to captures of the same night, anywhere in the inputs.
//
// replay.go reads the inputs once. ahead.go unpacks and parses them: capture.go the records of archives, rows.go rows
// of bodies. spool.go sorts what was read in a temporary file, and night.go returns it.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/warc"
)

// By says which time is a night.
type By string

// The nights: a day of UTC, a month, a crawl by its name. The date of the last two is that of their last capture.
const (
	Day   By = "day"
	Month By = "month"
	Crawl By = "crawl"
)

// Bys are the values of the flag --by.
var Bys = []string{string(Day), string(Month), string(Crawl)}

// Options say what to read, and what is a night.
type Options struct {
	MaxBody    int             // of the Fetcher, in bytes
	By         By              // "": Day
	Date       string          // of the only night, whatever the dates of captures; "": by these
	Columns    []inputs.Column // see ParseColumns
	LocalNames bool            // see inputs.Options
	Limit      uint64          // read no more captures and rows than this; 0: all
	Sample     float64         // of the hosts, see inputs.Options
	Parquet    func(io.ReaderAt, int64) (inputs.Table, error)
	TempDir    string
	Now        time.Time // later dates are rejects

	runBytes     int // 0: the constant
	stretchBytes int64
}

// ErrNoDate says that no record has a date, and none is given. Messages put the name of an input before it.
var ErrNoDate = errors.New(
	"has no dates, and what is old is not of today: say of which day its files are by --date YYYY-MM-DD")

// Found counts what was read, beside inputs.Stats.
type Found struct {
	Captures int64 // of archives
	Rows     int64 // of bodies
	NoStatus int64 // rows without a status, which count as 200
	NoBody   int64 // rows without a body and without a status: not observed
	Carried  int64 // rows that repeat an earlier answer: not observed
}

// Nights has read all inputs. Only Progress is safe for concurrent use.
type Nights struct {
	ctx   context.Context
	fetch *fetcher.Fetcher
	opt   Options

	spool   sorter
	hops    bool   // there may be redirects
	rows    merger // at the next record
	targets merger // of redirects
	counted choice
	target  choice
	nights  map[uint32]*Night
	order   []*Night // by their numbers
	begun   int      // of order
	crawls  map[string]uint32
	undated int64  // rows and captures without a date
	noDate  string // the first input with one

	stats   inputs.Stats
	found   Found
	unsound Unsound
	line    uint64       // of the current stream
	info    info         // of the current stream
	read    atomic.Int64 // bytes of the inputs
	total   int64
}

// maxHead is how much of a response's head is kept, as much as the fetcher reads.
const maxHead = 64 << 10

// Read reads the inputs in the given order: files, and folders of bodies. fetch parses responses and bounds bodies and
// redirects. progress, if not nil, is called first with a function that is safe for concurrent use. Close the Nights
// after use.
func Read(ctx context.Context, paths []string, fetch *fetcher.Fetcher, opt Options,
	progress func(func() (read, total int64))) (_ *Nights, err error) {
	n := &Nights{
		ctx: ctx, fetch: fetch, opt: opt, nights: map[uint32]*Night{}, crawls: map[string]uint32{},
		spool: sorter{spool: spool{dir: opt.TempDir}, limit: cmp.Or(opt.runBytes, runBytes)},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	sizes, archives := make([]int64, len(paths)), make([]bool, len(paths))
	for i, path := range paths {
		if sizes[i], archives[i], err = lookAt(path); err != nil {
			return nil, failed(path, err)
		}
		n.total += sizes[i]
	}
	if progress != nil {
		progress(n.Progress)
	}
	if err := n.readAll(paths, sizes, archives); err != nil {
		return nil, err
	}
	if n.undated > 0 && len(n.nights) == 0 {
		return nil, fmt.Errorf("%s %w", n.noDate, ErrNoDate)
	}
	for _, key := range slices.Sorted(maps.Keys(n.nights)) {
		n.order = append(n.order, n.nights[key])
	}
	runs, err := n.spool.sorted(ctx, n.hops)
	if err != nil {
		return nil, err
	}
	if n.rows, err = newMerger(runs); err != nil {
		return nil, err
	}
	n.targets, err = newMerger(runs)
	return n, err
}

// lookAt returns the size of an input, and whether it is an archive that can be read as it is. An archive that begins
// with damage is recognised by its name.
func lookAt(path string) (size int64, archive bool, err error) {
	file, err := os.Open(path) // #nosec G304 -- the user names it
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false, err
	}
	archive, err = warc.Look(file, info.Size())
	return info.Size(), archive || strings.HasSuffix(strings.TrimSuffix(path, ".gz"), ".warc"), err
}

// full reports whether no more is to be read.
func (n *Nights) full() bool {
	return n.opt.Limit > 0 && uint64(n.found.Captures+n.found.Rows) >= n.opt.Limit
}

// readAll reads the inputs and takes their items in order. Stretches of archives are begun before their turn; other
// inputs may need room on disk.
func (n *Nights) readAll(paths []string, sizes []int64, archives []bool) error {
	ctx, cancel := context.WithCancel(n.ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	var begun []*ahead
	var next spot
	cutter, input, before := warc.NewReader(0), 0, int64(0)
	for {
		for next.input < len(paths) && (len(begun) == 0 || len(begun) < runtime.GOMAXPROCS(0) && archives[next.input]) {
			path, size, archive := paths[next.input], sizes[next.input], archives[next.input]
			to := size
			if archive {
				to = n.cut(cutter, path, size, next.from)
			}
			a := newAhead(ctx, &n.opt, next, to)
			begun = append(begun, a)
			reading.Go(func() { a.read(path, archive, size) })
			next = after(next, to, size)
		}
		if len(begun) == 0 {
			return nil
		}
		a := begun[0]
		begun = begun[1:]
		for ; input < a.input; input++ {
			before += sizes[input]
		}
		var ended error
		for batch := range a.batches {
			for k := range batch.items {
				if n.full() {
					return nil
				}
				n.read.Store(before + batch.items[k].offset)
				if err := n.take(&batch.items[k]); err != nil {
					return err
				}
			}
			ended = batch.err
		}
		if err := cmp.Or(n.ctx.Err(), ended); err != nil {
			return err
		}
		n.read.Store(before + a.at)
		if a.at != a.to { // No member begins there: what was begun from there on is not in the archive.
			for _, b := range begun {
				b.stop()
			}
			begun, next = nil, after(a.spot, a.at, sizes[a.input])
		}
	}
}

// after returns the place behind a stretch of an input.
func after(of spot, to, size int64) spot {
	if to >= size {
		return spot{input: of.input + 1}
	}
	return spot{of.input, to}
}

// cut returns where the stretch of an archive ends that begins there. An error is that of its reader, too.
func (n *Nights) cut(r *warc.Reader, path string, size, from int64) int64 {
	file, err := os.Open(path) // #nosec G304 -- the user names it
	if err != nil {
		return size
	}
	defer file.Close()
	return r.Cut(file, size, from, cmp.Or(n.opt.stretchBytes, stretchBytes))
}

// take takes an item of an input.
func (n *Nights) take(it *item) error {
	if it.begins != nil {
		n.line, n.info = 0, info{}
		n.stats.Files = append(n.stats.Files, *it.begins)
		return nil
	}
	n.line += it.before + 1
	n.stats.Lines += it.before
	n.stats.Skipped += it.before
	n.stats.Files[len(n.stats.Files)-1].Lines += it.before
	if it.info != nil {
		n.info = *it.info
	}
	if !n.info.wired && it.flags&ofRow == 0 {
		it.flags |= undone
	}
	it.seq, it.file, it.line = n.stats.Lines, uint64(len(n.stats.Files)-1), cmp.Or(it.line, n.line)
	n.stats.Lines++
	n.stats.Files[it.file].Lines++
	if it.broken > 0 {
		if n.unsound.Members++; n.unsound.Members == 1 {
			n.unsound.File, n.unsound.Offset = n.stats.Files[it.file].Name, it.offset
		}
	}
	switch it.reason {
	case skipped:
		n.stats.Skipped++
		return nil
	case "":
		return n.add(it)
	}
	return n.reject(it)
}

// reject keeps a reject without a night, for the first one.
func (n *Nights) reject(it *item) error {
	n.stats.Rejects++
	it.record = record{seq: it.seq, file: it.file, line: it.line, flags: rejected,
		input: it.input[:min(len(it.input), inputs.MaxText)], block: []byte(it.reason)}
	it.setKey(0, nil)
	return n.spool.add(&it.record)
}

// earliest is the year of the first robots.txt.
const earliest = 1994

// Plausible reports whether a robots.txt may have been fetched then, as seen from now, with a day for zones. Other
// dates are mistakes: zero, or numbers of another kind.
func Plausible(at, now time.Time) bool {
	return at.UTC().Year() >= earliest && at.Before(now.Add(24*time.Hour))
}

// add adds a capture or row to its night.
func (n *Nights) add(it *item) error {
	key := uint32(0)
	switch {
	case n.opt.Date != "":
		key = 1
	case it.when.IsZero():
		if n.undated++; n.undated == 1 {
			n.noDate = n.stats.Files[it.file].Name
		}
		it.reason = "it has no date, and --date gives none"
	case !Plausible(it.when, n.opt.Now):
		it.reason = "its date is before 1994 or in the future"
	default:
		key, it.reason = n.night(it.when, n.stats.Files[it.file].Name, n.info.crawl)
	}
	if it.reason != "" {
		return n.reject(it)
	}
	night := n.nights[key]
	if night == nil {
		night = &Night{all: n, key: key}
		n.nights[key] = night
	}
	night.Date = cmp.Or(n.opt.Date, max(night.Date, it.when.Format(time.DateOnly)))
	if it.when.IsZero() {
		it.flags |= noTime
	} else {
		it.at = uint64(it.when.UnixMilli())
	}
	status := statusOf(it.block)
	n.hops = n.hops || len(status) > 0 && status[0] == '3'
	if settles(status, it.ending()) {
		it.flags |= settled
	}
	switch {
	case it.url.Path != "": // only redirects lead here
		it.flags |= target
		n.stats.Skipped++
	case n.opt.Sample > 0 && !inputs.Sampled(it.url.Origin.Host(), n.opt.Sample):
		it.flags |= target // redirects of the others may lead here
		n.stats.LeftOut++
	default:
		night.Rows++
		n.found.count(it.flags)
	}
	it.setKey(key, it.url.AppendTo(nil))
	return n.spool.add(&it.record)
}

// count counts a capture or row.
func (f *Found) count(of flags) {
	if of&ofRow == 0 {
		f.Captures++
		return
	}
	f.Rows++
	switch {
	case of&carried != 0:
		f.Carried++
	case of&unseen != 0:
		f.NoBody++
	case of&noStatus != 0:
		f.NoStatus++
	}
}

// crawlName is a crawl of Common Crawl, by year and week; its files are named by times.
var crawlName = regexp.MustCompile(`CC-MAIN-[0-9]{4}-[0-9]{2}\b`)

// night returns the number of a night, above 0, or why there is none.
func (n *Nights) night(at time.Time, file, crawl string) (uint32, string) {
	switch n.opt.By {
	case Month:
		return uint32(at.Year()*12 + int(at.Month())), ""
	case Crawl:
	default:
		return uint32(at.Unix() / (24 * 60 * 60)), ""
	}
	name := cmp.Or(crawlName.FindString(file), crawl)
	if name == "" {
		return 0, "neither its file's name nor its archive names a crawl (--by crawl)"
	}
	if n.crawls[name] == 0 {
		n.crawls[name] = uint32(len(n.crawls) + 1)
	}
	return n.crawls[name], ""
}

// List returns the nights by date.
func (n *Nights) List() []*Night {
	return slices.SortedStableFunc(slices.Values(n.order),
		func(a, b *Night) int { return strings.Compare(a.Date, b.Date) })
}

// Found returns what was read.
func (n *Nights) Found() Found { return n.found }

// Stats returns the counts of all inputs. A record or row counts as a line.
func (n *Nights) Stats() inputs.Stats {
	s := n.stats
	s.Entries = uint64(n.found.Captures + n.found.Rows)
	s.Files = slices.Clone(s.Files)
	return s
}

// Unsound counts the gzip members whose damage was found after records of them had been returned. Their entries may be
// wrong. Each member is also a reject.
type Unsound struct {
	Members int
	File    string // of the first member
	Offset  int64  // of the first member
}

// Unsound returns the counts.
func (n *Nights) Unsound() Unsound { return n.unsound }

// Progress returns how many bytes of the inputs have been read, and how many there are. It is safe for concurrent use.
func (n *Nights) Progress() (read, total int64) { return n.read.Load(), n.total }

// Close removes what waits on disk.
func (n *Nights) Close() error { return errors.Join(n.spool.wait(), n.spool.close()) }

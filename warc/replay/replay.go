// Package replay answers one question: what did past exchanges leave? It reads archives of captured robots.txt files
// (package warc) and files of bodies, and returns the sites of each night with their answers, as a scan
// would.
//
//	archives ─► ahead ─┐                       ┌─► night ─► entries, by URL
//	                   ├─► records ─► spool ───┤
//	bodies ────────────┘    by night and URL   └─► …
//
// A site gets one row a night, but an archive has a capture for each exchange: for each redirect hop and each retry. The row
// is made of the first capture of its /robots.txt with a status of 2xx or 4xx, which settles it. 408 and 429 do not: a retry
// may succeed. If none settles it, the last capture counts, and before any row that nobody saw (see the flag unseen). Its
// redirects are followed to captures of the same night, anywhere in the inputs.
//
// replay.go reads the inputs once; ahead.go unpacks archives for it, capture.go parses a capture, and rows.go makes one of a
// body. spool.go sorts what was read, in a temporary file. night.go returns it.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/warc"
)

// By says what is a night.
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

	runBytes int // 0: the constant
}

// NoDateError says that nothing that was read has a date, and none is given.
type NoDateError struct{ File string }

func (e *NoDateError) Error() string {
	return fmt.Sprintf("%s has no dates, and what is old is not of today: say of which day its files are by --date YYYY-MM-DD", e.File)
}

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
	names []string // of the streams, which records name by number

	spool   sorter
	rows    *cursor // at the next record
	targets *cursor // of redirects
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
	line    uint64 // of the current stream
	read    atomic.Int64
	before  int64
	total   int64
}

// maxHead is how much of a response's head is kept, as much as the fetcher reads.
const maxHead = 64 << 10

// Read reads the inputs in the given order: files, and folders of bodies. fetch parses responses and bounds bodies and
// redirects. progress, if not nil, is called first with a function that is safe for concurrent use. Close the Nights after use.
func Read(ctx context.Context, paths []string, fetch *fetcher.Fetcher, opt Options, progress func(func() (read, total int64))) (_ *Nights, err error) {
	n := &Nights{
		ctx: ctx, fetch: fetch, opt: opt, nights: map[uint32]*Night{}, crawls: map[string]uint32{},
		spool: sorter{spool: spool{dir: opt.TempDir}, limit: cmp.Or(opt.runBytes, runBytes)},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	archives := make([]bool, len(paths))
	for i, path := range paths {
		size, archive, err := lookAt(path)
		if err != nil {
			return nil, &inputs.Error{File: path, Err: plain(err)}
		}
		archives[i] = archive
		n.total += size
	}
	if progress != nil {
		progress(n.Progress)
	}
	for from := 0; from < len(paths) && !n.full(); {
		to, read := from+1, n.readFile
		for archives[from] && to < len(paths) && archives[to] {
			to++
		}
		if archives[from] {
			read = n.readArchives
		}
		if err := read(paths[from:to]); err != nil {
			return nil, err
		}
		from = to
	}
	if n.undated > 0 && len(n.nights) == 0 {
		return nil, &NoDateError{n.noDate}
	}
	for _, key := range slices.Sorted(maps.Keys(n.nights)) {
		n.order = append(n.order, n.nights[key])
	}
	all, err := n.spool.sorted(ctx)
	if err != nil {
		return nil, err
	}
	n.rows, n.targets = &cursor{run: all}, &cursor{run: all}
	return n, n.rows.next()
}

// lookAt returns the size of an input, and whether it is an archive that can be read as it is. One that begins with damage is known by
// its name.
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

// readArchives reads archives, several at a time.
func (n *Nights) readArchives(paths []string) error {
	return n.readWARC(paths, func(number int) (io.ReaderAt, int64, func() error, error) {
		file, err := os.Open(paths[number])
		if err != nil {
			return nil, 0, nil, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, 0, nil, errors.Join(err, file.Close())
		}
		return watched{n.ctx, file}, info.Size(), file.Close, nil
	})
}

// watched is a file that is readable until the context ends.
type watched struct {
	ctx  context.Context
	file io.ReaderAt
}

func (w watched) ReadAt(p []byte, at int64) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.file.ReadAt(p, at)
}

// readFile reads a file with rows of bodies, one that has to be unpacked, or a zip with several. It may be a folder.
func (n *Nights) readFile(paths []string) (err error) {
	if info, err := os.Stat(paths[0]); err == nil && info.IsDir() {
		return n.readFolder(paths[0])
	}
	r := inputs.OpenRows(n.ctx, paths, inputs.Options{TempDir: n.opt.TempDir, Parquet: n.opt.Parquet}, n.opt.Columns)
	defer func() { err = errors.Join(err, r.Close()) }()
	before := n.before
	for !n.full() {
		in, err := r.NextStream()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if in.Archive != nil {
			if err := n.readWARC([]string{in.Name}, func(int) (io.ReaderAt, int64, func() error, error) {
				return in.Archive, in.Size, func() error { return nil }, nil
			}); err != nil {
				return err
			}
			continue
		}
		n.begin(in.FileStats)
		for !n.full() {
			line, text, reason, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				n.read.Store(before + r.Read())
				err = n.takeRow(line, text, reason, in.Cell)
			}
			if err != nil {
				return err
			}
		}
	}
	n.before = before + r.Read()
	n.read.Store(n.before)
	return nil
}

// readWARC reads archives with these names.
func (n *Nights) readWARC(names []string, open opener) error {
	archives := newAhead(n.ctx, len(names), open, maxHead+n.opt.MaxBody+1)
	defer archives.close()
	size := int64(0) // of the current one
	for number := 0; number < len(names) && !n.full(); {
		it, fresh, err := archives.next(n.ctx)
		switch {
		case err != nil:
			return n.failed(names[number], err)
		case fresh != nil:
			size = fresh.size
			kind := ""
			if fresh.packed {
				kind = "gzip"
			}
			n.begin(inputs.FileStats{Name: names[number], Layout: "warc", Compression: kind})
		case it == nil:
			n.before += size
			n.read.Store(n.before)
			number++
		default:
			n.read.Store(n.before + it.offset)
			if err := n.take(it); err != nil {
				return err
			}
		}
	}
	return nil
}

// failed adds the input's name to an error, except to those of the context.
func (n *Nights) failed(name string, err error) error {
	if n.ctx.Err() != nil && errors.Is(err, n.ctx.Err()) {
		return err
	}
	if e, ok := errors.AsType[*inputs.Error](err); ok {
		return e
	}
	return &inputs.Error{File: name, Err: plain(err)}
}

// plain removes the operation and the path, which our message has already.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// begin begins a stream.
func (n *Nights) begin(file inputs.FileStats) {
	n.line = 0
	n.names = append(n.names, file.Name)
	n.stats.Files = append(n.stats.Files, file)
}

// count counts a record or row, and returns one that has its place.
func (n *Nights) count() record {
	n.line++
	n.stats.Lines++
	n.stats.Files[len(n.stats.Files)-1].Lines++
	return record{seq: n.stats.Lines - 1, file: uint64(len(n.names) - 1), line: n.line}
}

// take takes an item of an archive.
func (n *Nights) take(it *item) error {
	r := n.count()
	if b := &it.broken; b.Reason != "" {
		reason := fmt.Sprintf("%s: bytes %d to %d are passed over", b.Reason, b.Offset, b.Offset+b.Bytes)
		if b.Records > 0 {
			reason += fmt.Sprintf(", but for %d records at their beginning, which may be wrong", b.Records)
			if n.unsound.Members++; n.unsound.Members == 1 {
				n.unsound.File, n.unsound.Offset = n.names[r.file], b.Offset
			}
		}
		return n.reject(&r, nil, reason)
	}
	c := &it.capture
	if it.reason == skipRecord || it.reason != "" && c.target.Path != "" { // no robots.txt of an origin
		n.stats.Skipped++
		return nil
	}
	if it.reason != "" {
		return n.reject(&r, it.uri, it.reason)
	}
	if c.target.Path != "" {
		r.flags |= target
		n.stats.Skipped++
	} else if n.leftOut(c.target.Origin.Host()) {
		r.flags |= target // redirects of the others may lead here
	} else {
		n.found.Captures++
	}
	if c.recorded.Undone {
		r.flags |= undone
	}
	r.flags |= flags(c.recorded.Ending) << endingShift
	r.tls, r.addr, r.proto, r.block = uint64(c.recorded.TLSVersion), c.recorded.Addr.AsSlice(), []byte(c.recorded.Proto), c.recorded.Block
	r.input = []byte(strings.ToValidUTF8(string(it.uri[:min(len(it.uri), inputs.MaxInput)]), ""))
	return n.add(&r, c.target, c.recorded.At, it.crawl)
}

// leftOut reports whether a host is left out by Options.Sample.
func (n *Nights) leftOut(host string) bool {
	if n.opt.Sample > 0 && !inputs.Sampled(host, n.opt.Sample) {
		n.stats.LeftOut++
		return true
	}
	return false
}

// reject keeps a reject without a night, for the first one.
func (n *Nights) reject(r *record, text []byte, reason string) error {
	n.stats.Rejects++
	*r = record{seq: r.seq, file: r.file, line: r.line, flags: rejected, input: text[:min(len(text), inputs.MaxText)], block: []byte(reason)}
	r.setKey(0, nil)
	return n.spool.add(r)
}

// earliest is when the first robots.txt was proposed. Earlier dates are mistakes: zero, or numbers of another kind.
var earliest = time.Date(1994, 1, 1, 0, 0, 0, 0, time.UTC)

// add adds a record to its night.
func (n *Nights) add(r *record, url exchange.Target, at time.Time, crawl string) error {
	text := r.input
	if at.IsZero() {
		r.flags |= noTime
	} else if n.opt.Date == "" && (at.Before(earliest) || at.After(n.opt.Now.Add(24*time.Hour))) {
		return n.reject(r, text, "its date is before 1994 or in the future")
	} else {
		r.at = uint64(at.UnixMilli())
	}
	if at.IsZero() && n.opt.Date == "" {
		if n.undated++; n.undated == 1 {
			n.noDate = n.names[r.file]
		}
		return n.reject(r, text, "it has no date, and --date gives none")
	}
	key, reason := n.night(at, n.names[r.file], crawl)
	if reason != "" {
		return n.reject(r, text, reason)
	}
	night := n.nights[key]
	if night == nil {
		night = &Night{all: n, key: key}
		n.nights[key] = night
	}
	if settles(r.block, r.ending()) {
		r.flags |= settled
	}
	r.setKey(key, url.AppendTo(nil))
	if day := at.Format(time.DateOnly); n.opt.Date != "" {
		night.Date = n.opt.Date
	} else {
		night.Date = max(night.Date, day)
	}
	if r.flags&target == 0 {
		night.Rows++
	}
	return n.spool.add(r)
}

// crawlName is a crawl of Common Crawl, by year and week; its files are named by times.
var crawlName = regexp.MustCompile(`CC-MAIN-[0-9]{4}-[0-9]{2}\b`)

// night returns the number of a night, above 0, or why there is none.
func (n *Nights) night(at time.Time, file, crawl string) (uint32, string) {
	switch {
	case n.opt.Date != "":
		return 1, ""
	case n.opt.By == Month:
		return uint32(at.Year()*12 + int(at.Month())), ""
	case n.opt.By != Crawl:
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
	return slices.SortedStableFunc(slices.Values(n.order), func(a, b *Night) int { return strings.Compare(a.Date, b.Date) })
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
func (n *Nights) Close() error { return n.spool.close() }

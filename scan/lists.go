package scan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// openLists fixes what is read, and the scan's name. Standard input or another pipe is copied to a file first where a
// dataset is written, so that the scan knows its fingerprint and the same command resumes it.
func (j *Job) openLists(ctx context.Context) error {
	if j.Store != nil {
		if err := CheckVersions(ctx, j.Store); err != nil {
			return err
		}
	}
	j.paths = slices.Clone(j.Lists)
	if j.Names != nil {
		j.Lists = j.Names
	}
	resumable, replayed := j.Store != nil, j.Inputs.Format == inputs.WARC
	for i, path := range j.paths {
		if !isStream(path) || !resumable && !replayed { // archives need random access
			continue
		}
		spooled, err := j.spool(ctx, path)
		if err != nil {
			return err
		}
		j.paths[i] = spooled
		j.spooled = append(j.spooled, spooled)
	}
	if j.scanID = j.Sink.ScanID; replayed || !resumable && (j.DryRun || j.scanID != "") {
		// nights are named while they are read
		return nil
	}
	if err := j.identify(ctx); err != nil {
		return err
	}
	if j.scanID == "" {
		j.scanID = j.datedName()
		if resumable && j.Sink.Date == "" && !j.Sink.Restart && !j.Sink.Repair {
			return j.goOn(ctx)
		}
	}
	return nil
}

// identify fingerprints the lists if that is of use, and sets the mark in the scan's name.
func (j *Job) identify(ctx context.Context) error {
	j.mark = fmt.Sprintf("%06x", rand.N(1<<24)) // for a list that is read as it comes: its fingerprint is known too late
	if j.Store == nil && slices.ContainsFunc(j.paths, isStream) {
		return nil
	}
	for _, path := range j.paths {
		one, err := fingerprint(ctx, path)
		if err != nil {
			return j.unspooled(err)
		}
		j.fingerprints = append(j.fingerprints, one)
	}
	j.mark = j.markOfLists()
	return nil
}

// datedName is the name of a scan that has been given none.
func (j *Job) datedName() string { return strings.ReplaceAll(j.date(), "-", "") + "-" + j.mark }

// goOnFor is how long after its last commit a scan is continued by the same command of a later day.
const goOnFor = 24 * time.Hour

// goOn continues the scan that the same command left unfinished on an earlier day, under its date. The name of a new
// scan would differ only in the date.
func (j *Job) goOn(ctx context.Context) error {
	earlier, err := sink.FindUnfinished(ctx, j.Store, j.sinkOptions(), func(scanID string) bool {
		date, ok := strings.CutSuffix(scanID, "-"+j.mark)
		_, err := time.Parse("20060102", date)
		return ok && err == nil
	})
	switch {
	case err != nil || earlier == nil:
		return err
	case earlier.Err == nil && j.Begun.Sub(earlier.Last) < goOnFor:
		j.scanID, j.Sink.Date = earlier.ScanID, earlier.Date
		j.Log.Info("continuing the unfinished scan of these lists", "scan", earlier.ScanID, "date", earlier.Date,
			"last_commit", earlier.Last, "otherwise", "--date or --restart begins a new one")
	case earlier.Err == nil:
		j.Log.Warn("a new scan begins; an earlier one of these lists is unfinished", "unfinished", earlier.ScanID,
			"last_commit", earlier.Last, "remedy", "the same command with --scan-id "+earlier.ScanID+" continues it")
	default:
		j.Log.Warn("a new scan begins; an earlier one of these lists is unfinished", "unfinished", earlier.ScanID,
			"last_commit", earlier.Last, "not_continued", earlier.Err)
	}
	return nil
}

// markOfLists is the part of the scan's name about its lists and its observer: another observer of the same lists makes
// another scan.
func (j *Job) markOfLists() string {
	var text []byte
	for _, list := range j.fingerprints {
		text = fmt.Appendln(text, list)
	}
	sum := sha256.Sum256(fmt.Appendf(text, "%s\n%s", j.Sink.Observer, j.Sink.ListID))
	return hex.EncodeToString(sum[:3])
}

// fingerprint identifies an input: a folder by its files and their names.
func fingerprint(ctx context.Context, path string) (sum inputs.Fingerprint, err error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err = replay.Files(path); err != nil {
			return sum, &inputs.Error{File: path, Err: err}
		}
	}
	sum, err = inputs.FingerprintOf(ctx, files)
	for _, file := range files {
		if name, err := filepath.Rel(path, file); err == nil && name != "." {
			sum = sha256.Sum256(append(sum[:], filepath.ToSlash(name)...))
		}
	}
	return sum, err
}

func (j *Job) removeSpooled() {
	for _, path := range j.spooled {
		_ = os.Remove(path)
	}
}

// spool copies a stream to a file.
func (j *Job) spool(ctx context.Context, path string) (string, error) {
	name, stream := "standard input", j.Inputs.Stdin
	if path != "-" {
		file, err := inputs.OpenFile(ctx, path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		name, stream = path, file
	}
	spooled, err := inputs.Spool(ctx, stream, os.TempDir())
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	return spooled, nil
}

// isStream reports whether a list can be read only once: standard input, a pipe, as of the shell's <(…), or a device.
func isStream(path string) bool {
	info, err := os.Stat(path)
	return path == "-" || err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeDevice) != 0
}

// listed returns the lists for the manifest.
func (j *Job) listed() (list []commit.Input) {
	for i, fingerprint := range j.fingerprints {
		in := commit.Input{Name: j.Lists[i], Fingerprint: fingerprint.String()}
		if info, err := os.Stat(j.paths[i]); err == nil { // it is only for people
			in.Bytes = info.Size()
		}
		list = append(list, in)
	}
	return list
}

// DoubtError says that lists may not be what their user means.
type DoubtError struct{ Doubts []*inputs.Doubt }

func (e *DoubtError) Error() string {
	var texts []string
	for _, d := range e.Doubts {
		texts = append(texts, d.File+": "+d.String())
	}
	return strings.Join(texts, "; ") +
		"; choose the column of the sites with --column, or the form with --format; if the list is meant as it is, repeat with --accept-list"
}

// doubts returns the lists that are in doubt, and warns of those that are accepted. A stream is not judged, since its
// sites are fetched as they come. Neither is a list that cannot be read to its end: the scan keeps the sites before the
// error.
func (j *Job) doubts(ctx context.Context) (doubts []*inputs.Doubt, err error) {
	for _, path := range j.paths {
		if isStream(path) {
			continue
		}
		o := j.Inputs
		o.Parquet = openParquet
		of, err := inputs.Doubts(ctx, []string{path}, o)
		if _, unread := errors.AsType[*inputs.Error](err); unread {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, d := range of {
			d.File = j.called(d.File)
			if j.AcceptList {
				j.Log.Warn("a list is in doubt, and accepted", "list", d.File, "doubt", d.String())
			}
		}
		doubts = append(doubts, of...)
	}
	return doubts, nil
}

// openReader begins to read the lists.
func (j *Job) openReader(ctx context.Context) error {
	o := j.Inputs
	o.Reject = j.reject
	if !j.Share.Whole() {
		o.Mine = j.Share.Has
	}
	list, err := OpenList(ctx, j.paths, o)
	if err == nil {
		j.reader = list
	}
	return j.unspooled(err)
}

// OpenList opens lists that are read and not scanned.
func OpenList(ctx context.Context, paths []string, o inputs.Options) (*inputs.Reader, error) {
	o.Parquet = openParquet
	return inputs.Open(ctx, paths, o)
}

// openParquet opens a list in Parquet.
func openParquet(file io.ReaderAt, size int64) (inputs.Table, error) {
	return table.OpenList(file, size)
}

// ReadPanel reads a list of hosts. A host counts once, whatever the scheme and port of its entries.
func ReadPanel(ctx context.Context, path string) (_ *diff.Panel, err error) {
	fingerprint, err := inputs.FingerprintOf(ctx, []string{path})
	if err != nil {
		return nil, err
	}
	list, err := OpenList(ctx, []string{path}, inputs.Options{LocalNames: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, list.Close()) }()
	hosts := map[string]bool{}
	for {
		entry, err := list.Next()
		if errors.Is(err, io.EOF) {
			return diff.NewPanel(path, fingerprint.String(), hosts), nil
		}
		if err != nil {
			return nil, err
		}
		hosts[entry.Origin.Host()] = true
	}
}

// Counted is what a dry run finds on the lists.
type Counted struct {
	inputs.Stats
	Auto, Named uint64 // entries without a scheme, and those with one
	Doubts      []*inputs.Doubt

	ScanID  string
	Dataset sink.Preview // of the scan in the dataset

	Nights *replay.Nights // for archives and bodies, only these and Stats are counted; else nil
}

// Count reads the lists and looks at the dataset. It fails where Run would fail before it begins. It writes nothing and
// makes no requests.
func (j *Job) Count(ctx context.Context) (*Counted, error) {
	if err := j.openLists(ctx); err != nil {
		return nil, err
	}
	c := &Counted{ScanID: j.scanID}
	if j.Inputs.Format == inputs.WARC {
		err := j.readNights(ctx)
		if err != nil {
			return nil, err
		}
		c.Stats, c.Nights = j.listStats(), j.nights
		return c, j.eachNight(func(*replay.Night) error {
			before := c.Dataset.Kept
			err := j.look(ctx, c)
			c.Dataset.Kept += before
			return err
		})
	}
	err := j.openReader(ctx)
	if err != nil {
		return nil, err
	}
	if c.Doubts, err = j.doubts(ctx); err != nil {
		return nil, err
	}
	if err := j.look(ctx, c); err != nil {
		return nil, err
	}
	for {
		entry, err := j.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			c.Stats = j.listStats()
			return c, nil
		case err != nil:
			return nil, err
		case entry.Origin.Scheme() == origin.Auto:
			c.Auto++
		default:
			c.Named++
		}
	}
}

// listStats says what was read of the lists. For archives and bodies, duplicates are known only of nights that were
// judged.
func (j *Job) listStats() (s inputs.Stats) {
	if j.nights == nil {
		s = j.reader.Stats()
	} else {
		s = j.nights.Stats()
		for _, night := range j.nights.List() {
			duplicates := night.Stats().Duplicates
			s.Duplicates, s.Rejects = s.Duplicates+duplicates, s.Rejects+duplicates
		}
	}
	for i := range s.Files {
		s.Files[i].Name = j.called(s.Files[i].Name)
	}
	return s
}

// look finds the scan in the dataset, and what sink.Open would refuse there.
func (j *Job) look(ctx context.Context, c *Counted) (err error) {
	if j.Store == nil {
		return nil
	}
	if err := store.Try(ctx, j.Store); err != nil {
		return err
	}
	defer j.tellOfLock()()
	c.Dataset, err = sink.Look(ctx, j.Store, j.sinkOptions())
	return err
}

// called returns the user's name of a list or of its member: "-" in place of a spooled file.
func (j *Job) called(name string) string {
	for i, path := range j.paths {
		if within, ok := strings.CutPrefix(name, path); ok && path != j.Lists[i] {
			return j.Lists[i] + within
		}
	}
	return name
}

// unspooled makes an error about a spooled list say so: the file that the error names will be deleted.
func (j *Job) unspooled(err error) error {
	if e, ok := errors.AsType[*inputs.Error](err); ok {
		if name := j.called(e.File); name != e.File {
			if within, ok := strings.CutPrefix(name, "-"); ok {
				name = "standard input" + within
			}
			e.File = name
		}
	}
	return err
}

// reject notes a line that is no origin.
func (j *Job) reject(r inputs.Reject) error {
	r.Input = j.called(r.Input)
	j.Log.Debug("rejected", "input", r.Input, "line", r.Line, "reason", r.Reason, "text", r.Text)
	if j.rejects == nil || !r.Duplicate && j.Share.I > 0 { // a line without an origin belongs to the first share
		return nil
	}
	return j.rejects.Add(commit.Reject{Input: r.Input, Line: int64(r.Line), Text: r.Text, Reason: r.Reason})
}

// listReader reads lists, or archives.
type listReader interface {
	Next() (inputs.Entry, error)
	Stats() inputs.Stats
	Progress() (read, total int64)
	Close() error
}

// source makes a reader a pipeline.Source.
type source struct {
	listReader
	told func(error) error // how an error is told
}

func (s source) Next() (pipeline.Entry, error) {
	e, err := s.listReader.Next()
	return pipeline.Entry{Seq: e.Seq, Input: e.Input, Origin: e.Origin, Rank: e.Rank, Label: e.Label}, s.told(err)
}

// Recall calls the Recall of the night: the pipeline recalls only the answers of nights.
func (s source) Recall(r *exchange.Response) { s.listReader.(*replay.Night).Recall(r) }

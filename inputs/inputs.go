// Package inputs answers one question: who is on the list? It reads lists of sites as they are found in the wild
// (plain lines, the rank lists that researchers use, CSV of any shape, JSON lines, compressed or not) and hands out
// one origin at a time.
//
// The package is laid out as a byte travels: source.go opens files, archives and compressions; lines.go cuts their
// bytes into bounded lines; detect.go decides what the lines are (layout); record.go takes one line apart, and json.go
// one that is JSON; table.go takes rows of tables instead; dedupe.go knows what was seen, with the help of spill.go where
// that is too much for memory; and this file, the Reader, walks over it all and counts. fingerprint.go stands
// apart: it names a list by its contents, so that a scan can be resumed.
//
// Every physical line, be it blank, a comment, a header or broken, advances Entry.Seq by one. A line is either an
// entry, a reject, skipped (blank, comment, header) or left out by sampling, and the Stats say how many were what.
package inputs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// Bounds of what is read and repeated, in bytes.
const (
	MaxLine  = 64 << 10 // a longer line is a reject
	MaxInput = 500      // of Entry.Input
	MaxLabel = 200      // of Entry.Label
	MaxText  = 256      // of Reject.Text
)

// Entry is one origin of a list.
type Entry struct {
	// Seq is the 0-based number of the entry's line over all inputs. Skipped and rejected lines count, so that it
	// names the same line in every run over the same inputs.
	Seq uint64
	// Input is what the list says, without white space around it: a line, or the cell that holds the host. It is
	// valid UTF-8, cut at MaxInput bytes.
	Input  string
	Origin origin.Origin
	Rank   int64  // 0 where the list has none
	Label  string // "" where the list has none; valid UTF-8, cut at MaxLabel bytes
}

// Reject is a line that gives no origin.
type Reject struct {
	Input  string // the file; a member of an archive is `list.zip:member.csv`
	Line   uint64 // 1-based, in that file
	Text   string // the line as it stands, cut at MaxText bytes; may hold any bytes
	Reason string
}

// Options say how to read. The zero value detects everything and takes every entry.
type Options struct {
	Format Format // Auto by default
	// Column and LabelColumn name the column of the hosts and of a label: by the header's name (case does not
	// matter) or by a 1-based number. For JSON lines they are keys. Empty: the hosts' column is found, no label.
	Column, LabelColumn string
	// Limit ends the list after so many entries; 0 is no limit.
	Limit uint64
	// Sample, between 0 and 1, keeps that share of the hosts, chosen by a hash of the host alone: the same hosts in
	// every run and every list. 0 and 1 keep all.
	Sample float64
	// Reject is told each line that gives no origin, in order, from within Next; its error ends the reading. Nil:
	// nobody wants to know.
	Reject func(Reject) error
	// Stdin is what "-" stands for.
	Stdin io.Reader
	// Parquet opens a Parquet file of that size, which stays open for as long as the Table is used. Nil: such files are
	// refused.
	Parquet func(file io.ReaderAt, size int64) (Table, error)
	// DedupeMemory is how many bytes knowing duplicates may take; origins beyond are known by a temporary file. 0 is
	// DefaultDedupeMemory. Less than a MiB is not enough to be kept to.
	DedupeMemory int64
	// TempDir is where temporary files are made; "" is the system's folder. They have no names: nothing is left of them.
	TempDir string
}

// Stats is what a Reader met so far. Lines = Entries + Rejects + Skipped + LeftOut, but for the line at which an
// error or the limit ended the reading.
type Stats struct {
	Lines       uint64
	Entries     uint64
	Rejects     uint64 // duplicates included
	Duplicates  uint64
	Skipped     uint64 // blank lines, comments, headers
	LeftOut     uint64 // by Options.Sample
	DedupeBytes int64  // memory held to know duplicates
	DedupeDisk  int64  // bytes of a temporary file for the same end
	Files       []FileStats
}

// FileStats is what is known of one file, or of one member of an archive.
type FileStats struct {
	Name        string
	Compression string // "gzip", "zip+gzip" …; "" for none
	Layout      string // how its lines are read, in words: `csv (comma), header, host in column 3 "Domain"`
	Lines       uint64
}

// Error is a failure to read a list. Entries before it have been delivered.
type Error struct {
	File   string
	Line   uint64 // 1-based; 0 where it is no matter of a line
	Err    error
	Remedy string // what to do about it
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot read %s", e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, " from line %d on", e.Line)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reader reads lists one after the other. It is not safe for concurrent use, but for Progress.
type Reader struct {
	opt   Options
	src   source
	lines lineReader
	table Table // instead of lines; else nil
	take  record
	seen  seen

	open   bool // a stream is being read
	name   string
	layout layout
	line   uint64 // lines read of the present file
	stats  Stats
	labels map[string]string
	err    error
}

// maxLabels bounds how many labels are remembered to be shared between entries.
const maxLabels = 4096

// Open prepares to read the files in the order given; "-" is opt.Stdin. Every regular file is looked at, so that a
// missing file, a folder or a format that cannot be read is told now and not after hours of scanning. An empty list
// is no error: it has no entries. Close the Reader after use.
func Open(ctx context.Context, paths []string, opt Options) (*Reader, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("cannot read the list: no input is named")
	}
	r := &Reader{opt: opt, labels: make(map[string]string)}
	r.seen.limit, r.seen.dir = cmp.Or(opt.DedupeMemory, DefaultDedupeMemory), opt.TempDir
	r.src.init(ctx, paths, opt)
	if err := r.lookAhead(ctx, paths); err != nil {
		return nil, err
	}
	return r, nil
}

func (o Options) check() error {
	if o.Sample < 0 || o.Sample > 1 || math.IsNaN(o.Sample) {
		return fmt.Errorf("cannot sample %v of a list: the share is from 0 to 1", o.Sample)
	}
	switch o.Format {
	case Auto, Lines, CSV, JSONL:
	case Parquet:
		if o.Parquet == nil {
			return refused(o.Format)
		}
	case WARC:
		return refused(o.Format)
	default:
		return fmt.Errorf("cannot read a list as %v", o.Format)
	}
	if o.Format == Lines && (o.Column != "" || o.LabelColumn != "") {
		return errors.New("cannot choose a column of plain lines: they have none")
	}
	return nil
}

// lookAhead detects the first stream of each file that can be opened twice, and forgets what it found.
func (r *Reader) lookAhead(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if path == "-" {
			if r.opt.Stdin == nil {
				return &Error{File: "standard input", Err: errors.New("there is none")}
			}
			continue
		}
		again, size, err := rereadable(path)
		if err != nil {
			return err
		}
		r.src.total += size
		if !again {
			continue
		}
		look := Reader{opt: r.opt}
		look.src.init(ctx, []string{path}, r.opt)
		err = look.nextStream()
		_ = look.src.Close()
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// Next returns the next entry, or io.EOF after the last, or an *Error, or the error of Options.Reject or of the
// context. After an error it returns the same error again.
func (r *Reader) Next() (Entry, error) {
	for r.err == nil {
		entry, ok, err := r.step()
		if err != nil {
			r.err = err
			_ = r.src.Close()
			break
		}
		if ok {
			return entry, nil
		}
	}
	return Entry{}, r.err
}

// step reads one line, or opens the next stream; ok reports whether it is an entry.
func (r *Reader) step() (Entry, bool, error) {
	if r.opt.Limit > 0 && r.stats.Entries >= r.opt.Limit {
		return Entry{}, false, io.EOF
	}
	if !r.open {
		return Entry{}, false, r.nextStream()
	}
	line, reason, err := r.advance()
	if err == io.EOF {
		r.open = false
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, damaged(r.name, r.line+1, err)
	}
	seq := r.stats.Lines
	r.stats.Lines++
	r.line++
	r.stats.Files[len(r.stats.Files)-1].Lines++

	switch {
	case reason == skipLine:
		r.stats.Skipped++
		return Entry{}, false, nil
	case reason != "":
		return Entry{}, false, r.reject(line, reason)
	}
	entry, reason := r.entry()
	if reason != "" {
		return Entry{}, false, r.reject(line, reason)
	}
	if r.opt.Sample > 0 && !Sampled(entry.Origin.Host(), r.opt.Sample) {
		r.stats.LeftOut++
		return Entry{}, false, nil
	}
	fresh, err := r.seen.add(entry.Origin)
	if err != nil {
		return Entry{}, false, err
	}
	if !fresh {
		r.stats.Duplicates++
		return Entry{}, false, r.reject(line, "duplicate of an earlier entry")
	}
	entry.Seq = seq
	r.stats.Entries++
	return entry, true, nil
}

// advance takes the next line or row, valid until the next, and says why it is no entry, or returns io.EOF behind the last.
func (r *Reader) advance() (line []byte, reason string, err error) {
	if r.table != nil {
		return r.nextRow()
	}
	line, long, err := r.lines.next()
	if err != nil {
		return nil, "", err
	}
	if long {
		r.take.started = true // were it the header, the next line is not
		return line, "line is longer than 64 KiB", nil
	}
	return line, r.take.read(line, &r.layout), nil
}

// entry makes an Entry of the record just read, or says why it is none.
func (r *Reader) entry() (Entry, string) {
	if addressRange(r.take.host) {
		return Entry{}, "an address range is no origin"
	}
	// The one allocation of an entry: the origin's host is a part of this string.
	text := string(r.take.host)
	o, spelling, err := origin.ParseSpelling(text)
	if err != nil {
		return Entry{}, err.Error()
	}
	if misread(o, spelling) {
		return Entry{}, fmt.Sprintf("write the address in full: this would be read as %s", o.Host())
	}
	if len(text) > MaxInput {
		// Do not let 64 KiB of path live as long as the origin does.
		text = strings.Clone(clip(text, MaxInput))
		if o, err = origin.New(o.Scheme(), strings.Clone(o.Host()), o.Port()); err != nil {
			return Entry{}, err.Error()
		}
	}
	return Entry{Input: text, Origin: o, Rank: r.take.rank, Label: r.label(r.take.label)}, ""
}

// misread reports whether an entry that browsers read as an IPv4 address is rather a rank, a price, a date or a padded
// address, and would have us ask somebody whom the list does not name. What leads to nobody in public stays an entry,
// so that its row says that the address was blocked; but for numbers too small to be other than counts.
func misread(o origin.Origin, spelling origin.Spelling) bool {
	if spelling == origin.Full {
		return false
	}
	return !o.NoPublic() || spelling == origin.Number && strings.HasPrefix(o.Host(), "0.")
}

// label returns the label as a string that equal labels share.
func (r *Reader) label(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := r.labels[string(b)]; ok {
		return s
	}
	s := strings.Clone(clip(string(b), MaxLabel))
	if len(r.labels) < maxLabels && len(b) <= MaxLabel {
		r.labels[s] = s
	}
	return s
}

func (r *Reader) reject(line []byte, reason string) error {
	r.stats.Rejects++
	if r.opt.Reject == nil {
		return nil
	}
	if len(line) > MaxText {
		line = line[:MaxText]
	}
	return r.opt.Reject(Reject{Input: r.name, Line: r.line, Text: string(line), Reason: reason})
}

// nextStream opens the next file or member, detects what it is, and makes it the present one.
func (r *Reader) nextStream() error {
	stream, err := r.src.next()
	if err != nil {
		return err
	}
	r.name, r.line, r.table = stream.name, 0, nil
	if stream.table != nil {
		err = r.beginTable(stream)
	} else {
		err = r.beginLines(stream)
	}
	if err != nil {
		return err
	}
	r.take.begin()
	r.stats.Files = append(r.stats.Files, FileStats{Name: r.name, Compression: stream.compression, Layout: r.layout.String()})
	r.open = true
	return nil
}

// beginLines detects how the lines of a stream are read.
func (r *Reader) beginLines(stream stream) error {
	r.lines.reset(stream.Reader)
	head, err := r.lines.peek()
	if err != nil {
		return damaged(r.name, r.line+1, err)
	}
	if r.layout, err = detect(head, r.lines.ended(), r.opt); err != nil {
		return damaged(r.name, 0, err)
	}
	r.lines.begin(r.layout.bom, r.layout.eol)
	return nil
}

// Stats returns what was met so far.
func (r *Reader) Stats() Stats {
	s := r.stats
	s.Files = append([]FileStats(nil), s.Files...)
	s.DedupeBytes, s.DedupeDisk = r.seen.bytes(), r.seen.diskBytes()
	return s
}

// Progress returns how many bytes of the files, as they lie on disk, have been read, and how many there are: 0 where
// that is not known. It may be called at any time from any goroutine.
func (r *Reader) Progress() (read, total int64) { return r.src.read.Load(), r.src.total }

// Close closes the files. Next returns an error afterwards.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("cannot read the list: it was closed")
	}
	r.seen.close()
	return r.src.Close()
}

// Sampled reports whether a host belongs to the share of Options.Sample.
func Sampled(host string, share float64) bool {
	// 53 bits are what a float64 holds exactly.
	return float64(xxhash.Sum64String(host)>>11) < share*(1<<53)
}

// clip cuts valid UTF-8 at n bytes without breaking a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

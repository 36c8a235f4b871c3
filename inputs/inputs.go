// Package inputs answers one question: who is on the list? It reads lists of sites in all usual forms (plain lines,
// rank lists, CSV, JSON lines, compressed or not) and returns one origin at a time.
//
// The files follow the bytes: source.go opens files, archives and compressions; lines.go splits them into bounded
// lines; detect.go determines their layout; record.go parses a line, and json.go a line of JSON; table.go reads rows of
// tables instead; dedupe.go finds duplicates. The Reader in this file connects them and counts. doubt.go says which
// lists may not be what their user means. fingerprint.go identifies a list by its contents, so that a scan can be
// resumed. rows.go reads files of other columns.
//
// Every physical line advances Entry.Seq by one, be it blank, a comment, a header or broken. A line is an entry, a
// reject, skipped (blank, comment, header), left out by sampling, or belongs to another share. Stats counts each.
package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/origin"
)

// Bounds in bytes.
const (
	MaxLine  = 64 << 10 // of a line; a longer one is a reject
	MaxInput = 500      // of Entry.Input
	MaxLabel = 200      // of Entry.Label
	MaxText  = 256      // of Reject.Text
)

// Entry is one origin of a list.
type Entry struct {
	// Seq is the 0-based number of the entry's line over all inputs. Skipped and rejected lines count, so that Seq
	// names the same line in every run.
	Seq uint64
	// Input is the line, or the cell with the host, without white space around it. It is valid UTF-8, cut at MaxInput
	// bytes.
	Input  string
	Origin origin.Origin
	Rank   int64  // 0 where the list has none
	Label  string // "" where the list has none; valid UTF-8, cut at MaxLabel bytes
}

// Reject is a line without an origin.
type Reject struct {
	Input  string // the file; `list.zip:member.csv` for a member of an archive
	Line   uint64 // 1-based, in that file
	Text   string // the line as it is, cut at MaxText bytes; may hold any bytes
	Reason string
	// Duplicate says that the line is an origin that was returned before.
	Duplicate bool
}

// Options say how to read. The zero value detects everything and takes every entry.
type Options struct {
	Format Format // Auto by default
	// Column and LabelColumn name the columns of hosts and labels, by the header's name (ignoring case) or a 1-based
	// number; for JSON lines by keys. Empty: the host column is detected, and there are no labels.
	Column, LabelColumn string
	// Limit ends the list after so many entries; 0 is no limit.
	Limit uint64
	// Sample, between 0 and 1, keeps that share of the hosts. A hash of the host chooses: the same hosts in every run
	// and every list. 0 and 1 keep all.
	Sample float64
	// Mine, if not nil, reports whether an entry belongs to the share of the list that is read. Other entries are
	// neither returned nor remembered as duplicates.
	Mine func(origin.Origin) bool
	// Reject, if not nil, receives each line without an origin, in order, during Next. Its error ends the reading.
	Reject func(Reject) error
	// LocalNames accepts names without a top-level domain, such as internal ones: names without a dot, or with one letter
	// after the last dot. By default they are rejects, since lists contain such words for unknown names.
	LocalNames bool
	// Stdin is the input "-".
	Stdin io.Reader
	// Parquet opens a Parquet file of the given size, which stays open while the Table is used. If nil, such files are
	// refused.
	Parquet func(file io.ReaderAt, size int64) (Table, error)
	// TempDir is the folder for temporary files; "" is the system's. The files have no names, so that none is left
	// over.
	TempDir string
}

// Stats counts what a Reader has read. Lines = Entries + Rejects + Skipped + LeftOut + Elsewhere, except for the line
// at which an error or the limit ended the reading.
type Stats struct {
	Lines      uint64
	Entries    uint64
	Rejects    uint64 // duplicates included
	Duplicates uint64
	Skipped    uint64 // blank lines, comments, headers
	LeftOut    uint64 // by Options.Sample
	Elsewhere  uint64 // not Options.Mine
	Files      []FileStats
}

// FileStats describes one file, or one member of an archive.
type FileStats struct {
	Name        string
	Compression string // "gzip", "zip+gzip" …; "" if none
	Layout      string // in words: `csv (comma), header, host in column 3 "Domain"`
	Lines       uint64
}

// Error is a failure to read a list. Next has returned all entries before it.
type Error struct {
	File   string
	Line   uint64 // 1-based; 0 if the error concerns no line
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

// Reader reads lists in order. Only Progress is safe for concurrent use.
type Reader struct {
	opt   Options
	src   source
	lines lineReader
	table Table // in place of lines, if not nil
	take  record
	seen  seen

	open   bool // a stream is being read
	name   string
	layout layout
	line   uint64 // lines read of the current file
	stats  Stats
	labels map[string]string
	err    error

	// For Progress, of the current stream. taken is how many bytes of text, or rows, were returned. A number `of` of
	// these stands for `bytes` of the file; 0: not known yet.
	taken, of, bytes atomic.Int64
}

// maxLabels bounds the labels that are kept for sharing between entries.
const maxLabels = 4096

// Open prepares to read the files in the given order; "-" is opt.Stdin. It checks every regular file, so that a
// missing file, a folder or an unreadable format fails now, not after hours of scanning. An empty list is no error.
// Close the Reader after use.
func Open(ctx context.Context, paths []string, opt Options) (*Reader, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("cannot read the list: no input is named")
	}
	r := &Reader{opt: opt, labels: make(map[string]string)}
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

// lookAhead detects the first stream of each file that can be opened twice, as a check.
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

// Next returns the next entry, or io.EOF after the last. Other errors are an *Error, or that of Options.Reject or of
// the context; they are returned again by later calls.
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
	line, reason, ok, err := r.read()
	if err != nil || !ok {
		return Entry{}, false, err
	}
	seq := r.stats.Lines - 1
	switch {
	case reason == skipLine:
		r.stats.Skipped++
		return Entry{}, false, nil
	case reason != "":
		return Entry{}, false, r.reject(line, reason, false)
	}
	entry, reason := r.entry()
	if reason != "" {
		return Entry{}, false, r.reject(line, reason, false)
	}
	if r.opt.Mine != nil && !r.opt.Mine(entry.Origin) {
		r.stats.Elsewhere++
		return Entry{}, false, nil
	}
	if r.opt.Sample > 0 && !Sampled(entry.Origin.Host(), r.opt.Sample) {
		r.stats.LeftOut++
		return Entry{}, false, nil
	}
	if !r.seen.add(entry.Origin) {
		r.stats.Duplicates++
		return Entry{}, false, r.reject(line, "duplicate of an earlier entry", true)
	}
	entry.Seq = seq
	r.stats.Entries++
	return entry, true, nil
}

// read reads one line, or opens the next stream; ok reports whether it read a line. reason says why the line is no
// entry. The error is io.EOF after the last stream.
func (r *Reader) read() (line []byte, reason string, ok bool, err error) {
	if !r.open {
		return nil, "", false, r.nextStream()
	}
	line, reason, err = r.advance()
	if r.taken.Add(1); r.table == nil {
		r.taken.Store(r.lines.taken())
		if r.lines.text > 0 {
			r.of.Store(r.lines.text)
			r.bytes.Store(r.lines.packed)
		}
	}
	if err == io.EOF {
		r.open = false
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, damaged(r.name, r.line+1, err)
	}
	r.stats.Lines++
	r.line++
	r.stats.Files[len(r.stats.Files)-1].Lines++
	return line, reason, true, nil
}

// advance reads the next line or row, valid until the next call. It returns why the line is no entry, or io.EOF after
// the last.
func (r *Reader) advance() (line []byte, reason string, err error) {
	if r.table != nil {
		return r.nextRow()
	}
	line, long, err := r.lines.next()
	if err != nil {
		return nil, "", err
	}
	if long {
		r.take.started = true // a row that could be a header was read
		return line, "line is longer than 64 KiB", nil
	}
	return line, r.take.read(line, &r.layout), nil
}

// entry makes an Entry of the record, or returns why it is not one.
func (r *Reader) entry() (Entry, string) {
	// The only allocation of an entry: the origin's host is a part of this string.
	text := string(unbracketed(r.take.host))
	if r.layout.reversed {
		text = forward(text)
	}
	o, reason := ParseSite(text, r.opt.LocalNames)
	if reason != "" {
		return Entry{}, reason
	}
	if len(text) > MaxInput {
		// Do not keep a path of up to 64 KiB alive with the origin.
		var err error
		text = strings.Clone(Clip(text, MaxInput))
		if o, err = origin.New(o.Scheme(), strings.Clone(o.Host()), o.Port()); err != nil {
			return Entry{}, err.Error()
		}
	}
	return Entry{Input: text, Origin: o, Rank: r.take.rank, Label: r.label(r.take.label)}, ""
}

// ParseSite returns the origin of a host or URL from a list, or the reason why the text is no origin. See
// Options.LocalNames.
func ParseSite(text string, localNames bool) (o origin.Origin, reason string) {
	if addressRange(text) {
		return o, "an address range is no origin"
	}
	o, spelling, err := origin.ParseSpelling(text)
	if err != nil {
		return o, err.Error()
	}
	if !localNames && isLocal(o.Host()) {
		return o, "a name without a top-level domain (--allow-private takes internal names)"
	}
	if misread(o, spelling) {
		return o, fmt.Sprintf("write the address in full: this would be read as %s", o.Host())
	}
	return o, ""
}

// forward returns a name whose labels are in reversed order, as web graphs have them, in the usual order.
func forward(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// isLocal reports whether a normalised host is a name without a top-level domain. No top-level domain has one letter.
func isLocal(host string) bool {
	dot := strings.LastIndexByte(host, '.')
	switch last := host[dot+1:]; {
	case strings.IndexByte(host, ':') >= 0:
		return false // an IPv6 address
	case dot < 0:
		return true
	default:
		return len(last) == 1 && (last[0] < '0' || last[0] > '9') // else it is an IPv4 address
	}
}

// misread reports whether an entry is a number, price, date or padded address that browsers would read as an IPv4
// address. Such an entry would cause requests to a host that is not on the list. Entries with private addresses stay,
// so that their rows say that the address was blocked. Numbers below 2²⁴ (0.x.x.x) are misread, too: they are counts.
func misread(o origin.Origin, spelling origin.Spelling) bool {
	if spelling == origin.Full {
		return false
	}
	return !o.IsSpecial() || spelling == origin.Number && strings.HasPrefix(o.Host(), "0.")
}

// label returns the label as a string that equal labels share.
func (r *Reader) label(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := r.labels[string(b)]; ok {
		return s
	}
	s := strings.Clone(Clip(string(b), MaxLabel))
	if len(r.labels) < maxLabels && len(b) <= MaxLabel {
		r.labels[s] = s
	}
	return s
}

func (r *Reader) reject(line []byte, reason string, duplicate bool) error {
	r.stats.Rejects++
	if r.opt.Reject == nil {
		return nil
	}
	if len(line) > MaxText {
		line = line[:MaxText]
	}
	return r.opt.Reject(Reject{Input: r.name, Line: r.line, Text: string(line), Reason: reason, Duplicate: duplicate})
}

// nextStream opens the next file or member and detects what it is.
func (r *Reader) nextStream() error {
	r.taken.Store(0)
	r.of.Store(0)
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
	r.stats.Files = append(r.stats.Files, FileStats{Name: r.name, Compression: stream.compression,
		Layout: r.layout.String()})
	r.open = true
	return nil
}

// beginLines detects how the lines of a stream are read.
func (r *Reader) beginLines(stream stream) error {
	begun := r.src.begun.Load()
	r.lines.reset(stream.Reader, stream.compression, func() int64 { return r.src.read.Load() - begun })
	if stream.compression == "" {
		r.of.Store(1)
		r.bytes.Store(1)
	}
	head, err := r.lines.peek()
	if err != nil {
		return damaged(r.name, r.line+1, err)
	}
	if r.layout, err = detect(head, r.lines.whole, r.opt); err != nil {
		return damaged(r.name, 0, err)
	}
	r.lines.begin(r.layout.bom, r.layout.eol)
	return nil
}

// Stats returns the counts so far.
func (r *Reader) Stats() Stats {
	s := r.stats
	s.Files = append([]FileStats(nil), s.Files...)
	return s
}

// Progress returns how many bytes of the files the returned lines make up, and the total of bytes. The total is 0 if
// unknown, as for a pipe or at the beginning of a compressed file. Files are read ahead of their lines. For a
// compressed file the bytes are estimated; for a table they follow from its share of rows. It is safe for concurrent
// use.
func (r *Reader) Progress() (read, total int64) {
	begun, taken, of := r.src.begun.Load(), r.taken.Load(), r.of.Load()
	switch {
	case taken == 0:
		return begun, r.src.total
	case of <= 0:
		return begun, 0
	}
	return min(begun+int64(float64(taken)*float64(r.bytes.Load())/float64(of)), r.src.total), r.src.total
}

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
	// A float64 holds 53 bits exactly.
	return float64(xxhash.Sum64String(host)>>11) < share*(1<<53)
}

// Clip cuts valid UTF-8 to at most n bytes, between runes.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

package parser

import (
	"bytes"
	"math"
	"slices"
	"unsafe"
)

// This file is laid out in the order in which a body is read: the File and what it keeps, Parse, then what can be
// asked. The other files: key.go, what a key means; scanner.go, the plain reading of a line; fast.go, the same for most
// lines in less time; agents.go, who is named; table.go, the hash tables; match.go, patterns and paths; decide.go, which rule wins; survey.go, what
// all rules amount to; access.go, what an HTTP status means before any of this.

// File is what a robots.txt file means. The zero value is ready to Parse.
//
// All that it returns is a view of the body or of the File, valid until the next Parse or Reset; the body must stay
// unchanged for as long. A File belongs to one goroutine at a time: asking uses scratch memory too.
type File struct {
	src     []byte
	dialect Dialect
	bom     bool
	dropped bool // a record with a known key was not kept, or octets not read
	lines   uint32
	counts  [NumKeys]uint32

	records []record
	groups  []uint32 // index of each group's first record: a user-agent line
	names   agents

	scratch, path []byte // values and paths, normalised
	url           []byte // the path of a URL that was asked about
	asked         question
	surveys       surveys
}

// record is a line of a body, as offsets into it. The key's text is found again when it is asked for.
type record struct {
	key, value, end uint32 // the key's first octet; the trimmed value is src[value:end]
	line            uint32
	group           int32
	kind            Key
	flags           Flags
}

// Record is a line that is neither blank nor comment. The slices are views of the body.
type Record struct {
	Line    int // 1-based
	Group   int // index of the group that it stands in; -1 before the first user-agent line
	Key     Key
	Flags   Flags
	KeyText []byte // as written, trimmed; of a line without separator, its whole text
	Value   []byte // as written, trimmed, without comment; empty where there is none
}

// Bounds of what a File keeps.
const (
	// maxRecords is how many records are kept: those of any body up to six megabytes, and twenty times what the longest
	// known file has. It bounds the memory that a File can be made to take, to some 150 MB and six octets for each octet of the
	// longest line.
	maxRecords = 1 << 20
	// maxNoise is how many records that are no known key are kept: HTML pages consist of them. All are counted.
	maxNoise = 1 << 16
	// keep is how many bytes Reset keeps of each slice that a File owns: enough for 99 files of 100.
	keep = 192 << 10
)

// Parse reads a body in the Google dialect. It cannot fail: what is no record is no record. Octets past 2 GiB are
// ignored.
func (f *File) Parse(src []byte) { f.ParseDialect(src, Google) }

// ParseDialect is Parse in the given dialect.
func (f *File) ParseDialect(src []byte, d Dialect) {
	tooLong := len(src) > math.MaxInt32
	if tooLong {
		src = src[:math.MaxInt32]
	}
	f.begin(src, d.known())
	f.readLines()
	f.dropped = f.dropped || tooLong
	if f.lines == 0 && len(src) > 0 {
		f.lines = 1 // a byte order mark, and nothing else
	}
	f.names.finish()
}

// begin forgets the body before and takes the new one.
func (f *File) begin(src []byte, d Dialect) {
	f.src, f.dialect, f.lines = src, d, 0
	f.bom, f.dropped = bomLen(src) == 3, false
	f.counts = [NumKeys]uint32{}
	f.records, f.groups = f.records[:0], f.groups[:0]
	f.names.reset()
	f.asked.given = f.asked.given[:0]
	f.surveys.reset()
}

// readLines appends a record for each line that is neither blank nor comment. Of a hundred files one has a NUL or a CR
// without LF: it is read line by line with splitLine, the others by a loop with shortcuts.
func (f *File) readLines() {
	if bytes.IndexByte(f.src, 0) < 0 && f.readFast() {
		return
	}
	f.begin(f.src, f.dialect)
	r := reader{File: f}
	var ends lineEnds
	for pos := bomLen(f.src); pos < len(f.src); {
		end, behind := ends.find(f.src, pos)
		f.lines++
		if p := splitLine(f.src, pos, end, f.dialect); !p.blank {
			r.add(p.key, p.flags, p.keyStart, p.value, p.end)
		}
		pos = behind
	}
}

// reader appends records and sees where groups begin.
type reader struct {
	*File
	closed bool // the current group's list of agents is complete
}

// add appends the record of the current line, whose key begins at start and whose value is src[value:end].
func (r *reader) add(key Key, flags Flags, start, value, end int) {
	f := r.File
	f.counts[key]++
	if len(f.records) == maxRecords {
		f.dropped = f.dropped || key != KeyNone && key != KeyUnknown
		return
	}
	switch key {
	case KeyUserAgent:
		if len(f.groups) == 0 || r.closed {
			f.groups = append(f.groups, uint32(len(f.records)))
			r.closed = false
		}
		f.names.add(f, value, end, uint32(len(f.records)), uint32(len(f.groups)-1))
	case KeyAllow, KeyDisallow:
		// An empty value closes the list as well (RFC 9309 §2.2.1: a group is user-agent lines, then rules).
		r.closed = true
		if len(f.groups) == 0 {
			flags |= FlagOrphan
		}
	case KeyNone, KeyUnknown:
		if !f.keepsNoise() {
			return
		}
	}
	f.another().fill(key, flags, start, value, end, f.lines, len(f.groups)-1)
}

// keepsNoise reports whether the record without a known key that was counted last is kept.
func (f *File) keepsNoise() bool {
	return f.counts[KeyNone]+f.counts[KeyUnknown] <= maxNoise && len(f.records) < maxRecords
}

// another appends a record, to be filled in where it stands. A literal to append would be built elsewhere field by field
// and copied in larger pieces, for which the processor has to wait: a fifth of the time of Parse.
func (f *File) another() *record {
	n := len(f.records)
	if n == cap(f.records) {
		f.records = slices.Grow(f.records, 1)
	}
	f.records = f.records[:n+1]
	return &f.records[n]
}

func (r *record) fill(key Key, flags Flags, start, value, end int, line uint32, group int) {
	r.key, r.value, r.end = uint32(start), uint32(value), uint32(end)
	r.line, r.group, r.kind, r.flags = line, int32(group), key, flags
}

// Reset forgets the body. It keeps memory for the next one, but gives back what grew for a freak.
func (f *File) Reset() {
	f.begin(nil, Google)
	f.records, f.groups = trimmed(f.records), trimmed(f.groups)
	f.scratch, f.path, f.url = trimmed(f.scratch), trimmed(f.path), trimmed(f.url)
	f.names.trim()
	f.asked.given, f.asked.path, f.asked.groups = trimmed(f.asked.given), trimmed(f.asked.path), trimmed(f.asked.groups)
	f.surveys.trim()
}

// trimmed returns s without elements, and without its memory if that is above the bound.
func trimmed[T any](s []T) []T {
	var element T
	if uintptr(cap(s))*unsafe.Sizeof(element) > keep {
		return nil
	}
	return s[:0]
}

// Lines returns the number of lines: a final line end begins no further line.
func (f *File) Lines() int { return int(f.lines) }

// HasBOM reports whether the body begins with a whole UTF-8 byte order mark. It is skipped, as a broken one is.
func (f *File) HasBOM() bool { return f.bom }

// Dialect returns the dialect in which the body was read.
func (f *File) Dialect() Dialect { return f.dialect }

// Count returns how many lines have the key, those included that Records had no room for.
func (f *File) Count(k Key) int {
	if k < NumKeys {
		return int(f.counts[k])
	}
	return 0
}

// Records returns the number of records. Every line that is neither blank nor comment is one, in order, but of lines
// without a known key only the first 65,536 are kept, and 1,048,576 records in all (Count knows them all).
func (f *File) Records() int { return len(f.records) }

// Complete reports whether all octets were read and all records with a known key kept. If not, only the body's first
// million of records take part in decisions, and no Survey is sure. Bodies of less than six megabytes are always complete.
func (f *File) Complete() bool { return !f.dropped }

// Record returns the i-th record.
func (f *File) Record(i int) Record {
	r := &f.records[i]
	return Record{
		Line: int(r.line), Group: int(r.group), Key: r.kind, Flags: r.flags,
		KeyText: f.keyText(r), Value: f.src[r.value:r.end],
	}
}

// The three methods below give parts of the i-th record, as Record does, for those who look at many and need few.

// Kind returns the key and the flags of the i-th record.
func (f *File) Kind(i int) (Key, Flags) {
	r := &f.records[i]
	return r.kind, r.flags
}

// Place returns the line and the group of the i-th record.
func (f *File) Place(i int) (line, group int) {
	r := &f.records[i]
	return int(r.line), int(r.group)
}

// Value returns the value of the i-th record.
func (f *File) Value(i int) []byte {
	r := &f.records[i]
	return f.src[r.value:r.end]
}

// keyText returns the key of a record as written. The separator is looked for again: few callers want the key.
func (f *File) keyText(r *record) []byte {
	start, end := int(r.key), int(r.key)
	switch {
	case r.kind == KeyNone:
		end = int(r.value)
	case r.flags&FlagNoColon != 0:
		end = indexBlank(f.src, start, int(r.value))
	default:
		for f.src[end] != ':' {
			end++
		}
	}
	start, end = trim(f.src, start, end)
	return f.src[start:end]
}

// Groups returns the number of groups: runs of user-agent lines with what follows them (RFC 9309 §2.2.1), not merged.
func (f *File) Groups() int { return len(f.groups) }

// GroupRecords returns the records of a group as the half-open range of their indices. The range begins with the
// group's first user-agent line and ends before the next group's; lines that form no group stand in it too.
func (f *File) GroupRecords(g uint32) (start, end int) {
	start, end = int(f.groups[g]), len(f.records)
	if int(g)+1 < len(f.groups) {
		end = int(f.groups[g+1])
	}
	return start, end
}

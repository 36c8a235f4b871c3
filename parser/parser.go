package parser

import (
	"bytes"
	"math"
	"slices"
	"unsafe"
)

// This file follows the reading of a body: the File and what it keeps, Parse, then queries. Other files: key.go has
// the keys; scanner.go reads a line exactly, fast.go most lines quickly; agents.go has the names, table.go the hash
// tables; match.go has patterns and paths, decide.go chooses the winning rule, survey.go and trials.go sum up all
// rules; access.go reads the HTTP status; robots.go has the immutable value over all of this.

// File is a parsed robots.txt file. The zero value is ready to Parse.
//
// Everything that it returns is a view of the body or of the File, valid until the next Parse or Reset. The body must
// stay unchanged until then. A File may be used by one goroutine at a time: queries use its scratch memory.
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
	url           []byte // scratch of Allows
	asked         question
	surveys       surveys
}

// record is a line of a body, as offsets into it. keyText finds the key's text again.
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
	Group   int // index of its group; -1 before the first user-agent line
	Key     Key
	Flags   Flags
	KeyText []byte // as written, trimmed; the whole text of a line without separator
	Value   []byte // as written, trimmed, without comment; may be empty
}

// Bounds of what a File keeps.
const (
	// maxRecords bounds the records that are kept, and so the memory of a File: to about 150 MB, and six octets for
	// each octet of the longest line. No body below six megabytes reaches it. It is twenty times the records of the
	// longest known file.
	maxRecords = 1 << 20
	// maxNoise bounds the records without a known key that are kept: HTML consists of them. All are counted.
	maxNoise = 1 << 16
	// keep is how many bytes Reset keeps of each slice: enough for 99 of 100 files.
	keep = 192 << 10
)

// Parse reads a body in the Google dialect. It cannot fail: lines that are no records are skipped. Octets past 2 GiB
// are ignored.
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
		f.lines = 1 // only a byte order mark
	}
	f.names.finish()
}

// begin forgets the previous body and takes the new one.
func (f *File) begin(src []byte, d Dialect) {
	f.src, f.dialect, f.lines = src, d, 0
	f.bom, f.dropped = bomLen(src) == 3, false
	f.counts = [NumKeys]uint32{}
	f.records, f.groups = f.records[:0], f.groups[:0]
	f.names.reset()
	f.asked.given = f.asked.given[:0]
	f.surveys.reset()
}

// readLines appends a record for each line that is neither blank nor comment. One file in a hundred has a NUL or a CR
// without LF. It is read by splitLine, the others by readFast.
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

// reader appends records and tracks where groups begin.
type reader struct {
	*File
	closed bool // a rule has ended the group's user-agent lines
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

// another appends a record for the caller to fill in place. Appending a literal makes a copy, for which the processor
// stalls: a fifth of the time of Parse.
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

// Reset forgets the body. It keeps memory for the next one, but releases what an unusually large file needed.
func (f *File) Reset() {
	f.begin(nil, Google)
	f.records, f.groups = trimmed(f.records), trimmed(f.groups)
	f.scratch, f.path, f.url = trimmed(f.scratch), trimmed(f.path), trimmed(f.url)
	f.names.trim()
	f.asked.given, f.asked.path, f.asked.groups = trimmed(f.asked.given), trimmed(f.asked.path), trimmed(f.asked.groups)
	f.surveys.trim()
}

// trimmed returns s without elements, and without its memory if that exceeds keep.
func trimmed[T any](s []T) []T {
	var element T
	if uintptr(cap(s))*unsafe.Sizeof(element) > keep {
		return nil
	}
	return s[:0]
}

// Lines returns the number of lines. A final line end begins no further line.
func (f *File) Lines() int { return int(f.lines) }

// HasBOM reports whether the body begins with a complete UTF-8 byte order mark. Incomplete ones are skipped, too.
func (f *File) HasBOM() bool { return f.bom }

// Dialect returns the dialect of the last Parse.
func (f *File) Dialect() Dialect { return f.dialect }

// Count returns how many lines have the key, including those that were not kept as records.
func (f *File) Count(k Key) int {
	if k < NumKeys {
		return int(f.counts[k])
	}
	return 0
}

// Records returns the number of records: lines that are neither blank nor comment, in order. At most 1,048,576 are
// kept, and at most 65,536 of those without a known key. Count includes the others.
func (f *File) Records() int { return len(f.records) }

// Complete reports whether all octets were read and all records with a known key were kept. If not, decisions use only
// the first million records, and every Survey is Limited. Bodies below six megabytes are always complete.
func (f *File) Complete() bool { return !f.dropped }

// Record returns the i-th record.
func (f *File) Record(i int) Record {
	r := &f.records[i]
	return Record{
		Line: int(r.line), Group: int(r.group), Key: r.kind, Flags: r.flags,
		KeyText: f.keyText(r), Value: f.src[r.value:r.end],
	}
}

// The three methods below return parts of the i-th record, for callers that look at many records and need few parts.

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

// keyText returns the key of a record as written. It searches the separator again, since few callers want the key.
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

// Groups returns the number of groups: runs of user-agent lines and what follows them (RFC 9309 §2.2.1), not merged.
func (f *File) Groups() int { return len(f.groups) }

// GroupRecords returns the half-open range of a group's records. It begins with the group's first user-agent line and
// ends before the next group. Lines other than rules are included.
func (f *File) GroupRecords(g uint32) (start, end int) {
	start, end = int(f.groups[g]), len(f.records)
	if int(g)+1 < len(f.groups) {
		end = int(f.groups[g+1])
	}
	return start, end
}

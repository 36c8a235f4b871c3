package warc

import (
	"bytes"
	"strconv"
	"strings"
)

// readHead parses a record's head, which ends with its empty line. It returns what is wrong with it, or "". Repeated
// fields and lines that are no fields are skipped.
func (r *Record) readHead(head []byte) (wrong string) {
	version, rest, _ := bytes.Cut(head, []byte{'\n'})
	if version = bytes.TrimRight(version, "\r "); len(version) != len("WARC/1.0") ||
		!bytes.HasPrefix(version, versionOne) {
		return "no record of WARC 1.0 or 1.1"
	}
	length := int64(-1)
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || line[0] == ' ' || line[0] == '\t' {
			continue // the end, a folded line, or no field
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		if !is(name, "content-length") {
			r.field(name, value)
			continue
		}
		n, err := strconv.ParseUint(string(value), 10, 59) // no file has more bytes
		if err != nil || length >= 0 && int64(n) != length {
			return "the length of a record is no number, or two"
		}
		length = int64(n)
	}
	if length < 0 {
		return "a record without a length"
	}
	r.Length = length
	return ""
}

var versionOne = []byte("WARC/1.")

// field stores one field of a head.
func (r *Record) field(name, value []byte) {
	once := func(to *[]byte) {
		if *to == nil {
			*to = value
		}
	}
	switch {
	case is(name, "warc-type"):
		if r.Type == Other {
			r.Type = typeOf(value)
		}
	case is(name, "warc-target-uri"):
		// Some writers add angle brackets, as in the grammar of WARC 1.0.
		if len(value) > 2 && value[0] == '<' && value[len(value)-1] == '>' {
			value = value[1 : len(value)-1]
		}
		if len(value) <= MaxURI {
			once(&r.TargetURI)
		}
	case is(name, "warc-date"):
		once(&r.date)
	case is(name, "warc-ip-address"):
		once(&r.IP)
	case is(name, "warc-truncated"):
		if r.Truncated == Whole {
			r.Truncated = truncationOf(value)
		}
	case is(name, "warc-segment-number"):
		r.Segmented = true
	case is(name, "content-type"):
		once(&r.ContentType)
	case is(name, "warc-record-id"):
		once(&r.ID)
	case is(name, "warc-concurrent-to"):
		once(&r.Concurrent)
	case is(name, "warc-protocol"):
		if n := len(r.Protocols); n < len(r.lists) {
			r.lists[n] = value
			r.Protocols = r.lists[:n+1]
		}
	}
}

func typeOf(value []byte) Type {
	for t := Info; int(t) < len(typeNames); t++ {
		if is(value, typeNames[t]) {
			return t
		}
	}
	return Other
}

func truncationOf(value []byte) Truncation {
	for t := CutAtLength; t < CutUnspecified; t++ {
		if is(value, truncationNames[t]) {
			return t
		}
	}
	return CutUnspecified
}

// is reports whether b is a word, ignoring case.
func is(b []byte, word string) bool { return strings.EqualFold(string(b), word) }

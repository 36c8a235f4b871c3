// Package warc answers one question: what does an archive of exchanges contain? It reads and writes WARC files (ISO
// 28500, versions 1.0 and 1.1) as crawlers publish them: records in gzip members of their own, or plain. It does not
// interpret the exchanges, and it knows no HTTP.
//
// record.go parses the head of a record; look.go refuses what is no archive; reader.go reads files and skips damage;
// writer.go writes files for other tools.
package warc

import "time"

// Bounds of what is read, in bytes.
const (
	MaxHead = 64 << 10 // of a record's head; a longer one is broken
	MaxSkip = 1 << 30  // of a block, after the kept part; a gzip member may be a bomb
	MaxURI  = 8 << 10  // of WARC-Target-URI; a longer one counts as missing
)

// Type is the type of a record.
type Type uint8

// The types of records (WARC 1.1 §6).
const (
	Other Type = iota // any other type
	Info
	Request
	Response
	Metadata
	Revisit
	Resource
	Conversion
	Continuation
)

var typeNames = [...]string{
	Other: "other", Info: "warcinfo", Request: "request", Response: "response", Metadata: "metadata",
	Revisit: "revisit", Resource: "resource", Conversion: "conversion", Continuation: "continuation",
}

// String returns the type as it stands in a file.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return typeNames[Other]
}

// Truncation is why a block is incomplete (WARC 1.1 §5.13).
type Truncation uint8

// The reasons of a truncation.
const (
	Whole           Truncation = iota // nothing is missing
	CutAtLength                       // the crawler keeps no more
	CutAtTime                         // it took too long
	CutByDisconnect                   // the connection ended
	CutUnspecified                    // for another reason, or no reason is given
)

var truncationNames = [...]string{CutAtLength: "length", CutAtTime: "time", CutByDisconnect: "disconnect",
	CutUnspecified: "unspecified"}

// String returns the reason as it stands in a file, "" for Whole.
func (t Truncation) String() string {
	if int(t) < len(truncationNames) {
		return truncationNames[t]
	}
	return truncationNames[CutUnspecified]
}

// Record is one record. Its byte slices are views of the Reader's memory, valid until the next call of its methods.
type Record struct {
	Offset int64 // in the file: of the gzip member, or of the record in a plain file
	Length int64 // of its block, as the head says; Block is shorter if the Reader keeps less

	Type        Type
	Truncated   Truncation
	Segmented   bool // its block is one of several parts (WARC 1.1 §7)
	TargetURI   []byte
	ContentType []byte // of the block
	IP          []byte // of the server
	Protocols   [][]byte
	ID          []byte
	Concurrent  []byte // the first record of the same exchange
	Block       []byte

	date  []byte
	lists [4][]byte // memory of Protocols
}

// Date returns when the exchange took place, or the zero time if the record has no date in the standard's form. Of a
// year, month, day or minute (WARC 1.1 §5.4) it returns the beginning.
func (r *Record) Date() time.Time {
	if len(r.date) > 64 {
		return time.Time{}
	}
	var t time.Time
	if t.UnmarshalText(r.date) == nil {
		return t.UTC()
	}
	for _, form := range []string{"2006-01-02T15:04Z07:00", "2006-01-02", "2006-01", "2006"} {
		if t, err := time.Parse(form, string(r.date)); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

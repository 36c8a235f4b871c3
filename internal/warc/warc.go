// Package warc answers one question: what stands in an archive of exchanges? It reads and writes WARC files (ISO 28500,
// versions 1.0 and 1.1), as crawlers publish them: one record after the other, each in a gzip member of its own, or
// plain. What the exchanges mean, and what HTTP is, it does not know.
//
// record.go is what a record says of itself, and reads it; reader.go goes from record to record, past what is broken;
// writer.go writes files that other tools read.
package warc

import "time"

// Bounds of what is read, in bytes.
const (
	MaxHead = 64 << 10 // of a record's head; a longer one is broken
	MaxSkip = 1 << 30  // of a block, behind what is kept of it; a gzip member may be a bomb
	MaxURI  = 8 << 10  // of WARC-Target-URI; a longer one is as none
)

// Type is what a record is of.
type Type uint8

// The types of records (WARC 1.1 §6).
const (
	Other Type = iota // a type of no interest, or of another standard
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

// Truncation is why a block ends before its exchange did (WARC 1.1 §5.13).
type Truncation uint8

// The reasons of a truncation.
const (
	Whole           Truncation = iota // nothing is missing
	CutAtLength                       // the crawler keeps no more
	CutAtTime                         // it took too long
	CutByDisconnect                   // the connection ended
	CutUnspecified                    // for another reason, or for none that is given
)

var truncationNames = [...]string{CutAtLength: "length", CutAtTime: "time", CutByDisconnect: "disconnect", CutUnspecified: "unspecified"}

// String returns the reason as it stands in a file, "" for Whole.
func (t Truncation) String() string {
	if int(t) < len(truncationNames) {
		return truncationNames[t]
	}
	return truncationNames[CutUnspecified]
}

// Record is one record. Its byte slices are views of the Reader's memory, valid until the next call of its methods.
type Record struct {
	Offset int64 // in the file: of the gzip member, or in a plain file of the record itself
	Index  int   // from 0, in that member
	Length int64 // of its block, as the head says; Block is shorter where that is more than the Reader keeps

	Type        Type
	Truncated   Truncation
	TargetURI   []byte
	ContentType []byte // of the block
	IP          []byte // of the server
	Protocols   [][]byte
	ID          []byte
	Concurrent  []byte // the first of the records of the same exchange
	Block       []byte

	date  []byte
	lists [4][]byte // what Protocols views
}

// Date returns when the exchange took place, the zero time where the record does not say so in the standard's form.
func (r *Record) Date() time.Time {
	var t time.Time
	if len(r.date) > 64 || t.UnmarshalText(r.date) != nil {
		return time.Time{}
	}
	return t.UTC()
}

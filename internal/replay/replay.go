// Package replay answers one question: what did past exchanges leave? It reads archives of captured robots.txt files
// (package warc) and returns each origin as an entry with its answer, as a scan would.
//
// An origin gets one row, but an archive has a capture for each exchange: for each redirect hop and each retry. The row is
// made of the first capture of its /robots.txt with a status of 2xx or 4xx, which settles it. 408 and 429 do not: a retry
// may succeed. If none settles it, the last capture counts. Its redirects are followed to captures anywhere in the
// archives. Next returns settled origins at once and the others at the end, for which it reads their captures again.
//
// look.go refuses what is no archive; replay.go goes through the archives, which ahead.go reads; capture.go parses a
// capture; hops.go reads captures again.
package replay

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Options say which captures to replay.
type Options struct {
	MaxBody int     // of the Fetcher, in bytes
	Limit   uint64  // see inputs.Options, as the others
	Sample  float64 // of the hosts
	Reject  func(inputs.Reject) error
}

// Bounds.
const (
	maxCaptures  = 1 << 26 // captures whose place is kept
	captureBytes = 38      // bytes a capture takes in the table of places: 23 before it grows, 38 after
	maxFiles     = 1 << placeFileBits
)

// Reader reads archives in order. It is a pipeline.Archive except for the type of its entries. Only Progress is safe
// for concurrent use.
//
// Entry.Seq is the number of the capture's record over all archives. Each record counts, and so does each stretch that
// could not be read.
type Reader struct {
	ctx   context.Context
	paths []string
	fetch *fetcher.Fetcher
	opt   Options

	archives *ahead // nil before the first Next
	number   int    // of the current archive, in paths
	line     uint64 // records of it so far
	size     int64
	firsts   []uint64 // by archive, the Seq of its first record

	seed     maphash.Seed
	captures map[uint64]place // by hash of the URL
	waiting  []waiting        // in the order of Seq
	drained  int              // how many of waiting were returned
	again    lookup

	exchange exchange.Exchange
	response exchange.Response // of the entry that Next returned last
	url      []byte
	stats    inputs.Stats
	unsound  Unsound
	read     atomic.Int64
	before   int64 // bytes of the archives before the current one
	total    int64
	err      error
}

// Open prepares to read archives in the given order. It checks that each exists. fetch parses responses and bounds
// bodies and redirects. Close the Reader after use.
func Open(ctx context.Context, paths []string, fetch *fetcher.Fetcher, opt Options) (*Reader, error) {
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("cannot read %d archives at once: at most %d", len(paths), maxFiles)
	}
	r := &Reader{
		ctx: ctx, paths: paths, fetch: fetch, opt: opt, seed: maphash.MakeSeed(), captures: map[uint64]place{},
		again: newLookup(maxHead + opt.MaxBody + 1),
	}
	for _, path := range paths {
		size, err := lookAt(path)
		if err != nil {
			return nil, &inputs.Error{File: path, Err: plain(err)}
		}
		r.total += size
	}
	return r, nil
}

// maxHead is how much of a response's head is kept, as much as the fetcher reads.
const maxHead = 64 << 10

// plain removes the operation and the path, which our message has already.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Next returns the next entry, or io.EOF after the last. Other errors are an *inputs.Error, or that of Options.Reject
// or of the context; they are returned again by later calls.
func (r *Reader) Next() (inputs.Entry, error) {
	for r.err == nil {
		if r.opt.Limit > 0 && r.stats.Entries >= r.opt.Limit {
			r.err = io.EOF
			break
		}
		step := r.step
		if r.number == len(r.paths) {
			step = r.drain
		}
		entry, found, err := step()
		if err != nil {
			r.err = err
			break
		}
		if found {
			r.stats.Entries++
			return entry, nil
		}
	}
	return inputs.Entry{}, r.err
}

// Recall swaps r's memory for the Response of the entry that Next returned last.
func (r *Reader) Recall(response *exchange.Response) {
	*response, r.response = r.response, *response
}

// step processes one item, or the beginning or end of an archive. found reports whether it is an entry.
func (r *Reader) step() (entry inputs.Entry, found bool, err error) {
	if r.archives == nil {
		r.archives = newAhead(r.ctx, r.paths, maxHead+r.opt.MaxBody+1, r.seed)
	}
	it, fresh, err := r.archives.next(r.ctx)
	switch {
	case err != nil:
		return entry, false, r.failed(err)
	case fresh != nil:
		r.begin(fresh)
		return entry, false, nil
	case it == nil:
		r.before += r.size
		r.read.Store(r.before)
		r.number++
		return entry, false, nil
	}
	seq := r.count()
	if it.broken.Reason != "" {
		b := &it.broken
		reason := fmt.Sprintf("%s: bytes %d to %d are passed over", b.Reason, b.Offset, b.Offset+b.Bytes)
		if b.Records > 0 {
			reason += fmt.Sprintf(", but for %d records at their beginning, which may be wrong", b.Records)
			if r.unsound.Members++; r.unsound.Members == 1 {
				r.unsound.File, r.unsound.Offset = r.paths[r.number], b.Offset
			}
		}
		return entry, false, r.reject(nil, reason)
	}
	r.read.Store(r.before + it.offset)
	capture, reason := &it.capture, it.reason
	if capture.target.Path != "" && reason != "" { // no robots.txt of an origin
		reason = skipRecord
	}
	switch {
	case reason == skipRecord:
		r.stats.Skipped++
		return entry, false, nil
	case reason != "":
		return entry, false, r.reject(it.uri, reason)
	}
	key, ours := it.key, it.at
	at, known := r.captures[key]
	if !known && len(r.captures) == maxCaptures {
		return entry, false, r.failed(fmt.Errorf("more than %d captures: read the archives in several scans", maxCaptures))
	}
	// Captures in one gzip member share a place. A look-up finds the first of them.
	if known && (at.settled() || !capture.settled && at == ours) {
		if capture.target.Path != "" {
			r.stats.Skipped++
			return entry, false, nil
		}
		return entry, false, r.duplicate(it.uri)
	}
	r.captures[key] = ours
	if capture.target.Path != "" { // a redirect may lead here
		r.stats.Skipped++
		return entry, false, nil
	}
	if r.opt.Sample > 0 && !inputs.Sampled(capture.target.Origin.Host(), r.opt.Sample) {
		r.stats.LeftOut++
		return entry, false, nil
	}
	if !capture.settled {
		if !ours.reachable() {
			return entry, false, r.reject(it.uri, "a redirect or failure so deep in a gzip member of many records is not found again")
		}
		r.waiting = append(r.waiting, waiting{key: key, seq: seq, at: ours})
		return entry, false, nil
	}
	r.replay(capture)
	return r.entry(seq, it.uri, capture), true, nil
}

// replay fills r.response from a capture.
func (r *Reader) replay(c *capture) exchange.Next {
	r.exchange = exchange.Exchange{Origin: c.target.Origin, Target: c.target, Response: &r.response}
	return r.fetch.Replay(r.ctx, &r.exchange, &c.recorded)
}

func (r *Reader) entry(seq uint64, uri []byte, c *capture) inputs.Entry {
	return inputs.Entry{Seq: seq, Input: clip(uri), Origin: c.target.Origin}
}

// clip returns the start of a URI for a row, in UTF-8.
func clip(uri []byte) string {
	return strings.ToValidUTF8(string(uri[:min(len(uri), inputs.MaxInput)]), "")
}

// count counts a record and returns its Seq.
func (r *Reader) count() uint64 {
	seq := r.stats.Lines
	r.stats.Lines++
	r.line++
	r.stats.Files[len(r.stats.Files)-1].Lines++
	return seq
}

func (r *Reader) duplicate(uri []byte) error {
	r.stats.Duplicates++
	return r.reject(uri, "another capture of the same file counts")
}

func (r *Reader) reject(uri []byte, reason string) error {
	return r.rejectLine(r.number, r.line, uri, reason)
}

func (r *Reader) rejectLine(file int, line uint64, uri []byte, reason string) error {
	r.stats.Rejects++
	if r.opt.Reject == nil {
		return nil
	}
	text := string(uri[:min(len(uri), inputs.MaxText)])
	return r.opt.Reject(inputs.Reject{Input: r.paths[file], Line: line, Text: text, Reason: reason})
}

// begin begins an archive.
func (r *Reader) begin(first *batch) {
	r.line, r.size = 0, first.size
	r.firsts = append(r.firsts, r.stats.Lines)
	kind := inputs.FileStats{Name: r.paths[r.number], Layout: "warc"}
	if first.packed {
		kind.Compression = "gzip"
	}
	r.stats.Files = append(r.stats.Files, kind)
}

func openFile(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// failed adds the archive's name to an error, except to those of the context and of Reject.
func (r *Reader) failed(err error) error {
	if r.ctx.Err() != nil && errors.Is(err, r.ctx.Err()) {
		return err
	}
	return &inputs.Error{File: r.paths[min(r.number, len(r.paths)-1)], Err: plain(err)}
}

// watched is a file that is readable until the context ends.
type watched struct {
	ctx  context.Context
	file *os.File
}

func (w watched) ReadAt(p []byte, at int64) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.file.ReadAt(p, at)
}

// Stats returns the counts so far. A record counts as a line.
func (r *Reader) Stats() inputs.Stats {
	s := r.stats
	s.Files = slices.Clone(s.Files)
	s.DedupeBytes = int64(len(r.captures)) * captureBytes
	return s
}

// Unsound counts the gzip members whose damage was found after records of them had been returned. Their entries may be
// wrong. Each member is also a reject.
type Unsound struct {
	Members int
	File    string // of the first member
	Offset  int64  // of the first member
}

// Unsound returns the counts so far.
func (r *Reader) Unsound() Unsound { return r.unsound }

// Progress returns how many bytes of the archives have been read, and how many there are. It is safe for concurrent
// use.
func (r *Reader) Progress() (read, total int64) { return r.read.Load(), r.total }

// Close closes the archives. Next returns an error afterwards.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("cannot read the archives: they were closed")
	}
	r.response.Reset()
	err := r.again.close()
	if r.archives != nil {
		r.archives.close()
	}
	r.captures, r.waiting = nil, nil
	return err
}

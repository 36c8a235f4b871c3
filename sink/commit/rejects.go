package commit

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Reject is an input line that is not an origin.
type Reject struct {
	Input  string `json:"input"`  // name of the list
	Line   int64  `json:"line"`   // 1-based, in that list
	Text   string `json:"text"`   // the line, at most MaxReject bytes
	Reason string `json:"reason"` // bulkscan's own words
}

// Rejects writes _rejects/<scan-id>.jsonl: one JSON line for each rejected input line. Close publishes the file and
// replaces that of an earlier run: a resumed scan reads its lists from their beginning. Methods are safe for concurrent
// use.
type Rejects struct {
	store  store.Store
	scanID string
	name   string // of the file

	mu     sync.Mutex
	draft  store.Draft
	out    *bufio.Writer
	Hash   hash.Hash
	bytes  int64
	line   []byte
	count  int64
	file   schema.File
	closed bool
}

// OpenRejects begins the file. The Writer of the scan should be open, since its lock covers this file, too.
func OpenRejects(ctx context.Context, st store.Store, scanID string) (*Rejects, error) {
	return openRejects(ctx, st, scanID, RejectsName(scanID))
}

// OpenShareRejects begins the file of a share. Its hash is in the record of the share, and it has no FileRecord.
func OpenShareRejects(ctx context.Context, st store.Store, scanID, shard string) (*Rejects, error) {
	return openRejects(ctx, st, scanID, ShareRejectsName(scanID, shard))
}

func openRejects(ctx context.Context, st store.Store, scanID, name string) (*Rejects, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	if err := st.Sweep(ctx, name, func(draft string) bool { return draft == name }); err != nil {
		return nil, err
	}
	draft, err := st.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &Rejects{store: st, scanID: scanID, name: name, draft: draft, Hash: sha256.New()}
	r.out = bufio.NewWriterSize(io.MultiWriter(draft, r.Hash), 64<<10)
	return r, nil
}

// Add writes a line.
func (r *Rejects) Add(reject Reject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.count++
	b := append(r.line[:0], `{"input":`...)
	b = printable.AppendJSON(b, schema.Bounded(reject.Input, schema.MaxInput))
	b = fmt.Appendf(b, `,"line":%d,"text":`, reject.Line)
	b = printable.AppendJSON(b, schema.Bounded(reject.Text, schema.MaxReject))
	b = append(b, `,"reason":`...)
	b = printable.AppendJSON(b, schema.Bounded(reject.Reason, schema.MaxReject))
	r.line = append(b, '}', '\n')
	r.bytes += int64(len(r.line))
	if _, err := r.out.Write(r.line); err != nil {
		return fmt.Errorf("cannot write the rejects: %w", err)
	}
	return nil
}

// Copy adds the lines of a file of rejects as they are.
func (r *Rejects) Copy(ctx context.Context, st store.Store, name string) (err error) {
	object, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := bufio.NewReaderSize(io.NewSectionReader(object, 0, object.Size()), 64<<10)
	for {
		piece, err := lines.ReadSlice('\n')
		if len(piece) > 0 && piece[len(piece)-1] == '\n' {
			r.count++
		}
		r.bytes += int64(len(piece))
		if _, err := r.out.Write(piece); err != nil {
			return fmt.Errorf("cannot write the rejects: %w", err)
		}
		switch {
		case errors.Is(err, io.EOF):
			return r.out.Flush() // so that Hash covers all lines
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("cannot read the rejects: %w", err)
		}
	}
}

// Close publishes the file and writes its record. Further calls do nothing.
func (r *Rejects) Close(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.out.Flush()
	if err == nil {
		err = r.draft.Seal()
	}
	if err == nil {
		err = r.publish(ctx)
	}
	return errors.Join(err, r.draft.Discard())
}

func (r *Rejects) publish(ctx context.Context) error {
	r.file = schema.File{Table: FileRejects, Name: r.name, Rows: r.count, Bytes: r.bytes,
		SHA256: hex.EncodeToString(r.Hash.Sum(nil))}
	if r.name != RejectsName(r.scanID) {
		return r.draft.Publish(ctx)
	}
	return PublishRecorded(ctx, r.store, FileRecord{ScanID: r.scanID, File: r.file}, r.draft.Publish)
}

// File describes the file after Close.
func (r *Rejects) File() schema.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file
}

// Discard drops the file. After Close it does nothing.
func (r *Rejects) Discard() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.draft.Discard()
}

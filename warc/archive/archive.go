// Package archive answers one question: what is kept of the exchanges themselves? It writes the exchanges of a scan
// into WARC files (package warc), which are published with the parts of the dataset.
//
// An exchange is written when it ends, before the row that it leads to. So when a part is cut, the exchanges of its
// rows are in the files cut with it or earlier. These files may also hold exchanges of unfinished origins. A killed
// scan loses the files of its lost parts and requests those origins again.
package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/warc"
)

// MaxBytes is the size at which the next file is begun, as the WARC standard recommends.
const MaxBytes = 1 << 30

// Archive writes the exchanges of one scan. It implements sink.Sidecar. Record is safe for concurrent use.
type Archive struct {
	store    store.Store
	maxBytes int64
	prefix   string // of the names of the scan's files

	ctx    context.Context // of all writing; ended by GiveUp
	cancel context.CancelFunc

	mu     sync.Mutex
	begun  bool // until Close
	writer *warc.Writer
	part   int
	open   *file   // the file being written; nil before its first exchange
	full   []*file // earlier files of the current part
	err    error   // the first error; nothing is written after it

	cut map[*file]struct{} // files that are cut but not published
}

// file is a WARC file being written.
type file struct {
	draft  store.Draft
	buffer *bufio.Writer
}

// New returns an Archive in a store. software is the name of the program for readers of the files. A file ends at
// maxBytes; 0 is MaxBytes.
func New(st store.Store, software string, maxBytes int64) *Archive {
	if maxBytes == 0 {
		maxBytes = MaxBytes
	}
	a := &Archive{store: st, maxBytes: maxBytes, writer: warc.NewWriter(software), cut: map[*file]struct{}{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Begin implements sink.Sidecar.
func (a *Archive) Begin(ctx context.Context, of sink.SidecarScan) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prefix, a.part = "part-"+of.ID+"-"+of.Shard+"-", of.Next
	if err := a.claim(ctx, of); err != nil {
		return err
	}
	if err := a.clear(ctx, of.Counts); err != nil {
		return fmt.Errorf("cannot go on with the archive: %w", err)
	}
	a.begun = true
	return nil
}

// claim reserves the scan's file names for this scan: another dataset may have a scan of the same name.
func (a *Archive) claim(ctx context.Context, of sink.SidecarScan) error {
	name := "scan-" + of.ID + "-" + of.Shard + ".txt"
	claim := []byte("archive of scan " + of.ID + ", started at " + of.StartedAt.UTC().Format(time.RFC3339Nano) + "\n")
	err := a.store.Sweep(ctx, name, func(found string) bool { return found == name })
	if err == nil && of.Restarted {
		err = a.store.Put(ctx, name, claim)
	} else if err == nil {
		err = a.store.CreateIfAbsent(ctx, name, claim)
	}
	if errors.Is(err, store.ErrExist) {
		var before []byte
		if before, err = a.read(ctx, name, len(claim)); err == nil && !bytes.Equal(before, claim) {
			return fmt.Errorf(
				"cannot begin the archive: a scan %s of another dataset has its archive there; name another folder, or another --scan-id", of.ID)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot begin the archive: %w", err)
	}
	return nil
}

// read returns the first n bytes of an object, and one more if there are more.
func (a *Archive) read(ctx context.Context, name string, n int) (_ []byte, err error) {
	object, err := a.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	return io.ReadAll(io.NewSectionReader(object, 0, int64(n)+1))
}

// clear deletes drafts and the files of lost parts.
func (a *Archive) clear(ctx context.Context, counts func(part int) bool) error {
	ours := func(name string) bool { _, is := a.partOf(name); return is }
	if err := a.store.Sweep(ctx, a.prefix, ours); err != nil {
		return err
	}
	var lost []string
	for entry, err := range a.store.List(ctx, a.prefix) {
		if err != nil {
			return err
		}
		if part, is := a.partOf(entry.Name); is && !counts(part) {
			lost = append(lost, entry.Name)
		}
	}
	for _, name := range lost {
		if err := a.store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name of a file from its part and its number in the part.
func (a *Archive) name(part, number int) string {
	return a.prefix + strconv.Itoa(part) + "-" + strconv.Itoa(number) + ".warc.gz"
}

// partOf returns the part in a name and whether the name is this scan's.
func (a *Archive) partOf(name string) (part int, is bool) {
	rest, is := strings.CutPrefix(name, a.prefix)
	rest, packed := strings.CutSuffix(rest, ".warc.gz")
	first, second, two := strings.Cut(rest, "-")
	if !is || !packed || !two {
		return 0, false
	}
	part, err := strconv.Atoi(first)
	number, err2 := strconv.Atoi(second)
	return part, err == nil && err2 == nil && a.name(part, number) == name
}

// Record writes an exchange. Cut returns its error.
func (a *Archive) Record(rec *fetcher.Recording) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || !a.begun {
		return
	}
	if err := a.write(rec); err != nil {
		a.err = fmt.Errorf("cannot write the archive: %w", err)
	}
}

func (a *Archive) write(rec *fetcher.Recording) error {
	if a.open == nil {
		if err := a.begin(); err != nil {
			return err
		}
	}
	x := warc.Exchange{
		URI: rec.Target.String(), Date: rec.At, IP: rec.Remote.Addr().Unmap(), Protocols: protocols(rec),
		Request: rec.Request, Payload: rec.Head, Truncated: truncations[rec.Ending],
	}
	if len(rec.Response) > 0 {
		head := rec.Response[:rec.Head]
		x.Response, x.NoHTTP = rec.Response, !bytes.HasPrefix(head, []byte("HTTP/")) ||
			!bytes.HasSuffix(head, []byte("\n\r\n")) && !bytes.HasSuffix(head, []byte("\n\n"))
	}
	if err := a.writer.Write(&x); err != nil {
		return err
	}
	if a.writer.Size() >= a.maxBytes {
		a.full = append(a.full, a.open)
		a.open = nil
	}
	return nil
}

// truncations maps the ends of recordings to the standard's terms.
var truncations = [...]warc.Truncation{
	fetcher.Whole: warc.Whole, fetcher.CutOff: warc.CutAtLength, fetcher.TimedOut: warc.CutAtTime,
	fetcher.Disconnected: warc.CutByDisconnect,
}

// protocols returns the values of WARC-Protocol.
func protocols(rec *fetcher.Recording) []string {
	list := []string{"http/1.1"}
	if bytes.HasPrefix(rec.Response, []byte("HTTP/1.0")) {
		list[0] = "http/1.0"
	}
	if name, known := tlsNames[rec.TLSVersion]; known {
		list = append(list, name)
	}
	return list
}

var tlsNames = map[uint16]string{
	tls.VersionTLS10: "tls/1.0", tls.VersionTLS11: "tls/1.1", tls.VersionTLS12: "tls/1.2", tls.VersionTLS13: "tls/1.3",
}

// begin starts the part's next file.
func (a *Archive) begin() error {
	name := a.name(a.part, len(a.full))
	draft, err := a.store.Create(a.ctx, name)
	if err != nil {
		return err
	}
	a.open = &file{draft: draft, buffer: bufio.NewWriterSize(draft, 256<<10)}
	a.cut[a.open] = struct{}{}
	return a.writer.Begin(a.open.buffer, path.Base(name), time.Now())
}

// Cut implements sink.Sidecar.
func (a *Archive) Cut(part int) (publish func(ctx context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	files, err := a.full, a.err
	if a.open != nil {
		files = append(files, a.open)
	}
	a.open, a.full, a.part = nil, nil, part+1
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		for _, f := range files {
			err := errors.Join(f.buffer.Flush(), f.draft.Seal())
			if err == nil {
				err = f.draft.Publish(ctx)
			}
			if err != nil {
				return fmt.Errorf("cannot write the archive: %w", err)
			}
			a.mu.Lock()
			delete(a.cut, f)
			a.mu.Unlock()
		}
		return nil
	}
}

// GiveUp ends all waiting for the store: unpublished files are written no further. It does not block and is safe to
// call during Record and Cut. Close must still be called.
func (a *Archive) GiveUp() { a.cancel() }

// Close drops unpublished files. Later calls of Record do nothing.
func (a *Archive) Close() error {
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun = false
	var errs []error
	for f := range a.cut {
		errs = append(errs, f.draft.Discard())
	}
	a.open, a.full = nil, nil
	clear(a.cut)
	return errors.Join(errs...)
}

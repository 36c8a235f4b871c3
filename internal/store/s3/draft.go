package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/internal/store"
)

// An object in the making is a multipart upload. Its bytes gather in a temporary file, the spool; whenever that has a
// part's size it is uploaded and its space given back, while the next one fills. Seal uploads what is left: all bytes are
// with the server then, and under no name. Publish completes the upload, which is one small request, and the object
// appears. What a killed process leaves is an upload without a name, which Sweep aborts.
//
// So a Store takes the space of one part for each draft that is being written, and for each upload that goes on; and of
// memory, only what a connection takes.

// uploadsAtOnce bounds the parts that a Store uploads at the same time. Who has a further one waits.
const uploadsAtOnce = 4

// maxParts is how many an upload may have.
const maxParts = 10_000

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, name string) (store.Draft, error) {
	key, err := s.key(name)
	if err == nil {
		err = s.stillOurs(ctx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, s.explain("create", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &draft{s: s, ctx: ctx, cancel: cancel, name: name, key: key, mark: newMark()}, nil
}

// draft implements store.Draft. Its states: written to; sealed, when the spool is gone; ended, when nothing is left to do.
type draft struct {
	s      *Store
	ctx    context.Context // of all uploading, which goes on between the calls
	cancel context.CancelFunc
	name   string
	key    string
	mark   string

	spool  *spool // that is being filled; nil when there is none
	upload string // id; "" before the first part
	next   int    // number of the last part that was begun
	size   int64  // of the parts that were begun
	sealed bool
	ended  bool

	uploads sync.WaitGroup
	mu      sync.Mutex
	parts   []minio.CompletePart
	err     error // the first of any upload
}

// Write implements io.Writer. It may wait for an upload.
func (d *draft) Write(p []byte) (n int, err error) {
	if d.sealed || d.ended {
		return 0, fmt.Errorf("cannot write %s: %w", d.name, fs.ErrClosed)
	}
	for n < len(p) && err == nil {
		if d.spool == nil {
			if d.spool, err = newSpool(d.s.cfg.Spool); err != nil {
				break
			}
		}
		var wrote int
		wrote, err = d.spool.Write(p[n:min(len(p), n+int(d.s.cfg.PartSize-d.spool.size))])
		n += wrote
		if err == nil && d.spool.size == d.s.cfg.PartSize {
			err = d.ship()
		}
	}
	return n, d.s.explain("write", d.name, err)
}

// ship begins to upload the spool, as soon as there is a place, and leaves none.
func (d *draft) ship() error {
	if err := d.failure(); err != nil {
		return err
	}
	if d.next == maxParts {
		return &permanent{fmt.Errorf("more than %d parts of %d bytes", maxParts, d.s.cfg.PartSize)}
	}
	if d.upload == "" {
		if err := d.begin(); err != nil {
			return err
		}
	}
	select {
	case d.s.slots <- struct{}{}:
	case <-d.ctx.Done():
		return cmp.Or(d.failure(), d.ctx.Err())
	}
	part := d.spool
	d.spool = nil
	d.next++
	d.size += part.size
	number := d.next
	d.uploads.Go(func() {
		done, err := d.send(part, number)
		<-d.s.slots
		err = errors.Join(err, part.Close())
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil {
			d.parts = append(d.parts, done)
		} else if d.err == nil {
			d.err = err
			d.cancel() // the others are of no use any more
		}
	})
	return nil
}

// begin makes the upload. Where the answer is lost a second one is made, and Sweep finds the first.
func (d *draft) begin() error {
	return d.s.try(d.ctx, 0, func(ctx context.Context) (err error) {
		d.upload, err = d.s.client.NewMultipartUpload(ctx, d.s.cfg.Bucket, d.key, minio.PutObjectOptions{UserMetadata: map[string]string{markName: d.mark}})
		if err == nil && d.upload == "" {
			err = errors.New("the server has begun an upload without an id")
		}
		return err
	})
}

// send uploads one part.
func (d *draft) send(part *spool, number int) (minio.CompletePart, error) {
	var done minio.ObjectPart
	err := d.s.try(d.ctx, int(part.size), func(ctx context.Context) (err error) {
		body := io.NewSectionReader(part.file, 0, part.size)
		done, err = d.s.client.PutObjectPart(ctx, d.s.cfg.Bucket, d.key, d.upload, number, body, part.size, minio.PutObjectPartOptions{Md5Base64: announced(part.sum)})
		if err == nil && done.ETag == "" {
			err = fmt.Errorf("the server has taken part %d without an ETag", number)
		}
		return err
	})
	return minio.CompletePart{PartNumber: number, ETag: done.ETag}, err
}

func (d *draft) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Seal implements store.Draft.
func (d *draft) Seal() error {
	if d.sealed || d.ended {
		return fmt.Errorf("cannot seal %s: %w", d.name, fs.ErrClosed)
	}
	d.sealed = true
	err := d.rest()
	d.uploads.Wait()
	return d.s.explain("write", d.name, cmp.Or(d.failure(), err))
}

// rest ships what has not been; an empty object has one part, which is empty.
func (d *draft) rest() (err error) {
	if d.spool == nil && d.next == 0 {
		if d.spool, err = newSpool(d.s.cfg.Spool); err != nil {
			return err
		}
	}
	if d.spool == nil {
		return nil
	}
	return d.ship()
}

// Publish implements store.Draft.
func (d *draft) Publish(ctx context.Context) error {
	if !d.sealed || d.ended || d.failure() != nil || d.spool != nil {
		return fmt.Errorf("cannot publish %s: it is not a sealed draft", d.name)
	}
	err := d.complete(ctx)
	if err == nil {
		d.end()
		err = d.s.stillOurs(ctx)
	}
	return d.s.explain("publish", d.name, err)
}

// complete makes the upload the object, and looks at what has become of it: of a completion whose answer was lost the
// next try learns only that there is no such upload, and some servers call it done whatever else lies under the name.
func (d *draft) complete(ctx context.Context) error {
	slices.SortFunc(d.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	var made minio.UploadInfo
	err := d.s.change(ctx, 0, func(ctx context.Context) (err error) {
		made, err = d.s.client.CompleteMultipartUpload(ctx, d.s.cfg.Bucket, d.key, d.upload, d.parts, minio.PutObjectOptions{})
		return err
	})
	if err != nil && !aborted(err) {
		return err
	}
	info, err := d.s.stat(ctx, d.key)
	mark := info.Metadata.Get(markHeader)
	switch {
	case missing(err):
		return errAborted
	case err != nil:
		return err
	case mark != d.mark && (mark != "" || made.ETag == "" || made.ETag != info.ETag): // some servers keep no marks
		return errAborted
	case info.Size != d.size:
		return &permanent{fmt.Errorf("the server has made an object of %d bytes out of %d", info.Size, d.size)}
	}
	return nil
}

// Discard implements store.Draft.
func (d *draft) Discard() error {
	if d.ended {
		return nil
	}
	d.cancel()
	d.uploads.Wait()
	var err error
	if d.spool != nil {
		err = d.spool.Close()
		d.spool = nil
	}
	if d.upload != "" && !d.s.silent.Load() {
		// Also where the context has ended; but what cannot be aborted soon, Sweep will. Of several drafts that a silent
		// server keeps from ending, the first has waited for all.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), d.s.cfg.discardTime)
		defer cancel()
		abortErr := d.s.abort(ctx, d.key, d.upload)
		d.s.silent.Store(abortErr != nil && answerOf(abortErr).StatusCode == 0)
		err = errors.Join(err, abortErr)
	}
	d.end()
	return d.s.explain("discard", d.name, err)
}

func (d *draft) end() {
	d.ended = true
	d.cancel()
}

// spool is a temporary file with one part. It has no name once it is open, where the system allows that, so that it ends
// with the process.
type spool struct {
	file *os.File
	left bool // the name is still there
	size int64
	sum  hash.Hash
}

func newSpool(folder string) (*spool, error) {
	file, err := os.CreateTemp(folder, "bulkscan-spool-*")
	if err != nil {
		return nil, &permanent{&spoolError{cmp.Or(folder, os.TempDir()), err}}
	}
	return &spool{file: file, left: os.Remove(file.Name()) != nil, sum: newChecksum()}, nil
}

func (p *spool) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.size += int64(n)
	_, _ = p.sum.Write(b[:n]) // which never fails
	if err != nil {
		err = &permanent{&spoolError{filepath.Dir(p.file.Name()), err}}
	}
	return n, err
}

// spoolError is a failure of the folder of temporary files.
type spoolError struct {
	folder string
	err    error
}

func (e *spoolError) Error() string {
	if e.missing() {
		return fmt.Sprintf("no temporary file: make the folder %s, or let TMPDIR name another one: %v", e.folder, e.err)
	}
	return fmt.Sprintf("no temporary file in %s (TMPDIR says where): %v", e.folder, e.err)
}

func (e *spoolError) missing() bool {
	return errors.Is(e.err, fs.ErrNotExist) || errors.Is(e.err, syscall.ENOTDIR)
}

// Unwrap returns the error of the system, but that there is no such folder: to callers that means that there is no such
// object.
func (e *spoolError) Unwrap() error {
	if e.missing() {
		return nil
	}
	return e.err
}

func (p *spool) Close() error {
	err := p.file.Close()
	if p.left {
		err = errors.Join(err, os.Remove(p.file.Name()))
	}
	return err
}

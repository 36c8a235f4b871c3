package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/store"
)

// A draft is a multipart upload. Its bytes go to a temporary file, the spool. When the spool has the size of a part, it
// is uploaded and freed while the next one fills. Seal uploads the rest: then all bytes are on the server, without a
// name. Publish completes the upload by one small request, and the object appears. A killed process leaves an upload
// without a name, which Sweep aborts.
//
// So a Store takes the disk space of one part for each open draft and for each upload in progress. In memory it takes
// only what connections take.

// uploadsAtOnce bounds the parts that a Store uploads at the same time. Further ones wait.
const uploadsAtOnce = 4

// maxParts bounds the parts of an upload, as S3 does.
const maxParts = 10_000

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, name string) (store.Draft, error) {
	key, err := s.key(name)
	if err == nil {
		err = s.checkLocks(ctx)
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

// draft implements store.Draft. Its states are: being written; sealed, without a spool; ended.
type draft struct {
	s      *Store
	ctx    context.Context // for all uploads, which continue between calls
	cancel context.CancelFunc
	name   string
	key    string
	mark   string

	spool  *spool // being filled; nil for none
	upload string // id; "" before the first part
	next   int    // number of the last part begun
	size   int64  // total bytes of the parts begun
	sealed bool
	ended  bool

	uploads sync.WaitGroup
	mu      sync.Mutex
	parts   []minio.CompletePart
	err     error // first error of any upload
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

// ship takes the spool and begins to upload it once a slot is free.
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
			d.cancel() // the other uploads are useless
		}
	})
	return nil
}

// begin makes the upload. If the answer is lost, a retry makes a second one, and Sweep finds the first.
func (d *draft) begin() error {
	return d.s.try(d.ctx, 0, func(ctx context.Context) (err error) {
		d.upload, err = d.s.client.NewMultipartUpload(ctx, d.s.cfg.Bucket, d.key,
			minio.PutObjectOptions{UserMetadata: map[string]string{markName: d.mark}})
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
		done, err = d.s.client.PutObjectPart(ctx, d.s.cfg.Bucket, d.key, d.upload, number, body, part.size,
			minio.PutObjectPartOptions{
				// else minio-go would sign the body piece by piece: see checksums
				Md5Base64: part.sums.md5Base64(), Sha256Hex: part.sums.sha256Hex(), DisableContentSha256: true,
			})
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
	err := d.shipRest()
	d.uploads.Wait()
	return d.s.explain("write", d.name, cmp.Or(d.failure(), err))
}

// shipRest ships the remaining bytes. An empty object has one empty part.
func (d *draft) shipRest() (err error) {
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
		err = d.s.checkLocks(ctx)
	}
	return d.s.explain("publish", d.name, err)
}

// complete turns the upload into the object and checks the result. If the answer to a completion was lost, the server
// answers a retry only that the upload does not exist. Some servers even report success whatever object has the name.
func (d *draft) complete(ctx context.Context) error {
	slices.SortFunc(d.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	var made minio.UploadInfo
	err := d.s.change(ctx, 0, func(ctx context.Context) (err error) {
		made, err = d.s.client.CompleteMultipartUpload(ctx, d.s.cfg.Bucket, d.key, d.upload, d.parts,
			minio.PutObjectOptions{})
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
		return &permanent{fmt.Errorf("the server made an object of %d bytes from %d bytes", info.Size, d.size)}
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
		// The upload is aborted even after the context has ended. If that takes too long, Sweep aborts it later. If the
		// server does not answer, only the first of several drafts waits.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(d.ctx), d.s.cfg.discardTime, errLimit)
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

// spool is a temporary file with one part. If the system allows it, its name is removed while it is open, so that it
// ends with the process.
type spool struct {
	file *os.File
	left bool // the name could not be removed
	size int64
	sums checksums
}

func newSpool(folder string) (*spool, error) {
	file, err := os.CreateTemp(folder, "bulkscan-spool-*")
	if err != nil {
		return nil, &permanent{&spoolError{cmp.Or(folder, os.TempDir()), err}}
	}
	return &spool{file: file, left: os.Remove(file.Name()) != nil, sums: newChecksums()}, nil
}

func (p *spool) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.size += int64(n)
	_, _ = p.sums.Write(b[:n]) // never fails
	if err != nil {
		err = &permanent{&spoolError{filepath.Dir(p.file.Name()), err}}
	}
	return n, err
}

// spoolError is a failure in the folder of temporary files.
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

// Unwrap returns the error of the system, except fs.ErrNotExist, which callers would take for a missing object.
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

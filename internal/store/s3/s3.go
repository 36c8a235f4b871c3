// Package s3 answers one question: how does an object store keep what package store promises? A Store is a prefix in a
// bucket of a server that speaks S3: an object's key is the prefix and its name.
//
// The package is laid out as a question's way to the server is: config.go says which server, and as whom; this file has
// the calls that are one request; draft.go uploads what is too big for one; object.go reads; lock.go keeps writers apart;
// retry.go asks again, and says what went wrong.
//
// What it asks of the server. Reads see the last write (strong consistency), listings are ordered by bytes, and a PUT
// with If-None-Match or If-Match is refused with 412 where its condition does not hold. Whether the last is so is tried
// at the first Lock: a server that ignores conditions cannot keep two writers apart, and is refused.
//
// What a lost answer does. A request may have had its effect though its answer never came, and is asked again all the
// same. Whatever may then find its own effect in its way carries a mark, by which it knows itself: two CreateIfAbsent of
// one name never both succeed, and none fails because of itself.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/internal/store"
)

// Store is a store.Store in a bucket.
type Store struct {
	cfg    Config
	client minio.Core
	keys   *keys
	root   string        // what every key begins with: "" or a path with a slash at its end
	slots  chan struct{} // one for each upload of a part that may go on at once

	reached     atomic.Bool // whether the server has ever answered
	silent      atomic.Bool // whether it has answered nothing since a draft could not be discarded
	unheard     atomic.Bool // whether a change was asked for whose answer never came
	conditional atomic.Bool // whether it was seen to honour conditions

	mu     sync.Mutex
	leases map[*lease]struct{} // held by this Store
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Unpublished = (*Store)(nil)
)

// New returns the Store that cfg describes. It asks nobody: a wrong name or a missing right is seen at the first call.
func New(cfg Config) (*Store, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, root: cfg.Prefix, slots: make(chan struct{}, uploadsAtOnce), leases: map[*lease]struct{}{}}
	if s.root != "" {
		s.root += "/"
	}
	client, keys, err := cfg.client()
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", cfg, err)
	}
	s.client, s.keys = client, keys
	return s, nil
}

// String is the place as it is written: s3://BUCKET/PREFIX.
func (s *Store) String() string { return s.cfg.String() }

// key is where an object lies in the bucket.
func (s *Store) key(name string) (string, error) {
	if err := store.CheckName(name); err != nil {
		return "", err
	}
	if len(s.root)+len(name) > maxKey {
		return "", fmt.Errorf("%w: with its prefix %q is longer than %d bytes", store.ErrName, name, maxKey)
	}
	return s.root + name, nil
}

// maxKey bounds a key, in bytes.
const maxKey = 1024

// The metadata that tells whose write an object is.
const (
	markName   = "Bulkscan-Write"
	markHeader = "X-Amz-Meta-" + markName
)

// newMark is unique to a write, also among processes.
func newMark() string { return rand.Text() }

// payload is what a PUT sends, and its checksum as announced.
type payload struct {
	data []byte
	sum  string
}

// payloadOf copies data: a request that is given up may still read from it for a moment.
func payloadOf(data []byte) payload {
	sum := newChecksum()
	_, _ = sum.Write(data) // which never fails
	return payload{bytes.Clone(data), announced(sum)}
}

// putOnce asks the server once to take an object.
func (s *Store) putOnce(ctx context.Context, key string, p payload, o minio.PutObjectOptions) (etag string, err error) {
	info, err := s.client.PutObject(ctx, s.cfg.Bucket, key, bytes.NewReader(p.data), int64(len(p.data)), p.sum, "", o)
	return info.ETag, err
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	key, err := s.key(name)
	if err == nil {
		err = s.put(ctx, key, payloadOf(data))
	}
	if err == nil {
		err = s.stillOurs(ctx)
	}
	return s.explain("write", name, err)
}

func (s *Store) put(ctx context.Context, key string, p payload) error {
	if s.locked() {
		return s.replace(ctx, key, p)
	}
	return s.change(ctx, len(p.data), func(ctx context.Context) error {
		_, err := s.putOnce(ctx, key, p, minio.PutObjectOptions{})
		return err
	})
}

// replace is put for who holds a lock. It looks what is there and replaces just that: a request that arrives after the
// lock has passed to another holder, who has written since, is refused.
func (s *Store) replace(ctx context.Context, key string, p payload) error {
	mark := newMark()
	for r := s.newRetries(); ; {
		o := minio.PutObjectOptions{UserMetadata: map[string]string{markName: mark}}
		switch info, err := s.stat(ctx, key); {
		case missing(err):
			o.SetMatchETagExcept("*")
		case err != nil:
			return err
		case info.Metadata.Get(markHeader) == mark:
			return nil // an earlier try, whose answer was lost
		default:
			o.SetMatchETag(info.ETag)
		}
		err := s.change(ctx, len(p.data), func(ctx context.Context) error {
			_, err := s.putOnce(ctx, key, p, o)
			return err
		})
		if !refused(err) && !missing(err) {
			return err
		}
		// It was written meanwhile: by a try of ours, by what an earlier holder had sent, or by who has the lock now.
		if err := s.stillOurs(ctx); err != nil {
			return err
		}
		if err := r.again(ctx, errContended); err != nil {
			return err
		}
	}
}

// errContended is why something is tried again that had been written between looking at it and replacing it.
var errContended = errors.New("it is written by somebody else at every try")

// CreateIfAbsent implements store.Store by a conditional PUT.
func (s *Store) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	key, err := s.key(name)
	if err == nil {
		err = s.createIfAbsent(ctx, key, payloadOf(data))
	}
	if err == nil || errors.Is(err, store.ErrExist) {
		// It may have been long on its way, and who has the lock now may have read the record already or have put its own
		// there. So it stays as it is, and this process ends.
		err = cmp.Or(s.stillOurs(ctx), err)
	}
	return s.explain("create", name, err)
}

func (s *Store) createIfAbsent(ctx context.Context, key string, p payload) error {
	mark := newMark()
	o := minio.PutObjectOptions{UserMetadata: map[string]string{markName: mark}}
	o.SetMatchETagExcept("*")
	err := s.change(ctx, len(p.data), func(ctx context.Context) error {
		_, err := s.putOnce(ctx, key, p, o)
		return err
	})
	if !refused(err) {
		return err
	}
	// Somebody has created it, which may have been ourselves: a try whose answer was lost.
	info, err := s.stat(ctx, key)
	switch {
	case err == nil && info.Metadata.Get(markHeader) == mark:
		return nil
	case err != nil && !missing(err):
		return err
	}
	return store.ErrExist
}

// stat asks for an object's head.
func (s *Store) stat(ctx context.Context, key string) (info minio.ObjectInfo, err error) {
	err = s.try(ctx, 0, func(ctx context.Context) error {
		info, err = s.client.StatObject(ctx, s.cfg.Bucket, key, minio.StatObjectOptions{})
		return err
	})
	return info, err
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err == nil {
		err = s.change(ctx, 0, func(ctx context.Context) error { return s.removeOnce(ctx, key) })
	}
	if err == nil || missing(err) {
		err = s.stillOurs(ctx)
	}
	return s.explain("delete", name, err)
}

func (s *Store) removeOnce(ctx context.Context, key string) error {
	return s.client.RemoveObject(ctx, s.cfg.Bucket, key, minio.RemoveObjectOptions{})
}

// List implements store.Store. A listing comes in pages; where one of them fails, it goes on after the last name that was
// yielded.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		fail := func(err error) { yield(store.Entry{}, s.explain("list", prefix, err)) }
		if err := checkPrefix(prefix); err != nil {
			fail(err)
			return
		}
		last := ""
		for r := s.newRetries(); ; {
			err := s.listFrom(ctx, prefix, last, func(object minio.ObjectInfo) bool {
				r.progress()
				if last != "" && object.Key <= last {
					fail(fmt.Errorf("the server lists %.200q after %.200q, which is not the order of their bytes", object.Key, last))
					return false
				}
				last = object.Key
				entry, ok := s.entry(object)
				return !ok || !strings.HasPrefix(entry.Name, prefix) || yield(entry, nil)
			})
			if err == nil {
				return
			}
			if err := r.again(ctx, err); err != nil {
				fail(err)
				return
			}
		}
	}
}

// listFrom calls each for every object behind the key last, until it returns false. A page has as long as any answer.
func (s *Store) listFrom(parent context.Context, prefix, last string, each func(minio.ObjectInfo) bool) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	page := time.AfterFunc(s.timeFor(0), cancel)
	defer page.Stop()
	owner := false
	o := minio.ListObjectsOptions{Prefix: s.root + prefix, Recursive: true, StartAfter: last, MaxKeys: s.cfg.page, FetchOwner: &owner}
	for object := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, o) {
		page.Stop() // what the caller does with it is not the server's time
		if object.Err != nil {
			return object.Err
		}
		if !each(object) {
			return nil
		}
		page.Reset(s.timeFor(0))
	}
	return ctx.Err() // of which the library says nothing
}

// entry is what List says of an object; ok is false where it is none of the Store's, but somebody else's or a lock.
func (s *Store) entry(object minio.ObjectInfo) (entry store.Entry, ok bool) {
	name, ok := strings.CutPrefix(object.Key, s.root)
	if !ok || store.CheckName(name) != nil || store.IsLock(name) {
		return entry, false
	}
	return store.Entry{Name: name, Size: object.Size, Modified: object.LastModified.UTC()}, true
}

// checkPrefix refuses what no name begins with.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return store.CheckName(strings.TrimSuffix(prefix, "/"))
}

// Sweep implements store.Store: it aborts uploads that were begun and not completed.
func (s *Store) Sweep(ctx context.Context, prefix string, ours func(name string) bool) error {
	err := checkPrefix(prefix)
	if err == nil {
		err = s.stillOurs(ctx)
	}
	if err == nil {
		err = s.sweep(ctx, prefix, ours)
	}
	return s.explain("sweep", prefix, err)
}

func (s *Store) sweep(ctx context.Context, prefix string, ours func(name string) bool) error {
	for {
		uploads, whole, err := s.listUploads(ctx, s.root+prefix)
		if err != nil {
			return err
		}
		found := false
		for _, upload := range uploads {
			name, ok := s.uploadName(upload, prefix)
			if !ok || !ours(name) {
				continue
			}
			if err := s.stillOurs(ctx); err != nil {
				return err // it may be a draft of who has the lock now
			}
			if err := s.abort(ctx, upload.Key, upload.UploadID); err != nil {
				return err
			}
			found = true
		}
		if whole || !found {
			return nil
		}
	}
}

// uploadName is the object that an upload is of; ok is false where it is none of the Store's with that prefix: some servers
// take the prefix for a folder.
func (s *Store) uploadName(upload minio.ObjectMultipartInfo, prefix string) (name string, ok bool) {
	name, ok = strings.CutPrefix(upload.Key, s.root)
	return name, ok && strings.HasPrefix(name, prefix) && store.CheckName(name) == nil
}

// Unpublished implements store.Unpublished. Of many uploads of one name it may miss some (see listUploads).
func (s *Store) Unpublished(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		var uploads []minio.ObjectMultipartInfo
		err := checkPrefix(prefix)
		if err == nil {
			uploads, _, err = s.listUploads(ctx, s.root+prefix)
		}
		if err != nil {
			yield(store.Entry{}, s.explain("list the uploads of", prefix, err))
			return
		}
		for _, upload := range uploads {
			name, ok := s.uploadName(upload, prefix)
			if ok && !yield(store.Entry{Name: name, Size: upload.Size, Modified: upload.Initiated.UTC()}, nil) {
				return
			}
		}
	}
}

// listUploads lists what was begun and not completed. It is not whole where a server lists in pages that begin behind a
// key only, so that further uploads of the same key may be missing.
func (s *Store) listUploads(ctx context.Context, prefix string) (uploads []minio.ObjectMultipartInfo, whole bool, err error) {
	whole = true
	for key, id := "", ""; ; {
		var page minio.ListMultipartUploadsResult
		err := s.try(ctx, 0, func(ctx context.Context) (err error) {
			page, err = s.client.ListMultipartUploads(ctx, s.cfg.Bucket, prefix, key, id, "", max(s.cfg.page, 0))
			return err
		})
		if id != "" && answerOf(err).Code == minio.InvalidArgument {
			id, whole = "", false // a server that does not know its own mark
			continue
		}
		if err != nil {
			return nil, false, err
		}
		uploads = append(uploads, page.Uploads...)
		if !page.IsTruncated {
			return uploads, whole, nil
		}
		if page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return nil, false, errors.New("the server repeats a page of its list of uploads")
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// abort ends an upload; one that is not there any more has ended.
func (s *Store) abort(ctx context.Context, key, upload string) error {
	err := s.try(ctx, 0, func(ctx context.Context) error {
		return s.client.AbortMultipartUpload(ctx, s.cfg.Bucket, key, upload)
	})
	if missing(err) {
		return nil
	}
	return err
}

// drain reads all of a body, of which the server has said that it has size bytes.
func drain(body io.Reader, into []byte) error {
	if _, err := io.ReadFull(body, into); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// elapsed is how long ago t was, by the clock that goes on while the machine sleeps or by the one that cannot be set,
// whichever says more.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// Package s3 answers one question: how does an object store keep the promises of package store? A Store is a prefix in
// a bucket of an S3 server: an object's key is the prefix and its name.
//
// config.go and keys.go say which server and which credentials; this file has the calls that are a single request;
// draft.go uploads large objects; object.go reads; lock.go excludes other writers; retry.go repeats requests and
// explains errors.
//
// Requirements on the server. Reads see the last write (strong consistency). Listings are ordered by bytes. A PUT with
// If-None-Match or If-Match is refused with 412 if its condition does not hold. The first Lock tests this: a server
// that ignores conditions cannot exclude a second writer and is rejected.
//
// Lost answers. A request whose answer was lost may have had its effect, and is repeated. A retry may then meet the
// effect of its own first attempt. Writes for which this matters carry a mark by which the retry recognizes it. So two
// CreateIfAbsent of one name never both succeed, and none fails because of its own retry.
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

	"github.com/bulkscan/bulkscan/store"
)

// Store is a store.Store in a bucket.
type Store struct {
	cfg    Config
	client minio.Core
	keys   *keys
	root   string        // prefix of every key: "" or a path that ends with a slash
	slots  chan struct{} // one for each concurrent upload of a part

	reached     atomic.Bool // the server has answered at least once
	silent      atomic.Bool // a draft could not be discarded, and no answer has arrived since
	unanswered  atomic.Bool // the answer to some change was lost
	conditional atomic.Bool // the server was seen to honour conditions

	mu     sync.Mutex
	leases map[*lease]struct{} // held by this Store
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Unpublished = (*Store)(nil)
)

// New returns the Store that cfg describes. It makes no network requests: the first call reports a wrong name or a
// missing permission.
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

// String returns s3://BUCKET/PREFIX.
func (s *Store) String() string { return s.cfg.String() }

// key returns the key of an object in the bucket.
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

// Metadata with the mark of the write that made an object.
const (
	markName   = "Bulkscan-Write"
	markHeader = "X-Amz-Meta-" + markName
)

// newMark returns a mark that is unique to a write, across processes.
func newMark() string { return rand.Text() }

// payload is the body of a PUT with its checksums.
type payload struct {
	data []byte
	sums checksums
}

// payloadOf copies data, since an abandoned request may still read from it for a moment.
func payloadOf(data []byte) payload {
	sums := newChecksums()
	_, _ = sums.Write(data) // never fails
	return payload{bytes.Clone(data), sums}
}

// putOnce sends one PUT.
func (s *Store) putOnce(ctx context.Context, key string, p payload, o minio.PutObjectOptions) (etag string, err error) {
	o.DisableContentSha256 = true // of pieces: see checksums
	info, err := s.client.PutObject(ctx, s.cfg.Bucket, key, bytes.NewReader(p.data), int64(len(p.data)),
		p.sums.md5Base64(), p.sums.sha256Hex(), o)
	return info.ETag, err
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	key, err := s.key(name)
	if err == nil {
		err = s.put(ctx, key, payloadOf(data))
	}
	if err == nil {
		err = s.checkLocks(ctx)
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

// replace is put while a lock is held. It replaces exactly the version that it has seen. If the next holder of the lock
// has written since, the server refuses a late request.
func (s *Store) replace(ctx context.Context, key string, p payload) error {
	mark := newMark()
	for r := s.contention(); ; {
		o := minio.PutObjectOptions{UserMetadata: map[string]string{markName: mark}}
		switch info, err := s.stat(ctx, key); {
		case missing(err):
			o.SetMatchETagExcept("*")
		case err != nil:
			return err
		case info.Metadata.Get(markHeader) == mark:
			return nil // written by an earlier attempt whose answer was lost
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
		// The object was written in the meantime: by an earlier attempt, by a late request of an earlier holder, or by the
		// current holder.
		if err := s.checkLocks(ctx); err != nil {
			return err
		}
		if err := r.again(ctx, errContended); err != nil {
			return err
		}
	}
}

// errContended is the error of a write that another writer has preceded at every attempt.
var errContended = errors.New("another process writes it at every attempt")

// CreateIfAbsent implements store.Store by a conditional PUT.
func (s *Store) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	key, err := s.key(name)
	if err == nil {
		err = s.createIfAbsent(ctx, key, payloadOf(data))
	}
	if err == nil || errors.Is(err, store.ErrExist) {
		// The request may have been late. The next holder may have read this record, or created its own. So the
		// record stays, and this process ends.
		err = cmp.Or(s.checkLocks(ctx), err)
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
	// It exists, perhaps because of an earlier attempt whose answer was lost.
	info, err := s.stat(ctx, key)
	switch {
	case err == nil && info.Metadata.Get(markHeader) == mark:
		return nil
	case err != nil && !missing(err):
		return err
	}
	return store.ErrExist
}

// stat requests an object's metadata.
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
		err = s.checkLocks(ctx)
	}
	return s.explain("delete", name, err)
}

func (s *Store) removeOnce(ctx context.Context, key string) error {
	return s.client.RemoveObject(ctx, s.cfg.Bucket, key, minio.RemoveObjectOptions{})
}

// List implements store.Store. If a page of a listing fails, it continues after the last yielded name.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		err := s.list(ctx, prefix, true, func(object minio.ObjectInfo) bool {
			entry, ok := s.entry(object)
			return !ok || !strings.HasPrefix(entry.Name, prefix) || yield(entry, nil)
		})
		if err != nil {
			yield(store.Entry{}, s.explain("list", prefix, err))
		}
	}
}

// Folders implements store.Store.
func (s *Store) Folders(ctx context.Context, folder string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := s.list(ctx, folder, false, func(object minio.ObjectInfo) bool {
			name := strings.TrimSuffix(strings.TrimPrefix(object.Key, s.root), "/")
			return store.CheckName(name) != nil || yield(name, nil)
		})
		if err != nil {
			yield("", s.explain("list", folder, err))
		}
	}
}

// list calls each for every object whose name begins with prefix. Without below, it does so only for the folders
// directly in the folder prefix, whose keys end in a slash. It ends after each has returned false.
func (s *Store) list(ctx context.Context, prefix string, below bool, each func(minio.ObjectInfo) bool) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	last := ""
	for r := s.newRetries(); ; {
		var unordered error
		err := s.listFrom(ctx, prefix, last, below, func(object minio.ObjectInfo) bool {
			r.progress()
			if !below && !strings.HasSuffix(object.Key, "/") {
				return true // in a page, the objects come first
			}
			if last != "" && object.Key <= last {
				unordered = fmt.Errorf("the server lists %.200q after %.200q, which is not the order of their bytes", object.Key,
					last)
				return false
			}
			last = object.Key
			return each(object)
		})
		if err == nil {
			return unordered
		}
		if err := r.again(ctx, err); err != nil {
			return err
		}
	}
}

// listFrom calls each for every object after the key last, until it returns false. Each page has the time of one
// request.
func (s *Store) listFrom(parent context.Context, prefix, last string, below bool,
	each func(minio.ObjectInfo) bool) error {
	if folder, ok := strings.CutSuffix(last, "/"); ok {
		last = folder + "0" // sorts after all names in the folder
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	page := time.AfterFunc(s.timeFor(0), cancel)
	defer page.Stop()
	owner := false
	o := minio.ListObjectsOptions{Prefix: s.root + prefix, Recursive: below, StartAfter: last, MaxKeys: s.cfg.page,
		FetchOwner: &owner}
	for object := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, o) {
		page.Stop() // the caller's time does not count
		if object.Err != nil {
			return object.Err
		}
		if !each(object) {
			return nil
		}
		page.Reset(s.timeFor(0))
	}
	return ctx.Err() // the library does not return it
}

// entry returns the List entry of an object; ok is false for locks and for objects that do not belong to the Store.
func (s *Store) entry(object minio.ObjectInfo) (entry store.Entry, ok bool) {
	name, ok := strings.CutPrefix(object.Key, s.root)
	if !ok || store.CheckName(name) != nil || store.IsLock(name) {
		return entry, false
	}
	return store.Entry{Name: name, Size: object.Size, Modified: object.LastModified.UTC()}, true
}

// checkPrefix refuses text that cannot begin a name.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return store.CheckName(strings.TrimSuffix(prefix, "/"))
}

// Sweep implements store.Store. It aborts incomplete uploads.
func (s *Store) Sweep(ctx context.Context, prefix string, ours func(name string) bool) error {
	err := checkPrefix(prefix)
	if err == nil {
		err = s.checkLocks(ctx)
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
			if err := s.checkLocks(ctx); err != nil {
				return err // the upload may be a draft of the current holder
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

// uploadName returns the name of the object of an upload. ok is false if the upload is not of this Store with that
// prefix: some servers match prefixes as folders.
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

// listUploads lists incomplete uploads. whole is false if the server can begin a page only after a key, so that further
// uploads of the same key may be missing.
func (s *Store) listUploads(ctx context.Context, prefix string) (uploads []minio.ObjectMultipartInfo, whole bool,
	err error) {
	whole = true
	for key, id := "", ""; ; {
		var page minio.ListMultipartUploadsResult
		err := s.try(ctx, 0, func(ctx context.Context) (err error) {
			page, err = s.client.ListMultipartUploads(ctx, s.cfg.Bucket, prefix, key, id, "", max(s.cfg.page, 0))
			return err
		})
		if id != "" && answerOf(err).Code == minio.InvalidArgument {
			id, whole = "", false // the server does not accept its own upload marker
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

// abort aborts an upload. A missing upload is no error.
func (s *Store) abort(ctx context.Context, key, upload string) error {
	err := s.try(ctx, 0, func(ctx context.Context) error {
		return s.client.AbortMultipartUpload(ctx, s.cfg.Bucket, key, upload)
	})
	if missing(err) {
		return nil
	}
	return err
}

// drain fills into from a body. A shorter body is an error.
func drain(body io.Reader, into []byte) error {
	if _, err := io.ReadFull(body, into); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// elapsed returns the time since t: the longer of monotonic and wall-clock time. The former may stop while the machine
// sleeps; the latter may be set.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

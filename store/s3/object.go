package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/store"
)

// An object is read in blocks, some of which are kept: readers of Parquet files read a few bytes at many positions,
// some repeatedly. Opening fetches the end of the object, which has the footer of a Parquet file, or all of a small
// object. Every further request names the ETag of the first answer, so all blocks are of the same object.

const (
	tailSize   = 64 << 10
	blockSize  = 1 << 20
	maxBlocks  = 24 // blocks kept for one object
	maxAhead   = 8  // maximum blocks in one request, for sequential reads
	rangeError = "InvalidRange"
)

// Open implements store.Store.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	key, err := s.key(name)
	var o *object
	if err == nil {
		o, err = s.open(ctx, name, key)
	}
	if err != nil {
		return nil, s.explain("open", name, err)
	}
	return o, nil
}

func (s *Store) open(ctx context.Context, name, key string) (*object, error) {
	if store.IsLock(name) {
		return nil, store.ErrNotExist
	}
	o := &object{s: s, name: name, key: key, blocks: map[int64]*block{}}
	replaced := 0
	err := s.try(ctx, tailSize, func(ctx context.Context) error {
		err := o.openOnce(ctx)
		if errors.Is(err, errReplaced) {
			if replaced++; replaced > maxReplaced {
				err = &permanent{err}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	o.ctx, o.cancel = context.WithCancel(ctx)
	return o, nil
}

// errReplaced is the error of an object that was empty at first, and not empty a moment later.
var errReplaced = errors.New("the server returns no bytes of an object that is not empty")

// maxReplaced bounds how often this may happen because the object was replaced in the meantime.
const maxReplaced = 3

// openOnce requests the last bytes of the object.
func (o *object) openOnce(ctx context.Context) error {
	var options minio.GetObjectOptions
	if err := options.SetRange(0, -tailSize); err != nil {
		return err
	}
	body, info, header, err := o.s.client.GetObject(ctx, o.s.cfg.Bucket, o.key, options)
	if answer := answerOf(err); answer.Code == rangeError || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		// An empty object has no last bytes. Its ETag is not needed, since nothing more is read.
		info, err := o.s.client.StatObject(ctx, o.s.cfg.Bucket, o.key, minio.StatObjectOptions{})
		if err == nil && info.Size != 0 {
			err = errReplaced
		}
		o.size, o.tail = 0, nil
		return err
	}
	if err != nil {
		return err
	}
	defer body.Close()
	o.etag = info.ETag
	start, size, err := place(header, info.Size)
	if err != nil {
		return err
	}
	o.size = size
	o.tail = make([]byte, size-start)
	return drain(body, o.tail)
}

// place returns the position and total length of an answer's bytes, which reach to the end of the object.
func place(header http.Header, length int64) (start, size int64, err error) {
	text := header.Get("Content-Range")
	if text == "" {
		if length < 0 || length > tailSize {
			return 0, 0, &permanent{fmt.Errorf("the server ignores ranges and sends all %d bytes", length)}
		}
		return 0, length, nil
	}
	span, total, ok := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	from, to, ok2 := strings.Cut(span, "-")
	start, err1 := strconv.ParseInt(from, 10, 64)
	end, err2 := strconv.ParseInt(to, 10, 64)
	size, err3 := strconv.ParseInt(total, 10, 64)
	if !ok || !ok2 || errors.Join(err1, err2, err3) != nil || start < 0 || end+1 != size || size-start > tailSize ||
		size-start <= 0 {
		return 0, 0, &permanent{fmt.Errorf("asked for the last %d bytes, the server sends %q", tailSize, clip(text))}
	}
	return start, size, nil
}

// object implements store.Object.
type object struct {
	s      *Store
	ctx    context.Context // from Open
	cancel context.CancelFunc
	name   string
	key    string
	etag   string
	size   int64
	tail   []byte // last bytes of the object

	mu     sync.Mutex
	blocks map[int64]*block // by number
	used   []int64          // their numbers, most recently used last
	next   int64            // the block after the last fetched ones
	ahead  int64            // how many blocks the last request fetched
}

// block has the object's bytes from position blockSize times its number.
type block struct {
	done chan struct{} // closed when the other fields are set
	data []byte
	err  error
}

func (o *object) Size() int64 { return o.size }

func (o *object) Close() error {
	o.cancel()
	return nil
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, fmt.Errorf("cannot read %s: at %d", o.name, offset)
	}
	tail := o.size - int64(len(o.tail))
	for n < len(p) && offset < o.size {
		if offset >= tail {
			wrote := copy(p[n:], o.tail[offset-tail:])
			n, offset = n+wrote, offset+int64(wrote)
			continue
		}
		data, err := o.block(offset / blockSize)
		if err != nil {
			return n, o.s.explain("read", o.name, err)
		}
		wrote := copy(p[n:], data[offset%blockSize:])
		n, offset = n+wrote, offset+int64(wrote)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// block returns a block's bytes. It fetches the block, or waits for another reader that does.
func (o *object) block(number int64) ([]byte, error) {
	if err := o.ctx.Err(); err != nil {
		return nil, err
	}
	o.mu.Lock()
	b, ok := o.blocks[number]
	var fetch []*block
	if ok {
		o.touch(number)
	} else {
		fetch = o.plan(number)
		b = fetch[0]
	}
	o.mu.Unlock()
	if !ok {
		o.fetch(number, fetch)
	}
	<-b.done
	return b.data, b.err
}

// touch marks a block as the most recently used. The lock is held.
func (o *object) touch(number int64) {
	if i := slices.Index(o.used, number); i >= 0 {
		o.used = append(slices.Delete(o.used, i, i+1), number)
	}
}

// plan makes room for a block and, for sequential reads, for some after it. The lock is held.
func (o *object) plan(number int64) []*block {
	if number != o.next {
		o.ahead = 0
	}
	o.ahead = min(max(1, 2*o.ahead), maxAhead)
	var fetch []*block
	for i := number; i < number+o.ahead && i*blockSize < o.size-int64(len(o.tail)); i++ {
		if _, ok := o.blocks[i]; ok {
			break
		}
		b := &block{done: make(chan struct{})}
		o.blocks[i] = b
		o.used = append(o.used, i)
		fetch = append(fetch, b)
	}
	o.next = number + int64(len(fetch))
	for len(o.used) > maxBlocks {
		delete(o.blocks, o.used[0]) // its waiting readers keep a reference
		o.used = o.used[1:]
	}
	return fetch
}

// fetch reads blocks by one request.
func (o *object) fetch(number int64, blocks []*block) {
	start := number * blockSize
	end := min(start+int64(len(blocks))*blockSize, o.size)
	// Each block has memory of its own, so that a kept block does not keep others.
	data := make([][]byte, len(blocks))
	for i := range data {
		data[i] = make([]byte, min(blockSize, end-start-int64(i)*blockSize))
	}
	err := o.read(data, start, end)
	if err != nil {
		// Another reader may try again. ErrChanged is final.
		o.mu.Lock()
		for i := range blocks {
			delete(o.blocks, number+int64(i))
			o.used = slices.DeleteFunc(o.used, func(used int64) bool { return used == number+int64(i) })
		}
		o.next, o.ahead = 0, 0
		o.mu.Unlock()
	}
	for i, b := range blocks {
		if b.err = err; err == nil {
			b.data = data[i]
		}
		close(b.done)
	}
}

// read fills data with the object's bytes from start to end.
func (o *object) read(data [][]byte, start, end int64) error {
	var options minio.GetObjectOptions
	if err := errors.Join(options.SetMatchETag(o.etag), options.SetRange(start, end-1)); err != nil {
		return &permanent{err}
	}
	err := o.s.try(o.ctx, int(end-start), func(ctx context.Context) error {
		body, info, header, err := o.s.client.GetObject(ctx, o.s.cfg.Bucket, o.key, options)
		if err != nil {
			return err
		}
		defer body.Close()
		switch want := fmt.Sprintf("bytes %d-%d/%d", start, end-1, o.size); {
		case info.ETag != o.etag:
			return store.ErrChanged
		case header.Get("Content-Range") != want:
			return &permanent{fmt.Errorf("asked for %s, the server sends %q", want, clip(header.Get("Content-Range")))}
		}
		for _, b := range data {
			if err := drain(body, b); err != nil {
				return err
			}
		}
		return nil
	})
	if refused(err) || missing(err) {
		return store.ErrChanged
	}
	return err
}

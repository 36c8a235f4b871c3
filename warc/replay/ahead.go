package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/bulkscan/bulkscan/warc"
)

// ahead unpacks archives before they are needed, since unpacking is most of the work. It has a worker for each processor
// and returns the content in the order of the archives.
//
//	archives 0, n, 2n …   ─► worker 0 ─batches─┐
//	archives 1, n+1 …     ─► worker 1 ─batches─┼─► next, one archive after the other
//	archives n-1 …        ─► worker n-1 ───────┘
//
// A worker has batchesEach batches. When all are full, it waits until next has used one.
type ahead struct {
	workers []*worker
	cancel  context.CancelFunc
	group   sync.WaitGroup

	number int    // of the archive whose batches come next
	begun  bool   // one of its batches was received
	batch  *batch // the current one; nil before the next is received
	item   int    // index in batch
}

// worker reads every n-th archive.
type worker struct {
	filled, free chan *batch
	records      *warc.Reader
	packed       bool   // of the archive
	size         int64  // the same
	wired        bool   // the archive holds what was received on the wire
	crawl        string // of the last warcinfo
	batch        *batch // the one being filled
}

// batch is a part of an archive's items, in order. The last batch of an archive has its end.
type batch struct {
	items  []item
	memory []byte // of the items' bytes; the last block is being filled
	kept   int    // bytes in all blocks
	packed bool   // of the archive, as size
	size   int64  // in bytes
	ended  bool
	err    error // with which it ended; nil: all is read
}

// item is one record of an archive, or a stretch that could not be read.
type item struct {
	capture capture
	reason  string // why it is no capture
	uri     []byte
	crawl   string // of which it says to be a part; "" if unknown
	offset  int64
	broken  warc.Broken // a stretch that could not be read, if it has a Reason
}

const (
	batchesEach = 4
	batchItems  = 64
	batchBytes  = 256 << 10 // size of a full batch; memory beyond twice that is released
)

// opener opens an archive, and returns its size.
type opener func(number int) (file io.ReaderAt, size int64, close func() error, err error)

// newAhead starts reading so many archives. Call close to end it.
func newAhead(ctx context.Context, archives int, open opener, maxBlock int) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{cancel: cancel}
	workers := min(archives, runtime.GOMAXPROCS(0))
	for first := range workers {
		l := &worker{filled: make(chan *batch, batchesEach), free: make(chan *batch, batchesEach), records: warc.NewReader(maxBlock)}
		l.records.Broken = func(b warc.Broken) error { return l.add(ctx, item{broken: b}) }
		for range batchesEach {
			l.free <- &batch{items: make([]item, 0, batchItems)}
		}
		a.workers = append(a.workers, l)
		a.group.Go(func() {
			for number := first; number < archives; number += workers {
				if l.read(ctx, open, number) != nil {
					return // nothing is read after an archive that fails
				}
			}
		})
	}
	return a
}

// next returns the next item of the current archive, or nil at its end with the error that ended it; then the next
// archive is current. An item is valid until the next call. fresh is the first batch of an archive, when it arrives.
func (a *ahead) next(ctx context.Context) (it *item, fresh *batch, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l := a.workers[a.number%len(a.workers)]
	if a.batch != nil && a.item == len(a.batch.items) {
		ended, err := a.batch.ended, a.batch.err
		a.batch.reset()
		l.free <- a.batch
		a.batch = nil
		if ended {
			a.number++
			a.begun = false
			return nil, nil, err
		}
	}
	if a.batch == nil {
		select {
		case a.batch = <-l.filled:
			a.item = 0
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if !a.begun {
			a.begun = true
			return nil, a.batch, nil
		}
		if len(a.batch.items) == 0 {
			return a.next(ctx)
		}
	}
	a.item++
	return &a.batch.items[a.item-1], nil, nil
}

// close ends the reading and waits until all archives are closed.
func (a *ahead) close() {
	a.cancel()
	a.group.Wait()
}

// read reads one archive. Its error is also in the archive's last batch, except for that of the context.
func (l *worker) read(ctx context.Context, open opener, number int) error {
	file, size, shut, err := open(number)
	if err == nil {
		err = l.records.Reset(file, size, 0)
	}
	l.packed, l.size, l.wired, l.crawl = l.records.Packed(), size, false, ""
	for err == nil {
		var rec *warc.Record
		if rec, err = l.records.Next(); err == nil {
			err = l.add(ctx, l.item(rec))
		}
	}
	if err == io.EOF {
		err = nil
	}
	if file != nil {
		err = errors.Join(err, shut())
	}
	if more := l.take(ctx); more != nil {
		return more
	}
	l.batch.ended, l.batch.err = true, err
	l.pass()
	return err
}

// item converts a record. The item views the record's memory.
func (l *worker) item(rec *warc.Record) item {
	if rec.Type == warc.Info {
		l.wired = bytes.HasPrefix(infoField(rec.Block, "software"), []byte("bulkscan/"))
		l.crawl = string(infoField(rec.Block, "ispartof"))
	}
	it := item{uri: rec.TargetURI, offset: rec.Offset, crawl: l.crawl}
	it.capture, it.reason = readCapture(rec)
	it.capture.recorded.Undone = !l.wired
	return it
}

// add copies an item into the batch and sends a full one.
func (l *worker) add(ctx context.Context, it item) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	b := l.batch
	it.uri = b.keep(it.uri)
	it.capture.recorded.Block = b.keep(it.capture.recorded.Block)
	b.items = append(b.items, it)
	if len(b.items) == batchItems || b.kept >= batchBytes {
		l.pass()
	}
	return nil
}

// take receives a batch to fill, unless there is one.
func (l *worker) take(ctx context.Context) error {
	if l.batch != nil {
		return nil
	}
	select {
	case l.batch = <-l.free:
		l.batch.packed, l.batch.size = l.packed, l.size
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass sends the batch. The channel has room for all batches, so this does not block.
func (l *worker) pass() {
	l.filled <- l.batch
	l.batch = nil
}

// keep copies bytes into the batch's memory. Growing adds a block, so that earlier views stay valid.
func (b *batch) keep(data []byte) []byte {
	if data == nil {
		return nil
	}
	if cap(b.memory)-len(b.memory) < len(data) {
		b.memory = make([]byte, 0, max(len(data), min(2*cap(b.memory), 2*batchBytes), 16<<10))
	}
	b.kept += len(data)
	from := len(b.memory)
	b.memory = append(b.memory, data...)
	return b.memory[from:len(b.memory):len(b.memory)]
}

// reset empties the batch for reuse.
func (b *batch) reset() {
	clear(b.items)
	memory := b.memory[:0]
	if cap(memory) > 2*batchBytes {
		memory = nil
	}
	*b = batch{items: b.items[:0], memory: memory}
}

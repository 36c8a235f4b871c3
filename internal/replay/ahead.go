package replay

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"runtime"
	"sync"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/warc"
)

// ahead reads archives before they are wanted, as most of the work is to unpack them: as many at a time as there are
// processors, and hands out what stands in them in the order of the archives.
//
//	archives 0, n, 2n …   ─► lane 0 ─batches─┐
//	archives 1, n+1 …     ─► lane 1 ─batches─┼─► next, one archive after the other
//	archives n-1 …        ─► lane n-1 ───────┘
//
// A lane has batchesEach batches. One that has filled them waits until those before it are done with.
type ahead struct {
	lanes  []*lane
	cancel context.CancelFunc
	group  sync.WaitGroup

	number int    // of the archive whose batches come next
	begun  bool   // a batch of it has come
	batch  *batch // that is handed out; nil: the next is to come
	item   int    // of batch
}

// lane reads every n-th archive.
type lane struct {
	filled, free chan *batch
	records      *warc.Reader
	seed         maphash.Seed
	url          []byte
	packed       bool   // of the archive
	size         int64  // the same
	wired        bool   // what is read was written as it was on the wire
	batch        *batch // that is filled
}

// batch is some of what stands in an archive, in its order. The last of an archive has its end.
type batch struct {
	items  []item
	memory []byte // of what the items view, the last block of it
	kept   int    // bytes in all
	packed bool   // of the archive, as size
	size   int64  // in bytes
	ended  bool
	err    error // with which it ended; nil: all is read
}

// item is one record of an archive, or a stretch of it that is none.
type item struct {
	capture capture
	reason  string // that it is no capture
	uri     []byte
	key     uint64 // of the capture's target
	at      place  // in the archive of that number
	offset  int64
	broken  warc.Broken // of a stretch that is no record, which has a Reason
}

const (
	batchesEach = 4
	batchItems  = 64
	batchBytes  = 256 << 10 // after which a batch is full; what one grew beyond twice that is dropped
)

// newAhead begins to read. close ends it.
func newAhead(ctx context.Context, paths []string, maxBlock int, seed maphash.Seed) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{cancel: cancel}
	lanes := min(len(paths), runtime.GOMAXPROCS(0))
	for first := range lanes {
		l := &lane{filled: make(chan *batch, batchesEach), free: make(chan *batch, batchesEach), records: warc.NewReader(maxBlock), seed: seed}
		l.records.Broken = func(b warc.Broken) error { return l.add(ctx, item{broken: b}) }
		for range batchesEach {
			l.free <- &batch{items: make([]item, 0, batchItems)}
		}
		a.lanes = append(a.lanes, l)
		a.group.Go(func() {
			for number := first; number < len(paths); number += lanes {
				if l.read(ctx, paths[number], number) != nil {
					return // nobody reads on behind an archive that cannot be read
				}
			}
		})
	}
	return a
}

// next returns the next item of the archive that is read, or nil at its end, with the error that ended it; the next call is
// of the archive behind it. The item is valid until then. fresh is the first batch of an archive, when it comes.
func (a *ahead) next(ctx context.Context) (it *item, fresh *batch, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l := a.lanes[a.number%len(a.lanes)]
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

// close ends the reading, and waits until all archives are closed.
func (a *ahead) close() {
	a.cancel()
	a.group.Wait()
}

// read reads one archive. Its error, but for that of the context, is in the archive's last batch too.
func (l *lane) read(ctx context.Context, path string, number int) error {
	file, size, err := openFile(path)
	if err == nil {
		err = l.records.Reset(watched{ctx, file}, size, 0)
	}
	l.packed, l.size, l.wired = l.records.Packed(), size, false
	for err == nil {
		var rec *warc.Record
		if rec, err = l.records.Next(); err == nil {
			err = l.add(ctx, l.item(rec, number))
		}
	}
	if err == io.EOF {
		err = nil
	}
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	if more := l.take(ctx); more != nil {
		return more
	}
	l.batch.ended, l.batch.err = true, err
	l.pass()
	return err
}

// item makes an item of a record, whose memory is the record's.
func (l *lane) item(rec *warc.Record, number int) item {
	if rec.Type == warc.Info {
		l.wired = ours(rec.Block)
	}
	it := item{uri: rec.TargetURI, offset: rec.Offset}
	it.capture, it.reason = readCapture(rec)
	it.capture.recorded.Undone = !l.wired
	if it.reason == "" {
		it.key, l.url = keyOf(l.seed, it.capture.target, l.url)
		it.at = newPlace(number, rec, it.capture.settled, l.wired)
	}
	if !it.capture.settled || it.capture.target.Path != "" {
		it.capture.recorded.Block = nil // what is wanted of it is looked up, if anything
	}
	return it
}

// add puts a copy of an item into the batch, and passes on one that is full.
func (l *lane) add(ctx context.Context, it item) error {
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

// take makes sure that there is a batch to fill.
func (l *lane) take(ctx context.Context) error {
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

// pass hands on the batch. There is room for all of them.
func (l *lane) pass() {
	l.filled <- l.batch
	l.batch = nil
}

// keep copies bytes into the batch's memory. Growing it moves nothing: views keep what they view.
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

// reset makes the batch ready to be filled.
func (b *batch) reset() {
	clear(b.items)
	memory := b.memory[:0]
	if cap(memory) > 2*batchBytes {
		memory = nil
	}
	*b = batch{items: b.items[:0], memory: memory}
}

// keyOf is the hash of a target's URL, which is spelled out in url.
func keyOf(seed maphash.Seed, t exchange.Target, url []byte) (uint64, []byte) {
	url = t.AppendTo(url[:0])
	return maphash.Bytes(seed, url), url
}

package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/warc"
)

// ahead reads an input, or a stretch of an archive, before it is needed, in a goroutine of its own, since unpacking and
// parsing are most of the work. It returns the items in order, in batches.
type ahead struct {
	spot
	ctx     context.Context
	stop    context.CancelFunc
	opt     *Options
	to      int64 // where the next stretch begins, if a gzip member begins there
	at      int64 // after the last batch: the first record behind the stretch
	batches chan batch
	batch   batch  // the one being filled
	bytes   int    // in it
	skipped uint64 // records since the last item
}

// spot is a place in the inputs.
type spot struct {
	input int   // its number
	from  int64 // in bytes
}

// batch is a part of an input's items. The last one has the error with which the input ended.
type batch struct {
	items []item
	err   error
}

// item is a capture, a row, or neither. An input begins with an item that has nothing but its file.
type item struct {
	record // without its numbers; its input is the text of a reject
	url    exchange.Target
	when   time.Time // zero: unknown
	reason string    // why it is a reject; or skipped
	broken int       // records that were returned before damage was found: they may be wrong
	begins *inputs.FileStats
	info   *info  // of the records that follow
	before uint64 // skipped records before it
	offset int64  // in the input
}

// info is what a warcinfo says of the records behind it.
type info struct {
	wired bool   // they are bytes as received on the wire
	crawl string // the crawl that they are a part of; "" if unknown
}

const (
	batchesEach = 4 // of an input, filled and not yet used
	batchItems  = 64
	batchBytes  = 256 << 10 // size of a full batch

	// stretchBytes is the size of a stretch of a packed archive. The captures of most fit into the batches, so that a
	// reader need not wait for the one before it.
	stretchBytes = 512 << 10
)

// readers are those of stretches that have been read.
var readers = sync.Pool{New: func() any { return warc.NewReader(0) }}

// newAhead returns a reader of an input. Call read in a goroutine, and receive batches until they end.
func newAhead(ctx context.Context, opt *Options, at spot, to int64) *ahead {
	a := &ahead{spot: at, to: to, opt: opt, batches: make(chan batch, batchesEach)}
	a.ctx, a.stop = context.WithCancel(ctx)
	return a
}

// read reads an input: a folder, a stretch of an archive of that size, or a file with rows of bodies, or one that has
// to be unpacked.
func (a *ahead) read(path string, archive bool, size int64) {
	defer a.stop()
	defer close(a.batches)
	a.at = a.to
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		err = a.readFolder(path)
	case archive:
		err = a.readArchive(path, size)
	default:
		err = a.readFile(path)
	}
	if _, told := errors.AsType[*inputs.Error](err); err != nil && !told {
		err = failed(path, err)
	}
	a.batch.err = err
	_ = a.pass() // the end of the context is reported as its own error
}

// failed is an error of reading an input, without the operation and the path that errors of package os begin with.
func failed(path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return &inputs.Error{File: path, Err: err}
}

// add adds an item to the batch, and passes a full one on.
func (a *ahead) add(it item) error {
	if a.batch.items == nil {
		a.batch.items = make([]item, 0, batchItems)
	}
	it.before, a.skipped = a.skipped, 0
	a.batch.items = append(a.batch.items, it)
	if a.bytes += len(it.block); len(a.batch.items) < batchItems && a.bytes < batchBytes {
		return nil
	}
	return a.pass()
}

func (a *ahead) pass() error {
	select {
	case a.batches <- a.batch:
		a.batch, a.bytes = batch{}, 0
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

func (a *ahead) begin(file inputs.FileStats) error { return a.add(item{begins: &file}) }

// readFolder reads a folder of bodies.
func (a *ahead) readFolder(folder string) error {
	files, err := Files(folder)
	if err == nil {
		err = a.begin(inputs.FileStats{Name: folder, Layout: "folder"})
	}
	for i := 0; i < len(files) && err == nil; i++ {
		name := strings.TrimPrefix(files[i], filepath.Clean(folder)+string(filepath.Separator))
		row := inputs.Row{Line: uint64(i + 1), Text: []byte(name), Reason: "its name is neither HOST.txt nor HOST/robots.txt"}
		if part := fileName.FindStringSubmatch(filepath.ToSlash(files[i])); part != nil {
			row.Reason = ""
			body, err := inputs.ReadText(a.ctx, files[i], part[5] != "", a.opt.MaxBody+1)
			if err != nil {
				row.Reason = err.Error()
			}
			row.Cells = map[string][]byte{"host": []byte(part[1] + part[3] + part[4]), "rank": []byte(part[2]), "body": body}
		}
		if err = a.ctx.Err(); err == nil {
			err = a.add(a.opt.item(&row))
		}
	}
	return err
}

// readFile reads a file with rows of bodies, one that has to be unpacked, or a zip with several.
func (a *ahead) readFile(path string) (err error) {
	r := inputs.OpenRows(a.ctx, []string{path}, inputs.Options{TempDir: a.opt.TempDir, Parquet: a.opt.Parquet},
		a.opt.Columns)
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		in, err := r.NextStream()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && in.Archive != nil {
			_, err = a.readRecords(in.Name, in.Archive, in.Size, 0, in.Size)
		} else if err == nil {
			err = a.begin(in.FileStats)
			for err == nil {
				var row *inputs.Row
				if row, err = in.Next(); err == nil {
					it := a.opt.item(row)
					it.offset = r.Read()
					err = a.add(it)
				}
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// readArchive reads an archive until the context ends.
func (a *ahead) readArchive(path string, size int64) (err error) {
	file, err := inputs.OpenFile(a.ctx, path)
	if err != nil {
		return err
	}
	defer file.Close()
	a.at, err = a.readRecords(path, file, size, a.from, a.to)
	return err
}

// readRecords reads the records of an archive that begin within a stretch. It returns the offset of the next record, or
// the size.
func (a *ahead) readRecords(name string, archive io.ReaderAt, size, from, to int64) (int64, error) {
	records := readers.Get().(*warc.Reader)
	defer readers.Put(records)
	records.MaxBlock = maxHead + a.opt.MaxBody + 1
	records.Broken = func(b warc.Broken) error { return a.add(damage(b)) }
	err := records.Reset(archive, size, from)
	file := inputs.FileStats{Name: name, Layout: "warc"}
	if records.Packed() {
		file.Compression = "gzip"
	}
	if err == nil && from == 0 {
		err = a.begin(file)
	}
	for err == nil {
		var rec *warc.Record
		if rec, err = records.Next(); err != nil {
			break
		}
		if rec.Offset >= to {
			return rec.Offset, a.addSkipped()
		}
		it := capture(rec)
		switch {
		case rec.Type == warc.Info:
			it.info = &info{wired: bytes.HasPrefix(infoField(rec.Block, "software"), []byte("bulkscan/")),
				crawl: string(infoField(rec.Block, "ispartof"))}
		case it.reason == skipped:
			a.skipped++
			continue
		}
		err = a.add(it)
	}
	if err == io.EOF {
		return size, a.addSkipped()
	}
	if a.ctx.Err() != nil {
		return 0, a.ctx.Err()
	}
	return 0, failed(name, err)
}

// addSkipped adds the records that were skipped since the last item.
func (a *ahead) addSkipped() error {
	if a.skipped == 0 {
		return nil
	}
	a.skipped-- // it is the item itself
	return a.add(item{reason: skipped})
}

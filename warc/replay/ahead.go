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
	"time"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/warc"
)

// ahead reads an input before it is needed, in a goroutine of its own, since unpacking and parsing are most of the
// work. It returns the items in order, in batches.
type ahead struct {
	ctx     context.Context
	opt     *Options
	batches chan batch
	batch   batch // the one being filled
	bytes   int   // in it
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
	crawl  string    // the crawl that it says to be a part of; "" if unknown
	reason string    // why it is a reject; or skipped
	broken int       // records that were returned before damage was found: they may be wrong
	begins *inputs.FileStats
	offset int64 // in the input
}

const (
	batchesEach = 4 // of an input, filled and not yet used
	batchItems  = 64
	batchBytes  = 256 << 10 // size of a full batch
)

// newAhead returns a reader of an input. Call read in a goroutine, and receive batches until they end.
func newAhead(ctx context.Context, opt *Options) *ahead {
	return &ahead{ctx: ctx, opt: opt, batches: make(chan batch, batchesEach)}
}

// read reads an input: a folder, an archive, or a file with rows of bodies, or one that has to be unpacked.
func (a *ahead) read(path string, archive bool) {
	defer close(a.batches)
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		err = a.readFolder(path)
	case archive:
		err = a.readArchive(path, info.Size())
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
			err = a.readRecords(in.Name, in.Archive, in.Size)
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
	return a.readRecords(path, file, size)
}

// readRecords reads the records of an archive.
func (a *ahead) readRecords(name string, archive io.ReaderAt, size int64) error {
	records := warc.NewReader(maxHead + a.opt.MaxBody + 1)
	records.Broken = func(b warc.Broken) error { return a.add(damage(b)) }
	err := records.Reset(archive, size, 0)
	file := inputs.FileStats{Name: name, Layout: "warc"}
	if records.Packed() {
		file.Compression = "gzip"
	}
	if err == nil {
		err = a.begin(file)
	}
	var crawl string // of the last warcinfo
	wired := false   // the archive holds bytes as received on the wire
	for err == nil {
		var rec *warc.Record
		if rec, err = records.Next(); err != nil {
			break
		}
		if rec.Type == warc.Info {
			wired = bytes.HasPrefix(infoField(rec.Block, "software"), []byte("bulkscan/"))
			crawl = string(infoField(rec.Block, "ispartof"))
		}
		it := capture(rec)
		if it.crawl = crawl; !wired {
			it.flags |= undone
		}
		err = a.add(it)
	}
	if err == io.EOF {
		return nil
	}
	if a.ctx.Err() != nil {
		return a.ctx.Err()
	}
	return failed(name, err)
}

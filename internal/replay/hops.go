package replay

import (
	"errors"
	"io"
	"os"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/warc"
)

// place is where a capture stands: whether it is settled, whether it is as it was on the wire, in which file, and at which
// offset.
//
//	settled (1 bit) │ wired (1 bit) │ file (20 bits) │ offset (42 bits)
type place uint64

const (
	placeFileBits   = 20
	placeOffsetBits = 42
	placeNowhere    = 1<<placeOffsetBits - 1 // the offset of captures that cannot be read again
)

// maxIndex bounds the index in a gzip member of a capture that is read again: the records before it must be read, too.
const maxIndex = 63

func newPlace(file int, rec *warc.Record, settled, wired bool) place {
	offset := rec.Offset
	if rec.Index > maxIndex || offset > placeNowhere {
		offset = placeNowhere
	}
	p := place(file)<<placeOffsetBits | place(offset)
	if settled {
		p |= 1 << 63
	}
	if wired {
		p |= 1 << 62
	}
	return p
}

func (p place) settled() bool   { return p>>63 != 0 }
func (p place) wired() bool     { return p>>62&1 != 0 }
func (p place) file() int       { return int(p >> placeOffsetBits & (1<<placeFileBits - 1)) }
func (p place) offset() int64   { return int64(p & placeNowhere) }
func (p place) reachable() bool { return p.offset() != placeNowhere }

// waiting is an origin whose capture does not settle it: a redirect, or a failure for which a retry may be recorded.
type waiting struct {
	key uint64
	seq uint64
	at  place
}

// key is the hash that identifies a URL's capture, keyed anew for each Reader. Among 34 million captures two share a
// hash with a probability of 1 in 30,000. After a look-up the URL is compared.
func (r *Reader) key(t exchange.Target) (key uint64) {
	key, r.url = keyOf(r.seed, t, r.url)
	return key
}

// drain returns the next origin that was waiting.
func (r *Reader) drain() (entry inputs.Entry, found bool, err error) {
	if r.drained == len(r.waiting) {
		return entry, false, io.EOF
	}
	w := r.waiting[r.drained]
	r.drained++
	c, uri, err := r.find(w.at, w.key)
	if err != nil {
		return entry, false, err
	}
	if c == nil {
		return entry, false, &inputs.Error{File: r.paths[w.at.file()], Err: errors.New("it has changed while it was read")}
	}
	if r.captures[w.key] != w.at { // a later capture settles it, or is a later failure
		r.stats.Duplicates++
		return entry, false, r.rejectLine(w.at.file(), w.seq-r.firsts[w.at.file()]+1, uri, "another capture of the same file counts")
	}
	entry = r.entry(w.seq, uri, c)
	return entry, true, r.follow(r.replay(c))
}

// follow follows redirects from a capture to recorded targets, as far as there are any.
func (r *Reader) follow(next exchange.Next) error {
	for next.Again {
		x := &r.exchange
		x.Target = next.Target
		key := r.key(x.Target)
		var c *capture
		if at, known := r.captures[key]; known && at.reachable() {
			var err error
			if c, _, err = r.find(at, key); err != nil {
				return err
			}
		}
		if c == nil {
			r.fetch.Replay(r.ctx, x, nil)
			return nil
		}
		next = r.fetch.Replay(r.ctx, x, &c.recorded)
	}
	return nil
}

// find reads the capture at a place again. It returns nil if another capture is there.
func (r *Reader) find(at place, key uint64) (*capture, []byte, error) {
	file, err := r.again.open(r.paths, at.file())
	if err == nil {
		err = r.again.records.Reset(watched{r.ctx, file}, r.again.sizes[at.file()], at.offset())
	}
	for index := 0; err == nil && index <= maxIndex; index++ {
		var rec *warc.Record
		if rec, err = r.again.records.Next(); err != nil || rec.Offset != at.offset() {
			break
		}
		if c, reason := readCapture(rec); reason == "" && r.key(c.target) == key {
			c.recorded.Undone = !at.wired()
			return &c, rec.TargetURI, nil
		}
	}
	if err != nil && err != io.EOF {
		if r.ctx.Err() != nil {
			return nil, nil, r.ctx.Err()
		}
		return nil, nil, &inputs.Error{File: r.paths[at.file()], Err: plain(err)}
	}
	return nil, nil, nil
}

// lookup reads single records of all archives.
type lookup struct {
	records *warc.Reader
	files   map[int]*os.File
	sizes   map[int]int64
}

// openFiles bounds the archives that are open at once for look-ups.
const openFiles = 32

func newLookup(maxBlock int) lookup {
	return lookup{records: warc.NewLookup(maxBlock), files: map[int]*os.File{}, sizes: map[int]int64{}}
}

// open returns an open archive.
func (l *lookup) open(paths []string, number int) (*os.File, error) {
	if file := l.files[number]; file != nil {
		return file, nil
	}
	if len(l.files) == openFiles {
		if err := l.close(); err != nil {
			return nil, err
		}
	}
	file, size, err := openFile(paths[number])
	if err != nil {
		return nil, err
	}
	l.files[number], l.sizes[number] = file, size
	return file, nil
}

// close closes all open archives.
func (l *lookup) close() error {
	var errs []error
	for number, file := range l.files {
		errs = append(errs, file.Close())
		delete(l.files, number)
		delete(l.sizes, number)
	}
	return errors.Join(errs...)
}

package replay

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/klauspost/compress/s2"

	"github.com/bulkscan/bulkscan/inputs"
)

// record is one capture, row or reject on its way from the archives to its night.
type record struct {
	night int32  // see Nights.night; 0: none, of rejects
	url   []byte // of the target; captures of a night with the same URL follow one another
	seq   uint64
	file  uint32 // its number among the inputs, as in Nights.names
	line  uint64
	at    int64 // milliseconds since 1970; unknown if noTime
	rank  int64
	flags flags
	tls   uint16
	addr  []byte // of the server, 4 or 16 bytes; empty: unknown
	proto []byte
	input []byte // as listed
	final []byte // URL that answered, if another one; of bodies
	label []byte
	block []byte // the answer; of a reject the reason
}

type flags uint16

const (
	settled  flags = 1 << iota // the status says whether robots.txt exists
	redirect                   // a redirect, which may lead to another capture of its night
	target                     // of another path than /robots.txt: only redirects lead here
	auto                       // listed without a scheme
	undone                     // see fetcher.Recorded
	unseen                     // an archive has the row, but no answer
	carried                    // the same, since the archive repeats an earlier answer
	rejected
	noTime
	ending // the lowest bit of two, of fetcher.Ending
)

const endingShift = 9

// append appends the record to dst, and returns where its URL begins there.
func (r *record) append(dst []byte) (_ []byte, url int) {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(r.night))
	for _, n := range [...]uint64{r.seq, uint64(r.file), r.line, uint64(r.at), uint64(r.rank), uint64(r.flags), uint64(r.tls)} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.url)))
	url = len(dst)
	dst = append(dst, r.url...)
	for _, text := range [...][]byte{r.addr, r.proto, r.input, r.final, r.label, r.block} {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return dst, url
}

// errSpool says that a temporary file has other bytes than were written.
var errSpool = errors.New("the temporary file has changed while it was read")

// decode reads a record from the beginning of b, of which it becomes a view, and returns the rest.
func (r *record) decode(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errSpool
	}
	var n [7]uint64
	r.night, b = int32(binary.LittleEndian.Uint32(b)), b[4:]
	for i := range n {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errSpool
		}
		n[i], b = v, b[size:]
	}
	r.seq, r.file, r.line, r.at, r.rank, r.flags, r.tls = n[0], uint32(n[1]), n[2], int64(n[3]), int64(n[4]), flags(n[5]), uint16(n[6])
	for _, text := range [...]*[]byte{&r.url, &r.addr, &r.proto, &r.input, &r.final, &r.label, &r.block} {
		v, size := binary.Uvarint(b)
		if size <= 0 || v > uint64(len(b)-size) {
			return nil, errSpool
		}
		*text, b = b[size:size+int(v)], b[size+int(v):]
	}
	return b, nil
}

// The bounds of memory and of what is read at once. 256 GB of captures are 4,096 runs, of which a chunk each is in memory.
const (
	runBytes   = 64 << 20
	chunkBytes = 64 << 10
)

// spool sorts records by night, URL and number, in a temporary file without a name as soon as they exceed runBytes. It ends with
// the process.
type spool struct {
	dir  string
	file *os.File // nil: no run was written
	at   int64
	runs []*run

	open    *run       // being filled
	sealing chan error // of the run before, once it is written; nil: none is
	spare   []*run     // written, to be filled again
	limit   int        // runBytes; tests set less
}

// run is a sorted sequence of records: in memory while it is filled, and if it is the only one; else in chunks of the file.
type run struct {
	memory []byte
	order  []place
	chunks []int64 // where each begins in the file, and where the last one ends
}

// place is where a record stands in memory, with the beginning of what it is sorted by.
type place struct {
	night  int32
	prefix uint64 // of the URL behind its scheme
	from   int
	url    int   // where its URL begins
	size   int32 // of the URL
	seq    uint64
}

func (s *spool) add(r *record) error {
	if s.open == nil {
		s.open = &run{}
	}
	if len(s.open.memory) >= s.limit {
		if err := s.seal(); err != nil {
			return err
		}
	}
	run := s.open
	p := place{night: r.night, from: len(run.memory), seq: r.seq, size: int32(len(r.url))}
	if host := bytes.Index(r.url, []byte("://")) + 3; host < len(r.url) {
		var first [8]byte
		copy(first[:], r.url[host:])
		p.prefix = binary.BigEndian.Uint64(first[:])
	}
	if n := len(run.memory); n > cap(run.memory)*7/8 && cap(run.memory) < s.limit { // doubled, since append grows large slices by a quarter
		run.memory = slices.Grow(run.memory, n)
	}
	run.memory, p.url = r.append(run.memory)
	run.order = append(run.order, p)
	return nil
}

func (r *run) url(p *place) []byte { return r.memory[p.url:][:p.size] }

// sort sorts the run in memory.
func (r *run) sort() {
	slices.SortFunc(r.order, func(a, b place) int {
		if c := cmp.Or(cmp.Compare(a.night, b.night), cmp.Compare(a.prefix, b.prefix)); c != 0 {
			return c
		}
		return cmp.Or(compareURL(r.url(&a), r.url(&b)), cmp.Compare(a.seq, b.seq))
	})
}

// compareURL orders URLs by what is behind their schemes, and then by these: so most redirects lead to a neighbour.
func compareURL(a, b []byte) int {
	schemeA, restA, _ := bytes.Cut(a, []byte("://"))
	schemeB, restB, _ := bytes.Cut(b, []byte("://"))
	return cmp.Or(bytes.Compare(restA, restB), bytes.Compare(schemeA, schemeB))
}

// compare orders records.
func (r *record) compare(o *record) int {
	return cmp.Or(cmp.Compare(r.night, o.night), compareURL(r.url, o.url), cmp.Compare(r.seq, o.seq))
}

// seal has the open run sorted and written while another one is filled.
func (s *spool) seal() error {
	if err := s.sealed(); err != nil {
		return err
	}
	if s.file == nil {
		var err error
		if s.file, err = inputs.Scratch(s.dir); err != nil {
			return unwritten(err)
		}
	}
	full := s.open
	s.open = &run{}
	if n := len(s.spare); n > 0 {
		s.open, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	done := make(chan error, 1)
	s.sealing = done
	go func() {
		full.sort()
		done <- s.write(full)
	}()
	return nil
}

// sealed waits until the run before is written.
func (s *spool) sealed() error {
	if s.sealing == nil {
		return nil
	}
	err := <-s.sealing
	s.sealing = nil
	return unwritten(err)
}

func unwritten(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot keep captures in a temporary file: %w; make room for it, or set TMPDIR to where there is", err)
}

// write writes a sorted run.
func (s *spool) write(full *run) error {
	w := chunkWriter{file: s.file, at: s.at}
	for i := range full.order {
		from := full.order[i].from
		r := record{}
		rest, err := r.decode(full.memory[from:])
		if err != nil {
			return err
		}
		if err := w.add(full.memory[from : len(full.memory)-len(rest)]); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	s.at = w.at
	s.runs = append(s.runs, &run{chunks: append(w.chunks, w.at)})
	full.memory, full.order = full.memory[:0], full.order[:0]
	s.spare = append(s.spare, full)
	return nil
}

// chunkWriter writes records in compressed chunks.
type chunkWriter struct {
	file   *os.File
	at     int64
	chunks []int64
	raw    []byte
	packed []byte
}

func (w *chunkWriter) add(record []byte) error {
	w.raw = append(w.raw, record...)
	if len(w.raw) < chunkBytes {
		return nil
	}
	return w.flush()
}

func (w *chunkWriter) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	w.packed = s2.Encode(w.packed[:cap(w.packed)], w.raw)
	if _, err := w.file.WriteAt(w.packed, w.at); err != nil {
		return err
	}
	w.chunks = append(w.chunks, w.at)
	w.at += int64(len(w.packed))
	w.raw = w.raw[:0]
	return nil
}

// chunkReader reads chunks of a file.
type chunkReader struct {
	file   *os.File
	packed []byte
	raw    []byte
}

func (c *chunkReader) read(from, to int64) ([]byte, error) {
	c.packed = slices.Grow(c.packed[:0], int(to-from))[:to-from]
	if _, err := c.file.ReadAt(c.packed, from); err != nil {
		if errors.Is(err, io.EOF) {
			err = errSpool
		}
		return nil, err
	}
	var err error
	c.raw, err = s2.Decode(c.raw[:cap(c.raw)], c.packed)
	return c.raw, err
}

// merge returns the records in order. Nothing is added after it.
func (s *spool) merge() (*merger, error) {
	if s.open != nil && s.file != nil && len(s.open.order) > 0 {
		if err := s.seal(); err != nil {
			return nil, err
		}
	}
	if err := s.sealed(); err != nil {
		return nil, err
	}
	m := &merger{}
	if s.file == nil && s.open != nil {
		s.open.sort()
		s.runs = append(s.runs, s.open)
	}
	s.open, s.spare = nil, nil
	for _, r := range s.runs {
		c := &cursor{run: r, chunkReader: chunkReader{file: s.file}}
		ok, err := c.next()
		if err != nil {
			return nil, err
		}
		if ok {
			m.cursors = append(m.cursors, c)
		}
	}
	heap.Init(m)
	return m, nil
}

func (s *spool) close() error {
	err := s.sealed()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	s.runs, s.open, s.file = nil, nil, nil
	return err
}

// cursor reads one run.
type cursor struct {
	chunkReader
	run  *run
	n    int // of the next chunk, or place
	rest []byte
	record
}

func (c *cursor) next() (ok bool, err error) {
	if c.run.chunks == nil {
		if c.n == len(c.run.order) {
			return false, nil
		}
		c.rest = c.run.memory[c.run.order[c.n].from:]
		c.n++
	} else if len(c.rest) == 0 {
		if c.n+1 == len(c.run.chunks) {
			return false, nil
		}
		if c.rest, err = c.read(c.run.chunks[c.n], c.run.chunks[c.n+1]); err != nil {
			return false, unread(err)
		}
		c.n++
	}
	c.rest, err = c.decode(c.rest)
	return err == nil, unread(err)
}

func unread(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot read captures from a temporary file: %w", err)
}

// merger merges runs. It is a heap of cursors.
type merger struct {
	cursors []*cursor
	passed  bool // the first cursor's record was returned
}

// peek returns the next record, valid until pass; nil after the last.
func (m *merger) peek() (*record, error) {
	if m.passed {
		m.passed = false
		switch ok, err := m.cursors[0].next(); {
		case err != nil:
			return nil, err
		case !ok:
			heap.Pop(m)
		default:
			heap.Fix(m, 0)
		}
	}
	if len(m.cursors) == 0 {
		return nil, nil
	}
	return &m.cursors[0].record, nil
}

// pass goes on to the next record.
func (m *merger) pass() { m.passed = true }

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (m *merger) Len() int           { return len(m.cursors) }
func (m *merger) Less(i, j int) bool { return m.cursors[i].compare(&m.cursors[j].record) < 0 }
func (m *merger) Swap(i, j int)      { m.cursors[i], m.cursors[j] = m.cursors[j], m.cursors[i] }
func (m *merger) Push(any)           {}
func (m *merger) Pop() any {
	last := m.cursors[len(m.cursors)-1]
	m.cursors = m.cursors[:len(m.cursors)-1]
	return last
}

// shelf keeps the captures of a night that count, for its redirects.
type shelf struct {
	chunkWriter
	firsts  [][]byte // by chunk, the URL of its first record
	reading cursor   // of the chunk read last
	loaded  int      // its number
	memory  []byte
}

func newShelf(dir string) (*shelf, error) {
	file, err := inputs.Scratch(dir)
	if err != nil {
		return nil, unwritten(err)
	}
	return &shelf{chunkWriter: chunkWriter{file: file}, loaded: -1}, nil
}

func (s *shelf) put(r *record) error {
	if len(s.raw) == 0 {
		s.firsts = append(s.firsts, bytes.Clone(r.url))
	}
	s.memory, _ = r.append(s.memory[:0])
	return unwritten(s.add(s.memory))
}

// end ends the writing.
func (s *shelf) end() error {
	if err := s.flush(); err != nil {
		return unwritten(err)
	}
	s.chunks = append(s.chunks, s.at)
	return nil
}

// all returns a cursor of all records in order.
func (s *shelf) all() *cursor {
	return &cursor{run: &run{chunks: s.chunks}, chunkReader: chunkReader{file: s.file}}
}

// find returns the record of a URL, valid until the next call; nil if there is none.
func (s *shelf) find(url []byte) (*record, error) {
	n := sort.Search(len(s.firsts), func(i int) bool { return compareURL(s.firsts[i], url) > 0 }) - 1
	if n < 0 {
		return nil, nil
	}
	c := &s.reading
	if c.chunkReader.file = s.file; n != s.loaded {
		if _, err := c.read(s.chunks[n], s.chunks[n+1]); err != nil {
			return nil, unread(err)
		}
		s.loaded = n
	}
	for rest := c.raw; len(rest) > 0; {
		var err error
		if rest, err = c.decode(rest); err != nil {
			return nil, unread(err)
		}
		if bytes.Equal(c.url, url) {
			return &c.record, nil
		}
	}
	return nil, nil
}

func (s *shelf) close() error { return s.file.Close() }

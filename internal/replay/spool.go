package replay

import (
	"bytes"
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

// record is one capture, row or reject on its way from the inputs to its night.
type record struct {
	key   []byte // see setKey
	addr  []byte // of the server, 4 or 16 bytes; empty: unknown
	proto []byte
	input []byte // as listed
	final []byte // URL that answered, if another one; of bodies
	label []byte
	block []byte // the answer; of a reject the reason

	seq   uint64
	file  uint64 // its number among the inputs, as in Nights.names
	line  uint64
	at    uint64 // milliseconds since 1970; unknown if noTime
	rank  uint64
	flags flags
	tls   uint64
}

type flags = uint64

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

// setKey sets what a record is sorted by: its night (see Nights.night; 0: none, of rejects), its URL with the scheme at the end, so
// that most redirects lead to a neighbour, and its number.
func (r *record) setKey(night uint32, url []byte) {
	r.key = binary.BigEndian.AppendUint64(siteKey(night, url), r.seq)
}

func siteKey(night uint32, url []byte) []byte {
	scheme, rest, _ := bytes.Cut(url, []byte("://"))
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, len(url)+13), night), rest...)
	return append(append(key, 0), scheme...)
}

func (r *record) night() uint32 { return binary.BigEndian.Uint32(r.key) }

// site is the part of the key that captures of the same night and URL share.
func (r *record) site() []byte { return r.key[:len(r.key)-8] }

func (r *record) url() string {
	rest, scheme, _ := bytes.Cut(r.site()[4:], []byte{0})
	return string(scheme) + "://" + string(rest)
}

func (r *record) texts() [7]*[]byte {
	return [...]*[]byte{&r.key, &r.addr, &r.proto, &r.input, &r.final, &r.label, &r.block}
}

func (r *record) numbers() [7]*uint64 {
	return [...]*uint64{&r.seq, &r.file, &r.line, &r.at, &r.rank, &r.flags, &r.tls}
}

// append appends the record to dst, the key first.
func (r *record) append(dst []byte) []byte {
	for _, text := range r.texts() {
		dst = append(binary.AppendUvarint(dst, uint64(len(*text))), *text...)
	}
	for _, n := range r.numbers() {
		dst = binary.AppendUvarint(dst, *n)
	}
	return dst
}

// errSpool says that a temporary file has other bytes than were written.
var errSpool = errors.New("the temporary file has changed while it was read")

// decode reads a record from the beginning of b, of which it becomes a view, and returns the rest.
func (r *record) decode(b []byte) ([]byte, error) {
	for _, text := range r.texts() {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, errSpool
		}
		*text, b = b[size:size+int(n)], b[size+int(n):]
	}
	for _, number := range r.numbers() {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errSpool
		}
		*number, b = n, b[size:]
	}
	return b, nil
}

// The bounds of memory and of what is read at once. 256 GB of captures are 4,096 runs, of which a chunk each is in memory.
const (
	runBytes   = 64 << 20
	chunkBytes = 64 << 10
)

// chunks are records in compressed parts of a temporary file without a name, which ends with the process.
type chunks struct {
	file   *os.File // nil: nothing was written
	dir    string
	at     int64
	raw    []byte
	packed []byte
}

// add adds a record, and reports whether a chunk begins with it.
func (c *chunks) add(record []byte, begins *[]int64) (first bool, err error) {
	if c.file == nil {
		if c.file, err = inputs.Scratch(c.dir); err != nil {
			return false, unwritten(err)
		}
	}
	if first = len(c.raw) == 0; first {
		*begins = append(*begins, c.at)
	}
	if c.raw = append(c.raw, record...); len(c.raw) < chunkBytes {
		return first, nil
	}
	return first, c.flush()
}

func (c *chunks) flush() error {
	if len(c.raw) == 0 {
		return nil
	}
	c.packed = s2.Encode(c.packed[:cap(c.packed)], c.raw)
	if _, err := c.file.WriteAt(c.packed, c.at); err != nil {
		return unwritten(err)
	}
	c.at += int64(len(c.packed))
	c.raw = c.raw[:0]
	return nil
}

func (c *chunks) close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

func unwritten(err error) error {
	return fmt.Errorf("cannot keep captures in a temporary file: %w; make room for it, or set TMPDIR to where there is", err)
}

func unread(err error) error {
	return fmt.Errorf("cannot read captures from a temporary file: %w", err)
}

// cursor reads records of a file.
type cursor struct {
	file   *os.File
	begins []int64 // of the chunks to come, and where the last one ends
	packed []byte
	raw    []byte
	rest   []byte // of raw
	record
}

// load reads the chunk that begins at begins[0].
func (c *cursor) load() (err error) {
	c.packed = slices.Grow(c.packed[:0], int(c.begins[1]-c.begins[0]))[:c.begins[1]-c.begins[0]]
	if _, err = c.file.ReadAt(c.packed, c.begins[0]); err == nil {
		c.raw, err = s2.Decode(c.raw[:cap(c.raw)], c.packed)
	}
	if errors.Is(err, io.EOF) {
		err = errSpool
	}
	if err != nil {
		return unread(err)
	}
	c.rest, c.begins = c.raw, c.begins[1:]
	return nil
}

// next goes on to the next record, and returns io.EOF after the last.
func (c *cursor) next() (err error) {
	if len(c.rest) == 0 {
		if len(c.begins) < 2 {
			return io.EOF
		}
		if err := c.load(); err != nil {
			return err
		}
	}
	if c.rest, err = c.decode(c.rest); err != nil {
		return unread(err)
	}
	return nil
}

// spool sorts records by their keys: in memory up to its limit, then in sorted runs in a file.
type spool struct {
	chunks
	limit  int // runBytes; tests set less
	memory []byte
	order  []place
	runs   [][]int64 // see cursor.begins
}

// place is where a record stands in memory.
type place struct{ from, to, key, keyEnd int }

func (s *spool) add(r *record) error {
	if len(s.memory) >= s.limit {
		if err := s.seal(); err != nil {
			return err
		}
	}
	p := place{from: len(s.memory)}
	s.memory = r.append(s.memory)
	p.to = len(s.memory)
	_, size := binary.Uvarint(s.memory[p.from:])
	p.key = p.from + size
	p.keyEnd = p.key + len(r.key)
	s.order = append(s.order, p)
	return nil
}

// seal writes a run.
func (s *spool) seal() error {
	slices.SortFunc(s.order, func(a, b place) int {
		return bytes.Compare(s.memory[a.key:a.keyEnd], s.memory[b.key:b.keyEnd])
	})
	var begins []int64
	for _, p := range s.order {
		if _, err := s.chunks.add(s.memory[p.from:p.to], &begins); err != nil {
			return err
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.runs = append(s.runs, append(begins, s.at))
	s.memory, s.order = s.memory[:0], s.order[:0]
	return nil
}

// merge returns the records in order. Nothing is added after it.
func (s *spool) merge() (*merger, error) {
	if err := s.seal(); err != nil {
		return nil, err
	}
	s.memory, s.order = nil, nil
	m := &merger{}
	for _, begins := range s.runs {
		c := &cursor{file: s.file, begins: begins}
		switch err := c.next(); err {
		case nil:
			m.cursors = append(m.cursors, c)
		case io.EOF: // without records
		default:
			return nil, err
		}
	}
	heap.Init(m)
	return m, nil
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
		switch err := m.cursors[0].next(); err {
		case nil:
			heap.Fix(m, 0)
		case io.EOF:
			heap.Pop(m)
		default:
			return nil, err
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
func (m *merger) Less(i, j int) bool { return bytes.Compare(m.cursors[i].key, m.cursors[j].key) < 0 }
func (m *merger) Swap(i, j int)      { m.cursors[i], m.cursors[j] = m.cursors[j], m.cursors[i] }
func (m *merger) Push(any)           {}
func (m *merger) Pop() any {
	m.cursors = m.cursors[:len(m.cursors)-1]
	return nil
}

// shelf keeps the captures of a night that count, for its redirects.
type shelf struct {
	chunks
	begins  []int64
	firsts  [][]byte // by chunk, the site of its first record
	loaded  int      // the number of the chunk that reading has
	reading cursor
	memory  []byte
}

func (s *shelf) put(r *record) error {
	s.memory = r.append(s.memory[:0])
	first, err := s.add(s.memory, &s.begins)
	if first {
		s.firsts = append(s.firsts, bytes.Clone(r.site()))
	}
	return err
}

// end ends the writing, and returns what reads all records in order.
func (s *shelf) end() (*cursor, error) {
	err := s.flush()
	s.begins, s.loaded = append(s.begins, s.at), -1
	return &cursor{file: s.file, begins: s.begins}, err
}

// find returns the record of a site, valid until the next call; nil if there is none.
func (s *shelf) find(site []byte) (*record, error) {
	n := sort.Search(len(s.firsts), func(i int) bool { return bytes.Compare(s.firsts[i], site) > 0 }) - 1
	if n < 0 {
		return nil, nil
	}
	c := &s.reading
	if n != s.loaded {
		c.file, c.begins = s.file, s.begins[n:]
		if err := c.load(); err != nil {
			return nil, err
		}
		s.loaded = n
	}
	for c.rest = c.raw; len(c.rest) > 0; {
		if err := c.next(); err != nil {
			return nil, err
		}
		if bytes.Equal(c.site(), site) {
			return &c.record, nil
		}
	}
	return nil, nil
}

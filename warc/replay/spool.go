package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/klauspost/compress/s2"

	"github.com/bulkscan/bulkscan/fetcher"
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
	file  uint64 // its number among Stats.Files
	line  uint64
	at    uint64 // milliseconds since 1970; unknown if noTime
	rank  uint64
	flags flags
	tls   uint64
}

type flags = uint64

const (
	settled flags = 1 << iota // the status says whether robots.txt exists
	target                    // of another path than /robots.txt: only redirects lead here
	auto                      // listed without a scheme
	undone                    // see fetcher.Recorded
	unseen                    // an archive has the row, but no answer
	carried                   // the same, since the archive repeats an earlier answer
	rejected
	noTime
	ofRow    // of bodies, and not a capture
	noStatus // it has a body, which counts as answered with 200

	endingShift = iota // of the two bits of fetcher.Ending
)

// setKey sets what a record is sorted by: its night (see Nights.night; 0: none, of rejects), its URL with the scheme at
// the end, so that most redirects lead to a neighbour, and its number.
func (r *record) setKey(night uint32, url []byte) {
	r.key = binary.BigEndian.AppendUint64(siteKey(night, url), r.seq)
}

func siteKey(night uint32, url []byte) []byte {
	scheme, rest, _ := bytes.Cut(url, []byte("://"))
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, len(url)+13), night), rest...)
	return append(append(key, 0), scheme...)
}

func (r *record) ending() fetcher.Ending { return fetcher.Ending(r.flags >> endingShift & 3) }

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

// The bounds of memory and of what is read at once. 128 GB of captures are 4,096 runs, of which a chunk each is in
// memory.
const (
	runBytes   = 32 << 20 // twice: one is gathered while the other is sorted and written
	chunkBytes = 64 << 10
)

// run is sorted records in compressed chunks of a temporary file.
type run struct {
	in     *os.File
	begins []int64  // of the chunks, and where the last one ends
	firsts [][]byte // by chunk the key of its first record
}

// spool writes runs, one after the other, into a temporary file without a name, which ends with the process.
type spool struct {
	dir    string
	file   *os.File // nil: nothing was written
	at     int64
	run    run    // that is being written
	raw    []byte // of its last chunk
	packed []byte
}

// keyIn returns the key of a record as it is written.
func keyIn(text []byte) []byte {
	n, size := binary.Uvarint(text)
	return text[size : size+int(n)]
}

// write adds a record, as it is written, to the run.
func (s *spool) write(text []byte) (err error) {
	if s.file == nil {
		if s.file, err = inputs.Scratch(s.dir); err != nil {
			return unwritten(err)
		}
	}
	if len(s.raw) == 0 {
		s.run.begins, s.run.firsts = append(s.run.begins, s.at), append(s.run.firsts, bytes.Clone(keyIn(text)))
	}
	if s.raw = append(s.raw, text...); len(s.raw) < chunkBytes {
		return nil
	}
	return s.flush()
}

func (s *spool) flush() error {
	s.packed = s2.Encode(s.packed[:cap(s.packed)], s.raw)
	if _, err := s.file.WriteAt(s.packed, s.at); err != nil {
		return unwritten(err)
	}
	s.at += int64(len(s.packed))
	s.raw = s.raw[:0]
	return nil
}

// end ends the run, and begins another one.
func (s *spool) end() (done run, err error) {
	if len(s.raw) > 0 {
		err = s.flush()
	}
	done = run{s.file, append(s.run.begins, s.at), s.run.firsts}
	s.run = run{}
	return done, err
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func unwritten(err error) error {
	return fmt.Errorf("cannot keep captures in a temporary file: %w; make room for it, or set TMPDIR to where there is",
		err)
}

func unread(err error) error {
	return fmt.Errorf("cannot read captures from a temporary file: %w", err)
}

// cursor reads a run. It begins before the first record.
type cursor struct {
	run
	chunk  int // the next one
	packed []byte
	raw    []byte
	rest   []byte // of raw
	text   []byte // the record, as written
	record
	ended bool // there is no record any more
}

// next advances to the next record.
func (c *cursor) next() (err error) {
	if c.ended = len(c.rest) == 0 && c.chunk+1 >= len(c.begins); c.ended {
		c.key = []byte("\xff\xff\xff\xff") // which no night has
		return nil
	}
	if len(c.rest) == 0 {
		if err := c.load(); err != nil {
			return unread(err)
		}
	}
	from := c.rest
	if c.rest, err = c.decode(from); err != nil {
		return unread(err)
	}
	c.text = from[:len(from)-len(c.rest)]
	return nil
}

// load reads a chunk.
func (c *cursor) load() (err error) {
	size := int(c.begins[c.chunk+1] - c.begins[c.chunk])
	c.packed = slices.Grow(c.packed[:0], size)[:size]
	if _, err = c.in.ReadAt(c.packed, c.begins[c.chunk]); err == nil {
		c.raw, err = s2.Decode(c.raw[:cap(c.raw)], c.packed)
	}
	if errors.Is(err, io.EOF) {
		err = errSpool
	}
	c.rest = c.raw
	c.chunk++
	return err
}

// seek goes to the first record whose key is not before this one.
func (c *cursor) seek(key []byte) error {
	chunk := max(0, sort.Search(len(c.firsts), func(i int) bool { return bytes.Compare(c.firsts[i], key) > 0 })-1)
	if c.rest = c.raw; c.chunk != chunk+1 {
		c.chunk, c.rest = chunk, nil
	}
	for {
		if err := c.next(); err != nil || c.ended || bytes.Compare(c.key, key) >= 0 {
			return err
		}
	}
}

// sorter sorts records by their keys: in memory up to its limit, then in runs, which it merges into one.
type sorter struct {
	spool
	limit   int // runBytes; tests set less
	runs    []run
	records         // that are gathered
	spare   records // that are being written, if sealing is not nil
	sealing chan error
}

// records are records in memory.
type records struct {
	memory []byte
	order  []place
}

// place is where a record stands in memory.
type place struct{ from, to int }

func (s *sorter) add(r *record) error {
	if len(s.memory) >= s.limit {
		if err := s.seal(); err != nil {
			return err
		}
	}
	if s.memory == nil {
		s.memory = make([]byte, 0, s.limit+s.limit/8) // to grow it would copy it many times
	}
	from := len(s.memory)
	s.memory = r.append(s.memory)
	s.order = append(s.order, place{from, len(s.memory)})
	return nil
}

// seal begins to write a run, once the one before is written.
func (s *sorter) seal() error {
	if err := s.wait(); err != nil {
		return err
	}
	s.records, s.spare = records{s.spare.memory[:0], s.spare.order[:0]}, s.records
	s.sealing = make(chan error, 1)
	go func() { s.sealing <- s.writeRun() }()
	return nil
}

// wait waits until the last run is written.
func (s *sorter) wait() (err error) {
	if s.sealing != nil {
		err = <-s.sealing
		s.sealing = nil
	}
	return err
}

func (s *sorter) writeRun() error {
	memory := s.spare.memory
	slices.SortFunc(s.spare.order, func(a, b place) int {
		return bytes.Compare(keyIn(memory[a.from:a.to]), keyIn(memory[b.from:b.to]))
	})
	for _, p := range s.spare.order {
		if err := s.write(memory[p.from:p.to]); err != nil {
			return err
		}
	}
	done, err := s.end()
	s.runs = append(s.runs, done)
	return err
}

// sorted returns the runs, or one run of all records, in which seek takes as long as in one. Nothing is added after it.
func (s *sorter) sorted(ctx context.Context, one bool) (runs []run, err error) {
	if err := cmp.Or(s.seal(), s.wait()); err != nil {
		return nil, err
	}
	s.records, s.spare = records{}, records{}
	if len(s.runs) == 1 || !one {
		return s.runs, nil
	}
	from, err := newMerger(s.runs)
	merged := spool{dir: s.dir}
	for err == nil && !from[0].ended {
		if err = merged.write(from[0].text); err == nil {
			err = cmp.Or(ctx.Err(), from.next())
		}
	}
	all, endErr := merged.end()
	err = errors.Join(err, endErr, s.close())
	s.spool = merged
	return []run{all}, err
}

// merger reads runs as one: their cursors are in the order of their records, those that have ended last.
type merger []*cursor

func newMerger(runs []run) (m merger, err error) {
	for _, r := range runs {
		c := &cursor{run: r}
		m, err = append(m, c), errors.Join(err, c.next())
	}
	slices.SortFunc(m, sooner)
	return m, err
}

func sooner(a, b *cursor) int { return bytes.Compare(a.key, b.key) }

// next advances to the next record, that of m[0].
func (m merger) next() error {
	first, rest := m[0], m[1:]
	err := first.next()
	at, _ := slices.BinarySearchFunc(rest, first, sooner)
	copy(m, rest[:at])
	m[at] = first
	return err
}

// seek goes to the first record whose key is not before this one.
func (m merger) seek(key []byte) (err error) {
	for _, c := range m {
		err = errors.Join(err, c.seek(key))
	}
	slices.SortFunc(m, sooner)
	return err
}

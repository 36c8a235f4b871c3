package pipeline

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// spill is the file of the records that memory has no room for, in chunks of equal size. A chunk that has been read is used again,
// so the file is as large as what it held at most. It has no name once it is open, so it does not outlive the process; a resumed
// run reads the list again.
type spill struct {
	dir     string
	file    *os.File
	size    int64
	free    []int64 // offsets of chunks
	written int64   // bytes in all
}

const spillChunk = 16 << 10

// spillHeader stands before each record.
type spillHeader struct {
	due    time.Duration // the estimated turn, or the time of a retry
	key    key           // in whose queue it waits, or noKey
	asleep bool          // it must not be asked before due
}

const (
	spillHeaderSize = 8 + 8 + 1 + 4 // the last is the length of the JSON
	noKey           = key(0)
)

func newSpill(dir string) *spill { return &spill{dir: dir} }

func (s *spill) close() {
	if s.file != nil {
		_ = s.file.Close() // it has no name: there is nothing to lose
	}
}

// write keeps a chunk and returns its offset.
func (s *spill) write(chunk []byte) (int64, error) {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "bulkscan-spilled-*")
		if err != nil {
			return 0, fmt.Errorf("cannot make the file of waiting origins: %w", err)
		}
		_ = os.Remove(f.Name()) // where an open file cannot lose its name, it stays in the temporary folder
		s.file = f
	}
	at := s.size
	if n := len(s.free); n > 0 {
		at, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.size += spillChunk
	}
	if _, err := s.file.WriteAt(chunk, at); err != nil {
		return 0, fmt.Errorf("cannot write the file of waiting origins: %w", err)
	}
	s.written += int64(len(chunk))
	return at, nil
}

// read appends a chunk to b, and frees it.
func (s *spill) read(b []byte, at int64) ([]byte, error) {
	n := len(b)
	b = slices.Grow(b, spillChunk)[:n+spillChunk]
	if _, err := s.file.ReadAt(b[n:], at); err != nil {
		return nil, fmt.Errorf("cannot read the file of waiting origins: %w", err)
	}
	s.free = append(s.free, at)
	return b, nil
}

// chain is a queue of spilled records, first in, first out. Its two ends are in memory, at most a chunk and a record each.
type chain struct {
	count  int
	head   []byte // to be read
	chunks []int64
	tail   []byte // written last
}

// put appends a record.
func (c *chain) put(s *spill, h spillHeader, rec record) error {
	line, err := json.Marshal(rec.store())
	if err != nil {
		return fmt.Errorf("cannot spill %s: %w", rec.origin, err)
	}
	return c.putLine(s, h, line)
}

func (c *chain) putLine(s *spill, h spillHeader, line []byte) error {
	c.tail = binary.LittleEndian.AppendUint64(c.tail, uint64(h.due))
	c.tail = binary.LittleEndian.AppendUint64(c.tail, uint64(h.key))
	asleep := byte(0)
	if h.asleep {
		asleep = 1
	}
	c.tail = append(c.tail, asleep)
	c.tail = binary.LittleEndian.AppendUint32(c.tail, uint32(len(line)))
	c.tail = append(c.tail, line...)
	c.count++
	for len(c.tail) >= spillChunk {
		at, err := s.write(c.tail[:spillChunk])
		if err != nil {
			return err
		}
		c.chunks = append(c.chunks, at)
		c.tail = c.tail[:copy(c.tail, c.tail[spillChunk:])]
	}
	return nil
}

// get takes the first record.
func (c *chain) get(s *spill) (spillHeader, record, error) {
	h, line, err := c.getLine(s)
	if err != nil {
		return h, record{}, err
	}
	rec, err := restore(line)
	return h, rec, err
}

// getLine takes the first record as it is stored; the line is valid until the next call.
func (c *chain) getLine(s *spill) (h spillHeader, line []byte, err error) {
	if err := c.fill(s, spillHeaderSize); err != nil {
		return h, nil, err
	}
	h.due = time.Duration(binary.LittleEndian.Uint64(c.head))
	h.key = key(binary.LittleEndian.Uint64(c.head[8:]))
	h.asleep = c.head[16] == 1
	n := spillHeaderSize + int(binary.LittleEndian.Uint32(c.head[17:]))
	if err := c.fill(s, n); err != nil {
		return h, nil, err
	}
	line, c.head = c.head[spillHeaderSize:n], c.head[n:]
	if c.count--; c.count == 0 {
		c.head, c.tail = nil, nil
	}
	return h, line, nil
}

// fill reads until the head has n bytes.
func (c *chain) fill(s *spill, n int) (err error) {
	if len(c.head) >= n {
		return nil
	}
	c.head = slices.Clone(c.head) // the line before is still in use
	for len(c.head) < n && len(c.chunks) > 0 {
		if c.head, err = s.read(c.head, c.chunks[0]); err != nil {
			return err
		}
		c.chunks = c.chunks[1:]
	}
	if len(c.head) < n {
		c.head, c.tail = append(c.head, c.tail...), nil
	}
	if len(c.head) < n {
		return fmt.Errorf("the file of waiting origins ends within a record")
	}
	return nil
}

// calendar holds spilled records by the estimate of their turn, in buckets. A record is written once, and once more if its bucket holds
// too many to be read at a time and is split.
type calendar struct {
	spill   *spill
	buckets map[span]*bucket
	split   map[int64]bool // wide spans that were split: what belongs to them goes into narrow ones
	first   *bucket        // with the earliest record; nil: to be looked for
	count   int
	waiting map[key]int // records by the key in whose queue they wait
}

// span is the time that a bucket covers: the at-th of its width.
type span struct {
	width time.Duration
	at    int64
}

const (
	wideSpan   = 1024 * time.Second
	narrowSpan = wideSpan / 64
)

type bucket struct {
	chain
	span     span
	earliest time.Duration // of its records
}

func newCalendar(s *spill) *calendar {
	return &calendar{spill: s, buckets: make(map[span]*bucket), split: make(map[int64]bool), waiting: make(map[key]int)}
}

// spanOf is the span of the bucket for a record that is due then.
func (c *calendar) spanOf(due time.Duration) span {
	if wide := int64(due / wideSpan); !c.split[wide] {
		return span{wideSpan, wide}
	}
	return span{narrowSpan, int64(due / narrowSpan)}
}

// put keeps a record until its turn is near.
func (c *calendar) put(h spillHeader, rec record) error {
	line, err := json.Marshal(rec.store())
	if err != nil {
		return fmt.Errorf("cannot spill %s: %w", rec.origin, err)
	}
	if h.key != noKey {
		c.waiting[h.key]++
	}
	c.count++
	return c.putLine(h, line)
}

func (c *calendar) putLine(h spillHeader, line []byte) error {
	at := c.spanOf(h.due)
	b := c.buckets[at]
	if b == nil {
		b = &bucket{span: at, earliest: h.due}
		c.buckets[at] = b
	}
	b.earliest = min(b.earliest, h.due)
	if c.first != nil && b.earliest < c.first.earliest {
		c.first = b
	}
	return b.chain.putLine(c.spill, h, line)
}

// next returns when the earliest record is due. There must be one.
func (c *calendar) next() time.Duration {
	if c.first == nil {
		for _, b := range c.buckets {
			if c.first == nil || b.earliest < c.first.earliest {
				c.first = b
			}
		}
	}
	return c.first.earliest
}

// get takes a record out of the earliest bucket, which is split first if it is wide and holds more than most.
func (c *calendar) get(most int) (spillHeader, record, error) {
	c.next()
	if b := c.first; b.span.width == wideSpan && b.count > most {
		if err := c.splitUp(b); err != nil {
			return spillHeader{}, record{}, err
		}
		c.next()
	}
	b := c.first
	h, rec, err := b.chain.get(c.spill)
	if err != nil {
		return h, rec, err
	}
	c.count--
	if h.key != noKey {
		if c.waiting[h.key]--; c.waiting[h.key] == 0 {
			delete(c.waiting, h.key)
		}
	}
	if b.count == 0 {
		c.drop(b)
	}
	return h, rec, nil
}

// splitUp writes a wide bucket's records into narrow ones.
func (c *calendar) splitUp(b *bucket) error {
	c.drop(b)
	c.split[b.span.at] = true
	for b.count > 0 {
		h, line, err := b.getLine(c.spill)
		if err != nil {
			return err
		}
		if err := c.putLine(h, line); err != nil {
			return err
		}
	}
	return nil
}

func (c *calendar) drop(b *bucket) {
	delete(c.buckets, b.span)
	c.first = nil
}

// stored is a record as the file has it. Its address is left out: by the time it comes back, it is asked again.
type stored struct {
	Seq       uint64           `json:"seq"`
	Host      string           `json:"host"`
	Port      uint16           `json:"port"`
	Requested origin.Scheme    `json:"requested"`
	Input     string           `json:"input"`
	Label     string           `json:"label,omitempty"`
	Rank      int64            `json:"rank,omitempty"`
	Spent     time.Duration    `json:"spent,omitempty"`
	Scheme    origin.Scheme    `json:"scheme"`
	Waited    uint8            `json:"waited,omitempty"`
	Attempts  uint8            `json:"attempts,omitempty"`
	Later     uint8            `json:"later,omitempty"`
	HTTPS     exchange.Failure `json:"https,omitzero"`
	HTTP      exchange.Failure `json:"http,omitzero"`
	Skip      uint8            `json:"skip,omitempty"`
	Unmet     exchange.Outcome `json:"unmet,omitempty"`
	Spoilt    uint8            `json:"spoilt,omitempty"`
	Flags     flags            `json:"flags,omitempty"`
	Trail     *storedTrail     `json:"trail,omitempty"`
}

// storedFlags are those that say something beyond the address, which is resolved again.
const storedFlags = hostDeferred | hostWasDeferred | nameDeferred | nameWasDeferred

type storedTrail struct {
	Scheme origin.Scheme  `json:"scheme"`
	Host   string         `json:"host"`
	Port   uint16         `json:"port"`
	Path   string         `json:"path"`
	Hops   []exchange.Hop `json:"hops"`
}

func (r *record) store() stored {
	s := stored{
		Seq: r.seq, Host: r.origin.Host(), Port: r.origin.Port(), Requested: r.origin.Scheme(),
		Input: r.input, Label: r.label, Rank: r.rank, Spent: r.spent, Scheme: r.scheme, Waited: r.waited,
		Attempts: r.attempts, Later: r.later, HTTPS: r.https, HTTP: r.http, Skip: r.skip, Unmet: r.unmet, Spoilt: r.spoilt, Flags: r.flags & storedFlags,
	}
	if r.trail != nil {
		t := r.trail.Target
		s.Trail = &storedTrail{Scheme: t.Origin.Scheme(), Host: t.Origin.Host(), Port: t.Origin.Port(), Path: t.Path, Hops: r.trail.Hops}
	}
	return s
}

func restore(line []byte) (record, error) {
	var s stored
	if err := json.Unmarshal(line, &s); err != nil {
		return record{}, err
	}
	o, err := origin.New(s.Requested, s.Host, s.Port)
	if err != nil {
		return record{}, err
	}
	r := record{
		seq: s.Seq, origin: o, input: s.Input, label: s.Label, rank: s.Rank, spent: s.Spent, scheme: s.Scheme, waited: s.Waited,
		attempts: s.Attempts, later: s.Later, https: s.HTTPS, http: s.HTTP, skip: s.Skip, unmet: s.Unmet, spoilt: s.Spoilt, flags: s.Flags & storedFlags,
	}
	if s.Trail != nil {
		to, err := origin.New(s.Trail.Scheme, s.Trail.Host, s.Trail.Port)
		if err != nil {
			return record{}, err
		}
		r.trail = &exchange.Trail{Target: exchange.Target{Origin: to, Path: s.Trail.Path}, Hops: s.Trail.Hops}
	}
	return r, nil
}

package pipeline

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// spill is where a run defers records that memory has no room for: first in, first out, except that who may not come
// back yet goes to the end. Each is a header that says whether it may, and the record as JSON, so that those which may
// not are passed on without being parsed.
//
// It is two files: one is read while the other is written, and when the one is at its end they change places and the
// other is cut to nothing. Both lose their names as soon as they are open, so that nothing is left of them whatever
// happens to the process; a resumed run reads the list again.
type spill struct {
	dir     string
	from    *os.File
	to      *os.File
	in      *bufio.Reader // of from
	out     *bufio.Writer // to to
	unread  int           // records in from that are still to be read
	written int           // records in to
	buf     []byte
}

// spillHeader stands before each record: four little-endian numbers.
type spillHeader struct {
	due     time.Duration // not before
	host    key           // where the record queues: its keys by host and by address, noKey where not known
	address key
	length  uint32 // of the JSON
	flags   flags  // lineFlags of the record: it queues nowhere, and waits in a line of the deferred
}

const (
	spillHeaderSize = 8 + 8 + 8 + 4 + 1
	noKey           = key(0)
)

func newSpill(dir string) *spill { return &spill{dir: dir} }

// count is how many records it holds.
func (s *spill) count() int { return s.unread + s.written }

func (s *spill) close() {
	for _, file := range []*os.File{s.from, s.to} {
		if file != nil {
			_ = file.Close() // it has no name: there is nothing to lose
		}
	}
}

// put appends a record. The header's length is filled in here.
func (s *spill) put(rec record, h spillHeader) error {
	if err := s.open(); err != nil {
		return fmt.Errorf("cannot make the files of deferred origins: %w", err)
	}
	line, err := json.Marshal(rec.store())
	if err != nil {
		return fmt.Errorf("cannot defer %s: %w", rec.origin, err)
	}
	h.length = uint32(len(line))
	return s.write(h, line)
}

func (s *spill) write(h spillHeader, line []byte) error {
	var b [spillHeaderSize]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(h.due))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.host))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.address))
	binary.LittleEndian.PutUint32(b[24:], h.length)
	b[28] = byte(h.flags)
	_, err := s.out.Write(b[:])
	if err == nil {
		_, err = s.out.Write(line)
	}
	if err != nil {
		return fmt.Errorf("cannot write the files of deferred origins: %w", err)
	}
	s.written++
	return nil
}

// get looks at the record that was put first: it is taken out where admit says so, and goes to the end where not.
func (s *spill) get(admit func(spillHeader) bool) (rec record, ok bool, err error) {
	h, line, err := s.read()
	if err == nil {
		if !admit(h) {
			return record{}, false, s.write(h, line)
		}
		rec, err = restore(line)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("cannot read the files of deferred origins: %w", err)
	}
	return rec, true, nil
}

// read takes the first header and its JSON, which is valid until the next read.
func (s *spill) read() (h spillHeader, line []byte, err error) {
	if s.unread == 0 {
		if err := s.swap(); err != nil {
			return h, nil, err
		}
	}
	var b [spillHeaderSize]byte
	if _, err := io.ReadFull(s.in, b[:]); err != nil {
		return h, nil, err
	}
	h = spillHeader{
		due:     time.Duration(binary.LittleEndian.Uint64(b[0:])),
		host:    key(binary.LittleEndian.Uint64(b[8:])),
		address: key(binary.LittleEndian.Uint64(b[16:])),
		length:  binary.LittleEndian.Uint32(b[24:]),
		flags:   flags(b[28]),
	}
	s.buf = slices.Grow(s.buf[:0], int(h.length))[:h.length]
	if _, err := io.ReadFull(s.in, s.buf); err != nil {
		return h, nil, err
	}
	s.unread--
	return h, s.buf, nil
}

func (s *spill) open() error {
	if s.from != nil {
		return nil
	}
	for _, file := range []**os.File{&s.from, &s.to} {
		f, err := os.CreateTemp(s.dir, "bulkscan-deferred-*")
		if err != nil {
			return err
		}
		_ = os.Remove(f.Name()) // where an open file cannot lose its name, it stays in the temporary folder
		*file = f
	}
	s.in, s.out = bufio.NewReaderSize(s.from, 64<<10), bufio.NewWriterSize(s.to, 64<<10)
	return nil
}

// swap makes what was written what is read.
func (s *spill) swap() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.from, s.to = s.to, s.from
	s.unread, s.written = s.written, 0
	if _, err := s.from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := s.to.Truncate(0); err != nil {
		return err
	}
	if _, err := s.to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s.in.Reset(s.from)
	s.out.Reset(s.to)
	return nil
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

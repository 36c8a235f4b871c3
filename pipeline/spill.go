package pipeline

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// spill is the file of the records that memory has no room for, in chunks of equal size. Chunks that have been read are
// used again, so the file is as large as its records at their peak. It has no name once it is open, so it does not
// outlive the process; a resumed run reads the list again.
type spill struct {
	dir     string
	file    *os.File
	size    int64
	free    []int64 // offsets of chunks
	written int64   // bytes in all
}

const spillChunk = 16 << 10

// spillHeaderSize is the size of the header of each record: the length of its JSON.
const spillHeaderSize = 4

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

// chain is a queue of spilled records, first in, first out. Its two ends are in memory, at most a chunk and a record
// each.
type chain struct {
	count  int
	head   []byte // to be read
	chunks []int64
	tail   []byte // written last
}

// put appends a record.
func (c *chain) put(s *spill, rec record) error {
	line, err := json.Marshal(rec.store())
	if err != nil {
		return fmt.Errorf("cannot spill %s: %w", rec.origin, err)
	}
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
func (c *chain) get(s *spill) (record, error) {
	if err := c.fill(s, spillHeaderSize); err != nil {
		return record{}, err
	}
	n := spillHeaderSize + int(binary.LittleEndian.Uint32(c.head))
	if err := c.fill(s, n); err != nil {
		return record{}, err
	}
	line := c.head[spillHeaderSize:n]
	c.head = c.head[n:]
	if c.count--; c.count == 0 {
		c.head, c.tail = nil, nil
	}
	return restore(line)
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

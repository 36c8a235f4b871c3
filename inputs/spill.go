package inputs

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"sort"
)

// spilled is the part of a set of hashes that exceeds memory: runs in a temporary file. A run has the 256 tables one after
// the other, sorted. A look-up has two steps.
//
//	filter ── no ──► absent (a few nanoseconds; 99 of 100 new hashes, if there are 10 bits for each)
//	   │
//	  maybe ──► one block of each run, where the hash must be: hashes are uniform, so that a hash's value gives its rank
//	            to within a few places
//
// Memory is the filter, whose size is fixed, and a KiB a run. A fuller filter causes more reads of the file, but no wrong
// answer.
type spilled struct {
	file   *os.File
	filter []filterBlock
	runs   []run
	at     int64 // where the file ends
	out    *bufio.Writer
	sorted []slot
	block  []byte
}

// filterBlock is 512 bits in one cache line. A hash sets six of them.
type filterBlock [8]uint64

// run is where each table of a run begins, in hashes, and where the run begins, in bytes.
type run struct {
	at     int64
	begins [tables + 1]uint32
}

// blockSlots is how many hashes are read at once. In two of three cases, a hash's rank among n is within √n/2 of the
// rank by value. For the 70,000 hashes of a table, a block extends four times as far on either side.
const blockSlots = 1024

func newSpilled(dir string, filterBytes int64) (*spilled, error) {
	file, err := Scratch(dir)
	if err != nil {
		return nil, err
	}
	return &spilled{
		file:   file,
		filter: make([]filterBlock, max(1, filterBytes/64)),
		out:    bufio.NewWriterSize(nil, 256<<10),
		block:  make([]byte, blockSlots*slotBytes),
	}, nil
}

// Scratch makes a temporary file without a name, so that none is left over if the process dies. Systems that cannot
// unlink an open file keep it in the temporary folder.
func Scratch(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "bulkscan-list-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name())
	return file, nil
}

// write appends a run with the content of the tables.
func (s *spilled) write(all *[tables]hashTable) error {
	r := run{at: s.at}
	s.out.Reset(io.NewOffsetWriter(s.file, s.at))
	for i := range all {
		s.sorted = s.sorted[:0]
		for _, key := range all[i].slots {
			if key != (slot{}) {
				s.sorted = append(s.sorted, key)
			}
		}
		slices.SortFunc(s.sorted, slot.compare)
		for _, key := range s.sorted {
			block, words := s.bits(key)
			for j, word := range words {
				block[j] |= word
			}
			b := binary.LittleEndian.AppendUint64(s.out.AvailableBuffer(), key.hi)
			if _, err := s.out.Write(binary.LittleEndian.AppendUint64(b, key.lo)); err != nil {
				return err
			}
		}
		r.begins[i+1] = r.begins[i] + uint32(len(s.sorted))
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.at += int64(r.begins[tables]) * slotBytes
	s.runs = append(s.runs, r)
	return nil
}

func (k slot) compare(o slot) int { return cmp.Or(cmp.Compare(k.hi, o.hi), cmp.Compare(k.lo, o.lo)) }

// bits returns a hash's block of the filter, and the bits that it sets there.
func (s *spilled) bits(key slot) (*filterBlock, filterBlock) {
	at, _ := bits.Mul64(key.hi, uint64(len(s.filter)))
	var words filterBlock
	for rest, i := key.lo>>8, 0; i < 6; i, rest = i+1, rest>>9 { // the first byte is the table's number
		words[rest>>6&7] |= 1 << (rest & 63)
	}
	return &s.filter[at], words
}

// has reports whether a hash is in a run.
func (s *spilled) has(key slot) (bool, error) {
	block, words := s.bits(key)
	for i, word := range words {
		if block[i]&word != word {
			return false, nil
		}
	}
	for i := range s.runs {
		if there, err := s.runHas(&s.runs[i], key); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

// runHas reads the block of a run where the hash must be, and its neighbours if needed.
func (s *spilled) runHas(r *run, key slot) (bool, error) {
	begin, end := int(r.begins[key.table()]), int(r.begins[key.table()+1])
	n := end - begin
	at := min(max(0, key.home(n)-blockSlots/2), max(0, n-blockSlots))
	for way := 0; n > 0; { // direction: -1 after a step to the block before, 1 to the one after
		size := min(blockSlots, n-at)
		b := s.block[:size*slotBytes]
		if _, err := s.file.ReadAt(b, r.at+int64(begin+at)*slotBytes); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the file was truncated
			}
			return false, fmt.Errorf("cannot read a temporary file: %w", err)
		}
		switch {
		case at > 0 && way <= 0 && key.compare(slotAt(b, 0)) < 0:
			at, way = max(0, at-blockSlots), -1
			continue
		case at+size < n && way >= 0 && key.compare(slotAt(b, size-1)) > 0:
			at, way = at+size, 1
			continue
		}
		i := sort.Search(size, func(i int) bool { return key.compare(slotAt(b, i)) <= 0 })
		return i < size && slotAt(b, i) == key, nil
	}
	return false, nil
}

func slotAt(b []byte, i int) slot {
	return slot{binary.LittleEndian.Uint64(b[i*slotBytes:]), binary.LittleEndian.Uint64(b[i*slotBytes+8:])}
}

func (s *spilled) close() { _ = s.file.Close() } // the file has no name and is not needed any more

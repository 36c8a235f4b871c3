package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
)

// sorted sorts a night's observations by site in little memory, however many they are. Ids of sites are hashes, so
// ranges of ids have about the same number of sites. The records of each range are collected in a temporary file, and
// sorted when they are read. A night of one range needs no file.
type sorted struct {
	ranges  []siteRange
	file    *os.File // it has no name once it is open
	size    int64
	words   []string          // findings and schemes
	numbers map[string]uint64 // of words
	sources []*Source
	buffer  []byte
	order   []place
}

// siteRange is a range of sites.
type siteRange struct {
	records []byte // the last ones
	pieces  []piece
}

// piece is a part of the file.
type piece struct{ from, to int64 }

// place is where the record of a site is in the buffer.
type place struct {
	site     int64
	from, to int
}

const (
	rangeSites = 1 << 14
	mostRanges = 1 << 12 // for 67 million sites, with 32 MiB of pieces
	pieceBytes = 8 << 10
)

// newSorted returns a sorted for about so many sites.
func newSorted(sites, each int64) *sorted {
	return &sorted{ranges: make([]siteRange, 1+min(sites/each, mostRanges)), numbers: map[string]uint64{}}
}

// word returns the number of a text that many rows have. It copies new texts, since a row's text shares memory with its
// page.
func (s *sorted) word(text string) uint64 {
	number, ok := s.numbers[text]
	if !ok {
		text, number = strings.Clone(text), uint64(len(s.words))
		s.words, s.numbers[text] = append(s.words, text), number
	}
	return number
}

// add copies an observation, which is from the source of that number.
func (s *sorted) add(o *Observation, source int) error {
	at, _ := bits.Mul64(uint64(o.Site)^1<<63, uint64(len(s.ranges)))
	r := &s.ranges[at]
	begin := len(r.records)
	r.records = append(r.records, 0, 0, 0, 0)
	for _, number := range [...]int64{o.Site, o.Policy, o.Unmanaged, o.Body} {
		r.records = binary.LittleEndian.AppendUint64(r.records, uint64(number))
	}
	for _, number := range [...]uint64{uint64(uint32(o.Port)), s.word(o.Finding), s.word(o.Requested), uint64(source)} {
		r.records = binary.AppendUvarint(r.records, number)
	}
	r.records = append(r.records, o.Host...)
	binary.LittleEndian.PutUint32(r.records[begin:], uint32(len(r.records)-begin))
	if len(s.ranges) == 1 || len(r.records) < pieceBytes {
		return nil
	}
	if s.file == nil {
		file, err := os.CreateTemp("", "bulkscan-night-*")
		if err != nil {
			return fmt.Errorf("cannot make the file in which a night is sorted: %w", err)
		}
		_ = os.Remove(file.Name()) // where an open file cannot lose its name, it stays in the temporary folder
		s.file = file
	}
	if _, err := s.file.WriteAt(r.records, s.size); err != nil {
		return fmt.Errorf("cannot write the file in which a night is sorted: %w", err)
	}
	r.pieces = append(r.pieces, piece{s.size, s.size + int64(len(r.records))})
	s.size += int64(len(r.records))
	r.records = r.records[:0]
	return nil
}

func (s *sorted) close() {
	if s.file != nil {
		_ = s.file.Close() // it has no name: there is nothing to lose
	}
}

// all returns a function for the next observation in the order of sites. An observation is valid until the next; nil is
// the end. If two sites share an id, it returns the one with the lowest host. Each site has one observation, since
// package units chooses it. A further call of all ends the function of the call before.
func (s *sorted) all() func() (*Observation, error) {
	var o *Observation
	begun := 0 // ranges
	s.order = nil
	return func() (*Observation, error) {
		for {
			for len(s.order) == 0 {
				if begun == len(s.ranges) {
					return nil, nil
				}
				begun++
				if err := s.sort(&s.ranges[begun-1]); err != nil {
					return nil, err
				}
			}
			p := s.order[0]
			if s.order = s.order[1:]; o == nil || o.Site != p.site {
				if o == nil {
					o = &Observation{}
				}
				s.decode(s.buffer[p.from:p.to], o)
				return o, nil
			}
		}
	}
}

// sort reads the records of a range, and sorts their places.
func (s *sorted) sort(r *siteRange) error {
	s.buffer, s.order = s.buffer[:0], s.order[:0]
	for _, p := range r.pieces {
		at := len(s.buffer)
		s.buffer = slices.Grow(s.buffer, int(p.to-p.from))[:at+int(p.to-p.from)]
		if _, err := s.file.ReadAt(s.buffer[at:], p.from); err != nil {
			return fmt.Errorf("cannot read the file in which a night is sorted: %w", err)
		}
	}
	s.buffer = append(s.buffer, r.records...)
	for at := 0; at < len(s.buffer); {
		to := at + int(binary.LittleEndian.Uint32(s.buffer[at:]))
		s.order = append(s.order, place{int64(binary.LittleEndian.Uint64(s.buffer[at+4:])), at, to})
		at = to
	}
	slices.SortFunc(s.order, func(a, b place) int {
		if a.site != b.site {
			return cmp.Compare(a.site, b.site)
		}
		_, hostA := split(s.buffer[a.from:a.to])
		_, hostB := split(s.buffer[b.from:b.to])
		return bytes.Compare(hostA, hostB)
	})
	return nil
}

// decode sets an observation to that of a record.
func (s *sorted) decode(record []byte, o *Observation) {
	for i, number := range []*int64{&o.Site, &o.Policy, &o.Unmanaged, &o.Body} {
		*number = int64(binary.LittleEndian.Uint64(record[4+8*i:]))
	}
	numbers, host := split(record)
	o.Port, o.Finding, o.Requested, o.From, o.Host = int32(numbers[0]), s.words[numbers[1]], s.words[numbers[2]],
		s.sources[numbers[3]], string(host)
}

// split returns the numbers of a record (its length, its site, its policies and its body), and the host after them.
func split(record []byte) (numbers [4]uint64, host []byte) {
	host = record[4+4*8:]
	for i := range numbers {
		n := 0
		numbers[i], n = binary.Uvarint(host)
		host = host[n:]
	}
	return numbers, host
}

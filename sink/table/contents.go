package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// This file computes how large a page becomes when it is decoded. In runs, differences and shared prefixes a few bytes
// can stand for any number of values or bytes. parquet-go allocates memory for all of them.

// shape describes a column's values, as the schema has it.
type shape struct {
	physical   format.Type
	repetition int // highest level
	definition int
}

func shapesOf(schema []format.SchemaElement) ([]shape, error) {
	errSchema := fmt.Errorf("%w: its schema is not a tree", errFooter)
	if len(schema) == 0 || schema[0].NumChildren.V < 0 {
		return nil, errSchema
	}
	type open struct {
		shape
		children int32 // not yet visited
	}
	var columns []shape
	path := []open{{children: schema[0].NumChildren.V}}
	for i := range schema[1:] {
		for path[len(path)-1].children == 0 {
			if path = path[:len(path)-1]; len(path) == 0 {
				return nil, errSchema
			}
		}
		e := &schema[i+1]
		above := &path[len(path)-1]
		above.children--
		s := above.shape
		switch e.RepetitionType.V {
		case format.Optional:
			s.definition++
		case format.Repeated:
			s.definition++
			s.repetition++
		}
		if n := e.NumChildren.V; n < 0 || len(path) > thriftDepth {
			return nil, errSchema
		} else if n > 0 {
			path = append(path, open{s, n})
			continue
		}
		s.physical = e.Type.V
		columns = append(columns, s)
	}
	for _, p := range path {
		if p.children != 0 {
			return nil, errSchema
		}
	}
	return columns, nil
}

var errContents = errors.New("its values are invalid")

// check reports an error if a data page decodes to more values than given, nulls included, or to more than most bytes.
func (s shape) check(page []byte, encoding format.Encoding, values, most int64) error {
	var levels [2][]byte
	for i, level := range [...]int{s.repetition, s.definition} {
		if level == 0 {
			continue
		}
		if len(page) < 4 || int64(binary.LittleEndian.Uint32(page)) > int64(len(page)-4) {
			return fmt.Errorf("%w: levels that are longer than the page", errContents)
		}
		end := 4 + binary.LittleEndian.Uint32(page)
		levels[i], page = page[4:end], page[end:]
	}
	if err := s.checkLevels(levels[0], levels[1], values); err != nil {
		return err
	}
	return s.checkValues(page, encoding, values, most)
}

func (s shape) checkLevels(repetition, definition []byte, values int64) error {
	_, err := checkRuns(repetition, bits.Len(uint(s.repetition)), values)
	if err == nil {
		_, err = checkRuns(definition, bits.Len(uint(s.definition)), values)
	}
	return err
}

// plainDictionary is the encoding that writers of Parquet 1.0 name where later ones name Plain (dictionary pages) or
// RLEDictionary (data pages).
const plainDictionary format.Encoding = 2

func (s shape) checkValues(page []byte, encoding format.Encoding, values, most int64) error {
	switch encoding {
	case format.Plain, format.ByteStreamSplit:
		return nil
	case format.RLE: // booleans as bits, after their length
		if s.physical != format.Boolean || len(page) < 4 {
			break
		}
		_, err := checkRuns(page[4:], 1, values)
		return err
	case format.RLEDictionary, plainDictionary:
		if len(page) == 0 {
			return nil
		}
		count, err := checkRuns(page[1:], int(page[0]), values)
		if err == nil && s.definition == 0 && count < uint64(values) {
			err = fmt.Errorf("%w: %d instead of %d", errContents, count, values)
		}
		return err
	case format.DeltaBinaryPacked:
		_, err := eachDelta(page, values, func(int32) {})
		return err
	case format.DeltaLengthByteArray:
		return checkTexts(page, values, most, false)
	case format.DeltaByteArray:
		return checkTexts(page, values, most, true)
	}
	return fmt.Errorf("%w: its values are encoded as %v", ErrUnsupported, encoding)
}

// maxSpare bounds the values in the runs of a page beyond those that its header counts. Readers stop at the header's
// number (Parquet, Encodings), but parquet-go decodes all of them first, with up to four bytes for each. A bit-packed
// run has a multiple of eight values, and DuckDB fills its last one up to 256.
const maxSpare = 1 << 16

// checkRuns counts the values of the run-length encoding of levels and indexes.
func checkRuns(runs []byte, width int, values int64) (count uint64, err error) {
	most := uint64(values) + maxSpare
	for len(runs) > 0 {
		head, n := binary.Uvarint(runs)
		if n <= 0 || width > 32 {
			return 0, fmt.Errorf("%w: a run without a length", errContents)
		}
		runs = runs[n:]
		length, size := head>>1, uint64(width+7)/8
		if length > most { // before it is multiplied
			return 0, fmt.Errorf("%w: a run of %d values among %d", errContents, length, values)
		}
		if head&1 == 1 {
			length, size = length*8, length*uint64(width)
		}
		if size > uint64(len(runs)) {
			return 0, fmt.Errorf("%w: a run of %d values is cut off", errContents, length)
		}
		if count += length; count > most {
			return 0, fmt.Errorf("%w: more than the %d of its header", errContents, values)
		}
		runs = runs[size:]
	}
	return count, nil
}

// checkTexts sums the lengths of texts. With prefixes, a text's length is the length that it shares with the text
// before it, plus that of its suffix.
func checkTexts(page []byte, values, most int64, prefixes bool) error {
	total, negative := int64(0), false
	add := func(length int32) {
		negative = negative || length < 0
		total += int64(length)
	}
	rest, err := page, error(nil)
	if prefixes {
		if rest, err = eachDelta(rest, values, add); err != nil {
			return err
		}
	}
	if _, err = eachDelta(rest, values, add); err != nil {
		return err
	}
	if negative || total > most {
		return fmt.Errorf("%w: texts of %d bytes", errContents, total)
	}
	return nil
}

// eachDelta calls f with the values of the delta encoding, as 32 bits each, and returns the bytes after it. The
// encoding has blocks of mini-blocks of differences, bit-packed relative to the minimum of their block.
func eachDelta(b []byte, values int64, f func(int32)) (rest []byte, err error) {
	var head [3]uint64 // values of a block, mini-blocks of a block, values
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: differences without a header", errContents)
		}
		head[i], b = v, b[n:]
	}
	first, n := binary.Varint(b)
	if n <= 0 || head[2] > uint64(values) || head[0] == 0 || head[0] > 1<<16 || head[1] == 0 || head[1] > head[0] {
		return nil, fmt.Errorf("%w: %d differences among %d values", errContents, head[2], values)
	}
	b = b[n:]
	if head[2] == 0 {
		return b, nil
	}
	value, left := int32(first), head[2]-1
	f(value)
	for left > 0 {
		least, n := binary.Varint(b)
		if n <= 0 || uint64(len(b)-n) < head[1] {
			return nil, fmt.Errorf("%w: %d differences are missing", errContents, left)
		}
		widths := b[n:][:head[1]]
		b = b[n+len(widths):]
		for _, width := range widths {
			count := min(left, head[0]/head[1])
			if count == 0 {
				break
			}
			size := head[0] / head[1] * uint64(width) / 8
			if size > uint64(len(b)) || width > 64 {
				return nil, fmt.Errorf("%w: %d differences are missing", errContents, left)
			}
			for i := range count {
				value += int32(least) + int32(packed(b[:size], i, uint(width)))
				f(value)
			}
			b, left = b[size:], left-count
		}
	}
	return b, nil
}

// packed returns the lower 32 bits of the i-th bit-packed value.
func packed(b []byte, i uint64, width uint) uint32 {
	at := i * uint64(width)
	var word [8]byte
	if from := at / 8; from+8 <= uint64(len(b)) {
		return uint32(binary.LittleEndian.Uint64(b[from:])>>(at%8)) & uint32(1<<width-1)
	} else if from < uint64(len(b)) {
		copy(word[:], b[from:])
	}
	return uint32(binary.LittleEndian.Uint64(word[:])>>(at%8)) & uint32(1<<width-1)
}

package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/parquet-go/parquet-go/format"
)

// This file takes the values of a page out one by one, as they are asked for: what runs, differences and shared prefixes
// stand for is never in memory as a whole. The names of the encodings are those of the Parquet format's document
// Encodings.md.

// maxForeignText bounds a text that shares its beginning with the one before it, which need not be as long as the bytes
// that it is made of.
const maxForeignText = 1 << 20

var errValues = errors.New("its values end before the page does")

// foreignValues reads the values of one page.
type foreignValues struct {
	column     *foreignColumn
	dictionary *foreignDictionary
	next       func() ([]byte, error)

	rest     []byte // plain values, or the bytes of texts, or all of a page's values byte by byte
	bit      int    // of the first byte of rest
	at       int    // in the first bytes of a page's values
	indexes  hybrid
	numbers  deltas
	prefixes deltas
	text     []byte
	whole    []byte // a value that was split
}

// begin makes ready for the values of a page of so many, nulls included.
func (v *foreignValues) begin(c *foreignColumn, d *foreignDictionary, encoding format.Encoding, page []byte, values int64) error {
	v.column, v.dictionary, v.rest, v.bit = c, d, page, 0
	texts := c.physical == format.ByteArray
	switch {
	case len(page) == 0: // all values are null
		v.next = func() ([]byte, error) { return nil, errValues }
	case encoding == format.Plain && c.physical == format.Boolean:
		v.next = v.nextTruth
	case encoding == format.Plain:
		v.next = v.nextPlain
	case encoding == format.RLEDictionary || encoding == plainDictionary:
		if !d.known {
			return errors.New("its column has no dictionary")
		}
		v.indexes = hybrid{b: page[1:], width: uint(page[0])}
		v.next = v.nextIndex
	case encoding == format.RLE && c.physical == format.Boolean:
		if len(page) < 4 || int64(binary.LittleEndian.Uint32(page)) > int64(len(page)-4) {
			return errValues
		}
		v.indexes = hybrid{b: page[4:][:binary.LittleEndian.Uint32(page)], width: 1}
		v.next = v.nextRunOfTruths
	case encoding == format.DeltaBinaryPacked && (c.physical == format.Int32 || c.physical == format.Int64):
		v.next = v.nextDelta
		_, err := v.numbers.begin(page, values)
		return err
	case encoding == format.ByteStreamSplit && !texts && c.physical != format.Boolean:
		if len(page)%c.size() != 0 {
			return errValues
		}
		v.next, v.at = v.nextSplit, 0
	case encoding == format.DeltaLengthByteArray && texts:
		v.next = v.nextLength
		return v.lengths(page, values)
	case encoding == format.DeltaByteArray && texts:
		v.next, v.text = v.nextPrefix, v.text[:0]
		// The prefixes' lengths are gone over to find where they end, and then once more as they are wanted.
		end, err := v.prefixes.begin(page, values)
		if err != nil {
			return err
		}
		return v.lengths(page[end:], values)
	default:
		return fmt.Errorf("%w: its values are encoded as %v", ErrForeign, encoding)
	}
	return nil
}

// lengths makes ready to read texts, the lengths of which stand before them all.
func (v *foreignValues) lengths(page []byte, values int64) error {
	end, err := v.numbers.begin(page, values)
	if err == nil {
		v.rest = page[end:]
	}
	return err
}

// take returns the next n bytes.
func (v *foreignValues) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(v.rest)) {
		return nil, errValues
	}
	b := v.rest[:n]
	v.rest = v.rest[n:]
	return b, nil
}

func (v *foreignValues) nextPlain() ([]byte, error) {
	b, rest, err := v.column.plain(v.rest)
	if err != nil {
		return nil, err
	}
	v.rest = rest
	return v.spell(b), nil
}

// plain cuts off the next of the values that are written one behind the other, a truth aside.
func (c *foreignColumn) plain(page []byte) (value, rest []byte, err error) {
	n := int64(c.size())
	if c.physical == format.ByteArray {
		if len(page) < 4 {
			return nil, nil, errValues
		}
		n = int64(binary.LittleEndian.Uint32(page))
		page = page[4:]
	}
	if n > int64(len(page)) {
		return nil, nil, errValues
	}
	return page[:n], page[n:], nil
}

// size is how many bytes a value has that is neither a truth nor a text of its own length.
func (c *foreignColumn) size() int {
	switch c.physical {
	case format.Int32, format.Float:
		return 4
	case format.FixedLenByteArray:
		return c.length
	}
	return 8
}

// spell returns the text of a value's bytes: a number's digits.
func (v *foreignValues) spell(b []byte) []byte {
	c := v.column
	switch c.physical {
	case format.Int32:
		return v.spellNumber(int64(int32(binary.LittleEndian.Uint32(b))))
	case format.Int64:
		return v.spellNumber(int64(binary.LittleEndian.Uint64(b)))
	case format.Float:
		v.text = appendFloat(v.text[:0], float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case format.Double:
		v.text = appendFloat(v.text[:0], math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	default:
		return b
	}
	return v.text
}

func (v *foreignValues) spellNumber(n int64) []byte {
	switch {
	case v.column.unsigned && v.column.physical == format.Int32:
		v.text = strconv.AppendUint(v.text[:0], uint64(uint32(n)), 10)
	case v.column.unsigned:
		v.text = strconv.AppendUint(v.text[:0], uint64(n), 10)
	case v.column.physical == format.Int32:
		v.text = strconv.AppendInt(v.text[:0], int64(int32(n)), 10) // differences go round
	default:
		v.text = strconv.AppendInt(v.text[:0], n, 10)
	}
	return v.text
}

func (v *foreignValues) nextTruth() ([]byte, error) {
	if len(v.rest) == 0 {
		return nil, errValues
	}
	is := v.rest[0]>>v.bit&1 == 1
	if v.bit++; v.bit == 8 {
		v.rest, v.bit = v.rest[1:], 0
	}
	return v.spellTruth(is), nil
}

func (v *foreignValues) nextRunOfTruths() ([]byte, error) {
	is, err := v.indexes.next()
	return v.spellTruth(is == 1), err
}

func (v *foreignValues) spellTruth(is bool) []byte {
	v.text = strconv.AppendBool(v.text[:0], is)
	return v.text
}

func (v *foreignValues) nextIndex() ([]byte, error) {
	i, err := v.indexes.next()
	if err != nil {
		return nil, err
	}
	b, err := v.dictionary.entry(v.column, i)
	if err != nil {
		return nil, err
	}
	return v.spell(b), nil
}

func (v *foreignValues) nextDelta() ([]byte, error) {
	n, err := v.numbers.next()
	return v.spellNumber(n), err
}

// nextSplit puts a value together out of its first byte, among the first bytes of all values, its second byte, and so on.
func (v *foreignValues) nextSplit() ([]byte, error) {
	all := len(v.rest) / v.column.size()
	if v.at == all {
		return nil, errValues
	}
	v.whole = v.whole[:0]
	for i := v.at; i < len(v.rest); i += all {
		v.whole = append(v.whole, v.rest[i])
	}
	v.at++
	return v.spell(v.whole), nil
}

func (v *foreignValues) nextLength() ([]byte, error) {
	n, err := v.numbers.next()
	if err != nil {
		return nil, err
	}
	return v.take(n)
}

func (v *foreignValues) nextPrefix() ([]byte, error) {
	shared, err := v.prefixes.next()
	if err != nil {
		return nil, err
	}
	n, err := v.numbers.next()
	if err != nil {
		return nil, err
	}
	more, err := v.take(n)
	if err != nil {
		return nil, err
	}
	if shared < 0 || shared > int64(len(v.text)) {
		return nil, fmt.Errorf("a text shares %d bytes with one of %d", shared, len(v.text))
	}
	if int(shared)+len(more) > maxForeignText {
		return nil, fmt.Errorf("a text of %d bytes", int(shared)+len(more))
	}
	v.text = append(v.text[:shared], more...)
	return v.text, nil
}

// foreignDictionary is the values of a chunk that its pages have the numbers of.
type foreignDictionary struct {
	known  bool
	memory []byte
	ends   []uint32 // of each text in memory, behind its length's four bytes
	count  uint32
}

func (d *foreignDictionary) reset() { d.known, d.ends, d.count = false, d.ends[:0], 0 }

func (d *foreignDictionary) read(c *foreignColumn, page []byte, values int64) error {
	if d.known {
		return errors.New("it is the second dictionary of its column")
	}
	d.known = true
	if c.physical != format.ByteArray {
		size := int64(c.size())
		if c.physical == format.Boolean || values < 0 || values > int64(len(page))/size {
			return errValues
		}
		d.count = uint32(values)
		return nil
	}
	if values < 0 || values > int64(len(page))/4 {
		return errValues
	}
	d.count = uint32(values)
	rest := page
	for range values {
		var err error
		if _, rest, err = c.plain(rest); err != nil {
			return err
		}
		d.ends = append(d.ends, uint32(len(page)-len(rest)))
	}
	return nil
}

func (d *foreignDictionary) entry(c *foreignColumn, i uint32) ([]byte, error) {
	if i >= d.count {
		return nil, fmt.Errorf("entry %d of a dictionary of %d", i, d.count)
	}
	if c.physical != format.ByteArray {
		size := c.size()
		return d.memory[int(i)*size:][:size], nil
	}
	from := uint32(4)
	if i > 0 {
		from += d.ends[i-1]
	}
	return d.memory[from:d.ends[i]], nil
}

// hybrid reads numbers of a width in bits that stand in runs: of one number, or of packed ones (RLE).
type hybrid struct {
	b     []byte
	width uint

	left   uint64 // of the run
	packed bool
	value  uint32 // of a run of one number
	bits   []byte // of a run of packed ones
	at     uint64 // in them
}

func (h *hybrid) next() (uint32, error) {
	if h.left == 0 {
		if err := h.run(); err != nil {
			return 0, err
		}
	}
	h.left--
	if !h.packed {
		return h.value, nil
	}
	h.at++
	return packed(h.bits, h.at-1, h.width), nil
}

// run reads the head of a run. A run of no numbers is passed over.
func (h *hybrid) run() error {
	for h.left == 0 {
		head, n := binary.Uvarint(h.b)
		if n <= 0 || h.width > 32 || head>>1 > maxForeignValues {
			return errValues
		}
		h.b = h.b[n:]
		h.left = head >> 1
		size := uint64(h.width+7) / 8
		if h.packed = head&1 == 1; h.packed {
			size = h.left * uint64(h.width)
			h.left *= 8
			// The last run may leave out the bytes that nobody needs.
			size = min(size, uint64(len(h.b)))
			if h.width > 0 {
				h.left = min(h.left, size*8/uint64(h.width))
			}
			if h.left == 0 && head>>1 > 0 {
				return errValues
			}
			h.at = 0
		}
		if size > uint64(len(h.b)) {
			return errValues
		}
		h.bits = h.b[:size]
		h.b = h.b[size:]
		if !h.packed {
			h.value = 0
			for i, c := range h.bits {
				h.value |= uint32(c) << (8 * i)
			}
		}
	}
	return nil
}

// deltas reads numbers that stand as differences, in blocks of mini-blocks that are packed above the least of their
// block (DELTA_BINARY_PACKED).
type deltas struct {
	b       []byte
	block   uint64 // differences of a block
	minis   uint64 // mini-blocks of a block
	left    uint64 // numbers
	value   int64
	started bool

	least  int64
	widths []byte // of the mini-blocks to come
	width  uint
	bits   []byte // of the mini-block
	at     uint64 // in it
}

// begin makes ready for the numbers, and returns where they end.
func (d *deltas) begin(b []byte, values int64) (end int, err error) {
	if err := d.head(b, values); err != nil {
		return 0, err
	}
	walk := *d
	for walk.left > 0 {
		if _, err := walk.next(); err != nil {
			return 0, err
		}
	}
	return len(b) - len(walk.b), nil
}

func (d *deltas) head(b []byte, values int64) error {
	*d = deltas{}
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return errValues
		}
		head[i], b = v, b[n:]
	}
	first, n := binary.Varint(b)
	block, minis, count := head[0], head[1], head[2]
	if n <= 0 || count > uint64(values) || block == 0 || block > 1<<16 || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0 {
		return fmt.Errorf("%d differences in blocks of %d by %d make no sense", count, block, minis)
	}
	d.b, d.block, d.minis, d.left, d.value = b[n:], block, minis, count, first
	return nil
}

func (d *deltas) next() (int64, error) {
	if d.left == 0 {
		return 0, errValues
	}
	d.left--
	if !d.started {
		d.started = true
		return d.value, nil
	}
	each := d.block / d.minis
	if d.at == 0 || d.at == each {
		if err := d.mini(each); err != nil {
			return 0, err
		}
	}
	d.value += d.least + int64(packed64(d.bits, d.at, d.width))
	d.at++
	return d.value, nil
}

// mini goes to the next mini-block, and to the next block where there is none.
func (d *deltas) mini(each uint64) error {
	if len(d.widths) == 0 {
		least, n := binary.Varint(d.b)
		if n <= 0 || uint64(len(d.b)-n) < d.minis {
			return errValues
		}
		d.least, d.widths = least, d.b[n:][:d.minis]
		d.b = d.b[n+len(d.widths):]
	}
	d.width = uint(d.widths[0])
	d.widths = d.widths[1:]
	size := each * uint64(d.width) / 8
	if d.width > 64 || size > uint64(len(d.b)) {
		return errValues
	}
	d.bits, d.b, d.at = d.b[:size], d.b[size:], 0
	return nil
}

// packed64 returns the i-th of numbers that are packed bit by bit.
func packed64(b []byte, i uint64, width uint) uint64 {
	if width <= 32 {
		return uint64(packed(b, i, width))
	}
	at := i * uint64(width)
	var v uint64
	for k := uint64(0); k < uint64(width); {
		from := at + k
		n := min(8-from%8, uint64(width)-k)
		v |= uint64(b[from/8]>>(from%8)&byte(1<<n-1)) << k
		k += n
	}
	return v
}

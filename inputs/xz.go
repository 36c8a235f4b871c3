package inputs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// xzGuard passes an xz file on and checks the header of every block first. The library allocates the dictionary that a
// block asks for, up to 4 GiB, and every block and stream of a file may ask for another one. To find the headers,
// xzGuard follows the file from part to part (The .xz File Format 1.2.1; within LZMA2, the lengths of chunks):
//
//	stream header │ block header │ chunk … │ padding, check │ block header … │ index │ footer │ padding │ stream header …
type xzGuard struct {
	r    *bufio.Reader
	part func(*xzGuard) error // looks at the next part
	pass int64                // bytes that are checked and may be passed on

	check  int64  // bytes of a block's check
	length int64  // length of the block or the index, padded to a multiple of four
	sizes  uint64 // numbers of the index still to come
}

func newXZGuard(r *bufio.Reader) *xzGuard { return &xzGuard{r: r, part: (*xzGuard).stream} }

var (
	errDictionary = fmt.Errorf("its dictionary is larger than %d MiB", maxWindow>>20) // exceeds the memory bound
	errXZ         = errors.New("the parts of the xz file do not fit together")
)

// Read is io.Reader's.
func (g *xzGuard) Read(p []byte) (int, error) {
	for g.pass == 0 {
		if err := g.part(g); err != nil {
			return 0, err
		}
	}
	n, err := g.r.Read(p[:min(int64(len(p)), g.pass)])
	g.pass -= int64(n)
	return n, err
}

// peek returns the next n bytes. At the end of the file there may be fewer. They are passed on, since the library
// reports truncation.
func (g *xzGuard) peek(n int) (b []byte, whole bool, err error) {
	b, err = g.r.Peek(n)
	if err == io.EOF && len(b) > 0 {
		g.pass = int64(len(b))
		return b, false, nil
	}
	return b, err == nil, err
}

func (g *xzGuard) stream() error {
	b, whole, err := g.peek(4)
	if !whole {
		return err
	}
	if binary.LittleEndian.Uint32(b) == 0 {
		g.pass = 4 // padding between streams
		return nil
	}
	if b, whole, err = g.peek(12); !whole {
		return err
	}
	g.pass = 12
	g.check = 0
	if kind := b[7] & 15; kind > 0 {
		g.check = 4 << ((kind - 1) / 3)
	}
	g.part = (*xzGuard).block
	return nil
}

func (g *xzGuard) block() error {
	b, whole, err := g.peek(1)
	if !whole {
		return err
	}
	if b[0] == 0 {
		g.pass, g.length = 1, 1
		g.part = (*xzGuard).index
		return nil
	}
	size := (int(b[0]) + 1) * 4
	if b, whole, err = g.peek(size); !whole {
		return err
	}
	dictionary, ok := xzDictionary(b)
	switch {
	case !ok:
		return errXZ
	case dictionary > maxWindow:
		return errDictionary
	}
	g.pass, g.length = int64(size), 0
	g.part = (*xzGuard).chunk
	return nil
}

// xzDictionary reads the size of the dictionary from a block's header.
func xzDictionary(b []byte) (size int64, ok bool) {
	if len(b) < 8 {
		return 0, false
	}
	flags, rest := b[1], b[2:len(b)-4]
	for _, present := range []byte{0x40, 0x80} { // compressed and uncompressed size
		if flags&present != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return 0, false
			}
			rest = rest[n:]
		}
	}
	// LZMA2 is the last filter. Filters for machine code before it do not occur in lists; they are refused here, as by
	// the library.
	const lzma2 = 0x21
	if flags&3 != 0 || len(rest) < 3 || rest[0] != lzma2 || rest[1] != 1 {
		return 0, false
	}
	code := rest[2]
	if code >= 40 {
		return math.MaxUint32, code == 40
	}
	return int64(2|code&1) << (code/2 + 11), true
}

// chunk checks one chunk of LZMA2: control byte, two bytes of the uncompressed length, two of the compressed length if
// it is compressed, and perhaps one of properties.
func (g *xzGuard) chunk() error {
	b, whole, err := g.peek(1)
	if !whole {
		return err
	}
	switch control := b[0]; {
	case control == 0:
		g.pass = 1
		g.part = (*xzGuard).blockEnd
	case control >= 0x80:
		if b, whole, err = g.peek(5); !whole {
			return err
		}
		g.pass = 5 + int64(binary.BigEndian.Uint16(b[3:])) + 1
		if control >= 0xc0 {
			g.pass++
		}
	case control <= 2:
		if b, whole, err = g.peek(3); !whole {
			return err
		}
		g.pass = 3 + int64(binary.BigEndian.Uint16(b[1:])) + 1
	default:
		return errXZ
	}
	g.length += g.pass
	return nil
}

func (g *xzGuard) blockEnd() error {
	g.pass = -g.length&3 + g.check
	g.part = (*xzGuard).block
	return nil
}

func (g *xzGuard) index() error {
	count, err := g.varint()
	if err != nil {
		return err
	}
	if count > math.MaxInt64 {
		return errXZ
	}
	g.sizes = 2 * count
	g.part = (*xzGuard).indexSize
	return nil
}

func (g *xzGuard) indexSize() error {
	if g.sizes == 0 {
		const checksum, footer = 4, 12
		g.pass = -g.length&3 + checksum + footer
		g.part = (*xzGuard).stream
		return nil
	}
	g.sizes--
	_, err := g.varint()
	return err
}

// varint reads a number of the index. If the file ends within it, the index is damaged.
func (g *xzGuard) varint() (uint64, error) {
	b, _, err := g.peek(9)
	if err != nil {
		return 0, err
	}
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, errXZ
	}
	g.pass = int64(n)
	g.length += g.pass
	return v, nil
}

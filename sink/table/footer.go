package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file checks a Parquet file's footer before parquet-go decodes it. The library allocates as many entries as a
// list claims to have: one damaged byte or a hostile file could ask for more memory than exists, which would end the
// process. Here every length is first compared with the number of bytes that follow.

const (
	// Magic begins and ends a Parquet file.
	Magic     = "PAR1"
	tailBytes = 64 << 10 // read from the end of a file at once; most footers fit
	// MaxFooter bounds a footer in bytes. The footer of a compacted part with a thousand row groups takes a tenth.
	MaxFooter = 16 << 20
)

var errFooter = fmt.Errorf("%w: its footer cannot be read", ErrPage)

// Tailed is an object whose last bytes are in memory, so that its footer is fetched once.
type Tailed struct {
	store.Object
	at   int64 // where tail begins
	tail []byte
}

// ReadAt implements io.ReaderAt.
func (t *Tailed) ReadAt(p []byte, at int64) (int, error) {
	if at < t.at || at > t.Size() {
		return t.Object.ReadAt(p, at)
	}
	n := copy(p, t.tail[at-t.at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// OpenTail reads a file's footer and checks that decoding it takes memory proportional to its length.
func OpenTail(object store.Object) (t *Tailed, footer []byte, err error) {
	size := object.Size()
	if size < int64(len(Magic)+8) {
		return nil, nil, fmt.Errorf("%w: the file has %d bytes", errFooter, size)
	}
	t = &Tailed{Object: object, at: max(0, size-tailBytes)}
	if err := t.read(size); err != nil {
		return nil, nil, err
	}
	end := t.tail[len(t.tail)-8:]
	length := int64(binary.LittleEndian.Uint32(end))
	if string(end[4:]) != Magic {
		return nil, nil, fmt.Errorf("%w: it ends with %q, not %s", errFooter, end[4:], Magic)
	}
	begins := size - 8 - length
	if length > MaxFooter || begins < int64(len(Magic)) {
		return nil, nil, fmt.Errorf("%w: it claims %d bytes in a file of %d", errFooter, length, size)
	}
	if begins < t.at {
		t.at = begins
		if err := t.read(size); err != nil {
			return nil, nil, err
		}
	}
	footer = t.tail[begins-t.at : int64(len(t.tail))-8]
	if err := checkThrift(footer, metadataStruct); err != nil {
		return nil, nil, err
	}
	return t, footer, nil
}

func (t *Tailed) read(size int64) error {
	t.tail = make([]byte, size-t.at)
	_, err := io.ReadFull(io.NewSectionReader(t.Object, t.at, size-t.at), t.tail)
	return err
}

// DecodeFooter reads a footer that OpenTail has checked. The error is a *schema.NewerError if a later bulkscan wrote
// the file.
func DecodeFooter(footer []byte) (m *format.FileMetaData, err error) {
	defer rescue(&err)
	m = &format.FileMetaData{}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), footer, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errFooter, err)
	}
	for _, kv := range m.KeyValueMetadata {
		if version, err := strconv.Atoi(kv.Value); kv.Key == MetaSchema && err == nil {
			return m, schema.CheckVersion(version)
		}
	}
	return m, nil
}

// The maximum bytes in memory of a struct in a list, by the message that is decoded.
const (
	metadataStruct = 512 // on average: a column chunk takes more, others a fifth
	locationStruct = 32  // a page's position
)

// Bounds of a message in memory: thriftRatio times its length plus thriftSlack bytes, and thriftDepth nested
// structures.
const (
	thriftRatio = 32
	thriftSlack = 1 << 20
	thriftDepth = 16
)

// checkThrift walks over a message of Thrift's compact protocol and reports impossible lengths: a list has no more
// entries than bytes follow, and all structs in lists fit into the message's bound in memory.
func checkThrift(b []byte, perStruct int) error {
	w := thriftWalk{b: b, perStruct: perStruct, room: thriftRatio*len(b) + thriftSlack}
	w.structure(thriftDepth)
	if w.bad || w.at != len(b) {
		return fmt.Errorf("%w: byte %d of %d is invalid", errFooter, w.at, len(b))
	}
	return nil
}

// thriftWalk walks over a message; bad stays set after the first inconsistency.
type thriftWalk struct {
	b               []byte
	at              int
	perStruct, room int
	bad             bool
}

// Types of the compact protocol.
const (
	thriftStop = iota
	thriftTrue
	thriftFalse
	thriftByte
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStructure
)

func (w *thriftWalk) byte() byte {
	if w.bad || w.at >= len(w.b) {
		w.bad = true
		return 0
	}
	w.at++
	return w.b[w.at-1]
}

func (w *thriftWalk) varint() uint64 {
	v, n := binary.Uvarint(w.b[w.at:])
	if n <= 0 {
		w.bad = true
		return 0
	}
	w.at += n
	return v
}

func (w *thriftWalk) skip(n uint64) {
	if w.bad || n > uint64(len(w.b)-w.at) {
		w.bad = true
		return
	}
	w.at += int(n)
}

func (w *thriftWalk) structure(depth int) {
	for !w.bad && depth > 0 {
		head := w.byte()
		if head == thriftStop {
			return
		}
		if head>>4 == 0 {
			w.varint() // the field's number
		}
		// A boolean field has its value in its type.
		if kind := head & 15; kind != thriftTrue && kind != thriftFalse {
			w.value(kind, depth-1)
		}
	}
	w.bad = true
}

func (w *thriftWalk) value(kind byte, depth int) {
	switch kind {
	case thriftTrue, thriftFalse, thriftByte:
		w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		w.varint()
	case thriftDouble:
		w.skip(8)
	case thriftBinary:
		w.skip(w.varint())
	case thriftList, thriftSet:
		w.list(depth)
	case thriftStructure:
		w.structure(depth)
	default: // also maps, which no decoded message has
		w.bad = true
	}
}

func (w *thriftWalk) list(depth int) {
	head := w.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = w.varint()
	}
	if w.bad || n > uint64(len(w.b)-w.at) {
		w.bad = true
		return
	}
	kind := head & 15
	if cost := w.perStruct; kind == thriftStructure {
		w.room -= cost * int(n)
	} else {
		w.room -= 32 * int(n) // a string header has 16 bytes, a slice header 24
	}
	if w.room < 0 {
		w.bad = true
	}
	for ; n > 0 && !w.bad; n-- {
		w.value(kind, depth-1)
	}
}

package table

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file checks pages before parquet-go decodes them, in datasets and in lists, which may be downloads. The library
// allocates as many values as a page's header claims, and inflates a page to any length.
//
// The bound. A page is read with as many bytes as its chunk has in the file. Its header gives its length before
// compression, at most maxPage, and it is inflated no further. Its header gives its number of values, at most
// maxPageValues and at most those of its chunk. Runs, differences and shared prefixes count with what they decode to
// (contents.go). So a page of each column that is read takes at most three times maxPage: compressed, inflated,
// decoded.
const (
	// bytes before compression: bulkscan writes up to 512 KiB and a row, DuckDB up to 100 MB
	maxPage       = 128 << 20
	maxBodiesPage = 1<<30 + maxPage // the same for bodies, each up to --max-body
	maxPageValues = 1 << 24         // including nulls and entries of lists
	// bytes of a page's header: bulkscan's take 30; others may include the minimum and maximum text
	maxPageHeader = 16 << 20
	walkerBuffer  = 64 << 10
)

// ErrPage is wrapped by errors of invalid pages.
var ErrPage = errors.New("damaged Parquet file")

// pageWalker reads the pages of one column chunk and checks each.
type pageWalker struct {
	in     *bufio.Reader // positioned at the next page's header
	at     int64         // position of that header in the file; stays at the first invalid page
	end    int64         // of the chunk
	codec  format.CompressionCodec
	shape  shape
	most   int64 // maximum bytes of a page before compression
	values int64 // of the chunk that are still to come
	err    error // error of the last page; final
}

// pageRoom is the memory for a page, compressed and inflated. Walkers may share it.
type pageRoom struct{ packed, raw []byte }

func newPageWalker(in *bufio.Reader, c *format.ColumnChunk, s shape, at, end int64) *pageWalker {
	m := &c.MetaData
	w := &pageWalker{in: in, at: at, end: end, codec: m.Codec, shape: s, most: maxPage, values: m.NumValues}
	if len(m.PathInSchema) == 1 && m.PathInSchema[0] == "body" {
		w.most = maxBodiesPage
	}
	return w
}

// next checks the next page; w.at is then the page's end.
func (w *pageWalker) next(room *pageRoom) (err error) {
	if w.err != nil {
		return w.err
	}
	begins := w.at
	defer func() {
		if w.err = err; err != nil {
			w.at = begins
		}
	}()
	fail := func(err error) error { return fmt.Errorf("%w: page at %d: %w", ErrPage, begins, err) }
	h, err := w.header()
	if err != nil {
		return fail(err)
	}
	size, raw, values := int64(h.CompressedPageSize), int64(h.UncompressedPageSize), int64(0)
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		values = int64(h.DataPageHeader.V.NumValues)
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		values = int64(h.DataPageHeaderV2.V.NumValues)
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		if d := h.DictionaryPageHeader.V; d.NumValues < 0 || int64(d.NumValues) > raw {
			return fail(fmt.Errorf("it claims %d values", d.NumValues))
		}
	default:
		return fail(fmt.Errorf("it is of type %v", h.Type))
	}
	switch {
	case values < 0 || values > maxPageValues || values > w.values:
		return fail(fmt.Errorf("it claims %d values, its column has %d left", values, w.values))
	case size < 0 || size > w.end-w.at:
		return fail(fmt.Errorf("its length of %d bytes is not within its column", size))
	case raw < 0 || raw > w.most:
		return fail(fmt.Errorf("it claims %d bytes before compression", raw))
	}
	w.values -= values
	room.packed = slices.Grow(room.packed[:0], int(size))[:size]
	if _, err := io.ReadFull(w.in, room.packed); err != nil {
		return err
	}
	w.at += size
	if found := crc32.ChecksumIEEE(room.packed); h.CRC != 0 && found != uint32(h.CRC) {
		return fail(fmt.Errorf("checksum: expected %08x, found %08x", uint32(h.CRC), found))
	}
	if err := w.contents(h, room); err != nil {
		return fail(err)
	}
	return nil
}

// header reads a page's header. It begins with 256 bytes, which suffice for most.
func (w *pageWalker) header() (*format.PageHeader, error) {
	for most := int64(256); ; most *= 16 {
		most = min(most, w.end-w.at, maxPageHeader)
		w.in = bufio.NewReaderSize(w.in, int(most)) // returns w.in itself if its buffer is large enough
		b, err := w.in.Peek(int(most))
		if err != nil {
			return nil, err
		}
		n, err := thriftLength(b)
		if err != nil && most < min(maxPageHeader, w.end-w.at) {
			continue
		}
		if err != nil {
			return nil, err
		}
		h, err := decodePageHeader(b[:n])
		if err != nil {
			return nil, err
		}
		w.at += int64(n)
		_, err = w.in.Discard(n)
		return h, err
	}
}

// contents inflates a page and checks how large it becomes when decoded.
func (w *pageWalker) contents(h *format.PageHeader, room *pageRoom) (err error) {
	packed, raw := room.packed, int64(h.UncompressedPageSize)
	if h.Type == format.DataPageV2 {
		d := &h.DataPageHeaderV2.V
		repeated, defined := int64(d.RepetitionLevelsByteLength), int64(d.DefinitionLevelsByteLength)
		if repeated < 0 || defined < 0 || repeated+defined > min(int64(len(packed)), raw) {
			return fmt.Errorf("%w: levels that are longer than the page", errContents)
		}
		if err := w.shape.checkLevels(packed[:repeated], packed[repeated:][:defined], int64(d.NumValues)); err != nil {
			return err
		}
		packed, raw = packed[repeated+defined:], raw-repeated-defined
		if d.IsCompressed.Valid && !d.IsCompressed.V {
			return w.shape.checkValues(packed, d.Encoding, int64(d.NumValues), w.most)
		}
	}
	if room.raw, err = inflate(w.codec, room.raw, packed, int(raw)); err != nil {
		return err
	}
	switch h.Type {
	case format.DataPage:
		d := &h.DataPageHeader.V
		return w.shape.check(room.raw, d.Encoding, int64(d.NumValues), w.most)
	case format.DataPageV2:
		return w.shape.checkValues(room.raw, h.DataPageHeaderV2.V.Encoding, int64(h.DataPageHeaderV2.V.NumValues), w.most)
	}
	return nil // a decoded dictionary is no larger than its page
}

// inflater stops a page that becomes longer than the room for it. It has channels, as the encoder of compression.
var inflater = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants
	}
	return d
}()

// inflate returns an inflated page of raw bytes, in the memory of to if that suffices. It allocates at most raw bytes,
// whatever the page inflates to.
func inflate(codec format.CompressionCodec, to, packed []byte, raw int) (_ []byte, err error) {
	if codec == format.Uncompressed {
		if len(packed) != raw {
			err = fmt.Errorf("it has %d bytes and claims %d", len(packed), raw)
		}
		return append(to[:0], packed...), err
	}
	to = slices.Grow(to[:0], raw)[:raw]
	if raw == 0 {
		return to, nil
	}
	n := 0
	var in io.Reader
	switch codec {
	case format.Snappy:
		if n, err = snappy.DecodedLen(packed); err == nil && n == raw {
			_, err = snappy.Decode(to, packed)
		}
	case format.Zstd:
		var out []byte
		out, err = inflater.DecodeAll(packed, to[:0:raw])
		n = len(out)
	case format.Gzip:
		in, err = gzip.NewReader(bytes.NewReader(packed))
	case format.Brotli:
		in = brotli.NewReader(bytes.NewReader(packed))
	default:
		err = fmt.Errorf("%w: it is compressed by %v", ErrUnsupported, codec)
	}
	if in != nil && err == nil {
		if n, err = io.ReadFull(in, to); err == nil {
			var more [1]byte
			if m, _ := io.ReadFull(in, more[:]); m > 0 {
				n += m
			}
		}
	}
	if err == nil && n != raw {
		err = fmt.Errorf("it inflates to at least %d bytes and claims %d", n, raw)
	}
	return to, err
}

// guard reads a file, and returns no byte of a page before it has checked the page.
type guard struct {
	*Tailed
	mu     sync.Mutex
	chunks []guardedChunk // in the order of their positions
	room   pageRoom
}

// guardedChunk is a column chunk and the progress of its check.
type guardedChunk struct {
	of         *format.ColumnChunk
	shape      shape
	first, end int64
	walker     *pageWalker // nil before the first page
}

func newGuard(t *Tailed, footer *format.FileMetaData, footerAt int64) (*guard, error) {
	g := &guard{Tailed: t}
	shapes, err := shapesOf(footer.Schema)
	if err != nil {
		return nil, err
	}
	for i := range footer.RowGroups {
		group := &footer.RowGroups[i]
		if group.NumRows < 0 || len(group.Columns) != len(shapes) {
			return nil, fmt.Errorf("%w: row group %d has %d columns and %d rows", errFooter, i, len(group.Columns),
				group.NumRows)
		}
		if group.NumRows == 0 {
			continue // some writers give an empty group no positions
		}
		for j := range group.Columns {
			c := &group.Columns[j]
			first, length, err := ChunkBytes(c, footerAt)
			if err != nil {
				return nil, fmt.Errorf("%w: row group %d, column %d: %w", errFooter, i, j, err)
			}
			g.chunks = append(g.chunks, guardedChunk{of: c, shape: shapes[j], first: first, end: first + length})
		}
	}
	slices.SortFunc(g.chunks, func(a, b guardedChunk) int { return int(min(1, max(-1, a.first-b.first))) })
	for i := 1; i < len(g.chunks); i++ {
		if g.chunks[i].first < g.chunks[i-1].end {
			return nil, fmt.Errorf("%w: its pages at %d lie within others", errFooter, g.chunks[i].first)
		}
	}
	return g, nil
}

func (g *guard) ReadAt(p []byte, at int64) (int, error) {
	n, err := g.Tailed.ReadAt(p, at)
	end := at + int64(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	i, _ := slices.BinarySearchFunc(g.chunks, at, func(c guardedChunk, at int64) int {
		if c.end <= at {
			return -1
		}
		return 1
	})
	for ; i < len(g.chunks) && g.chunks[i].first < end; i++ {
		if bad, err := g.check(&g.chunks[i], end); err != nil {
			return int(max(0, bad-at)), err
		}
	}
	return n, err
}

// check checks the pages of a chunk that begin before until. On an error, bad is the position of the invalid page.
func (g *guard) check(c *guardedChunk, until int64) (bad int64, err error) {
	if c.walker == nil {
		length := c.end - c.first
		in := bufio.NewReaderSize(io.NewSectionReader(g.Tailed, c.first, length), int(min(length, walkerBuffer)))
		c.walker = newPageWalker(in, c.of, c.shape, c.first, c.end)
	}
	for w := c.walker; w.at < min(until, c.end); {
		if err := w.next(&g.room); err != nil {
			return w.at, err
		}
		if w.at == c.end {
			w.in = nil
		}
	}
	return 0, nil
}

// thriftLength returns the length of the struct at the beginning of b.
func thriftLength(b []byte) (int, error) {
	w := thriftWalk{b: b, perStruct: metadataStruct, room: thriftSlack}
	w.structure(thriftDepth)
	if w.bad {
		return 0, errors.New("its header is invalid")
	}
	return w.at, nil
}

func decodePageHeader(encoded []byte) (header *format.PageHeader, err error) {
	defer rescue(&err)
	header = &format.PageHeader{}
	return header, thrift.Unmarshal(new(thrift.CompactProtocol), encoded, header)
}

package sink

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// This file stands between the Parquet reader and the pages. The reader makes room for as many bytes and values as a
// page's header says, and inflates a page to whatever length it has, so that a small hostile file could ask for more
// memory than there is. A guard follows the headers of the pages, and within them those of the zstd frame's blocks, while
// the reader reads them, and gives out no byte before all headers up to it have been found to be sound. Behind the last
// block of a page it also counts what the page's values become: see contents.go.

// What a page may be. Those that bulkscan writes end at 512 KiB before compression, or with the row that goes beyond.
const (
	maxPage       = 64 << 20        // bytes before compression
	maxBodiesPage = 1<<30 + maxPage // the same of bodies, each as long as --max-body allows
	maxPageValues = 1 << 22         // entries: those of a list may be more than the rows
	maxHeader     = 4 << 10         // bytes of a page's header; ours take 30, and bounds of texts some more
	frameHeader   = zstd.HeaderMaxSize
)

var errPage = errors.New("damaged Parquet file: a page's header makes no sense")

// guard reads a file whose chunks it watches.
type guard struct {
	*tailed
	mu     sync.Mutex
	chunks []guardedChunk // in the order of their places

	packed, raw []byte // a page, before and after it is inflated
}

// inflater gives up a page that becomes longer than the room for it.
var inflater = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants
	}
	return d
})

// guardedChunk is how far a column chunk has been looked at.
type guardedChunk struct {
	first, end int64
	data       int64 // where its data pages begin
	codec      format.CompressionCodec
	shape      shape
	most       int64 // bytes of a page before compression
	values     int64 // that are left to be in its pages

	next  int64 // the header that is looked at next
	page  int64 // end of the page that next lies in; 0 where it is a page's header
	body  int64 // where that page's bytes begin
	raw   int64 // how many they are before compression
	head  format.DataPageHeader
	inert bool // they are a dictionary: they become no more than they are
	block bool // next is a block's header, not the frame's
	sum   bool // the frame ends with a checksum

	inflated int64 // bytes before compression of the frame's blocks so far, at most: short frames do not say how long they are
}

// newGuard makes a guard of the chunks that a footer names.
func newGuard(t *tailed, footer *format.FileMetaData, footerAt int64) (*guard, error) {
	g := &guard{tailed: t}
	shapes, err := shapesOf(footer.Schema)
	if err != nil {
		return nil, err
	}
	for i := range footer.RowGroups {
		if n := footer.RowGroups[i].NumRows; n < 0 || n > maxGroupRows {
			return nil, fmt.Errorf("%w: a row group of %d rows", errFooter, n)
		}
		if n := len(footer.RowGroups[i].Columns); n != len(shapes) {
			return nil, fmt.Errorf("%w: a row group of %d columns, not %d", errFooter, n, len(shapes))
		}
		for j := range footer.RowGroups[i].Columns {
			c := &footer.RowGroups[i].Columns[j]
			first, length, err := chunkBytes(c, footerAt)
			if err != nil {
				return nil, fmt.Errorf("%w: row group %d, column %d: %w", errFooter, i, j, err)
			}
			m := &c.MetaData
			if m.Codec != format.Zstd && m.Codec != format.Uncompressed {
				return nil, fmt.Errorf("%w: bulkscan does not compress by %v", errFooter, m.Codec)
			}
			most := int64(maxPage)
			if len(m.PathInSchema) == 1 && m.PathInSchema[0] == "body" {
				most = maxBodiesPage
			}
			g.chunks = append(g.chunks, guardedChunk{first: first, end: first + length, data: m.DataPageOffset, codec: m.Codec, shape: shapes[j], most: most, values: m.NumValues, next: first})
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
	n, err := g.tailed.ReadAt(p, at)
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
		c := &g.chunks[i]
		for c.next < min(end, c.end) {
			if err := g.look(c, p[:n], at); err != nil {
				return 0, err
			}
		}
	}
	return n, err
}

// look checks the next header of a chunk. Of p, which was read at that place, it takes what is there.
func (g *guard) look(c *guardedChunk, p []byte, at int64) error {
	header := func(most int64) ([]byte, error) {
		limit := c.end
		if c.page != 0 {
			limit = c.page
		}
		most = min(most, limit-c.next)
		if c.next >= at && c.next+most <= at+int64(len(p)) {
			return p[c.next-at : c.next-at+most], nil
		}
		b := make([]byte, most)
		_, err := io.ReadFull(io.NewSectionReader(g.tailed, c.next, most), b)
		return b, err
	}
	switch {
	case c.page == 0:
		b, err := header(maxHeader)
		if err != nil {
			return err
		}
		if err := c.pageHeader(b); err != nil || c.page != 0 {
			return err
		}
		return g.contents(c)
	case !c.block:
		b, err := header(frameHeader)
		if err != nil {
			return err
		}
		return c.frameHeader(b)
	}
	b, err := header(3)
	if err != nil {
		return err
	}
	if err := c.blockHeader(b); err != nil || c.page != 0 {
		return err
	}
	return g.contents(c)
}

// contents checks what the page becomes that ends where the chunk's next begins.
func (g *guard) contents(c *guardedChunk) error {
	if c.inert {
		return nil
	}
	page := slices.Grow(g.packed[:0], int(c.next-c.body))[:c.next-c.body]
	g.packed = page
	if _, err := io.ReadFull(io.NewSectionReader(g.tailed, c.body, c.next-c.body), page); err != nil {
		return err
	}
	if c.codec == format.Zstd && len(page) > 0 {
		raw, err := inflater().DecodeAll(page, slices.Grow(g.raw[:0], int(c.raw)))
		if err != nil {
			return fmt.Errorf("%w: page at %d: %w", errPage, c.body, err)
		}
		page, g.raw = raw, raw
	}
	if err := c.shape.check(page, c.head.Encoding, int64(c.head.NumValues), c.most); err != nil {
		return fmt.Errorf("%w: page at %d: %w", errPage, c.body, err)
	}
	return nil
}

func (c *guardedChunk) pageHeader(b []byte) error {
	n, err := thriftLength(b)
	if err != nil {
		return fmt.Errorf("%w: page at %d", errPage, c.next)
	}
	h, err := decodePageHeader(b[:n])
	if err != nil {
		return fmt.Errorf("%w: page at %d: %w", errPage, c.next, err)
	}
	values := int64(0)
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		values, c.inert, c.head = int64(h.DataPageHeader.V.NumValues), false, h.DataPageHeader.V
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		values, c.inert = int64(h.DictionaryPageHeader.V.NumValues), true
	default:
		return fmt.Errorf("%w: page at %d: bulkscan writes no %v", errPage, c.next, h.Type)
	}
	body := c.next + int64(n)
	size := int64(h.CompressedPageSize)
	raw := int64(h.UncompressedPageSize)
	switch {
	case values < 0 || values > maxPageValues || !c.inert && values > c.values:
		return fmt.Errorf("%w: page at %d: it says that it has %d values, of %d", errPage, c.next, values, c.values)
	case size < 0 || size > c.end-body:
		return fmt.Errorf("%w: page at %d: its length of %d bytes is not within its column", errPage, c.next, size)
	case raw < 0 || raw > c.most:
		return fmt.Errorf("%w: page at %d: it says that it has %d bytes before compression", errPage, c.next, raw)
	case c.next < c.data && body+size != c.data:
		return fmt.Errorf("%w: page at %d: its column's data does not begin behind it", errPage, c.next)
	}
	if !c.inert {
		c.values -= values
	}
	c.next, c.body, c.raw = body+size, body, raw
	if c.codec == format.Zstd && size > 0 {
		c.next, c.page, c.block = body, body+size, false
	}
	return nil
}

func (c *guardedChunk) frameHeader(b []byte) error {
	var h zstd.Header
	if err := h.Decode(b); err != nil || h.Skippable || h.HasFCS && h.FrameContentSize != uint64(c.raw) {
		return fmt.Errorf("%w: frame at %d: %d bytes before compression, not %d", errPage, c.next, h.FrameContentSize, c.raw)
	}
	c.next += int64(h.HeaderSize)
	c.block, c.sum, c.inflated = true, h.HasCheckSum, 0
	return nil
}

func (c *guardedChunk) blockHeader(b []byte) error {
	const (
		repeated   = 1 // a block of one byte, which stands for many
		compressed = 2
		maxBlock   = 128 << 10
	)
	if len(b) < 3 {
		return fmt.Errorf("%w: a block at %d ends with its page", errPage, c.next)
	}
	head := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
	size := head >> 3
	switch head >> 1 & 3 {
	case repeated:
		c.inflated += size
		size = 1
	case compressed:
		c.inflated += maxBlock
	default:
		c.inflated += size
	}
	if c.inflated > c.most+maxBlock {
		return fmt.Errorf("%w: the blocks at %d are too many", errPage, c.next)
	}
	c.next += 3 + size
	last := head&1 == 1
	if last && c.sum {
		c.next += 4
	}
	if c.next > c.page || last != (c.next == c.page) {
		return fmt.Errorf("%w: the blocks of a page end at %d, not at %d", errPage, c.next, c.page)
	}
	if last {
		c.page, c.block = 0, false
	}
	return nil
}

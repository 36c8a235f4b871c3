package table

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go/format"
)

// Problem is a difference between a file and its record, or a contradiction within the file.
type Problem struct {
	What            string
	Expected, Found string
	Newer           int // not 0: a later bulkscan wrote the file with this schema version; only its bytes are checked
}

// Check reads a file once, from its first byte to its last, and compares it with its record: the footer; the positions,
// lengths and checksums of all pages; their values; and the hash of all bytes. No length in the file decides how much
// memory is allocated. An error is one of reading.
func Check(ctx context.Context, object store.Object, f schema.File, scanID string) ([]Problem, error) {
	p := &pageReader{ctx: ctx, file: f, object: object, sum: sha256.New()}
	if err := p.read(scanID); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.problems = append(p.problems, Problem{What: err.Error()})
	}
	if err := p.hashRest(); err != nil {
		return p.problems, err
	}
	if found := hex.EncodeToString(p.sum.Sum(nil)); found != f.SHA256 {
		p.differs("sha256", f.SHA256, found)
	}
	return p.problems, nil
}

// pageReader reads a file from its first byte to its last, and checks the pages.
type pageReader struct {
	ctx      context.Context
	file     schema.File
	object   store.Object
	sum      hash.Hash
	in       *bufio.Reader // all bytes of the file; sum hashes what is read
	at       int64         // position of in
	room     pageRoom
	problems []Problem
}

const maxGroupRows = 1 << 20

// read checks the footer, and the pages in the order of their positions. It ends at the first inconsistency, since no
// later position can be trusted.
func (p *pageReader) read(scanID string) error {
	p.in = bufio.NewReaderSize(io.TeeReader(io.NewSectionReader(p.object, 0, p.object.Size()), p.sum), walkerBuffer)
	_, encoded, err := OpenTail(p.object)
	if err != nil {
		return err
	}
	footer, err := DecodeFooter(encoded)
	if err != nil {
		return err
	}
	if later, ok := errors.AsType[*schema.NewerError](checkFooter(footer)); ok {
		p.problems = append(p.problems, Problem{Newer: later.Version})
		return nil
	}
	head := make([]byte, len(Magic))
	if _, err := io.ReadFull(p.in, head); err != nil {
		return err
	}
	if p.at += int64(len(head)); string(head) != Magic {
		return fmt.Errorf("it begins with %q, not %s", head, Magic)
	}
	p.metadata(footer, scanID)
	shapes, err := shapesOf(footer.Schema)
	if err != nil {
		return err
	}
	limit := p.object.Size() - 8 - int64(len(encoded))
	var rows int64
	for i := range footer.RowGroups {
		group := &footer.RowGroups[i]
		if group.NumRows < 0 || group.NumRows > maxGroupRows {
			return fmt.Errorf("row group %d claims %d rows", i, group.NumRows)
		}
		if len(group.Columns) != len(shapes) {
			return fmt.Errorf("row group %d has %d columns, not %d", i, len(group.Columns), len(shapes))
		}
		rows += group.NumRows
		for j := range group.Columns {
			chunk := &group.Columns[j]
			if err := p.chunk(chunk, shapes[j], limit, group.NumRows); err != nil {
				return fmt.Errorf("row group %d, column %s: %w", i, strings.Join(chunk.MetaData.PathInSchema, "."), err)
			}
		}
	}
	if rows != footer.NumRows {
		p.differs("rows of its row groups", footer.NumRows, rows)
	}
	return nil
}

// metadata checks the footer's statements on the whole file.
func (p *pageReader) metadata(footer *format.FileMetaData, scanID string) {
	if footer.NumRows != p.file.Rows {
		p.differs("rows", p.file.Rows, footer.NumRows)
	}
	if n := len(footer.RowGroups); p.file.Groups != 0 && n != p.file.Groups {
		p.differs("row groups", p.file.Groups, n)
	}
	for _, kv := range footer.KeyValueMetadata {
		if kv.Key == MetaScan && kv.Value != scanID {
			p.differs("scan in its metadata", scanID, fmt.Sprintf("%.80q", kv.Value))
		}
	}
}

// chunk checks the pages of a column chunk: positions, lengths and checksums, and that their total length and number of
// values are those of the footer.
func (p *pageReader) chunk(c *format.ColumnChunk, of shape, limit, rows int64) error {
	m := &c.MetaData
	first, length, err := ChunkBytes(c, limit)
	if err != nil {
		return err
	}
	if first < p.at {
		return fmt.Errorf("its pages at %d lie within those before them", first)
	}
	if err := p.skip(first - p.at); err != nil {
		return err
	}
	if m.Codec != format.Zstd && m.Codec != format.Uncompressed {
		return fmt.Errorf("codec %v, which bulkscan does not write", m.Codec)
	}
	w := newPageWalker(p.in, c, of, p.at, first+length)
	var values, raw int64
	for w.at < w.end {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		h, n, err := w.next(&p.room)
		if p.in = w.in; err != nil {
			return err
		}
		switch h.Type {
		case format.DataPage:
			values += int64(h.DataPageHeader.V.NumValues)
		case format.DictionaryPage:
		default:
			return fmt.Errorf("page before %d is of type %v, which bulkscan does not write", w.at, h.Type)
		}
		if h.CRC == 0 && crc32.ChecksumIEEE(p.room.packed) != 0 {
			return fmt.Errorf("page before %d has no checksum", w.at)
		}
		raw += int64(h.UncompressedPageSize) + int64(n)
	}
	p.at = w.at
	if values != m.NumValues {
		return fmt.Errorf("%d values in its pages, %d by the footer", values, m.NumValues)
	}
	if raw != m.TotalUncompressedSize {
		return fmt.Errorf("%d bytes in its pages before compression, %d by the footer", raw, m.TotalUncompressedSize)
	}
	if values < rows {
		return fmt.Errorf("%d values for %d rows", values, rows)
	}
	return nil
}

// skip reads n bytes that only count for the hash.
func (p *pageReader) skip(n int64) error {
	skipped, err := io.CopyN(io.Discard, p.in, n)
	p.at += skipped
	if err != nil {
		return err
	}
	return nil
}

// hashRest reads the remaining bytes, so that the hash covers all.
func (p *pageReader) hashRest() error {
	_, err := io.Copy(io.Discard, p.in)
	return err
}

func (p *pageReader) differs(what string, expected, found any) {
	p.problems = append(p.problems, Problem{What: what, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)})
}

package table

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file concatenates Parquet files without decoding their pages. A file is
//
//	PAR1 │ pages of all row groups │ column indexes │ offset indexes │ footer │ length PAR1
//
// Only the offset indexes and the footer contain positions. So the pages are copied unchanged, one file's after the
// other's, and these two are written again with all positions moved. Row groups, their order, bounds, statistics and
// checksums stay the same.
//
// parquet-go copies row groups, too (Writer.WriteRowGroup), but only if every column has the encoding that the writer
// would choose. It decodes and encodes a group whose dictionary became too big, a hundred times slower, and hostile
// sites could decide which groups these are.
//
// Each source is read once, from its first byte to its last, and its hash is compared with its commit's: damaged data
// must not get a new hash that hides the damage.

// maxIndexes bounds the page indexes of one source in memory, in bytes. Those of a part take 100 KB.
const maxIndexes = 64 << 20

// concatenation makes one file out of several.
type concatenation struct {
	file digest
	out  *bufio.Writer // to the file; buffered, since indexes are short writes
	sum  string        // schema.File.Footer, once it is written

	footer  format.FileMetaData // of the first source, with the row groups of all
	indexes []encodedIndexes    // by row group and column
	copy    []byte
}

// size counts what was written, buffered bytes included.
func (s *concatenation) size() int64 { return s.file.Size + int64(s.out.Buffered()) }

// Concat writes a sealed draft with the rows of sources, in their order, and describes it. All sources are files of one
// table. The metadata is that of the first source, unless other metadata is given. The caller publishes or discards the
// draft. The error is a *WriteError if the draft caused it.
func Concat(ctx context.Context, from, to store.Store, name string, sources []schema.File,
	metadata map[string]string) (store.Draft, schema.File, error) {
	draft, err := to.Create(ctx, name)
	if err != nil {
		return nil, schema.File{}, Writing(err)
	}
	s := &concatenation{file: digest{Name: name, draft: draft, hash: sha256.New()}, copy: make([]byte, 1<<20)}
	s.out = bufio.NewWriterSize(&s.file, 256<<10)
	err = s.join(ctx, from, sources, metadata)
	if err == nil {
		err = Writing(draft.Seal())
	}
	if err != nil {
		return nil, schema.File{}, errors.Join(err, draft.Discard())
	}
	return draft, s.file.describe(sources[0].Table, s.footer.NumRows, s.sum, len(s.footer.RowGroups)), nil
}

func (s *concatenation) join(ctx context.Context, st store.Store, sources []schema.File,
	metadata map[string]string) error {
	if _, err := s.out.WriteString(Magic); err != nil {
		return err
	}
	for _, source := range sources {
		if err := s.add(ctx, st, source); err != nil {
			return fmt.Errorf("cannot copy %s: %w", source.Name, err)
		}
	}
	if metadata != nil {
		s.footer.KeyValueMetadata = s.footer.KeyValueMetadata[:0:0]
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			s.footer.KeyValueMetadata = append(s.footer.KeyValueMetadata, format.KeyValue{Key: key, Value: metadata[key]})
		}
	}
	if err := s.finish(); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.file.Name, err)
	}
	return nil
}

// add copies a source's pages and keeps its row groups and indexes.
func (s *concatenation) add(ctx context.Context, st store.Store, source schema.File) error {
	object, err := st.Open(ctx, source.Name)
	if err != nil {
		return err
	}
	defer object.Close()
	if object.Size() != source.Bytes {
		return &schema.DamagedError{What: "bytes", Expected: fmt.Sprint(source.Bytes), Found: fmt.Sprint(object.Size())}
	}
	tail, encoded, err := OpenTail(object)
	if err != nil {
		return err
	}
	footer, err := DecodeFooter(encoded)
	if err != nil {
		return err
	}
	if footer.NumRows != source.Rows {
		return &schema.DamagedError{What: "rows", Expected: fmt.Sprint(source.Rows), Found: fmt.Sprint(footer.NumRows)}
	}
	pagesEnd, err := endOfPages(footer, object.Size()-8-int64(len(encoded)))
	if err != nil {
		return err
	}
	if err := s.sameTable(footer); err != nil {
		return err
	}
	move := s.size() - int64(len(Magic))
	indexes, err := s.copyPages(ctx, tail, pagesEnd, object.Size()-8-int64(len(encoded)), source)
	if err != nil {
		return err
	}
	return s.addGroups(footer, move, indexes, pagesEnd)
}

// endOfPages returns the end of the last page. It checks that all pages lie between the first magic and limit, and that
// the file has nothing that Concat cannot move.
func endOfPages(footer *format.FileMetaData, limit int64) (int64, error) {
	end := int64(len(Magic))
	for i := range footer.RowGroups {
		for j := range footer.RowGroups[i].Columns {
			c := &footer.RowGroups[i].Columns[j]
			first, length, err := ChunkBytes(c, limit)
			if err == nil && (c.FilePath != "" || c.MetaData.BloomFilterOffset != 0 || c.MetaData.IndexPageOffset != 0) {
				err = errors.New("it has parts that bulkscan does not write")
			}
			if err != nil {
				return 0, fmt.Errorf("row group %d, column %d: %w", i, j, err)
			}
			end = max(end, first+length)
		}
	}
	return end, nil
}

// ChunkBytes returns the position and length of a column chunk's pages; limit is where the footer begins.
func ChunkBytes(c *format.ColumnChunk, limit int64) (first, length int64, err error) {
	m := &c.MetaData
	first, length = m.DataPageOffset, m.TotalCompressedSize
	if m.DictionaryPageOffset != 0 {
		first = min(first, m.DictionaryPageOffset)
	}
	if first < int64(len(Magic)) || length < 0 || length > limit || first > limit-length {
		return 0, 0, fmt.Errorf("its %d bytes from %d on are not within the file", length, first)
	}
	return first, length, nil
}

// sameTable checks that a source has the columns and the metadata of those before it.
func (s *concatenation) sameTable(footer *format.FileMetaData) error {
	if s.footer.Schema == nil {
		s.footer = *footer
		s.footer.NumRows, s.footer.RowGroups = 0, nil
		return nil
	}
	of := func(m *format.FileMetaData) []any {
		return []any{m.Version, m.Schema, m.ColumnOrders, m.KeyValueMetadata}
	}
	if !reflect.DeepEqual(of(&s.footer), of(footer)) {
		return errors.New("it has other columns or metadata than the parts before it")
	}
	return nil
}

// copyPages copies the pages, which end at pagesEnd, and returns the bytes between pagesEnd and the footer.
func (s *concatenation) copyPages(ctx context.Context, object store.Object, pagesEnd, footerAt int64,
	source schema.File) ([]byte, error) {
	if footerAt-pagesEnd > maxIndexes {
		return nil, fmt.Errorf("its page indexes have %d bytes", footerAt-pagesEnd)
	}
	all := io.NewSectionReader(object, 0, object.Size())
	sum := sha256.New()
	read := func(n int64, into io.Writer) error {
		for n > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := s.copy[:min(n, int64(len(s.copy)))]
			if _, err := io.ReadFull(all, piece); err != nil {
				return err
			}
			sum.Write(piece)
			if _, err := into.Write(piece); err != nil {
				return err
			}
			n -= int64(len(piece))
		}
		return nil
	}
	head, indexes := bytes.NewBuffer(nil), bytes.NewBuffer(make([]byte, 0, footerAt-pagesEnd))
	err := read(int64(len(Magic)), head)
	if err == nil {
		err = read(pagesEnd-int64(len(Magic)), s.out)
	}
	if err == nil {
		err = read(footerAt-pagesEnd, indexes)
	}
	if err == nil {
		err = read(object.Size()-footerAt, io.Discard)
	}
	if err != nil {
		return nil, err
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != source.SHA256 {
		return nil, &schema.DamagedError{What: "sha256", Expected: source.SHA256, Found: found}
	}
	return indexes.Bytes(), nil
}

// addGroups adds the row groups of a source whose pages have been moved by move bytes.
func (s *concatenation) addGroups(footer *format.FileMetaData, move int64, indexes []byte, indexesAt int64) error {
	index := func(at int64, length int32) ([]byte, error) {
		first := at - indexesAt
		if first < 0 || length < 0 || first > int64(len(indexes))-int64(length) {
			return nil, fmt.Errorf("an index of %d bytes at %d is not after the pages", length, at)
		}
		return indexes[first : first+int64(length)], nil
	}
	for i := range footer.RowGroups {
		group := footer.RowGroups[i]
		for j := range group.Columns {
			chunk := &group.Columns[j]
			var column []byte
			if chunk.ColumnIndexOffset != 0 {
				var err error
				if column, err = index(chunk.ColumnIndexOffset, chunk.ColumnIndexLength); err != nil {
					return err
				}
			}
			encoded, err := index(chunk.OffsetIndexOffset, chunk.OffsetIndexLength)
			if err != nil {
				return err
			}
			var offsets format.OffsetIndex
			if err := DecodeOffsets(encoded, &offsets); err != nil {
				return err
			}
			for k := range offsets.PageLocations {
				offsets.PageLocations[k].Offset += move
			}
			if encoded, err = thrift.Marshal(new(thrift.CompactProtocol), &offsets); err != nil {
				return err
			}
			// a clone, so that the rest of indexes is freed
			s.indexes = append(s.indexes, encodedIndexes{bytes.Clone(column), encoded})
			chunk.MetaData.DataPageOffset += move
			if chunk.MetaData.DictionaryPageOffset != 0 {
				chunk.MetaData.DictionaryPageOffset += move
			}
			if chunk.FileOffset != 0 {
				chunk.FileOffset += move
			}
		}
		group.FileOffset += move
		group.Ordinal = int16(len(s.footer.RowGroups))
		if int(group.Ordinal) != len(s.footer.RowGroups) {
			return errors.New("a file has 32,768 row groups at most")
		}
		s.footer.RowGroups = append(s.footer.RowGroups, group)
		s.footer.NumRows += group.NumRows
	}
	return nil
}

// DecodeOffsets decodes an offset index in memory proportional to its length.
func DecodeOffsets(encoded []byte, into *format.OffsetIndex) (err error) {
	defer rescue(&err)
	if err := checkThrift(encoded, locationStruct); err != nil {
		return err
	}
	return thrift.Unmarshal(new(thrift.CompactProtocol), encoded, into)
}

func (s *concatenation) finish() error {
	var err error
	if s.sum, err = writeTail(s.out, s.size(), &s.footer, s.indexes); err != nil {
		return err
	}
	return s.out.Flush()
}

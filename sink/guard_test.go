package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// replacePages gives a column of a file one page, with the header and the bytes given, behind all others.
func replacePages(t *testing.T, path, column string, codec format.CompressionCodec, header format.PageHeader, page []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	footer, err := decodeFooter(data[at : len(data)-8])
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data[:at])
	head, err := thrift.Marshal(new(thrift.CompactProtocol), &header)
	if err != nil {
		t.Fatal(err)
	}
	for j := range footer.RowGroups[0].Columns {
		if m := &footer.RowGroups[0].Columns[j].MetaData; m.PathInSchema[0] == column {
			m.Codec, m.DictionaryPageOffset, m.DataPageOffset = codec, 0, int64(len(data))
			m.NumValues = int64(header.DataPageHeader.V.NumValues)
			m.TotalCompressedSize = int64(len(head) + len(page))
			data = append(append(data, head...), page...)
		}
	}
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), footer)
	if err != nil {
		t.Fatal(err)
	}
	data = binary.LittleEndian.AppendUint32(append(data, encoded...), uint32(len(encoded)))
	if err := os.WriteFile(path, append(data, magic...), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestHostilePages gives small files to readers whose pages say that they are long, or become long when they are inflated:
// readers refuse them, and take little memory until then.
func TestHostilePages(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := encoder.EncodeAll(make([]byte, 256<<20), nil)
	many := bytes.Repeat(encoder.EncodeAll(make([]byte, 8<<20), nil), 32)
	const values = 1 << 30
	nulls := append(binary.LittleEndian.AppendUint32(nil, 6), append(binary.AppendUvarint(nil, values<<1), 0)...)
	f := func(what, column string, codec format.CompressionCodec, compressed, raw, values int32, page []byte) {
		t.Helper()
		dir := newDir(t)
		writeSites(t, dir, "s", typicalSites(t, 3)...)
		commits, err := Commits(t.Context(), dir, "s")
		if err != nil {
			t.Fatal(err)
		}
		file, _ := commits[0].File(TableSites)
		header := format.PageHeader{Type: format.DataPage, CompressedPageSize: compressed, UncompressedPageSize: raw}
		header.DataPageHeader.Valid = true
		header.DataPageHeader.V = format.DataPageHeader{NumValues: values, Encoding: format.Plain, DefinitionLevelEncoding: format.RLE}
		replacePages(t, filepath.Join(dir.Root(), file.Name), column, codec, header, page)
		scan := mustReadScan(t, dir, "s")

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var number int64
		var text string
		field := Field{Name: column, Into: &number}
		if column == "label" {
			field.Into = &text
		}
		cursor, err := OpenCursor(t.Context(), scan, &scan.Commits[0], TableSites, field)
		if err == nil {
			for cursor.Next() {
			}
			err = errors.Join(cursor.Err(), cursor.Close())
		}
		if !errors.Is(err, errPage) {
			t.Errorf("%s: a cursor says %v", what, err)
		}
		for _, err = range Rows[SiteRow](t.Context(), scan, TableSites) {
		}
		if !errors.Is(err, errPage) {
			t.Errorf("%s: Rows says %v", what, err)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 32 {
			t.Errorf("%s: %d MB were allocated", what, n)
		}
	}
	const none = format.Uncompressed
	zeros := make([]byte, 4096)
	f("compressed", "seq", none, 1<<31-1, 10, 1, zeros)
	f("before compression", "seq", none, 20, 1<<31-1, 1, zeros)
	f("values", "seq", none, 20, 20, 1<<31-1, zeros)
	f("nulls", "label", none, int32(len(nulls)), int32(len(nulls)), values, nulls)
	f("a negative length", "seq", none, -1, 20, 1, zeros)
	f("a frame that says so", "seq", format.Zstd, int32(len(bomb)), 256<<20, 3, bomb)
	f("a frame that is longer than the page", "seq", format.Zstd, int32(len(bomb)), 24, 3, bomb)
	f("many frames", "seq", format.Zstd, int32(len(many)), 8<<20, 3, many)
	f("half a frame", "seq", format.Zstd, 100, 256, 3, bomb[:100])
}

package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// replacePages replaces the pages of a file's column by one page at the end of the file, with the given header and
// bytes.
func replacePages(t *testing.T, path, column string, codec format.CompressionCodec, header format.PageHeader,
	page []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	footer := &format.FileMetaData{}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), data[at:len(data)-8], footer); err != nil {
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
	if err := os.WriteFile(path, append(data, "PAR1"...), 0o666); err != nil {
		t.Fatal(err)
	}
}

// readHostile checks that readers of a column refuse its page, and allocate little memory before that.
func readHostile(t *testing.T, what, tableName, column string, codec format.CompressionCodec, header format.PageHeader,
	page []byte) {
	t.Helper()
	dir := newDir(t)
	writeSites(t, dir, "s", typicalSites(t, 3)...)
	commits, err := commit.Commits(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	file, _ := commits[0].File(tableName)
	replacePages(t, filepath.Join(dir.Root(), file.Name), column, codec, header, page)
	scan := mustReadScan(t, dir, "s")
	for i, f := range scan.Commits[0].Files { // a record that says nothing of the file's bytes, so that they are read
		scan.Commits[0].Files[i] = schema.File{Table: f.Table, Name: f.Name, Rows: f.Rows}
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var number int64
	var text string
	field := table.Field{Name: column, Into: &number}
	if column == "label" || column == "origin" || column == "token" {
		field.Into = &text
	}
	cursor, err := read.OpenCursor(t.Context(), scan, &scan.Commits[0], tableName, field)
	if err == nil {
		for cursor.Next() {
		}
		err = errors.Join(cursor.Err(), cursor.Close())
	}
	if !errors.Is(err, table.ErrPage) {
		t.Errorf("%s: a cursor says %v", what, err)
	}
	if tableName == schema.Sites {
		for _, err = range read.Rows[schema.SiteRow](t.Context(), scan, tableName) {
		}
	} else {
		for _, err = range read.Rows[schema.VerdictRow](t.Context(), scan, tableName) {
		}
	}
	if !errors.Is(err, table.ErrPage) {
		t.Errorf("%s: Rows says %v", what, err)
	}
	runtime.ReadMemStats(&after)
	// The page claims, or inflates to, at least 256 MiB. The bound has room for the race detector, which empties pools
	// of buffers.
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 64 {
		t.Errorf("%s: %d MB were allocated", what, n)
	}
}

// TestHostilePages reads small files whose pages claim to be long, or become long when inflated. Readers refuse them
// and allocate little memory before that.
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
		readHostile(t, what, schema.Sites, column, codec, format.PageHeader{
			Type: format.DataPage, CompressedPageSize: compressed, UncompressedPageSize: raw,
			DataPageHeader: thrift.New(format.DataPageHeader{NumValues: values, Encoding: format.Plain,
				DefinitionLevelEncoding: format.RLE}),
		}, page)
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

// TestHostileContents reads pages with valid headers whose values would become far larger than the pages.
func TestHostileContents(t *testing.T) {
	f := func(what, table, column string, encoding format.Encoding, values int, page []byte) {
		t.Helper()
		readHostile(t, what, table, column, format.Uncompressed, format.PageHeader{
			Type: format.DataPage, CompressedPageSize: int32(len(page)), UncompressedPageSize: int32(len(page)),
			DataPageHeader: thrift.New(format.DataPageHeader{NumValues: int32(values), Encoding: encoding,
				DefinitionLevelEncoding: format.RLE}),
		}, page)
	}
	numbers := func(values ...uint64) (page []byte) {
		for _, v := range values {
			page = binary.AppendUvarint(page, v)
		}
		return page
	}
	lengths := func(values []int32) []byte {
		b, err := new(delta.BinaryPackedEncoding).EncodeInt32(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// Texts that each repeat the length of the first.
	texts := func(n int, length int32) []byte {
		prefixes, suffixes := make([]int32, n), make([]int32, n)
		suffixes[0] = length
		for i := 1; i < n; i++ {
			prefixes[i] = length
		}
		return append(append(lengths(prefixes), lengths(suffixes)...), make([]byte, length)...)
	}
	run := func(length uint64) []byte { return append(numbers(length<<1), 1) }
	levels := func(runs []byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(runs))), runs...)
	}

	const bits = format.DeltaBinaryPacked
	f("differences beyond the values", schema.Sites, "seq", bits, 3, numbers(128, 4, 1<<28, 0))
	f("differences that are missing", schema.Sites, "seq", bits, 1<<10, numbers(128, 4, 1<<10, 0))
	f("no mini-blocks", schema.Sites, "seq", bits, 3, numbers(128, 0, 3, 0))
	f("a width of 255 bits", schema.Sites, "seq", bits, 3, append(numbers(128, 4, 3, 0, 0, 255<<7|0x7f),
		make([]byte, 4096)...))
	f("2 GB of prefixes", schema.Verdicts, "origin", format.DeltaByteArray, 1900, texts(1900, 1<<20))
	f("4 GB of prefixes, which 32 bits cannot count", schema.Verdicts, "origin", format.DeltaByteArray, 4097,
		texts(4097, 1<<20))
	f("a negative length", schema.Verdicts, "origin", format.DeltaByteArray, 2, append(lengths([]int32{0, -5}),
		lengths([]int32{3, 3})...))
	f("levels of a long run", schema.Sites, "label", format.Plain, 3, levels(run(1<<31-1)))
	f("levels of many runs", schema.Sites, "label", format.Plain, 1<<20, levels(bytes.Repeat(run(1<<20), 4096)))
	f("indexes of many runs", schema.Verdicts, "token", format.RLEDictionary, 1<<20,
		append([]byte{8}, bytes.Repeat(run(1<<20), 4096)...))
	f("indexes of 33 bits", schema.Verdicts, "token", format.RLEDictionary, 3, append([]byte{33}, run(3)...))
	f("an encoding that there is not", schema.Sites, "seq", 77, 3, make([]byte, 24))
}

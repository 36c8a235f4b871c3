package sink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/bulkscan/bulkscan/internal/rowtest"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// flatRow has a column of each kind that flatWriter writes, in each way. The first has bounds: parquet-go reads no column index
// of a file whose first column has none.
type flatRow struct {
	Int64Delta   int64    `parquet:"int64_delta,delta" stats:"y"`
	Plain        string   `parquet:"plain,plain"`
	Dict         string   `parquet:"dict,dict"`
	Delta        string   `parquet:"delta,delta"`
	MaybePlain   string   `parquet:"maybe_plain,optional,plain"`
	MaybeDict    string   `parquet:"maybe_dict,optional,dict"`
	MaybeDelta   string   `parquet:"maybe_delta,optional,delta"`
	Truth        bool     `parquet:"truth"`
	Int32        int32    `parquet:"int32" stats:"y"`
	Int32Delta   int32    `parquet:"int32_delta,delta"`
	Int32Dict    int32    `parquet:"int32_dict,dict"`
	Int64        int64    `parquet:"int64"`
	Float        float64  `parquet:"float"`
	MaybeInt32   int32    `parquet:"maybe_int32,optional,delta" stats:"y"`
	MaybeInt64   int64    `parquet:"maybe_int64,optional,delta" stats:"y"`
	MaybeFloat   float64  `parquet:"maybe_float,optional"`
	PointerInt32 *int32   `parquet:"pointer_int32,optional"`
	PointerInt64 *int64   `parquet:"pointer_int64,optional" stats:"y"`
	PointerFloat *float64 `parquet:"pointer_float,optional"`
}

// writeFlat writes rows in pieces, whose memory is overwritten as soon as each is written, by the texts of the next. In every
// other piece texts that are the same share it, as those of a scan do.
func writeFlat(t *testing.T, w rowWriter[flatRow], rows []flatRow) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	memory := make([]byte, 1<<20)
	for len(rows) > 0 {
		piece := slices.Clone(rows[:min(len(rows), 1+rng.IntN(200))])
		rows = rows[len(piece):]
		used := memory
		share, met := rng.IntN(2) == 0, map[string]string{}
		for i := range piece {
			for _, text := range []*string{&piece[i].Plain, &piece[i].Dict, &piece[i].Delta, &piece[i].MaybePlain, &piece[i].MaybeDict, &piece[i].MaybeDelta} {
				own, has := met[*text]
				if !has || !share {
					n := copy(used, *text)
					own = unsafe.String(unsafe.SliceData(used), n)
					used = used[n:]
					met[strings.Clone(own)] = own
				}
				*text = own
			}
		}
		if n, err := w.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		clear(memory[:len(memory)-len(used)])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFlatWriter writes files of many lengths, with pages of two sizes, one after the other with the same writer, and reads
// them with parquet-go: their rows, and how their footers differ from what parquet-go writes of the same rows.
func TestFlatWriter(t *testing.T) {
	all := rowtest.Rows[flatRow](groupRows + 3000)
	metadata := map[string]string{"a": "b", metaTool: "test"}
	for _, page := range []int{minPageBytes, pageBytes} {
		w := newFlatWriter[flatRow](nil, page, metadata)
		for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 6001, groupRows, groupRows + 3000} {
			var flat, theirs bytes.Buffer
			w.Reset(&flat)
			writeFlat(t, w, all[:n])
			model := newParquetWriter[flatRow](&theirs, page, metadata)
			for piece := range slices.Chunk(all[:n], 1) { // by ones, it keeps nulls
				if page == pageBytes && n > 6001 {
					break
				}
				if _, err := model.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if err := model.Close(); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%d rows, pages of %d", n, page)
			got := openBytes(t, flat.Bytes())
			rows := make([]flatRow, n+1)
			read, err := parquet.NewGenericReader[flatRow](got).Read(rows)
			if read != n || err == nil && n > 0 && read > n {
				t.Fatalf("%s: %d rows, %v", name, read, err)
			}
			for i := range n {
				if !reflect.DeepEqual(rows[i], all[i]) {
					t.Fatalf("%s: row %d:\n got %+v\nwant %+v", name, i, rows[i], all[i])
				}
			}
			if page == pageBytes && n > 6001 {
				continue
			}
			sameFooter(t, name, got.Metadata(), openBytes(t, theirs.Bytes()).Metadata())
		}
	}
}

// TestFlatRuns writes rows in which each column says the same for some rows, now few and now hundreds, as those of sites do, so
// that runs go beyond the 64 rows that are taken apart at once, beyond what one Write gets, beyond pages and row groups.
func TestFlatRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(9309, 3))
	few := rowtest.Rows[flatRow](40)
	rows := make([]flatRow, groupRows+5000)
	all, from := reflect.ValueOf(rows), reflect.ValueOf(few)
	for i := range all.Index(0).NumField() {
		for row := 0; row < len(rows); {
			value := from.Index(rng.IntN(len(few))).Field(i)
			for end := min(len(rows), row+1+rng.IntN(1<<rng.IntN(10))); row < end; row++ {
				all.Index(row).Field(i).Set(value)
			}
		}
	}
	for _, page := range []int{minPageBytes, pageBytes} {
		var file bytes.Buffer
		w := newFlatWriter[flatRow](&file, page, nil)
		w.Reset(&file)
		writeFlat(t, w, rows)
		got, err := parquet.Read[flatRow](bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil || len(got) != len(rows) {
			t.Fatalf("pages of %d: %d rows, %v", page, len(got), err)
		}
		for i := range rows {
			if !reflect.DeepEqual(got[i], rows[i]) {
				t.Fatalf("pages of %d, row %d:\n got %+v\nwant %+v", page, i, got[i], rows[i])
			}
		}
	}
}

// TestFlatMemory writes other texts of the same length from the same memory, Write after Write.
func TestFlatMemory(t *testing.T) {
	var file bytes.Buffer
	w := newFlatWriter[flatRow](&file, pageBytes, nil)
	w.Reset(&file)
	memory := make([]byte, 8)
	text := unsafe.String(&memory[0], len(memory))
	var want []string
	for i := range 300 {
		copy(memory, fmt.Sprintf("text %03d", i%150))
		want = append(want, strings.Clone(text))
		if _, err := w.Write([]flatRow{{Plain: text, Dict: text, Delta: text, MaybePlain: text, MaybeDict: text, MaybeDelta: text}}); err != nil {
			t.Fatal(err)
		}
		if i == 200 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[flatRow](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(rows) != len(want) {
		t.Fatal(len(rows), err)
	}
	for i, row := range rows {
		for _, got := range []string{row.Plain, row.Dict, row.Delta, row.MaybePlain, row.MaybeDict, row.MaybeDelta} {
			if got != want[i] {
				t.Errorf("row %d: %q, want %q", i, got, want[i])
			}
		}
	}
}

func openBytes(t *testing.T, file []byte) *parquet.File {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sameFooter compares what must not depend on where pages end, and is not of delta texts, which parquet-go writes otherwise.
func sameFooter(t *testing.T, name string, got, want *format.FileMetaData) {
	t.Helper()
	if got.Version != want.Version || got.NumRows != want.NumRows || got.CreatedBy != want.CreatedBy || len(got.RowGroups) != len(want.RowGroups) ||
		!reflect.DeepEqual(got.Schema, want.Schema) || !reflect.DeepEqual(got.KeyValueMetadata, want.KeyValueMetadata) || !reflect.DeepEqual(got.ColumnOrders, want.ColumnOrders) {
		t.Fatalf("%s: footer:\n got %+v\nwant %+v", name, got, want)
	}
	for i := range got.RowGroups {
		g, w := &got.RowGroups[i], &want.RowGroups[i]
		if g.NumRows != w.NumRows || g.Ordinal != w.Ordinal {
			t.Errorf("%s: row group %d: %d rows, want %d", name, i, g.NumRows, w.NumRows)
		}
		for j := range g.Columns {
			g, w := &g.Columns[j].MetaData, &w.Columns[j].MetaData
			if g.Type != w.Type || !slices.Equal(g.PathInSchema, w.PathInSchema) || g.Codec != w.Codec || g.NumValues != w.NumValues ||
				g.Statistics.NullCount != w.Statistics.NullCount || !bytes.Equal(g.Statistics.MinValue, w.Statistics.MinValue) || !bytes.Equal(g.Statistics.MaxValue, w.Statistics.MaxValue) ||
				(g.DictionaryPageOffset == 0) != (w.DictionaryPageOffset == 0) {
				t.Errorf("%s: row group %d, column %s:\n got %+v\nwant %+v", name, i, g.PathInSchema[0], g, w)
			}
			for _, e := range g.EncodingStats {
				if !slices.Contains(g.Encoding, e.Encoding) {
					t.Errorf("%s: column %s has pages in %s and says it has %v", name, g.PathInSchema[0], e.Encoding, g.Encoding)
				}
			}
		}
	}
}

// TestFlatBounds shows that each page of a column with stats is found by its bounds, and that no other column says any.
func TestFlatBounds(t *testing.T) {
	rows := make([]flatRow, 5000)
	for i := range rows {
		rows[i].Int64Delta, rows[i].Int32 = int64(i), int32(-i)
		if i >= 2500 {
			rows[i].MaybeInt64 = int64(i)
		}
	}
	var file bytes.Buffer
	w := newFlatWriter[flatRow](&file, minPageBytes, nil)
	w.Reset(&file)
	writeFlat(t, w, rows)
	f := openBytes(t, file.Bytes())
	for i, chunk := range f.RowGroups()[0].ColumnChunks() {
		name := f.Schema().Columns()[i][0]
		meta := f.Metadata().RowGroups[0].Columns[i]
		field := reflect.TypeFor[flatRow]().Field(i)
		if has := meta.ColumnIndexLength > 0; has != (field.Tag.Get("stats") != "") {
			t.Errorf("%s: column index: %v", name, has)
		}
		switch name {
		case "int64_delta", "int32", "maybe_int64":
		default:
			continue
		}
		index, err := chunk.ColumnIndex()
		if err != nil {
			t.Fatal(err)
		}
		offsets, err := chunk.OffsetIndex()
		if err != nil {
			t.Fatal(err)
		}
		if index.IsAscending() != (name != "int32") || index.IsDescending() != (name == "int32") || index.NumPages() < 3 {
			t.Errorf("%s: %d pages, ascending %v, descending %v", name, index.NumPages(), index.IsAscending(), index.IsDescending())
		}
		for p := range index.NumPages() {
			first, end := offsets.FirstRowIndex(p), int64(len(rows))
			if p+1 < index.NumPages() {
				end = offsets.FirstRowIndex(p + 1)
			}
			least, most := first, end-1
			switch name {
			case "int32":
				least, most = -most, -least
			case "maybe_int64":
				if least = max(least, 2500); index.NullPage(p) != (end <= 2500) {
					t.Errorf("%s, page %d: null %v", name, p, index.NullPage(p))
				}
				if index.NullPage(p) {
					continue
				}
			}
			if index.MinValue(p).Int64() != least || index.MaxValue(p).Int64() != most {
				t.Errorf("%s, page %d: from %v to %v, want %d to %d", name, p, index.MinValue(p), index.MaxValue(p), least, most)
			}
		}
	}
}

// TestFlatDictionaries shows that a dictionary ends when it is full, whatever texts come, and begins anew with the next group.
func TestFlatDictionaries(t *testing.T) {
	rows := make([]flatRow, 20000)
	for i := range rows {
		// All have the same length and the same ends.
		rows[i].Dict = fmt.Sprintf("the same beginning %05d %s the same end", i, strings.Repeat("-", 60))
		rows[i].MaybeDict = rows[i/3].Dict
	}
	var file bytes.Buffer
	w := newFlatWriter[flatRow](&file, pageBytes, nil)
	for range 2 {
		if _, err := w.Write(rows); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := openBytes(t, file.Bytes())
	got, err := parquet.Read[flatRow](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat(rows, rows); !reflect.DeepEqual(got, want) {
		t.Error("other rows are read than were written")
	}
	for _, group := range f.Metadata().RowGroups {
		var plain, indexed int32
		for _, stats := range group.Columns[2].MetaData.EncodingStats {
			switch {
			case stats.PageType == format.DataPage && stats.Encoding == format.Plain:
				plain += stats.Count
			case stats.PageType == format.DataPage:
				indexed += stats.Count
			}
		}
		if plain == 0 || indexed == 0 {
			t.Errorf("%d plain pages, %d with indexes", plain, indexed)
		}
	}
}

// TestDictionary numbers texts that are alike, of all lengths, in whose middle alone the long ones differ, wherever they lie; and
// numbers small, large and negative.
func TestDictionary(t *testing.T) {
	rng := rand.New(rand.NewPCG(9309, 4))
	texts, numbers := make([]string, 64), make([]int32, 64)
	ofTexts := fieldOf{unsafe.Pointer(&texts[0]), unsafe.Sizeof(texts[0]), len(texts)}
	ofNumbers := fieldOf{unsafe.Pointer(&numbers[0]), unsafe.Sizeof(numbers[0]), len(numbers)}
	byText, byPlace, ofCounts := newDictionary(), newDictionary(), newDictionary()
	for range 3 { // row groups
		known, counted := map[string]uint16{}, map[int32]uint16{}
		for range 400 {
			var want, wantCounts [64]uint16
			for i := range texts {
				if i > 0 && rng.IntN(4) == 0 {
					texts[i] = texts[rng.IntN(i)] // where it lies already
				} else {
					text := bytes.Repeat([]byte("a"), rng.IntN(60))
					for range min(len(text), rng.IntN(3)) {
						text[rng.IntN(len(text))] = 'b'
					}
					texts[i] = string(text)
				}
				if _, has := known[texts[i]]; !has {
					known[texts[i]] = uint16(len(known))
				}
				want[i] = known[texts[i]]
				numbers[i] = int32(rng.Uint32()) >> rng.IntN(32)
				if _, has := counted[numbers[i]]; !has {
					counted[numbers[i]] = uint16(len(counted))
				}
				wantCounts[i] = counted[numbers[i]]
			}
			var got [64]uint16
			if byText.indexesByText(ofTexts, &got); got != want {
				t.Fatalf("by text: got %v, want %v of %q", got, want, texts)
			}
			byPlace.writes++
			if byPlace.indexesByPlace(ofTexts, &got); got != want {
				t.Fatalf("by place: got %v, want %v of %q", got, want, texts)
			}
			if ofCounts.indexesOfNumbers(ofNumbers, &got); got != wantCounts {
				t.Fatalf("got %v, want %v of %v", got, wantCounts, numbers)
			}
		}
		if byText.n != len(known) || len(byText.texts) != len(known) || ofCounts.n != len(counted) || len(ofCounts.page) != 4*len(counted) {
			t.Errorf("%d texts and %d numbers, want %d and %d", byText.n, ofCounts.n, len(known), len(counted))
		}
		for _, d := range []*dictionary{byText, byPlace, ofCounts} {
			d.reset()
		}
	}
}

// FuzzLevels holds our levels against parquet-go's reader of them.
func FuzzLevels(f *testing.F) {
	f.Add([]byte{}, 0)
	f.Add(bytes.Repeat([]byte{0xff}, 40), 3)
	f.Add(slices.Concat(make([]byte, 17), []byte{1, 2, 3}, bytes.Repeat([]byte{0xff}, 24)), 7)
	f.Fuzz(func(t *testing.T, set []byte, cut int) {
		n := max(0, 8*len(set)-(cut&7))
		var b bitmap
		var want []byte
		for i := 0; i < n; {
			step := min(n-i, 1+(i*7+cut&0xff)%64)
			var word uint64
			for k := range step {
				bit := set[(i+k)/8] >> ((i + k) % 8) & 1
				word |= uint64(bit) << k
				want = append(want, bit)
			}
			b.add(word, step)
			i += step
		}
		got, err := (&rle.Encoding{BitWidth: 1}).DecodeLevels(nil, b.appendLevels(nil))
		if err != nil || len(got) < n || len(got) > n+7 || !bytes.Equal(got[:n], want) {
			t.Fatalf("%v: got %v, want %v", err, got, want)
		}
	})
}

// FuzzIndexes holds our indexes against parquet-go's reader of them.
func FuzzIndexes(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, uint8(31))
	f.Add(bytes.Repeat([]byte{7}, 100), uint8(3))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 2, 0, 0}, 9), uint8(17))
	f.Fuzz(func(t *testing.T, raw []byte, width uint8) {
		var want []uint16
		for _, b := range raw {
			spread := uint16(b) * 0x0101
			want = append(want, spread&(1<<(width%17)-1))
		}
		for run := 0; run < 2; run++ {
			encoded := appendIndexes(bytes.Repeat([]byte{0xff}, 2*len(want)+40)[:0], want) // where another page was before
			var bits uint16
			for _, index := range want {
				bits |= index
			}
			if runs, all := runsOf(want); runs != len(slices.Compact(slices.Clone(want))) || all != bits {
				t.Fatalf("%d runs with bits %b of %v", runs, all, want)
			}
			got, err := new(rle.DictionaryEncoding).DecodeInt32(nil, encoded)
			equal := func(got int32, want uint16) bool { return got == int32(want) }
			if err != nil || len(got) < len(want) || len(got) > len(want)+7 || !slices.EqualFunc(got[:len(want)], want, equal) ||
				slices.ContainsFunc(got[len(want):], func(beyond int32) bool { return beyond != 0 }) {
				t.Fatalf("%v: %x: got %v, want %v", err, encoded, got, want)
			}
			var long []uint16 // the same with runs
			for i, v := range want {
				long = append(long, slices.Repeat([]uint16{v}, 1+i%300)...)
			}
			want = long
		}
	})
}

// TestFlatAllocations shows that rows cost no memory that is not used again.
func TestFlatAllocations(t *testing.T) {
	rows := rowtest.Rows[VerdictRow](4096)
	w := newFlatWriter[VerdictRow](nil, pageBytes, nil)
	write := func() {
		w.Reset(discarded{})
		for range 16 {
			if _, err := w.Write(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if n := testing.AllocsPerRun(3, write); n/float64(16*len(rows)) > 0.1 {
		t.Errorf("%.0f allocations for %d rows", n, 16*len(rows))
	}
}

type discarded struct{}

func (discarded) Write(b []byte) (int, error) { return len(b), nil }

package scan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// changedStore remembers whether it was written to.
type changedStore struct {
	store.Store
	changed atomic.Bool
}

func (s *changedStore) Put(ctx context.Context, name string, data []byte) error {
	s.changed.Store(true)
	return s.Store.Put(ctx, name, data)
}

func (s *changedStore) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	s.changed.Store(true)
	return s.Store.CreateIfAbsent(ctx, name, data)
}

func (s *changedStore) Create(ctx context.Context, name string) (store.Draft, error) {
	s.changed.Store(true)
	return s.Store.Create(ctx, name)
}

func (s *changedStore) Delete(ctx context.Context, name string) error {
	s.changed.Store(true)
	return s.Store.Delete(ctx, name)
}

// asker gives a reader's complete answer as text. A command that writes answers with the data read afterwards.
type asker struct {
	name string
	dear bool // takes much longer than others
	ask  func(ctx context.Context, st store.Store) (any, error)
}

func summaryOf(night string) func(ctx context.Context, st store.Store) (any, error) {
	return func(ctx context.Context, st store.Store) (any, error) {
		return summary.Of(ctx, st, night, summary.Options{Options: doorOptions()})
	}
}

func doorOptions() survey.Options {
	return survey.Options{Registry: publishing.Registry, Log: publishing.Log}
}

// toldOf is the history of every site.
func toldOf(ctx context.Context, st store.Store) (any, error) {
	var all [][]history.Story
	for i := range 4 {
		told, err := history.Stories(ctx, st, fmt.Sprintf("h%d.test", i), history.Asked{})
		if err != nil {
			return nil, err
		}
		all = append(all, told)
	}
	return all, nil
}

func rowsOfFile[T any](ctx context.Context, st store.Store, tableName, night string) (rows []T, err error) {
	for row, err := range table.FileRows[T](ctx, st, commit.StatsName(tableName, strings.TrimPrefix(night, "night-"),
		night)) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, *row)
	}
	return rows, nil
}

// askers are the readers of a dataset, and the commands that delete or seal.
func askers(nights []string) (all []asker) {
	for _, night := range nights[:2] {
		all = append(all, asker{"summary " + night, false, summaryOf(night)})
	}
	last := nights[len(nights)-1]
	return append(all,
		asker{"report", true, func(ctx context.Context, st store.Store) (any, error) {
			return tables.Take(ctx, st, nights[1], tables.Options{Options: doorOptions(), AllTokens: true})
		}},
		asker{"diff", false, func(ctx context.Context, st store.Store) (any, error) {
			from, to := diff.ScanAt{Store: st, ScanID: nights[0]}, diff.ScanAt{Store: st, ScanID: nights[1]}
			return diff.Scans(ctx, from, to, diff.Options{Options: doorOptions()})
		}},
		asker{"history", false, toldOf},
		asker{"stats", true, func(ctx context.Context, st store.Store) (any, error) {
			if err := stats.Write(ctx, st, nights[1], doorOptions()); err != nil {
				return nil, err
			}
			tokens, err := rowsOfFile[schema.TokenStatsRow](ctx, st, schema.TokenStats, nights[1])
			if err != nil {
				return nil, err
			}
			records, err := rowsOfFile[schema.RecordStatsRow](ctx, st, schema.RecordStats, nights[1])
			return []any{tokens, records}, err
		}},
		asker{"rebuild", true, func(ctx context.Context, st store.Store) (any, error) {
			if err := history.Rebuild(ctx, st, history.Options{}); err != nil {
				return nil, err
			}
			return toldOf(ctx, st)
		}},
		asker{"prune", true, func(ctx context.Context, st store.Store) (any, error) {
			if _, err := Prune(ctx, st, Retention{Nights: strings.TrimPrefix(last, "night-"), Accept: len(nights) - 1},
				publishing); err != nil {
				return nil, err
			}
			if err := history.Rebuild(ctx, st, history.Options{}); err != nil { // the snapshot is all that is left
				return nil, err
			}
			return toldOf(ctx, st)
		}},
		asker{"compact", false, func(ctx context.Context, st store.Store) (any, error) {
			if _, err := compact.Scan(ctx, st, nights[1], compact.Options{}); err != nil {
				return nil, err
			}
			return summaryOf(nights[1])(ctx, st)
		}},
		asker{"views", false, func(ctx context.Context, st store.Store) (any, error) {
			if err := views.Write(ctx, st, nil); err != nil {
				return nil, err
			}
			text, err := store.ReadAll(ctx, st, views.Name, 1<<20)
			return string(text), err
		}})
}

// newDoor writes a dataset of three nights with statistics and history, of which the first is compacted. The second
// lacks a part's sites, unless that is -1.
func newDoor(t *testing.T, lacks int) (files map[string][]byte, nights []string) {
	t.Helper()
	st, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	for night := 1; night <= 3; night++ {
		o := publishing
		o.Compact = night == 1
		sites := []int{0, 1, 2, 3}
		if night == 2 && lacks >= 0 {
			sites = slices.Delete(sites, 2*lacks, 2*lacks+2)
		}
		nights = append(nights, "night-"+nightWith(t, st, night, true, o, sites))
	}
	return filesOf(t, st), nights
}

func filesOf(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for entry, err := range st.List(t.Context(), "") {
		if err == nil {
			files[entry.Name], err = store.ReadAll(t.Context(), st, entry.Name, 1<<30)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// placed returns a dataset of these files.
func placed(t *testing.T, files map[string][]byte) *changedStore {
	t.Helper()
	st, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := st.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	return &changedStore{Store: st}
}

// damage is a file with other content.
type damage struct {
	what, name string
	content    []byte
}

// flipped changes a bit of a byte.
func flipped(name string, data []byte, at int) damage {
	content := slices.Clone(data)
	content[at] ^= 1 << (at % 8)
	return damage{fmt.Sprintf("bit %d of byte %d of %d", at%8, at, len(data)), name, content}
}

// damages are: of the sites of a compacted and of another night, which is swept, every byte of the footer and what
// follows it; of the other files some bytes; each file cut short; and each in the place of the next one of its table.
func damages(files map[string][]byte, nights []string) (swept, others []damage) {
	tables := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		if !strings.HasSuffix(name, ".parquet") {
			continue
		}
		of := name[:strings.LastIndexByte(name, '/')+1]
		if i := strings.Index(of, "/scan_date="); i >= 0 {
			of = of[:i]
		}
		tables[of] = append(tables[of], name)
		footer := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
		if of == schema.Sites && (strings.Contains(name, nights[0]) || strings.HasSuffix(name, nights[1]+"-0-0.parquet")) {
			for at := footer; at < len(data); at++ {
				swept = append(swept, flipped(name, data, at))
			}
		}
		for k := range 4 {
			others = append(others, flipped(name, data, footer+(len(data)-1-footer)*k/3))
		}
		others = append(others, damage{"cut", name, data[:len(data)-1]}, damage{"half", name, data[:len(data)/2]},
			damage{"empty", name, nil})
	}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		for i, name := range tables[table] {
			if other := tables[table][(i+1)%len(tables[table])]; other != name {
				others = append(others, damage{"swapped with " + other, name, files[other]})
			}
		}
	}
	return swept, others
}

// bytesObject is a file in memory.
type bytesObject struct{ *bytes.Reader }

func (bytesObject) Close() error { return nil }

// TestDamagedAnswers shows that a reader of a damaged file of a table gives an error or the answer that the undamaged
// one gives, and that no write or deletion hides the damage.
func TestDamagedAnswers(t *testing.T) {
	files, nights := newDoor(t, -1)
	answer := func(a asker, st store.Store) (text string, err error) {
		got, err := a.ask(t.Context(), st)
		if err != nil {
			return "", err
		}
		encoded, err := json.Marshal(got)
		return string(encoded), err
	}
	all := askers(nights)
	want := map[string]string{}
	for _, a := range all {
		var err error
		if want[a.name], err = answer(a, placed(t, files)); err != nil {
			t.Fatal(a.name, err)
		}
	}
	st := placed(t, files)
	asked, refused, wrong := 0, 0, map[string]int{}
	check := func(d damage, a asker) {
		if st.changed.Load() {
			st = placed(t, files)
		}
		if err := st.Store.Put(t.Context(), d.name, d.content); err != nil {
			t.Fatal(err)
		}
		got, err := answer(a, st)
		asked++
		switch {
		case err != nil:
			refused++
			if !strings.Contains(err.Error(), d.name) && !strings.Contains(err.Error(), "verify") {
				t.Errorf("%s: %s: %s says only: %v", d.name, d.what, a.name, err)
			}
		case got != want[a.name]:
			if wrong[a.name]++; wrong[a.name] <= 3 {
				t.Errorf("%s: %s: %s gives another answer", d.name, d.what, a.name)
			}
		}
		if err := st.Store.Put(t.Context(), d.name, files[d.name]); err != nil {
			t.Fatal(err)
		}
	}
	swept, others := damages(files, nights)
	cheap, dear, turns := 3, 32, 1 // two readers ask at each byte
	if testing.Short() {
		cheap, dear, turns = 3072, 12288, 30
	}
	for i, d := range swept {
		for k, a := range all {
			if !a.dear && (i+k)%cheap == 0 || (i+k)%dear == 0 {
				check(d, a)
			}
		}
	}
	for i, d := range others {
		for k, a := range all {
			if (i+k)%turns == 0 {
				check(d, a)
			}
		}
	}
	t.Logf("%d damages, asked %d times, of which %d were refused", len(swept)+len(others), asked, refused)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%s: %d wrong answers", name, wrong[name])
	}
}

// TestDamagedFooters flips each byte of the footer of each file of a record: the file is refused.
func TestDamagedFooters(t *testing.T) {
	files, nights := newDoor(t, -1)
	scan, err := commit.ReadScan(t.Context(), placed(t, files), nights[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, recorded := range scan.Commits[0].Files {
		if recorded.Footer == "" {
			t.Fatalf("%s has no recorded footer", recorded.Name)
		}
		data := slices.Clone(files[recorded.Name])
		open := func(file schema.File) error {
			at := table.Opened{Place: table.Place{Object: bytesObject{bytes.NewReader(data)}, File: file, Rows: file.Rows}}
			cursor, err := table.NewCursor(t.Context(), at, nil)
			if err == nil {
				err = cursor.Close()
			}
			return err
		}
		earlier := recorded // a record of a bulkscan that did not know the footer's hash
		earlier.Footer = ""
		for _, file := range []schema.File{recorded, earlier} {
			if err := open(file); err != nil {
				t.Fatal(err)
			}
			for at := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:])); at < len(data); at++ {
				data[at] ^= 1 << (at % 8)
				if err := open(file); !table.IsDamage(err) {
					t.Errorf("%s: byte %d: %v", file.Name, at, err)
				}
				data[at] ^= 1 << (at % 8)
			}
		}
	}
}

// TestDamagedDerivedFooters flips each byte of the footers of the ledger's files, of the index and of a month: readers
// give an error or the answer of the undamaged file, the index counts as damaged, and verify finds the month.
func TestDamagedDerivedFooters(t *testing.T) {
	files, _ := newDoor(t, -1)
	later := placed(t, files)
	nightOf(t, later, 4, true) // in the next month
	files = filesOf(t, later)
	readers := map[string]func(st store.Store) (any, error){
		history.Folder: func(st store.Store) (any, error) { return toldOf(t.Context(), st) },
		index.Name: func(st store.Store) (any, error) {
			if state, err := index.Check(t.Context(), st); err != nil || state == index.Damaged {
				return nil, cmp.Or(err, errors.New("damaged"))
			}
			return nil, nil //nolint:nilnil // an undamaged one
		},
		index.MonthsFolder: func(st store.Store) (any, error) {
			if len(findings(t, st, verify.Damaged)) > 0 {
				return nil, errors.New("damaged")
			}
			return nil, nil //nolint:nilnil // an undamaged one
		},
	}
	step := 1
	if testing.Short() {
		step = 48
	}
	flips, refused := 0, 0
	for prefix, read := range readers {
		before := flips
		st := placed(t, files)
		want, err := read(st)
		if err != nil {
			t.Fatal(prefix, err)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			data := files[name]
			if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, ".parquet") {
				continue
			}
			for at := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:])); at < len(data); at += step {
				d := flipped(name, data, at)
				if err := st.Store.Put(t.Context(), name, d.content); err != nil {
					t.Fatal(err)
				}
				got, err := read(st)
				if flips++; err != nil {
					refused++
				} else if prefix != history.Folder || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s: another answer", name, d.what)
				}
			}
			if err := st.Store.Put(t.Context(), name, data); err != nil {
				t.Fatal(err)
			}
		}
		if flips == before {
			t.Errorf("%s: no file", prefix)
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
	t.Logf("%d flips, of which %d were refused", flips, refused)
}

// TestSealersCompareAll changes a byte that no reader reads: the last one before the footer, which belongs to the page
// index. A command that seals or deletes refuses the file and leaves it alone.
func TestSealersCompareAll(t *testing.T) {
	files, nights := newDoor(t, -1)
	name := commit.PartName(schema.Sites, strings.TrimPrefix(nights[1], "night-"), nights[1], "0", 0)
	data := files[name]
	d := flipped(name, data, len(data)-9-int(binary.LittleEndian.Uint32(data[len(data)-8:])))
	for _, a := range askers(nights) {
		st := placed(t, files)
		if err := st.Store.Put(t.Context(), name, d.content); err != nil {
			t.Fatal(err)
		}
		_, err := a.ask(t.Context(), st)
		seals := slices.Contains([]string{"stats", "rebuild", "prune", "compact"}, a.name)
		if refused := err != nil && strings.Contains(err.Error(), name) && strings.Contains(err.Error(),
			"sha256: expected"); refused != seals || !seals && err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		if now, err := store.ReadAll(t.Context(), st, name, 1<<20); err != nil || !bytes.Equal(now, d.content) {
			t.Errorf("%s: the damaged file has changed: %v", a.name, err)
		}
	}
}

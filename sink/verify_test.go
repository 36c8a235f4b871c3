package sink

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// TestVerifySound shows that Verify finds nothing in datasets that bulkscan wrote, complete or not, compacted or not.
func TestVerifySound(t *testing.T) {
	dir := smallDataset(t)
	f := func(leftovers int) {
		t.Helper()
		lines, v := findings(t, dir)
		if len(lines) != leftovers || v.Damaged != 0 || v.Scans != 1 || v.Files == 0 || v.Rows == 0 || v.Bytes == 0 {
			t.Errorf("%+v\n%s", v, strings.Join(lines, "\n"))
		}
	}
	f(0)
	mustCompact(t, dir, compact.Options{PartBytes: 1 << 17})
	f(0)
	mustCompact(t, dir, compact.Options{})
	f(0)
	w := mustOpen(t, dir, crashOptions)
	for seq := uint64(100); seq < 106; seq++ {
		if err := w.Add(typicalSite(t, seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f(0)
	// A part without a commit yet is no damage.
	commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, dir, commits[len(commits)-1].Name())
	f(5)
}

func remove(t testing.TB, dir *store.Dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir.Root(), filepath.FromSlash(name))); err != nil {
		t.Fatal(err)
	}
}

// changed is a store in which one object has other bytes.
type changed struct {
	store.Store
	name string
	data []byte
}

func (c *changed) Open(ctx context.Context, name string) (store.Object, error) {
	if name != c.name {
		return c.Store.Open(ctx, name)
	}
	return &memoryObject{bytes.NewReader(c.data)}, nil
}

type memoryObject struct{ *bytes.Reader }

func (*memoryObject) Close() error { return nil }

// TestVerifyFindsEveryFlip changes one bit of each byte in all files of a dataset. The check of the file must find each
// change. For a sample, all of Verify must name the file.
func TestVerifyFindsEveryFlip(t *testing.T) {
	dir := smallDataset(t)
	ctx := t.Context()
	commits, err := commit.Commits(ctx, dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]schema.File{}
	for _, c := range commits[len(commits)-1:] { // the last part has two sites only
		for _, f := range c.Files {
			files[f.Name] = f
		}
	}
	for _, table := range commit.RecordedFiles {
		record, err := commit.ReadFileRecord(ctx, dir, crashOptions.ScanID, table)
		if err != nil {
			t.Fatal(err)
		}
		files[record.File.Name] = record.File
	}
	// check runs Verify's check of one file.
	check := func(st store.Store, name string) (found bool) {
		var err error
		switch f, isFile := files[name]; {
		case isFile:
			wrong, err := verify.File(ctx, st, f, crashOptions.ScanID)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return len(wrong) > 0 && wrong[0].File == name
		case name == views.Name:
			data, err := store.ReadAll(ctx, st, name, views.MaxBytes)
			return err != nil || !views.Sound(data)
		case name == schema.PackageName:
			state, err := index.Check(ctx, st)
			return err != nil || state == index.Undescribed
		case commit.IsHead(name):
			_, err = commit.OpenHead(ctx, st, name)
		case strings.HasSuffix(name, "/manifest.json"):
			_, err = commit.ReadAnyManifest(ctx, st, crashOptions.ScanID)
		case strings.Contains(name, "/commits/"):
			_, err = commit.ReadCommit(ctx, st, crashOptions.ScanID, name)
		case strings.Contains(name, "/files/"):
			_, err = commit.ReadFileRecord(ctx, st, crashOptions.ScanID, strings.TrimSuffix(filepath.Base(name), ".json"))
		default:
			t.Fatalf("%s: nothing verifies it", name)
		}
		return err != nil
	}
	var names []string
	for entry, err := range dir.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		_, isFile := files[entry.Name]
		if isFile || !strings.HasSuffix(entry.Name, ".parquet") {
			names = append(names, entry.Name)
		}
	}
	var total int
	samples := rand.New(rand.NewPCG(1, 2))
	for _, name := range names {
		data, err := store.ReadAll(ctx, dir, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if check(dir, name) {
			t.Fatalf("%s: damaged before it was changed", name)
		}
		total += len(data)
		stride := 1
		if raceEnabled || testing.Short() {
			stride = 97
		}
		mark := -1
		if name == schema.PackageName { // compared with all records
			stride, mark = max(stride, len(data)/300), bytes.Index(data, []byte(schema.PackageMark))
		}
		var wait sync.WaitGroup
		turns := make(chan struct{}, runtime.GOMAXPROCS(0))
		for at := 0; at < len(data); at += stride {
			if mark >= 0 && at >= mark && at < mark+len(schema.PackageMark) {
				continue // without the mark it is a person's
			}
			changes := []byte{1 << (at % 8)} // another bit in each of eight neighbouring bytes
			if !strings.HasSuffix(name, ".parquet") && stride == 1 {
				changes = []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} // includes the case of a letter, a digit, the end of a text
			}
			whole := samples.IntN(400) == 0
			turns <- struct{}{}
			wait.Go(func() {
				defer func() { <-turns }()
				flipped := bytes.Clone(data)
				st := &changed{dir, name, flipped}
				for _, change := range changes {
					flipped[at] = data[at] ^ change
					if !check(st, name) {
						t.Errorf("%s: byte %d, %02x instead of %02x, is not noticed", name, at, flipped[at], data[at])
					}
				}
				if whole {
					if lines, v := findings(t, st); v.Damaged+v.Leftovers == 0 || !strings.Contains(strings.Join(lines, "\n"), name) {
						t.Errorf("%s, byte %d: %q", name, at, lines)
					}
				}
			})
		}
		wait.Wait()
	}
	t.Logf("%d bytes of %d files", total, len(names))
}

// TestVerifyFinds damages a dataset in other ways than by changing a byte. Each text is the beginning of an expected
// finding.
func TestVerifyFinds(t *testing.T) {
	const scan = "_scans/crash-1/"
	part := func(table string, n int) string {
		return commit.PartName(table, "2026-11-21", crashOptions.ScanID, "0", n)
	}
	path := func(dir *store.Dir, name string) string { return filepath.Join(dir.Root(), filepath.FromSlash(name)) }
	read := func(t *testing.T, dir *store.Dir, name string) []byte {
		data, err := os.ReadFile(path(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	write := func(t *testing.T, dir *store.Dir, name string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(path(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// edit changes a commit and seals it again, as a manipulation would.
	edit := func(t *testing.T, dir *store.Dir, n int, change func(*commit.Commit)) {
		name := commit.RecordName(crashOptions.ScanID, "0", n)
		c, err := commit.ReadCommit(t.Context(), dir, crashOptions.ScanID, name)
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		data, err := commit.SealRecord(c, &c.Sum)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, data)
	}
	f := func(name string, damage func(t *testing.T, dir *store.Dir), want ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := smallDataset(t)
			damage(t, dir)
			lines, v := findings(t, dir)
			if v.Damaged == 0 {
				t.Error("nothing is damaged")
			}
			for _, line := range want {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, line) }) {
					t.Errorf("no finding %q in\n%s", line, strings.Join(lines, "\n"))
				}
			}
			if len(lines) > len(want)+4 {
				t.Errorf("one damage and %d findings:\n%s", len(lines), strings.Join(lines, "\n"))
			}
		})
	}
	f("truncated", func(t *testing.T, dir *store.Dir) {
		write(t, dir, part("sites", 1), read(t, dir, part("sites", 1))[:5000])
	}, "damaged: "+part("sites", 1)+": bytes: expected ")
	f("emptied", func(t *testing.T, dir *store.Dir) { write(t, dir, part("bodies", 1), nil) },
		"damaged: "+part("bodies", 1)+": bytes: expected ")
	f("longer", func(t *testing.T, dir *store.Dir) {
		write(t, dir, part("sites", 1), append(read(t, dir, part("sites", 1)), 0))
	}, "damaged: "+part("sites", 1)+": bytes: expected ")
	f("swapped", func(t *testing.T, dir *store.Dir) {
		a, b := read(t, dir, part("verdicts", 0)), read(t, dir, part("verdicts", 1))
		write(t, dir, part("verdicts", 0), b)
		write(t, dir, part("verdicts", 1), a)
	}, "damaged: "+part("verdicts", 0)+": ", "damaged: "+part("verdicts", 1)+": ")
	f("part deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, part("evidence", 2)) },
		"damaged: "+part("evidence", 2)+": it is missing")
	f("part added", func(t *testing.T, dir *store.Dir) { write(t, dir, part("sites", 7), read(t, dir, part("sites", 1))) },
		"damaged: "+part("sites", 7)+": no commit names it")
	f("part of another scan added", func(t *testing.T, dir *store.Dir) {
		write(t, dir, commit.PartName("sites", "2026-11-21", "nobody", "0", 7), read(t, dir, part("sites", 1)))
	}, "damaged: "+commit.PartName("sites", "2026-11-21", "nobody", "0", 7)+
		": no commit names it, and it belongs to no scan")
	f("file of another name added", func(t *testing.T, dir *store.Dir) {
		write(t, dir, "verdicts/copy.parquet", read(t, dir, part("verdicts", 1)))
	}, "damaged: verdicts/copy.parquet: no commit names it, and it belongs to no scan")
	f("first commit deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, scan+"commits/0-0.json") },
		"damaged: "+scan+"commits/0-0.json: it is missing", "damaged: "+scan+
			"manifest.json: counts.rows: expected 10, found 6",
		"damaged: "+scan+"manifest.json: counts.table_rows.verdicts: expected 40, found 24", "damaged: "+part("sites", 0)+
			": no commit names it",
		"damaged: "+part("verdicts", 0), "damaged: "+part("evidence", 0), "damaged: "+part("bodies", 0), "damaged: "+
			part("policies", 0), "damaged: "+scan+"manifest.json: counts.table_rows.policies", "damaged: "+scan+
			"manifest.json: counts.parts: expected 3, found 2")
	f("last commit deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, scan+"commits/0-2.json") },
		"damaged: "+scan+"manifest.json: counts.rows: expected 10, found 8", "damaged: "+part("sites", 2)+
			": no commit names it",
		"damaged: "+scan+"manifest.json: counts.table_rows.sites", "damaged: "+scan+
			"manifest.json: counts.table_rows.verdicts",
		"damaged: "+scan+"manifest.json: counts.parts: expected 3, found 2", "damaged: "+part("verdicts", 2), "damaged: "+
			part("evidence", 2), "damaged: "+part("bodies", 2), "damaged: "+part("policies", 2))
	f("commit edited", func(t *testing.T, dir *store.Dir) {
		name := scan + "commits/0-1.json"
		write(t, dir, name, bytes.Replace(read(t, dir, name), []byte(`"rows": 4`), []byte(`"rows": 3`), 1))
	}, "damaged: "+scan+"commits/0-1.json: it is damaged: its sum")
	f("commit edited, its sum taken out", func(t *testing.T, dir *store.Dir) {
		name := scan + "commits/0-1.json"
		data := bytes.Replace(read(t, dir, name), []byte(`"rows": 4`), []byte(`"rows":  3`), 1)
		write(t, dir, name, append(data[:bytes.Index(data, []byte(",\n  \"sum\""))], "\n}\n"...))
	}, "damaged: "+scan+"commits/0-1.json: it is damaged: it does not end with a sum")
	f("records of rejects and statistics deleted, of a scan that does not say it had them",
		func(t *testing.T, dir *store.Dir) {
			m, err := commit.ReadManifest(t.Context(), dir, crashOptions.ScanID)
			if err != nil {
				t.Fatal(err)
			}
			m.Recorded = nil
			if err := m.Write(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			for _, file := range commit.RecordedFiles {
				remove(t, dir, commit.FileRecordName(crashOptions.ScanID, file))
			}
		}, "damaged: "+commit.RejectsName(crashOptions.ScanID)+": no record has its hash", "damaged: "+
			commit.StatsName(schema.TokenStats, "2026-11-21", crashOptions.ScanID)+": no record has its hash",
		"damaged: "+commit.StatsName(schema.RecordStats, "2026-11-21", crashOptions.ScanID)+": no record has its hash")
	f("commit of no JSON", func(t *testing.T, dir *store.Dir) { write(t, dir, scan+"commits/0-1.json", []byte("{]")) },
		"damaged: "+scan+"commits/0-1.json: it is damaged")
	f("commit renamed", func(t *testing.T, dir *store.Dir) {
		write(t, dir, scan+"commits/0-3.json", read(t, dir, scan+"commits/0-1.json"))
	}, "damaged: "+scan+`commits/0-3.json: it is damaged: its content is that of "_scans/crash-1/commits/0-1.json"`)
	f("site twice", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1, func(c *commit.Commit) { c.Finished = bitmapOf(t, 0, 5, 6, 7) })
	}, "damaged: "+scan+"commits/0-1.json: 1 of its sites are in earlier commits, too; the first is seq 0",
		"damaged: "+part("sites", 1)+": its seq are not those of its commit: 1 rows too many, 1 sites without a row",
		"damaged: "+part("verdicts", 1)+": 4 rows of sites that are not in its commit", "damaged: "+part("evidence", 1))
	f("bitmap of another size", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1, func(c *commit.Commit) { c.Finished = bitmapOf(t, 4, 5) })
	}, "damaged: "+scan+"commits/0-1.json: it has 2 entries for 4 rows")
	f("hash of another file", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1, func(c *commit.Commit) { c.Files[4].SHA256 = strings.Repeat("0", 64) })
	}, "damaged: "+part("sites", 1)+
		": sha256: expected 0000000000000000000000000000000000000000000000000000000000000000, found ")
	f("rows of a file", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1,
			func(c *commit.Commit) { c.Files[2].Rows++ })
	},
		"damaged: "+part("verdicts", 1)+": rows: expected 17, found 16")
	f("file of another place", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1, func(c *commit.Commit) { c.Files[4].Name = "sites/elsewhere.parquet" })
		write(t, dir, "sites/elsewhere.parquet", read(t, dir, part("sites", 1)))
		remove(t, dir, part("sites", 1))
	}, "damaged: "+scan+"commits/0-1.json: name of the file of sites: expected "+part("sites", 1)+
		", found sites/elsewhere.parquet")
	f("table left out", func(t *testing.T, dir *store.Dir) {
		edit(t, dir, 1,
			func(c *commit.Commit) { c.Files = c.Files[1:] })
	},
		"damaged: "+scan+
			"commits/0-1.json: tables: expected bodies,evidence,policies,sites,verdicts, found evidence,verdicts,policies,sites")
	f("manifest deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, scan+"manifest.json") },
		"damaged: "+scan+"manifest.json: it is missing")
	f("manifest edited", func(t *testing.T, dir *store.Dir) {
		write(t, dir, scan+"manifest.json", bytes.Replace(read(t, dir, scan+"manifest.json"), []byte("complete"),
			[]byte("running"), 1))
	}, "damaged: "+scan+"manifest.json: it is damaged: its sum")
	f("statistics replaced", func(t *testing.T, dir *store.Dir) {
		write(t, dir, commit.StatsName("token_stats", "2026-11-21", "crash-1"),
			read(t, dir, commit.StatsName("record_stats", "2026-11-21", "crash-1")))
	}, "damaged: "+commit.StatsName("token_stats", "2026-11-21", "crash-1"))
	f("statistics deleted", func(t *testing.T, dir *store.Dir) {
		remove(t, dir, commit.StatsName("token_stats", "2026-11-21", "crash-1"))
	},
		"damaged: "+commit.StatsName("token_stats", "2026-11-21", "crash-1")+": it is missing")
	f("rejects deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, "_rejects/crash-1.jsonl") },
		"damaged: _rejects/crash-1.jsonl: it is missing")
	f("record of statistics deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, scan+"files/token_stats.json") },
		"damaged: "+scan+"files/token_stats.json: it is missing, and was there when the scan became complete")
	f("record and statistics deleted, after a compaction", func(t *testing.T, dir *store.Dir) {
		mustCompact(t, dir, compact.Options{})
		remove(t, dir, scan+"files/record_stats.json")
		remove(t, dir, commit.StatsName("record_stats", "2026-11-21", "crash-1"))
	}, "damaged: "+scan+"files/record_stats.json: it is missing, and was there when the scan became complete")
	f("record and rejects deleted", func(t *testing.T, dir *store.Dir) {
		remove(t, dir, scan+"files/rejects.json")
		remove(t, dir, "_rejects/crash-1.jsonl")
	}, "damaged: "+scan+"files/rejects.json: it is missing, and was there when the scan became complete")
	f("statistics of a part of the sites", func(t *testing.T, dir *store.Dir) {
		early := mustReadScan(t, dir, "crash-1")
		scanWithStats(t, dir, crashOptions, typicalSites(t, crashSites+2)...)
		writeStatsOf(t, dir, early, schema.TokenStats, schema.TokenStatsRow{Token: "GPTBot", SegmentKind: "all"})
	}, "damaged: "+commit.StatsName("token_stats", "2026-11-21", "crash-1")+
		": it does not have all sites; bulkscan stats computes it anew: expected 12, found 10")
	f("views changed", func(t *testing.T, dir *store.Dir) {
		write(t, dir, views.Name, append(read(t, dir, views.Name), "DROP TABLE x;\n"...))
	}, "damaged: views.sql: it is not as bulkscan wrote it")
	f("views deleted", func(t *testing.T, dir *store.Dir) { remove(t, dir, views.Name) },
		"damaged: views.sql: it is missing; any scan, stats or compact writes it anew")
}

// TestVerifyForeignFiles shows that foreign files in the folders of tables are reported, and not as damage. They are
// not reported if one scan is verified.
func TestVerifyForeignFiles(t *testing.T) {
	dir := smallDataset(t)
	names := []string{
		"sites/readme.txt", "sites/scan_date=2026-11-21/_SUCCESS",
		"verdicts/scan_date=2026-11-21/part-crash-1-0-0.parquet.crc",
		"bodies/scan_date=2026-11-21/part-crash-1-0-0.parquet.bak",
		"evidence/more/of/it.csv", "token_stats/notes", "record_stats/scan_date=2026-11-21/x.json", "_rejects/crash-1.txt",
	}
	for _, name := range names {
		if err := dir.Put(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	lines, v := findings(t, dir)
	for _, name := range names {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "leftover: "+name+
				": it is not a file of bulkscan")
		}) {
			t.Errorf("%s is not named", name)
		}
	}
	if v.Leftovers != len(names) || v.Damaged != 0 {
		t.Errorf("%+v\n%s", v, strings.Join(lines, "\n"))
	}
	if v, err := verify.Dataset(t.Context(), dir, verify.Options{ScanID: crashOptions.ScanID}); err != nil ||
		v.Leftovers != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

func bitmapOf(t testing.TB, seqs ...uint64) []byte {
	t.Helper()
	data, err := roaring64.BitmapOf(seqs...).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzVerifyParquet checks hostile files: the code that reads pages must end without a panic, in little memory.
//
//	go test ./sink -run '^$' -fuzz FuzzVerifyParquet -fuzztime 10s
func FuzzVerifyParquet(f *testing.F) {
	dir, err := store.NewDir(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	for seq := range uint64(2) {
		w, err := Open(context.Background(), dir, Options{ScanID: fmt.Sprint(seq), Tables: []string{schema.Evidence}})
		if err != nil {
			f.Fatal(err)
		}
		if err := w.Add(typicalSite(f, seq)); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(context.Background()); err != nil {
			f.Fatal(err)
		}
		for entry := range dir.List(context.Background(), "evidence/") {
			data, err := store.ReadAll(context.Background(), dir, entry.Name, 1<<20)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	// A footer whose first list claims two thousand million entries.
	huge := append([]byte(table.Magic), 0x15, 2, 0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07)
	f.Add(append(binary.LittleEndian.AppendUint32(huge, 9), table.Magic...))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := schema.File{Table: schema.Evidence, Name: "x", Bytes: int64(len(data)), Rows: 3}
		st := &changed{dir, "x", data}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if found, err := verify.File(context.Background(), st, file, "0"); err != nil || len(found) == 0 {
			t.Errorf("%v, %v", found, err) // at least the hash differs
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20+100*uint64(len(data)) {
			t.Errorf("%d bytes of memory for a file of %d", took, len(data))
		}
		for _, err := range table.FileRows[schema.EvidenceRow](context.Background(), st, "x") {
			if err != nil {
				break
			}
		}
		draft, _, err := table.Concat(context.Background(), st, st, "y", []schema.File{file}, nil)
		if err == nil {
			t.Error("copied although its hash is another")
			_ = draft.Discard()
		}
	})
}

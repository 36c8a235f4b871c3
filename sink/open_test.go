package sink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestOneWriter shows that a scan has one writer at a time, and that the error names it.
func TestOneWriter(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: "one"})
	_, err := Open(t.Context(), dir, Options{ScanID: "one"})
	held, ok := errors.AsType[*commit.HeldError](err)
	if !ok || held.Holder.PID != os.Getpid() || held.Holder.StartedAt.IsZero() {
		t.Fatalf("the second Open: %v", err)
	}
	if host, _ := os.Hostname(); !strings.Contains(err.Error(), host) {
		t.Errorf("the error names no host: %v", err)
	}
	if err := (&commit.HeldError{ScanID: "one"}); strings.Contains(err.Error(), "0001") {
		t.Errorf("the error names no holder: %v", err)
	}
	mustOpen(t, dir, Options{ScanID: "two"})
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{ScanID: "one"})
}

// TestClockSetBack completes a scan again by a clock that was set back since its first end: it is no damage, and stays
// published.
func TestClockSetBack(t *testing.T) {
	dir := newDir(t)
	scan := func(sites uint64) *commit.Manifest {
		t.Helper()
		w := mustOpen(t, dir, Options{ScanID: "one"})
		if m, err := commit.ReadManifest(t.Context(), dir, "one"); err != nil || m.State != commit.Running {
			t.Errorf("while it runs: %+v, %v", m, err)
		}
		for i := range sites {
			if err := w.Add(typicalSite(t, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(completeListed(t.Context(), w), w.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		m, err := commit.ReadManifest(t.Context(), dir, "one")
		if err != nil || !m.Published() {
			t.Fatalf("it is %+v, %v", m, err)
		}
		return m
	}
	m := scan(1)
	later := m.FinishedAt.Add(time.Hour)
	m.FinishedAt = &later
	if err := errors.Join(m.Write(t.Context(), dir), commit.Adopt(t.Context(), dir, nil, m)); err != nil {
		t.Fatal(err)
	}
	if m := scan(0); m.FinishedAt.Before(later) {
		t.Errorf("it ended at %v", m.FinishedAt)
	}
}

// TestResume shows which settings may differ when a scan is resumed, and which are refused by name.
func TestResume(t *testing.T) {
	base := func() Options {
		return Options{
			ScanID: "r", Date: "2026-11-20", ToolVersion: "1", Tables: []string{schema.Sites},
			Config: []commit.Setting{{Name: "max-body", Value: "512000", Answers: true}, {Name: "concurrency", Value: "1000",
				Answers: false}},
			Inputs: []commit.Input{{Name: "top.csv", Bytes: 10, Fingerprint: "abc"}, {Name: "more.csv", Bytes: 0,
				Fingerprint: "def"}},
		}
	}
	f := func(change func(*Options), want string) {
		t.Helper()
		dir := newDir(t)
		w := mustOpen(t, dir, base())
		if err := w.Add(typicalSite(t, 5)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := base()
		change(&o)
		w, err := Open(t.Context(), dir, o)
		if want == "" {
			if err != nil {
				t.Errorf("cannot resume: %v", err)
				return
			}
			if !w.Done(5) || w.Done(4) || w.ScanDate() != "2026-11-20" {
				t.Errorf("resumed with %d done, date %s", w.DoneCount(), w.ScanDate())
			}
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		if _, ok := errors.AsType[*commit.ChangedError](err); !ok || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--restart") || !strings.Contains(err.Error(), "--scan-id") {
			t.Errorf("want an error with %q and the remedy, got %v", want, err)
		}
		o.Restart = true
		w, err = Open(t.Context(), dir, o)
		if err != nil {
			t.Errorf("cannot restart: %v", err)
			return
		}
		if w.Done(5) || w.DoneCount() != 0 {
			t.Errorf("restarted with %d done", w.DoneCount())
		}
		for entry := range dir.List(t.Context(), "") {
			if !slices.Contains([]string{commit.ManifestName("r"), commit.RecordName("r", commit.CompactedShard, 0), views.Name,
				index.Name}, entry.Name) {
				t.Errorf("left by --restart: %s", entry.Name)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	f(func(*Options) {}, "")
	f(func(o *Options) { o.Date = "2026-11-21" }, "")
	f(func(o *Options) { o.Config[1].Value = "10" }, "")
	f(func(o *Options) { o.ToolVersion = "2" }, "")
	f(func(o *Options) { o.Inputs[0].Name = "moved/top.csv" }, "")
	f(func(o *Options) {
		o.Config = append(o.Config, commit.Setting{Name: "progress", Value: "none", Answers: false})
	}, "")
	f(func(o *Options) { o.Config[0].Value = "1000" }, `--max-body was "512000" and is now "1000"`)
	f(func(o *Options) { o.Config = o.Config[1:] }, `--max-body was "512000" and is now ""`)
	f(func(o *Options) {
		o.Config = append(o.Config, commit.Setting{Name: "strict-tls", Value: "true", Answers: true})
	}, "--strict-tls")
	f(func(o *Options) { o.Inputs[0].Bytes = 11 }, "")
	f(func(o *Options) { o.Tables = []string{schema.Sites} }, "")
	f(func(o *Options) { o.Inputs[1].Fingerprint = "xyz" },
		`the fingerprint of input more.csv was "def (more.csv)" and is now "xyz (more.csv)"`)
	f(func(o *Options) { o.Inputs[0] = commit.Input{Name: "bottom.csv", Bytes: 11, Fingerprint: "cba"} },
		`the fingerprint of input bottom.csv was "abc (top.csv, 10 bytes)" and is now "cba (bottom.csv, 11 bytes)"`)
	f(func(o *Options) { slices.Reverse(o.Inputs) }, `the fingerprint of input more.csv was "abc (top.csv, 10 bytes)"`)
	f(func(o *Options) { o.Inputs = o.Inputs[:1] },
		`the number of inputs was "2 (top.csv, more.csv)" and is now "1 (top.csv)"`)
	f(func(o *Options) { o.Tables = []string{schema.Sites, schema.Verdicts} }, "--tables")
	f(func(o *Options) { r := *tokens.Default(); r.Version = "other"; o.Registry = &r }, "the token registry")
}

// TestRestartLeavesOthers shows that --restart deletes the files of its scan, whatever their table and date, and no
// others, even with a common prefix.
func TestRestartLeavesOthers(t *testing.T) {
	dir := newDir(t)
	for _, id := range []string{"a", "a-0", "a-0-1"} {
		w := mustOpen(t, dir, Options{ScanID: id, Date: "2026-11-21"})
		if err := w.Add(typicalSite(t, 1)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{schema.TokenStats, schema.RecordStats} {
			if err := dir.Put(t.Context(), commit.StatsName(table, "2026-11-21", id), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := dir.Put(t.Context(), commit.RejectsName("a-0"), nil); err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, dir, Options{ScanID: "a-0", Restart: true})
	if w.DoneCount() != 0 {
		t.Errorf("%d done", w.DoneCount())
	}
	left := map[string]int{}
	for entry, err := range dir.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		left[strings.SplitN(entry.Name, "/", 2)[0]]++
		if strings.Contains(entry.Name, "part-a-0-0-0.") || strings.HasSuffix(entry.Name, "part-a-0.parquet") {
			t.Errorf("left: %s", entry.Name)
		}
	}
	want := map[string]int{"_scans": 2 + 2 + 2 + 1, "sites": 2, "verdicts": 2, "evidence": 2, "bodies": 2, "policies": 2,
		"token_stats": 2, "record_stats": 2, views.Name: 1}
	if !reflect.DeepEqual(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	for _, id := range []string{"a", "a-0-1"} {
		if rows := readAll[schema.SiteRow](t, dir, id, schema.Sites); len(rows) != 1 {
			t.Errorf("scan %s has %d rows", id, len(rows))
		}
	}
}

// TestShards shows that two shards of a scan are independent, and that resuming one keeps the other's files.
func TestShards(t *testing.T) {
	dir := newDir(t)
	for i, shard := range []string{"0", "1", "10"} {
		w := mustOpen(t, dir, Options{ScanID: "s", Shard: shard, Date: "2026-11-21"})
		if w.DoneCount() != uint64(i) {
			t.Errorf("shard %s begins with %d done", shard, w.DoneCount())
		}
		if err := w.Add(typicalSite(t, uint64(i))); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A file of shard 1 without a commit stays when shard 10 is resumed, and is deleted when shard 1 is.
	orphan := commit.PartName(schema.Sites, "2026-11-21", "s", "1", 7)
	if err := dir.Put(t.Context(), orphan, nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		shard string
		there bool
	}{{"10", true}, {"1", false}} {
		w := mustOpen(t, dir, Options{ScanID: "s", Shard: step.shard})
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir.Root(), orphan)); (err == nil) != step.there {
			t.Errorf("after shard %s the file is there: %v", step.shard, err == nil)
		}
	}
	if rows := readAll[schema.SiteRow](t, dir, "s", schema.Sites); len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestDamageIsNoticed shows that a scan with missing or truncated committed files is not resumed.
func TestDamageIsNoticed(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, "d", typicalSite(t, 1))
	name := filepath.Join(dir.Root(), commit.PartName(schema.Sites, "2026-11-21", "d", "0", 0))
	if err := os.Truncate(name, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, Options{ScanID: "d"}); err == nil || !strings.Contains(err.Error(), "verify") {
		t.Errorf("Open on a cut file: %v", err)
	}
	scan, err := commit.ReadScan(t.Context(), dir, "d")
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range read.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
	}
	if err == nil {
		t.Error("a cut file was read")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, Options{ScanID: "d"}); err == nil {
		t.Error("Open without a committed file")
	}
	commit := filepath.Join(dir.Root(), commit.RecordName("d", "0", 0))
	if err := os.WriteFile(commit, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, Options{ScanID: "d"}); err == nil {
		t.Error("Open with a broken commit")
	}
	// An empty record is the claim of a killed process. It never counted.
	if err := os.WriteFile(commit, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, dir, Options{ScanID: "d", Repair: true})
	if w.DoneCount() != 0 {
		t.Errorf("%d done", w.DoneCount())
	}
	if err := w.Add(typicalSite(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := readAll[schema.SiteRow](t, dir, "d", schema.Sites); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestOptions(t *testing.T) {
	dir := newDir(t)
	f := func(change func(*Options)) {
		t.Helper()
		o := Options{ScanID: "x"}
		change(&o)
		if w, err := Open(t.Context(), dir, o); err == nil {
			t.Errorf("opened %+v", o)
			_ = w.Abort()
		}
	}
	f(func(o *Options) { o.ScanID = "" })
	f(func(o *Options) { o.ScanID = "../x" })
	f(func(o *Options) { o.ScanID = ".x" })
	f(func(o *Options) { o.ScanID = strings.Repeat("x", 65) })
	f(func(o *Options) { o.Shard = "a-b" })
	f(func(o *Options) { o.Date = "21.11.2026" })
	f(func(o *Options) { o.Tables = []string{} })
	f(func(o *Options) { o.Tables = []string{"token_stats"} })
	f(func(o *Options) { o.Tables = []string{"sites", "sites"} })
	f(func(o *Options) { o.PartRows = -1 })
}

// TestOpenContext shows that ending the context of Open does not end the Writer.
func TestOpenContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := newDir(t)
	w, err := Open(ctx, dir, Options{ScanID: "ctx"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Add(typicalSite(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := readAll[schema.SiteRow](t, dir, "ctx", schema.Sites); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestRestartWithSimilarIDs shows that --restart distinguishes its scan's files from those of scans with similar ids:
// `sites/…/part-a-0-0.parquet` is a part of scan a, although scan a-0-0 names its statistics so.
func TestRestartWithSimilarIDs(t *testing.T) {
	ids := []string{"a", "a-0", "a-0-0", "a-0-1"}
	for _, restarted := range ids {
		dir := newDir(t)
		for _, id := range ids {
			w := mustOpen(t, dir, Options{ScanID: id, Date: "2026-11-21"})
			if err := w.Add(typicalSite(t, 1)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{schema.TokenStats, schema.RecordStats} {
				if err := dir.Put(t.Context(), commit.StatsName(table, "2026-11-21", id), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		mustOpen(t, dir, Options{ScanID: restarted, Restart: true})
		for _, id := range ids {
			want := 1
			if id == restarted {
				want = 0
			}
			if rows := readAll[schema.SiteRow](t, dir, id, schema.Sites); len(rows) != want {
				t.Errorf("restarted %s: scan %s has %d rows", restarted, id, len(rows))
			}
			for _, table := range []string{schema.TokenStats, schema.RecordStats} {
				_, err := store.ReadAll(t.Context(), dir, commit.StatsName(table, "2026-11-21", id), 1)
				if (err == nil) != (want == 1) {
					t.Errorf("restarted %s: %s of scan %s: %v", restarted, table, id, err)
				}
			}
		}
	}
}

// TestReaderAcrossRestart shows that a reader which opened a scan before its restart reads no row of the new scan, and
// gets an error that says so.
func TestReaderAcrossRestart(t *testing.T) {
	dir := newDir(t)
	sites := typicalSites(t, crashSites)
	if err := scanAll(dir, sites); err != nil {
		t.Fatal(err)
	}
	old := mustReadScan(t, dir, crashOptions.ScanID)
	for _, s := range sites {
		s.Seq += 1000
	}
	o := crashOptions
	o.Restart = true
	if err := finish(mustOpen(t, dir, o), sites); err != nil {
		t.Fatal(err)
	}
	var err error
	for row, wrong := range read.Rows[schema.SiteRow](t.Context(), old, schema.Sites) {
		if err = wrong; err == nil {
			t.Errorf("seq %d", row.Seq)
		}
	}
	if !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), "the scan has been restarted") {
		t.Errorf("the reader gets %v", err)
	}
}

// TestOpenWithoutManifest shows that commits without a manifest are not counted for the given scan, since their lists
// are unknown.
func TestOpenWithoutManifest(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		dir := newDir(t)
		if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
			t.Fatal(err)
		}
		if compacted {
			mustCompact(t, dir, compact.Options{})
		}
		remove(t, dir, commit.ManifestName(crashOptions.ScanID))
		watched := &storetest.Faults{Store: dir}
		_, err := Open(t.Context(), watched, crashOptions)
		const says = "cannot resume scan crash-1: _scans/crash-1/manifest.json: it is damaged: it is missing, and there are "
		if err == nil || !strings.HasPrefix(err.Error(), says) || !strings.HasSuffix(err.Error(), commit.ManifestRemedy) {
			t.Fatalf("%v", err)
		}
		checkLoss(t, "open", err)
		if slices.ContainsFunc(watched.Steps(), func(s storetest.Step) bool { return s.Op != "lock" && s.Op != "unlock" }) {
			t.Errorf("a scan that was refused has done %v", watched.Steps())
		}
		o := crashOptions
		o.Restart = true
		if w := mustOpen(t, dir, o); w.DoneCount() != 0 {
			t.Errorf("%d done", w.DoneCount())
		}
	}
}

// TestOpenNamesRemedy shows that a scan with a damaged record names a remedy, and that the remedy helps. The same holds
// after an earlier restart, whose numbers are not reused.
func TestOpenNamesRemedy(t *testing.T) {
	o := crashOptions
	o.Restart = true
	for name, remedy := range map[string]string{
		commit.ManifestName(crashOptions.ScanID): commit.ManifestRemedy, commit.RecordName(crashOptions.ScanID, "0",
			4): commit.DamageRemedy,
	} {
		dir := newDir(t)
		for range 2 {
			if err := finish(mustOpen(t, dir, o), typicalSites(t, crashSites)); err != nil {
				t.Fatal(err)
			}
		}
		flip(t, filepath.Join(dir.Root(), name), 40)
		_, err := Open(t.Context(), dir, crashOptions)
		if err == nil || !strings.HasSuffix(err.Error(), "its sum is not that of its bytes; "+remedy) {
			t.Errorf("%s: %v", name, err)
		}
		if err := finish(mustOpen(t, dir, o), typicalSites(t, crashSites)); err != nil {
			t.Error(err)
		}
		if past, err := commit.ReadHistory(t.Context(), dir, o.ScanID); err != nil || len(past.Current) != 3 ||
			past.Current[0].N != 6 || len(past.Tombstones) != 2 {
			t.Errorf("%s, begun anew: %+v, %v", name, past, err)
		}
		if lines, _ := findings(t, dir); len(lines) > 0 {
			t.Errorf("%s, begun anew: %q", name, lines)
		}
	}
	// Other errors have no such remedy.
	silent := &storetest.Faults{Store: newDir(t), Fail: func(s storetest.Step) error { return store.ErrUnavailable }}
	if _, err := Open(t.Context(), silent, crashOptions); err == nil || strings.Contains(err.Error(), "--restart") {
		t.Errorf("%v", err)
	}
}

// TestOpenSweepsAllShards shows that after a scan has been opened, no late part of another shard can appear, since no
// process would commit or delete it.
func TestOpenSweepsAllShards(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, crashOptions.ScanID, typicalSites(t, 3)...)
	f := func(what string, do func()) {
		t.Helper()
		late, err := dir.Create(t.Context(), commit.PartName(schema.Sites, crashOptions.Date, crashOptions.ScanID, "7", 0))
		if err == nil {
			err = late.Seal()
		}
		if err != nil {
			t.Fatal(err)
		}
		do()
		if err := late.Publish(t.Context()); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("%s: a late part of another shard: %v", what, err)
		}
	}
	f("compact", func() { mustCompact(t, dir, compact.Options{}) })
	var w *Writer
	f("open", func() { w = mustOpen(t, dir, crashOptions) })
	f("complete", func() {
		if err := completeListed(t.Context(), w); err != nil {
			t.Error(err)
		}
	})
}

// TestOpenLeavesOthersDrafts shows that opening a scan removes no drafts of another scan that is being written, even
// with a common prefix.
func TestOpenLeavesOthersDrafts(t *testing.T) {
	dir := newDir(t)
	other := mustOpen(t, dir, Options{ScanID: "a-0", Date: "2026-11-21"})
	if err := other.Add(typicalSite(t, 1)); err != nil {
		t.Fatal(err)
	}
	rejects, err := commit.OpenRejects(t.Context(), dir, "a.jsonl-2")
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{ScanID: "a", Date: "2026-11-21"})
	if ours, err := commit.OpenRejects(t.Context(), dir, "a"); err != nil {
		t.Fatal(err)
	} else if err := ours.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := rejects.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if rows := readAll[schema.SiteRow](t, dir, "a-0", schema.Sites); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

package scan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// nightOf writes and publishes a night of four sites. One of them gives another answer every night, and one of them is
// silent from the third night on.
func nightOf(t *testing.T, st store.Store, night int, publish bool) string {
	t.Helper()
	return nightBy(t, st, night, publish, publishing)
}

// nightBy is nightOf with other options.
func nightBy(t *testing.T, st store.Store, night int, publish bool, publishing Publishing) string {
	t.Helper()
	return nightWith(t, st, night, publish, publishing, []int{0, 1, 2, 3})
}

// nightWith is nightBy with these of the sites.
func nightWith(t *testing.T, st store.Store, night int, publish bool, publishing Publishing, sites []int) string {
	t.Helper()
	date := fmt.Sprintf("2026-%02d-%02d", 10+night/4, 27+night%4)
	id := "night-" + date
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: id, Date: date, PartRows: 2, NoPublish: !publish})
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range []string{"User-agent: *\nDisallow: /\n",
		fmt.Sprintf("User-agent: *\nDisallow: /%d\nSitemap: https://h1.test/s\n", night), "User-agent: GPTBot\nDisallow: /\n",
		""} {
		if !slices.Contains(sites, i) {
			continue
		}
		host, err := origin.Parse(fmt.Sprintf("h%d.test", i))
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Seq: uint64(i), Input: host.Host(), Origin: host,
			Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200, Body: []byte(body)}}
		if i == 2 && night > 2 {
			site.Fetch = exchange.Response{Outcome: exchange.ConnectTimeout}
		}
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(w.Flush(t.Context()), stats.Write(t.Context(), st, id, survey.Options{Registry: publishing.Registry,
		Log: publishing.Log}), w.Complete(t.Context()), w.Close(t.Context()))
	if err == nil {
		err = Publish(t.Context(), st, id, publishing)
	}
	if err != nil {
		t.Fatal(err)
	}
	return date
}

// rows returns the ledger's rows as text, without the names of the nights.
func rows(t *testing.T, st store.Store) string {
	t.Helper()
	var text strings.Builder
	for i := range 4 {
		stories, err := history.Stories(t.Context(), st, fmt.Sprintf("h%d.test", i), history.Asked{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stories {
			for _, e := range s.Episodes {
				fmt.Fprintf(&text, "%+v %+v\n", e.Episode, e.What)
			}
			fmt.Fprintf(&text, "%+v\n", s.Gaps)
		}
	}
	return text.String()
}

var keeps = Retention{Nights: "2026-11-01", Bodies: "2026-11-28", Evidence: "2026-11-29", Accept: 4}

// prunable has nights of two months, among them a held and a discarded one.
func prunable(t *testing.T, dir *store.Dir) store.Store {
	t.Helper()
	for night := range 8 {
		date := nightOf(t, dir, night, night != 1 && night != 2)
		if to, ok := map[int]commit.Publication{1: commit.PublicationHeld, 2: commit.PublicationDiscarded}[night]; ok {
			if err := commit.SetPublication(t.Context(), dir, nil, "night-"+date, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// scansThere returns the dates of the scans with the tables that they have.
func scansThere(t *testing.T, st store.Store) (there []string) {
	t.Helper()
	scans, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range scans {
		there = append(there, strings.TrimPrefix(m.ScanDate, "2026-")+" "+strings.Join(m.Tables, " "))
	}
	return there
}

// TestPrune shows what a pruning leaves to every other command.
func TestPrune(t *testing.T) {
	disk := storetest.NewDisk()
	out, err := store.NewDirOn(disk, "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	dir := prunable(t, out)
	want := rows(t, dir)
	earlier := copied(t, dir)
	registry,
		err := tokens.Load(strings.NewReader(
		"name | category | purpose | operator | * | fallback\nmy-own | custom | other | Me | yes | gptbot\n"))
	if err == nil {
		err = views.Write(t.Context(), dir, registry)
	}
	if err != nil {
		t.Fatal(err)
	}
	done, err := Prune(t.Context(), dir, keeps, publishing)
	if err != nil || !slices.Equal(done.Nights, []string{"2026-10-27", "2026-10-29", "2026-10-30"}) || done.Bodies != 1 ||
		done.Evidence != 2 || done.Bytes == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if empty := emptyFolders(t, disk, out.Root()); !slices.Equal(empty, []string{"/data/out/_scans/_months/files"}) {
		t.Errorf("empty folders are left: %q", empty)
	}
	if text, err := store.ReadAll(t.Context(), dir, views.Name, 1<<20); err != nil || !strings.Contains(string(text),
		"my-own") {
		t.Errorf("the tokens of the views are others: %v", err)
	}
	described, err := store.ReadAll(t.Context(), dir, schema.PackageName, 1<<20)
	if text := string(described); err != nil || strings.Contains(text, "night-2026-10") ||
		!strings.Contains(text, `"sites/scan_date=2026-11-27/`) || strings.Contains(text, `"bodies/scan_date=2026-11-27/`) {
		t.Errorf("%s describes what was pruned, %v:\n%s", schema.PackageName, err, text)
	}
	before := namesAndSums(t, dir)
	if again, err := Prune(t.Context(), dir, keeps, publishing); err != nil || again.Bytes != 0 ||
		namesAndSums(t, dir) != before {
		t.Errorf("again: %+v, %v; it was\n%s\nand is\n%s", again, err, before, namesAndSums(t, dir))
	}
	for entry, err := range earlier.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(entry.Name, "night-2026-10-27") {
			continue
		}
		data, err := store.ReadAll(t.Context(), earlier, entry.Name, 1<<24)
		if err == nil {
			err = dir.Put(t.Context(), entry.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const table = "bodies/scan_date=2026-11-27/"
	back := 0
	for entry, err := range earlier.List(t.Context(), table) {
		var data []byte
		if err == nil {
			data, err = store.ReadAll(t.Context(), earlier, entry.Name, 1<<24)
		}
		if err == nil {
			err = dir.Put(t.Context(), entry.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		back++
	}
	if found := findings(t, dir, verify.Leftover); back == 0 || strings.Count(strings.Join(found, "\n"), "leftover: "+
		table) != back {
		t.Errorf("%d files of a pruned table are copied back: %q", back, found)
	}
	if found := findings(t, dir, verify.Damaged); len(found) > 0 {
		t.Errorf("a pruned night is copied back: %q", found)
	}
	if found := findings(t, dir, verify.Leftover); len(found) == 0 || !strings.Contains(found[0], "copied back") {
		t.Errorf("a pruned night is copied back: %q", found)
	}
	if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"night-2026-11-27", "night-2026-11-28"} {
		done, err := compact.Scan(t.Context(), dir, m, compact.Options{})
		if err != nil || done.PartsBefore != done.PartsAfter {
			t.Errorf("compact %s: %+v, %v", m, done, err)
		}
	}
	if err := Release(t.Context(), dir, "night-2026-10-28", publishing); err == nil || !strings.Contains(err.Error(),
		"the nights up to 2026-10-30 were pruned") {
		t.Errorf("a held night before them is released: %v", err)
	}
	if got := rows(t, dir); got != want {
		t.Errorf("the ledger is\n%s\nwant\n%s", got, want)
	}
	var months []string
	for entry, err := range dir.List(t.Context(), index.MonthsFolder) {
		if err != nil {
			t.Fatal(err)
		}
		months = append(months, entry.Name)
	}
	if len(months) > 0 {
		t.Errorf("merged statistics of a month of which all nights are pruned: %q", months)
	}
	nightOf(t, dir, 8, true)
	if _, err := Prune(t.Context(), dir, Retention{Nights: "2027-01-01", Accept: 4}, publishing); err != nil {
		t.Fatal(err)
	}
	if got := scansThere(t, dir); len(got) != 2 || !strings.HasPrefix(got[1], "12-27") {
		t.Errorf("the newest night is not there: %q", got)
	}
	if found := findings(t, dir, verify.Damaged, verify.Leftover); len(found) > 0 {
		t.Errorf("%q", found)
	}
	stories, err := history.Stories(t.Context(), dir, "h2.test", history.Asked{Token: "GPTBot",
		Registry: publishing.Registry})
	if err != nil || len(stories) != 1 || !stories[0].Episodes[0].Token.Stored {
		t.Errorf("the last file of a silent site: %+v, %v", stories, err)
	}
}

// TestForeignFilesStay shows that no command deletes files that another program has put into a folder of a dataset.
func TestForeignFilesStay(t *testing.T) {
	root := t.TempDir()
	out, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := prunable(t, out)
	folders := map[string]bool{}
	for entry, err := range dir.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		for name := entry.Name; name != "."; name = path.Dir(name) {
			folders[path.Dir(name)] = true
		}
	}
	var foreign []string
	for folder := range folders {
		for _, base := range []string{
			"notes.txt", "notes.json", "notes.parquet", "part-mine.parquet", "open-mine-1.parquet", "closed-pruned-1.parquet",
			"token_stats-2026-10-mine.parquet", ".notes.20261126.tmp", "more/notes.json", "more/0-7.json",
			"more/closed-0123456789ab-1.parquet",
		} {
			name := filepath.Join(root, folder, base)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte("mine"),
				0o666)); err != nil {
				t.Fatal(err)
			}
			foreign = append(foreign, name)
		}
	}
	stay := func(after string) {
		t.Helper()
		for _, name := range foreign {
			if text, err := os.ReadFile(name); err != nil || string(text) != "mine" {
				t.Errorf("after %s: %v", after, err)
			}
		}
		foreign = slices.DeleteFunc(foreign, func(name string) bool { _, err := os.Stat(name); return err != nil })
	}
	nightOf(t, dir, 8, true)
	stay("a night")
	if _, err = compact.Scan(t.Context(), dir, "night-2026-11-29", compact.Options{}); err == nil {
		err = stats.Write(t.Context(), dir, "night-2026-11-29", survey.Options{Registry: publishing.Registry,
			Log: publishing.Log})
	}
	if err != nil {
		t.Fatal(err)
	}
	stay("compact and stats")
	if err := history.Rebuild(t.Context(), dir, history.Options{}); err != nil {
		t.Fatal(err)
	}
	stay("history --rebuild")
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "night-2026-10-28", Restart: true})
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	stay("scan --restart")
	if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
		t.Fatal(err)
	}
	if _, err := Prune(t.Context(), dir, Retention{Nights: "2027-01-01", Accept: 4}, publishing); err != nil {
		t.Fatal(err)
	}
	stay("pruning")
	for _, found := range findings(t, dir, verify.Damaged) {
		if !strings.HasSuffix(found, ".parquet: no commit names it, and it belongs to no scan") {
			// those between its own, which programs read
			t.Error(found)
		}
	}
}

// emptyFolders lists the empty folders.
func emptyFolders(t *testing.T, disk store.Disk, root string) []string {
	t.Helper()
	empty := map[string]bool{}
	err := disk.Walk(root, func(path string, file fs.DirEntry, err error) error {
		if err == nil {
			empty[path] = file.IsDir()
			delete(empty, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(empty, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(empty))
}

// namesAndSums lists a dataset.
func namesAndSums(t *testing.T, st store.Store) string {
	t.Helper()
	var text strings.Builder
	for entry, err := range st.List(t.Context(), "") {
		var data []byte
		if err == nil {
			data, err = store.ReadAll(t.Context(), st, entry.Name, 1<<24)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, entry.Name, schema.SumOf(data))
	}
	return text.String()
}

// TestKeptBodies reads the files that are kept, as far as they fit.
func TestKeptBodies(t *testing.T) {
	dir := prunable(t, newDisk(t))
	if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
		t.Fatal(err)
	}
	all, left, err := history.KeptBodies(t.Context(), dir, 1<<20)
	if err != nil || len(all) == 0 || left != 0 {
		t.Fatalf("%d files, %d left out, %v", len(all), left, err)
	}
	size := 0
	for _, body := range all {
		size += len(body)
	}
	some, left, err := history.KeptBodies(t.Context(), dir, size-1)
	if err != nil || len(some) != len(all)-1 || left != 1 {
		t.Errorf("of %d: %d files, %d left out, %v", len(all), len(some), left, err)
	}
}

// pruningStore does something when a file is opened for the first time.
type pruningStore struct {
	store.Store
	name string
	do   func()
}

func (s *pruningStore) Open(ctx context.Context, name string) (store.Object, error) {
	if do := s.do; do != nil && strings.HasPrefix(name, s.name) {
		s.do = nil
		do()
	}
	return s.Store.Open(ctx, name)
}

// TestPrunedWhileVerified prunes while the first night, or one that loses a table, is verified.
func TestPrunedWhileVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it makes many nights, which -short leaves out")
	}
	for _, name := range []string{"sites/scan_date=2026-10-27/", "verdicts/scan_date=2026-11-27/",
		"bodies/scan_date=2026-11-27/"} {
		dir := prunable(t, newDisk(t))
		at := &pruningStore{Store: dir, name: name, do: func() {
			if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
				t.Error(err)
			}
		}}
		if found := findings(t, at, verify.Damaged, verify.Leftover); len(found) > 0 || at.do != nil {
			t.Errorf("pruned when %s is opened: %q", name, found)
		}
	}
}

// TestPrunedMeanwhile ends a scan after the pruning of its date: it is not published, and no pruning deletes it.
func TestPrunedMeanwhile(t *testing.T) {
	dir := prunable(t, newDisk(t))
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "slow", Date: "2026-10-30"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Flush(t.Context()), stats.Write(t.Context(), dir, "slow",
		survey.Options{Registry: publishing.Registry, Log: publishing.Log}), w.Complete(t.Context()),
		w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := Publish(t.Context(), dir, "slow", publishing); err == nil || !strings.Contains(err.Error(),
		"the nights up to 2026-10-30 were pruned") {
		t.Errorf("published: %v", err)
	}
	if _, err := Prune(t.Context(), dir, keeps, publishing); err != nil {
		t.Fatal(err)
	}
	if _, err := commit.ReadManifest(t.Context(), dir, "slow"); err != nil {
		t.Error(err)
	}
}

// TestPruneDamaged meets damaged or missing parts of an old night: the error says what to do, and nothing is deleted.
func TestPruneDamaged(t *testing.T) {
	for how, damage := range map[string]func(dir store.Store, name string) error{
		"short":   func(dir store.Store, name string) error { return dir.Put(t.Context(), name, []byte("PAR1")) },
		"missing": func(dir store.Store, name string) error { return dir.Delete(t.Context(), name) },
	} {
		dir := prunable(t, newDisk(t))
		var names []string
		for entry, err := range dir.List(t.Context(), "sites/scan_date=2026-10-27/") {
			if names = append(names, entry.Name); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			if err := damage(dir, name); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Prune(t.Context(), dir, keeps, publishing)
		if err == nil || !strings.Contains(err.Error(), "night of 2026-10-27") || !strings.Contains(err.Error(),
			"restore the files that bulkscan verify names") {
			t.Errorf("%s: %v", how, err)
		}
		if got := scansThere(t, dir); len(got) != 8 {
			t.Errorf("%s: %q", how, got)
		}
	}
}

// TestPruneGoesOnAfterAKill kills a pruning after a manifest got its name and before the name is synced. The next
// pruning deletes no file that the manifest may name again after a loss of power.
func TestPruneGoesOnAfterAKill(t *testing.T) {
	made := storetest.NewDisk()
	on := func(disk *storetest.Disk) *store.Dir {
		dir, err := store.NewDirOn(disk, "/data/out")
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	prunable(t, on(made))
	calm := made.Restart(storetest.Nothing)
	if _, err := Prune(t.Context(), on(calm), keeps, publishing); err != nil {
		t.Fatal(err)
	}
	changes := 0
	for _, call := range calm.Calls() {
		if !call.Changes() {
			continue
		}
		changes++
		if call.Op != "rename" || path.Base(call.Path) != "manifest.json" {
			continue
		}
		disk := made.Restart(storetest.Nothing)
		disk.CutAt(changes, true)
		if _, err := Prune(t.Context(), on(disk), keeps, publishing); err == nil {
			t.Fatal("it was not killed")
		}
		disk = disk.Restart(storetest.Nothing)
		if _, err := Prune(t.Context(), on(disk), keeps, publishing); err != nil {
			t.Fatal(err)
		}
		if found := findings(t, on(disk.Restart(storetest.Unsynced)), verify.Damaged); len(found) > 0 {
			t.Errorf("killed at %s: %q", call.Path, found)
		}
	}
}

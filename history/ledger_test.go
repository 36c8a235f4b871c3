package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

var bot = commit.Observer{Source: commit.Live, Product: "bot"}

// files are the bodies of scanned sites, by a letter.
var testFiles = map[string]string{
	"a": "User-agent: GPTBot\nDisallow: /\n",
	"b": "User-agent: *\nDisallow: /private\n",
	"c": "User-agent: GPTBot\nDisallow: /\n# more\n",
	"e": "hello\n",
}

// scanned writes a complete scan. Each word is a site: its name, =, and a letter of testFiles, a status, or dead.
func scanned(t testing.TB, st store.Store, id, date string, change func(*sink.Options), sites ...string) {
	t.Helper()
	o := sink.Options{ScanID: id, Date: date, Observer: bot, PartRows: 3}
	if change != nil {
		change(&o)
	}
	w, err := sink.Open(t.Context(), st, o)
	if err != nil {
		t.Fatal(err)
	}
	judge := audit.Judge
	if o.Registry != nil {
		judge = audit.New(o.Registry).Judge
	}
	for i, word := range sites {
		name, what, _ := strings.Cut(word, "=")
		s := sitetest.Typical(t, uint64(i))
		s.SetOrigin(sitetest.Origin(t, name))
		s.Fetch.Hops, s.Fetch.Fields, s.Fetch.Body = nil, exchange.Fields{}, nil
		if body, ok := testFiles[what]; ok {
			s.Fetch.Body = []byte(body)
		} else if what == "dead" {
			s.Fetch.Outcome, s.Fetch.Status = exchange.ConnectTimeout, 0
		} else if _, err := fmt.Sscan(what, &s.Fetch.Status); err != nil {
			t.Fatal(err)
		}
		judge(s)
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// newDir returns an empty store in memory.
func newDir(t testing.TB) store.Store {
	t.Helper()
	dir, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustRead(t testing.TB, st store.Store, name string) []byte {
	t.Helper()
	data, err := store.ReadAll(t.Context(), st, name, schema.MaxLedger)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func namesOf(t testing.TB, st store.Store, prefix string) (names []string) {
	t.Helper()
	for entry, err := range st.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name)
	}
	return names
}

// forget deletes the ledger.
func forget(t testing.TB, st store.Store) {
	t.Helper()
	for _, name := range namesOf(t, st, Folder) {
		if err := st.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the ledger as text: its rows in order, without names of files.
func contents(t testing.TB, st store.Store) string {
	t.Helper()
	l, err := ReadLedger(t.Context(), st)
	if errors.Is(err, store.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, open := range []bool{false, true} {
		lines = append(lines, linesOf[Policy](t, st, l, Policies, open)...)
		lines = append(lines, linesOf[Episode](t, st, l, History, open)...)
		lines = append(lines, linesOf[Gap](t, st, l, Gaps, open)...)
	}
	return fmt.Sprintln(l.Observer, l.Judge, l.Scans) + strings.Join(lines, "\n")
}

func linesOf[T any](t testing.TB, st store.Store, l *Ledger, table string, open bool) (lines []string) {
	t.Helper()
	for row, err := range rowsOf[T](t.Context(), st, l.Files, table, open) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %v %+v", table, open, *row))
	}
	return slices.Sorted(slices.Values(lines))
}

// story returns a host's episodes in order, as cause, class, first and last day of the month.
func story(t testing.TB, st store.Store, host string) string {
	t.Helper()
	l := mustLedger(t, st)
	classes := map[int64]string{}
	for p, err := range rowsOf[Policy](t.Context(), st, l.Files, Policies, false) {
		if err != nil {
			t.Fatal(err)
		}
		classes[p.ID] = p.Class
	}
	var all []Episode
	for _, open := range []bool{false, true} {
		for e, err := range rowsOf[Episode](t.Context(), st, l.Files, History, open) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Host == host {
				all = append(all, *e)
			}
		}
	}
	slices.SortFunc(all, func(a, b Episode) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	var told []string
	for _, e := range all {
		told = append(told, fmt.Sprintf("%s %s %s-%s", e.Cause, classes[e.Policy], e.ValidFrom.String()[8:],
			e.ValidTo.String()[8:]))
	}
	return strings.Join(told, ", ")
}

func mustUpdate(t testing.TB, st store.Store) *Updated {
	t.Helper()
	u, err := Update(t.Context(), st, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// publication sets the publication of scans.
func publication(t testing.TB, st store.Store, p commit.Publication, ids ...string) {
	t.Helper()
	for _, id := range ids {
		err := commit.SetPublication(t.Context(), st, nil, id, p)
		if p == commit.PublicationDiscarded {
			err = commit.Withdraw(t.Context(), st, nil, id, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mustRebuild(t testing.TB, st store.Store, o Options) {
	t.Helper()
	if err := Rebuild(t.Context(), st, o); err != nil {
		t.Fatal(err)
	}
}

// manyNights writes random scans of nights 01 to nn. The third night has two scans, of which the second is n3x.
func manyNights(t testing.TB, st store.Store, nights int) (ids []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	answers := []string{"a", "a", "a", "b", "c", "e", "404", "403", "503", "dead"}
	state := []string{"a", "b", "c", "404", "a"}
	for n := 1; n <= nights; n++ {
		var sites []string
		for i := range state {
			if rng.IntN(3) == 0 {
				state[i] = answers[rng.IntN(len(answers))]
			}
			if rng.IntN(6) > 0 {
				sites = append(sites, fmt.Sprintf("h%d.example=%s", i, state[i]))
			}
		}
		id, date := fmt.Sprint("n", n), fmt.Sprintf("2026-11-%02d", n)
		scanned(t, st, id, date, nil, sites...)
		ids = append(ids, id)
		if n == 3 {
			scanned(t, st, id+"x", date, nil, "h1.example=a", "other.example=b")
			ids = append(ids, id+"x")
		}
	}
	return ids
}

// TestUpdate shows that publishing scans one by one, in any order, gives what Rebuild gives.
func TestUpdate(t *testing.T) {
	dir := newDir(t)
	all := manyNights(t, dir, 6)
	mustRebuild(t, dir, Options{})
	want := contents(t, dir)
	if n := strings.Count(want, "\nhistory"); n < 8 {
		t.Fatalf("%d episodes: the test sees too few:\n%s", n, want)
	}
	f := func(ids ...string) {
		t.Helper()
		forget(t, dir)
		publication(t, dir, commit.PublicationDiscarded, all...)
		last := ""
		for _, id := range ids {
			publication(t, dir, commit.PublicationDone, id)
			u := mustUpdate(t, dir)
			date := scansOf(t, dir, id)[0].ScanDate
			if !u.Has(id) || u.Again != (date <= last) {
				t.Errorf("%v: %s: %+v", ids, id, u)
			}
			last = max(last, date)
		}
		if got := contents(t, dir); got != want {
			t.Errorf("%v:\n got %s\nwant %s", ids, got, want)
		}
	}
	f(all...)
	f("n1", "n3", "n2", "n3x", "n4", "n6", "n5")
	f("n6", "n3x", "n1", "n3", "n5", "n4", "n2")
	before := mustRead(t, dir, LedgerName)
	mustUpdate(t, dir)
	if after := mustRead(t, dir, LedgerName); string(after) != string(before) {
		t.Errorf("scans that were merged before change the ledger:\n%s\nbefore:\n%s", after, before)
	}
	// Without a ledger, all come at once.
	forget(t, dir)
	mustUpdate(t, dir)
	if got := contents(t, dir); got != want {
		t.Errorf("without a ledger:\n got %s\nwant %s", got, want)
	}
	onlyNamed(t, dir)

	// A deleted scan stays in the ledger until all nights have to be merged again.
	for _, name := range namesOf(t, dir, schema.ScansFolder+"n2/") {
		if err := dir.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	scanned(t, dir, "n7", "2026-11-07", nil, "h1.example=a")
	if u := mustUpdate(t, dir); !u.Has("n2") || !u.Has("n7") {
		t.Errorf("%+v", u)
	}
	scanned(t, dir, "n0", "2026-10-31", nil, "h1.example=a")
	before = mustRead(t, dir, LedgerName)
	_, err := Update(t.Context(), dir, Options{})
	if gone, ok := errors.AsType[*GoneError](err); !ok || !slices.Equal(gone.ScanIDs, []string{"n2"}) {
		t.Errorf("an older night with a scan that is gone: %v", err)
	}
	if after := mustRead(t, dir, LedgerName); string(after) != string(before) {
		t.Error("it changed the ledger")
	}
	if err := Rebuild(t.Context(), dir, Options{}); err == nil {
		t.Error("the history was derived anew without a night that is lost")
	}
	if err := commit.Withdraw(t.Context(), dir, nil, "n2", "its disk is lost"); err != nil {
		t.Fatal(err)
	}
	mustRebuild(t, dir, Options{})
	if u := mustUpdate(t, dir); u.Has("n2") || !u.Has("n0") {
		t.Errorf("after Rebuild: %+v", u)
	}
}

func scansOf(t testing.TB, st store.Store, ids ...string) []MergedScan {
	t.Helper()
	all, err := newestHead(t, st).Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(published(all), func(s MergedScan) bool { return !slices.Contains(ids, s.ScanID) })
}

// TestFollow shows which observers' scans the ledger has. A word is a scan: the observer, and its day. The observer
// archive is one.
func TestFollow(t *testing.T) {
	f := func(scans, want, observer string) {
		t.Helper()
		var all []MergedScan
		for i, word := range strings.Fields(scans) {
			by, day, _ := strings.Cut(word, ".")
			product, vantage, _ := strings.Cut(by, "@")
			s := MergedScan{ScanID: word, ScanDate: "2026-11-" + day, StartedAt: time.Unix(int64(i), 0),
				Observer: commit.Observer{Source: commit.Live, Product: product, Vantage: vantage}}
			if by == commit.Archive {
				s.Observer = commit.Observer{Source: by, Product: by}
			}
			all = append(all, s)
		}
		followed, by := follow(all)
		var got []string
		for _, s := range followed {
			got = append(got, s.ScanID)
		}
		if strings.Join(got, " ") != want || by.Product != observer {
			t.Errorf("%s: %v by %s, want %s by %s", scans, got, by.Product, want, observer)
		}
	}
	f("a.01 a.02 a.03", "a.01 a.02 a.03", "a")
	f("a.03 a.01 a.02", "a.01 a.02 a.03", "a")
	f("a.01 a.02 b.03 b.04", "a.01 a.02 b.03 b.04", "b")      // another User-Agent from now on
	f("a.01 b.02 a.03 b.04 a.05", "a.01 a.03 a.05", "a")      // another one beside it
	f("a.01 b.01 a.02 b.02 b.03", "a.01 a.02", "a")           // whose night came first
	f("a.01 b.01 a.02 b.02 b.03 b.09", "a.01 a.02 b.09", "b") // for it has ended
	f("a.01 b.02 c.02 c.03", "a.01 b.02", "b")                // of two successors, the one that began first
	f("a@x.01 a@y.01 b@y.02 b@x.02", "a@x.01 b@x.02", "b")    // but the one from the same place goes before
	f("archive.01 a.02 b.02 a.03 archive.04", "archive.01 a.02 a.03 archive.04", "a")
	f("archive.01 archive.02", "archive.01 archive.02", "archive")
	f("", "", "")
}

// onlyNamed fails if there are files that neither the record names nor the next merge will delete.
func onlyNamed(t testing.TB, st store.Store) {
	t.Helper()
	l := mustLedger(t, st)
	if err := sweep(t.Context(), st, l.all(), ""); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{LedgerName: true}
	for _, f := range l.all() {
		named[f.Name] = true
	}
	if names := namesOf(t, st, Folder); len(names) != len(named) {
		t.Errorf("%q, the ledger names %d files", names, len(named)-1)
	}
}

// TestGather merges many nights one by one: the closed rows of earlier nights are gathered into few files.
func TestGather(t *testing.T) {
	dir := newDir(t)
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 35 {
		date := first.AddDate(0, 0, n).Format(time.DateOnly)
		scanned(t, dir, "n"+date, date, nil, "flaps.example="+[]string{"a", "404"}[n%2], "stays.example=a", "fails.example="+
			[]string{"a", "dead"}[n%2])
		mustUpdate(t, dir)
	}
	closed := map[string]int{}
	for _, f := range mustLedger(t, dir).Files {
		if !f.Open {
			closed[fmt.Sprint(f.Table, f.Level)]++
		}
	}
	// Each night but the first closes an episode; each second one but the first closes a gap. Checkpoints are after nights
	// 16, 24, 32, 33 and 34.
	if want := map[string]int{"policies0": 1, "history0": 18, "history1": 2, "gaps0": 17}; !maps.Equal(closed, want) {
		t.Errorf("closed files %v, want %v", closed, want)
	}
	got := contents(t, dir)
	onlyNamed(t, dir)
	mustRebuild(t, dir, Options{})
	if want := contents(t, dir); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestScannedAgain restarts a scan of the ledger: its earlier observations are removed.
func TestScannedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := newDir(t)
		scanned(t, dir, "n1", "2026-11-01", nil, "a.example=a")
		scanned(t, dir, "n2", "2026-11-02", nil, "a.example=404")
		mustUpdate(t, dir)
		if got, want := story(t, dir, "a.example"), "first rules 01-01, presence none 02-02"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		running, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "n3", Date: "2026-11-03", Observer: bot})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the unit of finished_at
		scanned(t, dir, "n1", "2026-11-01", func(o *sink.Options) { o.Restart = true }, "a.example=404")
		if u := mustUpdate(t, dir); !u.Again || u.Has("n3") {
			t.Errorf("%+v", u)
		}
		if got, want := story(t, dir, "a.example"), "first none 01-02"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := running.Abort(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamage shows a merge's errors about damaged files, and that Rebuild works without these files.
func TestDamage(t *testing.T) {
	f := func(want string, damage func(st store.Store, l *Ledger) error) {
		t.Helper()
		dir := newDir(t)
		scanned(t, dir, "n1", "2026-11-01", nil, "a.example=a", "b.example=dead")
		mustUpdate(t, dir)
		if err := damage(dir, mustLedger(t, dir)); err != nil {
			t.Fatal(err)
		}
		if found := verified(t, dir); len(found) == 0 || !strings.HasPrefix(found[0], "damaged: "+Folder) ||
			!strings.Contains(found[0], "--rebuild") {
			t.Errorf("Verify: %q", found)
		}
		scanned(t, dir, "n2", "2026-11-02", nil, "a.example=b")
		if _, err := Update(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--rebuild") {
			t.Errorf("%v, want %q and a remedy", err, want)
		}
		mustRebuild(t, dir, Options{})
		if got := story(t, dir, "a.example"); got != "first rules 01-01, policy rules 02-02" {
			t.Errorf("after Rebuild: %s", got)
		}
		if found := verified(t, dir); len(found) != 0 {
			t.Errorf("Verify after Rebuild: %q", found)
		}
		onlyNamed(t, dir)
	}
	for _, table := range []string{Policies, History, Gaps} {
		file := func(l *Ledger) string {
			return l.Files[slices.IndexFunc(l.Files, func(f File) bool { return f.Table == table })].Name
		}
		f("sha256", func(st store.Store, l *Ledger) error {
			data := mustRead(t, st, file(l))
			data[len(data)/2] ^= 1
			return st.Put(t.Context(), file(l), data)
		})
		f("no such file", func(st store.Store, l *Ledger) error { return st.Delete(t.Context(), file(l)) })
	}
	f("it is damaged", func(st store.Store, l *Ledger) error {
		return st.Put(t.Context(), LedgerName, []byte(strings.Replace(string(mustRead(t, st, LedgerName)), "2026", "2025",
			1)))
	})
}

// verified returns what Verify reports.
func verified(t testing.TB, st store.Store) (found []string) {
	t.Helper()
	if err := Verify(t.Context(), st, func(f verify.Finding) { found = append(found, f.String()) }); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestVerify shows Verify's findings in undamaged ledgers.
func TestVerify(t *testing.T) {
	dir := newDir(t)
	f := func(want ...string) {
		t.Helper()
		if found := verified(t, dir); !slices.Equal(found, want) {
			t.Errorf("%q, want %q", found, want)
		}
	}
	f()
	scanned(t, dir, "n1", "2026-11-01", nil, "a.example=a", "b.example=dead")
	mustUpdate(t, dir)
	f()
	scanned(t, dir, "n2", "2026-11-02", nil, "a.example=a")
	scanned(t, dir, "beside", "2026-11-01", func(o *sink.Options) { o.Observer.Product = "other" }, "a.example=a")
	f(
		"leftover: history/_ledger.json: it does not have scan n2 as it is now: the scan was killed before merging it, or is about to; the next scan merges it")
	mustUpdate(t, dir)
	f()
	newer := *mustLedger(t, dir)
	newer.SchemaVersion = schema.Version + 1
	data, err := commit.SealRecord(&newer, &newer.Sum)
	if err := errors.Join(err, dir.Put(t.Context(), LedgerName, data)); err != nil {
		t.Fatal(err)
	}
	if found := verified(t, dir); len(found) != 1 || !strings.HasPrefix(found[0], "newer: ") {
		t.Errorf("a later version's: %q", found)
	}
}

func mustLedger(t testing.TB, st store.Store) *Ledger {
	t.Helper()
	l, err := ReadLedger(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestObservers merges nights of several observers.
func TestObservers(t *testing.T) {
	by := func(source, product string) func(*sink.Options) {
		return func(o *sink.Options) { o.Observer = commit.Observer{Source: source, Product: product} }
	}
	dir := newDir(t)
	scanned(t, dir, "old", "2026-11-01", by("archive", ""), "http://a.example=b", "https://a.example=a",
		"http://b.example=404")
	scanned(t, dir, "mine", "2026-11-02", by("live", "bot"), "a.example=a", "b.example=404")
	scanned(t, dir, "beside", "2026-11-02", by("live", "other"), "a.example=404", "b.example=403")
	scanned(t, dir, "again", "2026-11-03", by("live", "bot"), "a.example=a", "b.example=404")
	scanned(t, dir, "new", "2026-11-05", by("archive", ""), "http://a.example=b")
	var nights []Merged
	mustRebuild(t, dir, Options{Progress: func(m Merged) { nights = append(nights, m) }})
	for host, want := range map[string]string{
		"a.example": "first rules 01-01, observer rules 02-03, observer rules 05-05",
		"b.example": "first none 01-01, observer none 02-03",
	} {
		if got := story(t, dir, host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if len(nights) != 4 || nights[0].Disagree != 1 || nights[0].Observations != 2 || nights[3].Gaps[Unlisted] != 1 {
		t.Errorf("nights: %+v", nights)
	}
	scanned(t, dir, "late", "2026-11-06", by("live", "renamed"), "b.example=403")
	if u := mustUpdate(t, dir); u.Observer.Product != "renamed" || u.Again || u.Has("beside") {
		t.Errorf("%+v", u)
	}
	if got, want := story(t, dir, "b.example"),
		"first none 01-01, observer none 02-03, observer refused 06-06"; got != want {
		t.Errorf("after a scan by a new observer: %s, want %s", got, want)
	}

	empty := newDir(t)
	if err := Rebuild(t.Context(), empty, Options{}); !errors.Is(err, ErrNoScan) {
		t.Errorf("without scans: %v", err)
	}
	if u := mustUpdate(t, empty); u.Has("none") {
		t.Errorf("without scans: %+v", u)
	}
}

// TestRejudge changes the judge in one night with a body, with and without a judge at hand.
func TestRejudge(t *testing.T) {
	dir := newDir(t)
	newer := *tokens.Default()
	newer.Version = "newer"
	scanned(t, dir, "n1", "2026-11-01", nil, "same.example=a", "comment.example=a", "other.example=a", "gone.example=a")
	scanned(t, dir, "n2", "2026-11-02", func(o *sink.Options) { o.Registry = &newer }, "same.example=a",
		"comment.example=c", "other.example=b", "gone.example=404")
	f := func(o Options, want map[string]string) {
		t.Helper()
		mustRebuild(t, dir, o)
		for host, want := range want {
			if got := story(t, dir, host+".example"); got != want {
				t.Errorf("%s: %s, want %s", host, got, want)
			}
		}
	}
	same := "first rules 01-02"
	f(Options{}, map[string]string{"same": same, "comment": "first rules 01-01, unknown_judge rules 02-02",
		"other": "first rules 01-01, unknown_judge rules 02-02", "gone": "first rules 01-01, presence none 02-02"})
	var judged []string
	at := &Rejudge{Judge: "newer " + siterows.Check().Rules(), Policy: func(body []byte) (Policy, int64) {
		judged = append(judged, string(body))
		return Policy{Class: ClassRules, StarVerdict: "allowed", OwnBlocked: []string{"GPTBot"}}, 1
	}}
	f(Options{Rejudge: at}, map[string]string{"same": same, "comment": "first rules 01-02",
		"other": "first rules 01-01, policy rules 02-02", "gone": "first rules 01-01, presence none 02-02"})
	if !slices.Equal(judged, []string{testFiles["a"]}) {
		t.Errorf("judged again: %q", judged)
	}
	f(Options{Rejudge: RejudgeBy(&newer)}, map[string]string{"same": same, "comment": "first rules 01-02",
		"other": "first rules 01-01, policy rules 02-02", "gone": "first rules 01-01, presence none 02-02"})
}

// TestReading changes how files are read, and at the same time a body. The history distinguishes the change of the
// judge from that of the file, although registry and check are the same.
func TestReading(t *testing.T) {
	dir := newDir(t)
	scanned(t, dir, "n1", "2026-11-01", nil, "same.example=a", "comment.example=a", "other.example=a")
	scanned(t, dir, "n2", "2026-11-02", nil, "same.example=a", "comment.example=c", "other.example=b")
	f := func(o Options, want string) {
		t.Helper()
		mustRebuild(t, dir, o)
		got := ""
		for _, host := range []string{"same", "comment", "other"} {
			got += story(t, dir, host+".example") + "; "
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	f(Options{}, "first rules 01-02; first rules 01-02; first rules 01-01, policy rules 02-02; ")
	m, err := commit.ReadManifest(t.Context(), dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	m.Check.Reading = 0
	if err := m.Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	f(Options{},
		"first rules 01-02; first rules 01-01, unknown_judge rules 02-02; first rules 01-01, unknown_judge rules 02-02; ")
	f(Options{Rejudge: RejudgeBy(tokens.Default())},
		"first rules 01-02; first rules 01-02; first rules 01-01, policy rules 02-02; ")
}

// TestLedgerJSON shows the record that readers open.
func TestLedgerJSON(t *testing.T) {
	dir := newDir(t)
	scanned(t, dir, "n1", "2026-11-01", nil, "a.example=a", "b.example=dead")
	mustUpdate(t, dir)
	var record struct {
		Scans []struct {
			ScanID   string `json:"scan_id"`
			ScanDate string `json:"scan_date"`
		} `json:"scans"`
		Files []struct {
			Table, Name, SHA256 string
			Rows, Bytes         int64
			Open                bool
		} `json:"files"`
	}
	if err := json.Unmarshal(mustRead(t, dir, LedgerName), &record); err != nil {
		t.Fatal(err)
	}
	if len(record.Scans) != 1 || record.Scans[0].ScanID != "n1" || record.Scans[0].ScanDate != "2026-11-01" {
		t.Errorf("scans %+v", record.Scans)
	}
	var got []string
	for _, f := range record.Files {
		if !strings.HasPrefix(f.Name, "history/"+f.Table+"/") || f.Bytes == 0 || len(f.SHA256) != 64 {
			t.Errorf("file %+v", f)
		}
		got = append(got, fmt.Sprintf("%s %d %v", f.Table, f.Rows, f.Open))
	}
	if want := []string{"history 1 true", "gaps 1 true", "policies 1 false"}; !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

// TestStories shows the story of a host.
func TestStories(t *testing.T) {
	dir := newDir(t)
	scanned(t, dir, "n1", "2026-11-01", nil, "a.example=a", "a.example:8080=404", "b.example=dead")
	scanned(t, dir, "n2", "2026-11-02", nil, "a.example=dead")
	scanned(t, dir, "n3", "2026-11-03", nil, "a.example=b")
	mustRebuild(t, dir, Options{})
	f := func(host string, want ...string) {
		t.Helper()
		stories, err := Stories(t.Context(), dir, host, Asked{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range stories {
			for _, e := range s.Episodes {
				got = append(got, fmt.Sprintf("%d %s: %s %v after %q: %s %s %q", s.Port, s.Requested, e.ValidFrom, e.Cause,
					e.PreviousLast, e.What.Class, e.What.StarVerdict, e.What.OwnBlocked))
			}
			for _, g := range s.Gaps {
				got = append(got, fmt.Sprintf("%d %s: %s %s to %s", s.Port, s.Requested, g.Class, g.First, g.Last))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", host, got, want)
		}
	}
	f("a.example",
		`443 auto: 2026-11-01 first after "": rules allowed ["GPTBot"]`,
		`443 auto: 2026-11-03 policy after "2026-11-01": rules partial []`,
		`443 auto: unreachable 2026-11-02 to 2026-11-02`,
		`8080 auto: 2026-11-01 first after "": none  []`,
		`8080 auto: unlisted 2026-11-02 to 2026-11-03`)
	f("b.example") // it was never observed
	f("c.example")
}

// lateStore is a store whose lock is a lease that a dead process may have had.
type lateStore struct {
	store.Store
	steps []string
}

type lateLease struct {
	store.Unlocker
	st *lateStore
}

func (s *lateStore) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	lock, err := s.Store.Lock(ctx, name, holder)
	return lateLease{lock, s}, err
}

func (s *lateStore) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	if commit.IsHead(name) {
		s.steps = append(s.steps, "put head")
	}
	return s.Store.CreateIfAbsent(ctx, name, data)
}

func (s *lateStore) Put(ctx context.Context, name string, data []byte) error {
	s.steps = append(s.steps, "put "+name)
	return s.Store.Put(ctx, name, data)
}

func (l lateLease) Late() bool { return true }
func (l lateLease) Fenced()    { l.st.steps = append(l.st.steps, "fenced") }

// TestFence shows that a holder of a late lock deletes no file that a late record of a dead process may name, and that
// late records do no harm any more once it has written a ledger and a head of its own.
func TestFence(t *testing.T) {
	late := &lateStore{Store: newDir(t)}
	f := func(what string, do func(), want ...string) {
		t.Helper()
		late.steps = nil
		if do(); !slices.Equal(late.steps, want) {
			t.Errorf("%s: %q, want %q", what, late.steps, want)
		}
	}
	const left = Folder + History + "/closed-0123456789ab-1.parquet"
	scanned(t, late.Store, "n1", "2026-11-01", nil, "a.example=a")
	if err := late.Store.Put(t.Context(), left, []byte("of a dead process")); err != nil {
		t.Fatal(err)
	}
	f("the first merge", func() { mustUpdate(t, late) }, "put "+LedgerName, "put head", "fenced")
	f("nothing to merge", func() { mustUpdate(t, late) })
	scanned(t, late.Store, "n2", "2026-11-02", nil, "a.example=b")
	f("another merge", func() { mustUpdate(t, late) }, "put "+LedgerName, "put head", "fenced")
	f("a rebuild", func() { mustRebuild(t, late, Options{}) }, "put "+LedgerName, "put head", "fenced")
	if _, err := store.ReadAll(t.Context(), late.Store, left, 100); err != nil {
		t.Errorf("what a late record may name: %v", err)
	}
	mustRebuild(t, late.Store, Options{})
	if _, err := store.ReadAll(t.Context(), late.Store, left, 100); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("what no late record names: %v", err)
	}
}

// TestTablesWithoutRows shows that each table has a file, also if no site was observed, or none failed.
func TestTablesWithoutRows(t *testing.T) {
	f := func(rows string, sites ...string) {
		t.Helper()
		dir := newDir(t)
		scanned(t, dir, "n1", "2026-11-01", nil, sites...)
		mustRebuild(t, dir, Options{})
		l, err := ReadLedger(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range l.Files {
			got = append(got, fmt.Sprint(f.Table, " ", f.Rows))
		}
		if slices.Sort(got); strings.Join(got, ", ") != rows {
			t.Errorf("%v: %v, want %s", sites, got, rows)
		}
		scanned(t, dir, "n2", "2026-11-02", nil, sites...)
		mustUpdate(t, dir)
	}
	f("gaps 0, history 1, policies 1", "a.example=a")
	f("gaps 1, history 0, policies 0", "a.example=dead")
	f("gaps 0, history 0, policies 0")
}

// TestKilledFirstMerge kills the first merge, and a later one, before a head names its ledger: the next update writes a
// head that names it, and merges nothing.
func TestKilledFirstMerge(t *testing.T) {
	dir := newDir(t)
	for n := range 3 {
		scanned(t, dir, fmt.Sprint("n", n), fmt.Sprintf("2026-11-0%d", n+1), nil, "a.example=a")
		dying := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
			if s.Op == "create-if-absent" && commit.IsHead(s.Name) {
				return storetest.ErrCrashed
			}
			return nil
		}}
		if _, err := Update(t.Context(), dying, Options{}); !errors.Is(err, storetest.ErrCrashed) {
			t.Fatal(err)
		}
		mustUpdate(t, dir)
		h, err := commit.ReadHead(t.Context(), dir)
		l, errLedger := ReadLedger(t.Context(), dir)
		if err := errors.Join(err, errLedger); err != nil {
			t.Fatal(err)
		}
		if h.Ledger == nil || *h.Ledger != l.version() || l.Number != n+1 {
			t.Errorf("after %d merges that were killed the head names %+v, and the ledger is %d", n+1, h.Ledger, l.Number)
		}
	}
}

package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// pruned deletes the nights before a date, as scan.Prune does.
func pruned(t testing.TB, st store.Store, before string) {
	t.Helper()
	prunedBy(t, st, before, Options{})
}

// TestPrune prunes again and again between other nights. The ledger equals that without pruning, whether it is
// continued or derived anew, and the files of open episodes are kept.
func TestPrune(t *testing.T) {
	const nights = 12
	whole, dir := newDir(t), newDir(t)
	for n, id := range manyNights(t, whole, nights) {
		copyScan(t, whole, dir, id)
		switch {
		case n < 5:
		case n == 5: // before there is a ledger
			pruned(t, dir, "2026-11-04")
			pruned(t, dir, "2026-11-04")
		default:
			mustUpdate(t, dir)
			if n%2 == 1 {
				pruned(t, dir, fmt.Sprintf("2026-11-%02d", n-1))
			}
		}
	}
	mustRebuild(t, whole, Options{})
	same := func(at string) {
		t.Helper()
		if got, want := contents(t, dir), contents(t, whole); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", at, got, want)
		}
	}
	same("continued")
	mustRebuild(t, dir, Options{})
	same("derived anew")
	pruned(t, dir, "2026-11-12")
	same("pruned")
	mustRebuild(t, dir, Options{})
	same("pruned and derived anew")
	if err := dir.Delete(t.Context(), LedgerName); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, dir)
	same("without a ledger")
	if found := verified(t, dir); len(found) > 0 {
		t.Errorf("%q", found)
	}
	lastBodies(t, dir, whole)
}

// copyScan copies a scan to another dataset.
func copyScan(t testing.TB, from, to store.Store, id string) {
	t.Helper()
	for _, name := range namesOf(t, from, "") {
		if strings.Contains(name, "/"+id+"/") || strings.Contains(name, "part-"+id+"-") || strings.Contains(name, "part-"+id+
			".") {
			if err := to.Put(t.Context(), name, mustRead(t, from, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, err := commit.ReadManifest(t.Context(), to, id)
	if err == nil {
		err = commit.Adopt(t.Context(), to, nil, m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lastBodies checks that the last body of each open episode can be read if it can be without pruning.
func lastBodies(t testing.TB, dir, whole store.Store) {
	t.Helper()
	read := func(st store.Store, e *Episode) string {
		p, err := pastOf(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		stored := &storedFiles{ctx: t.Context(), store: st, scans: mustLedger(t, st).Scans, past: p}
		body, err := stored.read(e.ValidTo, e.LastBody)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	n := 0
	for e, err := range rowsOf[Episode](t.Context(), dir, mustLedger(t, dir).Files, History, true) {
		if err != nil {
			t.Fatal(err)
		}
		got, want := read(dir, e), read(whole, e)
		if got != want {
			t.Errorf("the last file of %s is %q, want %q", e.Host, got, want)
		}
		if p, _ := pastOf(t.Context(), dir); want != "" && e.ValidTo.String() <= p.Through {
			n++
		}
	}
	if n == 0 {
		t.Error("no open episode ends before the pruned nights: the test sees too few")
	}
}

// TestPrunedBodies deletes only bodies: the last ones stay, in a few files.
func TestPrunedBodies(t *testing.T) {
	dir := newDir(t)
	nights := gathered + 3
	if testing.Short() {
		nights = 5
	}
	for n := 1; n <= nights; n++ { // each night another site answers, and never again
		id, date := fmt.Sprint("n", n), Date(20000+n).String()
		body := fmt.Sprintf("User-agent: *\nDisallow: /%d\n", n)
		testFiles["n"] = body
		sites := []string{fmt.Sprintf("h%d.example=n", n)}
		for k := 1; k < n; k++ {
			sites = append(sites, fmt.Sprintf("h%d.example=dead", k))
		}
		scanned(t, dir, id, date, nil, sites...)
		mustUpdate(t, dir)
		if n > 1 {
			m, err := commit.ReadManifest(t.Context(), dir, fmt.Sprint("n", n-1))
			if err != nil {
				t.Fatal(err)
			}
			all, err := commit.Scans(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Prune(t.Context(), dir, Options{},
				Pruning{All: all, Without: map[string][]*commit.Manifest{Bodies: {m}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	delete(testFiles, "n")
	p, err := pastOf(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]int{}
	for row, err := range p.bodies(t.Context(), dir) {
		if err != nil {
			t.Fatal(err)
		}
		bodies[string(row.Body)]++
	}
	for n := 1; n < nights; n++ {
		if body := fmt.Sprintf("User-agent: *\nDisallow: /%d\n", n); bodies[body] != 1 {
			t.Errorf("%q is there %d times", body, bodies[body])
		}
	}
	if len(p.Bodies) > 4 {
		t.Errorf("%d files with bodies", len(p.Bodies))
	}
}

// TestPrunedAnew shows that the ledger takes in no night up to the last pruned one, and that a repaired later night is
// merged from the snapshot on.
func TestPrunedAnew(t *testing.T) {
	dir := newDir(t)
	for n, what := range []string{"a", "b", "a", "c", "b"} {
		scanned(t, dir, fmt.Sprint("n", n+1), fmt.Sprintf("2026-11-%02d", n+1), nil, "h.example="+what)
	}
	mustUpdate(t, dir)
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "begun", Date: "2026-11-02"})
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	n1 := mustRead(t, dir, commit.ManifestName("n1"))
	pruned(t, dir, "2026-11-03")
	if u := mustUpdate(t, dir); u.Again || u.Pruned != "2026-11-02" {
		t.Errorf("%+v", u)
	}
	if err := dir.Put(t.Context(), commit.ManifestName("n1"), n1); err != nil { // copied back
		t.Fatal(err)
	}
	for _, o := range []sink.Options{{ScanID: "n1", Date: "2026-11-09", Restart: true}, {ScanID: "begun"},
		{ScanID: "shared", Date: "2026-11-02", Shard: "0", Shares: 2}, {ScanID: "other", Date: "2026-11-02"},
		{ScanID: "n2", Date: "2026-11-02", Restart: true}} {
		if w, err := sink.Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "pruned") {
			t.Errorf("%+v is begun: %v, %v", o, w, err)
		}
	}
	if err := dir.Delete(t.Context(), commit.ManifestName("n1")); err != nil {
		t.Fatal(err)
	}
	m, err := commit.ReadManifest(t.Context(), dir, "n4")
	if err != nil {
		t.Fatal(err)
	}
	later := m.FinishedAt.AddDate(0, 0, 1) // as after a repair
	m.FinishedAt = &later
	if err := errors.Join(m.Changing(t.Context(), dir, nil), m.Write(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	want := story(t, dir, "h.example")
	if u := mustUpdate(t, dir); !u.Again || story(t, dir, "h.example") != want {
		t.Errorf("%+v: %s, want %s", u, story(t, dir, "h.example"), want)
	}
	if u := mustUpdate(t, dir); u.Again {
		t.Errorf("%+v", u)
	}
}

// TestPrunedObservers prunes nights of two observers: the night on which the second succeeds depends on deleted scans.
func TestPrunedObservers(t *testing.T) {
	whole, dir := newDir(t), newDir(t)
	other := func(o *sink.Options) { o.Observer.Vantage = "elsewhere" }
	for n := 1; n <= 12; n++ {
		date := fmt.Sprintf("2026-11-%02d", n)
		if n <= 4 {
			scanned(t, whole, "a"+date, date, nil, "h.example=a")
			copyScan(t, whole, dir, "a"+date)
		}
		scanned(t, whole, "b"+date, date, other, "h.example=b")
		copyScan(t, whole, dir, "b"+date)
		mustUpdate(t, dir)
		if n > 6 {
			pruned(t, dir, fmt.Sprintf("2026-11-%02d", n-1))
		}
	}
	mustRebuild(t, whole, Options{})
	want := contents(t, whole)
	if got := story(t, whole, "h.example"); got != "first rules 01-04, observer rules 11-12" {
		t.Errorf("the second observer succeeds so: %s", got)
	}
	for range 2 {
		if got := contents(t, dir); got != want {
			t.Errorf("the ledger is\n%s\nwant\n%s", got, want)
		}
		mustRebuild(t, dir, Options{})
	}
}

// TestPrunedJudges prunes nights that the history judges by another registry than their scans: the snapshot has the
// ledger's judgements, and without that registry nothing is pruned.
func TestPrunedJudges(t *testing.T) {
	dir := newDir(t)
	newer, newest := *tokens.Default(), *tokens.Default()
	newer.Version, newest.Version = "newer", "newest"
	nights := []*tokens.Registry{tokens.Default(), &newer, &newer, &newest, &newest}
	for n, sites := range [][]string{
		{"same=a", "comment=a", "other=a", "gone=a", "late=a", "unknown=a"},
		{"same=a", "comment=c", "other=b", "gone=404", "unknown=b"},
		{"same=a", "comment=a", "other=b", "gone=a", "late=c"},
		{"same=c", "comment=a", "other=a", "gone=a", "late=b", "unknown=a"},
		{"same=c", "comment=a"},
	} {
		for i := range sites {
			sites[i] = strings.Replace(sites[i], "=", ".example=", 1)
		}
		scanned(t, dir, fmt.Sprint("n", n+1), fmt.Sprintf("2026-11-%02d", n+1),
			func(o *sink.Options) { o.Registry = nights[n] }, sites...)
		if u, err := Update(t.Context(), dir, Options{Rejudge: RejudgeBy(nights[n])}); err != nil ||
			u.Again != (n == 1 || n == 3) {
			t.Fatalf("night %d: %+v, %v", n+1, u, err)
		}
	}
	want := contents(t, dir)
	if !strings.Contains(want, "Cause:policy") || !strings.Contains(want, "Cause:presence") ||
		strings.Contains(want, "Cause:unknown_judge") || strings.Count(want, "Judge:newer ") != 1 {
		// of a site without a file

		t.Fatalf("the ledger is\n%s", want)
	}
	all, err := commit.Scans(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Rejudge: RejudgeBy(&newer)}} {
		if _, err := Prune(t.Context(), dir, o, Pruning{All: all, Nights: all[:2]}); err == nil ||
			!strings.Contains(err.Error(), "newest") {
			t.Errorf("pruned without the judge: %v", err)
		}
	}
	at := Options{Rejudge: RejudgeBy(&newest)}
	for _, before := range []string{"2026-11-03", "2026-11-05"} {
		prunedBy(t, dir, before, at)
		if got := contents(t, dir); got != want {
			t.Errorf("the nights before %s are pruned, and the ledger is\n%s\nwant\n%s", before, got, want)
		}
	}
	for _, o := range []Options{at, {}} {
		mustRebuild(t, dir, o)
		if got := contents(t, dir); got != want {
			t.Errorf("derived anew, the ledger is\n%s\nwant\n%s", got, want)
		}
	}
}

// TestPrunedDamage damages each file that replaces pruned nights.
func TestPrunedDamage(t *testing.T) {
	dir := newDir(t)
	scanned(t, dir, "n1", "2026-11-01", nil, "h.example=a", "gone.example=b")
	scanned(t, dir, "n2", "2026-11-02", nil, "h.example=b")
	scanned(t, dir, "n3", "2026-11-03", nil, "h.example=b")
	mustUpdate(t, dir)
	pruned(t, dir, "2026-11-03")
	p, err := pastOf(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Bodies) != 1 || p.Bodies[0].Rows != 1 || len(p.Snapshot.Files) < 3 {
		t.Fatalf("%+v", p.kept)
	}
	names := []string{newestHead(t, dir).Pruned.Name}
	for _, f := range p.files() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		data := mustRead(t, dir, name)
		bad := slices.Clone(data)
		bad[len(bad)/2] ^= 1
		for _, how := range []string{"changed", "missing"} {
			err := dir.Put(t.Context(), name, bad)
			if how == "missing" {
				err = dir.Delete(t.Context(), name)
			}
			if err != nil {
				t.Fatal(err)
			}
			found := allVerified(t, dir)
			if !slices.ContainsFunc(found, func(f string) bool {
				return strings.HasPrefix(f, string(verify.Damaged)+": "+name) && strings.Contains(f, "restore it from a copy")
			}) {
				t.Errorf("%s is %s: %q", name, how, found)
			}
			if err := Rebuild(t.Context(), dir, Options{}); err == nil && !strings.Contains(name, "/"+Bodies+"/") {
				t.Errorf("%s is %s, and the ledger is derived anew", name, how)
			}
			if err := dir.Put(t.Context(), name, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found := verified(t, dir); len(found) > 0 {
		t.Errorf("%q", found)
	}
	mustRebuild(t, dir, Options{})
}

// allVerified is verified for all files of the dataset.
func allVerified(t *testing.T, st store.Store) (found []string) {
	t.Helper()
	if _, err := verify.Dataset(t.Context(), st,
		verify.Options{Report: func(f verify.Finding) { found = append(found, f.String()) }}); err != nil {
		t.Fatal(err)
	}
	return append(found, verified(t, st)...)
}

func newestHead(t testing.TB, st store.Store) *commit.Head {
	t.Helper()
	h, err := commit.ReadHead(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPrunedForgotten loses the head of a pruning: nothing is derived anew or deleted until it is restored.
func TestPrunedForgotten(t *testing.T) {
	dir := newDir(t)
	for n := range 5 {
		scanned(t, dir, fmt.Sprint("n", n+1), fmt.Sprintf("2026-11-%02d", n+1), nil, "h.example="+[]string{"a", "b"}[n%2])
	}
	mustUpdate(t, dir)
	pruned(t, dir, "2026-11-02")
	before := newestHead(t, dir)
	pruned(t, dir, "2026-11-03")
	want := story(t, dir, "h.example")
	files := namesOf(t, dir, Folder)
	lost := map[string][]byte{}
	for n := newestHead(t, dir).Number; n > before.Number; n-- {
		name := (&commit.Head{Number: n}).Name()
		lost[name] = mustRead(t, dir, name)
		if err := dir.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if found := allVerified(t, dir); !slices.ContainsFunc(found, func(f string) bool {
		return strings.HasPrefix(f, "damaged: "+commit.ManifestName("n2")) && strings.Contains(f, "it is missing, and "+
			before.Name())
	}) {
		t.Errorf("%q", found)
	}
	if err := Rebuild(t.Context(), dir, Options{}); err == nil {
		t.Error("the history was derived anew")
	}
	if _, err := Update(t.Context(), dir, Options{}); err != nil {
		t.Error(err)
	}
	if got := namesOf(t, dir, Folder); !slices.Equal(got, files) {
		t.Errorf("there are %q, were %q", got, files)
	}
	for name, data := range lost {
		if err := dir.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	mustRebuild(t, dir, Options{})
	if got := story(t, dir, "h.example"); got != want || !strings.Contains(got, "rules 01-01") {
		t.Errorf("restored: %s, was %s", got, want)
	}
}

// TestHeadsLost loses the newest heads, one after the other, and all, or damages them: the next merge or rebuilding
// publishes the merged scans again, and the history is unchanged. Without any head every reader fails.
func TestHeadsLost(t *testing.T) {
	for n := range 9 {
		lost, damage, rebuild := n%3+1, []string{"deleted", "", "{}"}[n/3], n >= 3
		dir := newDir(t)
		for n := range 3 {
			id := fmt.Sprint("n", n+1)
			scanned(t, dir, id, fmt.Sprintf("2026-11-%02d", n+1), func(o *sink.Options) { o.NoPublish = true }, "h.example="+
				[]string{"a", "b"}[n%2])
			publication(t, dir, commit.PublicationDone, id)
			mustUpdate(t, dir)
			if n == 1 {
				publication(t, dir, commit.PublicationDiscarded, "n1")
				mustUpdate(t, dir)
			}
		}
		want, newest := contents(t, dir), newestHead(t, dir).Number
		for i := range map[bool]int{true: newest, false: lost}[lost == 3] {
			name := (&commit.Head{Number: newest - i}).Name()
			err := dir.Delete(t.Context(), name)
			if err == nil && damage != "deleted" {
				err = dir.Put(t.Context(), name, []byte(damage))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := ReadLedger(t.Context(), dir)
		if lost == 3 && !errors.Is(err, commit.ErrRecord) {
			t.Errorf("without heads: %v", err)
		}
		if strings.Contains(want, "{n1 ") {
			t.Errorf("a night that was withdrawn is in the history:\n%s", want)
		}
		if err = nil; !rebuild {
			_, err = Update(t.Context(), dir, Options{})
		}
		if err == nil {
			err = Rebuild(t.Context(), dir, Options{})
		}
		if err != nil {
			t.Errorf("%d heads are lost, %q: %v", lost, damage, err)
			continue
		}
		if got := contents(t, dir); got != want {
			t.Errorf("%d heads are lost, %q:\n%s\nwant\n%s", lost, damage, got, want)
		}
	}
}

// TestMonthLost damages or loses the file of a closed month. When the history is derived anew, it is unchanged, all
// nights count, and readers answer.
func TestMonthLost(t *testing.T) {
	for _, damage := range []string{"deleted", "", "[]", "{}"} {
		dir := newDir(t)
		for n, date := range []string{"2026-09-30", "2026-10-01", "2026-10-02", "2026-11-01"} {
			id := fmt.Sprint("n", n+1)
			scanned(t, dir, id, date, func(o *sink.Options) { o.NoPublish = true }, "h.example="+[]string{"a", "b"}[n%2])
			publication(t, dir, commit.PublicationDone, id)
			mustUpdate(t, dir)
		}
		want := contents(t, dir)
		for _, f := range newestHead(t, dir).Months {
			err := dir.Delete(t.Context(), f.Name)
			if err == nil && damage != "deleted" {
				err = dir.Put(t.Context(), f.Name, []byte(damage))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := commit.Scans(t.Context(), dir); err == nil || !strings.Contains(err.Error(), commit.HeadRemedy) {
			t.Errorf("%q: %v", damage, err)
		}
		if err := Rebuild(t.Context(), dir, Options{}); err != nil {
			t.Errorf("%q: %v", damage, err)
			continue
		}
		h := newestHead(t, dir)
		all, err := h.All(t.Context())
		if got := contents(t, dir); got != want || err != nil || len(all) != 4 || len(h.Months) != 2 ||
			h.Causes[0].What != commit.CauseLost {
			t.Errorf("%q: %+v, %v\n%s\nwant\n%s", damage, h, err, got, want)
		}
	}
}

// TestPrunedLedger copies back an earlier ledger. No command uses it, and a ledger that is derived anew equals the lost
// one.
func TestPrunedLedger(t *testing.T) {
	dir := newDir(t)
	var earlier []byte
	for n := range 5 {
		scanned(t, dir, fmt.Sprint("n", n+1), fmt.Sprintf("2026-11-%02d", n+1), nil, "h.example="+[]string{"a", "b"}[n%2])
		mustUpdate(t, dir)
		if n == 0 {
			earlier = mustRead(t, dir, LedgerName)
		}
	}
	pruned(t, dir, "2026-11-04")
	want := story(t, dir, "h.example")
	if err := dir.Put(t.Context(), LedgerName, earlier); err != nil {
		t.Fatal(err)
	}
	if _, err := Update(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), "history --rebuild") {
		t.Error(err)
	}
	if found := verified(t, dir); len(found) == 0 || !strings.HasPrefix(found[0], "damaged: "+LedgerName) {
		t.Errorf("%q", found)
	}
	if mustRebuild(t, dir, Options{}); story(t, dir, "h.example") != want {
		t.Errorf("%s, want %s", story(t, dir, "h.example"), want)
	}
	if found := verified(t, dir); len(found) > 0 {
		t.Errorf("%q", found)
	}
}

// noRecord is a store without room for the record of pruned scans.
type noRecord struct{ store.Store }

func (s noRecord) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	if strings.Contains(name, "-pruned-") {
		return errors.New("no space left")
	}
	return s.Store.CreateIfAbsent(ctx, name, data)
}

// TestPrunedAgain repeats a failing pruning: it leaves only one copy of the history.
func TestPrunedAgain(t *testing.T) {
	dir := newDir(t)
	for n := range 3 {
		scanned(t, dir, fmt.Sprint("n", n+1), fmt.Sprintf("2026-11-%02d", n+1), nil, "h.example=a")
	}
	mustUpdate(t, dir)
	all, err := commit.Scans(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var files int
	for try := range 3 {
		if _, err := Prune(t.Context(), noRecord{dir}, Options{}, Pruning{All: all, Nights: all[:1]}); err == nil ||
			!strings.Contains(err.Error(), "no space left") {
			t.Fatal(err)
		}
		now := len(namesOf(t, dir, Folder))
		if try > 0 && now != files {
			t.Errorf("%d files, then %d", files, now)
		}
		files = now
	}
}

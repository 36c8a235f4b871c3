package reaudit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/siterows"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

func newDir(tb testing.TB) *store.Dir {
	tb.Helper()
	dir, err := store.NewDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func mustOpen(tb testing.TB, st store.Store, o sink.Options) *sink.Writer {
	tb.Helper()
	w, err := sink.Open(context.Background(), st, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.Abort() })
	return w
}

func mustReadScan(tb testing.TB, st store.Store, id string) *commit.Scan {
	tb.Helper()
	scan, err := commit.ReadStoredScan(context.Background(), st, id)
	if err != nil {
		tb.Fatal(err)
	}
	return scan
}

// rowsOf are all rows of a scan.
type rowsOf struct {
	Sites    []schema.SiteRow
	Verdicts []schema.VerdictRow
	Evidence []schema.EvidenceRow
	Bodies   []schema.BodyRow
}

func readScan(tb testing.TB, scan *commit.Scan) rowsOf {
	tb.Helper()
	return rowsOf{
		collect[schema.SiteRow](tb, scan, schema.Sites), collect[schema.VerdictRow](tb, scan, schema.Verdicts),
		collect[schema.EvidenceRow](tb, scan, schema.Evidence), collect[schema.BodyRow](tb, scan, schema.Bodies),
	}
}

func collect[T any](tb testing.TB, scan *commit.Scan, table string) []T {
	tb.Helper()
	var rows []T
	for row, err := range read.Rows[T](context.Background(), scan, table) {
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}

// hasBody reports whether a scan stores a site's body.
func hasBody(s *audit.Site) bool {
	return len(s.Fetch.Body) > 0 && !s.Report.IsHTML && s.Report.Counts.Records > 0
}

// storedScan writes sites as a scan, in parts.
func storedScan(t testing.TB, st store.Store, o sink.Options, sites []*audit.Site) *commit.Scan {
	t.Helper()
	w := mustOpen(t, st, o)
	for _, s := range sites {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(context.Background()), index.Update(context.Background(), st)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return mustReadScan(t, st, o.ScanID)
}

// asToday judges by the default registry.
func asToday() Options { return byRegistry(tokens.Default()) }

func byRegistry(registry *tokens.Registry) Options {
	return Options{Judge: audit.New(registry).Judge, Registry: registry, ToolVersion: "test", Workers: 3}
}

func mustScan(t testing.TB, source *commit.Scan, to store.Store, o Options) *commit.Rejudged {
	t.Helper()
	came, err := Scan(context.Background(), source, to, o)
	if err := errors.Join(err, index.Update(context.Background(), to)); err != nil {
		t.Fatal(err)
	}
	return came
}

var storedOptions = sink.Options{ScanID: "stored", Date: "2026-11-01", PartRows: 40, ToolVersion: "test",
	Config: []commit.Setting{{Name: "max-body", Value: "1"}}, Inputs: []commit.Input{{Name: "list", Fingerprint: "f"}}}

// TestUnchanged judges a scan again with the same code and registry: no column of any table changes, however the scan
// was cut, merged, broken off or kept in memory.
func TestUnchanged(t *testing.T) {
	sites := sitetest.Judged(t, 400)
	f := func(what string, prepare func(t *testing.T, from *store.Dir), run func(t *testing.T, source *commit.Scan,
		to store.Store) *commit.Rejudged) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			from, to := newDir(t), newDir(t)
			storedScan(t, from, storedOptions, sites)
			rejects, err := commit.OpenRejects(t.Context(), from, "stored")
			if err == nil {
				err = rejects.Add(commit.Reject{Input: "list", Line: 3, Text: "not a host", Reason: "no"})
			}
			if err := errors.Join(err, rejects.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			prepare(t, from)
			source := mustReadScan(t, from, "stored")
			came := run(t, source, to)
			made := mustReadScan(t, to, "stored")
			want, got := readScan(t, source), readScan(t, made)
			want.Bodies, got.Bodies = sortedBodies(want.Bodies), sortedBodies(got.Bodies)
			if !reflect.DeepEqual(want, got) {
				t.Error("other rows")
			}
			if came.Sites != 0 || len(came.Columns) > 0 || came.Verdicts != (commit.Difference{}) ||
				came.Evidence != (commit.Difference{}) {
				t.Errorf("differences: %+v", came)
			}
			if came.Judged()+came.Stayed() != int64(len(sites)) || came.Bodies < 100 || came.Answers < 100 ||
				came.Carried[CarriedHTML] < 10 || came.Carried[CarriedNoRecords] < 10 {
				t.Errorf("came to %+v", came)
			}
			m, was := made.Manifest, source.Manifest
			if m.State != commit.Complete || m.ScanDate != was.ScanDate || !reflect.DeepEqual(m.Config, was.Config) ||
				!reflect.DeepEqual(m.Inputs, was.Inputs) || m.Rejudged.StartedAt != was.StartedAt {
				t.Errorf("manifest %+v", m)
			}
			for _, dir := range []store.Store{from, to} {
				if data, err := store.ReadAll(t.Context(), dir, "_rejects/stored.jsonl", 1000); err != nil ||
					!strings.Contains(string(data), "not a host") {
					t.Errorf("rejects %s, %v", data, err)
				}
			}
			soundDataset(t, to)
		})
	}
	nothing := func(*testing.T, *store.Dir) {}
	atOnce := func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		return mustScan(t, source, to, asToday())
	}
	compacted := func(t *testing.T, from *store.Dir) {
		if _, err := compact.Scan(t.Context(), from, "stored", compact.Options{PartBytes: 100_000}); err != nil {
			t.Fatal(err)
		}
	}
	broken := func(t *testing.T, source *commit.Scan, to store.Store) {
		for _, after := range []int64{60, 150} {
			ctx, cancel := context.WithCancel(t.Context())
			o := asToday()
			var judged atomic.Int64
			judge := o.Judge
			o.Judge = func(s *audit.Site) {
				if judged.Add(1) == after {
					cancel()
				}
				judge(s)
			}
			if _, err := Scan(ctx, source, to, o); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v", err)
			}
			cancel()
		}
	}

	f("at once", nothing, atOnce)
	f("compacted", compacted, atOnce)
	f("bodies in a file", nothing, func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		o := asToday()
		o.holdBytes = 100
		return mustScan(t, source, to, o)
	})
	f("broken off", nothing, func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		broken(t, source, to)
		made, err := commit.ReadScan(t.Context(), to, "stored")
		if err != nil || made.Manifest.State != commit.Running || len(made.Commits) == 0 ||
			len(made.Commits) == len(source.Commits) {
			t.Fatalf("broken off with %d commits, %v", len(made.Commits), err)
		}
		left := int64(-1)
		o := asToday()
		o.Opened = func(sites int64) { left = sites }
		defer func() {
			if kept := commit.CountCommits(made.Commits).Rows; left != 400-kept {
				t.Errorf("%d sites left, %d kept", left, kept)
			}
		}()
		return mustScan(t, source, to, o)
	})
	f("broken off, then compacted", nothing, func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		broken(t, source, to)
		if _, err := compact.Scan(t.Context(), source.Store, "stored", compact.Options{}); err != nil {
			t.Fatal(err)
		}
		*source = *mustReadScan(t, source.Store, "stored") // a single part, some of whose sites are done
		return mustScan(t, source, to, asToday())
	})
	f("compacted while it is read", nothing, func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		if _, err := compact.Scan(t.Context(), source.Store, "stored", compact.Options{}); err != nil {
			t.Fatal(err)
		}
		return mustScan(t, source, to, asToday()) // source has listed the parts before
	})
	f("again, when all is done", nothing, func(t *testing.T, source *commit.Scan, to store.Store) *commit.Rejudged {
		mustScan(t, source, to, asToday())
		return mustScan(t, source, to, asToday())
	})
}

// sortedBodies returns the distinct bodies: the number of copies depends on how a scan was cut.
func sortedBodies(rows []schema.BodyRow) []schema.BodyRow {
	slices.SortFunc(rows, func(a, b schema.BodyRow) int { return cmp.Compare(a.BodyHash, b.BodyHash) })
	return slices.CompactFunc(rows, func(a, b schema.BodyRow) bool {
		return a.BodyHash == b.BodyHash &&
			string(a.Body) == string(b.Body)
	})
}

func soundDataset(t *testing.T, st store.Store) {
	t.Helper()
	found, err := verify.Dataset(t.Context(), st, verify.Options{Report: func(f verify.Finding) { t.Error(f.String()) }})
	if err != nil || found.Damaged+found.Leftovers > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

const anotherRegistry = `version other
name   | aliases | category | purpose  | operator | *  | fallback  | source              | checked
MyBot  |         | ai       | training | Me       | no | Googlebot | https://example.org | 2026-01-01
`

// TestWithAnotherRegistry shows that a scan judged again by another registry equals a scan that was judged by this
// registry from the start, and that the differences are counted correctly.
func TestWithAnotherRegistry(t *testing.T) {
	registry, err := tokens.Load(strings.NewReader(anotherRegistry))
	if err != nil {
		t.Fatal(err)
	}
	from, to, fresh := newDir(t), newDir(t), newDir(t)
	sites := sitetest.Judged(t, 300)
	source := storedScan(t, from, storedOptions, sites)
	was := readScan(t, source)
	o := storedOptions
	o.Registry = registry
	auditor := audit.New(registry)
	for _, s := range sites {
		auditor.Judge(s)
	}
	want := readScan(t, storedScan(t, fresh, o, sites))

	came := mustScan(t, source, to, byRegistry(registry))
	got := readScan(t, mustReadScan(t, to, "stored"))
	carried, otherRegistry := map[int64]bool{}, int64(0)
	for i := range want.Sites {
		if was.Sites[i].IsHTML || was.Sites[i].BodyHash != 0 && !slices.ContainsFunc(was.Bodies,
			func(b schema.BodyRow) bool { return b.BodyHash == was.Sites[i].BodyHash }) {
			carried[was.Sites[i].Seq] = true
			if was.Sites[i].NGroups > 0 {
				otherRegistry++
			}
			want.Sites[i] = was.Sites[i] // the registry's version included
		}
	}
	if !reflect.DeepEqual(got.Sites, want.Sites) || !reflect.DeepEqual(got.Evidence, want.Evidence) ||
		!reflect.DeepEqual(got.Bodies, was.Bodies) {
		t.Error("other rows than those of a scan by that registry")
	}
	// The sites that are carried over have only the row of *, which is the same.
	if !reflect.DeepEqual(got.Verdicts, want.Verdicts) {
		t.Error("other verdicts than those of a scan by that registry")
	}
	if n := came.Stayed(); n != int64(len(carried)) || n == 0 {
		t.Errorf("%d carried over, want %d", n, len(carried))
	}

	expected := commit.NewRejudged()
	expected.Bodies, expected.Answers, expected.Carried, expected.Other = came.Bodies, came.Answers, came.Carried,
		otherRegistry
	differing := map[int64]bool{}
	count := func(n *int64, seq int64) { *n++; differing[seq] = true }
	for i := range was.Sites {
		a, b := reflect.ValueOf(was.Sites[i]), reflect.ValueOf(got.Sites[i])
		for k := range a.NumField() {
			if name := schema.ColumnName(a.Type().Field(k)); name != "registry_version" &&
				!reflect.DeepEqual(a.Field(k).Interface(), b.Field(k).Interface()) {
				expected.Columns[name]++
				differing[was.Sites[i].Seq] = true
			}
		}
	}
	rows := map[string]schema.VerdictRow{}
	for _, v := range was.Verdicts {
		rows[fmt.Sprint(v.Seq, v.Token)] = v
	}
	for _, v := range got.Verdicts {
		// The token is spelled as the registry has it, where it has it.
		old, ok := rows[fmt.Sprint(v.Seq, v.Token)]
		delete(rows, fmt.Sprint(v.Seq, v.Token))
		if !ok {
			count(&expected.Verdicts.Appeared, v.Seq)
		} else if !reflect.DeepEqual(old, v) {
			count(&expected.Verdicts.Changed, v.Seq)
			if old.Verdict != v.Verdict {
				expected.Decisions[old.Verdict+" to "+v.Verdict]++
			}
		}
	}
	for _, v := range rows {
		count(&expected.Verdicts.Vanished, v.Seq)
	}
	expected.Sites = int64(len(differing))
	if !reflect.DeepEqual(came, expected) {
		t.Errorf("came to %+v, counted %+v", came, expected)
	}
	if came.Sites == 0 || came.Sites == 300 || came.Columns["named"] == 0 || came.Verdicts.Appeared == 0 ||
		came.Verdicts.Vanished == 0 {
		t.Errorf("the test compares too little: %+v", came)
	}
}

// policiesOf returns the rows of the table policies by id. It fails unless sites name exactly these policies.
func policiesOf(t *testing.T, scan *commit.Scan) map[int64]schema.PolicyRow {
	t.Helper()
	policies, named := map[int64]schema.PolicyRow{}, map[int64]bool{}
	for _, row := range collect[schema.PolicyRow](t, scan, schema.Policies) {
		policies[row.PolicyID] = row
	}
	for _, row := range collect[schema.SiteRow](t, scan, schema.Sites) {
		if (row.PolicyID != 0) != (row.Access == "conditional") || (row.PolicyID == 0) != (row.RFCPolicyID == 0) {
			t.Errorf("seq %d: access %s, policies %d and %d", row.Seq, row.Access, row.PolicyID, row.RFCPolicyID)
		}
		for _, id := range []int64{row.PolicyID, row.RFCPolicyID} {
			if _, has := policies[id]; id != 0 && !has {
				t.Errorf("seq %d has the policy %d, which has no row", row.Seq, id)
			}
			named[id] = true
		}
	}
	for id := range policies {
		if !named[id] {
			t.Errorf("no site has the policy %d", id)
		}
	}
	return policies
}

// TestTables judges scans again that were written without some tables.
func TestTables(t *testing.T) {
	sites := sitetest.Judged(t, 120)
	f := func(tables ...string) *commit.Rejudged {
		t.Helper()
		from, to := newDir(t), newDir(t)
		o := storedOptions
		o.Tables = tables
		source := storedScan(t, from, o, sites)
		came := mustScan(t, source, to, asToday())
		made := mustReadScan(t, to, "stored")
		if !reflect.DeepEqual(made.Manifest.Tables, append(tables, schema.Policies)) || came.Sites != 0 || came.Judged()+
			came.Stayed() != 120 {
			t.Errorf("%v: %+v", tables, came)
		}
		if !reflect.DeepEqual(collect[schema.SiteRow](t, source, schema.Sites), collect[schema.SiteRow](t, made,
			schema.Sites)) {
			t.Errorf("%v: other sites", tables)
		}
		if !reflect.DeepEqual(policiesOf(t, source), policiesOf(t, made)) {
			t.Errorf("%v: other policies", tables)
		}
		soundDataset(t, to)
		return came
	}
	f(schema.Sites, schema.Bodies)
	f(schema.Sites, schema.Evidence, schema.Bodies)
	if came := f(schema.Sites, schema.Verdicts); came.Bodies != 0 || came.Carried[CarriedNotStored] == 0 ||
		came.Answers == 0 {
		t.Errorf("without bodies: %+v", came)
	}
	o := storedOptions
	o.Tables = []string{schema.Verdicts, schema.Bodies}
	source := storedScan(t, newDir(t), o, sites)
	if _, err := Scan(t.Context(), source, newDir(t), asToday()); !errors.Is(err, commit.ErrNoTable) {
		t.Errorf("without sites: %v", err)
	}
}

// TestByOtherRules judges by a judge whose results begin to differ late in a part. Each kind of change is counted, and
// the new results are written.
func TestByOtherRules(t *testing.T) {
	sites := sitetest.Judged(t, 80)
	for i, s := range sites { // each has a body of its own, since only the first of equal ones is judged
		if hasBody(s) {
			s.Fetch.Body = fmt.Appendf(slices.Clip(s.Fetch.Body), "# site %d\n", i)
			audit.Judge(s)
		}
	}
	at := func(seq uint64, s *audit.Site) bool { return s.Seq == seq }
	find := func(from int, ok func(s *audit.Site) bool) uint64 {
		return uint64(from + slices.IndexFunc(sites[from:], func(s *audit.Site) bool { return hasBody(s) && ok(s) }))
	}
	check := find(70, func(s *audit.Site) bool { return s.Report.Status == audit.Pass })
	star := find(30, func(s *audit.Site) bool {
		return len(s.Report.Verdicts) > 0 && s.Report.Verdicts[0].Decision == audit.Partial
	})
	lines := find(35, func(s *audit.Site) bool { return len(s.Report.Evidence) > 1 })
	order := find(36, func(s *audit.Site) bool { return s.Seq != lines && len(s.Report.Evidence) > 1 && s.Seq != star })
	o := asToday()
	judge := o.Judge
	o.Judge = func(s *audit.Site) {
		judge(s)
		r := &s.Report
		switch {
		case at(check, s):
			r.Status, r.Score = audit.Warn, 0.5
		case at(star, s):
			r.Verdicts[0].Decision = audit.Blocked
		case at(lines, s):
			r.Evidence[0].Kind = audit.KindTypo
		case at(order, s):
			slices.Reverse(r.Evidence)
		}
	}
	from, to, fresh := newDir(t), newDir(t), newDir(t)
	source := storedScan(t, from, storedOptions, sites)
	kind := sites[lines].Report.Evidence[0].Kind.String()
	o.Done = new(atomic.Int64)
	came := mustScan(t, source, to, o)
	if n := o.Done.Load(); n != 80 {
		t.Errorf("%d sites counted as made", n)
	}
	want := commit.NewRejudged()
	want.Bodies, want.Answers, want.Carried, want.Sites = came.Bodies, came.Answers, came.Carried, 3
	want.Columns["check_status"], want.Columns["score"], want.Checks["pass to warn"] = 1, 1, 1
	want.Verdicts.Changed, want.Decisions["partial to blocked"] = 1, 1
	want.Evidence = commit.Difference{Appeared: 1, Vanished: 1}
	want.Kinds[kind], want.Kinds["typo"] = commit.Difference{Vanished: 1}, commit.Difference{Appeared: 1}
	if !reflect.DeepEqual(came, want) {
		t.Errorf("came to %+v, want %+v", came, want)
	}
	var text strings.Builder
	if err := Print(&text, came, "stored"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"3 sites differ", "sites.check_status: 1", "of check_status, pass to warn: 1",
		"of verdict, partial to blocked: 1", "typo: 1 appeared, 0 vanished"} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("nothing of %q in\n%s", line, &text)
		}
	}
	for _, s := range sites {
		if s.Fetch.Body == nil || hasBody(s) {
			o.Judge(s)
		}
	}
	if got := readScan(t, mustReadScan(t, to, "stored")); !reflect.DeepEqual(got,
		readScan(t, storedScan(t, fresh, storedOptions, sites))) {
		t.Error("other rows than those of a scan by these rules")
	}
	soundDataset(t, to)
}

// TestUnfinished judges the committed parts of an interrupted scan again. The result is not complete.
func TestUnfinished(t *testing.T) {
	from, to := newDir(t), newDir(t)
	sites := sitetest.Judged(t, 100)
	w := mustOpen(t, from, storedOptions)
	for _, s := range sites {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
		if s.Seq == 90 { // the third part is open, so that two are committed
			mustScan(t, mustReadScan(t, from, "stored"), to, asToday())
			made := mustReadScan(t, to, "stored")
			if n := len(readScan(t, made).Sites); n != 80 || made.Manifest.State != commit.Running ||
				made.Manifest.Rejudged.State != commit.Running {
				t.Errorf("%d sites of a scan that is %s", n, made.Manifest.State)
			}
			soundDataset(t, to)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := Scan(t.Context(), mustReadScan(t, from, "stored"), to, asToday())
	if _, ok := errors.AsType[*commit.ChangedError](err); !ok {
		t.Errorf("goes on with more sites: %v", err)
	}
}

// TestRefuses shows that a reaudit only continues with the same scan and settings, and excludes other processes.
func TestRefuses(t *testing.T) {
	from, to := newDir(t), newDir(t)
	source := storedScan(t, from, storedOptions, sitetest.Judged(t, 100))
	mustScan(t, source, to, asToday())
	f := func(what string, source *commit.Scan, to store.Store, o Options) {
		t.Helper()
		_, err := Scan(t.Context(), source, to, o)
		if changed, ok := errors.AsType[*commit.ChangedError](err); !ok || changed.What != what {
			t.Errorf("error %v, want one of %s", err, what)
		}
	}
	registry, err := tokens.Load(strings.NewReader(anotherRegistry))
	if err != nil {
		t.Fatal(err)
	}
	f("the token registry", source, to, byRegistry(registry))
	more := storedScan(t, newDir(t), storedOptions, sitetest.Judged(t, 101))
	f("what is judged again", more, to, asToday())
	f("what is judged again", source, from, asToday()) // onto what was asked
	newer := asToday()
	newer.ToolVersion = "newer" // rows that other rules have judged would be attributed to its rules
	f("the version of bulkscan", source, to, newer)

	// A scan that cannot be made again is not deleted, and neither is the scan that is read.
	f = func(what string, source *commit.Scan, to store.Store, o Options) {
		t.Helper()
		o.Restart = true
		if _, err := Scan(t.Context(), source, to, o); err == nil || !strings.Contains(err.Error(), "is not deleted") {
			t.Errorf("%s: error %v", what, err)
		}
		soundDataset(t, to)
	}
	other := newDir(t)
	storedScan(t, other, storedOptions, sitetest.Judged(t, 30))
	f("another scan of that name", source, other, asToday())
	f("itself", source, from, asToday())
	f("itself, judged again", mustReadScan(t, to, "stored"), to, asToday())
	if _, err := sink.Open(t.Context(), to, storedOptions); err == nil || !strings.Contains(err.Error(),
		"what is judged again") {
		t.Errorf("a scan goes on with what was judged again: %v", err)
	}
	o := byRegistry(registry)
	o.Restart = true
	if came := mustScan(t, more, to, o); came.Judged()+came.Stayed() != 101 {
		t.Errorf("begun anew: %+v", came)
	}
	soundDataset(t, to)

	w := mustOpen(t, to, sink.Options{ScanID: "held"})
	held := storedScan(t, newDir(t), sink.Options{ScanID: "held"}, sitetest.Judged(t, 3))
	if _, err := Scan(t.Context(), held, to, asToday()); err == nil {
		t.Error("made what another process writes")
	} else if _, ok := errors.AsType[*commit.HeldError](err); !ok {
		t.Errorf("error %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
}

// TestDamaged shows that damaged parts are left out and reported, and that all others are made. When the damaged parts
// have been restored, they are made, too.
func TestDamaged(t *testing.T) {
	sites := sitetest.Judged(t, 200) // five parts
	f := func(want string, damage func(t *testing.T, sites []*audit.Site), break_ func(t *testing.T, from *store.Dir)) {
		t.Helper()
		from, to := newDir(t), newDir(t)
		again := sitetest.Judged(t, 200)
		if damage != nil {
			damage(t, again[40:80])
		}
		source := storedScan(t, from, storedOptions, again)
		if break_ != nil {
			break_(t, from)
		}
		o := asToday()
		o.Done = new(atomic.Int64)
		came, err := Scan(t.Context(), source, to, o)
		if n := o.Done.Load(); n != 160 {
			t.Errorf("%s: %d sites counted as made", want, n)
		}
		damaged, ok := errors.AsType[*DamagedPartError](err)
		if !ok || damaged.Part != "_scans/stored/commits/0-1.json" || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
			return
		}
		made := mustReadScan(t, to, "stored")
		if came.Judged()+came.Stayed() != 160 || len(made.Commits) != 4 || made.Manifest.State != commit.Running {
			t.Errorf("%s: %d parts of the others, %+v", want, len(made.Commits), came)
		}
		soundDataset(t, to)
		good := storedScan(t, newDir(t), storedOptions, sites)
		good.Manifest.StartedAt = source.Manifest.StartedAt
		if came := mustScan(t, good, to, asToday()); came.Judged()+came.Stayed() != 200 {
			t.Errorf("put back: %+v", came)
		}
		soundDataset(t, to)
		if n := len(readScan(t, mustReadScan(t, to, "stored")).Sites); n != 200 {
			t.Errorf("%d sites", n)
		}
	}
	first := func(sites []*audit.Site) *audit.Site {
		i := slices.IndexFunc(sites, func(s *audit.Site) bool {
			return hasBody(s) && s.Report.Counts.Groups > 0 && strings.Contains(string(s.Fetch.Body), "# ")
		})
		return sites[i]
	}
	f("the body that is called 12345 has the hash ",
		func(_ *testing.T, sites []*audit.Site) { first(sites).Report.BodyHash = 12345 }, nil)
	f("it has no body ", func(_ *testing.T, sites []*audit.Site) { first(sites).Report.Counts.Records = 0 }, nil)
	flip := func(table string) func(t *testing.T, from *store.Dir) {
		return func(t *testing.T, from *store.Dir) {
			name := commit.PartName(table, "2026-11-01", "stored", "0", 1)
			data, err := os.ReadFile(filepath.Join(from.Root(), name))
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/3] ^= 1
			if err := os.WriteFile(filepath.Join(from.Root(), name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	f("bodies/scan_date=2026-11-01/part-stored-0-1.parquet", nil, flip(schema.Bodies))
	f("sites/scan_date=2026-11-01/part-stored-0-1.parquet", nil, flip(schema.Sites))
	f("verdicts/scan_date=2026-11-01/part-stored-0-1.parquet", nil, flip(schema.Verdicts))
	f("evidence/scan_date=2026-11-01/part-stored-0-1.parquet", nil, func(t *testing.T, from *store.Dir) {
		if err := from.Delete(t.Context(), commit.PartName(schema.Evidence, "2026-11-01", "stored", "0", 1)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamagedFacts damages a file so that it stays readable: its footer has another name for a column. The facts of
// this column are not carried over as missing.
func TestDamagedFacts(t *testing.T) {
	registry, err := tokens.Load(strings.NewReader(anotherRegistry))
	if err != nil {
		t.Fatal(err)
	}
	f := func(table, column string) {
		t.Helper()
		from, to := newDir(t), newDir(t)
		source := storedScan(t, from, storedOptions, sitetest.Judged(t, 60))
		name := filepath.Join(from.Root(), source.Commits[0].Files[slices.IndexFunc(source.Commits[0].Files,
			func(f schema.File) bool { return f.Table == table })].Name)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.LastIndex(data, []byte(column))
		data[at] ^= 1
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = Scan(t.Context(), source, to, byRegistry(registry))
		if damaged, ok := errors.AsType[*DamagedPartError](err); !ok || !strings.Contains(damaged.Error(), "sha256") {
			t.Errorf("%s.%s: error %v", table, column, err)
		}
		if made := mustReadScan(t, to, "stored"); len(made.Commits) != 1 || made.Manifest.State != commit.Running {
			t.Errorf("%s.%s: %d parts, %s", table, column, len(made.Commits), made.Manifest.State)
		}
	}
	f(schema.Sites, "cdn")       // all of it is written
	f(schema.Evidence, "value")  // compared, and written from the first differing row on
	f(schema.Verdicts, "lenien") // the same
}

// TestMissing shows that a scan with missing records is refused: the result of the others would count as complete.
func TestMissing(t *testing.T) {
	f := func(n int, want string) {
		t.Helper()
		from := newDir(t)
		storedScan(t, from, storedOptions, sitetest.Judged(t, 200))
		if err := from.Delete(t.Context(), commit.RecordName("stored", "0", n)); err != nil {
			t.Fatal(err)
		}
		to := newDir(t)
		if _, err := Scan(t.Context(), mustReadScan(t, from, "stored"), to, asToday()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if scans, err := commit.Scans(t.Context(), to); err != nil || len(scans) != 0 {
			t.Errorf("%d scans begun, %v", len(scans), err)
		}
	}
	f(1, "(_scans/stored/commits/0-1.json: it is missing: its shard has later commits; rows: 160 of 200; ")
	f(4, "(rows: 160 of 200; ")
}

// TestDamagedRejects shows that damaged rejects do not get a new, valid hash.
func TestDamagedRejects(t *testing.T) {
	f := func(want string, damage func(name string) error) {
		t.Helper()
		from, to := newDir(t), newDir(t)
		source := storedScan(t, from, storedOptions, sitetest.Judged(t, 50))
		rejects, err := commit.OpenRejects(t.Context(), from, "stored")
		if err == nil {
			err = rejects.Add(commit.Reject{Input: "list", Line: 3, Text: "not a host", Reason: "no"})
		}
		name := filepath.Join(from.Root(), commit.RejectsName("stored"))
		if err := errors.Join(err, rejects.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		sound, err := os.ReadFile(name)
		if err := errors.Join(err, damage(name)); err != nil {
			t.Fatal(err)
		}
		_, err = Scan(t.Context(), source, to, asToday())
		if damaged, ok := errors.AsType[*DamagedPartError](err); !ok || damaged.Part != "_rejects/stored.jsonl" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if _, err := os.Stat(filepath.Join(to.Root(), commit.RejectsName("stored"))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("rejects: %v", err)
		}
		if m := mustReadScan(t, to, "stored").Manifest; m.State != commit.Running {
			t.Errorf("the scan is %s", m.State)
		}
		if err := os.WriteFile(name, sound, 0o644); err != nil {
			t.Fatal(err)
		}
		mustScan(t, source, to, asToday())
		soundDataset(t, to)
	}
	f("sha256: expected ", func(name string) error { return os.WriteFile(name, []byte("{\"input\":\"other\"}\n"), 0o644) })
	f("it is missing", os.Remove)
}

// TestByOtherRegistryBefore counts the sites whose groups keep the judgement of another registry, also if they were
// judged again before. Sites that every registry judges alike do not count.
func TestByOtherRegistryBefore(t *testing.T) {
	registry, err := tokens.Load(strings.NewReader(anotherRegistry))
	if err != nil {
		t.Fatal(err)
	}
	sites, withGroups := sitetest.Judged(t, 60), int64(0)
	for _, s := range sites {
		if s.Report.IsHTML && s.Report.Counts.Groups > 0 {
			withGroups++
		}
	}
	if withGroups == 0 {
		t.Fatal("no page has rules")
	}
	from, once, twice, back := newDir(t), newDir(t), newDir(t), newDir(t)
	f := func(source *commit.Scan, to store.Store, registry *tokens.Registry, want int64) *commit.Scan {
		t.Helper()
		came := mustScan(t, source, to, byRegistry(registry))
		made := mustReadScan(t, to, "stored")
		var text strings.Builder
		if err := Print(&text, came, "stored"); err != nil || strings.Contains(text.String(),
			"another registry") != (want > 0) {
			t.Errorf("%v, printed\n%s", err, &text)
		}
		if came.Other != want || made.ByOtherRegistry() != want || came.Carried[CarriedHTML] <= withGroups {
			t.Errorf("%d and %d sites by another registry, want %d", came.Other, made.ByOtherRegistry(), want)
		}
		return made
	}
	source := storedScan(t, from, storedOptions, sites)
	made := f(source, once, registry, withGroups)
	if _, err := compact.Scan(t.Context(), once, "stored", compact.Options{}); err != nil {
		t.Fatal(err)
	}
	if again := mustScan(t, source, once, byRegistry(registry)); mustReadScan(t, once,
		"stored").ByOtherRegistry() != withGroups || again.Other != withGroups || again.Sites == 0 {
		t.Errorf("merged: %+v", again)
	}
	f(mustReadScan(t, once, "stored"), twice, registry, withGroups) // although the registry is the same as before
	f(made, back, tokens.Default(), 0)
}

// TestPrintHostile shows that hostile words of foreign commits are printed harmlessly.
func TestPrintHostile(t *testing.T) {
	const hostile = "\x1b]0;x\x07\nscan t: no differences"
	r := &commit.Rejudged{Sites: 1, Carried: map[string]int64{hostile: 1}, Checks: map[string]int64{hostile: 1},
		Decisions: map[string]int64{hostile + strings.Repeat("x", 1000): 1}}
	var b strings.Builder
	if err := Print(&b, r, "s"); err != nil || strings.ContainsAny(b.String(), "\x1b\x07") || strings.Contains(b.String(),
		"\nscan t") || b.Len() > 1000 {
		t.Errorf("%v\n%q", err, b.String())
	}
}

// TestRestoreWhatIsNotKnown carries over the judgement of a row that has an outcome or a source that this version does
// not know.
func TestRestoreWhatIsNotKnown(t *testing.T) {
	f := func(outcome, source string, seq int64, want string) {
		t.Helper()
		p := &storedPart{now: siterows.Rows{Site: schema.SiteRow{Seq: seq, Outcome: outcome, AccessSource: source}}}
		if carried, err := p.restore(new(audit.Site)); carried != want || err != nil {
			t.Errorf("%s, %s, %d: %q, %v; want %q", outcome, source, seq, carried, err, want)
		}
	}
	f("answered", "fresh", 0, "")
	f("answered", "stale", 0, CarriedNotRead)
	f("answered", "", 0, CarriedNotRead)
	f("teleported", "fresh", 0, CarriedNotRead)
	f("answered", "fresh", -1, CarriedNotRead)
}

// brokenStore is a store whose drafts of some files cannot be written.
type brokenStore struct {
	*store.Dir
	prefix string
}

func (b brokenStore) Create(ctx context.Context, name string) (store.Draft, error) {
	draft, err := b.Dir.Create(ctx, name)
	if strings.HasPrefix(name, b.prefix) && err == nil {
		return brokenDraft{draft}, nil
	}
	return draft, err
}

type brokenDraft struct{ store.Draft }

func (brokenDraft) Write([]byte) (int, error) { return 0, syscall.EIO }

// TestCannotWrite shows that a failing write ends the run, and does not count as damage of the stored scan, whether
// pages are copied or written.
func TestCannotWrite(t *testing.T) {
	source := storedScan(t, newDir(t), storedOptions, sitetest.Judged(t, 100))
	registry, err := tokens.Load(strings.NewReader(anotherRegistry))
	if err != nil {
		t.Fatal(err)
	}
	f := func(prefix string, o Options) {
		t.Helper()
		to := newDir(t)
		_, err := Scan(t.Context(), source, brokenStore{to, prefix}, o)
		if _, damaged := errors.AsType[*DamagedPartError](err); damaged || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: error %v", prefix, err)
		}
		mustScan(t, source, to, o)
		soundDataset(t, to)
	}
	f("bodies/", asToday())
	f("sites/", asToday())
	f("sites/", byRegistry(registry))
}

// TestJudgesOnce shows that a body of many sites of a part is judged once, as long as their answers and rows are the
// same.
func TestJudgesOnce(t *testing.T) {
	f := func(what string, change func(s *audit.Site), judge func(s *audit.Site), judgements, differ int64) {
		t.Helper()
		sites := make([]*audit.Site, 100)
		for i := range sites {
			s := sitetest.Typical(t, uint64(i))
			s.Fetch.Body = []byte("User-agent: *\nDisallow: /private/\n")
			if i == 50 {
				change(s)
			}
			audit.Judge(s)
			if i == 50 {
				judge(s)
			}
			sites[i] = s
		}
		source := storedScan(t, newDir(t), sink.Options{ScanID: "stored"}, sites)
		o, to := asToday(), newDir(t)
		var judged atomic.Int64
		o.Judge = func(s *audit.Site) {
			judged.Add(1)
			audit.Judge(s)
		}
		came := mustScan(t, source, to, o)
		if n := judged.Load(); n != judgements || came.Bodies != 100 || came.Sites != differ {
			t.Errorf("%s: %d judgements, want %d; %+v", what, n, judgements, came)
		}
		policiesOf(t, mustReadScan(t, to, "stored"))
		soundDataset(t, to)
	}
	nothing := func(*audit.Site) {}
	f("the same", nothing, nothing, 1, 0)
	f("another answer", func(s *audit.Site) { s.Fetch.Truncated = true }, nothing, 3, 0)
	f("another field", func(s *audit.Site) { s.Fetch.Fields.XRobotsTag = nil }, nothing, 3, 0)
	// Before the differing row one site is judged; after it all are, since the table is written.
	f("another row of sites", nothing, func(s *audit.Site) { s.Report.Score = 0.123 }, 2+100, 1)
	f("another verdict", nothing, func(s *audit.Site) { s.Report.Verdicts[0].Line++ }, 2+100, 1)
	f("no verdict", nothing, func(s *audit.Site) { s.Report.Verdicts = nil }, 2+100, 1)
	f("more evidence", nothing, func(s *audit.Site) {
		s.Report.Evidence = append(s.Report.Evidence, audit.Evidence{Line: 1, Kind: audit.KindTypo})
	}, 2+100, 1)
}

// TestFingerprint shows that each column counts that is judged or that a judgement depends on, and no other.
func TestFingerprint(t *testing.T) {
	rows := &siterows.Rows{Verdicts: make([]schema.VerdictRow, 2), Evidence: make([]schema.EvidenceRow, 2)}
	was, _ := fingerprint(rows, nil)
	f := func(row any, counts func(f reflect.StructField, name string) bool) {
		t.Helper()
		for i := range reflect.ValueOf(row).Elem().NumField() {
			column, v := reflect.TypeOf(row).Elem().Field(i), reflect.ValueOf(row).Elem().Field(i)
			var other reflect.Value
			switch v.Kind() {
			case reflect.Pointer:
				other = reflect.New(v.Type().Elem()) // not the same as none
			case reflect.Slice:
				other = reflect.MakeSlice(v.Type(), 1, 1)
			case reflect.String:
				other = reflect.ValueOf("x")
			case reflect.Bool:
				other = reflect.ValueOf(true)
			default:
				other = reflect.ValueOf(1).Convert(v.Type())
			}
			v.Set(other)
			if is, _ := fingerprint(rows, nil); (is != was) != counts(column, schema.ColumnName(column)) {
				t.Errorf("%T.%s counts: %v", row, column.Name, is != was)
			}
			v.SetZero()
		}
	}
	f(&rows.Site, func(f reflect.StructField, name string) bool {
		return f.Tag.Get("judged") != "" || slices.Contains([]string{"outcome", "status", "truncated", "body_hash",
			"challenge", "x_robots_tag"}, name)
	})
	ofSite := []string{"origin", "host", "port", "requested", "seq", "rank", "tld"}
	f(&rows.Verdicts[1], func(_ reflect.StructField, name string) bool { return !slices.Contains(ofSite, name) })
	f(&rows.Evidence[1], func(_ reflect.StructField, name string) bool { return !slices.Contains(ofSite, name) })
	if is, _ := fingerprint(rows, nil); is != was {
		t.Error("the same rows have another fingerprint")
	}
}

// TestRepeatedBodyIsChecked shows that a body is compared with its hash also where a merged part repeats it.
func TestRepeatedBodyIsChecked(t *testing.T) {
	sites := sitetest.Judged(t, 80)
	for _, s := range sites[40:] {
		s.Fetch.Body = slices.Clone(s.Fetch.Body)
		if hasBody(s) {
			s.Fetch.Body[0] ^= 1 // its rows stay as they are
		}
	}
	from := newDir(t)
	storedScan(t, from, storedOptions, sites)
	if _, err := compact.Scan(t.Context(), from, "stored", compact.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := Scan(t.Context(), mustReadScan(t, from, "stored"), newDir(t), asToday())
	if _, damaged := errors.AsType[*DamagedPartError](err); !damaged || !strings.Contains(err.Error(), "has the hash") {
		t.Errorf("error %v", err)
	}
}

// TestStoredBodiesAreForgotten reads a part that was merged from several, each with the same bodies: in the end no body
// is kept.
func TestStoredBodiesAreForgotten(t *testing.T) {
	from := newDir(t)
	storedScan(t, from, storedOptions, sitetest.Judged(t, 300))
	if _, err := compact.Scan(t.Context(), from, "stored", compact.Options{}); err != nil {
		t.Fatal(err)
	}
	source := mustReadScan(t, from, "stored")
	p, err := openStored(t.Context(), source, &source.Commits[0], false)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for {
		more, err := p.next()
		if err != nil || !more {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if _, err := p.restore(new(audit.Site)); err != nil {
			t.Fatal(err)
		}
		kept = max(kept, len(p.bodies.kept))
	}
	if len(p.bodies.kept) > 0 || p.bodies.held != 0 || kept == 0 {
		t.Errorf("%d bodies of %d bytes kept in the end, %d before", len(p.bodies.kept), p.bodies.held, kept)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestRowsDiffer shows that rows also differ by columns that are pointers, and by each column of evidence.
func TestRowsDiffer(t *testing.T) {
	from, same := int32(60), int32(60)
	is := schema.VerdictRow{Token: "*", VisitFrom: &from}
	if sameVerdict(&schema.VerdictRow{Token: "*"}, &is) || !sameVerdict(&schema.VerdictRow{Token: "*", VisitFrom: &same},
		&is) {
		t.Error("verdicts are compared by other things than their values")
	}
	came := commit.NewRejudged()
	rows := func(e schema.EvidenceRow) *siterows.Rows { return &siterows.Rows{Evidence: []schema.EvidenceRow{e}} }
	if newDifferences(came, schema.Version).count(rows(schema.EvidenceRow{Line: 1}),
		rows(schema.EvidenceRow{Line: 1, GroupLine: 1}), new(audit.Site),
		map[string]bool{schema.Evidence: true}) != schema.Evidence || came.Sites != 1 {
		t.Errorf("evidence of another group is the same: %+v", came)
	}
}

// TestRowsAreWhole shows that each column of each table is read as read.Rows reads it: lists, lists of structs and
// pointers too.
func TestRowsAreWhole(t *testing.T) {
	scan := storedScan(t, newDir(t), sink.Options{ScanID: "whole"}, append(sitetest.Judged(t, 200),
		sitetest.Typical(t, 200), sitetest.Dead(t, 201)))
	want := readScan(t, scan)
	wholeRows(t, scan, schema.Sites, want.Sites)
	wholeRows(t, scan, schema.Verdicts, want.Verdicts)
	wholeRows(t, scan, schema.Evidence, want.Evidence)
	wholeRows(t, scan, schema.Bodies, want.Bodies)
}

func wholeRows[T any](t *testing.T, scan *commit.Scan, table string, want []T) {
	t.Helper()
	rows, err := openAhead(t.Context(), scan, &scan.Commits[0], table, new(T), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for more := rows.has; more || n == 0 && table == schema.Sites; n++ {
		if table == schema.Sites {
			if more, err = rows.next(); !more {
				break
			}
		}
		if got, want := fmt.Sprintf("%+v", spelled(*rows.row)), fmt.Sprintf("%+v", spelled(want[n])); got != want {
			t.Fatalf("%s, row %d:\n%s\n%s", table, n, got, want)
		}
		if table != schema.Sites {
			more, err = rows.next()
		}
	}
	if err := errors.Join(err, rows.close()); err != nil || n != len(want) {
		t.Errorf("%s: %d rows, want %d, %v", table, n, len(want), err)
	}
}

// spelled is a row's fields, with what pointers point to.
func spelled(row any) (fields []any) {
	value := reflect.ValueOf(row)
	for i := range value.NumField() {
		field := value.Field(i)
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		fields = append(fields, field.Interface())
	}
	return fields
}

// TestMakesLostAgain shows that lost parts which were made from stored sites are made from them again.
func TestMakesLostAgain(t *testing.T) {
	from := newDir(t)
	source := storedScan(t, from, storedOptions, sitetest.Judged(t, 200))
	for _, n := range []int{0, 2, 4} {
		to := newDir(t)
		mustScan(t, source, to, asToday())
		want := mustReadScan(t, to, "stored").Manifest.Counts
		if err := to.Delete(t.Context(), commit.RecordName("stored", "0", n)); err != nil {
			t.Fatal(err)
		}
		_, err := compact.Scan(t.Context(), to, "stored", compact.Options{})
		if err == nil || !strings.Contains(err.Error(), "again by the same bulkscan reaudit") {
			t.Errorf("part %d: %v", n, err)
		}
		mustScan(t, source, to, asToday())
		soundDataset(t, to)
		if got := mustReadScan(t, to, "stored").Manifest.Counts; got.Rows != want.Rows || !reflect.DeepEqual(got.Files,
			want.Files) {
			t.Errorf("part %d: %+v, want %+v", n, got, want)
		}
	}
}

// TestNewer shows that a stored scan is refused if a later version wrote its manifest, a commit or a file, and that no
// new scan is begun.
func TestNewer(t *testing.T) {
	f := func(what string, age func(source *commit.Scan, c *commit.Commit) error) {
		t.Helper()
		from, to := newDir(t), newDir(t)
		source := storedScan(t, from, storedOptions, sitetest.Judged(t, 100))
		if err := age(source, &source.Commits[1]); err != nil {
			t.Fatal(err)
		}
		source, err := commit.ReadScan(t.Context(), from, "stored")
		if err == nil {
			_, err = Scan(t.Context(), source, to, asToday())
		}
		if newer, ok := errors.AsType[*schema.NewerError](err); !ok || newer.Version != schema.Version+1 {
			t.Errorf("%s: %v", what, err)
		}
		if scans, err := commit.Scans(t.Context(), to); err != nil || what != "file" && len(scans) > 0 {
			t.Errorf("%s: %d scans begun, %v", what, len(scans), err)
		}
	}
	put := func(source *commit.Scan, c *commit.Commit) error {
		data, err := commit.SealRecord(c, &c.Sum)
		return errors.Join(err, source.Store.Put(t.Context(), c.Name(), data))
	}
	f("manifest", func(source *commit.Scan, _ *commit.Commit) error {
		source.Manifest.SchemaVersion++
		return source.Manifest.Write(t.Context(), source.Store)
	})
	f("commit", func(source *commit.Scan, c *commit.Commit) error {
		c.SchemaVersion++
		return put(source, c)
	})
	f("file", func(source *commit.Scan, c *commit.Commit) error {
		metadata := map[string]string{table.MetaSchema: fmt.Sprint(schema.Version + 1), table.MetaScan: "stored"}
		f := &c.Files[slices.IndexFunc(c.Files, func(f schema.File) bool { return f.Table == schema.Sites })]
		draft, file, err := table.Concat(t.Context(), source.Store, source.Store, f.Name, []schema.File{*f}, metadata)
		if err != nil {
			return err
		}
		*f = file
		if err := errors.Join(draft.Publish(t.Context()), draft.Discard(), put(source, c)); err != nil {
			return err
		}
		commits, err := commit.Commits(t.Context(), source.Store, "stored")
		source.Manifest.Counts = commit.CountCommits(commits)
		return errors.Join(err, source.Manifest.Write(t.Context(), source.Store))
	})
}

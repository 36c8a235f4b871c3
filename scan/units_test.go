package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// These tests show that the figures of a date, observer and list count each site once, by package units.

// answer is one row of a site.
type answer struct {
	url    string
	at     int64  // milliseconds
	status int    // 0: none
	body   string // of 200
}

// archived is an answer as a row.
func (a answer) site(t *testing.T, seq uint64) *audit.Site {
	t.Helper()
	o, err := origin.Parse(a.url)
	if err != nil {
		t.Fatal(err)
	}
	s := &audit.Site{Seq: seq, Input: a.url, Origin: o, Domain: "d" + o.Host()[1:2] + ".test", TLD: "test"}
	s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: a.status, FetchedAt: time.UnixMilli(1_795_000_000_000 +
		a.at).UTC(), Body: []byte(a.body)}
	if a.status == 0 {
		s.Fetch = exchange.Response{Outcome: exchange.Timeout, FetchedAt: s.Fetch.FetchedAt}
	}
	audit.Judge(s)
	return s
}

// write makes a complete scan with statistics, which waits to be published.
func write(t *testing.T, st store.Store, o sink.Options, answers []answer) {
	t.Helper()
	o.NoPublish, o.PartRows = true, max(1, len(answers)/3)
	w, err := sink.Open(t.Context(), st, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if err := w.Add(a.site(t, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	err = w.Flush(t.Context())
	if err == nil {
		err = stats.Write(t.Context(), st, o.ScanID, survey.Options{})
	}
	if err := errors.Join(err, w.Complete(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func release(t *testing.T, st store.Store, id string, compact bool) {
	t.Helper()
	o := publishing
	o.Compact = compact
	if err := Release(t.Context(), st, id, o); err != nil {
		t.Fatal(err)
	}
}

// figures returns the figures of a scan's unit, or of the scan alone: the summary, all tables of the report,
// sensitivity, and for a unit the statistics in the index.
func figures(t *testing.T, st store.Store, id string, alone bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	put := func(name string, value any) {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	o := survey.Options{Alone: alone}
	for _, definition := range survey.DefinitionNames() {
		s, err := summary.Of(t.Context(), st, id, summary.Options{Options: o, Definition: definition})
		if err != nil {
			t.Fatal(err)
		}
		s.ScanID, s.Publication, s.StartedAt, s.FinishedAt, s.Unit, s.Alone, s.Replaced, s.DatasetBytes, s.Parts = "", "",
			time.Time{}, nil, nil, false, 0, 0, 0
		put("summary "+definition, s)
	}
	taken, err := tables.Take(t.Context(), st, id, tables.Options{Options: o, AllTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range taken.Tables {
		put("table "+name, of)
	}
	put("lines", taken.Lines)
	if s := taken.Sensitivity; s != nil {
		put("sensitivity", s.Rows)
	}
	for _, section := range taken.Method {
		if section.Title == "Coverage" {
			put("coverage", section.Table)
		}
	}
	if alone {
		return all
	}
	for row, err := range table.FileRows[index.Row](t.Context(), st, index.Name) {
		if err != nil {
			t.Fatal(err)
		}
		if schema.IsStatistics(row.Table) && !row.Superseded {
			object, err := st.Open(t.Context(), row.Name)
			if err != nil {
				t.Fatal(err)
			}
			sum, err := store.SumOf(object)
			if err := errors.Join(err, object.Close()); err != nil {
				t.Fatal(err)
			}
			var rows []any
			if row.Table == schema.TokenStats {
				for r, err := range table.FileRows[schema.TokenStatsRow](t.Context(), st, row.Name) {
					if err != nil {
						t.Fatal(err)
					}
					rows = append(rows, *r)
				}
			} else {
				for r, err := range table.FileRows[schema.RecordStatsRow](t.Context(), st, row.Name) {
					if err != nil {
						t.Fatal(err)
					}
					rows = append(rows, *r)
				}
			}
			if before := all[row.Table+" "+row.ScanDate]; before != "" {
				t.Errorf("%s of %s counts twice, %s", row.Table, row.ScanDate, sum)
			}
			put(row.Table+" "+row.ScanDate, rows)
		}
	}
	for host := range hosts {
		stories, err := history.Stories(t.Context(), st, fmt.Sprintf("h%d.test", host), history.Asked{})
		if err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprint("history of ", host), stories)
	}
	return all
}

// hosts is how many hosts the datasets have.
const hosts = 12

func same(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d figures, not %d", when, len(got), len(want))
	}
	for name, w := range want {
		if g := got[name]; g != w {
			at := 0
			for at < min(len(g), len(w)) && g[at] == w[at] {
				at++
			}
			from := max(0, at-80)
			t.Errorf("%s: %s is\n…%.200s\nand not\n…%.200s", when, name, g[min(from, len(g)):], w[from:])
		}
	}
}

// checked checks that the index is as the records say, and that verify finds nothing.
func checked(t *testing.T, when string, st store.Store) {
	t.Helper()
	if state, err := index.Check(t.Context(), st); err != nil || state != index.Current {
		t.Errorf("%s: the index is %v, %v", when, state, err)
	}
	if found := findings(t, st, verify.Damaged, verify.Leftover); len(found) > 0 {
		t.Errorf("%s: verify finds %q", when, found)
	}
}

// speaks is the rule, once more: the answer of a site that counts.
func speaks(a, b answer, archive bool) bool {
	observed := func(a answer) bool { return a.status == 200 || a.status == 404 || a.status == 403 }
	https := func(a answer) bool { return !strings.HasPrefix(a.url, "http://") }
	switch {
	case observed(a) != observed(b):
		return observed(a)
	case archive && https(a) != https(b):
		return https(a)
	}
	return a.at > b.at
}

// TestUnitHoweverCut divides the rows of a night into scans in many ways, published in any order, some of them twice
// and with parts merged. All figures are those of one scan that has only the rows that count.
func TestUnitHoweverCut(t *testing.T) {
	files := []string{"User-agent: GPTBot\nDisallow: /\n", "User-agent: *\nDisallow: /\nfoo: bar\n",
		"User-agent: CCBot\nDisallow: /a\n\nUser-agent: x-bot\nDisallow: /\n", "# none\n",
		"Noindex: /\nUser-agent: *\nCrawl-delay: 5\nAllow: /\nContent-Signal: ai-train=no\n"}
	statuses := []int{200, 200, 200, 200, 404, 403, 503, 429, 0, 0}
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for seed := range uint64(2 * rounds) {
		random := rand.New(rand.NewPCG(seed, 36))
		archive := seed%2 == 0
		observer, schemes := commit.Observer{Source: commit.Live, Product: "bot"}, []string{""}
		if archive {
			observer, schemes = commit.Observer{Source: commit.Archive}, []string{"http://", "https://"}
		}
		var rows []answer
		for host := range hosts {
			for _, scheme := range schemes {
				for range 1 + random.IntN(3) {
					a := answer{url: fmt.Sprintf("%sh%d.test", scheme, host), at: int64(len(rows)*7919%1009 + 10),
						status: statuses[random.IntN(len(statuses))]}
					if a.status == 200 {
						a.body = files[random.IntN(len(files))]
					}
					rows = append(rows, a)
				}
			}
		}
		counting := map[string]answer{}
		for _, a := range rows {
			host := a.url[strings.LastIndexByte(a.url, '/')+1:]
			if before, ok := counting[host]; !ok || speaks(a, before, archive) {
				counting[host] = a
			}
		}
		var chosen []answer
		for host := range hosts {
			chosen = append(chosen, counting[fmt.Sprintf("h%d.test", host)])
		}
		eve := []answer{{"h0.test", 1, 404, ""}, {"h1.test", 2, 200, files[0]}, {"h2.test", 3, 200, files[1]}}
		if archive {
			for i := range eve {
				eve[i].url = "https://" + eve[i].url
			}
		}
		began := func(id, date string) sink.Options {
			return sink.Options{ScanID: id, Date: date, Observer: observer}
		}
		plain := newDisk(t)
		write(t, plain, began("eve", "2026-11-01"), eve)
		release(t, plain, "eve", false)
		write(t, plain, began("plain", "2026-11-02"), chosen)
		release(t, plain, "plain", false)
		want := figures(t, plain, "plain", false)

		st := newDisk(t)
		write(t, st, began("eve", "2026-11-01"), eve)
		release(t, st, "eve", false)
		scans := make([][]answer, 2+random.IntN(3))
		for _, a := range rows {
			for range 1 + random.IntN(2) { // some rows are in two scans
				i := random.IntN(len(scans))
				if !slices.Contains(scans[i], a) {
					scans[i] = append(scans[i], a)
				}
			}
		}
		var ids []string
		for i, of := range scans {
			if random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] }); !archive { // which has each site once
				of = slices.DeleteFunc(slices.Clone(of), func(a answer) bool {
					return slices.ContainsFunc(of, func(b answer) bool { return a != b && a.url == b.url && !speaks(a, b, false) })
				})
			}
			ids = append(ids, fmt.Sprint("cut", i))
			write(t, st, began(ids[i], "2026-11-02"), of)
		}
		random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			release(t, st, id, random.IntN(2) == 0)
		}
		when := fmt.Sprintf("seed %d, %d scans", seed, len(ids))
		same(t, when, figures(t, st, ids[0], false), want)
		checked(t, when, st)
	}
}

// TestRescanThatFails shows that another scan of the date whose requests all fail in some way changes no figure; that
// its rows without effect are counted; that each scan stays citable by its id; and that another list of the date is
// another unit.
func TestRescanThatFails(t *testing.T) {
	st := newDisk(t)
	observer := commit.Observer{Source: commit.Live, Product: "bot"}
	var first, failing []answer
	for host := range hosts {
		a := answer{fmt.Sprintf("h%d.test", host), int64(host), 200, "User-agent: GPTBot\nDisallow: /\n"}
		if host%3 == 0 {
			a.status, a.body = 404, ""
		}
		first = append(first, a)
		failing = append(failing, answer{a.url, 1000, []int{0, 503, 429}[host%3], ""})
	}
	began := func(id string) sink.Options {
		return sink.Options{ScanID: id, Date: "2026-11-02", Observer: observer}
	}
	write(t, st, began("first"), first)
	release(t, st, "first", true)
	want, cited := figures(t, st, "first", false), figures(t, st, "first", true)
	write(t, st, began("again"), failing)
	ofFailing := figures(t, st, "again", true)
	same(t, "not published", figures(t, st, "first", false), want)
	release(t, st, "again", true)
	for _, id := range []string{"first", "again"} {
		same(t, "by "+id, figures(t, st, id, false), want)
	}
	s, err := summary.Of(t.Context(), st, "again", summary.Options{})
	if err != nil || s.Replaced != hosts || fmt.Sprint(s.Unit) != "[first again]" || s.Alone {
		t.Errorf("%+v, %v", s, err)
	}
	same(t, "the first alone", figures(t, st, "first", true), cited)
	same(t, "the second alone", figures(t, st, "again", true), ofFailing)
	d, err := diff.Scans(t.Context(), diff.ScanAt{Store: st, ScanID: "first", Alone: true},
		diff.ScanAt{Store: st, ScanID: "again"}, diff.Options{})
	if err != nil || !d.Empty() || d.To.Repeated != hosts || d.From.Repeated != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	checked(t, "published", st)

	other := began("other")
	other.ListID = "another"
	write(t, st, other, failing)
	release(t, st, "other", true)
	if s, err := summary.Of(t.Context(), st, "other", summary.Options{}); err != nil || s.Answered != 8 ||
		s.Rules != 0 || s.Replaced != 0 || len(s.Unit) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := summary.Of(t.Context(), st, "again", summary.Options{}); err != nil || s.Rules != 8 ||
		s.Replaced != hosts {
		t.Errorf("%+v, %v", s, err)
	}

	// A scan that is begun anew leaves the unit, and returns with its new rows.
	again := began("again")
	again.Restart = true
	write(t, st, again, first[:1])
	release(t, st, "again", true)
	if s, err := summary.Of(t.Context(), st, "again", summary.Options{}); err != nil || s.Rules != 8 ||
		s.Replaced != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	checked(t, "begun anew", st)
}

// TestUnitOfFewTables shows that a scan keeps its statistics, computed once, where another of the unit lacks a table
// that they need.
func TestUnitOfFewTables(t *testing.T) {
	st := newDisk(t)
	few := sink.Options{ScanID: "few", Date: "2026-11-02", Tables: []string{schema.Sites}}
	w, err := sink.Open(t.Context(), st, few)
	if err == nil {
		err = errors.Join(w.Add(answer{"h0.test", 1, 404, ""}.site(t, 0)), w.Complete(t.Context()), w.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	few.ScanID, few.Tables = "none", []string{schema.Verdicts}
	if w, err = sink.Open(t.Context(), st, few); err == nil {
		err = errors.Join(w.Add(answer{"h0.test", 1, 404, ""}.site(t, 0)), w.Complete(t.Context()), w.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	few.ScanID, few.Tables = "all", nil
	write(t, st, few, []answer{{"h1.test", 2, 200, "User-agent: GPTBot\nDisallow: /\n"}, {"h0.test", 0, 0, ""}})
	release(t, st, "all", false)
	record, err := commit.ReadFileRecord(t.Context(), st, "all", schema.TokenStats)
	if err != nil || record.Unit != "" {
		t.Fatalf("%+v, %v", record, err)
	}
	if ids, err := index.OutdatedStats(t.Context(), st); err != nil || len(ids) > 0 {
		t.Errorf("outdated are %q, %v", ids, err)
	}
	for row, err := range table.FileRows[index.Row](t.Context(), st, index.Name) {
		// statistics of a part of the sites would look like those of all
		if err != nil || schema.IsStatistics(row.Table) && !row.Superseded {
			t.Errorf("%+v, %v", row, err)
		}
	}
	if s, err := summary.Of(t.Context(), st, "all", summary.Options{}); err != nil || s.Rows != 2 ||
		s.Rules != 1 || s.Replaced != 1 || len(s.Unit) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	checked(t, "few tables", st)
}

// TestUnitWithoutItsFile deletes and damages the file that names the rows which do not count. Figures stay; the index
// is older, or verify finds the damage and says to delete the file; then the next update of the index restores it.
func TestUnitWithoutItsFile(t *testing.T) {
	st := newDisk(t)
	for i, id := range []string{"first", "again"} {
		o := sink.Options{ScanID: id, Date: "2026-11-02", Observer: commit.Observer{Source: commit.Live}}
		write(t, st, o, []answer{{"h0.test", int64(i), 200, "User-agent: GPTBot\nDisallow: /\n"},
			{fmt.Sprintf("h%d.test", i+1), 5, 404, ""}})
		release(t, st, id, true)
	}
	want := figures(t, st, "again", false)
	file := func() (name string) {
		for row, err := range table.FileRows[index.Row](t.Context(), st, index.Name) {
			if err != nil {
				t.Fatal(err)
			}
			if row.Table == schema.Superseded {
				name = row.Name
			}
		}
		return name
	}
	name := file()
	if before, err := store.ReadAll(t.Context(), st, name, 1<<20); err != nil || len(before) == 0 {
		t.Fatal(err)
	}
	for _, what := range []string{"deleted", "damaged", "without record"} {
		var err error
		switch record := commit.FileRecordName("_months", strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:],
			".parquet")); what {
		case "deleted":
			err = errors.Join(st.Delete(t.Context(), name), st.Delete(t.Context(), record))
		case "damaged":
			err = st.Put(t.Context(), name, []byte("no Parquet"))
		default:
			err = st.Delete(t.Context(), record)
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, what, figures(t, st, "again", false), want)
		if found := findings(t, st, verify.Damaged, verify.Leftover); len(found) == 0 {
			t.Errorf("%s: verify finds nothing", what)
		}
		if what == "damaged" {
			err = st.Delete(t.Context(), name)
		}
		if err := errors.Join(err, index.Update(t.Context(), st)); err != nil {
			t.Fatal(err)
		}
		if file() != name {
			t.Errorf("%s: the file is %s, and was %s", what, file(), name)
		}
		checked(t, what, st)
		same(t, what+", and made again", figures(t, st, "again", false), want)
	}
}

// TestUnitAfterAKill ends the publication of a scan that repeats another at each call that changes the disk. At any of
// these moments each site counts once for readers of the index that is there; and the same publication again brings all
// figures up to date.
func TestUnitAfterAKill(t *testing.T) {
	made := storetest.NewDisk()
	on := func(disk *storetest.Disk) *store.Dir {
		dir, err := store.NewDirOn(disk, "/data/out")
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	o := func(id string) sink.Options {
		return sink.Options{ScanID: id, Date: "2026-11-02", Observer: commit.Observer{Source: commit.Live}}
	}
	write(t, on(made), o("first"), []answer{{"h0.test", 1, 200, "User-agent: GPTBot\nDisallow: /\n"},
		{"h1.test", 2, 404, ""}})
	release(t, on(made), "first", false)
	write(t, on(made), o("again"), []answer{{"h1.test", 3, 200, "User-agent: CCBot\nDisallow: /\n"},
		{"h0.test", 3, 0, ""}})
	calm := made.Restart(storetest.Nothing)
	release(t, on(calm), "again", true)
	want := figures(t, on(calm), "again", false)
	changes := 0
	for _, call := range calm.Calls() {
		if !call.Changes() {
			continue
		}
		if changes++; testing.Short() && call.Op != "rename" {
			continue
		}
		disk := made.Restart(storetest.Nothing)
		disk.CutAt(changes, true)
		if err := Release(t.Context(), on(disk), "again", publishing); err == nil {
			continue // only what may fail was left
		}
		disk = disk.Restart(storetest.Unsynced)
		st, scans, superseded := on(disk), map[string]bool{}, 0
		for row, err := range table.FileRows[index.Row](t.Context(), st, index.Name) {
			if err != nil {
				t.Fatal(err)
			}
			if row.Complete && row.Table == schema.Sites {
				scans[row.ScanID] = true
			}
			if row.Table == schema.Superseded {
				for _, err := range table.FileRows[schema.SupersededRow](t.Context(), st, row.Name) {
					if err != nil {
						t.Errorf("killed at %s: the index names a file that is not whole: %v", call.Path, err)
					}
					superseded++
				}
			}
		}
		if 2*len(scans)-superseded != 2 {
			t.Errorf("killed at %s: %d scans, %d rows superseded", call.Path, len(scans), superseded)
		}
		release(t, st, "again", true)
		same(t, "killed at "+call.Path, figures(t, st, "again", false), want)
		checked(t, "killed at "+call.Path, st)
	}
	if changes < 10 {
		t.Errorf("%d changes", changes)
	}
}

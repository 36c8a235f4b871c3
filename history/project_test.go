package history_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestProject compares the ledger's policies of sites with those that follow from the table policies, by their content and id.
func TestProject(t *testing.T) {
	var bodies [][]byte
	for _, name := range []string{"policies.txt", "crawlers.txt"} {
		text, err := os.ReadFile("../audit/testdata/vectors/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "---\n") {
			bodies = append(bodies, []byte(block))
		}
	}
	bodies = append(bodies, nil, []byte("no record\n"), []byte("<!doctype html>\n<p>\n"), []byte("<!doctype html>\nUser-agent: *\nDisallow: /\n"))
	t.Run("vectors", func(t *testing.T) { projected(t, bodies) })
	for _, corpus := range []string{"typical12k", "modern-ai"} {
		t.Run(corpus, func(t *testing.T) { projected(t, sharedtest.Bodies(t, corpus)) })
	}
}

func projected(t *testing.T, bodies [][]byte) {
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "s", Date: "2026-11-21", PartRows: 1000, Tables: []string{schema.Sites}})
	if err != nil {
		t.Fatal(err)
	}
	s := &audit.Site{}
	for i, body := range bodies {
		s.Reset()
		if s.Origin, err = origin.Parse("example.com"); err != nil {
			t.Fatal(err)
		}
		s.Seq, s.Fetch = uint64(i), exchange.Response{Outcome: exchange.Answered, Status: 200, Body: body}
		audit.Judge(s)
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	scan, err := commit.ReadScan(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	policies, rules := map[int64]schema.PolicyRow{}, 0
	for row, err := range sink.Rows[schema.PolicyRow](t.Context(), scan, schema.Policies) {
		if err != nil {
			t.Fatal(err)
		}
		policies[row.PolicyID] = *row
	}
	ids := map[int64]int64{} // of the ledger, by the other id
	for row, err := range sink.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
		if err != nil {
			t.Fatal(err)
		}
		p, has := policies[row.PolicyID]
		if !has {
			t.Fatalf("seq %d has the policy %d, which has no row", row.Seq, row.PolicyID)
		}
		want := history.PolicyOf(row).Canonical()
		row.StarVerdict, row.Named, row.Blocked, row.Partial, row.ManagedBy = "", nil, nil, nil, "" // what the policy has
		if got := history.Project(&p, row).Canonical(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v\n%.2000q", got, want, bodies[row.Seq])
		}
		if want.Class == history.ClassRules {
			rules++
			ids[row.PolicyID] = want.ID
		}
	}
	if t.Logf("%d sites with rules have %d policies", rules, len(ids)); rules < len(bodies)/3 || len(ids) < 20 {
		t.Error("the test compares too little")
	}
}

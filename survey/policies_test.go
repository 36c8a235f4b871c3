package survey

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestDefinitionsOfPolicies: the cells of a site's policy are enough for all six definitions. For every token of two registries they
// give what token_stats counts. The table policies keeps them, but for what only the lenient reading finds.
func TestDefinitionsOfPolicies(t *testing.T) {
	for i, d := range Definitions() {
		if audit.Definitions[i].Name != d.Name || len(audit.Definitions) != len(Definitions()) {
			t.Fatalf("definition %d is %s, in audit %s", i, d.Name, audit.Definitions[i].Name)
		}
	}
	var bodies [][]byte
	for _, name := range []string{"policies.txt", "crawlers.txt"} {
		text, err := os.ReadFile("../audit/testdata/vectors/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "---\n") {
			_, body, _ := strings.Cut(block, "\n\n")
			bodies = append(bodies, []byte(block), []byte(body))
		}
	}
	for _, e := range readExamples(t) {
		bodies = append(bodies, []byte(e.text))
	}
	t.Run("vectors", func(t *testing.T) { definedByPolicies(t, bodies) })
	t.Run("modern-ai", func(t *testing.T) { definedByPolicies(t, sharedtest.Bodies(t, "modern-ai")) })
	t.Run("typical12k", func(t *testing.T) { definedByPolicies(t, sharedtest.Bodies(t, "typical12k")) })
}

// definedByPolicies checks some bodies.
func definedByPolicies(t *testing.T, bodies [][]byte) {
	rows, err := os.ReadFile("../audit/testdata/vectors/registry.txt")
	if err != nil {
		t.Fatal(err)
	}
	own, err := tokens.Load(strings.NewReader(string(rows)))
	if err != nil {
		t.Fatal(err)
	}
	for _, registry := range []*tokens.Registry{tokens.Default(), own} {
		auditor := audit.New(registry)
		dir, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21", Registry: registry})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]schema.TokenStatsRow, len(registry.Tokens))
		policies := map[int64][]audit.Cell{}
		s := &audit.Site{}
		add := func(seq int, answer exchange.Response) {
			s.Reset()
			if s.Origin, err = origin.Parse("example.com"); err != nil {
				t.Fatal(err)
			}
			s.Seq, s.Fetch = uint64(seq), answer
			auditor.Judge(s)
			if err := w.Add(s); err != nil {
				t.Fatal(err)
			}
			cells := s.Report.Policy.Cells(nil, registry)
			for id, c := range cells {
				if s.Report.Policy.ID == 0 {
					c = audit.StatusCell(s.Report.Access)
				}
				countCell(&want[id], c, s.Report.Finding == audit.FindingRules, answer.Status != 0)
			}
			for _, p := range []*audit.Policy{&s.Report.Policy, &s.Report.RFCPolicy} {
				if p.ID != 0 {
					cells := p.Cells(nil, registry)
					for i := range cells {
						cells[i] &^= audit.CellLenient
					}
					policies[int64(p.ID)] = cells
				}
			}
		}
		for i, body := range bodies {
			answer := exchange.Response{Outcome: exchange.Answered, Status: 200, Body: body}
			if i%31 == 30 { // a challenge has rules, and no definition but rfc_effective counts them
				answer.Fields.Challenge = "cloudflare"
			}
			add(i, answer)
		}
		for i, answer := range []exchange.Response{
			{Outcome: exchange.Answered, Status: 503}, {Outcome: exchange.Answered, Status: 404}, {Outcome: exchange.Timeout},
			{Outcome: exchange.ClosedEarly, Status: 200}, {Outcome: exchange.OptedOut},
		} {
			add(len(bodies)+i, answer)
		}
		if err := w.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		scan, err := commit.ReadScan(t.Context(), dir, "hand")
		if err != nil {
			t.Fatal(err)
		}
		kept := map[int64]bool{}
		for row, err := range sink.Rows[schema.PolicyRow](t.Context(), scan, schema.Policies) {
			if err != nil {
				t.Fatal(err)
			}
			p := sink.PolicyOf(row, registry)
			if cells := p.Cells(nil, registry); !slices.Equal(cells, policies[row.PolicyID]) {
				t.Errorf("policy %d: stored are\n%v, and judged\n%v", row.PolicyID, cells, policies[row.PolicyID])
			}
			kept[row.PolicyID] = true
		}
		if len(kept) != len(policies) {
			t.Errorf("%d policies are stored, want %d", len(kept), len(policies))
		}
		found := 0
		for _, row := range statsOf[schema.TokenStatsRow](t, dir, schema.TokenStats, Options{Registry: registry}) {
			id := registry.Lookup(row.Token)
			if row.SegmentKind != "all" || id < 0 || !row.Known {
				continue
			}
			found++
			got := schema.TokenStatsRow{
				Mention: row.Mention, ExplicitRoot: row.ExplicitRoot, Full: row.Full, Partial: row.Partial, Any: row.Any, DPIAll: row.DPIAll, RFCEffective: row.RFCEffective,
				ViaOwn: row.ViaOwn, ViaFallback: row.ViaFallback, ViaStar: row.ViaStar, Lenient: row.Lenient,
				FullViaOwn: row.FullViaOwn, FullViaFallback: row.FullViaFallback, FullViaStar: row.FullViaStar,
				AnyViaOwn: row.AnyViaOwn, AnyViaFallback: row.AnyViaFallback, AnyViaStar: row.AnyViaStar,
			}
			if got != want[id] {
				t.Errorf("%s: token_stats has\n%+v, the policies\n%+v", row.Token, got, want[id])
			}
		}
		if found != len(registry.Tokens) {
			t.Errorf("%d tokens of %d", found, len(registry.Tokens))
		}
	}
}

// countCell adds a site's cell of a token to the counts of token_stats that depend on cells.
func countCell(row *schema.TokenStatsRow, c audit.Cell, rules, answered bool) {
	for i, into := range []*int64{&row.Mention, &row.ExplicitRoot, &row.Full, &row.Any, &row.DPIAll, &row.RFCEffective} {
		if d := &audit.Definitions[i]; d.Blocks(c) && (rules || d.Name == "rfc_effective" && answered) && (answered || d.Name != "rfc_effective") {
			*into++
		}
	}
	if !rules {
		return
	}
	full, any := audit.Definitions[2].Blocks(c), audit.Definitions[3].Blocks(c)
	row.Partial += one(c&audit.CellPartial != 0)
	row.Lenient += one(c&audit.CellLenient != 0)
	for _, via := range []struct {
		bit            audit.Cell
		all, full, any *int64
	}{
		{audit.CellOwn, &row.ViaOwn, &row.FullViaOwn, &row.AnyViaOwn},
		{audit.CellFallback, &row.ViaFallback, &row.FullViaFallback, &row.AnyViaFallback},
		{audit.CellStar, &row.ViaStar, &row.FullViaStar, &row.AnyViaStar},
	} {
		if c&via.bit != 0 {
			*via.all++
			*via.full += one(full)
			*via.any += one(any)
		}
	}
}

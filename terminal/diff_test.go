package terminal

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey/diff"
)

// aComparison is of a million sites, with every finding.
func aComparison() diff.Compared {
	c := diff.Compared{
		From: diff.Scan{ScanID: "20261120-abcdef", ScanDate: "2026-11-20", State: "complete",
			Observer: "live bulkscan any https+http HTTP/1.1 from frankfurt",
			ListID:   "tranco-K2XYW", RegistryVersion: "2026.11.20", Sites: 1_000_000, Rules: 701_002},
		To: diff.Scan{ScanID: "20261121-abcdef", ScanDate: "2026-11-21", State: "running",
			Observer:        "live bulkscan any https+http HTTP/1.1 from frankfurt",
			RegistryVersion: "2026.11.21", Sites: 999_000, Rules: 700_100, Repeated: 3, Folded: 12, FoldsDisagree: 2,
			Lost: []commit.Total{{What: "rows", Expected: 999_100, Found: 999_000}}},
		TokensCompared: 163, TokensUnknown: []string{"NewBot", "NewerBot"}, Both: 998_500, RulesBoth: 690_000,
		OtherBody: 14_000, OtherPolicy: 2_100,
	}
	for i, before := range diff.Findings() {
		for j, after := range diff.Findings() {
			if n := 100_000 / int64(1+i+j); i == j || n%3 == 0 {
				c.Findings = append(c.Findings, diff.FindingPair{Before: before.String(), After: after.String(), Sites: n})
			}
		}
	}
	return c
}

// aDiff is one that has a bit of everything.
func aDiff() *diff.Diff {
	moves := func(began, ceased, before int64) diff.Moves {
		return diff.Moves{Began: began, Ceased: ceased, Net: began - ceased, Before: before, After: before + began - ceased}
	}
	return &diff.Diff{
		Compared: aComparison(), SameObserver: true, Definition: "full", Appeared: 500, Vanished: 1500, Unobserved: 40_000,
		Presence: 3200, Refusal: 410,
		Failed: []diff.FailedCount{{Finding: "server_error", Before: 800, After: 910},
			{Finding: "unreachable", After: 3}},
		AtLeastOne: diff.Sum{Tokens: 163, Moves: moves(700, 120, 130_000)},
		Changing:   21,
		Tokens: []diff.Token{
			{Token: "GPTBot", Operator: "OpenAI", Moves: moves(600, 110, 118_000), Tightened: 12, Loosened: 3},
			{Token: "Google-CloudVertexBot", Operator: "Google", Moves: moves(2, 9, 14_000)},
			{Token: "CCBot", Operator: "Common Crawl Foundation", Moves: diff.Moves{Appeared: 4, Removed: 1}},
		},
		Operators: []diff.Sum{{Value: "OpenAI", Tokens: 7, Moves: moves(610, 100, 119_000)},
			{Value: "Common Crawl Foundation", Tokens: 1, Moves: moves(0, 1, 90_000)}},
		Causes: []diff.CauseCount{{Cause: "policy", Sites: 700, Began: 540, Ceased: 118}, {Cause: "managed", Sites: 60,
			Began: 62, Ceased: 1}},
		Changed: 760,
		Sites: []diff.Site{
			{Host: "news.example", Port: 443, Requested: "auto", Rank: 1234, Began: []string{"GPTBot", "ClaudeBot", "CCBot",
				"Bytespider", "anthropic-ai"}, Ceased: []string{"Applebot-Extended"}},
			{Host: "shop.example", Port: 8080, Requested: "http", Ceased: []string{"GPTBot"}},
		},
	}
}

func diffPageOf(t *testing.T, d *diff.Diff) string {
	t.Helper()
	var out bytes.Buffer
	if err := Diff(&out, d, ColorNever); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func pairedPageOf(t *testing.T, d *diff.Paired) string {
	t.Helper()
	var out bytes.Buffer
	if err := Paired(&out, d, ColorNever); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// aPaired is one with two delivery networks.
func aPaired() *diff.Paired {
	return &diff.Paired{Compared: aComparison(), OnlyFrom: 3, OnlyTo: 1,
		All: diff.PairedSum{Sites: 998_500, OtherFinding: 20_000, Rules: 690_000, OtherBody: 14_000, OtherPolicy: 2_100},
		CDNs: []diff.PairedSum{{Sites: 600_000, OtherFinding: 1000, Rules: 400_000, OtherBody: 900, OtherPolicy: 12},
			{CDN: "cloudflare", Sites: 398_500}},
	}
}

// TestDiffPage compares pages with files.
func TestDiffPage(t *testing.T) {
	d := aDiff()
	goldenPage(t, "diff", diffPageOf(t, d))
	goldenPage(t, "diff-paired", pairedPageOf(t, aPaired()))

	d.SameObserver = false
	if first, _, _ := strings.Cut(diffPageOf(t, d),
		"\n"); first != "The two scans have two observers: the differences may be the observer's." {
		t.Errorf("the first line is %q", first)
	}
	if page := diffPageOf(t, &diff.Diff{SameObserver: true}); !strings.HasSuffix(page, "\nNothing differs.\n") {
		t.Errorf("of nothing:\n%s", page)
	}
	if page := pairedPageOf(t, aPaired()); strings.Contains(page, "began") || strings.Contains(page, "ceased") {
		t.Error("what two observers saw is called a change")
	}
}

// TestDiffPageHostile has texts and numbers that our scans never write.
func TestDiffPageHostile(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		d, p := aDiff(), aPaired()
		d.From.State, d.From.Observer, d.To.RegistryVersion, d.To.ListID, d.Definition = h.Text, h.Text, h.Text, h.Text,
			h.Text
		d.Findings = append(d.Findings, diff.FindingPair{Before: h.Text, After: "rules", Sites: math.MinInt64})
		d.Sites[0].Host, d.Sites[0].Rank, d.Sites[1].Requested, d.Sites[0].Began[0] = h.Text, math.MaxInt64, h.Text, h.Text
		d.Tokens[0].Token, d.Tokens[0].Began, d.Operators[0].Value, d.Operators[0].Ceased = h.Text, math.MaxInt64, h.Text,
			math.MinInt64
		d.Causes[0].Cause, d.Failed[0].Finding, d.TokensUnknown[0], d.To.Lost[0].What = h.Text, h.Text, h.Text, h.Text
		p.CDNs[0].CDN, p.CDNs[0].Rules, p.From.ScanID = h.Text, math.MinInt64, h.Text
		for _, page := range []string{diffPageOf(t, d), pairedPageOf(t, p)} {
			harmless(t, h.Name, page, 400)
		}
		if t.Failed() {
			return
		}
	}
}

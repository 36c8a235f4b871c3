package terminal

import (
	"bytes"
	"flag"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// aSummary is one that has a bit of everything: a million sites, shares that two digits cannot distinguish, reasons of
// each kind.
func aSummary() *summary.Summary {
	mean, median, p99 := 0.7312, 412.0, 8123.0
	begun := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	finished := begun.Add(3*time.Hour + 83*time.Second)
	s := &summary.Summary{
		ScanID: "20261121-abcdef", ScanDate: "2026-11-21", State: "complete", StartedAt: begun, FinishedAt: &finished,
		SchemaVersion: 1, ToolVersion: "1.2.3", RegistryVersion: "2026.11.21",
		Observer: "live bulkscan any https+http HTTP/1.1 from frankfurt", ListID: "tranco-K2XYW",
		OtherScans: []summary.OtherScan{{ScanID: "first", ScanDate: "2026-08-01", State: "complete"},
			{ScanID: "second", ScanDate: "2026-09-01", State: "running"},
			{ScanID: "third", ScanDate: "2026-10-01", State: "complete"}, {ScanID: "fourth", ScanDate: "2026-11-01",
				State: "complete"}},
		Rows: 1_000_000, Asked: 999_990, Answered: 923_456, WithFile: 712_345, Rules: 701_002, Redirected: 401_234,
		HTML: 43_210, Truncated: 12, Managed: 0,
		Findings: []survey.Count{{Value: "rules", Rows: 701_002}, {Value: "none", Rows: 180_000},
			{Value: "unreachable", Rows: 76_534}, {Value: "challenged", Rows: 20_000}, {Value: "html", Rows: 11_343},
			{Value: "refused", Rows: 11_111}, {Value: "not_asked", Rows: 10}},
		Outcomes: []survey.Count{{Value: "answered", Rows: 923_456}, {Value: "dns_not_found", Rows: 60_000},
			{Value: "timeout", Rows: 16_500}, {Value: "opted_out", Rows: 34}, {Value: "blocked_address", Rows: 10}},
		StatusClasses: []survey.Count{{Value: "2xx", Rows: 712_300}, {Value: "4xx", Rows: 190_000},
			{Value: "5xx", Rows: 21_156}},
		Statuses: []survey.Count{{Value: "200", Rows: 712_290}, {Value: "404", Rows: 189_000}, {Value: "503", Rows: 21_156},
			{Value: "403", Rows: 960}, {Value: "204", Rows: 10},
			{Value: "401", Rows: 9}, {Value: "410", Rows: 8}, {Value: "406", Rows: 6}, {Value: "451", Rows: 5},
			{Value: "418", Rows: 4}, {Value: "429", Rows: 3}, {Value: "400", Rows: 2}, {Value: "405", Rows: 2},
			{Value: "444", Rows: 1}},
		Access: []survey.Count{{Value: "conditional", Rows: 712_345}, {Value: "full_allow", Rows: 190_000},
			{Value: "full_disallow", Rows: 97_645}, {Value: "unknown", Rows: 10}},
		Checks: []survey.Count{{Value: "pass", Rows: 650_000}, {Value: "fail", Rows: 297_990},
			{Value: "warn", Rows: 52_000}},
		MeanScore: &mean, MedianMillis: &median, P99Millis: &p99,
		BodyBytes: 4_321_098_765, DatasetBytes: 75_000_000, Parts: 20,
		Blocking: summary.Blocking{
			Registry: "2026.11.21", Definition: "full", Question: "is everything denied to it, by whatever group it follows?",
			Over: "sites_rules", Sites: 712_345,
			Selection: survey.Selection{Category: "ai"}, Selected: 163, Blocked: 6, AtLeastOne: 130_000, OneByName: 110_000,
			OneFallback: 700, OneByStar: 19_300, NameOne: 141_000, StarBlocks: 14_000,
			ByPurpose: []summary.Sum{{Value: "training", Tokens: 37, Sites: 128_000}, {Value: "search", Tokens: 28,
				Sites: 60_000}, {Value: "ads", Tokens: 1, Sites: 14_000}},
			ByOperator: []summary.Sum{{Value: "OpenAI", Tokens: 7, Sites: 119_000}, {Value: "Anthropic", Tokens: 5,
				Sites: 100_000}},
			MostBlocked: []summary.TokenCount{
				{Token: "GPTBot", Operator: "OpenAI", Purpose: "training", Sites: 118_000, ViaOwn: 104_000, ViaStar: 14_000},
				{Token: "CCBot", Operator: "Common Crawl Foundation", Purpose: "data-provider", Sites: 90_000, ViaOwn: 90_000},
				{Token: "Cloudflare-AutoRAG", Operator: "Cloudflare", Purpose: "search", Sites: 14_020, ViaOwn: 10, ViaFallback: 10,
					ViaStar: 14_000},
				{Token: "Perplexity-User", Operator: "Perplexity", Purpose: "user-fetch", Sites: 300, ViaStar: 300},
				{Token: "RareBot", Operator: "検索", Purpose: "search", Sites: 3, ViaOwn: 3},
			},
			Lenient: []summary.LenientCount{{Token: "AI2Bot", Sites: 66_000}, {Token: "ChatGPT Agent", Sites: 12}},
		},
	}
	s.LeastGroup = survey.LeastGroup
	surely(s)
	for i, n := range []int64{200_000, 0, 0, 97_990, 0, 12, 1000, 20_000, 30_988, 650_000} {
		s.Scores = append(s.Scores, summary.Bin{From: float64(i) / 10, To: float64(i+1) / 10, Rows: n})
	}
	return s
}

// surely says how sure the shares of a summary are: 96,544 sites were not observed.
func surely(s *summary.Summary) {
	s.Blocking.Unobserved = 96_544
	s.Blocking.EachHeadline(func(_, _ string, sites int64, sure *survey.Certainty) {
		*sure = s.Of(sites, s.Blocking.Sites, s.Blocking.Unobserved)
	})
}

// goldenPage compares a page with a file, which -update writes.
func goldenPage(t *testing.T, name, page string) {
	t.Helper()
	path := "testdata/summary/" + name + ".txt"
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if page != string(want) {
		t.Errorf("%s is not up to date; now:\n%s", path, page)
	}
}

// pageOf returns the page of a summary in a file or a pipe.
func pageOf(t *testing.T, s *summary.Summary) string {
	t.Helper()
	var out bytes.Buffer
	if err := Summary(&out, s, ColorAuto); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestSummaryPage compares pages that are no terminal's with files: bars in ASCII, no colours.
func TestSummaryPage(t *testing.T) {
	t.Setenv("LANG", "C.UTF-8") // which is the terminal's, and there is none
	goldenPage(t, "pipe", pageOf(t, aSummary()))

	s := aSummary()
	lines := int64(120)
	s.State, s.FinishedAt, s.ListRead, s.OtherScans = "running", nil, &lines, nil
	s.Rows, s.Asked, s.Answered, s.WithFile, s.Rules, s.Redirected, s.HTML, s.Truncated = 0, 0, 0, 0, 0, 0, 0, 0
	s.Outcomes, s.StatusClasses, s.Statuses, s.Access, s.Checks, s.MeanScore, s.MedianMillis, s.P99Millis = nil, nil, nil,
		nil, nil, nil, nil, nil
	s.Blocking = summary.Blocking{Registry: "2026.11.21", Definition: "rfc_effective", Question: "may it?",
		Over: "sites_answered", Selected: 163, Lenient: []summary.LenientCount{}}
	for i := range s.Scores {
		s.Scores[i].Rows = 0
	}
	page := pageOf(t, s)
	goldenPage(t, "nothing", page)
	if strings.Contains(page, "NaN") || strings.Contains(page, "0 %") {
		t.Error("a share of nothing is a number")
	}

	// The figure about all unnamed crawlers is by full, and says so if the others are by another definition.
	for _, d := range survey.Definitions() {
		s = aSummary()
		s.Blocking.Definition, s.Blocking.Over = d.Name, d.Over
		page := pageOf(t, s)
		if says := strings.Contains(page, "block all unnamed (full)"); says != (d.Over == "sites_rules" &&
			d.Name != survey.Full) {
			t.Errorf("by %s:\n%s", d.Name, page)
		}
	}

	// A ranking needs as many sites as --least-group says, and few are flagged; a sample has intervals.
	for sites, says := range map[int64]string{29: "29 sites that have rules (too few);",
		30: "30 sites that have rules (few);", 99: "99 sites that have rules (few);", 100: "100 sites that have rules;"} {
		for _, of := range []int64{0, 2_000_000} {
			s = aSummary()
			s.SampleOf, s.Blocking.Sites, s.Blocking.AtLeastOne = of, sites, 7
			for i := range s.Blocking.MostBlocked {
				s.Blocking.MostBlocked[i].Sites = 3
			}
			surely(s)
			page := pageOf(t, s)
			text := strings.Join(strings.Fields(page), " ")
			explained := strings.Contains(text,
				"Few: fewer than 100 sites; too few for a headline or a rank: fewer than 30. [From-to]:")
			if !strings.Contains(text, says) ||
				!strings.Contains(text, "[From-to]: the share if each site that was not observed were open, and") ||
				explained != (sites < 100) {
				t.Errorf("of %d sites there is no %q:\n%s", sites, says, page)
			}
			if ranked := strings.Contains(page, "\nMost blocked AI tokens\n"); ranked != (sites >= 30) ||
				ranked == strings.Contains(page, "\nBlocked AI tokens\n") {
				t.Errorf("%d sites are ranked: %v", sites, ranked)
			}
			if sampled := strings.Contains(text, "as the list is a sample of 2000000 sites.") &&
				strings.Contains(page, ") ["); sampled != (of > 0) {
				t.Errorf("intervals of a sample of %d sites: %v:\n%s", of, sampled, page)
			}
		}
	}

	// Of many operators and lenient names only some are shown, with a note that there are more.
	s = aSummary()
	for i := range 12 {
		s.Blocking.Lenient = append(s.Blocking.Lenient, summary.LenientCount{Token: "Bot " + strconv.Itoa(i), Sites: 9})
	}
	if page := pageOf(t, s); !strings.Contains(page, "  Bot 9 ") || strings.Contains(page, "  Bot 10 ") ||
		!strings.Contains(page, "\n  and 2 more; --json has them\n") {
		t.Errorf("14 lenient names:\n%s", page)
	}
	s.Blocking.ByPurpose = s.Blocking.ByPurpose[:1]
	for i := range 13 {
		s.Blocking.ByOperator = append(s.Blocking.ByOperator, summary.Sum{Value: "Operator " + strconv.Itoa(i), Tokens: 1,
			Sites: 9})
	}
	if page := pageOf(t, s); !strings.Contains(page, "  Operator 9 ") || strings.Contains(page, "  Operator 10 ") ||
		!strings.Contains(page, "\n  and 3 more; --json has them\n") {
		t.Errorf("15 operators:\n%s", page)
	}
}

// harmless checks that a page with a hostile text has at most so many lines, and none that is too wide or not escaped.
func harmless(t *testing.T, name, page string, lines int) {
	t.Helper()
	hostiletest.Check(t, name, []byte(page), 500)
	if n := strings.Count(page, "\n"); n > lines {
		t.Errorf("%s: the page has %d lines", name, n)
	}
	for line := range strings.Lines(page) {
		if line = strings.TrimSuffix(line, "\n"); columns(line) > pipeWidth || printable.Line(line) != line ||
			!utf8.ValidString(line) {
			t.Errorf("%s: a line of %d columns: %q", name, columns(line), line)
		}
	}
}

// TestSummaryPageHostile has texts and numbers that our scans never write.
func TestSummaryPageHostile(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		s := aSummary()
		s.State, s.ToolVersion, s.RegistryVersion, s.Blocking.Registry = h.Text, h.Text, h.Text, h.Text
		s.OtherScans[0].State, s.OtherScans[3].State = h.Text, h.Text
		s.Outcomes = append(s.Outcomes, survey.Count{Value: h.Text, Rows: math.MinInt64})
		s.Statuses, s.StatusClasses = append(s.Statuses, survey.Count{Value: "other", Rows: 9}),
			append(s.StatusClasses, survey.Count{Value: "other", Rows: 9})
		for range 5000 {
			s.Access = append(s.Access, survey.Count{Value: h.Text, Rows: math.MaxInt64})
		}
		s.BodyBytes, s.DatasetBytes, s.Answered, s.HTML = math.MinInt64, math.MaxInt64, math.MaxInt64, -5
		s.Blocking.MostBlocked[0].Token, s.Blocking.MostBlocked[0].Operator, s.Blocking.MostBlocked[0].Sites = h.Text, h.Text,
			math.MaxInt64
		s.Blocking.Operator, s.Blocking.Lenient[0].Token = h.Text, h.Text
		page := pageOf(t, s)
		harmless(t, h.Name, page, 200)
		if t.Failed() {
			return
		}
	}
}

// TestBars shows bars of a dark and a light share in ten columns, in blocks and in ASCII.
func TestBars(t *testing.T) {
	f := func(dark, light float64, blocks, ascii string) {
		t.Helper()
		if got := blockBars.draw(10, dark, light); got != blocks {
			t.Errorf("%v and %v in blocks: %q, want %q", dark, light, got, blocks)
		}
		if got := asciiBars.draw(10, dark, light); got != ascii {
			t.Errorf("%v and %v in ASCII: %q, want %q", dark, light, got, ascii)
		}
	}
	f(0, 0, "", "")
	f(-1, 0, "", "")
	f(1, 0, "██████████", "##########")
	f(7, 0, "██████████", "##########") // of a dataset that counts more than there are
	f(0.5, 0, "█████", "#####")
	f(0.54, 0, "█████▌", "#####")
	f(0.00001, 0, "▌", "#") // more than nothing is seen
	f(0, 0.00001, "░", "-")
	f(0, 0.3, "░░░", "---")
	f(0.3, 0.3, "███░░░", "###---")
	f(0.3, 0.00001, "██░", "##-") // and so is each part
	f(0.00001, 0.3, "█░░", "#--")
	f(0.00002, 0.00001, "█", "#")
	f(0.00001, 0.00002, "░", "-")
	f(0.6, 0.6, "██████░░░░", "######----")
	f(7, 7, "█████████░", "#########-")
}

// TestPercent shows that only a share of 0 looks like 0, and only a share of all looks like all.
func TestPercent(t *testing.T) {
	f := func(part, whole int64, want string) {
		t.Helper()
		if got := percentOf(part, whole); got != want {
			t.Errorf("%d of %d is %q, want %q", part, whole, got, want)
		}
	}
	f(0, 0, "n/a")
	f(5, 0, "n/a")
	f(0, 7, "0 %")
	f(7, 7, "100 %")
	f(1, 3, "33.33 %")
	f(4, 10_000, "0.04 %")
	f(1, 1_000_000, "<0.01 %")
	f(999_999, 1_000_000, ">99.99 %")
	f(9999, 10_000, "99.99 %")
	f(math.MaxInt64, math.MaxInt64, "100 %")
}

func TestWholeBar(t *testing.T) {
	f := func(n, of int64, want string) {
		t.Helper()
		if got := roundPercent(wholeBar([]figure{{n: 1, of: 1000}, {n: n, of: of}})); got != want {
			t.Errorf("a whole bar for %d of %d is %s, want %s", n, of, got, want)
		}
	}
	f(0, 0, "0.1 %")
	f(1, 1, "100 %")
	f(51, 100, "100 %")
	f(50, 100, "50 %")
	f(201, 1000, "50 %")
	f(20, 100, "20 %")
	f(3, 1000, "0.5 %")
}

func TestNumbers(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(printable.Number(0), "0")
	f(printable.Number(999), "999")
	f(printable.Number(1000), "1,000")
	f(printable.Number(-1234567), "-1,234,567")
	f(bytesText(999), "999 B")
	f(bytesText(1000), "1.0 kB")
	f(bytesText(999_949), "999.9 kB")
	f(bytesText(999_999), "1.0 MB")
	f(bytesText(75_000_000_000), "75.0 GB")
	f(bytesText(math.MaxInt64), "9.2 EB")
	f(millisText(999.4), "999 ms")
	f(millisText(1234), "1.2 s")
	f(printable.Count(1, "part"), "1 part")
	f(printable.Count(2000, "part"), "2,000 parts")
}

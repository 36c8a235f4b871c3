package page

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// groupsOf returns a survey of so many sites. Each figure with groups has groups of these sizes, which are named after
// their sizes. The smaller a group, or a pair of groups, the more extreme is its share.
func groupsOf(all, sampleOf int64, sizes ...int64) *builder {
	s := &tables.Survey{Manifest: &commit.Manifest{ScanDate: "2026-11-22"}, Tables: map[string]*tables.Table{},
		Unobserved: map[string]int64{}, Lines: []string{"GPTBot"}}
	add := func(name string, columns []string, row ...any) {
		t := s.Tables[name]
		if t == nil {
			t = &tables.Table{Name: name, Columns: columns}
			s.Tables[name] = t
		}
		t.Rows = append(t.Rows, row)
	}
	rules := survey.Uncertainty{LeastGroup: survey.LeastGroup, SampleOf: sampleOf}
	var tokens []summary.TokenCount
	for i, n := range sizes {
		name, blocking := fmt.Sprintf("group-%d", n), n/2+(n/2)/int64(i+1)*int64(1-2*(i%2))
		share := float64(blocking) / float64(n)
		tokens = append(tokens, summary.TokenCount{Token: name, Operator: name, Named: 1, Sites: n,
			Share: float64(n) / float64(all), ViaOwn: n})
		for _, other := range sizes {
			add("blocked-together", []string{"token", "other", "sites", "share"}, name, fmt.Sprintf("group-%d", other),
				min(n, other), share)
		}
		s.Unobserved[fmt.Sprintf("rank %d", n)] = n
		for _, kind := range []string{"label", "tld"} {
			s.Unobserved[kind+" "+name] = n
			if kind == "label" || rules.Enough(n) { // Take has no others
				add("blocked-by-"+kind, []string{kind, "token", "blocking", "of", "share"}, name, "GPTBot", blocking, n, share)
			}
		}
		add("blocked-by-cdn", []string{"cdn", "sites", "full", "share_full"}, name, n, blocking, share)
		for _, d := range survey.Definitions() {
			add("blocked-by-rank", []string{"token", "definition", "ranks_to", "blocking", "of", "share"}, "GPTBot", d.Name, n,
				blocking, n, share)
			for _, date := range []string{"2026-11-21", "2026-11-22"} {
				add("blocked-over-time", []string{"token", "definition", "scan_date", "blocking", "of", "share"}, "GPTBot", d.Name,
					date, blocking, n, share)
			}
		}
	}
	for _, n := range slices.Backward(sizes) { // these tables begin with the greatest
		name := fmt.Sprintf("group-%d", n)
		add("content-signals", []string{"scope", "signal", "sites"}, "*", name, n)
		add("crawl-delay", []string{"token", "sites", "median"}, name, n, int64(5))
		add("unknown-agents", []string{"token", "mention"}, name, n)
		add("unknown-keys", []string{"kind", "key", "sites"}, "unknown", name, n)
	}
	first := max(1, sizes[0])
	add("managed-blocks", []string{"cdn", "managed_block", "sites", "blocking"}, "none", true, first, first)
	add("managed-blocks", nil, "none", false, all-first, all-first)
	add("ai-tokens-blocked", []string{"tokens_blocked", "sites"}, int64(0), all)
	add("ai-and-search", []string{"ai_blocked", "search_blocked", "sites"}, true, false, all)
	add("findings", []string{"finding", "sites"}, "rules", all)
	add("syntax", []string{"kind", "sites", "share"}, "invalid", all, 1.0)
	add("histograms", []string{"kind", "from", "to", "sites"}, "total_ms", 16.0, 22.6, all)
	add("histograms", nil, "body_bytes", int64(1), int64(2), all)
	add("transitions", []string{"token", "before", "after", "change", "sites"}, "GPTBot", "open", "blocked", "began", all)
	share, half := 0.5, 20.0
	s.Sensitivity = &summary.Sensitivity{Token: "GPTBot", Rows: []summary.Choice{{ID: "rules", Sites: all / 2, Of: all,
		Share: &share}}}
	for _, d := range survey.Definitions() {
		sum := &summary.Summary{Uncertainty: rules, Rows: 2 * all, Asked: all, Answered: all, Rules: all, MedianMillis: &half,
			P99Millis: &half,
			Statuses:  []survey.Count{{Value: "200", Rows: all}}, Scores: []summary.Bin{{To: 1, Rows: all}},
			Checks: []survey.Count{{Value: "pass", Rows: all}}}
		sums := []summary.Sum{{Value: "x", Tokens: 1, Sites: all / 2, Share: 0.5}}
		sum.Blocking = summary.Blocking{Definition: d.Name, Question: d.Question, Over: d.Over, Sites: all,
			AtLeastOne: all / 2, Unobserved: all,
			MostBlocked: tokens, ByPurpose: sums, ByOperator: slices.Clone(sums)}
		sum.Blocking.EachHeadline(func(_, _ string, sites int64, sure *survey.Certainty) {
			*sure = rules.Of(sites, all,
				all)
		})
		s.Summaries = append(s.Summaries, sum)
	}
	return &builder{survey: s, on: survey.Full}
}

// variants are all variants of the figures of a page, by id.
func variants(b *builder) map[string]variant {
	all := map[string]variant{}
	for _, g := range b.groups() {
		for _, f := range g.Figures {
			for _, v := range f.Variants {
				all[v.ID] = v
			}
		}
	}
	return all
}

// TestNoHeadlineOfSmallGroups has groups below and above the limits: no headline names a small one, but each is shown,
// with its flag.
func TestNoHeadlineOfSmallGroups(t *testing.T) {
	small := regexp.MustCompile(`group-(\d|[12]\d)\b|first (\d|[12]\d)\b|\b(\d|[12]\d) [a-z ]+; 100% of them`)
	for name, sizes := range map[string][]int64{"both": {3, 29, 30, 99, 100, 5000}, "one": {29, 30}, "small": {3, 29},
		"large": {30, 31}} {
		b := groupsOf(10_000, 0, sizes...)
		all := variants(b)
		for id, v := range all {
			if found := small.FindString(v.Headline); found != "" && !strings.HasPrefix(id, "tokens-") {
				// the number of blocking sites among all sites
				t.Errorf("%s: the headline of %s names %q: %s", name, id, found, v.Headline)
			}
			if v.Headline == "" {
				t.Errorf("%s: %s has no headline", name, id)
			}
		}
		for _, id := range []string{"labels", "networks"} {
			if _, ranked := strings.CutPrefix(all[id].Headline, "No group has 30 sites"); ranked != (name == "small") {
				t.Errorf("%s: %s: %s", name, id, all[id].Headline)
			}
			rows, last := all[id].Plots[0].(*bars).Rows, false
			for _, row := range rows {
				var n int64
				if _, err := fmt.Sscanf(row.Name, "group-%d", &n); err != nil {
					t.Fatal(err)
				}
				if want := b.sites(n); row.Under != want || strings.HasSuffix(want, "few)") != (n < 100) ||
					strings.Contains(want, "too") != (n < 30) {
					t.Errorf("%s: %s has %q under %s, want %q", name, id, row.Under, row.Name, want)
				}
				if last = last || n < 30; id == "labels" && n >= 30 && last {
					t.Errorf("%s: %s is behind small groups", name, row.Name)
				}
			}
			if len(rows) != len(sizes) {
				t.Errorf("%s: %s has %d rows", name, id, len(rows))
			}
		}
	}
	for id, want := range map[string]string{
		"labels":     "66.7% [33.3%-83.3%] of sites labelled group-30 (few) block GPTBot, 37.4% [18.7%-68.7%] of those labelled group-99 (few)",
		"tlds":       "66.7% [33.3%-83.3%] of sites under .group-30 (few) block GPTBot, 37.4% [18.7%-68.7%] of those under .group-99 (few)",
		"ranks-full": "Popular sites block GPTBot more often than others: ",
		"managed":    "Managed blocks: 3 files; of the others 100% block GPTBot",
		"delays":     "5,000 sites give group-5000 a Crawl-delay, half of them 5 s or less",
		"signals":    "At least 5,000 sites give a Content-Signal; the most common is group-5000",
	} {
		if got := variants(groupsOf(10_000, 0, 3, 29, 30, 99, 100, 5000))[id].Headline; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

// TestTooFewForHeadlines has surveys with numbers of sites below and above the limits: no figure of fewer than 30 sites
// has a headline, and each flags its number.
func TestTooFewForHeadlines(t *testing.T) {
	for all, flag := range map[int64]string{8: " (too few)", 29: " (too few)", 30: " (few)", 99: " (few)", 100: "",
		5000: ""} {
		b := groupsOf(all, 0, all)
		for id, v := range variants(b) {
			if v.Empty != "" {
				continue
			}
			if silent := strings.HasSuffix(v.Headline, ": too few sites for a headline"); silent != (all < 30) {
				t.Errorf("%d sites: %s: %s", all, id, v.Headline)
			}
			n := fmt.Sprintf("n = %s%s", printable.Number(all), flag)
			if strings.HasPrefix(id, "time-") {
				n += " to " + strings.TrimPrefix(n, "n = ")
			}
			if id != "transitions" && !strings.Contains(v.Subtitle, n+", ") {
				t.Errorf("%d sites: %s: %s", all, id, v.Subtitle)
			}
		}
		for _, s := range b.survey.Summaries {
			a := b.answer(s)
			if ranks := strings.Contains(a, "leads"); ranks != (all >= 30) || ranks == strings.HasPrefix(a,
				"Too few sites for a headline: ") {
				t.Errorf("%d sites: %s", all, a)
			}
		}
	}
}

// TestLeads checks that a headline names the leading token, but none of several equal ones.
func TestLeads(t *testing.T) {
	for second, want := range map[int64]bool{4999: true, 5000: false} {
		b := groupsOf(10_000, 0, 5000)
		s := b.full()
		s.Blocking.MostBlocked = append(s.Blocking.MostBlocked, summary.TokenCount{Token: "second", Sites: second,
			Share: float64(second) / 10_000})
		if got := b.answer(s); strings.Contains(got, "leads") != want {
			t.Errorf("5000 and %d sites: %s", second, got)
		}
	}
}

// TestRanges checks ranges in headlines, under bars, and in headlines.csv: bounds for full lists, and for samples also
// intervals.
func TestRanges(t *testing.T) {
	for sampleOf, want := range map[int64]string{0: " [25.0%-75.0%]", 20_000: " (49.3%-50.7%) [25.0%-75.0%]"} {
		b := groupsOf(10_000, sampleOf, 5000)
		all := variants(b)
		if got := b.answer(b.full()); got != "Half of the sites block at least one AI crawler: 5,000 of 10,000 sites with rules"+want+
			". group-5000 leads with 50.0%"+want+"." {
			t.Errorf("the answer is %s", got)
		}
		for _, id := range []string{"tokens-full", "operators-any", "purposes-mention"} {
			if v := all[id]; !strings.Contains(v.Headline, want) || !strings.HasSuffix(v.Plots[0].(*bars).Rows[0].Under, want) {
				t.Errorf("%s: %s; %+v", id, v.Headline, v.Plots[0].(*bars).Rows[0])
			}
			first, last := all[id].Plots[0].(*bars), map[bool]string{true: "100%", false: "80%"}[id == "tokens-full"]
			if parts := first.Rows[0].Parts; parts[len(parts)-1].Class != "bounds" ||
				first.Ticks[len(first.Ticks)-1].Label != last {
				t.Errorf("%s: the bounds are not drawn in %+v, up to %v", id, parts, first.Ticks)
			}
		}
		for id := range all {
			if alone := regexp.MustCompile(
				`^(tlds|labels|networks|ranks-full|managed|count|search|findings|scores|sensitivity)$`).MatchString(id); alone &&
				strings.Contains(all[id].Headline, "%-") != (sampleOf > 0 ||
					regexp.MustCompile(`^(tlds|labels|ranks-full|count|search)$`).MatchString(id)) {
				t.Errorf("%s of a sample of %d: %s", id, sampleOf, all[id].Headline)
			}
		}
		var text string
		err := WriteTables(b.survey, func(name string, content []byte) error {
			if name == "headlines.csv" {
				text = string(content)
			}
			return nil
		})
		rows, _ := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(rows) != 1+4*len(survey.Definitions()) {
			t.Fatalf("%v, headlines:\n%s", err, text)
		}
		for i, row := range rows[1:] {
			d := survey.Definitions()[i/4]
			interval := regexp.MustCompile(`^0\.493\d+,0\.506\d+$`).MatchString(row[6] + "," + row[7])
			if row[0] != d.Name || row[1] != []string{"any", "token", "purpose", "operator"}[i%4] || row[3]+row[4]+
				row[5] != "500010000true" || interval != (sampleOf > 0) || row[8]+","+row[9] != "0.25,0.75" {
				t.Errorf("headlines.csv of a sample of %d: %v", sampleOf, row)
			}
		}
	}
}

// TestHeadlinesOfOne has one site of each kind, so that the verbs are singular.
func TestHeadlinesOfOne(t *testing.T) {
	b := groupsOf(10_000, 0, 1)
	b.survey.Tables["content-usage"] = &tables.Table{Name: "content-usage", Columns: []string{"scope", "content_usage",
		"sites"}, Rows: [][]any{{"*", "train-ai=n", int64(1)}}}
	b.survey.Tables["licenses"] = &tables.Table{Name: "licenses", Columns: []string{"license_host", "sites"},
		Rows: [][]any{{"rsl.example", int64(1)}}}
	all := variants(b)
	for id, want := range map[string]string{"signals": "At least 1 site gives a ", "usage": "At least 1 site gives a ",
		"licenses": "1 file names a licence"} {
		if !strings.HasPrefix(all[id].Headline, want) {
			t.Errorf("%s: %q, want %q", id, all[id].Headline, want)
		}
	}
	for id, v := range all {
		if found := regexp.MustCompile(`\b1 (site|file|crawler)s?\b (give|name|block)\b`).FindString(
			v.Headline); found != "" {
			t.Errorf("%s: %q", id, v.Headline)
		}
	}
}

package audit

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// testdata/frozen.txt has counts of Judge's results for all real bodies, a section for each corpus and a line for each
// fact, so that every change of a definition shows as a readable diff. This file has, in this order: the test, the
// counts by site and row, their lines, and the comparison of two files.

// refreeze is a flag of its own, so that -update of other golden files does not freeze new counts.
var refreeze = flag.Bool("refreeze", false, "rewrite testdata/frozen.txt, whose diff has to be read and explained")

const frozenPath = "testdata/frozen.txt"

const frozenHeader = `# What the audit makes of real bodies, each as an answer with status 200: counts, a section a corpus, a fact a line.
# Sites are counted unless a line says otherwise. Written by:
#
#	go test ./audit -run Frozen -refreeze
#
# Every line of the diff has to be read, and its cause told in the commit that changes it.
`

func TestFrozen(t *testing.T) {
	if underRace && !*refreeze {
		t.Skip("SKIPPED: the counts are those of all bodies, which takes too long under the race detector")
	}
	got := frozenHeader
	for _, corpus := range corpora {
		got += "\n[" + corpus + "]\n" + strings.Join(countAll(sharedtest.Bodies(t, corpus)).lines(), "\n") + "\n"
	}
	if *refreeze {
		if err := os.WriteFile(frozenPath, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(frozenPath)
	if err != nil {
		t.Fatalf("%v; go test ./audit -run Frozen -refreeze writes it", err)
	}
	if got == string(want) {
		return
	}
	t.Errorf("the audit counts otherwise than %s says:\n%s\nIf that is meant: go test ./audit -run Frozen -refreeze\n"+
		"rewrites the file; then read its whole diff, and explain it in the commit.", frozenPath,
		firstDifferences(string(want), got))
}

// census has the counts of a corpus.
type census struct {
	facts  map[string]int
	lists  map[string]map[string]int // facts with many values; the most frequent are listed
	tokens []tokenCounts             // by registry index
}

// tokenCounts are numbers of sites by their statement on a registry token, with the definitions of HTTP Archive, the
// Data Provenance Initiative and others (mention is also `named`, full is `blocked`), and numbers of rows for the token
// under another name.
type tokenCounts struct {
	mention, explicitRoot, full, partial, any, dpiAll, rfcEffective int
	fallback, lenient                                               int // rows
}

func newCensus() *census {
	return &census{
		facts: map[string]int{}, lists: map[string]map[string]int{}, tokens: make([]tokenCounts,
			len(tokens.Default().Tokens)),
	}
}

// list counts one value of a fact with many.
func (c *census) list(what, value string) {
	if c.lists[what] == nil {
		c.lists[what] = map[string]int{}
	}
	c.lists[what][value]++
}

// countAll judges the bodies, on all processors, and counts.
func countAll(bodies [][]byte) *census {
	parts := make([]*census, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for w := range parts {
		parts[w] = newCensus()
		workers.Go(func() {
			s := new(Site)
			for i := w; i < len(bodies); i += len(parts) {
				answer(s, bodies[i])
				Judge(s)
				parts[w].countSite(s)
			}
		})
	}
	workers.Wait()
	for _, part := range parts[1:] {
		parts[0].join(part)
	}
	return parts[0]
}

// countSite counts the site's row of the table `sites`, and then its rows of other tables.
func (c *census) countSite(s *Site) {
	r := &s.Report
	c.facts["sites"]++
	c.facts["access "+r.Access.String()]++
	c.facts["access_source "+AccessSource]++
	c.facts["check_status "+r.Status.String()]++
	c.facts[fmt.Sprintf("score %.2f", r.Score)]++
	for i, status := range r.Steps {
		c.facts["step "+steps[i].id+" "+status.String()]++
	}
	c.facts["star_verdict "+r.Star.String()]++
	for a := range r.Advice.All() {
		c.facts["advice "+a.String()]++
	}
	for name, holds := range map[string]bool{
		"has has_bom": r.HasBOM, "has is_html": r.IsHTML, "has valid_utf8": r.ValidUTF8 == exchange.Yes,
		"has managed_block": r.ManagedBlock,
		"has crawl_delay":   r.HasCrawlDelay, "has content_signal": r.ContentSignal != nil,
		"has content_usage": r.ContentUsage != nil,
		"has license":       r.License != nil, "has body_hash": r.BodyHash != 0,
	} {
		if holds {
			c.facts[name]++
		}
	}
	n := &r.Counts
	for name, total := range map[string]int{
		"n_lines": n.Lines, "n_records": n.Records, "n_groups": n.Groups, "n_agents": n.Agents, "n_allow": n.Allow,
		"n_disallow": n.Disallow,
		"n_sitemaps": n.Sitemaps, "n_extensions": n.Extensions, "n_legacy": n.Legacy, "n_unknown": n.Unknown,
		"n_orphan": n.Orphan, "n_invalid": n.Invalid, "n_typo": n.Typo,
	} {
		c.facts["total "+name] += total
		if total > 0 {
			c.facts["has "+name]++
		}
	}
	c.facts["total sitemaps kept"] += len(r.Sitemaps)
	c.countEvidence(r)
	for i := range r.Verdicts {
		c.countRow(&r.Verdicts[i])
	}
	c.countTokens(s)
}

// countEvidence counts rows of the table `evidence`, and the sites with each unknown key.
func (c *census) countEvidence(r *Report) {
	keys := map[string]bool{}
	for _, e := range r.Evidence {
		c.facts["evidence rows "+e.Kind.String()]++
		if e.Kind == KindUnknown {
			keys[readableKey(e.Key)] = true
		}
	}
	for key := range keys {
		c.list("unknown key", key)
	}
}

// readableKey returns a key in lower case if it consists of words. Other keys, of binary bodies and text graphics,
// count as one.
func readableKey(key []byte) string {
	noise := func(c rune) bool {
		return c < 0x80 && !strings.ContainsRune(" -_./", c) && !unicode.In(c, unicode.L, unicode.Nd)
	}
	if len(key) > 40 || !utf8.Valid(key) || bytes.ContainsFunc(key, noise) {
		return "(noise)"
	}
	return plainLower(string(key))
}

// countRow counts a row of the table `verdicts`.
func (c *census) countRow(v *Verdict) {
	who := "known"
	switch {
	case v.Lenient:
		who = "lenient"
	case string(v.Token) == "*":
		who = "star"
	case v.ID < 0:
		who = "unknown"
		c.list("unknown agent", string(v.Token))
	}
	c.facts["rows of "+who]++
	c.facts[fmt.Sprintf("rows of %s via %v: %v", who, v.Via, v.Decision)]++
	c.facts["rows of "+who+" dpi "+v.DPI.String()]++
	for name, holds := range map[string]bool{
		"limited": v.Limited, "root_allowed": v.RootAllowed, "has_disallow_root": v.HasDisallowRoot,
		"crawl_delay": v.HasCrawlDelay, "request_rate": v.RequestRate > 0, "visit_time": v.HasVisit,
		"content_signal": v.ContentSignal != nil,
	} {
		if holds {
			c.facts["rows of "+who+" with "+name]++
		}
	}
	if usage := v.ContentUsage.String(); usage != "" {
		c.facts["rows of "+who+" with content_usage "+usage]++
	}
	if v.HasCrawlDelay {
		c.list("row with crawl_delay", fmt.Sprint(v.CrawlDelay))
	}
	if v.RequestRate > 0 {
		c.list("row with request_rate", fmt.Sprintf("%.6f", v.RequestRate))
	}
	if v.HasVisit {
		c.list("row with visit_time", fmt.Sprintf("%d-%d", v.Visit.From, v.Visit.To))
	}
	for key, value := range SignalPairs(v.ContentSignal) {
		c.list("row with content_signal", plainLower(fmt.Sprintf("%s=%s", key, value)))
	}
	c.facts["rows of "+who+", total n_allow"] += v.NAllow
	c.facts["rows of "+who+", total n_disallow"] += v.NDisallow
}

// countTokens counts the site for every registry token by the lists and rows.
func (c *census) countTokens(s *Site) {
	for id, d := range reportedDefinitions(s) {
		t := &c.tokens[id]
		t.mention += one(d.mention)
		t.explicitRoot += one(d.explicitRoot)
		t.full += one(d.full)
		t.any += one(d.any)
		t.dpiAll += one(d.dpiAll)
		t.rfcEffective += one(d.rfcEffective)
	}
	for _, id := range s.Report.Partial {
		c.tokens[id].partial++
	}
	for _, v := range s.Report.Verdicts {
		switch {
		case v.Lenient:
			c.tokens[v.ID].lenient++
		case v.Via == ViaFallback:
			c.tokens[v.ID].fallback++
		}
	}
}

func one(holds bool) int {
	if holds {
		return 1
	}
	return 0
}

// join adds another census of the same corpus.
func (c *census) join(o *census) {
	for name, n := range o.facts {
		c.facts[name] += n
	}
	for what, values := range o.lists {
		for value, n := range values {
			c.list(what, value)
			c.lists[what][value] += n - 1
		}
	}
	for id := range c.tokens {
		a, b := &c.tokens[id], &o.tokens[id]
		*a = tokenCounts{
			a.mention + b.mention, a.explicitRoot + b.explicitRoot, a.full + b.full, a.partial + b.partial, a.any + b.any,
			a.dpiAll + b.dpiAll, a.rfcEffective + b.rfcEffective, a.fallback + b.fallback, a.lenient + b.lenient,
		}
	}
}

// lines returns the census as text.
func (c *census) lines() (lines []string) {
	for name, n := range c.facts {
		if n != 0 {
			lines = append(lines, fmt.Sprintf("%s: %d", name, n))
		}
	}
	slices.Sort(lines)
	lines = append(lines, c.tokenLines()...)
	for _, what := range slices.Sorted(maps.Keys(c.lists)) {
		lines = append(lines, top(what, c.lists[what])...)
	}
	return lines
}

// tokenLines has a line for each token that some body affects. All other tokens have the counts of any token that
// heeds, or ignores, `*`.
func (c *census) tokenLines() (lines []string) {
	reg := tokens.Default()
	for id, n := range c.tokens {
		name := "token " + reg.Tokens[id].Name
		if n.mention+n.fallback+n.lenient == 0 {
			name = "token (any other that heeds *)"
			if !reg.Tokens[id].HeedsStar {
				name = "token (any other that ignores *)"
			}
		}
		line := fmt.Sprintf("%s: mention %d explicit_root %d full %d partial %d any %d dpi_all %d rfc_effective %d",
			name, n.mention, n.explicitRoot, n.full, n.partial, n.any, n.dpiAll, n.rfcEffective)
		if n.fallback > 0 {
			line += fmt.Sprintf(" fallback %d", n.fallback)
		}
		if n.lenient > 0 {
			line += fmt.Sprintf(" lenient %d", n.lenient)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return lines
}

// top returns the thirty most frequent names with their counts, and the number of all.
func top(what string, counts map[string]int) (lines []string) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	const most = 30
	for _, name := range names[:min(len(names), most)] {
		lines = append(lines, fmt.Sprintf("%s %s: %d", what, strings.Trim(strconv.QuoteToASCII(name), `"`), counts[name]))
	}
	return append(lines, fmt.Sprintf("%s, different ones: %d", what, len(names)))
}

// firstDifferences returns the first differing facts with their sections.
func firstDifferences(want, got string) string {
	read := func(text string) (order []string, facts map[string]string) {
		section := ""
		facts = map[string]string{}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "[") {
				section = line + " "
			}
			name, value := line, ""
			if at := strings.LastIndex(line, ": "); at >= 0 && section != "" {
				name, value = line[:at], line[at+2:]
			}
			order = append(order, section+name)
			facts[section+name] = value
		}
		return order, facts
	}
	wantOrder, wantFacts := read(want)
	gotOrder, gotFacts := read(got)
	differing, lines := 0, []string{}
	seen := map[string]bool{}
	for _, fact := range slices.Concat(wantOrder, gotOrder) {
		w, wanted := wantFacts[fact]
		g, given := gotFacts[fact]
		if seen[fact] || w == g && wanted == given {
			continue
		}
		seen[fact] = true
		const most = 25
		if differing++; differing > most {
			continue
		}
		orNone := func(value string, there bool) string {
			if !there {
				return "no such line"
			}
			return value
		}
		lines = append(lines, fmt.Sprintf("%s:\n\twant %s\n\tgot  %s", fact, orNone(w, wanted), orNone(g, given)))
	}
	if differing == 0 {
		return "the order of the lines"
	}
	return fmt.Sprintf("%s\n%d lines differ in all.", strings.Join(lines, "\n"), differing)
}

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
)

// The page that check shows to a person. It goes from the answer to the reasons: the headline, the steps of the check,
// advice, what the file declares, noteworthy lines, crawlers by operator, and unknown agents. It fits into two screens:
// long lists are cut, and say how much more there is. crawlers.go has the crawlers.

// shownRows is how many lines of a kind of evidence, and how many unknown agents, are shown without --all.
const shownRows = 10

const indent = 2 // of all that stands below a title

// CheckOptions say what of a result is shown.
type CheckOptions struct {
	All        bool     // all evidence, and all unknown agents
	Categories []string // of crawlers; each as the registry spells it, sorted
	Color      Color
}

// explanation is a result that is being shown.
type explanation struct {
	all        bool
	categories []string

	page   *page
	result *audit.Result
	rules  map[string]*audit.VerdictResult // rows of `verdicts` by token; that of "*" is among them
	loose  map[string]*audit.VerdictResult // verdicts that only the second reading finds
}

// Check shows the result of a site or a file, arg.
func Check(w io.Writer, arg string, r *audit.Result, o CheckOptions) error {
	x := &explanation{all: o.All, categories: o.Categories, page: newPage(w, o.Color), result: r}
	x.rules, x.loose = map[string]*audit.VerdictResult{}, map[string]*audit.VerdictResult{}
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.Lenient {
			x.loose[v.Token] = v
		} else {
			x.rules[v.Token] = v
		}
	}
	x.headline(arg)
	if !r.Known {
		return x.page.end()
	}
	x.steps()
	x.advice()
	x.declared()
	x.evidence()
	for _, category := range x.categories {
		x.crawlers(category)
	}
	x.otherCategories()
	x.unknownAgents()
	return x.page.end()
}

// The marks of statuses and verdicts. Each mark stands beside its word, and its colour says the same a third time.
var marks = map[string]string{
	"pass": "✓", "warn": "!", "fail": "✗", "skipped": "·",
	"allowed": "✓", "partial": "◐", "blocked": "✗",
}

var markStyles = map[string]style{
	"pass": green, "warn": yellow, "fail": red, "skipped": dim,
	"allowed": green, "partial": yellow, "blocked": red,
}

// marked is a status or a verdict with its mark.
func marked(word string) piece { return styled(markStyles[word], "%s %s", marks[word], word) }

// head begins a section.
func (x *explanation) head(title string, more ...piece) {
	x.page.line()
	x.page.line(append([]piece{styled(bold, "%s", title)}, more...)...)
}

// The first lines: the site and its answer, what that means, and how the crawlers of a category are treated.

func (x *explanation) headline(arg string) {
	p, r := x.page, x.result
	title := r.Origin
	switch {
	case title != "":
	case arg == "-":
		title = "standard input"
	default:
		title = arg
	}
	p.line(styled(bold, "%s", title))
	if r.FinalURL != "" {
		x.fact("file", text(r.FinalURL))
	}
	if r.RemoteIP != "" {
		x.fact("address", text(r.RemoteIP))
	}
	if r.Origin != "" {
		x.fact("answer", text(x.answer()))
	}
	for _, field := range []struct{ name, value string }{{"X-Robots-Tag", r.XRobotsTag},
		{"Content-Usage", r.ContentUsageHeader}} {
		if field.value != "" {
			x.fact("field", textf("%s: %s (of the file itself)", field.name, field.value))
		}
	}
	finding := r.Finding
	switch {
	case r.Challenge != "":
		finding += fmt.Sprintf(": a bot challenge of %s, not the site's answer", r.Challenge)
	case r.HTMLTitle != "":
		finding += fmt.Sprintf(": a page with the title %.200q", r.HTMLTitle)
	}
	x.fact("finding", text(finding))
	x.fact("access", textf("%s (%s)", r.Access, x.accessWords()))
	if r.Access == "conditional" {
		x.fact("content", text(x.content()))
	}
	if !r.Known {
		x.fact("known", styled(dim, "? nothing:"),
			text("without an HTTP status there is no score, and no crawler has a verdict"))
		return
	}
	x.fact("check", styled(markStyles[r.Status], "%s %s,", marks[r.Status], r.Status), textf("score %.2f (%s %s)",
		*r.Score, r.Check, r.Version))
	for _, category := range x.categories {
		x.fact(categoryTitle(category), x.tally(category)...)
	}
	x.fact("unnamed", marked(r.Star.Verdict), textf("(an agent that nobody names): %s", x.why(r.Star)))
}

// fact is a line of the headline.
func (x *explanation) fact(label string, value ...piece) {
	const width = 8
	x.page.blank(indent)
	used := x.page.write(text(label), width)
	x.page.blank(width - used + gap)
	x.page.flow(indent+width+gap, words(value...))
}

func (x *explanation) accessWords() string {
	switch {
	case x.result.Access == "conditional":
		return "the file's rules decide"
	case x.result.Access == "full_allow":
		return "no file: everything may be crawled"
	case x.result.Access == "unknown":
		return "the site was not asked"
	case !x.result.Known:
		return "no answer: crawlers are to wait"
	}
	return "the server failed: nothing may be crawled"
}

func (x *explanation) answer() string {
	r := x.result
	s := r.Outcome
	if r.HTTPStatus != 0 {
		s += fmt.Sprintf(", status %d", r.HTTPStatus)
	}
	if r.Error != "" {
		s += ": " + r.Error
	}
	return s
}

// content says what the file is made of.
func (x *explanation) content() string {
	r, n := x.result, &x.result.Counts
	parts := []string{
		count(n.Lines, "line"), fmt.Sprintf("%s for %s", count(n.Groups, "group"), count(n.Agents, "agent")),
		fmt.Sprintf("%d allow", n.Allow), fmt.Sprintf("%d disallow", n.Disallow), count(n.Sitemaps, "sitemap"),
	}
	for _, fact := range []struct {
		so   bool
		text string
	}{
		{r.IsHTML, "an HTML page"},
		{r.Truncated, "cut at --max-body"},
		{r.HasBOM, "begins with a byte order mark"},
		{r.ValidUTF8 != nil && !*r.ValidUTF8, "not UTF-8"},
		{r.ManagedBy != "", "in part or as a whole written by " + r.ManagedBy},
	} {
		if fact.so {
			parts = append(parts, fact.text)
		}
	}
	return strings.Join(parts, ", ")
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// tally counts the crawlers of a category by verdict.
func (x *explanation) tally(category string) []piece {
	var all int
	by := map[string]int{}
	for i := range x.result.Tokens {
		if t := &x.result.Tokens[i]; t.Category == category {
			all++
			by[t.Verdict]++
		}
	}
	quiet := func(word string) style { // a zero is no news
		if by[word] == 0 {
			return dim
		}
		return markStyles[word]
	}
	return []piece{
		styled(quiet("blocked"), "%s %d of %d blocked,", marks["blocked"], by["blocked"], all),
		styled(quiet("partial"), "%s %d partly,", marks["partial"], by["partial"]),
		styled(quiet("allowed"), "%s %d allowed", marks["allowed"], by["allowed"]),
	}
}

func (x *explanation) steps() {
	x.head("Steps")
	t := &table{indent: indent, wrap: true}
	for _, s := range x.result.Steps {
		t.add(styled(markStyles[s.Status], "%s", marks[s.Status]), text(s.ID), styled(dim, "%.2f", s.Weight),
			styled(markStyles[s.Status], "%s", s.Status), text(s.Message))
	}
	x.page.table(t)
}

// advice shows what the site might change, with the line that shows it, if one does.
func (x *explanation) advice() {
	if len(x.result.Advice) == 0 {
		return
	}
	x.head("Advice")
	t := &table{indent: indent, wrap: true}
	numbered := slices.ContainsFunc(x.result.Advice, func(a audit.AdviceResult) bool { return a.Line > 0 })
	for _, a := range x.result.Advice {
		cells := []piece{text(a.ID), text(a.Text)}
		switch {
		case a.Line > 0:
			cells = append([]piece{lineNumber(a.Line)}, cells...)
		case numbered:
			cells = append([]piece{{}}, cells...)
		}
		t.add(cells...)
	}
	x.page.table(t)
}

// The lines of the file. Each is shown once: sitemaps and usage preferences with what they apply to, all else as
// evidence.

// declared shows sitemaps and usage preferences with their scope.
func (x *explanation) declared() {
	scopes := map[int]string{}
	for i := range x.result.Signals {
		preference := &x.result.Signals[i]
		scopes[preference.Line] = scopeWords(preference.Scope, preference.Agents)
	}
	for i := range x.result.Usages {
		preference := &x.result.Usages[i]
		scopes[preference.Line] = scopeWords(preference.Scope, preference.Agents)
	}
	x.lines("Sitemaps and usage preferences", []string{"sitemap", "signal", "usage", "license"},
		func(e *audit.EvidenceResult) []piece {
			scope, value := scopes[e.Line], e.Value
			if scope == "" && e.Kind == "usage" { // of a draft: its key says what it is
				value = e.Key + ": " + value
				if e.GroupLine > 0 {
					scope = fmt.Sprintf("group of line %d", e.GroupLine)
				}
			}
			return []piece{text(e.Kind), styled(dim, "%s", cmp.Or(scope, "whole file")), text(value)}
		})
}

// scopeWords names the agents that a usage preference is for.
func scopeWords(scope string, agents []string) string {
	const most = 2
	s := "whole file"
	if scope == "group" {
		s = strings.Join(agents[:min(len(agents), most)], ", ")
		if n := len(agents) - most; n > 0 {
			s += fmt.Sprintf(" and %d more", n)
		}
	}
	return s
}

// evidence shows the other noteworthy lines.
func (x *explanation) evidence() {
	x.lines("Evidence", []string{"extension", "legacy", "unknown", "orphan", "invalid", "typo", "conflict"},
		func(e *audit.EvidenceResult) []piece {
			return []piece{styled(kindStyles[e.Kind], "%s", e.Kind), text(e.Key), text(e.Value)}
		})
}

// kindStyles mark lines that do not do what their author may have meant.
var kindStyles = map[string]style{"legacy": yellow, "orphan": yellow, "invalid": yellow, "typo": yellow,
	"conflict": yellow}

// lines shows the evidence of some kinds, in the order of lines, and says how much more of it there is.
func (x *explanation) lines(title string, kinds []string, cells func(*audit.EvidenceResult) []piece) {
	var list []*audit.EvidenceResult
	more, shown, hidden := map[string]int{}, map[string]int{}, false
	for i := range x.result.Evidence {
		switch e := &x.result.Evidence[i]; {
		case !slices.Contains(kinds, e.Kind):
		case shown[e.Kind] == shownRows && !x.all:
			more[e.Kind]++
			hidden = true
		default:
			shown[e.Kind]++
			list = append(list, e)
		}
	}
	var left []string
	for _, kind := range kinds {
		if more[kind] += x.notKept(kind); more[kind] > 0 {
			left = append(left, fmt.Sprintf("%d %s", more[kind], kind))
		}
	}
	if len(list)+len(left) == 0 {
		return
	}
	// A line's misspelling is listed after its other kinds.
	rank := func(e *audit.EvidenceResult) int {
		if e.Kind == audit.KindTypo.String() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b *audit.EvidenceResult) int { return cmp.Or(a.Line-b.Line, rank(a)-rank(b)) })

	x.head(title)
	t := &table{indent: indent}
	for _, e := range list {
		t.add(append([]piece{lineNumber(e.Line)}, cells(e)...)...)
	}
	x.page.table(t)
	if len(left) > 0 {
		how := ""
		if hidden {
			how = fmt.Sprintf(" (--all shows the first %d of each kind)", audit.MaxEvidenceRows)
		}
		x.note(fmt.Sprintf("… not shown: %s%s", strings.Join(left, ", "), how))
	}
}

// lineNumber is where in the file something stands, as a cell.
func lineNumber(n int) piece {
	number := styled(dim, "%d", n)
	number.right = true
	return number
}

// note is a remark below a section.
func (x *explanation) note(s string) {
	x.page.blank(indent)
	x.page.flow(indent, words(styled(dim, "%s", s)))
}

// notKept returns how many lines of a kind were counted and have no row, since rows are bounded for each kind. The
// count of extensions includes preferences, which only the rows tell apart.
func (x *explanation) notKept(kind string) int {
	n := &x.result.Counts
	total, counted := map[string]int{
		"sitemap": n.Sitemaps, "extension": n.Extensions, "legacy": n.Legacy, "unknown": n.Unknown,
		"orphan": n.Orphan, "invalid": n.Invalid, "typo": n.Typo,
	}[kind]
	if !counted {
		return 0
	}
	for i := range x.result.Evidence {
		switch has := x.result.Evidence[i].Kind; has {
		case kind:
			total--
		case "signal", "usage", "license":
			if kind == "extension" {
				total--
			}
		}
	}
	return max(0, total)
}

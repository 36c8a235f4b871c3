package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey/diff"
)

// What differs between two scans, on a page: which scans, in a few lines; findings before and after; then tables.

// Diff shows what differs between two scans.
func Diff(w io.Writer, d *diff.Diff, when Color) error {
	x := &diffPage{newPage(w, when), &d.Compared}
	if !d.SameObserver {
		x.page.flow(0, words(styled(yellow, "The two scans have two observers: the differences may be the observer's.")))
		x.page.line()
	}
	x.head("from", "to")
	x.page.line()
	if d.Empty() {
		x.page.line(text("Nothing differs."))
		return x.page.end()
	}
	x.changed(d)
	x.findings("before", "after")
	x.tokens(d)
	x.operators(d)
	x.causes(d)
	x.sites(d)
	x.others(d)
	return x.page.end()
}

// Paired shows what two observers saw of one list.
func Paired(w io.Writer, d *diff.Paired, when Color) error {
	x := &diffPage{newPage(w, when), &d.Compared}
	if d.SameObserver {
		x.page.flow(0, words(styled(yellow,
			"The two scans have one observer: without --paired, differences are counted as changes.")))
		x.page.line()
	}
	x.head("one", "two", textf("%s only in one, %s only in two", printable.Count(d.OnlyFrom, "site"),
		printable.Number(d.OnlyTo)))
	x.findings("one", "two")
	t := x.table("Other answers, by delivery network",
		"shares of other findings are of the sites in both scans, those of other files and policies of the sites with rules in both",
		"network", "sites", "finding", "rules", "file", "policy")
	for i, s := range append([]diff.PairedSum{d.All}, d.CDNs...) {
		name := text(cmp.Or(s.CDN, "none"))
		if i == 0 {
			name = styled(bold, "all")
		}
		t.add(append(append([]piece{name}, right(printable.Number(s.Sites), percentOf(s.OtherFinding, s.Sites),
			printable.Number(s.Rules), percentOf(s.OtherBody, s.Rules), percentOf(s.OtherPolicy, s.Rules))...), piece{})...)
	}
	x.page.table(t)
	return x.page.end()
}

// diffPage is a comparison for people.
type diffPage struct {
	page *page
	c    *diff.Compared
}

// head says which scans are compared.
func (x *diffPage) head(from, to string, more ...piece) {
	c := x.c
	x.page.line(styled(bold, "Scan %s of %s and scan %s of %s", c.From.ScanID, c.From.ScanDate, c.To.ScanID,
		c.To.ScanDate))
	if c.Panel != nil {
		x.page.line(textf("only the %s of %s", printable.Count(c.Panel.Hosts, "host"), c.Panel.List))
	}
	t := &table{indent: indent, wrap: true}
	for i, s := range []*diff.Scan{&c.From, &c.To} {
		about := []string{printable.Count(s.Sites, "site") + ", " + printable.Number(s.Rules) + " with rules"}
		if n := len(s.Scans); n > 1 {
			about = append(about, printable.Count(n, "scan")+" together")
		}
		if s.State != "complete" {
			about = append(about, "not complete")
		}
		if s.ListID != "" {
			about = append(about, "list "+s.ListID)
		}
		about = append(about, "observer "+s.Observer, "registry "+s.RegistryVersion)
		if s.Folded > 0 {
			about = append(about, fmt.Sprintf("%s by http and https count once, of which %s disagree",
				printable.Count(s.Folded, "host"), printable.Number(s.FoldsDisagree)))
		}
		if s.Repeated > 0 {
			about = append(about, printable.Count(s.Repeated, "repeated row")+" left out")
		}
		for _, lost := range s.Lost {
			about = append(about, fmt.Sprintf("lost: %s %s of %s, see bulkscan verify", lost.What, printable.Number(lost.Found),
				printable.Number(lost.Expected)))
		}
		t.add(styled(dim, "%s", []string{from, to}[i]), text(strings.Join(about, "; ")))
	}
	both := fmt.Sprintf(
		"%s, %s with rules in both; of these %s (%s) have another file, and %s (%s) another verdict for one of %s",
		printable.Count(c.Both, "site"), printable.Number(c.RulesBoth), printable.Number(c.OtherBody), percentOf(c.OtherBody, c.RulesBoth),
		printable.Number(c.OtherPolicy), percentOf(c.OtherPolicy, c.RulesBoth), printable.Count(c.TokensCompared, "token"))
	t.add(styled(dim, "both"), text(both))
	for _, line := range more {
		t.add(piece{}, line)
	}
	if n := len(c.TokensUnknown); n > 0 {
		t.add(styled(dim, "left out"), textf("%s of which one scan says nothing: %s", printable.Count(n, "token"),
			shortList(c.TokensUnknown, shownValues)))
	}
	x.page.table(t)
}

// shortList names the first of some values.
func shortList(values []string, most int) string {
	names := strings.Join(values[:min(len(values), most)], ", ")
	if more := len(values) - most; more > 0 {
		names += fmt.Sprintf(" and %s more", printable.Number(more))
	}
	return names
}

// changed says in a sentence what has changed.
func (x *diffPage) changed(d *diff.Diff) {
	one, sites := d.AtLeastOne, printable.Count(d.Changed, "site")
	if d.Changed == 0 {
		sites = "No site"
	}
	x.page.flow(0, words(styled(bold, "%s began or ceased to block a token, by the definition %s.", sites, d.Definition),
		textf("Of %s sites with rules in both scans %s (%s) blocked at least one before, %s (%s) after.",
			printable.Number(x.c.RulesBoth), printable.Number(one.Before), percentOf(one.Before, x.c.RulesBoth),
			printable.Number(one.After), percentOf(one.After, x.c.RulesBoth))))
}

// title begins a section.
func (x *diffPage) title(title, about string) {
	x.page.line()
	x.page.flow(0, words(styled(bold, "%s:", title), styled(dim, "%s", about)))
}

// table begins a table, with its title in a line of its own.
func (x *diffPage) table(title, about string, columns ...string) *table {
	x.title(title, about)
	t := &table{indent: indent, yields: true}
	head := []piece{styled(dim, "%s", columns[0])}
	for _, c := range columns[1:] {
		head = append(head, piece{text: c, style: dim, right: true})
	}
	t.add(append(head, piece{})...) // the last column begins at the left
	return t
}

// right are cells at the right of their columns.
func right(cells ...string) (row []piece) {
	for _, c := range cells {
		row = append(row, piece{text: c, right: true})
	}
	return row
}

// shortFindings are the findings as a matrix has them.
var shortFindings = map[string]string{"not_asked": "unasked", "challenged": "chall.", "rate_limited": "429",
	"unreachable": "unreach", "server_error": "failing", "no_rules": "no rules"}

// findings has a matrix of findings.
func (x *diffPage) findings(rows, columns string) {
	var was, is []string
	sites := map[[2]string]int64{}
	for _, f := range diff.Findings() {
		name := f.String()
		for _, p := range x.c.Findings {
			sites[[2]string{p.Before, p.After}] = p.Sites
			if p.Before == name && (len(was) == 0 || was[len(was)-1] != name) {
				was = append(was, name)
			}
			if p.After == name && (len(is) == 0 || is[len(is)-1] != name) {
				is = append(is, name)
			}
		}
	}
	if len(was) == 0 {
		return
	}
	x.title("Findings", fmt.Sprintf("of the sites in both scans; rows are %s, columns %s", rows, columns))
	t := &table{indent: indent, whole: true}
	head := []piece{{}}
	for _, name := range is {
		head = append(head, piece{text: cmp.Or(shortFindings[name], name), style: dim, right: true})
	}
	t.add(append(head, piece{})...)
	for _, before := range was {
		row := []piece{styled(dim, "%s", cmp.Or(shortFindings[before], before))}
		for _, after := range is {
			n := sites[[2]string{before, after}]
			cell := piece{text: printable.Number(n), right: true}
			if n == 0 {
				cell = piece{text: "-", style: dim, right: true}
			}
			row = append(row, cell)
		}
		t.add(append(row, piece{})...)
	}
	x.page.table(t)
}

// net is a difference with its sign.
func net(n int64) string {
	if n > 0 {
		return "+" + printable.Number(n)
	}
	return printable.Number(n)
}

// moves are the cells that a token and an operator have.
func (x *diffPage) moves(name string, m *diff.Moves) []piece {
	cells := right(printable.Number(m.Began), printable.Number(m.Ceased), net(m.Net), percentOf(m.Before, x.c.RulesBoth),
		percentOf(m.After, x.c.RulesBoth))
	return append([]piece{text(name)}, cells...)
}

// note is the text behind the counts: how many more blocks came and went with their files.
func note(m *diff.Moves, notes ...string) piece {
	if m.Appeared+m.Removed > 0 {
		notes = append(notes, fmt.Sprintf("%s appeared, %s removed with the file", printable.Number(m.Appeared), printable.Number(m.Removed)))
	}
	return styled(dim, "%s", strings.Join(notes, "; "))
}

func (x *diffPage) tokens(d *diff.Diff) {
	if len(d.Tokens) == 0 {
		return
	}
	t := x.table("By token",
		"sites that began and ceased to block it; the share of the sites with rules in both scans that block it, before and after; sites that became stricter or laxer short of that",
		"token", "began", "ceased", "net", "before", "after")
	for i := range d.Tokens {
		c := &d.Tokens[i]
		var short []string
		if c.Tightened+c.Loosened > 0 {
			short = append(short, fmt.Sprintf("%s tightened, %s loosened", printable.Number(c.Tightened), printable.Number(c.Loosened)))
		}
		t.add(append(x.moves(c.Token, &c.Moves), note(&c.Moves, short...))...)
	}
	x.page.table(t)
	if more := d.Changing - len(d.Tokens); more > 0 {
		x.page.line(styled(dim, "  and %s more; --top 0 lists them", printable.Number(more)))
	}
}

func (x *diffPage) operators(d *diff.Diff) {
	if len(d.Operators) < 2 {
		return
	}
	t := x.table("By operator", "sites that block at least one of its tokens", "operator", "began", "ceased", "net",
		"before", "after")
	for i := range d.Operators {
		s := &d.Operators[i]
		t.add(append(x.moves(s.Value, &s.Moves), note(&s.Moves, printable.Count(s.Tokens, "token")))...)
	}
	x.page.table(t)
}

// causeMeanings explain the causes.
var causeMeanings = map[string]string{
	"policy":        "the site changed its file",
	"managed":       "only a delivery network's block differs",
	"judge":         "the file is the same, and was judged otherwise",
	"unknown_judge": "the file and the token registry changed",
	"observer":      "another observer asked",
}

func (x *diffPage) causes(d *diff.Diff) {
	if len(d.Causes) == 0 {
		return
	}
	t := x.table("Causes", "began and ceased are pairs of a site and a token", "cause", "sites", "began", "ceased")
	for _, c := range d.Causes {
		t.add(append(append([]piece{text(c.Cause)}, right(printable.Number(c.Sites), printable.Number(c.Began),
			printable.Number(c.Ceased))...), styled(dim, "%s", causeMeanings[c.Cause]))...)
	}
	x.page.table(t)
}

// shownTokens is how many tokens of a site are named.
const shownTokens = 4

// sites lists the sites that changed.
func (x *diffPage) sites(d *diff.Diff) {
	if len(d.Sites) == 0 {
		return
	}
	x.title("Sites that began or ceased", "the best ranked first")
	t := &table{indent: indent, yields: true, wrap: true}
	for i := range d.Sites {
		s := &d.Sites[i]
		rank := ""
		if s.Rank > 0 {
			rank = printable.Number(s.Rank)
		}
		var what []string
		if len(s.Began) > 0 {
			what = append(what, "began "+shortList(s.Began, shownTokens))
		}
		if len(s.Ceased) > 0 {
			what = append(what, "ceased "+shortList(s.Ceased, shownTokens))
		}
		t.add(text(siteName(s)), piece{text: rank, style: dim, right: true}, text(strings.Join(what, "; ")))
	}
	x.page.table(t)
	if more := d.Changed - int64(len(d.Sites)); more > 0 {
		x.page.line(styled(dim, "  and %s more; --top 0 lists them, -o DIR writes them", printable.Number(more)))
	}
}

// siteName is how a list would have the site.
func siteName(s *diff.Site) string {
	name := s.Host
	if s.Requested != "auto" {
		name = s.Requested + "://" + name
	}
	if defaults := map[string]int32{"http": 80, "ftp": 21}; s.Port != defaults[s.Requested] &&
		(defaults[s.Requested] != 0 || s.Port != 443) {
		name += ":" + strconv.Itoa(int(s.Port))
	}
	return name
}

// others reports changes of sites other than of their rules.
func (x *diffPage) others(d *diff.Diff) {
	var rows [][2]string
	row := func(n int64, what string) {
		if n > 0 {
			rows = append(rows, [2]string{printable.Number(n), what})
		}
	}
	row(d.Appeared, "appeared: in the later scan only")
	row(d.Vanished, "vanished: in the earlier scan only")
	row(d.Presence, "changed between rules, a file without rules, an HTML page and none")
	row(d.Refusal, "changed to or from refusing the file")
	for _, f := range d.Failed {
		row(f.After, "failed: "+f.Finding+" in the later scan only")
		row(f.Before, "failed: "+f.Finding+" in the earlier scan only")
	}
	row(d.Unobserved, "failed in both scans")
	if len(rows) == 0 {
		return
	}
	x.title("Other sites", "none of them counts above")
	t := &table{indent: indent}
	for _, r := range rows {
		t.add(piece{text: r[0], right: true}, text(r[1]))
	}
	x.page.table(t)
}

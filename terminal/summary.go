package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// The headline figures of a scan on a page: after a few lines about the scan itself, sections of rows that all have the
// same columns, a name, a number, its share and a bar, so that the bars of the whole page stand below each other.

// Summary shows the headline figures of a scan.
func Summary(w io.Writer, s *summary.Summary, when Color) error {
	x := &summaryPage{page: newPage(w, when), s: s, signs: asciiBars}
	if showsBlocks(w) {
		x.signs = blockBars
	}
	x.head()
	if !s.Complete() && s.Parts == 0 {
		return x.page.end()
	}
	x.sites()
	x.findings()
	x.blocking()
	x.tokens()
	x.lenient()
	x.groups()
	x.outcomes()
	x.statuses()
	x.access()
	x.check()
	x.lay()
	return x.page.end()
}

// summaryPage is a summary for people.
type summaryPage struct {
	page  *page
	s     *summary.Summary
	signs barSigns

	sections []section
}

// section is a title, notes on its figures, and the figures.
type section struct {
	title string
	of    string // what the figures are of, in the title's line
	about string // more about them, in lines of its own
	rows  []figure
	full  float64 // the share that a whole bar is
	end   []piece // a last line
}

// figure is a row: a number of a total. The bar shows the share; light is the share of the lightly drawn part.
type figure struct {
	name      string
	n, of     int64
	light     int64
	sure      survey.Certainty
	extra     string // behind the bar, on wide pages
	barStyle  style
	unmarked  bool // without a bar
	nameStyle style
}

// shownValues bounds the values of a kind that a page shows: a dataset from elsewhere may have thousands.
const shownValues = 12

// head describes the scan itself.
func (x *summaryPage) head() {
	s := x.s
	x.page.leftOut(s.LeftOut)
	x.lost()
	state := styled(green, "complete")
	switch {
	case !s.Complete():
		state = styled(yellow, "not complete")
	case s.Publication == "pending":
		state = styled(yellow, "complete, not published")
	case s.Publication != "" && s.Publication != "published":
		state = styled(yellow, "complete, %s", s.Publication)
	}
	x.page.line(styled(bold, "Scan %s, %s, ", s.ScanID, s.ScanDate), state)
	t := &table{indent: indent, wrap: true}
	line := func(name, format string, args ...any) { t.add(styled(dim, "%s", name), textf(format, args...)) }
	if text := s.Counted(); text != "" {
		line("counted", "%s", text)
	}
	line("started", "%s UTC", s.StartedAt.UTC().Format(time.DateTime))
	if s.FinishedAt != nil {
		line("finished", "%s UTC, after %s", s.FinishedAt.UTC().Format(time.DateTime),
			s.FinishedAt.Sub(s.StartedAt).Round(time.Second))
	}
	switch {
	case s.ListRead == nil:
	case s.Parts == 0:
		line("so far", "nothing committed yet%s; the scan is being written, or was interrupted", openPart(s))
	default:
		line("so far", "%s sites, of a list of at least %s lines; the scan is being written, or was interrupted",
			printable.Number(s.Rows), printable.Number(*s.ListRead))
	}
	line("versions", "bulkscan %s, token registry %s", s.ToolVersion, s.RegistryVersion)
	line("observer", "%s", s.Observer)
	if s.ListID != "" {
		line("list", "%s", s.ListID)
	}
	line("dataset", "%s in %s", bytesText(s.DatasetBytes), printable.Count(s.Parts, "part"))
	line("bodies", "%s, decoded", bytesText(s.BodyBytes))
	if s.MedianMillis != nil && s.P99Millis != nil {
		line("latency", "median %s, 99 %% within %s", millisText(*s.MedianMillis), millisText(*s.P99Millis))
	}
	if n := len(s.OtherScans); n > 0 {
		line("not shown", "%s", x.others())
	}
	x.page.table(t)
}

// openPart says when the first part is committed.
func openPart(s *summary.Summary) string {
	if s.PartRows == nil || s.PartSeconds == nil {
		return ""
	}
	return fmt.Sprintf(": the first part is, at %s sites or %s after its first one (--part-rows, --part-age)",
		printable.Number(*s.PartRows), spanText(time.Duration(*s.PartSeconds*float64(time.Second))))
}

// lost says that a part of a complete scan is missing: all figures count the rest.
func (x *summaryPage) lost() {
	if len(x.s.Lost) == 0 {
		return
	}
	var totals []string
	for _, t := range x.s.Lost {
		totals = append(totals, fmt.Sprintf("%s %s of %s", t.What, printable.Number(t.Found), printable.Number(t.Expected)))
	}
	warning := styled(red, "Warning: some of scan %s is lost, and the figures are of the rest: %s.", x.s.ScanID,
		strings.Join(totals, ", "))
	x.page.flow(0, words(warning, textf("bulkscan verify says what is missing; scan --repair asks it again.")))
	x.page.line()
}

// others names the other scans of the dataset, the latest first.
func (x *summaryPage) others() string {
	const most = 3
	var names []string
	for i := len(x.s.OtherScans) - 1; i >= 0 && len(names) < most; i-- {
		o := x.s.OtherScans[i]
		name := fmt.Sprintf("%s of %s", o.ScanID, o.ScanDate)
		switch {
		case o.Observer != x.s.Observer:
			name += " (by another observer)"
		case o.State != "complete":
			name += " (not complete)"
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if more := len(x.s.OtherScans) - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", printable.Number(more))
	}
	return text + "; --scan-id or --date chooses"
}

// add adds a section, if there is anything in it.
func (x *summaryPage) add(s section) {
	if s.full == 0 {
		s.full = 1
	}
	if len(s.rows)+len(s.end) > 0 {
		x.sections = append(x.sections, s)
	}
}

func (x *summaryPage) sites() {
	s := x.s
	var rows []figure
	for _, r := range []struct {
		name string
		n    int64
	}{
		{"answered", s.Answered}, {"have a file", s.WithFile}, {"have rules", s.Rules}, {"redirected", s.Redirected},
		{"HTML, not rules", s.HTML}, {"cut off", s.Truncated}, {"managed block", s.Managed},
	} {
		rows = append(rows, figure{name: r.name, n: r.n, of: s.Asked})
	}
	x.add(section{
		title: "Sites", rows: rows,
		of: fmt.Sprintf("%s listed, %s of them asked (%s): of these", printable.Number(s.Rows), printable.Number(s.Asked),
			percentOf(s.Asked, s.Rows)),
	})
}

// findings says what was seen, in the words of the column finding.
func (x *summaryPage) findings() {
	x.add(section{title: "What was seen", rows: counted(x.s.Findings, x.s.Rows, shownValues),
		of: "findings of all sites listed"})
}

// blocking says by which definition tokens are counted, and how many sites name or block any of them.
func (x *summaryPage) blocking() {
	b := &x.s.Blocking
	of := "sites that answered"
	if b.Over == "sites_rules" {
		of = "sites that have rules"
	}
	var rows []figure
	row := func(name string, n int64) { rows = append(rows, figure{name: name, n: n, of: b.Sites}) }
	row("block at least one", b.AtLeastOne)
	rows[0].sure = b.OneSure
	if b.AtLeastOne > 0 {
		row("  by name", b.OneByName)
		row("  only by *", b.OneByStar)
	}
	if b.OneFallback > 0 {
		row("  only by a fallback", b.OneFallback)
	}
	if b.OneByHTTP > 0 {
		row("  by a failing server", b.OneByHTTP)
	}
	if b.Over == "sites_rules" {
		row("name at least one", b.NameOne)
		unnamed := "block all unnamed" // a figure by full, whatever the definition of the others
		if b.Definition != survey.Full {
			unnamed += " (full)"
		}
		row(unnamed, b.StarBlocks)
	}
	x.add(section{
		title: fmt.Sprintf("Who blocks %s, by the definition %s", x.selected(), b.Definition),
		about: fmt.Sprintf("%s Shares are of the %s %s%s; at least one is of %s in registry %s. %s",
			upperFirst(b.Question), printable.Number(b.Sites), of, x.s.Flag(b.Sites), printable.Count(b.Selected, "token"),
			b.Registry, x.s.Explain(b.Sites, b.Unobserved)),
		rows: rows,
	})
}

// selected describes the counted tokens in words.
func (x *summaryPage) selected() string {
	b := &x.s.Blocking
	var of []string
	name := "tokens"
	switch {
	case strings.EqualFold(b.Category, "ai"):
		name = "AI tokens"
	case b.Category != "":
		of = append(of, "category "+b.Category)
	}
	if len(b.Tokens) > 0 {
		name = "the tokens of --tokens"
	}
	if b.Purpose != "" {
		of = append(of, "purpose "+b.Purpose)
	}
	if b.Operator != "" {
		of = append(of, "operator "+b.Operator)
	}
	if len(of) > 0 {
		name += " (" + strings.Join(of, ", ") + ")"
	}
	return name
}

func (x *summaryPage) tokens() {
	b := &x.s.Blocking
	title := "Most blocked " + x.selected()
	if !x.s.Enough(b.Sites) {
		title = "Blocked " + x.selected()
	}
	if len(b.MostBlocked) == 0 {
		x.add(section{title: title, end: []piece{textf("none of %s", printable.Count(b.Selected, "token"))}})
		return
	}
	rows, light := make([]figure, 0, len(b.MostBlocked)), false
	for _, c := range b.MostBlocked {
		row := figure{name: c.Token, n: c.Sites, of: b.Sites, light: c.Sites - c.ViaOwn, sure: c.Certainty, extra: c.Operator}
		rows, light = append(rows, row), light || row.light > 0
	}
	full := wholeBar(rows)
	about := "A whole bar is " + roundPercent(full)
	if light {
		about += fmt.Sprintf(": %s by a group of its own, %s by the group of * or of another crawler", x.signs.dark,
			x.signs.light)
		if b.Over == "sites_answered" {
			about += ", or because the server fails"
		}
	}
	s := section{title: title, rows: rows, full: full, about: about + "."}
	if more := b.Blocked - len(rows); more > 0 {
		s.end = []piece{styled(dim, "and %s more of %s tokens; --top 0 lists them", printable.Number(more),
			printable.Number(b.Selected))}
	}
	x.add(s)
}

// lenient has the tokens that no definition counts as named although files name them.
func (x *summaryPage) lenient() {
	b := &x.s.Blocking
	var rows []figure
	for _, c := range b.Lenient[:min(len(b.Lenient), shownValues)] {
		rows = append(rows, figure{name: c.Token, n: c.Sites, of: x.s.Rules})
	}
	full := wholeBar(rows)
	s := section{
		title: "Named by the lenient reading only", rows: rows, full: full,
		of: "of the sites that have rules; a whole bar is " + roundPercent(full),
		about: "These files spell the name in a way that no crawler is known to match, such as AI2Bot, whose digit RFC 9309 does not " +
			"allow in a product token. No definition counts the sites as naming the token.",
	}
	if more := len(b.Lenient) - len(rows); more > 0 {
		s.end = []piece{styled(dim, "and %s more; --json has them", printable.Number(more))}
	}
	x.add(s)
}

// groups lists the tokens by purpose, or by operator if all have the same purpose.
func (x *summaryPage) groups() {
	b := &x.s.Blocking
	kind, sums := "purpose", b.ByPurpose
	if len(sums) < 2 {
		kind, sums = "operator", b.ByOperator
	}
	if len(sums) < 2 {
		return
	}
	var rows []figure
	for _, sum := range sums[:min(len(sums), shownValues)] {
		rows = append(rows, figure{name: sum.Value, n: sum.Sites, of: b.Sites, sure: sum.Certainty,
			extra: printable.Count(sum.Tokens, "token")})
	}
	full := wholeBar(rows)
	s := section{title: "Sites that block at least one, by " + kind, rows: rows, full: full,
		of: fmt.Sprintf("a whole bar is %s", roundPercent(full))}
	if more := len(sums) - len(rows); more > 0 {
		s.end = []piece{styled(dim, "and %s more; --json has them", printable.Number(more))}
	}
	x.add(s)
}

func (x *summaryPage) outcomes() {
	x.add(section{title: "Outcomes", rows: counted(x.s.Outcomes, x.s.Rows, shownValues),
		of: "of all sites listed; failures after a status count as answered above"})
}

// statuses lists each class, with those of its statuses that are among the most common of all statuses.
func (x *summaryPage) statuses() {
	var rows []figure
	shown := map[string]bool{}
	for _, c := range x.s.Statuses[:min(len(x.s.Statuses), shownValues)] {
		shown[c.Value] = true
	}
	for _, class := range x.s.StatusClasses {
		rows = append(rows, figure{name: class.Value, n: class.Rows, of: x.s.Answered})
		part := func(name string, n int64) {
			rows = append(rows, figure{name: "  " + name, n: n, of: x.s.Answered, unmarked: true, nameStyle: dim})
		}
		others := int64(0)
		for _, c := range x.s.Statuses {
			status, err := strconv.Atoi(c.Value)
			switch {
			case err != nil || summary.StatusClass(status) != class.Value:
			case shown[c.Value]:
				part(c.Value, c.Rows)
			default:
				others += c.Rows
			}
		}
		if others > 0 {
			part("others", others)
		}
	}
	x.add(section{title: "Statuses", rows: rows, of: "of the sites that answered"})
}

func (x *summaryPage) access() {
	x.add(section{title: "Access", rows: counted(x.s.Access, x.s.Rows, shownValues),
		of: "what crawlers may do by RFC 9309, of all sites listed"})
}

// check has what the check says, and the scores.
func (x *summaryPage) check() {
	s := x.s
	rows := counted(s.Checks, s.Asked, shownValues)
	for i := range rows {
		rows[i].barStyle = markStyles[rows[i].name]
	}
	x.add(section{title: "Check robots.txt", rows: rows, of: "of the sites asked"})
	if s.MeanScore == nil {
		return
	}
	mean := strconv.FormatFloat(*s.MeanScore, 'f', 3, 64)
	rows = nil
	for _, bin := range s.Scores {
		rows = append(rows, figure{name: fmt.Sprintf("%.1f to %.1f", bin.From, bin.To), n: bin.Rows, of: s.Asked})
	}
	full := wholeBar(rows)
	x.add(section{title: "Scores", rows: rows, full: full,
		of: fmt.Sprintf("of the sites asked; the mean is %s, a whole bar is %s", mean, roundPercent(full))})
}

// counted makes one row of each of the first counts, and one row of all others.
func counted(counts []survey.Count, of int64, most int) (rows []figure) {
	rest := figure{of: of}
	for i, c := range counts {
		if i < most {
			rows = append(rows, figure{name: c.Value, n: c.Rows, of: of})
		} else {
			rest.n += c.Rows
		}
	}
	if more := len(counts) - most; more > 0 {
		rest.name = printable.Count(more, "other")
		rows = append(rows, rest)
	}
	return rows
}

// Bounds of the page's columns.
const (
	maxBar    = 50
	minBar    = 8
	wideExtra = 23 // the text behind the bar, on pages at least as wide as below
	wide      = 96
)

// lay writes the sections.
func (x *summaryPage) lay() {
	p, all := x.page, &table{indent: indent, yields: true}
	for _, s := range x.sections {
		for _, f := range s.rows {
			all.add(append(f.cells(), piece{})...)
		}
	}
	widths := p.widths(all)
	room := p.width - indent
	for _, n := range widths {
		room -= n + gap
	}
	if p.width >= wide {
		room -= gap + wideExtra
	}
	for _, s := range x.sections {
		sure := -gap // columns of ranges behind the bars, and the gap before them
		for _, f := range s.rows {
			if n := columns(f.ranges().text); n > 0 {
				sure = max(sure, n)
			}
		}
		bar := min(room-sure-gap, maxBar)
		p.line()
		title := []piece{styled(bold, "%s", s.title)}
		if s.of != "" {
			title = []piece{styled(bold, "%s:", s.title), styled(dim, "%s", s.of)}
		}
		p.flow(indent, words(title...))
		if s.about != "" {
			p.blank(indent)
			p.flow(indent, words(styled(dim, "%s", s.about)))
		}
		for _, f := range s.rows {
			row := f.cells()
			drawn := piece{style: f.barStyle}
			if bar >= minBar && !f.unmarked && f.of > 0 {
				of := float64(f.of) * s.full
				drawn.text = x.signs.draw(bar, float64(f.n-f.light)/of, float64(f.light)/of)
			}
			extra := piece{}
			if p.width >= wide && bar >= 0 {
				extra = text(f.extra)
			}
			row, widths := append(row, drawn), append(widths[:len(row):len(row)], max(bar, 0))
			if sure > 0 {
				row, widths = append(row, f.ranges()), append(widths, sure)
			}
			p.row(all, append(row, extra), widths)
		}
		if len(s.end) > 0 {
			p.blank(indent)
			p.line(s.end...)
		}
	}
}

// cells are a figure's name, number and share.
func (f *figure) cells() []piece {
	return []piece{
		{text: f.name, style: f.nameStyle},
		{text: printable.Number(f.n), right: true},
		{text: percentOf(f.n, f.of), right: true},
	}
}

// ranges say how sure a figure's share is.
func (f *figure) ranges() piece {
	return styled(dim, "%s", strings.TrimSpace(f.sure.Ranges(func(share float64) string {
		return fmt.Sprintf("%.2f", 100*share)
	})))
}

package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// The rows of test. For each URL, each set of groups that some crawler follows makes one decision about the path, and
// each crawler gets one row. There may be millions of URLs, but few crawlers and rules: the text about a crawler is
// made once (newFollower), and the text about a rule when the rule first decides (rule). Memory grows with the
// robots.txt, not with the URLs.

// Bounds of what rows show.
const (
	maxListed     = 32 // group_lines and group_agents in JSON
	maxShownLines = 3  // groups of a crawler whose lines a row shows
	maxURLColumn  = 48 // runes of the column of URLs; wider ones stand out
	maxNameColumn = 40 // likewise of crawlers
	maxWhyColumn  = 48 // likewise of groups
)

// Rows writes what crawlers may do with URLs: a row for each URL and crawler.
type Rows struct {
	out       io.Writer
	tester    *audit.Tester
	site      *audit.Site
	followers []follower // of the tester's crawlers

	rules map[int]*rule // by record
	lines *audit.Lines  // nil before the first rule decides
	row   []byte        // scratch

	asJSON   bool
	verdicts map[bool]string // the first column of text, by whether the URL is allowed
	answer   string          // text of all rows where no rules decide

	// the widths of the columns of crawlers and groups, and of the widest URL so far
	nameWidth, whyWidth, urlWidth int
}

// A row of test --json consists of pieces, most of which are encoded once: url, path, agent, allowed, reason, ruleLine,
// followed.
type (
	agent struct {
		Agent string `json:"agent"`
		Token string `json:"token"`
	}
	// ruleLine is the line of the file that decided; the zero value is none.
	ruleLine struct {
		Line  *int    `json:"line"`
		Rule  *string `json:"rule"`
		Key   *string `json:"key"`
		Value *string `json:"value"`
	}
	followed struct {
		Via         string   `json:"via"`
		Group       *string  `json:"group"`
		Lenient     bool     `json:"lenient"`
		Groups      int      `json:"groups"`
		GroupLines  [][2]int `json:"group_lines"`
		GroupAgents []string `json:"group_agents"`
		Dialect     string   `json:"dialect"`
		Access      string   `json:"access"`
		Origin      *string  `json:"origin"`
		Outcome     *string  `json:"outcome"`
		Status      *int     `json:"status"`
		Truncated   bool     `json:"truncated"`
	}
)

// members returns the fields of a value as JSON, without the braces.
func members(v any) []byte {
	text, _ := encodeJSON(v, "") // texts and numbers: it cannot fail
	return text[1 : len(text)-len("}\n")]
}

// rule is a line of the file that decided something, or none, as text and as JSON.
type rule struct {
	text string
	json []byte
}

// follower is a crawler with the groups that it follows.
type follower struct {
	name          string // text: its column
	why           string // text: the column of its group
	agent, groups []byte // JSON
}

// NewRows prepares rows for a tester, whose crawlers were given by these names. Colours are for text.
func NewRows(out io.Writer, tester *audit.Tester, given []string, asJSON, colored bool) *Rows {
	r := &Rows{out: out, tester: tester, site: tester.Site, asJSON: asJSON, rules: map[int]*rule{},
		verdicts: map[bool]string{
			true:  markStyles["allowed"].in(marks["allowed"]+" allowed", colored) + "     ",
			false: markStyles["blocked"].in(marks["blocked"]+" disallowed", colored) + "  ",
		}}
	for i, c := range tester.Crawlers {
		f := r.newFollower(given[i], c, tester.Followings[i])
		r.nameWidth = widened(r.nameWidth, f.name, maxNameColumn)
		r.whyWidth = widened(r.whyWidth, f.why, maxWhyColumn)
		r.followers = append(r.followers, f)
	}
	if r.site.Report.Access != parser.AccessConditional {
		r.answer = instead(r.site)
	}
	return r
}

// newFollower describes a crawler and the groups that it follows.
func (r *Rows) newFollower(given string, c audit.Crawler, by audit.Following) (f follower) {
	s, file := r.site, &r.site.Robots
	f = follower{name: line(c.Token), why: "no group applies",
		agent: members(agent{printable.Head(given, audit.MaxEvidenceValue), c.Token})}
	row := followed{
		Via: by.Via.String(), Lenient: by.Lenient, Groups: len(by.Groups), GroupLines: [][2]int{}, GroupAgents: []string{},
		Dialect: s.Dialect.String(), Access: s.Report.Access.String(), Truncated: s.Fetch.Truncated,
	}
	defer func() { f.groups = members(row) }()
	if !s.IsFile {
		row.Origin, row.Outcome = new(s.Origin.String()), new(s.Fetch.Outcome.String())
	}
	if s.Fetch.Status > 0 {
		row.Status = &s.Fetch.Status
	}
	if len(by.Groups) == 0 {
		if by.Via == audit.ViaNone && file.Star() >= 0 {
			f.why = "no group names it, and it ignores *"
		}
		return f
	}
	name := printable.Head(by.Name, audit.MaxEvidenceValue)
	row.Group = &name
	f.why = "group "
	if by.Via == audit.ViaFallback {
		f.why = "follows "
	}
	f.why += line(name)
	if by.Lenient {
		f.why += " (lenient)"
	}
	f.why += ", " + spans(file, by.Groups)
	for i, group := range by.Groups {
		if i < maxListed {
			first, last := span(file, group)
			row.GroupLines = append(row.GroupLines, [2]int{first, last})
		}
		for i, end := file.GroupRecords(group); i < end && len(row.GroupAgents) < maxListed; i++ {
			if rec := file.Record(i); rec.Key == parser.KeyUserAgent {
				row.GroupAgents = append(row.GroupAgents, printable.Head(string(rec.Value), audit.MaxToken))
			}
		}
	}
	return f
}

// span returns the first and last line of a group: from its first user-agent line to the last record that belongs to
// it. Records that belong to no group (sitemaps, unknown keys) may stand within it, but do not end it.
func span(file *parser.File, group uint32) (first, last int) {
	start, end := file.GroupRecords(group)
	first = file.Record(start).Line
	for last = first; end > start; end-- {
		rec := file.Record(end - 1)
		switch rec.Key {
		case parser.KeyUserAgent, parser.KeyAllow, parser.KeyDisallow, parser.KeyCrawlDelay, parser.KeyRequestRate,
			parser.KeyVisitTime, parser.KeyContentSignal, parser.KeyContentUsage, parser.KeyAllowAITraining,
			parser.KeyDisallowAITraining:
			return first, rec.Line
		}
	}
	return first, last
}

// spans names the lines of groups: `lines 4-6, 10-12`.
func spans(file *parser.File, groups []uint32) string {
	var list []string
	for _, group := range groups[:min(len(groups), maxShownLines)] {
		first, last := span(file, group)
		text := fmt.Sprint(first)
		if last > first {
			text += fmt.Sprintf("-%d", last)
		}
		list = append(list, text)
	}
	if len(groups) > maxShownLines {
		list = append(list, "…")
	}
	if len(list) == 1 && !strings.Contains(list[0], "-") {
		return "line " + list[0]
	}
	return "lines " + strings.Join(list, ", ")
}

// Add decides one URL, writes its rows, and says how many of them are disallowed.
func (r *Rows) Add(url string) (disallowed int, err error) {
	path, shown := r.tester.Decide(url), r.Widen(url)
	for i := range r.followers {
		f, answer := &r.followers[i], r.tester.Answer(i)
		if !answer.Allow {
			disallowed++
		}
		if r.asJSON {
			r.row = r.appendJSON(r.row[:0], f, url, path, answer)
			_, err = r.out.Write(r.row)
		} else {
			_, err = io.WriteString(r.out, r.text(f, shown, answer))
		}
		if err != nil {
			return disallowed, err
		}
	}
	return disallowed, nil
}

// rule returns the record that decided, with its line as in the file. A record below 0 is none.
func (r *Rows) rule(record int) *rule {
	if known := r.rules[record]; known != nil {
		return known
	}
	if record < 0 {
		r.rules[record] = &rule{json: members(ruleLine{})}
		return r.rules[record]
	}
	rec := r.site.Robots.Record(record)
	if r.lines == nil {
		r.lines = r.site.Lines()
	}
	whole := r.lines.Text(rec.Line) // only its beginning is shown
	text := printable.Head(string(whole[:min(len(whole), audit.MaxEvidenceValue+1)]), audit.MaxEvidenceValue)
	r.rules[record] = &rule{
		text: fmt.Sprintf("line %d: %s", rec.Line, line(strings.ReplaceAll(text, "\t", " "))),
		json: members(ruleLine{&rec.Line, &text, new(rec.Key.String()),
			new(printable.Head(string(rec.Value), audit.MaxEvidenceValue))}),
	}
	return r.rules[record]
}

// text is a row for people, with the URL as it is shown.
func (r *Rows) text(f *follower, url string, answer audit.Answer) string {
	why := fmt.Sprintf("%-*s  ", r.whyWidth, f.why)
	switch answer.Reason {
	case audit.ReasonNoFile, audit.ReasonUnavailable:
		why = r.answer
	case audit.ReasonNoGroup:
		why = f.why
	case audit.ReasonRule:
		why += r.rule(answer.Record).text
	case audit.ReasonAlways:
		why += "/robots.txt is always allowed"
	case audit.ReasonNoRule:
		why += "no rule matches"
	}
	return fmt.Sprintf("%s%-*s  %-*s  %s\n", r.verdicts[answer.Allow], r.nameWidth, f.name, r.urlWidth, url, why)
}

// widened returns the width of a column with one more text, unless the text is too wide.
func widened(width int, text string, most int) int {
	if n := utf8.RuneCountInString(text); n <= most {
		return max(width, n)
	}
	return width
}

// Widen makes the column of URLs wide enough for a URL, and returns the URL as it is shown. It is called early for URLs
// that are known in advance, so that the column has its width from the start.
func (r *Rows) Widen(url string) (shown string) {
	shown = line(url)
	r.urlWidth = widened(r.urlWidth, shown, maxURLColumn)
	return shown
}

// appendJSON appends a row for programs.
func (r *Rows) appendJSON(b []byte, f *follower, url string, path []byte, answer audit.Answer) []byte {
	b = printable.AppendJSON(append(b, `{"url":`...), url)
	b = printable.AppendJSON(append(b, `,"path":`...), path)
	b = append(append(b, ','), f.agent...)
	b = fmt.Appendf(b, `,"allowed":%t,"reason":%q,`, answer.Allow, answer.Reason)
	b = append(append(b, r.rule(answer.Record).json...), ',')
	return append(append(b, f.groups...), "}\n"...)
}

// instead describes the answer that came instead of a robots.txt.
func instead(s *audit.Site) string {
	what, failed := s.Fetch.Outcome.String(), "no answer"
	if s.Fetch.Outcome == exchange.Answered {
		what, failed = fmt.Sprintf("status %d", s.Fetch.Status), "the server failed"
	} else if text := s.Fetch.Cause.String(); text != "" {
		what += ", " + text
	}
	if s.Report.Access == parser.AccessFullAllow {
		return "no file: " + what
	}
	return failed + ": " + what
}

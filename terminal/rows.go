package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// The rows of test. A URL goes through here as its path, one decision for each set of groups that some crawler follows,
// and one row for each crawler. There may be millions of URLs, and few crawlers and rules: whatever a row says of its
// crawler is put into words once (newFollower), whatever it says of a rule when the rule first decides (rule). What is
// left for a row is to copy bytes. Memory grows with the robots.txt, not with the URLs.

// Bounds of what rows show.
const (
	maxListed     = 32 // group_lines and group_agents in JSON
	maxShownLines = 3  // groups of a crawler whose lines a row shows
	maxURLColumn  = 48 // runes: the column of URLs is as wide as the widest that is no wider, so are
	maxNameColumn = 40 // that of crawlers
	maxWhyColumn  = 48 // and that of groups; whatever is wider stands out
)

// Rows writes what crawlers may do with URLs: a row for each URL and crawler.
type Rows struct {
	out       io.Writer
	tester    *audit.Tester
	site      *audit.Site
	followers []follower // of the tester's crawlers

	path, row []byte        // of the current URL; scratch
	rules     map[int]*rule // by record
	lines     *audit.Lines  // nil before the first rule decides

	asJSON   bool
	verdicts map[bool]string // the first column of text, by whether the URL is allowed
	tail     []byte          // JSON that all rows end with
	answer   string          // text of all rows where no rules decide
	urlWidth int             // of the widest URL so far
}

// follower is a crawler with the groups that it follows, put into words.
type follower struct {
	name  []byte // text: its column
	why   []byte // text: the column of its group
	agent []byte // JSON: agent and token
	group []byte // JSON: via and the group
}

// rule is a line of the file that decided something, put into words.
type rule struct {
	text []byte
	json []byte
}

// NewRows prepares rows for a tester, whose crawlers were given by these names. Colours are for text.
func NewRows(out io.Writer, tester *audit.Tester, given []string, asJSON, colored bool) *Rows {
	r := &Rows{out: out, tester: tester, site: tester.Site, asJSON: asJSON, verdicts: verdictColumn(colored),
		rules: map[int]*rule{}}
	for i, c := range tester.Crawlers {
		r.followers = append(r.followers, r.newFollower(given[i], c, tester.Followings[i]))
	}
	nameWidth, whyWidth := 0, 0
	for i := range r.followers {
		nameWidth = widened(nameWidth, r.followers[i].name, maxNameColumn)
		whyWidth = widened(whyWidth, r.followers[i].why, maxWhyColumn)
	}
	for i := range r.followers {
		f := &r.followers[i]
		f.name, f.why = pad(f.name, 0, nameWidth), pad(f.why, 0, whyWidth)
	}
	r.tail = r.jsonTail()
	if r.site.Report.Access != parser.AccessConditional {
		r.answer = instead(r.site)
	}
	return r
}

// newFollower puts a crawler into words, and whose groups it follows.
func (r *Rows) newFollower(given string, c audit.Crawler, by audit.Following) follower {
	file := &r.site.Robots
	f := follower{name: []byte(line(c.Token)), why: []byte("no group applies")}
	f.agent = printable.AppendJSON(append(f.agent, `"agent":`...), printable.Head(given, audit.MaxEvidenceValue))
	f.agent = printable.AppendJSON(append(f.agent, `,"token":`...), c.Token)
	f.group = printable.AppendJSON(append(f.group, `"via":`...), by.Via.String())
	if len(by.Groups) == 0 {
		if by.Via == audit.ViaNone && file.Star() >= 0 {
			f.why = []byte("no group names it, and it ignores *")
		}
		f.group = append(f.group, `,"group":null,"lenient":false,"groups":0,"group_lines":[],"group_agents":[]`...)
		return f
	}
	name := printable.Head(by.Name, audit.MaxEvidenceValue)
	f.why = []byte("group ")
	if by.Via == audit.ViaFallback {
		f.why = []byte("follows ")
	}
	f.why = append(f.why, line(name)...)
	if by.Lenient {
		f.why = append(f.why, " (lenient)"...)
	}
	f.why = appendSpans(append(f.why, ", "...), file, by.Groups)
	f.group = printable.AppendJSON(append(f.group, `,"group":`...), name)
	f.group = strconv.AppendBool(append(f.group, `,"lenient":`...), by.Lenient)
	f.group = appendGroups(f.group, file, by.Groups)
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

// appendSpans appends the lines of groups: `lines 4-6, 10-12`.
func appendSpans(b []byte, file *parser.File, groups []uint32) []byte {
	for i, group := range groups {
		if i == maxShownLines {
			return append(b, ", …"...)
		}
		first, last := span(file, group)
		switch {
		case i > 0:
			b = append(b, ", "...)
		case first == last && len(groups) == 1:
			b = append(b, "line "...)
		default:
			b = append(b, "lines "...)
		}
		b = strconv.AppendInt(b, int64(first), 10)
		if last > first {
			b = strconv.AppendInt(append(b, '-'), int64(last), 10)
		}
	}
	return b
}

// appendGroups appends what JSON says of groups besides the name that they share: how many they are, their lines, and
// whom they name, as written.
func appendGroups(b []byte, file *parser.File, groups []uint32) []byte {
	b = strconv.AppendInt(append(b, `,"groups":`...), int64(len(groups)), 10)
	b = append(b, `,"group_lines":[`...)
	for i, group := range groups[:min(len(groups), maxListed)] {
		if i > 0 {
			b = append(b, ',')
		}
		first, last := span(file, group)
		b = fmt.Appendf(b, "[%d,%d]", first, last)
	}
	b = append(b, `],"group_agents":[`...)
	listed := 0
	for _, group := range groups {
		for i, end := file.GroupRecords(group); i < end && listed < maxListed; i++ {
			if rec := file.Record(i); rec.Key == parser.KeyUserAgent {
				if listed > 0 {
					b = append(b, ',')
				}
				b = printable.AppendJSON(b, printable.Head(string(rec.Value), audit.MaxToken))
				listed++
			}
		}
	}
	return append(b, ']')
}

// jsonTail is what all rows end with: how the file was read and where it is from.
func (r *Rows) jsonTail() []byte {
	s := r.site
	b := printable.AppendJSON([]byte(`"dialect":`), s.Dialect.String())
	b = printable.AppendJSON(append(b, `,"access":`...), s.Report.Access.String())
	if s.IsFile {
		b = append(b, `,"origin":null,"outcome":null`...)
	} else {
		b = printable.AppendJSON(append(b, `,"origin":`...), s.Origin.String())
		b = printable.AppendJSON(append(b, `,"outcome":`...), s.Fetch.Outcome.String())
	}
	b = append(b, `,"status":`...)
	if s.Fetch.Status > 0 {
		b = strconv.AppendInt(b, int64(s.Fetch.Status), 10)
	} else {
		b = append(b, "null"...)
	}
	return strconv.AppendBool(append(b, `,"truncated":`...), s.Fetch.Truncated)
}

// Add decides one URL, writes its rows, and says how many of them are disallowed. Once all rules that decide have done
// so before, it does not allocate.
func (r *Rows) Add(url string) (disallowed int, err error) {
	r.path = r.tester.Decide(url)
	if !r.asJSON {
		r.Widen(url)
	}
	shown := len(r.row)
	for i := range r.followers {
		f, answer := &r.followers[i], r.tester.Answer(i)
		if !answer.Allow {
			disallowed++
		}
		var row []byte
		if r.asJSON {
			r.row = r.appendJSONRow(r.row[:0], f, url, answer)
			row = r.row
		} else {
			// The URL as shown stays at the beginning of the scratch, the rows come behind.
			r.row = r.appendTextRow(r.row[:shown], shown, f, answer)
			row = r.row[shown:]
		}
		if _, err := r.out.Write(row); err != nil {
			return disallowed, err
		}
	}
	return disallowed, nil
}

// rule returns the record that decided, put into words: its line as it stands in the file.
func (r *Rows) rule(record int) *rule {
	if known := r.rules[record]; known != nil {
		return known
	}
	site := r.site
	rec := site.Robots.Record(record)
	number := rec.Line
	if r.lines == nil {
		r.lines = site.Lines()
	}
	whole := r.lines.Text(number) // of which the beginning is shown, once
	text := printable.Head(string(whole[:min(len(whole), audit.MaxEvidenceValue+1)]), audit.MaxEvidenceValue)

	known := &rule{text: fmt.Appendf(nil, "line %d: %s", number, line(strings.ReplaceAll(text, "\t", " ")))}
	known.json = strconv.AppendInt(append(known.json, `"line":`...), int64(number), 10)
	known.json = printable.AppendJSON(append(known.json, `,"rule":`...), text)
	known.json = printable.AppendJSON(append(known.json, `,"key":`...), rec.Key.String())
	known.json = printable.AppendJSON(append(known.json, `,"value":`...), printable.Head(string(rec.Value),
		audit.MaxEvidenceValue))
	r.rules[record] = known
	return known
}

// verdictColumn returns the first column of text, by whether the URL is allowed.
func verdictColumn(colored bool) map[bool]string {
	return map[bool]string{
		true:  markStyles["allowed"].in(marks["allowed"]+" allowed", colored) + "     ",
		false: markStyles["blocked"].in(marks["blocked"]+" disallowed", colored) + "  ",
	}
}

// appendTextRow appends a row for people; b begins with the URL as shown.
func (r *Rows) appendTextRow(b []byte, shown int, f *follower, answer audit.Answer) []byte {
	b = append(append(append(b, r.verdicts[answer.Allow]...), f.name...), "  "...)
	from := len(b)
	b = append(pad(append(b, b[:shown]...), from, r.urlWidth), "  "...)
	switch answer.Reason {
	case audit.ReasonNoFile, audit.ReasonUnavailable:
		b = append(b, r.answer...)
	case audit.ReasonNoGroup:
		b = append(b, bytes.TrimRight(f.why, " ")...)
	case audit.ReasonRule:
		b = append(append(append(b, f.why...), "  "...), r.rule(answer.Record).text...)
	case audit.ReasonAlways:
		b = append(append(append(b, f.why...), "  "...), "/robots.txt is always allowed"...)
	case audit.ReasonNoRule:
		b = append(append(append(b, f.why...), "  "...), "no rule matches"...)
	}
	return append(b, '\n')
}

// widened returns the width of a column that has to hold one more text, if that is not too wide.
func widened(width int, text []byte, most int) int {
	if n := utf8.RuneCount(text); n <= most {
		return max(width, n)
	}
	return width
}

// pad appends spaces until b[from:] is so many runes wide.
func pad(b []byte, from, width int) []byte {
	for n := utf8.RuneCount(b[from:]); n < width; n++ {
		b = append(b, ' ')
	}
	return b
}

// appendURL appends a URL as line shows it; most are shown as they are.
func appendURL(b []byte, url string) []byte {
	if len(url) <= maxURLColumn && printable.Plain(url) {
		return append(b, url...)
	}
	return append(b, line(url)...)
}

// Widen makes the column of URLs wide enough for one, and leaves that as shown in the scratch. URLs that are
// known before their turn are given first, so that the column has its width from the start.
func (r *Rows) Widen(url string) {
	r.row = appendURL(r.row[:0], url)
	r.urlWidth = widened(r.urlWidth, r.row, maxURLColumn)
}

// appendJSONRow appends a row for programs.
func (r *Rows) appendJSONRow(b []byte, f *follower, url string, answer audit.Answer) []byte {
	b = printable.AppendJSON(append(b, `{"url":`...), url)
	b = append(b, `,"path":`...)
	b = printable.AppendJSON(b, r.path)
	b = append(append(b, ','), f.agent...)
	b = strconv.AppendBool(append(b, `,"allowed":`...), answer.Allow)
	b = append(append(append(b, `,"reason":"`...), answer.Reason...), `",`...)
	if answer.Record >= 0 {
		b = append(b, r.rule(answer.Record).json...)
	} else {
		b = append(b, `"line":null,"rule":null,"key":null,"value":null`...)
	}
	b = append(append(b, ','), f.group...)
	b = append(append(b, ','), r.tail...)
	return append(b, "}\n"...)
}

// instead says what came instead of a robots.txt.
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

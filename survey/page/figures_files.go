package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
)

// This file makes the figures about what was seen, what files say, and how sure that is.

// noAnswer is why a figure of answers is missing.
const noAnswer = "no site answered"

// findingClasses are the findings, in the order of a stacked bar, with their colours.
var findingClasses = []struct{ finding, class, about string }{
	{"rules", "own", "a file with rules"},
	{"no_rules", "fallback", "a file without rules"},
	{"html", "k1", "a web page instead"},
	{"none", "open", "no file"},
	{"refused", "k2", "refused (401, 403 …)"},
	{"challenged", "k3", "a bot challenge"},
	{"rate_limited", "k4", "rate limited (429)"},
	{"server_error", "k5", "the server fails"},
	{"unreachable", "k6", "no answer"},
	{"not_asked", "k0", "not asked"},
}

func (b *builder) findings() figure {
	t := b.table("findings")
	total := t.sum(t.Rows, "sites")
	v := variant{Subtitle: b.subtitle("What was seen, in one word a site, of all sites listed", total), Sites: total,
		Caveat: survey.Unread}
	if total == 0 {
		return missing("findings", "Findings", "the list has no site")
	}
	var names, ids, classes []string
	var counts []int64
	by := map[string]int64{}
	for _, row := range t.Rows {
		by[t.text(row, "finding")] = t.number(row, "sites")
	}
	for _, f := range findingClasses {
		if n, ok := by[f.finding]; ok {
			names, ids, classes, counts = append(names, f.about), append(ids, f.finding), append(classes, f.class),
				append(counts, n)
			delete(by, f.finding)
		}
	}
	others := int64(0)
	for _, n := range by {
		others += n
	}
	if others > 0 {
		names, ids, classes, counts = append(names, "other words"), append(ids, "other"), append(classes, "k0"),
			append(counts, others)
	}
	v.Headline = sitesDo(ratio(b.full().Rules, total), "has", "have", "a file with rules"+
		b.full().Of(b.full().Rules, total, -1).Ranges(percent))
	v.Plots = []any{stacked("findings", "share of sites", names, ids, classes, counts)}
	return b.single("findings", "Findings", v, "findings", "outcomes-by-rank")
}

func (b *builder) statuses() figure {
	s := b.full()
	v := variant{Subtitle: b.subtitle("The HTTP status of the last response, after redirects, of sites that answered",
		s.Answered), Sites: s.Answered,
		Caveat: "A redirect as the last status was not followed: too many hops, or an invalid target. 429 asks for fewer requests and says nothing of rules."}
	if s.Answered == 0 {
		return missing("statuses", "Statuses", noAnswer)
	}
	list := s.Statuses[:min(len(s.Statuses), shownOthers)]
	v.Headline = fmt.Sprintf("%s of answers have status %s", b.sure(list[0].Rows, s.Answered, ""), list[0].Value)
	chart, scale := newBars("statuses", "share of sites that answered", ratio(list[0].Rows, s.Answered))
	for _, c := range list {
		class := "own"
		if c.Value == "429" {
			class = "warn"
		}
		chart.add(scale, c.Value, printable.Count(c.Rows, "site"), percent(ratio(c.Rows, s.Answered)),
			lengths{{class, ratio(c.Rows, s.Answered)}})
	}
	v.Plots = []any{chart.folded(shownGroups)}
	return b.single("statuses", "Statuses", v, "status-by-rank")
}

// logarithmic is a histogram of one kind in the table histograms, with the quantiles that are asked for as lines.
func (b *builder) logarithmic(id, kind, unit string, marks ...float64) (*columns, int64) {
	t := b.table("histograms")
	rows := t.where("kind", kind)
	total := t.sum(rows, "sites")
	if total == 0 {
		return nil, 0
	}
	low, high := math.Inf(1), 0.0
	for _, row := range rows {
		low, high = min(low, t.share(row, "from")), max(high, t.share(row, "to"))
	}
	step := math.Log2(t.share(rows[0], "to") / t.share(rows[0], "from"))
	low, high, ticks := powers(low, high, unit)
	n := int(math.Round(math.Log2(high/low) / step))
	bins := make([]bin, max(1, n))
	for i := range bins {
		bins[i] = bin{label: amount(low*math.Exp2(float64(i)*step), unit) + " to " + amount(low*math.Exp2(float64(i+1)*step),
			unit), class: "blocked"}
	}
	for _, row := range rows {
		i := int(math.Round(math.Log2(t.share(row, "from")/low) / step))
		bins[max(0, min(i, len(bins)-1))].sites += t.number(row, "sites")
	}
	c := newColumns(id, "site", bins)
	c.X = ticks
	for i, q := range marks {
		c.Marks = append(c.Marks, newMark(math.Log2(q/low)/(step*float64(len(bins))), []string{"median ", "99% below "}[i]+
			amount(q, unit), i))
	}
	c.Description = fmt.Sprintf("%s sites from %s to %s", printable.Number(total), amount(low, unit), amount(high, unit))
	return c, total
}

// powers are the ticks of a scale of bytes or milliseconds, at most nine powers of two, and the ends of the scale: the
// first and the last.
func powers(low, high float64, unit string) (from, to float64, ticks []tick) {
	first, last := math.Floor(math.Log2(low)+1e-9), math.Ceil(math.Log2(high)-1e-9)
	every := max(1, math.Ceil((last-first)/8))
	n := max(1, math.Ceil((last-first)/every))
	for i := range int(n) + 1 {
		ticks = append(ticks, tick{along(float64(i) / n), amount(math.Exp2(first+every*float64(i)), unit)})
	}
	return math.Exp2(first), math.Exp2(first + every*n), ticks
}

// amount writes bytes or milliseconds shortly.
func amount(v float64, unit string) string {
	switch {
	case unit == "B" && v >= 1<<20:
		return short(v/(1<<20)) + " MiB"
	case unit == "B" && v >= 1<<10:
		return short(v/(1<<10)) + " KiB"
	case unit == "ms" && v >= 1000:
		return short(v/1000) + " s"
	}
	return short(v) + " " + unit
}

func short(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// quantiles estimates the median and the 99th percentile of a kind in the table histograms.
func (b *builder) quantile(kind string, q float64) float64 {
	t := b.table("histograms")
	rows := t.where("kind", kind)
	rank := q * float64(t.sum(rows, "sites"))
	for _, row := range rows {
		n := float64(t.number(row, "sites"))
		if rank <= n && n > 0 {
			from, to := t.share(row, "from"), t.share(row, "to")
			return from * math.Pow(to/from, rank/n)
		}
		rank -= n
	}
	return 0
}

func (b *builder) sizes() figure {
	v := variant{Caveat: "Bytes as kept: files are cut at --max-body, 500 KiB by default. Empty files are in the table only. Median and percentile are estimated within a bin."}
	c, total := b.logarithmic("sizes", "body_bytes", "B", b.quantile("body_bytes", 0.5), b.quantile("body_bytes", 0.99))
	v.Subtitle, v.Sites = b.subtitle("Decoded bytes of answers with status 200, of such sites with a body", total), total
	if c == nil {
		return missing("sizes", "Sizes", "no site answered with status 200 and a body")
	}
	v.Headline = fmt.Sprintf("Half of the files are smaller than %s", amount(b.quantile("body_bytes", 0.5), "B"))
	v.Plots = []any{c}
	return b.single("sizes", "Sizes", v, "sizes", "histograms")
}

func (b *builder) latency() figure {
	s := b.full()
	v := variant{Caveat: "Milliseconds of all exchanges of a site, as seen by the scan's machine, without waits for rates. Median and percentile are right within 2%."}
	var marks []float64
	if s.MedianMillis != nil && s.P99Millis != nil {
		marks = []float64{*s.MedianMillis, *s.P99Millis}
	}
	c, total := b.logarithmic("latency", "total_ms", "ms", marks...)
	// Some answers have no time, such as those of archives.
	of := "of sites that answered"
	if total > 0 && total < s.Answered {
		of += " and whose time is known"
	}
	v.Subtitle, v.Sites = b.subtitle("Time for all exchanges with a site, "+of, cmp.Or(total, s.Answered)), total
	switch {
	case s.Answered == 0:
		return missing("latency", "Latency", noAnswer)
	case c == nil || len(marks) == 0:
		return missing("latency", "Latency", "the dataset has no times of its answers, as captures of an archive have none")
	}
	v.Headline = fmt.Sprintf("Half of the sites answer within %s, 99%% within %s", amount(marks[0], "ms"),
		amount(marks[1], "ms"))
	v.Plots = []any{c}
	return b.single("latency", "Latency", v, "latency-by-cdn")
}

func (b *builder) scores() figure {
	s := b.full()
	t := b.table("steps")
	total := s.Asked
	v := variant{Subtitle: b.subtitle("The check robots.txt 1.0.0, of sites asked", total), Sites: total,
		Caveat: "An answer that is not 2xx fails the check, though it may allow everything."}
	if total == 0 {
		return missing("scores", "Check", "no site was asked")
	}
	passed := int64(0)
	for _, c := range s.Checks {
		if c.Value == "pass" {
			passed = c.Rows
		}
	}
	v.Headline = sitesDo(ratio(passed, total), "passes", "pass", "the check"+s.Of(passed, total, -1).Ranges(percent))
	var bins []bin
	for _, score := range s.Scores {
		bins = append(bins, bin{label: fmt.Sprintf("score %.1f to %.1f", score.From, score.To), class: "blocked",
			sites: score.Rows})
	}
	c := newColumns("scores", "site", bins)
	for i := range 6 {
		c.X = append(c.X, tick{along(float64(i) / 5), fmt.Sprintf("%.1f", float64(i)/5)})
	}
	c.Description = fmt.Sprintf("%s of %s sites pass", printable.Number(passed), printable.Number(total))
	v.Plots = []any{c}
	order := []string{"pass", "warn", "fail", "skipped"}
	chart, _ := newBars("steps", "share of sites asked", 1, key{"pass", "✓ passes"}, key{"warn", "! has warnings"},
		key{"fail", "✗ fails"}, key{"skipped", "– is skipped"})
	for _, step := range []string{"step_fetch", "step_core_syntax", "step_extensions"} {
		rows := t.where("step", step)
		of := t.sum(rows, "sites")
		var parts lengths
		value := ""
		for _, status := range order {
			for _, row := range rows {
				if t.text(row, "status") == status {
					share := ratio(t.number(row, "sites"), of)
					parts = append(parts, length{status, share})
					if status == "pass" {
						value = percent(share)
					}
				}
			}
		}
		if of > 0 {
			chart.add(1, inWords(strings.TrimPrefix(step, "step_")), "share that passes", cmp.Or(value, "0%"), parts)
		}
	}
	if len(chart.Rows) > 0 {
		v.Plots = append(v.Plots, chart)
	}
	return b.single("scores", "Check", v, "scores", "steps", "advice")
}

func (b *builder) syntax() figure {
	t := b.table("syntax")
	of := b.full().Rules
	v := variant{Subtitle: b.subtitle("Faults of files, of sites with rules", of), Sites: of,
		Caveat: "Web pages instead of files, and files without any known record, are findings of their own."}
	if of == 0 {
		return missing("syntax", "Faults", noRules)
	}
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(row []any) bool { return t.number(row, "sites") == 0 })
	if len(rows) == 0 {
		return missing("syntax", "Faults", "no file has a fault")
	}
	v.Headline = fmt.Sprintf("The most common fault is %s: %s of files", faultInWords(t.text(rows[0], "kind")),
		b.sure(t.number(rows[0], "sites"), of, ""))
	v.Plots = []any{counted("syntax", "share of sites with rules", t, rows,
		func(row []any) string { return plain(faultInWords(t.text(row, "kind"))) }, func(row []any) string {
			return plain(t.text(row, "kind")) + " · " + printable.Count(t.number(row, "sites"), "site")
		}, "sites", of)}
	return b.single("syntax", "Faults", v, "syntax")
}

func (b *builder) delays() figure {
	return b.tally("delays", "Crawl-delay", "crawl-delay", "sites", "no file has a Crawl-delay",
		"Sites whose group for the agent has a Crawl-delay, of sites with rules",
		"Google ignores the record; Bing and others read it differently.",
		func(t frame, row []any) string {
			text := fmt.Sprintf("%s give %s a Crawl-delay, half of them %s or less", printable.Count(t.number(row, "sites"), "site"),
				agent(t.text(row, "token")), amount(1000*t.share(row, "median"), "ms"))
			return cmp.Or(b.ifEnough(t.number(row, "sites"), text), "Files have Crawl-delays")
		},
		func(t frame, row []any) string { return agent(t.text(row, "token")) })
}

// agent names a token, and `*` in words.
func agent(token string) string {
	if token == "*" {
		return "* (all others)"
	}
	return plain(token)
}

func (b *builder) agents() figure {
	return b.tally("agents", "Unknown agents", "unknown-agents", "mention", "files name no unknown agent",
		"Agents that files name and the registry does not know, of sites with rules",
		"Names are product tokens in lower case, which several crawlers may share. The first hundred.",
		func(t frame, row []any) string {
			return cmp.Or(b.ifEnough(t.number(row, "mention"), "The unknown agent that most files name is "+
				plain(t.text(row, "token"))), "Files name unknown agents")
		},
		func(t frame, row []any) string { return plain(t.text(row, "token")) })
}

func (b *builder) keys() figure {
	return b.tally("keys", "Unknown keys", "unknown-keys", "sites", "files have no undefined key",
		"Sites with keys that no specification defines, or one did once (legacy), in any text; the share is of the number of sites with rules",
		"At most 32 lines a site and kind, and none of web pages. The first hundred.",
		func(t frame, row []any) string {
			return cmp.Or(b.ifEnough(t.number(row, "sites"), "The undefined or obsolete key in most files is "+
				plain(t.text(row, "key"))), "Files have undefined or obsolete keys")
		},
		func(t frame, row []any) string { return plain(t.text(row, "key")) + " (" + t.text(row, "kind") + ")" })
}

func (b *builder) sensitivity() figure {
	s := b.survey.Sensitivity
	v := variant{By: survey.Full,
		Caveat: "Each row makes one choice otherwise than the default, which is the first: bulkscan summary --sensitivity has those of any crawler."}
	if s == nil || len(s.Rows) == 0 || s.Rows[0].Share == nil {
		return missing("sensitivity", "Sensitivity", "no file names an AI crawler")
	}
	low, high := *s.Rows[0].Share, *s.Rows[0].Share
	for i := range s.Rows {
		if share := s.Rows[i].Share; share != nil {
			low, high = min(low, *share), max(high, *share)
		}
	}
	v.Headline = fmt.Sprintf("%s is blocked by %s of sites, by other choices %s to %s", s.Token,
		b.sure(s.Rows[0].Sites, s.Rows[0].Of, ""), percent(low), percent(high))
	v.Subtitle = b.subtitle("The share that blocks "+s.Token+
		", by denominator, treatment of unseen sites, unit and dialect", s.Rows[0].Of)
	v.Sites = s.Rows[0].Of
	chart, scale := newBars("sensitivity", "share that blocks "+s.Token, high)
	var rows [][]any
	for i := range s.Rows {
		c := &s.Rows[i]
		row := []any{c.ID, c.About, c.Sites, c.Of, nil}
		if c.Share != nil {
			row[4] = *c.Share
			bar := bar{Name: capital(c.About), Under: c.ID, Value: percent(*c.Share),
				Parts: []part{{Class: "spot", X: along(*c.Share / scale)}}}
			chart.Rows = append(chart.Rows, bar)
		}
		rows = append(rows, row)
	}
	v.Plots = []any{chart}
	table := newSheet("sensitivity", "Choices", []string{"choice", "about", "blocking", "of", "share"}, rows, "")
	f := b.single("sensitivity", "Sensitivity", v)
	f.Tables = []sheet{table}
	return f
}

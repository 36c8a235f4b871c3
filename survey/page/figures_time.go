package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/survey"
)

// This file makes the figures over dates.

// mostRules bounds the changes of the registry that a plot marks.
const mostRules = 4

const noHistory = "The dataset has one night. With the scans of several nights this figure shows what changed."

// calendar places dates along a plot.
type calendar struct {
	dates       []string
	first, days float64
}

func newCalendar(dates []string) calendar {
	c := calendar{dates: dates, first: day(dates[0])}
	c.days = max(1, day(dates[len(dates)-1])-c.first)
	return c
}

// day is the number of a date's day.
func day(date string) float64 {
	t, _ := time.Parse(time.DateOnly, date)
	return float64(t.Unix()) / 86400
}

func (c calendar) at(date string) float64 { return (day(date) - c.first) / c.days }

// ticks are at most five dates, evenly apart, the first and the last among them.
func (c calendar) ticks() (list []tick) {
	n := int(min(4, c.days))
	for i := range n + 1 {
		at := math.Round(c.days * float64(i) / float64(n))
		list = append(list, tick{along(at / c.days), time.Unix(int64((c.first+at)*86400), 0).UTC().Format(time.DateOnly)})
	}
	return list
}

func (b *builder) overTime() figure {
	t := b.table("blocked-over-time")
	return b.switched("time", "Shares over time, as observed each night", []string{"blocked-over-time"}, func(id string, d survey.Definition, s *survey.Summary) variant {
		v := variant{Subtitle: b.by(d, s.Blocking.Sites), Caveat: "Dates compare only as far as their lists do, and count the sites that were observed then: files that an archive carried forward are left out. Where a line breaks, a night is missing for eight days or more."}
		if b.survey.Pruned != "" {
			v.Caveat += fmt.Sprintf(" The nights up to %s were pruned, and are not shown here.", b.survey.Pruned)
		}
		rows := t.where("definition", d.Name)
		byToken := map[string][][]any{}
		var dates []string
		for _, row := range rows {
			token, date := t.text(row, "token"), t.text(row, "scan_date")
			byToken[token] = append(byToken[token], row)
			if at, found := slices.BinarySearch(dates, date); !found {
				dates = slices.Insert(dates, at, date)
			}
		}
		if len(dates) < 2 || len(b.survey.Lines) == 0 || len(byToken[b.survey.Lines[0]]) == 0 {
			v.Headline, v.Empty = "One night is no series", noHistory
			return v
		}
		c := newCalendar(dates)
		stride := (len(dates) + showOverTime - 1) / showOverTime
		var values [][]point
		var cells [][]any
		for _, token := range b.survey.Lines {
			var line []point
			last := 0.0
			for i, row := range byToken[token] {
				date := t.text(row, "scan_date")
				if i%stride != 0 && i != len(byToken[token])-1 {
					continue
				}
				if len(line) > 0 && day(date)-last > float64(8*stride) {
					line = append(line, point{gap: true})
				}
				last = day(date)
				line = append(line, point{at: c.at(date), share: t.share(row, "share"), gap: t.value(row, "share") == nil,
					title: fmt.Sprintf("%s, %s: %s", token, date, percent(t.share(row, "share")))})
				cells = append(cells, []any{token, date, t.number(row, "blocking"), t.number(row, "of"), t.value(row, "share")})
			}
			values = append(values, line)
		}
		own := byToken[b.survey.Lines[0]]
		of, then := t.number(own[0], "of"), t.number(own[len(own)-1], "of")
		v.Sites = min(of, then)
		v.Subtitle = fmt.Sprintf("Definition %s: %s Of %s of each date, n = %s%s to %s%s, %s to %s", d.Name, d.Question, overWhat(d),
			grouped(of), b.full().Flag(of), grouped(then), b.full().Flag(then), dates[0], dates[len(dates)-1])
		before, after := t.share(own[0], "share"), t.share(own[len(own)-1], "share")
		change := "from %s to %s of sites"
		if before == after {
			change = "%[2]s of sites, as on the first date"
		}
		v.Headline = fmt.Sprintf("%s: "+change, b.survey.Lines[0], percent(before), percent(after))
		plot := newLines(id, c.ticks(), b.survey.Lines, values)
		for i, judged := range b.survey.Judged {
			if i < mostRules {
				plot.Rules = append(plot.Rules, tick{along(c.at(judged.Date)), "registry " + judged.Registry})
			}
		}
		v.Plots = []any{plot}
		v.Tables = []sheet{newSheet("time-"+d.Name, "Over time, "+d.Name, []string{"token", "scan_date", "blocking", "of", "share"}, cells, "")}
		return v
	})
}

func (b *builder) transitions() figure {
	t := b.table("transitions")
	v := variant{Subtitle: "Definition full. Sites of both nights or of one, " + t.note(b), Caveat: "A failure is no change, and neither is what another observer or registry sees."}
	if len(t.Rows) == 0 {
		return b.empty("transitions", "Transitions", v, "Nothing to compare with", noHistory)
	}
	token := t.text(t.Rows[0], "token")
	rows := t.where("token", token)
	changes := map[string]int64{}
	var before, after []string
	cells := map[[2]string]int64{}
	for _, row := range rows {
		changes[t.text(row, "change")] += t.number(row, "sites")
		from, to := t.text(row, "before"), t.text(row, "after")
		if !slices.Contains(before, from) {
			before = append(before, from)
		}
		if !slices.Contains(after, to) {
			after = append(after, to)
		}
		cells[[2]string{from, to}] += t.number(row, "sites")
	}
	v.Sites = t.sum(rows, "sites")
	v.Headline = fmt.Sprintf("%s: %s began to block it, %s ceased", token, things(changes["began"], "site"), grouped(changes["ceased"]))
	order := func(list []string) {
		rank := []string{"blocked", "open", "unknown"}
		slices.SortFunc(list, func(x, y string) int {
			return cmp.Or(cmp.Compare(uint(slices.Index(rank, x)), uint(slices.Index(rank, y))), cmp.Compare(x, y)) // without an index is last
		})
	}
	order(before)
	order(after)
	g := &grid{ID: "transitions", Corner: "the night before ↓, then →", Across: after}
	for _, from := range before {
		row := gridRow{Name: from}
		for _, to := range after {
			n := cells[[2]string{from, to}]
			class := ""
			switch {
			case n == 0:
				class = "zero"
			case from != to:
				class = "changed"
			}
			row.Cells = append(row.Cells, gridCell{grouped(n), class})
		}
		g.Rows = append(g.Rows, row)
	}
	v.Plots = []any{g}
	return b.single("transitions", "Transitions", v, "transitions")
}

// note is the note of a table, or the date of the scan.
func (f frame) note(b *builder) string {
	if f.Note != "" {
		return f.Note
	}
	return b.survey.Manifest.ScanDate
}

// grid is a small table of counts.
type grid struct {
	ID, Corner string
	Across     []string
	Rows       []gridRow
}

type gridRow struct {
	Name  string
	Cells []gridCell
}

type gridCell struct{ Value, Class string }

func (b *builder) firstBlocked() figure {
	t := b.table("first-blocked")
	v := variant{Sites: b.full().Rules, Caveat: "A site began between the observation before that night and the night. Those that blocked when first seen may have begun long before; they are not in the lines."}
	rows := t.where("censoring", "interval")
	var dates []string
	total := map[string]int64{}
	for _, row := range rows {
		dates = append(dates, t.text(row, "first_blocked"))
		total[t.text(row, "token")] += t.number(row, "sites")
	}
	slices.Sort(dates)
	v.Subtitle = "Definition full. Sites first seen to block a token, by then, that had been seen not to, " + t.note(b)
	if len(t.Rows) == 0 {
		return b.empty("first", "First blocked", v, "When sites began is not known yet", noHistory)
	}
	if len(dates) == 0 {
		return b.empty("first", "First blocked", v, "No site began to block while it was observed", "All sites that block did so when they were first seen; the table counts them.", "first-blocked")
	}
	c := newCalendar(dates)
	var values [][]point
	var names []string
	top := int64(1)
	for _, token := range b.survey.Lines {
		top = max(top, total[token])
	}
	for _, token := range b.survey.Lines {
		line := []point{{at: 0, title: token}}
		n := int64(0)
		for _, row := range rows {
			if t.text(row, "token") != token {
				continue
			}
			date := t.text(row, "first_blocked")
			line = append(line, point{at: c.at(date), share: float64(n) / float64(top)})
			n += t.number(row, "sites")
			line = append(line, point{at: c.at(date), share: float64(n) / float64(top), title: fmt.Sprintf("%s, %s: %s", token, date, things(n, "site"))})
		}
		line = append(line, point{at: 1, share: float64(n) / float64(top), title: fmt.Sprintf("%s: %s", token, things(n, "site"))})
		values, names = append(values, line), append(names, token)
	}
	v.Headline = fmt.Sprintf("%s began to block %s while observed", things(total[names[0]], "site"), names[0])
	plot := newLines("first", c.ticks(), names, values)
	plot.inCounts(top, names, total)
	v.Plots = []any{plot}
	return b.single("first", "First blocked", v, "first-blocked", "survival")
}

// inCounts labels lines of shares of a number as counts.
func (l *lines) inCounts(whole int64, names []string, ends map[string]int64) {
	l.Y = countLevels(linesHeight, niceCounts(whole), whole, whole)
	for i, name := range names {
		l.Series[i].Value = grouped(ends[name])
		l.Series[i].Dots = nil
	}
	l.Description = topThree(names, func(i int) string { return l.Series[i].Value })
}

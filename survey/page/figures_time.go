package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// This file makes the figures over dates.

// mostEvents bounds the events that a plot marks.
const mostEvents = 4

const noHistory = "the dataset has one night"

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
	f := b.switched("time", "Over time", []string{"blocked-over-time"}, func(id string, d survey.Definition,
		s *summary.Summary) variant {
		v := variant{Subtitle: b.by(d, s.Blocking.Sites),
			Caveat: "Each line is the share that blocks a crawler of the sites observed on a date: files that an archive carried forward are left out, and where the line breaks, a night is missing for eight days or more. It does not follow the same sites: dates compare only as far as their lists do."}
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
			if v.Empty = noHistory; b.survey.Pruned != "" {
				v.Empty += ": those up to " + b.survey.Pruned + " were pruned"
			}
			return v
		}
		c := newCalendar(dates)
		stride := (len(dates) + showOverTime - 1) / showOverTime
		var values [][]point
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
			}
			values = append(values, line)
		}
		own := byToken[b.survey.Lines[0]]
		of, then := t.number(own[0], "of"), t.number(own[len(own)-1], "of")
		v.Sites = min(of, then)
		v.Subtitle = fmt.Sprintf("%s, of %s of each date, n = %s%s to %s%s, %s to %s", capital(d.Words), overWhat(d),
			printable.Number(of), b.full().Flag(of), printable.Number(then), b.full().Flag(then), dates[0], dates[len(dates)-1])
		before, after := t.share(own[0], "share"), t.share(own[len(own)-1], "share")
		change := "from %s to %s of sites"
		switch {
		case fewer(of, then):
			change = fmt.Sprintf("%%s of %s sites on the first date, %%s of %s on the last", printable.Number(of), printable.Number(then))
		case before == after:
			change = "%[2]s of sites, as on the first date"
		}
		v.Headline = fmt.Sprintf("%s: "+change, b.survey.Lines[0], percent(before), percent(after))
		plot := newLines(id, c.ticks(), b.survey.Lines, values)
		plot.Events = b.events(c)
		v.Plots = []any{plot}
		return v
	})
	f.Tables = []sheet{b.byRow(t, "time", "Over time", "scan_date")}
	return f
}

// partial reports whether some date has less than half of the sites of another, as in an archive that carries files
// forward. Shares by date then follow what was observed rather than what sites do.
func (b *builder) partial() bool {
	t := b.table("blocked-over-time")
	least, most := int64(math.MaxInt64), int64(0)
	for _, row := range t.Rows {
		least, most = min(least, t.number(row, "of")), max(most, t.number(row, "of"))
	}
	return fewer(least, most)
}

// fewer reports whether one date has less than half of the sites of the other.
func fewer(sites, others int64) bool { return 2*min(sites, others) < max(sites, others) }

// events are the changes of the registry, and the first dates on which files named a token that they had not named
// before.
func (b *builder) events(c calendar) (marks []mark) {
	texts := map[string][]string{}
	t := b.table("blocked-over-time")
	rows := t.where("definition", survey.Definitions()[0].Name)
	for _, token := range b.survey.Lines {
		own := t.among(rows, "token", token)
		if i := slices.IndexFunc(own, func(row []any) bool { return t.number(row, "blocking") > 0 }); i > 0 {
			date := t.text(own[i], "scan_date")
			texts[date] = append(texts[date], token)
		}
	}
	for date, tokens := range texts {
		texts[date] = []string{strings.Join(tokens, ", ") + " first named"}
	}
	for _, judged := range b.survey.Judged {
		texts[judged.Date] = append(texts[judged.Date], "registry "+judged.Registry)
	}
	dates := slices.DeleteFunc(slices.Sorted(maps.Keys(texts)), func(date string) bool {
		return c.at(date) < 0 || c.at(date) > 1
	})
	dates = dates[:min(len(dates), mostEvents)]
	// Labels behind their line come down, then those before theirs go up, so that no line crosses the label of another;
	// but for the first
	// line with a label before it, so that there is one only where a label behind it has no room.
	behind := len(dates)
	if behind > 0 && c.at(dates[behind-1]) > 0.75 {
		behind = len(slices.DeleteFunc(slices.Clone(dates), func(date string) bool {
			return newMark(c.at(date), "", 0).Before
		}))
	}
	for i, date := range dates {
		row := i
		if i < behind {
			row = behind - 1 - i
		}
		m := newMark(c.at(date), strings.Join(texts[date], "; "), row)
		m.Before = i >= behind
		marks = append(marks, m)
	}
	return marks
}

func (b *builder) transitions() figure {
	t := b.table("transitions")
	v := variant{By: survey.Full, Subtitle: "Everything forbidden, sites of both nights or of one, " + t.note(b),
		Caveat: "A failure is no change, and neither is what another observer or registry sees."}
	if len(t.Rows) == 0 {
		return missing("transitions", "Transitions", noHistory)
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
	v.Headline = fmt.Sprintf("%s: %s began to block it, %s ceased", token, printable.Count(changes["began"], "site"),
		printable.Number(changes["ceased"]))
	order := func(list []string) {
		rank := []string{"blocked", "open", "unknown"}
		slices.SortFunc(list, func(x, y string) int {
			// without an index is last
			return cmp.Or(cmp.Compare(uint(slices.Index(rank, x)), uint(slices.Index(rank, y))), cmp.Compare(x, y))
		})
	}
	order(before)
	order(after)
	g := &matrix{ID: "transitions", Corner: "the night before ↓, then →"}
	for _, to := range after {
		g.Across = append(g.Across, inWords(to))
	}
	for _, from := range before {
		row := matrixRow{Label: inWords(from)}
		for _, to := range after {
			n := cells[[2]string{from, to}]
			class := ""
			switch {
			case n == 0:
				class = "zero"
			case from != to:
				class = "changed"
			}
			row.Cells = append(row.Cells, cell{printable.Number(n), class})
		}
		g.Down = append(g.Down, row)
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

func (b *builder) firstBlocked() figure {
	t := b.table("first-blocked")
	v := variant{By: survey.Full,
		Caveat: "The lines count the sites that were first seen without such a rule, and later with one, at the date on which it was seen: a site began between that date and the last one before on which it showed rules, or that it has none. It does not count sites that blocked when first seen, nor does it say why sites began."}
	rows := t.where("censoring", "interval")
	var dates []string
	total := map[string]int64{}
	for _, row := range rows {
		dates = append(dates, t.text(row, "first_blocked"))
		total[t.text(row, "token")] += t.number(row, "sites")
	}
	slices.Sort(dates)
	switch {
	case len(t.Rows) == 0:
		return missing("first", "First blocked", noHistory)
	case len(dates) == 0:
		return missing("first", "First blocked", "no site began to block while it was observed")
	}
	followed := b.table("transitions")
	v.Sites = cmp.Or(followed.sum(followed.where("token", b.survey.Lines[0]), "sites"), b.full().Rules)
	v.Subtitle = fmt.Sprintf(
		"Everything forbidden, sites first seen to block a crawler that had been seen not to, n = %s%s, to %s",
		printable.Number(v.Sites), b.full().Flag(v.Sites), b.survey.Manifest.ScanDate)
	c := newCalendar(dates)
	var values [][]point
	var names []string
	top := int64(1)
	for _, token := range b.survey.Lines {
		top = max(top, total[token])
	}
	step := niceCounts(top)
	top = (top + step - 1) / step * step // the last tick is not below the last mark
	for _, token := range b.survey.Lines {
		line := []point{{at: 0, title: token}}
		n := int64(0)
		for _, row := range t.among(rows, "token", token) {
			date := t.text(row, "first_blocked")
			line = append(line, point{at: c.at(date), share: float64(n) / float64(top)})
			n += t.number(row, "sites")
			line = append(line, point{at: c.at(date), share: float64(n) / float64(top), title: fmt.Sprintf("%s, %s: %s", token,
				date, printable.Count(n, "site"))})
		}
		line = append(line, point{at: 1, share: float64(n) / float64(top), title: fmt.Sprintf("%s: %s", token,
			printable.Count(n, "site"))})
		values, names = append(values, line), append(names, token)
	}
	v.Headline = fmt.Sprintf("%s began to block %s while observed", printable.Count(total[names[0]], "site"), names[0])
	plot := newLines("first", c.ticks(), names, values)
	plot.inCounts(step, top, names, total)
	plot.Events = b.events(c)
	v.Plots = []any{plot}
	return b.single("first", "First blocked", v, "first-blocked", "survival")
}

// inCounts labels lines of shares of a number as counts.
func (l *lines) inCounts(step, whole int64, names []string, ends map[string]int64) {
	l.Y = countLevels(linesHeight, step, whole)
	for i, name := range names {
		l.Series[i].Value = printable.Number(ends[name])
		l.Series[i].Dots = nil
	}
	l.Description = topThree(names, func(i int) string { return l.Series[i].Value })
}

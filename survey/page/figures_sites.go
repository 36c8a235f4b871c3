package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
)

// This file makes the figures that count sites otherwise than by token.

// noRules is why most figures are missing where no file has rules.
const noRules = "no site has rules"

func (b *builder) numberBlocked() figure {
	t := b.table("ai-tokens-blocked")
	total := t.sum(t.Rows, "sites")
	if total == 0 {
		return missing("count", "Crawlers per site", noRules)
	}
	v := variant{By: survey.Full, Subtitle: b.subtitle("Everything forbidden, by name or by *, of sites with rules",
		total), Sites: total,
		Caveat: "A site that blocks * entirely blocks all crawlers that heed it: the bar at the far end. The bar of sites that block none stands apart, and is cut off where it is higher than all others; // marks what is left out."}
	var none, more int64
	last := t.number(t.Rows[len(t.Rows)-1], "tokens_blocked")
	counts := make([]int64, last+1)
	for _, row := range t.Rows {
		n, sites := t.number(row, "tokens_blocked"), t.number(row, "sites")
		counts[n] += sites
		if n == 0 {
			none += sites
		} else {
			more += sites
		}
	}
	v.Headline = sitesDo(ratio(none, total), "blocks", "block",
		fmt.Sprintf("no AI crawler at all%s; the others block up to %d",
			b.full().Of(none, total, b.full().Blocking.Unobserved).Ranges(percent), last))
	if none == 0 {
		v.Headline = "Every site blocks an AI crawler" +
			b.full().Of(more, total, b.full().Blocking.Unobserved).Ranges(percent)
	}
	bins := []bin{{label: "no crawler", class: "open", sites: none, cut: true, tick: "none"}}
	for n := int64(1); n <= last; n++ {
		bins = append(bins, bin{label: printable.Count(n, "crawler"), class: "blocked", sites: counts[n], gap: n == 1,
			tick: printable.Number(n)})
	}
	c := newColumns("count", "site", bins)
	if none > 0 {
		c.Marks = []mark{newMark(0, printable.Number(none)+" block none", 0)}
		c.Marks[0].Plain = true
	}
	c.Description = fmt.Sprintf("%s block none, %s at least one, %s all of the last bar", printable.Number(none), printable.Number(more),
		printable.Number(counts[last]))
	v.Plots = []any{c}
	return b.single("count", "Crawlers per site", v, "ai-tokens-blocked")
}

func (b *builder) together() figure {
	t := b.table("blocked-together")
	var names []string
	operator := map[string]string{}
	named := map[string]bool{}
	for i := range b.full().Blocking.MostBlocked {
		token := &b.full().Blocking.MostBlocked[i]
		operator[token.Token], named[token.Token] = token.Operator, token.Named > 0
	}
	shares := map[[2]string]float64{}
	for _, row := range t.Rows {
		token := t.text(row, "token")
		if token == t.text(row, "other") {
			named[token] = named[token] && b.full().Enough(t.number(row, "sites"))
		}
		shares[[2]string{token, t.text(row, "other")}] = t.share(row, "share")
		if !slices.Contains(names, token) {
			names = append(names, token)
		}
	}
	// the others are blocked by * alone, by the same sites
	names = slices.DeleteFunc(names, func(name string) bool { return !named[name] })
	if len(names) < 2 {
		return missing("together", "Blocked together", "fewer than two crawlers that files name are blocked by "+
			printable.Count(b.full().LeastGroup, "site"))
	}
	names = byOperator(names, operator)
	m := &matrix{ID: "together", Corner: "of the sites that block ↓, so many percent block →", Upright: true,
		Across: names}
	for i, label := range []string{"none", "to 20%", "to 40%", "to 60%", "to 80%", "to all"} {
		m.Scale = append(m.Scale, key{fmt.Sprintf("s%d", i), label})
	}
	type pair struct {
		a, b  string
		share float64
	}
	var pairs []pair
	for i, token := range names {
		row := matrixRow{Label: token}
		for j, other := range names {
			share := shares[[2]string{token, other}]
			row.Cells = append(row.Cells, cell{fmt.Sprintf("%.0f", 100*share), fmt.Sprintf("s%d", int(math.Ceil(share*5)))})
			if i < j {
				pairs = append(pairs, pair{token, other, min(share, shares[[2]string{other, token}])})
			}
		}
		m.Down = append(m.Down, row)
	}
	slices.SortStableFunc(pairs, func(x, y pair) int { return cmp.Compare(y.share, x.share) })
	chart, scale := newBars("together-pairs", "share of the sites that block one of the two, at least", 1)
	for _, p := range pairs[:min(20, len(pairs))] {
		chart.add(scale, p.a+" and "+p.b, "", percent(p.share), lengths{{"own", p.share}})
	}
	m.Strongest = chart
	weakest := pairs[len(pairs)-1]
	v := variant{By: survey.Full, Subtitle: b.subtitle("Everything forbidden, by name or by *, of sites with rules",
		b.full().Rules), Sites: b.full().Rules,
		Caveat: "Sites that block all crawlers are in every pair: dark rows say how few others there are. --csv has the numbers of sites.",
		Headline: fmt.Sprintf("%s and %s are blocked together most, %s and %s least", pairs[0].a, pairs[0].b, weakest.a,
			weakest.b)}
	m.Description = fmt.Sprintf(
		"at least %s of the sites that block one of the first pair block the other, %s of the last", percent(pairs[0].share),
		percent(weakest.share))
	v.Plots = []any{m}
	f := b.single("together", "Blocked together", v)
	f.Tables, f.Queries = []sheet{sheetOf(t, "blocked-together")}, sqlOf("blocked-together")
	f.Tables[0].Drawn = true
	return f
}

// stacked is one bar whose parts add up to all, and a row for each part. abouts, or nil, explain the names.
func stacked(id, label string, names, abouts, classes []string, counts []int64) *bars {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	chart, _ := newBars(id, label, 1)
	chart.Stack = true
	all := bar{Name: "all", Value: printable.Number(total)}
	at := 0.0
	for i, n := range counts {
		share := ratio(n, total)
		p := part{classes[i], along(at), along(share)}
		at += share
		all.Parts = append(all.Parts, p)
		under := printable.Count(n, "site")
		if abouts != nil {
			under = abouts[i] + " · " + under
		}
		chart.Rows = append(chart.Rows, bar{Name: names[i], Under: under, Value: percent(share),
			Parts: []part{{classes[i], "0%", p.W}}})
	}
	chart.Rows = append([]bar{all}, chart.Rows...)
	return chart
}

func (b *builder) managed() figure {
	t := b.table("managed-blocks")
	total := t.sum(t.Rows, "sites")
	v := variant{By: survey.Full, Subtitle: b.subtitle("Everything forbidden to GPTBot, of sites with rules", total),
		Sites:  total,
		Caveat: "A managed block is recognised by its comment lines, and stays when a site moves to another network."}
	var with, without, withBlock, withoutBlock int64
	for _, row := range t.Rows {
		if t.flag(row, "managed_block") {
			with, withBlock = with+t.number(row, "sites"), withBlock+t.number(row, "blocking")
		} else {
			without, withoutBlock = without+t.number(row, "sites"), withoutBlock+t.number(row, "blocking")
		}
	}
	if total == 0 {
		return missing("managed", "Managed files", noRules)
	}
	v.Headline = "Managed blocks: " + printable.Count(with, "file") + b.ifEnough(with, "; "+b.sure(withBlock, with, "")+
		" of them block GPTBot") +
		b.ifEnough(without, "; of the others "+b.sure(withoutBlock, without, "")+" block GPTBot")
	chart, scale := newBars("managed", "share that blocks GPTBot", max(ratio(withBlock, with),
		ratio(withoutBlock, without)))
	chart.add(scale, "managed", b.sites(with), percent(ratio(withBlock, with)), lengths{{"own", ratio(withBlock, with)}})
	chart.add(scale, "not managed", b.sites(without), percent(ratio(withoutBlock, without)),
		lengths{{"own", ratio(withoutBlock, without)}})
	v.Plots = []any{chart}
	return b.single("managed", "Managed files", v, "managed-blocks")
}

func (b *builder) networks() figure {
	t := b.table("blocked-by-cdn")
	v := variant{By: survey.Full,
		Subtitle: b.subtitle("Everything forbidden to GPTBot, of sites with rules behind each delivery network",
			t.sum(t.Rows, "sites")), Sites: t.sum(t.Rows, "sites"),
		Caveat: "Networks are recognised by response header fields; a hidden one counts as none."}
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(row []any) bool { return t.number(row, "sites") == 0 })
	if len(rows) == 0 {
		return missing("networks", "Delivery networks", noRules)
	}
	v.Headline = b.extremes(t, rows, "cdn", "full", "sites", "%s of sites block GPTBot behind %s", ", %s behind %s")
	v.Plots = []any{b.shares("networks", "share of sites with rules that block GPTBot", t, rows, "cdn", "sites",
		"share_full").folded(shownGroups)}
	return b.single("networks", "Delivery networks", v, "blocked-by-cdn")
}

// named names a group. The delivery network "none" is spelled out.
func named(kind, name string) string {
	if kind == "cdn" && name == "none" {
		return "no known network"
	}
	return plain(name)
}

// shares are bars of a column of shares.
func (b *builder) shares(id, label string, t frame, rows [][]any, name, sites, share string) *bars {
	chart, scale := newBars(id, label, t.top(rows, share))
	for _, row := range rows {
		chart.add(scale, named(name, t.text(row, name)), b.sites(t.number(row, sites)), percent(t.share(row, share)),
			lengths{{"own", t.share(row, share)}})
	}
	return chart
}

// counted are bars of a column of counts, as shares of a whole.
func counted(id, label string, t frame, rows [][]any, name func([]any) string, under func([]any) string, column string,
	of int64) *bars {
	rows = rows[:min(len(rows), shownOthers)]
	top := 0.0
	for _, row := range rows {
		top = max(top, ratio(t.number(row, column), of))
	}
	chart, scale := newBars(id, label, top)
	for _, row := range rows {
		share := ratio(t.number(row, column), of)
		chart.add(scale, name(row), under(row), percent(share), lengths{{"own", share}})
	}
	return chart.folded(shownGroups)
}

// tally is a figure of a column of sites with rules that have a value. The headline is of the row with most sites.
func (b *builder) tally(id, short, queryName, column, since, subtitle, caveat string,
	headline, name func(frame, []any) string) figure {
	t, of := b.table(queryName), b.full().Rules
	if len(t.Rows) == 0 {
		return missing(id, short, since)
	}
	v := variant{Subtitle: b.subtitle(subtitle, of), Sites: of, Caveat: caveat}
	if t.Note != "" {
		v.Caveat += " Note: " + t.Note + "."
	}
	v.Headline = headline(t, slices.MaxFunc(t.Rows, func(x, y []any) int {
		return cmp.Compare(t.number(x, column), t.number(y, column))
	}))
	v.Plots = []any{counted(id, "share of sites with rules", t, t.Rows, func(row []any) string { return name(t, row) },
		func(row []any) string { return printable.Count(t.number(row, column), "site") }, column, of)}
	return b.single(id, short, v, queryName)
}

func (b *builder) signals() figure {
	return b.tally("signals", "Content-Signal", "content-signals", "sites", "no file has a Content-Signal",
		"Content-Signal records, by the agents that they speak to, of sites with rules",
		"A site may be in several scopes: file is outside of groups, named is in a group of a named agent.",
		func(t frame, row []any) string {
			n := t.number(row, "sites")
			return fmt.Sprintf("At least %s a Content-Signal%s", thingsDo(n, "site", "give"),
				b.ifEnough(n, "; the most common is "+plain(t.text(row, "signal"))))
		},
		func(t frame, row []any) string {
			return plain(t.text(row, "signal")) + " (" + t.text(row, "scope") + ")"
		})
}

func (b *builder) usage() figure {
	return b.tally("usage", "Content-Usage", "content-usage", "sites", "no file has a Content-Usage record",
		"What Content-Usage records (IETF AIPREF) say of /, of sites with rules",
		"A site may be in both scopes.",
		func(t frame, row []any) string {
			return fmt.Sprintf("At least %s a Content-Usage record", thingsDo(t.number(row, "sites"), "site", "give"))
		},
		func(t frame, row []any) string {
			return plain(t.text(row, "content_usage")) + " (" + t.text(row, "scope") + ")"
		})
}

func (b *builder) licenses() figure {
	return b.tally("licenses", "Licences", "licenses", "sites", "no file names a licence",
		"The first License record that is an absolute URL (RSL), by host, of sites with rules", "A file may name several.",
		func(t frame, _ []any) string { return thingsDo(t.sum(t.Rows, "sites"), "file", "name") + " a licence" },
		func(t frame, row []any) string { return plain(t.text(row, "license_host")) })
}

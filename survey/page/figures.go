package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/survey"
)

// This file makes the figures about who is blocked: the first screen, and the figures that the definition switches.

const (
	topTokens    = 10 // on the first screen
	shownTokens  = 30
	shownOthers  = 20  // operators, agents, keys
	showOverTime = 400 // dates; of more, some are left out
)

func (b *builder) groups() []group {
	return []group{
		{"Who is blocked", []figure{b.tokens(),
			b.sums("operators", "Operators", "operator", func(s *survey.Blocking) []survey.Sum { return s.ByOperator }),
			b.sums("purposes", "Purposes", "purpose", func(s *survey.Blocking) []survey.Sum { return s.ByPurpose }),
			b.ranks(), b.suffixes(), b.labels()}},
		{"Over time", []figure{b.overTime(), b.transitions(), b.firstBlocked(), b.changes()}},
		{"How sites decide", []figure{b.numberBlocked(), b.together(), b.search(), b.managed(), b.networks()}},
		{"Other signals", []figure{b.signals(), b.usage(), b.licenses()}},
		{"What was seen", []figure{b.findings(), b.statuses(), b.sizes(), b.latency()}},
		{"What files say", []figure{b.scores(), b.syntax(), b.delays(), b.agents(), b.keys()}},
		{"How sure", []figure{b.sensitivity()}},
	}
}

// full is the summary by full.
func (b *builder) full() *survey.Summary {
	for i, d := range survey.Definitions() {
		if d.Name == survey.Full {
			return b.survey.Summaries[i]
		}
	}
	return b.survey.Summaries[0]
}

// numbers are the figures of the head. They say their definition, since the reader may choose another for the rest of the page.
func (b *builder) numbers() []number {
	s := b.full()
	return []number{
		{grouped(s.Asked), "sites asked"},
		{grouped(s.Rules), "have rules"},
		{grouped(s.Blocking.OneByName), "block at least one AI token by name (full)"},
		{grouped(s.Blocking.OneByStar), "block AI tokens by * alone (full)"},
	}
}

// answer is the first screen: one sentence, and the tokens blocked most.
func (b *builder) answer(s *survey.Summary, on bool) answer {
	d, _ := survey.DefinitionNamed(s.Blocking.Definition)
	a := answer{Definition: d.Name, On: on, Title: "The ten AI tokens blocked most", Subtitle: b.by(d, s.Blocking.Sites)}
	if s.Blocking.Sites == 0 {
		a.Sentence = "No site answered with rules, so there is nothing to say of who is blocked."
		return a
	}
	share := ratio(s.Blocking.AtLeastOne, s.Blocking.Sites)
	of := fmt.Sprintf("%s of %s %s", grouped(s.Blocking.AtLeastOne), grouped(s.Blocking.Sites), overWhat(d))
	a.Sentence = sitesBlock(d, share, fmt.Sprintf("at least one AI crawler: %s%s.", of, s.Blocking.OneSure.Ranges(percent)))
	if !s.Enough(s.Blocking.Sites) {
		a.Title, a.Sentence = "Ten AI tokens", fmt.Sprintf("Too few sites for a headline: %s %s at least one AI crawler.", of, d.Verbs)
	}
	if list := s.Blocking.MostBlocked; len(list) > 0 {
		if len(list) == 1 || list[0].Sites > list[1].Sites { // where a server fails, or by `*`, all tokens have one number
			a.Sentence += b.ifEnough(s.Blocking.Sites, fmt.Sprintf(" %s leads with %s%s.", list[0].Token, percent(list[0].Share), list[0].Ranges(percent)))
		}
		a.Top = b.tokenBars("top-"+d.Name, d, s, topTokens)
	}
	return a
}

func (b *builder) tokenBars(id string, d survey.Definition, s *survey.Summary, n int) *bars {
	list := s.Blocking.MostBlocked[:min(n, len(s.Blocking.MostBlocked))]
	chart, scale := newBars(id, "share of "+overWhat(d), most(list, func(t *survey.TokenCount) float64 { return t.Share }), reasonKeys(d)...)
	for i := range list {
		t := &list[i]
		chart.add(scale, t.Token, t.Operator+" · "+t.Purpose+t.Ranges(percent), percent(t.Share), reasons(t, d, s.Blocking.Sites))
	}
	return chart
}

func (b *builder) tokens() figure {
	return b.switched("tokens", "Tokens", []string{"blocked-by-definition", "explicit-or-star"}, func(id string, d survey.Definition, s *survey.Summary) variant {
		v := variant{Subtitle: b.by(d, s.Blocking.Sites), Sites: s.Blocking.Sites,
			Caveat: "The bar says by whose rules a token is blocked. Tokens that sites rarely name are blocked by *, together with all others."}
		list := s.Blocking.MostBlocked
		if len(list) == 0 {
			v.Headline, v.Empty = "No AI token is blocked", sitesBlock(d, 0, "an AI token by this definition.")
			return v
		}
		first := list[0]
		v.Headline = sitesBlock(d, first.Share, first.Token+first.Ranges(percent))
		if !d.ByName && d.Undivided == "" && !d.Answered() {
			if 2*first.ViaOwn > first.Sites {
				v.Headline += "; most name it"
			} else {
				v.Headline += "; most do so by a rule for all crawlers"
			}
		}
		v.Plots = []any{b.tokenBars(id, d, s, shownTokens)}
		// Tokens that no file names, and whose like none does, are blocked by * as often as each other: the page shows the first.
		var rows [][]any
		left := 0
		for i := range list {
			t := &list[i]
			if i >= shownTokens && t.Named == 0 && t.ViaFallback == 0 {
				left++
				continue
			}
			rows = append(rows, []any{t.Token, t.Operator, t.Purpose, t.Sites, s.Blocking.Sites, t.Share, t.ViaOwn, t.ViaFallback, t.ViaStar, t.ViaHTTP})
		}
		if d.Undivided != "" {
			for _, row := range rows {
				row[6], row[7], row[8], row[9] = nil, nil, nil, nil
			}
		}
		v.Tables = []sheet{newSheet("tokens-"+d.Name, "AI tokens by "+d.Name, []string{"token", "operator", "purpose", "blocking", "of", "share", "own", "fallback", "star", "failing"}, rows, unnamed(left))}
		return v
	})
}

func unnamed(tokens int) string {
	if tokens == 0 {
		return ""
	}
	return fmt.Sprintf("Not shown: %s that no file names; --csv writes all.", things(int64(tokens), "token"))
}

// sums is a figure of operators or purposes.
func (b *builder) sums(id, short, property string, of func(*survey.Blocking) []survey.Sum) figure {
	return b.switched(id, short, []string{id}, func(id string, d survey.Definition, s *survey.Summary) variant {
		v := variant{Subtitle: b.by(d, s.Blocking.Sites), Sites: s.Blocking.Sites,
			Caveat: "A site counts if it does so to at least one AI token of the " + property + ": the more tokens, the more sites. The query has the verdicts of all categories by full; bulkscan summary --definition counts the others."}
		list := of(&s.Blocking)
		if len(list) == 0 {
			v.Headline, v.Empty = "No "+property+" is blocked", "No site blocks an AI token by this definition."
			return v
		}
		whose := map[string]string{"operator": "of ", "purpose": "for "}[property]
		v.Headline = sitesBlock(d, list[0].Share, "at least one token "+whose+list[0].Value+list[0].Ranges(percent))
		shown := list[:min(len(list), shownOthers)]
		chart, scale := newBars(id, "share of "+overWhat(d), most(shown, func(s *survey.Sum) float64 { return s.Share }))
		for _, sum := range shown {
			chart.add(scale, sum.Value, things(int64(sum.Tokens), "token")+sum.Ranges(percent), percent(sum.Share), lengths{{"own", sum.Share}})
		}
		v.Plots = []any{chart}
		var rows [][]any
		for _, sum := range list {
			rows = append(rows, []any{sum.Value, int64(sum.Tokens), sum.Sites, s.Blocking.Sites, sum.Share})
		}
		v.Tables = []sheet{newSheet(property+"s-"+d.Name, "By "+property+", "+d.Name, []string{property, "tokens", "blocking", "of", "share"}, rows, "")}
		return v
	})
}

func (b *builder) ranks() figure {
	t := b.table("blocked-by-rank")
	return b.switched("ranks", "Ranks", []string{"blocked-by-rank"}, func(id string, d survey.Definition, s *survey.Summary) variant {
		v := variant{Caveat: "Cumulative: the first 1,000 are among the first 10,000. Sites without a rank are left out."}
		rows := t.where("definition", d.Name)
		var limits []int64
		of := int64(0)
		for _, row := range rows {
			if to := t.number(row, "ranks_to"); !slices.Contains(limits, to) {
				limits = append(limits, to)
			}
			of = max(of, t.number(row, "of"))
		}
		slices.Sort(limits)
		v.Subtitle, v.Sites = b.by(d, of), of
		if len(limits) == 0 || len(b.survey.Lines) == 0 || len(rows) == 0 {
			v.Headline, v.Empty = "The list has no ranks", "Ranks come from the list: give one that has them, such as Tranco's."
			if len(limits) > 0 {
				v.Headline, v.Empty = "No AI token is named", "No file names an AI token, so no line is worth drawing."
			}
			return v
		}
		var x []tick
		place := func(to int64) float64 {
			return (float64(slices.Index(limits, to)) + 0.1) / (float64(len(limits)) - 0.8)
		}
		for _, to := range limits {
			x = append(x, tick{along(place(to)), "top " + magnitude(to)})
		}
		names := b.leading(s)
		var values [][]point
		var cells [][]any
		for i, token := range names {
			var line []point
			own := slices.DeleteFunc(slices.Clone(rows), func(row []any) bool { return t.text(row, "token") != token })
			for _, row := range own {
				to := t.number(row, "ranks_to")
				line = append(line, point{at: place(to), share: t.share(row, "share"), gap: t.value(row, "share") == nil,
					title: fmt.Sprintf("%s, top %s: %s", token, magnitude(to), percent(t.share(row, "share")))})
				cells = append(cells, []any{row[0], row[2], row[3], row[4], row[5]})
			}
			if own = b.enough(t, own, "of"); i == 0 && len(own) > 0 {
				v.Headline = b.rankHeadline(token, d, t, own)
			}
			values = append(values, line)
		}
		n := len(b.survey.Lines)
		v.Plots = []any{newLines(id, x, names[:n], values[:n])}
		if n < len(names) && len(limits) > 1 { // a plot of one point says no more than the table
			v.Plots = append(v.Plots, newMultiples(names[n:], values[n:]))
		}
		v.Tables = []sheet{newSheet("ranks-"+d.Name, "By rank, "+d.Name, []string{"token", "ranks_to", "blocking", "of", "share"}, cells, leadingNote)}
		return v
	})
}

const leadingNote = "The tokens of the plot, and the others blocked most: 30 in all. --csv writes all tokens."

// leading returns the tokens of lines, then those blocked most: 30 in all.
func (b *builder) leading(s *survey.Summary) []string {
	names := slices.Clone(b.survey.Lines)
	for _, t := range s.Blocking.MostBlocked {
		if len(names) < shownTokens && !slices.Contains(names, t.Token) {
			names = append(names, t.Token)
		}
	}
	return names
}

// rankHeadline compares the first ranks with all; rows are those of the token.
func (b *builder) rankHeadline(token string, d survey.Definition, t frame, rows [][]any) string {
	segment := map[string]string{"sites_rules": "rank "}[d.Over] // what was not observed is known of sites with rules
	each := func(row []any) string {
		to := t.number(row, "ranks_to")
		return fmt.Sprintf("%s of the first %s", b.sure(t.number(row, "blocking"), t.number(row, "of"), segment+fmt.Sprint(to)), magnitude(to)+b.full().Flag(t.number(row, "of")))
	}
	often := "as often as"
	switch first, last := t.share(rows[0], "share"), t.share(rows[len(rows)-1], "share"); {
	case len(rows) == 1:
		return fmt.Sprintf("%s %s %s", each(rows[0]), d.Verbs, token)
	case first > 1.1*last:
		often = "more often than"
	case last > 1.1*first:
		often = "less often than"
	}
	return fmt.Sprintf("Popular sites %s %s %s others: %s, %s", d.Verbs, token, often, each(rows[0]), each(rows[len(rows)-1]))
}

// magnitude writes a power of ten.
func magnitude(n int64) string {
	switch {
	case n >= 1e6 && n%1e6 == 0:
		return grouped(n/1e6) + "M"
	case n >= 1000 && n%1000 == 0:
		return grouped(n/1000) + "k"
	}
	return grouped(n)
}

func (b *builder) suffixes() figure {
	t := b.table("blocked-by-tld")
	least := things(b.full().LeastGroup, "site")
	v := variant{Subtitle: b.subtitle("Definition full: everything is denied. Of sites with rules under each public suffix with at least "+least, b.full().Rules), Sites: b.full().Rules,
		Caveat: "The 30 suffixes with most sites, by the share that blocks GPTBot. Strokes are ClaudeBot, CCBot and Google-Extended. A suffix is no country: many .io and .ai sites are elsewhere."}
	rows := t.where("token", "GPTBot")
	if len(rows) == 0 {
		return b.empty("tlds", "Top-level domains", v, "No public suffix has "+least+" with rules", "The list is too short, or its hosts have no suffix.", "blocked-by-tld")
	}
	v.Headline = b.extremes(t, rows, "tld", "blocking", "of", "%s of sites under .%s block GPTBot", ", %s of those under .%s")
	chart, scale := newBars("tlds", "share of sites with rules", t.top(t.Rows, "share"), key{"spot", "GPTBot"}, key{"stroke", "ClaudeBot, CCBot, Google-Extended"})
	for _, row := range rows {
		bar := bar{Name: "." + plain(t.text(row, "tld")), Under: b.sites(t.number(row, "of")), Value: percent(t.share(row, "share"))}
		for _, other := range t.where("tld", t.text(row, "tld")) {
			if t.text(other, "token") != "GPTBot" {
				bar.Parts = append(bar.Parts, part{Class: "stroke", X: along(t.share(other, "share") / scale)})
			}
		}
		bar.Parts = append(bar.Parts, part{Class: "spot", X: along(t.share(row, "share") / scale)}) // the last is on top
		chart.Rows = append(chart.Rows, bar)
	}
	v.Plots = []any{chart}
	return b.single("tlds", "Top-level domains", v, "blocked-by-tld")
}

func (b *builder) labels() figure {
	t := b.table("blocked-by-label")
	v := variant{Subtitle: b.subtitle("Definition full. Of sites with rules of each label of the list", b.full().Rules), Sites: b.full().Rules, Caveat: "Labels are those of the list."}
	if len(t.Rows) == 0 || len(b.survey.Lines) == 0 {
		return b.empty("labels", "Labels", v, "The list has no labels", "With --label-column a list says of what kind each site is, and this figure compares the kinds.")
	}
	token := b.survey.Lines[0]
	rows := slices.Clone(t.where("token", token))
	ranked := func(row []any) int64 { return min(t.number(row, "of"), b.full().LeastGroup) } // those of too few sites are last
	slices.SortStableFunc(rows, func(x, y []any) int {
		return cmp.Or(cmp.Compare(ranked(y), ranked(x)), cmp.Compare(t.share(y, "share"), t.share(x, "share")))
	})
	v.Headline = b.extremes(t, rows, "label", "blocking", "of", "%s of sites labelled %s block "+token, ", %s of those labelled %s")
	v.Plots = []any{b.shares("labels", "share of sites with rules that block "+token, t, rows, "label", "of", "share")}
	return b.single("labels", "Labels", v, "blocked-by-label")
}

package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// This file makes the figures about who is blocked: the first screen, and the figures that the definition switches.

const (
	shownTokens  = 10  // the others that files name are in a fold
	shownSums    = 12  // operators and purposes
	shownOthers  = 20  // agents, keys
	shownGroups  = 10  // suffixes and labels
	showOverTime = 400 // dates; of more, some are left out
)

// groups are all figures. The first group tells the story: who is blocked, how that changed, by rank, by kind of site,
// and what for.
func (b *builder) groups() []group {
	change, began := b.overTime(), b.firstBlocked()
	if began.Since == "" && b.partial() {
		change, began = began, change
	}
	kinds, others := b.labels(), b.suffixes()
	if kinds.Since != "" {
		kinds, others = others, kinds
	}
	return []group{
		{"In short", []figure{b.tokens(), change, b.ranks(), kinds, b.purposes()}},
		{"Who is blocked", []figure{b.operators(), others}},
		{"Over time", []figure{began, b.transitions(), b.changes()}},
		{"How sites decide", []figure{b.numberBlocked(), b.together(), b.managed(), b.networks()}},
		{"Other signals", []figure{b.signals(), b.usage(), b.licenses()}},
		{"What was seen", []figure{b.findings(), b.statuses(), b.sizes(), b.latency()}},
		{"What files say", []figure{b.scores(), b.syntax(), b.delays(), b.agents(), b.keys()}},
		{"How sure", []figure{b.sensitivity()}},
	}
}

// full is the summary by full.
func (b *builder) full() *summary.Summary {
	for i, d := range survey.Definitions() {
		if d.Name == survey.Full {
			return b.survey.Summaries[i]
		}
	}
	return b.survey.Summaries[0]
}

// numbers are the figures of the head. They say their definition, since the reader may choose another for the rest of
// the page.
func (b *builder) numbers() []number {
	s := b.full()
	full, _ := survey.DefinitionNamed(survey.Full)
	return []number{
		{printable.Number(s.Asked), "sites asked"},
		{printable.Number(s.Rules), "have rules"},
		{printable.Number(s.Blocking.OneByName), "block at least one AI crawler by name (" + full.Words + ")"},
		{printable.Number(s.Blocking.OneByStar), "block AI crawlers by * alone (" + full.Words + ")"},
	}
}

// answer is the first screen: one sentence.
func (b *builder) answer(s *summary.Summary) string {
	d, _ := survey.DefinitionNamed(s.Blocking.Definition)
	if s.Blocking.Sites == 0 {
		return "No site answered with rules, so there is nothing to say of who is blocked."
	}
	of := fmt.Sprintf("%s of %s %s", printable.Number(s.Blocking.AtLeastOne), printable.Number(s.Blocking.Sites),
		overWhat(d))
	if !s.Enough(s.Blocking.Sites) {
		return fmt.Sprintf("Too few sites for a headline: %s %s at least one AI crawler.", of, d.Verbs)
	}
	text := sitesBlock(d, ratio(s.Blocking.AtLeastOne, s.Blocking.Sites), fmt.Sprintf("at least one AI crawler: %s%s.", of,
		s.Blocking.OneSure.Ranges(percent)))
	if list := s.Blocking.MostBlocked; len(list) == 1 || len(list) > 1 && list[0].Sites > list[1].Sites {
		// failing servers and `*` count for all tokens alike
		text += fmt.Sprintf(" %s leads with %s%s.", list[0].Token, percent(list[0].Share), list[0].Ranges(percent))
	}
	return text
}

// alike returns tokens that share a bar. No file names them, or a token that they follow. So the group of `*` decides
// for them, and equally many sites block each, and restrict each.
func alike(list []summary.TokenCount) (tokens []string) {
	groups := map[[2]int64][]string{}
	for i := range list {
		if t := &list[i]; t.Named == 0 && t.ViaFallback == 0 {
			same := [2]int64{t.Sites, t.Partial}
			if groups[same] = append(groups[same], t.Token); len(groups[same]) > max(1, len(tokens)) {
				tokens = groups[same]
			}
		}
	}
	return tokens
}

func (b *builder) tokens() figure {
	f := b.switched("tokens", "Crawlers", []string{"blocked-by-definition", "explicit-or-star"},
		func(id string, d survey.Definition, s *summary.Summary) variant {
			v := variant{Subtitle: b.by(d, s.Blocking.Sites), Sites: s.Blocking.Sites,
				Caveat: "Each bar is all these sites, and its first parts are those that block the crawler, by whose rules. It does not say that the crawler obeys, nor, where the rule is that of *, that the site thought of this crawler."}
			list := s.Blocking.MostBlocked
			if len(list) == 0 {
				v.Empty = "no site " + d.Verb + " an AI crawler"
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
			v.Plots = []any{tokenBars(id, d, s)}
			return v
		})
	full := map[string]summary.TokenCount{}
	for _, t := range b.full().Blocking.MostBlocked {
		full[t.Token] = t
	}
	others := alike(b.full().Blocking.MostBlocked)
	table := compared("tokens", "AI crawlers; own, fallback, * and partly are of “everything forbidden”",
		[]string{"token", "operator", "purpose", "own", "fallback", "star", "partly"},
		func(i int, _ survey.Definition) (rows [][]any) {
			of := &b.survey.Summaries[i].Blocking
			for _, t := range of.MostBlocked {
				if !slices.Contains(others, t.Token) || t.Token == others[0] {
					by := full[t.Token]
					rows = append(rows, []any{t.Token, t.Operator, t.Purpose, by.ViaOwn, by.ViaFallback, by.ViaStar, by.Partial,
						t.Sites, of.Sites})
				}
			}
			return rows
		})
	if len(others) > 0 {
		table.Note = fmt.Sprintf("%s stands for %s that no file names; --csv writes all.", plain(others[0]),
			printable.Count(len(others), "crawler"))
	}
	f.Tables = []sheet{table}
	return f
}

// tokenBars are a bar for each token. Those that are alike have one, the last.
func tokenBars(id string, d survey.Definition, s *summary.Summary) *bars {
	list := s.Blocking.MostBlocked
	chart, scale := newBars(id, "share of "+overWhat(d), 1, reasonKeys(d)...)
	others := alike(list)
	for i := range list {
		if t := &list[i]; !slices.Contains(others, t.Token) {
			chart.add(scale, t.Token, t.Operator+" · "+t.Purpose+t.Ranges(percent), percent(t.Share),
				reasons(t, d, s.Blocking.Sites))
			chart.between(scale, t.Certainty)
		}
	}
	chart.folded(shownTokens)
	if len(others) > 0 {
		t := &list[slices.IndexFunc(list, func(t summary.TokenCount) bool { return t.Token == others[0] })]
		chart.add(scale, printable.Count(len(others), "other"), "no file names them: blocked only by *"+t.Ranges(percent),
			percent(t.Share), reasons(t, d, s.Blocking.Sites))
		chart.between(scale, t.Certainty)
	}
	return chart
}

func (b *builder) operators() figure {
	return b.sums("operators", "Operators", "operator",
		"A site counts if it does so to at least one AI crawler of the operator: the more crawlers, the more sites. The query has the verdicts of all categories.",
		func(s *summary.Summary) []summary.Sum { return s.Blocking.ByOperator },
		func(d survey.Definition, list []summary.Sum) string {
			return sitesBlock(d, list[0].Share, "at least one crawler of "+list[0].Value+list[0].Ranges(percent))
		})
}

// purposes set training against search, and AI crawlers against search engines.
func (b *builder) purposes() figure {
	f := b.sums("purposes", "Training and search", "purpose",
		"A site counts under a purpose if it blocks at least one AI crawler whose operator states that purpose, so that a purpose of more crawlers has more sites. It does not say what is done with the pages, nor that a site has weighed one purpose against another.",
		func(s *summary.Summary) []summary.Sum { return s.Blocking.ByPurpose },
		func(d survey.Definition, list []summary.Sum) string {
			find := func(purpose string) summary.Sum {
				return list[max(0, slices.IndexFunc(list, func(s summary.Sum) bool { return s.Value == purpose }))]
			}
			first, search := find("training"), find("search")
			text := sitesBlock(d, first.Share, "a crawler for "+first.Value+first.Ranges(percent))
			if search.Value != first.Value {
				text += ", " + percent(search.Share) + search.Ranges(percent) + " one for " + search.Value
			}
			return text
		})
	t := b.table("ai-and-search")
	total := t.sum(t.Rows, "sites")
	if f.Since != "" || total == 0 {
		return f
	}
	places := [][2]bool{{true, false}, {true, true}, {false, true}, {false, false}}
	counts := make([]int64, len(places))
	for _, row := range t.Rows {
		counts[slices.Index(places, [2]bool{t.flag(row, "ai_blocked"), t.flag(row, "search_blocked")})] += t.number(row,
			"sites")
	}
	for i := range f.Variants {
		if v := &f.Variants[i]; v.Definition == survey.Full && v.Empty == "" {
			v.Headline += b.ifEnough(total, "; "+percent(ratio(counts[0], total))+b.full().Of(counts[0], total,
				b.full().Blocking.Unobserved).Ranges(percent)+" block AI crawlers and let all search engines in")
			chart := stacked("search", "share of sites with rules", []string{"only AI crawlers",
				"AI crawlers and a search engine", "only a search engine", "neither"}, nil, []string{"own", "fallback", "k2",
				"rest"}, counts)
			for _, row := range chart.Rows[1:] {
				chart.Keys = append(chart.Keys, key{row.Parts[0].Class, row.Name + " " + row.Value})
			}
			chart.Rows = chart.Rows[:1]
			v.Plots = append(v.Plots, chart)
		}
	}
	f.Tables, f.Queries = append(f.Tables, sheetOf(t, "ai-and-search")), append(f.Queries, sqlOf("ai-and-search")...)
	return f
}

// sums is a figure of operators or purposes.
func (b *builder) sums(id, short, property, caveat string, of func(*summary.Summary) []summary.Sum,
	headline func(survey.Definition, []summary.Sum) string) figure {
	f := b.switched(id, short, []string{id}, func(id string, d survey.Definition, s *summary.Summary) variant {
		v := variant{Subtitle: b.by(d, s.Blocking.Sites), Sites: s.Blocking.Sites, Caveat: caveat}
		list := of(s)
		if len(list) == 0 {
			v.Empty = "no site " + d.Verb + " an AI crawler"
			return v
		}
		v.Headline = headline(d, list)
		shown := list[:min(len(list), shownSums)]
		chart, scale := newBars(id, "share of "+overWhat(d), most(shown, func(s *summary.Sum) float64 {
			if s.Bounds != nil {
				return s.Bounds[1]
			}
			return s.Share
		}))
		for _, sum := range shown {
			chart.add(scale, sum.Value, printable.Count(sum.Tokens, "crawler")+sum.Ranges(percent), percent(sum.Share),
				lengths{{"own", sum.Share}})
			chart.between(scale, sum.Certainty)
		}
		v.Plots = []any{chart}
		return v
	})
	f.Tables = []sheet{compared(id, "By "+property, []string{property, "tokens"},
		func(i int, _ survey.Definition) (rows [][]any) {
			for _, sum := range of(b.survey.Summaries[i]) {
				rows = append(rows, []any{sum.Value, int64(sum.Tokens), sum.Sites, b.survey.Summaries[i].Blocking.Sites})
			}
			return rows
		})}
	return f
}

func (b *builder) ranks() figure {
	t := b.table("blocked-by-rank")
	f := b.switched("ranks", "Ranks", []string{"blocked-by-rank"}, func(id string, d survey.Definition,
		_ *summary.Summary) variant {
		v := variant{Caveat: "Each point is the share among the first so many sites of the list, so that the points to the right contain those to the left; sites without a rank are left out. It does not say that rank is the reason: popular sites are of other kinds, languages and networks, too."}
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
		switch {
		case len(limits) == 0:
			v.Empty = "the list has no ranks"
		case len(b.survey.Lines) == 0:
			v.Empty = "no file names an AI crawler"
		case len(limits) == 1:
			v.Empty = "all ranks of the list are among the first " + magnitude(limits[0])
		}
		if v.Empty != "" {
			return v
		}
		var x []tick
		place := func(to int64) float64 {
			return (float64(slices.Index(limits, to)) + 0.1) / (float64(len(limits)) - 0.8)
		}
		for _, to := range limits {
			x = append(x, tick{along(place(to)), "top " + magnitude(to)})
		}
		var values [][]point
		for i, token := range b.survey.Lines {
			var line []point
			own := t.among(rows, "token", token)
			for _, row := range own {
				to := t.number(row, "ranks_to")
				line = append(line, point{at: place(to), share: t.share(row, "share"), gap: t.value(row, "share") == nil,
					title: fmt.Sprintf("%s, top %s: %s", token, magnitude(to), percent(t.share(row, "share")))})
			}
			if own = b.enough(t, own, "of"); i == 0 && len(own) > 0 {
				v.Headline = b.rankHeadline(token, d, t, own)
			}
			values = append(values, line)
		}
		v.Plots = []any{newLines(id, x, b.survey.Lines, values)}
		return v
	})
	f.Tables = []sheet{b.byRow(t, "ranks", "By rank", "ranks_to")}
	return f
}

// byRow compares the definitions in a table that has a row for each of them, a token and another value: the tokens of
// the plot.
func (b *builder) byRow(t frame, name, caption, value string) sheet {
	return compared(name, caption+", the crawlers of the plot; --csv writes all", []string{"token", value},
		func(_ int, d survey.Definition) (rows [][]any) {
			for _, row := range t.where("definition", d.Name) {
				if token := t.text(row, "token"); slices.Contains(b.survey.Lines, token) {
					rows = append(rows, []any{token, t.value(row, value), t.value(row, "blocking"), t.value(row, "of")})
				}
			}
			return rows
		})
}

// rankHeadline compares the first ranks with all ranks; rows are the rows of the token.
func (b *builder) rankHeadline(token string, d survey.Definition, t frame, rows [][]any) string {
	segment := map[string]string{"sites_rules": "rank "}[d.Over] // unobserved sites are known only for sites with rules
	each := func(row []any) string {
		to := t.number(row, "ranks_to")
		return fmt.Sprintf("%s of the first %s", b.sure(t.number(row, "blocking"), t.number(row, "of"), segment+
			fmt.Sprint(to)), magnitude(to)+b.full().Flag(t.number(row, "of")))
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
	return fmt.Sprintf("Popular sites %s %s %s others: %s, %s", d.Verbs, token, often, each(rows[0]),
		each(rows[len(rows)-1]))
}

// magnitude writes a power of ten.
func magnitude(n int64) string {
	switch {
	case n >= 1e6 && n%1e6 == 0:
		return printable.Number(n/1e6) + "M"
	case n >= 1000 && n%1000 == 0:
		return printable.Number(n/1000) + "k"
	}
	return printable.Number(n)
}

func (b *builder) suffixes() figure {
	const short = "Top-level domains"
	t := b.table("blocked-by-tld")
	least := printable.Count(b.full().LeastGroup, "site")
	v := variant{By: survey.Full,
		Subtitle: b.subtitle("Everything forbidden, of sites with rules under each public suffix with at least "+least,
			b.full().Rules), Sites: b.full().Rules,
		Caveat: "These are the suffixes with most sites, by the share that blocks GPTBot; strokes are ClaudeBot, CCBot and Google-Extended. A suffix is no country: many .io and .ai sites are elsewhere."}
	rows := t.where("token", "GPTBot")
	if len(rows) == 0 {
		return missing("tlds", short, "no public suffix has "+least+" with rules")
	}
	v.Headline = b.extremes(t, rows, "tld", "blocking", "of", "%s of sites under .%s block GPTBot",
		", %s of those under .%s")
	chart, scale := newBars("tlds", "share of sites with rules", t.top(t.Rows, "share"), key{"spot", "GPTBot"},
		key{"stroke", "ClaudeBot, CCBot, Google-Extended"})
	for _, row := range rows {
		bar := bar{Name: "." + plain(t.text(row, "tld")), Under: b.sites(t.number(row, "of")),
			Value: percent(t.share(row, "share"))}
		for _, other := range t.where("tld", t.text(row, "tld")) {
			if t.text(other, "token") != "GPTBot" {
				bar.Parts = append(bar.Parts, part{Class: "stroke", X: along(t.share(other, "share") / scale)})
			}
		}
		bar.Parts = append(bar.Parts, part{Class: "spot", X: along(t.share(row, "share") / scale)}) // the last is on top
		chart.Rows = append(chart.Rows, bar)
	}
	v.Plots = []any{chart.folded(shownGroups)}
	return b.single("tlds", short, v, "blocked-by-tld")
}

func (b *builder) labels() figure {
	t := b.table("blocked-by-label")
	if len(t.Rows) == 0 || len(b.survey.Lines) == 0 {
		return missing("labels", "Labels", "the list has no labels (--label-column gives them)")
	}
	v := variant{By: survey.Full,
		Subtitle: b.subtitle("Everything forbidden, of sites with rules of each label of the list", b.full().Rules),
		Sites:    b.full().Rules,
		Caveat:   "The labels are those of the list, and labels of too few sites stand last. A difference is one between these sites, and says nothing of others of their kind unless they are a sample of them."}
	token := b.survey.Lines[0]
	rows := slices.Clone(t.where("token", token))
	// rows of too few sites are last
	ranked := func(row []any) int64 { return min(t.number(row, "of"), b.full().LeastGroup) }
	slices.SortStableFunc(rows, func(x, y []any) int {
		return cmp.Or(cmp.Compare(ranked(y), ranked(x)), cmp.Compare(t.share(y, "share"), t.share(x, "share")))
	})
	v.Headline = b.extremes(t, rows, "label", "blocking", "of", "%s of sites labelled %s block "+token,
		", %s of those labelled %s")
	v.Plots = []any{b.shares("labels", "share of sites with rules that block "+token, t, rows, "label", "of",
		"share").folded(shownGroups)}
	return b.single("labels", "Labels", v, "blocked-by-label")
}

package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
)

// The crawlers on check's page. Crawlers of operators that the file names have a row each: an operator's crawlers have
// different purposes, and the most interesting fact of a file is often that it treats them differently. All other
// crawlers are listed by how they are treated. Then come the other agents that the file names: crawlers of other
// categories, and unknown agents.

// shownUnnamed is how many unnamed crawlers of an operator have a row if the file names others of that operator. If
// there are more, they are counted, and listed by how they are treated.
const shownUnnamed = 4

// crawlers shows the crawlers of a category.
func (x *explanation) crawlers(category string) {
	operators, others := x.operators(category)
	all := len(others)
	t := &table{indent: indent, wrap: true, yields: x.page.width >= pipeWidth}
	for _, o := range operators {
		all += len(o.named) + len(o.unnamed)
		if len(o.unnamed) > shownUnnamed && !x.all {
			x.rows(t, o.name, o.named)
			x.row(t, "", styled(dim, "%d more", len(o.unnamed)), styled(dim, "see below"))
			others = append(others, o.unnamed...)
		} else {
			x.rows(t, o.name, append(o.named, o.unnamed...))
		}
	}
	if all == 0 {
		return
	}
	x.head(categoryTitle(category) + " crawlers")
	x.page.table(t)
	x.byFate(others, all)
}

// operator is an operator that the file names, with its crawlers of a category.
type operator struct {
	name           string
	named, unnamed []*audit.TokenResult
}

// operators returns the operators whose crawlers the file names (all operators with --all), and the crawlers of the
// other operators. Operators with the strictest treatment come first; among equals the order is by name. Within an
// operator, named crawlers come first, in the order of the file.
func (x *explanation) operators(category string) (list []*operator, others []*audit.TokenResult) {
	by := map[string]*operator{}
	of := func(t *audit.TokenResult) *operator {
		o := by[t.Operator]
		if o == nil {
			o = &operator{name: t.Operator}
			list = append(list, o)
			if known(t.Operator) { // unknown operators may be several
				by[t.Operator] = o
			}
		}
		return o
	}
	for i := range x.result.Tokens {
		t := &x.result.Tokens[i]
		if t.Category != category || !x.named(t) {
			continue
		}
		o := of(t)
		o.named = append(o.named, t)
	}
	for i := range x.result.Tokens {
		switch t := &x.result.Tokens[i]; {
		case t.Category != category || x.named(t):
		case by[t.Operator] != nil || x.all:
			o := of(t)
			o.unnamed = append(o.unnamed, t)
		default:
			others = append(others, t)
		}
	}
	for _, o := range list {
		slices.SortStableFunc(o.named, func(a, b *audit.TokenResult) int { return a.Line - b.Line })
	}
	slices.SortStableFunc(list, func(a, b *operator) int {
		return cmp.Or(b.severity()-a.severity(), strings.Compare(sortName(a.name), sortName(b.name)))
	})
	return list, others
}

// severity returns the strictest treatment among the crawlers that the file names.
func (o *operator) severity() (worst int) {
	for _, t := range o.named {
		worst = max(worst, slices.Index([]string{"allowed", "partial", "blocked"}, t.Verdict))
	}
	return worst
}

// sortName orders operators without regard to case, unknown ones last.
func sortName(operator string) string {
	if !known(operator) {
		return "\U0010FFFF"
	}
	return strings.ToLower(operator)
}

// rows adds a row for each crawler of an operator.
func (x *explanation) rows(t *table, operator string, list []*audit.TokenResult) {
	for _, token := range list {
		x.row(t, operator, text(token.Token), marked(token.Verdict), styled(dim, "%s", token.Purpose), text(x.why(token)))
		operator = "" // said once
	}
}

// row adds a row for one crawler, or for several. The operator, if it is named, has a column of its own, or a line
// above if the page has no room for the column.
func (x *explanation) row(t *table, operator string, token piece, more ...piece) {
	if x.page.width >= pipeWidth {
		t.add(append([]piece{styled(bold, "%s", operator), token}, more...)...)
		return
	}
	if operator != "" {
		t.add(styled(bold, "%s", operator))
	}
	token.text = strings.Repeat(" ", indent) + token.text
	t.add(append([]piece{token}, more...)...)
}

// named reports whether the file names a crawler, also by another name, or in a way that only a lenient reading
// understands.
func (x *explanation) named(t *audit.TokenResult) bool {
	return t.Via == audit.ViaOwn.String() || t.Via == audit.ViaFallback.String() || x.loose[t.Token] != nil
}

// known reports whether the registry knows an operator; otherwise it says "unknown".
func known(operator string) bool { return operator != "" && operator != "unknown" }

// byFate lists crawlers by how they are treated, the most frequent way first. If all are treated alike, it shows their
// names only with --all.
func (x *explanation) byFate(list []*audit.TokenResult, all int) {
	at := map[string]int{}
	var fates [][]*audit.TokenResult
	for _, t := range list {
		fate := t.Verdict + " " + x.why(t)
		i, ok := at[fate]
		if !ok {
			i = len(fates)
			at[fate], fates = i, append(fates, nil)
		}
		fates[i] = append(fates[i], t)
	}
	slices.SortStableFunc(fates, func(a, b []*audit.TokenResult) int { return len(b) - len(a) })
	for _, list := range fates {
		which := fmt.Sprintf("%d others", len(list))
		switch len(list) {
		case all:
			which = fmt.Sprintf("all %d", all)
		case 1:
			which = "1 other"
		}
		verdict := list[0].Verdict
		fate := styled(markStyles[verdict], "%s %s %s:", marks[verdict], which, verdict)
		x.page.blank(indent)
		x.page.flow(indent, words(fate, text(x.why(list[0]))))
		if len(list) == all && !x.all {
			continue
		}
		slices.SortFunc(list, func(a, b *audit.TokenResult) int {
			return strings.Compare(strings.ToLower(a.Token), strings.ToLower(b.Token))
		})
		names := make([]piece, len(list))
		for i, t := range list {
			names[i] = styled(dim, "%s,", t.Token)
		}
		names[len(list)-1] = styled(dim, "%s", list[len(list)-1].Token)
		x.page.blank(3 * indent)
		x.page.flow(3*indent, names)
	}
}

// why says in words whose rules a crawler follows, and which other statements of its group are for it.
func (x *explanation) why(t *audit.TokenResult) string {
	s := x.because(t)
	if t.Via != audit.ViaStar.String() || t == x.result.Star { // the rules of `*` are shown once
		s += root(t.Verdict, t.RootAllowed)
		if rule := x.rules[t.Token]; rule != nil {
			s += spokenTo(rule)
		}
	}
	if t.Limited {
		s += "; not every rule was tried"
	}
	if loose := x.loose[t.Token]; loose != nil {
		s += fmt.Sprintf("; line %d may mean it, in a way that no crawler is known to read (%s then)", loose.Line,
			loose.Verdict)
	}
	return s
}

// root says whether the home page may be fetched, if the verdict leaves that open.
func root(verdict string, allowed bool) string {
	switch {
	case verdict != audit.Partial.String():
		return ""
	case allowed:
		return "; / open"
	}
	return "; / closed"
}

// because says in words whose rules a crawler follows.
func (x *explanation) because(t *audit.TokenResult) string {
	switch t.Via {
	case "own":
		return fmt.Sprintf("named in line %d", t.Line)
	case "fallback":
		return fmt.Sprintf("follows %s, line %d", t.Follows, t.Line)
	case "star":
		return fmt.Sprintf("by *, line %d", t.Line)
	case "http":
		return "by the answer"
	}
	if x.result.Star.Via == audit.ViaStar.String() {
		return "no group names it, and it ignores *"
	}
	return "no group applies"
}

// spokenTo says what a group says to an agent besides its rules.
func spokenTo(v *audit.VerdictResult) string {
	s := ""
	if v.CrawlDelay != nil {
		s += "; crawl-delay " + decimal(*v.CrawlDelay) + " s"
	}
	if v.RequestRate > 0 {
		s += "; " + decimal(v.RequestRate) + " requests a second"
	}
	if v.VisitFrom != nil && v.VisitTo != nil {
		s += fmt.Sprintf("; visits %s-%s UTC", clock(*v.VisitFrom), clock(*v.VisitTo))
	}
	if v.ContentSignal != "" {
		s += "; content-signal " + clip(v.ContentSignal, maxColumn)
	}
	if v.ContentUsage != "" {
		s += "; content-usage " + clip(v.ContentUsage, maxColumn)
	}
	return s
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }

// clock is a time of day, given in minutes after midnight.
func clock(minutes int) string { return fmt.Sprintf("%02d%02d", minutes/60, minutes%60) }

// categoryTitle is a category as a word of prose.
func categoryTitle(category string) string {
	switch category {
	case "ai", "seo":
		return strings.ToUpper(category)
	case "search", "social", "archive":
		return strings.ToUpper(category[:1]) + category[1:]
	}
	return category
}

// otherCategories counts the crawlers that the file names and the page does not show.
func (x *explanation) otherCategories() {
	var order []string
	named := map[string]int{}
	for _, agent := range x.result.KnownAgents {
		if !slices.Contains(x.categories, agent.Category) {
			if named[agent.Category] == 0 {
				order = append(order, agent.Category)
			}
			named[agent.Category]++
		}
	}
	if len(order) == 0 {
		return
	}
	slices.Sort(order)
	for i, category := range order {
		order[i] = fmt.Sprintf("%d %s", named[category], category)
	}
	x.note(fmt.Sprintf("The file also names crawlers of other categories (%s): --all or --category shows them.",
		strings.Join(order, ", ")))
}

// unknownAgents shows the other agents that the file names.
func (x *explanation) unknownAgents() {
	agents := x.result.UnknownAgents
	if len(agents) == 0 {
		return
	}
	x.head("Agents that the registry does not know", styled(dim, "  %d", len(agents)))
	most := shownRows
	if x.all {
		most = len(agents)
	}
	t := &table{indent: indent}
	for _, agent := range agents[:min(len(agents), most)] {
		row := []piece{lineNumber(agent.Line), text(agent.Token)}
		if v := x.rules[agent.Token]; v != nil {
			row = append(row, marked(v.Verdict), text(strings.TrimPrefix(root(v.Verdict, v.RootAllowed)+spokenTo(v), "; ")))
		}
		t.add(row...)
	}
	x.page.table(t)
	if n := len(agents) - most; n > 0 {
		x.note(fmt.Sprintf("… not shown: %d (--all shows them)", n))
	}
}

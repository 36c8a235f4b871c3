package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/docs/queries"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// builder makes the figures of a survey.
type builder struct {
	survey *tables.Survey
	on     string // the definition shown first
}

// frame is a table of the survey, read by the names of its columns. The frame of a missing table has no rows.
type frame struct {
	*tables.Table
	at map[string]int
}

func (b *builder) table(name string) frame {
	t := b.survey.Tables[name]
	if t == nil {
		t = &tables.Table{Name: name}
	}
	f := frame{t, map[string]int{}}
	for i, column := range t.Columns {
		f.at[column] = i
	}
	return f
}

func (f frame) value(row []any, column string) any {
	if i, ok := f.at[column]; ok {
		return row[i]
	}
	return nil
}

func (f frame) text(row []any, column string) string {
	text, _ := f.value(row, column).(string)
	return text
}

func (f frame) number(row []any, column string) int64 {
	n, _ := f.value(row, column).(int64)
	return n
}

// share returns a number of a row, often a share; 0 for null.
func (f frame) share(row []any, column string) float64 {
	if n := f.number(row, column); n != 0 {
		return float64(n)
	}
	v, _ := f.value(row, column).(float64)
	return v
}

func (f frame) flag(row []any, column string) bool {
	v, _ := f.value(row, column).(bool)
	return v
}

// top is the greatest share of rows.
func (f frame) top(rows [][]any, column string) float64 {
	return most(rows, func(row *[]any) float64 { return f.share(*row, column) })
}

// where returns the rows in which a column has a text.
func (f frame) where(column, text string) [][]any { return f.among(f.Rows, column, text) }

// among returns those of some rows.
func (f frame) among(rows [][]any, column, text string) (list [][]any) {
	for _, row := range rows {
		if f.text(row, column) == text {
			list = append(list, row)
		}
	}
	return list
}

func (f frame) sum(rows [][]any, column string) (n int64) {
	for _, row := range rows {
		n += f.number(row, column)
	}
	return n
}

// said sets the name of a variant, and its headline unless it rests on too few sites.
func (b *builder) said(v *variant, id, short string) {
	switch v.ID = id; {
	case v.Empty != "":
		v.Headline = capital(v.Empty)
	case !b.full().Enough(v.Sites):
		v.Headline = short + ": too few sites for a headline"
	}
}

// capital begins a sentence with a clause.
func capital(clause string) string {
	_, n := utf8.DecodeRuneInString(clause)
	return strings.ToUpper(clause[:n]) + clause[n:]
}

// missing is a figure without content, and a clause that says why.
func missing(id, short, since string) figure { return figure{ID: id, Short: short, Since: since} }

// single is a figure without a switch.
func (b *builder) single(id, short string, v variant, names ...string) figure {
	v.On = true
	b.said(&v, id, short)
	f := figure{ID: id, Short: short, Variants: []variant{v}, Queries: sqlOf(names...)}
	for _, name := range names {
		if t := b.table(name); len(t.Rows) > 0 {
			f.Tables = append(f.Tables, sheetOf(t, name))
		}
	}
	return f
}

// switched is a figure with a variant for each definition. It is missing if all are empty.
func (b *builder) switched(id, short string, names []string, of func(id string, d survey.Definition,
	s *summary.Summary) variant) figure {
	f := figure{ID: id, Short: short, Queries: sqlOf(names...)}
	shown, since := false, ""
	for i, d := range survey.Definitions() {
		v := of(id+"-"+d.Name, d, b.survey.Summaries[i])
		v.Definition, v.By, v.On = d.Name, d.Name, d.Name == b.on
		b.said(&v, id+"-"+d.Name, short)
		f.Variants = append(f.Variants, v)
		shown = shown || v.Empty == ""
		if v.On || since == "" {
			since = v.Empty
		}
	}
	if !shown {
		return missing(id, short, since)
	}
	return f
}

// compared is a table of the sites that block something by each definition. of returns, for a definition, rows with the
// cells that name a thing, the sites that block it, and of how many.
func compared(name, caption string, names []string, of func(i int, d survey.Definition) [][]any) sheet {
	columns := append(slices.Clone(names), "sites_rules", "sites_answered")
	var rows [][]any
	at := map[string]int{}
	for i, d := range survey.Definitions() {
		columns = append(columns, d.Name)
		for _, row := range of(i, d) {
			k := fmt.Sprintf("%q", row[:len(names)])
			if _, ok := at[k]; !ok {
				at[k] = len(rows)
				rows = append(rows, append(slices.Clone(row[:len(names)]), make([]any, 2+len(survey.Definitions()))...))
			}
			cells, of := rows[at[k]][len(names):], 0
			if d.Answered() {
				of = 1
			}
			cells[of], cells[2+i] = row[len(names)+1], row[len(names)]
		}
	}
	return newSheet(name, caption, columns, rows, "")
}

func sqlOf(names ...string) (list []query) {
	for _, name := range names {
		if sql := queries.SQL(name); sql != "" {
			list = append(list, query{name, sql})
		}
	}
	return list
}

// subtitle names the base of a share, its number of sites, and its date.
func (b *builder) subtitle(of string, sites int64) string {
	return fmt.Sprintf("%s, n = %s%s, %s", of, printable.Number(sites), b.full().Flag(sites), b.survey.Manifest.ScanDate)
}

// by is the subtitle of a figure by a definition.
func (b *builder) by(d survey.Definition, sites int64) string {
	return b.subtitle(capital(d.Words)+", of "+overWhat(d), sites)
}

func overWhat(d survey.Definition) string {
	if d.Answered() {
		return "sites that answered"
	}
	return "sites with rules"
}

// sites is the size of a group.
func (b *builder) sites(n int64) string { return printable.Count(n, "site") + b.full().Flag(n) }

// sure is a share of a group in a headline. The segment is "" where it is not known how many sites of the group were
// not observed.
func (b *builder) sure(n, of int64, segment string) string {
	unobserved, known := b.survey.Unobserved[segment]
	if !known {
		unobserved = -1
	}
	return percent(ratio(n, of)) + b.full().Of(n, of, unobserved).Ranges(percent)
}

// ifEnough is a text of a group of so many sites, or "" if they are too few.
func (b *builder) ifEnough(sites int64, text string) string {
	if !b.full().Enough(sites) {
		return ""
	}
	return text
}

// enough returns the rows of groups of enough sites.
func (b *builder) enough(t frame, rows [][]any, of string) [][]any {
	return slices.DeleteFunc(slices.Clone(rows), func(row []any) bool { return !b.full().Enough(t.number(row, of)) })
}

// extremes names the groups with the greatest and the least share among those of enough sites. Two formats take a share
// and a group.
func (b *builder) extremes(t frame, rows [][]any, kind, blocking, of, first, then string) string {
	if rows = b.enough(t, rows, of); len(rows) == 0 {
		return "No group has " + printable.Count(b.full().LeastGroup, "site")
	}
	share := func(row []any) float64 { return ratio(t.number(row, blocking), t.number(row, of)) }
	compare := func(x, y []any) int { return cmp.Compare(share(x), share(y)) }
	say := func(format string, row []any) string {
		return fmt.Sprintf(format, b.sure(t.number(row, blocking), t.number(row, of), kind+" "+t.text(row, kind)),
			named(kind, t.text(row, kind))+b.full().Flag(t.number(row, of)))
	}
	high, low := slices.MaxFunc(rows, compare), slices.MinFunc(rows, compare)
	if t.text(high, kind) == t.text(low, kind) {
		return say(first, high)
	}
	return say(first, high) + say(then, low)
}

// thingsDo is a number of things and what they do.
func thingsDo(n int64, thing, verb string) string {
	if n == 1 {
		verb += "s"
	}
	return printable.Count(n, thing) + " " + verb
}

// spoken are the shares that have a name, and whether the name is singular.
var spoken = []struct {
	share, within float64
	words         string
	one           bool
}{
	{0, 0, "No site", true}, {1, 0, "Every site", true},
	{0.01, 0.0025, "One site in a hundred", true}, {0.05, 0.0025, "One site in twenty", true},
	{0.1, 0.005, "One site in ten", true},
	{0.2, 0.005, "One site in five", true}, {0.25, 0.005, "A quarter of the sites", false},
	{0.3, 0.005, "Three sites in ten", false},
	{1.0 / 3, 0.005, "A third of the sites", false}, {0.4, 0.005, "Four sites in ten", false},
	{0.5, 0.005, "Half of the sites", false},
	{0.6, 0.005, "Six sites in ten", false}, {2.0 / 3, 0.005, "Two thirds of the sites", false},
	{0.7, 0.005, "Seven sites in ten", false},
	{0.75, 0.005, "Three quarters of the sites", false}, {0.8, 0.005, "Eight sites in ten", false},
	{0.9, 0.005, "Nine sites in ten", false},
}

// spokenShare says a share of sites as one would speak, and whether the verb that follows is of one site.
func spokenShare(share float64) (text string, one bool) {
	for _, s := range spoken {
		if math.Abs(share-s.share) <= s.within {
			return s.words, s.one
		}
	}
	return percent(share) + " of sites", false
}

// sitesDo is a sentence about a share of sites, with the verb of one site or of several.
func sitesDo(share float64, one, several, rest string) string {
	text, single := spokenShare(share)
	verb := several
	if single {
		verb = one
	}
	return text + " " + verb + " " + rest
}

// sitesBlock is a sentence about the share of sites that block something by a definition.
func sitesBlock(d survey.Definition, share float64, what string) string {
	return sitesDo(share, d.Verb, d.Verbs, what)
}

// reasonKeys explain by whose group a token is blocked.
func reasonKeys(d survey.Definition) []key {
	keys := []key{{"own", "by a group of its own"}, {"fallback", "by that of a crawler that it follows"},
		{"star", "by that of *"}}
	switch {
	case d.ByName:
		return []key{{"own", d.Words}, {"rest", "the others"}}
	case d.Undivided != "":
		keys = []key{{"own", d.Undivided}}
	case d.Answered():
		keys = append(keys, key{"failing", "by a failing server"})
	}
	if partly(d) {
		keys = append(keys, key{"partly", "only something forbidden"})
	}
	return append(keys, key{"rest", "not blocked"})
}

// partly reports whether a definition counts only complete blocks, so that its bars also show partial ones.
func partly(d survey.Definition) bool { return d.Name == survey.Full || d.Answered() }

// reasons are the parts of a token's bar, which add up to all.
func reasons(t *summary.TokenCount, d survey.Definition, of int64) lengths {
	part := func(n int64) float64 { return ratio(n, of) }
	parts := lengths{{"own", part(t.ViaOwn)}, {"fallback", part(t.ViaFallback)}, {"star", part(t.ViaStar)},
		{"failing", part(t.ViaHTTP)}}
	if d.Undivided != "" {
		parts = lengths{{"own", part(t.Sites)}}
	}
	if partly(d) {
		parts = append(parts, length{"partly", part(t.Partial)})
	}
	return append(parts, length{"rest", 1})
}

func ratio(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// most returns the greatest of some shares or numbers.
func most[T any, N int64 | float64](list []T, share func(*T) N) (top N) {
	for i := range list {
		top = max(top, share(&list[i]))
	}
	return top
}

// byOperator groups tokens: those of one operator are neighbours, the operators and their tokens in the order of first
// appearance.
func byOperator(names []string, operator map[string]string) []string {
	var operators []string
	for _, name := range names {
		if !slices.Contains(operators, operator[name]) {
			operators = append(operators, operator[name])
		}
	}
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int {
		return slices.Index(operators, operator[a]) - slices.Index(operators, operator[b])
	})
	return sorted
}

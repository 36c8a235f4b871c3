package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/report"
)

// The registry, as people and programs look things up in it.

// tokenFilter says which tokens are asked for.
type tokenFilter struct{ report.Selection }

func (a *app) tokensCommand() *cobra.Command {
	var filter tokenFilter
	var file string
	var long, asJSON bool
	var color colorWhen
	c := &cobra.Command{
		Use:   "tokens [NAME…]",
		Short: "List the crawler tokens that bulkscan knows",
		Long: `tokens lists the registry: which crawler goes by which product token, who runs it, what for, which other names it
follows, and where that is documented.

A NAME is a token or an alias of one, in any case; named ones are shown with all that is known of them, as --long shows
every one. The kind of a source says whose page it is: operator, or third-party; or unverified, where no copy of it was
found that names the token. "checked" is the date of the copy that was read, if it tells one.

--tokens FILE lays rows of your own over it, here and in scan. The file has the form of the built-in one,
audit/tokens/tokens.txt in the source: it explains itself in its first lines.`,
		Example: `  bulkscan tokens --category ai --purpose training
  bulkscan tokens --operator OpenAI --long
  bulkscan tokens GPTBot`,
		RunE: func(_ *cobra.Command, names []string) error {
			registry, err := (&fetchFlags{tokens: file}).registry()
			if err != nil {
				return err
			}
			list, err := filter.list(registry, names)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(a, tokensAsJSON(list))
			case long || len(names) > 0:
				return a.describeTokens(list, color)
			}
			return a.printTokens(list, color)
		},
	}
	c.Flags().StringVar(&filter.Category, "category", "", "only this category: ai, search, seo …")
	c.Flags().StringVar(&filter.Operator, "operator", "", "only this operator's")
	c.Flags().StringVar(&filter.Purpose, "purpose", "", "only this purpose: training, search, user-fetch …")
	c.Flags().StringVar(&file, "tokens", "", "file of further crawler tokens")
	c.Flags().BoolVar(&long, "long", false, "print all that is known of each: aliases, source, whose page that is and of when the copy that was read, too")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	color.add(c.Flags())
	return c
}

func categoryOf(t *tokens.Token) string { return t.Category }
func operatorOf(t *tokens.Token) string { return t.Operator }
func purposeOf(t *tokens.Token) string  { return t.Purpose }

// valuesOf returns the values that a registry has for a field, sorted without regard to case.
func valuesOf(registry *tokens.Registry, field func(*tokens.Token) string) []string {
	var values []string
	for i := range registry.Tokens {
		if v := field(&registry.Tokens[i]); v != "" {
			values = append(values, v)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return slices.Compact(values)
}

// list returns the tokens that are asked for: in the order in which they are named, else in that of the registry.
func (f *tokenFilter) list(registry *tokens.Registry, names []string) ([]tokens.Token, error) {
	if err := f.check(registry); err != nil {
		return nil, err
	}
	ids, err := tokensNamed(registry, names)
	if err != nil {
		return nil, err
	}
	list := make([]tokens.Token, 0, len(ids))
	for _, id := range ids {
		if t := &registry.Tokens[id]; f.Takes(t) {
			list = append(list, *t)
		}
	}
	return list, nil
}

// check refuses values that no token has.
func (f *tokenFilter) check(registry *tokens.Registry) error {
	for _, by := range []struct {
		flag, value string
		field       func(*tokens.Token) string
	}{
		{"category", f.Category, categoryOf},
		{"operator", f.Operator, operatorOf},
		{"purpose", f.Purpose, purposeOf},
	} {
		known := valuesOf(registry, by.field)
		if by.value != "" && !slices.ContainsFunc(known, func(v string) bool { return strings.EqualFold(v, by.value) }) {
			return usagef("--%s %q: one of %s", by.flag, clipped(by.value), strings.Join(known, ", "))
		}
	}
	return nil
}

// tokensNamed returns the tokens with these names or aliases, each once, as indices; without names, all.
func tokensNamed(registry *tokens.Registry, names []string) (ids []int, err error) {
	if len(names) == 0 {
		for id := range registry.Tokens {
			ids = append(ids, id)
		}
		return ids, nil
	}
	for _, name := range names {
		id, _ := registry.Find([]byte(name))
		if id < 0 {
			if like := similar(registry, name); len(like) > 0 {
				return nil, usagef("%q: no token has this name; there are %s", clipped(name), strings.Join(like, ", "))
			}
			return nil, usagef("%q: no token has this name; bulkscan tokens lists those that there are", clipped(name))
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// similar returns the names of tokens that somebody may have meant: those that contain the name, or are contained in it,
// or begin like it, or are its operator's; at most ten.
func similar(registry *tokens.Registry, name string) (like []string) {
	const begins, most = 4, 10
	name = strings.ToLower(name)
	if len(name) < 2 || len(name) > 100 {
		return nil
	}
	for i := range registry.Tokens {
		t := &registry.Tokens[i]
		token := strings.ToLower(t.Name)
		if strings.Contains(token, name) || strings.Contains(name, token) || strings.EqualFold(t.Operator, name) ||
			len(name) >= begins && strings.HasPrefix(token, name[:begins]) {
			like = append(like, t.Name)
		}
	}
	return like[:min(len(like), most)]
}

// tokenJSON is a token under the names that datasets and lists use.
type tokenJSON struct {
	Token        string   `json:"token"`
	Aliases      []string `json:"aliases"`
	Category     string   `json:"category"`
	Purpose      string   `json:"purpose"`
	Operator     string   `json:"operator"`
	ProductToken bool     `json:"product_token"` // it fits RFC 9309 §2.2.1
	HeedsStar    bool     `json:"heeds_star"`
	Fallback     []string `json:"fallback"`
	Source       string   `json:"source"`
	SourceKind   string   `json:"source_kind"` // operator, third-party, unverified
	Checked      string   `json:"checked"`
}

func tokensAsJSON(list []tokens.Token) []tokenJSON {
	all := make([]tokenJSON, len(list))
	for i, t := range list {
		all[i] = tokenJSON{
			Token: t.Name, Aliases: append([]string{}, t.Aliases...), Category: t.Category, Purpose: t.Purpose, Operator: t.Operator,
			ProductToken: t.ProductToken, HeedsStar: t.HeedsStar, Fallback: append([]string{}, t.Fallback...),
			Source: t.Source, SourceKind: t.SourceKind, Checked: t.Checked,
		}
	}
	return all
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// printTokens prints a row for each token. Nothing is clipped: the list is also read by grep and awk.
func (a *app) printTokens(list []tokens.Token, color colorWhen) error {
	p := a.page(color)
	t := &table{whole: true}
	var titles []piece
	for _, title := range []string{"TOKEN", "CATEGORY", "PURPOSE", "OPERATOR", "FOLLOWS", "HEEDS *"} {
		titles = append(titles, styled(bold, "%s", title))
	}
	t.add(titles...)
	for i := range list {
		tok := &list[i]
		t.add(text(tok.Name), text(tok.Category), text(tok.Purpose), text(tok.Operator), text(strings.Join(tok.Fallback, " ")), text(yesNo(tok.HeedsStar)))
	}
	p.table(t)
	return p.end()
}

// describeTokens prints all that is known of each token.
func (a *app) describeTokens(list []tokens.Token, color colorWhen) error {
	p := a.page(color)
	for i := range list {
		if i > 0 {
			p.line()
		}
		p.line(styled(bold, "%s", list[i].Name))
		t := &table{indent: 2, wrap: true}
		for _, row := range tokenFacts(&list[i]) {
			if row[1] != "" {
				t.add(styled(dim, "%s", row[0]), text(row[1]))
			}
		}
		p.table(t)
	}
	return p.end()
}

func tokenFacts(t *tokens.Token) [][2]string {
	fits := "yes"
	if !t.ProductToken {
		fits = "no: by RFC 9309 no group can name it, only a lenient reading finds it"
	}
	return [][2]string{
		{"operator", t.Operator},
		{"category", t.Category},
		{"purpose", t.Purpose},
		{"aliases", strings.Join(t.Aliases, ", ")},
		{"product token", fits},
		{"follows", strings.Join(t.Fallback, ", ")},
		{"heeds *", yesNo(t.HeedsStar)},
		{"source", t.Source},
		{"source kind", t.SourceKind},
		{"checked", t.Checked},
	}
}

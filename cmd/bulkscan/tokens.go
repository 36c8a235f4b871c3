package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/terminal"
)

// The registry, as people and programs look things up in it.

// tokenFilter says which tokens are asked for.
type tokenFilter struct{ report.Selection }

func (a *app) tokensCommand() *cobra.Command {
	var filter tokenFilter
	var file string
	var long, asJSON bool
	var color terminal.Color
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
				return terminal.WriteJSON(a.stdout, terminal.TokensJSON(list))
			case long || len(names) > 0:
				return terminal.DescribeTokens(a.stdout, list, color)
			}
			return terminal.Tokens(a.stdout, list, color)
		},
	}
	c.Flags().StringVar(&filter.Category, "category", "", "only this category: ai, search, seo …")
	c.Flags().StringVar(&filter.Operator, "operator", "", "only this operator's")
	c.Flags().StringVar(&filter.Purpose, "purpose", "", "only this purpose: training, search, user-fetch …")
	c.Flags().StringVar(&file, "tokens", "", "file of further crawler tokens")
	c.Flags().BoolVar(&long, "long", false, "print all that is known of each: aliases, source, whose page that is and of when the copy that was read, too")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addColor(c.Flags(), &color)
	return c
}

// list returns the tokens that are asked for: in the order in which they are named, else in that of the registry.
func (f *tokenFilter) list(registry *tokens.Registry, names []string) ([]tokens.Token, error) {
	if err := f.check(registry); err != nil {
		return nil, err
	}
	list, err := registry.Named(names)
	if err != nil {
		return nil, usage(err)
	}
	return slices.DeleteFunc(list, func(t tokens.Token) bool { return !f.Takes(&t) }), nil
}

// check refuses values that no token has.
func (f *tokenFilter) check(registry *tokens.Registry) error {
	for _, by := range []struct {
		flag, value string
		field       tokens.Field
	}{
		{"category", f.Category, tokens.Category},
		{"operator", f.Operator, tokens.Operator},
		{"purpose", f.Purpose, tokens.Purpose},
	} {
		known := registry.Values(by.field)
		if by.value != "" && !slices.ContainsFunc(known, func(v string) bool { return strings.EqualFold(v, by.value) }) {
			return usagef("--%s %q: one of %s", by.flag, clipped(by.value), strings.Join(known, ", "))
		}
	}
	return nil
}

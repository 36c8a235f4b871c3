package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/terminal"
)

// The registry, as people and programs look things up in it.

// tokenFilter has the flags that choose tokens.
type tokenFilter struct{ survey.Selection }

// countedFilter says which tokens a command counts: by default those of AI crawlers, and all of --tokens.
type countedFilter struct {
	tokenFilter
	tokens string         // --tokens
	flags  *pflag.FlagSet // nil if nobody could give any
}

func newCountedFilter() countedFilter {
	return countedFilter{tokenFilter: tokenFilter{survey.Selection{Category: "ai"}}}
}

// everyCategory is the value of --category that does not restrict.
const everyCategory = "all"

func (f *countedFilter) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.Category, "category", f.Category, "only tokens of this category: ai, search, seo …; "+everyCategory+
		" for all of them")
	flags.StringVar(&f.Operator, "operator", "", "only this operator's")
	flags.StringVar(&f.Purpose, "purpose", "", "only tokens of this purpose: training, search, user-fetch …")
	addCountedTokens(flags, &f.tokens)
}

// options checks what is asked for, and returns how a dataset is read.
func (f *countedFilter) options(a *app) (survey.Options, error) {
	o, err := a.reportOptions(f.tokens)
	if err != nil {
		return o, err
	}
	given := f.flags != nil && f.flags.Changed("category")
	if strings.EqualFold(f.Category, everyCategory) || len(o.Only) > 0 && !given {
		f.Category = ""
	}
	return o, f.check(o.Registry)
}

func (a *app) tokensCommand() *cobra.Command {
	var filter tokenFilter
	var file string
	var long bool
	var how shownAs
	c := &cobra.Command{
		Use:   "tokens [NAME…]",
		Short: "List the crawler tokens that bulkscan knows",
		Long: `tokens lists the registry: which crawler goes by which product token, who runs it, what for, which other names it
follows, and where that is documented.

A NAME is a token or an alias of one, in any case; named ones are shown with all that is known of them, as --long shows
every one. The kind of a source says whose page it is: operator, or third-party; or unverified, where no copy of it was
found that names the token. "checked" is the date of the copy that was read, if it tells one.

--tokens FILE lays rows of your own over it, here and in scan:

  name       | category | operator | fallback
  MyBot      | ai       | My Group |
  MyBot-News | ai       | My Group | MyBot

A crawler is a line, | separates its columns, and # begins a comment line. The first line names the columns; only name
is needed, the token as it stands in files. aliases are other spellings, and fallback the tokens whose group it
follows where none names it; both with commas between them. category is ai, search, seo, social, archive or a word of
yours (default custom), purpose one of those that the list shows (other), operator who runs it (unknown), * whether it
follows the group of * (yes or no; yes), source the page that documents it, kind whose page that is, checked the date
of the copy that was read.`,
		Example: `  bulkscan tokens --category ai --purpose training
  bulkscan tokens --operator OpenAI --long
  bulkscan tokens GPTBot`,
		RunE: func(_ *cobra.Command, names []string) error {
			registry, err := registryOf(file)
			if err != nil {
				return err
			}
			list, err := filter.list(registry, names)
			if err != nil {
				return err
			}
			if long || len(names) > 0 {
				return show(a, how, list, terminal.DescribeTokens)
			}
			return show(a, how, list, terminal.Tokens)
		},
	}
	c.Flags().StringVar(&filter.Category, "category", "", "only this category: ai, search, seo …")
	c.Flags().StringVar(&filter.Operator, "operator", "", "only this operator's")
	c.Flags().StringVar(&filter.Purpose, "purpose", "", "only this purpose: training, search, user-fetch …")
	c.Flags().StringVar(&file, "tokens", "", "file of further crawler tokens")
	c.Flags().BoolVar(&long, "long", false,
		"print all that is known of each: aliases, source, whose page that is and of when the copy that was read, too")
	how.add(c.Flags(), "print JSON")
	return c
}

// list returns the tokens that are asked for: in the order in which they are named, else in that of the registry.
func (f *tokenFilter) list(registry *tokens.Registry, names []string) ([]tokens.Token, error) {
	if err := f.check(registry); err != nil {
		return nil, err
	}
	list, err := named(registry, names)
	if err != nil {
		return nil, usage(err)
	}
	return slices.DeleteFunc(list, func(t tokens.Token) bool { return !f.Takes(&t) }), nil
}

// likeToken returns the question whether the user meant a token or alias of the registry; "" if none is near.
func likeToken(registry *tokens.Registry, name string) string {
	var known []string
	for i := range registry.Tokens {
		known = append(append(known, registry.Tokens[i].Name), registry.Tokens[i].Aliases...)
	}
	return options.DidYouMean("", name, known, "")
}

// named returns the tokens with these names or aliases, as Registry.Named does. Its error also says which one was
// misspelt.
func named(registry *tokens.Registry, names []string) ([]tokens.Token, error) {
	list, err := registry.Named(names)
	if err == nil {
		return list, nil
	}
	for _, name := range names {
		if id, _ := registry.Find([]byte(name)); id < 0 {
			if len(registry.Similar(name)) == 0 {
				err = fmt.Errorf("%w%s", err, likeToken(registry, name))
			}
			break
		}
	}
	return nil, err
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
			return oneOf("--"+by.flag, by.value, known)
		}
	}
	return nil
}

// addCountedTokens adds --tokens to the flags of a command that counts.
func addCountedTokens(flags *pflag.FlagSet, value *string) {
	flags.StringVar(value, "tokens", "",
		"LIST or FILE: count only these tokens, names with commas between them or a file of them, one a line; a file in the registry's form adds its tokens to the registry, as scan --tokens does")
}

// maxTokens bounds a file of tokens, in bytes.
const maxTokens = 1 << 20

// registryOf returns the registry with the tokens of a file.
func registryOf(file string) (*tokens.Registry, error) {
	if file == "" {
		return tokens.Default(), nil
	}
	text, err := inputs.ReadText(context.Background(), file, false, maxTokens+1)
	if err != nil {
		return nil, usagef("--tokens: cannot read %s: %w", clipped(file), options.Why(err))
	}
	registry, err := tokens.Load(bytes.NewReader(text))
	if err != nil {
		return nil, usagef("--tokens %s: %w", file, err)
	}
	return registry, nil
}

// countedTokens reads --tokens of a command that counts: the registry, and the tokens that count; nil is all.
func countedTokens(value string) (*tokens.Registry, []string, error) {
	if value == "" {
		return tokens.Default(), nil, nil
	}
	from, names := "--tokens", strings.Split(value, ",")
	if info, err := os.Stat(value); err == nil && !info.IsDir() {
		text, err := inputs.ReadText(context.Background(), value, false, maxTokens+1)
		switch {
		case err != nil:
			return nil, nil, usagef("--tokens: cannot read %s: %w", clipped(value), options.Why(err))
		case len(text) > maxTokens:
			return nil, nil, usagef("--tokens: %s is longer than %d bytes", clipped(value), maxTokens)
		}
		var isList bool
		if names, isList = tokens.Names(string(text)); !isList {
			registry, err := registryOf(value)
			return registry, nil, err
		}
		from += " " + clipped(value)
	} else if strings.ContainsAny(value, `/\`) || strings.HasSuffix(value, ".txt") {
		return nil, nil, usagef("--tokens: cannot read %s: no such file", clipped(value))
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return nil, nil, usagef("%s: no name in it", from)
	}
	list, err := named(tokens.Default(), names)
	if err != nil {
		return nil, nil, usagef("%s: %w", from, err)
	}
	var only []string
	for i := range list {
		only = append(only, list[i].Name)
	}
	return tokens.Default(), only, nil
}

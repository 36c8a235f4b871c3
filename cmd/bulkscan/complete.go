package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey"
)

// The words that a shell offers after TAB: the scripts of `bulkscan completion` get them from the program itself.

// offered are the values of flags and arguments, by their name.
var offered = map[string]func(c *cobra.Command, args []string) []string{
	"category":    fieldValues(tokens.Category),
	"operator":    fieldValues(tokens.Operator),
	"purpose":     fieldValues(tokens.Purpose),
	"agent":       tokenNames,
	"token":       tokenNames,
	"sensitivity": tokenNames,
	"color":       func(*cobra.Command, []string) []string { return []string{"auto", "always", "never"} },
	"definition":  func(*cobra.Command, []string) []string { return survey.DefinitionNames() },
	"scan-id":     scansAtHand(func(m *commit.Manifest) string { return m.ScanID }),
	"date":        scansAtHand(func(m *commit.Manifest) string { return m.ScanDate }),
}

// addCompletion makes a command offer the values of its flags and arguments.
func addCompletion(c *cobra.Command) {
	for flag, values := range offered {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, options.Offer(values)) // it fails for unknown flags
		}
	}
	for flag, values := range rules.Choices {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, options.Offer(func(*cobra.Command, []string) []string { return values }))
		}
	}
	switch c.Name() {
	case "tokens":
		c.ValidArgsFunction = options.Offer(tokenNames)
	case "man", "help":
		c.ValidArgsFunction = options.Offer(func(c *cobra.Command, args []string) []string {
			if len(args) > 0 {
				return nil
			}
			return slices.DeleteFunc(commandNames(c.Root()), func(name string) bool { return name == "help" }) // it has no page
		})
	case "diff":
		c.ValidArgsFunction = options.InFolder(offered["date"])
	case "history", "summary", "stats", "verify", "compact", "report", "reaudit":
		c.ValidArgsFunction = options.InFolder(func(*cobra.Command, []string) []string { return nil })
	}
}

func fieldValues(field tokens.Field) func(*cobra.Command, []string) []string {
	return func(*cobra.Command, []string) []string { return tokens.Default().Values(field) }
}

func tokenNames(*cobra.Command, []string) []string {
	var names []string
	for _, t := range tokens.Default().Tokens {
		names = append(names, t.Name)
	}
	return names
}

// scansAtHand returns a value of each scan of a dataset: the dataset that the first argument names, that of --out for
// scan, or that in the default folder. For an object store it returns none: TAB makes no network requests.
func scansAtHand(of func(*commit.Manifest) string) func(*cobra.Command, []string) []string {
	return func(c *cobra.Command, args []string) []string {
		place := placeOf(args)
		if out := c.Flags().Lookup("out"); c.Name() == "scan" && out != nil {
			place = out.Value.String()
		}
		if strings.Contains(place, "://") {
			return nil
		}
		st, err := openDataset(place)
		if err != nil {
			return nil
		}
		scans, _ := commit.Scans(context.Background(), st) // damaged ones are left out
		var values []string
		for _, scan := range scans {
			values = append(values, of(scan))
		}
		slices.Sort(values)
		return slices.Compact(values)
	}
}

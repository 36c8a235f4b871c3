package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// The commands that read what is there: summary and stats a dataset, tokens the registry, schema the tables.

func (a *app) summaryCommand() *cobra.Command {
	var scanID string
	var asJSON bool
	c := &cobra.Command{
		Use:   "summary DIR",
		Short: "Print the headline figures of a dataset",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.summarize(c.Context(), args[0], scanID, asJSON)
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: the one that started last)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) summarize(ctx context.Context, dir, scanID string, asJSON bool) error {
	st, scanID, err := openScan(ctx, dir, scanID)
	if err != nil {
		return err
	}
	summary, err := report.Summarize(ctx, st, scanID, report.Options{ToolVersion: toolVersion()})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a, summary)
	}
	return summary.Print(a.stdout)
}

func (a *app) statsCommand() *cobra.Command {
	var scanID, tokenFile string
	c := &cobra.Command{
		Use:   "stats DIR",
		Short: "Compute the statistics tables of a dataset again",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			st, scanID, err := openScan(c.Context(), args[0], scanID)
			if err != nil {
				return err
			}
			registry, err := (&fetchFlags{tokens: tokenFile}).registry()
			if err != nil {
				return err
			}
			return report.Stats(c.Context(), st, scanID, report.Options{Registry: registry, ToolVersion: toolVersion()})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: the one that started last)")
	c.Flags().StringVar(&tokenFile, "tokens", "", "file of further crawler tokens, as the scan had it")
	return c
}

// openScan finds a scan of a dataset: the one named, or the one that started last.
func openScan(ctx context.Context, dir, scanID string) (store.Store, string, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, "", err
	} else if !info.IsDir() {
		return nil, "", usagef("%s is no folder; name the folder that a scan wrote", dir)
	}
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, "", err
	}
	scans, err := sink.Scans(ctx, st)
	if err != nil {
		return nil, "", err
	}
	if len(scans) == 0 {
		return nil, "", fmt.Errorf("no scan in %s; `bulkscan scan LIST -o %s` makes one", dir, dir)
	}
	if scanID == "" {
		return st, scans[len(scans)-1].ScanID, nil
	}
	var ids []string
	for _, scan := range scans {
		if scan.ScanID == scanID {
			return st, scanID, nil
		}
		ids = append(ids, scan.ScanID)
	}
	return nil, "", fmt.Errorf("no scan %s in %s; there are %s", scanID, dir, strings.Join(ids, ", "))
}

// printJSON prints a value as indented JSON, with an escape for whatever a terminal might obey: encoding/json leaves C1
// controls and characters that reverse or hide text as they are.
func printJSON(a *app, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(a.stdout)
	for _, r := range string(text) {
		switch {
		case r == '\n' || isPrint(r):
			_, _ = out.WriteRune(r) // Flush has the error
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(out, "\\u%04x", r)
		}
	}
	_ = out.WriteByte('\n')
	return out.Flush()
}

func (a *app) tokensCommand() *cobra.Command {
	var category, file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "tokens",
		Short: "List the crawler tokens that bulkscan knows",
		Long: `tokens lists the registry: which crawler goes by which product token, who runs it, what for, which other names it
follows, and where that is documented.

--tokens FILE lays rows of your own over it, here and in scan. The file has the form of the built-in one,
audit/tokens/tokens.txt in the source: it explains itself in its first lines.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			registry, err := (&fetchFlags{tokens: file}).registry()
			if err != nil {
				return err
			}
			list := make([]tokens.Token, 0, len(registry.Tokens))
			for _, t := range registry.Tokens {
				if category == "" || strings.EqualFold(t.Category, category) {
					list = append(list, t)
				}
			}
			if asJSON {
				return printJSON(a, tokensAsJSON(list))
			}
			return a.printTokens(list)
		},
	}
	c.Flags().StringVar(&category, "category", "", "only this category: ai, search, seo …")
	c.Flags().StringVar(&file, "tokens", "", "file of further crawler tokens")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
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
	Checked      string   `json:"checked"`
}

func tokensAsJSON(list []tokens.Token) []tokenJSON {
	all := make([]tokenJSON, len(list))
	for i, t := range list {
		all[i] = tokenJSON{
			Token: t.Name, Aliases: append([]string{}, t.Aliases...), Category: t.Category, Purpose: t.Purpose, Operator: t.Operator,
			ProductToken: t.ProductToken, HeedsStar: t.HeedsStar, Fallback: append([]string{}, t.Fallback...), Source: t.Source, Checked: t.Checked,
		}
	}
	return all
}

func (a *app) printTokens(list []tokens.Token) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOKEN\tCATEGORY\tPURPOSE\tOPERATOR\tFOLLOWS\tHEEDS *")
	for _, t := range list {
		heeds := "yes"
		if !t.HeedsStar {
			heeds = "no"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(t.Name), printable(t.Category), printable(t.Purpose), printable(t.Operator), printable(strings.Join(t.Fallback, " ")), heeds)
	}
	return w.Flush()
}

func (a *app) schemaCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "schema",
		Short: "Describe every table and column",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(a, sink.Schema())
			}
			w := bufio.NewWriter(a.stdout)
			if err := sink.WriteSchema(w); err != nil {
				return err
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

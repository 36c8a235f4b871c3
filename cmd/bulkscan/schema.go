package main

import (
	"bufio"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/terminal"
)

// schemaWidth is how wide the description of the tables is: it is read on terminals, and in pagers.
const schemaWidth = 100

func (a *app) schemaCommand() *cobra.Command {
	var asJSON, asMarkdown bool
	var names []string
	for _, table := range schema.Tables() {
		names = append(names, table.Name)
	}
	c := &cobra.Command{
		Use:   "schema [TABLE…]",
		Short: "Describe every table and column",
		Example: `  bulkscan schema
  bulkscan schema sites
  bulkscan schema --json`,
		ValidArgs: names,
		Args:      usageArgs(cobra.ArbitraryArgs),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				if !slices.Contains(names, name) {
					return oneOf("table", name, names)
				}
			}
			if asMarkdown && len(args) > 0 {
				return usagef("--markdown prints all tables; leave %s out", strings.Join(args, " "))
			}
			if asJSON {
				chosen := slices.DeleteFunc(schema.Tables(), func(t schema.Table) bool {
					return len(args) > 0 && !slices.Contains(args, t.Name)
				})
				return terminal.WriteJSON(a.stdout, chosen)
			}
			w := bufio.NewWriter(a.stdout)
			var err error
			if asMarkdown {
				err = schema.WriteMarkdown(w)
			} else {
				err = schema.Print(w, schemaWidth, args...)
			}
			if err != nil {
				return err
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&asMarkdown, "markdown", false, "print all tables as Markdown, which is docs/SCHEMA.md")
	c.MarkFlagsMutuallyExclusive("json", "markdown")
	return c
}

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
)

// ofImport are the flags of scan that import has, too.
var ofImport = []string{
	"out", "fields", "by", "limit", "sample", "dry-run", "scan-id", "vantage", "list-id", "restart", "repair", "tables",
	"part-rows", "part-age", "progress", "log-format", "log-level",
	"quiet", "allow-empty", "no-compact", "no-publish", "max-redirects", "max-body", "tokens", "allow-private",
}

func (a *app) importCommand() *cobra.Command {
	f := &scanFlags{}
	c := &cobra.Command{
		Use:   "import [flags] INPUT…",
		Short: "Judge robots.txt files that were fetched before: nights from bodies and archives",
		Long: `import reads robots.txt files that others have fetched, judges them, and writes a dataset as scan does, with a scan for each
night. It makes no network requests.

Inputs are JSON lines, CSV or Parquet with a file a row, folders (HOST.txt, HOST/robots.txt, RANK-HOST.txt), and web
archives (WARC), plain or compressed; what each is, its content says. A night is a day of the files' dates. Inputs
without any date need --date. Rows that only repeat an earlier file (observed false, unchanged true) are no
observations. docs/archives.md has the columns and all rules. The same command again resumes where it was interrupted.`,
		Example: `  bulkscan import bodies.jsonl.zst -o out
  bulkscan import robots/ --date 2024-07-14 -o out
  bulkscan import crawl.parquet --columns body=robots,host=site -o out
  bulkscan import CC-MAIN-*-robotstxt-*.warc.gz --by crawl -o out`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.scan(c.Context(), f, settings(c.Flags()), args)
		},
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(all)
	f.fetchFlags.add(all)
	f.format = "warc"
	for _, name := range ofImport {
		c.Flags().AddFlag(all.Lookup(name))
	}
	c.Flags().StringVar(&f.date, "date", "",
		"the night of all inputs, YYYY-MM-DD, whatever their dates; required where they have none")
	c.Flags().StringVar(&f.columns, "columns", "",
		"columns by what they hold, where their names are not the usual ones: body=robots,host=site (docs/archives.md)")
	options.AddConfig(c.Flags())
	return c
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/terminal"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	definition string
	filter     countedFilter
	top        int
	out        string
	failOn     string
	files      bool
	paired     bool
	panel      string
	shownAs
}

// failOnChanges is the value of --fail-on.
const failOnChanges = "changes"

func (a *app) diffCommand() *cobra.Command {
	f := &diffFlags{definition: survey.Full, filter: newCountedFilter(), top: defaultTop}
	c := &cobra.Command{
		Use:   "diff DIR FROM TO | diff OLD NEW",
		Short: "Print what changed between two scans",
		Long: `diff compares two scans site by site: which sites began or ceased to block which crawlers, and why; which appeared,
vanished, or could not be seen. With a dataset, FROM and TO are scan ids, or dates. A date means its complete scan
that started last; a date FROM, one by TO's observer and of TO's list if there is one. With two datasets, it compares
the scans that summary prints. It takes no lock.

Only a site with rules in both scans can begin or cease. A site that fails, refuses, or has no file any more is counted
separately; --files adds blocks that appeared or were removed with the file. The cause of a change is the site's
policy, a block that its delivery network manages, or how the file was judged. docs/diff.md describes what counts,
every field of --json, and the columns of -o.

--paired is for two observers of one list: it counts different answers by delivery network, and none as a change.`,
		Example: `  bulkscan diff out 2026-11-20 2026-11-21
  bulkscan diff out 2026-08-01 2026-11-01 --tokens GPTBot,ClaudeBot --definition any
  bulkscan diff out-october out-november --operator OpenAI --json
  bulkscan diff out 2026-11-20 2026-11-21 -o changes --fail-on changes
  bulkscan diff out 20261121-5f3a9c 20261121-77ab01 --paired`,
		Args: usageArgs(cobra.RangeArgs(2, 3)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.diff(ctx, args, f) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.definition, "definition", f.definition, "what counts as blocked: "+
		strings.Join(survey.NamesOverRules(), ", "))
	f.filter.add(flags)
	flags.IntVar(&f.top, "top", f.top, "how many tokens, operators and sites are listed; 0 for all")
	// Not --out: BULKSCAN_OUT is where scans go, and may be the dataset that is read.
	flags.StringVarP(&f.out, "write", "o", "", "folder, or s3://BUCKET/PREFIX, that gets "+diff.ChangesName+" and "+
		diff.ChangedSitesName)
	flags.StringVar(&f.failOn, "fail-on", "", failOnChanges+": exit with 3 if a site began or ceased to block a token")
	flags.StringVar(&f.panel, "panel", "", "list of hosts, in any form that scan reads: only their sites are compared")
	flags.BoolVar(&f.files, "files", false,
		"add blocks that appeared or were removed with the whole file to the lists, -o and --fail-on")
	flags.BoolVar(&f.paired, "paired", false,
		"the scans are of two observers of one list: count other answers, not changes")
	f.add(flags, "print JSON")
	return c
}

// check refuses what cannot be meant.
func (f *diffFlags) check(places []string) error {
	definition, ok := survey.DefinitionNamed(f.definition)
	switch {
	case !ok || !slices.Contains(survey.NamesOverRules(), definition.Name):
		return oneOf("--definition", f.definition, survey.NamesOverRules())
	case f.top < 0:
		return usagef("--top %d: at least 0", f.top)
	case f.panel == "-":
		return usagef("--panel: name a file; standard input cannot be read twice")
	case f.failOn != "" && f.failOn != failOnChanges:
		return usagef("--fail-on %q: %s is the only value", clipped(f.failOn), failOnChanges)
	case f.paired && (f.failOn != "" || f.out != ""):
		return usagef("--paired counts no changes: it goes without --fail-on and -o")
	}
	if f.definition = definition.Name; f.paired {
		f.definition = survey.Full // policies are compared by verdicts, whatever blocks
	}
	if f.out == "" {
		return nil
	}
	if err := checkPlace(f.out); err != nil {
		return usagef("-o: %w", err)
	}
	for _, place := range places {
		if store.Within(f.out, place) {
			return usagef("-o %s is a dataset that is read, or lies within it; changes go to another place", clipped(f.out))
		}
	}
	return nil
}

// diff checks the flags, compares, and shows the result.
func (a *app) diff(ctx context.Context, args []string, f *diffFlags) error {
	places := args
	if len(args) == 3 {
		places = args[:1]
	}
	if err := f.check(places); err != nil {
		return err
	}
	o, err := f.filter.options(a)
	if err != nil {
		return err
	}
	of := diff.Options{Options: o, Definition: f.definition, Selection: f.filter.Selection, Top: f.top,
		Files: f.files}
	if f.out != "" {
		if of.Out, err = openPlace(f.out); err != nil {
			return err
		}
	}
	if f.panel != "" {
		if of.Panel, err = scan.ReadPanel(ctx, f.panel); err != nil {
			return fmt.Errorf("--panel: %w", err)
		}
		if of.Panel.Hosts == 0 {
			return fmt.Errorf("--panel %s has no host", clipped(f.panel))
		}
	}
	from, to, err := a.twoScans(ctx, args)
	if err != nil {
		return err
	}
	if f.paired {
		d, err := diff.Observers(ctx, from, to, of)
		if err != nil {
			return err
		}
		return show(a, f.shownAs, d, terminal.Paired)
	}
	d, err := diff.Scans(ctx, from, to, of)
	if err != nil {
		return err
	}
	if err = show(a, f.shownAs, d, terminal.Diff); err == nil && f.failOn == failOnChanges && d.Changed > 0 {
		return &exitError{code: exitThreshold}
	}
	return err
}

// twoScans finds the scans to compare: two named scans of one dataset, or the default scans of two datasets.
func (a *app) twoScans(ctx context.Context, args []string) (from, to diff.ScanAt, err error) {
	if len(args) == 2 {
		for i, at := range []*diff.ScanAt{&from, &to} {
			st, scans, err := a.openScan(ctx, args[i], scanChoice{})
			if err != nil {
				return from, to, err
			}
			*at = diff.ScanAt{Store: st, ScanID: scans.chosen.ScanID}
		}
		return from, to, nil
	}
	st, scans, err := a.readableScans(ctx, args[0], scanChoice{}, commit.Scans)
	if err != nil {
		return from, to, err
	}
	if len(scans) == 0 {
		return from, to, noScan(args[0])
	}
	earlier, later, err := commit.ChooseTwo(ctx, st, args[0], scans, args[1], args[2])
	if err != nil {
		return from, to, err
	}
	return diff.ScanAt{Store: st, ScanID: earlier.ScanID, Alone: earlier.ScanID == args[1]},
		diff.ScanAt{Store: st, ScanID: later.ScanID, Alone: later.ScanID == args[2]}, nil
}

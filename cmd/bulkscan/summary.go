package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/terminal"
)

// summaryFlags are the flags of summary.
type summaryFlags struct {
	choice     scanChoice
	definition string
	filter     countedFilter
	top        int
	sensitive  string
	sure       survey.Uncertainty
	shownAs
}

// defaultTop is how many tokens are listed.
const defaultTop = 20

func (a *app) summaryCommand() *cobra.Command {
	f := &summaryFlags{definition: survey.Full, filter: newCountedFilter(), top: defaultTop}
	c := &cobra.Command{
		Use:   "summary [DIR]",
		Short: "Print the headline figures of a dataset",
		Long: `summary prints how many sites answered and have rules, which crawlers are blocked most, outcomes, statuses, and what the
check says. DIR is a folder, or s3://BUCKET/PREFIX; without it, bulkscan-out. It counts the committed rows, takes no
lock and writes nothing, so it also works while the scan runs.

--definition says what "blocks" means:
` + definitionHelp() + `
The default is full: it is closest to the plain meaning of the word, whichever crawlers the file names and however it is
written. docs/definitions.md has examples of each, and who uses it. Shares are of the sites that have rules; by
rfc_effective, of the sites that answered. The number of sites that block at least one token grows with the registry:
--tokens fixes the set of tokens.

The dark part of a bar is sites that block the token in a group of its own, the light part sites that block it by the
group of * or of another crawler that it follows. --json has all figures; docs/summary.md describes every field.`,
		Example: `  bulkscan summary out
  bulkscan summary out --definition rfc_effective --purpose training --top 5
  bulkscan summary out --tokens GPTBot,ClaudeBot,CCBot
  bulkscan summary out --sensitivity GPTBot
  bulkscan summary s3://bucket/surveys --date 2026-11-21 --category all
  bulkscan summary out --top 0 --json | jq -r '.blocking.most_blocked[] | [.token, .sites, .share] | @tsv'`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.summary(ctx, placeOf(args), f) })
		},
	}
	f.choice.add(c.Flags())
	c.Flags().StringVar(&f.definition, "definition", f.definition, "what counts as blocked: "+
		strings.Join(survey.DefinitionNames(), ", "))
	f.filter.add(c.Flags())
	c.Flags().IntVar(&f.top, "top", f.top, "how many tokens are listed, those first that most sites block; 0 for all")
	c.Flags().StringVar(&f.sensitive, "sensitivity", "",
		"print instead how the share of sites that block this TOKEN depends on denominators, unseen sites, the unit and the dialect")
	addUncertainty(c.Flags(), &f.sure)
	f.add(c.Flags(), "print JSON")
	return c
}

// addUncertainty adds --least-group and --sample-of.
func addUncertainty(flags *pflag.FlagSet, u *survey.Uncertainty) {
	flags.Int64Var(&u.LeastGroup, "least-group", 0,
		fmt.Sprintf("how many sites a headline, a ranking or an extreme needs (0: %d)", survey.LeastGroup))
	flags.Int64Var(&u.SampleOf, "sample-of", 0,
		"the list is a sample of so many sites: shares have 95 % intervals (0: what scan --sample took is)")
}

func checkUncertainty(u *survey.Uncertainty) error {
	switch {
	case u.LeastGroup < 0:
		return usagef("--least-group %d: at least 0", u.LeastGroup)
	case u.SampleOf < 0:
		return usagef("--sample-of %d: at least 0", u.SampleOf)
	}
	return nil
}

// definitionHelp lists the definitions.
func definitionHelp() string {
	var b strings.Builder
	for _, d := range survey.Definitions() {
		fmt.Fprintf(&b, "  %-14s %s\n", d.Name, d.Question)
	}
	return b.String()
}

// sensitivityOf checks the choices for --sensitivity: the definition, and the token as the registry spells it.
func sensitivityOf(o *survey.Options, definition survey.Definition, token string) (by, name string, err error) {
	if definition.Over != "sites_rules" {
		return "", "", usagef("--sensitivity counts by %s; %s is over other sites",
			strings.Join(survey.NamesOverRules(), ", "), definition.Name)
	}
	list, err := named(o.Registry, []string{token})
	if err != nil {
		return "", "", usagef("--sensitivity: %w", err)
	}
	return definition.Name, list[0].Name, nil
}

// summary checks the flags, counts, and shows the result.
func (a *app) summary(ctx context.Context, dir string, f *summaryFlags) error {
	definition, ok := survey.DefinitionNamed(f.definition)
	switch {
	case !ok:
		return oneOf("--definition", f.definition, survey.DefinitionNames())
	case f.top < 0:
		return usagef("--top %d: at least 0", f.top)
	}
	if err := cmp.Or(f.choice.check(), checkUncertainty(&f.sure)); err != nil {
		return err
	}
	o, err := f.filter.options(a)
	if err != nil {
		return err
	}
	o.Uncertainty = f.sure
	of := summary.Options{Options: o, Definition: definition.Name, Selection: f.filter.Selection, Top: f.top}
	if f.sensitive != "" {
		if f.sure.SampleOf > 0 {
			return usagef("--sample-of: --sensitivity has no intervals; leave one of the two out")
		}
		if of.Definition, f.sensitive, err = sensitivityOf(&o, definition, f.sensitive); err != nil {
			return err
		}
	}
	of.Alone, of.Skip = f.choice.id != "", f.choice.skip
	st, scans, err := a.openScan(ctx, dir, f.choice)
	if err != nil {
		return err
	}
	if f.sensitive != "" {
		s, err := summary.SensitivityOf(ctx, st, scans.chosen.ScanID, f.sensitive, of)
		if err := a.skipped(f.choice.skip, err); err != nil {
			return err
		}
		return show(a, f.shownAs, s, terminal.Sensitivity)
	}
	s, err := summary.Of(ctx, st, scans.chosen.ScanID, of)
	if err := a.skipped(f.choice.skip, err); err != nil {
		return err
	}
	for _, m := range scans.others {
		if !s.Alone && slices.Contains(s.Unit, m.ScanID) {
			continue
		}
		s.OtherScans = append(s.OtherScans, summary.OtherScan{ScanID: m.ScanID, ScanDate: m.ScanDate, State: string(m.State),
			Observer: m.Observer.String()})
	}
	return show(a, f.shownAs, s, terminal.Summary)
}

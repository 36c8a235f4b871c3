package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// historyFlags are the flags of history.
type historyFlags struct {
	rebuild bool
	tokens  string // file of further tokens
	token   string
	shownAs
}

func (a *app) historyCommand() *cobra.Command {
	f := &historyFlags{}
	c := &cobra.Command{
		Use:   "history [DIR [HOST]]",
		Short: "Show what a site's file said, night after night",
		Long: `history shows when the policy of a site changed, and why: by its rules, by a block that a delivery network manages, by
presence or refusal. A change lies between two nights; nights on which nothing was learned are listed. If a scan has
stored the files, a diff shows what changed in them. DIR is a folder, or s3://BUCKET/PREFIX; without it, bulkscan-out.

--token shows one crawler instead: its verdict in each episode, and the lines that decide whether it may fetch /. The
last file of the episode is judged by the registry of this program, or by --tokens. docs/history.md has each field of
--json.

It reads the ledger, DIR/history, which a scan continues at its end. --rebuild derives it again from all published
scans, and from what nightly has kept of pruned nights. The ledger follows archives and one live observer. Another
observer succeeds when the first has no more scans; one that scanned beside it, a week later.`,
		Example: `  bulkscan history out --rebuild
  bulkscan history out www.example.com
  bulkscan history out www.example.com --token GPTBot`,
		Args: usageArgs(cobra.MaximumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.tokens != "" && !f.rebuild && f.token == "":
				return usagef("--tokens: only --rebuild and --token judge bodies")
			case len(args) < 2 && (f.token != "" || f.json):
				return usagef("--token and --json tell of a HOST")
			case len(args) < 2 && !f.rebuild:
				return usagef("name a HOST, or give --rebuild")
			}
			asked, err := f.asked()
			if err != nil {
				return err
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				st, err := openDataset(placeOf(args))
				if err == nil {
					err = scan.CheckVersions(ctx, st)
				}
				if err != nil {
					return err
				}
				if f.rebuild {
					if err := a.rebuildHistory(ctx, st, placeOf(args), asked.Registry); err != nil {
						return err
					}
				}
				if len(args) == 1 {
					return nil
				}
				return a.tellHistory(ctx, st, args, asked, f)
			})
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.rebuild, "rebuild", false, "derive the ledger again from the scans")
	flags.StringVar(&f.token, "token", "", "show how the site treats this crawler: a `NAME` or alias in the registry")
	flags.StringVar(&f.tokens, "tokens", "",
		"with --rebuild and --token: file of further crawler tokens, as the scans had")
	f.add(flags, "print one JSON object per site")
	return c
}

// asked returns the query, with the registry's names.
func (f *historyFlags) asked() (history.Asked, error) {
	registry, err := registryOf(f.tokens)
	if err != nil || f.token == "" {
		return history.Asked{Registry: registry}, err
	}
	list, err := named(registry, []string{f.token})
	if err != nil {
		return history.Asked{}, usagef("--token %w", err)
	}
	return history.Asked{Registry: registry, Token: list[0].Name}, nil
}

func (a *app) rebuildHistory(ctx context.Context, st store.Store, dir string, registry *tokens.Registry) error {
	log := terminal.NewLogger(a.stderr, "auto", "info")
	err := history.Rebuild(ctx, st, scan.HistoryOptions(registry, toolVersion(), log))
	if errors.Is(err, history.ErrNoScan) {
		return noScan(dir)
	}
	if err != nil {
		return err
	}
	return views.Write(ctx, st, nil)
}

func (a *app) tellHistory(ctx context.Context, st store.Store, args []string, asked history.Asked,
	f *historyFlags) error {
	dir := args[0]
	o, err := origin.Parse(args[1])
	if err != nil {
		return usage(err)
	}
	stories, err := history.Stories(ctx, st, o.Host(), asked)
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%s has no history; `bulkscan history %s --rebuild` derives it", clipped(dir), clipped(dir))
	}
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return fmt.Errorf("%s was never observed", clipped(o.Host()))
	}
	if !f.json {
		return terminal.Stories(a.stdout, stories, f.color)
	}
	for i := range stories {
		if err := terminal.WriteJSON(a.stdout, &stories[i]); err != nil {
			return err
		}
	}
	return nil
}

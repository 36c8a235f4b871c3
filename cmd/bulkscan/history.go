package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/terminal"
	"github.com/bulkscan/bulkscan/sink/views"
)

func (a *app) historyCommand() *cobra.Command {
	var rebuild bool
	var tokenFile string
	c := &cobra.Command{
		Use:   "history OUT [HOST]",
		Short: "Tell what a site's file said, night after night",
		Long: `history tells when the policy of a site changed, and why: by its rules, by a block that a delivery network manages, by
presence or refusal. A change lies between two nights; nights on which nothing was learned are named. OUT is a folder, or
s3://BUCKET/PREFIX.

It reads the ledger below OUT/history, which a scan continues at its end. --rebuild derives it anew from all published
scans. The ledger follows archives and one live observer (who asked, from where, how): another one succeeds when that has
no more scans; one that scanned beside it, a week after.`,
		Example: `  bulkscan history out --rebuild
  bulkscan history out www.example.com`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case tokenFile != "" && !rebuild:
				return usagef("--tokens: only --rebuild judges bodies")
			case len(args) == 1 && !rebuild:
				return usagef("name a HOST, or give --rebuild")
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				st, err := openDataset(args[0])
				if err != nil {
					return err
				}
				if rebuild {
					if err := a.rebuildHistory(ctx, st, args[0], tokenFile); err != nil {
						return err
					}
				}
				if len(args) == 1 {
					return nil
				}
				return a.tellHistory(ctx, st, args[0], args[1])
			})
		},
	}
	c.Flags().BoolVar(&rebuild, "rebuild", false, "derive the ledger anew from the scans")
	c.Flags().StringVar(&tokenFile, "tokens", "", "with --rebuild: file of further crawler tokens, as the scans had")
	return c
}

func (a *app) rebuildHistory(ctx context.Context, st store.Store, dir, tokenFile string) error {
	log, err := newLogger(a.stderr, "text", "info")
	if err != nil {
		return err
	}
	registry, err := (&fetchFlags{tokens: tokenFile}).registry()
	if err != nil {
		return err
	}
	err = history.Rebuild(ctx, st, job.HistoryOptions(registry, toolVersion(), log))
	if errors.Is(err, history.ErrNoScan) {
		return noScan(dir)
	}
	if err != nil {
		return err
	}
	return views.Write(ctx, st, nil)
}

func (a *app) tellHistory(ctx context.Context, st store.Store, dir, entry string) error {
	o, err := origin.Parse(entry)
	if err != nil {
		return usage(err)
	}
	stories, err := history.Stories(ctx, st, o.Host())
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%s has no history; `bulkscan history %s --rebuild` derives it", clipped(dir), clipped(dir))
	}
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return fmt.Errorf("%s was never observed", clipped(o.Host()))
	}
	return terminal.Stories(a.stdout, stories)
}

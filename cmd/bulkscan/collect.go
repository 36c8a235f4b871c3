package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// collectFlags are the flags of collect.
type collectFlags struct {
	endBounds

	scanID, tokens       string
	noCompact, noPublish bool
}

func (a *app) collectCommand() *cobra.Command {
	f := &collectFlags{}
	c := &cobra.Command{
		Use:   "collect [OUT]",
		Short: "Make one scan of its shares",
		Long: `collect makes one scan of the shares that the tasks of an array job have written (scan --shard): it checks that all are done,
of the same lists and by the same rules, and that each site was kept once; computes the statistics; and publishes the
scan. OUT is a folder, or s3://BUCKET/PREFIX; without it, bulkscan-out. If shares are missing it names them, with the
command that runs just these. A killed collect is repeated; one that is done does nothing. docs/cluster.md`,
		Example: `  bulkscan collect out
  bulkscan collect s3://bucket/surveys --scan-id slurm-1234 --max-error-rate 0.2`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.collect(ctx, placeOf(args), f) })
		},
	}
	c.Flags().StringVar(&f.scanID, "scan-id", "", "the scan (default: the one in shares that started last)")
	c.Flags().StringVar(&f.tokens, "tokens", "", "the file of further crawler tokens that the shares had")
	c.Flags().BoolVar(&f.noCompact, "no-compact", false, "leave the parts as they are: bulkscan compact merges them")
	c.Flags().BoolVar(&f.noPublish, "no-publish", false, "leave the scan out of index, views and history")
	f.add(c.Flags())
	return c
}

func (a *app) collect(ctx context.Context, dir string, f *collectFlags) error {
	st, scans, err := a.readableScans(ctx, dir, scanChoice{id: f.scanID}, commit.Scans)
	if err != nil {
		return err
	}
	m, err := commit.ChooseShared(dir, scans, f.scanID)
	if err != nil {
		return err
	}
	registry, err := registryOf(f.tokens)
	if err != nil {
		return err
	}
	if registry.Version != m.RegistryVersion {
		return usagef(
			"scan %s was judged by token registry %s, and this one is %s; give the --tokens and the version of bulkscan that the shares had", m.ScanID, terminal.Line(m.RegistryVersion), registry.Version)
	}
	log := terminal.NewLogger(a.stderr, "auto", "info")
	m, err = scan.Collect(ctx, st, m.ScanID, scan.Publishing{Compact: !f.noCompact, NoPublish: f.noPublish,
		AllowEmpty: f.allowEmpty, Registry: registry, ToolVersion: toolVersion(), Log: log})
	if err != nil {
		return err
	}
	log.Info("collected", "scan", m.ScanID, "shares", m.Shares, "sites", m.Counts.Rows, "out", dir)
	return f.judgeCollected(ctx, st, m.ScanID, log)
}

// judgeCollected is judge for a scan whose shares have been collected.
func (b *endBounds) judgeCollected(ctx context.Context, st store.Store, scanID string, log *slog.Logger) error {
	e, err := scan.Collected(ctx, st, scanID)
	if err != nil {
		return err
	}
	return b.judge(e, e.Empty(), e.Answers(), log)
}

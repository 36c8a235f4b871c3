package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/terminal"
)

func (a *app) statsCommand() *cobra.Command {
	var scanID, tokenFile string
	c := &cobra.Command{
		Use:   "stats [DIR]",
		Short: "Compute the statistics tables of a dataset again",
		Long: `stats computes token_stats and record_stats of one scan from its committed rows, and replaces the earlier ones. Those of the
last published scan of a date, observer and list count each site of all these scans once. A scan does this itself when
it is complete; stats is for a scan that was interrupted and will not be resumed, and for other --tokens: with a list
of names, token_stats has only their rows. While the scan is written or compacted it is refused: bulkscan summary
counts at any time, and writes nothing. DIR is a folder, or s3://BUCKET/PREFIX; without it, bulkscan-out.`,
		Example: `  bulkscan stats out
  bulkscan stats out --tokens GPTBot,CCBot`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				o, err := a.reportOptions(tokenFile)
				if err != nil {
					return err
				}
				st, scans, err := a.openScan(ctx, placeOf(args), scanChoice{id: scanID})
				if err != nil {
					return err
				}
				o.Alone = !scans.chosen.Published()
				return computeStats(ctx, st, scans.chosen.ScanID, o)
			})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "",
		"the scan (default: that of the newest date; of several the one that started last)")
	addCountedTokens(c.Flags(), &tokenFile)
	return c
}

// computeStats runs stats.Write under the lock of the statistics.
func computeStats(ctx context.Context, st store.Store, scanID string, o survey.Options) (err error) {
	lock, err := statistics.Lock(ctx, st, scanID)
	if held, ok := errors.AsType[*commit.HeldError](err); ok && held.Holder.Doing == "" {
		return fmt.Errorf("%w; it computes its statistics itself when it is complete, and bulkscan summary counts meanwhile",
			err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := stats.Write(ctx, st, scanID, o); err != nil {
		return err
	}
	if err := method.WriteReadme(ctx, st); !errors.Is(err, store.ErrNotExist) { // no scan is complete
		return err
	}
	return nil
}

// reportOptions reads a dataset with the registry of --tokens, and warns on standard error.
func (a *app) reportOptions(counted string) (survey.Options, error) {
	registry, only, err := countedTokens(counted)
	if err != nil {
		return survey.Options{}, err
	}
	log := terminal.NewLogger(a.stderr, "auto", "info")
	return survey.Options{Registry: registry, Only: only, ToolVersion: toolVersion(), Log: log}, nil
}

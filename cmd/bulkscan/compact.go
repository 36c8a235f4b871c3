package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/terminal"
)

// defaultGrace is how long replaced files stay for readers that have just listed them. Most queries of DuckDB end
// within that time.
const defaultGrace = 2 * time.Second

func (a *app) compactCommand() *cobra.Command {
	var scanID string
	var partMB int64
	var grace time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "compact [DIR]",
		Short: "Merge the small parts of a dataset into large ones",
		Long: `compact merges neighbouring parts of each scan into parts of --part-mb, by copying their pages
as they are: the same rows, in the same order, in the same row groups. DIR is a folder, or s3://BUCKET/PREFIX; without
it, bulkscan-out.

Readers that follow the commit records (every command of bulkscan, views.sql) find every row once at any moment, even
if they listed the parts before. Readers of all files in a folder find the rows of a merged part twice, from the
moment that it appears until the parts that it replaces are deleted: for --grace, and some tenths of a second. A
killed compaction harms nothing; the next one, or the next scan of that id, cleans up. While a scan is written,
compact is refused.`,
		Example: `  bulkscan compact out
  bulkscan compact s3://bucket/surveys --scan-id 20261121-abcdef --grace 5m`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case partMB < 1 || partMB > 1<<20:
				return usagef("--part-mb %d: from 1 to 1048576", partMB)
			case grace < 0:
				return usagef("--grace %v: at least 0s", grace)
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				return a.compact(ctx, placeOf(args), scanID, compact.Options{PartBytes: partMB << 20, Grace: grace}, asJSON)
			})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "only this scan (default: all)")
	c.Flags().Int64Var(&partMB, "part-mb", compact.DefaultPartBytes>>20,
		"size of a merged part at most, in MiB of all its tables together")
	c.Flags().DurationVar(&grace, "grace", defaultGrace, "how long replaced files stay for readers that have listed them")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) compact(ctx context.Context, dir, scanID string, o compact.Options, asJSON bool) error {
	st, ids, err := a.scansOf(ctx, dir, scanID, commit.Scans)
	if err != nil {
		return err
	}
	o.Log = terminal.NewLogger(a.stderr, "auto", "info")
	// All scans are read before any is merged: a command that runs every night should not merge some and leave others.
	for _, id := range ids {
		scan, err := commit.ReadScan(ctx, st, id)
		if err == nil && scan.Lost() != nil {
			err = scan.Lost()
		}
		if err != nil {
			return fmt.Errorf("cannot compact scan %s, and nothing has been changed: %w%s", id, err, othersBy(ids))
		}
	}
	all := []*compact.Result{}
	var errs []error
	for _, id := range ids {
		done, err := compact.Scan(ctx, st, id, o)
		if err != nil {
			if errs = append(errs, err); ctx.Err() != nil {
				break
			}
			continue // the other scans are compacted all the same
		}
		if all = append(all, done); asJSON {
			continue
		}
		if _, err := done.WriteTo(a.stdout); err != nil {
			errs = append(errs, err)
			break
		}
	}
	if len(errs) == 0 || ctx.Err() == nil { // an interruption is reported once
		errs = append(errs, compact.Written(ctx, st))
	}
	if asJSON {
		errs = append(errs, terminal.WriteJSON(a.stdout, all))
	}
	return errors.Join(errs...)
}

// othersBy says how to leave out one scan of several.
func othersBy(ids []string) string {
	if len(ids) == 1 {
		return ""
	}
	return "; --scan-id compacts another one"
}

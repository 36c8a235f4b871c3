package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// What the commands share that read one scan of a dataset, and stats, which is one of them.

func (a *app) statsCommand() *cobra.Command {
	var scanID, tokenFile string
	c := &cobra.Command{
		Use:   "stats DIR",
		Short: "Compute the statistics tables of a dataset again",
		Long: `stats computes token_stats and record_stats of one scan from what is committed, and replaces the ones before. A scan
does this itself when it is complete; stats is for a scan that was interrupted and will not be resumed, for another
--tokens, and for datasets of older versions. While the scan is written or compacted it is refused: bulkscan summary counts
at any time, and writes nothing.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				st, scans, err := a.openScan(ctx, args[0], scanChoice{id: scanID})
				if err != nil {
					return err
				}
				o, err := a.reportOptions(tokenFile)
				if err != nil {
					return err
				}
				return computeStats(ctx, st, scans.chosen.ScanID, o)
			})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: that of the newest date; of several the one that started last)")
	c.Flags().StringVar(&tokenFile, "tokens", "", "file of further crawler tokens, as the scan had it")
	return c
}

// computeStats is report.Stats alone with the scan.
func computeStats(ctx context.Context, st store.Store, scanID string, o report.Options) (err error) {
	lock, err := sink.LockStats(ctx, st, scanID)
	if held, ok := errors.AsType[*sink.HeldError](err); ok && held.Holder.Doing == "" {
		return fmt.Errorf("%w; it computes its statistics itself when it is complete, and bulkscan summary counts meanwhile", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	return report.Stats(ctx, st, scanID, o)
}

// reportOptions reads a dataset with the registry of --tokens, and warns on standard error.
func (a *app) reportOptions(tokenFile string) (report.Options, error) {
	registry, err := (&fetchFlags{tokens: tokenFile}).registry()
	if err != nil {
		return report.Options{}, err
	}
	log, err := newLogger(a.stderr, "text", "info")
	if err != nil {
		return report.Options{}, err
	}
	return report.Options{Registry: registry, ToolVersion: toolVersion(), Log: log}, nil
}

// scanChoice says which scan of a dataset is meant: empty fields do not restrict, and of several it is that of the newest date, as
// latest() in views.sql has it, and of that date the one that started last.
type scanChoice struct{ id, date string }

func (c *scanChoice) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.id, "scan-id", "", "the scan (default: that of the newest date; of several the one that started last)")
	flags.StringVar(&c.date, "date", "", "the scan of this date, YYYY-MM-DD; of several the one that started last")
}

// check refuses, as an error of usage, what is no date.
func (c *scanChoice) check() error {
	if _, err := time.Parse(time.DateOnly, c.date); c.date != "" && err != nil {
		return usagef("--date %q: a date is YYYY-MM-DD", clipped(c.date))
	}
	return nil
}

// found is the scan that is meant, and the others that the dataset has, the latest start last.
type found struct {
	chosen *sink.Manifest
	others []*sink.Manifest
}

// openScan finds a scan of a dataset.
func (a *app) openScan(ctx context.Context, dir string, choice scanChoice) (store.Store, *found, error) {
	st, err := openDataset(dir)
	if err != nil {
		return nil, nil, err
	}
	scans, err := a.readableScans(ctx, st, choice.id)
	if err != nil {
		return nil, nil, err
	}
	if len(scans) == 0 {
		return nil, nil, noScan(dir)
	}
	var known []string
	at := -1
	for i, scan := range scans {
		known = append(known, fmt.Sprintf("%s of %s", scan.ScanID, scan.ScanDate))
		if (choice.id == "" || choice.id == scan.ScanID) && (choice.date == "" || choice.date == scan.ScanDate) &&
			(at < 0 || scan.ScanDate >= scans[at].ScanDate) {
			at = i
		}
	}
	if at < 0 {
		wanted := choice.id
		if choice.date != "" {
			wanted = strings.TrimPrefix(wanted+" of "+choice.date, " ")
		}
		return nil, nil, fmt.Errorf("no scan %s in %s; there are %s", wanted, dir, strings.Join(known, ", "))
	}
	return st, &found{chosen: scans[at], others: slices.Concat(scans[:at], scans[at+1:])}, nil
}

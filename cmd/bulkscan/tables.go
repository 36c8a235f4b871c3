package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// The commands that read what is there: summary and stats of a dataset.

func (a *app) summaryCommand() *cobra.Command {
	var scanID, tokenFile string
	var asJSON bool
	c := &cobra.Command{
		Use:   "summary DIR",
		Short: "Print the headline figures of a dataset",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.reportOptions(tokenFile)
			if err != nil {
				return err
			}
			return a.summarizeBy(c.Context(), args[0], scanID, o, asJSON)
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: the one that started last)")
	c.Flags().StringVar(&tokenFile, "tokens", "", "file of further crawler tokens, as the scan had it")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// summarize prints the summary of a scan that the built-in registry has judged.
func (a *app) summarize(ctx context.Context, dir, scanID string, asJSON bool) error {
	return a.summarizeBy(ctx, dir, scanID, report.Options{ToolVersion: toolVersion()}, asJSON)
}

func (a *app) summarizeBy(ctx context.Context, dir, scanID string, o report.Options, asJSON bool) error {
	st, scanID, err := a.openScan(ctx, dir, scanID)
	if err != nil {
		return err
	}
	summary, err := report.Summarize(ctx, st, scanID, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a, summary)
	}
	return summary.Print(a.stdout)
}

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
				st, scanID, err := a.openScan(ctx, args[0], scanID)
				if err != nil {
					return err
				}
				o, err := a.reportOptions(tokenFile)
				if err != nil {
					return err
				}
				return computeStats(ctx, st, scanID, o)
			})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: the one that started last)")
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

// openScan finds a scan of a dataset: the one named, or the one that started last.
func (a *app) openScan(ctx context.Context, dir, scanID string) (store.Store, string, error) {
	st, err := openDataset(dir)
	if err != nil {
		return nil, "", err
	}
	scans, err := a.readableScans(ctx, st, scanID)
	if err != nil {
		return nil, "", err
	}
	if len(scans) == 0 {
		return nil, "", noScan(dir)
	}
	if scanID == "" {
		return st, scans[len(scans)-1].ScanID, nil
	}
	var ids []string
	for _, scan := range scans {
		if scan.ScanID == scanID {
			return st, scanID, nil
		}
		ids = append(ids, scan.ScanID)
	}
	return nil, "", fmt.Errorf("no scan %s in %s; there are %s", scanID, dir, strings.Join(ids, ", "))
}

// printJSON prints a value as indented JSON, with an escape for whatever a terminal might obey.
func printJSON(a *app, v any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := a.stdout.Write(printable.EscapeJSON(nil, text.String()))
	return err
}

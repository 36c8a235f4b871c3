package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// defaultOut is the dataset of a scan without --out, and of commands without a place.
const defaultOut = "bulkscan-out"

func (a *app) verifyCommand() *cobra.Command {
	var scanID string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Check a dataset against its commit records",
		Long: `verify reads every file of a dataset and checks it against the records: sums of the records, numbers
without gaps, no site in two commits; size, SHA-256 and footer of each file; rows, and the seq of each; totals of
complete scans; the history; and files that no record names. DIR is a folder, or s3://BUCKET/PREFIX;
without it, bulkscan-out.

Each finding is a line: its kind (damaged, leftover of a killed process, newer than this bulkscan knows), the file,
what is wrong, what was expected and what was found. The exit code is 4 if anything is damaged, 0 otherwise. A dataset
that is being written may be verified.`,
		Example: `  bulkscan verify out
  bulkscan verify s3://bucket/surveys --scan-id 20261121-abcdef
  bulkscan verify out --json | jq -r 'select(.kind == "damaged") | .file'`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			st, err := openDataset(placeOf(args))
			if err != nil {
				return err
			}
			return a.verify(c.Context(), st, placeOf(args), scanID, asJSON)
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "only this scan (default: all)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per finding, and one with the totals")
	return c
}

func (a *app) verify(ctx context.Context, st store.Store, dir, scanID string, asJSON bool) error {
	out := bufio.NewWriter(a.stdout)
	object := func(v any) {
		line, _ := json.Marshal(v)                                      // texts and numbers: it cannot fail
		_, _ = out.Write(append(printable.EscapeJSON(nil, line), '\n')) // Flush has the error
	}
	report := func(f verify.Finding) {
		if asJSON {
			object(f)
		} else {
			fmt.Fprintln(out, terminal.Line(f.String()))
		}
		_ = out.Flush() // the next one may be long in coming; the last Flush has the error
	}
	found, err := verify.Dataset(ctx, st, verify.Options{ScanID: scanID, Report: report})
	if err == nil && scanID == "" {
		also := func(f verify.Finding) {
			found.Count(f)
			report(f)
		}
		err = errors.Join(history.Verify(ctx, st, also), nightly.Verify(ctx, st, also))
	}
	if errors.Is(err, store.ErrNotExist) && scanID != "" {
		err = noSuchScan(scanID, dir)
	}
	if err != nil {
		return errors.Join(err, out.Flush())
	}
	if found.Scans == 0 && found.Damaged == 0 {
		return errors.Join(noScan(dir), out.Flush())
	}
	if asJSON {
		object(found)
	} else {
		fmt.Fprintf(out, "%d scans, %d parts, %d files, %d rows, %.1f MB: %d damaged, %d leftovers",
			found.Scans, found.Parts, found.Files, found.Rows, float64(found.Bytes)/1e6, found.Damaged, found.Leftovers)
		if found.Newer > 0 {
			fmt.Fprintf(out, ", %d newer", found.Newer)
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if found.Damaged > 0 {
		damage := fmt.Sprintf("%s is damaged: %d findings", clipped(dir), found.Damaged)
		return &exitError{exitDamaged, errors.New(strings.Join(append([]string{damage}, found.Remedies...), "; "))}
	}
	return nil
}

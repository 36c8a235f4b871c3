package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/terminal"
	"github.com/bulkscan/bulkscan/sink"
)

// defaultOut is where a scan writes, and where the commands look that may be called without a place.
const defaultOut = "bulkscan-out"

func (a *app) verifyCommand() *cobra.Command {
	var scanID string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify [OUT]",
		Short: "Hold a dataset against its commit records",
		Long: `verify reads every file of a dataset and holds it against what its records say: sums of the records, numbers
without gaps, no site in two commits; size, SHA-256, footer, and the length and checksum of each page; rows, and the seq
of each; totals of complete scans; and what lies there that no record names. OUT is a folder, or s3://BUCKET/PREFIX;
without it, bulkscan-out.

Each finding is a line: its kind (damaged, leftover of a killed process, unsummed by an older version, misleading for other
readers as an older version wrote it, newer than this bulkscan knows), the file, what is wrong, what was expected and what was found. The exit code is 4 if anything is damaged, 0 otherwise. A dataset that is
being written may be verified.`,
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
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a finding, and one with the totals")
	return c
}

func (a *app) verify(ctx context.Context, st store.Store, dir, scanID string, asJSON bool) error {
	out := bufio.NewWriter(a.stdout)
	object := func(v any) {
		line, _ := json.Marshal(v)                                      // texts and numbers: it cannot fail
		_, _ = out.Write(append(printable.EscapeJSON(nil, line), '\n')) // Flush has the error
	}
	found, err := sink.Verify(ctx, st, sink.VerifyOptions{ScanID: scanID, Report: func(f sink.Finding) {
		if asJSON {
			object(f)
		} else {
			fmt.Fprintln(out, terminal.Line(f.String()))
		}
		_ = out.Flush() // the next one may be long in coming; the last Flush has the error
	}})
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
		fmt.Fprintf(out, "%d scans, %d parts, %d files, %d rows, %.1f MB: %d damaged, %d leftovers, %d unsummed, %d misleading",
			found.Scans, found.Parts, found.Files, found.Rows, float64(found.Bytes)/1e6, found.Damaged, found.Leftovers, found.Unsummed, found.Misleading)
		if found.Newer > 0 {
			fmt.Fprintf(out, ", %d newer", found.Newer)
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if found.Damaged > 0 {
		return &exitError{exitDamaged, fmt.Errorf("%s is damaged: %d findings", clipped(dir), found.Damaged)}
	}
	return nil
}

// placeOf is where the dataset is: as given, or where a scan writes by default.
func placeOf(args []string) string {
	if len(args) == 0 {
		return defaultOut
	}
	return args[0]
}

// noScan is the error of a dataset that is none.
func noScan(dir string) error {
	return fmt.Errorf("no scan in %s; `bulkscan scan LIST -o %s` makes one", clipped(dir), clipped(dir))
}

// noSuchScan is the error of a scan that a dataset does not have.
func noSuchScan(scanID, dir string) error {
	return fmt.Errorf("no scan %s in %s", clipped(scanID), clipped(dir))
}

// scansOf opens a dataset and returns which of its scans a command is for: the one named, or all. Those whose manifest
// is damaged are named on standard error, and left out.
func (a *app) scansOf(ctx context.Context, dir, scanID string) (store.Store, []string, error) {
	st, err := openDataset(dir)
	if err != nil {
		return nil, nil, err
	}
	scans, err := a.readableScans(ctx, st, scanID)
	if err != nil {
		return nil, nil, err
	}
	var ids []string
	for _, scan := range scans {
		ids = append(ids, scan.ScanID)
	}
	switch {
	case scanID != "" && slices.Contains(ids, scanID):
		return st, []string{scanID}, nil
	case scanID != "":
		return nil, nil, noSuchScan(scanID, dir)
	case len(ids) == 0:
		return nil, nil, noScan(dir)
	}
	return st, ids, nil
}

// readableScans reads the manifests of a dataset. One that is damaged is an error where it is the one that is asked for,
// or where no other can be read; else it is named on standard error, and the others are returned. One of a later version is left
// out only where another is asked for by its name: which one is meant, or whether all are, nobody knows otherwise.
func (a *app) readableScans(ctx context.Context, st store.Store, scanID string) ([]*sink.Manifest, error) {
	scans, err := sink.Scans(ctx, st)
	damaged, ok := errors.AsType[*sink.DamagedScansError](err)
	if !ok {
		return scans, err
	}
	for _, s := range damaged.Scans {
		_, newer := errors.AsType[*sink.NewerError](s.Err)
		switch {
		case s.ScanID == scanID:
			return nil, s.Err
		case newer && scanID == "":
			return nil, fmt.Errorf("%w; --scan-id names another scan", s.Err)
		}
	}
	if len(scans) == 0 {
		return nil, err
	}
	for _, s := range damaged.Scans {
		fmt.Fprintf(a.stderr, "bulkscan: left out: %s; see bulkscan verify\n", terminal.Line(s.Err.Error()))
	}
	return scans, nil
}

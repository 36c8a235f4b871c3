package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// statusFlags are the flags of status.
type statusFlags struct {
	scanID string
	shownAs
}

func (a *app) statusCommand() *cobra.Command {
	f := &statusFlags{}
	c := &cobra.Command{
		Use:   "status [OUT]",
		Short: "List the scans and nights of a dataset",
		Long: `status lists every scan and night of a dataset by date: its state, sites, the size of its files, whether readers find it
(published, or why not), what of it was pruned, list and observer. OUT is a folder, or s3://BUCKET/PREFIX; without it,
bulkscan-out. What cannot be read is listed as damaged, and the exit code is 4; bulkscan verify checks every byte.

Below are the shares of scans that the tasks of an array job write (scan --shard), until they are collected: waiting,
running, silent (running without a report for minutes; the process may have been killed), interrupted, failed, done.
On a terminal it then runs until all are done; Ctrl-C ends it. Each task reports every half minute; "no sign for 50s"
means that a report is overdue. With --scan-id only that scan is shown, and its shares also once they are collected.`,
		Example: `  bulkscan status out
  bulkscan status out --json | jq -r 'select(.publication == "held") | .scan_date'
  bulkscan status s3://bucket/surveys --json | jq '.shares[]? | select(.state == "failed")'`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.status(ctx, placeOf(args), f) })
		},
	}
	c.Flags().StringVar(&f.scanID, "scan-id", "", "only this scan (default: all)")
	f.add(c.Flags(), "print one JSON object per scan or night")
	return c
}

// statusInterval is how often status looks at shares on a terminal.
const statusInterval = 5 * time.Second

// scanStatus is what status prints of a scan or night as JSON. If the entry and the shares have a field of the same
// name, JSON has the entry's, since the shares are nested deeper.
type scanStatus struct {
	*nightly.Entry
	inShares
}

type inShares struct{ *shares.Status } // nil if the scan has no shares, or is collected

func (a *app) status(ctx context.Context, dir string, f *statusFlags) error {
	st, err := openDataset(dir)
	if err != nil {
		return err
	}
	list, err := nightly.Listing(ctx, st)
	if err != nil {
		return err
	}
	if f.scanID != "" {
		list = slices.DeleteFunc(list, func(e *nightly.Entry) bool { return e.ScanID != f.scanID })
	}
	switch {
	case len(list) == 0 && f.scanID != "":
		return noSuchScan(f.scanID, dir)
	case len(list) == 0:
		return noScan(dir)
	}
	live := !f.json && terminal.Is(a.stdout)
	for {
		waits, err := a.showStatus(ctx, st, list, f, live)
		if err != nil {
			return err
		}
		if !live || !waits {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(statusInterval):
		}
	}
	if slices.ContainsFunc(list, func(e *nightly.Entry) bool { return e.State == nightly.Damaged }) {
		return &exitError{exitDamaged, fmt.Errorf("%s is damaged: see bulkscan verify", clipped(dir))}
	}
	return nil
}

// showStatus prints scans, and reports whether some wait for shares.
func (a *app) showStatus(ctx context.Context, st store.Store, list []*nightly.Entry, f *statusFlags,
	live bool) (waits bool, err error) {
	var below strings.Builder
	var damaged error
	now := time.Now()
	for _, e := range list {
		of := scanStatus{Entry: e}
		if m := e.Manifest; m != nil && m.Shares > 0 && (f.scanID != "" || m.Uncollected()) {
			records, err := commit.Shares(ctx, st, m)
			if errors.Is(err, commit.ErrRecord) {
				damaged = errors.Join(damaged, err)
			} else if err != nil {
				return false, err
			}
			of.Status = shares.StatusOf(m, records, now)
			e.Sites = of.Status.Sites
			waits = waits || of.Count[string(commit.ShareDone)] < m.Shares
			below.WriteByte('\n')
			if err := terminal.Shares(&below, of.Status, now); err != nil {
				return false, err
			}
		}
		if f.json {
			if err := terminal.WriteJSON(a.stdout, of); err != nil {
				return false, err
			}
		}
	}
	if f.json {
		return false, damaged
	}
	if live && waits {
		fmt.Fprint(a.stdout, "\x1b[H\x1b[2J") // from the top of an empty screen
	}
	if err := terminal.Scans(a.stdout, list, f.color); err != nil {
		return false, err
	}
	_, err = io.WriteString(a.stdout, below.String())
	return waits, errors.Join(err, damaged)
}

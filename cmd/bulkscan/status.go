package main

import (
	"context"
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
	json   bool
	color  terminal.Color
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
running, silent (running without a report for minutes; the process may have been killed), interrupted, failed, done. On a
terminal it then runs until all are done; Ctrl-C ends it. Each task reports every half minute; "no sign for 50s" means that
a report is overdue. With --scan-id only that scan is shown, and its shares also once they are collected.`,
		Example: `  bulkscan status out
  bulkscan status out --json | jq -r 'select(.publication == "held") | .scan_date'
  bulkscan status s3://bucket/surveys --json | jq '.shares[]? | select(.state == "failed")'`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.status(ctx, placeOf(args), f) })
		},
	}
	c.Flags().StringVar(&f.scanID, "scan-id", "", "only this scan (default: all)")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object per scan or night")
	addColor(c.Flags(), &f.color)
	return c
}

const (
	statusInterval = 5 * time.Second // how often status looks at shares on a terminal
	shownLive      = 10              // scans that it lists above them meanwhile
)

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
	case f.json:
		err = a.statusJSON(ctx, st, list, f)
	default:
		err = a.statusPage(ctx, st, list, f)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(e *nightly.Entry) bool { return e.State == nightly.Damaged }) {
		return &exitError{exitDamaged, fmt.Errorf("%s is damaged: see bulkscan verify", clipped(dir))}
	}
	return nil
}

// sharesOf says how far the shares of a scan are; nil if it has none to show.
func (f *statusFlags) sharesOf(ctx context.Context, st store.Store, e *nightly.Entry, now time.Time) (*shares.Status, error) {
	if m := e.Manifest; m == nil || m.Shares == 0 || f.scanID == "" && !m.Uncollected() {
		return nil, nil
	}
	m, err := commit.ReadManifest(ctx, st, e.ScanID) // it may have been collected since it was listed
	if err != nil {
		return nil, err
	}
	records, err := commit.Shares(ctx, st, e.ScanID)
	if err != nil {
		return nil, err
	}
	return shares.StatusOf(m, records, now), nil
}

func (a *app) statusJSON(ctx context.Context, st store.Store, list []*nightly.Entry, f *statusFlags) error {
	type inShares struct{ *shares.Status } // deeper than the entry, whose fields win
	for _, e := range list {
		s, err := f.sharesOf(ctx, st, e, time.Now())
		if err != nil {
			return err
		}
		if s != nil {
			e.Sites = s.Sites
		}
		if err := terminal.WriteJSON(a.stdout, struct {
			*nightly.Entry
			inShares
		}{e, inShares{s}}); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) statusPage(ctx context.Context, st store.Store, list []*nightly.Entry, f *statusFlags) error {
	live := terminal.Is(a.stdout)
	for {
		var below strings.Builder
		waits, now := false, time.Now()
		for _, e := range list {
			s, err := f.sharesOf(ctx, st, e, now)
			if err != nil {
				return err
			}
			if s == nil {
				continue
			}
			below.WriteByte('\n')
			if err := terminal.Shares(&below, s, now); err != nil {
				return err
			}
			waits = waits || s.Count[string(commit.ShareDone)] < len(s.Shares)
		}
		live = live && waits
		rows := scanRows(list)
		if live {
			fmt.Fprint(a.stdout, "\x1b[H\x1b[2J") // from the top of an empty screen
			rows = rows[max(0, len(rows)-shownLive):]
		}
		if err := terminal.Scans(a.stdout, rows, f.color); err != nil {
			return err
		}
		if _, err := io.WriteString(a.stdout, below.String()); err != nil || !live {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(statusInterval):
		}
	}
}

func scanRows(list []*nightly.Entry) (rows []terminal.ScanRow) {
	for _, e := range list {
		row := terminal.ScanRow{
			Date: e.Date, ScanID: e.ScanID, State: e.State, Observer: e.Observer, List: e.ListID, Sites: e.Sites, Bytes: e.Bytes, Note: e.Note,
			Published: string(e.Publication), Pruned: strings.Join(e.Pruned, ", "),
		}
		switch e.Publication {
		case commit.PublicationDone:
			row.Published = "yes"
		case commit.PublicationPending:
			row.Published = "no"
		}
		if len(e.Pruned) > 0 && len(e.Tables) == 0 {
			row.Pruned = "all"
		}
		rows = append(rows, row)
	}
	return rows
}

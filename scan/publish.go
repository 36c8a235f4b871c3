package scan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// Publishing says how a complete scan is published.
type Publishing struct {
	Compact     bool // merge its parts first
	NoPublish   bool // Collect keeps the scan out of index, views and history
	AllowEmpty  bool // Collect publishes the scan also if it has no site, or if none answered
	Registry    *tokens.Registry
	ToolVersion string
	Quiet       bool // no word about a scan that stays unpublished
	Log         *slog.Logger

	// Pages is called once the history has the scan, before readers get it; may be nil.
	Pages func(ctx context.Context) error
}

// Publish publishes a complete scan: it merges the scan's parts, adds the scan to the history, merges the statistics of
// past months, and writes the views and the README. Everything except the parts is derived from the published scans. So
// the next scan's Publish does what a killed process left undone. For a scan that is not published, Publish only merges
// parts.
//
// An error does not harm the scan. Every step is tried, unless the context ends.
func Publish(ctx context.Context, st store.Store, scanID string, o Publishing) error {
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return unpublished(scanID, err)
	}
	if o.Compact && m.Counts != nil && m.Counts.Parts > 1 {
		if _, err := compact.Scan(ctx, st, scanID, compact.Options{Log: o.Log}); err != nil {
			if ctx.Err() != nil {
				return unpublished(scanID, err)
			}
			o.Log.Warn("the parts of the scan were not merged", "scan", scanID, "error", err, "remedy",
				"bulkscan compact merges them")
		}
	}
	if !m.Published() && !m.Waits() {
		remedy := "the same command without --no-publish publishes it"
		if m.Publication != commit.PublicationPending {
			remedy = "bulkscan nightly --release " + m.ScanDate + " publishes it"
		}
		if o.Quiet || m.Publication == commit.PublicationEmpty { // the error of the command says why
			return nil
		}
		o.Log.Info("the scan is complete, and not published: readers do not find it", "scan", scanID, "publication",
			m.Publication, "remedy", remedy)
		return nil
	}
	err = mergeHistory(ctx, st, m, o)
	if o.Pages != nil {
		err = errors.Join(err, o.Pages(ctx))
	}
	if err = errors.Join(err, derive(ctx, st, o)); err != nil {
		return unpublished(scanID, err)
	}
	return nil
}

// derive updates the files that readers open, except the history.
func derive(ctx context.Context, st store.Store, o Publishing) error {
	err := index.Update(ctx, st)
	if statsErr := stats.WriteUnits(ctx, st, survey.Options{Registry: o.Registry, ToolVersion: o.ToolVersion,
		Log: o.Log}); statsErr != nil {
		o.Log.Warn("statistics are not of all scans of a date, observer and list", "error", statsErr, "remedy",
			"the next scan computes them again; bulkscan stats does, too")
	}
	if monthsErr := index.RollUp(ctx, st, o.ToolVersion); monthsErr != nil {
		o.Log.Warn("statistics of past months were not merged; readers take those of each scan", "error", monthsErr)
	}
	err = errors.Join(err, views.Write(ctx, st, o.Registry))
	if readmeErr := method.WriteReadme(ctx, st); readmeErr != nil {
		o.Log.Warn("the dataset's README was not written", "error", readmeErr, "remedy", "bulkscan stats writes it")
	}
	return err
}

// Release publishes a scan that is pending, held or discarded. For a published scan it repeats steps that a killed
// process may have left undone.
func Release(ctx context.Context, st store.Store, scanID string, o Publishing) error {
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return err
	}
	pruned, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return err
	}
	if m.ScanDate <= pruned.Through && !m.Published() {
		return fmt.Errorf(
			"scan %s is not published: the nights up to %s were pruned, and the history cannot take in an earlier one; bulkscan nightly --discard %s lets it go, too", scanID, pruned.Through, m.ScanDate)
	}
	if err := commit.SetPublication(ctx, st, o.Log, scanID, commit.PublicationDone); err != nil {
		return err
	}
	return Publish(ctx, st, scanID, o)
}

// Withdraw takes a published scan back from readers, also one whose data is lost; the head keeps the reason. The scan
// stays in the dataset, as discarded.
func Withdraw(ctx context.Context, st store.Store, scanID, why string, o Publishing) error {
	if err := commit.Withdraw(ctx, st, o.Log, scanID, why); err != nil {
		return err
	}
	_, err := history.Update(ctx, st, HistoryOptions(o.Registry, o.ToolVersion, o.Log))
	return errors.Join(err, derive(ctx, st, o))
}

// unpublished is the error of a scan that is complete and was not published, or not everywhere.
func unpublished(scanID string, err error) error {
	return fmt.Errorf("scan %s is complete, but was not published in full (the next scan publishes it, too): %w", scanID,
		err)
}

// mergeHistory merges the scan into the history, and earlier ones that it lacks.
func mergeHistory(ctx context.Context, st store.Store, m *commit.Manifest, o Publishing) error {
	updated, err := history.Update(ctx, st, HistoryOptions(o.Registry, o.ToolVersion, o.Log))
	if err != nil {
		return err
	}
	if updated.Again {
		o.Log.Info(
			"nights were merged into the history again: a scan came before the last one or has changed, or the registry or the check has")
	}
	if m.ScanDate <= updated.Pruned && !updated.Has(m.ScanID) {
		return fmt.Errorf("the nights up to %s were pruned, and the history cannot take in an earlier one", updated.Pruned)
	}
	if !updated.Has(m.ScanID) && slices.Contains(m.Tables, schema.Sites) {
		o.Log.Info("the history follows another observer, and the scan stays outside it", "scan", m.ScanID, "observer",
			updated.Observer)
	}
	return nil
}

// HistoryOptions are those of every merge: bodies are judged again by the registry at hand, and each night is logged.
func HistoryOptions(registry *tokens.Registry, toolVersion string, log *slog.Logger) history.Options {
	return history.Options{ToolVersion: toolVersion, Log: log, Rejudge: history.RejudgeBy(registry),
		Progress: func(m history.Merged) {
			log.Info("night merged into the history", "date", m.Date, "observed", m.Observations, "causes", m.Causes, "gaps",
				m.Gaps, "archive_disagreements", m.Disagree)
		}}
}

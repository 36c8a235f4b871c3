package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/reaudit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/terminal"
)

// reauditFlags are the flags of reaudit.
type reauditFlags struct {
	out, scanID         string
	tokens              string
	restart             bool
	asJSON              bool
	progress            string
	logFormat, logLevel string
}

func (a *app) reauditCommand() *cobra.Command {
	f := &reauditFlags{}
	c := &cobra.Command{
		Use:   "reaudit DIR -o DIR",
		Short: "Re-evaluate stored files offline, and report differences",
		Long: `reaudit reads the stored bodies of a dataset, judges them with today's rules and today's registry of crawler tokens, and
writes a new dataset: the same scans, dates, parts and rows. Fetched facts stay, judged columns are made
again. It makes no network requests. Both places are folders, or s3://BUCKET/PREFIX.

In the end it says how many sites were judged again, and in how many of them which columns differ from the stored ones.
A site whose body was not stored (HTML, no records, --tables without bodies)
keeps its judgement and its registry_version; such sites are counted by reason.

Only committed parts are read, also of a running scan. The same command resumes where it was interrupted. A
part that is damaged is named and left out, and the exit code is 4.`,
		Example: `  bulkscan reaudit out -o again
  bulkscan reaudit s3://bucket/2026 -o s3://bucket/2026-again --tokens our-crawlers.json
  bulkscan reaudit out -o again --scan-id 20261121-abcdef --json`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return err
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.reaudit(ctx, args[0], f) })
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.out, "out", "o", "", "folder of the dataset that is made, or s3://BUCKET/PREFIX")
	flags.StringVar(&f.scanID, "scan-id", "", "only this scan (default: all)")
	flags.StringVar(&f.tokens, "tokens", "", "file of further crawler tokens (format: bulkscan tokens --help)")
	flags.BoolVar(&f.restart, "restart", false, "delete what has been made of these scans, and begin anew")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.StringVar(&f.progress, "progress", "auto", "auto, bar, log or none")
	flags.StringVar(&f.logFormat, "log-format", "auto",
		"auto, text or json; auto is sentences on a terminal, and text elsewhere")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// check refuses what cannot be meant.
func (f *reauditFlags) check(dir string) error {
	if f.out == "" {
		return usagef("-o: name the folder of the dataset that is made, or s3://BUCKET/PREFIX")
	}
	if err := checkPlace(f.out); err != nil {
		return usagef("-o: %w", err)
	}
	if store.Within(f.out, dir) {
		return usagef("-o %s is the dataset that is read, or lies within it; what is judged again goes to another place",
			clipped(f.out))
	}
	if f.scanID != "" {
		if err := commit.CheckScanID(f.scanID); err != nil {
			return usagef("--scan-id: %w", err)
		}
	}
	return nil
}

// reaudited is what --json prints of a scan.
type reaudited struct {
	ScanID string           `json:"scan_id"`
	From   reauditedBy      `json:"from"`
	To     reauditedBy      `json:"to"`
	Came   *commit.Rejudged `json:"came"`
}

// reauditedBy identifies the program and the registry that judged.
type reauditedBy struct {
	ToolVersion     string `json:"tool_version"`
	RegistryVersion string `json:"registry_version"`
}

func (a *app) reaudit(ctx context.Context, dir string, f *reauditFlags) error {
	log := terminal.NewLogger(terminal.BesideBar(a.stderr, f.progress), f.logFormat, f.logLevel)
	registry, err := registryOf(f.tokens)
	if err != nil {
		return err
	}
	from, ids, err := a.scansOf(ctx, dir, f.scanID, commit.StoredScans)
	if err != nil {
		return err
	}
	to, err := openPlace(f.out)
	if err == nil {
		err = scan.CheckVersions(ctx, to)
	}
	if err != nil {
		return err
	}
	all := []reaudited{}
	var errs []error
	for _, id := range ids {
		done, err := a.reauditScan(ctx, from, to, id, f, registry, log)
		if done != nil {
			if all = append(all, *done); !f.asJSON {
				if err := reaudit.Print(a.stdout, done.Came, id); err != nil {
					return err
				}
			}
		}
		if err != nil {
			errs = append(errs, err) // the other scans are judged all the same
		}
		if ctx.Err() != nil {
			log.Info("interrupted; what was committed is kept, and the same command goes on", "scan", id)
			break
		}
	}
	if f.asJSON {
		errs = append(errs, terminal.WriteJSON(a.stdout, all))
	}
	return errors.Join(errs...)
}

// keptBytes bounds the kept files in memory.
const keptBytes = 256 << 20

// reauditScan judges one scan again, and computes its statistics.
func (a *app) reauditScan(ctx context.Context, from, to store.Store, id string, f *reauditFlags,
	registry *tokens.Registry, log *slog.Logger) (*reaudited, error) {
	source, err := commit.ReadStoredScan(ctx, from, id)
	if err != nil {
		return nil, err
	}
	m := source.Manifest
	if m.State != commit.Complete {
		log.Warn("the scan is not complete: what is committed is judged again", "scan", id)
	}
	var kept map[int64][]byte
	switch {
	case slices.Contains(m.Pruned, schema.Bodies):
		log.Warn(
			"the stored files of the scan were pruned: a site is judged again if the history keeps its file, the others keep their judgement", "scan", id)
		var left int64
		if kept, left, err = history.KeptBodies(ctx, from, keptBytes); err != nil {
			return nil, err
		}
		if left > 0 {
			log.Warn("the history keeps more files than fit into memory: sites whose file is left out keep their judgement",
				"scan", id, "files", len(kept), "left_out", left)
		}
	case !source.Has(schema.Bodies):
		log.Warn("the scan was written without bodies: answers that had one keep their judgement", "scan", id)
	}
	if m.SchemaVersion < schema.Version {
		log.Warn("the scan is of an earlier schema version: sites that keep their judgement have no value in later columns",
			"scan", id, "schema_version", m.SchemaVersion, "now", schema.Version)
	}
	var done, total atomic.Int64
	begun := time.Now()
	shown, hide := context.WithCancel(context.WithoutCancel(ctx))
	var drawn sync.WaitGroup
	drawn.Go(func() {
		terminal.ShowCount(shown, f.progress, "sites", a.stderr, log, func() (int64, int64) {
			return done.Load(), total.Load()
		})
	})
	came, err := reaudit.Scan(ctx, source, to, reaudit.Options{
		Judge: audit.New(registry).Judge, Registry: registry, ToolVersion: toolVersion(), Restart: f.restart,
		Opened: func(left int64) {
			total.Store(left)
			log.Info("judging again", "scan", id, "sites", left, "already_kept", commit.CountCommits(source.Commits).Rows-left, "out", f.out)
		},
		Done: &done, Kept: kept, Log: log,
		Finish: func(ctx context.Context) error {
			err := stats.Write(ctx, to, id, survey.Options{Registry: registry, ToolVersion: toolVersion(), Log: log})
			if errors.Is(err, commit.ErrNoTable) {
				return nil
			}
			return err
		},
	})
	hide()
	drawn.Wait()
	if err == nil && m.State == commit.Complete {
		err = scan.Publish(ctx, to, id, scan.Publishing{Registry: registry, ToolVersion: toolVersion(), Log: log})
	}
	if came == nil {
		return nil, reauditError(err, id, f.out)
	}
	took := time.Since(begun)
	log.Info("done", "scan", id, "judged", came.Judged(), "kept_their_judgement", came.Stayed(), "sites_differ",
		came.Sites,
		"took", took.Round(time.Millisecond), "per_second", int(float64(done.Load())/took.Seconds()), "peak_memory_mb",
		limits.PeakMemory()>>20)
	return &reaudited{
		ScanID: id, Came: came,
		From: reauditedBy{m.ToolVersion, m.RegistryVersion}, To: reauditedBy{toolVersion(), registry.Version},
	}, reauditError(err, id, f.out)
}

// reauditError adds to an error what the user can do about it.
func reauditError(err error, id, out string) error {
	if changed, ok := errors.AsType[*commit.ChangedError](err); ok {
		return fmt.Errorf(
			"cannot go on with scan %s in %s: %s was %.100q and is now %.100q; begin it anew with --restart, or give another -o",
			id, clipped(out), changed.What, changed.Was, changed.Now)
	}
	if _, ok := errors.AsType[*reaudit.DamagedPartError](err); ok {
		return &exitError{exitDamaged,
			errors.Join(err,
				fmt.Errorf("scan %s: what is damaged is left out, and all else has been judged again (see bulkscan verify)", id))}
	}
	if held, ok := errors.AsType[*commit.HeldError](err); ok {
		who := "another process"
		if held.Holder != (commit.Holder{}) { // else the holder may not have written its name yet
			who = fmt.Sprintf("process %d on %.100q", held.Holder.PID, held.Holder.Host)
		}
		return fmt.Errorf("in %s, scan %s is being written by %s; wait for it, or give another -o", clipped(out), id, who)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// A scan in shares: each is written by a task of an array job, by the command `scan --shard`.

// shareFlags are the flags of scan that say which share it writes.
type shareFlags struct {
	shardText string
	workers   int
	collect   bool

	share shares.Share // after shard
}

func (f *shareFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.shardText, "shard", "",
		"scan only share I of N, as in 0/8, by registrable domains; auto: the one that Slurm, Kubernetes, AWS Batch, Cloud Run or Google Batch wants of this task (docs/cluster.md)")
	flags.IntVar(&f.workers, "workers", 0,
		"how many shares run at once: --ip-rate, --rate and --dns-rate are divided by it (default: the number of shares)")
	flags.BoolVar(&f.collect, "collect", false, "after the last share, make one scan of all, as bulkscan collect does")
}

// checkShare refuses flags that do not go together with --shard. It reads which share this is, unless the engine says
// so.
func (f *scanFlags) checkShare() (err error) {
	if f.shardText == "" {
		if f.workers != 0 || f.collect {
			return usagef("--workers, --collect: they are for a scan in shares (--shard)")
		}
		return nil
	}
	switch {
	case f.workers < 0:
		return usagef("--workers %d: at least 1", f.workers)
	case f.out == "-":
		return usagef("--shard: shares are collected from a dataset, and -o - writes none")
	case f.limit > 0:
		return usagef("--shard, --limit: which entries are the first is known only after reading all shares; use --sample")
	case f.restart:
		return usagef("--shard: other shares may be being written; give another --scan-id rather than --restart")
	case f.format == inputs.WARC.String():
		return usagef("--shard: with --format warc, give each task some of the archives and a --scan-id of its own")
	case f.maxErrorRate > 0:
		return usagef("--shard: the threshold is for the whole scan; give --max-error-rate to bulkscan collect")
	case !f.collect && (f.noCompact || f.noPublish):
		return usagef(
			"--no-compact, --no-publish: a share is neither merged nor published; give them to bulkscan collect, or with --collect")
	case f.shardText == "auto":
		return nil
	}
	if f.share, err = shares.Parse(f.shardText); err != nil {
		return usagef("--shard: %w", err)
	}
	return nil
}

// shard finds out which share this is and the scan's name, and divides the rates by --workers.
func (f *scanFlags) shard(getenv func(string) string, log *slog.Logger) (err error) {
	if f.shardText == "" {
		return nil
	}
	task := shares.Task{Share: f.share}
	if f.shardText == "auto" {
		if task, err = shares.FromEngine(getenv); err != nil {
			return usagef("--shard: %w", err)
		}
	}
	if f.share = task.Share; f.scanID == "" {
		f.scanID = task.ScanID
	}
	switch {
	case f.scanID == "":
		return usagef("--shard: all shares need the same --scan-id; give it, or set BULKSCAN_SCAN_ID")
	case commit.CheckScanID(f.scanID) != nil:
		return usagef("--shard: the engine's job %q is no name for a scan; give --scan-id, or set BULKSCAN_SCAN_ID",
			clipped(f.scanID))
	case f.workers == 0:
		f.workers = f.share.N
		log.Warn("rates are divided by the number of shares, as if all ran at once", "shares", f.share.N, "remedy",
			"--workers says how many run at once")
	}
	w := float64(f.workers)
	f.ipRate, f.rate, f.dnsRate = f.ipRate/w, f.rate/w, f.dnsRate/w
	if f.rates != nil {
		f.rates.Among(f.workers)
	}
	log.Info("share", "share", f.share, "workers", f.workers, "ip_rate", f.ipRate, "rate", f.rate, "dns_rate", f.dnsRate)
	return nil
}

// ended gives a share's error the exit code by which engines decide: 75 if another attempt may succeed, 2 if none can.
func (f *scanFlags) ended(err error) error {
	if err == nil || f.share.Whole() {
		return err
	}
	exit := (*exitError)(nil)
	_, held := errors.AsType[*commit.HeldError](err)
	_, changed := errors.AsType[*commit.ChangedError](err)
	_, broken := errors.AsType[*commit.StoreError](err)
	switch {
	case errors.As(err, &exit) && exit.code == exitTerm, held, broken,
		errors.Is(err, store.ErrLockLost), errors.Is(err, store.ErrUnavailable):
		return &exitError{exitAgain, err}
	case changed:
		return &exitError{exitUsage, err}
	}
	return err
}

// collectLast is --collect: the last share that is done makes one scan of all. It is no error if other shares are not
// done, or if another process collects.
func (a *app) collectLast(ctx context.Context, f *scanFlags, o scan.Options, scanID string) error {
	if !f.collect || f.dryRun {
		return nil
	}
	m, err := scan.Collect(ctx, o.Store, scanID, scan.Publishing{
		Compact: o.Compact, NoPublish: f.noPublish, AllowEmpty: f.allowEmpty, Registry: o.Sink.Registry,
		ToolVersion: toolVersion(), Log: o.Log,
	})
	if missing, ok := errors.AsType[*shares.NotDoneError](err); ok {
		o.Log.Info("not collected: other shares are not done", "not_done", len(missing.Shares), "shares",
			shares.Ranges(missing.Shares))
		return nil
	}
	if held, ok := errors.AsType[*commit.HeldError](err); ok {
		o.Log.Info("not collected by this share: another process holds the scan", "reason", held.Error())
		return nil
	}
	if err != nil {
		return err
	}
	o.Log.Info("collected", "scan", scanID, "shares", m.Shares, "sites", m.Counts.Rows)
	return f.judgeCollected(ctx, o.Store, scanID, o.Log)
}

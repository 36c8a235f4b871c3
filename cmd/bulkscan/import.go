package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/bodies"
	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/internal/replay"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/terminal"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// importFlags say how what was fetched before is divided; scan --format warc has the first of them, too.
type importFlags struct {
	by      string
	columns string
}

func (f *importFlags) addBy(flags *pflag.FlagSet) {
	flags.StringVar(&f.by, "by", string(replay.Day), "what is a night of an archive, with a scan of its own: day (UTC), month, or crawl, by its name (CC-MAIN-2026-40)")
}

// ofImport are the flags of scan that import has, too.
var ofImport = []string{
	"out", "limit", "sample", "dry-run", "scan-id", "vantage", "list-id", "restart", "repair", "tables", "part-rows", "part-age", "progress", "log-format", "log-level",
	"quiet", "verbose", "allow-empty", "no-compact", "no-publish", "cpuprofile", "max-redirects", "max-body", "tokens", "allow-private",
}

func (a *app) importCommand() *cobra.Command {
	f := &scanFlags{}
	c := &cobra.Command{
		Use:   "import [flags] INPUT…",
		Short: "Judge robots.txt files that were fetched before: nights from bodies and archives",
		Long: `import reads robots.txt files that others have fetched, judges them, and writes a dataset as scan does, with a scan for each
night. It makes no network requests.

Inputs are JSON lines, CSV or Parquet with a file a row, folders (HOST.txt, HOST/robots.txt, RANK-HOST.txt), and web archives
(WARC), plain or compressed; what each is, its content says. A night is a day of the files' dates. Inputs without any date
need --date. Rows that only repeat an earlier file (observed false, unchanged true) are no observations. docs/archives.md has
the columns and all rules. The same command again goes on where it was interrupted.`,
		Example: `  bulkscan import bodies.jsonl.zst -o out
  bulkscan import robots/ --date 2024-07-14 -o out
  bulkscan import crawl.parquet --columns body=robots,host=site -o out
  bulkscan import CC-MAIN-*-robotstxt-*.warc.gz --by crawl -o out`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.importInputs(c.Context(), f, settings(c.Flags()), args)
		},
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(all)
	f.fetchFlags.add(all)
	f.format = "warc"
	for _, name := range ofImport {
		c.Flags().AddFlag(all.Lookup(name))
	}
	c.Flags().StringVar(&f.date, "date", "", "the night of all inputs, YYYY-MM-DD, whatever their dates; required where they have none")
	c.Flags().StringVar(&f.columns, "columns", "", "columns by what they hold, where their names are not the usual ones: body=robots,host=site (docs/archives.md)")
	f.addBy(c.Flags())
	addConfig(c.Flags())
	return c
}

// importInputs is import, and scan --format warc.
func (a *app) importInputs(ctx context.Context, f *scanFlags, config []commit.Setting, paths []string) (err error) {
	f.volume()
	stderr := terminal.BesideBar(a.stderr, f.progress)
	log, err := newLogger(stderr, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	columns, err := bodies.ParseColumns(f.columns)
	if err != nil {
		return usagef("--columns %w", err)
	}
	endProfile, err := f.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endProfile()) }()
	registry, err := f.registry()
	if err != nil {
		return err
	}
	monitor, err := f.monitor(a.network.listen, func() resolve.Stats { return resolve.Stats{} }, log)
	if err != nil {
		return err
	}
	defer func() { monitor.end(err) }()
	o, err := a.jobOptions(f, paths)
	if err != nil {
		return err
	}
	if o.Fetch, err = fetcher.New(fetcher.Config{MaxRedirects: f.maxRedirects, MaxBody: f.maxBody, UserAgent: f.agent()}); err != nil {
		return err
	}
	o.Log, o.Sink.Registry, o.Sink.Config = log, registry, config
	o.Replay = replay.Options{By: replay.By(f.by), Columns: columns}
	several := false
	o.Show = func(ctx context.Context, scanID string, p *pipeline.Progress, read func() (done, total int64), kept uint64) {
		monitor.scan.Begin(scanID, p, read)
		if !several {
			(&terminal.Display{Progress: p, Names: func() resolve.Stats { return resolve.Stats{} }, Read: read, Limit: f.limit, Done: kept}).Show(ctx, f.progress, a.stderr, log)
		}
	}
	var code func() int // of the first signal
	o.Interrupted = func() bool { return code() != 0 }
	j := job.New(o)
	ctx, code, endSignals := a.watchSignals(ctx, f.signals, j.Stop)
	defer endSignals()
	defer func() { err = interrupted(err, code()) }()
	defer j.Close()
	if f.dryRun {
		return a.describeNights(ctx, f, j)
	}
	reading := func(ctx context.Context, look func() (done, total int64)) {
		terminal.ShowCount(ctx, f.progress, a.stderr, log, look)
	}
	done, err := j.Import(ctx, reading, func(n *replay.Nights) error {
		several = len(n.List()) > 1
		logFound(log, n)
		return nil
	})
	if noDate := (*replay.NoDateError)(nil); errors.Is(err, job.ErrSeveralNights) || errors.As(err, &noDate) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	if len(done.Scans) == 1 && done.Last != nil {
		return f.judgeRun(ctx, done.Last, done.Progress, resolve.Stats{}, stderr, log)
	}
	return f.judgeNights(j, done, log)
}

// logFound says what was read, before it is judged.
func logFound(log *slog.Logger, n *replay.Nights) {
	nights, found := n.List(), n.Found()
	if len(nights) == 0 {
		return
	}
	list := []any{"nights", len(nights), "first", nights[0].Date, "last", nights[len(nights)-1].Date}
	for _, count := range []struct {
		name string
		n    int64
	}{{"captures", found.Captures}, {"rows", found.Rows}, {"rows_without_status_count_as_200", found.NoStatus}, {"rows_without_body_not_observed", found.NoBody}, {"rows_carried_not_observed", found.Carried}} {
		if count.n > 0 {
			list = append(list, count.name, count.n)
		}
	}
	log.Info("read", list...)
}

// judgeNights says what came of several nights.
func (f *scanFlags) judgeNights(j *job.Job, done *job.Imported, log *slog.Logger) error {
	took, e := time.Since(j.Begun), &done.Total
	a := report.AnswersOf(e.Outcomes)
	log.Info("done", "nights", len(done.Scans), "kept", e.Kept, "already_kept", e.AlreadyKept, "answered", a.Answered, "failed", a.Failed, "not_asked", a.NotAsked,
		"rejected", e.Rejected, "duplicates", e.Duplicates, "took", took.Round(time.Millisecond), "per_second", int(float64(e.Kept)/took.Seconds()), "peak_memory_mb", limits.PeakMemory()>>20)
	if err := damagedArchive(j); err != nil {
		return err
	}
	return f.judge(e, e.Empty(), a, log)
}

// describeNights is --dry-run.
func (a *app) describeNights(ctx context.Context, f *scanFlags, j *job.Job) error {
	n, err := j.CountNights(ctx)
	if noDate := (*replay.NoDateError)(nil); errors.As(err, &noDate) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	w := bufio.NewWriter(a.stdout)
	s, found := n.Stats(), n.Found()
	describeFiles(w, s.Files)
	fmt.Fprintf(w, "%d captures and %d rows would be judged, and nobody asked; of the rows %d are carried and %d have no body: not observed\n",
		found.Captures, found.Rows, found.Carried, found.NoBody)
	for _, night := range n.List() {
		fmt.Fprintf(w, "%s: %d, before one of each site is chosen\n", night.Date, night.Rows)
	}
	fmt.Fprintf(w, "%d would be rejected, %d are no captures of a robots.txt", s.Rejects, s.Skipped)
	if s.LeftOut > 0 {
		fmt.Fprintf(w, ", %d are left out by --sample", s.LeftOut)
	}
	fmt.Fprintf(w, "\nthe dataset would go to %s\n", terminal.Line(f.out))
	if err := w.Flush(); err != nil || s.Entries > 0 || f.allowEmpty {
		return err
	}
	return &exitError{exitThreshold, errors.New("no usable capture or row in the inputs")}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/terminal"
	"github.com/bulkscan/bulkscan/terminal/metrics"
)

// nightlyFlags are the flags of nightly.
type nightlyFlags struct {
	out, list, date       string
	until                 string
	least                 float64
	acceptList            bool
	bounds                []string
	webhook               string
	metricsFile           string
	keepNights            string
	keepBodies            string
	keepEvidence          string
	prune, status, dryRun bool
	acceptPruning         int
	release, discard      string
	withdraw, reason      string
	shownAs
}

// shownNights is how many nights --status shows.
const shownNights = 30

func (a *app) nightlyCommand() *cobra.Command {
	f := &nightlyFlags{}
	c := &cobra.Command{
		Use:   "nightly --config FILE",
		Short: "Scan a list every night, unattended",
		Long: `nightly takes one night from its list to its readers: it takes the list, scans it with the settings of [scan] in --config,
verifies every byte, and decides whether the night counts. A night that does gets into the history, and readers find it,
with a report page and a summary. One that is unlike those before (a delivery network that refuses us, dead name
servers), or whose date is in doubt, is held: readers do not find it until a person has decided by --release or
--discard.

A scheduler runs it every day; docs/nightly.md has units for systemd, a line for cron, and a CronJob for Kubernetes.
The dataset is its only state: after a crash the next run continues the night. A second run at the same time ends at
once, with 75. Exit codes: 0 published · 3 held, or not complete by --until · 1 failed · 75 another night is under
way.`,
		Example: `  bulkscan nightly --config nightly.toml
  bulkscan nightly --config nightly.toml --status
  bulkscan nightly --config nightly.toml --release 2026-11-21`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			scanning, config, err := f.scanSettings(c.Flags())
			if err != nil {
				return err
			}
			return a.nightly(c.Context(), f, scanning, config)
		},
	}
	f.add(c.Flags())
	return c
}

func (f *nightlyFlags) add(flags *pflag.FlagSet) {
	options.AddConfig(flags)
	flags.StringVarP(&f.out, "out", "o", "", "folder of the dataset, or s3://BUCKET/PREFIX (default: out in [scan])")
	flags.StringVar(&f.list, "list", "", "the list: a path, s3://BUCKET/KEY, or https://…")
	flags.Float64Var(&f.least, "least", 0.5, "share of the last published night's sites that the list must have")
	flags.BoolVar(&f.acceptList, "accept-list", false,
		"take the list even if it is smaller than that, or most of its lines are of one site or are no sites")
	flags.StringVar(&f.until, "until", "",
		"HH:MM in local time: end the scan in order when it is so late; the night is then incomplete")
	flags.StringArrayVar(&f.bounds, "bound", nil,
		"range of a share, as in dns_failed=0..0.1 or cdn.cloudflare.refused=0..0.2, instead of one learnt from the last 14 published nights (docs/nightly.md)")
	flags.StringVar(&f.keepNights, "keep-nights", "",
		"delete nights that are older than so many days, as in 90d: only the history keeps them, with the last file of each site (default: for ever)")
	flags.StringVar(&f.keepBodies, "keep-bodies", "",
		"delete the stored files of sites of nights that are older than so many days, but the last one of each site (default: as the nights)")
	flags.StringVar(&f.keepEvidence, "keep-evidence", "",
		"delete the table evidence of nights that are older than so many days (default: as the nights)")
	flags.StringVar(&f.webhook, "webhook", "", "URL that receives how the night ended, as JSON for Slack")
	flags.StringVar(&f.metricsFile, "metrics-file", "",
		"file that says how the night ended to a node_exporter's textfile collector (docs/METRICS.md)")
	flags.StringVar(&f.date, "date", "", "date of the night, YYYY-MM-DD (default: today in UTC)")
	flags.BoolVar(&f.status, "status", false, "print the last 30 nights, and scan nothing")
	flags.StringVar(&f.release, "release", "",
		"publish the held night of this `DATE`, or a scan of this name, and scan nothing")
	flags.StringVar(&f.discard, "discard", "",
		"decide that the held or incomplete night of this `DATE` does not count, and scan nothing")
	flags.StringVar(&f.withdraw, "withdraw", "",
		"take the published night of this `DATE`, or a scan of this name, back from readers, also if its files are lost, and scan nothing")
	flags.StringVar(&f.reason, "reason", "", "with --withdraw: why, for the dataset's head and the night's record")
	flags.BoolVar(&f.prune, "prune", false, "delete what is older than the settings keep, and scan nothing")
	flags.IntVar(&f.acceptPruning, "accept-pruning", 0,
		"with --prune: delete from exactly `N` nights, although that is more than half of them")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --prune: say what would be deleted, and delete nothing")
	f.shownAs.add(flags, "with --status: one JSON object per night")
}

// scanSettings are the settings of the night's scan: from the environment, and the table [scan] of --config.
func (f *nightlyFlags) scanSettings(flags *pflag.FlagSet) (*scanFlags, []commit.Setting, error) {
	scanning, of := &scanFlags{}, pflag.NewFlagSet("scan", pflag.ContinueOnError)
	scanning.add(of)
	scanning.fetchFlags.add(of)
	if err := rules.Fill(of, "scan", flags.Lookup("config")); err != nil {
		return nil, nil, usage(err)
	}
	if f.out != "" {
		scanning.out = f.out
	}
	switch {
	case scanning.out == "-":
		return nil, nil, usagef("out: a night is kept in a dataset; name a folder, or s3://BUCKET/PREFIX")
	case scanning.scanID != "" || scanning.date != "" && scanning.date != f.date:
		return nil, nil, usagef("scan-id, date: a night has its own")
	case scanning.shardText != "" || scanning.collect:
		return nil, nil, usagef("shard, collect: a night is one scan; docs/cluster.md describes scans in shares")
	case scanning.format == "warc":
		return nil, nil, usagef("format: archives are no night; bulkscan scan reads them")
	case scanning.metricsFile != "" && scanning.metricsFile == f.metricsFile:
		return nil, nil,
			usagef("metrics-file %s: the night and its scan write different metrics; name another file for one of them",
				clipped(f.metricsFile))
	}
	scanning.noPublish = true
	return scanning, settings(of), cmp.Or(usage(rules.CheckChoices(of)), scanning.check())
}

// check refuses what cannot be meant.
func (f *nightlyFlags) check() (bounds map[string]nightly.Bound, err error) {
	asked := 0
	for _, date := range []string{f.date, f.discard} {
		if date != "" && commit.CheckDate(date) != nil {
			return nil, usagef("%q: a date is YYYY-MM-DD", clipped(date))
		}
	}
	for _, id := range []string{f.release, f.withdraw} {
		if id != "" && commit.CheckScanID(id) != nil {
			return nil, usagef("%q: neither a date, YYYY-MM-DD, nor a scan", clipped(id))
		}
	}
	for _, other := range []bool{f.status, f.prune, f.release != "", f.discard != "", f.withdraw != ""} {
		if other {
			asked++
		}
	}
	scheme, _, isURL := strings.Cut(f.list, "://")
	switch {
	case asked > 1:
		return nil, usagef("--status, --prune, --release, --discard, --withdraw: one at a time")
	case f.reason != "" && f.withdraw == "":
		return nil, usagef("--reason goes with --withdraw")
	case f.dryRun && !f.prune:
		return nil, usagef("--dry-run goes with --prune; of a list bulkscan scan --dry-run says what would be done")
	case f.acceptPruning < 0 || f.acceptPruning > 0 && !f.prune:
		return nil, usagef("--accept-pruning goes with --prune, and is the number of nights that the refusal names")
	case f.json && !f.status:
		return nil, usagef("--json goes with --status; each night's record is OUT/_nights/DATE/night.json")
	case asked == 0 && f.list == "":
		return nil, usagef("no list: write list = \"top-1m.csv.zip\" below [nightly] in the file of --config, or give --list")
	case isURL && scheme != "s3" && scheme != "https":
		return nil, usagef("--list %s://…: a path, s3://BUCKET/KEY, or https://…", clipped(scheme))
	case !(f.least >= 0 && f.least <= 1):
		return nil, usagef("--least %v: a share from 0 to 1", f.least)
	case f.webhook != "" && !strings.HasPrefix(f.webhook, "https://") && !strings.HasPrefix(f.webhook, "http://"):
		return nil, usagef("--webhook: a URL begins with https://")
	}
	if _, err := nightly.ParseUntil(f.until); err != nil {
		return nil, usagef("--until %q: a time is HH:MM, as in 06:00", clipped(f.until))
	}
	bounds = map[string]nightly.Bound{}
	for _, text := range f.bounds {
		name, bound, ok := nightly.ParseBound(text)
		if !ok {
			return nil,
				usagef("--bound %q: a figure and a range of shares, as in dns_failed=0..0.1 or cdn.cloudflare.refused=0..0.2",
					clipped(text))
		}
		bounds[name] = bound
	}
	return bounds, nil
}

// keep returns for how many days nights, bodies and evidence are kept.
func (f *nightlyFlags) keep() (k nightly.Keep, err error) {
	for _, setting := range []struct {
		name, text string
		days       *int
	}{{"keep-nights", f.keepNights, &k.Nights}, {"keep-bodies", f.keepBodies, &k.Bodies}, {"keep-evidence", f.keepEvidence,
		&k.Evidence}} {
		if setting.text == "" {
			continue
		}
		var ok bool
		if *setting.days, ok = nightly.ParseDays(setting.text); !ok {
			return k, usagef("--%s %q: a number of days, as in 90d", setting.name, clipped(setting.text))
		}
	}
	return k, nil
}

// nightly checks the flags and runs the chosen action.
func (a *app) nightly(ctx context.Context, f *nightlyFlags, scanning *scanFlags, config []commit.Setting) error {
	bounds, err := f.check()
	if err != nil {
		return err
	}
	if f.status {
		return a.interruptible(ctx, func(ctx context.Context) error { return a.nightlyStatus(ctx, f, scanning.out) })
	}
	log := terminal.NewLogger(terminal.BesideBar(a.stderr, scanning.progress), scanning.logFormat, scanning.logLevel)
	registry, err := registryOf(scanning.tokens)
	if err != nil {
		return err
	}
	open := openPlace
	if f.prune {
		open = openDataset
	}
	st, err := open(scanning.out)
	if err != nil {
		return err
	}
	o := nightly.Options{
		Store: st, Date: f.date, Bounds: bounds, Log: log,
		Publishing: scan.Publishing{Compact: !scanning.noCompact, Registry: registry, ToolVersion: toolVersion(), Log: log},
		Report:     survey.Options{Registry: registry, ToolVersion: toolVersion(), Log: log},
	}
	if f.metricsFile != "" {
		if err := metrics.CheckFile(f.metricsFile); err != nil {
			return usagef("--metrics-file %s: %w", clipped(f.metricsFile), err)
		}
		o.Show = func(n *nightly.Night) { f.writeMetrics(ctx, st, n, log) }
	}
	if f.webhook != "" {
		o.Tell = (&nightly.Webhook{URL: f.webhook, Log: log}).Tell
	}
	if o.Keep, err = f.keep(); err != nil {
		return err
	}
	if f.prune {
		if o.Keep == (nightly.Keep{}) {
			return usagef("--prune: write keep-nights = \"90d\" below [nightly] in the file of --config, or give --keep-nights")
		}
		return a.interruptible(ctx, func(ctx context.Context) error {
			return busy(nightly.Prune(ctx, o, f.acceptPruning, f.dryRun))
		})
	}
	if f.release+f.discard+f.withdraw != "" {
		return a.interruptible(ctx, func(ctx context.Context) error { return f.decide(ctx, o) })
	}
	return a.tonight(ctx, f, scanning, config, o)
}

// shownFigures is how many figures out of bounds a log line has.
const shownFigures = 5

// writeMetrics writes the state of the night for a node_exporter. Its failure does not fail the night.
func (f *nightlyFlags) writeMetrics(ctx context.Context, st store.Store, n *nightly.Night, log *slog.Logger) {
	nights, err := nightly.Nights(ctx, st, shownNights)
	if err := errors.Join(err, metrics.WriteNight(f.metricsFile, n, nights)); err != nil {
		log.Warn("cannot write the metrics; the night goes on", "file", f.metricsFile, "error", err)
	}
}

// decide releases, discards or withdraws a night.
func (f *nightlyFlags) decide(ctx context.Context, o nightly.Options) (err error) {
	id := f.release + f.discard + f.withdraw // one is given
	n := &nightly.Night{ScanID: id}
	o.Date = strings.TrimPrefix(id, "night-")
	switch night := commit.CheckDate(o.Date) == nil; {
	case f.discard != "":
		n, err = nightly.Discard(ctx, o)
	case f.release != "" && night:
		n, err = nightly.Release(ctx, o)
	case f.release != "":
		n.State, err = nightly.Published, scan.Release(ctx, o.Store, id, o.Publishing)
	case night:
		n, err = nightly.Withdraw(ctx, o, f.reason)
	default:
		n.State, err = nightly.Discarded, scan.Withdraw(ctx, o.Store, id, f.reason, o.Publishing)
	}
	if err != nil {
		return busy(err)
	}
	if n.Date == "" {
		o.Log.Info("the scan is "+string(n.State), "scan", id)
		return nil
	}
	o.Log.Info("the night is "+string(n.State), "date", n.Date, "scan", n.ScanID)
	return nil
}

// busy gives the error of a night that meets another process its exit code.
func busy(err error) error {
	_, running := errors.AsType[*nightly.RunningError](err)
	_, held := errors.AsType[*commit.HeldError](err)
	if running || held {
		return &exitError{exitAgain, err}
	}
	return err
}

// tonight runs a night.
func (a *app) tonight(ctx context.Context, f *nightlyFlags, scanning *scanFlags, config []commit.Setting,
	o nightly.Options) error {
	watch := &sharedSignals{}
	ctx, code, end := a.interrupts(ctx, watch.stop)
	defer end()
	watch.code = code
	o.List = nightly.ListOptions{Source: f.list, Least: f.least, Open: openPlace, Count: func(ctx context.Context,
		path string) (int64, error) {
		return a.countList(ctx, scanning, path, f.acceptList)
	}}
	if f.acceptList {
		o.List.Least = 0
	}
	o.Until, _ = nightly.ParseUntil(f.until) // was checked
	o.Scan = func(ctx context.Context, s nightly.Scan) error { return a.scanTonight(ctx, scanning, config, watch, s) }
	n, err := nightly.Run(ctx, o)
	switch {
	case err != nil:
		return interrupted(busy(err), code())
	case n.State == nightly.Published || n.State == nightly.Discarded:
		o.Log.Info("the night is "+string(n.State), "date", n.Date, "scan", n.ScanID)
		return nil
	}
	var figures []string
	for _, c := range n.Out[:min(len(n.Out), shownFigures)] {
		figures = append(figures, c.String())
	}
	remedy := "a later --until continues it; for more time every night begin earlier, or raise rate and concurrency in [scan]"
	if n.State == nightly.Held {
		remedy = fmt.Sprintf("bulkscan nightly --release %s publishes it; --discard %[1]s does not", n.Date)
	}
	o.Log.Warn("the night is "+string(n.State)+": readers do not find it", "date", n.Date, "scan", n.ScanID, "figures",
		figures, "remedy", remedy)
	return &exitError{code: exitThreshold}
}

// countList reads the night's list as its scan does.
func (a *app) countList(ctx context.Context, scanning *scanFlags, path string, accept bool) (int64, error) {
	o, err := a.jobOptions(scanning, []string{path})
	if err != nil {
		return 0, err
	}
	o.DryRun, o.Store, o.Log = true, nil, slog.New(slog.DiscardHandler)
	j := scan.New(o)
	defer j.Close()
	counted, err := j.Count(ctx)
	if err != nil {
		return 0, err
	}
	if len(counted.Doubts) > 0 && !accept {
		return 0, &nightly.ListError{What: counted.Doubts[0].String()}
	}
	return int64(counted.Auto + counted.Named), nil
}

// scanTonight scans the night's list. The night judges whether too few sites answered.
func (a *app) scanTonight(ctx context.Context, scanning *scanFlags, config []commit.Setting, watch *sharedSignals,
	s nightly.Scan) error {
	f := *scanning
	f.scanID, f.date, f.until, f.listName, f.signals = s.ScanID, s.Date, s.Until, s.Name, watch
	f.acceptList = true // the night has taken it
	err := a.scan(ctx, &f, config, []string{s.List})
	exit := (*exitError)(nil)
	switch {
	case errors.As(err, &exit) && exit.code == exitThreshold:
		return nil
	case watch.code() != 0 && err != nil:
		return fmt.Errorf("%w: %w", nightly.ErrInterrupted, err)
	case errors.Is(err, pipeline.ErrStopped):
		return fmt.Errorf("%w: %w", nightly.ErrDeadline, err)
	}
	return err
}

// sharedSignals is the watch for signals that a night and its scan share: the scan says what the first one stops.
type sharedSignals struct {
	scan atomic.Pointer[func() bool]
	code func() int
}

func (s *sharedSignals) stop() bool {
	stop := s.scan.Load()
	return stop != nil && (*stop)()
}

// nightlyStatus prints the last nights.
func (a *app) nightlyStatus(ctx context.Context, f *nightlyFlags, place string) error {
	st, err := openDataset(place)
	if err != nil {
		return err
	}
	nights, err := nightly.Nights(ctx, st, shownNights)
	if err != nil {
		return err
	}
	if len(nights) == 0 {
		return fmt.Errorf("there is no night in %s", clipped(place))
	}
	if f.json {
		for _, n := range nights {
			if err := terminal.WriteJSON(a.stdout, n); err != nil {
				return err
			}
		}
		return nil
	}
	pruned, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return err
	}
	return terminal.Nights(a.stdout, nights, pruned, shownNights, f.color)
}

// watchSignals does what interrupts does, unless the command around the scan already watches for signals.
func (a *app) watchSignals(ctx context.Context, shared *sharedSignals, stop func() bool) (_ context.Context,
	code func() int, end func()) {
	if shared == nil {
		return a.interrupts(ctx, stop)
	}
	shared.scan.Store(&stop)
	return ctx, shared.code, func() { shared.scan.Store(nil) }
}

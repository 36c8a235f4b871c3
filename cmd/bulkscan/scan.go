package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/terminal"
	"github.com/bulkscan/bulkscan/warc/archive"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// scanFlags are the flags of scan.
type scanFlags struct {
	fetchFlags
	endBounds
	shareFlags
	ratesFlag

	out                 string
	fields              []string // of JSON lines; nil: all
	format              string
	column, labelColumn string
	limit               uint64
	sample              float64
	by, columns         string // of archives and bodies
	dryRun              bool
	acceptList          bool
	scanID              string
	restart, repair     bool
	vantage, listID     string
	date                string
	concurrency         int
	hostRate, ipRate    float64
	rate                float64
	tables              []string
	partRows            int
	partAge             time.Duration
	progress            string
	logFormat, logLevel string
	quiet               bool
	cpuProfile          string
	metricsAddr         string
	metricsFile         string
	warcOut             string
	noCompact           bool
	noPublish           bool

	// These fields are for the scan of a night.
	until    time.Time      // when it ends in order; zero: never
	listName string         // what the list is called; "": as given
	signals  *sharedSignals // nil: the scan watches for signals itself

	// receives how the scan went and how long it took, instead of the log; nil: the log receives it
	show func(*summary.Ending, time.Duration)

	filesEach int // files that an exchange takes: more than 1 if its server is in this process too; 0 is 1
}

func (f *scanFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.out, "out", "o", defaultOut,
		"folder of the dataset, or s3://BUCKET/PREFIX; - writes one line per site to standard output: JSON, or on a terminal a few words")
	flags.StringSliceVar(&f.fields, "fields", nil,
		"with -o -: only these fields of a JSON line, in this order: columns of sites (bulkscan schema), verdicts, or short for a few, at most 300 bytes a line (default all). Then lines are JSON also on a terminal")
	flags.StringVar(&f.format, "format", "auto",
		"form of the lists: auto, lines, csv, jsonl, parquet (docs/inputs.md); or warc: archives whose captures are judged, without network requests (docs/archives.md)")
	flags.StringVar(&f.by, "by", string(replay.Day),
		"what is a night of an archive, with a scan of its own: day (UTC), month, or crawl, by its name (CC-MAIN-2026-40)")
	flags.StringVar(&f.column, "column", "",
		"column of the hosts: its name in the header, or its number from 1; of JSON lines the key, or keys as in site.host")
	flags.StringVar(&f.labelColumn, "label-column", "",
		"column to keep as label, and to divide the statistics by; named as in --column")
	flags.Uint64Var(&f.limit, "limit", 0, "only the first N entries (0: all)")
	flags.Float64Var(&f.sample, "sample", 0, "only this share of the hosts, the same ones in every run (0: all)")
	flags.BoolVar(&f.dryRun, "dry-run", false,
		"read the lists, say what would be done or refused, write nothing, and fetch nothing; a dataset in an object store is looked at")
	flags.BoolVar(&f.acceptList, "accept-list", false,
		"scan a list also if most of its lines are of one site, or are no sites (docs/inputs.md)")
	flags.StringVar(&f.scanID, "scan-id", "",
		"name of the scan; the same resumes (default: date and fingerprint of the lists and the observer, or that of the scan which the same command left unfinished less than a day ago; of a pipe with -o -, date and a random number)")
	flags.StringVar(&f.vantage, "vantage", "",
		"where the scan asks from, as in frankfurt-1; scans of two vantages are never added up")
	flags.StringVar(&f.listID, "list-id", "",
		"which published list it is, as in tranco-K2XYW; for the record and for citations")
	flags.BoolVar(&f.restart, "restart", false, "delete what this scan has written, and begin anew")
	flags.BoolVar(&f.repair, "repair", false,
		"ask again what a complete scan has lost, or with --shard a share: sites whose commit records or files are missing or damaged (docs/resuming.md)")
	flags.StringVar(&f.date, "date", "", "partition scan_date, YYYY-MM-DD (default: today in UTC)")
	flags.IntVar(&f.concurrency, "concurrency", 1000,
		"exchanges in flight; beside them at most four times as many, and 4096, for hosts that are silent for longer than others; fewer where the limit of open files (ulimit -n) has no room for them")
	flags.Float64Var(&f.hostRate, "host-rate", 1, "exchanges a second to one host (0: no limit)")
	flags.Float64Var(&f.ipRate, "ip-rate", 10,
		"exchanges a second to one IPv4 address, or IPv6 network of /64 (0: no limit)")
	flags.Float64Var(&f.rate, "rate", 0, "exchanges a second in all (0: no limit)")
	f.ratesFlag.add(flags)
	flags.StringSliceVar(&f.tables, "tables", schema.AllTables, "tables to write; policies always")
	flags.IntVar(&f.partRows, "part-rows", sink.DefaultPartRows, "a part is closed at so many origins")
	flags.DurationVar(&f.partAge, "part-age", sink.DefaultPartAge, "or at this age")
	flags.StringVar(&f.progress, "progress", "auto", "auto, bar, log or none")
	flags.StringVar(&f.logFormat, "log-format", "auto",
		"auto, text or json; auto is sentences and a last page on a terminal, and text elsewhere")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "only errors, and no progress; --log-level and --progress do not count")
	f.endBounds.add(flags)
	flags.StringVar(&f.metricsAddr, "metrics-addr", "",
		"HOST:PORT at which Prometheus may read the scan's metrics (docs/METRICS.md)")
	flags.StringVar(&f.metricsFile, "metrics-file", "",
		"file that says the same to a node_exporter's textfile collector, every 15 s and at the end")
	flags.StringVar(&f.warcOut, "warc-out", "",
		"folder, or s3://BUCKET/PREFIX, for an archive of every exchange in WARC files (docs/archives.md)")
	flags.BoolVar(&f.noCompact, "no-compact", false,
		"at the end, leave the parts as they are: bulkscan compact merges them")
	flags.BoolVar(&f.noPublish, "no-publish", false,
		"at the end, leave the scan out of index, views and history: the same command without it publishes")
	f.shareFlags.add(flags)
	flags.StringVar(&f.cpuProfile, "cpuprofile", "",
		"file for a profile of the processor, by stage: go tool pprof -tags FILE")
}

func (a *app) scanCommand() *cobra.Command {
	f := &scanFlags{}
	var printOnly bool
	c := &cobra.Command{
		Use:   "scan [flags] [INPUT…]",
		Short: "Fetch and judge the robots.txt of every site on a list",
		Long: `scan reads lists of sites, fetches each one's robots.txt, judges it, and writes a dataset.

Lists are plain lines (hosts or URLs), CSV as Tranco, Umbrella, Majestic, CrUX and Radar publish them, JSON lines, or
Parquet, also as .gz, .zst, .xz or .zip; no INPUT, or -, is standard input, and a
pipe such as <(zcat hosts.gz) is read like it. The same command again resumes where it was interrupted,
also after midnight.

With --format warc the inputs are archives, such as Common Crawl's *-robotstxt-*.warc.gz, and no network requests are
made: it is another name of bulkscan import.`,
		Example: `  bulkscan scan tranco.csv.zip -o out
  zcat hosts.gz | bulkscan scan - -o - --limit 100
  bulkscan scan --format warc *-robotstxt-*.warc.gz -o out
  bulkscan scan list.csv --column domain --label-column sector --contact you@example.org
  printf '104.16.0.0/13 100\nexample.com 2\n' > rates.txt && bulkscan scan list.csv --rates rates.txt`,
		RunE: func(c *cobra.Command, args []string) error {
			if printOnly {
				if err := f.check(); err != nil {
					return err
				}
				if err := f.readFiles(c.Context()); err != nil {
					return err
				}
				return rules.Print(a.stdout, c.Flags())
			}
			return a.scan(c.Context(), f, settings(c.Flags()), args)
		},
	}
	options.AddConfig(c.Flags())
	c.Flags().BoolVar(&printOnly, "print-config", false,
		"print the settings in force as a file for --config, and do nothing else")
	f.add(c.Flags())
	f.fetchFlags.add(c.Flags())
	return c
}

// settings lists the flags as given, for the manifest.
func settings(flags *pflag.FlagSet) []commit.Setting {
	var list []commit.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		if !ofThisRun[f.Name] {
			list = append(list, commit.Setting{Name: f.Name, Value: f.Value.String(), Answers: changesAnswers[f.Name]})
		}
	})
	return list
}

// ofThisRun are the flags that are no settings of a scan: they say what this run of it does, or where on this machine.
var ofThisRun = map[string]bool{
	"help": true, "accept-list": true, "restart": true, "repair": true, "out": true, "fields": true, "cpuprofile": true,
	"metrics-addr": true, "metrics-file": true, "warc-out": true,
	"no-compact": true, "no-publish": true, "allow-empty": true, "quiet": true, "config": true,
	"print-config": true, "shard": true, "collect": true,
}

// changesAnswers are the flags whose values may change rows, so that a scan cannot be resumed with another value. Flags
// that only bound the pace are not among them.
var changesAnswers = map[string]bool{
	"format": true, "by": true, "columns": true, "column": true, "label-column": true, "limit": true, "sample": true,
	"max-redirects": true, "max-body": true, "user-agent": true, "contact": true,
	"scheme": true, "no-fallback": true, "strict-tls": true, "tls-min": true, "tokens": true,
	"ipv4": true, "ipv6": true, "allow-private": true, "vantage": true, "list-id": true,
}

// gcPercent is GOGC of a scan, unless the user sets GOGC. It lowers the memory peak by a quarter, against Go's 100.
// That costs 1 % more processor time, 2 % with TLS.
const gcPercent = 50

// scan is the main job. It follows the order of events: the lists, the dataset, the run, and how it ends.
func (a *app) scan(ctx context.Context, f *scanFlags, config []commit.Setting, paths []string) (err error) {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if f.quiet {
		f.logLevel, f.progress = "error", "none"
	}
	if f.format == inputs.WARC.String() { // captures and rows have dates of their own where none is given
		for i := range config {
			config[i].Answers = config[i].Answers || config[i].Name == "date"
		}
	}
	stderr := terminal.BesideBar(a.stderr, f.progress)
	log := terminal.NewLogger(stderr, f.logFormat, f.logLevel)
	if err := f.check(); err != nil {
		return err
	}
	if err := options.NoSite(paths); err != nil {
		return usage(err)
	}
	if err := f.shard(os.Getenv, log); err != nil {
		return err
	}
	endProfile, err := f.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endProfile()) }()
	if err := f.shareFiles(log); err != nil {
		return err
	}
	registry, err := registryOf(f.tokens)
	if err != nil {
		return err
	}
	keep, err := f.archive(ctx)
	if err != nil {
		return err
	}
	f.log = log
	fetch, closeFetch, err := f.fetcher(a.network)
	if err != nil {
		return err
	}
	defer closeFetch()
	monitor, err := f.monitor(a.network.listen, fetch.names.Stats, log)
	if err != nil {
		return err
	}
	defer func() { monitor.end(err) }()

	o, err := a.jobOptions(f, paths)
	if err != nil {
		return err
	}
	o.Fetch, o.Archive, o.Log = fetch.Fetcher, keep, log
	o.Sink.Registry, o.Sink.Config = registry, config
	o.OptOut = fetch.optOut
	if len(f.fields) == 0 && terminal.Is(a.stdout) {
		o.Sites = terminal.NewSites(terminal.BesideBar(a.stdout, f.progress), registry)
	}
	var j *scan.Job
	o.ShowReading = func(ctx context.Context, read func() (done, total int64)) {
		terminal.ShowCount(ctx, f.progress, "bytes", a.stderr, log, read)
	}
	o.Show = func(ctx context.Context, scanID string, p *pipeline.Progress, read func() (done, total int64), kept uint64) {
		monitor.scan.Begin(scanID, p, read)
		if j.Nights > 1 { // the log names each as it begins
			return
		}
		d := &terminal.Display{Progress: p, Names: fetch.names.Stats, Read: read, Limit: f.limit, Done: kept,
			Slots: f.files.Concurrency, Longest: f.Longest(),
			Anonymous: f.contact == "" && f.userAgent == "" && !f.AllowPrivate && o.Inputs.Format != inputs.WARC}
		var drawn sync.WaitGroup
		drawn.Go(func() { d.Show(ctx, f.progress, a.stderr, log) })
		drawn.Go(func() { d.Troubles(ctx, log) })
		drawn.Wait()
	}
	var code func() int // of the first signal
	o.Interrupted = func() bool { return code() != 0 }
	j = scan.New(o)
	ctx, code, endSignals := a.watchSignals(ctx, f.signals, func() bool {
		if !j.Stop() {
			return false
		}
		fmt.Fprintln(a.stderr, "\nbulkscan: finishing what is being asked; once more to abort")
		return true
	})
	defer endSignals()
	defer func() { err = f.ended(interrupted(err, code())) }()
	defer j.Close()
	if slices.Contains(o.Lists, "-") && terminal.Is(a.stdin) && !f.quiet {
		fmt.Fprintln(a.stderr, "Reading the list from this terminal, a site a line; Ctrl-D ends it.")
	}
	var p *pipeline.Progress
	if f.dryRun {
		err = a.describe(ctx, f, j)
	} else {
		p, err = j.Run(ctx)
	}
	if done, ok := errors.AsType[*commit.ShareDoneError](err); ok {
		log.Info("nothing to do: the share is done", "scan", done.ScanID, "share", f.share)
		return a.collectLast(ctx, f, o, done.ScanID)
	}
	_, doubted := errors.AsType[*scan.DoubtError](err)
	if doubted || errors.Is(err, replay.ErrNoDate) || errors.Is(err, scan.ErrSeveralNights) {
		return usage(err)
	}
	if f.dryRun {
		return err
	}
	if intact, ok := errors.AsType[*repair.IntactError](err); ok && intact.State == commit.Complete {
		log.Info("nothing to repair", "scan", intact.ScanID, "already_kept", intact.Sites)
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.judgeRun(ctx, j, p, fetch.names.Stats(), stderr, log); err != nil {
		return err
	}
	return a.collectLast(ctx, f, o, j.ScanID())
}

// describe is --dry-run: it reads the lists in full and fetches no site. It refuses what the scan would refuse, except
// what only a write to an object store can show.
func (a *app) describe(ctx context.Context, f *scanFlags, j *scan.Job) error {
	s, err := j.Count(ctx)
	if err != nil {
		return err
	}
	if err := terminal.DryRun(a.stdout, s, f.scheme, f.out); err != nil {
		return err
	}
	switch {
	case len(s.Doubts) > 0 && !f.acceptList:
		return usage(&scan.DoubtError{Doubts: s.Doubts})
	case s.Entries > 0 || f.allowEmpty || !f.share.Whole(): // a share may be empty
		return nil
	}
	return &exitError{exitThreshold, fmt.Errorf("no usable site on the list; see %s", summary.FormFlags(s.Nights != nil))}
}

// jobOptions returns the options of a scan by its flags.
func (a *app) jobOptions(f *scanFlags, paths []string) (scan.Options, error) {
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	format, _ := inputs.ParseFormat(f.format) // was checked
	columns, err := replay.ParseColumns(f.columns)
	if err != nil {
		return scan.Options{}, usagef("--columns %w", err)
	}
	o := scan.Options{
		Lists: paths, DryRun: f.dryRun, AcceptList: f.acceptList, Out: f.out, Stdout: a.stdout, Fields: f.fields,
		Begun: time.Now(), Until: f.until,
		Inputs: inputs.Options{Format: format, Column: f.column, LabelColumn: f.labelColumn, Limit: f.limit, Sample: f.sample,
			LocalNames: f.AllowPrivate, Stdin: a.stdin},
		Replay: replay.Options{By: replay.By(f.by), Columns: columns, Date: f.date, MaxBody: f.MaxBody, Limit: f.limit,
			Sample: f.sample, LocalNames: f.AllowPrivate},
		Pipeline: pipeline.Config{
			Concurrency: f.files.Concurrency, HostRate: f.hostRate, IPRate: f.ipRate, Rate: f.rate,
			SilentExchanges: f.files.Silent,
		},
		Sink: sink.Options{
			ScanID: f.scanID, Date: f.date, Tables: f.tables, PartRows: f.partRows, PartAge: f.partAge,
			ToolVersion: toolVersion(), Restart: f.restart, Repair: f.repair, Observer: f.observed(format), ListID: f.listID,
			NoPublish: f.noPublish,
		},
		// signals is set for nights, which judge empty scans themselves
		Rates: f.rates, Compact: !f.noCompact, AllowEmpty: f.allowEmpty || f.signals != nil, Share: f.share,
		Quiet: f.signals != nil,
	}
	if f.listName != "" {
		o.Names = []string{f.listName}
	}
	if f.out != "-" {
		o.Store, err = openPlace(f.out)
	}
	return o, err
}

// observed returns the observer of the scan's sites.
func (f *scanFlags) observed(format inputs.Format) commit.Observer {
	if format == inputs.WARC {
		return commit.Observer{Source: commit.Archive, Vantage: f.vantage}
	}
	schemes := f.scheme
	if other := map[string]string{"https": "http", "http": "https"}[f.scheme]; !f.NoFallback {
		schemes += "+" + other
	}
	from := f.Config
	from.SourceIP, _ = netip.ParseAddr(f.sourceIP) // fetcher reports the error
	return commit.Observer{Source: commit.Live, Product: commit.ProductOf(f.agent()), Family: from.Family(),
		Scheme: schemes, HTTP: "HTTP/1.1", Vantage: f.vantage}
}

// check refuses wrong values that a flag's type allows.
func (f *scanFlags) check() error {
	if err := f.endBounds.check(); err != nil {
		return err
	}
	switch {
	case f.concurrency < 1:
		return usagef("--concurrency %d: at least 1", f.concurrency)
	case !(f.sample >= 0 && f.sample <= 1): // not a number is none of them
		return usagef("--sample %v: a share from 0 to 1", f.sample)
	case f.partRows < 1:
		return usagef("--part-rows %d: at least 1", f.partRows)
	case f.partAge <= 0:
		return usagef("--part-age %v: more than 0s", f.partAge)
	case f.restart && f.out == "-":
		return usagef("--restart: there is no dataset to begin anew with -o -")
	case f.repair && f.out == "-":
		return usagef("--repair: there is no dataset to repair with -o -")
	case (f.noCompact || f.noPublish) && f.out == "-":
		return usagef("--no-compact, --no-publish: there is no dataset with -o -")
	case len(f.fields) > 0 && f.out != "-":
		return usagef("--fields: only JSON lines have fields to choose; add -o -, or leave it out")
	case f.repair && f.restart:
		return usagef("--repair asks again what a scan has lost, and --restart deletes it and begins anew: give one of them")
	}
	if err := checkRates(rate{"host-rate", f.hostRate}, rate{"ip-rate", f.ipRate}, rate{"rate", f.rate},
		rate{"dns-rate", f.dnsRate}); err != nil {
		return err
	}
	if err := f.readRates(); err != nil {
		return err
	}
	if f.out != "-" {
		if err := checkPlace(f.out); err != nil {
			return usagef("-o: %w", err)
		}
	}
	if err := f.checkShare(); err != nil {
		return err
	}
	if f.warcOut != "" {
		switch err := checkPlace(f.warcOut); {
		case err != nil:
			return usagef("--warc-out: %w", err)
		case f.out == "-":
			return usagef("--warc-out: archives are committed with a dataset, and -o - writes none")
		case f.format == inputs.WARC.String():
			return usagef("--warc-out: with --format warc nobody is asked, and there is nothing to archive")
		}
	}
	for _, name := range []struct{ flag, value string }{{"vantage", f.vantage}, {"list-id", f.listID}} {
		if err := commit.CheckGivenName(name.value); err != nil {
			return usagef("--%s %q: %w", name.flag, clipped(name.value), err)
		}
	}
	if f.scanID != "" {
		if err := commit.CheckScanID(f.scanID); err != nil {
			return usagef("--scan-id: %w", err)
		}
	}
	format, _ := inputs.ParseFormat(f.format) // was checked
	if format == inputs.WARC && f.column+f.labelColumn != "" {
		return usagef("--column, --label-column: archives have no columns (--format warc)")
	}
	for i, table := range f.tables {
		if slices.Contains(f.tables[:i], table) {
			return usagef("--tables %q: of %s, each at most once", strings.Join(f.tables, ","), strings.Join(schema.AllTables,
				", "))
		}
	}
	if f.date != "" {
		switch day, err := time.Parse(time.DateOnly, f.date); {
		case err != nil:
			return usagef("--date %q: want YYYY-MM-DD", f.date)
		case format == inputs.WARC && !replay.Plausible(day, time.Now().AddDate(1, 0, 0)): // nights to come are rehearsed
			return usagef("--date %s: what was fetched before is neither of before 1994 nor of the far future", f.date)
		}
	}
	return nil
}

// archive makes the archive of --warc-out; nil without the flag.
func (f *scanFlags) archive(ctx context.Context) (*archive.Archive, error) {
	if f.warcOut == "" {
		return nil, nil
	}
	st, err := openPlace(f.warcOut)
	if err != nil {
		return nil, err
	}
	if f.dryRun {
		return nil, store.Try(ctx, st)
	}
	keep := archive.New(st, "bulkscan/"+toolVersion(), 0)
	f.Record = keep.Record
	return keep, nil
}

// shareFiles bounds the scan by the files that the process may hold.
func (f *scanFlags) shareFiles(log *slog.Logger) (err error) {
	limit, held, each := limits.RaiseFiles(), limits.HeldFiles()+uint64(f.furtherSockets()), max(1, f.filesEach)
	silent := pipeline.SilentBeside(f.concurrency)
	if f.files, err = limits.ShareFiles(limit, held, f.concurrency, silent, each); err != nil {
		return usagef("--concurrency %d: %w", f.concurrency, err)
	}
	if f.files.Concurrency < f.concurrency {
		log.Warn("concurrency lowered to what the limit of open files allows", "asked", f.concurrency, "now",
			f.files.Concurrency,
			"limit", limit, "remedy", fmt.Sprintf("ulimit -n %d", limits.FilesWanted(held, f.concurrency, silent, each)))
	}
	return nil
}

// profile begins to write --cpuprofile, and returns what ends it. Its samples carry the label "stage": feed, resolve,
// schedule, ask (of it dial, tls, head and body), judge, keep; the garbage collector's have none.
func (f *scanFlags) profile() (end func() error, err error) {
	if f.cpuProfile == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(f.cpuProfile)
	if err != nil {
		return nil, usagef("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write --cpuprofile: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// readFiles refuses what a scan refuses before it begins: files and places that flags name, and settings of requests.
func (f *scanFlags) readFiles(ctx context.Context) error {
	_, err := registryOf(f.tokens)
	if err != nil {
		return err
	}
	for _, place := range []string{f.out, f.warcOut} {
		if place == "" || place == "-" || strings.Contains(place, "://") { // no network is used
			continue
		}
		st, err := openPlace(place)
		if err == nil {
			err = store.Try(ctx, st)
		}
		if err != nil {
			return err
		}
	}
	if f.cpuProfile != "" {
		if _, err := os.Stat(filepath.Dir(f.cpuProfile)); err != nil {
			return usagef("--cpuprofile: %w", err)
		}
	}
	_, end, err := f.fetcher(network{})
	if err != nil {
		return err
	}
	end()
	return f.checkMetrics()
}

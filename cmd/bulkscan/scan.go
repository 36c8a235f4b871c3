package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/archive"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/internal/observer"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/replay"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/terminal"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
)

// fetchFlags say how one origin is asked; scan, demo and check have them.
type fetchFlags struct {
	timeout, connectTimeout, tlsTimeout, headerTimeout time.Duration

	maxRedirects  int
	retries       int
	retryAfter    time.Duration
	maxRetryAfter time.Duration
	maxBody       int
	userAgent     string
	contact       string
	resolver      []string
	dnsRate       float64
	connectTo     []string
	scheme        string
	noFallback    bool
	allowPrivate  bool
	ipv4, ipv6    bool
	sourceIP      string
	strictTLS     bool
	tlsMin        string
	caFile        string
	optOut        string
	tokens        string

	record func(*fetcher.Recording) // is told of each exchange; nil: nobody
	roots  *x509.CertPool           // instead of caFile, for the built-in web
	files  limits.Files             // what may be open; the zero value leaves it to the packages
	names  time.Duration            // for one look-up; 0 leaves it to the resolver

	log      *slog.Logger       // is told of name servers that fail and come back; nil: nobody
	observer *observer.Observer // of look-ups, for check; nil: none
}

func (f *fetchFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.timeout, "timeout", 15*time.Second, "one exchange, from dialling to the body's end")
	flags.DurationVar(&f.connectTimeout, "connect-timeout", 5*time.Second, "to take the connection, within --timeout")
	flags.DurationVar(&f.tlsTimeout, "tls-timeout", 0, "to finish the TLS handshake, within --timeout (0: no bound of its own)")
	flags.DurationVar(&f.headerTimeout, "header-timeout", 0, "to send the response head, within --timeout (0: no bound of its own)")
	flags.IntVar(&f.maxRedirects, "max-redirects", fetcher.DefaultMaxRedirects, "redirects followed, over all schemes and hosts")
	flags.IntVar(&f.retries, "retries", fetcher.DefaultRetries, "later tries of 5xx and 429 answers and of transient failures")
	flags.DurationVar(&f.retryAfter, "retry-after", fetcher.DefaultRetryAfter, "wait before the first later try, doubled for the next; 0s: at once")
	flags.DurationVar(&f.maxRetryAfter, "max-retry-after", fetcher.DefaultMaxRetryAfter, "obey a server's Retry-After up to this")
	flags.IntVar(&f.maxBody, "max-body", 512000, "bytes of a decoded body that are kept")
	flags.StringVar(&f.userAgent, "user-agent", "", "User-Agent header (default bulkscan/VERSION with where to learn more)")
	flags.StringVar(&f.contact, "contact", "", "URL or mail address for complaints, put into the User-Agent")
	flags.StringSliceVar(&f.resolver, "resolver", nil, "DNS servers to ask, HOST:PORT,… (default the system's)")
	flags.Float64Var(&f.dnsRate, "dns-rate", 1000, "DNS questions a second, in all (0: no limit); a name server that refuses some for their number gets fewer")
	flags.StringArrayVar(&f.connectTo, "connect-to", nil, "[HOST]:[PORT]:ADDR:PORT dials elsewhere, as curl's; an empty ADDR keeps the address")
	flags.StringVar(&f.scheme, "scheme", "https", "https or http: where to begin with entries that have no scheme")
	flags.BoolVar(&f.noFallback, "no-fallback", false, "do not try the other scheme for entries that have none")
	flags.BoolVar(&f.allowPrivate, "allow-private", false, "permit loopback, private and link-local addresses")
	flags.BoolVar(&f.ipv4, "ipv4", false, "only IPv4")
	flags.BoolVar(&f.ipv6, "ipv6", false, "only IPv6")
	flags.StringVar(&f.sourceIP, "source-ip", "", "local address to dial from")
	flags.BoolVar(&f.strictTLS, "strict-tls", false, "an unverifiable certificate is a failure, rather than recorded")
	flags.StringVar(&f.tlsMin, "tls-min", "1.2", "oldest TLS version to speak: 1.0, 1.1, 1.2 or 1.3")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM file of certificate authorities to trust (default the system's)")
	flags.StringVar(&f.optOut, "opt-out", "", "file of hosts, domains and address ranges that are never contacted, one a line; a range holds for every address that a name leads to")
	flags.StringVar(&f.tokens, "tokens", "", "file of further crawler tokens (format: bulkscan tokens --help)")
}

// scanFlags are the flags of scan.
type scanFlags struct {
	fetchFlags

	out                 string
	format              string
	column, labelColumn string
	limit               uint64
	sample              float64
	dryRun              bool
	scanID              string
	restart, repair     bool
	date                string
	concurrency         int
	hostRate, ipRate    float64
	rate                float64
	patience            time.Duration
	tables              []string
	partRows            int
	partAge             time.Duration
	progress            string
	logFormat, logLevel string
	maxErrorRate        float64
	cpuProfile          string
	metricsAddr         string
	metricsFile         string
	warcOut             string

	filesEach int // files that an exchange takes, where its server is in this process too; 0 is 1
}

func (f *scanFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.out, "out", "o", defaultOut, "folder of the dataset, or s3://BUCKET/PREFIX; - writes a JSON line a site to standard output")
	flags.StringVar(&f.format, "format", "auto", "form of the lists: auto, lines, csv, jsonl, parquet (docs/inputs.md); or warc: archives whose captures are judged, and nobody is asked (docs/archives.md)")
	flags.StringVar(&f.column, "column", "", "column of the hosts: its name in the header, or its number from 1; of JSON lines the key, or keys as in site.host")
	flags.StringVar(&f.labelColumn, "label-column", "", "column to keep as label, and to divide the statistics by; named as in --column")
	flags.Uint64Var(&f.limit, "limit", 0, "only the first N entries (0: all)")
	flags.Float64Var(&f.sample, "sample", 0, "only this share of the hosts, the same ones in every run (0: all)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "read the lists, say what would be done, ask nobody")
	flags.StringVar(&f.scanID, "scan-id", "", "name of the scan; the same resumes (default: date and fingerprint of the lists; of a pipe with -o -, date and a random number)")
	flags.BoolVar(&f.restart, "restart", false, "delete what this scan has written, and begin anew")
	flags.BoolVar(&f.repair, "repair", false, "ask again what a complete scan has lost: sites whose commit records or files are missing or damaged (docs/resuming.md)")
	flags.StringVar(&f.date, "date", "", "partition scan_date, YYYY-MM-DD (default: today in UTC)")
	flags.IntVar(&f.concurrency, "concurrency", 1000, "exchanges in flight; fewer where the limit of open files (ulimit -n) has no room for them")
	flags.Float64Var(&f.hostRate, "host-rate", 1, "exchanges a second to one host (0: no limit)")
	flags.Float64Var(&f.ipRate, "ip-rate", 10, "exchanges a second to one IPv4 address, or IPv6 network of /64 (0: no limit)")
	flags.Float64Var(&f.rate, "rate", 0, "exchanges a second in all (0: no limit)")
	flags.DurationVar(&f.patience, "patience", pipeline.DefaultPatience, "put off hosts, and names, that nothing is heard of for so long while others want their place; they get all their time later (0s: put nobody off)")
	flags.StringSliceVar(&f.tables, "tables", sink.AllTables, "tables to write")
	flags.IntVar(&f.partRows, "part-rows", sink.DefaultPartRows, "a part is closed at so many origins")
	flags.DurationVar(&f.partAge, "part-age", sink.DefaultPartAge, "or at this age")
	flags.StringVar(&f.progress, "progress", "auto", "auto, bar, log or none")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.Float64Var(&f.maxErrorRate, "max-error-rate", 0, "exit with 3 when more than this share of the origins got no answer (0: never)")
	flags.StringVar(&f.metricsAddr, "metrics-addr", "", "HOST:PORT at which a Prometheus may read how the scan goes on (docs/METRICS.md)")
	flags.StringVar(&f.metricsFile, "metrics-file", "", "file that says the same to a node_exporter's textfile collector, every 15 s and at the end")
	flags.StringVar(&f.warcOut, "warc-out", "", "folder, or s3://BUCKET/PREFIX, for an archive of every exchange in WARC files (docs/archives.md)")
	flags.StringVar(&f.cpuProfile, "cpuprofile", "", "file for a profile of the processor, by stage: go tool pprof -tags FILE")
}

func (a *app) scanCommand() *cobra.Command {
	f := &scanFlags{}
	c := &cobra.Command{
		Use:   "scan [flags] [INPUT…]",
		Short: "Fetch and judge the robots.txt of every site on a list",
		Long: `scan reads lists of sites, fetches each one's robots.txt, judges it, and writes a dataset.

Lists are plain lines (hosts or URLs), CSV as Tranco, Umbrella, Majestic, CrUX and Radar publish them, JSON lines, or
Parquet, also as .gz, .zst, .xz or .zip; no INPUT, or -, is standard input. The same command again resumes where it was interrupted.

With --format warc the inputs are archives, such as Common Crawl's *-robotstxt-*.warc.gz: their captures are judged as if they
came now, a row an origin, and nobody is asked.`,
		Example: `  bulkscan scan tranco.csv.zip -o out
  zcat hosts.gz | bulkscan scan - -o - --limit 100
  bulkscan scan --format warc *-robotstxt-*.warc.gz -o out
  bulkscan scan list.csv --column domain --label-column sector --contact you@example.org`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.scan(c.Context(), f, settings(c.Flags()), args)
		},
	}
	f.add(c.Flags())
	f.fetchFlags.add(c.Flags())
	return c
}

// settings lists the flags as given, for the manifest.
func settings(flags *pflag.FlagSet) []sink.Setting {
	var list []sink.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		if !ofThisRun[f.Name] {
			list = append(list, sink.Setting{Name: f.Name, Value: f.Value.String(), Answers: changesAnswers[f.Name]})
		}
	})
	return list
}

// ofThisRun are the flags that are no settings of a scan: they say what this run of it does, or where on this machine.
var ofThisRun = map[string]bool{
	"help": true, "restart": true, "repair": true, "out": true, "cpuprofile": true, "metrics-addr": true, "metrics-file": true, "warc-out": true,
}

// changesAnswers are the flags with which another value may give other rows, so that a scan cannot be resumed with it.
// What only bounds the pace is not among them.
var changesAnswers = map[string]bool{
	"format": true, "column": true, "label-column": true, "limit": true, "sample": true,
	"max-redirects": true, "max-body": true, "user-agent": true, "contact": true,
	"scheme": true, "no-fallback": true, "strict-tls": true, "tls-min": true, "tokens": true,
	"ipv4": true, "ipv6": true, "allow-private": true,
}

// scan is the main job. It reads as what happens: the lists, the dataset, the run, and how it ends.
func (a *app) scan(ctx context.Context, f *scanFlags, config []sink.Setting, paths []string) (err error) {
	log, err := newLogger(terminal.BesideBar(a.stderr, f.progress), f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	endProfile, err := f.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endProfile()) }()
	if !f.dryRun { // which opens a list and no more
		if err := f.shareFiles(log); err != nil {
			return err
		}
	}
	registry, err := f.registry()
	if err != nil {
		return err
	}
	keep, err := f.archive()
	if err != nil {
		return err
	}
	f.log = log
	fetch, closeFetch, err := f.fetcher()
	if err != nil {
		return err
	}
	defer closeFetch()
	monitor, err := f.monitor(fetch.names.Stats, log)
	if err != nil {
		return err
	}
	defer func() { monitor.end(err) }()

	j := &job{app: a, flags: f, log: log, registry: registry, fetch: fetch, monitor: monitor, keep: keep, begun: time.Now()}
	ctx, code, endSignals := a.interrupts(ctx, j.stopAsking)
	defer endSignals()
	j.interrupted = code
	defer func() { err = interrupted(err, code()) }()
	defer j.close()
	if err := j.openLists(ctx, paths); err != nil {
		return err
	}
	if f.dryRun {
		return j.describe(ctx)
	}
	// The lists come first: one that cannot be read should leave no dataset behind.
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	j.stopReading = stopReading
	if err := j.openReader(reading); err != nil {
		return err
	}
	err = j.openSink(ctx, config)
	if intact, ok := errors.AsType[*sink.IntactError](err); ok && intact.State == sink.Complete {
		log.Info("nothing to repair", "scan", intact.ScanID, "already_kept", intact.Sites)
		return nil
	}
	if err != nil {
		return err
	}
	return j.run(ctx)
}

// check refuses values that no flag can tell by its type.
func (f *scanFlags) check() error {
	switch {
	case f.concurrency < 1:
		return usagef("--concurrency %d: at least 1", f.concurrency)
	case !isRate(f.hostRate, f.ipRate, f.rate, f.dnsRate):
		return usagef("a rate is a number from 0 on; 0 means no limit")
	case f.patience < 0:
		return usagef("--patience %v: at least 0s", f.patience)
	case !(f.sample >= 0 && f.sample <= 1): // not a number is none of them
		return usagef("--sample %v: a share from 0 to 1", f.sample)
	case f.partRows < 1:
		return usagef("--part-rows %d: at least 1", f.partRows)
	case f.partAge <= 0:
		return usagef("--part-age %v: more than 0s", f.partAge)
	case !(f.maxErrorRate >= 0 && f.maxErrorRate <= 1):
		return usagef("--max-error-rate %v: a share from 0 to 1", f.maxErrorRate)
	case f.restart && f.out == "-":
		return usagef("--restart: there is no dataset to begin anew with -o -")
	case f.repair && f.out == "-":
		return usagef("--repair: there is no dataset to repair with -o -")
	case f.repair && f.restart:
		return usagef("--repair asks again what a scan has lost, and --restart deletes it and begins anew: give one of them")
	}
	if f.out != "-" {
		if err := checkPlace(f.out); err != nil {
			return usagef("-o: %w", err)
		}
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
	if f.scanID != "" {
		if err := sink.CheckScanID(f.scanID); err != nil {
			return usagef("--scan-id: %w", err)
		}
	}
	format, err := inputs.ParseFormat(f.format)
	switch {
	case err != nil:
		return usagef("--format: %w", err)
	case format == inputs.WARC && f.column+f.labelColumn != "":
		return usagef("--column, --label-column: archives have no columns (--format warc)")
	}
	for i, table := range f.tables {
		if !slices.Contains(sink.AllTables, table) || slices.Contains(f.tables[:i], table) {
			return usagef("--tables %q: of %s, each at most once", strings.Join(f.tables, ","), strings.Join(sink.AllTables, ", "))
		}
	}
	if f.date != "" {
		if _, err := time.Parse(time.DateOnly, f.date); err != nil {
			return usagef("--date %q: want YYYY-MM-DD", f.date)
		}
	}
	return usage(terminal.CheckProgress(f.progress))
}

// archive makes what keeps the exchanges of --warc-out, nil without it.
func (f *scanFlags) archive() (*archive.Archive, error) {
	if f.warcOut == "" || f.dryRun {
		return nil, nil
	}
	st, err := openPlace(f.warcOut)
	if err != nil {
		return nil, err
	}
	keep := archive.New(st, "bulkscan/"+toolVersion(), 0)
	f.record = keep.Record
	return keep, nil
}

// shareFiles bounds the scan by the files that the process may hold.
func (f *scanFlags) shareFiles(log *slog.Logger) (err error) {
	limit, held, each := limits.RaiseFiles(), limits.HeldFiles()+uint64(f.furtherSockets()), max(1, f.filesEach)
	if f.files, err = limits.ShareFiles(limit, held, f.concurrency, each); err != nil {
		return usagef("--concurrency %d: %w", f.concurrency, err)
	}
	if f.files.Concurrency < f.concurrency {
		log.Warn("concurrency lowered to what the limit of open files allows", "asked", f.concurrency, "now", f.files.Concurrency,
			"limit", limit, "remedy", fmt.Sprintf("ulimit -n %d", limits.FilesWanted(held, f.concurrency, each)))
	}
	return nil
}

// furtherSockets is how many sockets the name servers beside the first may take: of those of --resolver, or of as many as a
// resolv.conf can name.
func (f *fetchFlags) furtherSockets() int {
	servers := len(f.resolver)
	if servers == 0 {
		servers = 3
	}
	return (servers - 1) * limits.SocketsEach
}

// isRate reports whether all are rates: numbers that are not negative, and not without end.
func isRate(rates ...float64) bool {
	for _, r := range rates {
		if !(r >= 0 && r <= math.MaxFloat64) {
			return false
		}
	}
	return true
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

func (f *fetchFlags) registry() (*tokens.Registry, error) {
	if f.tokens == "" {
		return tokens.Default(), nil
	}
	file, err := os.Open(f.tokens)
	if err != nil {
		return nil, usagef("--tokens: cannot read %s: %w", clipped(f.tokens), why(err))
	}
	defer file.Close()
	registry, err := tokens.Load(bufio.NewReader(file))
	if err != nil {
		return nil, usagef("--tokens %s: %w", f.tokens, err)
	}
	return registry, nil
}

// asker is what asks: the fetcher, and the resolver that tells it the addresses.
type asker struct {
	*fetcher.Fetcher
	names *resolve.Resolver
}

// fetcher makes what asks, and a function that ends it.
func (f *fetchFlags) fetcher() (*asker, func(), error) {
	cfg := fetcher.Config{
		Timeout: f.timeout, ConnectTimeout: f.connectTimeout, TLSTimeout: f.tlsTimeout, HeaderTimeout: f.headerTimeout,
		MaxRedirects: f.maxRedirects, Retries: f.retries, RetryAfter: f.retryAfter, MaxRetryAfter: f.maxRetryAfter,
		MaxBody: f.maxBody, UserAgent: f.agent(), NoFallback: f.noFallback,
		AllowPrivate: f.allowPrivate, StrictTLS: f.strictTLS, IPv4: f.ipv4, IPv6: f.ipv6, Roots: f.roots,
		FTPData: f.files.Transfers, Record: f.record,
	}
	switch f.scheme {
	case "https":
		cfg.Scheme = origin.HTTPS
	case "http":
		cfg.Scheme = origin.HTTP
	default:
		return nil, nil, usagef("--scheme %q: https or http", f.scheme)
	}
	var known bool
	if cfg.TLSMin, known = tlsVersions[f.tlsMin]; !known {
		return nil, nil, usagef("--tls-min %q: 1.0, 1.1, 1.2 or 1.3", f.tlsMin)
	}
	for _, text := range f.connectTo {
		to, err := fetcher.ParseConnectTo(text)
		if err != nil {
			return nil, nil, usagef("--connect-to %q: %w", text, err)
		}
		cfg.ConnectTo = append(cfg.ConnectTo, to)
	}
	names := resolve.Options{Total: f.names, Rate: f.dnsRate, IPv4: f.ipv4, IPv6: f.ipv6, Log: f.log}
	if f.files.Sockets > 0 {
		names.MaxSockets = f.files.Sockets + f.furtherSockets()
	}
	if f.sourceIP != "" {
		ip, err := localAddress(f.sourceIP)
		if err != nil {
			return nil, nil, usagef("--source-ip: %w", err)
		}
		cfg.SourceIP = ip
		if !f.ipv4 && !f.ipv6 {
			// Names are asked for addresses that can be dialled from there.
			names.IPv4, names.IPv6 = ip.Is4(), ip.Is6()
		}
	}
	if f.caFile != "" {
		pem, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, nil, usagef("--ca-file: %w", err)
		}
		cfg.Roots = x509.NewCertPool()
		if !cfg.Roots.AppendCertsFromPEM(pem) {
			return nil, nil, usagef("--ca-file %s: no certificate in it", f.caFile)
		}
	}
	if f.optOut != "" {
		list, err := inputs.ReadOptOut(f.optOut)
		if err != nil {
			return nil, nil, usagef("--opt-out: %w", err)
		}
		cfg.OptOut, cfg.OptOutAddr = list.Contains, list.Covers
	}
	resolver, err := resolve.New(f.resolver, names)
	if err != nil {
		return nil, nil, usagef("--resolver: %w", err)
	}
	cfg.Resolver = resolver
	if f.observer != nil {
		cfg.Resolver = &observer.Resolver{Resolver: resolver, Observer: f.observer}
	}
	fetch, err := fetcher.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(usage(err), resolver.Close())
	}
	return &asker{fetch, resolver}, func() { _ = resolver.Close() }, nil
}

// tlsVersions are the values of --tls-min.
var tlsVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// localAddress reads an address that connections can come from. One that this machine has not would fail every exchange,
// and each failure would pass for its host's.
func localAddress(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, err
	}
	if ip.Zone() != "" {
		return ip, errors.New("an address with a zone reaches no site")
	}
	ip = ip.Unmap()
	probe, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return ip, fmt.Errorf("cannot dial from it: %w", err)
	}
	return ip, probe.Close()
}

// home is where the program tells more about itself.
const home = "https://github.com/bulkscan/bulkscan"

// agent is the User-Agent header: what, which version, where to learn more, and whom to complain to.
func (f *fetchFlags) agent() string {
	agent := f.userAgent
	if agent == "" {
		agent = fmt.Sprintf("bulkscan/%s (+%s)", toolVersion(), home)
	}
	if f.contact == "" {
		return agent
	}
	if before, ok := strings.CutSuffix(agent, ")"); ok {
		return before + "; contact: " + f.contact + ")"
	}
	return agent + " (contact: " + f.contact + ")"
}

// job is one scan: what it reads, asks and writes.
type job struct {
	*app
	flags    *scanFlags
	log      *slog.Logger
	registry *tokens.Registry
	fetch    *asker
	monitor  *monitor
	keep     *archive.Archive // nil without --warc-out
	begun    time.Time

	names        []string             // of the lists, as given
	paths        []string             // of the files that are read: standard input is spooled
	spooled      []string             // of them, those to be deleted at the end
	fingerprints []inputs.Fingerprint // of each list; nil where nothing is resumed
	scanID       string

	store    store.Store
	writer   *sink.Writer // nil with -o -
	rejects  *sink.Rejects
	lines    *sink.JSONLines // nil but with -o -
	reader   listReader
	archives *replay.Reader // which reader is with --format warc; else nil

	stopReading context.CancelFunc                // makes the reader give up
	asking      atomic.Pointer[pipeline.Pipeline] // nil before there is one
	interrupted func() int                        // the exit code of the first signal, 0 before one came
}

// stopAsking is what the first signal does, once hosts are asked: those that are may finish. It reports whether that is so.
func (j *job) stopAsking() bool {
	p := j.asking.Load()
	if p == nil {
		return false
	}
	fmt.Fprintln(j.stderr, "\nbulkscan: finishing what is being asked; once more to abort")
	p.Stop()
	j.stopReading() // which may be waiting for a line that never comes
	return true
}

// close gives back what is still open. What matters has been closed, and its errors looked at, before.
func (j *job) close() {
	if j.reader != nil {
		_ = j.reader.Close()
	}
	if j.writer != nil {
		_ = j.writer.Abort()
	}
	if j.keep != nil {
		_ = j.keep.Close()
	}
	for _, path := range j.spooled {
		_ = os.Remove(path)
	}
}

// openLists fixes what is read, and the scan's name. Standard input is copied to a file first where a dataset is written, so
// that the scan knows its fingerprint and the same command resumes it.
func (j *job) openLists(ctx context.Context, paths []string) error {
	j.names = paths
	if len(paths) == 0 {
		j.names = []string{"-"}
	}
	if slices.Contains(j.names, "-") && terminal.Is(j.stdin) {
		fmt.Fprintln(j.stderr, "Reading the list from this terminal, a site a line; Ctrl-D ends it.")
	}
	j.paths = append([]string(nil), j.names...)
	resumable := j.flags.out != "-" && !j.flags.dryRun
	spool := resumable || j.flags.format == inputs.WARC.String() // archives are looked up in
	for i, path := range j.paths {
		if path != "-" || !spool {
			continue
		}
		spooled, _, err := inputs.Spool(ctx, j.stdin, os.TempDir())
		if err != nil {
			return fmt.Errorf("cannot read standard input: %w", err)
		}
		j.paths[i] = spooled
		j.spooled = append(j.spooled, spooled)
	}
	if j.scanID = j.flags.scanID; j.flags.dryRun || !resumable && j.scanID != "" {
		return nil
	}
	mark := fmt.Sprintf("%06x", rand.N(1<<24)) // of a list that is read as it comes, whose fingerprint is known too late
	if resumable || !slices.ContainsFunc(j.paths, isStream) {
		all, each, err := inputs.Fingerprints(ctx, j.paths)
		if err != nil {
			return err
		}
		j.fingerprints, mark = each, all.String()[:6]
	}
	if j.scanID == "" {
		j.scanID = fmt.Sprintf("%s-%s", strings.ReplaceAll(j.date(), "-", ""), mark)
	}
	return nil
}

// isStream reports whether a list can be read only once.
func isStream(path string) bool {
	info, err := os.Stat(path)
	return path == "-" || err == nil && !info.Mode().IsRegular()
}

func (j *job) date() string {
	if j.flags.date != "" {
		return j.flags.date
	}
	return j.begun.UTC().Format(time.DateOnly)
}

// openReader begins to read the lists.
func (j *job) openReader(ctx context.Context) (err error) {
	format, err := inputs.ParseFormat(j.flags.format)
	if err != nil {
		return usagef("--format: %w", err)
	}
	if format == inputs.WARC {
		j.archives, err = replay.Open(ctx, j.paths, j.fetch.Fetcher, replay.Options{
			MaxBody: j.flags.maxBody, Limit: j.flags.limit, Sample: j.flags.sample, Reject: j.reject,
		})
		if err == nil {
			j.reader = j.archives
		}
		return j.unspooled(err)
	}
	list, err := inputs.Open(ctx, j.paths, inputs.Options{
		Format: format, Column: j.flags.column, LabelColumn: j.flags.labelColumn,
		Limit: j.flags.limit, Sample: j.flags.sample, Stdin: j.stdin, Reject: j.reject,
		Parquet: func(file io.ReaderAt, size int64) (inputs.Table, error) { return sink.OpenForeign(file, size) },
	})
	if err == nil {
		j.reader = list
	}
	return j.unspooled(err)
}

// called is what the user called a list, or one within it, that was spooled: -.
func (j *job) called(name string) string {
	for i, path := range j.paths {
		if within, ok := strings.CutPrefix(name, path); ok && path != j.names[i] {
			return j.names[i] + within
		}
	}
	return name
}

// unspooled makes an error of a list that was spooled say so: of the file that it names nothing will be left.
func (j *job) unspooled(err error) error {
	if e, ok := errors.AsType[*inputs.Error](err); ok {
		if name := j.called(e.File); name != e.File {
			e.File = "standard input" + strings.TrimPrefix(name, "-")
		}
	}
	return err
}

// reject notes a line that is no origin.
func (j *job) reject(r inputs.Reject) error {
	r.Input = j.called(r.Input)
	j.log.Debug("rejected", "input", r.Input, "line", r.Line, "reason", r.Reason, "text", r.Text)
	if j.rejects == nil {
		return nil
	}
	return j.rejects.Add(sink.Reject{Input: r.Input, Line: int64(r.Line), Text: r.Text, Reason: r.Reason})
}

// openSink opens the dataset, or standard output.
func (j *job) openSink(ctx context.Context, config []sink.Setting) error {
	o := sink.Options{
		ScanID: j.scanID, Date: j.date(), Tables: j.flags.tables, PartRows: j.flags.partRows, PartAge: j.flags.partAge,
		ToolVersion: toolVersion(), Registry: j.registry, Config: config, Restart: j.flags.restart, Repair: j.flags.repair,
	}
	if j.keep != nil {
		o.Beside = j.keep
	}
	if j.flags.out == "-" {
		j.lines = sink.NewJSONLines(j.stdout, o)
		return nil
	}
	for i, fingerprint := range j.fingerprints {
		in := sink.Input{Name: j.names[i], Fingerprint: fingerprint.String()}
		if info, err := os.Stat(j.paths[i]); err == nil { // it is only for people
			in.Bytes = info.Size()
		}
		o.Inputs = append(o.Inputs, in)
	}
	var err error
	if j.store, err = openPlace(j.flags.out); err != nil {
		return err
	}
	// In a folder this takes no time. In an object store a lock that another process has left takes its while to end.
	patience := time.AfterFunc(3*time.Second, func() {
		j.log.Info("opening the dataset takes a while: another process may hold the scan's lock, or have been killed with it", "scan", j.scanID, "out", j.flags.out)
	})
	j.writer, err = sink.Open(ctx, j.store, o)
	if patience.Stop(); err != nil {
		return err
	}
	if done := j.writer.DoneCount(); j.flags.repair {
		j.log.Info("repairing", "scan", j.scanID, "already_kept", done, "lost", j.writer.LostCount())
	} else if done > 0 {
		j.log.Info("resuming", "scan", j.scanID, "already_kept", done)
	} else {
		j.log.Info("scanning", "scan", j.scanID, "out", j.flags.out)
	}
	j.rejects, err = sink.OpenRejects(ctx, j.store, j.scanID)
	return sink.BrokenOff(j.scanID, err)
}

// run takes the lists through the pipeline, and ends the scan as it deserves.
func (j *job) run(ctx context.Context) error {
	cfg := pipeline.Config{
		Concurrency: j.flags.files.Concurrency,
		HostRate:    j.flags.hostRate, IPRate: j.flags.ipRate, Rate: j.flags.rate, Patience: j.flags.patience,
	}
	var keep pipeline.Sink = j.lines
	if j.writer != nil {
		keep, cfg.Skip = j.writer, j.writer.Done
	}
	p := pipeline.New(cfg, source{j.reader, j.unspooled}, j.fetch, audit.New(j.registry), keep)
	if j.archives != nil {
		p = pipeline.NewReplay(cfg, recalled{source{j.reader, j.unspooled}, j.archives}, audit.New(j.registry), keep)
	}
	j.monitor.scan.Begin(j.scanID, p.Progress(), j.reader.Progress)
	j.asking.Store(p)
	// Writing ends a while after the second signal, also where it is what the pipeline waits for.
	committing, end := lasting(ctx, abortTime)
	defer end()
	if j.writer != nil {
		defer context.AfterFunc(committing, j.writer.GiveUp)()
	}
	if j.keep != nil {
		defer context.AfterFunc(committing, j.keep.GiveUp)()
	}
	err := j.watch(ctx, p)
	if err != nil && !errors.Is(err, pipeline.ErrStopped) {
		// Whatever ended it, what was gathered is kept: also when it was a list that broke off.
		commitErr := j.commit(committing, false)
		if j.writer != nil && errors.Is(err, syscall.ENOSPC) { // the disk of temporary files may be another one
			err = sink.BrokenOff(j.scanID, err)
		}
		switch _, broken := errors.AsType[*sink.StoreError](err); {
		case broken: // which closing it only says again
			return j.unkept(err)
		case j.interrupted() != 0 && commitErr != nil: // not everything was kept
			return j.unkept(commitErr)
		}
		return errors.Join(j.ended(err), commitErr)
	}
	if commitErr := j.commit(committing, err == nil); commitErr != nil {
		return j.unkept(commitErr)
	}
	if err != nil {
		return j.ended(err)
	}
	return j.judgeRun(p.Progress())
}

// abortTime is how long what was gathered may take to be committed after the second signal.
const abortTime = 5 * time.Second

// lasting returns a context that ends so long after another one.
func lasting(parent context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		timer := time.NewTimer(more)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// watch runs the pipeline with a display beside it.
func (j *job) watch(ctx context.Context, p *pipeline.Pipeline) error {
	shown, hide := context.WithCancel(context.Background())
	d := &terminal.Display{Progress: p.Progress(), Names: j.fetch.names.Stats, Read: j.reader.Progress, Limit: j.flags.limit, Bar: barSince(j.begun)}
	if j.writer != nil {
		d.Done = j.writer.DoneCount()
	}
	var drawn sync.WaitGroup
	drawn.Go(func() { d.Show(shown, j.flags.progress, j.stderr, j.log) })
	drawn.Go(func() { d.Stalls(shown, j.log) })
	err := p.Run(ctx)
	hide()
	drawn.Wait()
	if n := p.Progress().Throttled.Load(); n > 0 {
		j.log.Info("some addresses were asked more slowly: they answered 429, or 503 with a Retry-After", "answers", n)
	}
	return err
}

// ended is the error of a run that did not reach the end of its list.
func (j *job) ended(err error) error {
	code := j.interrupted()
	if code == 0 {
		return err
	}
	if j.writer == nil {
		return &exitError{code, errors.New("interrupted")}
	}
	return &exitError{code, fmt.Errorf("interrupted; everything finished so far is kept, and the same command resumes scan %s", j.scanID)}
}

// unkept is the error of a run whose last part could not be committed: after a second signal that is no failure.
func (j *job) unkept(err error) error {
	if code := j.interrupted(); code != 0 && errors.Is(err, context.Canceled) && j.writer != nil {
		return &exitError{code, fmt.Errorf("interrupted; what was committed is kept, and the same command resumes scan %s", j.scanID)}
	}
	return err
}

// commit makes durable what was kept; at the end of the list it also computes the statistics and completes the scan.
func (j *job) commit(ctx context.Context, complete bool) error {
	if j.writer == nil {
		return j.lines.Close(ctx)
	}
	// What was gathered comes first: the scan goes on from there. The rejects are gathered anew by whoever resumes it, so
	// that a store which has been given up need not be waited for once more.
	err := j.writer.Flush(ctx)
	if err == nil {
		err = j.rejects.Close(ctx)
	} else if discardErr := j.rejects.Discard(); discardErr != nil {
		j.log.Debug("discarding the rejects failed too", "error", discardErr)
	}
	if complete && err == nil {
		err = j.complete(ctx)
	}
	closeErr := j.writer.Close(ctx)
	if err == nil {
		return closeErr
	}
	if closeErr != nil {
		j.log.Debug("closing failed too", "error", closeErr)
	}
	return sink.BrokenOff(j.scanID, err)
}

// complete makes the scan one whose list was read to its end.
func (j *job) complete(ctx context.Context) error {
	if err := j.statistics(ctx); err != nil {
		return err
	}
	return j.writer.Complete(ctx)
}

// judgeRun says in one line what came of the scan, and whether it kept to the bound that the user set.
func (j *job) judgeRun(p *pipeline.Progress) error {
	kept := p.Kept.Load()
	stats := j.reader.Stats()
	names := j.fetch.names.Stats()
	took := time.Since(j.begun)
	if stats.Entries == 0 {
		j.log.Warn("no origin on the list", "lines", stats.Lines, "rejected_lines", stats.Rejects, "remedy", "look at --dry-run, --format and --column")
	}
	j.log.Info("done",
		"kept", kept, "already_kept", p.Skipped.Load(), "rejected_lines", stats.Rejects, "duplicates", stats.Duplicates,
		"took", took.Round(time.Millisecond), "per_second", int(float64(kept)/took.Seconds()), "peak_memory_mb", limits.PeakMemory()>>20, terminal.DNSGroup(&names))
	terminal.LogServers(j.log, &names)
	if j.archives != nil {
		if u := j.archives.Unsound(); u.Members > 0 {
			return &exitError{exitDamaged, fmt.Errorf("%s: the gzip member at byte %d is damaged, which was found after records of it had been judged: their rows may be wrong (%d such members in all; each is a rejected line)", j.called(u.File), u.Offset, u.Members)}
		}
	}
	if j.flags.maxErrorRate > 0 && kept > 0 {
		silent := kept - p.Outcomes[exchange.Answered].Load()
		if share := float64(silent) / float64(kept); share > j.flags.maxErrorRate {
			return &exitError{exitThreshold, fmt.Errorf("%.1f %% of the origins got no answer, more than --max-error-rate %v allows", 100*share, j.flags.maxErrorRate)}
		}
	}
	return nil
}

// describe is --dry-run: the lists are read in full, and nobody is asked.
func (j *job) describe(ctx context.Context) error {
	if err := j.openReader(ctx); err != nil {
		return err
	}
	var auto, named uint64
	for {
		entry, err := j.reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if entry.Origin.Scheme() == origin.Auto {
			auto++
		} else {
			named++
		}
	}
	s := j.reader.Stats()
	w := bufio.NewWriter(j.stdout)
	for _, file := range s.Files {
		fmt.Fprintf(w, "%s: %d lines, %s", terminal.Line(file.Name), file.Lines, terminal.Line(file.Layout))
		if file.Compression != "" {
			fmt.Fprintf(w, ", %s", file.Compression)
		}
		fmt.Fprintln(w)
	}
	if j.archives != nil {
		fmt.Fprintf(w, "%d captures would be judged, and nobody asked\n", named)
	} else {
		fmt.Fprintf(w, "%d origins would be asked: %d of them with a scheme of their own, %d by %s first\n", auto+named, named, auto, j.flags.scheme)
	}
	fmt.Fprintf(w, "%d lines would be rejected (%d of them duplicates), %d are blank, comment or header", s.Rejects, s.Duplicates, s.Skipped)
	if s.LeftOut > 0 {
		fmt.Fprintf(w, ", %d are left out by --sample", s.LeftOut)
	}
	fmt.Fprintf(w, "\nthe dataset would go to %s\n", terminal.Line(j.flags.out))
	return w.Flush()
}

// statistics computes the statistics tables from what is committed. A scan that writes too few tables for any has none.
func (j *job) statistics(ctx context.Context) error {
	err := report.Stats(ctx, j.store, j.scanID, report.Options{Registry: j.registry, ToolVersion: toolVersion(), Log: j.log})
	if errors.Is(err, sink.ErrNoTable) {
		return nil
	}
	return err
}

// listReader reads lists, or archives.
type listReader interface {
	Next() (inputs.Entry, error)
	Stats() inputs.Stats
	Progress() (read, total int64)
	Close() error
}

// source makes a reader what the pipeline reads.
type source struct {
	listReader
	told func(error) error // how an error is told
}

// recalled makes the reader of archives what the pipeline replays.
type recalled struct {
	source
	*replay.Reader
}

// Next is the source's.
func (a recalled) Next() (pipeline.Entry, error) { return a.source.Next() }

func (s source) Next() (pipeline.Entry, error) {
	e, err := s.listReader.Next()
	return pipeline.Entry{Seq: e.Seq, Input: e.Input, Origin: e.Origin, Rank: e.Rank, Label: e.Label}, s.told(err)
}

// isURL reports whether an argument is an address rather than the name of a file.
func isURL(arg string) bool {
	u, err := url.Parse(arg)
	return err == nil && u.Scheme != "" && u.Host != ""
}

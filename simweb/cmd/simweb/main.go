// Command simweb runs the simulated web of package simweb until it is interrupted, and prints the command that scans
// it. It also writes lists of hosts and what a scan of them must find.
//
//	simweb --names 10000 > list.csv             made-up hosts with ranks
//	simweb --list list.csv --truth truth.jsonl  what a scan of them must find
//	simweb                                      the web
//	simweb --record-accepts accepts.json        the web, and at its end the load of its busiest addresses and hosts
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bulkscan/bulkscan/simweb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "simweb: %v\n", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	web              simweb.Config
	policy           simweb.Policy
	names            int
	behaviours, json bool
	list, truth, ca  string
	accepts          string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	o.policy = simweb.DefaultPolicy()
	f := flag.NewFlagSet("simweb", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&o.web.Seed, "seed", 0, "seed of the web: another seed makes another web")
	f.IntVar(&o.web.Addresses, "addresses", 0, "number of loopback addresses that hosts share (default 512)")
	f.IntVar(&o.web.HTTPPort, "http-port", 0, "port of plain HTTP (default any free port)")
	f.IntVar(&o.web.TLSPort, "tls-port", 0, "port of HTTPS (default any free port)")
	f.IntVar(&o.web.DNSPort, "dns-port", 0, "port of the name server (default any free port)")
	f.DurationVar(&o.web.Hold, "hold", 0, "how long silent hosts hold a connection (default 1m0s)")
	f.DurationVar(&o.web.Slow, "slow", 0, "the longest wait of slow hosts (default 1s)")
	f.Float64Var(&o.web.HotShare, "hot-share", 0, "share of the hosts at one address, 0 to 1")
	f.IntVar(&o.web.Bodies, "bodies", 0, "number of made-up files (default 1024)")
	f.Float64Var(&o.web.AIShare, "ai-share", 0, "share of the files that name an AI crawler (default 0.2)")
	f.StringVar(&o.web.Corpus, "corpus", "", "serve the real files of this pack, `FILE.bin.zst`")
	f.Func("only", "use only these behaviours, `NAME,…`", func(s string) error {
		o.web.Only = strings.Split(s, ",")
		return nil
	})
	f.IntVar(&o.names, "names", 0, "print `N` made-up hosts as rank,host and end")
	f.BoolVar(&o.behaviours, "behaviours", false, "print the list of behaviours and end")
	f.StringVar(&o.list, "list", "", "with --truth: the list of hosts, a line each, or rank,host; - for standard input")
	f.StringVar(&o.truth, "truth", "", "write what a scan of --list finds, as JSON lines, and end; - for standard output")
	f.StringVar(&o.ca, "ca", "", "write the authority's certificate to this `FILE`")
	f.StringVar(&o.accepts, "record-accepts", "",
		"when the web ends, write the connections of its busiest addresses and hosts to this `FILE` as JSON (of the first 524288)")
	f.BoolVar(&o.json, "json", false, "print the web's addresses and ports as JSON")
	f.IntVar(&o.policy.MaxRedirects, "max-redirects", o.policy.MaxRedirects, "for --truth: the scanner's setting")
	f.Int64Var(&o.policy.MaxBody, "max-body", o.policy.MaxBody, "for --truth: the scanner's setting")
	f.IntVar(&o.policy.Retries, "retries", o.policy.Retries, "for --truth: the scanner's setting")
	f.BoolVar(&o.policy.NoFallback, "no-fallback", false, "for --truth: the scanner's setting")
	f.BoolVar(&o.policy.StrictTLS, "strict-tls", false, "for --truth: the scanner's setting")
	f.BoolVar(&o.policy.Attempts, "attempts", false,
		"for --truth: add the number of attempts, for a web that was not asked before")
	f.BoolVar(&o.policy.TrustCA, "trust-ca", false, "for --truth: the scanner trusts the web's authority")
	scheme := f.String("scheme", "https", "for --truth: the scanner's setting")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("cannot understand %q", f.Arg(0))
	}
	switch *scheme {
	case "https":
	case "http":
		o.policy.HTTPFirst = true
	default:
		return o, fmt.Errorf("cannot begin with scheme %q: https or http", *scheme)
	}
	if (o.list == "") != (o.truth == "") {
		return o, errors.New("--list and --truth belong together")
	}
	if o.accepts != "" && (o.truth != "" || o.names > 0 || o.behaviours) {
		return o, errors.New("--record-accepts needs a web that runs")
	}
	o.web.RecordAccepts = o.accepts != ""
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	switch {
	case err != nil:
		return err
	case o.names > 0:
		return printNames(stdout, o)
	case o.behaviours:
		return simweb.WriteBehaviours(stdout)
	}
	web, err := simweb.Start(ctx, o.web)
	if err != nil {
		return err
	}
	defer web.Close()
	if o.ca != "" {
		if err := os.WriteFile(o.ca, web.CAPEM(), 0o644); err != nil {
			return fmt.Errorf("cannot write the certificate: %w", err)
		}
	}
	if o.truth != "" {
		return writeTruth(web, o, stdout)
	}
	var record *os.File
	if o.accepts != "" {
		// Opened now, so that a wrong path is an error before a long run.
		if record, err = os.Create(o.accepts); err != nil {
			return fmt.Errorf("cannot record the accepts: %w", err)
		}
		defer func() { err = errors.Join(err, record.Close()) }()
	}
	if err := announce(web, o, stdout); err != nil {
		return err
	}
	<-ctx.Done()
	web.Close() // no more connections
	if record != nil {
		if err := json.NewEncoder(record).Encode(web.Record()); err != nil {
			return fmt.Errorf("cannot record the accepts: %w", err)
		}
	}
	s := web.Stats()
	fmt.Fprintf(stderr, "simweb: %d connections, %d handshakes, %d requests, %d names\n", s.Accepts, s.Handshakes,
		s.Requests, s.Questions)
	return nil
}

func printNames(stdout io.Writer, o options) error {
	out := bufio.NewWriter(stdout)
	for rank, host := range simweb.Names(o.web.Seed, o.names) {
		fmt.Fprintf(out, "%d,%s\n", rank, host)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("cannot write the names: %w", err)
	}
	return nil
}

// announce prints where the web listens, and how to scan it.
func announce(web *simweb.Web, o options, stdout io.Writer) error {
	if o.json {
		return json.NewEncoder(stdout).Encode(map[string]any{
			"resolver": web.DNSAddr().String(), "http_port": web.HTTPPort(), "tls_port": web.TLSPort(),
			"connect_to": web.ConnectTo(), "hot_address": web.HotAddr().String(), "single_address": web.SingleAddress(),
		})
	}
	if web.SingleAddress() {
		fmt.Fprintln(stdout, "This system routes 127.0.0.1 alone: all hosts share it, and refusals are resets.")
	}
	_, err := fmt.Fprintf(stdout, "bulkscan scan LIST %s\n", strings.Join(web.Flags(), " "))
	return err
}

func writeTruth(web *simweb.Web, o options, stdout io.Writer) (err error) {
	in := io.Reader(os.Stdin)
	if o.list != "-" {
		file, err := os.Open(o.list)
		if err != nil {
			return fmt.Errorf("cannot read the list: %w", err)
		}
		defer file.Close()
		in = file
	}
	out := stdout
	if o.truth != "-" {
		file, err := os.Create(o.truth)
		if err != nil {
			return fmt.Errorf("cannot write the truth: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	lines := bufio.NewScanner(in)
	if err := web.WriteTruth(out, hosts(lines), o.policy); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot read the list: %w", err)
	}
	return nil
}

// hosts yields a list's entries: a line each, or the second field of rank,host. It yields empty lines too, since seq
// counts lines.
func hosts(lines *bufio.Scanner) iter.Seq[string] {
	return func(yield func(string) bool) {
		for lines.Scan() {
			entry := strings.TrimSpace(lines.Text())
			if fields := strings.Split(entry, ","); len(fields) > 1 {
				entry = fields[1]
			}
			if !yield(entry) {
				return
			}
		}
	}
}

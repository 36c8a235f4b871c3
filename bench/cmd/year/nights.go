package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// otherVantage names the other observer.
const otherVantage = "elsewhere"

func scanID(night int) string { return fmt.Sprintf("night-%03d", night) }

// sockets scans by the program, each night in a process of its own, on a simulated web in this process.
type sockets struct {
	script  *script
	program string
	dir     string // of the dataset
	list    string // path
	web     *simweb.Web
	night   atomic.Int64
}

func newSockets(ctx context.Context, s *script, program, dir string) (*sockets, error) {
	x := &sockets{script: s, program: program, dir: dir, list: dir + ".list"}
	var err error
	// With many addresses, few sites share one that throttles.
	x.web, err = simweb.Start(ctx, simweb.Config{Addresses: 2048, Script: func(host string) (string, []byte) {
		site, ok := s.index[host]
		if !ok {
			return "", nil
		}
		night := int(x.night.Load())
		a := s.shown(site, night)
		return a.behaviour, s.body(site, night, a)
	}})
	return x, err
}

func (x *sockets) scan(ctx context.Context, night int) (time.Duration, error) {
	x.night.Store(int64(night))
	var lines bytes.Buffer
	for site, host := range x.script.hosts {
		if x.script.shown(site, night).gap != unlisted {
			fmt.Fprintln(&lines, host)
		}
	}
	if err := os.WriteFile(x.list, lines.Bytes(), 0o666); err != nil {
		return 0, err
	}
	args := []string{"scan", x.list, "-o", x.dir, "--scan-id", scanID(night), "--date", x.script.date(night).String(), "--progress", "none", "--log-level", "error",
		"--resolver", x.web.DNSAddr().String(), "--allow-private", "--dns-rate", "0", "--host-rate", "0", "--ip-rate", "0", "--scheme", "http",
		"--timeout", "1500ms", "--retries", "1", "--retry-after", "0s", "--max-retry-after", "0s"}
	for _, to := range x.web.ConnectTo() {
		args = append(args, "--connect-to", to)
	}
	if x.script.elsewhere(night) {
		args = append(args, "--vantage", otherVantage)
	}
	c := exec.CommandContext(ctx, x.program, args...)
	if text, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cannot scan night %d: %w\n%s", night, err, text)
	}
	return built.CPU(c.ProcessState), nil
}

// generated judges made exchanges and writes table sites, without a network.
type generated struct {
	script *script
	store  store.Store
}

func (g *generated) scan(ctx context.Context, night int) (time.Duration, error) {
	begun := cpuTime()
	o := sink.Options{ScanID: scanID(night), Date: g.script.date(night).String(), Tables: []string{schema.Sites}, PartRows: 1 << 20,
		Observer: commit.Observer{Source: commit.Live, Product: "bulkscan", Family: "any", Scheme: "https+http", HTTP: "HTTP/1.1"}}
	if g.script.elsewhere(night) {
		o.Observer.Vantage = otherVantage
	}
	w, err := sink.Open(ctx, g.store, o)
	if err != nil {
		return 0, err
	}
	site, at := &audit.Site{}, time.Unix(int64(g.script.date(night))*24*60*60, 0)
	for i, from := range g.script.origins {
		a := g.script.shown(i, night)
		if a.gap == unlisted {
			continue
		}
		site.Reset()
		site.Seq, site.Input, site.Origin = uint64(i), g.script.hosts[i], from
		asked := exchange.Target{Origin: from.As(origin.HTTPS), Path: exchange.RobotsPath}
		site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Fields.Challenge = a.outcome, a.status, a.challenge
		site.Fetch.Answered, site.Fetch.Final, site.Fetch.FetchedAt, site.Fetch.Attempts = asked.Origin, asked, at, 1
		if a.status == 200 {
			site.Fetch.Body = g.script.body(i, night, a)
		}
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			return 0, errors.Join(err, w.Abort())
		}
	}
	err = errors.Join(w.Complete(ctx), w.Close(ctx))
	return cpuTime() - begun, err
}

// year is a script that is scanned and merged, night after night.
type year struct {
	*script
	store store.Store
	scan  func(ctx context.Context, night int) (cpu time.Duration, err error)
	out   io.Writer

	scans, scanCPU, merges []time.Duration // by night
}

// run scans and merges all nights, and judges the ledger: at the end; derived anew; and after one more night, which makes the
// other observer the newest. It reports whether all was as it must be.
func (y *year) run(ctx context.Context) (ok bool, err error) {
	for n := range y.nights {
		if err := y.one(ctx, n); err != nil {
			return false, err
		}
	}
	ok, err = y.judge(ctx, false, y.nights)
	if err != nil {
		return false, err
	}
	y.reportTimes()
	begun := time.Now()
	if err := history.Rebuild(ctx, y.store, history.Options{}); err != nil {
		return false, err
	}
	fmt.Fprintf(y.out, "\n### Derived anew from all nights, in %.1f s\n\n", time.Since(begun).Seconds())
	again, err := y.judge(ctx, false, y.nights)
	if err != nil {
		return false, err
	}
	if err := y.one(ctx, y.nights); err != nil {
		return false, err
	}
	fmt.Fprint(y.out, "\n### After one more night, by the other observer: the ledger has that observer's nights alone\n\n")
	other, err := y.judge(ctx, true, y.nights+1)
	return ok && again && other, err
}

// one scans a night and merges it.
func (y *year) one(ctx context.Context, night int) error {
	begun := time.Now()
	cpu, err := y.scan(ctx, night)
	if err != nil {
		return err
	}
	scanned := time.Now()
	if err := y.merge(ctx, night); err != nil {
		return err
	}
	y.scans, y.scanCPU, y.merges = append(y.scans, scanned.Sub(begun)), append(y.scanCPU, cpu), append(y.merges, time.Since(scanned))
	return nil
}

// merge adds a night to the ledger. Where the scan has done so, nothing changes.
func (y *year) merge(ctx context.Context, night int) error {
	return history.Add(ctx, y.store, scanID(night), history.Options{})
}

// judge holds the ledger on disk against the script, and reports whether it is true.
func (y *year) judge(ctx context.Context, elsewhere bool, until int) (bool, error) {
	l, err := readLedger(ctx, y.store)
	if err != nil {
		return false, err
	}
	v := judge(y.script, l, elsewhere, until)
	fmt.Fprintf(y.out, "%d nights of the observer, %.1f MB of ledger. ", l.scans, float64(l.bytes)/1e6)
	v.report(y.out)
	return v.ok(), nil
}

// reportTimes reports what the nights took, at first and at last.
func (y *year) reportTimes() {
	tenth := y.nights / 10
	fmt.Fprint(y.out, "\n| seconds a night, medians | first tenth of the nights | last tenth |\n|---|--:|--:|\n")
	for _, row := range []struct {
		what string
		took []time.Duration
	}{{"scan", y.scans}, {"scan, processor time", y.scanCPU}, {"merge", y.merges}} {
		fmt.Fprintf(y.out, "| %s | %.2f | %.2f |\n", row.what, median(row.took[:tenth]), median(row.took[y.nights-tenth:]))
	}
	for n := 1; n < y.nights; n++ {
		if y.elsewhere(n) != y.elsewhere(n-1) {
			fmt.Fprintf(y.out, "\nThe observer changes before night %d, and the merge derives the ledger anew in %.1f s.\n", n, y.merges[n].Seconds())
		}
	}
}

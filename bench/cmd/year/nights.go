package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// year is a script that is scanned and merged, night after night.
type year struct {
	*script
	dir   string // of the dataset
	store store.Store
	out   io.Writer

	web     *simweb.Web // nil if exchanges are generated
	program string
	night   atomic.Int64 // of the web

	scans, scanCPU, merges []time.Duration // by night
}

// otherVantage names the other observer.
const otherVantage = "elsewhere"

func scanID(night int) string { return fmt.Sprintf("night-%03d", night) }

// start starts a web that follows the script. With many addresses, few sites share one that throttles.
func (y *year) start(ctx context.Context) (err error) {
	sites := map[string]int{}
	for i, host := range y.hosts {
		sites[host] = i
	}
	y.web, err = simweb.Start(ctx, simweb.Config{Addresses: 2048, Script: func(host string) (string, []byte) {
		site, ok := sites[host]
		if !ok {
			return "", nil
		}
		night := int(y.night.Load())
		a := y.shown(site, night)
		return a.behaviour, y.body(site, night, a)
	}})
	return err
}

// scan scans a night by the program, in a process of its own.
func (y *year) scan(ctx context.Context, night int) (cpu time.Duration, err error) {
	y.night.Store(int64(night))
	var list bytes.Buffer
	for site, host := range y.hosts {
		if y.shown(site, night).gap != unlisted {
			fmt.Fprintln(&list, host)
		}
	}
	timeout := "10s" // a healthy host must not fail on a busy machine
	if silentOn(night) {
		timeout = "2s"
	}
	args := []string{"scan", "-o", y.dir, "--scan-id", scanID(night), "--date", y.date(night).String(), "--progress", "none", "--log-level", "error",
		"--resolver", y.web.DNSAddr().String(), "--allow-private", "--dns-rate", "0", "--host-rate", "0", "--ip-rate", "0", "--scheme", "http",
		"--timeout", timeout, "--retries", "1", "--retry-after", "0s", "--max-retry-after", "0s"}
	for _, to := range y.web.ConnectTo() {
		args = append(args, "--connect-to", to)
	}
	if y.elsewhere(night) {
		args = append(args, "--vantage", otherVantage)
	}
	c := exec.CommandContext(ctx, y.program, args...)
	c.Stdin = &list
	if text, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cannot scan night %d: %w\n%s", night, err, text)
	}
	return built.CPU(c.ProcessState), nil
}

// generate judges a night's made exchanges and writes table sites, without a network.
func (y *year) generate(ctx context.Context, night int) (cpu time.Duration, err error) {
	begun := cpuTime()
	o := sink.Options{ScanID: scanID(night), Date: y.date(night).String(), Tables: []string{schema.Sites}, PartRows: 1 << 20, Observer: commit.Observer{Source: commit.Live, Product: "bulkscan"}}
	if y.elsewhere(night) {
		o.Observer.Vantage = otherVantage
	}
	w, err := sink.Open(ctx, y.store, o)
	if err != nil {
		return 0, err
	}
	site, at := &audit.Site{}, time.Unix(int64(y.date(night))*24*60*60, 0)
	for i, from := range y.origins {
		a := y.shown(i, night)
		if a.gap == unlisted {
			continue
		}
		site.Reset()
		site.Seq, site.Input, site.Origin = uint64(i), y.hosts[i], from
		asked := exchange.Target{Origin: from.As(origin.HTTPS), Path: exchange.RobotsPath}
		site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Fields.Challenge = a.outcome, a.status, a.challenge
		site.Fetch.Answered, site.Fetch.Final, site.Fetch.FetchedAt, site.Fetch.Attempts = asked.Origin, asked, at, 1
		if a.status == 200 {
			site.Fetch.Body = y.body(i, night, a)
		}
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			return 0, errors.Join(err, w.Abort())
		}
	}
	err = errors.Join(w.Complete(ctx), w.Close(ctx))
	return cpuTime() - begun, err
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
	scan, begun := y.scan, time.Now()
	if y.web == nil {
		scan = y.generate
	}
	cpu, err := scan(ctx, night)
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

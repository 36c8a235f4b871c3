package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// year is a script that is scanned and merged, night after night.
type year struct {
	*script
	store *store.Dir
	out   io.Writer

	web     *simweb.Web // nil if exchanges are generated
	program string
	night   atomic.Int64 // of the web
	dead    atomic.Bool  // no name resolves

	scans, scanCPU, merges []time.Duration // by night
	other                  int             // scans after which the number of merged nights is not as it must be
}

// observer returns who scans on a night; beside is the second observer.
func (y *year) observer(night int, beside bool) commit.Observer {
	switch {
	case beside:
		return commit.Observer{Source: commit.Live, Product: "second", Vantage: "beside"}
	case night < y.change:
		return commit.Observer{Source: commit.Live, Product: "first"}
	}
	return commit.Observer{Source: commit.Live, Product: "next"}
}

func scanID(night int) string { return fmt.Sprintf("night-%03d", night) }

// start builds the program into a folder, and starts a web that follows the script. With many addresses, few sites share one that throttles.
func (y *year) start(ctx context.Context, dir string) (err error) {
	if y.program, err = built.Command(ctx, dir, built.Bulkscan); err != nil {
		return err
	}
	sites := map[string]int{}
	for i, host := range y.hosts {
		sites[host] = i
	}
	y.web, err = simweb.Start(ctx, simweb.Config{Addresses: 2048, Script: func(host string) (string, []byte) {
		if _, ok := sites[host]; ok && y.dead.Load() {
			return "servfail", nil
		}
		return y.says(sites, host, int(y.night.Load()))
	}})
	return err
}

// scan scans a night by the program, in a process of its own. It returns how many nights the process merged.
func (y *year) scan(ctx context.Context, night int, id string, by commit.Observer) (cpu time.Duration, merged int, err error) {
	y.night.Store(int64(night))
	var list bytes.Buffer
	for site, host := range y.hosts {
		if y.shown(site, night).gap != unlisted {
			fmt.Fprintln(&list, host)
		}
	}
	timeout := map[bool]string{true: "2s", false: "10s"}[silentOn(night)] // a healthy host must not fail on a busy machine
	args := []string{"scan", "-o", y.store.Root(), "--scan-id", id, "--date", y.date(night).String(), "--user-agent", by.Product + "/1.0", "--vantage", by.Vantage, "--progress", "none",
		"--resolver", y.web.DNSAddr().String(), "--allow-private", "--dns-rate", "0", "--host-rate", "0", "--ip-rate", "0", "--scheme", "http",
		"--timeout", timeout, "--retries", "1", "--retry-after", "0s", "--max-retry-after", "0s"}
	for _, to := range y.web.ConnectTo() {
		args = append(args, "--connect-to", to)
	}
	c := exec.CommandContext(ctx, y.program, args...)
	c.Stdin = &list
	text, err := c.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot scan night %d: %w\n%s", night, err, text)
	}
	return built.CPU(c.ProcessState), bytes.Count(text, []byte("night merged into the history")), nil
}

// generate judges a night's made exchanges and writes table sites, without a network.
func (y *year) generate(ctx context.Context, night int, id string, by commit.Observer) (cpu time.Duration, merged int, err error) {
	begun := cpuTime()
	w, err := sink.Open(ctx, y.store, sink.Options{ScanID: id, Date: y.date(night).String(), Tables: []string{schema.Sites}, PartRows: 1 << 20, Observer: by})
	if err != nil {
		return 0, 0, err
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
			return 0, 0, errors.Join(err, w.Abort())
		}
	}
	err = errors.Join(w.Complete(ctx), w.Close(ctx))
	return cpuTime() - begun, 0, err
}

// run scans and merges all nights, and judges the ledger, at the end and derived anew. It fails if not all was as it must be.
func (y *year) run(ctx context.Context) error {
	for n := range y.nights {
		if err := y.one(ctx, n); err != nil {
			return err
		}
	}
	wrong := y.judge(ctx)
	y.reportTimes()
	begun := time.Now()
	if err := history.Rebuild(ctx, y.store, history.Options{}); err != nil {
		return errors.Join(wrong, err)
	}
	fmt.Fprintf(y.out, "\n### Derived anew from all nights, in %.1f s\n\n", time.Since(begun).Seconds())
	return errors.Join(wrong, y.judge(ctx))
}

// one scans and merges a night. On three nights, of which one is after the change, a second observer scans the list, too: at
// first after the other one, then before it.
func (y *year) one(ctx context.Context, night int) error {
	beside := []bool{false}
	switch night {
	case y.nights / 4:
		beside = []bool{false, true}
	case y.nights / 2, y.nights * 3 / 4:
		beside = []bool{true, false}
	}
	for _, beside := range beside {
		if err := y.by(ctx, night, beside); err != nil {
			return err
		}
	}
	return nil
}

// by scans a night by one observer and merges it. A scan of the program has merged itself: then Update changes nothing.
func (y *year) by(ctx context.Context, night int, beside bool) error {
	scan, id, byUpdate := y.scan, scanID(night), 0
	if y.web == nil {
		scan = y.generate
	}
	if beside {
		id += "-beside"
	}
	begun := time.Now()
	cpu, byScan, err := scan(ctx, night, id, y.observer(night, beside))
	if err != nil {
		return err
	}
	scanned := time.Now()
	if _, err := history.Update(ctx, y.store, history.Options{Progress: func(history.Merged) { byUpdate++ }}); err != nil {
		return err
	}
	if beside && byScan+byUpdate != 0 || !beside && byScan+byUpdate != 1 || y.web != nil && byUpdate != 0 {
		y.other++
		fmt.Fprintf(y.out, "**WRONG**: scan %s merged %d nights, and Update after it %d.\n\n", id, byScan, byUpdate)
	}
	if !beside {
		y.scans, y.scanCPU, y.merges = append(y.scans, scanned.Sub(begun)), append(y.scanCPU, cpu), append(y.merges, time.Since(scanned))
	}
	return nil
}

// judge holds the ledger on disk against the script. It fails if the ledger or a merge was not as it must be.
func (y *year) judge(ctx context.Context) error {
	l, err := readLedger(ctx, y.store)
	if err != nil {
		return err
	}
	v := judge(y.script, l)
	fmt.Fprintf(y.out, "%d nights, %.1f MB of ledger. ", len(l.scans), float64(l.bytes)/1e6)
	v.report(y.out)
	if !v.ok() || y.other > 0 {
		return errors.New("the ledger is not as it must be: see above")
	}
	return nil
}

// reportTimes reports what the nights took, at first and at last.
func (y *year) reportTimes() {
	tenth := y.nights / 10
	fmt.Fprint(y.out, "\n| seconds a night, medians | first tenth of the nights | last tenth |\n|---|--:|--:|\n")
	for _, row := range []struct {
		what string
		took []time.Duration
	}{{"scan", y.scans}, {"scan, processor time", y.scanCPU}, {"merge after it", y.merges}} {
		fmt.Fprintf(y.out, "| %s | %.2f | %.2f |\n", row.what, median(row.took[:tenth]).Seconds(), median(row.took[y.nights-tenth:]).Seconds())
	}
	fmt.Fprintf(y.out, "\nThe observer changes before night %d. Each night was merged once, and none of the second observer, but for %d scans.\n", y.change, y.other)
}

// median is 0 of no values.
func median[T cmp.Ordered](values []T) (middle T) {
	if len(values) > 0 {
		middle = slices.Sorted(slices.Values(values))[len(values)/2]
	}
	return middle
}

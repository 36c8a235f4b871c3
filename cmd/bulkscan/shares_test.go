//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// newShareWorld starts a web of hosts that a scan fetches once, and lists n of them.
func newShareWorld(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t, n, shareWeb)
	shareList(t, w, n)
	return w
}

var shareWeb = simweb.Config{Seed: 7, Only: append(slices.Clone(onceAsked), neverAsked...)}

// shareList lists n made-up names of a web, of which many share a domain, with a few lines that are no names.
func shareList(t *testing.T, w *world, n int) {
	t.Helper()
	w.timeout = allAnswer
	var list bytes.Buffer
	first := ""
	for i, host := range w.web.Names(n) {
		if first == "" {
			first = host
		}
		switch i % 40 {
		case 7:
			fmt.Fprintf(&list, "not a host %d\n", i)
		case 8:
			fmt.Fprintln(&list, first)
		}
		fmt.Fprintln(&list, host)
	}
	if err := os.WriteFile(w.list, list.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sharesOf returns the flags of each of n shares, for a scan that is killed often.
func sharesOf(n int, flags ...string) func(i int) []string {
	return func(i int) []string {
		return append([]string{"--part-rows", fmt.Sprint(killPart), "--concurrency", fmt.Sprint(killConcurrency), "--retries",
			"0",
			"--shard", fmt.Sprintf("%d/%d", i, n), "--workers", "1"}, flags...)
	}
}

// unordered sorts the rejects, which a scan in shares has by share.
func unordered(snapshot map[string][]string) map[string][]string {
	slices.Sort(snapshot["rejects"])
	return snapshot
}

// TestSharesAreOneScan scans a list in shares, some of which are killed, interrupted and started twice, and compares
// the collected scan with a scan by one process, row by row.
func TestSharesAreOneScan(t *testing.T) {
	t.Parallel()
	hosts, kills := 160, 4
	if !testing.Short() {
		hosts, kills = 1200, 40
	}
	w := newShareWorld(t, hosts)
	folder := filepath.Dir(w.list)
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, "--retries", "0").exits(t, 0)
	out := filepath.Join(folder, "out")
	w.inShares(t, out, out, 3, kills, killMoment{most: hosts / 8})
	same(t, unordered(snapshot(t, out)), unordered(snapshot(t, calm)), "collected")
	tidy(t, out)
	clean(t, out)
}

// sharesOnS3 starts an object store with short leases, and a web of n hosts, which one process scans. It returns the
// rows of that scan, the place of another dataset, and the folder with the objects of this dataset.
func sharesOnS3(t *testing.T, n int, name string) (w *world, calm map[string][]string, place, folder string) {
	t.Helper()
	notShort(t)
	g := startGateway(t)
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	w = newShareWorld(t, n)
	out := filepath.Join(filepath.Dir(w.list), "calm")
	w.scan(t, out, "--retries", "0").exits(t, 0)
	return w, unordered(snapshot(t, out)), "s3://" + storetest.Bucket + "/" + name,
		filepath.Join(g.Folder, storetest.Bucket, name)
}

// TestSharesOnS3 is TestSharesAreOneScan in an object store, where each next process waits for the dead process's
// lease.
func TestSharesOnS3(t *testing.T) {
	w, calm, place, out := sharesOnS3(t, 400, "shares")
	w.inShares(t, place, out, 3, 5, killMoment{most: 60})
	same(t, unordered(snapshot(t, out)), calm, "collected")
	clean(t, place)
}

// TestPausedShareOnS3 stops a share for longer than its lease. Another process continues with it and ends it. When the
// first runs again, it changes nothing any more, and asks to be started again.
func TestPausedShareOnS3(t *testing.T) {
	w, calm, place, out := sharesOnS3(t, 300, "paused")
	flags := sharesOf(2)
	first := w.scan(t, place, append(flags(0), "--rate", "40")...)
	first.await(t, "commits", func() bool { return commits(out) >= 3 })
	first.signal(t, syscall.SIGSTOP)
	second := w.scan(t, place, flags(0)...)
	second.exits(t, 0)
	second.says(t, "msg=resuming scan=s already_kept=")
	first.signal(t, syscall.SIGCONT)
	first.exits(t, exitAgain)
	first.says(t, "the lock has passed to another process")
	again := w.scan(t, place, flags(0)...)
	again.exits(t, 0)
	again.says(t, "nothing to do: the share is done")
	w.scan(t, place, append(flags(1), "--collect")...).exits(t, 0)
	same(t, unordered(snapshot(t, out)), calm, "collected")
	clean(t, place)
}

// killMoment says when a share is killed: after at most so many requests to the web.
type killMoment struct{ most int }

// inShares writes a scan in n shares at once, with so many kills, and collects it. out is the folder with its files.
func (w *world) inShares(t *testing.T, place, out string, n, kills int, when killMoment) {
	t.Helper()
	flags := sharesOf(n)
	dice := rand.New(rand.NewPCG(5, 6))
	done := map[uint64]bool{}
	for kill := range kills {
		before := w.web.Stats().Requests
		requests := int64(1 + dice.IntN(when.most))
		var running []*process
		for i := range n {
			running = append(running, w.scan(t, place, flags(i)...))
		}
		victim := kill % n
		m := moment{"any time", func() bool {
			return w.web.Stats().Requests >= before+requests && (kill < kills-1 || commits(out) > 0)
		}, time.Duration(dice.IntN(4000)) * time.Microsecond}
		signal := os.Signal(syscall.SIGKILL)
		if kill%4 == 3 {
			signal = syscall.SIGTERM
		}
		_ = running[victim].killAt(t, m, signal)
		switch code := running[victim].cmd.ProcessState.ExitCode(); code {
		case 0, -1, exitAgain:
		default:
			t.Fatalf("share %d, %v: exit code %d\n%s", victim, signal, code, &running[victim].stderr)
		}
		for i, p := range running {
			if i != victim {
				_ = p.cmd.Process.Kill() // it may be over
				_ = p.cmd.Wait()
			}
		}
		now := committed(t, out)
		for seq := range done {
			if !now[seq] {
				t.Errorf("kill %d: seq %d was committed, and is no more", kill, seq)
			}
		}
		done = now
	}
	if len(done) == 0 {
		t.Error("nothing was committed before a kill")
	}
	var last []*process
	for i := range n {
		last = append(last, w.scan(t, place, append(flags(i), "--collect")...))
	}
	for i, p := range last {
		p.exits(t, 0)
		twice := w.scan(t, place, flags(i)...) // a task that an engine starts once more
		twice.exits(t, 0)
		twice.says(t, "nothing to do: the share is done")
	}
	if !slices.ContainsFunc(last, func(p *process) bool {
		return strings.Contains(p.stderr.String(), "msg=collected scan=s shares="+strconv.Itoa(n))
	}) {
		t.Error("no share has collected")
	}
	start(t, "collect", place).exits(t, 0)
}

// TestShareIsWrittenByOne starts a share twice at once: the second command leaves it to the first, and asks to be
// started again.
func TestShareIsWrittenByOne(t *testing.T) {
	inBubble(t, 0, shareWeb, func(t *testing.T, w *world) {
		shareList(t, w, 60)
		out := filepath.Join(t.TempDir(), "out")
		first := w.scan(t, out, append(sharesOf(1)(0), "--rate", "5")...)
		first.await(t, "commit", func() bool { return commits(out) > 0 })
		second := w.scan(t, out, sharesOf(1)(0)...)
		second.exits(t, exitAgain)
		second.says(t, "share 0 of scan s is being written by process "+strconv.Itoa(os.Getpid()))
		first.signal(t, syscall.SIGTERM)
		first.exits(t, exitAgain)
		first.says(t, "interrupted; everything finished so far is kept")
		status := w.start(t, "status", out)
		status.exits(t, 0)
		if text := status.stdout.String(); !strings.Contains(text, "1 interrupted") {
			t.Errorf("status says\n%s", text)
		}
		w.scan(t, out, sharesOf(1)(0)...).exits(t, 0)
		w.start(t, "collect", out).exits(t, 0)
		clean(t, out)
	})
}

// TestSharesKeepOneRate lets eight tasks fetch hosts at one address: together they keep its rate, as its server counts
// them.
func TestSharesKeepOneRate(t *testing.T) {
	const tasks, hosts, rate = 8, 400, 50
	inBubble(t, hosts, simweb.Config{Seed: 9, Addresses: 4, HotShare: 1, Only: []string{"ok"}, RecordAccepts: true},
		func(t *testing.T, w *world) {
			out := filepath.Join(t.TempDir(), "out")
			var running []*process
			for i := range tasks {
				running = append(running, w.scan(t, out, "--shard", fmt.Sprintf("%d/%d", i, tasks), "--workers", strconv.Itoa(tasks),
					"--ip-rate", strconv.Itoa(rate), "--concurrency", "50"))
			}
			for _, p := range running {
				p.exits(t, 0)
			}
			if load := w.web.Record().Hot; load.Total != hosts || load.Second > rate+tasks { // each task begins with a request
				t.Errorf("the address had %+v", load)
			}
			w.start(t, "collect", out).exits(t, 0)
			if now := committed(t, out); len(now) != hosts {
				t.Errorf("%d rows of %d hosts", len(now), hosts)
			}
		})
}

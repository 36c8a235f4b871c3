package sink_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/s3"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
)

// This file writes whole scans, with rejects and statistics, on disks that lose power, fail and fill up, and resumes
// them. The final dataset must equal that of an undisturbed scan, row by row.

const (
	diskScan  = "disk-1"
	diskSites = 10 // two full parts and a partial one
	diskRows  = 4
)

// diskList returns the judged sites of the scan. Two have the same body, one has none, one did not answer.
func diskList(t *testing.T) []*audit.Site {
	t.Helper()
	var sites []*audit.Site
	for i := range diskSites {
		s := &audit.Site{Seq: uint64(i), Input: fmt.Sprintf("host%d.test", i), Rank: int64(i + 1)}
		var err error
		if s.Origin, err = origin.Parse(s.Input); err != nil {
			t.Fatal(err)
		}
		s.Domain, s.TLD = s.Origin.RegistrableDomain(), s.Origin.TLD()
		s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: s.Origin.As(origin.HTTPS)}
		switch i {
		case 3:
			s.Fetch.Status = 404
		case 6:
			s.Fetch.Outcome, s.Fetch.Status = exchange.Timeout, 0
		default:
			s.Fetch.Body = fmt.Appendf(nil, "User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nDisallow: /%d\nFoo: bar\nSitemap: https://a.test/s.xml\n", i/2)
		}
		audit.Judge(s)
		sites = append(sites, s)
	}
	return sites
}

// scanDisk scans the list like the command: it resumes, keeps completed sites on a failure, and writes rejects and
// statistics.
func scanDisk(st store.Store, sites []*audit.Site, partRows int) (err error) {
	ctx := context.Background()
	w, err := sink.Open(ctx, st, sink.Options{ScanID: diskScan, Date: "2026-11-21", PartRows: partRows})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }() // does nothing after Close
	rejects, err := commit.OpenRejects(ctx, st, diskScan)
	if err != nil {
		return err
	}
	gather := func() error {
		for _, line := range []int64{7, 9} {
			if err := rejects.Add(commit.Reject{Input: "list", Line: line, Text: "a b", Reason: "not a host name"}); err != nil {
				return err
			}
		}
		for _, s := range sites {
			if !w.Done(s.Seq) {
				if err := w.Add(s); err != nil {
					return err
				}
			}
		}
		return nil
	}
	gatherErr := gather()
	err = w.Flush(ctx)
	if err == nil {
		err = rejects.Close(ctx)
	} else {
		err = errors.Join(err, rejects.Discard())
	}
	if err == nil && gatherErr == nil {
		err = report.Stats(ctx, st, diskScan, report.Options{})
	}
	if err == nil && gatherErr == nil {
		err = w.Complete(ctx)
	}
	return errors.Join(gatherErr, err, w.Close(ctx))
}

func dirOn(t *testing.T, disk *storetest.Disk) *store.Dir {
	t.Helper()
	dir, err := store.NewDirOn(disk, "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFlushTooLate shows that a Flush whose context has ended commits nothing, however fast the disk is. With one
// processor, goroutines that Flush starts run only once it waits.
func TestFlushTooLate(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sites := diskList(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		dir := dirOn(t, storetest.NewDisk())
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: diskScan, Date: "2026-11-21"})
		if err == nil {
			err = w.Add(sites[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(over); !errors.Is(err, context.Canceled) {
			t.Errorf("Flush: %v", err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if commits, err := commit.Commits(t.Context(), dir, diskScan); err != nil || len(commits) > 0 {
			t.Fatalf("%d commits, %v", len(commits), err)
		}
	}
}

// losses returns the remaining disk after each kind of loss, without duplicates.
func losses(disk *storetest.Disk, all ...storetest.Loss) iter.Seq2[storetest.Loss, *storetest.Disk] {
	return func(yield func(storetest.Loss, *storetest.Disk) bool) {
		var before []map[string]string
		for _, loss := range all {
			after := disk.Restart(loss)
			files := after.Files()
			if slices.ContainsFunc(before, func(other map[string]string) bool { return maps.Equal(files, other) }) {
				continue
			}
			before = append(before, files)
			if !yield(loss, after) {
				return
			}
		}
	}
}

// inTurns calls f with every number from 1 to n, one call per processor at a time. In short mode it takes a sample, and
// also under the race detector, which makes each call ten times slower.
func inTurns(n int, f func(n int)) {
	var wait sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	stride := 1
	switch {
	case sink.RaceEnabled:
		stride = 17
	case testing.Short():
		stride = 29
	}
	for i := 1; i <= n; i += stride {
		turns <- struct{}{}
		wait.Go(func() {
			f(i)
			<-turns
		})
	}
	wait.Wait()
}

// TestPowerLoss takes the power away after every call that changes something, with several ways of losing what was not yet
// durable, the kindest of which is to be killed alone. What is committed is whole, and the same scan completes it.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	sites := diskList(t)
	want, calls := undisturbed(t, sites)
	changes := 0
	for _, c := range calls {
		if c.Changes() {
			changes++
		}
	}
	for _, links := range []bool{true, false} {
		inTurns(changes+5, func(n int) { // without links a commit takes some calls more
			some := []storetest.Loss{storetest.Contents, storetest.Scrambled, storetest.Scrambled + 1}
			all := []storetest.Loss{storetest.Nothing, storetest.Unsynced, some[n%3]}
			if !links {
				all = all[:1] // a claim that nobody has filled is what a kill leaves
			}
			disk := storetest.NewDisk()
			disk.NoLinks = !links
			disk.CutAt(n, true)
			err := scanDisk(dirOn(t, disk), sites, diskRows)
			if err == nil && disk.Off() && n < changes-2 {
				t.Errorf("change %d: the loss went unnoticed", n)
			}
			if !links && !strings.Contains(last(disk).Path, "/commits") {
				return // where it is all the same
			}
			for loss, after := range losses(disk, all...) {
				left(t, after, sites, want, fmt.Sprintf("power lost after change %d (%v), links %v, %v", n, last(disk), links, loss))
			}
		})
	}
	t.Logf("%d changes", changes)
}

// onComplete has operations on a complete scan, with an accident at every step.
var onComplete = map[string]func(st store.Store) error{
	"restart": func(st store.Store) error {
		w, err := sink.Open(context.Background(), st, sink.Options{ScanID: diskScan, Date: "2026-11-21", Restart: true})
		if err != nil {
			return err
		}
		return w.Close(context.Background())
	},
	"compact": func(st store.Store) error {
		done, err := compact.Scan(context.Background(), st, diskScan, compact.Options{})
		if err == nil && done.PartsAfter != 1 {
			err = fmt.Errorf("there are %d parts", done.PartsAfter)
		}
		return err
	},
}

// TestPowerLossOnComplete cuts the power while a complete scan is restarted or compacted, and lets each call of that
// fail. No commit names a missing file, and the same scan, resumed, gives the same rows.
func TestPowerLossOnComplete(t *testing.T) {
	t.Parallel()
	sites := diskList(t)
	want, _ := undisturbed(t, sites)
	complete := storetest.NewDisk()
	if err := scanDisk(dirOn(t, complete), sites, diskRows); err != nil {
		t.Fatal(err)
	}
	for name, work := range onComplete {
		calm := complete.Restart(storetest.Nothing)
		if err := work(dirOn(t, calm)); err != nil {
			t.Fatal(err)
		}
		calls, changes := calm.Calls(), 0
		for _, c := range calls {
			if c.Changes() {
				changes++
			}
		}
		then := calm.Restart(storetest.Unsynced)
		if err := whole(then, dirOn(t, then)); err != nil {
			t.Errorf("after a whole %s, and without power: %v", name, err)
		}
		left(t, calm.Restart(storetest.Nothing), sites, want, "after a whole "+name)
		inTurns(changes, func(n int) {
			disk := complete.Restart(storetest.Nothing)
			disk.CutAt(n, true)
			if err := work(dirOn(t, disk)); err == nil && n < changes-1 {
				t.Errorf("change %d of a %s: the loss went unnoticed", n, name)
			}
			for loss, after := range losses(disk, storetest.Unsynced, storetest.Nothing, storetest.Scrambled, storetest.Scrambled+1) {
				left(t, after, sites, want, fmt.Sprintf("power lost after change %d of a %s (%v), %v", n, name, last(disk), loss))
			}
		})
		inTurns(len(calls), func(n int) {
			if !calls[n-1].Changes() && n%7 != 0 {
				return
			}
			disk := complete.Restart(storetest.Nothing)
			disk.Fail = func(i int, _ storetest.Call) error {
				if i == n {
					return errBroken
				}
				return nil
			}
			err := work(dirOn(t, disk))
			after := fmt.Sprintf("call %d of a %s (%v) failed", n, name, calls[n-1])
			if err != nil && !errors.Is(err, errBroken) {
				t.Errorf("%s: the error is %v", after, err)
			}
			left(t, disk.Restart(storetest.Unsynced), sites, want, after)
		})
		t.Logf("%s: %d calls, %d changes", name, len(calls), changes)
	}
}

// last returns the last call that changed something.
func last(d *storetest.Disk) storetest.Call {
	calls := d.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].Changes() {
			return calls[i]
		}
	}
	return storetest.Call{}
}

var errBroken = errors.New("input/output error")

// TestEveryCallFails lets each call of the disk fail: only that call, or it and all later calls of its kind. The scan
// ends with that error, committed data is intact, and the same scan completes it.
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	sites := diskList(t)
	want, calls := undisturbed(t, sites)
	// The i-th call of its kind, since the order of all calls depends on timing.
	type target struct {
		op string
		i  int
	}
	var targets []target
	count := map[string]int{}
	for _, c := range calls {
		count[c.Op]++
		targets = append(targets, target{c.Op, count[c.Op]})
	}
	for _, lasting := range []bool{false, true} {
		var mu sync.Mutex
		failed := map[string]int{}
		inTurns(len(targets), func(n int) {
			target := targets[n-1]
			if changes := (storetest.Call{Op: target.op}).Changes(); !changes && target.i%5 != 1 || lasting && target.i%3 != 1 {
				return
			}
			disk := storetest.NewDisk()
			var at storetest.Call
			seen := 0
			disk.Fail = func(_ int, c storetest.Call) error {
				if c.Op != target.op {
					return nil
				}
				if seen++; seen == target.i {
					at = c
				}
				if seen == target.i || lasting && seen > target.i {
					return errBroken
				}
				return nil
			}
			err := scanDisk(dirOn(t, disk), sites, diskRows)
			mu.Lock()
			failed[at.Op]++
			mu.Unlock()
			after := fmt.Sprintf("%s %d (%s) failed, lasting %v", target.op, target.i, at.Path, lasting)
			all := []storetest.Loss{storetest.Unsynced, storetest.Nothing}
			switch {
			case errors.Is(err, errBroken):
			case err != nil:
				t.Errorf("%s: the error is %v", after, err)
			case at.Op == "stat", at.Op == "link", at.Op == "close" && path.Base(at.Path)[0] != '.', at.Op == "":
				// The scan may tolerate the failure: the folder exists, a record is claimed instead, or the file was
				// only read. Or the scan had one call less this time.
			case (at.Op == "open" || at.Op == "read" || at.Op == "stat") && writtenAgain(at.Path):
			default:
				t.Errorf("%s: the scan did not fail", after)
			}
			for loss, disk := range losses(disk, all[n%2]) {
				left(t, disk, sites, want, after+", "+loss.String())
			}
		})
		t.Logf("lasting %v: failed by kind %v", lasting, failed)
		for op := range count {
			if failed[op] == 0 && !sink.RaceEnabled && !testing.Short() {
				t.Errorf("no %s failed", op)
			}
		}
	}
}

// TestEveryStepFails lets each step of a store fail, with or without its effect, since the answer to a PUT may be lost.
// In every store the scan ends with that error, and the same scan completes it.
func TestEveryStepFails(t *testing.T) {
	t.Parallel()
	sites := diskList(t)
	want, _ := undisturbed(t, sites)
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		stride := 3
		if testing.Short() {
			stride = 41
		}
		everyStepFails(t, sites, want, stride, nil, func(int) store.Store { return dirOn(t, storetest.NewDisk()) })
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		gateway := storetest.StartGateway(t)
		ops := []string{"put", "create-if-absent", "publish", "lock", "delete"}
		if testing.Short() {
			ops = []string{"create-if-absent", "publish"} // a commit and a part
		}
		everyStepFails(t, sites, want, 20, ops, func(n int) store.Store {
			// The tests of package s3 let each request fail. This one lets whole steps fail, and fewer of them.
			remote, err := s3.New(s3.Config{
				Endpoint: gateway.URL, Bucket: storetest.Bucket, Prefix: fmt.Sprintf("n%d", n), Region: "us-east-1",
				AccessKey: gateway.Access, SecretKey: gateway.Secret, Spool: t.TempDir(), Lease: 2 * time.Second, Patience: 20 * time.Second,
			})
			if err != nil {
				t.Error(err)
			}
			return remote
		})
	})
}

// everyStepFails lets the first step of each kind in ops fail, and every stride-th after it; nil is all kinds.
func everyStepFails(t *testing.T, sites []*audit.Site, want map[string][]string, stride int, ops []string, place func(n int) store.Store) {
	t.Helper()
	var mu sync.Mutex
	count := map[string]int{}
	calm := &storetest.Faults{Store: place(0), Fail: func(s storetest.Step) error {
		mu.Lock()
		defer mu.Unlock()
		count[s.Op]++
		return nil
	}}
	if err := scanDisk(calm, sites, diskRows); err != nil {
		t.Fatal(err)
	}
	type target struct {
		op   string
		i    int
		lost bool
	}
	var targets []target
	for _, op := range slices.Sorted(maps.Keys(count)) {
		if ops != nil && !slices.Contains(ops, op) {
			continue
		}
		for i := 1; i <= count[op]; i++ {
			if i%stride == 1 {
				targets = append(targets, target{op, i, false})
				if op != "open" && op != "list" {
					targets = append(targets, target{op, i, true})
				}
			}
		}
	}
	for n, target := range targets {
		st := place(n + 1)
		seen, name := 0, ""
		strike := func(s storetest.Step) error {
			mu.Lock()
			defer mu.Unlock()
			if s.Op != target.op {
				return nil
			}
			if seen++; seen != target.i {
				return nil
			}
			name = s.Name
			return errBroken
		}
		failing := &storetest.Faults{Store: st, Fail: strike}
		if target.lost {
			failing = &storetest.Faults{Store: st, Lose: strike}
		}
		err := scanDisk(failing, sites, diskRows)
		after := fmt.Sprintf("%s %d of %s, lost %v", target.op, target.i, name, target.lost)
		if !errors.Is(err, errBroken) && !(target.op == "open" && writtenAgain(name)) {
			t.Errorf("%s: the error is %v", after, err)
		}
		if err := failing.Kill(); err != nil {
			t.Errorf("%s: %v", after, err)
		}
		if err := scanDisk(st, sites, 10*diskRows); err != nil {
			t.Errorf("%s: cannot resume: %v", after, err)
			continue
		}
		got, err := contents(st)
		if text := difference(got, want); err != nil || text != "" {
			t.Errorf("%s: %s %v", after, text, err)
		}
	}
	t.Logf("%d of %v", len(targets), count)
}

// TestDiskFills gives a scan less room than it needs, from none to nearly enough. The scan ends with an error that says
// so. With more room, the same scan completes.
func TestDiskFills(t *testing.T) {
	t.Parallel()
	sites := diskList(t)
	want, _ := undisturbed(t, sites)
	const step = 2000
	// One growing disk, and the same scan again each time.
	enough := 0
	for disk := storetest.NewDisk(); ; enough += step {
		disk.Room = enough + step
		if scanDisk(dirOn(t, disk), sites, diskRows) == nil {
			disk.Room = 0
			left(t, disk, sites, want, "room added bit by bit")
			break
		}
	}
	if enough < 10*step {
		t.Fatalf("%d bytes are enough: the test sees too few sizes", enough)
	}
	inTurns(enough/step, func(n int) {
		disk := storetest.NewDisk()
		disk.Room = n * step
		err := scanDisk(dirOn(t, disk), sites, diskRows)
		after := fmt.Sprintf("room for %d bytes of %d", disk.Room, enough)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", after, err)
		}
		if err == nil && n < enough/step/2 {
			t.Errorf("%s were enough", after)
		}
		disk = disk.Restart(storetest.Nothing)
		disk.Room = 0
		left(t, disk, sites, want, after)
	})
}

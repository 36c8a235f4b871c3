package sink_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"reflect"
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
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
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

// contents returns the rows of a scan by table, in an order that does not depend on the division into parts.
func contents(st store.Store) (map[string][]string, error) {
	ctx := context.Background()
	scan, err := commit.ReadScan(ctx, st, diskScan)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	// Committed tables must be readable in every state. The other tables exist only if the scan is complete.
	err = errors.Join(
		tableRows[schema.SiteRow](all, scan, schema.Sites), tableRows[schema.VerdictRow](all, scan, schema.Verdicts),
		tableRows[schema.EvidenceRow](all, scan, schema.Evidence), tableRows[schema.BodyRow](all, scan, schema.Bodies))
	all[schema.Bodies] = slices.Compact(all[schema.Bodies]) // once for each part
	if err != nil || scan.Manifest.State != commit.Complete {
		return all, err
	}
	all["rows"] = []string{fmt.Sprint(scan.Manifest.Counts.Rows, scan.Manifest.Counts.Files[schema.Verdicts])}
	rejects, err := store.ReadAll(ctx, st, "_rejects/"+diskScan+".jsonl", 1<<20)
	all["rejects"] = []string{string(rejects)}
	return all, errors.Join(err, statsRows[schema.TokenStatsRow](all, scan, st, schema.TokenStats), statsRows[schema.RecordStatsRow](all, scan, st, schema.RecordStats))
}

func tableRows[T any](all map[string][]string, scan *commit.Scan, table string) error {
	for row, err := range sink.Rows[T](context.Background(), scan, table) {
		if err != nil {
			return err
		}
		if err := appendRow(all, table, row); err != nil {
			return err
		}
	}
	slices.Sort(all[table])
	return nil
}

func statsRows[T any](all map[string][]string, scan *commit.Scan, st store.Store, tableName string) error {
	for row, err := range table.FileRows[T](context.Background(), st, commit.StatsName(tableName, scan.Manifest.ScanDate, diskScan)) {
		if err != nil {
			return err
		}
		if err := appendRow(all, tableName, row); err != nil {
			return err
		}
	}
	slices.Sort(all[tableName])
	return nil
}

func appendRow(all map[string][]string, table string, row any) error {
	text, err := json.Marshal(row)
	all[table] = append(all[table], string(text))
	return err
}

// difference names the tables in which two contents differ, or returns "".
func difference(got, want map[string][]string) string {
	var texts []string
	for table := range want {
		if !reflect.DeepEqual(got[table], want[table]) {
			texts = append(texts, fmt.Sprintf("%s: %d rows, want %d", table, len(got[table]), len(want[table])))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// leftovers returns files of a complete scan that no commit names, including temporary ones.
func leftovers(disk *storetest.Disk, st store.Store) ([]string, error) {
	commits, err := commit.Commits(context.Background(), st, diskScan)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, c := range commits {
		for _, f := range c.Files {
			named[f.Name] = true
		}
	}
	var left []string
	err = disk.Walk("/data/out", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(strings.ReplaceAll(p, `\`, "/"), "/data/out/")
		table, _, _ := strings.Cut(name, "/")
		info, err := entry.Info()
		if path.Base(name)[0] == '.' || slices.Contains(schema.AllTables, table) && !named[name] || info.Size() == 0 {
			left = append(left, name)
		}
		return err
	})
	return left, err
}

// undisturbed returns the result of a scan without accidents, and its calls.
func undisturbed(t *testing.T, sites []*audit.Site) (want map[string][]string, calls []storetest.Call) {
	t.Helper()
	disk := storetest.NewDisk()
	if err := scanDisk(dirOn(t, disk), sites, diskRows); err != nil {
		t.Fatal(err)
	}
	calls = disk.Calls()
	want, err := contents(dirOn(t, disk))
	if err != nil {
		t.Fatal(err)
	}
	if len(want[schema.Sites]) != diskSites || len(want[schema.Bodies]) < 3 || len(want[schema.TokenStats]) == 0 || len(want[schema.RecordStats]) == 0 || want["rejects"][0] == "" {
		t.Fatalf("too little to compare with: %d sites, %d bodies", len(want[schema.Sites]), len(want[schema.Bodies]))
	}
	return want, calls
}

// left checks the state after an accident: each file that a commit names exists with its bytes, and a resumed scan
// gives the undisturbed result, also after another power loss.
func left(t *testing.T, disk *storetest.Disk, sites []*audit.Site, want map[string][]string, after string) {
	t.Helper()
	dir := dirOn(t, disk)
	if err := whole(disk, dir); err != nil {
		t.Errorf("%s: what is committed cannot be read: %v", after, err)
	}
	// In one part, so that files without a commit are not merely overwritten.
	if err := scanDisk(dir, sites, 10*diskRows); err != nil {
		t.Errorf("%s: cannot resume: %v", after, err)
		return
	}
	if left, err := leftovers(disk, dir); err != nil || len(left) > 0 {
		t.Errorf("%s: left over: %q, %v", after, left, err)
	}
	got, err := contents(dir)
	if text := difference(got, want); err != nil || text != "" {
		t.Errorf("%s: %s %v", after, text, err)
	}
	now, then := disk.Files(), disk.Restart(storetest.Unsynced).Files()
	for name := range now {
		if now[name] != then[name] && path.Base(name)[0] != '.' {
			t.Errorf("%s, resumed: another loss of power took %s", after, name)
		}
	}
	for name := range then {
		if _, there := now[name]; !there && path.Base(name)[0] != '.' && path.Base(name) != "lock" {
			t.Errorf("%s, resumed: another loss of power brought %s back", after, name)
		}
	}
}

// whole checks the hashes of all committed files.
func whole(disk *storetest.Disk, st store.Store) error {
	commits, err := commit.Commits(context.Background(), st, diskScan)
	if err != nil {
		return err
	}
	files := disk.Files()
	seen := map[uint64]bool{}
	for _, c := range commits {
		for _, f := range c.Files {
			if sum := sha256.Sum256([]byte(files["/data/out/"+f.Name])); hex.EncodeToString(sum[:]) != f.SHA256 {
				return fmt.Errorf("%s is not what was committed", f.Name)
			}
		}
		finished, err := c.Bitmap()
		if err != nil {
			return err
		}
		for _, seq := range finished.ToArray() {
			if seen[seq] {
				return fmt.Errorf("seq %d is committed twice", seq)
			}
			seen[seq] = true
		}
	}
	return nil
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

// writtenAgain reports whether a file is rewritten if it differs, and so if it cannot be read: views.sql, and records
// of single files.
func writtenAgain(name string) bool {
	return path.Base(name) == views.Name || strings.Contains(name, "/files/")
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
		everyStepFails(t, sites, want, 3, nil, func(int) store.Store { return dirOn(t, storetest.NewDisk()) })
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		gateway := storetest.StartGateway(t)
		everyStepFails(t, sites, want, 20, []string{"put", "create-if-absent", "publish", "lock", "delete"}, func(n int) store.Store {
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

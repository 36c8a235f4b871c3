//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
)

// This file kills bulkscan, as a process of its own, at random moments, some tens of times on the way through one scan,
// and holds what is there in the end against an undisturbed scan of the same list.

// The killed scan is cut into tiny parts, so that most moments are near the end of one.
const (
	killPart        = 6
	killConcurrency = 8
)

// onceAsked are behaviours of hosts that a scan asks exactly once, and those that it asks never.
var onceAsked = []string{
	"ok", "ok-chunked", "ok-until-close", "ok-gzip", "ok-http10", "empty", "html", "utf16", "nul", "alias", "http-only",
	"not-found", "forbidden", "gone", "tls-expired", "tls-wrong-name", "tls-12", "legal", "bare-lf",
}
var neverAsked = []string{"nxdomain", "no-address", "refuse"}

// newKillWorld starts a web in which an interrupted scan asks nobody otherwise than a calm one, and makes a list of so many lines
// of it. It returns which of them ask somebody.
func newKillWorld(t *testing.T, lines int) (w *world, asked map[uint64]bool) {
	t.Helper()
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 7, Addresses: 16, Bodies: 128, Only: append(slices.Clone(onceAsked), neverAsked...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	w = &world{web: web, list: filepath.Join(t.TempDir(), "list.txt"), timeout: allAnswer}
	return w, killList(t, w.list, lines)
}

// killList writes a list of n hosts, with a few lines that are none, and returns which seq are asked once.
func killList(t *testing.T, path string, n int) (asked map[uint64]bool) {
	t.Helper()
	asked = map[uint64]bool{}
	var b strings.Builder
	for line := uint64(0); int(line) < n; line++ {
		switch {
		case line%40 == 7:
			fmt.Fprintf(&b, "not a host %d\n", line)
		case line%40 == 8:
			b.WriteString("h0.ok.zoo.test\n") // the first again
		case line%10 == 9:
			fmt.Fprintf(&b, "h%d.%s.zoo.test\n", line, neverAsked[line/10%uint64(len(neverAsked))])
		default:
			fmt.Fprintf(&b, "h%d.%s.zoo.test\n", line, onceAsked[line%uint64(len(onceAsked))])
			asked[line] = true
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return asked
}

// snapshot is all that a scan has found, row by row and without times, in an order that does not depend on how it was cut.
func snapshot(t *testing.T, out string) map[string][]string {
	t.Helper()
	dir := mustPlace(t, out)
	return snapshotOf(t, dir)
}

func snapshotOf(t *testing.T, st store.Store) map[string][]string {
	t.Helper()
	scan, err := commit.ReadScan(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	if scan.Manifest.State != commit.Complete {
		t.Errorf("the scan is %s", scan.Manifest.State)
	}
	all := map[string][]string{}
	add := func(table string, row any) {
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		all[table] = append(all[table], string(text))
	}
	each(t, scan, schema.Sites, func(r *schema.SiteRow) {
		row := *r
		row.FetchedAt, row.DNSMillis, row.ConnectMillis, row.TLSMillis, row.TTFBMillis, row.TotalMillis = 0, 0, 0, 0, 0, 0
		add(schema.Sites, &row)
	})
	each(t, scan, schema.Verdicts, func(r *schema.VerdictRow) { add(schema.Verdicts, r) })
	each(t, scan, schema.Evidence, func(r *schema.EvidenceRow) { add(schema.Evidence, r) })
	each(t, scan, schema.Bodies, func(r *schema.BodyRow) { add(schema.Bodies, r) })
	eachOf(t, st, commit.StatsName(schema.TokenStats, scan.Manifest.ScanDate, "s"), func(r *schema.TokenStatsRow) { add(schema.TokenStats, r) })
	eachOf(t, st, commit.StatsName(schema.RecordStats, scan.Manifest.ScanDate, "s"), func(r *schema.RecordStatsRow) { add(schema.RecordStats, r) })
	for _, rows := range all {
		slices.Sort(rows)
	}
	all[schema.Bodies] = slices.Compact(all[schema.Bodies]) // each distinct body once a part
	rejects, err := store.ReadAll(t.Context(), st, "_rejects/s.jsonl", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	all["rejects"] = strings.SplitAfter(string(rejects), "\n")
	return all
}

// TestScanInBubblesAndOnSockets takes one list twice through a whole scan in virtual time, and then once on sockets, all in this
// process. All three keep the same: nothing that one leaves in the process changes the next.
func TestScanInBubblesAndOnSockets(t *testing.T) {
	cfg := simweb.Config{Seed: 7, Only: append(slices.Clone(onceAsked), neverAsked...), Hold: time.Hour}
	arguments := func(t *testing.T, w *world) (out string, args []string) {
		out = filepath.Join(t.TempDir(), "out")
		return out, w.arguments(t, out, w.web.ConnectTo(), "--timeout", allAnswer, "--patience", "0s", "--date", "2026-11-21")
	}
	var scans []map[string][]string
	for range 2 {
		inBubble(t, 200, cfg, func(t *testing.T, w *world) {
			out, args := arguments(t, w)
			w.start(t, args...).exits(t, 0)
			scans = append(scans, snapshot(t, out))
		})
	}
	out, args := arguments(t, newWorld(t, 200, cfg))
	said(t, 0, args...)
	same(t, scans[1], scans[0], "in the second bubble")
	same(t, snapshot(t, out), scans[0], "on sockets")
}

func eachOf[T any](t *testing.T, st store.Store, name string, f func(*T)) {
	t.Helper()
	for row, err := range table.FileRows[T](t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		f(row)
	}
}

// same holds two snapshots against each other.
func same(t *testing.T, got, want map[string][]string, when string) {
	t.Helper()
	for table := range want {
		if slices.Equal(got[table], want[table]) {
			continue
		}
		t.Errorf("%s: %s has %d rows, an undisturbed scan %d", when, table, len(got[table]), len(want[table]))
		for _, side := range []struct {
			what       string
			rows, from []string
		}{{"too many or other", got[table], want[table]}, {"missing or other", want[table], got[table]}} {
			count := map[string]int{}
			for _, row := range side.from {
				count[row]++
			}
			shown := 0
			for _, row := range side.rows {
				if count[row]--; count[row] < 0 && shown < 3 {
					shown++
					t.Errorf("  %s: %s", side.what, row)
				}
			}
		}
	}
}

// tidy holds that nothing lies in a dataset that should not: no temporary name, no lock, no part without a commit.
func tidy(t *testing.T, out string) {
	t.Helper()
	dir := mustPlace(t, out)
	scan, err := commit.ReadScan(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, c := range scan.Commits {
		for _, f := range c.Files {
			named[f.Name] = true
		}
	}
	err = filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(out, path)
		table, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if strings.HasPrefix(name, "."+views.Name) {
			return nil // the views are every scan's, so that nobody may take a draft of them for that of a dead process
		}
		if entry.Name()[0] == '.' || entry.Name() == "lock" || slices.Contains(schema.AllTables, table) && !named[filepath.ToSlash(name)] {
			t.Errorf("left: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// committed are the seq that a scan has committed so far; each may be there once.
func committed(t *testing.T, out string) map[uint64]bool {
	t.Helper()
	dir := mustPlace(t, out)
	commits, err := commit.Commits(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	done := map[uint64]bool{}
	for i := range commits {
		finished, err := commits[i].Bitmap()
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range finished.ToArray() {
			if done[seq] {
				t.Errorf("seq %d is committed twice", seq)
			}
			done[seq] = true
		}
	}
	return done
}

// drafts are the temporary names in a folder of the dataset that begin so.
func drafts(out, folder, prefix string) int {
	found, err := filepath.Glob(filepath.Join(out, folder, "."+prefix+"*.tmp"))
	if err != nil {
		return 0
	}
	return len(found)
}

// moment is when a process is killed: once something has come to pass, and so much later.
type moment struct {
	name  string
	holds func() bool
	later time.Duration
}

// killAt kills a process at a moment, or finds it at its end before; which of them is reported.
func (p *process) killAt(t *testing.T, m moment, s os.Signal) (ended bool) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = p.cmd.Wait() // the state says more than the error
	}()
	waittest.Until(200*time.Microsecond, func() bool {
		if m.holds() {
			return true
		}
		select {
		case <-over:
			ended = true
		default:
		}
		return ended
	})
	if ended {
		return true
	}
	time.Sleep(m.later)
	_ = p.cmd.Process.Signal(s) // it may be over by now
	<-over
	return p.cmd.ProcessState.ExitCode() == 0
}

// TestKilledAtManyMoments takes one scan through more than fifty deaths: by SIGKILL wherever it is, aimed at the moments in which
// files get their names, and now and then by a signal that lets it finish. Each time the same command goes on. Nothing that
// was committed is lost, what is lost is a part and the one being sealed, and in the end every table is that of a scan that
// nobody disturbed.
func TestKilledAtManyMoments(t *testing.T) {
	notShort(t)
	t.Parallel()
	kills, each := 60, 10 // and so many requests between two of them, on average
	if raceEnabled {      // each process takes ten times as long
		kills /= 5
	}
	w, asked := newKillWorld(t, 3*kills*each)
	web, folder := w.web, filepath.Dir(w.list)
	flags := []string{"--part-rows", fmt.Sprint(killPart), "--concurrency", fmt.Sprint(killConcurrency), "--patience", "0s", "--retries", "0"}

	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)
	tidy(t, calm)

	out := filepath.Join(folder, "out")
	if kept := os.Getenv("KILLED_DATASET"); kept != "" { // for whoever wants to look at it with another reader
		out = kept
	}
	dice := rand.New(rand.NewPCG(1, 2))
	done, worst := map[uint64]bool{}, 0
	// account holds what a process has left against what it had asked: at most lost hosts may have to be asked again.
	account := func(before simweb.Stats, lost int, how string) {
		t.Helper()
		if !eventually(func() bool { return web.Stats().Open == 0 }) { // what the dead had asked is counted
			t.Error("connections of a dead process stay open")
		}
		now := committed(t, out)
		kept := 0
		for seq := range now {
			if !done[seq] && asked[seq] {
				kept++
			}
		}
		for seq := range done {
			if !now[seq] {
				t.Errorf("%s: seq %d was committed, and is no more", how, seq)
			}
		}
		gone := int(web.Stats().Requests-before.Requests) - kept
		if worst = max(worst, gone); gone > lost {
			t.Errorf("%s: of %d hosts asked %d were lost, more than %d", how, web.Stats().Requests-before.Requests, gone, lost)
		}
		done = now
	}
	// Held by the process that is killed: an open part, one being sealed, and those between being asked and being kept.
	most := 2*killPart + killConcurrency + 4*max(runtime.NumCPU(), runtime.GOMAXPROCS(0)) + 4 + 1
	how := map[string]int{}
	for killed := 0; killed < kills; {
		before := web.Stats()
		had := commits(out)
		p := w.scan(t, out, flags...)
		requests := int64(dice.IntN(2 * each))
		progress := func() bool { return web.Stats().Requests >= before.Requests+requests }
		m := []moment{
			{"any time", progress, time.Duration(dice.IntN(4000)) * time.Microsecond},
			{"commit begun", func() bool { return progress() && drafts(out, "_scans/s/commits", "") > 0 }, 0},
			{"commit made", func() bool { return commits(out) > had+int(requests)/killPart/2 }, time.Duration(dice.IntN(300)) * time.Microsecond},
			{"parts begun", func() bool { return progress() && drafts(out, "sites/*", "part-s-") > 0 }, time.Duration(dice.IntN(500)) * time.Microsecond},
			{"opening", func() bool { return drafts(out, "_scans/s", "manifest")+drafts(out, "_rejects", "s") > 0 }, time.Duration(dice.IntN(1000)) * time.Microsecond},
			{"starting", func() bool { return true }, time.Duration(dice.IntN(60)) * time.Millisecond},
		}[dice.IntN(6)]
		// A moment can be over before the next look on a quick disk. Then the process is killed some requests later.
		holds := m.holds
		m.holds = func() bool { return holds() || web.Stats().Requests >= before.Requests+requests+int64(2*each) }
		signal, lost := os.Signal(syscall.SIGKILL), most
		switch killed % 10 {
		case 3:
			signal = syscall.SIGTERM
		case 7:
			signal = os.Interrupt
		}
		if p.killAt(t, m, signal) {
			t.Fatalf("the list was done after %d kills", killed)
		}
		name := fmt.Sprintf("kill %d, %v at %q", killed, signal, m.name)
		switch code := p.cmd.ProcessState.ExitCode(); code {
		case exitInt, exitTerm:
			// It was told in time: all that was asked is kept.
			if (code == exitTerm) != (signal == syscall.SIGTERM) {
				t.Errorf("%s: exit code %d", name, code)
			}
			lost = 0
			if !strings.Contains(p.stderr.String(), "finishing what is being asked") {
				p.says(t, "bulkscan: interrupted") // nobody had been asked yet
				how["told before"]++
				break
			}
			p.says(t, "everything finished so far is kept, and the same command resumes scan s")
			how["told in time"]++
		case -1: // killed, or told before it had begun to listen
			how[m.name]++
		default:
			t.Fatalf("%s: exit code %d\n%s", name, code, &p.stderr)
		}
		account(before, lost, name)
		killed++
	}
	w.scan(t, out, flags...).exits(t, 0)
	same(t, snapshot(t, out), want, "resumed to the end")
	tidy(t, out)
	done = committed(t, out)
	t.Logf("%d kills: %v; at most %d hosts were asked again, %d allowed", kills, how, worst, most)

	// What works on a dataset that is complete, killed in its turn: each time on the same, to which it is then done once more.
	for _, stage := range []struct {
		name  string
		kills int
		start func(out string) *process
		aims  []string // drafts of it, by folder
	}{
		{"the complete scan again", 8, func(out string) *process { return w.scan(t, out, flags...) }, []string{"token_stats/*", "_scans/s", "_rejects"}},
		{"compact", 10, func(out string) *process { return start(t, "compact", out, "--grace", "0s") }, []string{"sites/*", "_scans/s/commits", "bodies/*"}},
	} {
		requests := web.Stats().Requests
		copied := func() string {
			place := filepath.Join(folder, "copy")
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			linked(t, out, place)
			return place
		}
		place := copied()
		began := time.Now()
		stage.start(place).exits(t, 0)
		whole := time.Since(began)
		same(t, snapshot(t, place), want, stage.name)
		finished := 0
		if raceEnabled {
			stage.kills /= 4
		}
		for n := range stage.kills {
			place := copied()
			m := moment{stage.name, func() bool { return true }, time.Duration(dice.Int64N(int64(whole)))}
			if aim := stage.aims[n/2%len(stage.aims)]; n%2 == 1 {
				m.holds, m.later = func() bool { return drafts(place, aim, "") > 0 }, time.Duration(dice.IntN(2000))*time.Microsecond
			}
			p := stage.start(place)
			if p.killAt(t, m, syscall.SIGKILL) {
				finished++
			} else if code := p.cmd.ProcessState.ExitCode(); code != -1 {
				t.Errorf("%s: exit code %d\n%s", stage.name, code, &p.stderr)
			}
			if now := committed(t, place); !maps.Equal(now, done) {
				t.Errorf("%s, killed: %d rows are committed, were %d", stage.name, len(now), len(done))
			}
			stage.start(place).exits(t, 0)
			tidy(t, place)
			if n%3 == 0 {
				w.scan(t, place, flags...).exits(t, 0)
				same(t, snapshot(t, place), want, stage.name+", killed, done again, and scanned again")
			} else if now := committed(t, place); !maps.Equal(now, done) {
				t.Errorf("%s, killed and done again: %d rows are committed, were %d", stage.name, len(now), len(done))
			}
		}
		if asks := web.Stats().Requests - requests; asks != 0 {
			t.Errorf("%s asked %d hosts", stage.name, asks)
		}
		t.Logf("%s: %d kills, %d of them after its end", stage.name, stage.kills, finished)
	}
}

// linked makes a copy of a folder whose files are the same: no file of a dataset is ever written to where it lies.
func linked(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Mkdir(filepath.Join(to, name), 0o777)
		}
		return os.Link(path, filepath.Join(to, name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

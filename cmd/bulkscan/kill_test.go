//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// This file has the code of tests that kill bulkscan as a process, and compare the final dataset with that of an
// undisturbed scan of the same list. internal/histories kills commands at every call.

// The killed scan is cut into tiny parts, so that most moments are near the end of one.
const (
	killPart        = 6
	killConcurrency = 8
)

// onceAsked are behaviours of hosts that a scan fetches exactly once, or never.
var onceAsked = []string{
	"ok", "ok-chunked", "ok-until-close", "ok-gzip", "ok-http10", "empty", "html", "utf16", "nul", "alias", "http-only",
	"not-found", "forbidden", "gone", "tls-expired", "tls-wrong-name", "tls-12", "legal", "bare-lf",
}
var neverAsked = []string{"nxdomain", "no-address", "refuse"}

// newKillWorld starts a web in which an interrupted scan makes the same requests as an undisturbed one. It makes a list
// of so many lines, a few of which are no host, or repeat the first.
func newKillWorld(t *testing.T, lines int) *world {
	t.Helper()
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 7, Addresses: 16, Bodies: 128,
		Only: append(slices.Clone(onceAsked), neverAsked...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	var b strings.Builder
	for line := range lines {
		switch {
		case line%40 == 7:
			fmt.Fprintf(&b, "not a host %d\n", line)
		case line%40 == 8:
			b.WriteString("h0.ok.zoo.test\n")
		case line%10 == 9:
			fmt.Fprintf(&b, "h%d.%s.zoo.test\n", line, neverAsked[line/10%len(neverAsked)])
		default:
			fmt.Fprintf(&b, "h%d.%s.zoo.test\n", line, onceAsked[line%len(onceAsked)])
		}
	}
	w := &world{web: web, list: filepath.Join(t.TempDir(), "list.txt"), timeout: allAnswer}
	if err := os.WriteFile(w.list, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return w
}

// snapshot returns all rows of a scan without times, in an order that does not depend on its parts.
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
	eachOf(t, st, commit.StatsName(schema.TokenStats, scan.Manifest.ScanDate, "s"),
		func(r *schema.TokenStatsRow) { add(schema.TokenStats, r) })
	eachOf(t, st, commit.StatsName(schema.RecordStats, scan.Manifest.ScanDate, "s"),
		func(r *schema.RecordStatsRow) { add(schema.RecordStats, r) })
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

// TestScanInBubblesAndOnSockets scans one list twice in virtual time, and then once on sockets, all in this process.
// All three scans keep the same rows: no state that one leaves in the process changes the next.
func TestScanInBubblesAndOnSockets(t *testing.T) {
	cfg := simweb.Config{Seed: 7, Only: append(slices.Clone(onceAsked), neverAsked...), Hold: time.Hour}
	arguments := func(t *testing.T, w *world) (out string, args []string) {
		out = filepath.Join(t.TempDir(), "out")
		return out, w.arguments(t, out, w.web.ConnectTo(), "--timeout", allAnswer, "--date", "2026-11-21")
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

// same compares two snapshots with each other.
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

// tidy checks that a dataset contains no leftovers: no temporary name, no lock, no part without a commit.
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
			return nil // all scans write the views, so that a draft of them may be a living process's
		}
		if entry.Name()[0] == '.' || entry.Name() == "lock" || slices.Contains(schema.AllTables, table) &&
			!named[filepath.ToSlash(name)] {
			t.Errorf("left: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// committed returns the seq that a scan has committed so far; each may occur once.
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

// moment says when a process is killed: so long after an event.
type moment struct {
	name  string
	holds func() bool
	later time.Duration
}

// killAt kills a process at a moment, or reports that the process has ended before.
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

// linked makes a copy of a folder with hard links: no file of a dataset is ever changed in place.
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

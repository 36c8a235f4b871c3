//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestReauditKilledAtManyMoments kills a reaudit again and again: at any moment, and while files get their names. Each
// time the same command continues, and committed parts stay. In the end the dataset is that of an undisturbed reaudit.
func TestReauditKilledAtManyMoments(t *testing.T) {
	notShort(t)
	t.Parallel()
	kills := 16
	if raceEnabled { // each process takes ten times as long
		kills /= 4
	}
	w := newKillWorld(t, 40*killPart)
	folder := filepath.Dir(w.list)
	out, calm, again := filepath.Join(folder, "out"), filepath.Join(folder, "calm"), filepath.Join(folder, "again")
	w.scan(t, out, "--part-rows", fmt.Sprint(killPart), "--no-compact", "--concurrency", fmt.Sprint(killConcurrency),
		"--retries", "0").exits(t, 0)
	want := snapshot(t, out)
	requests := w.web.Stats().Requests
	began := time.Now()
	start(t, "reaudit", out, "-o", calm).exits(t, 0)
	whole := time.Since(began)
	same(t, snapshot(t, calm), want, "undisturbed")

	dice := rand.New(rand.NewPCG(11, 9309))
	aims := []string{"sites/*", "_scans/s/commits", "bodies/*", "token_stats/*", "_rejects"}
	midway, ends := 0, 0
	for n := range kills {
		before := map[uint64]bool{}
		if _, err := os.Stat(filepath.Join(again, "_scans", "s", "manifest.json")); err == nil {
			before = committed(t, again)
		}
		m := moment{"judged again", func() bool { return true }, time.Duration(dice.Int64N(int64(whole)))}
		if aim := aims[n/2%len(aims)]; n%2 == 1 {
			m.holds, m.later = func() bool { return drafts(again, aim, "") > 0 }, time.Duration(dice.IntN(2000))*time.Microsecond
		}
		p := start(t, "reaudit", out, "-o", again)
		if p.killAt(t, m, syscall.SIGKILL) {
			ends++
		} else if code := p.cmd.ProcessState.ExitCode(); code != -1 {
			t.Fatalf("kill %d: exit code %d\n%s", n, code, &p.stderr)
		}
		if _, err := os.Stat(filepath.Join(again, "_scans", "s", "manifest.json")); err != nil {
			continue
		}
		now := committed(t, again)
		for seq := range before {
			if !now[seq] {
				t.Fatalf("kill %d: seq %d was committed, and is no more", n, seq)
			}
		}
		if len(now) > 0 && len(now) < len(want[schema.Sites]) {
			midway++
		}
		if len(now) == len(want[schema.Sites]) { // the next begins anew
			start(t, "reaudit", out, "-o", again).exits(t, 0)
			same(t, snapshot(t, again), want, "gone on with to the end")
			tidy(t, again)
			start(t, "verify", again).exits(t, 0)
			if err := os.RemoveAll(again); err != nil {
				t.Fatal(err)
			}
		}
	}
	start(t, "reaudit", out, "-o", again).exits(t, 0)
	same(t, snapshot(t, again), want, "gone on with to the end")
	tidy(t, again)
	start(t, "verify", again).exits(t, 0)
	if asks := w.web.Stats().Requests - requests; asks != 0 {
		t.Errorf("%d hosts were asked", asks)
	}
	t.Logf("%d kills, %d of them after its end, %d left some of the parts", kills, ends, midway)
	if midway == 0 {
		t.Error("none was killed in the middle")
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// nightOf is the command for the night of a date, with these sites a second.
func (w *world) nightOf(t *testing.T, out, date string, rate int, flags ...string) *process {
	t.Helper()
	return w.start(t, w.nightArguments(t, out, date, rate, flags...)...)
}

// nightArguments are the arguments of the command of nightOf.
func (w *world) nightArguments(t *testing.T, out, date string, rate int, flags ...string) []string {
	t.Helper()
	dir := filepath.Dir(w.list)
	ca, config := filepath.Join(dir, "ca.pem"), filepath.Join(dir, fmt.Sprintf("nightly-%d.toml", rate))
	text := fmt.Sprintf(`[scan]
resolver = [%q]
ca-file = %q
allow-private = true
host-rate = 0
ip-rate = 0
dns-rate = 0
rate = %d
retry-after = "0s"
timeout = "3s"
progress = "none"
part-rows = 20
connect-to = [`, w.web.DNSAddr(), ca, rate)
	for _, to := range w.web.ConnectTo() {
		text += fmt.Sprintf("%q, ", to)
	}
	text += fmt.Sprintf("]\n[nightly]\nlist = %q\n", w.list)
	for name, content := range map[string][]byte{ca: w.web.CAPEM(), config: []byte(text)} {
		if there, err := os.ReadFile(name); err == nil && string(there) == string(content) {
			// another process may be reading it
			continue
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"nightly", "--config", config, "-o", out}, flags...)
	if date != "" {
		args = append(args, "--date", date)
	}
	return args
}

// nights checks the nights of a dataset.
type nights struct{ store.Store }

func nightsIn(t *testing.T, out string) nights {
	t.Helper()
	st, err := store.NewDir(out)
	if err != nil {
		t.Fatal(err)
	}
	return nights{st}
}

// is checks the state of a night, and the number of its runs so far. 200 sites are published.
func (st nights) is(t *testing.T, date string, state nightly.State, runs int) {
	t.Helper()
	n, err := nightly.ReadNight(t.Context(), st, date)
	if err != nil || n.State != state || n.Runs != runs || state == nightly.Published && n.Figures.Sites != 200 {
		t.Fatalf("%s: %+v, %v", date, n, err)
	}
}

// await waits for the first commit of a night.
func (st nights) await(t *testing.T, p *process, date string) {
	t.Helper()
	p.await(t, "commit", func() bool {
		scan, err := commit.ReadScan(t.Context(), st, "night-"+date)
		return err == nil && len(scan.Commits) > 0
	})
}

var nightWeb = simweb.Config{Seed: 3, Only: []string{"ok", "not-found"}}

// TestNightly starts a second run beside a night, interrupts a night, and lets a deadline pass. Each time the next run
// completes the night.
func TestNightly(t *testing.T) {
	inBubble(t, 200, nightWeb, func(t *testing.T, w *world) {
		out := filepath.Join(t.TempDir(), "out")
		st := nightsIn(t, out)
		w.nightOf(t, out, "2026-11-20", 0).exits(t, 0)
		st.is(t, "2026-11-20", nightly.Published, 1)

		p := w.nightOf(t, out, "2026-11-22", 20)
		st.await(t, p, "2026-11-22")
		second := w.nightOf(t, out, "2026-11-22", 0)
		second.exits(t, exitAgain)
		second.says(t, fmt.Sprintf("another night is under way: process %d", os.Getpid()))
		p.signal(t, syscall.SIGTERM)
		p.exits(t, exitTerm)
		st.is(t, "2026-11-22", nightly.Running, 1)
		w.nightOf(t, out, "2026-11-22", 0).exits(t, 0)
		st.is(t, "2026-11-22", nightly.Published, 2)

		// In that minute two sites a second are 120 of 200.
		until := time.Now().Add(time.Minute).Truncate(time.Minute)
		p = w.nightOf(t, out, "2026-11-23", 2, "--until", until.Format("15:04"))
		p.exits(t, exitThreshold)
		p.says(t, "the deadline has come", "the night is incomplete")
		if late := time.Since(until).Round(100 * time.Millisecond); late != 0 {
			t.Errorf("the night ended %v after its deadline", late)
		}
		st.is(t, "2026-11-23", nightly.Incomplete, 1)
		w.nightOf(t, out, "2026-11-24", 0).exits(t, 0)
		st.is(t, "2026-11-24", nightly.Published, 1)
		st.is(t, "2026-11-23", nightly.Incomplete, 1)
		w.start(t, "verify", out).exits(t, 0)
	})
}

// TestKilledNight kills a night on the way. The next run completes it.
func TestKilledNight(t *testing.T) {
	notShort(t)
	w, out := newWorld(t, 200, nightWeb), filepath.Join(t.TempDir(), "out")
	st := nightsIn(t, out)
	p := w.nightOf(t, out, "2026-11-21", 20)
	st.await(t, p, "2026-11-21")
	p.signal(t, syscall.SIGKILL)
	p.exits(t, -1)
	st.is(t, "2026-11-21", nightly.Running, 1)
	p = w.nightOf(t, out, "2026-11-21", 0)
	p.exits(t, 0)
	p.says(t, "resuming")
	st.is(t, "2026-11-21", nightly.Published, 2)
	start(t, "verify", out).exits(t, 0)
}

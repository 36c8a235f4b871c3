package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// callsOfExchange bounds the system calls of one more plain origin, including its look-up and its row: they were 12.3.
const callsOfExchange = 13

// TestSystemCallsOfAnOrigin compares scans of two lists under strace. Calls of Go's scheduler are not counted: they
// depend on the machine.
func TestSystemCallsOfAnOrigin(t *testing.T) {
	notShort(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED: there is no strace")
	}
	calls := func(n int) (all int) {
		w, counts := newWorld(t, n, simweb.Config{Seed: 40, Only: []string{"ok"}}), filepath.Join(t.TempDir(), "counts")
		bulkscan, err := exec.LookPath("bulkscan")
		if err != nil {
			t.Fatal(err)
		}
		args := w.arguments(t, filepath.Join(t.TempDir(), "out"), w.web.ConnectTo(), "--scheme", "http", "--concurrency", "16")
		c := exec.Command(strace, append([]string{"-f", "-c", "-U", "calls,name", "-o", counts, bulkscan}, args...)...)
		if text, err := c.CombinedOutput(); strings.Contains(string(text), "ptrace") {
			t.Skipf("SKIPPED: strace may not trace here: %s", text)
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		text, err := os.ReadFile(counts)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var many int
			var name string
			if _, err := fmt.Sscan(line, &many, &name); err == nil && !slices.Contains(ofScheduler, name) && name != "total" {
				all += many
			}
		}
		return all
	}
	const short, long = 100, 1100
	if each := float64(calls(long)-calls(short)) / (long - short); each > callsOfExchange {
		t.Errorf("%.1f system calls for each origin, want at most %d", each, callsOfExchange)
	}
}

// ofScheduler are the calls that Go's runtime makes for its goroutines, memory and threads.
var ofScheduler = []string{"futex", "nanosleep", "epoll_pwait", "sched_yield", "madvise", "mmap", "munmap", "getpid",
	"tgkill", "rt_sigreturn", "rt_sigprocmask", "clone", "sigaltstack", "restart_syscall"}

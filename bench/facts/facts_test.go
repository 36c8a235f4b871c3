package facts

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestDigits(t *testing.T) {
	f := func(x float64, want string) {
		t.Helper()
		if got := Digits(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
	f(0, "0")
	f(0.0004, "0")
	f(0.0826, "0.083")
	f(0.9996, "1.00")
	f(9.996, "10.0")
	f(99.96, "100")
	f(121373, "121373")
}

func TestMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("SKIPPED: the system has no /proc")
	}
	now, peak := Memory("self", Resident), Memory(strconv.Itoa(os.Getpid()), PeakResident)
	if now <= 1<<20 || peak < now/2 {
		t.Errorf("%d bytes are held, %d at most", now, peak)
	}
	if got := Memory("self", "Name"); got != 0 {
		t.Errorf("a name is taken for %d bytes", got)
	}
	if got := Memory("nobody", Resident); got != 0 {
		t.Errorf("nobody holds %d bytes", got)
	}
}

func TestProfile(t *testing.T) {
	stop, err := Profile("")
	if err != nil || stop() != nil {
		t.Error("no profile is an error")
	}
	path := filepath.Join(t.TempDir(), "cpu.prof")
	if stop, err = Profile(path); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("nothing is written: %v", err)
	}
	if _, err := Profile(filepath.Join(path, "below")); err == nil {
		t.Error("a folder that is none is taken")
	}
}

func TestCommand(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.Int("rounds", 5, "")
		flags.String("o", "", "")
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		if got := Command("peers", flags); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
	f("make peers")
	f("make peers", "-o", "report.md")
	f("go -C bench/peers run . -rounds 2", "-rounds", "2", "-o", "report.md")
}

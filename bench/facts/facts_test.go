package facts

import (
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

package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "bulkscan.prom")
		if err := os.WriteFile(path, []byte("what an earlier scan left"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := example()
		var j journal
		f := Keep(path, s, j.log())
		has := func(want string) {
			t.Helper()
			if !strings.Contains(read(t, path), "\n"+want+"\n") {
				t.Errorf("no line %s in\n%s", want, read(t, path))
			}
		}
		has("bulkscan_origins_kept_total 0")
		s.progress.Kept.Store(5)
		has("bulkscan_origins_kept_total 0")
		time.Sleep(Interval + time.Second)
		has("bulkscan_origins_kept_total 5")
		s.progress.Kept.Store(8)
		s.End(Complete)
		f.Close()
		has("bulkscan_origins_kept_total 8")
		has(`bulkscan_scan_state{state="complete"} 1`)

		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o644 {
			t.Errorf("the file's mode is %v: another user must be able to read it", info.Mode())
		}
		problems, err := promlint.New(strings.NewReader(read(t, path))).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("the file is not as it should be: %v %v", err, problems)
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) != 1 {
			t.Errorf("the folder has %v", left)
		}
		if j.String() != "" {
			t.Errorf("log: %s", j.String())
		}
	})
}

// A missing folder is logged once, and so is its return.
func TestFileThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "missing")
		path := filepath.Join(dir, "bulkscan.prom")
		var j journal
		f := Keep(path, example(), j.log())
		time.Sleep(3*Interval + time.Second)
		synctest.Wait()
		if got := j.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, `level=WARN msg="cannot write the metrics; the scan goes on"`) ||
			!strings.Contains(got, "no such file or directory") {
			t.Errorf("log:\n%s", got)
		}
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * Interval)
		synctest.Wait()
		if got := j.String(); strings.Count(got, "\n") != 2 ||
			!strings.Contains(got, `level=INFO msg="the metrics are written again"`) {
			t.Errorf("log:\n%s", got)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if got := j.String(); strings.Count(got, "level=WARN") != 2 {
			t.Errorf("log:\n%s", got)
		}
	})
}

func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old.prom"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(path, want string) {
		t.Helper()
		err := CheckFile(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	f(filepath.Join(dir, "new.prom"), "")
	f(filepath.Join(dir, "old.prom"), "")
	f(filepath.Join(dir, "missing", "new.prom"), "")
	f(dir, "it is a folder")
	f(os.DevNull, "no regular file")
	f("-", "not standard output")
}

package sharedtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestTry checks that absent files and unreadable files give different errors.
func TestTry(t *testing.T) {
	if err := Try(func(tb testing.TB) { tb.Helper() }); err != nil {
		t.Errorf("nothing went wrong, and yet: %v", err)
	}
	if err := Try(func(tb testing.TB) { tb.Skipf("no %s", "files") }); !errors.As(err, new(AbsentError)) ||
		err.Error() != "no files" {
		t.Errorf("%v, want an AbsentError: no files", err)
	}
	if err := Try(func(tb testing.TB) { tb.Fatal(errors.New("broken")) }); err == nil ||
		errors.As(err, new(AbsentError)) || err.Error() != "broken" {
		t.Errorf("%v, want broken", err)
	}
}

// TestPath checks that the folder beside the project is found from any folder of it, also in a program built with
// -trimpath.
func TestPath(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "shared", "lists", "x.csv")
	inner := filepath.Join(dir, "clone", "bench", "cmd")
	if err := errors.Join(os.MkdirAll(filepath.Dir(want), 0o755), os.WriteFile(want, nil, 0o644),
		os.MkdirAll(inner, 0o755),
		os.MkdirAll(filepath.Join(dir, "clone", "internal", "sharedtest"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{filepath.Join(dir, "clone"), inner} {
		t.Chdir(from)
		got, err := os.Stat(Path(t, "lists", "x.csv"))
		if is, _ := os.Stat(want); err != nil || !os.SameFile(got, is) {
			t.Errorf("from %s: %s, %v", from, Path(t, "lists", "x.csv"), err)
		}
	}
}

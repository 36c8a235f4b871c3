package sharedtest

import (
	"errors"
	"testing"
)

// TestTry checks that absent files and unreadable files give different errors.
func TestTry(t *testing.T) {
	if err := Try(func(tb testing.TB) { tb.Helper() }); err != nil {
		t.Errorf("nothing went wrong, and yet: %v", err)
	}
	if err := Try(func(tb testing.TB) { tb.Skipf("no %s", "files") }); !errors.As(err, new(AbsentError)) || err.Error() != "no files" {
		t.Errorf("%v, want an AbsentError: no files", err)
	}
	if err := Try(func(tb testing.TB) { tb.Fatal(errors.New("broken")) }); err == nil || errors.As(err, new(AbsentError)) || err.Error() != "broken" {
		t.Errorf("%v, want broken", err)
	}
}

package commit

import (
	"slices"
	"strings"
	"testing"
)

// TestLastOf checks that a message lists few names of many.
func TestLastOf(t *testing.T) {
	f := func(names []string, want string) {
		t.Helper()
		if got := lastOf(names); got != want {
			t.Errorf("%d names: %q, want %q", len(names), got, want)
		}
	}
	f([]string{"a"}, "a")
	f([]string{"a", "b"}, "a, b")
	f(append(slices.Repeat([]string{"old"}, 3640), strings.Split("abcdefghij", "")...),
		"3640 before, and a, b, c, d, e, f, g, h, i, j")
}

package terminal

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/nightly"
)

// TestScansOfOthers shows a scan whose record another program wrote: its texts are bounded and harmless.
func TestScansOfOthers(t *testing.T) {
	long := "\x1b[2J\n" + strings.Repeat("x", 1<<20)
	var page strings.Builder
	if err := Scans(&page, []*nightly.Entry{{Date: "2026-11-20", ScanID: "s", State: long, ListID: long, Observer: long,
		Publication: "\x1b", Pruned: []string{long}, Note: long}}, ColorNever); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); len(text) > 5000 || strings.ContainsRune(text, '\x1b') ||
		!strings.Contains(text, "2026-11-20  s ") {
		t.Errorf("%d bytes: %.300q", len(text), text)
	}
}

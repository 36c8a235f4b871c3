package terminal

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

func anEnding() *summary.Ending {
	scan := aSummary()
	scan.Outcomes = []survey.Count{{Value: "answered", Rows: 18203}, {Value: "dns_not_found", Rows: 900},
		{Value: "connect_timeout", Rows: 500}, {Value: "tls_failed", Rows: 300}, {Value: "opted_out", Rows: 97}}
	scan.Blocking.MostBlocked = scan.Blocking.MostBlocked[:3]
	return &summary.Ending{
		ScanID: "20261121-5f3a9c", Kept: 15000, AlreadyKept: 5000, Throttled: 120, Rejected: 23, Duplicates: 1,
		Entries: 20000, Lines: 20023, Stored: true, Scan: scan,
	}
}

// TestEnding shows the last page of a scan with a dataset, and of a scan that only prints.
func TestEnding(t *testing.T) {
	f := func(name string, e *summary.Ending, o EndingOptions) {
		t.Helper()
		var out bytes.Buffer
		if err := Ending(&out, e, o); err != nil {
			t.Fatal(err)
		}
		goldenPage(t, name, out.String())
	}
	f("ending", anEnding(), EndingOptions{Out: "out", Took: 3*time.Hour + 7*time.Minute + 12*time.Second,
		Next: []Fact{{"next", "bulkscan summary out"}}})
	for sites, ranked := range map[int64]bool{29: false, 30: true} { // --least-group
		e := anEnding()
		e.Scan.Blocking.Sites = sites
		var out bytes.Buffer
		if err := Ending(&out, e, EndingOptions{}); err != nil || strings.Contains(out.String(), "blocked most") != ranked {
			t.Errorf("%d sites, %v:\n%s", sites, err, &out)
		}
	}
	f("ending-lines", &summary.Ending{ScanID: "s", Kept: 3, Outcomes: []survey.Count{{Value: "answered", Rows: 2},
		{Value: "timeout", Rows: 1}}, Entries: 3, Lines: 3}, EndingOptions{Out: "-", Took: 1234 * time.Millisecond})
	f("ending-empty", &summary.Ending{ScanID: "s", Lines: 2, Rejected: 2, Stored: true},
		EndingOptions{Out: "a/b", Took: 61 * time.Second})
}

// TestHumanLog shows the lines of a terminal's log: sentences.
func TestHumanLog(t *testing.T) {
	var b strings.Builder
	log := slog.New(&human{mu: &sync.Mutex{}, w: &b, level: slog.LevelInfo})
	f := func(want string, write func()) {
		t.Helper()
		b.Reset()
		if write(); b.String() != want {
			t.Errorf("got  %q\nwant %q", b.String(), want)
		}
	}
	f("Scanning: scan s, out my out\n", func() { log.Info("scanning", "scan", "s", "out", "my out") })
	f("", func() { log.Debug("name servers") })
	f("Resuming: already kept 12,345\n", func() { log.Info("resuming", "already_kept", uint64(12345)) })
	f("Warning: lowered: now 1,000. Remedy: ulimit -n 9\n",
		func() { log.Warn("lowered", "now", 1000, "remedy", "ulimit -n 9") })
	f("Error: x: a 1, error one\\ntwo, for 1.5s\n", func() {
		log.With("a", 1).Error("x", "error", errors.New("one\ntwo"), "for", 1500*time.Millisecond)
	})
	f("Merged: date 2026-11-24 00:00:00 UTC\n", func() {
		log.Info("merged", "date", time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), "gaps", map[string]int{"a": 1},
			slog.Group("dns", "lookups", 1), slog.Attr{})
	})
	for _, h := range hostiletest.Texts() {
		b.Reset()
		log.Warn("message", "text", h.Text, "error", errors.New(h.Text), "remedy", h.Text)
		hostiletest.Check(t, h.Name, []byte(b.String()), 3*6*maxMessage+500)
	}
}

// TestQuoted shows words quoted for a shell.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{"out": "out", "s3://b/p": "s3://b/p", "my out": "'my out'", "": "''",
		"it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := Quoted(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

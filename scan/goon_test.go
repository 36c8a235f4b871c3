package scan

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// TestGoOn shows which scan the same command continues after midnight: the unfinished one until a day after its last
// commit. Else it begins a new one, and a log line names the unfinished scan. In all other cases nothing is logged.
func TestGoOn(t *testing.T) {
	const day, earlier, today = "2026-11-20", "20261120-", "20261121-"
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("a.test\nb.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	observer := commit.Observer{Source: commit.Live, Product: "bulkscan"}
	options := func(st store.Store, change func(*Options)) (Options, *bytes.Buffer) {
		log := &bytes.Buffer{}
		o := Options{
			Lists: []string{list}, Store: st, Log: slog.New(slog.NewTextHandler(log, nil)), Begun: time.Date(2026, 11, 21, 0, 10,
				0, 0, time.UTC),
			Sink: sink.Options{Observer: observer, Config: []commit.Setting{{Name: "max-body", Value: "1", Answers: true}}},
		}
		if change != nil {
			change(&o)
		}
		return o, log
	}
	const continued, older, other = "continuing the unfinished scan", "with --scan-id", "not_continued"
	// left is done to the unfinished scan of one of two sites; its last commit is as old as age.
	f := func(what string, age time.Duration, left func(o *sink.Options), then func(*sink.Writer) error,
		change func(*Options), scan, says string) {
		t.Helper()
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		first, _ := options(st, func(o *Options) { o.Sink.Date = day })
		j := New(first)
		if err := j.openLists(t.Context()); err != nil {
			t.Fatal(err)
		}
		of := j.sinkOptions()
		if left != nil {
			left(&of)
		}
		w, err := sink.Open(t.Context(), st, of)
		if err != nil {
			t.Fatal(err)
		}
		if then == nil {
			then = addA
		}
		if err := errors.Join(then(w), w.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		last := time.Time{}
		if m, err := commit.ReadManifest(t.Context(), st, of.ScanID); err == nil {
			last = m.StartedAt
		}
		commits, err := commit.Commits(t.Context(), st, of.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commits {
			last = c.CommittedAt
		}
		o, log := options(st, change)
		if o.Begun = last.Add(age); o.Sink.Date == "" {
			scan = strings.ReplaceAll(scan, today, o.Begun.UTC().Format("20060102")+"-")
		}
		j = New(o)
		c, err := j.Count(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !strings.HasPrefix(c.ScanID, scan) || says == "" && log.Len() > 0 || !strings.Contains(log.String(), says) {
			t.Errorf("%s: scan %s, want %s…; the log: %s", what, c.ScanID, scan, log)
		}
		if says != "" && !strings.Contains(log.String(), of.ScanID) {
			t.Errorf("%s: the log does not name %s: %s", what, of.ScanID, log)
		}
		if says == continued && (j.date() != day || c.Dataset.Kept != int64(len(commits))) {
			t.Errorf("%s: date %s, %d sites kept of %d", what, j.date(), c.Dataset.Kept, len(commits))
		}
	}
	const justUnder = 24*time.Hour - time.Millisecond
	f("its last commit is less than a day old", justUnder, nil, nil, nil, earlier, continued)
	f("its last commit is a day old", 24*time.Hour, nil, nil, nil, today, older)
	f("it is from last month", 700*time.Hour, nil, nil, nil, today, older)
	f("nothing is committed yet", justUnder, nil, func(*sink.Writer) error { return nil }, nil, earlier, continued)
	f("nothing was committed a day ago", 24*time.Hour, nil, func(*sink.Writer) error { return nil }, nil, today, older)
	f("a clock goes wrong", -time.Hour, nil, nil, nil, earlier, continued)

	f("--date", time.Hour, nil, nil, func(o *Options) { o.Sink.Date = "2026-11-22" }, "20261122-", "")
	f("--scan-id", time.Hour, nil, nil, func(o *Options) { o.Sink.ScanID = "mine" }, "mine", "")
	f("--restart", time.Hour, nil, nil, func(o *Options) { o.Sink.Restart = true }, today, "")

	f("a scan that was named", time.Hour, func(o *sink.Options) { o.ScanID = "mine" }, nil, nil, today, "")
	f("another list id", time.Hour, nil, nil, func(o *Options) { o.Sink.ListID = "other" }, today, "")
	f("another observer", time.Hour, nil, nil, func(o *Options) { o.Sink.Observer.Vantage = "other" }, today, "")
	f("a complete scan", time.Hour, nil, func(w *sink.Writer) error {
		return errors.Join(addA(w),
			w.Complete(context.Background()))
	}, nil, today, "")
	f("a setting that changes answers", time.Hour, nil, nil, func(o *Options) {
		o.Sink.Config = []commit.Setting{{Name: "max-body", Value: "2", Answers: true}}
	}, today, "--max-body was")
	f("other tables", time.Hour, nil, nil, func(o *Options) { o.Sink.Tables = []string{"sites"} }, today, other)
	f("a scan in shares", time.Hour, func(o *sink.Options) { o.Shares, o.Shard = 2, "0" },
		func(w *sink.Writer) error { return nil }, nil, today, other)
}

// addA keeps the first site of the list.
func addA(w *sink.Writer) error {
	host, err := origin.Parse("a.test")
	if err != nil {
		return err
	}
	site := &audit.Site{Input: "a.test", Origin: host, Fetch: exchange.Response{Outcome: exchange.Answered, Status: 404}}
	audit.Judge(site)
	return w.Add(site)
}

// TestGoOnDamaged shows that an unreadable unfinished scan does not prevent a new one.
func TestGoOnDamaged(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("a.test\nb.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"/manifest.json": "", "/commits/0-0.json": "not_continued"} {
		st, log := newDisk(t), &bytes.Buffer{}
		o := Options{Lists: []string{list}, Store: st, Log: slog.New(slog.NewTextHandler(log, nil)), Begun: time.Now(),
			Sink: sink.Options{Date: "2026-11-20"}}
		j := New(o)
		if err := j.openLists(t.Context()); err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), st, j.sinkOptions())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(addA(w), w.Close(t.Context()), st.Put(t.Context(), "_scans/"+j.scanID+name,
			[]byte("{}"))); err != nil {
			t.Fatal(err)
		}
		o.Sink.Date = ""
		again := New(o)
		if err := again.openLists(t.Context()); err != nil || again.scanID == j.scanID {
			t.Errorf("%s: scan %s, %v", name, again.scanID, err)
		}
		if says == "" && log.Len() > 0 || !strings.Contains(log.String(), says) {
			t.Errorf("%s: the log: %s", name, log)
		}
	}
}

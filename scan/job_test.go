package scan

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestCommitGivesUpOnce shows that the gathered sites are committed before the rejects. A store that was given up
// meanwhile gets no further requests except for cleaning up, since each may take as long.
func TestCommitGivesUpOnce(t *testing.T) {
	f := func(what string, fails func(storetest.Step) bool, committed uint64, published bool) {
		t.Helper()
		dir, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		failed := false
		var then []storetest.Step // after the failure
		faulty := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
			if failed {
				then = append(then, s)
			}
			if fails(s) {
				failed = true
				return fmt.Errorf("given up: %w", store.ErrUnavailable)
			}
			return nil
		}}
		o := sink.Options{ScanID: "s", Date: "2026-11-21", Tables: []string{schema.Sites}}
		j := New(Options{Log: slog.New(slog.DiscardHandler), Store: faulty})
		j.scanID = "s"
		if j.writer, err = sink.Open(t.Context(), faulty, o); err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if j.rejects, err = commit.OpenRejects(t.Context(), faulty, "s"); err != nil {
			t.Fatal(err)
		}
		host, err := origin.Parse("a.test")
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Input: "a.test", Origin: host, Fetch: exchange.Response{Outcome: exchange.DNSNotFound}}
		audit.Judge(site)
		if err := errors.Join(j.writer.Add(site), j.rejects.Add(commit.Reject{Input: "list", Line: 2, Text: "a b",
			Reason: "not a host name"})); err != nil {
			t.Fatal(err)
		}
		err = j.commit(t.Context(), nil)
		if _, ok := errors.AsType[*commit.StoreError](err); ok != failed || (err != nil) != failed {
			t.Errorf("%s: %v", what, err)
		}
		for _, s := range then {
			if s.Op != "discard" && s.Op != "unlock" {
				t.Errorf("%s: then %s of %s is asked for", what, s.Op, s.Name)
			}
		}
		w, err := sink.Open(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if w.DoneCount() != committed {
			t.Errorf("%s: %d sites are kept", what, w.DoneCount())
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if _, err := store.ReadAll(t.Context(), dir, "_rejects/s.jsonl", 1<<10); (err == nil) != published {
			t.Errorf("%s: the rejects: %v", what, err)
		}
	}
	f("heard", func(storetest.Step) bool { return false }, 1, true)
	f("silent at a part", func(s storetest.Step) bool {
		return s.Op == "publish" &&
			strings.HasPrefix(s.Name, schema.Sites)
	}, 0, false)
	f("silent at the commit", func(s storetest.Step) bool { return strings.Contains(s.Name, "/commits/0-0") }, 0, false)
	f("silent at the rejects", func(s storetest.Step) bool {
		return s.Op == "publish" &&
			strings.HasPrefix(s.Name, "_rejects")
	}, 1, false)
}

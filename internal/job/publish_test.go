package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/verify"
)

// completed writes a complete scan of three parts.
func completed(t *testing.T, st store.Store, id, date string) {
	t.Helper()
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: id, Date: date, PartRows: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		host, err := origin.Parse(fmt.Sprintf("h%d.test", i))
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Seq: uint64(i), Input: host.Host(), Origin: host, Fetch: exchange.Response{Outcome: exchange.Answered, Status: 404}}
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// TestPublishIsKilledAnywhere kills a Publish before and after each of its steps. The scan is as whole as before, the
// publication of the next scan does what was left, and a second one of the first scan leaves nothing over.
func TestPublishIsKilledAnywhere(t *testing.T) {
	o := Publishing{Compact: true, Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}
	source, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	completed(t, source, "one", "2026-11-01")
	copied := func() store.Store {
		dir, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
		if err != nil {
			t.Fatal(err)
		}
		for entry, err := range source.List(t.Context(), "") {
			var data []byte
			if err == nil {
				data, err = store.ReadAll(t.Context(), source, entry.Name, 1<<20)
			}
			if err == nil {
				err = dir.Put(t.Context(), entry.Name, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	findings := func(st store.Store, kind verify.FindingKind) (found []string) {
		report := func(f verify.Finding) {
			if f.Kind == kind {
				found = append(found, f.String())
			}
		}
		_, err := verify.Dataset(t.Context(), st, verify.Options{Report: report})
		if err := errors.Join(err, history.Verify(t.Context(), st, report)); err != nil {
			t.Fatal(err)
		}
		return found
	}
	calm := &storetest.Faults{Store: copied()}
	if err := Publish(t.Context(), calm, "one", o); err != nil {
		t.Fatal(err)
	}
	steps := calm.Steps()
	if len(steps) < 40 {
		t.Fatalf("%d steps: the test sees too few", len(steps))
	}
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for n := 1; n <= len(steps); n += stride {
		for _, effect := range []bool{false, true} {
			dir := copied()
			dying := &storetest.Faults{Store: dir}
			dying.CrashAt(n, effect)
			_ = Publish(context.Background(), dying, "one", o) // what does not matter to the scan is only logged
			if err := dying.Kill(); err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprintf("killed at step %d, %v, effect %v", n, steps[n-1], effect)
			if found := findings(dir, verify.Damaged); len(found) > 0 {
				t.Errorf("%s: %q", at, found)
			}
			scan, err := commit.ReadScan(t.Context(), dir, "one")
			if err != nil || scan.Lost() != nil || commit.CountCommits(scan.Commits).Rows != 3 {
				t.Errorf("%s: the scan has lost something: %v", at, err)
			}
			completed(t, dir, "two", "2026-11-02")
			if err := Publish(t.Context(), dir, "two", o); err != nil {
				t.Errorf("%s: the next scan: %v", at, err)
			}
			ledger, err := history.ReadLedger(t.Context(), dir)
			if err != nil || len(ledger.Scans) != 2 {
				t.Errorf("%s: the history has %v, %v", at, ledger, err)
			}
			if state, err := index.Check(t.Context(), dir); err != nil || state != index.Current {
				t.Errorf("%s: the index is %v, %v", at, state, err)
			}
			if err := Publish(t.Context(), dir, "one", o); err != nil {
				t.Errorf("%s: again: %v", at, err)
			}
			if found := slices.Concat(findings(dir, verify.Damaged), findings(dir, verify.Leftover)); len(found) > 0 {
				t.Errorf("%s: left over: %q", at, found)
			}
		}
	}
}

package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// TestRepairIsPublished kills a repair before and after each of its steps, and those of the publication after it. When the same command
// has run again, readers have the repaired scan: also the history, which had the answers of before.
func TestRepairIsPublished(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("h0.test\nh1.test\nh2.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	job := func(st store.Store, repair bool) *Job {
		return New(Options{
			Lists: []string{list}, Store: st, Log: publishing.Log, Begun: time.Now(),
			Sink: sink.Options{ScanID: "one", Date: "2026-11-01", PartRows: 1, Repair: repair, Registry: tokens.Default()},
		})
	}
	// scanned is a run of which the network is left out: sites answer with a status.
	scanned := func(ctx context.Context, st store.Store, repair bool, status int) error {
		j := job(st, repair)
		if err := j.openLists(ctx); err != nil {
			return err
		}
		w, err := sink.Open(ctx, st, j.sinkOptions())
		if intact, ok := errors.AsType[*sink.IntactError](err); ok && intact.State == commit.Complete {
			if _, again := job(st, repair).Run(ctx); !errors.As(again, &intact) {
				return again
			}
			return nil
		}
		if err != nil {
			return err
		}
		for i, host := range []string{"h0.test", "h1.test", "h2.test"} {
			if w.Done(uint64(i)) {
				continue
			}
			from, err := origin.Parse(host)
			if err != nil {
				return err
			}
			site := &audit.Site{Seq: uint64(i), Input: host, Origin: from, Fetch: exchange.Response{Outcome: exchange.Answered, Status: status}}
			audit.Judge(site)
			if err := w.Add(site); err != nil {
				return errors.Join(err, w.Abort())
			}
		}
		if err := errors.Join(w.Complete(ctx), w.Close(ctx)); err != nil {
			return err
		}
		return Publish(ctx, st, "one", publishing)
	}
	source := newDisk(t)
	if err := scanned(t.Context(), source, false, 404); err != nil {
		t.Fatal(err)
	}
	scan, err := commit.ReadScan(t.Context(), source, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Delete(t.Context(), scan.Commits[0].Files[0].Name); err != nil {
		t.Fatal(err)
	}
	repair := func(ctx context.Context, st store.Store) error { return scanned(ctx, st, true, 403) }
	calm := &storetest.Faults{Store: copied(t, source)}
	if err := repair(t.Context(), calm); err != nil {
		t.Fatal(err)
	}
	steps, stride := calm.Steps(), 3
	if testing.Short() {
		stride = 17
	}
	for n := 1; n <= len(steps); n += stride {
		dir := copied(t, source)
		dying := &storetest.Faults{Store: dir}
		dying.CrashAt(n, n%2 == 0)
		_ = repair(context.Background(), dying)
		if err := dying.Kill(); err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("killed at step %d, %v", n, steps[n-1])
		if err := repair(t.Context(), dir); err != nil {
			t.Errorf("%s: again: %v", at, err)
		}
		stories, err := history.Stories(t.Context(), dir, "h2.test", history.Asked{})
		if err != nil || len(stories) != 1 || len(stories[0].Episodes) != 1 || stories[0].Episodes[0].What.Class != "refused" {
			t.Errorf("%s: the history tells %+v, %v", at, stories, err)
		}
		if state, err := index.Check(t.Context(), dir); err != nil || state != index.Current {
			t.Errorf("%s: the index is %v, %v", at, state, err)
		}
		if found := findings(t, dir, verify.Damaged, verify.Leftover); len(found) > 0 {
			t.Errorf("%s: %q", at, found)
		}
	}
}

package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// completed writes a complete scan of three parts, or opens and completes it once more.
func completed(t *testing.T, st store.Store, id, date string, noPublish bool) {
	t.Helper()
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: id, Date: date, PartRows: 1, NoPublish: noPublish})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if w.Done(uint64(i)) {
			continue
		}
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

// newDisk returns an empty dataset in memory.
func newDisk(t *testing.T) *store.Dir {
	t.Helper()
	dir, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// copied returns a copy of a dataset.
func copied(t *testing.T, source store.Store) store.Store {
	t.Helper()
	dir := newDisk(t)
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

// findings returns what verify finds in a dataset, of these kinds.
func findings(t *testing.T, st store.Store, kinds ...verify.FindingKind) (found []string) {
	t.Helper()
	report := func(f verify.Finding) {
		if slices.Contains(kinds, f.Kind) {
			found = append(found, f.String())
		}
	}
	_, err := verify.Dataset(t.Context(), st, verify.Options{Report: report})
	if err := errors.Join(err, history.Verify(t.Context(), st, report)); err != nil {
		t.Fatal(err)
	}
	return found
}

// merged returns how many scans the history has.
func merged(t *testing.T, st store.Store) int {
	t.Helper()
	ledger, err := history.ReadLedger(t.Context(), st)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		t.Fatal(err)
	}
	if ledger == nil {
		return 0
	}
	return len(ledger.Scans)
}

// killedAnywhere does something to copies of a dataset, and kills it before and after each of its steps. Each time
// nothing is damaged, and then check sees the copy.
func killedAnywhere(t *testing.T, source store.Store, do func(ctx context.Context, st store.Store) error, check func(at string, st store.Store)) {
	t.Helper()
	calm := &storetest.Faults{Store: copied(t, source)}
	if err := do(t.Context(), calm); err != nil {
		t.Fatal(err)
	}
	steps := calm.Steps()
	if len(steps) < 40 {
		t.Fatalf("%d steps: the test sees too few", len(steps))
	}
	stride := 1
	if testing.Short() {
		stride = max(7, len(steps)/8)
	}
	for n := 1; n <= len(steps); n += stride {
		effects := []bool{false, true}
		if len(steps) > 120 { // one of the two is enough
			effects = effects[n%2 : n%2+1]
		}
		for _, effect := range effects {
			dir := copied(t, source)
			dying := &storetest.Faults{Store: dir}
			dying.CrashAt(n, effect)
			_ = do(context.Background(), dying) // what does not matter to the scan is only logged
			if err := dying.Kill(); err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprintf("killed at step %d, %v, effect %v", n, steps[n-1], effect)
			if found := findings(t, dir, verify.Damaged); len(found) > 0 {
				t.Errorf("%s: %q", at, found)
			}
			check(at, dir)
			if found := findings(t, dir, verify.Damaged, verify.Leftover); len(found) > 0 {
				t.Errorf("%s: left over: %q", at, found)
			}
		}
	}
}

var publishing = Publishing{Compact: true, Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}

// TestPublishIsKilledAnywhere kills a Publish before and after each of its steps. The scan is as whole as before, the
// publication of the next scan does what was left, and a second one of the first scan leaves nothing over.
func TestPublishIsKilledAnywhere(t *testing.T) {
	source := newDisk(t)
	completed(t, source, "one", "2026-11-01", false)
	publish := func(ctx context.Context, st store.Store) error { return Publish(ctx, st, "one", publishing) }
	killedAnywhere(t, source, publish, func(at string, dir store.Store) {
		scan, err := commit.ReadScan(t.Context(), dir, "one")
		if err != nil || scan.Lost() != nil || commit.CountCommits(scan.Commits).Rows != 3 {
			t.Errorf("%s: the scan has lost something: %v", at, err)
		}
		completed(t, dir, "two", "2026-11-02", false)
		if err := Publish(t.Context(), dir, "two", publishing); err != nil {
			t.Errorf("%s: the next scan: %v", at, err)
		}
		if n := merged(t, dir); n != 2 {
			t.Errorf("%s: the history has %d scans", at, n)
		}
		if state, err := index.Check(t.Context(), dir); err != nil || state != index.Current {
			t.Errorf("%s: the index is %v, %v", at, state, err)
		}
		if err := Publish(t.Context(), dir, "one", publishing); err != nil {
			t.Errorf("%s: again: %v", at, err)
		}
	})
}

// TestReleaseIsKilledAnywhere releases a held scan that lies before a published one. Killed anywhere, a second Release
// gives what an undisturbed one does.
func TestReleaseIsKilledAnywhere(t *testing.T) {
	source := newDisk(t)
	completed(t, source, "one", "2026-11-01", true)
	completed(t, source, "two", "2026-11-02", false)
	err := errors.Join(commit.SetPublication(t.Context(), source, "one", commit.PublicationHeld), Publish(t.Context(), source, "one", publishing), Publish(t.Context(), source, "two", publishing))
	if n := merged(t, source); err != nil || n != 1 {
		t.Fatalf("while a scan is held, the history has %d, %v", n, err)
	}
	release := func(ctx context.Context, st store.Store) error { return Release(ctx, st, "one", publishing) }
	killedAnywhere(t, source, release, func(at string, dir store.Store) {
		if err := release(t.Context(), dir); err != nil || merged(t, dir) != 2 {
			t.Errorf("%s: again: the history has %d scans, %v", at, merged(t, dir), err)
		}
	})
}

// TestPublications shows from which publication a scan may go to which, and what readers get of it.
func TestPublications(t *testing.T) {
	const pending, done, held, discarded = commit.PublicationPending, commit.PublicationDone, commit.PublicationHeld, commit.PublicationDiscarded
	f := func(from, to, want commit.Publication) {
		t.Helper()
		st := newDisk(t)
		completed(t, st, "one", "2026-11-01", true)
		if from != pending {
			if err := commit.SetPublication(t.Context(), st, "one", from); err != nil {
				t.Fatal(err)
			}
		}
		err := commit.SetPublication(t.Context(), st, "one", to)
		if refused := err != nil; refused != (want != to) {
			t.Errorf("%s to %s: %v", from, to, err)
		}
		// Neither a merge of parts, nor repeating the scan's own command, changes a decision.
		if want != pending {
			completed(t, st, "one", "2026-11-01", false)
		}
		if err := Publish(t.Context(), st, "one", publishing); err != nil {
			t.Fatal(err)
		}
		m, err := commit.ReadManifest(t.Context(), st, "one")
		if err != nil || m.Publication != want || m.Counts == nil || m.Withheld() == (want == done) {
			t.Errorf("%s to %s: %+v, %v", from, to, m, err)
		}
		if n := merged(t, st); (n == 1) != (want == done) {
			t.Errorf("%s: the history has %d scans", want, n)
		}
		if state, err := index.Check(t.Context(), st); err != nil || state != index.Current {
			t.Errorf("%s: the index is %v, %v", want, state, err)
		}
		if found := findings(t, st, verify.Damaged, verify.Leftover); len(found) > 0 {
			t.Errorf("%s: %q", want, found)
		}
	}
	f(pending, done, done)
	f(pending, held, held)
	f(pending, discarded, discarded)
	f(held, done, done)
	f(held, held, held)
	f(held, discarded, discarded)
	f(discarded, done, done)
	f(discarded, held, discarded)
	f(done, done, done)
	f(done, held, done)
	f(done, discarded, done)
	st := newDisk(t)
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "one", Date: "2026-11-01"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := commit.SetPublication(t.Context(), st, "one", done); err == nil {
		t.Error("a scan that is not complete is published")
	}
	if err := commit.SetPublication(t.Context(), st, "one", discarded); err != nil {
		t.Error(err)
	}
	if _, err := sink.Open(t.Context(), st, sink.Options{ScanID: "one"}); err == nil || !strings.Contains(err.Error(), "was discarded") {
		t.Errorf("a discarded scan is continued: %v", err)
	}
	completed(t, st, "two", "2026-11-02", false)
	if done, err := Prune(t.Context(), st, Retention{Nights: "2026-11-02"}, publishing); err != nil || !slices.Equal(done.Nights, []string{"2026-11-01"}) {
		t.Errorf("a discarded scan is too old: %+v, %v", done, err)
	}
}

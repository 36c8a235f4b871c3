package scan

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestKilledAtEachStep kills each command that changes publications at each of its steps, before and after the step's
// effect. Then the same command, or the next night, succeeds: no published scan is lost, nothing is damaged, and the
// history has the published scans.
func TestKilledAtEachStep(t *testing.T) {
	const pending, done, held, discarded = commit.PublicationPending, commit.PublicationDone, commit.PublicationHeld,
		commit.PublicationDiscarded
	base := newDisk(t)
	for _, id := range []string{"one", "two", "three", "new"} {
		completed(t, base, id, map[string]string{"one": "2026-11-01", "two": "2026-11-02", "three": "2026-11-03",
			"new": "2026-11-04"}[id], id == "new")
		if err := Publish(t.Context(), base, id, publishing); err != nil {
			t.Fatal(err)
		}
	}
	set := func(id string, to commit.Publication) func(context.Context, store.Store) error {
		return func(ctx context.Context, st store.Store) error { return commit.SetPublication(ctx, st, nil, id, to) }
	}
	withdraw := func(ctx context.Context, st store.Store) error {
		return Withdraw(ctx, st, "three", "a wrong list", publishing)
	}
	// f kills change of a scan. The arguments are the publications that the scan may have if change is not repeated, and
	// the one if it is. Damage by prepare stays.
	f := func(what string, prepare func(st store.Store) error, change func(context.Context, store.Store) error, of string,
		may []commit.Publication, want commit.Publication) {
		t.Helper()
		step := 1
		if testing.Short() {
			step = 61
		}
		for n, crashed := 1, true; crashed; n += step {
			for _, again := range []bool{true, false} {
				st := copied(t, base)
				if prepare != nil {
					if err := prepare(st); err != nil {
						t.Fatal(err)
					}
				}
				dying := &storetest.Faults{Store: st}
				dying.CrashAt(n, n/step%2 == 0 != again)
				err := change(t.Context(), dying)
				if crashed = dying.Crashed(); !crashed && err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				_ = dying.Kill() // which steps after its death fail
				step := dying.Steps()[len(dying.Steps())-1]
				if again {
					if err := change(t.Context(), st); err != nil {
						t.Errorf("%s, killed at step %d, %v, again: %v", what, n, step, err)
					}
				}
				completed(t, st, "next", "2026-11-05", false)
				if err := Publish(t.Context(), st, "next", publishing); err != nil {
					t.Errorf("%s, killed at step %d, %v, repeated %v: the next night: %v", what, n, step, again, err)
				}
				all, err := commit.Scans(t.Context(), st)
				published := 0
				for _, m := range all {
					if m.Published() || m.State != commit.Complete && !again { // whose rows the history keeps
						published++
					}
					switch {
					case m.ScanID == of && again && m.Publication == want:
					case m.ScanID == of && !again && slices.Contains(may, m.Publication):
					case m.ScanID != of && m.Published() == (m.ScanID != "new"):
					default:
						t.Errorf("%s, killed at step %d, %v, repeated %v: %s is %s", what, n, step, again, m.ScanID, m.Publication)
					}
				}
				if kept := merged(t, st); err != nil || published != kept {
					t.Errorf("%s, killed at step %d, %v, repeated %v: %d scans, %d published, %d in the history, %v", what, n, step,
						again, len(all), published, kept, err)
				}
				// The index keeps its rows of a damaged scan that is still published.
				if state, err := index.Check(t.Context(), st); err != nil || state != index.Current && (prepare == nil || again) {
					t.Errorf("%s, killed at step %d, %v: the index is %v, %v", what, n, step, state, err)
				}
				found := slices.DeleteFunc(findings(t, st, verify.Damaged), func(f string) bool {
					return prepare != nil &&
						strings.Contains(f, commit.ManifestName(of))
				})
				if len(found) > 0 {
					t.Errorf("%s, killed at step %d, %v, repeated %v: %q", what, n, step, again, found)
				}
			}
		}
	}
	type publications []commit.Publication
	f("hold", nil, set("new", held), "new", publications{pending, held}, held)
	f("discard", nil, set("new", discarded), "new", publications{pending, discarded}, discarded)
	f("release", nil, func(ctx context.Context, st store.Store) error { return Release(ctx, st, "new", publishing) },
		"new", publications{pending, done}, done)
	f("withdraw", nil, withdraw, "three", publications{done, discarded}, discarded)
	f("withdraw damaged", func(st store.Store) error {
		past, err := commit.ReadHistory(t.Context(), st, "three")
		if err == nil {
			err = st.Delete(t.Context(), past.Current[0].Name())
		}
		return err
	}, withdraw, "three", publications{done, discarded}, discarded)
	f("restart", nil, func(ctx context.Context, st store.Store) error {
		return remade(ctx, t, st, sink.Options{ScanID: "three", Date: "2026-11-03", Restart: true})
	}, "three", publications{done, pending}, done)
}

// remade opens a scan, completes and publishes it.
func remade(ctx context.Context, t *testing.T, st store.Store, o sink.Options) error {
	t.Helper()
	w, err := sink.Open(ctx, st, o)
	if err != nil {
		return err
	}
	for i := range uint64(3) {
		if !w.Done(i) {
			if err := w.Add(site(t, i)); err != nil {
				return errors.Join(err, w.Abort())
			}
		}
	}
	if err := w.Complete(ctx); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	return Publish(ctx, st, o.ScanID, publishing)
}

package scan

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
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
		if err := w.Add(site(t, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// site returns a site without a robots.txt.
func site(t testing.TB, seq uint64) *audit.Site {
	t.Helper()
	host, err := origin.Parse(fmt.Sprintf("h%d.test", seq))
	if err != nil {
		t.Fatal(err)
	}
	s := &audit.Site{Seq: seq, Input: host.Host(), Origin: host, Fetch: exchange.Response{Outcome: exchange.Answered,
		Status: 404}}
	audit.Judge(s)
	return s
}

// newDisk returns an empty dataset in memory.
func newDisk(t *testing.T) *store.Dir {
	t.Helper()
	return diskOn(t, storetest.NewDisk())
}

func diskOn(t *testing.T, disk *storetest.Disk) *store.Dir {
	t.Helper()
	dir, err := store.NewDirOn(disk, "/data/out")
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

var publishing = Publishing{Compact: true, Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}

// TestPublications shows which changes of publication are allowed, and what readers get of a scan.
func TestPublications(t *testing.T) {
	const pending, done, held, discarded = commit.PublicationPending, commit.PublicationDone, commit.PublicationHeld,
		commit.PublicationDiscarded
	f := func(from, to, want commit.Publication) {
		t.Helper()
		st := newDisk(t)
		completed(t, st, "one", "2026-11-01", true)
		if from != pending {
			if err := commit.SetPublication(t.Context(), st, nil, "one", from); err != nil {
				t.Fatal(err)
			}
		}
		err := commit.SetPublication(t.Context(), st, nil, "one", to)
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
	if err := commit.SetPublication(t.Context(), st, nil, "one", done); err == nil {
		t.Error("a scan that is not complete is published")
	}
	if err := commit.SetPublication(t.Context(), st, nil, "one", discarded); err != nil {
		t.Error(err)
	}
	if _, err := sink.Open(t.Context(), st, sink.Options{ScanID: "one"}); err == nil || !strings.Contains(err.Error(),
		"was discarded") {
		t.Errorf("a discarded scan is continued: %v", err)
	}
	completed(t, st, "two", "2026-11-02", false)
	if done, err := Prune(t.Context(), st, Retention{Nights: "2026-11-02"}, publishing); err != nil ||
		!slices.Equal(done.Nights, []string{"2026-11-01"}) {
		t.Errorf("a discarded scan is too old: %+v, %v", done, err)
	}
}

// TestWaitsAreTold lets another process hold the dataset's lock for an hour. Commands that change publications wait,
// succeed, and log what they wait for.
func TestWaitsAreTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		st := diskOn(t, disk)
		for n, id := range []string{"one", "two", "three"} {
			completed(t, st, id, fmt.Sprintf("2026-11-0%d", n+1), id == "three")
		}
		f := func(what string, change func(o Publishing) error) {
			t.Helper()
			held, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				if err := commit.Change(t.Context(), diskOn(t, disk), nil, func(*commit.Head) error {
					close(held)
					time.Sleep(time.Hour)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}()
			<-held
			var log bytes.Buffer
			o := publishing
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			if err := change(o); err != nil || !strings.Contains(log.String(),
				"waiting for another process that publishes into this dataset") {
				t.Errorf("%s: %v, it says %q", what, err, log.String())
			}
			<-ended
		}
		ctx := t.Context()
		f("publish", func(o Publishing) error { return Publish(ctx, st, "two", o) })
		f("release", func(o Publishing) error { return Release(ctx, st, "three", o) })
		f("withdraw", func(o Publishing) error { return Withdraw(ctx, st, "two", "", o) })
		f("rebuild", func(o Publishing) error {
			return history.Rebuild(ctx, st, HistoryOptions(o.Registry, o.ToolVersion, o.Log))
		})
		f("prune", func(o Publishing) error {
			_, err := Prune(ctx, st, Retention{Nights: "2026-11-02"}, o)
			return err
		})
		f("restart", func(o Publishing) error {
			w, err := sink.Open(ctx, st, sink.Options{ScanID: "three", Date: "2026-11-03", Restart: true, Log: o.Log})
			return errors.Join(err, w.Abort())
		})
		f("complete", func(o Publishing) error {
			w, err := sink.Open(ctx, st, sink.Options{ScanID: "four", Date: "2026-11-04", Log: o.Log})
			if err == nil {
				err = w.Add(site(t, 0))
			}
			return errors.Join(err, w.Complete(ctx), w.Close(ctx))
		})
		o := (&Job{Options: Options{Log: publishing.Log}}).sinkOptions()
		if o.Log != publishing.Log {
			t.Error("a scan does not hand its log to what writes it")
		}
	})
}

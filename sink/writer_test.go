package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestPartAge shows that an idle scan commits its part at PartAge, counted from the part's first row.
func TestPartAge(t *testing.T) {
	dir := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		w, err := Open(t.Context(), dir, Options{ScanID: "age", PartAge: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		commits := func(want int) {
			t.Helper()
			synctest.Wait()
			got, err := commit.Commits(t.Context(), dir, "age")
			if err != nil || len(got) != want {
				t.Fatalf("after %v %d commits, want %d (%v)", time.Now(), len(got), want, err)
			}
		}
		for n := range 3 {
			time.Sleep(10 * time.Minute)
			commits(n)
			if err := w.Add(typicalSite(t, uint64(n))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute - time.Second)
			commits(n)
			time.Sleep(2 * time.Second)
			commits(n + 1)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// silentStore is a folder that does not answer when a part is published.
type silentStore struct{ *store.Dir }

func (s silentStore) Create(ctx context.Context, name string) (store.Draft, error) {
	draft, err := s.Dir.Create(ctx, name)
	if _, _, _, ok := commit.SplitPart(path.Base(name)); !ok || err != nil {
		return draft, err
	}
	return silentDraft{draft}, nil
}

type silentDraft struct{ store.Draft }

func (silentDraft) Publish(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestGiveUp shows that nothing waits for a silent store after GiveUp: neither an Add that waits for the previous part,
// of which there is at most one, nor any later call. It shows that the lock is released.
func TestGiveUp(t *testing.T) {
	sites := typicalSites(t, 4)
	writeSites(t, newDir(t), "before", sites[0]) // initializes shared state outside of synctest bubbles
	f := func(what string, partRows int, giveUp func(w *Writer) error, then error) {
		t.Helper()
		dir := newDir(t)
		o := Options{ScanID: "silent", PartRows: partRows, PartAge: 24 * time.Hour}
		synctest.Test(t, func(t *testing.T) {
			w, err := Open(t.Context(), silentStore{dir}, o)
			if err != nil {
				t.Fatal(err)
			}
			added := make(chan error, 3)
			go func() {
				for seq := range uint64(cap(added)) {
					added <- w.Add(sites[seq])
				}
			}()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := len(added); got != min(partRows, cap(added)) {
				t.Errorf("%s: %d sites were added", what, got)
			}
			if err := giveUp(w); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			synctest.Wait()
			if got := len(added); got != cap(added) {
				t.Fatalf("%s: Add still waits, after %d sites", what, got)
			}
			for seq := range cap(added) {
				if err := <-added; (err == nil) != (seq < partRows) || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s: Add of site %d: %v", what, seq, err)
				}
			}
			if err := w.Add(sites[3]); !errors.Is(err, then) {
				t.Errorf("%s: a later Add: %v", what, err)
			}
			if err := w.Close(t.Context()); err != nil && !errors.Is(err, then) {
				t.Errorf("%s: Close: %v", what, err)
			}
		})
		if w := mustOpen(t, dir, o); w.DoneCount() != 0 {
			t.Errorf("%s: %d sites are kept", what, w.DoneCount())
		}
		noOrphans(t, dir)
	}
	given := func(w *Writer) error {
		w.GiveUp()
		return nil
	}
	f("given up", 1, given, context.Canceled)
	f("given up, with a part open", 4, given, context.Canceled)
	f("aborted", 1, (*Writer).Abort, commit.ErrClosed)
}

// TestScans lists the scans of a dataset in the order of their starts.
func TestScans(t *testing.T) {
	dir := newDir(t)
	bubble.Test(t, func(t *testing.T) {
		for _, id := range []string{"b", "a"} {
			writeSites(t, dir, id, typicalSite(t, 1))
			time.Sleep(time.Second)
		}
	})
	all, err := commit.Scans(t.Context(), dir)
	if err != nil || len(all) != 2 || all[0].ScanID != "b" || all[1].ScanID != "a" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := commit.ReadScan(t.Context(), dir, "c"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("a scan that is not there: %v", err)
	}
}

// TestHugeSites shows that sites of many megabytes end a row group early and do not fill memory, even if they are fewer
// than a batch.
func TestHugeSites(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: "huge", Tables: []string{schema.Sites, schema.Bodies}})
	site := typicalSite(t, 1)
	site.Fetch.Body = bytes.Repeat([]byte("Disallow: /x\n"), 1<<20)
	for i := range uint64(5) {
		site.Seq, site.Report.BodyHash = i, i+1
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readAll[schema.BodyRow](t, dir, "huge", schema.Bodies); len(got) != 5 ||
		!bytes.Equal(got[4].Body, site.Fetch.Body) {
		t.Errorf("%d bodies", len(got))
	}
	commits, err := commit.Commits(t.Context(), dir, "huge")
	if err != nil || len(commits) != 1 {
		t.Fatalf("%d commits, %v", len(commits), err)
	}
	// Four of them exceed groupBytes.
	if bodies, ok := commits[0].File(schema.Bodies); !ok || bodies.Groups != 2 {
		t.Errorf("%d row groups of bodies", bodies.Groups)
	}
	if w.open != nil {
		t.Error("the part is still open")
	}
}

func TestRejects(t *testing.T) {
	dir := newDir(t)
	r, err := commit.OpenRejects(t.Context(), dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, reject := range []commit.Reject{
		{Input: "top.csv", Line: 7, Text: "http://user@host/", Reason: "user info is not allowed"},
		{Input: "top.csv", Line: 8, Text: "a\xff\x00\x1b]0;x\a\"\\\u009b" + strings.Repeat("€", 1000),
			Reason: "not a host name"},
	} {
		if err := r.Add(reject); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.ReadAll(t.Context(), dir, "_rejects/x.jsonl", 1<<20); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("the file shows before Close: %v", err)
	}
	for range 2 {
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.File().Rows; n != 2 {
		t.Errorf("%d lines", n)
	}
	if err := errors.Join(r.Discard(), r.Add(commit.Reject{})); !errors.Is(err, commit.ErrClosed) {
		t.Errorf("a line after Close: %v", err)
	}
	data, err := store.ReadAll(t.Context(), dir, "_rejects/x.jsonl", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	var first, second commit.Reject
	if err := errors.Join(decoder.Decode(&first), decoder.Decode(&second)); err != nil {
		t.Fatal(err)
	}
	if want := (commit.Reject{Input: "top.csv", Line: 7, Text: "http://user@host/",
		Reason: "user info is not allowed"}); first != want {
		t.Errorf("%+v", first)
	}
	if !strings.HasPrefix(second.Text, "a\ufffd\x00\x1b]0;x\a\"\\\u009b€€") || len(second.Text) > schema.MaxReject ||
		len(second.Text) < schema.MaxReject-3 {
		t.Errorf("%q", second.Text)
	}
	if bytes.ContainsAny(data, "\x1b\x00\a\u009b") {
		t.Errorf("unescaped: %q", data)
	}
}

// TestFlushTooLate shows that a Flush whose context has ended commits nothing, however fast the disk is. With one
// processor, goroutines that Flush starts run only once it waits.
func TestFlushTooLate(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		dir, err := store.NewDirOn(storetest.NewDisk(), "/data/out")
		if err != nil {
			t.Fatal(err)
		}
		w := mustOpen(t, dir, crashOptions)
		if err := w.Add(typicalSite(t, 0)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(over); !errors.Is(err, context.Canceled) {
			t.Errorf("Flush: %v", err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID); err != nil || len(commits) > 0 {
			t.Fatalf("%d commits, %v", len(commits), err)
		}
	}
}

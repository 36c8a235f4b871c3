package sink

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/store"
)

// recorder is a Sidecar that records the Writer's calls.
type recorder struct {
	t    *testing.T
	dir  *store.Dir
	of   SidecarScan
	said []string
	fail error // error of publishing
	kill error // error of Begin
}

func (b *recorder) note(format string, args ...any) {
	b.said = append(b.said, fmt.Sprintf(format, args...))
}

func (b *recorder) Begin(_ context.Context, of SidecarScan) error {
	b.of = of
	if b.kill != nil {
		return b.kill
	}
	b.note("begin %s %s from %d", of.ID, of.Shard, of.Next)
	return nil
}

func (b *recorder) Cut(part int) func(context.Context) error {
	b.note("cut %d", part)
	return func(ctx context.Context) error {
		commits, err := commit.Commits(ctx, b.dir, b.of.ID)
		if err != nil {
			b.t.Error(err)
		}
		b.said = append(b.said, fmt.Sprintf("publish %d after %d commits", part, len(commits)))
		return b.fail
	}
}

// TestSidecar compares the published data with the commits: it is published before them, and a part whose data cannot
// be published is not committed.
func TestSidecar(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := newDir(t)
		run := func(b *recorder, restart bool, from, to uint64) error {
			t.Helper()
			b.t, b.dir = t, dir
			w, err := Open(t.Context(), dir, Options{ScanID: "s", PartRows: 2, Sidecar: b, Restart: restart})
			if err != nil {
				t.Fatal(err)
			}
			for seq := from; seq < to; seq++ {
				if err := w.Add(typicalSite(t, seq)); err != nil {
					break
				}
				if err := w.Flush(t.Context()); err != nil {
					break
				}
			}
			return w.Close(t.Context())
		}
		f := func(b *recorder, restart bool, from, to uint64, wantErr error, want ...string) {
			t.Helper()
			if err := run(b, restart, from, to); !errors.Is(err, wantErr) {
				t.Errorf("%v, want %v", err, wantErr)
			}
			if got := fmt.Sprint(b.said); got != fmt.Sprint(want) {
				t.Errorf("it was asked %v, want %v", b.said, want)
			}
		}
		full := errors.New("full")
		first := &recorder{}
		f(first, false, 0, 2, nil, "begin s 0 from 0", "cut 0", "publish 0 after 0 commits", "cut 1",
			"publish 1 after 1 commits")
		f(&recorder{fail: full}, false, 2, 3, full, "begin s 0 from 2", "cut 2", "publish 2 after 2 commits")
		again := &recorder{}
		f(again, false, 2, 3, nil, "begin s 0 from 2", "cut 2", "publish 2 after 2 commits")
		for part, want := range []bool{true, true, false, false} {
			if again.of.Counts(part) != want {
				t.Errorf("part %d counts: %v", part, !want)
			}
		}
		if !again.of.StartedAt.Equal(first.of.StartedAt) || first.of.StartedAt.IsZero() || again.of.Restarted {
			t.Errorf("resumed as %+v of %+v", again.of, first.of)
		}
		// Parts that a compaction merged still count.
		if _, err := compact.Scan(t.Context(), dir, "s", compact.Options{}); err != nil {
			t.Fatal(err)
		}
		compacted := &recorder{}
		f(compacted, false, 0, 0, nil, "begin s 0 from 3")
		if !compacted.of.Counts(0) || !compacted.of.Counts(2) || compacted.of.Counts(3) {
			t.Error("compaction changed which parts count")
		}
		time.Sleep(time.Millisecond) // the unit of a manifest's times
		anew := &recorder{}
		f(anew, true, 0, 0, nil, "begin s 0 from 3")
		if anew.of.Counts(0) || !anew.of.Restarted || anew.of.StartedAt.Equal(first.of.StartedAt) {
			t.Errorf("begun anew as %+v", anew.of)
		}
	})
}

// TestSidecarRestart shows that a restart stays one until Begin has succeeded, also if another process continues it,
// and that no earlier part counts. Later numbers follow the earlier ones.
func TestSidecarRestart(t *testing.T) {
	for _, lease := range []bool{false, true} {
		t.Run(fmt.Sprintf("lease %v", lease), func(t *testing.T) {
			dir, killed := newDir(t), errors.New("killed")
			open := func(b *recorder, restart bool) (*Writer, error) {
				b.t, b.dir = t, dir
				var st store.Store = dir
				if lease {
					st = &leased{Dir: dir}
				}
				return Open(t.Context(), st, Options{ScanID: "s", PartRows: 1, Sidecar: b, Restart: restart})
			}
			keep := func(b *recorder, sites uint64) {
				t.Helper()
				w, err := open(b, false)
				for seq := uint64(0); err == nil && seq < sites; seq++ {
					if err = w.Add(typicalSite(t, seq)); err == nil {
						err = w.Flush(t.Context())
					}
				}
				if err == nil {
					err = w.Close(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			keep(&recorder{}, 3)
			for _, restart := range []bool{true, false} { // a restart that was killed, also when it was continued
				if _, err := open(&recorder{kill: killed}, restart); !errors.Is(err, killed) {
					t.Fatal(err)
				}
			}
			anew, resumed := &recorder{}, &recorder{}
			keep(anew, 2)
			const next = 3
			if !anew.of.Restarted || anew.of.Next != next {
				t.Errorf("begun anew as %+v", anew.of)
			}
			keep(resumed, 0)
			if resumed.of.Restarted || !resumed.of.StartedAt.Equal(anew.of.StartedAt) {
				t.Errorf("resumed as %+v of %+v", resumed.of, anew.of)
			}
			for part := range 6 {
				if anew.of.Counts(part) {
					t.Errorf("part %d of what was deleted counts", part)
				}
				if want := part >= next && part < next+2; resumed.of.Counts(part) != want {
					t.Errorf("part %d counts: %v", part, !want)
				}
			}
		})
	}
}

package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// This file cuts the connection of a writer, or delays its last request, for longer than its lease, while another
// writer takes over. Both are alive, and the first one's requests arrive again.

// partitioned returns a Store whose connection is cut after the server has received the request that last selects, and
// before its answer. mend restores it.
func partitioned(t *testing.T, g *storetest.Gateway, prefix, last string) (s *Store, cut <-chan struct{}, mend func()) {
	var broken, was atomic.Bool
	done := make(chan struct{})
	p := newProxy(t, g, func(r *http.Request) fault {
		if broken.Load() {
			return reset
		}
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, last) && !was.Swap(true) {
			broken.Store(true)
			return drop
		}
		return none
	})
	p.after = func(*http.Request) {
		select {
		case <-done:
		default:
			close(done)
		}
	}
	s = open(t, g, prefix, func(c *Config) {
		c.Endpoint, c.Lease, c.Stall, c.Patience = p.URL, testLease, time.Minute, time.Minute
	})
	return s, done, func() { broken.Store(false) }
}

// TestTwoWriters shows that a record without an answer counts for the next holder and stays. Its writer learns that it
// has lost the lock, whatever it was doing, and removes nothing.
func TestTwoWriters(t *testing.T) {
	everywhere(t, func(t *testing.T, g *storetest.Gateway) {
		f := func(what, last string, prepare, first func(s *Store) error, kept uint64) {
			t.Helper()
			second := openLeased(t, g, what)
			if err := prepare(second); err != nil {
				t.Fatal(err)
			}
			s, cut, mend := partitioned(t, g, what, last)
			ended := make(chan error, 1)
			go func() { ended <- first(s) }()
			<-cut
			w, err := openScan(second)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if w.DoneCount() != kept {
				t.Errorf("%s: the second writer finds %d done, want %d", what, w.DoneCount(), kept)
			}
			mend()
			if err := <-ended; !errors.Is(err, store.ErrLockLost) {
				t.Errorf("%s: the first writer ends with %v", what, err)
			}
			if err := errors.Join(addSites(second, w), scanned(second), complete(second)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		nothing := func(*Store) error { return nil }
		f("manifest", "/manifest.json", nothing, scanned, 0)
		f("first-commit", "/commits/0-0.json", nothing, scanned, 4)
		f("second-commit", "/commits/0-1.json", nothing, scanned, 8)
		f("last-manifest", "/manifest.json", scanned, scanned, 10)
		f("compaction", "/commits/compacted-0.json", scanned, compacted, 10)
	})
}

func compacted(s *Store) error {
	_, err := compact.Scan(context.Background(), s, "s", compact.Options{})
	return err
}

// TestLateCommit shows that a commit which arrives after its writer has died and another has taken over is refused, and
// that the scan continues and is completed.
func TestLateCommit(t *testing.T) {
	everywhere(t, func(t *testing.T, g *storetest.Gateway) {
		f := func(what, name string, prepare, first func(s *Store) error, restart bool) {
			t.Helper()
			second := openLeased(t, g, what)
			if err := prepare(second); err != nil {
				t.Fatal(err)
			}
			var dead atomic.Bool
			p := newProxy(t, g, func(*http.Request) fault {
				if dead.Load() {
					return reset
				}
				return none
			})
			opened := make(chan *sink.Writer, 1)
			var once atomic.Bool
			p.before = func(r *http.Request) {
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, name) || once.Swap(true) {
					return
				}
				dead.Store(true)
				w, err := openScan(second, func(o *sink.Options) { o.Restart = restart })
				if err != nil {
					t.Error(err)
				}
				opened <- w
			}
			s := open(t, g, what, func(c *Config) {
				c.Endpoint, c.Lease, c.Stall, c.Patience = p.URL, testLease, time.Minute, time.Second
			})
			ended := make(chan error, 1)
			go func() { ended <- first(s) }()
			w := <-opened
			if err := <-ended; err == nil {
				t.Errorf("%s: the first writer ends with %v", what, err)
			}
			if w == nil {
				return
			}
			if err := errors.Join(addSites(second, w), scanned(second), compacted(second), scanned(second),
				complete(second)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		nothing := func(*Store) error { return nil }
		f("dead", "/commits/0-1.json", nothing, scanned, false)
		f("restarted", "/commits/0-1.json", nothing, scanned, true)
		f("compaction", "/commits/compacted-0.json", scanned, compacted, false)
	})
}

// TestLatePutDelete shows that a late Put is refused if another process has put something since. Its caller gets
// ErrLockLost, like that of any late request, even if the server has applied it.
func TestLatePutDelete(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		const firsts, seconds = "the first's", "the second's"
		f := func(what, method, there, puts string, call func(s *Store) error, want string) {
			t.Helper()
			other := openLeased(t, g, what)
			if there != "" {
				if err := other.Put(t.Context(), "manifest", []byte(there)); err != nil {
					t.Fatal(err)
				}
			}
			p := newProxy(t, g, once(0, none))
			taken := 0
			p.before = func(r *http.Request) {
				if r.Method != method || !strings.HasSuffix(r.URL.Path, "/manifest") || r.URL.Query().Has("uploads") ||
					r.URL.Query().Has("partNumber") {
					return
				}
				taken++
				lock, err := other.Lock(t.Context(), "x/lock", nil)
				if err != nil {
					t.Error(err)
				} else if lease, ok := lock.(store.Lease); !ok || !lease.Late() {
					t.Errorf("%s: the next holder is not told of a possible late request", what)
				}
				if puts == "" {
					return
				}
				if err := other.Put(t.Context(), "manifest", []byte(puts)); err != nil {
					t.Error(err)
				}
			}
			s := open(t, g, what, func(c *Config) { c.Endpoint, c.Lease, c.Stall = p.URL, testLease, time.Minute })
			hold(t, s, "x/lock")
			if err := call(s); !errors.Is(err, store.ErrLockLost) || taken != 1 {
				t.Errorf("%s: %v, after the lock was taken %d times", what, err, taken)
			}
			got, err := store.ReadAll(t.Context(), other, "manifest", 100)
			if errors.Is(err, store.ErrNotExist) {
				err = nil
			}
			if err != nil || string(got) != want {
				t.Errorf("%s: there is %q, want %q; %v", what, got, want, err)
			}
		}
		put := func(s *Store) error { return s.Put(t.Context(), "manifest", []byte(firsts)) }
		f("put-none", http.MethodPut, "", seconds, put, seconds)
		f("put", http.MethodPut, "before", seconds, put, seconds)
		f("put-heard", http.MethodPut, "before", "", put, firsts)
		f("delete", http.MethodDelete, "before", seconds, func(s *Store) error { return s.Delete(t.Context(), "manifest") },
			"")
		f("publish-heard", http.MethodPost, "before", "", func(s *Store) error {
			draft, err := s.Create(t.Context(), "manifest")
			if err == nil {
				_, err = draft.Write([]byte(firsts))
			}
			if err == nil {
				err = draft.Seal()
			}
			if err == nil {
				err = draft.Publish(t.Context())
			}
			return errors.Join(err, draft.Discard())
		}, firsts)
	})
}

// TestLate shows after which holders Late says that a request may still arrive.
func TestLate(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		var next fault
		p := newProxy(t, g, func(r *http.Request) fault {
			f := next
			if strings.HasSuffix(r.URL.Path, "/a") {
				next = none
				return f
			}
			return none
		})
		s := open(t, g, "told", func(c *Config) { c.Endpoint, c.Lease, c.Stall = p.URL, testLease, time.Minute })
		f := func(want bool, end func(l store.Lease) error) {
			t.Helper()
			lock, err := s.Lock(t.Context(), "x/lock", nil)
			if err != nil {
				t.Fatal(err)
			}
			l := lock.(store.Lease)
			if l.Late() != want {
				t.Errorf("late %v, want %v", l.Late(), want)
			}
			if err := end(l); err != nil {
				t.Fatal(err)
			}
		}
		f(true, store.Lease.Unlock) // earlier holders are unknown, and Fenced was not called
		f(true, func(l store.Lease) error {
			l.Fenced()
			return l.Unlock()
		})
		f(false, func(l store.Lease) error {
			err := s.Put(t.Context(), "a", nil)
			return errors.Join(err, l.Unlock())
		})
		f(false, func(l store.Lease) error {
			next = drop
			err := s.Delete(t.Context(), "a") // repeated, but the first attempt may still take effect
			return errors.Join(err, l.Unlock())
		})
		f(true, func(l store.Lease) error {
			l.(*lease).cancel() // the process dies
			return nil
		})
	})
}

// TestLeakedUpload shows that an upload whose id never arrived is aborted by the scan or compaction that began it.
func TestLeakedUpload(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		n := 0
		p := newProxy(t, g, func(r *http.Request) fault {
			if r.Method == http.MethodPost && strings.HasPrefix(r.URL.RawQuery, "uploads") {
				if n++; n%2 == 0 {
					return drop
				}
			}
			return none
		})
		s := open(t, g, "leak", func(c *Config) { c.Endpoint = p.URL })
		if err := errors.Join(scanned(s), complete(s)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(compacted(s), complete(s)); err != nil {
			t.Error(err)
		}
	})
}

// TestVerifyTellsUploads shows that verify reports a leftover upload once, and not as damage, that it works without
// permission to list uploads, and that the same scan aborts the upload.
func TestVerifyTellsUploads(t *testing.T) {
	g := storetest.StartGateway(t)
	answer := none
	p := newProxy(t, g, func(r *http.Request) fault {
		if r.URL.Query().Has("uploads") && r.Method == http.MethodGet {
			return answer
		}
		return none
	})
	s := open(t, g, "uploads", func(c *Config) { c.Endpoint = p.URL })
	if err := scanned(s); err != nil {
		t.Fatal(err)
	}
	const name = "sites/scan_date=2026-11-21/part-s-0-7.parquet"
	begun := time.Now()
	draft, err := s.Create(t.Context(), name)
	if err == nil {
		err = draft.Seal()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := func(what, scanID string, want int) {
		t.Helper()
		var told []string
		found, err := verify.Dataset(t.Context(), s, verify.Options{ScanID: scanID, Report: func(f verify.Finding) {
			told = append(told, f.String())
			if day := begun.UTC().Format(time.DateOnly); f.Kind != verify.Leftover || f.File != name ||
				!strings.Contains(f.What, "an upload begun at "+day) {
				t.Errorf("%s: %s", what, f)
			}
		}})
		if err != nil || found.Damaged != 0 || len(told) != want || found.Leftovers != want {
			t.Errorf("%s: %q, %+v, %v", what, told, found, err)
		}
	}
	f("all", "", 1)
	f("its scan", "s", 1)
	answer = denied
	f("no right", "", 0)
	answer = none
	if err := scanned(s); err != nil {
		t.Fatal(err)
	}
	f("scanned again", "", 0)
}

// answering returns a Store whose server gives this answer.
func answering(t *testing.T, g *storetest.Gateway, answer http.HandlerFunc) *Store {
	return open(t, g, "", func(c *Config) { c.Endpoint, c.Patience = g.Serve(answer), time.Second })
}

// TestContended shows that retries pause and end if a server refuses a write because of an object that it does not
// have.
func TestContended(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		var asked atomic.Int64
		s := answering(t, g, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.Method == http.MethodPut {
				w.WriteHeader(http.StatusPreconditionFailed)
				fmt.Fprint(w, `<Error><Code>PreconditionFailed</Code></Error>`)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
		})
		if _, err := s.Lock(t.Context(), "x/lock", nil); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		// The server is asked three times before each pause. Pauses of 100, 200, 400 and 800 ms, of which up to half may be
		// missing, allow four or five rounds in a second.
		if n := asked.Load(); n != 3*4 && n != 3*5 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestListStrays shows that List omits objects outside of the prefix that a server returns, since a caller might delete
// them.
func TestListStrays(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		s := answering(t, g, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
			for _, key := range []string{"a/x", "ab", "precious"} {
				fmt.Fprintf(w, `<Contents><Key>%s</Key><Size>1</Size><LastModified>2026-11-21T00:00:00Z</LastModified></Contents>`,
					key)
			}
			fmt.Fprint(w, `</ListBucketResult>`)
		})
		var names []string
		for entry, err := range s.List(t.Context(), "a/") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, entry.Name)
		}
		if strings.Join(names, " ") != "a/x" {
			t.Errorf("listed %q", names)
		}
	})
}

// TestRecordsAtOnce shows that the records of a scan are read several at a time.
func TestRecordsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		direct := open(t, g, "atonce", nil)
		w, err := openScan(direct, func(o *sink.Options) { o.PartRows = 1 })
		if err == nil {
			err = addSites(direct, w)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := newProxy(t, g, once(0, none))
		p.before = func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".json") {
				time.Sleep(time.Second)
			}
		}
		s := open(t, g, "atonce", func(c *Config) { c.Endpoint = p.URL })
		begun := time.Now()
		if commits, err := commit.Commits(t.Context(), s, "s"); err != nil || len(commits) != 10 || commits[9].N != 9 {
			t.Errorf("%d commits, %v", len(commits), err)
		}
		if took := time.Since(begun); took != (10+store.ReadAtOnce-1)/store.ReadAtOnce*time.Second {
			t.Errorf("ten records of which each takes a second take %v: want %d at once", took, store.ReadAtOnce)
		}
	})
}

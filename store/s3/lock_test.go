package s3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

const testLease = time.Second

func openLeased(tb testing.TB, g *storetest.Gateway, prefix string) *Store {
	return open(tb, g, prefix, func(c *Config) { c.Lease = testLease })
}

// hold takes a lock and never renews it, like a killed or stopped process.
func hold(t *testing.T, s *Store, name string) *lease {
	t.Helper()
	lock, err := s.Lock(t.Context(), name, []byte("the first"))
	if err != nil {
		t.Fatal(err)
	}
	l := lock.(*lease)
	l.cancel()
	<-l.ended
	return l
}

// TestTakeOver shows when the lock of a dead process is taken over, and that it is by exactly one process.
func TestTakeOver(t *testing.T) {
	f := func(lease, begins, want time.Duration) {
		t.Helper()
		virtual(t, func(t *testing.T, g *storetest.Gateway) {
			leased := func() *Store { return open(t, g, "taken", func(c *Config) { c.Lease = lease }) }
			begun := time.Now()
			hold(t, leased(), "x/lock")
			time.Sleep(begins)
			var took []time.Duration
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range 4 {
				s := leased()
				all.Go(func() {
					lock, err := s.Lock(t.Context(), "x/lock", fmt.Append(nil, "follower ", i))
					if err == nil {
						mu.Lock()
						took = append(took, time.Since(begun))
						mu.Unlock()
						time.Sleep(lease) // the others meet a holder that is alive
						err = lock.Unlock()
					} else if held, ok := errors.AsType[*store.HeldError](err); ok && strings.HasPrefix(string(held.Holder),
						"follower ") {
						err = nil
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if len(took) != 1 || took[0] != want {
				t.Errorf("a lease of %v, watched from %v on: taken over after %v, want %v", lease, begins, took, want)
			}
		})
	}
	// Watched for a lease and two beats and tornTime, every 50 ms.
	f(time.Second, 0, 2450*time.Millisecond)
	// More than 3 s old by the server's clock, in whole seconds, and watched for two beats.
	f(time.Second, 2*time.Second, 4*time.Second)
	f(time.Second, 9*time.Second, 9450*time.Millisecond)
	f(30*time.Second, 0, 33*time.Second)
	f(30*time.Second, 25*time.Second, 38*time.Second)
	f(30*time.Second, time.Hour, time.Hour+13*time.Second)
}

// TestHeld shows when a living holder renews its lease, and when others are refused.
func TestHeld(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		begun := time.Now()
		var renewed []time.Duration
		p := newProxy(t, g, func(r *http.Request) fault {
			if strings.HasSuffix(r.URL.Path, "/x/lock") {
				renewed = append(renewed, time.Since(begun))
			}
			return none
		})
		s := open(t, g, "held", func(c *Config) { c.Endpoint, c.Lease = p.URL, testLease })
		s.conditional.Store(true) // so that the requests are those of the lease
		lock, err := s.Lock(t.Context(), "x/lock", []byte("alive"))
		if err != nil {
			t.Fatal(err)
		}
		f := func(begins, want time.Duration) {
			t.Helper()
			time.Sleep(begins - time.Since(begun))
			_, err := openLeased(t, g, "held").Lock(t.Context(), "x/lock", nil)
			if held, ok := errors.AsType[*store.HeldError](err); !ok || string(held.Holder) != "alive" ||
				time.Since(begun) != want {
				t.Errorf("a second holder from %v on: %v after %v, want it refused after %v", begins, err, time.Since(begun), want)
			}
		}
		// At the first look after the next renewal.
		f(10*time.Millisecond, 210*time.Millisecond)
		f(310*time.Millisecond, 410*time.Millisecond)
		f(590*time.Millisecond, 640*time.Millisecond)
		f(5070*time.Millisecond, 5220*time.Millisecond)
		if err := s.Put(t.Context(), "a", nil); err != nil {
			t.Error(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the proxy
		var want []time.Duration
		for at := time.Duration(0); at <= 5200*time.Millisecond; at += testLease / beatsInLease {
			want = append(want, at)
		}
		if want = append(want, time.Since(begun)); !slices.Equal(renewed, want) {
			t.Errorf("written after %v, want %v", renewed, want)
		}
	})
}

// TestLost shows that a Store changes nothing after it has lost a lock, and that its Unlock does not affect the new
// holder.
func TestLost(t *testing.T) {
	everywhere(t, func(t *testing.T, g *storetest.Gateway) {
		ctx := t.Context()
		s, other := openLeased(t, g, "lost"), openLeased(t, g, "lost")
		lock := hold(t, s, "x/lock")
		sealed, err := s.Create(ctx, "draft")
		if err != nil {
			t.Fatal(err)
		}
		if err := sealed.Seal(); err != nil {
			t.Fatal(err)
		}
		taken, err := other.Lock(ctx, "x/lock", []byte("the second"))
		if err != nil {
			t.Fatal(err)
		}
		f := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, store.ErrLockLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		f("Put", s.Put(ctx, "a", nil))
		f("CreateIfAbsent", s.CreateIfAbsent(ctx, "a", nil))
		f("Delete", s.Delete(ctx, "a"))
		f("Sweep", s.Sweep(ctx, "", func(string) bool { return true }))
		_, err = s.Create(ctx, "a")
		f("Create", err)
		f("Publish", sealed.Publish(ctx))
		f("Unlock", lock.Unlock())
		if err := sealed.Discard(); err != nil {
			t.Error(err)
		}
		if all := everything(t, s); len(all) > 0 {
			t.Errorf("there are %q", all)
		}
		if err := s.Put(ctx, "b", nil); err != nil {
			t.Errorf("without a lock to lose: %v", err)
		}
		var held *store.HeldError
		if _, err := s.Lock(ctx, "x/lock", nil); !errors.As(err, &held) || string(held.Holder) != "the second" {
			t.Errorf("the lock of the second: %v", err)
		}
		if err := taken.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestLateRecord shows that a record which arrives after its writer has lost the lock stays, since the new holder may
// have read it, and that the writer gets ErrLockLost. If the new holder has created a record of that name, the late one
// is refused.
func TestLateRecord(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		other := openLeased(t, g, "late")
		var taken store.Unlocker
		p := newProxy(t, g, once(0, none))
		p.before = func(r *http.Request) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/commit") {
				// The request was sent, and arrives when another process holds the lock.
				var err error
				if taken, err = other.Lock(t.Context(), "x/lock", nil); err != nil {
					t.Error(err)
				}
			}
		}
		s := open(t, g, "late", func(c *Config) { c.Endpoint, c.Lease, c.Stall = p.URL, testLease, time.Minute })
		hold(t, s, "x/lock")
		if err := s.CreateIfAbsent(t.Context(), "commit", []byte("x")); !errors.Is(err, store.ErrLockLost) {
			t.Errorf("the late record: %v", err)
		}
		if all := everything(t, other); len(all) != 1 {
			t.Errorf("there are %q", all)
		}
		if taken == nil {
			t.Fatal("no process took the lock")
		}
		if err := taken.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestLateRetry shows that a request is not repeated once the lock has been lost, and that a record stays if the server
// received its first attempt.
func TestLateRetry(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		f := func(what string, first fault, call func(s *Store) error, after string) {
			t.Helper()
			other := openLeased(t, g, what)
			if err := other.Put(t.Context(), "there", []byte("x")); err != nil {
				t.Fatal(err)
			}
			tries := 0
			var taken store.Unlocker
			p := newProxy(t, g, func(r *http.Request) fault {
				if !strings.HasSuffix(r.URL.Path, "here") || r.Method != http.MethodPut && r.Method != http.MethodDelete {
					return none
				}
				if tries++; tries > 1 {
					return none
				}
				return first
			})
			p.after = func(r *http.Request) {
				if taken == nil && tries == 1 {
					var err error
					if taken, err = other.Lock(t.Context(), "x/lock", nil); err != nil {
						t.Error(err)
					}
				}
			}
			s := open(t, g, what, func(c *Config) { c.Endpoint, c.Lease, c.Stall = p.URL, testLease, time.Minute })
			hold(t, s, "x/lock")
			if err := call(s); !errors.Is(err, store.ErrLockLost) {
				t.Errorf("%s: %v", what, err)
			}
			if all := everything(t, other); !strings.HasPrefix(strings.Join(all, " "), after) || len(all) != 1+
				strings.Count(after, "here 0") {
				t.Errorf("%s: there are %q", what, all)
			}
			if err := taken.Unlock(); err != nil {
				t.Error(err)
			}
		}
		f("put", reset, func(s *Store) error { return s.Put(t.Context(), "there", []byte("another")) }, "{there 1 ")
		f("delete", reset, func(s *Store) error { return s.Delete(t.Context(), "there") }, "{there 1 ")
		f("create", reset, func(s *Store) error { return s.CreateIfAbsent(t.Context(), "here", nil) }, "{there 1 ")
		f("create-heard", drop, func(s *Store) error { return s.CreateIfAbsent(t.Context(), "here", nil) }, "{here 0 ")
	})
}

// TestSwept shows that a draft that the next holder of the lock has swept is never published.
func TestSwept(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		s, other := openLeased(t, g, "swept"), openLeased(t, g, "swept")
		draft, err := s.Create(t.Context(), "part")
		if err == nil {
			err = draft.Seal()
		}
		if err == nil {
			err = other.Sweep(t.Context(), "part", func(string) bool { return true })
		}
		if err == nil {
			err = other.Put(t.Context(), "part", []byte("the other's"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := draft.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "upload was aborted") {
			t.Errorf("Publish: %v", err)
		}
		if err := draft.Discard(); err != nil {
			t.Error(err)
		}
		if got, err := store.ReadAll(t.Context(), s, "part", 100); err != nil || string(got) != "the other's" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestLostCompletion shows that a completion whose answer was lost is recognized on a server that has forgotten the
// upload by the retry. A completion that never happened is not, whatever object has the name.
func TestLostCompletion(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		f := func(name string, first fault, published bool) {
			t.Helper()
			tries := 0
			p := newProxy(t, g, func(r *http.Request) fault {
				if r.Method != http.MethodPost || !strings.Contains(r.URL.RawQuery, "uploadId=") {
					return none
				}
				if tries++; tries == 1 {
					return first
				}
				return gone
			})
			s := open(t, g, "unanswered", func(c *Config) { c.Endpoint = p.URL })
			if err := s.Put(t.Context(), name, []byte("what was there")); err != nil {
				t.Fatal(err)
			}
			draft, err := s.Create(t.Context(), name)
			if err == nil {
				err = draft.Seal()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := draft.Publish(t.Context()); (err == nil) != published {
				t.Errorf("%s: %v", name, err)
			}
			if err := draft.Discard(); err != nil {
				t.Error(err)
			}
		}
		f("acted", drop, true)
		f("not acted", reset, false)
	})
}

// TestServerIgnoresConditions shows that a server which ignores conditions gives no lock.
func TestServerIgnoresConditions(t *testing.T) {
	deaf := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
	}))
	defer deaf.Close()
	s, err := New(Config{Bucket: "dataset", Endpoint: deaf.URL, Region: "us-east-1", AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(t.Context(), "lock", nil); err == nil || !strings.Contains(err.Error(),
		"the server ignores conditions") {
		t.Error(err)
	}
}

// TestTornLock shows that a HeldError names the current holder, even if the server returns the new ETag with the old
// bytes for a while.
func TestTornLock(t *testing.T) {
	first := lockText{mark: "A", number: 1, lease: testLease, holder: []byte("the first")}.bytes()
	second := lockText{mark: "B", number: 1, lease: testLease, holder: []byte("the second")}.bytes()
	f := func(tornReads int, encrypted bool, want string, after time.Duration) {
		t.Helper()
		virtual(t, func(t *testing.T, g *storetest.Gateway) {
			var mu sync.Mutex
			reads := 0
			endpoint := g.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					w.WriteHeader(http.StatusPreconditionFailed)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				reads++ // the first is of the refused write, the second of watch
				tag, data := etagOf(second), second
				switch {
				case reads <= 2:
					tag, data = etagOf(first), first
				case reads <= 2+tornReads:
					data = first
				}
				if encrypted {
					tag = strings.Repeat("0", len(tag)-1) + tag[:1]
				}
				w.Header().Set("ETag", `"`+tag+`"`)
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
				_, _ = w.Write(data)
			}))
			s := open(t, g, "", func(c *Config) { c.Endpoint, c.Lease = endpoint, testLease })
			begun := time.Now()
			var held *store.HeldError
			if _, err := s.Lock(t.Context(), "lock", nil); !errors.As(err, &held) || string(held.Holder) != want ||
				time.Since(begun) != after {
				t.Errorf("%d torn reads: %v after %v, want it held by %s after %v", tornReads, err, time.Since(begun), want, after)
			}
		})
	}
	f(0, false, "the second", 50*time.Millisecond)
	f(3, false, "the second", 200*time.Millisecond)
	f(3, true, "the second", 50*time.Millisecond+tornTime)
	f(1000, false, "the first", 50*time.Millisecond+tornTime) // tornTime has passed
}

// TestLockText shows how the content of a lock's object is read, for any writer.
func TestLockText(t *testing.T) {
	f := func(text, mark string, number int, lease time.Duration, holder string) {
		t.Helper()
		l := readLockText([]byte(text))
		if l.mark != mark || l.number != number || l.lease != lease || string(l.holder) != holder {
			t.Errorf("%q: %+v", text, l)
		}
	}
	ours := lockText{mark: "MARK", number: 7, lease: 30 * time.Second, holder: []byte("me\nand more")}
	f(string(ours.bytes()), "MARK", 7, 30*time.Second, "me\nand more")
	ours.lease = 0
	f(string(ours.bytes()), "MARK", 7, 0, "me\nand more")
	f("bulkscan lock 1 M 1 99999999999999\nx", "M", 1, maxLease, "x")
	f("bulkscan lock 1 M 1 -5\nx", "M", 1, 0, "x")
	f("bulkscan lock 1 M\nx", "", 0, DefaultLease, "bulkscan lock 1 M\nx")
	f(`{"pid":1}`, "", 0, DefaultLease, `{"pid":1}`)
	f("", "", 0, DefaultLease, "")
	f(strings.Repeat("x", 10000), "", 0, DefaultLease, strings.Repeat("x", store.MaxHolder))
}

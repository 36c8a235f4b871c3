package s3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
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

// TestTakeOver shows that the lock of a dead process is taken over by exactly one process, not before its lease has
// ended and not much later.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	g := storetest.StartGateway(t)
	hold(t, openLeased(t, g, "taken"), "x/lock")
	begun := time.Now()
	var mu sync.Mutex
	var locks []store.Unlocker
	var all sync.WaitGroup
	for i := range 4 {
		s := openLeased(t, g, "taken")
		all.Go(func() {
			lock, err := s.Lock(t.Context(), "x/lock", fmt.Append(nil, "follower ", i))
			took := time.Since(begun)
			var held *store.HeldError
			switch {
			case err == nil:
				mu.Lock()
				locks = append(locks, lock)
				mu.Unlock()
				if took < testLease || took > 30*testLease {
					t.Errorf("taken over after %v", took)
				}
			case !errors.As(err, &held) || !strings.HasPrefix(string(held.Holder), "follower "):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(locks) != 1 {
		t.Fatalf("%d have the lock", len(locks))
	}
	if err := locks[0].Unlock(); err != nil {
		t.Error(err)
	}
}

// TestHeld shows that a living holder keeps a lock for much longer than its lease, and that others are refused soon.
func TestHeld(t *testing.T) {
	t.Parallel()
	g := storetest.StartGateway(t)
	s := openLeased(t, g, "held")
	lock, err := s.Lock(t.Context(), "x/lock", []byte("alive"))
	if err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < 4*testLease; {
		_, err := openLeased(t, g, "held").Lock(t.Context(), "x/lock", nil)
		var held *store.HeldError
		if !errors.As(err, &held) || string(held.Holder) != "alive" {
			t.Fatalf("a second holder: %v", err)
		}
	}
	if err := s.Put(t.Context(), "a", nil); err != nil {
		t.Error(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestLost shows that a Store changes nothing after it has lost a lock, and that its Unlock does not affect the new
// holder.
func TestLost(t *testing.T) {
	t.Parallel()
	g := storetest.StartGateway(t)
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
}

// TestLateRecord shows that a record which arrives after its writer has lost the lock stays, since the new holder may
// have read it, and that the writer gets ErrLockLost. If the new holder has created a record of that name, the late one
// is refused.
func TestLateRecord(t *testing.T) {
	waits(t)
	g := storetest.StartGateway(t)
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
}

// TestLateRetry shows that a request is not repeated once the lock has been lost, and that a record stays if the server
// received its first attempt.
func TestLateRetry(t *testing.T) {
	waits(t)
	g := storetest.StartGateway(t)
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
		if all := everything(t, other); !strings.HasPrefix(strings.Join(all, " "), after) || len(all) != 1+strings.Count(after, "here 0") {
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
}

// TestSwept shows that a draft that the next holder of the lock has swept is never published.
func TestSwept(t *testing.T) {
	g := storetest.StartGateway(t)
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
}

// TestLostCompletion shows that a completion whose answer was lost is recognized on a server that has forgotten the
// upload by the retry. A completion that never happened is not, whatever object has the name.
func TestLostCompletion(t *testing.T) {
	waits(t)
	g := storetest.StartGateway(t)
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
	if _, err := s.Lock(t.Context(), "lock", nil); err == nil || !strings.Contains(err.Error(), "the server ignores conditions") {
		t.Error(err)
	}
}

// TestTornLock shows that a HeldError names the current holder, even if the server returns the new ETag with the old
// bytes for a while.
func TestTornLock(t *testing.T) {
	t.Parallel()
	first := lockText{mark: "A", number: 1, lease: testLease, holder: []byte("the first")}.bytes()
	second := lockText{mark: "B", number: 1, lease: testLease, holder: []byte("the second")}.bytes()
	f := func(tornReads int, encrypted bool, want string) {
		t.Helper()
		var mu sync.Mutex
		reads := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		defer server.Close()
		s, err := New(Config{Bucket: "dataset", Endpoint: server.URL, Region: "us-east-1", AccessKey: "a", SecretKey: "b", Lease: testLease})
		if err != nil {
			t.Fatal(err)
		}
		var held *store.HeldError
		if _, err := s.Lock(t.Context(), "lock", nil); !errors.As(err, &held) || string(held.Holder) != want {
			t.Errorf("%d torn reads: %v, want it held by %s", tornReads, err, want)
		}
	}
	f(0, false, "the second")
	f(3, false, "the second")
	f(3, true, "the second")
	f(1000, false, "the first") // tornTime has passed
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

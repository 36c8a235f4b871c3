package s3

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// open returns a Store on a Gateway. change may change its settings.
func open(tb testing.TB, g *storetest.Gateway, prefix string, change func(*Config)) *Store {
	tb.Helper()
	cfg := Config{
		Bucket: storetest.Bucket, Prefix: prefix, Endpoint: g.URL, Region: "us-east-1", AccessKey: g.Access,
		SecretKey: g.Secret,
		Spool:     tb.TempDir(), Lease: 2 * time.Second, Stall: 5 * time.Second, Patience: 20 * time.Second, page: 3,
		dial: g.Dial,
	}
	if g.Dial == nil { // a busy machine may hold up a real server for any time
		cfg.Stall, cfg.Patience, cfg.firstPatience = time.Hour, time.Hour, time.Hour
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for l := range s.leases {
			l.cancel()
			<-l.ended
		}
	})
	return s
}

// virtual runs a test in virtual time, with a server in memory.
func virtual(t *testing.T, test func(t *testing.T, g *storetest.Gateway)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { test(t, memoryGateway(t)) })
}

// long skips a test in short mode because it takes long.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED in short mode: make long runs it")
	}
}

// everywhere runs a test in virtual time, and on versitygw, except in short mode: there it waits for leases to end.
func everywhere(t *testing.T, test func(t *testing.T, g *storetest.Gateway)) {
	t.Run("memory", func(t *testing.T) { virtual(t, test) })
	t.Run("versitygw", func(t *testing.T) {
		long(t)
		t.Parallel()
		test(t, storetest.StartGateway(t))
	})
}

func TestS3(t *testing.T) {
	suite := func(g *storetest.Gateway) func(t *testing.T) func() store.Store {
		return func(t *testing.T) func() store.Store {
			at := cmp.Or(g, memoryGateway(t))
			return func() store.Store {
				return open(t, at, "some/"+strings.ReplaceAll(t.Name()[len("TestS3/"):], ",", ""), nil)
			}
		}
	}
	t.Run("memory", func(t *testing.T) { storetest.Run(t, synctest.Test, suite(nil)) })
	t.Run("versitygw", func(t *testing.T) { storetest.Run(t, nil, suite(storetest.StartGateway(t))) })
}

// write makes an object by a draft.
func write(t *testing.T, s *Store, name string, content []byte) {
	t.Helper()
	draft, err := s.Create(t.Context(), name)
	if err == nil {
		_, err = draft.Write(content)
	}
	if err == nil {
		err = draft.Seal()
	}
	if err == nil {
		err = draft.Publish(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDraftSizes shows that objects of sizes around multiples of a part arrive complete, in the expected number of
// parts.
func TestDraftSizes(t *testing.T) {
	g := storetest.StartGateway(t)
	p := newProxy(t, g, once(0, none))
	s := open(t, g, "sizes", func(c *Config) { c.Endpoint, c.PartSize = p.URL, minPartSize })
	random := rand.New(rand.NewPCG(1, 2))
	f := func(size, parts int) {
		t.Helper()
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		before := len(p.requests())
		draft, err := s.Create(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		for rest := content; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(3<<20))
			if wrote, err := draft.Write(rest[:n]); err != nil || wrote != n {
				t.Fatalf("Write of %d bytes: %d, %v", n, wrote, err)
			}
			rest = rest[n:]
		}
		if err := errors.Join(draft.Seal(), draft.Publish(t.Context()), draft.Discard()); err != nil {
			t.Fatal(err)
		}
		sent := 0
		for _, request := range p.requests()[before:] {
			if strings.Contains(request, "partNumber=") {
				sent++
			}
		}
		if sent != parts {
			t.Errorf("%d bytes: sent in %d parts, want %d", size, sent, parts)
		}
		got, err := store.ReadAll(t.Context(), s, "x", 1<<30)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: came back as %d, %v", size, len(got), err)
		}
	}
	f(0, 1)
	f(1, 1)
	f(minPartSize-1, 1)
	f(minPartSize, 1)
	f(minPartSize+1, 2)
	f(3*minPartSize, 3)
	if files, err := os.ReadDir(s.cfg.Spool); err != nil || len(files) > 0 {
		t.Errorf("left in the spool: %v, %v", files, err)
	}
}

// TestSpoolIsBounded shows that a writer that is faster than the server waits, with one full part and uploadsAtOnce in
// progress.
func TestSpoolIsBounded(t *testing.T) {
	g := storetest.StartGateway(t)
	var accepted, onTheirWay, most atomic.Int64
	var p *proxy
	full := make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	p = newProxy(t, g, func(r *http.Request) fault {
		if strings.Contains(r.URL.RawQuery, "partNumber=") && onTheirWay.Add(1) == uploadsAtOnce {
			fill()
		}
		return none
	})
	p.before = func(r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "partNumber=") {
			<-full // no upload is accepted before all that may be in flight are there
			most.Store(max(most.Load(), onTheirWay.Load()))
			onTheirWay.Add(-1)
		}
	}
	s := open(t, g, "bounded", func(c *Config) { c.Endpoint, c.PartSize = p.URL, minPartSize })
	draft, err := s.Create(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for range 12 * minPartSize / len(chunk) {
		select {
		case <-full:
		default:
			// The last full part waits for a slot, and no further byte is written.
			if n := accepted.Load(); n > (uploadsAtOnce+1)*minPartSize {
				t.Fatalf("%d bytes were taken before any was stored", n)
			}
		}
		n, err := draft.Write(chunk)
		if err != nil {
			t.Fatal(err)
		}
		accepted.Add(int64(n))
	}
	if err := errors.Join(draft.Seal(), draft.Publish(t.Context())); err != nil {
		t.Fatal(err)
	}
	if most.Load() > uploadsAtOnce {
		t.Errorf("%d uploads at once", most.Load())
	}
}

// TestReading shows the number of requests for reading, and that every byte is right.
func TestReading(t *testing.T) {
	g := storetest.StartGateway(t)
	p := newProxy(t, g, once(0, none))
	direct, s := open(t, g, "reading", nil), open(t, g, "reading", func(c *Config) { c.Endpoint = p.URL })
	content := bytes.Repeat(big, 5)[:30<<20+12345]
	write(t, direct, "big", content)
	write(t, direct, "small", content[:5000])
	write(t, direct, "empty", nil)
	f := func(name string, size, requests int, read func(o store.Object)) {
		t.Helper()
		before := len(p.requests())
		o, err := s.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if o.Size() != int64(size) {
			t.Errorf("%s has %d bytes, want %d", name, o.Size(), size)
		}
		read(o)
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if n := len(p.requests()) - before; n != requests {
			t.Errorf("%s: %d requests, want %d", name, n, requests)
		}
	}
	at := func(o store.Object, offset, n int) {
		t.Helper()
		got := make([]byte, n)
		wrote, err := o.ReadAt(got, int64(offset))
		want := content[:o.Size()][min(offset, int(o.Size())):min(offset+n, int(o.Size()))]
		if !bytes.Equal(got[:wrote], want) || (wrote < n) != errors.Is(err, io.EOF) || wrote == n && err != nil {
			t.Errorf("%d bytes at %d: %d bytes, %v", n, offset, wrote, err)
		}
	}
	f("empty", 0, 1, func(o store.Object) { at(o, 0, 10); at(o, 5, 1) })
	f("small", 5000, 1, func(o store.Object) {
		at(o, 0, 5000)
		at(o, 4990, 20)
		at(o, 5000, 1)
		at(o, 6000, 1)
		at(o, 17,
			100)
	})
	f("big", len(content), 1, func(o store.Object) { at(o, len(content)-tailSize, tailSize); at(o, len(content)-8, 8) })
	f("big", len(content), 2, func(o store.Object) {
		for i := range 200 {
			at(o, 5<<20+i*4096, 4096)
		}
	})
	f("big", len(content), 1+3, func(o store.Object) { at(o, 7<<20-10, 20); at(o, 9<<20-10, 20) }) // 1, 2, 4 blocks
	f("big", len(content), 1+6, func(o store.Object) {
		// 1, 2, 4, 8, 8, 7 blocks
		for i := 0; i < len(content); i += 64 << 10 {
			at(o, i, 64<<10)
		}
	})
	f("big", len(content), 1+30, func(o store.Object) { // no read-ahead for backward reads
		for i := 30; i >= 0; i-- {
			at(o, i<<20, 100)
		}
	})
	f("big", len(content), 3, func(o store.Object) { // concurrent readers of a block cause one request
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() { at(o, 20<<20+i*1000, 2<<20-20000) })
		}
		all.Wait()
	})
	o, err := s.Open(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		at(o, i<<20, 1)
	}
	if kept := len(o.(*object).blocks); kept > maxBlocks {
		t.Errorf("%d blocks are kept", kept)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if _, err := o.ReadAt(make([]byte, 1), 100); err == nil {
		t.Error("read after Close")
	}
}

// TestChanged shows that reading a replaced or deleted object fails with ErrChanged and never returns bytes of another
// object.
func TestChanged(t *testing.T) {
	g := storetest.StartGateway(t)
	s := open(t, g, "changed", nil)
	for _, replaced := range []bool{true, false} {
		write(t, s, "x", big)
		o, err := s.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.ReadAt(make([]byte, 10), 0); err != nil {
			t.Fatal(err)
		}
		if replaced {
			write(t, s, "x", append([]byte("another"), big...))
		} else if err := s.Delete(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if n, err := o.ReadAt(make([]byte, 10), 5); n != 10 || err != nil {
			t.Errorf("what was read already: %d, %v", n, err)
		}
		if n, err := o.ReadAt(make([]byte, 10), 3<<20); n != 0 || !errors.Is(err, store.ErrChanged) {
			t.Errorf("replaced %v: read %d bytes, %v", replaced, n, err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEmptyObjects shows that each way to write an empty object announces its length, 0, by HTTP and by HTTPS: public
// stores refuse a body of unknown length. The object is there, and empty.
func TestEmptyObjects(t *testing.T) {
	g := storetest.StartGateway(t)
	p := newProxy(t, g, once(0, none))
	p.before = func(r *http.Request) {
		if changes := r.Method == http.MethodPut || r.Method == http.MethodPost; changes &&
			r.Header.Get("Content-Length") == "" || len(r.TransferEncoding) > 0 {
			t.Errorf("without a length: %s %s %s", r.Method, r.URL, r.TransferEncoding)
		}
	}
	secure := httptest.NewTLSServer(p)
	defer secure.Close()
	authority := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	locked := func(s *Store, call func() error) error {
		lock, err := s.Lock(t.Context(), "lock", nil)
		if err != nil {
			return err
		}
		return errors.Join(call(), lock.Unlock())
	}
	put := func(s *Store) error { return s.Put(t.Context(), "x", nil) }
	for _, endpoint := range []string{p.URL, secure.URL} {
		for what, call := range map[string]func(s *Store) error{
			"put":              put,
			"put of no nil":    func(s *Store) error { return s.Put(t.Context(), "x", []byte{}) },
			"put over another": func(s *Store) error { return errors.Join(s.Put(t.Context(), "x", []byte("full")), put(s)) },
			"put with a lock":  func(s *Store) error { return locked(s, func() error { return put(s) }) },
			"replace with a lock": func(s *Store) error {
				return locked(s, func() error { return errors.Join(s.Put(t.Context(), "x", []byte("full")), put(s)) })
			},
			"create":                func(s *Store) error { return s.CreateIfAbsent(t.Context(), "x", nil) },
			"draft":                 func(s *Store) error { write(t, s, "x", nil); return nil },
			"draft of empty writes": func(s *Store) error { write(t, s, "x", []byte{}); return nil },
			"draft that is replaced": func(s *Store) error {
				write(t, s, "x", []byte("full"))
				write(t, s, "x",
					nil)
				return nil
			},
		} {
			s := open(t, g, fmt.Sprintf("empty/%s/%s", endpoint[:strings.Index(endpoint, ":")], what),
				func(c *Config) { c.Endpoint, c.CAFile = endpoint, authority })
			if err := call(s); err != nil {
				t.Errorf("%s: %s: %v", endpoint, what, err)
				continue
			}
			if data, err := store.ReadAll(t.Context(), s, "x", 10); err != nil || len(data) > 0 {
				t.Errorf("%s: %s: read %q, %v", endpoint, what, data, err)
			}
		}
	}
}

// TestForeign shows that other objects in the bucket are not objects of the Store, and that its prefix is a folder.
func TestForeign(t *testing.T) {
	g := storetest.StartGateway(t)
	s := open(t, g, "mine", nil)
	whole := open(t, g, "", nil)
	for _, name := range []string{"mine/a", "mine2/b", "other"} {
		if err := whole.Put(t.Context(), name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"mine/.hidden", "mine/back\\slash"} {
		if _, err := s.putOnce(t.Context(), key, payloadOf([]byte("x")), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if all := everything(t, s); len(all) != 1 || !strings.Contains(all[0], "{a 6 ") {
		t.Errorf("listed %q", all)
	}
}

// TestOpenEmpty shows that an empty object differs from a missing one on a server that returns no last bytes of it.
func TestOpenEmpty(t *testing.T) {
	const noRange = "<Error><Code>InvalidRange</Code></Error>"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(len(noRange)))
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			_, _ = io.WriteString(w, noRange)
			return
		}
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "0")
		}
	}))
	defer server.Close()
	s, err := New(Config{Bucket: "dataset", Endpoint: server.URL, Region: "us-east-1", AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := store.ReadAll(t.Context(), s, "a", 10); err != nil || len(data) > 0 {
		t.Errorf("%q, %v", data, err)
	}
}

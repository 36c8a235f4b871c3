package s3

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// harmed returns a Store behind a proxy.
func harmed(p *proxy) func(*Config) {
	return func(c *Config) { c.Endpoint, c.PartSize = p.URL, minPartSize }
}

// big is content with two parts for uploads and several blocks for reads.
var big = func() []byte {
	data := make([]byte, minPartSize+minPartSize/2)
	for i := range data {
		data[i] = byte(i>>12) ^ byte(i)
	}
	return data
}()

// operation is a call of a Store on a prepared place, with its expected result.
type operation struct {
	name    string
	prepare func(t *testing.T, s *Store)
	run     func(s *Store) error
	after   map[string][]byte // all objects
}

func operations() []operation {
	ctx := context.Background()
	old := []byte("what was there before")
	put := func(names ...string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			for _, name := range names {
				if err := s.Put(ctx, name, old); err != nil {
					t.Error(err)
				}
			}
		}
	}
	write := func(s *Store, content []byte) error {
		draft, err := s.Create(ctx, "a/draft")
		if err != nil {
			return err
		}
		_, err = draft.Write(content)
		if err == nil {
			err = draft.Seal()
		}
		if err == nil {
			err = draft.Publish(ctx)
		}
		return errors.Join(err, draft.Discard())
	}
	return []operation{
		{name: "put", prepare: put("a/b"), after: map[string][]byte{"a/b": []byte("new")},
			run: func(s *Store) error { return s.Put(ctx, "a/b", []byte("new")) }},
		{name: "create", after: map[string][]byte{"a/b": []byte("new")},
			run: func(s *Store) error { return s.CreateIfAbsent(ctx, "a/b", []byte("new")) }},
		{name: "create what is there", prepare: put("a/b"), after: map[string][]byte{"a/b": old},
			run: func(s *Store) error {
				if err := s.CreateIfAbsent(ctx, "a/b", []byte("new")); !errors.Is(err, store.ErrExist) {
					return fmt.Errorf("it was there: %w", err)
				}
				return nil
			}},
		{name: "draft", prepare: put("a/draft"), after: map[string][]byte{"a/draft": []byte("new")},
			run: func(s *Store) error { return write(s, []byte("new")) }},
		{name: "draft of two parts", after: map[string][]byte{"a/draft": big},
			run: func(s *Store) error { return write(s, big) }},
		{name: "discard", after: map[string][]byte{},
			run: func(s *Store) error {
				draft, err := s.Create(ctx, "a/draft")
				if err == nil {
					_, err = draft.Write(big)
				}
				if err == nil {
					err = draft.Seal()
				}
				if err == nil {
					err = draft.Discard()
				}
				return err
			}},
		{name: "delete", prepare: put("a/b", "a/c"), after: map[string][]byte{"a/c": old},
			run: func(s *Store) error { return s.Delete(ctx, "a/b") }},
		{name: "read", prepare: func(t *testing.T, s *Store) {
			if err := s.Put(ctx, "a/b", big); err != nil {
				t.Error(err)
			}
		}, after: map[string][]byte{"a/b": big},
			run: func(s *Store) error {
				data, err := store.ReadAll(ctx, s, "a/b", 1<<30)
				if err == nil && !bytes.Equal(data, big) {
					err = errors.New("other bytes")
				}
				return err
			}},
		{name: "list", prepare: put("a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"),
			after: map[string][]byte{"a/1": old, "a/2": old, "a/3": old, "a/4": old, "a/5": old, "a/6": old, "a/7": old},
			run: func(s *Store) error {
				var got []string
				for entry, err := range s.List(ctx, "a/") {
					if err != nil {
						return err
					}
					got = append(got, entry.Name)
				}
				if want := []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"}; !slices.Equal(got, want) {
					return fmt.Errorf("listed %q", got)
				}
				return nil
			}},
		{name: "sweep", prepare: func(t *testing.T, s *Store) {
			for i := range 5 {
				draft, err := s.Create(ctx, fmt.Sprintf("a/%d", i))
				if err == nil {
					err = draft.Seal()
				}
				if err != nil {
					t.Error(err)
				}
			}
		}, after: map[string][]byte{},
			run: func(s *Store) error { return s.Sweep(ctx, "a/", func(string) bool { return true }) }},
		{name: "lock", after: map[string][]byte{},
			run: func(s *Store) error {
				lock, err := s.Lock(ctx, "a/lock", []byte("me"))
				if err != nil {
					return err
				}
				return lock.Unlock()
			}},
	}
}

// holds reports differences from the expected objects and contents, and incomplete uploads.
func (o *operation) holds(s *Store) error {
	ctx := context.Background()
	var errs []error
	found := 0
	for entry, err := range s.List(ctx, "") {
		if err != nil {
			return err
		}
		found++
		data, err := store.ReadAll(ctx, s, entry.Name, 1<<30)
		if want, ok := o.after[entry.Name]; err != nil || !ok || !bytes.Equal(data, want) {
			errs = append(errs, fmt.Errorf("%s has %d bytes, want %d; %w", entry.Name, len(data), len(want), err))
		}
	}
	if found != len(o.after) {
		errs = append(errs, fmt.Errorf("%d objects, want %d", found, len(o.after)))
	}
	return errors.Join(errs...)
}

// TestFaults repeats each operation, each time with another of its requests harmed in another way. The operation must
// succeed with the right result. Only corrupted bytes may be reported as an error: if the signature covers them, the
// server takes them for a forgery, which is not repeated.
func TestFaults(t *testing.T) {
	long(t)
	for i, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, g *storetest.Gateway) {
				requests := countRequests(t, g, &o, fmt.Sprintf("f%d/none", i))
				together(len(faults)*requests, 6, func(at int) {
					f, n := faults[at/requests], at%requests+1
					direct := open(t, g, fmt.Sprintf("f%d/%d", i, at), nil)
					if o.prepare != nil {
						o.prepare(t, direct)
					}
					p := newProxy(t, g, once(n, f))
					err := o.run(open(t, g, direct.cfg.Prefix, harmed(p)))
					switch {
					case err == nil:
						err = o.holds(direct)
					case f == flip:
						err = nil
					}
					if err != nil {
						t.Errorf("%s, request %d: %v\n%s", f, n, err, strings.Join(p.requests(), "\n"))
					}
				})
			})
		})
	}
}

// together calls f for each number below n, several at a time.
func together(n, atOnce int, f func(int)) {
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			f(i)
			<-places
		})
	}
	all.Wait()
}

// countRequests returns the number of requests of an undisturbed operation.
func countRequests(t *testing.T, g *storetest.Gateway, o *operation, prefix string) int {
	direct := open(t, g, prefix, nil)
	if o.prepare != nil {
		o.prepare(t, direct)
	}
	p := newProxy(t, g, once(0, none))
	if err := o.run(open(t, g, prefix, harmed(p))); err != nil {
		t.Fatal(err)
	}
	if err := o.holds(direct); err != nil {
		t.Fatal(err)
	}
	return len(p.requests())
}

// TestFaultySuite runs storetest over a connection that fails now and then.
func TestFaultySuite(t *testing.T) {
	storetest.Run(t, synctest.Test, func(t *testing.T) func() store.Store {
		g := memoryGateway(t)
		p := newProxy(t, g, sometimes(1, 12))
		return func() store.Store { return open(t, g, "faulty", harmed(p)) }
	})
}

// TestPauses shows when a failing request is repeated, and when it is given up.
func TestPauses(t *testing.T) {
	f := func(how fault, takes time.Duration) {
		t.Helper()
		virtual(t, func(t *testing.T, g *storetest.Gateway) {
			var asked []time.Time
			p := newProxy(t, g, func(*http.Request) fault {
				asked = append(asked, time.Now())
				return how
			})
			s := open(t, g, "pauses", func(c *Config) { c.Endpoint, c.Patience = p.URL, time.Minute })
			s.answered()
			begun := time.Now()
			err := s.Put(t.Context(), "a", nil)
			synctest.Wait()                    // for the proxy
			after := time.Since(begun) - takes // the first failure
			if want := fmt.Sprintf("given up after %d tries in %v", len(asked),
				after.Round(100*time.Millisecond)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want that it was %s", how, err, want)
			}
			pause := firstPause
			for i, at := range asked[1:] {
				if paused := at.Sub(asked[i]) - takes; paused < pause/2 || paused >= pause {
					t.Errorf("%s: pause %d is %v, want %v without at most half of it", how, i+1, paused, pause)
				}
				pause = min(2*pause, maxPause)
			}
			if last := time.Since(asked[len(asked)-1]); last != takes || after > s.cfg.Patience+takes || after+
				pause <= s.cfg.Patience {
				t.Errorf("%s: given up after %v, %v after the last attempt began", how, after, last)
			}
		})
	}
	f(reset, 0)
	f(busy, 0)
	f(internal, 0)
	f(drop, 0)
	f(stall, 5*time.Second)
	f(mute, 5*time.Second)
}

// TestEveryOperationEnds shows that every operation ends, that its error names the operation and the server, and that
// no object is wrong.
func TestEveryOperationEnds(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		all, harms := operations(), []fault{reset, busy, stall}
		together(len(all)*len(harms), 6, func(i int) {
			o, f := all[i/len(harms)], harms[i%len(harms)]
			direct := open(t, g, fmt.Sprintf("g%d", i), nil)
			if o.prepare != nil {
				o.prepare(t, direct)
			}
			before := everything(t, direct)
			p := newProxy(t, g, func(*http.Request) fault { return f })
			err := o.run(open(t, g, direct.cfg.Prefix, harmed(p)))
			if err == nil {
				t.Errorf("%s, %s: no error", o.name, f)
				return
			}
			for _, part := range []string{direct.String(), "given up after"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, %s: the error does not say %q: %v", o.name, f, part, err)
				}
			}
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s, %s: the error is not that the server was unavailable: %v", o.name, f, err)
			}
			if strings.Contains(err.Error(), g.Secret) {
				t.Errorf("%s, %s: the error tells the secret: %v", o.name, f, err)
			}
			if after := everything(t, direct); !slices.Equal(before, after) {
				t.Errorf("%s, %s: there were %q, now there are %q", o.name, f, before, after)
			}
		})
	})
}

// everything lists all objects, with sizes and times.
func everything(t *testing.T, s *Store) []string {
	var all []string
	for entry, err := range s.List(context.Background(), "") {
		if err != nil {
			t.Error(err)
		}
		all = append(all, fmt.Sprint(entry))
	}
	return all
}

// TestRefusedAtOnce shows that refused requests are not repeated, and what their errors advise.
func TestRefusedAtOnce(t *testing.T) {
	g := storetest.StartGateway(t)
	f := func(what string, change func(*Config), kind error, advice string) {
		t.Helper()
		p := newProxy(t, g, once(0, none))
		s := open(t, g, "refused", func(c *Config) {
			c.Endpoint = p.URL
			change(c)
		})
		err := s.Put(t.Context(), "a", []byte("x"))
		if err == nil || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), "cannot write s3://"+
			s.cfg.Bucket+"/refused/a: ") {
			t.Errorf("%s: %v", what, err)
		}
		if kind != nil && !errors.Is(err, kind) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: not the kind of error: %v", what, err)
		}
		if n := len(p.requests()); n != 1 {
			t.Errorf("%s: %d requests: %q", what, n, p.requests())
		}
	}
	f("wrong secret", func(c *Config) { c.SecretKey = "another" }, fs.ErrPermission,
		"look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	f("unknown key", func(c *Config) { c.AccessKey = "stranger" }, nil, "No user exists")
	f("no bucket", func(c *Config) { c.Bucket = "another" }, nil, "create the bucket at http://")
	f("wrong region", func(c *Config) { c.Region = "eu-central-1" }, nil, "set AWS_REGION")
}

// TestNoServer shows that a wrong address is reported soon if there has never been an answer.
func TestNoServer(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		s := open(t, g, "", func(c *Config) { c.Endpoint, c.Patience = "http://192.0.2.9:80", time.Hour })
		begun := time.Now()
		err := s.Put(t.Context(), "a", nil)
		if err == nil || !strings.Contains(err.Error(),
			"the server was http://192.0.2.9:80 (AWS_ENDPOINT_URL_S3, or endpoint_url of the profile, sets another)") {
			t.Error(err)
		}
		if took := time.Since(begun); took > s.cfg.firstPatience || took <= s.cfg.firstPatience-maxPause {
			t.Errorf("given up after %v", took)
		}
	})
}

// TestSilentServer shows the same for a server that accepts connections and never answers, for each first request.
func TestSilentServer(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		silent := newProxy(t, g, func(*http.Request) fault { return stall })
		f := func(what string, call func(s *Store) error) {
			t.Helper()
			s := open(t, g, "", func(c *Config) { c.Endpoint, c.Patience, c.Stall = silent.URL, time.Hour, time.Hour })
			begun := time.Now()
			err := call(s)
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "given up after 1 tries in 10s") ||
				time.Since(begun) != s.cfg.firstPatience {
				t.Errorf("%s: %v, after %v", what, err, time.Since(begun))
			}
		}
		f("put", func(s *Store) error { return s.Put(t.Context(), "a", nil) })
		f("open", func(s *Store) error { _, err := s.Open(t.Context(), "a"); return err })
		f("lock", func(s *Store) error { _, err := s.Lock(t.Context(), "lock", nil); return err })
		f("list", func(s *Store) error {
			for _, err := range s.List(t.Context(), "") {
				return err
			}
			return nil
		})
	})
}

// TestFailureAfterOK shows that an upload is completed although the server first answers 200 and then reports a
// failure in the body.
func TestFailureAfterOK(t *testing.T) {
	g := storetest.StartGateway(t)
	p := newProxy(t, g, once(0, none))
	for _, code := range []string{"InternalError", "ServiceUnavailable", "SlowDown"} {
		asked := 0
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				if asked++; asked == 1 {
					fmt.Fprintf(w,
						`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>Please try again.</Message></Error>`, code)
					return
				}
			}
			p.ServeHTTP(w, r)
		}))
		defer front.Close()
		s := open(t, g, "behind/"+code, func(c *Config) { c.Endpoint = front.URL })
		draft, err := s.Create(t.Context(), "a")
		if err == nil {
			err = errors.Join(draft.Seal(), draft.Publish(t.Context()), draft.Discard())
		}
		if err != nil || asked != 2 {
			t.Errorf("%s: asked %d times, %v", code, asked, err)
		}
	}
}

// TestReplacedWhileOpened shows that an empty object that is replaced while it is opened is opened again, and that Open
// fails on a server that never returns an object's last bytes.
func TestReplacedWhileOpened(t *testing.T) {
	g := storetest.StartGateway(t)
	p := newProxy(t, g, once(0, none))
	if err := open(t, g, "replaced", nil).Put(t.Context(), "a", []byte("not empty any more")); err != nil {
		t.Fatal(err)
	}
	f := func(empty int) (string, error) {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && empty > 0 {
				empty--
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				fmt.Fprint(w, `<Error><Code>InvalidRange</Code></Error>`)
				return
			}
			p.ServeHTTP(w, r)
		}))
		defer front.Close()
		data, err := store.ReadAll(t.Context(), open(t, g, "replaced", func(c *Config) { c.Endpoint = front.URL }), "a", 100)
		return string(data), err
	}
	if data, err := f(1); err != nil || data != "not empty any more" {
		t.Errorf("there is %q: %v", data, err)
	}
	if _, err := f(1000); err == nil || !strings.Contains(err.Error(), "no bytes of an object that is not empty") ||
		errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a server that never has an end: %v", err)
	}
}

// TestTrust shows that the authorities of CAFile replace all others.
func TestTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pem := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := Config{CAFile: file(t, string(pem)), Stall: time.Minute}
	transport, err := c.transport()
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	only := x509.NewCertPool()
	only.AddCert(server.Certificate())
	if !transport.TLSClientConfig.RootCAs.Equal(only) {
		t.Error("others are trusted too, or not this one")
	}
	if answer, err := (&http.Client{Transport: transport}).Get(server.URL); err != nil || answer.Body.Close() != nil {
		t.Error(err)
	}
}

// TestDiscardWhileSilent shows that with a silent server only the first of several discarded drafts waits, so that
// giving up a scan is not delayed by each. After the next answer, Discard aborts uploads again.
func TestDiscardWhileSilent(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		var silent atomic.Bool
		p := newProxy(t, g, func(*http.Request) fault {
			if silent.Load() {
				return stall
			}
			return none
		})
		s := open(t, g, "silent", func(c *Config) { c.Endpoint, c.Stall = p.URL, time.Minute })
		var drafts []store.Draft
		for i := range 4 {
			draft, err := s.Create(t.Context(), fmt.Sprintf("a/%d", i))
			if err == nil {
				err = draft.Seal()
			}
			if err != nil {
				t.Fatal(err)
			}
			drafts = append(drafts, draft)
		}
		f := func(what string, i, want int, waits time.Duration) {
			t.Helper()
			begun := time.Now()
			if err := drafts[i].Discard(); errors.Is(err, store.ErrUnavailable) != (waits > 0) || time.Since(begun) != waits {
				t.Errorf("%s: %v, after %v", what, err, time.Since(begun))
			}
			aborts := slices.DeleteFunc(p.requests(), func(request string) bool {
				return !strings.HasPrefix(request,
					http.MethodDelete)
			})
			if len(aborts) != want {
				t.Errorf("%s: %d requests to abort uploads, want %d", what, len(aborts), want)
			}
		}
		silent.Store(true)
		f("the first", 0, 1, s.cfg.discardTime)
		f("the second", 1, 1, 0)
		silent.Store(false)
		if err := s.Put(t.Context(), "b", nil); err != nil {
			t.Fatal(err)
		}
		f("the third", 2, 2, 0)
		f("the last", 3, 3, 0)
		var left []string
		if err := s.Sweep(t.Context(), "a/", func(name string) bool {
			left = append(left, name)
			return true
		}); err != nil || strings.Join(left, " ") != "a/0 a/1" {
			t.Errorf("left to sweep: %q, %v", left, err)
		}
	})
}

// TestInterrupted shows that a context ends waiting for a silent server.
func TestInterrupted(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		f := func(what string, call func(ctx context.Context, s *Store) error) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			p := newProxy(t, g, func(*http.Request) fault {
				cancel()
				return stall
			})
			s := open(t, g, "interrupted", func(c *Config) { c.Endpoint, c.Stall, c.Patience = p.URL, time.Hour, time.Hour })
			if err := call(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		f("put", func(ctx context.Context, s *Store) error { return s.Put(ctx, "a", nil) })
		f("create", func(ctx context.Context, s *Store) error { return s.CreateIfAbsent(ctx, "a", nil) })
		f("delete", func(ctx context.Context, s *Store) error { return s.Delete(ctx, "a") })
		f("sweep", func(ctx context.Context, s *Store) error { return s.Sweep(ctx, "a", nil) })
		f("open", func(ctx context.Context, s *Store) error { _, err := s.Open(ctx, "a"); return err })
		f("lock", func(ctx context.Context, s *Store) error { _, err := s.Lock(ctx, "lock", nil); return err })
		f("list", func(ctx context.Context, s *Store) error {
			for _, err := range s.List(ctx, "") {
				return err
			}
			return nil
		})
		f("seal", func(ctx context.Context, s *Store) error {
			draft, err := s.Create(ctx, "a")
			if err != nil {
				return err
			}
			return draft.Seal()
		})
	})
}

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/warc"
)

// place is a folder with archives.
type place struct {
	t   *testing.T
	dir *store.Dir
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir, err := store.NewDir(filepath.Join(t.TempDir(), "kept"))
	if err != nil {
		t.Fatal(err)
	}
	return place{t, dir}
}

var started = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// begin begins the archive of scan s, of which the given number of parts count.
func (p place) begin(parts int, maxBytes int64) *Archive {
	p.t.Helper()
	a := New(p.dir, "test/1", maxBytes)
	err := a.Begin(p.t.Context(), sink.SidecarScan{ID: "s", Shard: "0", StartedAt: started, Next: parts,
		Counts: func(n int) bool { return n < parts }})
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// files lists the archives and the targets of their responses.
func (p place) files() (list []string) {
	p.t.Helper()
	for entry, err := range p.dir.List(p.t.Context(), "part-") {
		if err != nil {
			p.t.Fatal(err)
		}
		object, err := p.dir.Open(p.t.Context(), entry.Name)
		if err != nil {
			p.t.Fatal(err)
		}
		r := warc.NewReader(1000)
		r.Broken = func(b warc.Broken) error { return fmt.Errorf("%+v", b) }
		text := entry.Name + ":"
		err = r.Reset(object, object.Size(), 0)
		for err == nil {
			var rec *warc.Record
			if rec, err = r.Next(); err == nil && rec.Type == warc.Response {
				text += " " + strings.TrimPrefix(string(rec.TargetURI), "https://")
			}
		}
		if err != io.EOF {
			p.t.Error(entry.Name, err)
		}
		if err := object.Close(); err != nil {
			p.t.Error(err)
		}
		list = append(list, text)
	}
	return list
}

func (p place) want(what string, want ...string) {
	p.t.Helper()
	if got := p.files(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		p.t.Errorf("%s:\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// record records an exchange with a host.
func record(t *testing.T, a *Archive, host, response string) {
	t.Helper()
	target, ok := fetcher.ParseTarget("https://" + host + "/robots.txt")
	if !ok {
		t.Fatal(host)
	}
	a.Record(&fetcher.Recording{Target: target, At: started, Remote: netip.MustParseAddrPort("192.0.2.1:443"),
		TLSVersion: 0x304,
		Request:    []byte("GET /robots.txt HTTP/1.1\r\n\r\n"), Response: []byte(response), Head: strings.Index(response+
			"\r\n\r\n", "\r\n\r\n") + 4})
}

const answer = "HTTP/1.1 200 OK\r\n\r\nUser-agent: *\n"

// TestParts checks that exchanges are published with the next part that is cut, and no others.
func TestParts(t *testing.T) {
	p := newPlace(t)
	a := p.begin(0, 0)
	record(t, a, "a", answer)
	record(t, a, "b", answer)
	first := a.Cut(0)
	record(t, a, "c", answer)
	second := a.Cut(1)
	third := a.Cut(2)
	record(t, a, "d", answer)
	fourth := a.Cut(3)
	record(t, a, "e", answer)
	p.want("before")
	for _, publish := range []func(context.Context) error{first, second, third} {
		if err := publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.want("published", "part-s-0-0-0.warc.gz: a/robots.txt b/robots.txt", "part-s-0-1-0.warc.gz: c/robots.txt")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	record(t, a, "f", answer)
	if err := fourth(t.Context()); err == nil {
		t.Error("what was closed is published")
	}
	p.want("closed", "part-s-0-0-0.warc.gz: a/robots.txt b/robots.txt", "part-s-0-1-0.warc.gz: c/robots.txt")

	// The second part was lost before its commit: its exchanges are repeated.
	a = p.begin(1, 0)
	p.want("resumed", "part-s-0-0-0.warc.gz: a/robots.txt b/robots.txt")
	record(t, a, "c", answer)
	if err := a.Cut(1)(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.want("again", "part-s-0-0-0.warc.gz: a/robots.txt b/robots.txt", "part-s-0-1-0.warc.gz: c/robots.txt")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRolled checks that files end at their size.
func TestRolled(t *testing.T) {
	p := newPlace(t)
	a := p.begin(0, 2500)
	for i := range 5 {
		record(t, a, fmt.Sprintf("h%d", i), answer)
	}
	if err := a.Cut(0)(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []string
	files := p.files()
	for _, file := range files {
		all = append(all, strings.Fields(file)[1:]...)
	}
	if got := strings.Join(all, " "); len(files) < 2 || len(files) > 3 ||
		got != "h0/robots.txt h1/robots.txt h2/robots.txt h3/robots.txt h4/robots.txt" {
		t.Errorf("rolled: %q", files)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOthers checks that files of other scans stay, and that a scan of the same name in another dataset is an error.
func TestOthers(t *testing.T) {
	p := newPlace(t)
	for _, name := range []string{"part-s-0-5-0.warc.gz", "part-s-0-5-0.warc.gz.bak", "part-s-1-5-0.warc.gz",
		"part-s-0-0-5-0.warc.gz", "part-s-0-05-0.warc.gz", "notes.txt"} {
		if err := p.dir.Put(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := p.begin(5, 0)
	var left []string
	for entry, err := range p.dir.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, entry.Name)
	}
	if got, want := strings.Join(left, " "),
		"notes.txt part-s-0-0-5-0.warc.gz part-s-0-05-0.warc.gz part-s-0-5-0.warc.gz.bak part-s-1-5-0.warc.gz scan-s-0.txt"; got != want {
		t.Errorf("left: %s\nwant: %s", got, want)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	of := sink.SidecarScan{ID: "s", Shard: "0", StartedAt: started.Add(time.Second),
		Counts: func(int) bool { return false }}
	if err := New(p.dir, "test/1", 0).Begin(t.Context(), of); err == nil || !strings.Contains(err.Error(),
		"a scan s of another dataset has its archive there") {
		t.Errorf("the scan of another dataset: %v", err)
	}
	of.Restarted = true
	b := New(p.dir, "test/1", 0)
	if err := b.Begin(t.Context(), of); err != nil {
		t.Errorf("begun anew: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestFailure checks that a failed write fails the part and all later ones.
func TestFailure(t *testing.T) {
	p := newPlace(t)
	full := errors.New("full")
	a := New(failing{p.dir, full}, "test/1", 0)
	if err := a.Begin(t.Context(), sink.SidecarScan{ID: "s", Shard: "0", StartedAt: started,
		Counts: func(int) bool { return true }}); err != nil {
		t.Fatal(err)
	}
	if err := a.Cut(0)(t.Context()); err != nil {
		t.Error(err)
	}
	record(t, a, "a", answer)
	record(t, a, "b", answer)
	for part := 1; part < 3; part++ {
		if err := a.Cut(part)(t.Context()); !errors.Is(err, full) {
			t.Errorf("part %d: %v", part, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.want("nothing")
}

// failing is a store that has no room for drafts.
type failing struct {
	store.Store
	err error
}

func (f failing) Create(context.Context, string) (store.Draft, error) { return nil, f.err }

// TestManyAtOnce records from many goroutines while parts are cut: each exchange is in exactly one file.
func TestManyAtOnce(t *testing.T) {
	p := newPlace(t)
	a := p.begin(0, 4000)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			for j := range 20 {
				record(t, a, fmt.Sprintf("h%d-%d", i, j), answer)
			}
		})
	}
	for part := range 10 {
		if err := a.Cut(part)(t.Context()); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	if err := a.Cut(10)(t.Context()); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, file := range p.files() {
		for _, uri := range strings.Fields(file)[1:] {
			seen[uri]++
		}
	}
	for uri, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", uri, n)
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d of 400 exchanges are there", len(seen))
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// silent is a store whose Create does not return until its context ends.
type silent struct {
	*store.Dir
	asked chan struct{}
}

func (s silent) Create(ctx context.Context, _ string) (store.Draft, error) {
	close(s.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestGiveUp checks that GiveUp ends the waiting of Record and Cut for a silent store, and that nothing is reported as
// published.
func TestGiveUp(t *testing.T) {
	p := newPlace(t)
	st := silent{p.dir, make(chan struct{})}
	a := New(st, "test/1", 0)
	if err := a.Begin(t.Context(), sink.SidecarScan{ID: "s", Shard: "0", StartedAt: started,
		Counts: func(int) bool { return false }}); err != nil {
		t.Fatal(err)
	}
	recorded := make(chan struct{})
	go func() {
		record(t, a, "a.example", "HTTP/1.1 200 OK\r\n\r\n")
		close(recorded)
	}()
	<-st.asked
	a.GiveUp()
	<-recorded
	if err := a.Cut(0)(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("published with %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.want("given up")
}

//go:build unix

package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/verify"
)

// TestKilledOnS3 takes a scan whose dataset is in an object store through some deaths, and holds it against an undisturbed
// one in a folder. Each next process first waits for the lease of the dead to end, so they are fewer than in a folder.
func TestKilledOnS3(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	const kills, each = 6, 60 // and so many requests between two of them, on average
	w, _ := newKillWorld(t, kills*each*3/2)
	folder := filepath.Dir(w.list)
	flags := []string{"--part-rows", fmt.Sprint(killPart), "--concurrency", fmt.Sprint(killConcurrency), "--patience", "0s", "--retries", "0"}
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)

	// The server keeps objects as files, so that what reads a folder can look at what there is without asking it.
	const place = "s3://" + storetest.Bucket + "/killed"
	out := filepath.Join(g.Folder, storetest.Bucket, "killed")
	dice := rand.New(rand.NewPCG(3, 4))
	done := map[uint64]bool{}
	for n := range kills {
		before := w.web.Stats().Requests
		had := commits(out)
		p := w.scan(t, place, flags...)
		requests := int64(each/2 + dice.IntN(each))
		m := []moment{
			{"any time", func() bool { return w.web.Stats().Requests >= before+requests }, time.Duration(dice.IntN(20)) * time.Millisecond},
			{"commit made", func() bool { return commits(out) > had+int(requests)/killPart/2 }, time.Duration(dice.IntN(20)) * time.Millisecond},
		}[n%2]
		if p.killAt(t, m, syscall.SIGKILL) {
			t.Fatalf("the list was done after %d kills", n)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != -1 {
			t.Fatalf("exit code %d\n%s", code, &p.stderr)
		}
		now := committed(t, out)
		for seq := range done {
			if !now[seq] {
				t.Errorf("seq %d was committed, and is no more", seq)
			}
		}
		done = now
	}
	w.scan(t, place, flags...).exits(t, 0)
	same(t, snapshot(t, out), want, "resumed to the end")
	clean(t, place)
}

// clean holds that verify finds nothing wrong in a place, and that no upload is left there.
func clean(t *testing.T, place string) {
	t.Helper()
	p := start(t, "verify", place)
	p.exits(t, 0)
	if text := p.stdout.String(); !strings.Contains(text, ": 0 damaged, 0 leftovers") {
		t.Errorf("verify says\n%s", text)
	}
	err := mustPlace(t, place).Sweep(t.Context(), "", func(name string) bool {
		t.Errorf("left: an upload of %s", name)
		return false
	})
	if err != nil {
		t.Error(err)
	}
}

// startGateway starts an object store, which the commands of this test find in their environment.
func startGateway(t *testing.T) *storetest.Gateway {
	t.Helper()
	g := storetest.StartGateway(t)
	for name, value := range g.Environment() {
		t.Setenv(name, value)
	}
	return g
}

// stopAt is a line to a server on which everything stands still from the n-th request on, before the server has seen that
// one or after it has acted. What it has seen is there to be read when whoever used it has ended.
type stopAt struct {
	*httptest.Server
	n      int // 0 is never
	acts   bool
	stands chan struct{} // closed when it does

	mu   sync.Mutex
	seen []string // methods
}

func newStopAt(t *testing.T, g *storetest.Gateway, n int, acts bool) *stopAt {
	server, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	onward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.Out.Host = r.In.Host // which is signed
	}, ErrorLog: log.New(io.Discard, "", 0)} // of clients that have left
	s := &stopAt{n: n, acts: acts, stands: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method)
		here := len(s.seen)
		s.mu.Unlock()
		switch {
		case s.n == 0 || here < s.n:
			onward.ServeHTTP(w, r)
			return
		case here == s.n && s.acts:
			onward.ServeHTTP(httptest.NewRecorder(), r)
		}
		_, _ = io.Copy(io.Discard, r.Body) // what is read to its end notices when the client leaves
		if here == s.n {
			close(s.stands)
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s
}

// TestCompactionKilledOnS3 kills a compaction of a dataset in an object store at requests that change something, heard or
// not. Readers see every row once at each such moment, the next compaction ends what was begun, and nothing is left over.
func TestCompactionKilledOnS3(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	w, _ := newKillWorld(t, 8*killPart)
	const whole = "s3://" + storetest.Bucket + "/whole"
	w.scan(t, whole, "--part-rows", fmt.Sprint(killPart), "--no-compact", "--concurrency", fmt.Sprint(killConcurrency), "--patience", "0s", "--retries", "0").exits(t, 0)
	want := snapshotOf(t, mustPlace(t, whole))
	copied := func(place string) {
		t.Helper()
		from, to := mustPlace(t, whole), mustPlace(t, place)
		for entry, err := range from.List(t.Context(), "") {
			var data []byte
			if err == nil {
				data, err = store.ReadAll(t.Context(), from, entry.Name, 64<<20)
			}
			if err == nil {
				err = to.Put(t.Context(), entry.Name, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	compact := func(line *stopAt, place string) *process {
		return startWith(t, []string{"AWS_ENDPOINT_URL_S3=" + line.URL}, "compact", place, "--grace", "0s")
	}

	calm := newStopAt(t, g, 0, false)
	copied(whole + "-calm")
	compact(calm, whole+"-calm").exits(t, 0)
	same(t, snapshotOf(t, mustPlace(t, whole+"-calm")), want, "compacted")
	clean(t, whole+"-calm")
	var changes []int
	for i, method := range calm.seen {
		if method != http.MethodGet && method != http.MethodHead {
			changes = append(changes, i+1)
		}
	}
	kills := min(12, len(changes))
	if kills < 10 {
		t.Fatalf("only %d requests change something", len(changes))
	}
	place := func(i int) string { return fmt.Sprintf("%s-%d", whole, i) }
	when := make([]string, kills)
	parts := map[int]int{}
	for i := range kills {
		n := changes[i*(len(changes)-1)/(kills-1)]
		line := newStopAt(t, g, n, i%2 == 1)
		when[i] = fmt.Sprintf("killed at request %d, heard %v", n, line.acts)
		copied(place(i))
		p := compact(line, place(i))
		select {
		case <-line.stands:
		case <-time.After(waittest.Hanging):
			t.Fatalf("%s: it is never asked\n%s", when[i], &p.stderr)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Wait() // it was killed
		st := mustPlace(t, place(i))
		same(t, snapshotOf(t, st), want, when[i])
		found, err := verify.Dataset(t.Context(), st, verify.Options{ScanID: "s"})
		if err != nil || found.Damaged > 0 {
			t.Errorf("%s: %+v, %v", when[i], found, err)
		}
		parts[found.Parts]++
	}
	if len(parts) < 2 {
		t.Errorf("all were killed on one side of the commit: %v", parts)
	}
	// All wait at once for the leases of the dead to end.
	again := make([]*process, kills)
	for i := range kills {
		again[i] = start(t, "compact", place(i), "--grace", "0s")
	}
	for i, p := range again {
		p.exits(t, 0)
		st := mustPlace(t, place(i))
		same(t, snapshotOf(t, st), want, when[i]+", and done again")
		clean(t, place(i))
		if commits, err := commit.Commits(t.Context(), st, "s"); err != nil || len(commits) != 1 {
			t.Errorf("%s, and done again: %d parts, %v", when[i], len(commits), err)
		}
	}
	t.Logf("%d kills, of %d requests that change something; scans by the parts that they left: %v", kills, len(changes), parts)
}

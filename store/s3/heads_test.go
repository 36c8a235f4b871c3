package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"

	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// This file has many processes change one dataset at once: two vantages, shares, pruning, compaction, and the history
// derived anew. Each has a Store, and leases, of its own.

var publishing = scan.Publishing{Compact: true, Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}

// vantage returns options of a scan.
func vantage(id, date, at string) sink.Options {
	return sink.Options{ScanID: id, Date: date, PartRows: 4, Observer: commit.Observer{Source: commit.Live,
		Product: "test", Vantage: at}}
}

// night scans and publishes as the command does.
func night(s *Store, o sink.Options) error {
	w, err := sink.Open(context.Background(), s, o)
	if err == nil {
		err = addSites(s, w)
	}
	if err == nil {
		err = scan.Publish(context.Background(), s, o.ScanID, publishing)
	}
	return err
}

// share scans a share, and collects the scan if it is the last.
func share(s *Store, o sink.Options) error {
	ctx := context.Background()
	w, err := sink.Open(ctx, s, o)
	if _, done := errors.AsType[*commit.ShareDoneError](err); done {
		_, err = scan.Collect(ctx, s, o.ScanID, publishing)
		return err
	}
	if err != nil {
		return err
	}
	defer func() { _ = w.Abort() }() // the first error says more
	rejects, err := commit.OpenShareRejects(ctx, s, o.ScanID, o.Shard)
	if err != nil {
		return err
	}
	if err = addMissing(w); err == nil {
		err = rejects.Close(ctx)
	}
	if err == nil {
		err = w.FinishShare(ctx, uint64(10/o.Shares), commit.ShareResult{Lines: 10, Elsewhere: int64(10 - 10/o.Shares),
			Rejects: rejects.File()})
	}
	if err == nil {
		err = w.Close(ctx)
	}
	if err == nil {
		_, err = scan.Collect(ctx, s, o.ScanID, publishing)
	}
	if _, others := errors.AsType[*shares.NotDoneError](err); others {
		return nil
	}
	return err
}

// patiently repeats a command that fails because another process has a lock, or with an error that again accepts.
func patiently(again func(error) bool, do func() error) (err error) {
	for range 200 {
		err = do()
		if _, held := errors.AsType[*commit.HeldError](err); err == nil || !held && !again(err) {
			return err
		}
		time.Sleep(time.Second)
	}
	return err
}

// crowd is a dataset that many processes change at once.
type crowd struct {
	t     *testing.T
	open  func(who string) *Store // another process
	again func(error) bool        // reports whether a command is given again after an error, beside that of a lock
	dates []string
	kept  int // nights
}

// play runs all processes at once, on each night.
func (c *crowd) play() {
	for i, date := range c.dates {
		var all sync.WaitGroup
		each := func(who string, times int, do func(s *Store) error) {
			all.Go(func() {
				for range times {
					if err := patiently(c.again, func() error { return do(c.open(who)) }); err != nil {
						c.t.Errorf("%s, %s: %v", date, who, err)
					}
				}
			})
		}
		for _, at := range []string{"a", "b"} {
			each("vantage "+at, 1, func(s *Store) error { return night(s, vantage(at+"-"+date, date, at)) })
		}
		for n := range 2 {
			each(fmt.Sprint("share ", n), 1, func(s *Store) error {
				o := vantage("c-"+date, date, "a")
				o.ListID, o.Shares, o.Shard = "another", 2, fmt.Sprint(n)
				return share(s, o)
			})
		}
		if i == 0 {
			all.Wait()
		}
		before := c.dates[max(0, i-1)]
		each("compact", 2, func(s *Store) error {
			_, err := compact.Scan(context.Background(), s, "a-"+before, compact.Options{})
			_, err2 := compact.Scan(context.Background(), s, "c-"+before, compact.Options{})
			return errors.Join(err, err2)
		})
		each("rebuild", 2, func(s *Store) error {
			return history.Rebuild(context.Background(), s, scan.HistoryOptions(publishing.Registry, "", publishing.Log))
		})
		each("prune", 1, func(s *Store) error {
			_, err := scan.Prune(context.Background(), s, scan.Retention{Nights: c.dates[max(0, i-c.kept)], Bodies: before},
				publishing)
			return err
		})
		all.Wait()
	}
}

// holds checks what must be true at the end.
func (c *crowd) holds(kinds ...verify.FindingKind) {
	c.t.Helper()
	ctx, s := context.Background(), c.open("the end")
	report := func(f verify.Finding) {
		if slices.Contains(kinds, f.Kind) {
			c.t.Error(f)
		}
	}
	if _, err := verify.Dataset(ctx, s, verify.Options{Report: report}); err != nil {
		c.t.Error(err)
	}
	if err := history.Verify(ctx, s, report); err != nil {
		c.t.Error(err)
	}
	h, err := commit.ReadHead(ctx, s)
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := h.All(ctx)
	pruned, errPruned := h.ReadPruned(ctx)
	if err := errors.Join(err, errPruned); err != nil {
		c.t.Fatal(err)
	}
	var named, want []string
	for _, scan := range all {
		if scan.Publication == commit.PublicationDone && scan.Commits != "" {
			named = append(named, scan.ScanID)
		}
	}
	for _, scan := range pruned.Scans {
		named = append(named, scan.ScanID)
	}
	for _, date := range c.dates {
		want = append(want, "a-"+date, "b-"+date, "c-"+date)
	}
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		c.t.Errorf("the head names %q, want %q", named, want)
	}
	for _, of := range all {
		one, err := commit.ReadScan(ctx, s, of.ScanID)
		if err != nil || one.Lost() != nil || one.Manifest.Counts.Rows != 10 {
			c.t.Errorf("%s: %v, %+v", of.ScanID, err, one)
		}
	}
	if len(pruned.Scans) == 0 || len(pruned.Scans) == len(want) {
		c.t.Errorf("pruned: %v", pruned.Scans)
	}
	if names, err := commit.Heads(ctx, s); err != nil || len(names) > 16 || h.Number < 16 {
		c.t.Errorf("head %d, %d heads, %v", h.Number, len(names), err)
	}
	told := c.told(s)
	if err := history.Rebuild(ctx, s, scan.HistoryOptions(publishing.Registry, "", publishing.Log)); err != nil {
		c.t.Error(err)
	}
	if again := c.told(s); again != told || !strings.Contains(told, c.dates[len(c.dates)-1]) {
		c.t.Errorf("the history is\n%s\nrebuilt it is\n%s", told, again)
	}
}

// told returns the histories of all hosts.
func (c *crowd) told(s *Store) string {
	var all strings.Builder
	for n := range 10 {
		stories, err := history.Stories(context.Background(), s, fmt.Sprintf("h%d.test", n), history.Asked{})
		if err != nil {
			c.t.Error(err)
		}
		for _, story := range stories {
			fmt.Fprintf(&all, "%s %+v %+v\n", story.Host, story.Episodes, story.Gaps)
		}
	}
	ledger, err := history.ReadLedger(context.Background(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	return all.String() + fmt.Sprint(ledger.Scans)
}

func nights(n int) (dates []string) {
	for i := range n {
		dates = append(dates, time.Date(2026, 10, 27+i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
	}
	return dates
}

// TestManyWriters has two vantages, the shares of a third scan, pruning, compaction and the history derived anew work
// on one dataset at once, over the end of a month. No command fails except for a lock of another process, and no change
// of publications is lost.
func TestManyWriters(t *testing.T) {
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		n := 8
		if testing.Short() {
			n = 5
		}
		c := &crowd{t: t, dates: nights(n), kept: 3, again: func(error) bool { return false }, open: func(string) *Store {
			return open(t, g, "many", func(c *Config) { c.page = 0 })
		}}
		c.play()
		c.holds(verify.Damaged, verify.Leftover)
	})
}

// TestManyWritersFail lets the same processes work over connections that lose answers, and that deliver some requests,
// above all those of heads and of the ledger, so late that their sender has repeated them, or lost its lock to another
// process. Failed commands are repeated.
func TestManyWritersFail(t *testing.T) {
	long(t)
	for seed := range uint64(12) {
		virtual(t, func(t *testing.T, g *storetest.Gateway) {
			var mu sync.Mutex
			dice, opened := rand.New(rand.NewPCG(seed, 1)), uint64(0)
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return dice.IntN(n)
			}
			harms := []fault{reset, busy, internal, drop, cut, mute}
			c := &crowd{t: t, dates: nights(6), kept: 2, open: func(who string) *Store {
				if who == "the end" {
					return open(t, g, "many", nil)
				}
				p := newProxy(t, g, func(*http.Request) fault {
					if chance(40) > 0 {
						return none
					}
					return harms[chance(len(harms))]
				})
				p.before = func(r *http.Request) {
					counts := strings.Contains(r.URL.Path, "/_head/") || strings.HasSuffix(r.URL.Path, history.LedgerName)
					if r.Method == http.MethodPut && (counts && chance(8) == 0 || chance(200) == 0) {
						time.Sleep(time.Duration(1+chance(40)) * time.Second)
					}
				}
				opened++
				return open(t, g, "many", func(c *Config) { c.Endpoint, c.page, c.Lease = p.URL, 0, testLease })
			}}
			failed := map[string]int{}
			c.again = func(err error) bool {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, store.ErrLockLost):
					failed["lock lost"]++
				case errors.Is(err, store.ErrUnavailable):
					failed["unavailable"]++
				default:
					return false
				}
				return true
			}
			c.play()
			time.Sleep(time.Minute) // the last requests arrive
			t.Logf("seed %d: %d processes, commands that failed: %v", seed, opened, failed)
			c.holds(verify.Damaged)
		})
	}
}

// TestLateHeads kills a process whose last request is still on its way: of a ledger, the first one or a later, or of a
// head. Another process takes over, and the request arrives at each of its changes to the heads and the history; some
// die there, too. Afterwards the published data is undamaged, no change is lost, and the next night is published.
func TestLateHeads(t *testing.T) {
	dates := nights(5)
	ctx := context.Background()
	publish := func(n int) func(*Store) error {
		return func(s *Store) error { return night(s, vantage("a-"+dates[n], dates[n], "a")) }
	}
	rebuild := func(s *Store) error {
		return history.Rebuild(ctx, s, scan.HistoryOptions(publishing.Registry, "", publishing.Log))
	}
	prune := func(s *Store) error {
		_, err := scan.Prune(ctx, s, scan.Retention{Nights: dates[1]}, publishing)
		return err
	}
	const ledger, head = history.LedgerName, "/_head/000000"
	virtual(t, func(t *testing.T, _ *storetest.Gateway) {
		f := func(what, last string, nth, before int, first, second func(*Store) error) {
			t.Helper()
			server := newObjects()
			g := storetest.NewGateway(t, server)
			for n := range before {
				if err := publish(n)(open(t, g, "base", nil)); err != nil {
					t.Fatal(err)
				}
			}
			for at, done := 0, false; !done; at += 1 + testStep() {
				prefix := fmt.Sprint("at", at)
				for key, v := range maps.Clone(server.there) {
					if name, is := strings.CutPrefix(key, "base/"); is {
						server.there[prefix+"/"+name] = v
					}
				}
				direct := open(t, g, prefix, nil)
				arrive := latePut(t, g, prefix, last, nth, first)
				changes, dies, dead := 0, at%2 > 0, false
				p := newProxy(t, g, func(*http.Request) fault {
					if dead {
						return reset
					}
					return none
				})
				p.before = func(r *http.Request) {
					if r.Method == http.MethodGet || r.Method == http.MethodHead || strings.HasSuffix(r.URL.Path, "lock") ||
						!strings.Contains(r.URL.Path, "/_head/") && !strings.Contains(r.URL.Path, "/history/") {
						return
					}
					if changes++; changes == at+1 {
						arrive()
						dead = dies
					}
				}
				err := second(open(t, g, prefix, func(c *Config) {
					c.Endpoint, c.Lease, c.Patience = p.URL, testLease,
						time.Second
				}))
				done = changes <= at
				if err != nil && !dead {
					t.Errorf("%s, at change %d: the next process: %v", what, at, err)
				}
				arrive()
				c := &crowd{t: t, dates: dates}
				var damaged []verify.Finding
				report := func(f verify.Finding) {
					if f.Kind == verify.Damaged {
						damaged = append(damaged, f)
					}
				}
				_, err = verify.Dataset(ctx, direct, verify.Options{Report: report})
				err = errors.Join(err, history.Verify(ctx, direct, report), publish(4)(direct))
				if err != nil || len(damaged) > 0 {
					t.Errorf("%s, at change %d, dead %v: %v, %v", what, at, dead, damaged, err)
					continue
				}
				told := c.told(direct)
				if err := rebuild(direct); err != nil || c.told(direct) != told {
					t.Errorf("%s, at change %d: the history is\n%s\nrebuilt\n%s\n%v", what, at, told, c.told(direct), err)
				}
				for n := range before {
					if named := strings.Contains(told, "a-"+dates[n]); !named {
						t.Errorf("%s, at change %d: the night of %s is lost: %s", what, at, dates[n], told)
					}
				}
			}
		}
		for name, second := range map[string]func(*Store) error{"publishes": publish(3), "rebuilds": rebuild,
			"prunes": prune} {
			if testing.Short() && name != "publishes" {
				continue
			}
			if name == "publishes" {
				f("the first ledger, and another "+name, ledger, 1, 0, publish(2), second)
			}
			f("a ledger, and another "+name, ledger, 1, 2, publish(2), second)
			f("the head of a scan, and another "+name, head, 1, 2, publish(2), second)
			f("the head of a merge, and another "+name, head, 2, 2, publish(2), second)
			f("the head of a pruning, and another "+name, head, 1, 3, prune, second)
			f("the ledger of a rebuild, and another "+name, ledger, 1, 2, rebuild, second)
		}
	})
}

// testStep is how many moments a test leaves out.
func testStep() int {
	if testing.Short() {
		return 60
	}
	return 0
}

// latePut runs a command up to its nth PUT that last selects, and kills it. The request arrives when arrive is called.
func latePut(t *testing.T, g *storetest.Gateway, prefix, last string, nth int,
	do func(s *Store) error) (arrive func()) {
	sent, may, arrived, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	var late atomic.Pointer[http.Request]
	n := 0
	p := newProxy(t, g, func(r *http.Request) fault {
		if late.Load() != nil {
			return reset
		}
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, last) && !strings.Contains(r.URL.Path, "-") {
			if n++; n == nth {
				late.Store(r)
				return drop
			}
		}
		return none
	})
	p.before = func(r *http.Request) {
		if r == late.Load() {
			close(sent)
			<-may
		}
	}
	p.after = func(r *http.Request) {
		if r == late.Load() {
			close(arrived)
		}
	}
	go func() {
		defer close(ended)
		if err := do(open(t, g, prefix, func(c *Config) {
			c.Endpoint, c.Lease, c.Patience, c.Stall = p.URL, testLease,
				time.Second, time.Hour
		})); err == nil {
			t.Error("it has ended, and did not send the request")
		}
	}()
	<-sent
	t.Cleanup(func() { <-ended })
	var once atomic.Bool
	return func() {
		if !once.Swap(true) {
			close(may)
		}
		<-arrived
	}
}

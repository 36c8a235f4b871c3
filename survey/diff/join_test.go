package diff

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// meeting opens a Parquet file of sites only when a file of the other scan is opened, too. It counts how often each is
// opened.
type meeting struct {
	store.Store
	here, there chan struct{}
	once        *sync.Once
	lock        *sync.Mutex
	opened      map[string]int
}

func (m *meeting) Open(ctx context.Context, name string) (store.Object, error) {
	if strings.HasPrefix(name, "sites/") {
		m.lock.Lock()
		m.opened[name]++
		m.lock.Unlock()
		m.once.Do(func() { close(m.here) })
		<-m.there
	}
	return m.Store.Open(ctx, name)
}

// meet makes two scans that can only be read at the same time.
func meet(from, to *ScanAt) (counts [2]map[string]int) {
	ends := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	for i, at := range []*ScanAt{from, to} {
		counts[i] = map[string]int{}
		at.Store = &meeting{at.Store, ends[i], ends[1-i], new(sync.Once), new(sync.Mutex), counts[i]}
	}
	return counts
}

// TestDiffReadsTogether shows that both scans are read at the same time, since reading one before the other would never
// end. Each file is opened once.
func TestDiffReadsTogether(t *testing.T) {
	before, after := differing(t, 600)
	from, to := scanOf(t, before, sink.Options{Date: "2026-11-20"}), scanOf(t, after, sink.Options{Date: "2026-11-21"})
	from.Alone, to.Alone = true, true // a unit of several scans is read once more, to choose rows
	for name, compare := range map[string]func(from, to ScanAt) error{
		"changes": func(from, to ScanAt) error { _, err := Scans(t.Context(), from, to, Options{}); return err },
		"paired":  func(from, to ScanAt) error { _, err := Observers(t.Context(), from, to, Options{}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				from, to := from, to
				counts := meet(&from, &to)
				if err := compare(from, to); err != nil {
					t.Fatal(err)
				}
				for _, opened := range counts {
					for file, n := range opened {
						if n != 1 {
							t.Errorf("%s is opened %d times", file, n)
						}
					}
					if len(opened) < 3 {
						t.Errorf("only %v are opened", opened)
					}
				}
			})
		})
	}
}

// TestDiffOrders compares scans whose sites have different orders. The result is that of sites in the same order; only
// the rows of the Parquet files have the order of the later scan.
func TestDiffOrders(t *testing.T) {
	before, after := differing(t, 2400)
	listed := map[string]bool{}
	after = slices.DeleteFunc(after, func(s *audit.Site) bool {
		again := listed[s.Origin.Host()]
		listed[s.Origin.Host()] = true
		return again
	})
	reversed, shuffled := slices.Clone(after), slices.Clone(after)
	slices.Reverse(reversed)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j],
			shuffled[i]
	})
	from := scanOf(t, before, sink.Options{Date: "2026-11-20"})
	var want string
	for _, order := range []struct {
		name  string
		sites []*audit.Site
	}{{"same", after}, {"reversed", reversed}, {"shuffled", shuffled}} {
		dir := scanOf(t, order.sites, sink.Options{Date: "2026-11-21"})
		for _, mostLater := range []int{0, 1, 700, 1 << 16} {
			for _, inOrder := range []bool{false, true} {
				o := &Options{Selection: survey.Selection{Category: "ai"}}
				c, err := newComparison(t.Context(), from, dir, o)
				if err != nil {
					t.Fatal(err)
				}
				c.mostLater = mostLater
				count := newCounter(c, nil)
				if err := c.join(t.Context(), inOrder, count.site); err != nil {
					t.Fatal(err)
				}
				got := count.finish()
				if vanished := int64(len(c.earlier)); inOrder && vanished != got.Vanished || got.Vanished == 0 ||
					got.Appeared == 0 {
					t.Errorf("%s: %d sites are left, %d vanished, %d appeared", order.name, vanished, got.Vanished, got.Appeared)
				}
				got.From, got.To = Scan{}, Scan{}
				text, err := json.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				if want == "" {
					want = string(text)
				}
				if string(text) != want {
					t.Errorf("%s, %d wait, in order %v: %s\nwant %s", order.name, mostLater, inOrder, text, want)
				}
			}
		}
		out, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Scans(t.Context(), from, dir, Options{Out: out}); err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for _, half := range []int{0, 1} { // the scans of the unit, as scanOf cuts them
			for i := half; i < len(order.sites); i += 2 {
				at[order.sites[i].Origin.Host()] = len(at)
			}
		}
		last := -1
		for _, row := range surveytest.Rows[ChangedSiteRow](t, out, ChangedSitesName) {
			place, later := at[row.Host]
			if row.Change == siteVanished {
				place = len(at) // behind all others
			} else if !later || place <= last {
				t.Fatalf("%s: %+v is not in the order of the later scan", order.name, row)
			}
			last = place
		}
	}
}

// TestDiffKeepsFew shows that few sites are in memory at a time if the scans have the same order.
func TestDiffKeepsFew(t *testing.T) {
	sites := surveytest.Mixed(t, 20*batchRows, 18)
	at := scanOf(t, sites, sink.Options{})
	c, err := newComparison(t.Context(), at, at, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	if err := c.join(t.Context(), false, func(_, _ *siteState) error {
		most = max(most, len(c.earlier)+len(c.later))
		return nil
	}); err != nil || most > batchRows || c.both < 10*batchRows {
		t.Errorf("%d of %d sites are kept, %v", most, c.both, err)
	}
}

// TestDiffEnds shows that no reader is left wherever a comparison fails: the bubble finds a reader that still waits.
func TestDiffEnds(t *testing.T) {
	before, after := differing(t, 3000)
	from, to := scanOf(t, before, sink.Options{}), scanOf(t, after, sink.Options{})
	full := errors.New("disk full")
	for _, inOrder := range []bool{false, true} {
		for _, fails := range []int{1, 2, batchRows - 1, batchRows, batchRows + 1, 1500} {
			bubble.Test(t, func(t *testing.T) {
				c, err := newComparison(t.Context(), from, to, &Options{})
				if err != nil {
					t.Fatal(err)
				}
				calls := 0
				if err := c.join(t.Context(), inOrder, func(_, _ *siteState) error {
					if calls++; calls >= fails {
						return full
					}
					return nil
				}); !errors.Is(err, full) || calls != fails {
					t.Errorf("after %d calls: %d, %v", fails, calls, err)
				}
			})
		}
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := newComparison(ctx, from, to, &Options{})
			if err != nil {
				t.Fatal(err)
			}
			if cancel(); !errors.Is(c.join(ctx, inOrder, func(_, _ *siteState) error { return nil }), context.Canceled) {
				t.Error("an interruption is no error")
			}
		})
	}
}

// TestDiffDamaged shows that damage of either scan is an error, and that damage of the earlier scan is the one
// reported.
func TestDiffDamaged(t *testing.T) {
	before, after := differing(t, 1200)
	for _, damaged := range [][]string{{"from"}, {"to"}, {"from", "to"}} {
		scans := map[string]ScanAt{"from": scanOf(t, before, sink.Options{Date: "2026-11-20"}),
			"to": scanOf(t, after, sink.Options{Date: "2026-11-21"})}
		for _, scan := range damaged {
			files, err := filepath.Glob(filepath.Join(scans[scan].Store.(*store.Dir).Root(), "sites/*/part-cut-*.parquet"))
			if err != nil || len(files) < 3 {
				t.Fatal(files, err)
			}
			data, err := os.ReadFile(files[1])
			if err != nil {
				t.Fatal(err)
			}
			for i := 100; i < len(data)/2; i++ {
				data[i] ^= 0x55
			}
			if err := os.WriteFile(files[1], data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		date := map[string]string{"from": "2026-11-20", "to": "2026-11-21"}[damaged[0]]
		for _, paired := range []bool{false, true} {
			var err error
			from, to := scans["from"], scans["to"]
			from.Alone, to.Alone = true, true
			if paired {
				_, err = Observers(t.Context(), from, to, Options{})
			} else {
				_, err = Scans(t.Context(), from, to, Options{})
			}
			if !survey.IsDamage(err) || !strings.Contains(err.Error(), "scan_date="+date) || !strings.Contains(err.Error(),
				"cannot compare scan") {
				t.Errorf("damage of %v, paired %v: %v", damaged, paired, err)
			}
		}
	}
}

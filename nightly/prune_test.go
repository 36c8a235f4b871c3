package nightly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// fullStore has no room for the record of what is pruned.
type fullStore struct {
	store.Store
	full bool
}

func (s *fullStore) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	if s.full && strings.Contains(name, "-pruned-") {
		return errors.New("no space left")
	}
	return s.Store.CreateIfAbsent(ctx, name, data)
}

// TestKeep prunes at the end of each night. A night whose pruning fails is published, and the next run makes up for it.
func TestKeep(t *testing.T) {
	m := newTeam(t)
	full := &fullStore{Store: m.store}
	m.store, m.keep = full, Keep{Nights: 3, Bodies: 2}
	there := func() (dates string) {
		t.Helper()
		scans, err := commit.Scans(t.Context(), m.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scans {
			dates += s.ScanDate[8:]
			if slices.Contains(s.Tables, schema.Bodies) {
				dates += "b"
			}
			dates += " "
		}
		return strings.TrimSpace(dates)
	}
	is := func(scans, ledger string) {
		t.Helper()
		if got := there(); got != scans {
			t.Errorf("there are %s, want %s", got, scans)
		}
		if got := m.ledger(); got != ledger {
			t.Errorf("the ledger has %s, want %s", got, ledger)
		}
	}
	for range 3 {
		m.night()
	}
	is("01 02b 03b", "01 02 03")
	if n := m.night(); n.State != Published || n.Pruned == nil || !slices.Equal(n.Pruned.Nights, []string{"2026-11-01"}) || n.Pruned.Bodies != 1 || n.Changes.From != "2026-11-03" {
		t.Errorf("%+v", n)
	}
	is("02 03b 04b", "01 02 03 04")

	full.full = true
	n, err := Run(t.Context(), m.options())
	if err == nil || n.State != Published || !strings.Contains(n.Error, "no space left") || !strings.Contains(m.told[4], "is published; cannot prune") {
		t.Fatalf("a full disk: %+v, %v, told %q", n, err, m.told)
	}
	is("02 03b 04b 05b", "01 02 03 04 05")
	full.full = false
	asked := m.asked
	if n := m.night(); n.State != Published || n.Error != "" || n.Pruned == nil || m.asked != asked { // the same night
		t.Errorf("again: %+v", n)
	}
	is("03 04b 05b", "01 02 03 04 05")
	before := m.read("_nights/2026-11-05/night.json")
	o := m.options()
	o.Date = "2026-11-05"
	if _, err := Run(t.Context(), o); err != nil || m.read("_nights/2026-11-05/night.json") != before {
		t.Errorf("once more: %v", err)
	}
	m.status = func(site int) int { return []int{200, 403}[site%2] }
	if n := m.night(); n.State != Held || n.Out[0].Nights != 5 {
		t.Errorf("bounds are learnt from %+v", n.Out)
	}
	o.Keep = Keep{Nights: 1}
	var log strings.Builder
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Prune(t.Context(), o, true); err != nil || !strings.Contains(log.String(), `nothing was deleted" nights="[2026-11-03 2026-11-04]"`) {
		t.Errorf("a dry run: %v\n%s", err, &log)
	}
	is("03 04b 05b 06b", "01 02 03 04 05")
	if err := Prune(t.Context(), o, false); err != nil {
		t.Error(err)
	}
	is("05b 06b", "01 02 03 04 05")
}

// TestFiguresOfPruned finds the figures of pruned nights among many other scans of their dates.
func TestFiguresOfPruned(t *testing.T) {
	o := &Options{Store: newTeam(t).store}
	of, other := commit.Observer{Product: "bulkscan"}, commit.Observer{Product: "other"}
	record := &commit.Pruned{Through: "2026-11-20"}
	for day := 1; day <= 20; day++ {
		date := fmt.Sprintf("2026-11-%02d", day)
		n := &Night{SchemaVersion: schema.Version, Date: date, ScanID: "night-" + date, Figures: &Figures{Sites: int64(day)}}
		if err := n.write(t.Context(), o.Store); err != nil {
			t.Fatal(err)
		}
		record.Scans = append(record.Scans, commit.PrunedScan{ScanID: n.ScanID, ScanDate: date, Observer: of, ListID: "top"})
		for i := range 24 {
			scan := commit.PrunedScan{ScanID: fmt.Sprintf("scan-%s-%d", date, i), ScanDate: date, Observer: other, ListID: "top"}
			if i%2 == 0 {
				scan.Observer, scan.ListID = of, "other"
			}
			record.Scans = append(record.Scans, scan)
		}
	}
	if err := commit.Change(t.Context(), o.Store, nil, func(h *commit.Head, _ store.Unlocker) error {
		return h.Prune(t.Context(), record, nil, nil)
	}); err != nil {
		t.Fatal(err)
	}
	f := func(date, want string, there ...*commit.Manifest) {
		t.Helper()
		figures, err := o.pruned(t.Context(), &commit.Manifest{ScanDate: date, Observer: of, ListID: "top"}, there)
		got := ""
		for _, f := range figures {
			got += fmt.Sprintf("%d ", f.Sites)
		}
		if err != nil || got != want {
			t.Errorf("before %s: the figures are those of the nights %s, %v, want %s", date, got, err, want)
		}
	}
	f("2026-11-21", "7 8 9 10 11 12 13 14 15 16 17 18 19 20 ")
	f("2026-11-04", "1 2 3 ")
	f("2026-11-04", "1 3 ", &commit.Manifest{ScanID: "night-2026-11-02"})
}

// TestKeepFew shows that a wrong clock or setting deletes nothing by itself: a person decides.
func TestKeepFew(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it makes many nights, which -short leaves out")
	}
	m := newTeam(t)
	for range 10 {
		m.night()
	}
	scans := func() int {
		t.Helper()
		scans, err := commit.Scans(t.Context(), m.store)
		if err != nil {
			t.Fatal(err)
		}
		return len(scans)
	}
	o := m.options()
	o.Date, o.Keep = "2027-01-10", Keep{Nights: 60}
	if err := Prune(t.Context(), o, false); err == nil || !strings.Contains(err.Error(), "is in the future") || scans() != 10 {
		t.Errorf("--prune of a later date: %v", err)
	}
	for _, c := range []struct {
		keep Keep
		many string // of the refusal
		left int
	}{
		{Keep{Nights: 400}, "", 11},
		{Keep{Nights: 4}, "nights of 8 dates", 12}, // 4d for 400d
		{Keep{Bodies: 4}, "bodies of 9 dates", 13},
		{Keep{Nights: 7}, "", 7}, // seven dates
	} {
		m.keep = c.keep
		n := m.night()
		if n.State != Published || n.Error != "" || !strings.Contains(n.PruneError, c.many) || (c.many == "") != (n.PruneError == "") || scans() != c.left {
			t.Errorf("%+v: %d scans are left, and the night is %+v", c.keep, scans(), n)
		}
	}
	for i, date := range []string{"2036-01-01", "2036-01-02"} { // the clock has jumped
		o := m.options()
		o.Date, o.Keep = date, Keep{Nights: 400}
		n, err := Run(t.Context(), o)
		if err != nil || !strings.Contains(n.PruneError, "nights of 7 dates are too old at once, the first of them 2026-11-08") || scans() != 8+i {
			t.Errorf("the night of %s: %+v, %v", date, n, err)
		}
	}
}

// TestKeepCatchesUp shows that nights which come of age while none is published go afterwards, a few a night.
func TestKeepCatchesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it makes many nights, which -short leaves out")
	}
	m := newTeam(t)
	m.keep = Keep{Nights: 12}
	for range 10 {
		m.night()
	}
	m.now = m.now.AddDate(0, 0, 9)
	for _, gone := range []int{7, 2, 1, 0} { // of eight, then with those that come of age
		if n := m.night(); n.State != Published || n.PruneError != "" || n.Pruned == nil && gone > 0 || n.Pruned != nil && len(n.Pruned.Nights) != gone {
			t.Errorf("the night of %s deletes %+v (%s), want %d", n.Date, n.Pruned, n.PruneError, gone)
		}
	}
	m.sound("after a pause")
}

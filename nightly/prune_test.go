package nightly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// fullStore is a store without room for the record of pruned nights.
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

// TestKeep prunes at the end of each night. A night whose pruning fails is published, and the next run prunes.
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
	if n := m.night(); n.State != Published || n.Pruned == nil || !slices.Equal(n.Pruned.Nights, []string{"2026-11-01"}) ||
		n.Pruned.Bodies != 1 || n.Changes.From != "2026-11-03" {
		t.Errorf("%+v", n)
	}
	is("02 03b 04b", "01 02 03 04")

	full.full = true
	n, err := Run(t.Context(), m.options())
	if err == nil || n.State != Published || !strings.Contains(n.Error, "no space left") || !strings.Contains(m.told[4],
		"is published; cannot prune") {
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
	if err := Prune(t.Context(), o, 0, true); err != nil || !strings.Contains(log.String(),
		`nothing was deleted" nights="[2026-11-03 2026-11-04]"`) {
		t.Errorf("a dry run: %v\n%s", err, &log)
	}
	is("03 04b 05b 06b", "01 02 03 04 05")
	if err := Prune(t.Context(), o, 2, false); err != nil {
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
	if err := commit.Change(t.Context(), o.Store, nil, func(h *commit.Head) error {
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

// brokenStore cannot delete files of scans.
type brokenStore struct {
	store.Store
	broken bool
}

func (s *brokenStore) Delete(ctx context.Context, name string) error {
	if s.broken && strings.Contains(name, "scan_date=") {
		return errors.New("it is broken")
	}
	return s.Store.Delete(ctx, name)
}

// TestKeepHalf shows that more than half of the nights, or of those with a table, are deleted only if a person gives
// their number.
func TestKeepHalf(t *testing.T) {
	made := newTeam(t)
	for range 10 {
		made.night()
	}
	const all = " 01be 02be 03be 04be 05be 06be 07be 08be 09be 10be"
	f := func(keep Keep, refusal string, accept int, left string) {
		t.Helper()
		m := teamOn(t, storetest.NewDisk())
		for entry, err := range made.store.List(t.Context(), "") {
			if err == nil {
				err = m.store.Put(t.Context(), entry.Name, []byte(made.read(entry.Name)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		broken := &brokenStore{Store: m.store}
		m.store = broken
		there := func(want string) {
			t.Helper()
			got := ""
			scans, err := commit.Scans(t.Context(), m.store)
			for _, s := range scans {
				got += " " + s.ScanDate[8:]
				for _, table := range []string{schema.Bodies, schema.Evidence} {
					if slices.Contains(s.Tables, table) {
						got += table[:1]
					}
				}
			}
			if err != nil || got != want {
				t.Errorf("%+v: there are%s, %v, want%s", keep, got, err, want)
			}
		}
		o := m.options()
		o.Date, o.Keep = "2026-11-10", keep
		o.Now = func() time.Time { return time.Date(2026, 11, 10, 7, 0, 0, 0, time.UTC) }
		if refusal != "" {
			refusal += fmt.Sprintf(
				"; if the clock and the settings are right, `bulkscan nightly … --prune --accept-pruning %d` deletes them", accept)
			n, err := Run(t.Context(), o)
			if err != nil || n.State != Published || n.Error != "" ||
				n.PruneError != "nothing was pruned, since more than half would go: "+refusal {
				t.Errorf("%+v: the night is %+v, %v, want %s", keep, n, err, refusal)
			}
			there(all)
			var log strings.Builder
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			if err := Prune(t.Context(), o, 0, true); err != nil || !strings.Contains(log.String(), refusal) ||
				!strings.Contains(log.String(), "a dry run: nothing was deleted") {
				t.Errorf("%+v: a dry run says %s, %v", keep, &log, err)
			}
			for _, other := range []int{0, 1, accept - 1, accept + 1, 10} {
				if err := Prune(t.Context(), o, other, false); err == nil || !strings.Contains(err.Error(), refusal) {
					t.Errorf("%+v: %d is accepted: %v", keep, other, err)
				}
			}
			there(all)
			broken.broken = true
			if err := Prune(t.Context(), o, accept, false); err == nil || !strings.Contains(err.Error(), "it is broken") {
				t.Errorf("%+v: %v", keep, err)
			}
			broken.broken = false
		}
		if n, err := Run(t.Context(), o); err != nil || n.State != Published || n.PruneError != "" { // it does the rest
			t.Errorf("%+v: %+v, %v", keep, n, err)
		}
		there(left)
		if n, err := Run(t.Context(), o); err != nil || n.PruneError != "" {
			t.Errorf("%+v: again: %+v, %v", keep, n, err)
		}
		m.sound(fmt.Sprintf("%+v", keep))
	}
	f(Keep{Nights: 5}, "", 0, " 06be 07be 08be 09be 10be")
	f(Keep{Nights: 4}, "6 of 10 nights, 2026-11-01 to 2026-11-06", 6, " 07be 08be 09be 10be")
	if testing.Short() {
		return
	}
	f(Keep{Nights: 400}, "", 0, all)
	f(Keep{Nights: 1}, "9 of 10 nights, 2026-11-01 to 2026-11-09", 9, " 10be")
	f(Keep{Bodies: 5}, "", 0, " 01e 02e 03e 04e 05e 06be 07be 08be 09be 10be")
	f(Keep{Bodies: 3}, "bodies of 7 of 10 nights, 2026-11-01 to 2026-11-07", 7,
		" 01e 02e 03e 04e 05e 06e 07e 08be 09be 10be")
	f(Keep{Evidence: 4}, "evidence of 6 of 10 nights, 2026-11-01 to 2026-11-06", 6,
		" 01b 02b 03b 04b 05b 06b 07be 08be 09be 10be")
	f(Keep{Nights: 8, Bodies: 2, Evidence: 6},
		"2 of 10 nights, bodies of 6 of 8 nights, evidence of 2 of 8 nights, 2026-11-01 to 2026-11-08", 8,
		" 03 04 05e 06e 07e 08e 09be 10be")
}

// TestKeepAfterAPause shows that among few nights one is deleted each night, and that nights from before a pause are
// deleted once there are as many new ones.
func TestKeepAfterAPause(t *testing.T) {
	m := newTeam(t)
	m.keep = Keep{Nights: 1, Bodies: 1}
	for night := range 3 {
		if n := m.night(); n.State != Published || n.PruneError != "" || (n.Pruned != nil) != (night > 0) {
			t.Errorf("%+v", n)
		}
	}
	m = newTeam(t)
	m.keep = Keep{Nights: 3}
	for range 4 {
		m.night()
	}
	m.now = m.now.AddDate(0, 0, 9)
	o := m.options()
	o.Date = m.now.Format(time.DateOnly)
	n, err := Run(t.Context(), o)
	for night := 1; night <= 4; night++ {
		if m.now = m.now.AddDate(0, 0, 1); err != nil || n.State != Published || (n.PruneError == "") != (night >= 3) ||
			(n.Pruned != nil) != (night >= 3) {
			t.Errorf("after a pause, night %d: %+v, %v", night, n, err)
		}
		n, err = Run(t.Context(), m.options())
	}
	m.sound("after a pause")
}

// TestPruneOfLaterDates shows that a person cannot delete nights that are not too old yet.
func TestPruneOfLaterDates(t *testing.T) {
	m := newTeam(t)
	m.night()
	o := m.options()
	o.Date, o.Keep = "2027-01-10", Keep{Nights: 60}
	if err := Prune(t.Context(), o, 1, false); err == nil || !strings.Contains(err.Error(), "is in the future") ||
		m.ledger() != "01" {
		t.Errorf("--prune of a later date: %v", err)
	}
}

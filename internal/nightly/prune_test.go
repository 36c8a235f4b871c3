package nightly

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// fullStore has no room for the record of what is pruned.
type fullStore struct {
	store.Store
	full bool
}

func (s *fullStore) Put(ctx context.Context, name string, data []byte) error {
	if s.full && name == schema.PrunedName {
		return errors.New("no space left")
	}
	return s.Store.Put(ctx, name, data)
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
		m.sound(scans)
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
	if err := Prune(t.Context(), o); err != nil {
		t.Error(err)
	}
	is("05b 06b", "01 02 03 04 05")
}

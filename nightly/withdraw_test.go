package nightly

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/verify"
)

// TestWithdraw withdraws published nights, among them the newest and a lost one: no reader finds them, the head keeps
// the reason, and later nights continue. A night that is released again has its old place.
func TestWithdraw(t *testing.T) {
	m := newTeam(t)
	for range 4 {
		m.night()
	}
	if got := m.ledger(); got != "01 02 03 04" {
		t.Fatal(got)
	}
	latest := m.read(LatestSummary)
	withdraw := func(date, why string) {
		t.Helper()
		o := m.options()
		o.Date = date
		n, err := Withdraw(t.Context(), o, why)
		if err != nil || n.State != Discarded || !strings.HasSuffix(n.Error, why) {
			t.Fatalf("%+v, %v", n, err)
		}
		h, err := commit.ReadHead(t.Context(), m.store)
		if err != nil {
			t.Fatal(err)
		}
		named, err := h.All(t.Context())
		if err != nil || !slices.ContainsFunc(named, func(s commit.Named) bool {
			return s.ScanDate == date &&
				s.Publication == commit.PublicationDiscarded
		}) {
			t.Errorf("%+v, %v", named, err)
		}
	}
	withdraw("2026-11-04", "the resolver was down")
	if got := m.ledger(); got != "01 02 03" || m.read(LatestSummary) == latest || !strings.Contains(m.read(LatestSummary),
		"night-2026-11-03") {
		t.Errorf("the history has the nights %s, the summary is %.200s", got, m.read(LatestSummary))
	}
	m.sound("withdrawn")
	o := m.options()
	o.Date = "2026-11-04"
	if _, err := Release(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := m.ledger(); got != "01 02 03 04" || m.read(LatestSummary) != latest {
		t.Errorf("released again: the history has the nights %s, the summary is %s\nand was %s", got, m.read(LatestSummary),
			latest)
	}
	m.sound("released again")

	for entry, err := range m.store.List(t.Context(), "") {
		if err == nil && strings.Contains(entry.Name, "night-2026-11-02") {
			err = m.store.Delete(t.Context(), entry.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	if _, err := verify.Dataset(t.Context(), m.store, verify.Options{Report: func(f verify.Finding) {
		if f.Kind == verify.Damaged && f.File == commit.ManifestName("night-2026-11-02") {
			found++
		}
	}}); err != nil || found != 1 {
		t.Errorf("a lost night: %d findings, %v", found, err)
	}
	if n := m.night(); n.State != Published || m.ledger() != "01 02 03 04 05" || !strings.Contains(m.read("report.html"),
		"left out: ") {
		t.Errorf("with a lost night: %+v, the history has the nights %s", n, m.ledger())
	}
	withdraw("2026-11-02", "its disk is lost")
	if got := m.ledger(); got != "01 03 04 05" {
		t.Errorf("without the lost night the history has the nights %s", got)
	}
	m.sound("a lost night is withdrawn")
	m.night()
	o.Date = "2026-11-07"
	if _, err := Withdraw(t.Context(), o, ""); err == nil || !strings.Contains(err.Error(),
		"there is no night of 2026-11-07") {
		t.Error(err)
	}
}

// TestNightWithoutHead loses the heads that published the last night: the night's record says so, and the next night
// publishes it again.
func TestNightWithoutHead(t *testing.T) {
	m := newTeam(t)
	m.night()
	before, err := commit.ReadHead(t.Context(), m.store)
	if err != nil {
		t.Fatal(err)
	}
	m.night()
	now, err := commit.ReadHead(t.Context(), m.store)
	if err != nil {
		t.Fatal(err)
	}
	for n := now.Number; n > before.Number; n-- {
		if err := m.store.Delete(t.Context(), (&commit.Head{Number: n}).Name()); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	if err := Verify(t.Context(), m.store, func(f verify.Finding) { found = append(found, f.String()) }); err != nil ||
		len(found) != 1 || !strings.Contains(found[0], "no head names its scan") {
		t.Errorf("%q, %v", found, err)
	}
	m.night()
	if got := m.ledger(); got != "01 02 03" {
		t.Errorf("the history has the nights %s", got)
	}
	m.sound("the next night has published it again")
}

// TestNightWithoutRecord deletes the record of a night: that is damage while its scan counts, until the rest of the
// night's folder is gone or its scan is withdrawn.
func TestNightWithoutRecord(t *testing.T) {
	m := newTeam(t)
	m.night()
	m.night()
	all, err := dates(t.Context(), m.store)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	f := func(when string, want ...string) {
		t.Helper()
		var found []string
		if err := Verify(t.Context(), m.store, func(f verify.Finding) { found = append(found, f.File) }); err != nil ||
			!slices.Equal(found, want) {
			t.Errorf("%s: %q, %v", when, found, err)
		}
		list, err := Listing(t.Context(), m.store)
		list = slices.DeleteFunc(list, func(e *Entry) bool { return e.State != Damaged })
		if err != nil || len(list) != len(want) || len(want) > 0 && !strings.HasPrefix(want[0], folderOf(list[0].Date)) {
			t.Errorf("%s: listed %+v, %v", when, list, err)
		}
	}
	f("whole")
	for _, date := range all {
		if err := m.store.Delete(t.Context(), folderOf(date)+recordName); err != nil {
			t.Fatal(err)
		}
	}
	f("deleted", folderOf(all[0])+recordName, folderOf(all[1])+recordName)
	if err := scan.Withdraw(t.Context(), m.store, scanOf(all[1]), "its record is lost",
		m.options().Publishing); err != nil {
		t.Fatal(err)
	}
	f("withdrawn", folderOf(all[0])+recordName)
	for entry, err := range m.store.List(t.Context(), folderOf(all[0])) {
		if err := errors.Join(err, m.store.Delete(t.Context(), entry.Name)); err != nil {
			t.Fatal(err)
		}
	}
	f("its folder is deleted")
}

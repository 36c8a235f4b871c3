package nightly

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestListing lists a dataset that has scans and nights of every state, sound, pruned, damaged, newer and lost.
func TestListing(t *testing.T) {
	m := newTeam(t)
	m.keep = Keep{Nights: 3, Bodies: 2}
	if list, err := Listing(t.Context(), m.store); len(list) > 0 || err != nil {
		t.Errorf("an empty dataset: %v, %v", list, err)
	}
	for range 4 {
		m.night()
	}
	m.status = func(site int) int { return []int{200, 403}[site%2] }
	m.night() // 5, held
	o := m.options()
	o.Date = "2026-11-05"
	if _, err := Discard(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	m.night() // 6, held
	m.calm(200)
	m.fails = errors.New("no space left")
	if _, err := Run(t.Context(), m.options()); err == nil {
		t.Fatal("the night did not fail")
	}
	w, err := sink.Open(t.Context(), m.store, sink.Options{ScanID: "by-hand", Date: "2026-11-06", PartRows: 64,
		NoPublish: true, ListID: "top", Registry: tokens.Default()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(siteOf(0, "a.test", 200)), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	listed := func() (lines []string) {
		t.Helper()
		list, err := Listing(t.Context(), m.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			line := fmt.Sprint(e.Date, " ", e.ScanID, " ", e.State, " ", e.Sites, " ", e.Publication, " ", e.ListID, " -",
				strings.Join(e.Pruned, ","))
			if e.Bytes > 0 {
				line += " bytes"
			}
			if e.Note != "" {
				line += " note"
			}
			lines = append(lines, line)
		}
		return lines
	}
	is := func(when string, want ...string) {
		t.Helper()
		if got := listed(); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	all := []string{
		"2026-11-01 night-2026-11-01 published 200 published  -sites,verdicts,evidence,policies",
		"2026-11-02 night-2026-11-02 published 200 published  -bodies bytes",
		"2026-11-03 night-2026-11-03 published 200 published  - bytes",
		"2026-11-04 night-2026-11-04 published 200 published  - bytes",
		"2026-11-05 night-2026-11-05 discarded 200 discarded  - bytes",
		"2026-11-06 night-2026-11-06 held 200 held  - bytes note",
		"2026-11-06 by-hand running 0  top - bytes",
		"2026-11-07 night-2026-11-07 failed 0   - bytes note",
	}
	is("sound", all...)

	put := func(name, text string) {
		t.Helper()
		if err := m.store.Put(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put(folderOf("2026-11-03")+recordName, "{")
	put(commit.ManifestName("night-2026-11-05"), "{")
	put(commit.ManifestName("by-hand"), "{")
	newer := &Night{SchemaVersion: schema.Version + 1, Date: "2026-11-06", ScanID: "night-2026-11-06"}
	if err := newer.write(t.Context(), m.store); err != nil {
		t.Fatal(err)
	}
	if err := m.store.Delete(t.Context(), commit.ManifestName("night-2026-11-04")); err != nil {
		t.Fatal(err)
	}
	is("damaged", " by-hand damaged 0   - bytes note",
		all[0], all[1],
		"2026-11-03 night-2026-11-03 damaged 200 published  - bytes note",
		"2026-11-04 night-2026-11-04 damaged 0   - bytes note",
		"2026-11-05 night-2026-11-05 damaged 0   - bytes note",
		"2026-11-06 night-2026-11-06 newer 200 held  - bytes note", all[7])
}

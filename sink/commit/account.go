package commit

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file checks whether the records of a scan account for everything that it committed. A loss shows as a gap in a
// shard's commit numbers, or as totals of a complete scan's manifest that its commits do not reach. Every command
// checks this before it builds on a scan, so that it computes no result from an incomplete one.

// Total is a total of a complete scan's manifest that differs from the sum over its commits.
type Total struct {
	What     string `json:"what" about:"rows, table_rows.TABLE, parts, bytes"`
	Expected int64  `json:"expected" about:"in manifest"`
	Found    int64  `json:"found" about:"in commits"`
}

// LostError lists the committed data of a scan that is missing.
type LostError struct {
	Records []string // names of missing commit records that other records imply, each with a reason
	Totals  []Total
	Files   []string // names of committed files that are missing or damaged
	Remedy  string   // by default DamageRemedy
}

func (e *LostError) Error() string {
	what := e.Records
	for _, t := range e.Totals {
		what = append(what[:len(what):len(what)], fmt.Sprintf("%s: %d of %d", t.What, t.Found, t.Expected))
	}
	if n := len(e.Files); n > 0 {
		what = append(what[:len(what):len(what)], fmt.Sprintf("%d committed files are missing or damaged, the first is %s", n,
			e.Files[0]))
	}
	return fmt.Sprintf("some of its committed data is lost (%s); %s", strings.Join(what, "; "),
		cmp.Or(e.Remedy, DamageRemedy))
}

// LostFiles returns a *LostError of these files; nil for none.
func LostFiles(files []string, remedy string) error {
	if len(files) == 0 {
		return nil
	}
	return &LostError{Files: files, Remedy: remedy}
}

// Lost returns what is missing of a scan, or nil if its records show no loss. While a scan is written, only the holder
// of its lock gets a reliable answer: a listing may contain a record and lack the one before it.
func (h *History) Lost(m *Manifest) *LostError {
	e := &LostError{Totals: m.Unaccounted(h.Current)}
	var shards []string
	for _, g := range h.Gaps() {
		shards = append(shards, g.Shard)
		e.Records = append(e.Records, RecordName(m.ScanID, g.Shard, g.From)+": "+g.Missing())
	}
	if len(e.Records)+len(e.Totals) == 0 {
		return nil
	}
	if e.Remedy = m.Remedy(shards...); m.Rejudged != nil {
		e.Remedy = "restore the files that bulkscan verify names; or make what is lost again by the same bulkscan reaudit"
	}
	return e
}

// Unaccounted compares the totals of a complete scan with its commits. An incomplete scan has no totals.
func (m *Manifest) Unaccounted(commits []Commit) (wrong []Total) {
	if m.State != Complete {
		return nil
	}
	expected, found := m.Counts, CountCommits(commits)
	if expected == nil {
		expected = &Counts{}
	}
	compare := func(what string, expected, found int64) {
		if expected != found {
			wrong = append(wrong, Total{what, expected, found})
		}
	}
	// Each site counts once. A damaged bitmap is left out.
	sites, _ := SitesOf(commits)
	compare("rows", expected.Rows, int64(sites.GetCardinality()))
	for _, table := range schema.AllTables {
		if !m.pruned(table) {
			compare("table_rows."+table, expected.Files[table], found.Files[table])
		}
	}
	// A compaction decreases the number of parts and updates the totals last. If it was killed, the totals are older.
	most, merged := 0, false
	for i := range commits {
		_, parts := commits[i].Written()
		most += parts
		merged = merged || commits[i].Shard == CompactedShard
	}
	if expected.Parts < found.Parts || expected.Parts > most {
		compare("parts", int64(expected.Parts), int64(found.Parts))
	}
	if !merged && len(m.Pruned) == 0 {
		compare("bytes", expected.Bytes, found.Bytes)
	}
	return wrong
}

// SitesOf unites the bitmaps of commits. It skips bitmaps that it cannot read and returns the first such error.
func SitesOf(commits []Commit) (*roaring64.Bitmap, error) {
	all := roaring64.New()
	var first error
	for i := range commits {
		finished, err := commits[i].Bitmap()
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		all.Or(finished)
	}
	return all, first
}

// CountCommits sums the rows, parts and bytes of commits.
func CountCommits(commits []Commit) *Counts {
	counts := &Counts{Parts: len(commits), Files: map[string]int64{}}
	for _, c := range commits {
		counts.Rows += c.Rows
		for _, f := range c.Files {
			counts.Bytes += f.Bytes
			counts.Files[f.Table] += f.Rows
		}
	}
	return counts
}

package commit

import (
	"fmt"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file says whether the records of a scan account for all that it has committed. Two things tell of a loss: a shard
// numbers its commits without gaps, and the manifest of a complete scan has its totals. Every command asks here before it
// builds on a scan: whatever were computed, merged or written anew from the rest would pass for the whole.

// Total is a total in the manifest of a complete scan that its commits do not come to.
type Total struct {
	What     string `json:"what"` // its name among the counts of the manifest
	Expected int64  `json:"expected"`
	Found    int64  `json:"found"`
}

// LostError says what is missing of what a scan has committed.
type LostError struct {
	Records []string // commit records that are missing, as far as others tell of them
	Totals  []Total

	rejudged bool // and were made of stored sites
}

func (e *LostError) Error() string {
	what := e.Records
	for _, t := range e.Totals {
		what = append(what[:len(what):len(what)], fmt.Sprintf("%s: %d of %d", t.What, t.Found, t.Expected))
	}
	remedy := DamageRemedy
	if e.rejudged {
		remedy = "put back what was there, see bulkscan verify; or have what is lost made again by the same bulkscan reaudit"
	}
	return fmt.Sprintf("some of what it had committed is lost (%s); %s", strings.Join(what, "; "), remedy)
}

// Lost says what of a scan is missing; nil is nothing that its records tell of. Of a scan that is being written, only who holds
// the lock can tell: a listing may have a record and not the one before.
func (h *History) Lost(m *Manifest) *LostError {
	e := &LostError{Totals: m.Unaccounted(h.Current), rejudged: m.Rejudged != nil}
	for _, g := range h.Gaps() {
		e.Records = append(e.Records, RecordName(m.ScanID, g.Shard, g.From)+": "+g.Missing())
	}
	if len(e.Records)+len(e.Totals) == 0 {
		return nil
	}
	return e
}

// Unaccounted holds the commits that count against the totals of a complete scan. Others have none.
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
	// Each site counts once; what a damaged bitmap says is not known.
	sites, _ := SitesOf(commits)
	compare("rows", expected.Rows, int64(sites.GetCardinality()))
	for _, table := range schema.AllTables {
		compare("table_rows."+table, expected.Files[table], found.Files[table])
	}
	// Merging makes fewer parts of them, and the totals follow last: those of a compaction that was killed are older.
	most, merged := 0, false
	for i := range commits {
		_, parts := commits[i].Written()
		most += parts
		merged = merged || commits[i].Shard == CompactedShard
	}
	if expected.Parts < found.Parts || expected.Parts > most {
		compare("parts", int64(expected.Parts), int64(found.Parts))
	}
	if !merged {
		compare("bytes", expected.Bytes, found.Bytes)
	}
	return wrong
}

// SitesOf unites the bitmaps of commits. With the error of the first that cannot be read come those of the others.
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

// CountCommits adds up what commits hold.
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

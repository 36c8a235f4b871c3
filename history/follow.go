package history

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// The ledger follows one live observer at a time, and every archive. Scans of other observers stay outside. An observer
// is followed as long as it has later scans. After its last scan, an observer that has no scan up to that date succeeds
// at once: a new User-Agent, for example. An observer that has scanned beside it succeeds after a week, since the
// followed observer's night may only be late. Among several, one from the same vantage succeeds, else the one that
// began first. So the scans of another night rarely change the ledger's entries of earlier nights.

// successionDays is that week.
const successionDays = 7

// follow returns the scans that the ledger merges, in that order, and the live observer that it follows at the end;
// without live scans, the observer of the archives.
func follow(scans []MergedScan) (followed []MergedScan, observer commit.Observer) {
	reigns := map[commit.Observer]*reign{}
	for _, s := range scans {
		if s.isArchive() {
			continue
		}
		if reigns[s.Observer] == nil {
			reigns[s.Observer] = &reign{observer: s.Observer, first: s.ScanDate, last: s.ScanDate}
		}
		r := reigns[s.Observer]
		r.first, r.last = min(r.first, s.ScanDate), max(r.last, s.ScanDate)
	}
	followed = make([]MergedScan, 0, len(scans))
	var current *reign
	for tonight := range byNight(scans) {
		if current == nil || current.last < tonight[0].ScanDate {
			if next := successor(tonight, reigns, current); next != nil {
				current = next
			}
		}
		for _, s := range tonight {
			if s.isArchive() || reigns[s.Observer] == current {
				followed, observer = append(followed, s), s.Observer
			}
		}
	}
	if current != nil {
		observer = current.observer
	}
	return followed, observer
}

// byNight yields the scans of each date, in order.
func byNight(scans []MergedScan) iter.Seq[[]MergedScan] {
	return func(yield func([]MergedScan) bool) {
		scans = slices.Clone(scans)
		slices.SortFunc(scans, func(a, b MergedScan) int {
			return cmp.Or(strings.Compare(a.ScanDate, b.ScanDate), strings.Compare(a.ScanID, b.ScanID))
		})
		for len(scans) > 0 {
			n := 1
			for n < len(scans) && scans[n].ScanDate == scans[0].ScanDate {
				n++
			}
			if !yield(scans[:n:n]) {
				return
			}
			scans = scans[n:]
		}
	}
}

// reign is when a live observer has scans.
type reign struct {
	observer    commit.Observer
	first, last string // dates
}

// successor returns the observer of a night that succeeds an observer without further scans, nil for none.
func successor(tonight []MergedScan, reigns map[commit.Observer]*reign, before *reign) *reign {
	var next *reign
	var rank int
	var started time.Time
	for _, s := range tonight {
		if s.isArchive() {
			continue
		}
		r, its := reigns[s.Observer], 0
		switch {
		case before != nil && r.first > before.last && s.Observer.Vantage == before.observer.Vantage:
			its = 3 // if two places changed their User-Agent in one night, the same place
		case before == nil, r.first > before.last:
			its = 2
		case daysBetween(before.last, s.ScanDate) >= successionDays:
			its = 1
		}
		if its > rank || its == rank && next != nil && s.StartedAt.Before(started) {
			next, rank, started = r, its, s.StartedAt
		}
	}
	return next
}

func daysBetween(from, to string) int {
	a, errA := ParseDate(from)
	b, errB := ParseDate(to)
	if errA != nil || errB != nil { // manifests have no invalid dates
		return 0
	}
	return int(b - a)
}

package history

import (
	"cmp"
	"slices"
)

// Arrange sorts a night's observations by site and keeps one a site: the one fetched last. It changes the slice and
// returns a part of it.
func Arrange(night []Observation) []Observation {
	night, _ = keepOne(night, func(a, b Observation) int {
		return cmp.Or(cmp.Compare(a.FetchedAt, b.FetchedAt), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Policy, b.Policy))
	})
	return night
}

// Fold does the same for the observations of one archive, whose captures of a host by https and by http have the same
// Site and still their own Requested. A capture by https counts before one by http, and any before none. disagree is
// the number of hosts whose two captures say different things.
func Fold(archive []Observation) (sites []Observation, disagree int) {
	rank := func(o Observation) int {
		switch {
		case o.Finding == notAsked, o.Finding == Carried:
			return 0
		case o.Requested == "http":
			return 1
		}
		return 2
	}
	sites, disagree = keepOne(archive, func(a, b Observation) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.FetchedAt, b.FetchedAt), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Policy, b.Policy))
	})
	for i := range sites {
		if sites[i].Requested != "ftp" {
			sites[i].Requested = "auto"
		}
	}
	return sites, disagree
}

// keepOne sorts by site and keeps the highest observation of each. disagree counts the sites that were requested by
// https and by http, and have two observations that differ.
func keepOne(night []Observation, compare func(a, b Observation) int) (kept []Observation, disagree int) {
	slices.SortFunc(night, func(a, b Observation) int {
		if a.Site != b.Site {
			return cmp.Compare(a.Site, b.Site)
		}
		return compare(b, a)
	})
	n := 0
	for i := 0; i < len(night); {
		best, differs := night[i], false
		for ; i < len(night) && night[i].Site == best.Site; i++ {
			o := &night[i]
			differs = differs || o.Requested != best.Requested && !isGap(o.Finding) && !isGap(best.Finding) && o.Policy != best.Policy
		}
		if differs {
			disagree++
		}
		night[n] = best
		n++
	}
	return night[:n], disagree
}

package history

import (
	"cmp"
	"slices"
)

// Arrange sorts a night's observations by site. It changes the slice and returns a part of it, without sites that share an id: each
// site has one observation, since package units chooses.
func Arrange(night []Observation) []Observation {
	slices.SortFunc(night, func(a, b Observation) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Host, b.Host))
	})
	return slices.CompactFunc(night, func(a, b Observation) bool { return a.Site == b.Site })
}

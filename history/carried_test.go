package history

import "testing"

// TestFoldCarried checks that what an archive carried forward counts before nothing: a capture by the other scheme is the observation.
func TestFoldCarried(t *testing.T) {
	for _, unseen := range []string{Carried, notAsked} {
		sites, disagree := Fold([]Observation{
			{Site: 1, Requested: "https", Finding: unseen, FetchedAt: 9},
			{Site: 1, Requested: "http", Finding: ClassRules, Policy: 7},
			{Site: 2, Requested: "https", Finding: unseen},
		})
		if len(sites) != 2 || sites[0].Policy != 7 || sites[0].Finding != ClassRules || disagree != 0 || sites[1].Finding != unseen {
			t.Errorf("%s: %+v, %d", unseen, sites, disagree)
		}
		if got := gapOf(&sites[1]); got != unseen {
			t.Errorf("%s is a gap of class %q", unseen, got)
		}
	}
}

package commit

import "testing"

// TestCounts shows which parts of a shard count, by its history.
func TestCounts(t *testing.T) {
	f := func(h History, want ...bool) {
		t.Helper()
		for part := range want {
			if h.Counts("0", part) != want[part] {
				t.Errorf("part %d counts: %v", part, !want[part])
			}
		}
	}
	of := func(n int, why Tombstone) Commit {
		return Commit{Shard: "0", N: n, Tombstone: why}
	}
	f(History{}, false)
	f(History{Current: []Commit{of(0, ""), of(1, ""), {Shard: "1", N: 7}}}, true, true, false)
	f(History{Current: []Commit{of(0, ""), of(2, "")}, Tombstones: []Commit{of(1, TakenOver)}}, true, false, true, false)
	f(History{Current: []Commit{of(3, "")}, Tombstones: []Commit{of(2, Restarted)}}, false, false, false, true, false)
	// 0 was missing
	takesOut := Commit{Shard: CompactedShard, N: 1, Tombstone: Restarted, Replaces: []Replaced{{Shard: "0", N: 1},
		{Shard: CompactedShard}}}
	f(History{Tombstones: []Commit{takesOut}}, false, false, false)
	f(History{Current: []Commit{of(2, ""), {Shard: CompactedShard, N: 2, Replaces: []Replaced{{Shard: "0", N: 3}}}},
		Tombstones: []Commit{takesOut}}, false, false, true, true, false)
	f(History{Current: []Commit{{Shard: CompactedShard, Replaces: []Replaced{{Shard: "0", N: 0}, {Shard: "0", N: 1}}}}},
		true, true, false)
}

package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// TestKeeps shows which checkpoints a ledger keeps: there are few, a dropped one never comes back, and the last
// checkpoint before a night is never further back than four times the nights since.
func TestKeeps(t *testing.T) {
	var kept []int
	for nights := 1; nights <= 4000; nights++ {
		var now []int
		for c := range nights {
			if keeps(nights, c) {
				now = append(now, c)
			}
		}
		for _, c := range now {
			if c != nights-1 && !slices.Contains(kept, c) {
				t.Fatalf("after %d nights, checkpoint %d is back", nights, c)
			}
		}
		if len(now) > 13 {
			t.Fatalf("after %d nights, %d checkpoints", nights, len(now))
		}
		last := 0
		for night := 1; night <= nights; night++ {
			if slices.Contains(now, night-1) {
				last = night - 1
			}
			if redone, since := nights-last, nights-night+1; redone > 4*since {
				t.Fatalf("of %d nights, %d are merged again for night %d", nights, redone, night)
			}
		}
		kept = now
	}
}

// TestCheckpoints publishes nights in random orders, alone or several at once, some of them twice, and withdraws some.
// The ledger always equals one that is derived anew, row by row.
func TestCheckpoints(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		dir := newDir(t)
		waiting := manyNights(t, dir, 20)
		for _, n := range []int{1, 9, 19, 20} {
			id := fmt.Sprint("n", n, "x")
			scanned(t, dir, id, fmt.Sprintf("2026-11-%02d", n), nil, "h1.example=b", "h2.example=a", "other.example=404")
			waiting = append(waiting, id)
		}
		publication(t, dir, commit.PublicationDiscarded, waiting...)
		if seed > 0 {
			rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		}
		var there []string
		for step := 0; len(waiting) > 0; step++ {
			if n := min(1+rng.IntN(4)/2*rng.IntN(4), len(waiting)); rng.IntN(8) > 0 || len(there) == 0 {
				publication(t, dir, commit.PublicationDone, waiting[:n]...)
				there, waiting = append(there, waiting[:n]...), waiting[n:]
			} else {
				i := rng.IntN(len(there))
				publication(t, dir, commit.PublicationDiscarded, there[i])
				waiting, there = append(waiting, there[i]), slices.Delete(there, i, i+1)
			}
			mustUpdate(t, dir)
			if rng.IntN(4) > 0 && len(waiting) > 0 {
				continue
			}
			got := contents(t, dir)
			onlyNamed(t, dir)
			if rng.IntN(2) > 0 || len(waiting) == 0 { // else it goes on
				mustRebuild(t, dir, Options{})
			} else {
				continue
			}
			if want := contents(t, dir); got != want {
				t.Fatalf("seed %d, %q:\n got %s\nwant %s", seed, there, got, want)
			}
		}
	}
}

// TestMergedAgain shows how many nights are merged for a scan that comes late, or after the nights were merged in one
// pass.
func TestMergedAgain(t *testing.T) {
	for _, oneByOne := range []bool{true, false} {
		dir := newDir(t)
		ids := manyNights(t, dir, 28)
		if oneByOne {
			publication(t, dir, commit.PublicationDiscarded, ids...)
			for _, id := range ids {
				publication(t, dir, commit.PublicationDone, id)
				mustUpdate(t, dir)
			}
		}
		mustUpdate(t, dir)
		f := func(night, most int) {
			t.Helper()
			merged := 0
			scanned(t, dir, fmt.Sprint("late", night), fmt.Sprintf("2026-11-%02d", night), nil, "h1.example=b")
			if _, err := Update(t.Context(), dir, Options{Progress: func(Merged) { merged++ }}); err != nil {
				t.Fatal(err)
			}
			if merged != most {
				t.Errorf("one by one %v: for night %d, %d nights were merged, not %d", oneByOne, night, merged, most)
			}
		}
		f(28, 1)
		f(28-1, 2)
		f(28-2, 4)
		f(28-7, 8)
		f(18, 12)
		f(2, 28)
		f(29, 1)
		publication(t, dir, commit.PublicationDiscarded, "late29")
		merged := 0
		if u, err := Update(t.Context(), dir, Options{Progress: func(Merged) { merged++ }}); err != nil || merged > 0 ||
			u.Has("late29") {
			t.Errorf("%d nights are merged after the last one was withdrawn, %v", merged, err)
		}
	}
}

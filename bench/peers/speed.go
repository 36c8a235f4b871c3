package main

import (
	"runtime"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
)

// Workload is what is done with every file.
type Workload struct {
	Name string
	Questions
}

// Workloads returns what is measured: a file that is only parsed, and then asked for one token, some, and as many as a
// survey asks for, on the path that decides most often.
func Workloads() []Workload {
	root := []string{"/"}
	names := registered(150)
	return []Workload{
		{"parse alone", Questions{}},
		{"parse, then `GPTBot` on `/`", Questions{[]string{"GPTBot"}, root}},
		{"parse, then 20 tokens on `/`", Questions{names[:20], root}},
		{"parse, then 150 tokens on `/`", Questions{names, root}},
	}
}

// registered returns the first n names of the registry that RFC 9309 calls product tokens, the AI crawlers' first.
func registered(n int) []string {
	var ai, others []string
	for _, token := range tokens.Default().Tokens {
		switch {
		case !token.ProductToken:
		case token.Category == "ai":
			ai = append(ai, token.Name)
		default:
			others = append(others, token.Name)
		}
	}
	return append(ai, others...)[:n]
}

// Plan is how long is measured.
type Plan struct {
	Rounds int           // turns of each parser
	Turn   time.Duration // a turn lasts at least about this long: as many passes over the pack as it takes
	Budget time.Duration // who would take longer for all turns gets fewer, at least one
}

// DefaultPlan is what committed results are measured by.
var DefaultPlan = Plan{Rounds: 9, Turn: 40 * time.Millisecond, Budget: 15 * time.Second}

// Result is what was measured of a parser, with one pack and workload.
type Result struct {
	Peer
	Times       []time.Duration // of one pass over the pack, by turns
	Ours        []time.Duration // of our pass right before
	Allocations float64         // a file, the fewest of all turns
	Panics      int             // in one pass
	Size        int64           // bytes of a pass
}

// measure lets each parser take turns with ours: ours, theirs, ours, theirs, and so on. What slows the machine down for a
// while slows both. The first result is our own, over all our turns.
//
// Only one processor is used, as by one of a scan's workers that keep all of them busy: whoever makes garbage collects it
// in its own time.
func measure(pack Pack, q Questions, plan Plan, others []Peer) []Result {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ours := newRunner(bulkscan, pack, q, plan)
	runners := make([]*runner, len(others))
	for i, peer := range others {
		runners[i] = newRunner(peer, pack, q, plan)
	}
	for round := range plan.Rounds {
		for _, theirs := range runners {
			if round < theirs.turns {
				theirs.Ours = append(theirs.Ours, ours.turn())
				theirs.turn()
			}
		}
	}
	results := []Result{ours.Result}
	for _, r := range runners {
		results = append(results, r.Result)
	}
	return results
}

// runner runs one parser over one pack.
type runner struct {
	Result
	judge   Judge
	bodies  []Body
	allowed []bool
	passes  int // in a turn
	turns   int
}

// newRunner makes a parser ready by a pass that does not count, from which it learns how long one takes.
func newRunner(peer Peer, pack Pack, q Questions, plan Plan) *runner {
	r := &runner{
		Result:  Result{Peer: peer, Size: pack.Size, Allocations: -1},
		judge:   peer.New(q),
		bodies:  pack.Bodies,
		allowed: make([]bool, q.Len()),
	}
	start := time.Now()
	r.Panics = r.pass()
	took := max(time.Since(start), 1)
	r.passes = 1 + int(plan.Turn/took)
	r.turns = min(max(int(plan.Budget/(took*time.Duration(r.passes))), 1), plan.Rounds)
	return r
}

// turn runs the passes of a turn and returns how long one took. Nobody inherits another's garbage.
func (r *runner) turn() time.Duration {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range r.passes {
		r.pass()
	}
	took := time.Since(start) / time.Duration(r.passes)
	runtime.ReadMemStats(&after)
	r.Times = append(r.Times, took)
	each := float64(after.Mallocs-before.Mallocs) / float64(r.passes*len(r.bodies))
	if r.Allocations < 0 || each < r.Allocations {
		r.Allocations = each
	}
	return took
}

// pass asks about every file once. A refusal is an answer like any other here.
func (r *runner) pass() (panics int) {
	for i := 0; i < len(r.bodies); {
		i = r.from(i, &panics)
	}
	return panics
}

// from goes on from file i to the end, or to behind the next file that the parser panics on.
func (r *runner) from(i int, panics *int) (next int) {
	defer func() {
		if recover() != nil {
			*panics++
			next = i + 1
		}
	}()
	for ; i < len(r.bodies); i++ {
		_ = r.judge(&r.bodies[i], r.allowed)
	}
	return i
}

// Best returns the time of the fastest pass.
func (r *Result) Best() time.Duration { return slices.Min(r.Times) }

// Rate returns MB/s (10⁶ bytes) of a pass.
func (r *Result) Rate(pass time.Duration) float64 { return float64(r.Size) / 1e6 / pass.Seconds() }

// Ratio is how many times as long as ours another parser's passes take.
type Ratio struct{ Best, Median, Min float64 }

// Ratio compares the best passes of both, and by rounds each pass with ours right before.
func (r *Result) Ratio() Ratio {
	rounds := make([]float64, len(r.Times))
	for i := range rounds {
		rounds[i] = float64(r.Times[i]) / float64(r.Ours[i])
	}
	return Ratio{
		Best:   float64(slices.Min(r.Times)) / float64(slices.Min(r.Ours)),
		Median: median(rounds),
		Min:    slices.Min(rounds),
	}
}

// median returns the middle one, of an even number the mean of both.
func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

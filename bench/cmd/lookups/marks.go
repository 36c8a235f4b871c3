package main

import (
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is what must hold, and the figures it is held against.

const (
	leastRate  = 100_000 // look-ups a second
	mostCost   = 0.12    // CPU seconds per 10,000
	mostGrowth = 0.05    // of what is held
	// What grows by less is not memory of names: five million of them by a byte each are more.
	mostBytes = 4 << 20
	mostOpen  = 8 // files or goroutines

	leastPace = 0.98 // of the pace that was meant

	// Of less nothing is claimed.
	fewestSpeed  = 100_000
	fewestLoss   = 100_000
	fewestMemory = 1_000_000
)

// mark is a figure that must hold.
type mark struct {
	what string
	ok   bool
}

// result is what was measured of a contender, turn by turn.
type result struct {
	contender contender
	turns     []*measured
}

func resultOf(all []result, name string) *result {
	for i := range all {
		if all[i].contender.name == name && len(all[i].turns) > 0 {
			return &all[i]
		}
	}
	return nil
}

// over is one figure of all turns.
func (r *result) over(figure func(*measured) float64) (all []float64) {
	for _, m := range r.turns {
		all = append(all, figure(m))
	}
	return all
}

func (r *result) median(figure func(*measured) float64) float64 { return median(r.over(figure)) }

// amiss is how many names had not their address, of all turns.
func (r *result) amiss() (n int) {
	for _, m := range r.turns {
		n += m.Lost + m.Wrong
	}
	return n
}

func (m *measured) names() float64   { return float64(m.Right + m.Wrong + m.Lost) }
func (m *measured) rate() float64    { return m.names() / m.Wall.Seconds() }
func (m *measured) cost() float64    { return m.CPU.Seconds() * 1e4 / m.names() }
func (m *measured) objects() float64 { return float64(m.Objects) / m.names() }
func (m *measured) bytes() float64   { return float64(m.Bytes) / m.names() }
func (m *measured) peak() float64    { return float64(m.PeakRSS) }
func (m *measured) questions() float64 {
	return float64(m.Server.Packets) / (m.names() + float64(m.Warm))
}

// serverCost is the server's own CPU seconds for ten thousand questions.
func (m *measured) serverCost() float64 {
	return m.Server.CPU.Seconds() * 1e4 / float64(max(1, m.Server.Packets))
}

// serverShare is how much of a processor the server used while the names that count were looked up.
func (m *measured) serverShare() float64 { return m.serverCost() * m.questions() * m.rate() / 1e4 }

// speedMarks holds ours against what it must do.
func speedMarks(results []result, names int) []mark {
	r := resultOf(results, ours)
	if r == nil || names < fewestSpeed {
		return nil
	}
	rate, cost := r.median((*measured).rate), r.median((*measured).cost)
	all := []mark{
		{fmt.Sprintf("at least %d look-ups a second (%.0f)", leastRate, rate), rate >= leastRate},
		{fmt.Sprintf("at most %.2f CPU s per 10k (%s)", mostCost, facts.Digits(cost)), cost <= mostCost},
		{fmt.Sprintf("every name has its address (%d have not)", r.amiss()), r.amiss() == 0},
	}
	return all
}

// lossMarks holds what became of the names that ours looked up.
func lossMarks(m *measured, p *plan) []mark {
	if p.names < fewestLoss {
		return nil
	}
	return []mark{
		{fmt.Sprintf("no name of %d is lost (%d are)", p.names, m.Lost), m.Lost == 0 && m.Right+m.Wrong == p.names},
		{fmt.Sprintf("none has a wrong address (%d have)", m.Wrong), m.Wrong == 0},
		{fmt.Sprintf("%.0f look-ups began a second (%.0f)", p.pace, m.Offered), m.Offered >= leastPace*p.pace},
		{fmt.Sprintf("the server lost %v %% of the packets and was late with %v %% (%.2f and %.2f)", p.drop, p.delay, m.share(m.Server.Dropped), m.share(m.Server.Delayed)),
			near(m.share(m.Server.Dropped), p.drop) && near(m.share(m.Server.Delayed), p.delay)},
	}
}

// share is how many of a hundred packets some are.
func (m *measured) share(packets uint64) float64 {
	return 100 * float64(packets) / float64(max(1, m.Server.Packets))
}

// near reports whether a percentage is what it was meant to be: of 100,000 packets, chance leaves it within 0.3.
func near(share, meant float64) bool { return share >= meant-0.3 && share <= meant+0.3 }

// memoryMarks holds what the process held at the end against what it held after the first part.
func memoryMarks(m *measured, names int) []mark {
	if names < fewestMemory || len(m.States) < 2 {
		return nil
	}
	first, last := m.States[0], m.States[len(m.States)-1]
	grown := func(what string, first, last, slack int64) mark {
		return mark{fmt.Sprintf("%s have not grown by more than %.0f %% or %d (from %d to %d)", what, 100*mostGrowth, slack, first, last), steady(first, last, slack)}
	}
	return []mark{
		grown("KB of the live heap", first.Live>>10, last.Live>>10, mostBytes>>10),
		grown("KB of resident memory", first.RSS>>10, last.RSS>>10, mostBytes>>10),
		grown("goroutines", int64(first.Goroutines), int64(last.Goroutines), mostOpen),
		grown("open files", int64(first.Files), int64(last.Files), mostOpen),
		{fmt.Sprintf("every name has its address (%d have not)", m.Lost+m.Wrong), m.Lost+m.Wrong == 0},
	}
}

// steady reports whether something has not grown by more than its share and some slack, whichever is more.
func steady(first, last, slack int64) bool {
	return last-first <= max(int64(mostGrowth*float64(first)), slack)
}

// median is the one in the middle, and of an even number the greater of the two.
func median(all []float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

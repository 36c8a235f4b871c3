package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// speed lets all contenders take turns, round by round, so that what slows the machine down for a while slows all.
func (l *lab) speed(ctx context.Context) (err error) {
	p := &l.plan
	s, err := l.serve(ctx, faults{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	results := make([]result, len(p.contenders))
	for range p.runs {
		for i, c := range p.contenders {
			r := &results[i]
			r.contender = c
			if p.inFlight > 0 {
				r.contender.inFlight = p.inFlight
			}
			m, err := l.turn(ctx, s, "speed", job{Contender: c.name, Names: p.speed, Steps: 1, Warm: p.warm, InFlight: r.contender.inFlight})
			if err != nil {
				return err
			}
			r.turns = append(r.turns, m)
		}
	}
	l.printf("\n## speed: %d names\n\n", p.speed)
	l.printf("The server answers everything at once. Each turn looked %d other names up before, which do not count. Medians of %d turns; in\nbrackets the best. Ratios are ours to theirs. One of the allocations is the name. The server's load is how much of its one\nprocessor it used.\n\n", p.warm, p.runs)
	l.printf("| | at a time | look-ups/s | ours to it | CPU s per 10k | ours to it | allocations | bytes | peak memory | questions a look-up | server's load | its CPU s per 10k questions | lost or wrong |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	best := resultOf(results, ours)
	for i := range results {
		r := &results[i]
		rates, costs := r.over((*measured).rate), r.over((*measured).cost)
		rateTo, costTo := "", ""
		if best != nil && r.contender.module != moduleOurs {
			rateTo = facts.Digits(best.median((*measured).rate) / median(rates))
			costTo = facts.Digits(best.median((*measured).cost) / median(costs))
		}
		l.printf("| %s | %d | %.0f (%.0f) | %s | %s (%s) | %s | %s | %.0f | %d MB | %s | %s | %s | %d |\n", r.contender.name, r.contender.inFlight,
			median(rates), slices.Max(rates), rateTo, facts.Digits(median(costs)), facts.Digits(slices.Min(costs)), costTo,
			facts.Digits(r.median((*measured).objects)), r.median((*measured).bytes), int64(r.median((*measured).peak))>>20,
			facts.Digits(r.median((*measured).questions)), facts.Digits(r.median((*measured).serverShare)), facts.Digits(r.median((*measured).serverCost)),
			r.amiss())
	}
	for i := range results {
		l.amiss(&results[i])
	}
	l.verdict(speedMarks(results, p.speed))
	return nil
}

// amiss shows what went wrong where nothing should have, and packets that the system lost.
func (l *lab) amiss(r *result) {
	for _, m := range r.turns {
		if len(m.Examples) > 0 {
			l.printf("\n%s: %d lost, %d wrong, such as %q.\n", r.contender.name, m.Lost, m.Wrong, m.Examples)
		}
		if m.Overflows > 0 {
			l.printf("\n%s: in one turn the system threw %d packets away whose socket, anybody's, was full.\n", r.contender.name, m.Overflows)
		}
	}
}

// loss looks names up at a steady pace, with a server that loses packets and is late with others: many with ours, fewer
// with the others, for comparison.
func (l *lab) loss(ctx context.Context) error {
	p := &l.plan
	l.printf("\n## loss: the server drops %v %% of the packets and answers %v %% %v late\n\n", p.drop, p.delay, p.late)
	l.printf("So many look-ups begin a second, whatever becomes of those before. A name is lost that has no address in the end. Ours may\nsend %s. Each has a server of its own, and the same lot for the n-th packet.\n\n", questionsASecond(p.rate))
	l.printf("| | names | begun a second | lost | wrong | questions a name | packets dropped | late | took at most: half | 99 %% | 99.9 %% | all | CPU s per 10k | peak memory |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	var results []result
	for _, name := range []string{ours, miekgOnce, miekgTries, stockOnce} {
		c, ok := find(name)
		if !ok {
			return fmt.Errorf("no contender %q", name)
		}
		names := p.few
		if name == ours {
			names = p.names
		}
		m, err := l.lose(ctx, job{Contender: name, Names: names, Rate: p.rate, Pace: p.pace, InFlight: 1})
		if err != nil {
			return err
		}
		results = append(results, result{c, []*measured{m}})
		l.printf("| %s | %d | %.0f | %d | %d | %.3f | %d | %d | %s | %s | %s | %s | %s | %d MB |\n", name, names, m.Offered, m.Lost, m.Wrong,
			m.questions(), m.Server.Dropped, m.Server.Delayed, brief(m.Quantile[0]), brief(m.Quantile[2]), brief(m.Quantile[3]), brief(m.Quantile[4]),
			facts.Digits(m.cost()), m.PeakRSS>>20)
	}
	l.amiss(&results[0]) // what the others lose is what they do
	l.verdict(lossMarks(results[0].turns[0], p))
	return nil
}

// lose does one job of loss.
func (l *lab) lose(ctx context.Context, j job) (m *measured, err error) {
	s, err := l.serve(ctx, faults{Drop: l.plan.drop, Delay: l.plan.delay, By: l.plan.late, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return l.turn(ctx, s, "loss", j)
}

// memory looks names up as fast as it goes, and sees now and then what the process holds.
func (l *lab) memory(ctx context.Context) (err error) {
	p := &l.plan
	s, err := l.serve(ctx, faults{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	c := contenders[0]
	inFlight := c.inFlight
	if p.inFlight > 0 {
		inFlight = p.inFlight
	}
	m, err := l.turn(ctx, s, "memory", job{Contender: ours, Names: p.memory, Steps: p.steps, InFlight: inFlight})
	if err != nil {
		return err
	}
	l.printf("\n## memory: %d names as fast as it goes, %d at a time\n\n", p.memory, inFlight)
	l.printf("What the process holds after so many names, with none under way, after a collection. At most it held %d MB.\n\n", m.PeakRSS>>20)
	l.printf("| names | live heap, KB | resident memory, KB | goroutines | open files | look-ups/s since |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range m.States {
		l.printf("| %d | %d | %d | %d | %d | %.0f |\n", s.Names, s.Live>>10, s.RSS>>10, s.Goroutines, s.Files, s.Rate)
	}
	l.amiss(&result{c, []*measured{m}})
	l.verdict(memoryMarks(m, p.memory))
	return nil
}

// questionsASecond spells a rate.
func questionsASecond(rate float64) string {
	if rate == 0 {
		return "as many questions a second as it likes"
	}
	return fmt.Sprintf("%.0f questions a second", rate)
}

// brief spells a duration with as many digits as matter.
func brief(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.Round(time.Microsecond).String()
}

package main

import (
	"context"
	"strconv"
	"time"
)

// lateSuffix ends the names of hosts that answer after a fixed time.
const lateSuffix = ".late.zoo.test"

// truth scans hosts of every common behaviour with real bodies, and compares every row with what the web says it did.
func (l *lab) truth(ctx context.Context) error {
	all := hosts(l.n(100_000))
	list, err := l.write("truth.list", all)
	if err != nil {
		return err
	}
	o, err := l.try(ctx, trial{list: list, web: append([]string{"--seed", "7"}, corpus()...)})
	if err != nil {
		return err
	}
	n := float64(len(all))
	l.printf("\n## truth: %d origins\n\n", len(all))
	l.printf("| wall | origins/s | CPU s | CPU s per 10k | peak memory | live heap at most |\n|--:|--:|--:|--:|--:|--:|\n")
	l.printf("| %.1f s | %.0f | %.1f | %.2f | %d MB | %d MB |\n\n", o.wall.Seconds(), n/o.wall.Seconds(), o.cpu.Seconds(),
		o.cpu.Seconds()*1e4/n, o.peak>>20, o.liveMost())
	l.mustBeTrue()
	return nil
}

// inflight scans hosts that take long to answer, with as many slots as the experiment is to have in flight. The web
// counts how many connections were open at once. No host is deferred for being silent, and no time-out is near, so that
// each slot holds one exchange from its first packet to its last. The list fills the slots twice.
func (l *lab) inflight(ctx context.Context) error {
	const answer, maxPeak = 4 * time.Second, 900 << 20
	n := l.n(10_000)
	l.printf("\n## inflight: `--concurrency %d`, answers after %v\n\n", n, answer)
	l.printf(
		"| | origins | open at once | peak memory | live heap at most | wall | CPU s |\n|---|--:|--:|--:|--:|--:|--:|\n")
	peak, fewest := int64(0), int64(n)
	for _, scheme := range []string{"http", "https"} {
		list, err := l.write("inflight-"+scheme+".list", named(2*n, scheme+"://", lateSuffix))
		if err != nil {
			return err
		}
		o, err := l.try(ctx, trial{
			list: list, web: []string{"--slow", answer.String(), "--hold", "5m"},
			scan: []string{"--concurrency", strconv.Itoa(n), "--timeout", "64s", "--connect-timeout", "1m"},
		})
		if err != nil {
			return err
		}
		peak, fewest = max(peak, o.peak), min(fewest, o.came.MostOpen)
		l.printf("| %s | %d | %d | %d MB | %d MB | %.1f s | %.1f |\n", scheme, 2*n, o.came.MostOpen, o.peak>>20, o.liveMost(),
			o.wall.Seconds(), o.cpu.Seconds())
	}
	l.printf("\n")
	l.must(fewest*100 >= int64(n)*95, "at least 95 %% of %d connections were open at once (%d)", n, fewest)
	l.must(peak < maxPeak, "the program never held as much as %d MB (%d MB)", maxPeak>>20, peak>>20)
	l.mustBeTrue()
	return nil
}

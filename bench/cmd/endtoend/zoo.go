package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/bulkscan/bulkscan/simweb"
)

// zoo scans healthy hosts mixed with many copies of each behaviour that the simulated web knows, and the healthy ones by
// themselves, in turns. Every row must be true, attempts included. What is compared is how long the healthy take, from when
// the first of them was asked to when the last was. The healthy share one address, whose rate is their bound, since the zoo
// may take its share of slots and processors, but not the turns of others.
func (l *lab) zoo(ctx context.Context) error {
	const rate, maxSlower, maxMemory = 1000, 1.15, 512 << 20
	healthy := mixed(named(l.n(50_000), "http://", hotSuffix), named(l.n(50_000), "https://tls-", hotSuffix))
	var animals []string
	for i := range l.n(200) {
		for _, b := range simweb.Behaviours() {
			animals = append(animals, fmt.Sprintf("%sc%d.%s.zoo.test", []string{"", "https://"}[i%2], i, b.Name))
		}
	}
	without, err := l.write("zoo-without.list", healthy)
	if err != nil {
		return err
	}
	with, err := l.write("zoo-with.list", mixed(healthy, animals))
	if err != nil {
		return err
	}
	l.printf("\n## zoo: %d healthy origins, with and without %d others of %d behaviours, `--ip-rate %d`\n\n", len(healthy), len(animals), len(simweb.Behaviours()), rate)
	l.printf("Time from the first to the last answer of the healthy, and of the whole scan; median of %d.\n\n", l.runs)
	l.printf("| | healthy | whole scan | CPU s | CPU s of the web | peak memory | live heap at most | rows untrue |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	sides, err := l.turns(ctx, trial{
		web: []string{"--only", "ok"}, policy: []string{"--attempts"}, trusted: true,
		// Time-outs are longer than in pace: what is counted here is attempts.
		scan: []string{"--timeout", "10s", "--connect-timeout", "5s", "--concurrency", "1000", "--ip-rate", strconv.Itoa(rate)},
	}, hotSuffix, without, with)
	if err != nil {
		return err
	}
	for i := range sides {
		s := &sides[i]
		l.printf("| %s | %.2f s | %.2f s | %.1f | %.1f | %d MB | %d MB | %d |\n", withoutWith[i], median(s.took).Seconds(), median(s.wall).Seconds(),
			median(s.cpu).Seconds(), median(s.web).Seconds(), s.peak>>20, s.live, s.untrue)
	}
	l.printf("\n")
	ratio, more := median(sides[1].took).Seconds()/median(sides[0].took).Seconds(), sides[1].peak-sides[0].peak
	l.must(ratio <= maxSlower, "the healthy take at most 15 %% longer (ratio %.3f)", ratio)
	l.must(more <= maxMemory, "the zoo takes at most %d MB more memory (%d MB)", maxMemory>>20, more>>20)
	l.mustBeTrue()
	return nil
}

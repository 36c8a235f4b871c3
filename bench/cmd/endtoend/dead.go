package main

import (
	"context"
	"strconv"
	"time"
)

// deadShare is how many of a list's hosts are dead, in a hundred.
const deadShare = 6

// Names that simweb knows: hosts that answer after a fixed time, that take a connection and say nothing, and that do not
// even take it.
const (
	lateSuffix   = ".late.zoo.test"
	silentSuffix = ".silent.zoo.test"
	holeSuffix   = ".black-hole.zoo.test"
)

// dead scans a list in which six of a hundred hosts are silent, half of them before and half after they take the
// connection, and the same list without them, in turns. A time-out holds a slot that the healthy want: what is compared is
// how long the healthy take. How long the silent hosts are asked again thereafter stands apart.
//
// Retries are off, since their waits do not concern the healthy. Hosts are asked by http first and then, as their entries
// name no scheme, by https. So a silent host can use two time-outs of --timeout each.
func (l *lab) dead(ctx context.Context) error {
	const answer, concurrency, timeout = 300 * time.Millisecond, 1000, 15 * time.Second
	silent := max(2, l.n(60_000)*deadShare/100)
	healthy := named(l.n(60_000)-silent, "", lateSuffix)
	without, err := l.write("dead-without.list", healthy)
	if err != nil {
		return err
	}
	with, err := l.write("dead-with.list", mixed(healthy, mixed(named(silent-silent/2, "", silentSuffix), named(silent/2, "", holeSuffix))))
	if err != nil {
		return err
	}
	l.printf("\n## dead: %d origins that answer after %v, with and without %d silent ones, `--concurrency %d --timeout %v`\n\n", len(healthy), answer, silent, concurrency, timeout)
	l.printf("Time from the first to the last answer of the %d, and what the scan took beyond it; median of %d.\n\n", len(healthy), l.runs)
	l.printf("| | answers | deferred passes and the end | whole scan | CPU s |\n|---|--:|--:|--:|--:|\n")
	sides, err := l.turns(ctx, trial{
		web: []string{"--slow", answer.String(), "--hold", (4 * timeout).String()}, policy: []string{"--retries", "0", "--scheme", "http"},
		scan: []string{"--retries", "0", "--scheme", "http", "--concurrency", strconv.Itoa(concurrency), "--timeout", timeout.String(), "--connect-timeout", "5s"},
	}, lateSuffix, without, with)
	if err != nil {
		return err
	}
	for i := range sides {
		took, wall := median(sides[i].took), median(sides[i].wall)
		l.printf("| %s | %.2f s | %.2f s | %.2f s | %.1f |\n", withoutWith[i], took.Seconds(), (wall - took).Seconds(), wall.Seconds(), median(sides[i].cpu).Seconds())
	}
	ratio := median(sides[1].took).Seconds() / median(sides[0].took).Seconds()
	l.printf("\n")
	l.must(ratio <= 1.3, "the healthy take at most 1.3 times as long (ratio %.3f)", ratio)
	l.mustBeTrue()
	return nil
}

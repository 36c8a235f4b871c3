package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
// connection, and the same list without them, in turns. Time-outs hold a place that the living want: what is compared is
// how long the living take. The dead may be asked again when nobody else waits, and how long that goes on stands apart.
//
// Retries are off, since their back-off is no matter of the living; hosts are asked by http first, then, as their entries
// name no scheme, by https. So a dead host has two time-outs to spend, of all of --timeout each.
func (l *lab) dead(ctx context.Context) error {
	hosts := dying(l.sizes.dead)
	var healthy []string
	for _, host := range hosts {
		if strings.HasSuffix(host, lateSuffix) {
			healthy = append(healthy, host)
		}
	}
	with, err := l.write("dead-with.list", hosts)
	if err != nil {
		return err
	}
	without, err := l.write("dead-without.list", healthy)
	if err != nil {
		return err
	}
	l.printf("\n## dead: %d origins that answer after %v, with and without %d silent ones, `--concurrency %d --timeout %v`\n\n", len(healthy), l.healthy, len(hosts)-len(healthy), l.concurrency, l.timeout)
	l.printf("Time from the first to the last answer of the %d, and what the scan took beyond it; median of %d.\n\n", len(healthy), l.runs)
	l.printf("| | answers | deferred passes and the end | whole scan | CPU s |\n|---|---|---|---|---|\n")
	rows := []struct {
		name, list            string
		took, rest, wall, cpu []time.Duration
	}{{name: "without", list: without}, {name: "with", list: with}}
	for range l.runs {
		for i := range rows {
			row := &rows[i]
			o, err := l.try(ctx, trial{
				list: row.list, web: []string{"--slow", l.healthy.String(), "--hold", (4 * l.timeout).String()},
				policy: []string{"--retries", "0", "--scheme", "http"},
				scan: []string{"--retries", "0", "--scheme", "http", "--concurrency", strconv.Itoa(l.concurrency),
					"--timeout", l.timeout.String(), "--connect-timeout", min(l.timeout, 5*time.Second).String()},
			})
			if err != nil {
				return err
			}
			asks, err := asked(ctx, o.scan, func(host string) bool { return strings.HasSuffix(host, lateSuffix) })
			if err != nil {
				return err
			}
			s, err := spanOf(asks)
			if err != nil {
				return err
			}
			row.took, row.rest = append(row.took, s.took()), append(row.rest, o.wall-s.took())
			row.wall, row.cpu = append(row.wall, o.wall), append(row.cpu, o.cpu)
		}
	}
	for _, row := range rows {
		l.printf("| %s | %.2f s | %.2f s | %.2f s | %.1f |\n", row.name,
			median(row.took).Seconds(), median(row.rest).Seconds(), median(row.wall).Seconds(), median(row.cpu).Seconds())
	}
	ratio := median(rows[1].took).Seconds() / median(rows[0].took).Seconds()
	l.printf("\n")
	l.must(ratio <= 1.3, "the living take at most 1.3 times as long (ratio %.3f)", ratio)
	l.mustBeTrue()
	return nil
}

// dying returns a list in which deadShare of a hundred hosts are dead, evenly spread, in both ways by turns.
func dying(all int) []string {
	hosts := make([]string, 0, all)
	for i := range all {
		n := (i + 1) * deadShare / 100
		suffix := lateSuffix
		if n > i*deadShare/100 {
			suffix = silentSuffix
			if n%2 == 0 {
				suffix = holeSuffix
			}
		}
		hosts = append(hosts, fmt.Sprintf("h%d%s", i, suffix))
	}
	return hosts
}

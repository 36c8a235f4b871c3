package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/bulkscan/bulkscan/sink"
)

// heap scans two lists of different length and compares the most live heap of each. What a part holds until it is sealed
// is memory that a short list never comes to need, so the comparison is made with parts that both lists fill many times;
// the figures with the default parts stand beside it.
func (l *lab) heap(ctx context.Context) error {
	l.printf("\n## heap: `--concurrency 1000`\n\n| origins | `--part-rows` | live heap at most | peak memory | wall |\n|---|---|---|---|---|\n")
	long, short, few := l.origins, l.origins/5, l.origins/20
	lists := map[int]string{}
	for _, n := range []int{short, long} {
		hosts, _, err := l.hosts(ctx, n)
		if err != nil {
			return err
		}
		if lists[n], err = l.write(fmt.Sprintf("heap-%d.list", n), hosts); err != nil {
			return err
		}
	}
	live := map[int]int{}
	for _, rows := range []int{few, sink.DefaultPartRows} {
		for _, n := range []int{short, long} {
			o, err := l.try(ctx, trial{
				list: lists[n], web: append([]string{"--seed", "7"}, l.corpus()...),
				scan: []string{"--concurrency", "1000", "--part-rows", strconv.Itoa(rows)},
			})
			if err != nil {
				return err
			}
			if rows == few {
				live[n] = o.live
			}
			l.printf("| %d | %d | %d MB | %d MB | %.1f s |\n", n, rows, o.live, o.peak>>20, o.wall.Seconds())
		}
	}
	ratio := float64(live[long]) / float64(live[short])
	l.printf("\n")
	l.must(ratio >= 0.9 && ratio <= 1.1, "with parts of %d rows the live heaps of both lists are equal within 10 %% (ratio %.3f)", few, ratio)
	l.mustBeTrue()
	return nil
}

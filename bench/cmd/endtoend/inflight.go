package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// inflightRounds is how many times over the places are filled, so that the list fills them while it lasts.
const inflightRounds = 2

// maxInflight is the most memory for 10,000 exchanges in flight, in bytes.
const maxInflight = 900 << 20

// inflight scans hosts that take long to answer, with as many places as the experiment is to have in flight. That so many
// were, is counted by the web. Nobody is put off for being silent, and no time-out is near, so that each place holds one
// exchange from its first packet to its last.
func (l *lab) inflight(ctx context.Context) error {
	n := l.sizes.inflight
	l.printf("\n## inflight: `--concurrency %d`, answers after %v\n\n", n, l.answers)
	l.printf("| | origins | open at once | peak memory | live heap at most | wall | CPU s |\n|---|---|---|---|---|---|---|\n")
	var peak int64
	fewest := int64(n)
	for _, scheme := range []origin.Scheme{origin.HTTP, origin.HTTPS} {
		hosts := make([]string, inflightRounds*n)
		for i := range hosts {
			hosts[i] = fmt.Sprintf("%v://h%d%s", scheme, i, lateSuffix)
		}
		list, err := l.write(fmt.Sprintf("inflight-%v.list", scheme), hosts)
		if err != nil {
			return err
		}
		o, err := l.try(ctx, trial{
			list: list, web: []string{"--slow", l.answers.String(), "--hold", "5m"},
			scan: []string{"--concurrency", strconv.Itoa(n), "--patience", "0s", "--timeout", (time.Minute + l.answers).String(), "--connect-timeout", "1m"},
		})
		if err != nil {
			return err
		}
		peak, fewest = max(peak, o.peak), min(fewest, o.came.MostOpen)
		l.printf("| %v | %d | %d | %d MB | %d MB | %.1f s | %.1f |\n", scheme, len(hosts), o.came.MostOpen, o.peak>>20, o.live, o.wall.Seconds(), o.cpu.Seconds())
	}
	l.printf("\n")
	l.must(fewest*100 >= int64(n)*95, "at least 95 %% of %d connections were open at once (%d)", n, fewest)
	l.must(peak > 0 && peak < maxInflight, "the program never held as much as %d MB (%d MB)", maxInflight>>20, peak>>20)
	l.mustBeTrue()
	return nil
}

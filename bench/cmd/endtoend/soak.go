package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/simweb"
)

// soaked are the metrics of the process that are watched, and how much larger the median of the last third of the time may be
// than that of the second third: by a share, and by more beyond it. The set of origins seen grows with the list, by some ten
// bytes an origin.
var soaked = []struct {
	metric      string
	unit        float64
	share, more float64
}{
	{"go_goroutines", 1, 0.05, 50},
	{"process_open_fds", 1, 0.05, 50},
	{"process_resident_memory_bytes", 1 << 20, 0.1, 16},
}

// soak scans a long list of every common behaviour at a steady rate, and watches what the process holds. The first third of
// the time does not count: memory that is kept for reuse is allocated in it.
func (l *lab) soak(ctx context.Context) error {
	const rate = 1000 // exchanges a second, of which an origin takes one or more
	var all []string
	for _, host := range simweb.Names(7, max(100, int(l.duration.Seconds()*rate))) {
		all = append(all, host)
	}
	list, err := l.write("soak.list", all)
	if err != nil {
		return err
	}
	addr, err := built.FreeAddr()
	if err != nil {
		return err
	}
	l.printf("\n## soak: %d origins, `--rate %d`\n\n", len(all), rate)
	watching, stop := context.WithCancel(ctx)
	samples := make(chan []sample, 1)
	go func() { samples <- watch(watching, addr, l.duration) }()
	o, err := l.try(ctx, trial{
		list: list, web: append([]string{"--seed", "7"}, corpus()...),
		// Parts are small, so that what an open part holds is the same at all times. Time-outs are long and exchanges few, so that
		// a machine with other work finds the same rows.
		scan: []string{"--rate", strconv.Itoa(rate), "--part-rows", "5000", "--metrics-addr", addr, "--concurrency", "300", "--timeout", "10s", "--connect-timeout", "10s"},
	})
	stop()
	seen := <-samples
	if err != nil {
		return err
	}
	left, err := os.ReadDir(l.tmp())
	if err != nil {
		return err
	}
	l.printf("The medians of the second and of the last third of %v, of %d samples, and the whole scan: %.0f s, %.0f CPU s, %d MB at most.\n\n",
		l.duration, len(seen), o.wall.Seconds(), o.cpu.Seconds(), o.peak>>20)
	for i, of := range soaked {
		values := make([]float64, len(seen))
		for k := range seen {
			values[k] = seen[k].values[i] / of.unit
		}
		l.mustBeFlat(of.metric, values, of.share, of.more)
	}
	if len(seen) > 0 {
		var values []float64
		for _, at := range o.live {
			if at.at.Before(seen[len(seen)-1].at) {
				values = append(values, float64(at.mb))
			}
		}
		l.mustBeFlat("live heap, MB", values, 0.1, 16)
	}
	l.must(len(left) == 0, "no temporary file is left (%d are)", len(left))
	l.mustBeTrue()
	return nil
}

// mustBeFlat holds the median of the last third of some values against that of the second.
func (l *lab) mustBeFlat(what string, values []float64, share, more float64) {
	second, last, bound := flat(values, share, more)
	l.must(last <= bound, "%s: %.0f, and before %.0f; at most %.0f", what, last, second, bound)
}

func flat(values []float64, share, more float64) (second, last, bound float64) {
	third := len(values) / 3
	if third == 0 {
		return 0, 1, 0 // too few to say anything
	}
	second, last = median(values[third:len(values)-third]), median(values[len(values)-third:])
	return second, last, second*(1+share) + more
}

// sample is what the metrics said at a moment, in the order of soaked.
type sample struct {
	at     time.Time
	values []float64
}

// watch reads the metrics once a second, or oftener in a short soak, until the time is over or the context ends.
func watch(ctx context.Context, addr string, duration time.Duration) (all []sample) {
	var names []string
	for _, of := range soaked {
		names = append(names, of.metric)
	}
	end := time.After(duration)
	tick := time.NewTicker(min(time.Second, duration/15))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-end:
			return all
		case <-tick.C:
			if values, err := built.Metrics(ctx, addr, names...); err == nil { // before the scan listens there are none
				all = append(all, sample{time.Now(), values})
			}
		}
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/simweb"
)

// maxZooSlower is how much longer the healthy may take beside the zoo, and maxZooMemory how much more memory, in bytes, a scan
// may hold for it at most: the budget of large bodies, and as much again for what holds connections, decoders and the
// collector's slack.
const (
	maxZooSlower = 1.15
	maxZooMemory = 512 << 20
)

// zoo scans healthy hosts mixed with many copies of each behaviour that the simulated web knows, and the healthy ones by
// themselves, in turns. Every row must be true, attempts included. What is compared is how long the healthy take: from when
// the first of them was asked to when the last was. What of the zoo is silent until then, or is tried again thereafter, has
// its time at the scan's end, which stands apart.
//
// The zoo is work too, and whatever is the bound of all, places or processors, it takes a share of. What the healthy must not
// lose beyond that is their turns, which is seen where something else bounds them: first they share one address, and its
// rate is their bound. Then they take a while to answer, and the places are it, and then they answer at once, and the
// processors are; both are told beside what the zoo took of them.
func (l *lab) zoo(ctx context.Context) error {
	animals := zooEntries(l.copies)
	l.printf("\n## zoo: %d healthy origins, with and without %d copies of each of %d behaviours, `--concurrency %d`\n\n", l.well, l.copies, len(simweb.Behaviours()), l.concurrency)
	l.printf("Time from the first question to a healthy host to the last, median of %d; every other one by https, with a certificate that is\nverified. Of the %d others every other one too. Exchanges are origins of any kind that were asked in that time, over the\nhealthy. The scan's end is what came behind it: the silent, who were put off, and later tries. The web's processor time\nis that with the zoo.\n\n", l.runs, len(animals))
	l.printf("| healthy bounded by | without | with | ratio | origins/s with | exchanges | the scan's end | CPU s without | with | the web's | memory without | with | live heap | rows untrue |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	var free zooTimes // of what the zoo takes
	var more int64
	bounds, err := l.zooBounds()
	if err != nil {
		return err
	}
	for _, bound := range bounds {
		times, err := l.zooRow(ctx, bound, animals)
		if err != nil {
			return err
		}
		if bound.name == "rate" {
			free = times
		}
		more = max(more, times.peak-times.peakAlone)
	}
	l.printf("\n")
	if free.without > 0 {
		l.must(free.ratio() <= maxZooSlower, "where neither places nor processors are their bound, the healthy take at most 15 %% longer (ratio %.3f)", free.ratio())
	}
	l.must(more <= maxZooMemory, "the zoo takes at most %d MB more memory (%d MB)", maxZooMemory>>20, more>>20)
	l.mustBeTrue()
	return nil
}

// okSuffix ends the names of hosts that are well and answer at once.
const okSuffix = ".ok.zoo.test"

// zooTimeouts are longer than those of pace: behind a hundred thousand others on two processors an answer may take its time,
// and what is counted here is attempts.
var zooTimeouts = []string{"--timeout", "10s", "--connect-timeout", "5s"}

// zooBound is what keeps the healthy from being asked faster.
type zooBound struct {
	name, text string
	suffix     string   // of the healthy hosts
	web, scan  []string // further flags
}

// zooBounds are those that are asked for.
func (l *lab) zooBounds() (bounds []zooBound, err error) {
	for _, name := range strings.Split(l.bounds, ",") {
		switch name {
		case "rate":
			bounds = append(bounds, zooBound{name, fmt.Sprintf("the rate of their address (%d a second)", l.zooRate), hotSuffix, []string{"--only", "ok"}, []string{"--ip-rate", strconv.Itoa(l.zooRate)}})
		case "places":
			bounds = append(bounds, zooBound{name, fmt.Sprintf("the places (answers take %v)", l.wellAnswers), lateSuffix, nil, nil})
		case "processors":
			bounds = append(bounds, zooBound{name, "the processors (answers at once)", okSuffix, nil, nil})
		default:
			return nil, fmt.Errorf("-zoo-bounds: no bound %q", name)
		}
	}
	return bounds, nil
}

// zooTimes is how long the healthy took without and with the zoo, and in how much memory, in bytes.
type zooTimes struct {
	without, with   time.Duration
	peakAlone, peak int64
}

func (z zooTimes) ratio() float64 { return z.with.Seconds() / z.without.Seconds() }

// zooRow scans both lists in turns.
func (l *lab) zooRow(ctx context.Context, bound zooBound, animals []string) (zooTimes, error) {
	healthy := make([]string, l.well)
	for i := range healthy {
		scheme := "https"
		if i%2 == 0 {
			scheme = "http"
		}
		healthy[i] = fmt.Sprintf("%s://h%d%s", scheme, i, bound.suffix)
	}
	without, err := l.write("zoo-without-"+bound.name+".list", healthy)
	if err != nil {
		return zooTimes{}, err
	}
	with, err := l.write("zoo-with-"+bound.name+".list", mixed(healthy, animals))
	if err != nil {
		return zooTimes{}, err
	}
	well := func(host string) bool { return strings.HasPrefix(host, "h") && strings.HasSuffix(host, bound.suffix) }
	rows := []struct {
		list            string
		took, rest      []time.Duration
		cpu, web, tasks []float64
		peak            int64
		live, untrue    int
	}{{list: without}, {list: with}}
	for range l.runs {
		for i := range rows {
			row := &rows[i]
			o, err := l.try(ctx, trial{
				list: row.list, web: append([]string{"--slow", l.wellAnswers.String()}, bound.web...), policy: []string{"--attempts", "--retries", strconv.Itoa(l.retries)},
				scan: slices.Concat(zooTimeouts, bound.scan, []string{"--retries", strconv.Itoa(l.retries), "--concurrency", strconv.Itoa(l.concurrency)}), trusted: true,
			})
			if err != nil {
				return zooTimes{}, err
			}
			asks, err := asked(ctx, o.scan, well)
			if err != nil {
				return zooTimes{}, err
			}
			s, err := spanOf(asks)
			if err != nil {
				return zooTimes{}, err
			}
			others, err := asked(ctx, o.scan, func(host string) bool { return !well(host) })
			if err != nil {
				return zooTimes{}, err
			}
			work, _ := workIn(s, len(asks), others)
			row.took, row.rest = append(row.took, s.took()), append(row.rest, o.wall-s.took())
			row.cpu, row.web, row.tasks = append(row.cpu, o.cpu.Seconds()), append(row.web, o.webCPU.Seconds()), append(row.tasks, work)
			row.peak, row.live = max(row.peak, o.peak), max(row.live, o.live)
			row.untrue += o.held.Differ + o.held.Missing + o.held.Twice + o.held.Unknown
		}
	}
	alone, both := &rows[0], &rows[1]
	z := zooTimes{median(alone.took), median(both.took), alone.peak, both.peak}
	l.printf("| %s | %.2f s | %.2f s | %.3f | %.0f | %.2f | %.1f s | %.1f | %.1f | %.1f | %d MB | %d MB | %d MB | %d |\n", bound.text,
		z.without.Seconds(), z.with.Seconds(), z.ratio(), float64(l.well)/z.with.Seconds(), median(both.tasks), median(both.rest).Seconds(),
		median(alone.cpu), median(both.cpu), median(both.web), alone.peak>>20, both.peak>>20, both.live, alone.untrue+both.untrue)
	return z, nil
}

// zooEntries returns so many entries of each behaviour, in turns, every other without a scheme and by https.
func zooEntries(copies int) []string {
	var all []string
	for i := range copies {
		for _, b := range simweb.Behaviours() {
			entry := fmt.Sprintf("c%d.%s.zoo.test", i, b.Name)
			if i%2 == 1 {
				entry = "https://" + entry
			}
			all = append(all, entry)
		}
	}
	return all
}

// mixed returns both lists as one, each evenly spread over it and in its order.
func mixed(a, b []string) []string {
	n := len(a) + len(b)
	all := make([]string, 0, n)
	for i := range n {
		// The i-th is of b where the share of b so far steps over a whole number.
		if before, upto := i*len(b)/n, (i+1)*len(b)/n; upto > before {
			all = append(all, b[before])
		} else {
			all = append(all, a[i-before])
		}
	}
	return all
}

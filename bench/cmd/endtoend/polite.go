package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/simweb"
)

// polite scans a list of which a quarter shares one address, and the same list without that quarter, in turns. Two things
// must hold: no address takes more than its rate, counted where connections are accepted, and the others do not wait for
// those who share.
//
// What the others must not lose is time in the schedule, and that is only seen where something else than the processors
// bounds them: 500 exchanges a second more are 500 more for the processors. So the others first live at three addresses,
// which bound them by their own rates. Then they live at 511, and the processors are the bound: the rates must hold there
// too, and the times are told beside the work that was done in them.
func (l *lab) polite(ctx context.Context) error {
	others, mixed := neighbours(l.sizes.polite, l.hot)
	alone, err := l.write("polite-alone.list", others)
	if err != nil {
		return err
	}
	both, err := l.write("polite-both.list", mixed)
	if err != nil {
		return err
	}
	p := politeness{rate: float64(l.ipRate)}
	l.printf("\n## polite: %d plain origins, with and without %d more that share one address, `--ip-rate %d`\n\n", len(others), l.hot, l.ipRate)
	l.printf("Time from the first to the last answer of the %d, median of %d. Exchanges are those in that time, for the hot\naddress too, over those for the others; what more the processors do then is to look the names of all up.\n\n", len(others), l.runs)
	l.printf("| others bounded by | without | with | ratio | exchanges | hot ones a second |\n|---|---|---|---|---|---|\n")
	paced, err := l.politeRow(ctx, &p, "the rates of 3 addresses", []string{"--addresses", "4"}, alone, both)
	if err != nil {
		return err
	}
	if _, err := l.politeRow(ctx, &p, "the processors (511 addresses)", nil, alone, both); err != nil {
		return err
	}
	l.printf("\nWhere connections are accepted, the most in any run:\n\n| | connections | in one second | allowed | in ten | allowed |\n|---|---|---|---|---|---|\n")
	for _, v := range p.verdicts() {
		l.printf("| %s | %d | %d | %.1f | %d | %.1f |\n", v.who, v.total, v.second, v.maySecond, v.ten, v.mayTen)
	}
	l.printf("\n")
	for _, v := range p.verdicts() {
		l.must(v.ok(), "%s took at most %.1f connections in any second and %.1f in any ten", v.who, v.maySecond, v.mayTen)
	}
	l.must(p.missed == 0, "every connection was counted (%d were not)", p.missed)
	l.must(paced.ratio() <= 1.05, "where the processors are not their bound, the others take at most 5 %% longer (ratio %.3f)", paced.ratio())
	l.mustBeTrue()
	return nil
}

// hotSuffix ends the names of hosts that share simweb's hot address.
const hotSuffix = ".hot.test"

// neighbours returns the hosts that share no address, and the same with those that do spread evenly among them.
func neighbours(all, hot int) (others, mixed []string) {
	for i := range all {
		// The i-th is hot where the share of hot ones so far steps over a whole number.
		if (i+1)*hot/all > i*hot/all {
			mixed = append(mixed, fmt.Sprintf("http://h%d%s", i, hotSuffix))
			continue
		}
		host := fmt.Sprintf("http://h%d.other.example", i)
		others, mixed = append(others, host), append(mixed, host)
	}
	return others, mixed
}

// beside is how long the others took without and with the hot ones.
type beside struct {
	without, with time.Duration
	work          float64 // exchanges for anybody in the time of the others, over those for the others
	hotRate       float64 // exchanges a second for the hot ones, over the time of all
}

func (b beside) ratio() float64 { return b.with.Seconds() / b.without.Seconds() }

// politeRow scans both lists in turns.
func (l *lab) politeRow(ctx context.Context, p *politeness, bound string, web []string, alone, both string) (beside, error) {
	var without, with []time.Duration
	var work, hotRate []float64
	for range l.runs {
		for _, list := range []string{alone, both} {
			o, err := l.try(ctx, trial{
				list: list, web: append([]string{"--only", "ok"}, web...), scan: []string{"--ip-rate", strconv.Itoa(l.ipRate)},
			})
			if err != nil {
				return beside{}, err
			}
			p.add(o.came)
			asks, err := asked(ctx, o.scan, func(host string) bool { return !strings.HasSuffix(host, hotSuffix) })
			if err != nil {
				return beside{}, err
			}
			s, err := spanOf(asks)
			if err != nil {
				return beside{}, err
			}
			if list == alone {
				without = append(without, s.took())
				continue
			}
			with = append(with, s.took())
			hot, err := asked(ctx, o.scan, func(host string) bool { return strings.HasSuffix(host, hotSuffix) })
			if err != nil {
				return beside{}, err
			}
			done, all := workIn(s, len(asks), hot)
			work, hotRate = append(work, done), append(hotRate, all)
		}
	}
	b := beside{median(without), median(with), median(work), median(hotRate)}
	l.printf("| %s | %.2f s | %.2f s | %.3f | %.3f | %.0f |\n", bound, b.without.Seconds(), b.with.Seconds(), b.ratio(), b.work, b.hotRate)
	return b, nil
}

// workIn returns how much was done within a span for anybody, over what was done for its own n, and how many of the hot
// were asked a second, from the first to the last of them.
func workIn(s span, n int, hot []time.Time) (work, rate float64) {
	within := 0
	for _, t := range hot {
		if !t.Before(s.first) && !t.After(s.last) {
			within++
		}
	}
	work = float64(n+within) / float64(n)
	if all, err := spanOf(hot); err == nil && all.took() > 0 {
		rate = float64(len(hot)) / all.took().Seconds()
	}
	return work, rate
}

// politeness gathers what came to the busiest of several runs.
type politeness struct {
	rate   float64 // of an address
	missed int

	hot, other, host pressed
}

// pressed is the most that came to one, of any run.
type pressed struct{ total, second, ten int }

func (p *pressed) add(loads ...*simweb.Load) {
	for _, load := range loads {
		if load != nil {
			*p = pressed{max(p.total, load.Total), max(p.second, load.Second), max(p.ten, load.TenSeconds)}
		}
	}
}

func (p *politeness) add(came simweb.Record) {
	p.missed += came.Missed
	p.hot.add(came.Hot)
	p.other.add(came.Address, came.AddressOfTen)
	p.host.add(came.Host, came.HostOfTen)
}

// verdict holds the busiest of a kind against its rate.
type verdict struct {
	who string
	pressed
	maySecond, mayTen float64
}

// ok reports whether somebody came, and not too often.
func (v verdict) ok() bool {
	return v.total > 0 && float64(v.second) <= v.maySecond && float64(v.ten) <= v.mayTen
}

// hostRate is the program's own, which the scans leave as it is.
const hostRate = 1

// verdicts are what the rates allow: a tenth more and one in any second, and no more than one in any ten.
func (p *politeness) verdicts() []verdict {
	f := func(who string, came pressed, rate float64) verdict {
		return verdict{who, came, 1.1*rate + 1, 10*rate + 1}
	}
	return []verdict{
		f("the hot address", p.hot, p.rate), f("any other address", p.other, p.rate), f("any host", p.host, hostRate),
	}
}

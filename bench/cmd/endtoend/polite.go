package main

import (
	"context"
	"strconv"

	"github.com/bulkscan/bulkscan/simweb"
)

// hotSuffix ends the names of hosts that share simweb's hot address.
const hotSuffix = ".hot.test"

const (
	politeRate = 500 // exchanges a second to an address
	hostRate   = 1   // of the program itself, which these scans leave as it is
)

func (l *lab) polite(ctx context.Context) error {
	return l.neighbours(ctx, "polite", l.n(200_000), l.n(50_000))
}

func (l *lab) hot(ctx context.Context) error {
	return l.neighbours(ctx, "hot", l.n(20_000), l.n(10_000))
}

// neighbours scans a list of which some hosts share one address, and the same list without these, in turns. No address may
// get more than its rate, counted when connections come, and the others must not wait for those that share.
//
// What the others must not lose is their turns, which is seen only where the processors are not the bound: hot exchanges are
// work, too. So the others first live at three addresses, whose rates bound them. Then they live at 511, and the processors
// are the bound: the rates must hold there, too.
func (l *lab) neighbours(ctx context.Context, name string, all, hot int) error {
	others := named(all-hot, "http://", ".other.example")
	alone, err := l.write(name+"-alone.list", others)
	if err != nil {
		return err
	}
	both, err := l.write(name+"-both.list", mixed(others, named(hot, "http://", hotSuffix)))
	if err != nil {
		return err
	}
	l.printf("\n## %s: %d plain origins, with and without %d more that share one address, `--ip-rate %d`\n\n", name, len(others), hot, politeRate)
	l.printf("Time from the first to the last answer of the %d, median of %d.\n\n", len(others), l.runs)
	l.printf("| others bounded by | without | with | ratio | CPU s without | with |\n|---|--:|--:|--:|--:|--:|\n")
	busiest := []*busy{{who: "the hot address", rate: politeRate}, {who: "any other address", rate: politeRate}, {who: "any host", rate: hostRate}}
	missed, paced := 0, 0.0
	for _, bound := range []struct {
		name string
		web  []string
	}{{"the rates of 3 addresses", []string{"--addresses", "4"}}, {"the processors (511 addresses)", nil}} {
		sides, err := l.turns(ctx, trial{web: append([]string{"--only", "ok"}, bound.web...), scan: []string{"--ip-rate", strconv.Itoa(politeRate)}}, ".other.example", alone, both)
		if err != nil {
			return err
		}
		for _, came := range append(sides[0].came, sides[1].came...) {
			missed += came.Missed
			busiest[0].add(came.Hot)
			busiest[1].add(came.Address, came.AddressOfTen)
			busiest[2].add(came.Host, came.HostOfTen)
		}
		without, with := median(sides[0].took), median(sides[1].took)
		ratio := with.Seconds() / without.Seconds()
		if bound.web != nil {
			paced = ratio
		}
		l.printf("| %s | %.2f s | %.2f s | %.3f | %.1f | %.1f |\n", bound.name, without.Seconds(), with.Seconds(), ratio, median(sides[0].cpu).Seconds(), median(sides[1].cpu).Seconds())
	}
	l.printf("\n")
	for _, b := range busiest {
		l.must(b.ok(), "%s took at most %.1f connections in any second and %.1f in any ten (%d, %d)", b.who, b.maySecond(), b.mayTen(), b.second, b.ten)
	}
	l.must(missed == 0, "every connection was counted (%d were not)", missed)
	l.must(paced <= 1.05, "where the processors are not their bound, the others take at most 5 %% longer (ratio %.3f)", paced)
	l.mustBeTrue()
	return nil
}

// busy is the most that came to one of a kind in any run: connections in all, in one second and in ten.
type busy struct {
	who                string
	rate               float64
	total, second, ten int
}

func (b *busy) add(loads ...*simweb.Load) {
	for _, load := range loads {
		if load != nil {
			b.total, b.second, b.ten = max(b.total, load.Total), max(b.second, load.Second), max(b.ten, load.TenSeconds)
		}
	}
}

// maySecond is what a rate allows in any second: a tenth more and one. In any ten it allows no more than one beyond it.
func (b *busy) maySecond() float64 { return 1.1*b.rate + 1 }
func (b *busy) mayTen() float64    { return 10*b.rate + 1 }

// ok reports whether any connection came, and not too many.
func (b *busy) ok() bool {
	return b.total > 0 && float64(b.second) <= b.maySecond() && float64(b.ten) <= b.mayTen()
}

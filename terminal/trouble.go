package terminal

import (
	"context"
	"log/slog"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// Warnings about a scan while it runs.

// manySites is the number of sites from which Troubles warns of an Anonymous scan.
const manySites = 1000

// Troubles warns if the process stalls, if most sites fail for one reason, and once an Anonymous scan has too many
// sites for requests without a contact. It does so in every form of display, until the context ends. A log that blocks
// stops only this function, not the scan.
func (d *Display) Troubles(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(stillInterval)
	defer ticker.Stop()
	var warned time.Duration
	var failures failures
	anonymous := d.Anonymous
	for alive := true; alive; {
		select {
		case <-ctx.Done():
			alive = false
		case <-ticker.C:
		}
		if stood := d.Progress.Stalled(); stood > warned {
			log.Warn("this process stood still; hosts that it kept waiting are asked again", "for",
				(stood - warned).Round(100*time.Millisecond))
			warned = stood
		}
		if anonymous && d.Progress.Fed.Load() > manySites {
			anonymous = false
			log.Warn("site owners cannot tell whom to ask: name a mail address or a page of yours", "remedy",
				"--contact you@example.org")
		}
		if outcome, n, of := failures.look(countsOf(d.Progress), d.Progress.ListDone()); n > 0 {
			log.Warn("most sites fail for one reason", "outcome", outcome, "sites", n, "of", of, "remedy",
				summary.Suspicion(outcome.String()))
		}
	}
}

// outcomeCounts are sites by outcome.
type outcomeCounts [exchange.NumOutcomes]uint64

func countsOf(p *pipeline.Progress) (c outcomeCounts) {
	for i := range c {
		c[i] = p.Outcomes[i].Load()
	}
	return c
}

func (c *outcomeCounts) sum() (n uint64) {
	for _, of := range c {
		n += of
	}
	return n
}

// failures finds out when most sites fail for one reason: a name server or a network that is gone.
type failures struct {
	before outcomeCounts                // the window begins there
	next   [exchange.NumOutcomes]uint64 // sites in all before the next warning of the outcome
}

const (
	failureWindow = 1000 // sites
	failureRepeat = 10   // the next warning needs so many times as many sites
)

// look returns the outcome with which more than half of the last sites failed, and their number, if a warning is due;
// else n is 0. At the end of the list only silent sites are left, so all sites of the run count there.
func (f *failures) look(now outcomeCounts, listDone bool) (worst exchange.Outcome, n, of uint64) {
	last := now
	for i := range last {
		last[i] -= f.before[i]
	}
	if last.sum() < failureWindow {
		return 0, 0, 0
	}
	f.before = now
	if listDone {
		last = now
	}
	for _, outcome := range exchange.Outcomes() {
		if outcome != exchange.Answered && last[outcome] > n {
			worst, n = outcome, last[outcome]
		}
	}
	if all := now.sum(); 2*n > last.sum() && all >= f.next[worst] {
		f.next[worst] = failureRepeat * all
		return worst, n, last.sum()
	}
	return 0, 0, 0
}

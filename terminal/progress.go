package terminal

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// The intervals of the display.
const (
	logInterval   = 10 * time.Second
	stillInterval = time.Second
)

// Display shows the progress of a scan. It only polls counters.
type Display struct {
	Progress *pipeline.Progress
	Names    func() resolve.Stats
	Read     func() (done, total int64) // of the list, in bytes; total 0 where unknown
	Limit    uint64                     // on the list's entries; 0: none
	Done     uint64                     // sites kept by earlier runs of the same scan
	Slots    int                        // exchanges in flight at most
	Longest  time.Duration              // what a silent site may take, all its retries included
	// Anonymous means that requests name no contact for site owners. Troubles warns of that.
	Anonymous bool
}

// ProgressForms are the values of --progress.
var ProgressForms = []string{"auto", "bar", "log", "none"}

// progressForm resolves a form: auto is a bar on a terminal, and log lines elsewhere.
func progressForm(form string, w io.Writer) string {
	switch {
	case form != "auto":
		return form
	case Is(w):
		return "bar"
	}
	return "log"
}

// Show draws until the context ends, by the form that --progress names, and returns when the last state is drawn.
func (d *Display) Show(ctx context.Context, form string, w io.Writer, log *slog.Logger) {
	switch progressForm(form, w) {
	case "bar":
		drawBar(ctx, w, d.bar)
	case "log":
		d.log(ctx, log)
	}
}

// ShowCount shows how many of so many stored sites, or bytes, are done, by the form that --progress names, until the
// context ends.
func ShowCount(ctx context.Context, form, unit string, w io.Writer, log *slog.Logger, look func() (done, total int64)) {
	switch progressForm(form, w) {
	case "bar":
		drawBar(ctx, w, func() barState {
			done, total := look()
			return barState{done: done, total: total, unit: unit}
		})
	case "log":
		eachLogged(ctx, func(perSecond func(int64) int) {
			done, total := look()
			log.Info("progress", unit, done, "of", total, "per_second", perSecond(done))
		})
	}
}

// eachLogged calls do every logInterval until the context ends. perSecond returns how fast a number has grown since the
// call before.
func eachLogged(ctx context.Context, do func(perSecond func(int64) int)) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	last, at := int64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			do(func(n int64) int {
				grown := int(float64(n-last) / now.Sub(at).Seconds())
				last, at = n, now
				return grown
			})
		}
	}
}

// estimate is how many sites this run will have kept at its end. It is exact once the list is read. Before, it follows
// from the share of the list's bytes that has been read, and from Limit. known is false if there is no estimate, as for
// a pipe.
func (d *Display) estimate() (sites uint64, exact, known bool) {
	fed := d.Progress.Fed.Load()
	if d.Progress.ListDone() {
		return fed, true, true
	}
	seen := fed + d.Progress.Skipped.Load()
	if done, total := d.Read(); done > 0 && total > 0 {
		whole := uint64(float64(seen) * float64(total) / float64(min(done, total)))
		if d.Limit > 0 {
			whole = min(whole, d.Limit)
		}
		return max(fed, whole-min(whole, max(d.Progress.Skipped.Load(), d.Done))), false, true
	}
	return fed, false, false
}

// bar is what the bar shows: how many sites this run has kept, of how many, and the state of the others.
func (d *Display) bar() barState {
	p := d.Progress
	kept, answered, ok := p.Kept.Load(), p.Outcomes[exchange.Answered].Load(), p.Statuses[2].Load()
	s := barState{done: int64(kept)}
	if sites, exact, known := d.estimate(); known {
		s.total, s.about = int64(sites), !exact
	}
	s.facts = append(s.facts, printable.Number(kept-min(kept, answered))+" failed")
	waiting, slow := p.Waiting.Load()+p.Spilled.Load(), p.Silent.Load()+p.Asleep.Load()
	fact := func(n, above int64, text string) { // above is how many sites the pace does not count
		switch text = printable.Number(n) + text; {
		case n == 0:
		case s.unforeseen == "" && d.holdUp(above, &s):
			s.unforeseen = text
		default:
			s.facts = append(s.facts, text)
		}
	}
	fact(waiting, waiting-slow-pipeline.DefaultResolvers, " waiting") // at any time so many new sites wait
	fact(slow, slow, " slow or told to retry")
	if slow > 0 || p.Retries.Load()+p.Outcomes[exchange.Timeout].Load()+p.Outcomes[exchange.ConnectTimeout].Load() > 0 {
		// there are silent sites
		s.tail = d.Longest + time.Duration(float64(d.Longest)*d.atEnd(slow, &s)/float64(max(1, d.Slots)))
	}
	s.facts = append(s.facts, printable.Number(ok)+" with status 2xx")
	return s
}

// holdUp reports whether so many waiting sites may delay the end: the pace does not tell when they are done.
func (d *Display) holdUp(waiting int64, s *barState) bool {
	return s.total > 0 && d.atEnd(waiting, s) > heldUp*float64(s.total-s.done)
}

// atEnd is how many sites will wait at the list's end, if so many do now.
func (d *Display) atEnd(waiting int64, s *barState) float64 {
	if d.Progress.ListDone() {
		return float64(waiting)
	}
	return float64(waiting) * float64(s.total) / float64(max(1, d.Progress.Fed.Load()))
}

func (d *Display) log(ctx context.Context, log *slog.Logger) {
	eachLogged(ctx, func(perSecond func(int64) int) {
		p, names := d.Progress, d.Names()
		kept := p.Kept.Load()
		of, _, _ := d.estimate()
		log.Info("progress", "kept", kept, "of", of, "per_second", perSecond(int64(kept)),
			"ok", p.Statuses[2].Load(), "answered", p.Outcomes[exchange.Answered].Load(),
			"waiting", p.Waiting.Load(), "spilled", p.Spilled.Load(), "silent", p.Silent.Load(), "asleep", p.Asleep.Load(),
			"redirects", p.Redirects.Load(), "retries", p.Retries.Load(), "throttled", p.Throttled.Load(), DNSGroup(&names))
		LogServers(log, &names)
	})
}

// DNSGroup describes the look-ups in a few words: how many names the cache spared, how long the others took on average,
// and the servers with a problem, if any.
func DNSGroup(s *resolve.Stats) slog.Attr {
	if s.Lookups == 0 {
		return slog.Attr{} // which a log leaves out
	}
	attrs := []any{"lookups", s.Lookups, "cache_hits", s.CacheHits}
	var asked uint64
	for _, n := range s.Took {
		asked += n
	}
	if asked > 0 {
		attrs = append(attrs, "mean_ms", math.Round(10*s.TookSum.Seconds()*1000/float64(asked))/10)
	}
	if t := troubles(s.Servers); t != "" {
		attrs = append(attrs, "servers", t)
	}
	return slog.Group("dns", attrs...)
}

// troubles says what is wrong with name servers: with the worst few, the worst first.
func troubles(servers []resolve.ServerStats) string {
	const most = 3
	bad := slices.DeleteFunc(slices.Clone(servers), func(s resolve.ServerStats) bool {
		return s.Failures+s.Unheard == 0 && !s.Down
	})
	slices.SortStableFunc(bad, func(a, b resolve.ServerStats) int {
		return cmp.Compare(b.Failures+b.Unheard, a.Failures+a.Unheard)
	})
	var list []string
	for _, s := range bad[:min(len(bad), most)] {
		text := s.Addr.String()
		if s.Failures > 0 {
			text += fmt.Sprintf(" failed %d", s.Failures)
		}
		if s.Unheard > 0 {
			text += fmt.Sprintf(" unheard %d", s.Unheard)
		}
		if s.Down {
			text += " down"
		}
		list = append(list, text)
	}
	if n := len(bad) - most; n > 0 {
		list = append(list, fmt.Sprintf("%d more", n))
	}
	return strings.Join(list, ", ")
}

// LogServers logs all counts of the look-ups, at the level of debugging.
func LogServers(log *slog.Logger, s *resolve.Stats) {
	log.Debug("name servers", "shared", s.Shared, "stray_packets", s.Strangers)
	for i := range s.Servers {
		server := &s.Servers[i]
		log.Debug("name server", "addr", server.Addr, "questions", server.Questions, "answers", server.Answers,
			"failures", server.Failures, "unheard", server.Unheard, "tcp", server.TCP, "down", server.Down)
	}
}

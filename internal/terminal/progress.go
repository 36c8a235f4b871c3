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
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// The intervals of the display.
const (
	logInterval   = 10 * time.Second
	stillInterval = time.Second
)

// Display shows how a scan goes on. It only polls counters.
type Display struct {
	Progress *pipeline.Progress
	Names    func() resolve.Stats
	Read     func() (done, total int64) // of the list, in bytes; total 0 where unknown
	Limit    uint64                     // on the list's entries; 0: none
	Done     uint64                     // sites kept by earlier runs of the same scan
	Bar      Bar
}

// Bar draws a progress bar on w until the context ends: what look returns, and how much of it is done a second.
type Bar func(ctx context.Context, w io.Writer, look func() (done, total int64, state string))

// progressForms are the values of --progress.
var progressForms = []string{"auto", "bar", "log", "none"}

// CheckProgress refuses what is no form of --progress.
func CheckProgress(form string) error {
	if slices.Contains(progressForms, form) {
		return nil
	}
	return fmt.Errorf("--progress %q: one of %s", form, strings.Join(progressForms, ", "))
}

// progressForm is the form that is meant: a bar on a terminal, and log lines elsewhere.
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
		d.Bar(ctx, w, func() (done, total int64, state string) {
			return int64(d.Progress.Kept.Load()), int64(d.estimate()), d.state()
		})
	case "log":
		d.log(ctx, log)
	}
}

// Stalls warns of stalls of the process, whatever else is shown, until the context ends. A log that blocks is waited for
// here, where it does not stop the scan.
func (d *Display) Stalls(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(stillInterval)
	defer ticker.Stop()
	var told time.Duration
	for alive := true; alive; {
		select {
		case <-ctx.Done():
			alive = false
		case <-ticker.C:
		}
		if stood := d.Progress.Stalled(); stood > told {
			log.Warn("this process stood still; hosts that it kept waiting are asked again", "for", (stood - told).Round(100*time.Millisecond))
			told = stood
		}
	}
}

// ShowCount shows how many of so many stored sites are done, by the form that --progress names, until the context ends.
func ShowCount(ctx context.Context, form string, w io.Writer, log *slog.Logger, bar Bar, look func() (done, total int64)) {
	switch progressForm(form, w) {
	case "bar":
		bar(ctx, w, func() (done, total int64, state string) {
			done, total = look()
			return done, total, ""
		})
	case "log":
		ticker := time.NewTicker(logInterval)
		defer ticker.Stop()
		last, at := int64(0), time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				done, total := look()
				log.Info("progress", "sites", done, "of", total, "per_second", int(float64(done-last)/now.Sub(at).Seconds()))
				last, at = done, now
			}
		}
	}
}

// estimate is how many origins this run will have kept at its end, as far as is known: exactly once the list is read,
// before that from the share of its bytes that has been read, and from its limit.
func (d *Display) estimate() uint64 {
	fed := d.Progress.Fed.Load()
	if d.Progress.ListDone() {
		return fed
	}
	seen := fed + d.Progress.Skipped.Load()
	if done, total := d.Read(); done > 0 && total > 0 {
		whole := uint64(float64(seen) * float64(total) / float64(min(done, total)))
		if d.Limit > 0 {
			whole = min(whole, d.Limit)
		}
		return max(fed, whole-min(whole, max(d.Progress.Skipped.Load(), d.Done)))
	}
	return fed
}

// state is the bar's last words: how the answers are, and how many origins wait.
func (d *Display) state() string {
	p := d.Progress
	answered := p.Outcomes[exchange.Answered].Load()
	var b strings.Builder
	fmt.Fprintf(&b, "%d ok", p.Statuses[2].Load())
	fmt.Fprintf(&b, " %d other", answered-min(answered, p.Statuses[2].Load()))
	fmt.Fprintf(&b, " %d failed", p.Kept.Load()-min(p.Kept.Load(), answered))
	if n := p.Waiting.Load() + p.Spilled.Load(); n > 0 {
		fmt.Fprintf(&b, " %d waiting", n)
		// At a list's end it is these that one waits for.
		if slow := p.Deferred.Load() + p.Asleep.Load(); slow > 0 {
			fmt.Fprintf(&b, " (%d silent or told to come later)", slow)
		}
	}
	return b.String()
}

func (d *Display) log(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	last, at := uint64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p, names := d.Progress, d.Names()
			kept := p.Kept.Load()
			log.Info("progress",
				"kept", kept, "of", d.estimate(), "per_second", int(float64(kept-last)/now.Sub(at).Seconds()),
				"ok", p.Statuses[2].Load(), "answered", p.Outcomes[exchange.Answered].Load(),
				"waiting", p.Waiting.Load(), "spilled", p.Spilled.Load(), "deferred", p.Deferred.Load(), "asleep", p.Asleep.Load(),
				"redirects", p.Redirects.Load(), "retries", p.Retries.Load(), "throttled", p.Throttled.Load(), DNSGroup(&names))
			LogServers(log, &names)
			last, at = kept, now
		}
	}
}

// DNSGroup is how the look-ups go on, in a few words: of names, how many the cache spared and how long the others took on
// average; and only where there are any, those that were deferred, and the servers that something is wrong with.
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
	if s.Deferred > 0 {
		attrs = append(attrs, "put_off", s.Deferred)
	}
	if t := troubles(s.Servers); t != "" {
		attrs = append(attrs, "servers", t)
	}
	return slog.Group("dns", attrs...)
}

// troubles says of name servers what is wrong with them: of a few, the worst first.
func troubles(servers []resolve.ServerStats) string {
	const most = 3
	bad := slices.DeleteFunc(slices.Clone(servers), func(s resolve.ServerStats) bool { return s.Failures+s.Unheard == 0 && !s.Down })
	slices.SortStableFunc(bad, func(a, b resolve.ServerStats) int { return cmp.Compare(b.Failures+b.Unheard, a.Failures+a.Unheard) })
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

// LogServers logs everything that is counted of the look-ups, at the level of debugging.
func LogServers(log *slog.Logger, s *resolve.Stats) {
	log.Debug("name servers", "shared", s.Shared, "stray_packets", s.Strangers)
	for i := range s.Servers {
		server := &s.Servers[i]
		log.Debug("name server", "addr", server.Addr, "questions", server.Questions, "answers", server.Answers,
			"failures", server.Failures, "unheard", server.Unheard, "tcp", server.TCP, "down", server.Down)
	}
}

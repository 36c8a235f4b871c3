package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/pipeline"
)

// The intervals of the display.
const (
	barInterval   = 200 * time.Millisecond
	logInterval   = 10 * time.Second
	stillInterval = time.Second
)

// display shows how a run goes on. It only polls counters.
type display struct {
	progress *pipeline.Progress
	names    func() resolve.Stats
	read     func() (done, total int64) // of the list, in bytes; total 0 where unknown
	limit    uint64                     // on the list's entries; 0: none
	done     uint64                     // origins kept by earlier runs of the same scan
	begun    time.Time
}

// progressForms are the values of --progress.
var progressForms = []string{"auto", "bar", "log", "none"}

func checkProgress(form string) error {
	if slices.Contains(progressForms, form) {
		return nil
	}
	return usagef("--progress %q: one of %s", form, strings.Join(progressForms, ", "))
}

// progressForm is the form that is meant: a bar on a terminal, and log lines elsewhere.
func progressForm(form string, w io.Writer) string {
	switch {
	case form != "auto":
		return form
	case terminal(w):
		return "bar"
	}
	return "log"
}

// show draws until the context ends, by the form that --progress names, and returns when the last state is drawn.
func (d *display) show(ctx context.Context, form string, w io.Writer, log *slog.Logger) {
	switch progressForm(form, w) {
	case "bar":
		drawBar(ctx, w, d.begun, func() (done, total int64, state string) {
			return int64(d.progress.Kept.Load()), int64(d.estimate()), d.state()
		})
	case "log":
		d.log(ctx, log)
	}
}

// standstills warns of those that were noticed, whatever else is shown, until the context ends. Nobody else does: a log that
// nobody reads may be waited for here, and not where it would stop the scan.
func (d *display) standstills(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(stillInterval)
	defer ticker.Stop()
	var told time.Duration
	for alive := true; alive; {
		select {
		case <-ctx.Done():
			alive = false
		case <-ticker.C:
		}
		if stood := d.progress.Stood(); stood > told {
			log.Warn("this process stood still; hosts that it kept waiting are asked again", "for", (stood - told).Round(100*time.Millisecond))
			told = stood
		}
	}
}

// estimate is how many origins this run will have kept at its end, as far as is known: exactly once the list is read,
// before that from the share of its bytes that has been read, and from its limit.
func (d *display) estimate() uint64 {
	fed := d.progress.Fed.Load()
	if d.progress.ListDone() {
		return fed
	}
	seen := fed + d.progress.Skipped.Load()
	if done, total := d.read(); done > 0 && total > 0 {
		whole := uint64(float64(seen) * float64(total) / float64(min(done, total)))
		if d.limit > 0 {
			whole = min(whole, d.limit)
		}
		return max(fed, whole-min(whole, max(d.progress.Skipped.Load(), d.done)))
	}
	return fed
}

const barTemplate pb.ProgressBarTemplate = `{{counters . }} {{bar . "[" "=" ">" " " "]"}} {{percent . }} {{string . "rate"}} {{rtime . "%s left" "%s" ""}} {{string . "state"}}`

// drawBar draws a bar until the context ends: what the function returns, and how much of it is done a second.
func drawBar(ctx context.Context, w io.Writer, begun time.Time, look func() (done, total int64, state string)) {
	bar := barTemplate.New(0).SetWriter(w).SetRefreshRate(barInterval)
	bar.Start()
	ticker := time.NewTicker(barInterval)
	defer ticker.Stop()
	for alive := true; alive; {
		select {
		case <-ctx.Done():
			alive = false
		case <-ticker.C:
		}
		done, total, state := look()
		bar.SetTotal(total)
		bar.SetCurrent(done)
		bar.Set("rate", fmt.Sprintf("%.0f/s", float64(done)/time.Since(begun).Seconds()))
		bar.Set("state", state)
	}
	bar.Finish()
}

// state is the bar's last words: how the answers are, and how many origins wait.
func (d *display) state() string {
	p := d.progress
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

func (d *display) log(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	last, at := uint64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p, names := d.progress, d.names()
			kept := p.Kept.Load()
			log.Info("progress",
				"kept", kept, "of", d.estimate(), "per_second", int(float64(kept-last)/now.Sub(at).Seconds()),
				"ok", p.Statuses[2].Load(), "answered", p.Outcomes[exchange.Answered].Load(),
				"waiting", p.Waiting.Load(), "spilled", p.Spilled.Load(), "deferred", p.Deferred.Load(), "asleep", p.Asleep.Load(),
				"redirects", p.Redirects.Load(), "retries", p.Retries.Load(), "throttled", p.Throttled.Load(), dnsGroup(&names))
			logServers(log, &names)
			last, at = kept, now
		}
	}
}

// dnsGroup is how the look-ups go on, in a few words: of names, how many the cache spared and how long the others took on
// average; and only where there are any, those that were put off, and the servers that something is wrong with.
func dnsGroup(s *resolve.Stats) slog.Attr {
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
	if s.PutOff > 0 {
		attrs = append(attrs, "put_off", s.PutOff)
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

// logServers tells, to whoever wants to know more, everything that is counted of the look-ups.
func logServers(log *slog.Logger, s *resolve.Stats) {
	log.Debug("name servers", "shared", s.Shared, "stray_packets", s.Strangers)
	for i := range s.Servers {
		server := &s.Servers[i]
		log.Debug("name server", "addr", server.Addr, "questions", server.Questions, "answers", server.Answers,
			"failures", server.Failures, "unheard", server.Unheard, "tcp", server.TCP, "down", server.Down)
	}
}

// overBar writes lines of a log to a terminal on which a bar stands: the line that the bar has begun is cleared, and the bar
// draws itself anew below.
type overBar struct{ w io.Writer }

func (o overBar) Write(p []byte) (int, error) {
	n, err := o.w.Write(append([]byte("\r\x1b[K"), p...))
	return min(max(0, n-len("\r\x1b[K")), len(p)), err
}

// besideBar returns where the log goes of a run whose progress is shown on w in this form.
func besideBar(w io.Writer, form string) io.Writer {
	if file, ok := w.(*os.File); ok && (form == "auto" || form == "bar") && isTerminal(file) && os.Getenv("TERM") != "dumb" && takesColor(file) {
		return overBar{w}
	}
	return w
}

// newLogger makes the log that --log-format and --log-level ask for: a line a record, with nothing in it that a terminal would
// obey. slog quotes what would end a line or a value; it leaves DEL as it is, and in JSON also C1 controls and characters that
// reverse or hide text. Nor does it bound a value.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: one of debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l, ReplaceAttr: boundAttr}
	w = &printable.Writer{To: w}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usagef("--log-format %q: text or json", format)
}

// maxLogged bounds a text in the log, in bytes.
const maxLogged = 2048

// boundAttr bounds the texts of a record.
func boundAttr(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	default:
		return a // numbers, times, addresses
	}
	if len(text) > maxLogged {
		a.Value = slog.StringValue(printable.Head(text, maxLogged) + "…")
	}
	return a
}

package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
)

// TestTimeLeft checks the bar of complete scans each second. From a tenth of a scan on, the shown remaining time is
// right within a fifth, or a second; or no time is shown. A steady scan shows it most of the time.
func TestTimeLeft(t *testing.T) {
	const n = 1500
	shown := regexp.MustCompile(`\] +((?:\d+ h ?)?(?:\d+ min ?)?(?:\d+ s ?)?)left `)
	duration := strings.NewReplacer(" min", "m", " h", "h", " s", "s", " ", "")
	type trip func(share float64, since time.Duration) time.Duration
	// change is the share of the list after which the pace changes, and least the share of moments with a shown time. No
	// estimate can foresee the change, so the estimate counts again 5 s after it.
	f := func(what string, cfg simweb.Config, takes trip, change, resumed, least float64, flags ...string) {
		t.Helper()
		cfg.Only, cfg.Seed = append(cfg.Only, "ok"), 1
		inBubble(t, n, cfg, func(t *testing.T, w *world) {
			w.timeout = "15s"
			begun := time.Now()
			share := func() float64 { return float64(w.web.Stats().Requests) / n }
			w.latency = func() time.Duration { return takes(share(), time.Since(begun)) }
			out := filepath.Join(t.TempDir(), "out")
			flags = append(flags, "--retry-after", "1s", "--progress", "bar", "--scheme", "http")
			if resumed > 0 {
				p := w.scan(t, out, flags...)
				p.await(t, "requests", func() bool { return share() >= resumed })
				p.signal(t, os.Interrupt)
				p.exits(t, exitInt)
				begun = time.Now()
			}
			p := w.scan(t, out, flags...)
			var times, lines []string
			changed := time.Duration(0)
			for running := true; running; {
				select {
				case <-p.gone:
					running = false
				case <-time.After(time.Second):
					screen, said := p.stderr.String(), ""
					line := screen[strings.LastIndexByte(screen, '\r')+1:]
					if found := shown.FindStringSubmatch(line); found != nil {
						said = duration.Replace(found[1])
					}
					times, lines = append(times, said), append(lines, line)
					if changed == 0 && share() >= change {
						changed = time.Since(begun) + 5*time.Second
					}
				}
			}
			took := time.Since(begun)
			p.exits(t, 0)
			looked, told := 0, 0
			for i, said := range times {
				at := time.Duration(i+1) * time.Second
				if at < took/10 || change > 0 && at < changed {
					continue
				}
				looked++
				left, err := time.ParseDuration(said)
				if err != nil {
					continue
				}
				told++
				if truth := took - at; math.Abs((left - truth).Seconds()) > max(1, 0.2*truth.Seconds()) {
					t.Errorf("%s: after %v, of %v, it says\n%s", what, at, took, lines[i])
				}
			}
			if float64(told) < least*float64(looked) || looked < 30 {
				t.Errorf("%s: it says what is left at %d of %d moments", what, told, looked)
			}
		})
	}
	const usual, far = 100 * time.Millisecond, 200 * time.Millisecond
	always := func(float64, time.Duration) time.Duration { return usual }
	slower := func(by time.Duration) trip {
		return func(share float64, _ time.Duration) time.Duration {
			if share < 0.5 {
				return usual
			}
			return by
		}
	}
	dead := simweb.Config{Only: []string{"silent"}, Shares: map[string]float64{"silent": 0.028}}
	f("steady", simweb.Config{}, always, 0, 0, 0.9, "--concurrency", "10")
	f("a rate", simweb.Config{}, always, 0, 0, 0.9, "--rate", "10")
	f("a slow start", simweb.Config{}, func(_ float64, since time.Duration) time.Duration {
		return max(usual, 500*time.Millisecond-since/20)
	}, 0, 0, 0.5, "--concurrency", "5")
	f("resumed", simweb.Config{}, always, 0, 0.33, 0.8, "--concurrency", "10")
	f("a slower half", simweb.Config{}, slower(usual*6/5), 0, 0, 0.7, "--concurrency", "10")
	f("a much slower half", simweb.Config{}, slower(far), 0.5, 0, 0.5, "--concurrency", "10")
	f("dead hosts", dead, always, 0, 0, 0, "--concurrency", "50")
	f("dead hosts, a rate", dead, always, 0, 0, 0, "--concurrency", "50", "--rate", "20")
	f("dead hosts, no retries", dead, always, 0, 0, 0, "--concurrency", "300", "--rate", "10", "--retries", "0")
	f("dead hosts, free slots", dead, always, 0, 0, 0.1, "--concurrency", "300", "--rate", "2")
}

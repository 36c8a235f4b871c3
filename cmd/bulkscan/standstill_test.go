//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestStoppedScanGoesOn stops a scan by SIGSTOP for longer than all its time-outs, twice, with hundreds of exchanges
// and look-ups under way, and lets it continue. Every row is the same as without the stop, each host got as many
// requests, and waiting requests do not come all at once. The archive of the scan, read back, gives the same rows.
func TestStoppedScanGoesOn(t *testing.T) {
	notShort(t)
	t.Parallel()
	const (
		slow    = time.Second     // what most hosts take to answer
		timeout = 4 * time.Second // so much longer that a busy machine causes no time-out
		rate    = 200
		n       = 400 // slow hosts; of other kinds there are a few
		stop    = 6 * time.Second
	)
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 9, Bodies: 128, Slow: slow, Hold: 4*timeout + stop,
		HotShare: 1, RecordAccepts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	var hosts []string
	// The kinds of hosts are mixed so that at any moment each kind is in flight. Entries have a scheme, since with a
	// fallback the number of requests would depend on chance.
	for i := range n {
		hosts = append(hosts, fmt.Sprintf("https://h%d.late.zoo.test", i), fmt.Sprintf("http://p%d.late.zoo.test", i))
		for j, animal := range []string{"ok", "slow", "drip", "huge", "dns-slow", "dns-late", "dns-truncated", "not-found",
			"error-503", "redirect-3", "reset-body", "close-chunk", "silent"} {
			if i%10 == j%10 {
				hosts = append(hosts, fmt.Sprintf("https://h%d.%s.zoo.test", i, animal))
			}
		}
	}
	dir := t.TempDir()
	w := &world{web: web, list: filepath.Join(dir, "list.txt"), truth: filepath.Join(dir, "truth.jsonl")}
	var truth bytes.Buffer
	policy := simweb.DefaultPolicy()
	policy.TrustCA, policy.Retries = true, 1
	if err := web.WriteTruth(&truth, slices.Values(hosts), policy); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{w.list: strings.Join(hosts, "\n"), w.truth: truth.String()} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	out, kept := filepath.Join(dir, "out"), filepath.Join(dir, "kept")
	p := w.scan(t, out, "--warc-out", kept, "--timeout", timeout.String(), "--connect-timeout", "2s", "--retries", "1",
		"--concurrency", "600", "--ip-rate", strconv.Itoa(rate), "--log-level", "warn")
	var resumed []time.Time
	for _, share := range []int{4, 2} {
		enough := int64(len(hosts) / share)
		p.await(t, fmt.Sprintf("%d requests", enough), func() bool { return web.Stats().Requests >= enough })
		p.signal(t, syscall.SIGSTOP)
		time.Sleep(stop) // the pause itself
		resumed = append(resumed, time.Now())
		p.signal(t, syscall.SIGCONT)
	}
	p.exits(t, 0)
	w.holds(t, out)
	p.says(t, "this process stood still")

	// Spoilt exchanges are archived, too, but do not count there either.
	judgedAlike(t, out, kept, len(hosts)/2)

	// Rows count attempts as if there had been no stop.
	attempts := map[string]int32{"late": 1, "slow": 1, "ok": 1, "drip": 1, "dns-slow": 1, "dns-late": 1, "error-503": 2,
		"silent": 2}
	scan, err := latest(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	each(t, scan, schema.Sites, func(r *schema.SiteRow) {
		kind := strings.Split(r.Host, ".")[1]
		if want, known := attempts[kind]; known && r.Attempts != want {
			t.Errorf("%s: %d attempts, want %d", r.Origin, r.Attempts, want)
		}
	})
	// Exchanges that passed the limiter before the process was stopped connect when it continues: no more than a second
	// allows. A rate that gathered tokens would send a thousand then.
	for _, from := range resumed {
		came := 0
		for _, at := range web.Accepts(web.HotAddr()) {
			if took := at.Sub(from); took > 0 {
				came++
				if most := mostIn(took+time.Second, rate); came > most {
					t.Fatalf("%d connections in the first %v after a stop at --ip-rate %d, at most %d are allowed", came, took, rate,
						most)
				}
			}
		}
	}
}

// mostIn returns how many connections a scan may open in that time at a rate. In one second, 1.1 times the rate plus
// one are promised (pipeline/limiter.go). Since the time is counted from the moment at which the scan continues, a busy
// machine only allows more.
func mostIn(took time.Duration, rate float64) int {
	return int(math.Ceil(took.Seconds()) * (1.1*rate + 1))
}

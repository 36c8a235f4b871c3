package terminal

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/pipeline"
)

// A line of the log about names is as short as possible.
func TestDNSInLog(t *testing.T) {
	server := func(addr string, failures, unheard uint64, down bool) resolve.ServerStats {
		return resolve.ServerStats{Addr: netip.MustParseAddrPort(addr), Questions: 100, Answers: 90, Failures: failures,
			Unheard: unheard, TCP: 1, Down: down}
	}
	good, bad, worse, down := server("192.0.2.1:53", 0, 0, false), server("192.0.2.2:53", 3, 0, false),
		server("192.0.2.3:53", 2, 70, false), server("[2001:db8::4]:53", 0, 5, true)
	logged := func(level string, s resolve.Stats) string {
		var b bytes.Buffer
		log := NewLogger(&b, "text", level)
		log.Info("x", "kept", 1, DNSGroup(&s))
		LogServers(log, &s)
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		for i, line := range lines {
			_, lines[i], _ = strings.Cut(line, " ") // the time
		}
		return strings.Join(lines, "\n")
	}
	f := func(s resolve.Stats, want string) {
		t.Helper()
		if got := logged("info", s); got != strings.TrimSpace("level=INFO msg=x kept=1 "+want) {
			t.Errorf("got  %s\nwant … %s", got, want)
		}
	}
	f(resolve.Stats{}, "")
	f(resolve.Stats{Servers: []resolve.ServerStats{good}}, "")
	f(resolve.Stats{Lookups: 7, CacheHits: 7, Servers: []resolve.ServerStats{good}}, "dns.lookups=7 dns.cache_hits=7")
	timed := resolve.Stats{Lookups: 7, CacheHits: 3, Shared: 1, Strangers: 2, TookSum: 50 * time.Millisecond,
		Servers: []resolve.ServerStats{good}}
	timed.Took[2], timed.Took[len(timed.Took)-1] = 2, 1
	f(timed, "dns.lookups=7 dns.cache_hits=3 dns.mean_ms=16.7")
	f(resolve.Stats{Lookups: 7, Servers: []resolve.ServerStats{good, bad}},
		`dns.lookups=7 dns.cache_hits=0 dns.servers="192.0.2.2:53 failed 3"`)
	f(resolve.Stats{Lookups: 7, Servers: []resolve.ServerStats{bad, good, down, bad, worse}},
		`dns.lookups=7 dns.cache_hits=0 dns.servers="192.0.2.3:53 failed 2 unheard 70, [2001:db8::4]:53 unheard 5 down, 192.0.2.2:53 failed 3, 1 more"`)
	odd := bad
	odd.Addr = netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone("\x1b[31m\n"), 53)
	f(resolve.Stats{Lookups: 1, Servers: []resolve.ServerStats{odd}},
		`dns.lookups=1 dns.cache_hits=0 dns.servers="[fe80::1%\x1b[31m\n]:53 failed 3"`)

	want := `level=DEBUG msg="name servers" shared=1 stray_packets=2
level=DEBUG msg="name server" addr=192.0.2.1:53 questions=100 answers=90 failures=0 unheard=0 tcp=1 down=false`
	if got := logged("debug", timed); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant at the end\n%s", got, want)
	}
}

// How many origins a run will keep, guessed while the list is being read: never more than its limit leaves.
func TestEstimate(t *testing.T) {
	f := func(fed, skipped, done, limit uint64, read, total int64, want uint64) {
		t.Helper()
		var p pipeline.Progress
		p.Fed.Store(fed)
		p.Skipped.Store(skipped)
		d := &Display{Progress: &p, Read: func() (int64, int64) { return read, total }, Done: done, Limit: limit}
		if got, _, _ := d.estimate(); got != want {
			t.Errorf("%d fed and %d skipped, %d of %d bytes, limit %d: got %d, want %d", fed, skipped, read, total, limit, got,
				want)
		}
	}
	f(100, 0, 0, 0, 10, 0, 100)
	f(100, 0, 0, 0, 0, 1000, 100)
	f(100, 0, 0, 0, 10, 1000, 10000)
	f(100, 0, 0, 15000, 10, 1000, 10000)
	f(100, 0, 0, 5000, 10, 1000, 5000)
	f(100, 100, 300, 0, 10, 1000, 19700)
	f(100, 100, 300, 5000, 10, 1000, 4700)
	f(100, 400, 300, 500, 10, 1000, 100)
	f(100, 0, 0, 100, 2000, 1000, 100)
}

package simweb

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// zooPolicy is how the zoo is scanned.
func zooPolicy(retries int) Policy {
	return Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: retries, TrustCA: true}
}

// zooWeb is where the zoo lives.
func zooWeb() Config { return Config{Seed: 11, Addresses: 8, Slow: 50 * time.Millisecond} }

// zooEntries are the three forms in which a list names a host of a behaviour.
func zooEntries(b *Behaviour) []string {
	host := b.Name + zooSuffix
	return []string{host, "http://p." + host, "https://s." + host}
}

// TestZoo scans a host of each behaviour with resolver, schedule, fetcher and audit, in the three forms of a list's
// entry. Each has exactly one row, which is true. Another scan has the same rows, to the nanosecond.
func TestZoo(t *testing.T) {
	p := zooPolicy(2)
	scan := func() (rows []zooRow) {
		synctest.Test(t, func(t *testing.T) {
			w := testWeb(t, zooWeb())
			var entries []string
			for i := range behaviours {
				entries = append(entries, zooEntries(&behaviours[i])...)
			}
			client := newFetcher(t, w, p)
			// Until the name server has answered a question with EDNS, a failure is doubted and takes longer.
			client.Resolve(t.Context(), client.First(mustOrigin(t, "first"+landingSuffix), exchange.Past{}))
			rows = scanList(t, client, entries...)
			for i, row := range rows {
				row.mustBe(t, entries[i], w.Expect(mustOrigin(t, entries[i]), p))
				name, waits := behaviours[i/3].Name, strings.HasPrefix(entries[i], "https://")
				if want, long := zooTimes[name]; waits && (long && row.timing.Total != want || !long &&
					row.timing.Total > 200*time.Millisecond) {
					t.Errorf("%s took %v, want %v", entries[i], row.timing.Total, want)
				}
			}
			closed(t, w)
		})
		return rows
	}
	rows, again := scan(), scan()
	for i := range rows {
		if rows[i] != again[i] {
			t.Errorf("%s: once\n%+v\nthen\n%+v", behaviours[i/3].Name, rows[i], again[i])
		}
	}
}

// zooTimes is how long the exchanges with a host take by https, look-ups included. All others take 200 ms at most.
var zooTimes = func() map[string]time.Duration {
	const ms = time.Millisecond
	times := map[string]time.Duration{
		// A question is repeated after 400 ms, and asked again where servers fail.
		"dns-slow": 240 * ms, "dns-late": 640 * ms, "dns-lost": 440 * ms, "servfail": 510 * ms, "dns-refused": 510 * ms,
		"dns-silent": 30_000 * ms, // three times
		// A connection has five seconds, and two while another address is known.
		"black-hole": 15_030 * ms, "black-hole-beside": 2040 * ms, "black-hole-beside-ipv6": 5050 * ms,
		"gzip-whole-silent": 15_010 * ms,
	}
	for _, name := range []string{
		"silent", "silent-head", "silent-in-head", "silent-body", "silent-large-body", "drip-head", "drip-body", "tls-silent",
		"tls-drip", "tls-stall",
	} {
		times[name] = 10*ms + 3*15*time.Second
	}
	return times
}()

// TestWholeScan scans 600 hosts with rates, and defers the silent ones. Each row is true, and the same in another scan.
func TestWholeScan(t *testing.T) {
	p := zooPolicy(2)
	scan := func() (found []found) {
		synctest.Test(t, func(t *testing.T) {
			w := testWeb(t, Config{Seed: 12, Addresses: 64})
			var entries []string
			for _, host := range Names(12, 600) {
				entries = append(entries, host)
			}
			cfg := pipeline.Config{Concurrency: 50, HostRate: 1, IPRate: 10, Rate: 100, MaxWaiting: 200}
			rows, _ := scanListBy(t, cfg, newFetcher(t, w, p), entries...)
			for i, row := range rows {
				if want := w.Expect(mustOrigin(t, entries[i]), p); !want.same(row.found) {
					t.Errorf("%s:\nfound %+v\nwant  %+v", entries[i], row, want)
				}
				found = append(found, row.found)
			}
			closed(t, w)
		})
		return found
	}
	if once, again := scan(), scan(); !slices.Equal(once, again) {
		t.Error("two scans differ")
	}
}

// closed fails if a connection to a web is open.
func closed(t *testing.T, w *Web) {
	t.Helper()
	time.Sleep(2 * time.Second) // a dripping host sees the end when it writes next
	if open := w.Stats().Open; open > 0 {
		t.Errorf("%d connections remain", open)
	}
}

// TestZooOnSockets scans the hosts whose answers do not depend on time by the production dialer and resolver. No file
// is left.
func TestZooOnSockets(t *testing.T) {
	// The runtime keeps the poller that it opens with the first socket.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
	files := openFiles()
	t.Run("scan", func(t *testing.T) {
		w, err := Start(t.Context(), zooWeb())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		p := zooPolicy(2)
		var entries []string
		for i := range behaviours {
			for _, entry := range zooEntries(&behaviours[i]) {
				if !waits(w.Expect(mustOrigin(t, entry), p)) {
					entries = append(entries, entry)
				}
			}
		}
		for i, row := range scanList(t, newFetcher(t, w, p), entries...) {
			row.mustBe(t, entries[i], w.Expect(mustOrigin(t, entries[i]), p))
		}
	})
	for end := time.Now().Add(time.Minute); openFiles() > files && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if now := openFiles(); now > files {
		t.Errorf("%d files remain, %d before", now, files)
	}
}

// waits reports whether a scan waits for a time-out, or for an address that gets too many requests, or depends on the
// number of requests: an exchange that a stall of this process has spoilt is made again.
func waits(e Expect) bool {
	switch b := behaviourNamed(e.Behaviour); {
	case b.slows, b.counts, b.name == nameSilent, b.name == nameBesideHole, b.name == nameSixBesideHole,
		b.Name == nameWholeSilent:
		return true
	case b.hello == helloHang, b.hello == helloDrip, b.hello == helloStall:
		return true
	}
	return slices.Contains(e.Outcomes, exchange.Timeout) || slices.Contains(e.Outcomes, exchange.ConnectTimeout)
}

// TestBreaksAnywhere ends answers after each of their bytes, plain and by TLS, and compares outcome, status and body
// with the truth. The expected sequence of outcomes over all positions was counted by hand.
func TestBreaksAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := zooPolicy(0)
		w := testWeb(t, zooWeb())
		client := newFetcher(t, w, p)
		f := func(name string, bytes int, want string) {
			t.Helper()
			var entries []string
			for n := range bytes + 1 {
				for _, scheme := range []string{"http", "https"} {
					entries = append(entries, fmt.Sprintf("%s://at%d.%s%s", scheme, n, name, zooSuffix))
				}
			}
			var ends []string // equal neighbours once
			count := 0
			end := func(text string) {
				if len(ends) > 0 && ends[len(ends)-1] == text {
					count++
					return
				}
				if count > 0 {
					ends[len(ends)-1] += fmt.Sprintf(" ×%d", count+1)
				}
				ends, count = append(ends, text), 0
			}
			for i, got := range scanList(t, client, entries...) {
				got.mustBe(t, entries[i], w.Expect(mustOrigin(t, entries[i]), p))
				if i%2 == 0 {
					text := fmt.Sprint(got.Outcome)
					if got.Status != 0 {
						text += fmt.Sprint(" ", got.Status)
					}
					end(text)
				}
			}
			end("")
			if got := strings.Join(ends[:len(ends)-1], ", "); got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
			}
		}
		f("reset-length", 39+27, "reset ×39, reset 200 ×27, answered 200")
		f("close-length", 39+27, "closed_early ×39, closed_early 200 ×27, answered 200")
		f("reset-chunked", 47+46, "reset ×47, reset 200 ×44, answered 200 ×3")
		f("close-chunked", 47+46, "closed_early ×47, closed_early 200 ×44, answered 200 ×3")
		f("reset-gzip", 63+52, "reset ×63, reset 200 ×52, answered 200")
		f("close-gzip", 63+52, "closed_early ×63, closed_early 200 ×52, answered 200")
		f("reset-until-close", 38+27, "reset ×38, reset 200 ×28")
		f("close-until-close", 38+27, "closed_early ×38, answered 200 ×28")
		f("close-gzip-until-close", 43+52, "closed_early ×43, answered 200, closed_early 200 ×51, answered 200")
		closed(t, w)
	})
}

// TestThrottlingAddress scans 200 sites at 400 requests a second, at an address that answers 50 a second and the others
// with 429. Each ends with its file, and the rate has adapted to the address.
func TestThrottlingAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{Addresses: 2, RecordAccepts: true})
		p := Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 3, TrustCA: true}
		client := newFetcher(t, w, p)
		const n = 200
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf("http://a%d.throttling%s", i, zooSuffix))
		}
		rows, throttled := scanListBy(t, pipeline.Config{Concurrency: 32, IPRate: 400}, client, entries...)
		attempts := 0
		for i, row := range rows {
			if want := w.Expect(mustOrigin(t, entries[i]), p); !want.same(row.found) {
				t.Errorf("%s after %d attempts:\nfound %+v\nwant  %+v", entries[i], row.attempts, row, want)
			}
			attempts += row.attempts
		}
		accepts := w.Accepts(w.world.ordinary[0])
		if len(accepts) != attempts || attempts != n+11 || throttled != 11 {
			t.Errorf("%d connections were accepted and %d throttled; the rows have %d attempts, want 11 more than %d",
				len(accepts), throttled, attempts, n)
		}
		// Three doublings lead to some 49 requests a second.
		const interval = 8 * 2_562_359 * time.Nanosecond
		for i := len(accepts) - 149; i < len(accepts); i++ {
			if pause := accepts[i].Sub(accepts[i-1]); pause != interval {
				t.Errorf("connection %d came %v after the one before; want %v", i, pause, interval)
			}
		}
	})
}

// openFiles returns the number of this process's open files and sockets, or 0 if the system does not tell.
func openFiles() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// zooRow holds the parts of a row that the truth has, and its times.
type zooRow struct {
	found
	access   string
	attempts int
	timing   exchange.Timing
}

func newRow(access string, r *exchange.Response) zooRow {
	return zooRow{foundIn(r), access, r.Attempts, r.Timing}
}

func (r zooRow) mustBe(t *testing.T, entry string, want Expect) {
	t.Helper()
	// This scanner on Linux always finds the first of several outcomes.
	exact := want
	if runtime.GOOS == "linux" {
		exact.Outcomes = want.Outcomes[:1]
	}
	if !exact.same(r.found) || r.Outcome == want.Outcomes[0] && (r.access != want.Access || r.attempts != want.Attempts) {
		want.Body = nil
		t.Errorf("%s:\nfound %+v\nwant  %+v", entry, r, want)
	}
}

// scanList scans entries by a pipeline that defers no host, and returns their rows in order.
func scanList(t *testing.T, client *fetcher.Fetcher, entries ...string) []zooRow {
	t.Helper()
	rows, _ := scanListBy(t, pipeline.Config{Concurrency: len(entries), Resolvers: len(entries)}, client, entries...)
	return rows
}

// scanListBy is scanList with its own rates. It also returns how many exchanges were throttled.
func scanListBy(t *testing.T, cfg pipeline.Config, client *fetcher.Fetcher, entries ...string) (rows []zooRow,
	throttled uint64) {
	t.Helper()
	cfg.SpillDir = t.TempDir()
	s := &zooSink{rows: make([]zooRow, len(entries)), kept: make([]int, len(entries))}
	list := &zooList{t: t, entries: entries}
	run := pipeline.New(cfg, list, client, audit.New(tokens.Default()), s)
	if err := run.Run(t.Context()); err != nil {
		t.Error(err)
	}
	for i, n := range s.kept {
		if n != 1 {
			t.Errorf("%s has %d rows", entries[i], n)
		}
	}
	if left, err := os.ReadDir(cfg.SpillDir); err != nil || len(left) > 0 {
		t.Errorf("temporary files remain: %v %v", left, err)
	}
	return s.rows, run.Progress().Throttled.Load()
}

// zooList is a list to scan.
type zooList struct {
	t       *testing.T
	entries []string
	next    int
}

func (l *zooList) Next() (pipeline.Entry, error) {
	if l.next == len(l.entries) {
		return pipeline.Entry{}, io.EOF
	}
	input := l.entries[l.next]
	l.next++
	return pipeline.Entry{Seq: uint64(l.next - 1), Input: input, Origin: mustOrigin(l.t, input)}, nil
}

// zooSink keeps rows.
type zooSink struct {
	rows []zooRow
	kept []int
}

func (s *zooSink) Add(site *audit.Site) error {
	if site.Seq >= uint64(len(s.rows)) {
		return errors.New("a row without an entry")
	}
	s.rows[site.Seq] = newRow(site.Report.Access.String(), &site.Fetch)
	s.kept[site.Seq]++
	return nil
}

// foundIn returns a response in a comparable form.
func foundIn(r *exchange.Response) found {
	f := found{
		Outcome: r.Outcome, Status: r.Status, Hops: len(r.Hops), Truncated: r.Truncated, Bytes: int64(len(r.Body)),
		Scheme: r.Final.Origin.Scheme(), Verified: r.TLSVerified,
	}
	if f.Bytes > 0 {
		f.Hash = xxhash.Sum64(r.Body)
	}
	return f
}

// TestZooIsComplete checks that known misbehaviour of servers is in the table, and that every outcome has a behaviour.
func TestZooIsComplete(t *testing.T) {
	known := strings.Fields(`
		endless-length endless-chunked endless endless-extension close-body close-chunk bad-chunk ok-gzip ok-br ok-zstd ok-deflate
		ok-deflate-bare gzip-corrupt br-corrupt zstd-corrupt deflate-corrupt gzip-bomb br-bomb zstd-bomb deflate-bomb ok-nested
		nested-three drip-body empty no-content html utf16 nul

		long-head endless-head endless-line endless-1xx early-hints bare-lf no-reason status-999 negative-length same-lengths two-lengths
		http09 ok-http10 ssh binary silent-head silent-in-head drip-head reset-length reset-chunked reset-gzip reset-until-close
		close-length close-chunked close-gzip close-until-close

		redirect-5 redirect-6 redirect-loop redirect-self redirect-relative redirect-query redirect-schemeless redirect-back
		redirect-bounce redirect-port redirect-userinfo redirect-fragment redirect-crlf redirect-long redirect-too-long redirect-empty
		redirect-private redirect-private-name redirect-file redirect-script

		tls-silent tls-close tls-plain tls-expired tls-wrong-name tls-self-signed tls-unknown-ca tls-12 tls-10 tls-alert
		tls-long-chain tls-drip

		nxdomain servfail no-address dns-silent dns-truncated alias-loop dns-wrong-id dns-wrong-question dns-ipv6 dns-zero
		dns-private dns-changing

		not-found-two-lengths not-found-bad-length not-found-bad-chunk not-found-close-body not-found-reset-body not-found-silent-body
		not-found-coding-unknown forbidden-transfer-unknown error-huge-length redirect-two-lengths redirect-silent-body
		redirect-nowhere-transfer request-timeout flaky-408 gzip-whole-close gzip-whole-reset gzip-whole-silent zstd-whole-close
		deflate-whole-close deflate-bare-whole-close br-whole-close`)
	for _, name := range known {
		if behaviourNamed(name) == nil {
			t.Errorf("no behaviour %s", name)
		}
	}
	if len(known) < 90 {
		t.Errorf("%d known behaviours", len(known))
	}
	w := testWeb(t, Config{})
	// no host leads to these
	seen := map[exchange.Outcome]bool{exchange.OptedOut: true, exchange.ConnectFailed: true, exchange.NotArchived: true,
		exchange.Carried: true}
	for _, guarded := range []bool{false, true} {
		p := DefaultPolicy()
		p.Guarded = guarded
		for _, b := range behaviours {
			for _, entry := range []string{b.Name + zooSuffix, "https://" + b.Name + zooSuffix} {
				seen[w.Expect(mustOrigin(t, entry), p).Outcomes[0]] = true
			}
		}
	}
	for _, o := range exchange.Outcomes() {
		if !seen[o] {
			t.Errorf("nothing leads to %v", o)
		}
	}
}

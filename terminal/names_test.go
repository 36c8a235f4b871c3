package terminal

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/observer"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

func TestLeft(t *testing.T) {
	f := func(seconds int64, want string) {
		t.Helper()
		if got := left(seconds); got != want {
			t.Errorf("%d: %s, want %s", seconds, got, want)
		}
	}
	f(0, "0 s left")
	f(119, "119 s left")
	f(120, "2 min left")
	f(7199, "119 min left")
	f(7200, "2 h left")
}

func TestMillis(t *testing.T) {
	f := func(ms float64, want string) {
		t.Helper()
		if got := millis(ms); got != want {
			t.Errorf("%v: %s, want %s", ms, got, want)
		}
	}
	f(0.2, "less than 1 ms")
	f(1, "1 ms")
	f(12.6, "13 ms")
	f(9999, "9999 ms")
	f(10040, "10.0 s")
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range list {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// What the page says about a name, whatever became of it.
func TestDNSWords(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server := netip.MustParseAddrPort("192.0.2.53:53")
	f := func(a resolve.Answer, dialled []netip.Addr, want string) {
		t.Helper()
		o := &observer.Observer{}
		o.Answered("a.test", a, false)
		for _, addr := range dialled {
			o.Dialled("a.test", addr)
		}
		if got := (&explanation{}).dnsWords(&o.Result(now).Hosts[0]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	ms := time.Millisecond
	f(resolve.Answer{Addrs: addrs("192.0.2.1"), Until: now.Add(5 * time.Minute), Took: 12 * ms, Server: server}, addrs("192.0.2.1"),
		"a.test: 192.0.2.1 (dialled); 5 min left; by 192.0.2.53:53 in 12 ms")
	f(resolve.Answer{Addrs: addrs("192.0.2.1", "192.0.2.2"), Until: now.Add(1500 * ms), Took: ms / 5, Server: server, Alias: "b.test."}, addrs("192.0.2.2"),
		"a.test is an alias of b.test: 192.0.2.1, 192.0.2.2 (dialled); 2 s left; by 192.0.2.53:53 in less than 1 ms")
	f(resolve.Answer{Addrs: addrs("10.0.0.1"), Until: now.Add(-time.Second), Took: ms, Server: server}, nil,
		"a.test: 10.0.0.1; 0 s left; by 192.0.2.53:53 in 1 ms")
	f(resolve.Answer{Addrs: addrs("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6", "192.0.2.7")}, addrs("192.0.2.6", "192.0.2.1"),
		"a.test: 192.0.2.1 (dialled), 192.0.2.2, 192.0.2.3, 192.0.2.4, 192.0.2.6 (dialled), 2 more; from the hosts file")
	f(resolve.Answer{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName, Until: now.Add(time.Minute), Took: 3 * ms, Server: server}, nil,
		"a.test: not found: the name does not exist (NXDOMAIN); 60 s left; by 192.0.2.53:53 in 3 ms")
	f(resolve.Answer{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoAddress, Took: 3 * ms, Server: server, Alias: "b.test"}, nil,
		"a.test is an alias of b.test: not found: the name has no address; by 192.0.2.53:53 in 3 ms")
	f(resolve.Answer{Outcome: exchange.DNSFailed, Cause: exchange.CauseServFail, Took: 40 * ms, Server: server}, nil,
		"a.test: failed: the name server failed (SERVFAIL); by 192.0.2.53:53 in 40 ms")
	f(resolve.Answer{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout, Took: 10 * time.Second}, nil,
		"a.test: timeout: no name server answered in time; after 10.0 s")
	f(resolve.Answer{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName}, nil, "a.test: not found: the name does not exist (NXDOMAIN)")
}

// A host is told of once, in the order of the way, by the answer that says most.
func TestObserver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := &observer.Observer{}
	if r := o.Result(now); r != nil {
		t.Errorf("an observer that has seen nothing says %v", r)
	}
	server := netip.MustParseAddrPort("192.0.2.53:53")
	first := resolve.Answer{Addrs: addrs("192.0.2.1", "192.0.2.2"), Until: now.Add(time.Hour), Took: 20 * time.Millisecond, Server: server}
	cached := first
	cached.Took = 0
	o.Answered("a.test", first, false)
	o.Dialled("a.test", first.Addrs[1])
	o.Answered("b.test", resolve.Answer{Addrs: addrs("192.0.2.9")}, false)
	o.Dialled("b.test", addrs("192.0.2.9")[0])
	o.Answered("a.test", cached, false)
	o.Dialled("a.test", first.Addrs[1])
	o.Dialled("a.test", first.Addrs[0])
	o.Answered("a.test", resolve.Answer{Addrs: addrs("2001:db8::1"), Until: now.Add(time.Minute), Took: 5 * time.Millisecond, Server: server}, true)
	o.Dialled("a.test", addrs("2001:db8::1")[0])
	o.Dialled("a.test", netip.Addr{})
	o.Dialled("elsewhere.test", first.Addrs[0])

	x := explanation{}
	var got []string
	for _, h := range o.Result(now).Hosts {
		got = append(got, x.dnsWords(&h))
	}
	want := "a.test: 192.0.2.1 (dialled), 192.0.2.2 (dialled), 2001:db8::1 (dialled); 60 s left; by 192.0.2.53:53 in 25 ms\n" +
		"b.test: 192.0.2.9 (dialled); from the hosts file"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	// A later answer that came from a server counts.
	o.Answered("a.test", resolve.Answer{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout, Took: 10 * time.Second}, false)
	if h := o.Result(now).Hosts[0]; h.Outcome != "dns_timeout" {
		t.Errorf("the last answer is %v", h)
	}
}

// An alias is what a stranger's name server says: it does nothing to a terminal, nor to JSON.
func TestHostileAlias(t *testing.T) {
	evil := "\x1b[31mevil\u202e\n\x07" + strings.Repeat("\u0301", 50) + strings.Repeat("very-long.", 200) + "\xff\u009b2J"
	o := &observer.Observer{}
	o.Answered("a.test", resolve.Answer{Addrs: addrs("192.0.2.1"), Alias: evil, Server: netip.MustParseAddrPort("192.0.2.53:53")}, false)
	site := &audit.Site{}
	audit.New(tokens.Default()).Judge(site)
	result, dns := audit.Explain(site), o.Result(time.Now())
	f := func(what string, print func(io.Writer) error) {
		t.Helper()
		var out bytes.Buffer
		if err := print(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "192.0.2.1") || !strings.Contains(out.String(), "evil") {
			t.Errorf("%s does not tell of the name:\n%s", what, &out)
		}
		for _, r := range out.String() {
			if r != '\n' && !printable.Rune(r) {
				t.Errorf("%s has %U:\n%q", what, r, &out)
				break
			}
		}
	}
	f("the page", func(w io.Writer) error {
		return Check(w, "a.test", &result, dns, CheckOptions{Categories: []string{"ai"}})
	})
	f("the JSON", func(w io.Writer) error { return WriteJSON(w, dns) })
}

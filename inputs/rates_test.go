package inputs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeRates(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rates.txt")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRates looks hosts and addresses up: the longest name and the smallest range count. Each of eight workers gets its
// part of a rate, except of the rate of a domain whose hosts are all in one share.
func TestRates(t *testing.T) {
	const text = "\ufeff# delivery networks\r\n192.0.2.0/24 80\r\n192.0.2.128/25 40 # of it\n192.0.2.200 8\n0.0.0.0/0 16\n2001:DB8::/32 24\n2001:db8:1::/48 0\n" +
		"\nSoft112.com 2\nslow.soft112.com 0.5\n*.myshopify.com 200\nbücher.example. 1e1\namazonaws.com 6\n"
	for _, workers := range []int{1, 8} {
		rates, err := ReadRates(writeRates(t, text))
		if err != nil {
			t.Fatal(err)
		}
		rates.Among(workers)
		part := 1 / float64(workers)
		address := func(addr string, want float64) {
			t.Helper()
			if got, ok := rates.Address(netip.MustParseAddr(addr)); !ok || got != want*part {
				t.Errorf("%d workers: %s has %v %v; want %v", workers, addr, got, ok, want*part)
			}
		}
		address("192.0.2.127", 80)
		address("192.0.2.128", 40)
		address("192.0.2.200", 8)
		address("198.51.100.1", 16)
		address("2001:db8::", 24)
		address("2001:db8:1:2::3", 0)
		if got, ok := rates.Address(netip.MustParseAddr("2001:db9::")); ok {
			t.Errorf("an address of no range has %v", got)
		}
		host := func(host, wantDomain string, want float64) {
			t.Helper()
			if domain, got, ok := rates.Domain(host); domain != wantDomain || got != want || ok != (wantDomain != "") {
				t.Errorf("%d workers: %s has %q %v %v; want %q %v", workers, host, domain, got, ok, wantDomain, want)
			}
		}
		host("soft112.com", "soft112.com", 2)
		host("a.b.soft112.com", "soft112.com", 2)
		host("slow.soft112.com", "slow.soft112.com", 0.5)
		host("very.slow.soft112.com", "slow.soft112.com", 0.5)
		host("notsoft112.com", "", 0)
		host("com", "", 0)
		host("", "", 0)
		host("shop.myshopify.com", "myshopify.com", 200*part) // a public suffix: its shops are in all shares
		host("xn--bcher-kva.example", "xn--bcher-kva.example", 10)
		host("amazonaws.com", "amazonaws.com", 6)
		host("console.aws.amazonaws.com", "amazonaws.com", 6)
		host("bucket.s3.amazonaws.com", "amazonaws.com", 6*part) // s3.amazonaws.com is a public suffix
		host("www.bucket.s3.amazonaws.com", "amazonaws.com", 6*part)
		if rates.Entries() != 11 {
			t.Errorf("%d entries", rates.Entries())
		}
	}
}

// TestBadRates shows that the errors of invalid rates name file, line and remedy.
func TestBadRates(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, err := ReadRates(writeRates(t, "# rates\n198.51.100.0/24 5\nexample.com 5\n"+line+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "rates.txt:4: ") || !strings.Contains(err.Error(), want) ||
			len(err.Error()) > 500 {
			t.Errorf("%.80q: %v; want %q", line, err, want)
		}
	}
	f("192.0.2.0/24", "has 1 fields; write a domain or an address range, and then its rate, as in 192.0.2.0/24 50")
	f("192.0.2.0/24 5 a second", "has 4 fields")
	f("192.0.2.0/24,5", "has 1 fields")
	f("5 192.0.2.0/24", `"5" is no address in full`)
	f("192.0.2.0/33 5", "neither an address nor a range; write 192.0.2.1")
	f("192.0.2/24 5", "no address in full")
	f("::ffff:192.0.2.0/120 5", "neither an address nor a range")
	f("192.0.2.7/24 5", "has bits behind its prefix; write 192.0.2.0/24, or 192.0.2.7/32 for the one address")
	f("2001:db8::1/48 5", "has bits behind its prefix; write 2001:db8::/48, or 2001:db8::/64 for the one address")
	f("2001:db8::/96 5", "is a part of a /64, which has one rate; write 2001:db8::/64")
	f("2001:db8::1 5", "write 2001:db8::/64")
	f("192.0.2.0/24 fast", `"fast" is no rate; write exchanges a second as a number`)
	f("192.0.2.0/24 -1", "is no rate")
	f("192.0.2.0/24 NaN", "is no rate")
	f("192.0.2.0/24 inf", "is no rate")
	f("192.0.2.0/24 1e999", "is no rate")
	f("192.0.2.0/24 5/s", "is no rate")
	f("198.51.100.0/24 6", `"198.51.100.0/24" has a rate in line 2, too; leave one of them out`)
	f("*.Example.com. 6", "has a rate in line 3, too")
	f("com 5", "is a public suffix, and its names are of many owners; write a domain below it")
	f("co.uk 5", "is a public suffix")
	f("localhost 5", "is a public suffix")
	f("https://example.org/ 5", "write the domain alone: example.org")
	f(`example.org?x 5`, "write the domain alone: example.org")
	f("example.org:8080 5", "write the domain alone: example.org")
	f("exa\x1bmple.org 5", "not a host name or IP address")
	f("two..dots.org 5", "write a domain or an address range, and then its rate")
	f(strings.Repeat("a", 70_000)+" 5", "the line is longer than 65536 bytes")
	f(strings.Repeat("ab ", 20_000), "has 20000 fields")

	if _, err := ReadRates(filepath.Join(t.TempDir(), "none.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestRatesAreBounded refuses the entry after the last that is allowed.
func TestRatesAreBounded(t *testing.T) {
	rates := &Rates{places: newPlaces[rated](), workers: 1}
	addr := netip.MustParseAddr("10.0.0.0")
	for range maxRates {
		rates.add(place{prefix: netip.PrefixFrom(addr, 32)}, rated{})
		addr = addr.Next()
	}
	if err := rates.read(7, "example.com 5"); err == nil || !strings.Contains(err.Error(), "more than 100000 entries") {
		t.Errorf("error %v", err)
	}
}

// TestRatesAllocateNothing does the look-ups of an exchange.
func TestRatesAllocateNothing(t *testing.T) {
	rates, err := ReadRates(writeRates(t,
		"192.0.2.0/24 5\n10.0.0.0/8 1\n2001:db8::/32 5\n2001:db8:1::/64 5\nexample.com 5\n"))
	if err != nil {
		t.Fatal(err)
	}
	in, out, six := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("203.0.113.1"),
		netip.MustParseAddr("2001:db8:2::1")
	if n := testing.AllocsPerRun(100, func() {
		for _, addr := range []netip.Addr{in, out, six} {
			rates.Address(addr)
		}
		rates.Domain("a.b.example.com")
		rates.Domain("a.b.example.org")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRates shows that a line is refused, or gives its place the rate that it says.
func FuzzRates(f *testing.F) {
	for _, line := range []string{"192.0.2.0/24 50", "2001:db8::/32 0", "*.myshopify.com 0.5", "example.com 1e3 # why",
		"com 5", "10.0.0.1/8 5", "::ffff:1.2.3.4 1", "[2001:db8::]/64 1", "xn--bcher-kva.example 2"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		rates := &Rates{places: newPlaces[rated](), workers: 1}
		if err := rates.read(1, line); err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		fields := strings.Fields(line)
		if rates.Entries() != 1 || len(fields) != 2 {
			t.Fatalf("%q: %d entries", line, rates.Entries())
		}
		for prefix, want := range rates.ranges {
			if got, ok := rates.Address(prefix.Addr()); !ok || got != want.perSecond || prefix.Masked() != prefix ||
				prefix.Addr().Is6() && prefix.Bits() > 64 {
				t.Errorf("%q: %v has %v %v", line, prefix, got, ok)
			}
		}
		for name, want := range rates.hosts {
			if domain, got, ok := rates.Domain("www." + name); !ok || domain != name || got != want.perSecond ||
				!strings.Contains(name, ".") {
				t.Errorf("%q: %q has %q %v %v", line, name, domain, got, ok)
			}
		}
		if err := rates.read(2, line); err == nil {
			t.Errorf("%q: taken twice", line)
		}
	})
}

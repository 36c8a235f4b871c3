package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/simweb"
)

// This file makes the sites that are written: hosts of a list, each of which answers with one of 12,000 real files, by
// turns, that goes through the parser and the audit as in a scan. No origin fails, so a real scan, of which every fifth
// gives no file, is smaller. The files are the same for every Kind; the kinds differ in hosts, and in what an answer has
// besides its body.

// Kind is what hosts and answers are like.
type Kind string

// The kinds.
const (
	Numbered  Kind = "real files, hosts that are numbered, no header fields, all times alike: what follows from the files"
	Simulated Kind = "real files, hosts and header fields of the simulated web, times as they are spread on a network"
	Wild      Kind = "real files, real hosts, with header fields, entity tags, dates, addresses and redirects as servers send them"
)

var kinds = []Kind{Numbered, Simulated, Wild}

// Replay is hosts and bodies, from which a site of any number can be made.
type Replay struct {
	Real bool // bodies, and wild hosts, are those of ../shared
	kind Kind

	bodies  [][]byte
	hosts   []string
	origins []origin.Origin
	domains []string
	tlds    []string
}

// started is when the replayed scan began.
var started = time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)

// newReplay reads the files of ../shared, or makes some up where it is absent, and prepares n hosts at most.
func newReplay(n int, kind Kind) (*Replay, error) {
	r := &Replay{Real: true, kind: kind}
	var listed []string
	err := sharedtest.Try(func(tb testing.TB) {
		r.bodies = sharedtest.Bodies(tb, "typical12k")
		if kind == Wild {
			listed = readHosts(tb)
		}
	})
	if absent := sharedtest.AbsentError(""); errors.As(err, &absent) {
		fmt.Fprintf(os.Stderr, "%v: made-up files and hosts are written, so sizes say little\n", absent)
		r.Real, err = false, nil
		r.bodies = madeUpBodies(12_000)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case kind == Numbered:
		for i := range n {
			listed = append(listed, fmt.Sprintf("www%d.example.co.uk", i))
		}
	case len(listed) == 0:
		for _, host := range simweb.Names(1, n) {
			listed = append(listed, host)
		}
	}
	for _, host := range listed {
		o, err := origin.Parse(host)
		if err != nil || len(r.hosts) == n {
			continue
		}
		r.hosts, r.origins = append(r.hosts, host), append(r.origins, o)
		r.domains, r.tlds = append(r.domains, o.RegistrableDomain()), append(r.tlds, o.TLD())
	}
	if len(r.hosts) == 0 {
		return nil, errors.New("the list has no host")
	}
	return r, nil
}

// Site makes s the judged site of the number i.
func (r *Replay) Site(i int, s *audit.Site) {
	s.Reset()
	host := i % len(r.hosts)
	rng := rand.New(rand.NewPCG(uint64(i), 9309))
	s.Seq, s.Rank, s.Input = uint64(i), int64(i)+1, r.hosts[host]
	s.Origin, s.Domain, s.TLD = r.origins[host], r.domains[host], r.tlds[host]
	f := &s.Fetch
	f.Outcome, f.Status, f.Attempts, f.Proto = exchange.Answered, 200, 1, "HTTP/1.1"
	f.Answered = s.Origin.As(origin.HTTPS)
	f.Final = exchange.Target{Origin: f.Answered}
	f.FetchedAt = started.Add(time.Duration(i) * 500 * time.Microsecond)
	f.TLSVersion, f.TLSVerified = 0x0304, exchange.Yes
	f.Body = r.bodies[int(uint64(i)*7919%uint64(len(r.bodies)))]
	f.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + host%32)}), 443)
	f.Timing = exchange.Timing{DNS: 15e6, Connect: 40e6, TLS: 60e6, TTFB: 90e6, Total: 205e6}
	if r.kind != Numbered {
		f.FetchedAt = f.FetchedAt.Add(time.Duration(rng.IntN(1e9)))
		// Times of the network are spread about as a logarithmic normal distribution.
		spread := func(median float64) time.Duration {
			return time.Duration(median * math.Exp(rng.NormFloat64()*0.8) * float64(time.Millisecond))
		}
		f.Timing = exchange.Timing{DNS: spread(15), Connect: spread(40), TLS: spread(60), TTFB: spread(90)}
		f.Timing.Total = f.Timing.DNS + f.Timing.Connect + f.Timing.TLS + f.Timing.TTFB + spread(2)
		f.Fields.ContentType = f.Keep([]byte(contentTypes[0]))
	}
	if r.kind == Wild {
		r.wildFields(f, rng)
	}
	audit.Judge(s)
}

// wildFields draws what answers of real servers have besides.
func (r *Replay) wildFields(f *exchange.Response, rng *rand.Rand) {
	f.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(1 + rng.IntN(223)), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}), 443)
	if rng.IntN(5) == 0 {
		f.Final.Path = "/en/robots.txt"
		f.Hops = append(f.Hops[:0], exchange.Hop{Status: 301, URL: f.Answered.String() + f.Final.Path})
	}
	if rng.IntN(6) == 0 {
		f.TLSVersion = 0x0303
	}
	server := servers[rng.IntN(len(servers))]
	f.Fields.Server, f.Fields.CDN = f.Keep([]byte(server.name)), server.cdn
	f.Fields.ContentType = f.Keep([]byte(contentTypes[rng.IntN(len(contentTypes))]))
	if rng.IntN(10) < 6 {
		f.Fields.ETag = f.Keep(fmt.Appendf(nil, `"%x-%x"`, rng.Uint32(), rng.Uint64()>>16))
		f.Fields.LastModified = f.Keep([]byte(started.Add(-time.Duration(rng.IntN(5*365*24*3600)) * time.Second).Format(time.RFC1123)))
	}
	if rng.IntN(2) == 0 {
		f.Fields.CacheControl = f.Keep(fmt.Appendf(nil, "max-age=%d", 60<<rng.IntN(12)))
	}
}

// servers are what header fields say of common servers, by turns as often as they are met.
var servers = []struct{ name, cdn string }{
	{"cloudflare", "cloudflare"}, {"cloudflare", "cloudflare"}, {"cloudflare", "cloudflare"}, {"nginx", ""}, {"nginx", ""}, {"nginx", ""},
	{"Apache", ""}, {"Apache", ""}, {"Apache/2.4.58 (Ubuntu)", ""}, {"nginx/1.24.0", ""}, {"LiteSpeed", ""}, {"openresty", ""},
	{"AmazonS3", "cloudfront"}, {"Microsoft-IIS/10.0", ""}, {"", "akamai"}, {"Vercel", "vercel"},
}

var contentTypes = []string{"text/plain", "text/plain", "text/plain; charset=utf-8", "text/plain; charset=utf-8", "text/plain;charset=UTF-8", "text/plain; charset=iso-8859-1"}

// readHosts returns the second column of the real list.
func readHosts(tb testing.TB) (hosts []string) {
	for line := range strings.Lines(string(sharedtest.Unpacked(tb, "lists", "merged-origins.csv.zst"))) {
		if fields := strings.Split(strings.TrimRight(line, "\r\n"), ","); len(fields) > 1 {
			hosts = append(hosts, fields[1])
		}
	}
	return hosts
}

func madeUpHost(i int) string {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	name := make([]byte, 5+rng.IntN(12))
	for k := range name {
		name[k] = byte('a' + rng.IntN(26))
	}
	return string(name) + []string{".com", ".org", ".de", ".net", ".co.uk", ".example"}[rng.IntN(6)]
}

// madeUpBodies makes up n files: all with a group for everybody, some with one for the crawlers that many sites turn away.
func madeUpBodies(n int) [][]byte {
	rng := rand.New(rand.NewPCG(9309, 1))
	names := []string{"GPTBot", "ClaudeBot", "CCBot", "Bytespider", "Googlebot", "bingbot", "PerplexityBot", "AhrefsBot", "oldbot"}
	places := []string{"/wp-admin/", "/search", "/*?s=", "/cgi-bin/", "/private/*.pdf$", "/tag/", "/", "/caf%C3%A9", "/images/*/large"}
	bodies := make([][]byte, n)
	for i := range bodies {
		var b []byte
		for _, name := range names[:max(0, rng.IntN(2*len(names))-len(names))] {
			b = fmt.Appendf(b, "User-agent: %s\nDisallow: /\n", name)
		}
		b = append(b, "\nUser-agent: *\n"...)
		for range rng.IntN(30) {
			b = fmt.Appendf(b, "Disallow: %s%d\n", places[rng.IntN(len(places))], rng.IntN(100))
		}
		if rng.IntN(4) == 0 {
			b = append(b, "Crawl-delay: 10\nNoindex: /tmp/\n"...)
		}
		bodies[i] = fmt.Appendf(b, "\nSitemap: https://%s/sitemap.xml\n", madeUpHost(i))
	}
	return bodies
}

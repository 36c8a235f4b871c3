package surveytest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// answers are the answers of the test sites, in rotation. Only those with status 200 have a body.
var answers = []struct {
	outcome exchange.Outcome
	status  int
}{
	{exchange.Answered, 200},
	{exchange.Answered, 200},
	{exchange.Answered, 404},
	{exchange.Answered, 200},
	{exchange.Answered, 503},
	{exchange.Answered, 200},
	{exchange.Answered, 200},
	{exchange.Answered, 401},
	{exchange.Answered, 200},
	{exchange.DNSNotFound, 0},
	{exchange.Answered, 200},
	{exchange.Answered, 503},
	{exchange.Answered, 200},
	{exchange.Timeout, 0},
	{exchange.Answered, 200},
	{exchange.RedirectLimit, 302},
	{exchange.Answered, 200},
	{exchange.BlockedAddress, 0},
	{exchange.Answered, 200},
	{exchange.OptedOut, 0},
	{exchange.NotArchived, 0},
	{exchange.Answered, 200},
	{exchange.Answered, 503},
	{exchange.Answered, 200},
	{exchange.ConnectTimeout, 0},
	{exchange.Answered, 200},
	{exchange.Reset, 0},
	{exchange.Answered, 200},
	{exchange.ClosedEarly, 200}, // the head arrived, the body did not
	{exchange.Answered, 200},
	{exchange.Answered, 429},
	{exchange.Answered, 200},
}

// Judged returns a judged site for each body. Answers, ranks, labels and top-level domains rotate with different
// periods, so that every segment has some of all.
func Judged(t *testing.T, bodies [][]byte) []*audit.Site {
	t.Helper()
	tlds := []string{"com", "org", "de", "com", "co.uk", "", "net"}
	labels := []string{"", "news", "shop", "news", "", "état", "a b", "shop", "x", "", "news"}
	var sites []*audit.Site
	for i, body := range bodies {
		o, err := origin.Parse(fmt.Sprintf("host%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		a := answers[i%len(answers)]
		s := &audit.Site{Seq: uint64(i), Input: o.Host(), Origin: o, TLD: tlds[i%len(tlds)], Label: labels[i%len(labels)]}
		switch {
		case i%97 == 1:
			s.Rank = 1000 // the last of its segment
		case i%5 != 0:
			s.Rank = int64(i) * 7919 % 30_000
		}
		s.Fetch = exchange.Response{Outcome: a.outcome, Status: a.status, Answered: o.As(origin.HTTPS)}
		if a.outcome == exchange.Answered && a.status == 200 {
			s.Fetch.Body = body
			if i%29 == 7 { // a page with rules, which are in force and are no finding
				s.Fetch.Body = append([]byte("<!-- page -->\n"), body...)
			}
			if i%31 == 11 {
				s.Fetch.Fields.Challenge = "vercel"
			}
		}
		audit.Judge(s)
		sites = append(sites, s)
	}
	return sites
}

// Bodies makes files of a few lines that differ by definition.
func Bodies(n int) [][]byte {
	agents := []string{
		"*", "*", "*", "GPTBot", "gptbot", "ClaudeBot", "CCBot/2.0", "Googlebot", "Googlebot-News", "GoogleOther", "Applebot",
		"AdsBot-Google", "Mediapartners-Google", "Yandex", "MJ12bot", "AI2Bot", "mybot", "OtherBot", "x_y", "2bot", "",
	}
	lines := []string{
		"Disallow: /", "Disallow: /", "Disallow: /", "Disallow:", "Disallow: /private/", "Disallow: /*?q=", "Disallow: /*",
		"Disallow: /?",
		"Allow: /", "Allow:", "Allow: /public/", "Allow: /?x", "Allow: /$", "Disallow: private", "Dissallow: /x",
		"disallow /",
		"Crawl-delay: 5", "Crawl-delay: ten", "Foo: bar", "FOO: bar", "Noindex: /", "Content-Signal: ai-train=no",
		"Sitemap: /no-url",
		"a line without a colon or sense", "", "# comment",
	}
	random := rand.New(rand.NewPCG(7, 9309))
	bodies := make([][]byte, n)
	for i := range bodies {
		var b strings.Builder
		for range random.IntN(5) {
			for range 1 + random.IntN(2) {
				b.WriteString("User-agent: " + agents[random.IntN(len(agents))] + "\n")
			}
			for range random.IntN(3) {
				b.WriteString(lines[random.IntN(len(lines))] + "\n")
			}
		}
		bodies[i] = []byte(cmp.Or(b.String(), "Disallow: /\n")) // of no group: an orphan
	}
	return bodies
}

// Mixed are sites of all findings: apexes, www and other hosts of domains, with shared files, managed blocks,
// redirects, and files that the dialects read differently.
func Mixed(t *testing.T, n int, seed uint64) []*audit.Site {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 9309))
	bodies := Bodies(200)
	shared := []byte("User-agent: GPTBot\nDisallow: /\n# of a hosting company\n")
	seldom := []byte("User-agent: GPTBot\nDisallow: /\n# of a smaller one\n")
	managed := []byte(
		"# BEGIN Cloudflare Managed content\nUser-agent: GPTBot\nDisallow: /\n# END Cloudflare Managed Content\n")
	typo := []byte("User-agent: GPTBot\nDissallow: /\nDisallow: /x\n") // Google reads the misspelt line, the RFC does not
	var sites []*audit.Site
	for i := range n {
		host := []string{"", "www.", "shop."}[i%3] + fmt.Sprintf("d%d.co.uk", i/3)
		if random.IntN(20) == 0 {
			host = fmt.Sprintf("192.0.2.%d", i%250)
		}
		o, err := origin.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		s := &audit.Site{Seq: uint64(i), Input: host}
		s.SetOrigin(o)
		if random.IntN(3) > 0 {
			s.Rank = int64(random.IntN(5000) + 1)
		}
		f := &s.Fetch
		*f = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: o.As(origin.HTTPS)}
		switch k := random.IntN(20); {
		case k < 8:
			f.Body = bodies[random.IntN(len(bodies))]
		case k < 10:
			f.Body = shared
		case k < 11 && i%40 < 20:
			f.Body = seldom
		case k < 12:
			f.Body = managed
		case k < 13:
			f.Body = typo
		case k < 14:
			f.Body = []byte("<!doctype html><title>x</title>\nUser-agent: GPTBot\nDisallow: /\n")
		case k < 15:
			f.Status = []int{403, 404, 429, 503}[random.IntN(4)]
		case k < 16:
			f.Status, f.Fields.Challenge = 403, "cloudflare"
		case k < 17:
			f.Status, f.Outcome = 0, []exchange.Outcome{exchange.DNSNotFound, exchange.OptedOut,
				exchange.Timeout}[random.IntN(3)]
		default:
			f.Body = []byte("Sitemap: https://example.com/x.xml\n")
		}
		if f.Status == 200 && random.IntN(6) == 0 {
			other, _ := origin.Parse([]string{"https://elsewhere.net", "https://" + host}[random.IntN(2)])
			f.Hops = []exchange.Hop{{Status: 301, URL: other.String() + "/robots.txt"}}
			f.Final = exchange.Target{Origin: other, Path: "/robots.txt"}
		}
		audit.Judge(s)
		sites = append(sites, s)
	}
	return sites
}

package audit

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// generated returns bodies with everything that Judge reads, in random order.
func generated(n int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	agents := []string{"*", "GPTBot", "gptbot/1.0", "Googlebot", "msnbot", "FooBot", "MJ12bot/2", "2bot",
		"Screaming Frog SEO Spider", "Terra Cotta"}
	values := []string{"/", "/a", "/*.php$", "", "x", "/a/b*c", "/?q", "/%c3%A9"}
	other := []string{
		"Sitemap: https://example.com/s.xml", "Sitemap: /s.xml", "Crawl-delay: 2.5", "Crawl-delay: 1e999", "Crawl-delay: x",
		"Content-Signal: search=yes, ai-train=no", "Content-Usage: /a train-ai=n;x=\"y\", search",
		"License: https://example.com/",
		"noindex: /", "Foo: bar", "no key in this line", "dissallow: /z", "# comment", "",
		"# BEGIN Cloudflare Managed content",
	}
	bodies := make([][]byte, n)
	for i := range bodies {
		var b strings.Builder
		for range random.IntN(200) {
			switch random.IntN(5) {
			case 0:
				fmt.Fprintf(&b, "User-agent: %s\n", pick(agents))
			case 1:
				fmt.Fprintf(&b, "Disallow: %s\n", pick(values))
			case 2:
				fmt.Fprintf(&b, "Allow: %s\n", pick(values))
			case 3:
				fmt.Fprintf(&b, "User-agent: Bot%s\n", strings.Repeat("x", random.IntN(60)))
			default:
				fmt.Fprintf(&b, "%s\n", pick(other))
			}
		}
		bodies[i] = []byte(b.String())
	}
	return append(bodies, nil, []byte("<!doctype html>\n<p>Not found"))
}

// judgeAll judges the bodies one after the other in the same Site, as a slot does.
func judgeAll(a *Auditor, s *Site, bodies [][]byte) {
	for i, body := range bodies {
		s.Reset()
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
		if i%50 == 49 {
			s.Fetch.Status, s.Fetch.Body = 404, nil
		}
		a.Judge(s)
	}
}

func TestJudgeAllocatesNothing(t *testing.T) {
	f := func(name string, bodies func(*testing.T) [][]byte) {
		t.Run(name, func(t *testing.T) {
			a, s, all := New(tokens.Default()), new(Site), bodies(t)
			// A collection allocates, too. No new one begins, and the average over three passes hides the rest of a
			// running one.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			judgeAll(a, s, all) // warm
			if n := testing.AllocsPerRun(3, func() { judgeAll(a, s, all) }); n != 0 {
				t.Errorf("%v allocations over %d bodies", n, len(all))
			}
		})
	}
	f("generated", func(*testing.T) [][]byte { return generated(500) })
	f("modern-ai", func(t *testing.T) [][]byte { return sharedtest.Bodies(t, "modern-ai") })
	if !underRace {
		f("typical12k", func(t *testing.T) [][]byte { return sharedtest.Bodies(t, "typical12k") })
	}
}

// go test -bench Judge -benchmem ./audit
func BenchmarkJudge(b *testing.B) {
	f := func(name string, bodies func() [][]byte) {
		b.Run(name, func(b *testing.B) {
			a, s, all, size := New(tokens.Default()), new(Site), bodies(), 0
			for _, body := range all {
				size += len(body)
			}
			judgeAll(a, s, all)
			b.SetBytes(int64(size / len(all)))
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				n := min(b.N-done, len(all))
				judgeAll(a, s, all[:n])
				done += n
			}
		})
	}
	f("404", func() [][]byte { return make([][]byte, 50) })
	f("blocks-some", func() [][]byte {
		return [][]byte{[]byte(
			"User-agent: *\nDisallow: /admin/\nSitemap: https://example.com/s.xml\n\nUser-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n")}
	})
	f("generated", func() [][]byte { return generated(200) })
	f("typical12k", func() [][]byte { return sharedtest.Bodies(b, "typical12k") })
	f("modern-ai", func() [][]byte { return sharedtest.Bodies(b, "modern-ai") })
}

// BenchmarkJudgeOfParse runs Judge (with parsing) and Parse alone in turns over the same bodies. It reports the best
// time of Judge as a multiple of the best time of Parse, which a busy machine changes least.
//
// go test -run '^$' -bench JudgeOfParse -benchtime 2s -count 3 ./audit
func BenchmarkJudgeOfParse(b *testing.B) {
	for _, corpus := range []string{"typical12k", "modern-ai", "mix12k"} {
		b.Run(corpus, func(b *testing.B) {
			bodies := sharedtest.Bodies(b, corpus)
			a, s, file := New(tokens.Default()), new(Site), new(parser.File)
			judge, parse := time.Hour, time.Hour
			for b.Loop() {
				start := time.Now()
				for _, body := range bodies {
					file.Parse(body)
				}
				middle := time.Now()
				for _, body := range bodies {
					s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
					a.Judge(s) // Judge resets the Site itself
				}
				parse, judge = min(parse, middle.Sub(start)), min(judge, time.Since(middle))
			}
			b.ReportMetric(float64(judge)/float64(parse), "of-parse")
			b.ReportMetric(float64(judge.Nanoseconds())/float64(len(bodies)), "ns/body-best")
		})
	}
}

package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Bodies that are expensive to judge, each of the maximum length or a share of it.

const longest = 512_000 // bytes of a body, by default

// hostileBodies has functions that return a body of about the given size.
var hostileBodies = map[string]func(size int) string{
	// As many rules as fit into one group, which 1,774 agents follow; and the same with rules that must be tried.
	"rules-of-a-crowd": func(size int) string {
		return crowd(size) + repeated(size*94/100, func(i int) string { return fmt.Sprintf("allow:/%x\n", i) })
	},
	"rules-against-paths": func(size int) string {
		return crowd(size) + "disallow: /\n" +
			repeated(size*94/100, func(i int) string { return fmt.Sprintf("allow:/%x\ndisallow:/%x*\n", i, i) })
	},
	"wildcard-bomb": func(size int) string {
		return crowd(size) + repeated(size*94/100, func(int) string { return "disallow: /*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n" })
	},
	"wildcards-that-disagree": func(size int) string {
		return crowd(size) + "disallow: /*\n" +
			repeated(size*94/100, func(i int) string { return fmt.Sprintf("allow: /*a*a*a*%x\ndisallow: /*a*a*a*%x*\n", i, i) })
	},
	// Long pieces between wildcards. In the last two, a search by hashes finds the same hash at every position.
	"long-pieces": func(size int) string {
		a := strings.Repeat("a", 4000)
		return "user-agent: *\ndisallow: /\nallow: /" + a + "\n" +
			repeated(size, func(i int) string { return "disallow: *" + a[:64+i%7] + "b\n" }) + "disallow: /*" + a + "*\n"
	},
	"colliding-pieces": func(size int) string {
		long := size / 31
		piece := "disallow: *" + strings.Repeat("a", long/2) + "aadcsapffw\n"
		return "user-agent: *\nallow: /" + strings.Repeat("*", long) + "\n" +
			repeated(size*2/5, func(int) string { return piece }) +
			repeated(size*3/5, func(i int) string { return "disallow: /" + strings.Repeat("a", long-i) + "\n" })
	},
	"middling-pieces": func(size int) string {
		return "user-agent: *\ndisallow: /\n" + repeated(size, func(i int) string {
			return "allow: /" + strings.Repeat("a", 300) + fmt.Sprint(i) + "\ndisallow: /*" + strings.Repeat("a", 50) + "b\n"
		}) + "disallow: /*" + strings.Repeat("a", 300) + "*\n"
	},
	"agents": func(size int) string {
		return repeated(size, func(i int) string { return "user-agent:" + word(i) + "\n" }) + "allow: /\n"
	},
	// Every agent has a group of its own, is in many groups, or is named by the second reading only.
	"groups": func(size int) string {
		return repeated(size, func(i int) string { return fmt.Sprintf("user-agent: %s\nallow: /a\ndisallow: /\n", word(i)) })
	},
	"many-groups": func(size int) string {
		return repeated(size, func(int) string { return crowd(20_000) + "allow: /a\ndisallow: /\n" })
	},
	"second": func(size int) string {
		return repeated(size, func(i int) string { return fmt.Sprintf("user-agent: MJ12bot/%d\ndisallow: /%d\n", i, i) })
	},
	"second-of-all": func(size int) string {
		var names strings.Builder
		for _, t := range tokens.Default().Tokens {
			fmt.Fprintf(&names, "user-agent: %s/1 %s\nuser-agent: 9\n", t.Name, t.Name)
			for _, alias := range t.Aliases {
				fmt.Fprintf(&names, "user-agent: %s\n", alias)
			}
		}
		return repeated(size, func(int) string { return names.String() + "disallow: /a\n" })
	},
	// Records that belong to many agents.
	"delays": func(size int) string {
		return crowd(size) + repeated(size/2,
			func(int) string { return "crawl-delay: 1\nrequest-rate: 1/1\nvisit-time: 0000-2400\n" })
	},
	"usages": func(size int) string {
		return repeated(size, func(i int) string {
			return fmt.Sprintf("user-agent: %s\ncontent-usage: / train-ai=n\ncontent-signal: ai-train=no\n", word(i))
		})
	},
	"usages-of-a-crowd": func(size int) string {
		return crowd(size) + repeated(size/2, func(int) string { return "content-usage: /** search=n\n" })
	},
	"dictionaries": func(size int) string {
		return "content-usage: " + repeated(16_000, func(i int) string { return fmt.Sprintf("a%d=(1 2 3);b, ", i) }) +
			repeated(size, func(int) string { return "\ncontent-usage: /" + strings.Repeat("*", 16_000) + " a=1" })
	},
	"signals": func(size int) string {
		return repeated(size, func(int) string { return "content-signal: " + strings.Repeat("a=b,", 4_000) + "\n" })
	},
	"sitemaps": func(size int) string {
		return repeated(size, func(int) string { return "sitemap: https://" + strings.Repeat("@", 500) + "\n" })
	},
	"comments": func(size int) string {
		return repeated(size, func(int) string { return "# begin cloudflare managed conten\n" })
	},
	"html":  func(size int) string { return "<html>\n" + repeated(size, func(int) string { return "<li>a: b\n" }) },
	"noise": func(size int) string { return repeated(size, func(int) string { return "a b c\nx:\n" }) },
}

// crowd returns 1,774 agents, including the registry's; fewer for smaller bodies.
func crowd(size int) string {
	var b strings.Builder
	for i := 0; i < 1774*size/longest; i++ {
		if i < len(tokens.Default().Tokens) {
			fmt.Fprintf(&b, "user-agent: %s\n", tokens.Default().Tokens[i].Name)
		} else {
			fmt.Fprintf(&b, "user-agent: %s\n", word(i))
		}
	}
	return b.String()
}

// word returns a distinct product token for each number.
func word(i int) string {
	return "x" + strings.Map(func(c rune) rune { return 'a' + c - '0' }, fmt.Sprint(i))
}

func repeated(size int, piece func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(piece(i))
	}
	return b.String()
}

// BenchmarkJudgeHostile judges bodies that are expensive to judge, of an eighth, half and all of the maximum size. The
// target is 20 milliseconds for a whole one, including all registry tokens. From an eighth to the whole, time may grow
// about linearly. Some bodies exhaust the allowance of work (parser.File.Survey). Further verdicts are then limited,
// and the benchmark reports their share.
//
// go test -run '^$' -bench JudgeHostile -benchtime 20x ./audit
func BenchmarkJudgeHostile(b *testing.B) {
	for name, build := range hostileBodies {
		for _, size := range []int{longest / 8, longest / 2, longest} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				body, s, best := []byte(build(size)), new(Site), time.Hour
				for b.Loop() {
					start := time.Now()
					s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
					Judge(s)
					best = min(best, time.Since(start))
				}
				limited := 0
				for i := range s.Report.Verdicts {
					if s.Report.Verdicts[i].Limited {
						limited++
					}
				}
				b.ReportMetric(float64(best.Microseconds())/1e3, "ms-best")
				b.ReportMetric(float64(limited)/float64(len(s.Report.Verdicts)), "limited")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestLimitedVerdicts shows that a verdict that exceeds the bound is limited, and partial. Facts that need no rules to
// be tried are still exact, above all whether `/` is allowed.
func TestLimitedVerdicts(t *testing.T) {
	f := func(name string, mayBeLimited bool) {
		t.Helper()
		s := answered(hostileBodies[name](longest))
		limited := 0
		for _, v := range s.Report.Verdicts {
			if v.Limited {
				limited++
				if v.Decision != Partial || v.RootAllowed {
					t.Errorf("%s: limited, and %v, root allowed %v", name, v.Decision, v.RootAllowed)
				}
			}
		}
		if limited > 0 != mayBeLimited {
			t.Errorf("%s: %d of %d verdicts are limited", name, limited, len(s.Report.Verdicts))
		}
	}
	f("rules-of-a-crowd", false)
	f("wildcard-bomb", false)
	f("rules-against-paths", true)
	f("wildcards-that-disagree", true)
}

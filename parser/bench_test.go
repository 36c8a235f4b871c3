package parser_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/parser"
)

// go test -run '^$' -bench . -benchtime 1s ./parser
//
// The bodies are those of ../shared/corpus, or generated if that is absent. The yardstick, Lines, is a loop that only
// searches line ends with bytes.IndexByte.

// corpora returns the available packs of bodies, by name.
func corpora(b *testing.B) map[string][][]byte {
	packs := map[string][][]byte{"generated": generated(2000)}
	if _, err := os.Stat(filepath.Join("..", "..", "shared", "corpus")); err == nil {
		for _, name := range []string{"typical12k", "mix12k", "modern-ai"} {
			packs[name] = bodiesOf(b, name)
		}
	}
	return packs
}

func total(bodies [][]byte) (n int64) {
	for _, body := range bodies {
		n += int64(len(body))
	}
	return n
}

// forEachPack runs a benchmark of one pass over all bodies of a pack, for each pack.
func forEachPack(b *testing.B, pass func(bodies [][]byte)) {
	for name, bodies := range corpora(b) {
		b.Run(name, func(b *testing.B) {
			pass(bodies)
			b.SetBytes(total(bodies))
			b.ReportAllocs()
			for b.Loop() {
				pass(bodies)
			}
		})
	}
}

// countLines is the yardstick.
func countLines(bodies [][]byte) (lines int) {
	for _, body := range bodies {
		for {
			i := bytes.IndexByte(body, '\n')
			if i < 0 {
				break
			}
			lines++
			body = body[i+1:]
		}
	}
	return lines
}

func BenchmarkLines(b *testing.B) {
	lines := 0
	forEachPack(b, func(bodies [][]byte) { lines += countLines(bodies) })
}

// BenchmarkParseOfLines runs Parse and the yardstick in turns. It reports the ratio of their best times, which a busy
// machine changes least.
func BenchmarkParseOfLines(b *testing.B) {
	var file parser.File
	for name, bodies := range corpora(b) {
		b.Run(name, func(b *testing.B) {
			parse, lines := time.Hour, time.Hour
			for b.Loop() {
				start := time.Now()
				countLines(bodies)
				middle := time.Now()
				for _, body := range bodies {
					file.Parse(body)
				}
				lines, parse = min(lines, middle.Sub(start)), min(parse, time.Since(middle))
			}
			b.ReportMetric(float64(lines)/float64(parse), "of-lines")
			b.ReportMetric(float64(total(bodies))/1e6/parse.Seconds(), "MB/s-best")
		})
	}
}

func BenchmarkParse(b *testing.B) {
	var file parser.File
	forEachPack(b, func(bodies [][]byte) {
		for _, body := range bodies {
			file.Parse(body)
		}
	})
}

// BenchmarkParseDecide asks every file about 150 tokens and `/`. It reports the time per token and file.
func BenchmarkParseDecide(b *testing.B) {
	tokens := someTokens()
	for name, bodies := range corpora(b) {
		b.Run(name, func(b *testing.B) {
			var file parser.File
			pass := func() {
				for _, body := range bodies {
					file.Parse(body)
					for _, token := range tokens {
						file.Decide(token, []byte("/"))
					}
				}
			}
			pass()
			b.SetBytes(total(bodies))
			b.ReportAllocs()
			for b.Loop() {
				pass()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(bodies)*len(tokens)), "ns/token")
		})
	}
}

// someTokens returns 150 product tokens, of which files name a few.
func someTokens() []string {
	tokens := make([]string, 150)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("%cot%cbot", 'a'+i%26, 'a'+i/26)
	}
	copy(tokens, []string{"GPTBot", "ClaudeBot", "CCBot", "Googlebot", "bingbot", "Bytespider", "Amazonbot"})
	return tokens
}

// BenchmarkParseSurvey surveys the groups of every agent of every file.
func BenchmarkParseSurvey(b *testing.B) {
	var file parser.File
	forEachPack(b, func(bodies [][]byte) {
		for _, body := range bodies {
			file.Parse(body)
			for i := range file.Agents() {
				file.AgentSurvey(i)
			}
		}
	})
}

// BenchmarkRobots parses bodies, and asks each about 16 URLs: as a File that is used again, and as a Robots.
func BenchmarkRobots(b *testing.B) {
	urls := make([]string, 16)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://example.com/products/%d/wp-content?page=%d", i, i)
	}
	bodies := generated(2000)
	files, robots := make([]parser.File, len(bodies)), make([]*parser.Robots, len(bodies))
	for i, body := range bodies {
		files[i].Parse(body)
		files[i].Allows("ExampleBot", urls[0])
		robots[i] = parser.Parse(200, body)
	}
	run := func(name string, do func(body int, url string)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				do(i/len(urls)%len(bodies), urls[i%len(urls)])
			}
		})
	}
	var file parser.File
	run("parse/by=File", func(i int, _ string) { file.Parse(bodies[i]) })
	run("parse/by=Robots", func(i int, _ string) { parser.Parse(200, bodies[i]) })
	run("allows/by=File", func(i int, url string) { files[i].Allows("ExampleBot", url) })
	run("allows/by=Robots", func(i int, url string) { robots[i].Allows("ExampleBot", url) })
}

// hostile are bodies of 500 KiB that are expensive to process.
func hostile() map[string][]byte {
	const size = 512000
	fill := func(head, line string) []byte {
		return append([]byte(head), bytes.Repeat([]byte(line), (size-len(head))/len(line))...)
	}
	numbered := func(head, format string) []byte {
		b := []byte(head)
		for i := 0; len(b) < size-100; i++ {
			b = fmt.Appendf(b, format, i)
		}
		return b
	}
	letters := func(format string) []byte {
		var b []byte
		for i := 0; len(b) < size-100; i++ {
			b = append(b, strings.ReplaceAll(format, "@", string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' +
				byte(i/676%26)}))...)
		}
		return b
	}
	crowd := "user-agent: " + strings.Join(someTokens(), "\nuser-agent: ") + "\n"
	var crowd40, crowd40Own strings.Builder
	for _, name := range someTokens()[:40] {
		fmt.Fprintf(&crowd40, "user-agent: %s\n", name)
		fmt.Fprintf(&crowd40Own, "user-agent: %s\nallow:\n", name)
	}
	longPath := crowd40.String() + "disallow: /\nallow: /" + strings.Repeat("\xC3", 16600) + "\n"
	return map[string][]byte{
		"long-paths":          append(fill(longPath, "disallow:*%D\n"), crowd40Own.String()...),
		"newlines":            fill("", "\n"),
		"carriage-returns":    fill("", "\r"),
		"lone-cr-then-lf":     fill("\r", "\n"),
		"colons":              fill("", ":"),
		"colon-lines":         fill("", ":\n"),
		"hashes":              fill("", "#\n"),
		"nul":                 fill("", "\x00"),
		"blanks":              fill("user-agent: *\ndisallow:", " "),
		"47000-rules":         fill(crowd, "allow: /a/\n"),
		"distinct-rules":      numbered(crowd+"disallow: /\n", "allow: /%[1]d\ndisallow: /%[1]d*\n"),
		"index-html":          fill(crowd+"disallow: /\n", "allow: /*/index.html\n"),
		"thousands-of-names":  letters("user-agent: @bot\n"),
		"thousands-of-groups": letters("user-agent: @bot\nallow: /\n"),
		"everybody-in-every":  fill("", crowd+"allow: /\n"),
		"wildcard-bomb":       fill(crowd, "disallow: /*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n"),
		"long-wildcards":      fill(crowd, "disallow: "+strings.Repeat("*a", 8000)+"b\n"),
		"escapes":             fill(crowd, "disallow: /%c3%a9\xC3\xA9*\xC3\n"),
		"stars":               fill(crowd+strings.Repeat("allow: /a\n", 300), "disallow: /"+strings.Repeat("*", 16640)+"\n"),
		"stars-twice": fill(crowd+"disallow: /"+strings.Repeat("*", 16640)+"\n"+strings.Repeat("allow: /a/\n", 250),
			"allow: "+strings.Repeat("*", 16600)+"%aa/index.htm\n"),
		"no-rules":  fill(crowd+"disallow: /****\n"+strings.Repeat("allow: /a\n", 2000), "host:\n"),
		"dominated": numbered(crowd+"disallow: /*\n", "allow: /*a*a*a*%[1]d\ndisallow: /*a*a*a*%[1]d*\n"),
		"html":      fill("", "<li><a href=\"https://example.com/\">User-agent: a</a>\n"),
	}
}

// BenchmarkHostile parses expensive bodies. Then it asks about 150 tokens and all agents of the body, with two paths:
// `/`, and one of 200 octets made for the body. It reports the milliseconds of one parse, of all agents for each path,
// and of all agents' surveys.
func BenchmarkHostile(b *testing.B) {
	long := []byte("/" + strings.Repeat("a", 199))
	for name, body := range hostile() {
		b.Run(name, func(b *testing.B) {
			var file parser.File
			file.Parse(body)
			tokens := someTokens()
			for i := range file.Agents() {
				tokens = append(tokens, string(file.Agent(i).Name))
			}
			spent := map[string]time.Duration{}
			timed := func(what string, f func()) {
				start := time.Now()
				f()
				spent[what] += time.Since(start)
			}
			for b.Loop() {
				timed("parse-ms", func() { file.Parse(body) })
				for what, path := range map[string][]byte{"root-ms": []byte("/"), "long-ms": long} {
					timed(what, func() {
						for _, token := range tokens {
							file.Decide(token, path)
						}
					})
				}
				timed("surveys-ms", func() {
					for i := range file.Agents() {
						file.AgentSurvey(i)
					}
				})
			}
			for what, d := range spent {
				b.ReportMetric(float64(d.Microseconds())/1e3/float64(b.N), what)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// generated returns n bodies like real files: mostly a few hundred octets, some many thousands; nine of ten rules
// disallow; a third of the files have CR LF; a few have only CR, a byte order mark or misspellings.
func generated(n int) [][]byte {
	r := rand.New(rand.NewPCG(9309, 1))
	words := []string{"wp-admin", "search", "private", "images", "*?q=", "cgi-bin", "*.php$", "a%2fb", "tag", "caf\u00e9"}
	agents := []string{"*", "*", "GPTBot", "Googlebot", "CCBot", "bingbot/2.0", "MJ12bot", "AhrefsBot"}
	keys := strings.Fields(strings.Repeat("Disallow ", 60) + strings.Repeat("Allow disallow Sitemap ", 4) +
		"Crawl-delay Foo Disalow")
	bodies := make([][]byte, n)
	for i := range bodies {
		eol := "\n"
		switch kind := r.IntN(60); {
		case kind == 0:
			eol = "\r"
		case kind < 20:
			eol = "\r\n"
		}
		var b []byte
		if r.IntN(50) == 0 {
			b = append(b, "\xEF\xBB\xBF"...)
		}
		for range 1 + r.IntN(3) {
			b = fmt.Appendf(b, "User-agent: %s%s", agents[r.IntN(len(agents))], eol)
			for range int(math.Exp(1.8 + 1.2*r.NormFloat64())) {
				key := keys[r.IntN(len(keys))]
				b = fmt.Appendf(b, "%s: /%s/%s", key, words[r.IntN(len(words))], words[r.IntN(len(words))])
				switch r.IntN(40) {
				case 0:
					b = append(b, ' ')
				case 1:
					b = append(b, " # why"...)
				}
				b = append(b, eol...)
			}
			b = append(b, eol...)
		}
		bodies[i] = b
	}
	return bodies
}

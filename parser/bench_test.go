package parser_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

// go test -run '^$' -bench . -benchtime 1s ./parser
//
// The bodies are those of ../shared/corpus, or generated ones where it is absent. Lines is the yardstick: a loop that
// does nothing but look for line ends with bytes.IndexByte.

// corpora returns the packs of bodies that are here, by name.
func corpora(b *testing.B) map[string][][]byte {
	packs := map[string][][]byte{"generated": generated(2000)}
	if _, err := os.Stat(filepath.Join("..", "..", "shared", "corpus")); err == nil {
		for _, name := range []string{"typical12k", "mix12k", "modern-ai"} {
			packs[name] = sharedtest.Bodies(b, name)
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

// BenchmarkParseOfLines runs Parse and the yardstick in turns and reports the rate of the one as a share of the other's,
// by the best time of each: a figure that a busy machine changes least.
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

// BenchmarkParseDecide asks every file for 150 tokens and `/`.
func BenchmarkParseDecide(b *testing.B) {
	tokens := make([]string, 150)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("%cot%cbot", 'a'+i%26, 'a'+i/26)
	}
	copy(tokens, []string{"GPTBot", "ClaudeBot", "CCBot", "Googlebot", "bingbot", "Bytespider", "Amazonbot"})
	var file parser.File
	root := []byte("/")
	forEachPack(b, func(bodies [][]byte) {
		for _, body := range bodies {
			file.Parse(body)
			for _, token := range tokens {
				file.Decide(token, root)
			}
		}
	})
}

// BenchmarkParseSurvey surveys the groups of every agent of every file.
func BenchmarkParseSurvey(b *testing.B) {
	var file parser.File
	forEachPack(b, func(bodies [][]byte) {
		for _, body := range bodies {
			file.Parse(body)
			for i := range file.Agents() {
				file.Survey(file.AgentGroups(i))
			}
		}
	})
}

// generated returns n bodies of the shapes that real files have.
func generated(n int) [][]byte {
	r := rand.New(rand.NewPCG(9309, 1))
	words := []string{"wp-admin", "search", "private", "images", "*?q=", "cgi-bin", "*.php$", "a%2fb", "tag", "caf\u00e9"}
	agents := []string{"*", "GPTBot", "Googlebot", "CCBot", "bingbot/2.0", "MJ12bot", "AhrefsBot"}
	bodies := make([][]byte, n)
	for i := range bodies {
		eol := []string{"\n", "\n", "\n", "\r\n", "\r"}[r.IntN(5)]
		var b []byte
		if r.IntN(50) == 0 {
			b = append(b, "\xEF\xBB\xBF"...)
		}
		for range 1 + r.IntN(3) {
			b = fmt.Appendf(b, "User-agent: %s%s", agents[r.IntN(len(agents))], eol)
			for range r.IntN(12) {
				key := []string{"Disallow", "Disallow", "disallow", "Allow", "Crawl-delay", "Sitemap", "Foo", "Disalow"}[r.IntN(8)]
				b = fmt.Appendf(b, "%s: /%s/%s", key, words[r.IntN(len(words))], words[r.IntN(len(words))])
				b = append(b, []string{"", "", "", "", " ", " # why"}[r.IntN(6)]...)
				b = append(b, eol...)
			}
			b = append(b, eol...)
		}
		bodies[i] = b
	}
	return bodies
}

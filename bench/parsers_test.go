package bench

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/jimsmart/grobotstxt"
	samclarke "github.com/samclarke/robotstxt"
	temoto "github.com/temoto/robotstxt"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

// judge reads one file and writes whether each token may crawl each path into allowed, all paths of the first token
// first. It may keep memory between files. An error says that the parser refuses the file.
type judge func(body []byte, allowed []bool) error

// parsers are the robots.txt parsers that are compared, each used in the fastest way that its public functions offer.
var parsers = []struct {
	name string
	open func(tokens, paths []string) judge
}{
	{"bulkscan", openBulkscan},
	{"temoto", openTemoto},
	{"grobotstxt", openGrobotstxt},
	{"samclarke", openSamclarke},
}

// openBulkscan uses one parser.File for all files.
func openBulkscan(tokens, paths []string) judge {
	var file parser.File
	targets := make([][]byte, len(paths))
	for i, path := range paths {
		targets[i] = []byte(path)
	}
	return func(body []byte, allowed []bool) error {
		file.Parse(body)
		for i, token := range tokens {
			for k, target := range targets {
				allowed[i*len(targets)+k] = file.Decide(token, target).Allow
			}
		}
		return nil
	}
}

// openTemoto finds the group once a token.
func openTemoto(tokens, paths []string) judge {
	return func(body []byte, allowed []bool) error {
		data, err := temoto.FromBytes(body)
		if err != nil {
			return err
		}
		for i, token := range tokens {
			group := data.FindGroup(token)
			for k, path := range paths {
				allowed[i*len(paths)+k] = group.Test(path)
			}
		}
		return nil
	}
}

// openSamclarke passes URLs without a host, so that the host is not compared.
func openSamclarke(tokens, paths []string) judge {
	return func(body []byte, allowed []bool) error {
		file, err := samclarke.Parse(string(body), "")
		if err != nil {
			return err
		}
		for i, token := range tokens {
			for k, path := range paths {
				if allowed[i*len(paths)+k], err = file.IsAllowed(token, path); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// openGrobotstxt asks all questions in one parse: one handler passes each line to a matcher for each token and path.
// The library's own AgentAllowed parses the file again for each question.
func openGrobotstxt(tokens, paths []string) judge {
	var matchers fan
	for _, token := range tokens {
		for _, path := range paths {
			m := grobotstxt.NewRobotsMatcher()
			m.AgentAllowed("", token, path) // the one public way to set the token and the path
			matchers = append(matchers, m)
		}
	}
	return func(body []byte, allowed []bool) error {
		grobotstxt.Parse(string(body), matchers)
		for i, m := range matchers {
			allowed[i] = !m.Disallowed()
		}
		return nil
	}
}

// fan passes on what a RobotsMatcher listens to. The methods that are empty here are empty there.
type fan []*grobotstxt.RobotsMatcher

func (f fan) HandleRobotsStart() {
	for _, m := range f {
		m.HandleRobotsStart()
	}
}

func (f fan) HandleUserAgent(line int, value string) {
	for _, m := range f {
		m.HandleUserAgent(line, value)
	}
}

func (f fan) HandleAllow(line int, value string) {
	for _, m := range f {
		m.HandleAllow(line, value)
	}
}

func (f fan) HandleDisallow(line int, value string) {
	for _, m := range f {
		m.HandleDisallow(line, value)
	}
}

func (f fan) HandleRobotsEnd()                        {}
func (f fan) HandleSitemap(int, string)               {}
func (f fan) HandleUnknownAction(int, string, string) {}

// BenchmarkParsers parses all files of a pack and asks whether some registered tokens may crawl `/`. One operation is
// one pass over the pack. One processor does the work, as one worker of a scan, and collects its own garbage.
//
//	make compare BENCH=Parsers COUNT=6
func BenchmarkParsers(b *testing.B) {
	names := productTokens()
	for _, pack := range []string{"typical12k", "mix12k", "modern-ai"} {
		bodies := sharedtest.Bodies(b, pack)
		size := int64(0)
		for _, body := range bodies {
			size += int64(len(body))
		}
		for _, n := range []int{0, 1, 20, 150} {
			for _, p := range parsers {
				b.Run(fmt.Sprintf("pack=%s/tokens=%d/by=%s", pack, n, p.name), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
					ask, allowed := p.open(names[:n], []string{"/"}), make([]bool, n)
					b.SetBytes(size)
					b.ReportAllocs()
					before := processorTime(b)
					for b.Loop() {
						for _, body := range bodies {
							_ = ask(body, allowed) // a refusal is an answer, too
						}
					}
					reportCPU(b, processorTime(b)-before, b.N*len(bodies))
				})
			}
		}
	}
}

// productTokens returns the names of the registry that RFC 9309 calls product tokens, those of AI crawlers first.
func productTokens() []string {
	var ai, others []string
	for _, token := range tokens.Default().Tokens {
		switch {
		case !token.ProductToken:
		case token.Category == "ai":
			ai = append(ai, token.Name)
		default:
			others = append(others, token.Name)
		}
	}
	return append(ai, others...)
}

// TestDecisions gives each parser the 160 questions about each real file that Google's open-source matcher has
// answered, and counts the decisions that differ. With go test -v it logs the counts. A parser that decides like Google
// must do so without exception, or this file calls it wrongly.
func TestDecisions(t *testing.T) {
	exact := map[string]bool{"bulkscan": true, "grobotstxt": true}
	differ, refused, asked := map[string]int{}, map[string]int{}, 0
	for _, pack := range []string{"typical12k", "modern-ai"} {
		bodies := sharedtest.Bodies(t, pack)
		file, err := os.Open(sharedtest.Path(t, "corpus", "google-allow-"+pack+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := json.NewDecoder(bufio.NewReader(file))
		var questions struct{ Agents, Paths []string }
		if err := lines.Decode(&questions); err != nil {
			t.Fatal(err)
		}
		allowed := make([]bool, len(questions.Agents)*len(questions.Paths))
		asks := make([]judge, len(parsers))
		for i, p := range parsers {
			asks[i] = p.open(questions.Agents, questions.Paths)
		}
		for n, body := range bodies {
			var line struct{ SHA1, Bits string }
			if err := lines.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if sum := sha1.Sum(body); hex.EncodeToString(sum[:]) != line.SHA1 || len(line.Bits) != len(allowed) {
				t.Fatalf("%s: the decisions of file %d belong to another file", pack, n)
			}
			asked += len(allowed)
			for i, p := range parsers {
				if err := asks[i](body, allowed); err != nil {
					refused[p.name]++
					differ[p.name] += len(allowed)
					continue
				}
				for k, is := range allowed {
					if is != (line.Bits[k] == '1') {
						differ[p.name]++
					}
				}
			}
		}
	}
	for _, p := range parsers {
		t.Logf("%s: %d of %d decisions are not Google's; %d files are refused", p.name, differ[p.name], asked,
			refused[p.name])
		if exact[p.name] && differ[p.name] > 0 {
			t.Errorf("%s differs from Google", p.name)
		}
	}
}

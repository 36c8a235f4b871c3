package parser_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// shared returns a file of ../shared, unpacked if its name ends in .zst. It skips the test if that is absent. A program
// reads it, so that these tests import no decoder.
func shared(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	raw, err := exec.Command("go", append([]string{"run", "../internal/sharedtest/cmd/shared"}, elem...)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		if bytes.HasPrefix(failed.Stderr, []byte("SKIPPED: ")) {
			tb.Skip(string(failed.Stderr))
		}
		tb.Fatalf("%v: %s", err, failed.Stderr)
	} else if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// bodiesOf returns a pack of robots.txt bodies from ../shared/corpus: (uint32 little-endian length, body), repeated.
func bodiesOf(tb testing.TB, pack string) (bodies [][]byte) {
	tb.Helper()
	for raw := shared(tb, "corpus", pack+".bin.zst"); len(raw) > 0; {
		end := 4 + binary.LittleEndian.Uint32(raw)
		bodies = append(bodies, bytes.Clone(raw[4:end]))
		raw = raw[end:]
	}
	return bodies
}

// eachLine decodes every line of a JSON Lines file in ../shared into a fresh T.
func eachLine[T any](tb testing.TB, visit func(T), elem ...string) {
	tb.Helper()
	for line := range bytes.Lines(shared(tb, elem...)) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			tb.Fatal(err)
		}
		visit(v)
	}
}

// conformanceCase is a case of Google's own tests.
type conformanceCase struct {
	ID             string
	Body           *string `json:"robots_txt"`
	Base64         []byte  `json:"robots_txt_b64"`
	Agent          string  `json:"user_agent"`
	URL            string  `json:"path_or_url"`
	Expected       string
	GoogleSpecific bool `json:"google_specific"`
}

// rfcExempt lists cases that are not marked as Google's own, but expect more than RFC 9309 says.
var rfcExempt = map[string]string{
	"ID_Encoding#3":                   "§2.2.2 normalises both sides: an unescaped octet of the URL equals its escape in the rule",
	"ID_Encoding#5":                   "§2.2.2 normalises both sides",
	"ID_Encoding#6":                   "§2.2.2 decodes unreserved octets: %62%61%7A is baz",
	"correctness/non-ascii-paths#2.2": "§2.2.2 normalises both sides",
	"correctness/non-ascii-paths#3.2": "§2.2.2 normalises both sides",
	"correctness/non-ascii-paths#4.1": "§2.2.2 decodes unreserved octets",
	"stress/327748#1.6":               "§2.2.2 allows /robots.txt whatever the rules say",
	"stress/369883#1.6":               "§2.2.2 allows /robots.txt",
	"stress/369883#1.10":              "§2.2.2 allows /robots.txt",
	"stress/860237#1.10":              "§2.2.2 allows /robots.txt",
}

// TestConformance runs Google's own tests in both dialects.
func TestConformance(t *testing.T) {
	var file parser.File
	n, exempt := 0, 0
	visit := func(c conformanceCase) {
		body := c.Base64
		if c.Body != nil {
			body = []byte(*c.Body)
		}
		path := parser.AppendPath(nil, c.URL)
		check := func(d parser.Dialect) {
			t.Helper()
			n++
			file.ParseDialect(body, d)
			if got := file.Decide(c.Agent, path).Allow; got != (c.Expected == "allowed") {
				t.Errorf("%s, %v: %q on %q: allow = %v, want %s\n%s", c.ID, d, c.Agent, c.URL, got, c.Expected, body)
			}
		}
		check(parser.Google)
		check(parser.GoogleExact)
		switch reason := rfcExempt[c.ID]; {
		case c.GoogleSpecific:
		case reason == "":
			check(parser.RFC)
		default:
			// An exemption must be needed: the dialects must differ here.
			exempt++
			file.ParseDialect(body, parser.RFC)
			if file.Decide(c.Agent, path).Allow == (c.Expected == "allowed") {
				t.Errorf("%s: exempt (%s), but the rfc dialect agrees", c.ID, reason)
			}
		}
	}
	eachLine(t, visit, "conformance", "cases-google-robotstxt.jsonl")
	eachLine(t, visit, "conformance", "cases-google-spec-test.jsonl")
	if exempt != len(rfcExempt) {
		t.Errorf("%d exempt cases were met, want %d", exempt, len(rfcExempt))
	}
	t.Logf("%d decisions, %d exempt", n, exempt)
}

// TestConformanceUnits runs Google's own unit tests of functions.
func TestConformanceUnits(t *testing.T) {
	type unit struct {
		Kind, In string
		Out      any
	}
	eachLine(t, func(u unit) {
		var got any
		switch u.Kind {
		case "GetPathParamsQuery":
			got = string(parser.AppendPath(nil, u.In))
		case "MaybeEscapePattern":
			got = string(parser.AppendPattern(nil, []byte(u.In), parser.Google))
		case "IsValidUserAgentToObey":
			got = u.In != "" && u.In != "*" && len(parser.AgentName([]byte(u.In), parser.RFC)) == len(u.In)
		default:
			t.Errorf("unknown kind %q", u.Kind)
		}
		if got != u.Out {
			t.Errorf("%s(%q) = %v, want %v", u.Kind, u.In, got, u.Out)
		}
	}, "conformance", "cases-google-robotstxt-unit.jsonl")
}

// notUnderRace skips a long test of one goroutine, in which nothing can race.
func notUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("SKIPPED: one goroutine computes for long, which the race detector makes ten times longer")
	}
}

// hasUsage reports whether a file has a usage record, which Google's code takes for a rule.
func hasUsage(f *parser.File) bool {
	return f.Count(parser.KeyAllowAITraining)+f.Count(parser.KeyDisallowAITraining) > 0
}

// TestGoogleDecisions compares decisions on real bodies with those of Google's open-source matcher: all of GoogleExact,
// and those of Google on files without usage records.
func TestGoogleDecisions(t *testing.T) {
	notUnderRace(t)
	for _, pack := range []string{"modern-ai", "typical12k"} {
		t.Run(pack, func(t *testing.T) {
			bodies := bodiesOf(t, pack)
			type line struct {
				Agents, Paths []string
				SHA1, Bits    string
			}
			var head line
			var file parser.File
			body, differences, usages := 0, 0, 0
			eachLine(t, func(l line) {
				if l.SHA1 == "" {
					head = l
					return
				}
				src := bodies[body]
				body++
				if sum := sha1.Sum(src); hex.EncodeToString(sum[:]) != l.SHA1 {
					t.Fatalf("body %d is not the one that was judged", body)
				}
				before := bytes.Clone(src)
				for _, d := range []parser.Dialect{parser.Google, parser.GoogleExact} {
					file.ParseDialect(src, d)
					if d == parser.Google && hasUsage(&file) {
						usages++ // documented: a usage record is no rule
						continue
					}
					for i, agent := range head.Agents {
						for k, path := range head.Paths {
							got := file.Decide(agent, []byte(path)).Allow
							if got != (l.Bits[i*len(head.Paths)+k] == '1') {
								if differences++; differences < 10 {
									t.Errorf("%s, %d: %s on %s: allow = %v", l.SHA1, d, agent, path, got)
								}
							}
						}
					}
				}
				if !bytes.Equal(before, src) {
					t.Fatalf("%s: the body was written to", l.SHA1)
				}
			}, "corpus", "google-allow-"+pack+".jsonl")
			if body != len(bodies) || differences > 0 {
				t.Errorf("%d of %d bodies compared, %d differences", body, len(bodies), differences)
			}
			t.Logf("%d bodies, of which %d have usage records", body, usages)
		})
	}
}

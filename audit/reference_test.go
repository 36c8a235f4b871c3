package audit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

// This file says a second time, as plainly as possible and without regard to cost, whom a crawler follows, what a
// verdict is, and what the six published definitions of "blocked" mean. Only lines and the decision on a single path
// are taken from the parser.

// plainFile is a file as a list of groups.
type plainFile struct {
	*parser.File
	groups []plainGroup
}

// plainGroup is whom a group names, in lower case, and the records of its rules.
type plainGroup struct {
	agents []string
	rules  []parser.Record
}

func plainly(f *parser.File) plainFile {
	p := plainFile{File: f, groups: make([]plainGroup, f.Groups())}
	for i := range f.Records() {
		rec := f.Record(i)
		if rec.Group < 0 {
			continue
		}
		g := &p.groups[rec.Group]
		switch rec.Key {
		case parser.KeyUserAgent:
			value := strings.ToLower(string(rec.Value))
			if fields := strings.FieldsFunc(value, isASCIISpace); len(fields) > 0 && fields[0] == "*" {
				g.agents = append(g.agents, "*")
				continue
			}
			end := strings.IndexFunc(value, func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz_-", c) })
			if end >= 0 {
				value = value[:end]
			}
			g.agents = append(g.agents, value)
		case parser.KeyAllow, parser.KeyDisallow:
			g.rules = append(g.rules, rec)
		}
	}
	return p
}

func isASCIISpace(c rune) bool { return strings.ContainsRune(" \t\v\f", c) }

// naming returns the groups that name the agent.
func (p *plainFile) naming(name string) (groups []uint32) {
	for i, g := range p.groups {
		if slices.Contains(g.agents, strings.ToLower(name)) {
			groups = append(groups, uint32(i))
		}
	}
	return groups
}

// followed returns the groups that a crawler follows, and whether they name it itself.
func (p *plainFile) followed(reg *tokens.Registry, t *tokens.Token) (groups []uint32, via Via) {
	if t.ProductToken {
		if groups = p.naming(t.Name); groups != nil {
			return groups, ViaOwn
		}
	}
	for _, name := range t.Fallback {
		if groups = p.naming(name); groups != nil {
			return groups, ViaFallback
		}
	}
	if t.HeedsStar {
		if groups = p.naming("*"); groups != nil {
			return groups, ViaStar
		}
	}
	return nil, ViaNone
}

func (p *plainFile) denied(groups []uint32, path string) bool {
	return !p.DecideIn(groups, []byte(path)).Allow
}

// verdict is the definition of blocked, partial and allowed. It gives up, with ok false, where it would take too long.
func (p *plainFile) verdict(groups []uint32) (d Decision, ok bool) {
	paths := []string{"/", "/dummy-testing-path-54321"}
	rules := 0
	for _, g := range groups {
		rules += len(p.groups[g].rules)
		for _, rule := range p.groups[g].rules {
			if path, is := plainPath(string(rule.Value)); is {
				paths = append(paths, path)
			}
		}
	}
	if rules*len(paths) > 1_000_000 {
		return 0, false
	}
	denied := 0
	for _, path := range paths {
		if p.denied(groups, path) {
			denied++
		}
	}
	switch denied {
	case 0:
		return Allowed, true
	case len(paths):
		return Blocked, true
	}
	return Partial, true
}

// plainPath is the path of a rule.
func plainPath(value string) (string, bool) {
	if value == "" || value[0] != '/' && value[0] != '*' {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		isHex := func(j int) bool { return j < len(value) && strings.IndexByte("0123456789abcdefABCDEF", value[j]) >= 0 }
		switch {
		case value[i] >= 0x80:
			fmt.Fprintf(&b, "%%%02X", value[i])
		case value[i] == '%' && isHex(i+1) && isHex(i+2):
			b.WriteString(strings.ToUpper(value[i : i+3]))
			i += 2
		default:
			b.WriteByte(value[i])
		}
	}
	path := strings.ReplaceAll(strings.TrimSuffix(b.String(), "$"), "*", "")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path, true
}

// dpiAll is the Data Provenance Initiative's `all`.
func (p *plainFile) dpiAll(groups []uint32) bool {
	root, allows := false, 0
	for _, g := range groups {
		for _, rule := range p.groups[g].rules {
			switch {
			case bytes.Contains(rule.Value, []byte("?")):
			case rule.Key == parser.KeyAllow:
				allows++
			case string(rule.Value) == "/":
				root = true
			}
		}
	}
	return root && allows == 0
}

// definitions are the six published meanings of "a site blocks a token".
type definitions struct{ mention, explicitRoot, full, any, dpiAll, rfcEffective bool }

// plainDefinitions works them out from the prose.
func (p *plainFile) plainDefinitions(reg *tokens.Registry, t *tokens.Token) (d definitions, via Via, ok bool) {
	groups, via := p.followed(reg, t)
	verdict, ok := p.verdict(groups)
	return definitions{
		mention:      via == ViaOwn,
		explicitRoot: via == ViaOwn && p.denied(groups, "/"),
		full:         verdict == Blocked,
		any:          verdict != Allowed,
		dpiAll:       p.dpiAll(groups),
		rfcEffective: verdict == Blocked,
	}, via, ok
}

// reportedDefinitions works them out from a Report, as queries do: from the token's row, else from that of `*`.
func reportedDefinitions(r *Report, id int, heedsStar bool) (d definitions, via Via) {
	contains := func(list []uint16) bool { return slices.Contains(list, uint16(id)) }
	d.mention, d.full = contains(r.Named), contains(r.Blocked)
	d.any, d.rfcEffective = d.full || contains(r.Partial), d.full
	row := r.Verdicts[0] // `*`
	for _, v := range r.Verdicts {
		if v.ID == id && !v.Lenient {
			row = v
		}
	}
	if row.ID >= 0 || heedsStar {
		d.dpiAll, via = row.DPI == DPIAll, row.Via
	}
	d.explicitRoot = row.Via == ViaOwn && !row.RootAllowed
	return d, via
}

// compare judges a body and checks every registry token. It reports how many tokens were compared.
func compare(t *testing.T, s *Site, body []byte) (compared int) {
	t.Helper()
	s.Reset()
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
	Judge(s)
	reg, plain := tokens.Default(), plainly(&s.Robots)
	type answer struct {
		definitions
		via Via
		ok  bool
	}
	byGroups := map[string]answer{} // most tokens follow `*`
	for id := range reg.Tokens {
		token := &reg.Tokens[id]
		groups, via := plain.followed(reg, token)
		key := fmt.Sprint(groups, via)
		want, seen := byGroups[key]
		if !seen {
			want.definitions, want.via, want.ok = plain.plainDefinitions(reg, token)
			byGroups[key] = want
		}
		if !want.ok {
			continue
		}
		compared++
		got, gotVia := reportedDefinitions(&s.Report, id, token.HeedsStar)
		if got != want.definitions || gotVia != want.via {
			t.Errorf("%s: got %+v %v, want %+v %v\n%.300q", token.Name, got, gotVia, want.definitions, want.via, body)
		}
	}
	return compared
}

func TestDefinitions(t *testing.T) {
	reg := tokens.Default()
	f := func(text, token string, want definitions) {
		t.Helper()
		s := answered(lines(text))
		id := reg.Lookup(token)
		got, _ := reportedDefinitions(&s.Report, id, reg.Tokens[id].HeedsStar)
		if got != want {
			t.Errorf("%q, %s: got  %+v, want %+v", text, token, got, want)
		}
		compare(t, s, []byte(lines(text)))
	}
	nothing := definitions{}
	all := definitions{true, true, true, true, true, true}
	byStar := definitions{full: true, any: true, dpiAll: true, rfcEffective: true}
	f("", "GPTBot", nothing)
	f("ua: GPTBot | d: /", "GPTBot", all)
	f("ua: GPTBot | d: /", "CCBot", nothing)
	f("ua: GPTBot | d:", "GPTBot", definitions{mention: true})
	f("ua: GPTBot", "GPTBot", definitions{mention: true})
	f("ua: GPTBot | d: /x", "GPTBot", definitions{mention: true, any: true})
	f("ua: * | d: /", "GPTBot", byStar)
	f("ua: * | d: / | ua: GPTBot", "GPTBot", definitions{mention: true})
	f("ua: * | d: /", "AdsBot-Google", nothing)
	f("ua: Googlebot | d: /", "Googlebot-News", byStar)
	f("ua: GPTBot | d: / | a: /robots.txt", "GPTBot", definitions{mention: true, explicitRoot: true, any: true})
	f("ua: GPTBot | d: / | a:", "GPTBot", definitions{mention: true, explicitRoot: true, full: true, any: true, rfcEffective: true})
	f("ua: GPTBot | d: /*", "GPTBot", definitions{mention: true, explicitRoot: true, full: true, any: true, rfcEffective: true})
	f("ua: GPTBot | d: *", "GPTBot", definitions{mention: true, explicitRoot: true, full: true, any: true, rfcEffective: true})
	f("ua: GPTBot | d: /$", "GPTBot", definitions{mention: true, explicitRoot: true, any: true})
	f("ua: GPTBot | d: / | a: /$", "GPTBot", definitions{mention: true, any: true})
	f("ua: GPTBot | d: / | a: /index.html", "GPTBot", definitions{mention: true, any: true})
	f("ua: GPTBot | a: / | d: /*?", "GPTBot", definitions{mention: true, any: true})
	f("ua: GPTBot | d: /x | a: /x", "GPTBot", definitions{mention: true})
	f("ua: GPTBot | d: /é%c3", "GPTBot", definitions{mention: true, any: true})
	f("ua: MJ12bot | d: /", "MJ12bot", nothing)
	f("ua: MJ12bot | d: | ua: * | d: /", "MJ12bot", byStar)
}

func TestDefinitionsOnCorpora(t *testing.T) {
	for _, corpus := range []string{"modern-ai", "typical12k"} {
		t.Run(corpus, func(t *testing.T) {
			bodies := sharedtest.Bodies(t, corpus)
			s, compared, step := new(Site), 0, 1
			if testing.Short() || underRace {
				step = 10
			}
			for i := 0; i < len(bodies); i += step {
				compared += compare(t, s, bodies[i])
				if t.Failed() {
					t.FailNow()
				}
			}
			if least := len(bodies) / step * len(tokens.Default().Tokens) * 99 / 100; compared < least {
				t.Errorf("only %d verdicts compared, want %d", compared, least)
			}
		})
	}
}

package audit

import (
	"maps"
	"slices"
	"sync"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// This file is the reference's judgement of a site: whom each user-agent line names, whom a crawler follows, what the
// status means, the six published definitions, and the lists and rows of a Report.

// plainSite is what there is to judge.
type plainSite struct {
	access     parser.Access
	statusCame bool
	plainFile  // empty unless access is conditional
}

// plainFile is a body as its groups, and who is named where.
type plainFile struct {
	groups []plainGroup
	named  map[string]*plainAgent // by the name in lower case
	meant  map[int]*plainAgent    // by the index of a registry token that only the second reading finds
	order  []string               // of named, as they come in the body
}

// plainAgent is somebody whom groups name.
type plainAgent struct {
	line   int          // of the first user-agent line that does
	lines  map[int]bool // all of them
	groups []int        // ascending
	itself bool         // one of its lines means nobody else by the second reading

	rules *plainRules // of the groups; worked out when they are asked for
}

func newPlainAgent(line int) *plainAgent { return &plainAgent{line: line, lines: map[int]bool{}} }

func (a *plainAgent) namedIn(group, line int) {
	a.lines[line] = true
	if n := len(a.groups); n == 0 || a.groups[n-1] != group {
		a.groups = append(a.groups, group)
	}
}

// plainCrawler is a row of the registry as it is needed here.
type plainCrawler struct {
	names     []string // its own, then those that it falls back to; in lower case
	heedsStar bool
}

// plainRegistry is the registry: the crawlers, and which of them has a name or alias in lower case.
var plainRegistry = sync.OnceValue(func() (reg struct {
	crawlers    []plainCrawler
	name, alias map[string]int
}) {
	reg.name, reg.alias = map[string]int{}, map[string]int{}
	for id, t := range tokens.Default().Tokens {
		c := plainCrawler{heedsStar: t.HeedsStar}
		for _, name := range append([]string{t.Name}, t.Fallback...) {
			c.names = append(c.names, plainLower(name))
		}
		reg.crawlers = append(reg.crawlers, c)
		reg.name[plainLower(t.Name)] = id
		for _, alias := range t.Aliases {
			reg.alias[plainLower(alias)] = id
		}
	}
	return reg
})

func newPlainFile(body string) plainFile {
	p := plainFile{
		groups: plainGroups(plainRecords(body)),
		named:  map[string]*plainAgent{}, meant: map[int]*plainAgent{},
	}
	for g, group := range p.groups {
		for _, r := range group.agents {
			p.readAgent(g, r)
		}
	}
	return p
}

// readAgent notes whom a user-agent line names, strictly and by the second reading. That is asked only where the strict
// one finds neither the wildcard nor a token that the registry knows.
func (p *plainFile) readAgent(group int, r plainRecord) {
	name, id := plainName(r.value), -1
	if _, known := plainRegistry().name[name]; !known && name != "*" {
		id = plainMeaning(r.value)
	}
	if id >= 0 {
		if p.meant[id] == nil {
			p.meant[id] = newPlainAgent(r.line)
		}
		p.meant[id].namedIn(group, r.line)
	}
	if name != "" {
		if p.named[name] == nil {
			p.named[name] = newPlainAgent(r.line)
			p.order = append(p.order, name)
		}
		p.named[name].namedIn(group, r.line)
		p.named[name].itself = p.named[name].itself || id < 0
	}
}

// plainMeaning is the second reading: the registry token that was meant, -1 for none.
func plainMeaning(value string) int {
	for _, name := range plainMeant(value) {
		if id, ok := plainRegistry().name[name]; ok {
			return id
		}
		if id, ok := plainRegistry().alias[name]; ok {
			return id
		}
	}
	return -1
}

// rulesOf returns the merged rules of the groups that an agent follows; for nobody, none.
func (p *plainFile) rulesOf(a *plainAgent) *plainRules {
	if a == nil {
		return newPlainRules(nil)
	}
	if a.rules == nil {
		var lines []plainRecord
		for _, g := range a.groups {
			lines = append(lines, p.groups[g].rules...)
		}
		a.rules = newPlainRules(lines)
	}
	return a.rules
}

// followed returns the agent whose groups a crawler follows: the first of its names that has one, else `*` if it heeds
// that, else nobody.
func (p *plainFile) followed(c plainCrawler) (agent *plainAgent, via Via) {
	for i, name := range c.names {
		if agent = p.named[name]; agent != nil {
			if i == 0 {
				return agent, ViaOwn
			}
			return agent, ViaFallback
		}
	}
	if agent = p.named["*"]; agent != nil && c.heedsStar {
		return agent, ViaStar
	}
	return nil, ViaNone
}

// newPlainSite says what an exchange means for access, and reads the body.
func newPlainSite(f *exchange.Response) plainSite {
	p := plainSite{access: plainAccess(f.Outcome, f.Status), statusCame: f.Status != 0}
	if p.access == parser.AccessConditional {
		p.plainFile = newPlainFile(string(f.Body))
	}
	return p
}

// plainAccess: nothing is known of whom we did not ask. A 2xx has rules; a 4xx, and redirects that lead to no file,
// mean that there is none; all else is a failing server.
func plainAccess(outcome exchange.Outcome, status int) parser.Access {
	switch outcome {
	case 0, exchange.OptedOut, exchange.BlockedAddress, exchange.NotArchived:
		return parser.AccessUnknown
	case exchange.RedirectLimit, exchange.RedirectInvalid:
		return parser.AccessFullAllow
	case exchange.Answered:
		switch status / 100 {
		case 2:
			return parser.AccessConditional
		case 3, 4:
			return parser.AccessFullAllow
		}
	}
	return parser.AccessFullDisallow
}

// verdict is what a crawler's rules amount to; none allow all.
func (p *plainSite) verdict(c plainCrawler) Decision {
	agent, _ := p.followed(c)
	return p.rulesOf(agent).decision()
}

// The six published definitions of "the site blocks this crawler".

// mention: the site's file speaks of the crawler at all. A group names it, whatever stands in it, be it nothing.
// Whoever is only reached by a fallback or by `*` is not mentioned. (HTTP Archive's Web Almanac counts so.)
func (p *plainSite) mention(c plainCrawler) bool { return p.named[c.names[0]] != nil }

// explicitRoot: the site names the crawler and denies it the first page. What else it may fetch does not matter, nor
// does a `/` that `*` is denied.
func (p *plainSite) explicitRoot(c plainCrawler) bool {
	own := p.named[c.names[0]]
	return own != nil && p.rulesOf(own).denies("/")
}

// full: the rules that the crawler follows, own, fallback's or those of `*`, leave it nothing.
func (p *plainSite) full(c plainCrawler) bool { return p.verdict(c) == Blocked }

// any: those rules deny it something, or everything.
func (p *plainSite) any(c plainCrawler) bool { return p.verdict(c) != Allowed }

// dpiAll: the Data Provenance Initiative's `all`. Its parser knows no matching: `/` must stand among the disallows as
// it is, and no allow line beside it, not even an empty one, once all values with a `?` are dropped. Who has no group
// of its own or of a fallback inherits that of `*`, even a crawler that says it ignores `*`.
func (p *plainSite) dpiAll(c plainCrawler) bool {
	agent, via := p.followed(c)
	if via == ViaNone {
		agent = p.named["*"]
	}
	return p.rulesOf(agent).dpi() == DPIAll
}

// rfcEffective: a crawler that obeys RFC 9309 fetches nothing there: the rules say so, or the server fails and that
// forbids everybody everything. Only sites from which an HTTP status came are asked: a dead name has no policy.
func (p *plainSite) rfcEffective(c plainCrawler) bool {
	return p.statusCame && (p.access == parser.AccessFullDisallow || p.full(c))
}

// definitions are the answers of all six.
type definitions struct{ mention, explicitRoot, full, any, dpiAll, rfcEffective bool }

func (p *plainSite) definitions(c plainCrawler) definitions {
	return definitions{p.mention(c), p.explicitRoot(c), p.full(c), p.any(c), p.dpiAll(c), p.rfcEffective(c)}
}

// verdictRow is what is compared of a row of the table `verdicts`.
type verdictRow struct {
	token           string
	id              int
	lenient         bool
	via             Via
	verdict         Decision
	rootAllowed     bool
	nAllow          int
	nDisallow       int
	hasDisallowRoot bool
	dpi             DPI
	line            int
	plainValues
}

// row is that of an agent, which may be nobody.
func (p *plainSite) row(token string, id int, agent *plainAgent, via Via) verdictRow {
	rules := p.rulesOf(agent)
	v := verdictRow{
		token: token, id: id, via: via, verdict: rules.decision(), rootAllowed: !rules.denies("/"),
		nAllow: rules.count("allow", anyValue), nDisallow: rules.count("disallow", anyValue),
		hasDisallowRoot: rules.count("disallow", rootValue) > 0, dpi: rules.dpi(), plainValues: p.values(agent),
	}
	if agent != nil {
		v.line = agent.line
	}
	return v
}

// rows are those that the site has: of `*` always, if anything is known of it; of each agent that is named; of each
// registry token that reaches one by fallback; and of each that only the second reading finds.
func (p *plainSite) rows() (rows []verdictRow) {
	switch p.access {
	case parser.AccessUnknown:
		return nil
	case parser.AccessFullAllow:
		return []verdictRow{{token: "*", id: -1, via: ViaHTTP, verdict: Allowed, rootAllowed: true}}
	case parser.AccessFullDisallow:
		return []verdictRow{{token: "*", id: -1, via: ViaHTTP, verdict: Blocked}}
	}
	star, via := p.followed(plainCrawler{heedsStar: true})
	rows = append(rows, p.row("*", -1, star, via))
	rows = append(rows, p.namedRows()...)
	reg := tokens.Default()
	for id, c := range plainRegistry().crawlers {
		if agent, via := p.followed(c); via == ViaFallback {
			rows = append(rows, p.row(reg.Tokens[id].Name, id, agent, via))
		}
	}
	for id, agent := range p.meant {
		// Whoever reads so reads the lines, too, that name the token strictly.
		all := *agent
		if own := p.named[plainRegistry().crawlers[id].names[0]]; own != nil {
			all.groups = slices.Concat(agent.groups, own.groups)
			slices.Sort(all.groups)
			all.groups = slices.Compact(all.groups)
			all.lines = maps.Clone(agent.lines)
			maps.Copy(all.lines, own.lines)
		}
		v := p.row(reg.Tokens[id].Name, id, &all, ViaOwn)
		v.lenient = true
		rows = append(rows, v)
	}
	return rows
}

// namedRows are those of agents that the file names, in the spelling of the registry or in lower case, cut to a bound:
// of names that are alike up to it, the first has the row. Who is only a fragment of a name that the second reading
// knows has none.
func (p *plainSite) namedRows() (rows []verdictRow) {
	cut := map[string]bool{}
	for _, name := range p.order {
		agent := p.named[name]
		if name == "*" || !agent.itself {
			continue
		}
		token, id := name[:min(len(name), MaxToken)], -1
		if known, ok := plainRegistry().name[name]; ok {
			token, id = tokens.Default().Tokens[known].Name, known
		}
		if !cut[token] {
			rows = append(rows, p.row(token, id, agent, ViaOwn))
		}
		cut[token] = true
	}
	return rows
}

// tokenLists returns the registry tokens that the lists of a Report hold.
func (p *plainSite) tokenLists() (named, blocked, partial []uint16) {
	for id, c := range plainRegistry().crawlers {
		if p.mention(c) {
			named = append(named, uint16(id))
		}
		switch p.verdict(c) {
		case Blocked:
			blocked = append(blocked, uint16(id))
		case Partial:
			partial = append(partial, uint16(id))
		}
	}
	return named, blocked, partial
}

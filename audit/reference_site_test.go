package audit

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// This file has the reference's judgement of a site: the agents that user-agent lines name, the groups that a crawler
// follows, access by status, the six published definitions, and the lists and rows of a Report.

// plainSite is a site to judge.
type plainSite struct {
	access     parser.Access
	statusCame bool
	plainFile  // empty unless access is conditional
}

// plainFile has the groups of a body, and the agents that they name.
type plainFile struct {
	groups []plainGroup
	named  map[string]*plainAgent // by the name in lower case
	meant  map[int]*plainAgent    // by the index of a registry token that only the second reading finds
	order  []string               // keys of named in the order of the body
}

// plainAgent is an agent that groups name.
type plainAgent struct {
	line   int          // first user-agent line that names it
	lines  map[int]bool // all lines that name it
	groups []int        // ascending
	itself bool         // one of its lines has no other meaning by the second reading

	rules *plainRules // of the groups; computed on demand
}

func newPlainAgent(line int) *plainAgent { return &plainAgent{line: line, lines: map[int]bool{}} }

func (a *plainAgent) namedIn(group, line int) {
	a.lines[line] = true
	if n := len(a.groups); n == 0 || a.groups[n-1] != group {
		a.groups = append(a.groups, group)
	}
}

// plainCrawler is a row of the registry.
type plainCrawler struct {
	names     []string // its own name, then its fallbacks; in lower case
	heedsStar bool
}

// plainRegistry is the registry: the crawlers, and the crawler of each name or alias in lower case.
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
		reg.name[plainLower(t.Name)] = id
		for _, alias := range t.Aliases {
			// A crawler whose name no line can have is named by its first alias that a line can have.
			if name := plainLower(alias); plainName(name) == name && plainName(c.names[0]) != c.names[0] {
				c.names[0], reg.name[name] = name, id
			} else {
				reg.alias[name] = id
			}
		}
		reg.crawlers = append(reg.crawlers, c)
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

// readAgent records the agent of a user-agent line, strictly and by the second reading. The second reading applies only
// if the strict one finds neither the wildcard nor a registry token.
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
	if strings.HasPrefix(name, "__usage_") {
		return // a preference
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

// plainMeaning is the second reading. It returns the registry token that is meant, -1 for none.
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

// rulesOf returns the merged rules of an agent's groups; no rules for a nil agent.
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

// followed returns the agent whose groups a crawler follows: that of its first name with a group, else `*` if it heeds
// that, else nil.
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

// newPlainSite returns the access of an exchange, and reads the body.
func newPlainSite(f *exchange.Response) plainSite {
	p := plainSite{access: plainAccess(f.Outcome, f.Status), statusCame: f.Status != 0}
	if p.access == parser.AccessConditional {
		p.plainFile = newPlainFile(string(f.Body))
	}
	return p
}

// plainAccess: without a request, access is unknown. A 2xx has rules. A 4xx, and redirects that lead to no file, mean
// that there is no file. All else is a failing server.
func plainAccess(outcome exchange.Outcome, status int) parser.Access {
	switch outcome {
	case 0, exchange.OptedOut, exchange.BlockedAddress, exchange.NotArchived, exchange.Carried:
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

// verdict returns the verdict of a crawler's rules. No rules allow everything.
func (p *plainSite) verdict(c plainCrawler) Decision {
	agent, _ := p.followed(c)
	return p.rulesOf(agent).decision()
}

// The six published definitions of "the site blocks this crawler".

// mention: a group of the site's file names the crawler, whatever its rules. A crawler with rules only by a fallback or
// by `*` is not mentioned. (HTTP Archive's Web Almanac counts so.)
func (p *plainSite) mention(c plainCrawler) bool { return p.named[c.names[0]] != nil }

// explicitRoot: the site names the crawler and denies it `/`. Its other paths do not count, nor do rules of `*`.
func (p *plainSite) explicitRoot(c plainCrawler) bool {
	own := p.named[c.names[0]]
	return own != nil && p.rulesOf(own).denies("/")
}

// full: the rules that the crawler follows (its own, a fallback's, or those of `*`) deny it everything.
func (p *plainSite) full(c plainCrawler) bool { return p.verdict(c) == Blocked }

// any: these rules deny it something or everything.
func (p *plainSite) any(c plainCrawler) bool { return p.verdict(c) != Allowed }

// dpiAll: `all` of the Data Provenance Initiative. Its parser does not match patterns. A disallow must be literally
// `/`, and there must be no allow line, not even an empty one, once values with a `?` are dropped. A crawler without a
// group of its own or of a fallback inherits that of `*`, even if it ignores `*`.
func (p *plainSite) dpiAll(c plainCrawler) bool {
	agent, via := p.followed(c)
	if via == ViaNone {
		agent = p.named["*"]
	}
	return p.rulesOf(agent).dpi() == DPIAll
}

// rfcEffective: a crawler that obeys RFC 9309 fetches nothing: by the rules, or because the server fails, which forbids
// everything to all. Only sites with an HTTP status count, since a dead name has no policy.
func (p *plainSite) rfcEffective(c plainCrawler) bool {
	return p.statusCame && (p.access == parser.AccessFullDisallow || p.full(c))
}

// definitions are the results of all six.
type definitions struct{ mention, explicitRoot, full, any, dpiAll, rfcEffective bool }

func (p *plainSite) definitions(c plainCrawler) definitions {
	return definitions{p.mention(c), p.explicitRoot(c), p.full(c), p.any(c), p.dpiAll(c), p.rfcEffective(c)}
}

// verdictRow has the compared columns of the table `verdicts`.
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

// row returns the row of an agent, which may be nil.
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

// rows returns the rows of the site: of `*`, if its access is known; of each agent that is named; of each registry
// token that reaches one by fallback; and of each token that only the second reading finds.
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
		// The second reading includes the lines that name the token strictly.
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

// namedRows returns the rows of agents that the file names, in the spelling of the registry or in lower case, cut to a
// bound. Among names that are equal up to the bound, the first has the row. A fragment of a name that the second
// reading knows has none.
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

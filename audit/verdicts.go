package audit

import (
	"slices"

	"github.com/bulkscan/bulkscan/parser"
)

// This file says what each token may do. The parser surveys each set of groups once, whoever they name; a registry token
// follows an agent of the file, and so one of the few sets.

// scratch is what Judge needs beside the Report, in memory that is used again.
type scratch struct {
	by         *Auditor
	validAgent int // line of the first valid user-agent record, 0 for none
	shown      [NumKinds]int

	agents   []agentFacts // of the file's agents
	own      []int32      // by registry index: the agent of that name + 1, 0 for none
	byToken  []int32      // by registry index: index into lenient + 1
	lenient  []lenientToken
	mentions []mention
	listed   []int32
	groups   []uint32            // of a lenient token
	text     []byte              // agents' names in lower case
	long     map[string]struct{} // those of them that were cut, or may have been
}

func (c *scratch) reset() {
	*c = scratch{
		agents: trimmed(c.agents), own: c.own, byToken: c.byToken, lenient: c.lenient[:0], mentions: trimmed(c.mentions),
		listed: trimmed(c.listed), groups: trimmed(c.groups), text: trimmed(c.text),
	}
}

// judgeByStatus makes the only verdict where no rules decide. Of whom we did not ask, there is none.
func (r *Report) judgeByStatus() {
	v := Verdict{Token: star, ID: -1, Via: ViaHTTP}
	switch r.Access {
	case parser.AccessFullAllow:
		v.Decision, v.RootAllowed = Allowed, true
	case parser.AccessFullDisallow:
		v.Decision = Blocked
	default:
		return
	}
	r.Star = v.Decision
	r.Verdicts = append(r.Verdicts, v)
}

var star = []byte("*")

// judgeTokens makes the verdicts by rules: rows for `*`, for the agents named, for registry tokens that reach one by
// fallback, and for those that only the second reading finds; and the lists of registry tokens.
func (a *Auditor) judgeTokens(s *Site) {
	r := &s.Report
	a.starRow(s)
	firstRow := len(r.Verdicts)
	a.registryTokens(s)
	fallbackRows := len(r.Verdicts) - firstRow
	a.agentRows(s)
	// Rows read in the order of the documentation: agents first, then who follows them.
	rotate(r.Verdicts[firstRow:], fallbackRows)
	a.lenientRows(s)
}

// rotate moves the first n elements of s behind the others.
func rotate[T any](s []T, n int) {
	slices.Reverse(s[:n])
	slices.Reverse(s[n:])
	slices.Reverse(s)
}

func (a *Auditor) starRow(s *Site) {
	agent, via := s.Robots.Star(), ViaStar
	if agent < 0 {
		via = ViaNone
	}
	v := s.verdict(agent)
	v.Token, v.ID, v.Via = star, -1, via
	s.Report.Star = v.Decision
	s.Report.CrawlDelay, s.Report.HasCrawlDelay = v.CrawlDelay, v.HasCrawlDelay
	s.Report.Verdicts = append(s.Report.Verdicts, v)
}

// registryTokens judges every token of the registry for the lists, and adds the rows of fallbacks.
func (a *Auditor) registryTokens(s *Site) {
	r := &s.Report
	for id := range a.reg.Tokens {
		agent, via := a.follows(s, id)
		if via == ViaOwn {
			r.Named = append(r.Named, uint16(id))
		}
		if agent < 0 {
			continue
		}
		switch Decision(s.Robots.AgentSurvey(agent).Verdict) {
		case Blocked:
			r.Blocked = append(r.Blocked, uint16(id))
		case Partial:
			r.Partial = append(r.Partial, uint16(id))
		}
		if via == ViaFallback {
			v := s.verdict(agent)
			v.Token, v.ID, v.Via = a.names[id], id, ViaFallback
			r.Verdicts = append(r.Verdicts, v)
		}
	}
}

// follows returns the agent whose groups a registry token follows, and why: the token itself, then its fallbacks, then
// `*` if it heeds that; -1 and ViaNone for nobody.
func (a *Auditor) follows(s *Site, id int) (agent int, via Via) {
	own := s.Report.scratch.own
	if own[id] > 0 {
		return int(own[id]) - 1, ViaOwn
	}
	t := &a.reg.Tokens[id]
	for _, next := range t.Chain {
		if own[next] > 0 {
			return int(own[next]) - 1, ViaFallback
		}
	}
	if star := s.Robots.Star(); star >= 0 && t.HeedsStar {
		return star, ViaStar
	}
	return -1, ViaNone
}

// agentRows adds a row for each agent that the file names, but for the wildcard, and for fragments of names that the
// second reading knows better (`MJ` of `MJ12bot`).
func (a *Auditor) agentRows(s *Site) {
	r, c := &s.Report, &s.Report.scratch
	c.reserveText(s)
	for i := range c.agents {
		if i == s.Robots.Star() || !c.agents[i].literal {
			continue
		}
		v := s.verdict(i)
		v.ID, v.Via = int(c.agents[i].id), ViaOwn
		if v.ID >= 0 {
			v.Token = a.names[v.ID]
		} else {
			name := s.Robots.Agent(i).Name
			v.Token = c.lowerCase(name)
			if len(name) >= MaxToken && !c.firstOf(v.Token) {
				continue
			}
		}
		r.Verdicts = append(r.Verdicts, v)
	}
}

// firstOf reports whether a name as long as is kept comes for the first time. Names that are alike as far as they are kept
// would be one token with several rows: the first stands for all. Only freaks name such, so the set is made for them.
func (c *scratch) firstOf(token []byte) bool {
	if _, seen := c.long[string(token)]; seen {
		return false
	}
	if c.long == nil {
		c.long = map[string]struct{}{}
	}
	c.long[string(token)] = struct{}{}
	return true
}

// reserveText makes room for all names at once, so that no slice of it moves.
func (c *scratch) reserveText(s *Site) {
	n := 0
	for i := range c.agents {
		if c.agents[i].id < 0 {
			n += min(len(s.Robots.Agent(i).Name), MaxToken)
		}
	}
	c.text = slices.Grow(c.text[:0], n)
}

// lowerCase returns a copy of an agent's name in lower case, at most MaxToken bytes of it.
func (c *scratch) lowerCase(name []byte) []byte {
	from := len(c.text)
	for _, b := range name[:min(len(name), MaxToken)] {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		c.text = append(c.text, b)
	}
	return c.text[from:len(c.text):len(c.text)]
}

// lenientRows adds a row for each registry token that only the second reading finds. It follows the groups of all lines
// that the second reading takes for it, and of those that name it strictly.
func (a *Auditor) lenientRows(s *Site) {
	r, c := &s.Report, &s.Report.scratch
	for k := range c.lenient {
		t := &c.lenient[k]
		c.groups = c.groups[:0]
		for _, m := range c.mentions {
			if m.token == int32(k) {
				c.groups = append(c.groups, m.group)
			}
		}
		if own := c.own[t.id]; own > 0 {
			c.groups = append(c.groups, s.Robots.AgentGroups(int(own)-1)...)
			slices.Sort(c.groups)
		}
		c.groups = slices.Compact(c.groups)
		survey := s.Robots.Survey(c.groups)
		v := verdictOf(&survey, t.belongings)
		v.Token, v.ID, v.Via, v.Line, v.Lenient = a.names[t.id], int(t.id), ViaOwn, t.line, true
		r.Verdicts = append(r.Verdicts, v)
	}
}

// verdict returns what an agent's groups amount to, all that does not depend on who follows them; for no agent, -1,
// that everything is allowed.
func (s *Site) verdict(agent int) Verdict {
	if agent < 0 {
		return Verdict{RootAllowed: true}
	}
	survey := s.Robots.AgentSurvey(agent)
	v := verdictOf(&survey, s.Report.scratch.agents[agent].belongings)
	v.Line = s.Robots.Agent(agent).Line
	return v
}

func verdictOf(p *parser.Survey, b belongings) Verdict {
	return Verdict{
		Decision: Decision(p.Verdict), RootAllowed: p.RootAllowed, Limited: p.Limited,
		NAllow: p.NAllow, NDisallow: p.NDisallow, HasDisallowRoot: p.HasDisallowRoot, DPI: dpiOf(p),
		CrawlDelay: b.delay, HasCrawlDelay: b.hasDelay, ContentSignal: b.signal,
	}
}

// dpiOf reads rules as the Data Provenance Initiative does. Its parser drops values with a `?`; then a lone `/` among
// the disallows and no allow line at all is "all", any other disallow that is not empty "some".
func dpiOf(p *parser.Survey) DPI {
	switch {
	case p.HasDisallowRoot && !p.PlainAllow:
		return DPIAll
	case p.PlainDisallow:
		return DPISome
	}
	return DPINone
}

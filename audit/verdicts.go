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

	agents        []agentFacts // of the file's agents
	usages        []groupUsage // of the current group
	own           []int32      // by registry index: the agent of that name + 1, 0 for none
	touched       []uint16     // registry tokens that the file names, and those that fall back to them
	byToken       []int32      // by registry index: index into lenient + 1
	lenient       []lenientToken
	mentions      []mention
	listed        []int32             // agents of the current group so far; ^k for the lenient token k
	groups        []uint32            // of a lenient token
	unknownOctets int                 // octets of the names that the registry does not have
	text          []byte              // those names in lower case
	long          map[string]struct{} // those of them that were cut, or may have been
}

func (c *scratch) reset() {
	// What is looked up by token is undone one by one: few tokens of many are named.
	for i := range c.agents {
		if id := c.agents[i].id; id >= 0 {
			c.own[id] = 0
		}
	}
	for i := range c.lenient {
		c.byToken[c.lenient[i].id] = 0
	}
	clear(c.agents) // they have views
	clear(c.lenient)
	c.by, c.validAgent, c.unknownOctets, c.shown, c.long = nil, 0, 0, [NumKinds]int{}, nil
	c.agents, c.usages, c.mentions = trimmed(c.agents), trimmed(c.usages), trimmed(c.mentions)
	c.listed, c.groups, c.text = trimmed(c.listed), trimmed(c.groups), trimmed(c.text)
	c.touched, c.lenient = c.touched[:0], c.lenient[:0]
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

// judgeTokens makes the verdicts by rules, in this order: rows for `*`, for the agents named, for registry tokens that reach
// one by fallback, and for those that only the second reading finds; and the lists of registry tokens.
func (a *Auditor) judgeTokens(s *Site) {
	a.starRow(s)
	a.agentRows(s)
	a.registryTokens(s)
	a.lenientRows(s)
}

func (a *Auditor) starRow(s *Site) {
	agent, via := s.Robots.Star(), ViaStar
	if agent < 0 {
		via = ViaNone
	}
	v := s.Report.another()
	s.fill(v, agent)
	v.Token, v.ID, v.Via = star, -1, via
	s.Report.Star = v.Decision
	s.Report.CrawlDelay, s.Report.HasCrawlDelay = v.CrawlDelay, v.HasCrawlDelay
}

// registryTokens makes the lists of registry tokens, and adds the rows of fallbacks. One by one it looks only at tokens that
// the file names and at those that fall back to them. All others fare as `*` does, or are allowed: where that matters they
// are copied into their list, so that a site costs what its file says, not what the registry holds.
func (a *Auditor) registryTokens(s *Site) {
	r, c := &s.Report, s.Report.scratch
	for i := range c.agents {
		if id := c.agents[i].id; id >= 0 {
			r.Named = append(r.Named, uint16(id))
			c.touched = append(c.touched, a.followers[id]...)
		}
	}
	if len(c.touched) > 1 {
		slices.Sort(r.Named)
		slices.Sort(c.touched)
		c.touched = slices.Compact(c.touched)
	}

	var rest *[]uint16
	switch r.Star {
	case Blocked:
		rest = &r.Blocked
	case Partial:
		rest = &r.Partial
	}
	heeding := a.heeding
	for _, id := range c.touched {
		if rest != nil {
			n, heeds := slices.BinarySearch(heeding, id)
			*rest = append(*rest, heeding[:n]...)
			if heeds {
				n++
			}
			heeding = heeding[n:]
		}
		agent, via, _ := a.follows(s, int(id), false)
		switch Decision(s.Robots.AgentSurvey(agent).Verdict) {
		case Blocked:
			r.Blocked = append(r.Blocked, id)
		case Partial:
			r.Partial = append(r.Partial, id)
		}
		if via == ViaFallback {
			v := r.another()
			s.fill(v, agent)
			v.Token, v.ID, v.Via = a.names[id], int(id), ViaFallback
		}
	}
	if rest != nil {
		*rest = append(*rest, heeding...)
	}
}

// follows returns the agent whose groups a registry token follows, and why: the token itself, then its fallbacks, then
// `*` if it heeds that; -1 and ViaNone for nobody. With second, names that are no product tokens also count where only the
// second reading finds them: then lenient is true, and agent an index into scratch.lenient.
func (a *Auditor) follows(s *Site, id int, second bool) (agent int, via Via, lenient bool) {
	if agent, lenient = a.named(s, id, second); agent >= 0 {
		return agent, ViaOwn, lenient
	}
	t := &a.reg.Tokens[id]
	for _, next := range t.Chain {
		if agent, lenient = a.named(s, next, second); agent >= 0 {
			return agent, ViaFallback, lenient
		}
	}
	if star := s.Robots.Star(); star >= 0 && t.HeedsStar {
		return star, ViaStar, false
	}
	return -1, ViaNone, false
}

// named returns the agent that has the name of a registry token, as follows does; -1 for nobody.
func (a *Auditor) named(s *Site, id int, second bool) (agent int, lenient bool) {
	c := s.Report.scratch
	if own := c.own[id]; own > 0 || !second || a.reg.Tokens[id].ProductToken {
		return int(own) - 1, false
	}
	return int(c.byToken[id]) - 1, true
}

// agentRows adds a row for each agent that the file names, but for the wildcard, and for fragments of names that the
// second reading knows better (`MJ` of `MJ12bot`).
func (a *Auditor) agentRows(s *Site) {
	r, c := &s.Report, s.Report.scratch
	c.text = slices.Grow(c.text[:0], c.unknownOctets) // at once, so that no slice of it moves
	for i := range c.agents {
		if i == s.Robots.Star() || !c.agents[i].literal {
			continue
		}
		id := int(c.agents[i].id)
		var token []byte
		if id >= 0 {
			token = a.names[id]
		} else {
			name := s.Robots.Agent(i).Name
			token = c.lowerCase(name)
			if len(name) >= MaxToken && !c.firstOf(token) {
				continue
			}
		}
		v := r.another()
		s.fill(v, i)
		v.Token, v.ID, v.Via = token, id, ViaOwn
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

// lowerCase returns a copy of an agent's name in lower case, at most MaxToken bytes of it.
func (c *scratch) lowerCase(name []byte) []byte {
	from := len(c.text)
	c.text = append(c.text, name[:min(len(name), MaxToken)]...)
	token := c.text[from:len(c.text):len(c.text)]
	for i, b := range token {
		if 'A' <= b && b <= 'Z' {
			token[i] = b + ('a' - 'A')
		}
	}
	return token
}

// lenientRows adds a row for each registry token that only the second reading finds. It follows the groups of all lines
// that the second reading takes for it, and of those that name it strictly.
func (a *Auditor) lenientRows(s *Site) {
	r, c := &s.Report, s.Report.scratch
	for k := range c.lenient {
		t := &c.lenient[k]
		if own := c.own[t.id]; own > 0 {
			t.usage.join(c.agents[own-1].usage)
		}
		survey := s.Robots.Survey(s.lenientGroups(k))
		v := r.another()
		v.fill(&survey, &t.belongings)
		v.Token, v.ID, v.Via, v.Line, v.Lenient = a.names[t.id], int(t.id), ViaOwn, t.line, true
	}
}

// lenientGroups returns the groups of all lines that the second reading takes for the k-th lenient token, and of those
// that name it strictly; ascending, and valid until the next call.
func (s *Site) lenientGroups(k int) []uint32 {
	c := s.Report.scratch
	t := &c.lenient[k]
	c.groups = c.groups[:0]
	for m := t.last; m > 0; m = c.mentions[m-1].before {
		c.groups = append(c.groups, c.mentions[m-1].group)
	}
	if own := c.own[t.id]; own > 0 {
		c.groups = append(c.groups, s.Robots.AgentGroups(int(own)-1)...)
	}
	slices.Sort(c.groups)
	c.groups = slices.Compact(c.groups)
	return c.groups
}

// another appends a row of verdicts, to be filled in where it stands.
func (r *Report) another() *Verdict {
	r.Verdicts = another(r.Verdicts)
	return &r.Verdicts[len(r.Verdicts)-1]
}

// another returns s with a further element, its type's zero, which is made where it stands: a literal to append would be
// copied, and waited for.
func another[T any](s []T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, 1)
	}
	s = s[:len(s)+1]
	var zero T
	s[len(s)-1] = zero
	return s
}

// fill says what an agent's groups amount to, all that does not depend on who follows them; of no agent, -1, that
// everything is allowed.
func (s *Site) fill(v *Verdict, agent int) {
	if agent < 0 {
		v.RootAllowed = true
		return
	}
	survey := s.Robots.AgentSurvey(agent)
	v.fill(survey, &s.Report.scratch.agents[agent].belongings)
	v.Line = s.Robots.AgentLine(agent)
}

func (v *Verdict) fill(p *parser.Survey, b *belongings) {
	v.Decision, v.RootAllowed, v.Limited = Decision(p.Verdict), p.RootAllowed, p.Limited
	v.NAllow, v.NDisallow, v.HasDisallowRoot, v.DPI = p.NAllow, p.NDisallow, p.HasDisallowRoot, dpiOf(p)
	v.CrawlDelay, v.HasCrawlDelay, v.RequestRate = b.delay, b.hasDelay, b.rate
	v.Visit, v.HasVisit = b.visit, b.hasVisit
	v.ContentSignal, v.ContentUsage = b.signal, b.usage.Preferences
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

package audit

import (
	"slices"

	"github.com/bulkscan/bulkscan/parser"
)

// This file computes the verdict of each token. The parser surveys each distinct set of groups once, and each registry
// token follows one of these few sets.

// scratch is Judge's working memory, kept for reuse.
type scratch struct {
	by         *Auditor
	validAgent int // line of the first valid user-agent record, 0 for none
	shown      [NumKinds]int
	advice     adviceNotes

	agents        []agentFacts // by agent of the file
	usages        []groupUsage // in the current group
	own           []int32      // by registry index: index of the agent with that name + 1, 0 for none
	touched       []uint16     // registry tokens that the file names, and tokens that fall back to them
	byToken       []int32      // by registry index: index into lenient + 1
	lenient       []lenientToken
	mentions      []mention
	listed        []int32  // agents of the current group so far; ^k for lenient token k
	groups        []uint32 // groups of a lenient token
	unknownOctets int      // octets of all unknown agents' names
	text          []byte   // these names in lower case
	signals       signalFacts
	long          map[string]struct{} // those with MaxToken octets, which may have been cut

	ranked                     ranked
	named, rfcNamed            []NamedCell // of the policies, as the lists below
	namedLeniently, rfcLenient []uint16
	pairs                      [][]byte // of a content signal, in order
	signal, rfcSignal          []byte
	content                    []byte // the bytes whose hash is a policy's id
	unmanaged                  []byte // the file without its managed blocks
}

func (c *scratch) reset() {
	// Entries by token are cleared one by one, since a file names few tokens of many.
	for i := range c.agents {
		if id := c.agents[i].id; id >= 0 {
			c.own[id] = 0
		}
	}
	for i := range c.lenient {
		c.byToken[c.lenient[i].id] = 0
	}
	clear(c.agents) // they contain views
	clear(c.pairs)
	clear(c.lenient)
	c.by, c.validAgent, c.unknownOctets, c.shown, c.long = nil, 0, 0, [NumKinds]int{}, nil
	c.advice = adviceNotes{near: c.advice.near[:0], lines: c.advice.lines}
	c.agents, c.usages, c.mentions = trimmed(c.agents), trimmed(c.usages), trimmed(c.mentions)
	c.listed, c.groups, c.text, c.unmanaged = trimmed(c.listed), trimmed(c.groups), trimmed(c.text), trimmed(c.unmanaged)
	c.touched, c.lenient = c.touched[:0], c.lenient[:0]
	c.named, c.namedLeniently = c.named[:0], c.namedLeniently[:0]
	c.signals.reset()
}

// judgeByStatus sets the single verdict of a site whose status decides. If access is unknown, there is none.
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

// judgeTokens makes the verdicts by rules and the lists of registry tokens. The rows are in this order: `*`, agents
// that the file names, registry tokens with a fallback that it names, and tokens that only the second reading finds.
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
	r := &s.Report
	r.Star = v.Decision
	r.CrawlDelay, r.HasCrawlDelay = v.CrawlDelay, v.HasCrawlDelay
	told := r.scratch.signals.file
	if agent >= 0 {
		told |= r.scratch.agents[agent].signals
	}
	r.ContentSignal = r.scratch.signals.atRoot(told)
}

// registryTokens makes the lists of registry tokens and adds the rows of fallbacks. It visits only tokens that the file
// names, and tokens that fall back to these. All others follow `*` or are allowed, and are copied into a list in one
// piece if needed. So the cost of a site depends on its file, not on the size of the registry.
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

// follows returns the agent whose groups a registry token follows: that of the token itself, of the first of its
// fallbacks, or `*` if the token heeds it. It returns -1 and ViaNone for none. With second, it also finds names that
// are not product tokens by the second reading. Then lenient is true, and agent is an index into scratch.lenient.
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

// named returns the agent with the name of a registry token, with the results of follows; -1 for none.
func (a *Auditor) named(s *Site, id int, second bool) (agent int, lenient bool) {
	c := s.Report.scratch
	if own := c.own[id]; own > 0 || !second || a.reg.Tokens[id].ProductToken {
		return int(own) - 1, false
	}
	return int(c.byToken[id]) - 1, true
}

// agentRows adds a row for each agent that the file names. It leaves out the wildcard, and fragments of names that the
// second reading knows in full (`MJ` of `MJ12bot`).
func (a *Auditor) agentRows(s *Site) {
	r, c := &s.Report, s.Report.scratch
	c.text = slices.Grow(c.text[:0], c.unknownOctets) // in one step, so that slices of it stay valid
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

// firstOf reports whether this name of MaxToken octets is new. Longer names are cut, and names with an equal beginning
// would be one token with several rows; the first represents all. Such names are rare, so the set is made only for
// them.
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

// lowerCase returns a copy of an agent's name in lower case, cut to MaxToken bytes.
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

// lenientRows adds a row for each registry token that only the second reading finds. The token follows the groups of
// lenientGroups.
func (a *Auditor) lenientRows(s *Site) {
	r, c := &s.Report, s.Report.scratch
	for k := range c.lenient {
		t := &c.lenient[k]
		if own := c.own[t.id]; own > 0 {
			t.usage.join(c.agents[own-1].usage)
			t.signals |= c.agents[own-1].signals
		}
		survey := s.Robots.Survey(s.lenientGroups(k))
		v := r.another()
		v.fill(&survey, &t.belongings)
		v.ContentSignal = c.signals.atRoot(t.signals)
		v.Token, v.ID, v.Via, v.Line, v.Lenient = a.names[t.id], int(t.id), ViaOwn, t.line, true
	}
}

// lenientGroups returns the groups with a line that the second reading assigns to the k-th lenient token, or that names
// it strictly. They are ascending and valid until the next call.
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

// another appends a zero row of verdicts and returns it.
func (r *Report) another() *Verdict {
	r.Verdicts = another(r.Verdicts)
	return &r.Verdicts[len(r.Verdicts)-1]
}

// another returns s with one more element, which is zero. It is made in place, which avoids a copy of the large
// element.
func another[T any](s []T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, 1)
	}
	s = s[:len(s)+1]
	var zero T
	s[len(s)-1] = zero
	return s
}

// fill sets the fields that depend only on an agent's groups. Agent -1 is allowed everything.
func (s *Site) fill(v *Verdict, agent int) {
	if agent < 0 {
		v.RootAllowed = true
		return
	}
	survey := s.Robots.AgentSurvey(agent)
	c := s.Report.scratch
	v.fill(survey, &c.agents[agent].belongings)
	v.ContentSignal = c.signals.atRoot(c.agents[agent].signals)
	v.Line = s.Robots.AgentLine(agent)
}

func (v *Verdict) fill(p *parser.Survey, b *belongings) {
	v.Decision, v.RootAllowed, v.Limited = Decision(p.Verdict), p.RootAllowed, p.Limited
	v.NAllow, v.NDisallow, v.HasDisallowRoot, v.DPI = p.NAllow, p.NDisallow, p.HasDisallowRoot, dpiOf(p)
	v.CrawlDelay, v.HasCrawlDelay, v.RequestRate = b.delay, b.hasDelay, b.rate
	v.Visit, v.HasVisit = b.visit, b.hasVisit
	v.ContentUsage = b.usage.Preferences
}

// dpiOf classifies rules like the Data Provenance Initiative. Its parser drops values with a `?`. Then a single
// disallow `/` without any allow line is "all", and any other disallow that is not empty is "some".
func dpiOf(p *parser.Survey) DPI {
	switch {
	case p.HasDisallowRoot && !p.PlainAllow:
		return DPIAll
	case p.PlainDisallow:
		return DPISome
	}
	return DPINone
}

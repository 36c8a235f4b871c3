package audit

import (
	"slices"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
)

// agentFacts are what is known of one of a file's agents besides its rules.
type agentFacts struct {
	id      int32 // index into the registry, -1 where unknown
	literal bool  // some line names it that no second reading takes for a registry token
	belongings
}

// belongings are the extension records that belong to an agent: the first valid ones of those that stand behind its
// line in a group that names it.
type belongings struct {
	delay    float64
	hasDelay bool
	signal   []byte
}

// lenientToken is a registry token that only the second reading finds in a file.
type lenientToken struct {
	id   int32
	line int // of its first mention
	belongings
}

// mention is a group naming a lenient token.
type mention struct {
	token int32 // index into scratch.lenient
	group uint32
}

// recordReader goes once through the records of a file.
type recordReader struct {
	*Site
	reg *tokens.Registry
	*scratch

	group     int
	listed    []int32 // agents of the current group so far; ^k for the lenient token k
	delayed   int     // how many of them have met a valid Crawl-delay
	signalled int     // how many of them have met a valid Content-Signal
}

// readRecords makes counts, evidence and facts of the agents out of the file's lines.
func (a *Auditor) readRecords(s *Site) {
	c := &s.Report.scratch
	c.agents, c.lenient, c.mentions = c.agents[:0], c.lenient[:0], c.mentions[:0]
	c.own = zeroed(c.own, len(a.reg.Tokens))
	c.byToken = zeroed(c.byToken, len(a.reg.Tokens))
	for i := range s.Robots.Agents() {
		id := int32(-1)
		if agent := s.Robots.Agent(i); !agent.Star {
			id = int32(a.reg.LookupBytes(agent.Name))
		}
		c.agents = append(c.agents, agentFacts{id: id})
		if id >= 0 {
			c.own[id] = int32(i) + 1
		}
	}
	r := recordReader{Site: s, reg: a.reg, scratch: c, group: -1, listed: c.listed[:0]}
	for i := range s.Robots.Records() {
		rec := s.Robots.Record(i)
		r.read(&rec)
	}
	c.listed = r.listed[:0]
	r.count()
}

// zeroed returns n zeros, in the memory of s if it suffices.
func zeroed(s []int32, n int) []int32 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// count fills the totals that the parser keeps; read has counted what depends on values.
func (r *recordReader) count() {
	f, n := &r.Robots, &r.Report.Counts
	n.Lines, n.Groups, n.Agents = f.Lines(), f.Groups(), f.Agents()
	n.Allow, n.Disallow = f.Count(parser.KeyAllow), f.Count(parser.KeyDisallow)
	n.Sitemaps, n.Unknown = f.Count(parser.KeySitemap), f.Count(parser.KeyUnknown)
	n.Invalid += f.Count(parser.KeyNone)
	for k := parser.Key(0); k < parser.NumKeys; k++ {
		switch {
		case k.Class() == parser.ClassLegacy:
			n.Legacy += f.Count(k)
		case k.Class() == parser.ClassExtension && k != parser.KeySitemap:
			n.Extensions += f.Count(k)
		}
	}
}

// read takes one record for what it shows and for whom it belongs to.
func (r *recordReader) read(rec *parser.Record) {
	if rec.Group != r.group {
		r.group, r.listed, r.delayed, r.signalled = rec.Group, r.listed[:0], 0, 0
	}
	if rec.Flags&parser.FlagTypo != 0 {
		r.Report.Counts.Typo++
		r.show(KindTypo, rec)
	}
	switch rec.Key {
	case parser.KeyUserAgent:
		r.userAgent(rec)
	case parser.KeyAllow, parser.KeyDisallow:
		r.rule(rec)
	case parser.KeySitemap:
		if len(r.Report.Sitemaps) < MaxSitemaps && isAbsoluteURL(rec.Value) {
			r.Report.Sitemaps = append(r.Report.Sitemaps, rec.Value)
		}
		r.show(KindSitemap, rec)
	case parser.KeyCrawlDelay:
		r.crawlDelay(rec)
		r.show(KindExtension, rec)
	case parser.KeyContentSignal:
		r.contentSignal(rec)
		r.show(KindSignal, rec)
	case parser.KeyContentUsage:
		if r.Report.ContentUsage == nil && isUsage(rec.Value) {
			r.Report.ContentUsage = rec.Value
		}
		r.show(KindUsage, rec)
	case parser.KeyLicense:
		if r.Report.License == nil && isAbsoluteURL(rec.Value) {
			r.Report.License = rec.Value
		}
		r.show(KindLicense, rec)
	case parser.KeyNone:
		r.show(KindInvalid, rec)
	case parser.KeyUnknown:
		r.show(KindUnknown, rec)
	default:
		if rec.Key.Class() == parser.ClassLegacy {
			r.show(KindLegacy, rec)
		} else {
			r.show(KindExtension, rec)
		}
	}
}

// show keeps a row of evidence, within bounds. HTML pages show no invalid and unknown lines: they consist of them.
func (r *recordReader) show(kind Kind, rec *parser.Record) {
	if r.shown[kind] == MaxEvidenceRows || r.Report.IsHTML && (kind == KindInvalid || kind == KindUnknown) {
		return
	}
	r.shown[kind]++
	key, value := rec.KeyText, rec.Value
	if rec.Key == parser.KeyNone {
		key, value = nil, rec.KeyText // a line without a key: all of it is value
	}
	r.Report.Evidence = append(r.Report.Evidence, Evidence{
		Line: rec.Line, Kind: kind, Key: cut(key, MaxEvidenceKey), Value: cut(value, MaxEvidenceValue),
	})
}

// cut returns at most n bytes of b, no UTF-8 sequence torn.
func cut(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for back := 1; back < utf8.UTFMax; back++ {
		if c := b[n-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[n-back:n]) {
				n -= back
			}
			break
		}
	}
	return b[:n]
}

// rule shows an orphan, or a value that matches nothing: it begins with neither `/` nor `*`.
func (r *recordReader) rule(rec *parser.Record) {
	switch {
	case rec.Flags&parser.FlagOrphan != 0:
		r.Report.Counts.Orphan++
		r.show(KindOrphan, rec)
	case len(rec.Value) > 0 && rec.Value[0] != '/' && rec.Value[0] != '*':
		r.Report.Counts.Invalid++
		r.show(KindInvalid, rec)
	}
}

// userAgent notes whom the line names, by either reading, and whether its value has a valid shape.
func (r *recordReader) userAgent(rec *parser.Record) {
	valid := string(rec.Value) == "*" || tokens.IsProductToken(rec.Value) || r.reg.LookupBytes(rec.Value) >= 0
	if !valid {
		r.Report.Counts.Invalid++
		r.show(KindInvalid, rec)
	}
	if valid && rec.Flags&parser.FlagTypo == 0 && r.validAgent == 0 {
		r.validAgent = rec.Line
	}

	agent := r.Robots.Find(view(parser.AgentName(rec.Value, r.Robots.Dialect())))
	lenient := -1
	if agent < 0 || agent != r.Robots.Star() && r.agents[agent].id < 0 {
		lenient = r.secondReading(rec.Value)
	}
	if agent >= 0 {
		r.listed = append(r.listed, int32(agent))
		r.agents[agent].literal = r.agents[agent].literal || lenient < 0
	}
	if lenient >= 0 {
		k := r.lenientToken(int32(lenient), rec.Line)
		r.mentions = append(r.mentions, mention{token: k, group: uint32(rec.Group)})
		r.listed = append(r.listed, ^k)
	}
}

// secondReading returns the registry token that a value means although the strict reading knows none, or -1.
func (r *recordReader) secondReading(value []byte) int {
	for _, name := range parser.LenientNames(value) {
		if i := r.reg.LookupBytes(name); i >= 0 {
			return i
		}
		if i := r.reg.LookupAliasBytes(name); i >= 0 {
			return i
		}
	}
	return -1
}

// lenientToken returns the index of the registry token in scratch.lenient, where it is put if it is new.
func (r *recordReader) lenientToken(id int32, line int) int32 {
	if r.byToken[id] == 0 {
		r.lenient = append(r.lenient, lenientToken{id: id, line: line})
		r.byToken[id] = int32(len(r.lenient))
	}
	return r.byToken[id] - 1
}

// crawlDelay gives a valid delay to the agents listed so far in its group that have none. Those that had met a valid
// one before need not be looked at again.
func (r *recordReader) crawlDelay(rec *parser.Record) {
	seconds, ok := parseDelay(rec.Value)
	if !ok || rec.Group < 0 {
		return
	}
	for _, who := range r.listed[r.delayed:] {
		if b := r.belongings(who); !b.hasDelay {
			b.delay, b.hasDelay = seconds, true
		}
	}
	r.delayed = len(r.listed)
}

// contentSignal is crawlDelay for signals. Before any group a signal speaks for the file and belongs to no agent.
func (r *recordReader) contentSignal(rec *parser.Record) {
	if !isSignal(rec.Value) {
		return
	}
	if r.Report.ContentSignal == nil {
		r.Report.ContentSignal = rec.Value
	}
	if rec.Group < 0 {
		return
	}
	for _, who := range r.listed[r.signalled:] {
		if b := r.belongings(who); b.signal == nil {
			b.signal = rec.Value
		}
	}
	r.signalled = len(r.listed)
}

func (r *recordReader) belongings(who int32) *belongings {
	if who < 0 {
		return &r.lenient[^who].belongings
	}
	return &r.agents[who].belongings
}

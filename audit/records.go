package audit

import (
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
)

// agentFacts are facts about an agent of the file, besides its rules.
type agentFacts struct {
	belongings
	id      int32 // index into the registry, -1 if unknown
	alias   int32 // index of the token of which the name is an alias, -1 for none
	literal bool  // a crawler's name, from a line that the second reading assigns to no registry token
}

// belongings are the values of extension records for an agent. Only records after the agent's line, in a group that
// names it, count. The first valid record of each kind counts; Content-Signal and Content-Usage combine all.
type belongings struct {
	signals  signalSet
	delay    float64
	rate     float64 // 0 for none
	usage    rootUsage
	visit    Hours
	hasDelay bool
	hasVisit bool
}

// lenientToken is a registry token that only the second reading finds in a file.
type lenientToken struct {
	id   int32
	line int   // first mention
	last int32 // index of its last mention in scratch.mentions + 1
	belongings
}

// mention is a group that names a lenient token.
type mention struct {
	group  uint32
	before int32 // index of the token's previous mention + 1; 0 for none
}

// recordReader reads the records of a file once.
type recordReader struct {
	*Site
	reg *tokens.Registry
	*scratch

	group     int
	groupLine int // first line of the group
	between   int // line of a record after the group's last user-agent line; 0 for none

	// By kind: how many of listed have met a valid record. Later records of the kind do not concern them.
	delayed, rated, visited int

	invalidSitemaps, invalidExtensions int
	usageAgents, usageLines            int // distinct names of isUsageAgent, and their lines
}

// readRecords derives counts, evidence and facts of the agents from the file's lines.
func (a *Auditor) readRecords(s *Site) {
	c := s.Report.scratch
	if len(c.own) != len(a.reg.Tokens) {
		c.own, c.byToken = make([]int32, len(a.reg.Tokens)), make([]int32, len(a.reg.Tokens))
	}
	r := recordReader{Site: s, reg: a.reg, scratch: c, group: -1}
	for _, index := range s.Robots.Remarkable() {
		i := int(index)
		switch key, flags := s.Robots.Kind(i); {
		case key == parser.KeyUserAgent && flags == 0:
			r.userAgent(i)
		case key == parser.KeyNone && !r.shows(KindInvalid), key == parser.KeyUnknown && r.Report.IsHTML:
			// Only counted, since HTML pages consist of such lines.
		default:
			rec := s.Robots.Record(i)
			r.read(i, &rec)
		}
	}
	r.endGroup()
	r.count()
}

// isRuleValue reports whether a value is a path, a wildcard, or empty: anything else matches nothing.
func isRuleValue(value []byte) bool { return len(value) == 0 || value[0] == '/' || value[0] == '*' }

// count sets the totals that the parser keeps. read counts those that depend on values.
func (r *recordReader) count() {
	f, n := &r.Robots, &r.Report.Counts
	n.Lines, n.Groups, n.Agents = f.Lines(), f.Groups(), f.Agents()-r.usageAgents
	n.Allow, n.Disallow = f.Count(parser.KeyAllow), f.Count(parser.KeyDisallow)
	n.Unknown = f.Count(parser.KeyUnknown)
	sitemaps := f.Count(parser.KeySitemap)
	n.Invalid += f.Count(parser.KeyNone) + r.invalidSitemaps + r.invalidExtensions
	n.Sitemaps = sitemaps - r.invalidSitemaps
	for _, k := range extensionKeys {
		n.Extensions += f.Count(k)
	}
	for _, k := range legacyKeys {
		n.Legacy += f.Count(k)
	}
	n.Records = f.Count(parser.KeyUserAgent) + n.Allow + n.Disallow + sitemaps + n.Extensions + n.Legacy + n.Unknown
	n.Extensions += r.usageLines - r.invalidExtensions
}

// Keys by class. Sitemaps are counted separately.
var (
	extensionKeys = keysOf(parser.ClassExtension, parser.KeySitemap)
	legacyKeys    = keysOf(parser.ClassLegacy, parser.KeyNone)
)

func keysOf(class parser.Class, but parser.Key) (keys []parser.Key) {
	for k := parser.Key(0); k < parser.NumKeys; k++ {
		if k.Class() == class && k != but {
			keys = append(keys, k)
		}
	}
	return keys
}

// read processes one record: its counts, its evidence and the agents that it concerns.
func (r *recordReader) read(i int, rec *parser.Record) {
	r.enter(rec.Line, rec.Group)
	if rec.Key.Class() != parser.ClassCore {
		r.between = rec.Line
	}
	if rec.Flags&parser.FlagTypo != 0 {
		r.Report.Counts.Typo++
		r.show(KindTypo, rec)
		r.adviseQuotes(rec)
		if rec.IsPrefixed() && !isQuoted(rec) && !hasInvisible(rec) {
			r.advice.note(AdvicePrefix, rec.Line)
		}
	}
	switch rec.Key {
	case parser.KeyUserAgent:
		r.userAgent(i)
	case parser.KeyAllow, parser.KeyDisallow:
		r.rule(rec)
	case parser.KeySitemap:
		r.sitemap(rec)
	case parser.KeyLicense:
		r.extension(KindLicense, rec, r.license(rec))
	case parser.KeyCrawlDelay:
		r.extension(KindExtension, rec, r.crawlDelay(rec))
	case parser.KeyRequestRate:
		r.extension(KindExtension, rec, r.requestRate(rec))
	case parser.KeyVisitTime:
		r.extension(KindExtension, rec, r.visitTime(rec))
	case parser.KeyContentSignal:
		valid, contradicts := r.contentSignal(rec)
		r.extension(KindSignal, rec, valid)
		if contradicts {
			r.show(KindConflict, rec)
		}
	case parser.KeyContentUsage:
		r.extension(KindUsage, rec, r.contentUsage(rec))
	case parser.KeyAllowAITraining, parser.KeyDisallowAITraining:
		r.extension(KindUsage, rec, isRuleValue(rec.Value))
	case parser.KeyNone:
		r.show(KindInvalid, rec)
	case parser.KeyUnknown:
		if equalFold(rec.KeyText, "content-signals") {
			r.Report.Counts.Typo++
			r.show(KindTypo, rec)
		}
		r.show(KindUnknown, rec)
		r.adviseQuotes(rec)
	case parser.KeyNoindex:
		r.show(KindLegacy, rec)
		r.advice.note(AdviceNoindex, rec.Line)
	default:
		if rec.Key.Class() == parser.ClassLegacy {
			r.show(KindLegacy, rec)
		} else {
			r.show(KindExtension, rec)
		}
	}
}

// extension shows an extension record under its kind, or as invalid if its value is not valid for the key.
func (r *recordReader) extension(kind Kind, rec *parser.Record, valid bool) {
	if !valid {
		r.invalidExtensions++
		kind = KindInvalid
	}
	r.show(kind, rec)
}

// sitemap keeps the addresses of sitemaps. Relative URLs are not resolved, since no specification names their base.
func (r *recordReader) sitemap(rec *parser.Record) {
	if !isAbsoluteURL(rec.Value) {
		r.invalidSitemaps++
		r.show(KindInvalid, rec)
		return
	}
	if len(r.Report.Sitemaps) < MaxSitemaps {
		r.Report.Sitemaps = append(r.Report.Sitemaps, rec.Value)
	}
	r.show(KindSitemap, rec)
}

func (r *recordReader) license(rec *parser.Record) (valid bool) {
	if !isAbsoluteURL(rec.Value) {
		return false
	}
	if r.Report.License == nil {
		r.Report.License = rec.Value
	}
	return true
}

// show keeps a row of evidence, within bounds. HTML pages consist of invalid and unknown lines, so these are left out.
func (r *recordReader) show(kind Kind, rec *parser.Record) {
	if !r.shows(kind) {
		return
	}
	r.shown[kind]++
	key, value := rec.KeyText, rec.Value
	if rec.Key == parser.KeyNone {
		key, value = nil, rec.KeyText // a line without a key is all value
	}
	r.Report.Evidence = append(r.Report.Evidence, Evidence{
		Line: rec.Line, GroupLine: r.groupLine, Kind: kind, Key: cut(key, MaxEvidenceKey),
		Value: cut(value, MaxEvidenceValue),
	})
}

// shows reports whether another row of the kind may be kept.
func (r *recordReader) shows(kind Kind) bool {
	return r.shown[kind] < MaxEvidenceRows && !(r.Report.IsHTML && (kind == KindInvalid || kind == KindUnknown))
}

// cut returns at most n bytes of b and does not cut a UTF-8 sequence.
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

// rule shows an orphan, or a value that matches nothing since it begins with neither `/` nor `*`.
func (r *recordReader) rule(rec *parser.Record) {
	valid := isRuleValue(rec.Value)
	if len(rec.Value) == 0 && r.advice.emptyFrom == 0 {
		r.advice.emptyFrom = uint32(rec.Group + 1)
	}
	if !valid {
		r.adviseQuotes(rec)
		if isURL(rec.Value) {
			r.advice.note(AdviceURLInRule, rec.Line)
		}
	}
	switch {
	case rec.Flags&parser.FlagOrphan != 0:
		r.Report.Counts.Orphan++
		r.show(KindOrphan, rec)
	case !valid:
		r.Report.Counts.Invalid++
		r.show(KindInvalid, rec)
	}
}

// adviseQuotes notes a record with quotation marks round its key or value.
func (r *recordReader) adviseQuotes(rec *parser.Record) {
	if isQuoted(rec) {
		r.advice.note(AdviceQuotes, rec.Line)
	}
}

// enter ends the current group if the line begins another. Groups begin with a user-agent line, and all of these are
// read.
func (r *recordReader) enter(line, group int) {
	if group != r.group {
		r.endGroup()
		r.group, r.groupLine, r.between = group, line, 0
	}
}

// userAgent records the agent that the line names, by either reading, and whether its value is valid.
func (r *recordReader) userAgent(i int) {
	line, group := r.Robots.Place(i)
	r.enter(line, group)
	if r.between > 0 && len(r.listed) > 0 && r.advice.joinedFrom == 0 {
		r.advice.joinedFrom = uint32(group + 1)
	}
	r.between = 0
	value := r.Robots.Value(i)
	agent, name := r.agentOf(value, line)
	if isUsageAgent(name) {
		rec := r.Robots.Record(i)
		r.show(KindUsage, &rec)
		r.usageLines++
		return
	}
	whole := len(name) == len(value) && len(name) > 0
	known, isAlias := -1, false // for the whole value; agentOf looks up product tokens
	if !whole {
		known, isAlias = r.reg.Find(value)
	}
	quoted := false
	if !whole && (known < 0 || isAlias) {
		r.Report.Counts.Invalid++
		rec := r.Robots.Record(i)
		r.show(KindInvalid, &rec)
		r.adviseQuotes(&rec)
		quoted = isQuoted(&rec)
	} else if _, flags := r.Robots.Kind(i); flags&parser.FlagTypo == 0 && r.validAgent == 0 {
		r.validAgent = line
	}

	lenient := -1
	switch {
	case whole:
		lenient = int(r.agents[agent].alias)
	case agent >= 0 && (r.agents[agent].id >= 0 || agent == r.Robots.Star()):
	case known >= 0:
		lenient = known
	default:
		lenient = r.secondReading(value)
	}
	if lenient < 0 && !quoted && !(whole && r.agents[agent].id >= 0) {
		r.adviseNear(value, agent, line)
	}
	if agent >= 0 {
		r.listed = append(r.listed, int32(agent))
		r.agents[agent].literal = r.agents[agent].literal || lenient < 0
		if id := r.agents[agent].id; id >= 0 && r.byToken[id] > 0 {
			r.listed = append(r.listed, ^(r.byToken[id] - 1)) // the second reading assigns the line to the token, too
		}
	}
	if lenient >= 0 {
		k := r.lenientToken(int32(lenient), line)
		r.mentions = append(r.mentions, mention{group: uint32(group), before: r.lenient[k].last})
		r.lenient[k].last = int32(len(r.mentions))
		r.listed = append(r.listed, ^k)
	}
}

// isUsageAgent reports whether the name in a user-agent line is a preference on the use of content
// (draft-kelley-aipref-training-preference-signal), and no crawler's.
func isUsageAgent(name []byte) bool {
	return len(name) > 0 && name[0] == '_' && hasPrefixFold(name, "__usage_")
}

// adviseNear notes a user-agent value that differs from a token's name only in octets other than letters and digits,
// and is not read as that token. A version after the name does not count.
func (r *recordReader) adviseNear(value []byte, agent, line int) {
	id := r.reg.Near(value)
	if id >= 0 && (agent < 0 || int(r.agents[agent].id) != id) && len(r.advice.near) < maxNear {
		r.advice.near = append(r.advice.near, nearMiss{line: int32(line), id: uint16(id)})
	}
}

// agentOf returns the index and the name of the agent that a user-agent line of this value names, -1 for none. Agents
// are in the order of their first lines, and most lines name a new agent.
func (r *recordReader) agentOf(value []byte, line int) (agent int, name []byte) {
	agent = len(r.agents)
	if agent == r.Robots.Agents() || r.Robots.AgentLine(agent) != line {
		name = parser.AgentName(value, r.Robots.Dialect())
		return r.Robots.Find(view(name)), name
	}
	name = r.Robots.Agent(agent).Name
	r.agents = another(r.agents)
	facts := &r.agents[agent]
	facts.id, facts.alias = -1, -1
	if agent != r.Robots.Star() {
		if id, alias := r.reg.Find(name); alias {
			facts.alias = int32(id)
		} else if id >= 0 {
			facts.id, r.own[id] = int32(id), int32(agent)+1
			return agent, name
		}
		if isUsageAgent(name) {
			r.usageAgents++
		}
		r.unknownOctets += min(len(name), MaxToken)
	}
	return agent, name
}

// secondReading returns the registry token at the beginning of a value for which the strict reading finds none; -1 for
// none. The complete value has priority and was looked up before.
func (r *recordReader) secondReading(value []byte) int {
	names := parser.LenientNames(value)
	for _, name := range names[1:] {
		if i, _ := r.reg.Find(name); i >= 0 {
			return i
		}
	}
	return -1
}

// lenientToken returns the index of the registry token in scratch.lenient. It adds a new token.
func (r *recordReader) lenientToken(id int32, line int) int32 {
	if r.byToken[id] == 0 {
		r.lenient = append(r.lenient, lenientToken{id: id, line: line})
		if strict := r.own[id]; strict > 0 {
			r.lenient[len(r.lenient)-1].belongings = r.agents[strict-1].belongings
		}
		r.byToken[id] = int32(len(r.lenient))
	}
	return r.byToken[id] - 1
}

// The three methods below assign a valid value to the agents of the record's group so far that have no value of the
// kind yet. A record before any group belongs to no agent. They report whether the value is valid.

func (r *recordReader) crawlDelay(rec *parser.Record) bool {
	seconds, ok := parser.ParseCrawlDelay(rec.Value)
	if !ok {
		return false
	}
	for _, who := range r.since(&r.delayed) {
		if b := r.belongings(who); !b.hasDelay {
			b.delay, b.hasDelay = seconds, true
		}
	}
	return true
}

func (r *recordReader) requestRate(rec *parser.Record) bool {
	rate, ok := parseRate(rec.Value)
	if !ok {
		return false
	}
	for _, who := range r.since(&r.rated) {
		if b := r.belongings(who); b.rate == 0 {
			b.rate = rate
		}
	}
	return true
}

func (r *recordReader) visitTime(rec *parser.Record) bool {
	hours, ok := parseHours(rec.Value)
	if !ok {
		return false
	}
	for _, who := range r.since(&r.visited) {
		if b := r.belongings(who); !b.hasVisit {
			b.visit, b.hasVisit = hours, true
		}
	}
	return true
}

// since returns the agents listed since the last valid record of a kind, and sets met to all listed agents.
func (r *recordReader) since(met *int) []int32 {
	agents := r.listed[*met:]
	*met = len(r.listed)
	return agents
}

// groupUsage is the statement of a Content-Usage record on `/`. It applies to the first listed agents of its group.
type groupUsage struct {
	listed int
	rootUsage
}

// contentUsage records a statement for the current group. All records of a group count, so the statements are applied
// when the group ends.
func (r *recordReader) contentUsage(rec *parser.Record) bool {
	usage, ok := ParseUsage(rec.Value)
	if !ok {
		return false
	}
	if r.Report.ContentUsage == nil {
		r.Report.ContentUsage = rec.Value
	}
	if at, ok := usage.atRoot(); ok && len(r.listed) > 0 {
		r.usages = append(r.usages, groupUsage{len(r.listed), at})
	}
	return true
}

// endGroup applies the usages of the group, each to the agents listed before it, and begins another group.
func (r *recordReader) endGroup() {
	var all rootUsage
	left := len(r.usages)
	for i := len(r.listed) - 1; i >= 0 && len(r.usages) > 0; i-- {
		for ; left > 0 && r.usages[left-1].listed > i; left-- {
			all.join(r.usages[left-1].rootUsage)
		}
		r.belongings(r.listed[i]).usage.join(all)
	}
	r.usages, r.listed = r.usages[:0], r.listed[:0]
	r.delayed, r.rated, r.visited = 0, 0, 0
	for i := range r.signals.list {
		r.signals.list[i].met = 0
	}
}

func (r *recordReader) belongings(who int32) *belongings {
	if who < 0 {
		return &r.lenient[^who].belongings
	}
	return &r.agents[who].belongings
}

package audit

import (
	"bytes"
	"iter"
	"math/bits"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
)

// Advice names a way in which an answer probably fails its author's intent. It changes neither the score nor a verdict.
type Advice uint8

// The kinds of advice, in the order in which they are shown.
const (
	AdviceRefusal Advice = iota
	AdviceUnavailable
	AdviceNoindex
	AdviceURLInRule
	AdviceQuotes
	AdviceUTF16
	AdviceEmptyRule
	AdviceOperator
	AdviceJoined
	AdviceOverruled
	AdviceNear
	AdviceInvisible
	AdvicePrefix
	AdviceNoise
	AdviceXRobotsTag
	NumAdvice
)

// advices has the stable id of each advice, its text, when it is given, and why.
var advices = [NumAdvice]struct{ id, text, when, why string }{
	AdviceRefusal: {
		"refusal_is_no_block",
		"Crawlers read 401 and 403 as: no rules, everything is allowed. To block them, serve 200 with Disallow: /.",
		"the final status is 401 or 403",
		"RFC 9309 §2.3.1.3: no file is available, and a crawler may access any resource",
	},
	AdviceUnavailable: {
		"unavailable_only_pauses",
		"A 5xx such as 503 only pauses crawlers for a while. To block them, serve 200 with Disallow: /.",
		"the final status is 5xx",
		"RFC 9309 §2.3.1.4: the file is unreachable; after about 30 days a crawler may continue as if there were none, or with its cached copy",
	},
	AdviceNoindex: {
		"noindex_in_robots",
		"Search engines have ignored noindex here since 2019. Put it into a robots meta tag or the header X-Robots-Tag.",
		"a record has the key `noindex`",
		"no specification has it; Google gave it up on 1 September 2019",
	},
	AdviceURLInRule: {
		"url_in_rule",
		"A rule with a full URL matches nothing. Write the path alone: a rule begins with / or *.",
		"the value of an allow or disallow begins with `http://` or `https://`",
		"RFC 9309 §2.2.2: a rule is compared with the path of a URL, and a file is valid for its own site only",
	},
	AdviceQuotes: {
		"curly_quotes",
		"Crawlers read quotation marks as part of a name or a path. Leave them out.",
		"a user-agent, allow or disallow has `“ ” ‘ ’` at an end of its key or value, or straight quotes round it; " +
			"not within it, as in `/l’été`",
		"RFC 9309 §2.2 has no quoting, so the name or the path is another one; editors put these marks in when text is pasted",
	},
	AdviceUTF16: {
		"utf16",
		"The file is in UTF-16, but crawlers read UTF-8 and find no rules in it. Save it as UTF-8.",
		"a body with status 2xx begins with a byte order mark of UTF-16, or each second of its first 16 bytes is NUL",
		"RFC 9309 §2.2: the file must be encoded in UTF-8",
	},
	AdviceEmptyRule: {
		"empty_rule_ends_group",
		"Readers that skip an empty rule apply the next group's rules to this group, too. Write Allow: / instead.",
		"all rules of a group are empty, and the next group denies something",
		"RFC 9309 §2.2.1: a rule ends the list of agents, also an empty one; not every reader does this",
	},
	AdviceOperator: {
		"operator_partly_blocked",
		"A crawler is blocked by name, and another of the same operator and purpose is not. Name each one that you mean.",
		"an AI crawler for training or for data to sell is `blocked` by a group of its own outside Cloudflare's block, and another one of its " +
			"operator and purpose, whose name is a product token and not only in lists of others, is not",
		"an operator may have several crawlers for one purpose, and a group speaks to those that it names",
	},
	AdviceJoined: {
		"groups_joined",
		"Two groups are read as one: only a rule ends a list of agents, and a delay or a sitemap is none. Put a rule between.",
		"another record stands between two user-agent lines of a group that denies something",
		"RFC 9309 §2.2.1: a group is user-agent lines and the rules after them, and §2.2.4: other records do not interfere",
	},
	AdviceOverruled: {
		"managed_block_overruled",
		"Cloudflare's block denies a crawler all, and a group of your own allows it some: groups add up, and an equal Allow wins.",
		"the groups of an agent in Cloudflare's block are `blocked`, and with its groups outside the block it is not",
		"RFC 9309 §2.2.1: groups that name the same agent are one, and §2.2.2: of equally long rules allow is used",
	},
	AdviceNear: {
		"token_near_miss",
		"No known crawler has this name, but one is spelled nearly so. A crawler looks for its own spelling.",
		"a user-agent value differs from the name or an alias of a product token only in case, spaces and signs; nothing else in the file names the crawler",
		"RFC 9309 §2.2.1: crawlers find their group by comparing names",
	},
	AdviceInvisible: {
		"invisible_characters",
		"An invisible character stands at a key, a name or a path, and crawlers read it as a part of that. Type the line anew.",
		"a user-agent, allow or disallow has a no-break space, a soft hyphen, a zero-width or a direction character, or a second byte order mark " +
			"at an end of its key or value, or in its name",
		"RFC 9309 §2.2: only ASCII white space stands round keys and values",
	},
	AdvicePrefix: {
		"key_read_by_prefix",
		"Google reads this key as the shorter one that it begins with; other crawlers ignore the line. Spell the key exactly.",
		"a key begins with `allow`, `disallow`, `user-agent`, `sitemap` or a misspelling that Google's code knows, and is none of these; the line has a colon",
		"Google's code compares only the beginning of a key; no document has this",
	},
	AdviceNoise: {
		"markup_before_rules",
		"The file begins with HTML that a server or a plugin has put there. Crawlers skip it, but it should be no part of the file.",
		"a body begins as HTML does, without `<!doctype html`, `<html`, `<head` or `<body`, and a record follows within 4 KiB",
		"RFC 9309 §2.3: the file is plain text",
	},
	AdviceXRobotsTag: {
		"x_robots_tag_of_robots",
		"The header X-Robots-Tag of this response speaks of robots.txt itself, not of the site's pages.",
		"the response has a header `X-Robots-Tag`",
		"the header is about the resource that it comes with; the pages need it on their own responses",
	},
}

// String returns the stable id, as in the dataset's column `advice`.
func (a Advice) String() string {
	if a < NumAdvice {
		return advices[a].id
	}
	return "?"
}

// Text is the advice to the site's owner, in at most 140 bytes.
func (a Advice) Text() string {
	if a < NumAdvice {
		return advices[a].text
	}
	return ""
}

// AdviceSet is a set of Advice, a bit for each.
type AdviceSet uint16

// Has reports whether the advice is in the set.
func (s AdviceSet) Has(a Advice) bool { return s>>a&1 != 0 }

// Len returns the number of advice in the set.
func (s AdviceSet) Len() int { return bits.OnesCount16(uint16(s)) }

// All returns the set's advice in the order of the table.
func (s AdviceSet) All() iter.Seq[Advice] {
	return func(yield func(Advice) bool) {
		for a := range NumAdvice {
			if s.Has(a) && !yield(a) {
				return
			}
		}
	}
}

// with returns the set with the advice, if it holds.
func (s AdviceSet) with(a Advice, holds bool) AdviceSet {
	if holds {
		s |= 1 << a
	}
	return s
}

// adviceNotes has details of some advice, such as its line.
type adviceNotes struct {
	set   AdviceSet        // noted while the records were read, whatever the finding
	lines [NumAdvice]int32 // line of a noted advice; stale where the advice is not noted

	plainBytes    bool   // the body is ASCII, so that no plain rule has a curly quote
	noise         bool   // the body begins as HTML does, and is no page
	emptyFrom     uint32 // the first group with an empty rule, as index + 1; 0 for none
	joinedFrom    uint32 // the first group with another record between user-agent lines, as index + 1; 0 for none
	joined        int    // the line after it, of AdviceJoined
	overruled     int    // the line outside the block, of AdviceOverruled
	blocked, open uint16 // registry tokens, an example of AdviceOperator
	near          []nearMiss
}

// nearMiss is a user-agent line that nearly names a token.
type nearMiss struct {
	line int32
	id   uint16
}

// maxNear bounds the near misses of a file that are looked at.
const maxNear = 16

// note notes an advice and the first line that shows it.
func (n *adviceNotes) note(a Advice, line int) {
	if line > 0 && !n.set.Has(a) {
		n.set, n.lines[a] = n.set.with(a, true), int32(line)
	}
}

// advise sets Report.Advice. It is the last stage, since some advice depends on verdicts. A bot challenge gets none: it
// is not the site's answer. Advice on lines is given only where the finding is `rules`; pages that contain a rule get
// none.
func (a *Auditor) advise(s *Site) {
	r, n := &s.Report, &s.Report.scratch.advice
	if r.Finding == FindingChallenged {
		return
	}
	if r.Finding == FindingRules {
		n.note(AdviceQuotes, quoteAfterPath(s))
		if n.emptyFrom > 0 {
			n.note(AdviceEmptyRule, emptyRule(s, n.emptyFrom-1))
		}
		first, last := 0, 0
		if r.ManagedBlock {
			for block := range managedBlocks(s.Fetch.Body, s.Robots.Dialect()) {
				first, last = block.first, block.last
				break
			}
			n.note(AdviceOverruled, overruled(s, first, last))
		}
		n.note(AdviceOperator, a.operatorPartlyBlocked(s, first, last))
		if n.joinedFrom > 0 {
			n.note(AdviceJoined, joinedGroups(s, n.joinedFrom-1))
		}
		n.note(AdviceNear, nearToken(s))
		if n.noise {
			n.note(AdviceNoise, 1)
		}
		r.Advice = n.set
	}
	if r.Finding == FindingRules || r.Finding == FindingNoRules { // a character may hide every key
		n.note(AdviceInvisible, invisible(s))
		r.Advice |= n.set & (1 << AdviceInvisible)
	}
	r.Advice = r.Advice.
		with(AdviceRefusal, refuses(s)).
		with(AdviceUnavailable, r.Finding == FindingServerError && s.Fetch.Status >= 500).
		with(AdviceUTF16, s.hasFile() && isUTF16(s.Fetch.Body)).
		with(AdviceXRobotsTag, len(s.Fetch.Fields.XRobotsTag) > 0)
}

// The predicates, in the order of the table.

func refuses(s *Site) bool {
	return s.Report.Finding == FindingRefused && (s.Fetch.Status == 401 || s.Fetch.Status == 403)
}

// isURL reports whether the value of a rule is a full URL.
func isURL(value []byte) bool {
	return hasPrefixFold(value, "http://") || hasPrefixFold(value, "https://")
}

// isQuoted reports whether a core record has quotation marks round its key or value. In `“Disallow: /a”` they hide the
// key.
func isQuoted(rec *parser.Record) bool {
	if rec.Key != parser.KeyUnknown {
		return hasQuotes(rec.Value) || hasQuotes(rec.KeyText)
	}
	key := bytes.TrimFunc(rec.KeyText, isQuote)
	return len(key) < len(rec.KeyText) && (equalFold(key, "user-agent") || equalFold(key, "disallow") ||
		equalFold(key, "allow"))
}

// hasQuotes reports whether a text begins or ends with a curly quote, or stands between two equal straight ones.
func hasQuotes(text []byte) bool {
	n := len(text)
	if n < 2 {
		return false
	}
	first, last := text[0], text[n-1]
	return (first == '"' || first == '\'') && last == first || n >= 3 && (isCurly(text[:3]) || isCurly(text[n-3:]))
}

// isCurly reports whether three octets are one of U+2018, U+2019, U+201C and U+201D in UTF-8.
func isCurly(c []byte) bool {
	return c[0] == 0xE2 && c[1] == 0x80 && (c[2]|1 == 0x99 || c[2]|1 == 0x9D)
}

func isQuote(c rune) bool { return c == '"' || c == '\'' || c|1 == '’' || c|1 == '”' }

// quoteAfterPath returns the line of the first rule with a curly quote, 0 for none. It looks for rules that begin like
// a path, which the first reading of the records does not check. All records are read again only for files with octets
// of such a quote: 125 of 25,101 real files.
func quoteAfterPath(s *Site) (line int) {
	if s.Report.scratch.advice.plainBytes || !bytes.Contains(s.Fetch.Body, []byte("\xE2\x80")) {
		return 0
	}
	for i := range s.Robots.Records() {
		key, _ := s.Robots.Kind(i)
		if value := s.Robots.Value(i); isRule(key) && hasQuotes(value) {
			line, _ = s.Robots.Place(i)
			return line
		}
	}
	return 0
}

func isRule(key parser.Key) bool { return key == parser.KeyAllow || key == parser.KeyDisallow }

// isUTF16 reports whether a body is UTF-16 by its byte order mark, or because every second one of its first octets is
// NUL, as in `User-agent`.
func isUTF16(body []byte) bool {
	const looked = 16
	switch {
	case len(body) < 2:
		return false
	case body[0] != 0 && body[1] != 0:
		return hasUTF16Mark(body)
	case len(body) < looked || body[0] == body[1]:
		return false
	}
	for i := 2; i < looked; i++ {
		if (body[i] == 0) != (body[i-2] == 0) {
			return false
		}
	}
	return true
}

// hasUTF16Mark reports whether a body begins with a byte order mark of UTF-16.
func hasUTF16Mark(body []byte) bool {
	return bytes.HasPrefix(body, []byte("\xFE\xFF")) || bytes.HasPrefix(body, []byte("\xFF\xFE"))
}

// emptyRule returns the line of the first rule of a group with emptyRules, before a group that denies something; 0 for
// none. It looks at the groups from the given one on.
func emptyRule(s *Site, from uint32) int {
	last := uint32(s.Robots.Groups()) - 1
	for g := from; g < last; g++ {
		if line := emptyRules(&s.Robots, g); line > 0 && denies(s, g+1) {
			return line
		}
	}
	return 0
}

// emptyRules returns the line of the first rule of a group if it has rules and all are empty, otherwise 0.
func emptyRules(f *parser.File, group uint32) (line int) {
	first, end := f.GroupRecords(group)
	for i := end - 1; i > first; i-- {
		if key, _ := f.Kind(i); !isRule(key) {
			continue
		}
		if len(f.Value(i)) > 0 {
			return 0
		}
		line, _ = f.Place(i)
	}
	return line
}

// denies reports whether the rules of a group deny something.
func denies(s *Site, group uint32) bool {
	c := s.Report.scratch
	c.groups = append(c.groups[:0], group)
	return s.Robots.Survey(c.groups).Verdict != parser.SiteAllowed
}

// operatorPartlyBlocked returns the line that names an AI crawler whose own group blocks it, while another crawler of
// the same operator and purpose is not blocked; 0 for none. It notes the two as an example. Groups of Cloudflare's
// block, from its first to its last line, are not the site's. Two kinds of crawlers do not count as that other crawler:
// crawlers that only third-party lists name, since the operator may have given them up; and crawlers that only the
// second reading finds, since that reading may block them.
func (a *Auditor) operatorPartlyBlocked(s *Site, first, last int) (line int) {
	r, c := &s.Report, s.Report.scratch
	for _, id := range r.Named {
		if len(a.sameWork[id]) < 2 || !a.blocks(s, id) {
			continue
		}
		if line = s.Robots.AgentLine(int(c.own[id]) - 1); first <= line && line <= last {
			continue
		}
		for _, other := range a.sameWork[id] {
			if c.byToken[other] == 0 && a.reg.Tokens[other].SourceKind != tokens.SourceThirdParty && !a.blocks(s, other) {
				c.advice.blocked, c.advice.open = id, other
				return line
			}
		}
	}
	return 0
}

// blocks reports whether Report.Blocked has a token, without a search.
func (a *Auditor) blocks(s *Site, id uint16) bool {
	agent, _, _ := a.follows(s, int(id), false)
	return agent >= 0 && s.Robots.AgentSurvey(agent).Verdict == parser.SiteBlocked
}

// joinedGroups returns the line of a record between two user-agent lines of a group that denies something, 0 for none.
// It notes the next user-agent line. It looks at the groups from the given one on.
func joinedGroups(s *Site, from uint32) int {
	f := &s.Robots
	for g := from; g < uint32(f.Groups()); g++ {
		between := 0
		for i, end := f.GroupRecords(g); i < end; i++ {
			key, _ := f.Kind(i)
			line, _ := f.Place(i)
			switch {
			case isRule(key):
				i = end
			case key != parser.KeyUserAgent:
				between = line
			case between > 0 && denies(s, g):
				s.Report.scratch.advice.joined = line
				return between
			}
		}
	}
	return 0
}

// overruled returns a line in Cloudflare's block, given by its first and last line; 0 for none. Its agent's groups in
// that block deny the agent everything, while all groups of the agent together do not. overruled notes a line outside
// the block that names the agent.
func overruled(s *Site, first, last int) (line int) {
	f, c := &s.Robots, s.Report.scratch
	for agent := range f.Agents() {
		groups := f.AgentGroups(agent)
		if len(groups) < 2 || f.AgentSurvey(agent).Verdict == parser.SiteBlocked {
			continue
		}
		inside, outside := 0, 0
		c.groups = c.groups[:0]
		for _, g := range groups {
			record, _ := f.GroupRecords(g)
			switch at, _ := f.Place(record); {
			case first <= at && at <= last:
				c.groups = append(c.groups, g)
				inside = at
			default:
				outside = at
			}
		}
		if len(c.groups) > 0 && outside > 0 && f.Survey(c.groups).Verdict == parser.SiteBlocked {
			c.advice.overruled = outside
			return inside
		}
	}
	return 0
}

// nearMisses yields the lines with a near miss of a token that no line names.
func (c *scratch) nearMisses() iter.Seq[nearMiss] {
	return func(yield func(nearMiss) bool) {
		for _, miss := range c.advice.near {
			if c.own[miss.id] == 0 && c.byToken[miss.id] == 0 && !yield(miss) {
				return
			}
		}
	}
}

// nearToken returns the first line of nearMisses, 0 for none.
func nearToken(s *Site) int {
	for miss := range s.Report.scratch.nearMisses() {
		return int(miss.line)
	}
	return 0
}

// invisibles are the beginnings of invisible characters in UTF-8.
var invisibles = [...]string{"\xC2\xA0", "\xC2\xAD", "\xE2\x80", "\xE2\x81", "\xEF\xBB\xBF"}

// invisibleLen returns the length of the invisible character at the start of a text, 0 if there is none: U+00A0,
// U+00AD, U+200B to U+200F, U+202A to U+202F, U+2060 to U+2064 and U+FEFF.
func invisibleLen(text []byte) int {
	switch {
	case len(text) >= 2 && text[0] == 0xC2 && (text[1] == 0xA0 || text[1] == 0xAD):
		return 2
	case len(text) < 3:
		return 0
	case text[0] == 0xE2 && text[1] == 0x80 && (0x8B <= text[2] && text[2] <= 0x8F || 0xAA <= text[2] && text[2] <= 0xAF),
		text[0] == 0xE2 && text[1] == 0x81 && 0xA0 <= text[2] && text[2] <= 0xA4,
		text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF:
		return 3
	}
	return 0
}

// trimInvisible drops invisible characters and white space at the ends of a text, and reports whether it dropped any of
// the former. At the end they count only behind ASCII: text that was encoded twice may end with one, as `à` does.
func trimInvisible(text []byte) (rest []byte, had bool) {
	const blank = " \t\v\f" // bytes.TrimSpace would drop U+00A0
	for rest = bytes.Trim(text, blank); ; rest = bytes.Trim(rest, blank) {
		n, end := invisibleLen(rest), 0
		for size := 2; size <= 3 && size <= len(rest) && n == 0 && end == 0; size++ {
			if before := len(rest) - size; invisibleLen(rest[before:]) == size && before > 0 && rest[before-1] < utf8.RuneSelf {
				end = size
			}
		}
		if n+end == 0 {
			return rest, had
		}
		rest, had = rest[n:len(rest)-end], true
	}
}

// invisible returns the line of the first core record with an invisible character at an end of its key or value, or in
// an agent's name; 0 for none. Such a character hides a key, so that unknown records and lines without a key are looked
// at, too.
func invisible(s *Site) (line int) {
	if s.Report.scratch.advice.plainBytes || !containsInvisible(bytes.TrimPrefix(s.Fetch.Body, []byte("\xEF\xBB\xBF"))) {
		return 0
	}
	for i := range s.Robots.Records() {
		rec := s.Robots.Record(i)
		if hasInvisible(&rec) {
			return rec.Line
		}
	}
	return 0
}

// containsInvisible reports whether a text has an invisible character before the comment of a line. Most files that are
// not ASCII have none.
func containsInvisible(text []byte) bool {
	for _, begins := range invisibles {
		for at := 0; ; at += len(begins) {
			i := bytes.Index(text[at:], []byte(begins))
			if i < 0 {
				break
			}
			at += i
			line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
			if invisibleLen(text[at:]) > 0 && bytes.IndexByte(line, '#') < 0 {
				return true
			}
		}
	}
	return false
}

func hasInvisible(rec *parser.Record) bool {
	key, inKey := trimInvisible(rec.KeyText)
	if rec.Key == parser.KeyUnknown || rec.Key == parser.KeyNone {
		return inKey && (equalFold(key, "user-agent") || equalFold(key, "disallow") || equalFold(key, "allow"))
	}
	_, inValue := trimInvisible(rec.Value)
	if rec.Key == parser.KeyUserAgent {
		for i := range rec.Value {
			inValue = inValue || invisibleLen(rec.Value[i:]) > 0
		}
		return inKey || inValue
	}
	return isRule(rec.Key) && (inKey || inValue)
}

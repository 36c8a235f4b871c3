package audit

import (
	"bytes"
	"iter"
	"math/bits"

	"github.com/bulkscan/bulkscan/parser"
)

// Advice says in which way an answer probably does not do what its author wanted. It changes neither the score nor a
// verdict.
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
	AdviceXRobotsTag
	NumAdvice
)

// advices has for each advice its stable id, its text, when it is given, and why.
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
		"RFC 9309 §2.3.1.4: the file is unreachable; after about 30 days a crawler may go on as if there were none, or with its cached copy",
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
		"A crawler is blocked by name, and another of the same operator is not. Name each one that you mean.",
		"an AI crawler is `blocked` by a group of its own, and another AI crawler of its operator, whose name is a product token, is not",
		"operators have a crawler for each purpose, and a group speaks to those that it names",
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

// adviceNotes is what is known of some advice beyond that it holds.
type adviceNotes struct {
	set   AdviceSet        // noted while the records were read, whatever the finding
	lines [NumAdvice]int32 // line of a noted advice; stale where the advice is not noted

	plainBytes    bool   // the body is ASCII, so that no plain rule has a curly quote
	emptyFrom     uint32 // the first group with an empty rule, as index + 1; 0 for none
	blocked, open uint16 // registry tokens, an example of AdviceOperator
}

// note notes an advice and the first line that shows it.
func (n *adviceNotes) note(a Advice, line int) {
	if line > 0 && !n.set.Has(a) {
		n.set, n.lines[a] = n.set.with(a, true), int32(line)
	}
}

// advise sets Report.Advice. It is the last stage, since some advice depends on verdicts. A bot challenge gets none: it
// is not the site's answer. Advice on lines is given only where the finding is `rules`, so not to pages with a rule in
// them.
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
		n.note(AdviceOperator, a.operatorPartlyBlocked(s))
		r.Advice = n.set
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
	return len(key) < len(rec.KeyText) && (equalFold(key, "user-agent") || equalFold(key, "disallow") || equalFold(key, "allow"))
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

// quoteAfterPath returns the line of the first rule with a curly quote, 0 for none. It finds rules that begin like a path,
// which the reading of records leaves out. Of 25,101 real files, 125 contain octets for which all records are read again.
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

// isUTF16 reports whether a body is UTF-16 by its byte order mark, or because each second of its first octets is NUL, as
// in `User-agent`.
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

// operatorPartlyBlocked returns the line that names an AI crawler that its own group blocks while another one of its
// operator is not blocked, 0 for none. It notes the two as an example. A crawler that only the second reading finds is no
// example: it may be blocked by that reading.
func (a *Auditor) operatorPartlyBlocked(s *Site) (line int) {
	r, c := &s.Report, s.Report.scratch
	for _, id := range r.Named {
		if len(a.sameOperator[id]) == 0 || !a.blocks(s, id) {
			continue
		}
		for _, other := range a.sameOperator[id] {
			if c.byToken[other] == 0 && !a.blocks(s, other) {
				c.advice.blocked, c.advice.open = id, other
				return s.Robots.AgentLine(int(c.own[id]) - 1)
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

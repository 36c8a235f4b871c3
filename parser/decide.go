package parser

import (
	"bytes"
	"slices"
)

// Decision says whether a path may be crawled, and why. It has four fields because the compiler keeps no more in
// registers: with a fifth, decisions for 150 tokens took 1.5 times as long.
type Decision struct {
	Allow bool
	Line  int // 1-based line of the deciding rule; 0 where no rule decides, which allows
	// index of the deciding rule (File.Record), which also tells the deciding group; negative where no rule decides
	Record int
	Agent  int // index of the agent whose groups were followed (File.Agent), -1 for none
}

// The values of Decision.Record where no rule decides.
const (
	noRule     = -1 // none matches
	exemptRule = -2 // none is consulted
)

// Exempt reports whether the path is always allowed, whatever the rules say: `/robots.txt` in the RFC dialect.
func (d Decision) Exempt() bool { return d.Record == exemptRule }

// Decide says whether the token may crawl the path. The path begins with `/`, as AppendEscapedPath writes it; an empty
// path is `/`, and any other is compared as given. The token is a product token, or `*` for an agent that no group
// names. AgentName extracts it from a User-Agent field. The rules are those of the groups that name the token, else
// those of `*`; without either, everything is allowed (RFC 9309 §2.2.1). Decide tries one name: fallbacks of a crawler
// are for the caller.
//
// Further tokens on the same path cost little: the decisions of each group, and of `*` for unnamed tokens, are kept
// until the path changes.
func (f *File) Decide(token string, path []byte) Decision {
	f.ask(path)
	if agent := f.Find(token); agent >= 0 {
		return f.decideFor(agent)
	}
	// Most tokens that are asked about are named nowhere, so the decision of `*` is kept.
	if q := &f.asked; !q.starKnown {
		q.starKnown, q.star = true, Decision{Allow: true, Record: q.without(), Agent: -1}
		if star := f.Star(); star >= 0 {
			q.star = f.decideFor(star)
		}
	}
	return f.asked.star
}

// Allows reports whether the token may crawl the URL, as Decide does. The URL may be absolute
// (`https://example.com/a`), without a scheme (`//example.com/a`), or a path (`/a`). Octets above 0x7F are escaped
// first, as user agents do.
func (f *File) Allows(token, url string) bool {
	f.url = AppendEscapedPath(f.url[:0], url)
	return f.Decide(token, f.url).Allow
}

// decideFor decides on the current path by the groups that name the agent.
func (f *File) decideFor(agent int) Decision {
	d := f.decideIn(f.AgentGroups(agent))
	d.Agent = agent
	return d
}

// DecideIn says whether the merged rules of the groups allow the path. The longest pattern wins, counted in octets as
// it is compared. Allow wins a tie, and the first of equal rules is returned (RFC 9309 §2.2.2). An empty value is no
// rule. The groups must be ascending and distinct, as AgentGroups returns them. Decision.Agent is -1.
func (f *File) DecideIn(groups []uint32, path []byte) Decision {
	f.ask(path)
	return f.decideIn(groups)
}

// decideIn is DecideIn for the current path.
func (f *File) decideIn(groups []uint32) Decision {
	var w winner
	if !f.asked.exempt {
		for _, g := range groups {
			w.join(f.groupWinner(g))
		}
	}
	return f.decision(&w)
}

// root is the path of a site's home page.
var root = []byte("/")

// question is the current path, with the decision of each group on it.
type question struct {
	given, path []byte        // the path as given, empty before the first question, and as it is compared
	exempt      bool          // no rule decides on this path
	number      uint32        // of the question; entries of groups with another number are stale
	groups      []groupWinner // by group, as far as computed
	star        Decision      // the decision for tokens that no group names, if starKnown
	starKnown   bool
}

// without returns the value of Decision.Record where no rule decides.
func (q *question) without() int {
	if q.exempt {
		return exemptRule
	}
	return noRule
}

type groupWinner struct {
	number uint32
	winner winner
}

// ask makes the path the current one.
func (f *File) ask(path []byte) {
	if len(path) == 0 {
		path = root
	}
	// The most common path is `/`: one octet, for which a call to compare takes as long as the rest of Decide.
	q := &f.asked
	if len(path) == 1 && len(q.given) == 1 && q.given[0] == path[0] || string(q.given) == string(path) {
		return
	}
	f.askAnew(path)
}

func (f *File) askAnew(path []byte) {
	q := &f.asked
	q.starKnown, q.given = false, append(q.given[:0], path...)
	if q.number++; q.number == 0 {
		clear(q.groups[:cap(q.groups)])
		q.number = 1
	}
	if f.dialect == RFC {
		q.path = appendNormalPath(q.path[:0], path)
		q.exempt = isRobots(q.path)
		return
	}
	q.exempt, q.path = false, append(q.path[:0], path...)
}

// isRobots reports whether a normalised path is that of robots.txt. RFC 9309 §2.2.2: "The /robots.txt URI is
// implicitly allowed."
func isRobots(path []byte) bool { return string(path) == robots }

const robots = "/robots.txt"

// groupWinner returns the group's best rules for the current path. Each rule is tried once, however many agents share
// the group.
func (f *File) groupWinner(group uint32) *winner {
	q := &f.asked
	if len(q.groups) < len(f.groups) {
		q.groups = slices.Grow(q.groups, len(f.groups)-len(q.groups))[:len(f.groups)]
	}
	g := &q.groups[group]
	if g.number != q.number {
		g.number, g.winner = q.number, winner{}
		f.tryGroup(&g.winner, group, q.path)
	}
	return &g.winner
}

// decision converts a winner.
func (f *File) decision(w *winner) Decision {
	d := Decision{Allow: w.allows(), Record: f.asked.without(), Agent: -1}
	rule := w.allowRule
	if !d.Allow {
		rule = w.disallowRule
	}
	if rule > 0 {
		d.Record = int(rule) - 1
		d.Line = int(f.records[d.Record].line)
	}
	return d
}

// winner holds the best allow and the best disallow rule: the lengths of the patterns, and the indices of their
// records + 1. 0 is none.
type winner struct{ allow, disallow, allowRule, disallowRule uint32 }

func (w *winner) allows() bool { return w.allow >= w.disallow }

// join takes the better rules of another winner, whose rules are further down in the file.
func (w *winner) join(o *winner) {
	if o.allow > w.allow {
		w.allow, w.allowRule = o.allow, o.allowRule
	}
	if o.disallow > w.disallow {
		w.disallow, w.disallowRule = o.disallow, o.disallowRule
	}
}

// tryGroup tries each rule of the group.
func (f *File) tryGroup(w *winner, group uint32, path []byte) {
	start, end := f.GroupRecords(group)
	for i := start; i < end; i++ {
		f.tryRule(w, i, path)
	}
}

// tryRule tries the record if it is a rule.
func (f *File) tryRule(w *winner, i int, path []byte) {
	r := &f.records[i]
	if r.kind == KeyAllow || r.kind == KeyDisallow {
		w.offer(r.kind, uint32(f.matchLen(r, path)), i)
	}
}

// offer takes the i-th record, a rule that matches with the length, if it beats the best rule so far.
func (w *winner) offer(kind Key, length uint32, i int) {
	switch {
	case kind == KeyAllow && length > w.allow:
		w.allow, w.allowRule = length, uint32(i)+1
	case kind == KeyDisallow && length > w.disallow:
		w.disallow, w.disallowRule = length, uint32(i)+1
	}
}

// special holds the octets that need more than comparison: wildcards, escapes, and octets to be escaped.
var special = func() (is [256]bool) {
	is['*'], is['$'], is['%'] = true, true, true
	for c := 0x80; c <= 0xFF; c++ {
		is[c] = true
	}
	return is
}()

// matchLen returns the length of the rule's normalised pattern if it matches the path, else 0. The literal octets at
// the start decide most rules, so that only the others are normalised.
func (f *File) matchLen(r *record, path []byte) int {
	value := f.src[r.value:r.end]
	n := 0
	for n < len(value) && n < len(path) && value[n] == path[n] && !special[value[n]] {
		n++
	}
	if n == len(value) {
		return n
	}
	if special[value[n]] {
		pattern := value
		if f.needsNormal(value[n:]) {
			f.scratch = AppendPattern(f.scratch[:0], value, f.dialect)
			pattern = f.scratch
		}
		if Match(pattern, path) {
			return len(pattern)
		}
	}
	if path[len(path)-1] == '/' {
		return f.matchIndex(r, value, path)
	}
	return 0
}

// needsNormal reports whether AppendPattern might change a value that ends with the tail.
func (f *File) needsNormal(tail []byte) bool {
	for _, c := range tail {
		if special[c] && (c == '%' || c >= 0x80 || f.dialect == RFC) {
			return true
		}
	}
	return false
}

// matchIndex matches the folder of an allow rule that itself does not match (see indexFolder). It returns the length of
// the folder's pattern, 0 if it does not match. A path that does not end in `/` cannot match.
func (f *File) matchIndex(r *record, value, path []byte) int {
	folder := f.indexFolder(r, value)
	if folder == nil {
		return 0
	}
	f.scratch = append(AppendPattern(f.scratch[:0], folder, f.dialect), '$')
	if Match(f.scratch, path) {
		return len(f.scratch)
	}
	return 0
}

// indexFolder returns the folder of an allow rule whose last segment begins with `index.htm`, nil for other rules.
// Google's code tries the folder where the rule itself does not match: `/a/index.html` also matches as `/a/$`.
func (f *File) indexFolder(r *record, value []byte) []byte {
	if r.kind != KeyAllow || f.dialect == RFC {
		return nil
	}
	slash := bytes.LastIndexByte(value, '/')
	if slash < 0 || !bytes.HasPrefix(value[slash:], []byte("/index.htm")) {
		return nil
	}
	return value[:slash+1]
}

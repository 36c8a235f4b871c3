package parser

import (
	"bytes"
	"slices"
)

// Decision says whether a path may be crawled, and why. It has four fields because no more are kept in registers: a fifth
// made asking for 150 tokens half as slow again.
type Decision struct {
	Allow  bool
	Line   int // 1-based line of the deciding rule; 0 where no rule decides, which allows
	Record int // index of the deciding rule (File.Record), whose group is the one that decided; negative where no rule decides
	Agent  int // index of the agent whose groups were followed (File.Agent), -1 for none
}

// What Decision.Record is where no rule decides.
const (
	noRule     = -1 // none matches
	exemptRule = -2 // none may decide
)

// Exempt reports whether no rule may decide on the path: `/robots.txt` in the RFC dialect, which is always allowed.
func (d Decision) Exempt() bool { return d.Record == exemptRule }

// Decide says whether the token may crawl the path. The path begins with `/`, as AppendEscapedPath makes it of any URL; an
// empty one is `/`, and any other is compared as it stands. The token is a product token (`ExampleBot`, not the whole
// User-Agent field; AgentName takes it out of that), or `*` for whom no group names. Followed are the groups that name
// it, else those of `*`, else none, which allows everything (RFC 9309 §2.2.1). One name is asked at a time: what a crawler
// falls back to is its own affair.
//
// To ask for many tokens about one path costs little more than to ask for the first: what a group decides is kept until
// another path is asked about, and so is the answer for whom no group names.
func (f *File) Decide(token string, path []byte) Decision {
	f.ask(path)
	if agent := f.Find(token); agent >= 0 {
		return f.decideFor(agent)
	}
	// Most tokens that are asked for are named nowhere, so that the answer of `*` is kept whole.
	if q := &f.asked; !q.starKnown {
		q.starKnown, q.star = true, Decision{Allow: true, Record: q.without(), Agent: -1}
		if star := f.Star(); star >= 0 {
			q.star = f.decideFor(star)
		}
	}
	return f.asked.star
}

// Allows reports whether the token may crawl the URL: Decide for those who have a URL, and no further questions. The URL may
// be whole (`https://example.com/a`), without its scheme (`//example.com/a`), or a path (`/a`); octets above 0x7F are
// escaped first, as user agents send them.
func (f *File) Allows(token, url string) bool {
	f.url = AppendEscapedPath(f.url[:0], url)
	return f.Decide(token, f.url).Allow
}

// decideFor decides on the path in question by the groups that name the agent.
func (f *File) decideFor(agent int) Decision {
	d := f.decideIn(f.AgentGroups(agent))
	d.Agent = agent
	return d
}

// DecideIn says whether the merged rules of the groups allow the path. The longest pattern wins, counted in octets as
// it is compared; allow wins a tie; of equals the first is named (RFC 9309 §2.2.2). An empty value is no rule. The groups
// are given in ascending order, each once, as AgentGroups has them. Decision.Agent is -1.
func (f *File) DecideIn(groups []uint32, path []byte) Decision {
	f.ask(path)
	return f.decideIn(groups)
}

// decideIn is DecideIn for the path in question.
func (f *File) decideIn(groups []uint32) Decision {
	var w winner
	if !f.asked.exempt {
		for _, g := range groups {
			w.join(f.groupWinner(g))
		}
	}
	return f.decision(&w)
}

// root is the path of a site's first page.
var root = []byte("/")

// question is the path that was asked about last, with what each group decides on it.
type question struct {
	given, path []byte        // as asked, empty before the first question, and as it is compared
	exempt      bool          // no rule decides on this path
	number      uint32        // of the question: what groups holds of others is void
	groups      []groupWinner // by group, as far as asked
	star        Decision      // of whom no group names, where starKnown
	starKnown   bool
}

// without is what Decision.Record is without a rule.
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

// ask makes the path the one in question.
func (f *File) ask(path []byte) {
	if len(path) == 0 {
		path = root
	}
	// The path that is asked about most is `/`: one octet, for which a call to compare takes as long as the rest of Decide.
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

// isRobots reports whether a normalised path is that of the file itself. RFC 9309 §2.2.2: "The /robots.txt URI is implicitly
// allowed."
func isRobots(path []byte) bool { return string(path) == "/robots.txt" }

// groupWinner returns what the group decides on the path in question. Each rule is tried once, however many agents
// follow the group.
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

// decision says what a winner means.
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

// winner is the best of either kind of rule: the lengths of the patterns, and the indices of their records + 1; 0 = none.
type winner struct{ allow, disallow, allowRule, disallowRule uint32 }

func (w *winner) allows() bool { return w.allow >= w.disallow }

// join takes the better rules of another winner, whose rules stand further down.
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

// tryRule tries the record, if it is a rule.
func (f *File) tryRule(w *winner, i int, path []byte) {
	r := &f.records[i]
	if r.kind == KeyAllow || r.kind == KeyDisallow {
		w.offer(r.kind, uint32(f.matchLen(r, path)), i)
	}
}

// offer takes the i-th record, a rule that matches with the length, if it is better than what was found before.
func (w *winner) offer(kind Key, length uint32, i int) {
	switch {
	case kind == KeyAllow && length > w.allow:
		w.allow, w.allowRule = length, uint32(i)+1
	case kind == KeyDisallow && length > w.disallow:
		w.disallow, w.disallowRule = length, uint32(i)+1
	}
}

// special holds the octets of a value that are not simply compared: wildcards, escapes, and what must be escaped.
var special = func() (is [256]bool) {
	is['*'], is['$'], is['%'] = true, true, true
	for c := 0x80; c <= 0xFF; c++ {
		is[c] = true
	}
	return is
}()

// matchLen returns the length of the rule's normalised pattern if it matches the path, else 0. Most rules are decided
// by the literal octets with which they begin, so that only the others are normalised at all.
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

// needsNormal reports whether AppendPattern might change a value that ends like this.
func (f *File) needsNormal(tail []byte) bool {
	for _, c := range tail {
		if special[c] && (c == '%' || c >= 0x80 || f.dialect == RFC) {
			return true
		}
	}
	return false
}

// matchIndex tries an allow that does not match as its folder, see indexFolder. It returns the length of that pattern, 0
// if it does not match; a path that does not end in `/` cannot match.
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

// indexFolder is a quirk of Google's code: an allow that does not match and whose last segment begins with `index.htm` is
// tried once more as the folder alone, `/a/index.html` as `/a/$`. It returns the folder, nil for all other rules.
func (f *File) indexFolder(r *record, value []byte) []byte {
	if r.kind != KeyAllow || f.dialect != Google {
		return nil
	}
	slash := bytes.LastIndexByte(value, '/')
	if slash < 0 || !bytes.HasPrefix(value[slash:], []byte("/index.htm")) {
		return nil
	}
	return value[:slash+1]
}

package parser

import "bytes"

// Decision says whether a path may be crawled, and why.
type Decision struct {
	Allow bool
	Line  int // 1-based line of the deciding rule; 0 where no rule matches, which allows
	Agent int // index of the agent whose groups were followed (File.Agent), -1 for none
}

// Decide says whether the token may crawl the path, which begins with `/` as AppendPath makes it (an empty path is
// `/`). Followed are the groups that name the token, else those of `*`, else none, which allows everything (RFC 9309
// §2.2.1). One name is asked at a time: what a crawler falls back to is its own affair.
func (f *File) Decide(token string, path []byte) Decision {
	if i := f.Find(token); i >= 0 {
		d := f.DecideIn(f.AgentGroups(i), path)
		d.Agent = i
		return d
	}
	if f.Star() < 0 {
		return Decision{Allow: true, Agent: -1}
	}
	// Most tokens that are asked for follow `*`, so that its last answer is kept.
	if !f.starKnown || string(f.starPath) != string(path) {
		f.starKnown, f.starPath = true, append(f.starPath[:0], path...)
		f.starDecision = f.DecideIn(f.AgentGroups(f.Star()), path)
		f.starDecision.Agent = f.Star()
	}
	return f.starDecision
}

// DecideIn says whether the merged rules of the groups allow the path. The longest pattern wins, counted in octets as
// it is compared; allow wins a tie; of equals the first is named (RFC 9309 §2.2.2). An empty value is no rule.
// Decision.Agent is -1.
func (f *File) DecideIn(groups []uint32, path []byte) Decision {
	if len(path) == 0 {
		path = root
	}
	if f.dialect == RFC {
		// RFC 9309 §2.2.2: "The /robots.txt URI is implicitly allowed."
		if string(path) == "/robots.txt" {
			return Decision{Allow: true, Agent: -1}
		}
		f.path = appendNormalPath(f.path[:0], path)
		path = f.path
	}
	w := f.winner(groups, path)
	return Decision{Allow: w.allow >= w.disallow, Line: int(w.line()), Agent: -1}
}

// root is the path of a site's first page.
var root = []byte("/")

// winner is the best of either kind of rule: lengths of the patterns and their lines; 0 = none.
type winner struct {
	allow, disallow         int
	allowLine, disallowLine uint32
}

// line returns the line of the deciding rule.
func (w *winner) line() uint32 {
	if w.disallow > w.allow {
		return w.disallowLine
	}
	return w.allowLine
}

// winner finds the longest allow and disallow rules that match the normalised path.
func (f *File) winner(groups []uint32, path []byte) (w winner) {
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			switch r.kind {
			case KeyAllow:
				if n := f.matchLen(r, path); n > w.allow {
					w.allow, w.allowLine = n, r.line
				}
			case KeyDisallow:
				if n := f.matchLen(r, path); n > w.disallow {
					w.disallow, w.disallowLine = n, r.line
				}
			}
		}
	}
	return w
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
			f.scratch = appendNormal(f.scratch[:0], value, f.dialect)
			pattern = f.scratch
		}
		if Match(pattern, path) {
			return len(pattern)
		}
	}
	if r.kind == KeyAllow && f.dialect == Google && path[len(path)-1] == '/' {
		return f.matchIndex(value, path)
	}
	return 0
}

// needsNormal reports whether appendNormal might change a value that ends like this.
func (f *File) needsNormal(tail []byte) bool {
	for _, c := range tail {
		if special[c] && (c == '%' || c >= 0x80 || f.dialect == RFC) {
			return true
		}
	}
	return false
}

// matchIndex is a quirk of Google's code: an allow that does not match and whose last segment begins with `index.htm`
// is tried once more as the folder alone, `/index.html` as `/$`. It returns the length of that pattern, 0 if it does
// not match; a path that does not end in `/` cannot match.
func (f *File) matchIndex(value, path []byte) int {
	slash := bytes.LastIndexByte(value, '/')
	if slash < 0 || !bytes.HasPrefix(value[slash:], []byte("/index.htm")) {
		return 0
	}
	f.scratch = append(appendNormal(f.scratch[:0], value[:slash+1], f.dialect), '$')
	if Match(f.scratch, path) {
		return len(f.scratch)
	}
	return 0
}

package parser

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// MaxBody is how many octets of a body Parse reads: 500 KiB, as much as RFC 9309 §2.5 requires and as Google reads.
const MaxBody = 500 << 10

// Robots is what one site says to crawlers: the access that the HTTP status gives, and the rules of its robots.txt.
//
// A Robots never changes and may be used by any number of goroutines at once. It has a copy of what it keeps: the
// values of user-agent, allow, disallow, sitemap and crawl-delay lines. With their index this is less than twice a
// typical body, and at most four megabytes. Strings that it returns come from the site: check them before use. Slices
// that it returns belong to the caller.
//
// The zero value disallows everything, as Parse(0, nil) does.
type Robots struct {
	access  Access
	text    string   // all values, one after the other
	records []record // offsets are into text; key is unused
	groups  []uint32
	names   agents
}

// Rule is an allow or disallow line.
type Rule struct {
	Line  int // 1-based; 0 in the zero value, which stands for no rule
	Allow bool
	Path  string // as written, without comment; an empty one has no effect
}

// String returns the rule as RFC 9309 spells it (`Disallow: /private/`), "" for no rule.
func (r Rule) String() string {
	switch {
	case r.Line == 0:
		return ""
	case r.Allow:
		return "Allow: " + r.Path
	}
	return "Disallow: " + r.Path
}

// Group is a group of a file: user-agent lines and the rules that follow them (RFC 9309 §2.1).
type Group struct {
	Line   int      // 1-based line of its first user-agent line
	Agents []string // product tokens as written, `*` for all others; a line without a token gives none
	Rules  []Rule   // in order, empty ones included
}

// Answer says whether a URL may be fetched, and why.
type Answer struct {
	Allowed bool
	Rule    Rule   // the deciding rule; the zero Rule where the status decides, or no rule matches
	Agent   string // the product token whose groups were followed, as the file writes it; `*`; "" if no group was
}

// Parse returns what an answer to a request for robots.txt says. It never fails: a line that is no record is skipped.
//
// The status is the final HTTP status, after redirects; the body is that of this answer. With a status of 2xx the rules
// of the body decide. With 3xx (a redirect that could not be followed) and 4xx, everything is allowed. With 5xx, and
// with any other number, everything is disallowed. Give 0 where no answer came: RFC 9309 §2.3.1.4 treats an unreachable
// server as 5xx. These statuses concern the moment; docs/parser.md says what to do when they last.
//
// Parse reads the first MaxBody octets, without the line that this cuts: half of `Disallow: /private` may be
// `Disallow: /`. It reads in the Google dialect, but `/robots.txt` is always allowed (RFC 9309 §2.2.2). The body may be
// changed afterwards.
func Parse(status int, body []byte) *Robots {
	r := &Robots{access: AccessFor(status)}
	if r.access != AccessConditional {
		return r
	}
	if len(body) > MaxBody {
		body = body[:MaxBody]
		body = body[:bytes.LastIndexAny(body, "\r\n")+1]
	}
	var f File
	f.Parse(body)
	r.keep(&f)
	return r
}

// keep copies what the Robots needs of a File.
func (r *Robots) keep(f *File) {
	count, size := 0, 0
	for i := range f.records {
		if rec := &f.records[i]; isKept(rec.kind) {
			count, size = count+1, size+int(rec.end-rec.value)
		}
	}
	if count == 0 {
		return
	}
	var text strings.Builder
	text.Grow(size)
	r.records = make([]record, 0, count)
	r.groups = slices.Clone(f.groups)
	r.names = agents{
		list: slices.Clone(f.names.list), table: slices.Clone(f.names.table), groups: slices.Clone(f.names.groups),
		present: f.names.present, star: f.names.star,
	}
	groups, names := 0, 0 // that were met: both are in the order of their first records
	for i, rec := range f.records {
		if !isKept(rec.kind) {
			continue
		}
		at := uint32(len(r.records))
		value := f.src[rec.value:rec.end]
		rec.key, rec.value = 0, uint32(text.Len())
		text.Write(value)
		rec.end = uint32(text.Len())
		r.records = append(r.records, rec)
		if groups < len(r.groups) && r.groups[groups] == uint32(i) {
			r.groups[groups] = at
			groups++
		}
		if names < len(r.names.list) && r.names.list[names].record == uint32(i) {
			r.names.list[names].record, r.names.list[names].name = at, rec.value // a name begins its value
			names++
		}
	}
	r.text = text.String()
}

func isKept(k Key) bool {
	return k == KeyUserAgent || k == KeyAllow || k == KeyDisallow || k == KeySitemap || k == KeyCrawlDelay
}

// Access returns what the status permits before any rule is read.
func (r *Robots) Access() Access { return r.access }

// Allows reports whether the agent may fetch the URL. It allocates nothing. See Test for the arguments.
func (r *Robots) Allows(agent, url string) bool { return r.Test(agent, url).Allowed }

// Test says whether the agent may fetch the URL, and by which rule.
//
// The agent is a product token, which may be followed by a version and other text (`ExampleBot/1.0`): its leading
// letters, `-` and `_` count, in any case. Rules of all groups that name it are followed, else those of `*`, else
// everything is allowed (RFC 9309 §2.2.1). An agent without a token, or `*`, counts as one that no group names. A
// browser's User-Agent (`Mozilla/5.0 …`) has the token Mozilla.
//
// The URL is one of this site: absolute, or a path. It is not checked that the site is the one of the robots.txt.
// Octets above 0x7F are escaped first. The longest matching path wins, an allow if two are equally long (§2.2.2).
func (r *Robots) Test(agent, url string) Answer {
	if r.access == AccessFullAllow {
		return Answer{Allowed: true}
	}
	f := readers.Get().(*File)
	a := r.test(f, agent, url)
	f.scratch, f.url = trimmed(f.scratch), trimmed(f.url)
	(&Robots{}).lend(f)
	readers.Put(f)
	return a
}

// readers are Files with the memory that a question needs.
var readers = sync.Pool{New: func() any { return new(File) }}

// test is Test with the scratch memory of a File.
func (r *Robots) test(f *File, agent, url string) Answer {
	f.url = AppendEscapedPath(f.url[:0], url)
	if isRobots(f.url) {
		return Answer{Allowed: true}
	}
	if r.access != AccessConditional {
		return Answer{}
	}
	r.lend(f)
	i := f.followed(agent)
	if i < 0 {
		return Answer{Allowed: true}
	}
	w := f.winner(f.AgentGroups(i), f.url)
	d := f.decision(&w)
	name := &r.names.list[i]
	a := Answer{Allowed: d.Allow, Agent: r.text[name.name : name.name+name.size]}
	if d.Record >= 0 {
		a.Rule = r.rule(d.Record)
	}
	return a
}

// lend makes the File one with the Robots' records, so that its methods read them. The File must not be parsed with.
func (r *Robots) lend(f *File) {
	f.src = unsafe.Slice(unsafe.StringData(r.text), len(r.text)) // a File only reads its body
	f.records, f.groups, f.names = r.records, r.groups, r.names
}

// followed returns the index of the agent whose groups the agent follows, -1 for none.
func (f *File) followed(agent string) int {
	if i := f.Find(agent[:nameLen(agent, Google)]); i >= 0 {
		return i
	}
	return f.Star()
}

// rule returns the i-th record, a rule.
func (r *Robots) rule(i int) Rule {
	rec := &r.records[i]
	return Rule{Line: int(rec.line), Allow: rec.kind == KeyAllow, Path: r.text[rec.value:rec.end]}
}

// Sitemaps returns the values of all sitemap lines that are not empty, in order. A sitemap should be an absolute URL,
// of any site; Sitemaps does not check this.
func (r *Robots) Sitemaps() []string {
	var sitemaps []string
	for i := range r.records {
		if rec := &r.records[i]; rec.kind == KeySitemap && rec.value < rec.end {
			sitemaps = append(sitemaps, r.text[rec.value:rec.end])
		}
	}
	return sitemaps
}

// CrawlDelay returns how long the site asks the agent to wait between two requests, from 0 to a billion seconds, and
// whether it asks so. Of the groups that Test follows, only lines after a user-agent line with the agent's name count.
// The first valid one wins (see ParseCrawlDelay). No RFC defines Crawl-delay.
func (r *Robots) CrawlDelay(agent string) (delay time.Duration, ok bool) {
	var f File
	r.lend(&f)
	who := f.followed(agent)
	if who < 0 {
		return 0, false
	}
	name := f.Agent(who).Name
	for _, g := range f.AgentGroups(who) {
		named := false
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			switch key, _ := f.Kind(i); key {
			case KeyUserAgent:
				named = named || equalFold(AgentName(f.Value(i), Google), name)
			case KeyCrawlDelay:
				if seconds, ok := ParseCrawlDelay(f.Value(i)); ok && named {
					return time.Duration(math.Round(seconds * float64(time.Second))), true
				}
			}
		}
	}
	return 0, false
}

// ParseCrawlDelay reads the value of a crawl-delay line: seconds, as digits with at most one point. Valid values have
// at most nine digits before the point (about thirty years) and 40 octets in all.
func ParseCrawlDelay(value []byte) (seconds float64, ok bool) {
	// ParseFloat accepts more (`inf`, `0x1p4`) and allocates if it fails, so the value is checked first.
	whole, digits, points := 0, 0, 0
	for _, c := range value {
		switch {
		case c == '.':
			points, whole = points+1, digits
		case '0' <= c && c <= '9':
			digits++
		default:
			return 0, false
		}
	}
	if points == 0 {
		whole = digits
	}
	if points > 1 || digits == 0 || whole > 9 || len(value) > 40 {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(value), len(value)), 64)
	return seconds, err == nil
}

// Groups returns the groups of the file in order, not merged: an agent follows all groups that name it. Rules before
// the first user-agent line belong to no group and are left out. Without a file of status 2xx there are no groups.
func (r *Robots) Groups() []Group {
	var f File
	r.lend(&f)
	groups := make([]Group, len(r.groups))
	for i := range groups {
		start, end := f.GroupRecords(uint32(i))
		g := &groups[i]
		g.Line = int(r.records[start].line)
		for k := start; k < end; k++ {
			rec := &r.records[k]
			switch rec.kind {
			case KeyUserAgent:
				if n := nameLen(f.Value(k), Google); n > 0 {
					g.Agents = append(g.Agents, r.text[rec.value:int(rec.value)+n])
				}
			case KeyAllow, KeyDisallow:
				g.Rules = append(g.Rules, r.rule(k))
			}
		}
	}
	return groups
}

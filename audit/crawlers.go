package audit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// This file decides for single crawlers: which crawler a name means, which groups of a file it follows, and which URLs
// it may fetch. Judge does the same for the whole registry, by the same rules (Auditor.follows).

// Crawler is a crawler chosen by name.
type Crawler struct {
	Token string // as the registry spells it, or another product token; "*" is any crawler that no group names
	id    int    // index into the registry; -1 for none
}

// Errors of Auditor.Crawler.
var (
	ErrUnknownCrawler = errors.New("no crawler of this name is known")
	ErrBrowser        = errors.New("a browser's User-Agent begins like this, and no known crawler is named in it")
	ErrNoProductToken = errors.New("no product token")
)

// Crawler returns the crawler that a name means: "*", a name or alias in the registry, a product token, or a complete
// User-Agent string that names one of these. With literal, every name is taken for a product token.
func (a *Auditor) Crawler(name string, literal bool) (Crawler, error) {
	if name == "*" {
		return Crawler{Token: name, id: -1}, nil
	}
	token := name[:tokens.ProductTokenLen(name)]
	id, _ := a.reg.Find([]byte(name))
	if id < 0 && strings.ContainsAny(name, " \t") && !strings.ContainsAny(name, "/;(") {
		return Crawler{}, ErrUnknownCrawler
	}
	if id < 0 && !literal {
		browser := strings.EqualFold(token, "Mozilla") && token != name
		if id = a.namedIn(name, browser); id < 0 && browser {
			return Crawler{}, ErrBrowser
		}
		if id < 0 {
			id, _ = a.reg.Find([]byte(token))
		}
	}
	switch {
	case id >= 0 && !literal:
		return Crawler{Token: a.reg.Tokens[id].Name, id: id}, nil
	case token == "":
		return Crawler{}, ErrNoProductToken
	}
	return Crawler{Token: token, id: -1}, nil
}

// namedIn returns the registry token that a User-Agent string names, -1 for none. The token is at the beginning of the
// string. If the string begins like a browser's, the token may also be at the beginning of a part; brackets and `;`
// separate parts. Names in URLs and prose (`not Googlebot`) do not count.
func (a *Auditor) namedIn(agent string, browser bool) int {
	for part := range strings.FieldsFuncSeq(agent, func(r rune) bool { return r == ';' || r == '(' || r == ')' }) {
		for _, name := range parser.LenientNames([]byte(part)) {
			if id, _ := a.reg.Find(name); id >= 0 {
				return id
			}
		}
		if !browser {
			break
		}
	}
	return -1
}

// CrawlerNames divides a list of names. Only commas outside of brackets separate names: User-Agent strings
// have others (`(KHTML, like Gecko)`). An open bracket without a closing one counts as text.
func CrawlerNames(list string) (names []string) {
	depth, from, closing := 0, 0, strings.Count(list, ")")
	for i := range len(list) {
		switch c := list[i]; {
		case c == ',' && depth == 0:
			names = append(names, strings.TrimSpace(list[from:i]))
			from = i + 1
		case c == '(' && depth < closing:
			depth++
		case c == ')':
			depth, closing = max(0, depth-1), closing-1
		}
	}
	return append(names, strings.TrimSpace(list[from:]))
}

// Following says whose rules a crawler follows on a site.
type Following struct {
	Via     Via      // ViaHTTP if the status of the answer decides
	Name    string   // name in the file; the whole value of the line if Lenient
	Lenient bool     // only the second reading finds the name
	Groups  []uint32 // ascending; empty if no group applies
}

// Follow returns whose rules a crawler follows on a site that this Auditor has judged. Registry names that are not
// product tokens, which no group can name by RFC 9309 §2.2.1, are found by the second reading.
func (a *Auditor) Follow(s *Site, c Crawler) Following {
	if s.Report.Access != parser.AccessConditional {
		return Following{Via: ViaHTTP}
	}
	if c.id >= 0 {
		agent, via, lenient := a.follows(s, c.id, true)
		if lenient {
			return s.leniently(agent, via)
		}
		return s.following(agent, via)
	}
	if c.Token != "*" {
		if agent := s.Robots.Find(c.Token); agent >= 0 {
			return s.following(agent, ViaOwn)
		}
	}
	return s.following(s.Robots.Star(), ViaStar)
}

// following returns the groups of an agent of the file; -1 has none.
func (s *Site) following(agent int, via Via) Following {
	if agent < 0 {
		return Following{Via: ViaNone}
	}
	return Following{Via: via, Name: string(s.Robots.Agent(agent).Name), Groups: s.Robots.AgentGroups(agent)}
}

// leniently returns the groups of the k-th token that only the second reading finds.
func (s *Site) leniently(k int, via Via) Following {
	f := Following{Via: via, Lenient: true, Groups: slices.Clone(s.lenientGroups(k))}
	for i, end := s.Robots.GroupRecords(f.Groups[0]); i < end; i++ {
		if rec := s.Robots.Record(i); rec.Line == s.Report.scratch.lenient[k].line {
			f.Name = string(rec.Value)
		}
	}
	return f
}

// Treatment is how a site's file treats a registry token, and the lines that decide.
type Treatment struct {
	TokenResult
	Group    []byte // the line that begins or joins the group, TokenResult.Line; nil if no group applies
	RuleLine int    // line of the rule that decides whether `/` may be fetched; 0 if none does
	Rule     []byte // that line
}

// Treatment returns how the file of a site that this Auditor has judged treats a registry token. As in the dataset, a
// name that only the second reading finds does not count. The lines are views of the body.
func (a *Auditor) Treatment(s *Site, id int) Treatment {
	t := Treatment{TokenResult: a.tokenResult(s, id)}
	if t.Line == 0 {
		return t
	}
	lines := s.Lines()
	t.Group = lines.Text(t.Line)
	agent, _, _ := a.follows(s, id, false)
	if d := s.Robots.DecideIn(s.Robots.AgentGroups(agent), []byte("/")); d.Record >= 0 {
		t.RuleLine = s.Robots.Record(d.Record).Line
		t.Rule = lines.Text(t.RuleLine)
	}
	return t
}

// Lines are the lines of a site's file.
type Lines struct {
	body   []byte
	starts []uint32
}

// Lines finds where each line of a site's file starts.
func (s *Site) Lines() *Lines {
	l := &Lines{body: s.Fetch.Body}
	for scan := parser.NewScanner(s.Fetch.Body, s.Dialect); scan.Next(); {
		l.starts = append(l.starts, uint32(scan.Line().Start))
	}
	return l
}

// Text returns a line by its number, counted from 1, without the white space around it. It is a view of the body.
func (l *Lines) Text(number int) []byte {
	start, end := int(l.starts[number-1]), len(l.body)
	if number < len(l.starts) {
		end = int(l.starts[number])
	}
	return bytes.TrimSpace(l.body[start:end])
}

// CheckURL rejects text that is neither a URL nor a path. bulkscan does not guess: `private/x` may be a host and a
// path, or a path without its first octet.
func CheckURL(url string) error {
	scheme, rest, whole := strings.Cut(url, "://")
	switch {
	case strings.ContainsFunc(url, func(r rune) bool { return r < ' ' || r == 0x7F }):
		return errors.New("has a control character, which no URL has")
	case strings.HasPrefix(url, "/"):
		return nil
	case !whole || !isScheme(scheme):
		return errors.New("is neither a URL with its scheme (https://…) nor a path that begins with /")
	case (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")) &&
		(rest == "" || strings.ContainsAny(rest[:1], "/?#;")):
		return errors.New("has no host")
	}
	return nil
}

// SpeaksOf returns a function for many URLs. It returns an error if a URL belongs to another site than the fetched one:
// a robots.txt says nothing about other sites (RFC 9309 §2.3). Paths, and all URLs for a local file, pass.
func (s *Site) SpeaksOf() func(url string) error {
	if s.IsFile {
		return func(string) error { return nil }
	}
	home := s.Origin.String()
	return func(url string) error {
		if url[0] == '/' && !strings.HasPrefix(url, "//") {
			return nil
		}
		// Most URLs are spelled as their origin is, and need not be taken apart.
		if rest, ok := strings.CutPrefix(url, home); ok && (rest == "" || rest[0] == '/' || rest[0] == '?' ||
			rest[0] == '#') {
			return nil
		}
		if o, err := origin.Parse(url); err == nil && o.As(s.Origin.Scheme()) == s.Origin.As(o.Scheme()) {
			return nil
		}
		return fmt.Errorf(
			"%q is not of %s, whose robots.txt says nothing about other sites (RFC 9309 §2.3); name the URL's own site by --robots, or give a file", printable.Short(url), home)
	}
}

// HasNoAgent reports whether a judged file that was found has no user-agent line. Files that are no robots.txt have
// none: HTML, UTF-16, random octets.
func (s *Site) HasNoAgent() bool {
	return s.Report.Access == parser.AccessConditional && len(bytes.TrimSpace(s.Fetch.Body)) > 0 &&
		s.Report.Counts.Groups == 0
}

// NamesAnotherFile reports whether a URL names a robots.txt, in any spelling, other than the one of its site.
func NamesAnotherFile(url string) bool {
	whole := string(parser.AppendPath(nil, url))
	path, _, _ := strings.Cut(whole, "?")
	return whole != exchange.RobotsPath && strings.EqualFold(path[strings.LastIndexByte(path, '/'):], exchange.RobotsPath)
}

// isScheme reports whether a URL's scheme can be spelled so (RFC 3986 §3.1).
func isScheme(s string) bool {
	for i, r := range s {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		if !letter && (i == 0 || (r < '0' || r > '9') && r != '+' && r != '-' && r != '.') {
			return false
		}
	}
	return s != ""
}

// Reason says why a URL is allowed or not. It is the stable text of `test --json`.
type Reason string

// Values of Reason.
const (
	ReasonRule        Reason = "rule"           // a line of the file decides
	ReasonNoRule      Reason = "no_rule"        // no line of the groups matches
	ReasonNoGroup     Reason = "no_group"       // no group applies
	ReasonAlways      Reason = "always_allowed" // RFC 9309 §2.2.2: /robots.txt itself
	ReasonNoFile      Reason = "no_file"        // the site has no file
	ReasonUnavailable Reason = "unavailable"    // the server failed
)

// Answer says whether a crawler may fetch a URL, and the reason.
type Answer struct {
	Allow  bool
	Reason Reason
	Record int // index of the deciding record in the file; -1 for none
}

// Tester decides URLs for some crawlers, one URL after the other. It evaluates each distinct set of groups once,
// however many crawlers follow it.
type Tester struct {
	Site       *Site // judged, and unchanged while the Tester is used
	Crawlers   []Crawler
	Followings []Following // in the order of the crawlers

	policy    []int // by following: index into groups; -1 if no group applies
	groups    [][]uint32
	decisions []parser.Decision // for the current URL, by group set
	path      []byte
}

// Tester returns a Tester for crawlers on a site that this Auditor has judged.
func (a *Auditor) Tester(s *Site, crawlers []Crawler) *Tester {
	t := &Tester{Site: s, Crawlers: crawlers}
	for _, c := range crawlers {
		f := a.Follow(s, c)
		policy := -1
		if len(f.Groups) > 0 {
			policy = slices.IndexFunc(t.groups, func(groups []uint32) bool { return slices.Equal(groups, f.Groups) })
			if policy < 0 {
				policy = len(t.groups)
				t.groups = append(t.groups, f.Groups)
			}
		}
		t.Followings, t.policy = append(t.Followings, f), append(t.policy, policy)
	}
	t.decisions = make([]parser.Decision, len(t.groups))
	return t
}

// Decide evaluates a URL for all crawlers; Answer then returns the results. It returns the path that rules are compared
// with, valid until the next call.
func (t *Tester) Decide(url string) (path []byte) {
	t.path = parser.AppendEscapedPath(t.path[:0], url)
	for i, groups := range t.groups {
		t.decisions[i] = t.Site.Robots.DecideIn(groups, t.path)
	}
	return t.path
}

// Answer returns the result of the current URL for the i-th crawler.
func (t *Tester) Answer(i int) Answer {
	policy := t.policy[i]
	switch {
	case t.Site.Report.Access == parser.AccessFullAllow:
		return Answer{true, ReasonNoFile, -1}
	case t.Site.Report.Access != parser.AccessConditional:
		return Answer{false, ReasonUnavailable, -1}
	case policy < 0:
		return Answer{true, ReasonNoGroup, -1}
	}
	switch d := t.decisions[policy]; {
	case d.Record >= 0:
		return Answer{d.Allow, ReasonRule, d.Record}
	case d.Exempt():
		return Answer{true, ReasonAlways, -1}
	}
	return Answer{true, ReasonNoRule, -1}
}

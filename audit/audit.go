package audit

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// The files of this package, in the order in which a site is judged: audit.go has the stages and access; body.go the
// properties of the body; records.go its lines with counts, evidence and the values for each agent; signals.go,
// contentsignal.go and usage.go the values of extension records; check.go the scored check; verdicts.go the verdict of
// each token; advice.go what a site might change; policy.go the file's effect on all crawlers, as a value; crawlers.go
// the verdicts of given crawlers. explain.go renders all of it as texts.

// Auditor judges sites by a registry of tokens. It is safe for concurrent use: everything that changes is in the Site.
type Auditor struct {
	reg       *tokens.Registry
	names     [][]byte   // the names in reg.Tokens
	folded    []string   // the same in lower case
	ranks     []uint16   // by token: its place in the alphabetical order of folded
	byRank    []uint16   // the tokens in that order
	twins     chan *Site // for second readings of files, not in use
	heeding   []uint16   // tokens that follow `*` when no group names them, ascending
	followers [][]uint16 // by token: itself and the tokens that fall back to it

	// for each AI token with gathers: the product tokens of the same operator and purpose, itself included; nil for
	// other tokens
	sameWork [][]uint16
}

// New returns an Auditor for a registry.
func New(reg *tokens.Registry) *Auditor {
	a := &Auditor{reg: reg, names: make([][]byte, len(reg.Tokens)), followers: make([][]uint16, len(reg.Tokens))}
	a.ranks, a.twins = make([]uint16, len(reg.Tokens)), make(chan *Site, keptTwins)
	a.sameWork = make([][]uint16, len(reg.Tokens))
	ai := map[[2]string][]uint16{}
	for i, t := range reg.Tokens {
		if t.Category == "ai" && t.Operator != "unknown" && t.ProductToken && gathers(&t) {
			work := [2]string{t.Operator, t.Purpose}
			ai[work] = append(ai[work], uint16(i))
		}
		a.names[i] = []byte(t.Name)
		a.folded = append(a.folded, strings.ToLower(t.Name))
		a.byRank = append(a.byRank, uint16(i))
		if t.HeedsStar {
			a.heeding = append(a.heeding, uint16(i))
		}
		for _, of := range append([]int{i}, t.Chain...) {
			a.followers[of] = append(a.followers[of], uint16(i))
		}
	}
	slices.SortFunc(a.byRank, func(x, y uint16) int { return strings.Compare(a.folded[x], a.folded[y]) })
	for rank, id := range a.byRank {
		a.ranks[id] = uint16(rank)
	}
	for _, list := range ai {
		for _, id := range list {
			a.sameWork[id] = list
		}
	}
	return a
}

// gathers reports whether a crawler takes content for its operator to keep. Other crawlers of an operator serve
// different products although their purpose is the same: some search, some fetch a page that a person wants.
func gathers(t *tokens.Token) bool { return t.Purpose == "training" || t.Purpose == "data-provider" }

// Registry returns the Auditor's registry.
func (a *Auditor) Registry() *tokens.Registry { return a.reg }

var standard = sync.OnceValue(func() *Auditor { return New(tokens.Default()) })

// Judge is Auditor.Judge with the default registry.
func Judge(s *Site) { standard().Judge(s) }

// Judge reads the site's answer and sets all of Robots and Report, from Fetch alone. It cannot fail. It does not
// allocate once the Site has held an answer of that size.
//
// With access `conditional` the Report describes the file in force. Otherwise there is no such file: the counts are
// zero, no token is named or blocked by rules, and Verdicts has the single row that the status decides, `*` with
// ViaHTTP. If access is unknown, it has no row. BodyHash is always that of Fetch.Body.
func (a *Auditor) Judge(s *Site) {
	r := &s.Report
	if r.scratch == nil || r.scratch.by != nil { // not reset since the last Judge
		r.Reset()
	}
	r.scratch.by = a

	r.Access = parser.AccessConditional
	if !s.IsFile {
		r.Access = AccessOf(s.Fetch.Outcome, s.Fetch.Status)
	}
	if r.Access == parser.AccessConditional {
		s.Robots.ParseDialect(s.Fetch.Body, s.Dialect)
		r.describe(s.Fetch.Body, &s.Robots)
		a.readRecords(s)
	} else {
		s.Robots.Reset()
	}
	r.BodyHash = hashOf(s.Fetch.Body)
	r.Finding = findingOf(s)
	runCheck(s)
	if r.Access == parser.AccessConditional {
		a.judgeTokens(s)
		a.setPolicies(s)
	} else {
		r.judgeByStatus()
	}
	a.advise(s)
}

// Known reports whether anything is known of the site: it is a file, or an HTTP status came from it. Of other sites a
// crawler only knows that it is to wait (RFC 9309 §2.3.1.4).
func (s *Site) Known() bool { return s.IsFile || s.Fetch.Outcome.Asked() && s.Fetch.Status > 0 }

// AccessOf returns the access that an outcome implies. For an answer, RFC 9309 §2.3.1 decides by its status. Redirects
// that lead nowhere count as no file (§2.3.1.2), other failures as a failing server (§2.3.1.4). If no request was made,
// access is unknown.
func AccessOf(outcome exchange.Outcome, status int) parser.Access {
	switch {
	case !outcome.Asked():
		return parser.AccessUnknown
	case outcome == exchange.Answered:
		return parser.AccessFor(status)
	case outcome == exchange.RedirectLimit, outcome == exchange.RedirectInvalid:
		return parser.AccessFullAllow
	}
	return parser.AccessFullDisallow
}

// describe sets the properties of the whole body.
func (r *Report) describe(body []byte, f *parser.File) {
	r.HasBOM = f.HasBOM()
	r.IsHTML = isHTML(body, f.Dialect())
	r.scratch.advice.noise = !r.IsHTML && beginsAsHTML(body)
	plain := isASCII(body)
	r.scratch.advice.plainBytes = plain
	switch {
	case len(body) == 0:
		r.ValidUTF8 = exchange.Unknown
	case plain || utf8.Valid(body):
		r.ValidUTF8 = exchange.Yes
	default:
		r.ValidUTF8 = exchange.No
	}
	if manager := managedBy(body); manager >= 0 {
		r.ManagedBy = managers[manager].name
		r.ManagedBlock = r.ManagedBy == "cloudflare"
	}
	if r.IsHTML {
		r.HTMLTitle = titleOf(body)
	}
}

// hashOf returns the xxh64 of a body, 0 for no body. A body whose hash is 0 gets 1, since 0 in the column means no
// body.
func hashOf(body []byte) uint64 {
	if len(body) == 0 {
		return 0
	}
	return max(xxhash.Sum64(body), 1)
}

package audit

import (
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// The files of this package, in the order in which a site is judged: audit.go, the list of stages and access; body.go,
// what a body is as a whole; records.go, its lines: counts, evidence, what belongs to agents; signals.go, the values of
// extension records; check.go, the scored check; verdicts.go, what each token may do; crawlers.go, the same for crawlers
// that are asked for. explain.go says it all to people.

// Auditor judges sites against a registry of tokens. It may be shared among goroutines: all that changes lies in the
// Site.
type Auditor struct {
	reg       *tokens.Registry
	names     [][]byte   // Tokens[i].Name
	heeding   []uint16   // tokens that follow `*` when no group names them, ascending
	followers [][]uint16 // by token: itself, and those that fall back to it
}

// New returns an Auditor that knows the registry's tokens.
func New(reg *tokens.Registry) *Auditor {
	a := &Auditor{reg: reg, names: make([][]byte, len(reg.Tokens)), followers: make([][]uint16, len(reg.Tokens))}
	for i, t := range reg.Tokens {
		a.names[i] = []byte(t.Name)
		if t.HeedsStar {
			a.heeding = append(a.heeding, uint16(i))
		}
		for _, of := range append([]int{i}, t.Chain...) {
			a.followers[of] = append(a.followers[of], uint16(i))
		}
	}
	return a
}

// Registry returns the tokens that the Auditor knows.
func (a *Auditor) Registry() *tokens.Registry { return a.reg }

var standard = sync.OnceValue(func() *Auditor { return New(tokens.Default()) })

// Judge is Auditor.Judge with the default registry.
func Judge(s *Site) { standard().Judge(s) }

// Judge reads the site's answer and fills Robots and Report, completely and from nothing else than Fetch. It cannot
// fail, and once the Site has met answers as large, it does not allocate.
//
// With access `conditional` the Report tells of the file in force. Otherwise there is none: the counts are zero, no
// token is named or blocked by rules, and Verdicts holds the one row that the status decides, `*` by ViaHTTP; not even
// that where we did not ask, for then nothing is known. BodyHash is always that of Fetch.Body.
func (a *Auditor) Judge(s *Site) {
	r := &s.Report
	if r.scratch == nil || r.scratch.by != nil { // not just reset
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
	runCheck(s)
	if r.Access == parser.AccessConditional {
		a.judgeTokens(s)
	} else {
		r.judgeByStatus()
	}
}

// AccessOf says what an outcome means for access. An answer means what RFC 9309 §2.3.1 says of its status. Redirects
// that lead nowhere are no file (§2.3.1.2); other failures are a failing server (§2.3.1.4); whom we did not ask, we
// know nothing of.
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

// describe notes what a body is as a whole.
func (r *Report) describe(body []byte, f *parser.File) {
	r.HasBOM = f.HasBOM()
	r.IsHTML = isHTML(body)
	switch {
	case len(body) == 0:
		r.ValidUTF8 = exchange.Unknown
	case isASCII(body) || utf8.Valid(body):
		r.ValidUTF8 = exchange.Yes
	default:
		r.ValidUTF8 = exchange.No
	}
	r.ManagedBlock = hasManagedBlock(body)
}

// hashOf returns the xxh64 of a body, 0 for none. A body whose hash is 0 gets 1: the column's 0 means that there is no
// body.
func hashOf(body []byte) uint64 {
	if len(body) == 0 {
		return 0
	}
	return max(xxhash.Sum64(body), 1)
}

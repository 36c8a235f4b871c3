// Package audit answers one question: what do we make of it? It judges a site's answer: access, the check `robots.txt
// 1.0.0` with its steps and evidence, and for each crawler token whether the site blocks it.
package audit

import (
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// Site is one row in the making: a list entry, its answer, its file, and the judgement. It is reused. One goroutine
// uses it at a time.
type Site struct {
	Seq    uint64        // 0-based line over all inputs
	Input  string        // as listed
	Label  string        // from the list; "" for none
	Rank   int64         // from the list; 0 for none
	Origin origin.Origin // as listed; the scheme may be Auto
	Domain string        // Origin's registrable domain; "" for none
	ICANN  string        // Origin's registrable domain without companies' suffixes, where it differs; else ""
	TLD    string        // Origin's top-level domain; "" for none

	Dialect parser.Dialect // dialect in which Judge parses the file; a scan uses the zero value, Google

	IsFile bool // Fetch has only a body read from a local file, and whether it was cut
	Fetch  exchange.Response
	Robots parser.File // views Fetch.Body
	Report Report      // views Fetch.Body and Robots
}

// SetOrigin sets the Origin, and what the public suffix list says of its host.
func (s *Site) SetOrigin(o origin.Origin) {
	s.Origin, s.Domain, s.ICANN, s.TLD = o, o.RegistrableDomain(), o.ICANNDomain(), o.TLD()
}

// Reset prepares the Site for another origin. It keeps the memory that it owns, up to a bound. Views are reset before
// the bytes that they refer to.
func (s *Site) Reset() {
	s.Report.Reset()
	s.Robots.Reset()
	s.Fetch.Reset()
	s.IsFile, s.Dialect = false, 0
	s.Seq, s.Input, s.Label, s.Rank = 0, "", "", 0
	s.Origin, s.Domain, s.ICANN, s.TLD = origin.Origin{}, "", "", ""
}

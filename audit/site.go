// Package audit answers one question: what do we make of it? It judges a site's answer: access, the check
// `robots.txt 1.0.0` with its steps and evidence, and for every crawler token whether the site blocks it.
package audit

import (
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/parser"
)

// Site is one row in the making: a list entry, what its exchange left, what its file says, and what we make of it.
// It is reused, and one goroutine holds it at a time.
type Site struct {
	Seq    uint64        // 0-based line over all inputs
	Input  string        // as listed
	Label  string        // from the list; "" where there is none
	Rank   int64         // from the list; 0 where there is none
	Origin origin.Origin // as listed; the scheme may be Auto
	Domain string        // Origin's registrable domain; "" where it has none
	TLD    string        // Origin's top-level domain; "" where it has none

	Dialect parser.Dialect // by which Judge reads the file; a scan reads by the zero value, Google

	IsFile bool // no site was asked: Fetch has a body that was read from a file, and whether it was cut, and nothing else
	Fetch  exchange.Response
	Robots parser.File // views Fetch.Body
	Report Report      // views Fetch.Body and Robots
}

// Reset makes the Site ready for another origin. It keeps the memory that it owns, up to a bound. Views are reset
// before what they view.
func (s *Site) Reset() {
	s.Report.Reset()
	s.Robots.Reset()
	s.Fetch.Reset()
	s.IsFile, s.Dialect = false, 0
	s.Seq, s.Input, s.Label, s.Rank = 0, "", "", 0
	s.Origin, s.Domain, s.TLD = origin.Origin{}, "", ""
}

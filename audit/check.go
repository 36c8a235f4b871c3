package audit

import (
	"fmt"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Identity of the check in `check --json` and docs/CHECKS.md.
const (
	CheckID          = "robots.txt"
	CheckVersion     = "1.0.0"
	CheckSuite       = "2026.06.10"
	CheckTitle       = "robots.txt"
	CheckCategory    = "AI Discoverability"
	CheckSubcategory = "Discoverability"
	CheckGroup       = "Crawl Discovery"
	CheckGroupID     = "crawl-discovery"
	CheckMaturity    = "Established"
	CheckScope       = "site"
	CheckResource    = "/robots.txt"
	CheckWeight      = 1.0
)

// Reading is the version of how this package reads a body. It moves whenever a stored body would get other rows by the
// same registry. The history distinguishes such a change from a change of the file. The check, its steps and weights
// are those of CheckVersion.
//
// 2: Content-Signal adds up and may have a path; usage records of drafts are no rules; output of a server before the
// first record makes no page.
const Reading = 2

// The steps of the check in the order in which they run, indices into Report.Steps.
const (
	StepFetch = iota
	StepCoreSyntax
	StepExtensions
	numSteps
)

// steps has the name, specification and weight of each step.
var steps = [numSteps]struct {
	id, title, cite string
	weight          float64
}{
	StepFetch:      {"fetch", "Fetch robots.txt", "RFC 9309 §2.3", 0.30},
	StepCoreSyntax: {"core-syntax", "Validate RFC 9309 core syntax", "RFC 9309 §2.2", 0.45},
	StepExtensions: {"extensions", "Classify extension records", "RFC 9309 §2.2.4", 0.25},
}

// runCheck sets Steps, Score and Status. The first two steps are required: if one fails, the check fails and the later
// steps are skipped. The last step never fails.
func runCheck(s *Site) {
	r := &s.Report
	r.Status, r.Score, r.Steps = Fail, 0, [numSteps]Status{}
	if !s.hasFile() {
		r.Steps[StepFetch] = Fail
		return
	}
	r.Steps[StepFetch] = Pass
	r.Score += steps[StepFetch].weight
	if r.scratch.validAgent == 0 {
		r.Steps[StepCoreSyntax] = Fail
		return
	}
	r.Steps[StepCoreSyntax] = Pass
	r.Score += steps[StepCoreSyntax].weight
	r.Status = Pass
	if r.Counts.Legacy > 0 {
		r.Status = Warn
	}
	r.Steps[StepExtensions] = r.Status
	r.Score += steps[StepExtensions].weight
}

// hasFile reports whether the exchange returned a file.
func (s *Site) hasFile() bool {
	return s.IsFile || s.Fetch.Outcome == exchange.Answered && s.Fetch.Status >= 200 && s.Fetch.Status <= 299
}

// explainStep explains the result of a step in one sentence.
func (s *Site) explainStep(step int) string {
	switch {
	case s.Report.Steps[step] == Skipped:
		return "Skipped, since a step before it failed."
	case step == StepFetch:
		return s.explainFetch()
	case step == StepCoreSyntax:
		return s.explainCoreSyntax()
	}
	return s.explainExtensions()
}

func (s *Site) explainFetch() string {
	f := &s.Fetch
	switch {
	case s.IsFile && f.Truncated:
		return fmt.Sprintf("It was read from a file, and cut at %d bytes.", f.CutAt)
	case s.IsFile:
		return fmt.Sprintf("It was read from a file; it has %d bytes.", len(f.Body))
	case f.Outcome != exchange.Answered && f.Cause.String() != "":
		return fmt.Sprintf("No usable answer came: %s (%s).", f.Outcome, f.Cause)
	case f.Outcome != exchange.Answered:
		return fmt.Sprintf("No usable answer came: %s.", f.Outcome)
	case !s.hasFile():
		return fmt.Sprintf("The final status is %d, so the site publishes no file.", f.Status)
	case f.Truncated:
		return fmt.Sprintf("The final status is %d; the body was cut at %d bytes.", f.Status, f.CutAt)
	}
	return fmt.Sprintf("The final status is %d; the body has %d bytes.", f.Status, len(f.Body))
}

func (s *Site) explainCoreSyntax() string {
	if line := s.Report.scratch.validAgent; line > 0 {
		return fmt.Sprintf("The first valid group begins on line %d.", line)
	}
	if s.Report.Counts.Groups > 0 {
		return "Groups are present, but no user-agent line is spelled as RFC 9309 has it."
	}
	return "There is no user-agent line."
}

func (s *Site) explainExtensions() string {
	n := &s.Report.Counts
	text := fmt.Sprintf("Sitemaps: %d; other known extensions: %d; unknown records: %d.", n.Sitemaps, n.Extensions,
		n.Unknown)
	if n.Legacy > 0 {
		text += fmt.Sprintf(" Unsupported legacy records: %d; use robots meta tags or X-Robots-Tag instead.", n.Legacy)
	}
	return text
}

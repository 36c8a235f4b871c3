package audit

import (
	"fmt"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Check is a scored check: what it is called, where it stands in its suite, and its steps.
type Check struct {
	ID, Version, Suite        string
	Title, Abstract           string
	Category, Subcategory     string
	Group, GroupID            string
	Maturity, Scope, Resource string
	Weight                    float64
	Steps                     [3]Step // in the order in which they run, indexed by StepFetch …
}

// Step is one step of a check. Its weight counts for the score where it passes or warns.
type Step struct {
	ID, Title, Cite string
	Weight          float64
	Required        bool // if it fails, the check fails and the steps behind it are skipped

	Passes, Warns string // when, in words for the documentation; Warns is empty where it never does

	Run     func(*Site) Status // never Skipped
	Explain func(*Site) string // why Run said so, in one sentence for people
}

// Checks is the table of all checks that Judge runs; docs/CHECKS.md is written from it.
var Checks = [...]*Check{&RobotsTxt}

// RobotsTxt is the check of a site's robots.txt.
var RobotsTxt = Check{
	ID: "robots.txt", Version: "1.0.0", Suite: "2026.06.10",
	Title:    "robots.txt",
	Abstract: "A site publishes a robots.txt file that can be fetched and parsed.",
	Category: "AI Discoverability", Subcategory: "Discoverability",
	Group: "Crawl Discovery", GroupID: "crawl-discovery",
	Maturity: "Established", Scope: "site", Resource: "/robots.txt",
	Weight: 1,
	Steps: [3]Step{
		StepFetch: {
			ID: "fetch", Title: "Fetch robots.txt", Cite: "RFC 9309 §2.3", Weight: 0.30, Required: true,
			Passes: "An answer came, its final status is 2xx, and no more redirects were needed than are followed. " +
				"A body that was cut at the size limit passes.",
			Run: runFetch, Explain: explainFetch,
		},
		StepCoreSyntax: {
			ID: "core-syntax", Title: "Validate RFC 9309 core syntax", Cite: "RFC 9309 §2.2", Weight: 0.45, Required: true,
			Passes: "There is a valid group, with or without rules: a line whose key is spelled `user-agent`, colon " +
				"included, and whose whole value is `*`, a product token (letters, `-`, `_`) or a name that the registry knows.",
			Run: runCoreSyntax, Explain: explainCoreSyntax,
		},
		StepExtensions: {
			ID: "extensions", Title: "Classify extension records", Cite: "RFC 9309 §2.2.4", Weight: 0.25,
			Passes: "The records outside the core were classified. This step never fails.",
			Warns:  "A record is present that was never standard and that nobody supports any longer: `noindex`, `nofollow`, `noarchive`.",
			Run:    runExtensions, Explain: explainExtensions,
		},
	},
}

// runCheck fills Steps, Score and Status.
func runCheck(s *Site) {
	r := &s.Report
	r.Status, r.Score, r.Steps = Pass, 0, [3]Status{}
	for i := range RobotsTxt.Steps {
		step := &RobotsTxt.Steps[i]
		status := step.Run(s)
		r.Steps[i] = status
		switch status {
		case Pass, Warn:
			r.Score += step.Weight
		}
		if status == Warn {
			r.Status = Warn
		}
		if status == Fail && step.Required {
			r.Status = Fail
			return
		}
	}
}

func runFetch(s *Site) Status {
	return passIf(s.IsFile || s.Fetch.Outcome == exchange.Answered && s.Fetch.Status >= 200 && s.Fetch.Status <= 299)
}

func explainFetch(s *Site) string {
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
	case runFetch(s) == Fail:
		return fmt.Sprintf("The final status is %d, so the site publishes no file.", f.Status)
	case f.Truncated:
		return fmt.Sprintf("The final status is %d; the body was cut at %d bytes.", f.Status, f.CutAt)
	}
	return fmt.Sprintf("The final status is %d; the body has %d bytes.", f.Status, len(f.Body))
}

func runCoreSyntax(s *Site) Status { return passIf(s.Report.scratch.validAgent > 0) }

func explainCoreSyntax(s *Site) string {
	if line := s.Report.scratch.validAgent; line > 0 {
		return fmt.Sprintf("The first valid group begins on line %d.", line)
	}
	if s.Report.Counts.Groups > 0 {
		return "Groups are present, but no user-agent line is spelled as RFC 9309 has it."
	}
	return "There is no user-agent line."
}

func runExtensions(s *Site) Status {
	if s.Report.Counts.Legacy > 0 {
		return Warn
	}
	return Pass
}

func explainExtensions(s *Site) string {
	n := &s.Report.Counts
	text := fmt.Sprintf("Sitemaps: %d; other known extensions: %d; unknown records: %d.", n.Sitemaps, n.Extensions, n.Unknown)
	if n.Legacy > 0 {
		text += fmt.Sprintf(" Unsupported legacy records: %d; use robots meta tags or X-Robots-Tag instead.", n.Legacy)
	}
	return text
}

func passIf(ok bool) Status {
	if ok {
		return Pass
	}
	return Fail
}

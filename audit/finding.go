package audit

import (
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Finding is the class of a site in surveys: what was seen, in one word. parser.Access is a crawler's reading of the
// same answer.
type Finding uint8

// The findings, in the order in which they are decided: the first whose condition holds is the site's. The zero value
// is FindingNotAsked.
const (
	FindingNotAsked Finding = iota
	FindingChallenged
	FindingRateLimited
	FindingUnreachable
	FindingServerError
	FindingRefused
	FindingNone
	FindingHTML
	FindingNoRules
	FindingRules
	NumFindings
)

var findings = [NumFindings]struct{ name, meaning string }{
	FindingNotAsked: {"not_asked", "the site was not asked: `opted_out`, `blocked_address`, `not_archived`, `carried`"},
	FindingChallenged: {"challenged",
		"the last response is a bot challenge by a documented header field, whatever its status; `challenge` says whose"},
	FindingRateLimited: {"rate_limited", "429, to the last retry"},
	FindingUnreachable: {"unreachable",
		"no usable answer: another outcome than `answered` and `redirect_…`, or a status outside 200 to 599"},
	FindingServerError: {"server_error", "5xx, or 408 to the last retry"},
	FindingRefused:     {"refused", "any other 4xx but 404 and 410"},
	FindingNone:        {"none", "404, 410, too many redirects, or an invalid one: there is no file"},
	FindingHTML: {"html",
		"2xx with an HTML page, also one with rules in it, or with binary data that has no such record"},
	FindingNoRules: {"no_rules", "2xx with text in which no record has a known key, or with an empty body"},
	FindingRules: {"rules",
		"2xx with at least one record with a known key: of the core or a known extension, valid or not, and not legacy"},
}

// String returns the stable text of the dataset's column `finding`.
func (f Finding) String() string {
	if f < NumFindings {
		return findings[f].name
	}
	return "?"
}

// FindingNamed returns the finding of a text; ok is false if this version has no such finding.
func FindingNamed(text string) (f Finding, ok bool) {
	for f = range NumFindings {
		if findings[f].name == text {
			return f, true
		}
	}
	return 0, false
}

// IsGap reports whether a finding says nothing of the site's policy. The others are observations.
func (f Finding) IsGap() bool {
	switch f {
	case FindingNotAsked, FindingChallenged, FindingRateLimited, FindingUnreachable, FindingServerError:
		return true
	}
	return false
}

// MayHideRules reports whether the answer stands in place of a file: it is unknown whether a file with rules exists.
func (f Finding) MayHideRules() bool { return f == FindingRefused || f == FindingHTML }

// Meaning says when a site has the finding, as a phrase for documents.
func (f Finding) Meaning() string {
	if f < NumFindings {
		return findings[f].meaning
	}
	return ""
}

// findingOf decides a site's finding from its answer and what its body is. A local file counts as one that a site
// answered with.
func findingOf(s *Site) Finding {
	f, r := &s.Fetch, &s.Report
	if !s.IsFile {
		switch {
		case !f.Outcome.Asked():
			return FindingNotAsked
		case f.HasStatus() && f.Fields.Challenge != "":
			return FindingChallenged
		case f.Status == 429:
			return FindingRateLimited
		case f.Outcome == exchange.RedirectLimit, f.Outcome == exchange.RedirectInvalid:
			return FindingNone
		case f.Outcome != exchange.Answered, f.Status < 200, f.Status > 599:
			return FindingUnreachable
		case f.Status >= 500, f.Status == 408: // a server that did not wait for the request says nothing of its policy
			return FindingServerError
		case f.Status == 404, f.Status == 410, f.Status >= 300 && f.Status < 400:
			return FindingNone
		case f.Status >= 400:
			return FindingRefused
		}
	}
	switch {
	case r.IsHTML:
		return FindingHTML
	case r.Counts.Records-r.Counts.Legacy-r.Counts.Unknown > 0: // also with a stray control character in the file
		return FindingRules
	case isBinary(f.Body):
		return FindingHTML
	}
	return FindingNoRules
}

// isBinary reports whether a body is no text: it has a binary data byte among its first 1,445 (WHATWG MIME Sniffing
// §7.2), and no mark of UTF-16 before it.
func isBinary(body []byte) bool {
	if hasUTF16Mark(body) {
		return false
	}
	for _, c := range body[:min(len(body), 1445)] {
		if c <= 0x08 || c == 0x0B || c >= 0x0E && c <= 0x1A || c >= 0x1C && c <= 0x1F {
			return true
		}
	}
	return false
}

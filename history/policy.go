package history

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
)

// The classes of policies: the findings (audit.Finding) that are observations.
const (
	ClassRules   = "rules"
	ClassNoRules = "no_rules"
	ClassHTML    = "html"
	ClassNone    = "none"
	ClassRefused = "refused"
)

// The classes of gaps that are no findings: the site was not on the list, or an archive has repeated an earlier answer,
// which is an outcome.
const (
	Unlisted = "unlisted"
	Carried  = "carried"
)

// ofFile reports whether a class is a judge's result for a file.
func ofFile(class string) bool { return class != ClassNone && class != ClassRefused }

// isGap reports whether a finding says nothing of the site's policy. An unknown word does not, either.
func isGap(finding string) bool {
	f, known := audit.FindingNamed(finding)
	return !known || f.IsGap()
}

// Policy is a row of the ledger's table policies; its view is history_policies. It has the verdicts of `*` and of
// tokens with a group of their own only: with the verdicts of all tokens, a registry that gains one token would change
// nearly every site's policy.
type Policy struct {
	ID            int64    `json:"policy_id,string" parquet:"policy_id" about:"hash of all other columns" example:"6151466271542271102"`
	Class         string   `json:"class" parquet:"class,dict" about:"finding: rules, no_rules, html, none, refused; all following columns are empty or null unless it is rules" example:"rules"`
	StarVerdict   string   `json:"star_verdict,omitzero" parquet:"star_verdict,optional,dict" about:"as in sites" example:"partial"`
	OwnBlocked    []string `json:"own_blocked,omitempty" parquet:"own_blocked,list" parquet-element:",dict" about:"registry tokens that a group of their own blocks, sorted" example:"[\"CCBot\", \"GPTBot\"]"`
	OwnPartial    []string `json:"own_partial,omitempty" parquet:"own_partial,list" parquet-element:",dict" about:"registry tokens that a group of their own blocks partly" example:"[\"Googlebot\"]"`
	OwnAllowed    []string `json:"own_allowed,omitempty" parquet:"own_allowed,list" parquet-element:",dict" about:"registry tokens that a group of their own allows" example:"[]"`
	ContentSignal string   `json:"content_signal,omitzero" parquet:"content_signal,optional,plain" about:"as in sites" example:"search=yes, ai-train=no"`
	ContentUsage  string   `json:"content_usage,omitzero" parquet:"content_usage,optional,plain" about:"as in sites" example:"train-ai=n"`
	License       string   `json:"license,omitzero" parquet:"license,optional,plain" about:"as in sites" example:"https://example.co.uk/license.xml"`
	Managed       string   `json:"managed,omitzero" parquet:"managed,optional,dict" about:"managed_by in sites" example:"cloudflare"`
}

// Canonical returns the policy with sorted lists, without what its class does not have, and with its id.
func (p Policy) Canonical() Policy {
	if p.Class != ClassRules {
		p = Policy{Class: p.Class}
	}
	for _, list := range []*[]string{&p.OwnBlocked, &p.OwnPartial, &p.OwnAllowed} {
		*list = slices.Compact(slices.Sorted(slices.Values(*list)))
	}
	p.ID = int64(xxhash.Sum64(p.content(nil)))
	return p
}

// policySet has policies by their ids.
type policySet map[int64]*Policy

// intern keeps a copy of a policy, and returns it.
func (s policySet) intern(p Policy) *Policy {
	p = p.Canonical()
	if known := s[p.ID]; known != nil {
		return known
	}
	for _, text := range []*string{&p.Class, &p.StarVerdict, &p.ContentSignal, &p.ContentUsage, &p.License, &p.Managed} {
		*text = strings.Clone(*text)
	}
	for _, list := range [][]string{p.OwnBlocked, p.OwnPartial, p.OwnAllowed} {
		for i := range list {
			list[i] = strings.Clone(list[i])
		}
	}
	s[p.ID] = &p
	return &p
}

// content appends the bytes whose hash is the id. Each text and each list follows its length.
func (p *Policy) content(b []byte) []byte {
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(p.Class)
	text(p.StarVerdict)
	for _, list := range [][]string{p.OwnBlocked, p.OwnPartial, p.OwnAllowed} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, token := range list {
			text(token)
		}
	}
	text(p.ContentSignal)
	text(p.ContentUsage)
	text(p.License)
	text(p.Managed)
	return b
}

// cells returns the cell of each token of a registry by a policy with rules. The cells lack what the ledger does not
// keep: CellRoot and CellDPIAll, and whether there is a group of `*` that denies nothing.
func (p *Policy) cells(registry *tokens.Registry) []audit.Cell {
	kept := siterows.PolicyOf(&schema.PolicyRow{
		Star: p.StarVerdict != audit.Allowed.String(), StarVerdict: p.StarVerdict,
		Own: slices.Concat(p.OwnBlocked, p.OwnPartial, p.OwnAllowed), OwnBlocked: p.OwnBlocked, OwnPartial: p.OwnPartial,
	}, registry)
	return kept.Cells(nil, registry)
}

// causeOf returns why a policy gave way to another, by their classes.
func causeOf(from, to string) Cause {
	switch {
	case from == to:
		return ByPolicy
	case from == ClassRefused || to == ClassRefused:
		return ByRefusal
	}
	return ByPresence
}

package nightly

import (
	"cmp"
	"context"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/survey"
)

// gaps are the findings that say nothing of a site's policy.
var gaps = func() map[string]bool {
	m := map[string]bool{}
	for f := range audit.NumFindings {
		m[f.String()] = f.IsGap()
	}
	return m
}()

const findingRules = "rules"

// Count counts the figures of a scan in one pass over its table sites.
func Count(ctx context.Context, scan *commit.Scan, o survey.Options) (*Figures, error) {
	blocking, err := survey.BlockingPolicies(ctx, scan, o)
	if err != nil {
		return nil, err
	}
	f := &Figures{Findings: map[string]int64{}, CDNs: map[string]*CDN{}}
	var row schema.SiteRow
	fields := []table.Field{
		{Name: "finding", Into: &row.Finding}, {Name: "outcome", Into: &row.Outcome}, {Name: "cdn", Into: &row.CDN},
		{Name: "policy_id", Into: &row.PolicyID},
	}
	err = survey.EachSite(ctx, scan, fields, func() { f.add(&row, blocking[row.PolicyID]) })
	return f, cmp.Or(err, ctx.Err())
}

// add counts a site. The texts of a row share memory with its page, so keys are copies.
func (f *Figures) add(row *schema.SiteRow, blocks bool) {
	f.Sites++
	count(f.Findings, row.Finding)
	if strings.HasPrefix(row.Outcome, "dns_") {
		f.DNSFailed++
	}
	if row.Finding == findingRules {
		f.Rules++
		if blocks {
			f.Blocked++
		}
	}
	cdn := f.CDNs[row.CDN]
	if cdn == nil {
		cdn = &CDN{Findings: map[string]int64{}}
		f.CDNs[strings.Clone(row.CDN)] = cdn
	}
	cdn.Sites++
	count(cdn.Findings, row.Finding)
}

func count(counts map[string]int64, key string) {
	if _, ok := counts[key]; !ok {
		key = strings.Clone(key)
	}
	counts[key]++
}

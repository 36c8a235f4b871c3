package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Paired is what two observers saw of one list at about the same time. Programs rely on its JSON; docs/diff.md describes
// each field.
type Paired struct {
	Compared
	SameObserver bool `json:"same_observer"`

	OnlyFrom int64 `json:"only_from"` // sites that only one of the scans has
	OnlyTo   int64 `json:"only_to"`

	All  PairedSum   `json:"all"`
	CDNs []PairedSum `json:"by_cdn"` // the one with the most sites first
}

// PairedSum counts the sites of both scans with a delivery network.
type PairedSum struct {
	CDN          string   `json:"cdn"` // by either scan; empty without one, and for all
	Sites        int64    `json:"sites"`
	OtherFinding int64    `json:"other_finding"`
	Rules        int64    `json:"rules"` // of Sites: finding rules in both
	OtherBody    int64    `json:"other_body"`
	OtherPolicy  int64    `json:"other_policy"`
	ShareFinding *float64 `json:"share_other_finding"` // of Sites; nil without any
	ShareBody    *float64 `json:"share_other_body"`    // of Rules; nil without any
	SharePolicy  *float64 `json:"share_other_policy"`  // likewise
}

// ComparePaired compares what two observers saw. It takes no lock and writes nothing.
func ComparePaired(ctx context.Context, from, to ScanAt, o DiffOptions) (*Paired, error) {
	c, err := newComparison(ctx, from, to, &o)
	if err != nil {
		return nil, err
	}
	d := &Paired{SameObserver: c.sameObserver()}
	byCDN := map[uint32]*PairedSum{}
	err = c.join(ctx, false, func(before, after *siteState) error {
		if before == nil {
			d.OnlyTo++
			return nil
		}
		id := after.cdn
		if c.cdns.values[id] == "" {
			id = before.cdn
		}
		if byCDN[id] == nil {
			byCDN[id] = &PairedSum{CDN: c.cdns.values[id]}
		}
		for _, sum := range []*PairedSum{&d.All, byCDN[id]} {
			sum.add(c, before, after)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot compare scan %s with scan %s: %w", from.ScanID, to.ScanID, err)
	}
	d.Compared = c.compareds()
	d.OnlyFrom = c.before.sites - c.both
	d.All.finish()
	d.CDNs = []PairedSum{}
	for _, sum := range byCDN {
		sum.finish()
		d.CDNs = append(d.CDNs, *sum)
	}
	slices.SortFunc(d.CDNs, func(a, b PairedSum) int { return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.CDN, b.CDN)) })
	if top := o.Top; top > 0 {
		d.CDNs = d.CDNs[:min(top, len(d.CDNs))]
	}
	return d, nil
}

// add counts a site.
func (p *PairedSum) add(c *comparison, before, after *siteState) {
	p.Sites++
	p.OtherFinding += one(before.finding != after.finding)
	if before.ruled() && after.ruled() {
		p.Rules++
		p.OtherBody += one(before.body != after.body)
		p.OtherPolicy += one(c.otherPolicy(before, after))
	}
}

func (p *PairedSum) finish() {
	of := func(n, all int64) *float64 {
		if all == 0 {
			return nil
		}
		s := share(n, all)
		return &s
	}
	p.ShareFinding, p.ShareBody, p.SharePolicy = of(p.OtherFinding, p.Sites), of(p.OtherBody, p.Rules), of(p.OtherPolicy, p.Rules)
}

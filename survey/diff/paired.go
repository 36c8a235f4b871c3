package diff

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/survey"
)

// Paired is what two observers saw of one list at about the same time. Programs rely on its JSON; docs/FIELDS.md
// describes each field.
type Paired struct {
	Compared
	SameObserver bool `json:"same_observer" about:"false: the scans are of two observers"`

	OnlyFrom int64 `json:"only_from" about:"sites of the first scan only"`
	OnlyTo   int64 `json:"only_to" about:"sites of the second scan only"`

	All  PairedSum   `json:"all" about:"all sites"`
	CDNs []PairedSum `json:"by_cdn" about:"by delivery network, at most --top"`
}

// PairedSum counts the sites of both scans with a delivery network.
type PairedSum struct {
	CDN          string   `json:"cdn" about:"empty; in by_cdn the delivery network by either scan, the later first, or empty without one"`
	Sites        int64    `json:"sites" about:"in both scans"`
	OtherFinding int64    `json:"other_finding" about:"of sites: another finding"`
	Rules        int64    `json:"rules" about:"of sites: finding rules in both"`
	OtherBody    int64    `json:"other_body" about:"of rules: another file"`
	OtherPolicy  int64    `json:"other_policy" about:"of rules: another verdict for a compared token"`
	ShareFinding *float64 `json:"share_other_finding" about:"of sites"`
	ShareBody    *float64 `json:"share_other_body" about:"of rules"`
	SharePolicy  *float64 `json:"share_other_policy" about:"of rules"`
}

// Observers compares what two observers saw. It takes no lock and writes nothing.
func Observers(ctx context.Context, from, to ScanAt, o Options) (*Paired, error) {
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
	slices.SortFunc(d.CDNs, func(a, b PairedSum) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.CDN, b.CDN))
	})
	if top := o.Top; top > 0 {
		d.CDNs = d.CDNs[:min(top, len(d.CDNs))]
	}
	return d, nil
}

func (p *PairedSum) add(c *comparison, before, after *siteState) {
	p.Sites++
	p.OtherFinding += survey.One(before.finding != after.finding)
	if before.ruled() && after.ruled() {
		p.Rules++
		p.OtherBody += survey.One(before.body != after.body)
		p.OtherPolicy += survey.One(c.otherPolicy(before, after))
	}
}

func (p *PairedSum) finish() {
	of := func(n, all int64) *float64 {
		if all == 0 {
			return nil
		}
		s := survey.Share(n, all)
		return &s
	}
	p.ShareFinding, p.ShareBody, p.SharePolicy = of(p.OtherFinding, p.Sites), of(p.OtherBody, p.Rules),
		of(p.OtherPolicy, p.Rules)
}

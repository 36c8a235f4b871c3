package survey

import (
	"fmt"
	"math"
	"strconv"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// This file decides which groups of sites a reader may be told that they lead, and how sure a share of sites is.

const (
	LeastGroup = 30  // Uncertainty.LeastGroup by default
	FewSites   = 100 // a group of fewer sites is flagged
)

// Uncertainty says how many sites a group needs, and of what the sites listed are a sample. The zero value has neither.
type Uncertainty struct {
	LeastGroup int64 `json:"least_group"` // sites that a headline, a ranking and an extreme need
	SampleOf   int64 `json:"sample_of"`   // sites of which those listed are a sample; 0 for a full list

	listed int64
}

// Certainty says how sure a share is. Both are from a least to a greatest share, and nil where they are unknown.
type Certainty struct {
	Interval *[2]float64 `json:"interval"` // where 95 % of samples have the population's share; nil for a full list
	Bounds   *[2]float64 `json:"bounds"`   // each site that was not observed is open, and each blocks
}

// uncertaintyOf takes what the options say of a scan with so many sites, else what its --sample does.
func (o *Options) uncertaintyOf(m *commit.Manifest, listed int64) (Uncertainty, error) {
	u := Uncertainty{LeastGroup: o.LeastGroup, SampleOf: o.SampleOf, listed: listed}
	if u.SampleOf > 0 && u.SampleOf < listed {
		return u, fmt.Errorf("a sample of %d sites: the scan lists %d, so --sample-of is at least that", u.SampleOf, listed)
	}
	if share, err := strconv.ParseFloat(given(m, "sample"), 64); u.SampleOf == 0 && err == nil && share > 0 && share < 1 {
		u.SampleOf = int64(min(math.Round(float64(listed)/share), 1<<53))
	}
	return u, nil
}

// Enough reports whether a group of n sites may be in a headline or a ranking, or be an extreme.
func (u *Uncertainty) Enough(n int64) bool { return n >= u.LeastGroup }

// Flagged reports whether a group of n sites is enough, but few.
func (u *Uncertainty) Flagged(n int64) bool { return u.Enough(n) && n < FewSites }

// Of says how sure it is that k sites of n block, where unobserved sites may belong to the n, too; -1 is an unknown number.
func (u *Uncertainty) Of(k, n, unobserved int64) (c Certainty) {
	if u.SampleOf > 0 && n > 0 {
		// Of the population, the same part belongs to the n as of the sample.
		low, high := interval(k, n, float64(n)*(float64(u.SampleOf)/float64(max(u.listed, n))))
		c.Interval = &[2]float64{low, high}
	}
	if open, blocking := bounds(k, n, unobserved); unobserved >= 0 && open.of > 0 {
		c.Bounds = &[2]float64{share(open.sites, open.of), share(blocking.sites, blocking.of)}
	}
	return c
}

// interval is the Wilson score interval of k of n sites at 95 %, with the finite population correction.
// E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927); W. G. Cochran,
// Sampling Techniques (1977), §2.6.
func interval(k, n int64, population float64) (low, high float64) {
	const z = 1.959963984540054 // 97.5 % of a normal distribution lie below
	size := float64(n)
	p, z2 := float64(k)/size, 0.0
	if population > size {
		z2 = z * z * (population - size) / (population - 1)
	}
	middle, half := p+z2/(2*size), math.Sqrt(z2*(p*(1-p)+z2/(4*size))/size)
	if low, high = (middle-half)/(1+z2/size), (middle+half)/(1+z2/size); k == 0 {
		low = 0
	} else if k == n {
		high = 1
	}
	return low, high
}

// bounds are k sites of n with the unobserved ones, if each is open, and if each blocks.
func bounds(k, n, unobserved int64) (open, blocking struct{ sites, of int64 }) {
	open.sites, blocking.sites = k, k+unobserved
	open.of, blocking.of = n+unobserved, n+unobserved
	return open, blocking
}

// judge says how sure the shares of a summary are.
func (u *Uncertainty) judge(s *Summary) {
	s.Uncertainty = *u
	b := &s.Blocking
	if b.Unobserved = s.Rows - s.Answered; b.Over == "sites_rules" {
		b.Unobserved = 0
		for _, c := range s.Findings {
			if f, known := audit.FindingNamed(c.Value); known && f.IsGap() {
				b.Unobserved += c.Rows
			}
		}
	}
	b.Enough, b.Flagged = u.Enough(b.Sites), u.Flagged(b.Sites)
	b.OneSure = u.Of(b.AtLeastOne, b.Sites, b.Unobserved)
	for i := range b.MostBlocked {
		b.MostBlocked[i].Certainty = u.Of(b.MostBlocked[i].Sites, b.Sites, b.Unobserved)
	}
	for _, sums := range [][]Sum{b.ByPurpose, b.ByOperator} {
		for i := range sums {
			sums[i].Certainty = u.Of(sums[i].Sites, b.Sites, b.Unobserved)
		}
	}
}

package survey

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// This file decides which groups of sites may lead or stand in a headline, and how sure a share of sites is.

// The limits of groups.
const (
	LeastGroup = 30  // Uncertainty.LeastGroup by default
	FewSites   = 100 // groups of fewer sites are flagged
)

// Uncertainty says how many sites a group needs, and how large the population is of which the listed sites are a
// sample.
type Uncertainty struct {
	LeastGroup int64 `json:"least_group" about:"--least-group"`
	SampleOf   int64 `json:"sample_of" about:"--sample-of; else, with scan --sample, the listed sites divided by its share (the largest of several scans); 0: a full list"`

	listed int64
}

// Certainty contains the ranges in which a share may lie; a range is nil where it is unknown.
type Certainty struct {
	Interval *[2]float64 `json:"interval" about:"sampling interval at 95 %; null for a full list"`
	Bounds   *[2]float64 `json:"bounds" about:"shares if each site that was not observed is open, and if each blocks"`
}

// UncertaintyOf takes the options' values for so many listed sites. Without SampleOf it takes the scan whose --sample
// took most.
func (o *Options) UncertaintyOf(scans []*commit.Manifest, listed int64) (Uncertainty, error) {
	u, share := Uncertainty{o.LeastGroup, o.SampleOf, listed}, 0.0
	for _, m := range scans {
		took, err := strconv.ParseFloat(m.Given("sample"), 64)
		if err != nil || !(took > 0) { // all
			took = 1
		}
		share = max(share, took)
	}
	if u.SampleOf == 0 && share > 0 && share < 1 {
		u.SampleOf = int64(min(math.Round(float64(listed)/share), 1<<53))
	}
	if o.SampleOf > 0 && o.SampleOf < listed {
		return u, fmt.Errorf("a sample of %d sites: the scan lists %d, so --sample-of is at least that", o.SampleOf, listed)
	}
	return u, nil
}

// Enough reports whether a group of n sites may be in a headline or a ranking, or be an extreme.
func (u *Uncertainty) Enough(n int64) bool { return n >= u.LeastGroup }

// Flag stands behind the number of a group's sites: it is empty unless they are few.
func (u *Uncertainty) Flag(n int64) string {
	switch {
	case !u.Enough(n):
		return " (too few)"
	case n < FewSites:
		return " (few)"
	}
	return ""
}

// Explain says what the shown ranges mean, and what the flag of a group of n sites means, if it has one.
func (u *Uncertainty) Explain(n, unobserved int64) string {
	var texts []string
	if u.Flag(n) != "" {
		texts = append(texts, fmt.Sprintf("Few: fewer than %d sites; too few for a headline or a rank: fewer than %d.",
			FewSites, u.LeastGroup))
	}
	if unobserved > 0 {
		texts = append(texts, "[From-to]: the share if each site that was not observed were open, and if each blocked.")
	}
	if u.SampleOf > 0 {
		texts = append(texts, fmt.Sprintf("(From-to): its 95 %% interval, as the list is a sample of %d sites.", u.SampleOf))
	}
	return strings.Join(texts, " ")
}

// Of returns the ranges and the flag of a share: k of n sites block. Each of the unobserved sites may belong to the n;
// -1 means that their number is unknown.
func (u *Uncertainty) Of(k, n, unobserved int64) (c Certainty) {
	if u.SampleOf > 0 && n > 0 { // the n are the same part of the population as of the sample
		c.Interval = interval(k, n, float64(n)*(float64(u.SampleOf)/float64(max(u.listed, n))))
	}
	if open, blocking, of := Bounds(k, n, unobserved); unobserved >= 0 && of > 0 {
		c.Bounds = &[2]float64{Share(open, of), Share(blocking, of)}
	}
	return c
}

// Ranges writes a share's ranges behind it.
func (c Certainty) Ranges(write func(share float64) string) (text string) {
	if r := c.Interval; r != nil {
		text = " (" + write(r[0]) + "-" + write(r[1]) + ")"
	}
	if r := c.Bounds; r != nil && r[0] < r[1] { // some sites were not observed
		text += " [" + write(r[0]) + "-" + write(r[1]) + "]"
	}
	return text
}

// interval is the Wilson score interval of k of n sites at 95 %, with the finite population correction (E. B. Wilson,
// JASA 22, 1927; W. G. Cochran, Sampling Techniques, 1977, §2.6).
func interval(k, n int64, population float64) *[2]float64 {
	const z = 1.959963984540054 // 97.5 % of a normal distribution lie below
	size, p, z2 := float64(n), Share(k, n), 0.0
	if population > size {
		z2 = z * z * (population - size) / (population - 1)
	}
	middle, half := p+z2/(2*size), math.Sqrt(z2*(p*(1-p)+z2/(4*size))/size)
	low, high := (middle-half)/(1+z2/size), (middle+half)/(1+z2/size)
	return &[2]float64{min(low*float64(min(k, 1)), p), min(max(high, p), 1)}
}

// Bounds adds the unobserved sites to k of n sites. It returns how many of the sum block: k if each unobserved site is
// open, and more if each blocks.
func Bounds(k, n, unobserved int64) (open, blocking, of int64) {
	return k, k + unobserved, n + unobserved
}

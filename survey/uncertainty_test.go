package survey

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// wilson solves Wilson's inequality (p̂ − p)² ≤ z² p(1 − p)/n · (N − n)/(N − 1) for p by bisection, from p̂ outwards:
// it shares no formula with interval.
func wilson(k, n, population float64) (low, high float64) {
	const z = 1.9599639845
	observed, correction := k/n, 0.0
	if population > 1 {
		correction = (population - n) / (population - 1)
	}
	within := func(p float64) bool {
		return (observed-p)*(observed-p) <= z*z*p*(1-p)/n*correction
	}
	end := func(outside float64) float64 {
		inside := observed
		for range 200 {
			if middle := (inside + outside) / 2; within(middle) {
				inside = middle
			} else {
				outside = middle
			}
		}
		return inside
	}
	return end(0), end(1)
}

// TestInterval compares intervals with Wilson's inequality, for every k of some n in populations from n to the
// infinite, and with published figures.
func TestInterval(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 5e-8 }
	for _, n := range []int64{1, 2, 5, 29, 30, 100, 1000} {
		for k := int64(0); k <= n; k++ {
			for _, times := range []float64{1, 1.5, 2, 10, 1e12} {
				population := float64(n) * times
				got := interval(k, n, population)
				low, high := got[0], got[1]
				wantLow, wantHigh := wilson(float64(k), float64(n), population)
				if p := float64(k) / float64(n); !near(low, wantLow) || !near(high, wantHigh) || low < 0 || high > 1 || low > p ||
					p > high {
					t.Fatalf("%d of %d of %g: %v to %v, want %v to %v", k, n, population, low, high, wantLow, wantHigh)
				}
				if k == 0 && low != 0 || k == n && high != 1 || times == 1 && low != high {
					t.Errorf("%d of %d of %g: %v to %v", k, n, population, low, high)
				}
			}
		}
	}
	// R. G. Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17 (1998), table I,
	// method 3.
	for _, c := range []struct {
		k, n int64
		want string
	}{{81, 263, "0.2553 0.3662"}, {15, 148, "0.0624 0.1605"}, {0, 20, "0.0000 0.1611"}, {1, 29, "0.0061 0.1718"}} {
		r := interval(c.k, c.n, 1e15)
		if got := fmt.Sprintf("%.4f %.4f", r[0], r[1]); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.k, c.n, got, c.want)
		}
	}
}

// TestUncertainty tries groups about the limits, shares without sites, and shares with and without a sample.
func TestUncertainty(t *testing.T) {
	for _, least := range []int64{1, 30, 50, 200} {
		u := Uncertainty{LeastGroup: least}
		for _, n := range []int64{0, 1, 29, 30, 49, 50, 99, 100, 199, 200} {
			want := ""
			if n < least {
				want = " (too few)"
			} else if n <= 99 {
				want = " (few)"
			}
			if u.Enough(n) != (n >= least) || u.Flag(n) != want {
				t.Errorf("of at least %d sites, %d are enough: %v, flagged %q", least, n, u.Enough(n), u.Flag(n))
			}
		}
	}
	f := func(u Uncertainty, k, n, unobserved int64, want string) {
		t.Helper()
		c, got := u.Of(k, n, unobserved), ""
		for _, r := range []*[2]float64{c.Interval, c.Bounds} {
			if got += " -"; r != nil {
				got = fmt.Sprintf("%s%.3f..%.3f", strings.TrimSuffix(got, "-"), r[0], r[1])
			}
		}
		if got[1:] != want {
			t.Errorf("%d of %d and %d: %s, want %s", k, n, unobserved, got[1:], want)
		}
	}
	full, sample, all := Uncertainty{}, Uncertainty{SampleOf: 1000, listed: 100}, Uncertainty{SampleOf: 100, listed: 100}
	f(full, 0, 0, 0, "- -")
	f(full, 0, 0, 5, "- 0.000..1.000")
	f(full, 20, 80, 20, "- 0.200..0.400")
	f(full, 0, 80, 0, "- 0.000..0.000")
	f(full, 80, 80, 20, "- 0.800..1.000")
	f(full, 20, 80, -1, "- -")
	f(sample, 0, 0, 0, "- -")
	f(sample, 0, 80, 20, "0.000..0.041 0.000..0.200") // z² · 720/799 / (80 + z² · 720/799)
	f(sample, 80, 80, -1, "0.959..1.000 -")
	f(all, 20, 80, 20, "0.250..0.250 0.200..0.400")
}

// TestSampleOf takes the population from the options, else from --sample of the scan.
func TestSampleOf(t *testing.T) {
	sampled := func(samples string) (scans []*commit.Manifest) {
		for sample := range strings.SplitSeq(samples, " and ") {
			scans = append(scans, &commit.Manifest{Config: []commit.Setting{{Name: "limit", Value: "0.5"},
				{Name: "sample", Value: sample}}})
		}
		return scans
	}
	f := func(sample string, of, listed, want int64) {
		t.Helper()
		o := Options{Uncertainty: Uncertainty{SampleOf: of}}.WithDefaults()
		u, err := o.UncertaintyOf(sampled(sample), listed)
		if err != nil || u.SampleOf != want || u.LeastGroup != 30 {
			t.Errorf("--sample %s, --sample-of %d, %d sites: %+v, %v", sample, of, listed, u, err)
		}
	}
	f("0", 0, 50, 0)
	f("1", 0, 50, 0)
	f("0.1", 0, 50, 500)
	f("0.1", 70, 50, 70)
	f("0", 50, 50, 50)
	f("0.1", 0, 0, 0)
	f("1e-300", 0, 50, 1<<53)
	f("0.1 and 0.5", 0, 50, 100) // a larger share has the sites of a smaller one
	f("0.5 and 0.1", 0, 50, 100)
	f("0.1 and 0", 0, 50, 0)
	f("0 and 0.1", 0, 50, 0)
	for _, foreign := range []string{"", "nan", "-1", "2", "inf", "none"} {
		f(foreign, 0, 50, 0)
	}
	o := Options{Uncertainty: Uncertainty{SampleOf: 49}}
	if _, err := o.UncertaintyOf(sampled("0"), 50); err == nil || !strings.Contains(err.Error(), "--sample-of") {
		t.Error(err)
	}
}

package survey

import (
	"iter"
	"math"
)

// Histogram counts milliseconds in buckets that grow by 2^(1/32), so that a quantile is right within 2 %.
type Histogram struct {
	counts [2048]int64 // by bucket
	total  int64
}

// The buckets of a histogram.
const (
	bucketsPerDoubling = 32
	bucketOfOne        = 640 // 1 ms; the first bucket is about a nanosecond, the last more than a century
)

// Add counts a value in milliseconds; one that is not positive was not measured.
func (h *Histogram) Add(v float64) {
	if !(v > 0) {
		return
	}
	bucket := math.Floor(math.Log2(v)*bucketsPerDoubling) + bucketOfOne
	h.counts[int(max(0, min(bucket, float64(len(h.counts)-1))))]++
	h.total++
}

// Quantile returns the milliseconds below which a share q of all values lies: the middle of its bucket. It returns
// false without values.
func (h *Histogram) Quantile(q float64) (float64, bool) {
	rank := int64(math.Ceil(q * float64(h.total)))
	for bucket, n := range h.counts {
		if rank -= n; n > 0 && rank <= 0 {
			return math.Exp2((float64(bucket-bucketOfOne) + 0.5) / bucketsPerDoubling), true
		}
	}
	return 0, false
}

// HalfDoublings yields the counts in buckets that grow by the root of 2, in order: of i those of the values from
// 2^(i/2) ms on.
func (h *Histogram) HalfDoublings() iter.Seq2[int, int64] {
	const half = bucketsPerDoubling / 2
	return func(yield func(int, int64) bool) {
		for bucket := 0; bucket < len(h.counts); bucket += half {
			sum := int64(0)
			for _, n := range h.counts[bucket : bucket+half] {
				sum += n
			}
			if !yield((bucket-bucketOfOne)/half, sum) {
				return
			}
		}
	}
}

package survey

import "math"

// histogram counts milliseconds in buckets that grow by 2^(1/32), so that a quantile is right within 2 %.
type histogram struct {
	counts [2048]int64 // by bucket
	total  int64
}

// The buckets of a histogram.
const (
	bucketsPerDoubling = 32
	bucketOfOne        = 640 // 1 ms; the first bucket is about a nanosecond, the last more than a century
)

// add counts a value; one that is not positive was not measured.
func (h *histogram) add(v float64) {
	if !(v > 0) {
		return
	}
	bucket := math.Floor(math.Log2(v)*bucketsPerDoubling) + bucketOfOne
	h.counts[int(max(0, min(bucket, float64(len(h.counts)-1))))]++
	h.total++
}

// quantile returns the value below which a share q of all lies: the middle of its bucket, or 0 without values.
func (h *histogram) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.total)))
	for bucket, n := range h.counts {
		if rank -= n; n > 0 && rank <= 0 {
			return math.Exp2((float64(bucket-bucketOfOne) + 0.5) / bucketsPerDoubling)
		}
	}
	return 0
}

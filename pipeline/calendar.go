package pipeline

import (
	"math/bits"
	"slices"
	"time"
)

// calendar is a list of buckets, whose ranges of time are disjoint and in order.
type calendar struct {
	held    int // records
	buckets []*bucket
}

// bucket holds the records of a range of time, in the order in which they came.
type bucket struct {
	chain
	from, to time.Duration
}

const (
	// The width of a bucket is the time until it begins, divided by widthShare and rounded to a power of two times
	// minWidth. So a calendar has few buckets however far it reaches, and the next ones are narrow.
	widthShare = 16
	minWidth   = time.Second
)

// put adds a record.
func (c *calendar) put(file *spill, at, now time.Duration, rec record) error {
	c.held++
	return c.at(at, now).put(file, rec)
}

// get takes out the first record of the first bucket, or drops the bucket if it is empty.
func (c *calendar) get(file *spill) (rec record, ok bool, err error) {
	b := c.buckets[0]
	if b.count == 0 {
		c.buckets = slices.Delete(c.buckets, 0, 1)
		return record{}, false, nil
	}
	c.held--
	rec, err = b.get(file)
	return rec, true, err
}

// first returns the earliest bucket, or nil.
func (c *calendar) first() *bucket {
	if len(c.buckets) == 0 {
		return nil
	}
	return c.buckets[0]
}

// at returns the bucket for a time. It makes one if there is none.
func (c *calendar) at(at, now time.Duration) *bucket {
	i, _ := slices.BinarySearchFunc(c.buckets, at, func(b *bucket, at time.Duration) int {
		if b.to <= at {
			return -1
		}
		return 1
	})
	if i < len(c.buckets) && c.buckets[i].from <= at {
		return c.buckets[i]
	}
	width := minWidth << bits.Len64(uint64(max(0, at-now)/widthShare/minWidth))
	b := &bucket{from: at / width * width}
	b.to = b.from + width
	if i > 0 {
		b.from = max(b.from, c.buckets[i-1].to)
	}
	if i < len(c.buckets) {
		b.to = min(b.to, c.buckets[i].from)
	}
	c.buckets = slices.Insert(c.buckets, i, b)
	return b
}

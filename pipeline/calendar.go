package pipeline

import (
	"math/bits"
	"slices"
	"time"
)

// calendar is a list of buckets, whose ranges of time are disjoint and in order.
type calendar struct {
	share     time.Duration // a bucket is as wide as one in so many parts of the time until it begins
	held      int           // records
	buckets   []*bucket
	splitting *bucket   // no longer among them; its records are being moved to narrower ones
	stale     []*bucket // no longer among them; their records get other times
}

// bucket holds the records of a range of time, in the order in which they came.
type bucket struct {
	chain
	from, to time.Duration
	split    bool // it is a part of a split one, and is not split again
}

const (
	// Widths are rounded to a power of two of this. So a calendar has few buckets however far it reaches, and the next are
	// narrow.
	minWidth = time.Second
	// A bucket is split into so many at most: each may hold a chunk in memory.
	maxParts = 64
)

// put adds a record.
func (c *calendar) put(file *spill, at, now time.Duration, rec record) error {
	c.held++
	return c.at(at, now).put(file, at, rec)
}

// get takes the first record of the first bucket out, if it has one, else it drops the bucket.
func (c *calendar) get(file *spill) (rec record, ok bool, err error) {
	b := c.buckets[0]
	if b.count == 0 {
		c.buckets = slices.Delete(c.buckets, 0, 1)
		return record{}, false, nil
	}
	c.held--
	_, rec, err = b.get(file)
	return rec, true, err
}

// first is the earliest bucket; nil where there is none.
func (c *calendar) first() *bucket {
	if len(c.buckets) == 0 {
		return nil
	}
	return c.buckets[0]
}

// at returns the bucket for a time, which is made if there is none.
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
	width := minWidth << bits.Len64(uint64(max(0, at-now)/c.share/minWidth))
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

// split begins to split the first bucket into parts that hold about so many records each. It reports whether it does.
func (c *calendar) split(most int) bool {
	b := c.buckets[0]
	parts := min(maxParts, (b.count+most-1)/max(1, most))
	width := (b.to - b.from) / time.Duration(max(1, parts))
	if b.split || parts < 2 || width < time.Millisecond {
		return false
	}
	narrow := make([]*bucket, parts)
	for i := range narrow {
		from := b.from + time.Duration(i)*width
		narrow[i] = &bucket{from: from, to: from + width, split: true}
	}
	narrow[parts-1].to = b.to
	c.buckets = slices.Replace(c.buckets, 0, 1, narrow...)
	c.splitting = b
	return true
}

// outdate takes all buckets out, since their times count no more.
func (c *calendar) outdate() {
	if c.splitting != nil {
		c.stale, c.splitting = append(c.stale, c.splitting), nil
	}
	c.stale, c.buckets = append(c.stale, c.buckets...), nil
}

// getStale takes the first record of the stale buckets out, as it was stored; ok is false where there is none.
func (c *calendar) getStale(file *spill) (rec record, ok bool, err error) {
	for len(c.stale) > 0 && c.stale[0].count == 0 {
		c.stale = c.stale[1:]
	}
	if len(c.stale) == 0 {
		return record{}, false, nil
	}
	_, line, err := c.stale[0].getLine(file)
	if err != nil {
		return record{}, false, err
	}
	c.held--
	rec, err = restore(line)
	return rec, err == nil, err
}

// move moves some records of the bucket that is being split to its parts.
func (c *calendar) move(most int, file *spill, now time.Duration) error {
	b := c.splitting
	for n := min(most, b.count); n > 0; n-- {
		at, line, err := b.getLine(file)
		if err != nil {
			return err
		}
		if err := c.at(at, now).putLine(file, at, line); err != nil {
			return err
		}
	}
	if b.count == 0 {
		c.splitting = nil
	}
	return nil
}

package survey

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// This file counts by values that a dataset contains, in bounded memory: texts, and milliseconds in histogram.go.

// Count is how many rows have a value.
type Count struct {
	Value string `json:"value" about:"the value"`
	Rows  int64  `json:"rows" about:"rows"`
}

// Counts are numbers of rows by value, of at most MaxValues and Other.
type Counts map[string]int64

// MaxValues bounds the distinct values of a column that are counted. bulkscan writes a few dozen, but any program may
// have written the dataset.
const MaxValues = 2000

// Other counts further values.
const Other = "other"

// Add counts a row with a value, which is copied if it is new.
func (c Counts) Add(value string) {
	if _, ok := c[value]; !ok {
		if value = strings.Clone(value); len(c) >= MaxValues {
			value = Other
		}
	}
	c[value]++
}

// Ordered lists the counts, the greatest first, and equal ones by value.
func (c Counts) Ordered() []Count {
	list := make([]Count, 0, len(c))
	for _, value := range slices.Sorted(maps.Keys(c)) {
		list = append(list, Count{value, c[value]})
	}
	slices.SortStableFunc(list, func(a, b Count) int { return cmp.Compare(b.Rows, a.Rows) })
	return list
}

package tables

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/survey"
)

// This file counts by values of unknown number in bounded memory, for the tables of the report page.

// key identifies a cell: texts and numbers, as many as the table needs.
type key struct {
	a, b string
	n, m float64
}

// cells counts by keys. It keeps the first of them.
type cells[V any] struct {
	most int
	all  map[key]*V
	rest *V // counts all other keys; nil if there are none
}

func newCells[V any](most int) *cells[V] { return &cells[V]{most: most, all: map[key]*V{}} }

// at returns what counts a key. A new key is copied, since its texts are of a page.
func (c *cells[V]) at(k key) *V {
	if v := c.all[k]; v != nil {
		return v
	}
	if len(c.all) < c.most {
		v := new(V)
		c.all[key{strings.Clone(k.a), strings.Clone(k.b), k.n, k.m}] = v
		return v
	}
	if c.rest == nil {
		c.rest = new(V)
	}
	return c.rest
}

// note says what the bound left out.
func (c *cells[V]) note(what string) string {
	if c.rest == nil {
		return ""
	}
	return fmt.Sprintf("the first %d %s that occur; the others are left out", c.most, what)
}

// each yields what counts any key.
func (c *cells[V]) each() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for _, v := range c.all {
			if !yield(v) {
				return
			}
		}
		if c.rest != nil {
			yield(c.rest)
		}
	}
}

// rows makes a row of each key, without those for which row returns nil.
func (c *cells[V]) rows(row func(k key, v V) []any) (rows [][]any) {
	for k, v := range c.all {
		if r := row(k, *v); r != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// sorted sorts rows by columns; ^column is descending.
func sorted(rows [][]any, columns ...int) [][]any {
	slices.SortFunc(rows, func(a, b []any) int {
		for _, column := range columns {
			x, y := a, b
			if column < 0 {
				column, x, y = ^column, b, a
			}
			if order := compareValues(x[column], y[column]); order != 0 {
				return order
			}
		}
		return 0
	})
	return rows
}

// compareValues compares two values of a column, which are of the same type.
func compareValues(a, b any) int {
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case float64:
		return cmp.Compare(a, b.(float64))
	case bool:
		return cmp.Compare(survey.One(a), survey.One(b.(bool)))
	}
	panic(fmt.Sprintf("a column of %T is not sorted", a))
}

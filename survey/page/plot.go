package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
)

// This file computes where the marks of plots go. Positions along a plot are percentages of its width and positions
// across it are pixels, so that texts keep their size on any screen. A plot is a type, shown by the template of the
// same name.

// tick is a mark of a scale.
type tick struct{ At, Label string }

// spare reports whether a narrow screen leaves out the tick i of n: every second one, so that both ends stay.
func spare(i, n int) bool { return i%2 == 1 && i < n-1 || i > 0 && i == n-2 }

// bars are horizontal bars with a name each, and perhaps several parts.
type bars struct {
	ID, Label string // Label says what the length means
	Ticks     []tick
	Keys      []key
	Rows      []bar
	More      []bar // in a fold below
	Stack     bool  // the first bar is of all, and the others are its parts
}

type bar struct {
	Name, Under, Value string
	Parts              []part
}

type part struct{ Class, X, W string }

type key struct{ Class, Label string }

// lengths are the shares of a bar's parts, by class.
type lengths []length

type length struct {
	class string
	share float64
}

// newBars returns an empty chart of shares up to most.
func newBars(id, label string, most float64, keys ...key) (chart *bars, scale float64) {
	top, step := niceScale(most)
	chart = &bars{ID: id, Label: label, Keys: keys}
	for v := 0.0; v <= top*1.0001; v += step {
		chart.Ticks = append(chart.Ticks, tick{along(v / top), round(v)})
	}
	return chart, top
}

func (b *bars) add(scale float64, name, under, value string, of lengths) {
	row := bar{Name: name, Under: under, Value: value}
	at := 0.0
	for _, l := range of {
		if l.share > 0 {
			row.Parts = append(row.Parts, part{l.class, along(at / scale), along(min(l.share, scale-at) / scale)})
			at += l.share
		}
	}
	b.Rows = append(b.Rows, row)
}

// between draws the bounds of the last bar's share. They depend on the sites that were not observed.
func (b *bars) between(scale float64, sure survey.Certainty) {
	if r := sure.Bounds; r != nil && r[0] < r[1] {
		last := &b.Rows[len(b.Rows)-1]
		last.Parts = append(last.Parts, part{"bounds", along(r[0] / scale), along((r[1] - r[0]) / scale)})
		if k := (key{"bounds", "if the unobserved were open, or blocked"}); !slices.Contains(b.Keys, k) {
			b.Keys = append(b.Keys, k)
		}
	}
}

// folded leaves so many bars outside of the fold.
func (b *bars) folded(n int) *bars {
	n = min(n, len(b.Rows))
	b.Rows, b.More = b.Rows[:n:n], b.Rows[n:]
	return b
}

// along is a position along a plot, a part of its width from 0 to 1, as an attribute.
func along(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(100*max(0, min(v, 1)), 'f', 2, 64), "0"), ".") + "%"
}

// across is a position in pixels, as an attribute.
func across(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', 1, 64), "0"), ".")
}

// niceScale returns the end of a scale of shares from 0 that holds most, and the step of its ticks.
func niceScale(most float64) (top, step float64) {
	for _, s := range []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2} {
		if most <= 5*s {
			return s * math.Max(1, math.Ceil(most/s-1e-9)), s
		}
	}
	return 1, 0.2
}

// niceCounts returns the step of about four ticks of a scale of numbers from 0 to most.
func niceCounts(most int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range []int64{unit, 2 * unit, 5 * unit} {
			if most <= 5*step {
				return step
			}
		}
	}
}

// lines are shares along ranks or dates, one line a token.
type lines struct {
	ID, Description string
	Height          int
	Bottom          int // where the labels of the scale along stand
	X               []tick
	Y               []level
	Series          []series
	Events          []mark
}

// level is a mark of the scale across a plot.
type level struct {
	At    string
	Text  string
	Label string
}

type series struct {
	Class, Name, Value string
	Path               string // in a box of 1000 by Height
	Dots               []dot
	LabelAt            string
}

type dot struct{ X, Y, Title string }

// point is a value of a line; at is its place along, from 0 to 1. A gap is a place without a value.
type point struct {
	at    float64
	share float64
	gap   bool
	title string
}

const (
	linesHeight = 220
	labelRoom   = 17 // pixels between the labels of two lines at their ends
	mostDots    = 40 // more points are only a line
)

// newLines places lines of shares.
func newLines(id string, x []tick, names []string, values [][]point) *lines {
	most := 0.0
	for _, line := range values {
		for _, p := range line {
			most = max(most, p.share)
		}
	}
	top, step := niceScale(most)
	l := &lines{ID: id, Height: linesHeight, Bottom: linesHeight + 20, X: x}
	y := func(share float64) float64 { return linesHeight * (1 - share/top) }
	for v := 0.0; v <= top*1.0001; v += step {
		l.Y = append(l.Y, level{At: across(y(v)), Text: across(y(v) + 4), Label: round(v)})
	}
	var ends []float64
	for i, line := range values {
		s := series{Class: fmt.Sprintf("c%d", i%6), Name: names[i]}
		pen, end, last := "M", 0.0, ""
		var path strings.Builder
		for _, p := range line {
			if p.gap {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%s %s", pen, across(1000*p.at), across(y(p.share)))
			pen, end, last = "L", y(p.share), percent(p.share)
			if len(line) <= mostDots {
				s.Dots = append(s.Dots, dot{along(p.at), across(y(p.share)), p.title})
			}
		}
		s.Path, s.Value = path.String(), last
		ends = append(ends, end)
		l.Series = append(l.Series, s)
	}
	for i, at := range apart(ends, labelRoom, linesHeight) {
		l.Series[i].LabelAt = across(at + 4)
	}
	l.Description = topThree(names, func(i int) string { return l.Series[i].Value })
	return l
}

// apart moves places so that none is nearer than room to the next, in their order, and none is below the bottom.
func apart(places []float64, room, bottom float64) []float64 {
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(places[a], places[b]) })
	moved := slices.Clone(places)
	for i, at := range order {
		if i > 0 {
			moved[at] = max(moved[at], moved[order[i-1]]+room)
		}
	}
	for i := len(order) - 1; i >= 0; i-- {
		limit := bottom
		if i < len(order)-1 {
			limit = moved[order[i+1]] - room
		}
		moved[order[i]] = min(moved[order[i]], limit)
	}
	return moved
}

type columns struct {
	ID, Description string
	Height, Bottom  int
	Bars            []column
	X               []tick
	Y               []level
	Marks           []mark
	Breaks          []spot // where the axis or a bar leaves out a piece
}

type spot struct{ X, Y string }

// mark is a vertical line with a label behind it, or before it where the plot ends soon.
type mark struct {
	At, Label string
	Before    bool
	Plain     bool   // without the line
	Top, Text string // where the line begins, and the label stands
}

// newMark places a mark whose label is in a row over the plot, counted upwards from 0.
func newMark(at float64, label string, row int) mark {
	return mark{At: along(at), Label: label, Before: at > 0.6, Top: across(-14 - labelRoom*float64(row)),
		Text: across(-6 - labelRoom*float64(row))}
}

type column struct{ X, W, Y, H, Class, Title string }

const (
	columnsHeight = 200
	longRun       = 8    // empty bins in a row that an axis leaves out
	tickRoom      = 0.05 // between two labels under a histogram
)

type bin struct {
	label, class string
	sites        int64
	tick         string // under it, where there is room
	gap          bool   // a gap before it separates it from the columns before
	cut          bool   // the others set the scale
}

// newColumns places a histogram of sites. Where many bins in a row are empty and all have a tick, the axis is broken.
func newColumns(id, of string, bins []bin) *columns {
	c := &columns{ID: id, Height: columnsHeight, Bottom: columnsHeight + 20}
	most := int64(1)
	for _, b := range bins {
		if !b.cut {
			most = max(most, b.sites)
		}
	}
	step := niceCounts(most)
	top := (most + step - 1) / step * step
	var places, broken []float64
	units := 0.0
	for i := 0; i < len(bins); i++ {
		if bins[i].gap {
			units++
		}
		run := 0
		for i+run < len(bins) && bins[i+run].sites == 0 && bins[i+run].tick != "" {
			run++
		}
		if run < longRun {
			places = append(places, units)
			units++
			continue
		}
		broken = append(broken, units+1)
		places = append(places, slices.Repeat([]float64{-1}, run)...)
		units += 2
		i += run - 1
	}
	labelled := []int{0, max(0, len(bins)-1)} // then those behind a break, then tens, where there is room
	for i := range bins {
		if i > 0 && places[i-1] < 0 {
			labelled = append(labelled, i)
		}
	}
	for i, b := range bins {
		if strings.HasSuffix(b.tick, "0") {
			labelled = append(labelled, i)
		}
		if b.sites == 0 {
			continue
		}
		h := columnsHeight * min(1, float64(b.sites)/float64(top))
		c.Bars = append(c.Bars, column{along(places[i] / units), along(0.92 / units), across(columnsHeight - h), across(h),
			b.class, b.label + ": " + printable.Count(b.sites, of)})
		if b.sites > top {
			c.Breaks = append(c.Breaks, spot{along((places[i] + 0.46) / units), "24"})
		}
	}
	ticks := map[float64]string{}
	for _, i := range labelled {
		if i >= len(bins) || bins[i].tick == "" || places[i] < 0 {
			continue
		}
		at := (places[i] + 0.46) / units
		if near := func(other float64) bool { return math.Abs(other-at) < tickRoom }; !slices.ContainsFunc(
			slices.Collect(maps.Keys(ticks)), near) {
			ticks[at] = bins[i].tick
		}
	}
	for _, at := range slices.Sorted(maps.Keys(ticks)) {
		c.X = append(c.X, tick{along(at), ticks[at]})
	}
	for _, at := range broken {
		c.Breaks = append(c.Breaks, spot{along(at / units), across(columnsHeight)})
	}
	c.Y = countLevels(columnsHeight, step, top)
	return c
}

// countLevels are the ticks of a scale of numbers from 0 to top.
func countLevels(height float64, step, top int64) (levels []level) {
	for n := int64(0); n <= top; n += step {
		y := height * (1 - float64(n)/float64(top))
		levels = append(levels, level{At: across(y), Text: across(y + 4), Label: printable.Number(n)})
	}
	return levels
}

// matrix is a table whose cells are darker for more, with a list of its strongest pairs for narrow screens.
type matrix struct {
	ID, Description string
	Corner          string
	Upright         bool // the names over the columns
	Across          []string
	Down            []matrixRow
	Scale           []key
	Strongest       *bars
}

type matrixRow struct {
	Label string
	Cells []cell
}

type cell struct{ Text, Class string }

// topThree names the first three of some values.
func topThree(names []string, value func(int) string) string {
	var list []string
	for i := range names[:min(3, len(names))] {
		list = append(list, names[i]+" "+value(i))
	}
	return strings.Join(list, ", ")
}

// percent writes a share. Only a share of 0 looks like 0, and only a share of all looks like all.
func percent(share float64) string {
	p := 100 * share
	switch text := strconv.FormatFloat(p, 'f', 1, 64); {
	case math.IsNaN(share):
		return "–"
	case p == 0:
		return "0%"
	case p == 100:
		return "100%"
	case text == "0.0":
		return "<0.1%"
	case text == "-0.0":
		return ">-0.1%"
	case text == "100.0":
		return ">99.9%"
	default:
		return text + "%"
	}
}

// round writes a share of a scale.
func round(share float64) string { return strings.Replace(percent(share), ".0%", "%", 1) }

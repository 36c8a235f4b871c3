package terminal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bars, and numbers as people read them.

// barSigns are what bars are drawn with. Whole and half blocks and the light shade are in the fonts of text consoles
// too; the finer blocks are not.
type barSigns struct{ dark, half, light string }

var (
	blockBars = barSigns{"█", "▌", "░"}
	asciiBars = barSigns{"#", "", "-"}
)

// draw returns a bar of at most width columns with two parts, dark and light. A share above 0 is always visible; of two
// shares both are, if the bar has at least two columns.
func (b barSigns) draw(width int, dark, light float64) string {
	columns := func(share float64) int { return int(math.Round(max(0, min(1, share)) * float64(width))) }
	switch all := max(1, columns(dark+light)); {
	case dark <= 0 && light <= 0:
		return ""
	case light <= 0 && b.half != "":
		halves := max(1, int(math.Round(min(1, dark)*2*float64(width))))
		return strings.Repeat(b.dark, halves/2) + strings.Repeat(b.half, halves%2)
	case light <= 0:
		return strings.Repeat(b.dark, all)
	case dark <= 0:
		return strings.Repeat(b.light, all)
	case all == 1 && dark < light:
		return b.light
	default:
		n := min(max(1, columns(dark)), max(1, all-1))
		return strings.Repeat(b.dark, n) + strings.Repeat(b.light, all-n)
	}
}

// wholeBar is the share that a full bar stands for: the least of 100 %, 50 %, 20 %, 10 % and so on that is no less than
// the greatest share. So small shares are visible.
func wholeBar(rows []figure) float64 {
	greatest := 0.0
	for _, r := range rows {
		if r.of > 0 {
			greatest = max(greatest, float64(r.n)/float64(r.of))
		}
	}
	full := 1.0
	for _, next := range []float64{0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001} {
		if greatest <= next {
			full = next
		}
	}
	return full
}

func roundPercent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }

// percentOf writes a share. It shows 0 only for an empty part, and 100 only for a complete one.
func percentOf(part, whole int64) string {
	if whole <= 0 {
		return "n/a"
	}
	text := strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 2, 64)
	switch {
	case part == 0:
		return "0 %"
	case part == whole:
		return "100 %"
	case text == "0.00":
		return "<0.01 %"
	case text == "100.00":
		return ">99.99 %"
	}
	return text + " %"
}

func bytesText(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.95 {
		value /= 1000
		unit++
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

func millisText(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// upperFirst begins a sentence; the sentences are ours, and in ASCII.
func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

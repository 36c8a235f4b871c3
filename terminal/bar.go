package terminal

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cheggaaa/pb/v3"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// The bar of a run: how many sites of how many, the bar itself, and behind it as many facts as the terminal has room
// for.

const (
	barInterval = 200 * time.Millisecond
	paceSpan    = 30 * time.Second // least span of the pace that estimates the remaining time
	paceShare   = 3                // or so large a part of the run: a longer pace varies less
	paceSteps   = 30               // of a span, at most
	paceStart   = 10 * time.Second // a shorter pace gives no estimate
	minProgress = 10               // columns of the bar itself, brackets included
)

// The second form is for a number without an end.
const (
	barTemplate   pb.ProgressBarTemplate = `{{string . "count"}} {{bar . "[" "=" ">" " " "]"}}{{string . "facts"}}`
	countTemplate pb.ProgressBarTemplate = `{{string . "count"}}{{string . "facts"}}`
)

// barState is what a bar shows.
type barState struct {
	done, total int64    // of unit; total 0: unknown
	unit        string   // "": sites
	about       bool     // total is an estimate
	unforeseen  string   // why the remaining time has no estimate; "": the pace gives one
	facts       []string // further ones, the most important first

	tail time.Duration // the last sites may take so much longer than the pace estimates
}

// The remaining time is shown only if it is right within a fifth. These are the bounds of each cause of an error.
const (
	unsteady = 0.15 // between the two halves of the pace, as a share of the larger
	tailed   = 0.3  // of the tail, half of which is added, as a share of the rest
	heldUp   = 0.05 // of sites that the pace does not count, as a share of those that are left
)

// drawBar draws a bar on w until the context ends.
func drawBar(ctx context.Context, w io.Writer, look func() barState) {
	bar := barTemplate.New(0).SetWriter(w).Set(pb.Static, true).Set(pb.ReturnSymbol, "\r").Start()
	ticker := time.NewTicker(barInterval)
	defer ticker.Stop()
	var pace pace
	for alive := true; alive; {
		select {
		case <-ctx.Done():
			alive = false
			bar.Finish()
		case <-ticker.C:
		}
		s, width := look(), Width(w)-1 // some terminals begin a new line behind the last column
		perSecond, steady := pace.at(time.Now(), s.done)
		count, facts := s.lay(width, perSecond, steady)
		form := barTemplate
		if s.total == 0 {
			form = countTemplate
		}
		bar.SetTemplate(form).SetWidth(width).SetTotal(s.total).SetCurrent(s.done)
		bar.Set("count", count).Set("facts", facts).Write()
	}
}

// lay returns the text in front of the bar and behind it: facts as far as there is room for a bar, too.
func (s *barState) lay(width int, pace float64, steady bool) (count, facts string) {
	unit := cmp.Or(s.unit, "sites")
	count = printable.Number(s.done) + " " + unit
	var list []string
	if s.total > 0 {
		about := ""
		if s.about {
			about = "~"
		}
		count = fmt.Sprintf("%s of %s%s %s", printable.Number(s.done), about, printable.Number(s.total), unit)
		rest, tail := float64(s.total-s.done)/pace, s.tail.Seconds()
		switch {
		case s.done >= s.total:
		case s.unforeseen != "":
			list = append(list, s.unforeseen)
		case steady && tail <= tailed*rest:
			list = append(list, leftText(rest+tail/2))
		}
		list = append(list, fmt.Sprintf("%d %%", min(100*s.done/s.total, 100)))
	}
	list = append(append(list, fmt.Sprintf("%.0f/s", pace)), s.facts...)
	room := width - columns(count) - 1 - minProgress
	for _, fact := range list {
		if n := columns(fact) + gap; n <= room {
			facts += "  " + fact
			room -= n
		}
	}
	return count, facts
}

// leftText writes an estimate in seconds, no finer than its precision.
func leftText(seconds float64) string {
	fine := time.Second
	if seconds > 600 {
		fine = time.Minute
	}
	return spanText(time.Duration(min(max(1, seconds), 1e9)*float64(time.Second)).Round(fine)) + " left"
}

// pace is how fast a number grows: on average over the last paceSpan, or the last third of the run.
type pace struct {
	begun time.Time
	past  []paceSample
}

type paceSample struct {
	at   time.Time
	done int64
}

// at adds a sample, and returns the growth a second, 0 at the beginning, and whether the growth is steady.
func (p *pace) at(now time.Time, done int64) (perSecond float64, steady bool) {
	if len(p.past) == 0 {
		p.begun = now
	}
	span := max(paceSpan, now.Sub(p.begun)/paceShare)
	if n := len(p.past); n == 0 || now.Sub(p.past[n-1].at) >= span/paceSteps {
		p.past = append(p.past, paceSample{now, done})
	}
	for len(p.past) > 1 && now.Sub(p.past[1].at) >= span {
		p.past = p.past[1:]
	}
	first, middle, last := p.past[0], p.past[len(p.past)/2], paceSample{now, done}
	before, after := middle.since(first), last.since(middle)
	steady = now.Sub(first.at) >= paceStart && math.Abs(before-after) <= unsteady*max(before, after)
	perSecond = last.since(first)
	return perSecond, steady && perSecond > 0
}

// since returns the growth a second between two samples.
func (s paceSample) since(earlier paceSample) float64 {
	took := s.at.Sub(earlier.at).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(s.done-earlier.done) / took
}

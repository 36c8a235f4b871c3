package terminal

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cheggaaa/pb/v3"
)

// The bar of a run: how many sites of how many, the bar itself, and behind it as many facts as the terminal has room for.

const (
	barInterval = 200 * time.Millisecond
	paceSpan    = 30 * time.Second // of the pace by which the rest is estimated
	paceStep    = time.Second
	minProgress = 10 // columns of the bar itself, brackets included
)

// The second form is for a number without an end.
const (
	barTemplate   pb.ProgressBarTemplate = `{{string . "count"}} {{bar . "[" "=" ">" " " "]"}}{{string . "facts"}}`
	countTemplate pb.ProgressBarTemplate = `{{string . "count"}}{{string . "facts"}}`
)

// barState is what a bar shows.
type barState struct {
	done, total int64    // sites; total 0: unknown
	about       bool     // total is an estimate
	unforeseen  string   // why nothing can be said of the time that is left; "": the pace tells it
	facts       []string // further ones, the most important first
}

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
		count, facts := s.lay(width, pace.at(time.Now(), s.done))
		form := barTemplate
		if s.total == 0 {
			form = countTemplate
		}
		bar.SetTemplate(form).SetWidth(width).SetTotal(s.total).SetCurrent(s.done)
		bar.Set("count", count).Set("facts", facts).Write()
	}
}

// lay returns the text in front of the bar and behind it: facts as far as there is room for a bar, too.
func (s *barState) lay(width int, pace float64) (count, facts string) {
	count = number(s.done) + " sites"
	var list []string
	if s.total > 0 {
		about := ""
		if s.about {
			about = "~"
		}
		count = fmt.Sprintf("%s of %s%s sites", number(s.done), about, number(s.total))
		switch left := s.total - s.done; {
		case left <= 0:
		case s.unforeseen != "":
			list = append(list, s.unforeseen)
		case pace > 0:
			list = append(list, leftText(float64(left)/pace))
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

// leftText is an estimate of so many seconds, no finer than it is good.
func leftText(seconds float64) string {
	fine := time.Second
	if seconds > 600 {
		fine = time.Minute
	}
	return spanText(time.Duration(min(max(1, seconds), 1e9)*float64(time.Second)).Round(fine)) + " left"
}

// pace is how fast a number grows: on average over the last paceSpan.
type pace struct{ past []paceSample }

type paceSample struct {
	at   time.Time
	done int64
}

// at notes the number at a moment, and returns its growth a second; 0 at the beginning.
func (p *pace) at(now time.Time, done int64) float64 {
	if n := len(p.past); n == 0 || now.Sub(p.past[n-1].at) >= paceStep {
		p.past = append(p.past, paceSample{now, done})
	}
	for len(p.past) > 1 && now.Sub(p.past[1].at) >= paceSpan {
		p.past = p.past[1:]
	}
	took := now.Sub(p.past[0].at).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(done-p.past[0].done) / took
}

package terminal

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
)

// TestBarOnTerminal draws a bar on a terminal that is resized while it runs: it always fills a line, has room to move,
// and says what is counted.
func TestBarOnTerminal(t *testing.T) {
	master, terminal := hostiletest.Terminal(t, 40)
	screen := hostiletest.Watch(master)
	ctx, end := context.WithCancel(t.Context())
	drawn := make(chan struct{})
	go func() {
		defer close(drawn)
		drawBar(ctx, terminal, func() barState {
			return barState{done: 123_456, total: 1_000_000, about: true, unforeseen: "20 slow", facts: []string{"12,345 failed",
				"1,234 waiting", "98,765 with status 2xx"}}
		})
	}()
	for _, width := range []int{40, 80, 120, 60, 100} {
		hostiletest.Resize(t, terminal, width)
		screen.Await(t, "bar", func(line string) bool { return len(line) == width-1 })
	}
	end()
	<-drawn
	_ = terminal.Close()
	text := screen.End()
	if !strings.HasSuffix(text, "\n") || strings.Count(text, "\n") != 1 {
		t.Errorf("not all is one line: %q", text)
	}
	frame := regexp.MustCompile(
		`^123,456 of ~1,000,000 sites \[=*>? +\](  20 slow)?(  12 %)?(  0/s)?(  12,345 failed)?(  1,234 waiting)?(  98,765 with status 2xx)?$`)
	widths := map[int]int{}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
		widths[len(line)]++
		if !frame.MatchString(line) {
			t.Errorf("a bar of %d columns is %q", len(line), line)
		} else if bar := line[strings.IndexByte(line, '[') : strings.IndexByte(line, ']')+1]; len(bar) < minProgress {
			t.Errorf("there is hardly a bar in %q", line)
		}
	}
	if len(widths) != 5 {
		t.Errorf("bars by width: %v", widths)
	}
}

package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// human is the log of a terminal: a record is a sentence without time and level. Its facts follow behind a colon, and
// its remedy is a sentence of its own.
type human struct {
	mu      *sync.Mutex
	w       io.Writer
	level   slog.Level
	colored bool
	facts   []slog.Attr
}

func (h *human) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs returns a log whose records have these facts first.
func (h *human) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.facts = append(more.facts[:len(more.facts):len(more.facts)], attrs...)
	return &more
}

// WithGroup leaves names of groups out: they tell programs which facts belong together.
func (h *human) WithGroup(string) slog.Handler { return h }

// Handle writes a record as one line.
func (h *human) Handle(_ context.Context, r slog.Record) error {
	var facts []string
	remedy := ""
	fact := func(a slog.Attr) bool {
		switch text, ok := factText(a); {
		case !ok:
		case a.Key == "remedy":
			remedy = ". Remedy: " + text
		default:
			facts = append(facts, strings.ReplaceAll(a.Key, "_", " ")+" "+text)
		}
		return true
	}
	for _, a := range h.facts {
		fact(a)
	}
	r.Attrs(fact)
	text := Line(r.Message)
	if len(facts) > 0 {
		text += ": " + strings.Join(facts, ", ")
	}
	text += remedy
	switch {
	case r.Level >= slog.LevelError:
		text = red.in("Error:", h.colored) + " " + text
	case r.Level >= slog.LevelWarn:
		text = yellow.in("Warning:", h.colored) + " " + text
	default:
		text = upperFirst(text)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, text+"\n")
	return err
}

// factText is a fact as text. Groups and maps are for programs, and are left out like the empty fact.
func factText(a slog.Attr) (text string, ok bool) {
	if a.Equal(slog.Attr{}) {
		return "", false
	}
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindGroup:
		return "", false
	case slog.KindInt64:
		return printable.Number(v.Int64()), true
	case slog.KindUint64:
		return printable.Number(v.Uint64()), true
	case slog.KindTime:
		return v.Time().UTC().Format(time.DateTime) + " UTC", true
	case slog.KindAny:
		text = fmt.Sprint(v.Any())
		if strings.HasPrefix(text, "map[") {
			return "", false
		}
		return Line(text), text != ""
	default:
		return Line(v.String()), v.String() != ""
	}
}

package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
)

// coded is an error that adds nothing to the text of another, as that of an exit code.
type coded struct{ error }

func (c *coded) Unwrap() error { return c.error }

// TestMessage shows that only joined errors have a line each.
func TestMessage(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		if got := Message(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	one, two := errors.New("one\nforged"), errors.New("two\x1b[31m")
	f(one, `one\nforged`)
	f(errors.Join(one, two), `one\nforged`+"\n"+`two\u001b[31m`)
	f(&coded{errors.Join(one, &coded{two})}, `one\nforged`+"\n"+`two\u001b[31m`)
	f(fmt.Errorf("%w and %w", one, two), `one\nforged and two\u001b[31m`)
	f(fmt.Errorf("cannot: %w", errors.Join(one, two)), `cannot: one\nforged\ntwo\u001b[31m`)
	f(errors.New(strings.Repeat("x", 100_000)), strings.Repeat("x", maxMessage)+"…")
}

// TestHostileLog shows hostile texts in the log, in every form, whichever code logs them.
func TestHostileLog(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			log := NewLogger(&b, format, "debug")
			log.Info("message", "text", h.Text, "error", errors.New(h.Text), slog.Group("group", "text", h.Text), "number", 7)
			what := h.Name + " as " + format
			hostiletest.Check(t, what, b.Bytes(), 3*6*maxLogged+500)
			if n := strings.Count(b.String(), "\n"); n != 1 || strings.Count(b.String(), hostiletest.Mark) != 3 {
				t.Errorf("%s: %d lines: %.500q", what, n, b.String())
			}
			if format == "json" {
				var record struct {
					Text, Error string
					Group       struct{ Text string }
					Number      int
				}
				want := printable.Head(h.Text, maxLogged)
				if len(h.Text) > maxLogged {
					want += "…"
				} else {
					want = string([]rune(h.Text)) // of bytes that are no UTF-8, each on its own
				}
				if err := json.Unmarshal(b.Bytes(), &record); err != nil || record.Text != want || record.Error != want ||
					record.Group.Text != want || record.Number != 7 {
					t.Errorf("%s: %v: %.500q", what, err, b.String())
				}
			}
		}
	}
}

package terminal

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// maxMessage bounds, in bytes, a name or text from outside within a message. Paths and texts of an object store are
// long, and their ends matter.
const maxMessage = 4096

// Message is an error for a person. Joined errors have a line each. A line end within an error is escaped: it comes
// from outside, and the next line could pass for a message of ours.
func Message(err error) string {
	if inner := errors.Unwrap(err); inner != nil && inner.Error() == err.Error() {
		return Message(inner) // an exit code says nothing of its own
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var plain, lines []string
		for _, part := range joined.Unwrap() {
			plain, lines = append(plain, part.Error()), append(lines, Message(part))
		}
		if err.Error() == strings.Join(plain, "\n") { // and not an error that wraps several in a text of its own
			return strings.Join(lines, "\n")
		}
	}
	return Line(err.Error())
}

// Line is a text from outside, such as a name, in one line of bounded length.
func Line(s string) string { return printable.Clip(s, maxMessage) }

// Quoted is a word of a command, as a person can give it to a shell.
func Quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("./_-:=+,@%", r)
	}
	if word != "" && strings.TrimLeftFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// WriteJSON writes a value as indented JSON, with an escape for whatever a terminal might obey.
func WriteJSON(w io.Writer, v any) error {
	text, err := encodeJSON(v, "  ")
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// encodeJSON returns a value as JSON of so much indentation; "" is one line.
func encodeJSON(v any, indent string) ([]byte, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return printable.EscapeJSON(nil, text.String()), nil
}

// overBar writes lines of a log to a terminal on which a bar stands: the line that the bar has begun is cleared, and
// the bar draws itself anew below.
type overBar struct{ w io.Writer }

func (o overBar) Write(p []byte) (int, error) {
	n, err := o.w.Write(append([]byte("\r\x1b[K"), p...))
	return min(max(0, n-len("\r\x1b[K")), len(p)), err
}

// BesideBar returns the writer of a run's log if the run's progress is shown on w in this form.
func BesideBar(w io.Writer, form string) io.Writer {
	if file, ok := w.(*os.File); ok && (form == "auto" || form == "bar") && isTerminal(file) &&
		os.Getenv("TERM") != "dumb" && takesColor(file) {
		return overBar{w}
	}
	return w
}

// Speaks reports whether a log on w of this format is for a person: sentences, and pages where programs get facts.
func Speaks(w io.Writer, format string) bool { return format == "auto" && Is(w) }

// LogFormats and LogLevels are the values of --log-format and --log-level.
var (
	LogFormats = []string{"auto", "text", "json"}
	LogLevels  = []string{"debug", "info", "warn", "error"}
)

// NewLogger makes the log that --log-format and --log-level ask for: one line per record, with nothing in it that a
// terminal would obey. slog quotes what would end a line or a value; it leaves DEL as it is, and in JSON also C1
// controls and characters that reverse or hide text. Nor does it bound a value.
func NewLogger(w io.Writer, format, level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // one of LogLevels
	if Speaks(w, format) {
		return slog.New(&human{mu: &sync.Mutex{}, w: w, level: l, colored: ColorAuto.Colored(w)})
	}
	o := &slog.HandlerOptions{Level: l, ReplaceAttr: boundAttr}
	w = &printable.Writer{To: w}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// maxLogged bounds a text in the log, in bytes.
const maxLogged = 2048

// boundAttr bounds the texts of a record.
func boundAttr(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	default:
		return a // numbers, times, addresses
	}
	if len(text) > maxLogged {
		a.Value = slog.StringValue(printable.Head(text, maxLogged) + "…")
	}
	return a
}

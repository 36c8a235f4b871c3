// Package terminal answers one question: what may a person see? It lays out what scan, check, test, tokens, summary,
// diff and history have to say: which characters show as themselves, whether there are colours, and columns that are
// aligned by what a terminal makes of them. A page escapes all texts, so that no caller has to remember which texts
// come from a site.
//
// page.go has lines and tables, device_*.go the terminal itself, text.go messages, logs (human.go: on a terminal) and
// JSON. Most other files have the text of the command that they are named after; crawlers.go is a part of check,
// rows.go of test, and sites.go, progress.go, bar.go and ending.go of scan.
package terminal

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
)

// Is reports whether a reader or writer is a terminal (or another character device).
func Is(stream any) bool {
	file, ok := underlying(stream)
	return ok && isTerminal(file)
}

// underlying returns the file that a stream is, or writes to beside a bar.
func underlying(stream any) (*os.File, bool) {
	if beside, ok := stream.(overBar); ok {
		stream = beside.w
	}
	file, ok := stream.(*os.File)
	return file, ok
}

// isTerminal reports whether a file is a device of characters other than the null device.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Color says when there are colours: a value of --color.
type Color string

// The values. ColorAuto: on a terminal, unless NO_COLOR is set or TERM is dumb.
const (
	ColorAuto   Color = "auto"
	ColorAlways Color = "always"
	ColorNever  Color = "never"
)

// Set implements pflag.Value, as String and Type do.
func (c *Color) Set(value string) error {
	switch when := Color(value); when {
	case ColorAuto, ColorAlways, ColorNever:
		*c = when
		return nil
	}
	return fmt.Errorf("one of %s, %s, %s", ColorAuto, ColorAlways, ColorNever)
}

func (c *Color) String() string { return string(*c) }

// Type is what help calls the value.
func (c *Color) Type() string { return "when" }

// Colored reports whether text written to w has colours. A NO_COLOR that is empty counts as absent
// (https://no-color.org), and --color on the command line wins.
func (c Color) Colored(w io.Writer) bool {
	if c != ColorAuto {
		return c == ColorAlways
	}
	file, ok := underlying(w)
	return ok && isTerminal(file) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && takesColor(file)
}

// showsBlocks reports whether block elements may be written to w: it is a terminal that takes UTF-8, by the locale.
// Text in files and pipes is plain.
func showsBlocks(w io.Writer) bool {
	return Is(w) && takesUTF8()
}

// style is how a word stands out: the parameters of the control sequence that begins it, "Select Graphic Rendition".
// Only the sixteen colours of a terminal's own theme are used, so that text is legible on dark and on light.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// in returns a text in a style, or as it is.
func (s style) in(text string, colored bool) string {
	if !colored || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Bounds of what a page shows, in columns of the terminal.
const (
	pipeWidth   = 100 // of a page that is no terminal's
	minWidth    = 60  // a page is no narrower, even where that makes the terminal break lines
	maxColumn   = 40  // of all columns but the last
	minLast     = 20  // of the last one
	minYielding = 12  // of a first column that yields
)

// page is what a person reads: lines and tables, escaped, coloured, clipped to the width. Errors are those of the
// writer; end returns the first.
type page struct {
	out     *bufio.Writer
	colored bool
	width   int
}

func newPage(w io.Writer, when Color) *page {
	return &page{out: bufio.NewWriter(w), colored: when.Colored(w), width: max(Width(w), minWidth)}
}

// Width returns the number of columns for lines on a stream: that of its terminal, if it has one that reports a number.
func Width(w io.Writer) int {
	if file, ok := underlying(w); ok && isTerminal(file) {
		if n := terminalWidth(file); n > 0 {
			return n
		}
	}
	return pipeWidth
}

func (p *page) end() error { return p.out.Flush() }

// piece is a piece of text in one style; as a cell of a table it may stand at the right of its column.
type piece struct {
	text  string
	style style
	right bool
	whole bool // in the last column: neither clipped nor continued in a further line, so that it can be copied
}

func text(s string) piece                    { return piece{text: s} }
func textf(format string, args ...any) piece { return piece{text: fmt.Sprintf(format, args...)} }
func styled(s style, format string, a ...any) piece {
	return piece{text: fmt.Sprintf(format, a...), style: s}
}

// write writes a text that is clipped to so many columns, and returns how many it took.
func (p *page) write(s piece, most int) int {
	shown := clip(s.text, most)
	_, _ = p.out.WriteString(s.style.in(shown, p.colored)) // end has the error
	return columns(shown)
}

// line writes a line of pieces, clipped to the width.
func (p *page) line(pieces ...piece) {
	at := 0
	for _, s := range pieces {
		if at < p.width {
			at += p.write(s, p.width-at)
		}
	}
	_ = p.out.WriteByte('\n')
}

// LeftOut says in one line what is left out of an answer.
func LeftOut(list survey.Omissions) string { return Line(list.Line()) }

// leftOut writes the line of LeftOut unclipped, so that a program that reads the first line gets all of it.
func (p *page) leftOut(list survey.Omissions) {
	if len(list) > 0 {
		p.write(styled(red, "%s", LeftOut(list)), unclipped)
		p.line()
	}
}

// table is rows in columns. A column is as wide as its widest cell, if the page has room for that and the last column.
type table struct {
	indent int
	rows   [][]piece
	wrap   bool // the last column goes on in further lines, instead of being clipped
	whole  bool // nothing is clipped, however wide the page would have to be
	yields bool // the first column gives way before the others, down to minYielding
}

func (t *table) add(cells ...piece) { t.rows = append(t.rows, cells) }

const gap = 2 // between columns

func (p *page) table(t *table) {
	widths := p.widths(t)
	for _, row := range t.rows {
		p.row(t, row, widths)
	}
}

// widths decides how wide all columns but the last are. Where there is too little room, the widest gives way.
func (p *page) widths(t *table) (widths []int) {
	most, room := maxColumn, p.width-t.indent-max(minLast, p.width/4)
	if t.whole {
		most, room = unclipped, math.MaxInt
	}
	for _, row := range t.rows {
		for i, c := range row[:max(0, len(row)-1)] {
			if i == len(widths) {
				widths, room = append(widths, 0), room-gap
			}
			widths[i] = max(widths[i], columns(clip(c.text, most)))
		}
	}
	for _, width := range widths {
		room -= width
	}
	for ; room < 0 && len(widths) > 0; room++ {
		give := slices.Index(widths, slices.Max(widths))
		if t.yields && widths[0] > minYielding {
			give = 0
		}
		if widths[give] == 1 {
			break
		}
		widths[give]--
	}
	return widths
}

func (p *page) row(t *table, row []piece, widths []int) {
	p.blank(t.indent)
	at, owed := t.indent, 0 // owed: spaces that are written only if text follows
	for i, c := range row {
		if i == len(row)-1 {
			if c.text != "" {
				p.blank(owed)
				p.last(t, c, at)
			} else {
				_ = p.out.WriteByte('\n')
			}
			return
		}
		n := columns(clip(c.text, widths[i]))
		before, after := 0, widths[i]-n
		if c.right {
			before, after = after, before
		}
		if n == 0 {
			owed += widths[i]
		} else {
			p.blank(owed + before)
			p.write(c, widths[i])
			owed = after
		}
		owed += gap
		at += widths[i] + gap
	}
}

const unclipped = 1 << 20 // columns: no cell is as wide

// last writes the last cell of a row, which begins at a column of the page, and ends the row.
func (p *page) last(t *table, c piece, at int) {
	width := max(minLast, p.width-at)
	if c.whole {
		width = unclipped
	} else if t.wrap {
		p.flow(at, words(c))
		return
	}
	p.write(c, width)
	_ = p.out.WriteByte('\n')
}

func (p *page) blank(n int) {
	for range n {
		_ = p.out.WriteByte(' ')
	}
}

// words takes pieces apart where a line may end: at spaces, but not within a clause that is short (`; / open;`).
func words(pieces ...piece) (list []piece) {
	for _, c := range pieces {
		for clause := range strings.SplitAfterSeq(printable.Line(c.text), "; ") {
			if clause = strings.TrimSpace(clause); clause != "" && columns(clause) <= minLast {
				list = append(list, piece{text: clause, style: c.style})
				continue
			}
			for word := range strings.FieldsSeq(clause) {
				list = append(list, piece{text: word, style: c.style})
			}
		}
	}
	return list
}

// flow writes words from a column of the page on, in as many lines as they need, and ends the last one.
func (p *page) flow(indent int, words []piece) {
	var run piece // words of one style, in one line
	width := max(minLast, p.width-indent)
	used := 0
	for i, w := range words {
		w.text = clip(w.text, width)
		n := columns(w.text)
		switch {
		case i == 0:
			run, used = w, n
		case used+1+n > width:
			p.write(run, width)
			_ = p.out.WriteByte('\n')
			p.blank(indent)
			run, used = w, n
		case w.style == run.style:
			run.text += " " + w.text
			used += 1 + n
		default:
			p.write(run, width)
			p.blank(1)
			run = w
			used += 1 + n
		}
	}
	p.write(run, width)
	_ = p.out.WriteByte('\n')
}

// cells measures text as terminals show it. What Unicode calls ambiguous counts as one column, whatever the locale, so
// that the same file gives the same page everywhere.
var cells = runewidth.Condition{StrictEmojiNeutral: true}

// columns is how wide a text is on a terminal.
func columns(s string) int { return cells.StringWidth(s) }

// clip makes a text fit into a line of so many columns of a terminal. The work does not grow with the text: clip does
// not read what it cannot show.
func clip(s string, most int) string {
	const longest = 16 // octets that a column may need: a letter and its marks
	if len(s) > longest*most {
		s = printable.Head(s, longest*most) + "…"
	}
	return cells.Truncate(printable.Line(s), most, "…")
}

// line makes a site's text fit into one line of a terminal.
func line(s string) string {
	const most = 100
	s = printable.Line(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

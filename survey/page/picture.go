package page

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// This file writes one figure: its table as CSV, or its picture, an SVG that needs no other file. The plots are those
// of the page, in boxes of fixed places; what the page leaves to a browser, texts that wrap and rows below each other,
// is placed here.

// Places in a picture, in pixels.
const (
	pictureWidth = 1080
	edge         = 24
	namesWidth   = 252 // left of bars and cells
	valuesWidth  = 72  // right of bars
	levelsWidth  = 56  // left of lines and columns
	endsWidth    = 226 // right of lines
	barHeight    = 18
	eventsHeight = 64  // over lines that have events
	uprightRoom  = 150 // over cells, for names that read upwards
	cellHeight   = 22
)

// pictureStyle has the styles of the page's marks and of the texts. It has the light colours in place of variables,
// which few programs but browsers know.
var pictureStyle = func() string {
	colours := map[string]string{}
	for _, found := range regexp.MustCompile(`(--\w+): light-dark\((#\w+)`).FindAllStringSubmatch(style, -1) {
		colours[found[1]] = found[2]
	}
	text := asset("templates/marks.css") + `.paper { fill: var(--page); } .headline { font-size: 24px; font-weight: 700; fill: var(--ink); } .sub { font-size: 16px; }
.name, .value { font-size: 15px; fill: var(--ink); } .value { font-weight: 600; } .small { font-size: 12px; } .cell { font-size: 11px; text-anchor: middle; fill: var(--ink); } .light { fill: var(--on); }
`
	return regexp.MustCompile(`var\((--\w+)\)`).ReplaceAllStringFunc(text,
		func(name string) string { return colours[name[4:len(name)-1]] })
}()

// UnknownFigureError says that there is no figure of a name.
type UnknownFigureError struct{ Known []string }

func (e *UnknownFigureError) Error() string {
	return "there is no such figure; there are " + strings.Join(e.Known, ", ")
}

// WriteFigure writes a figure by the options' definition: as SVG, or its first table as CSV. If the survey cannot show
// a figure, the error says why. For an unknown name it is an UnknownFigureError.
func WriteFigure(w io.Writer, s *tables.Survey, o Options, name string, asTable bool) error {
	b, err := newBuilder(s, o)
	if err != nil {
		return err
	}
	unknown := &UnknownFigureError{}
	for _, g := range b.groups() {
		for i := range g.Figures {
			f := &g.Figures[i]
			if f.ID == name {
				return b.write(w, f, asTable)
			}
			unknown.Known = append(unknown.Known, f.ID)
		}
	}
	return unknown
}

func (b *builder) write(w io.Writer, f *figure, asTable bool) error {
	since := f.Since
	var shown *variant
	for i := range f.Variants {
		if f.Variants[i].On {
			shown = &f.Variants[i]
			since = shown.Empty
		}
	}
	switch {
	case f.Since != "" || !asTable && since != "":
		return fmt.Errorf("figure %s has nothing to show, since %s", f.ID, since)
	case asTable && len(f.Tables) == 0:
		return fmt.Errorf("figure %s has no table", f.ID)
	case !asTable && len(shown.Plots) == 0:
		return fmt.Errorf("figure %s is a table: give -o a name that ends with .csv", f.ID)
	}
	if asTable {
		var text strings.Builder
		if err := writeCSV(&text, f.Tables[0].columns, f.Tables[0].rows); err != nil {
			return err
		}
		_, err := io.WriteString(w, text.String())
		return err
	}
	s := b.picture(shown)
	if s.err != nil {
		return fmt.Errorf("cannot draw figure %s: %w", f.ID, s.err)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, sans-serif">
<title>%[3]s</title>
<style>
%[4]s</style>
%[5]s</svg>
`, pictureWidth, s.y, html.EscapeString(plain(shown.Headline)), pictureStyle, printable.Text(s.out.String()))
	return err
}

// sketch is a picture that grows downwards.
type sketch struct {
	out bytes.Buffer
	y   int // of its end
	err error
}

func (b *builder) picture(v *variant) *sketch {
	s := &sketch{y: edge}
	s.err = markup.ExecuteTemplate(&s.out, "patterns", nil)
	s.out.WriteString(`<rect width="100%" height="100%" class="paper"/>`)
	s.text(edge, "headline", v.Headline, 24)
	s.text(edge, "sub", strings.TrimSuffix(v.Subtitle+" ("+v.By+")", " ()"), 16)
	s.y += 16
	for _, plot := range v.Plots {
		switch plot := plot.(type) {
		case *bars:
			s.bars(plot)
		case *matrix:
			s.matrix(plot)
		case *lines:
			s.y += edge + eventsHeight*min(1, len(plot.Events))
			s.plot(edge+levelsWidth, s.y, pictureWidth-2*edge-levelsWidth-endsWidth, plot.Height, "lines", plot)
			s.y += plot.Height + edge
		case *columns:
			s.y += 2 * edge
			s.plot(edge+levelsWidth, s.y, pictureWidth-2*edge-levelsWidth-edge, plot.Height, "columns", plot)
			s.y += plot.Height + edge
		}
		s.y += 16
	}
	s.text(edge, "small", v.Caveat, 12)
	if leftOut := b.survey.LeftOut.Line(); leftOut != "" {
		s.text(edge, "small", capital(leftOut), 12)
	}
	s.text(edge, "small", "Source: "+b.source(), 12)
	s.y += 16
	return s
}

// plot adds a template of the page, in a box.
func (s *sketch) plot(x, y, width, height int, template string, of any) {
	fmt.Fprintf(&s.out, `<svg x="%d" y="%d" width="%d" height="%d" overflow="visible">`, x, y, width, height)
	s.err = errors.Join(s.err, markup.ExecuteTemplate(&s.out, template, of))
	s.out.WriteString("</svg>\n")
}

func (s *sketch) swatch(x, y, width, height int, class string) {
	s.plot(x, y, width, height, "parts", []part{{class, "0%", "100%"}})
}

func (s *sketch) line(x, y int, class, text string) {
	fmt.Fprintf(&s.out, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(text))
}

// text adds a text below what is there, in as many lines as it needs.
func (s *sketch) text(x int, class, text string, size int) {
	for _, line := range wrapped(text, (pictureWidth-x-edge)*5/(3*size)) {
		s.y += size * 4 / 3
		s.line(x, s.y, class, line)
	}
	s.y += size / 3
}

// wrapped divides a text into lines of so many characters at most.
func wrapped(text string, most int) (lines []string) {
	var line []rune
	for _, field := range strings.Fields(text) {
		word := []rune(field)
		for len(line) > 0 && len(line)+1+len(word) > most || len(word) > most {
			if len(line) == 0 {
				line, word = word[:most], word[most:]
			}
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, word...)
	}
	return append(lines, string(line))
}

// keys explains classes, in rows.
func (s *sketch) keys(keys []key) {
	x := edge
	for _, k := range keys {
		width := 48 + 7*len(k.Label)
		if x > edge && x+width > pictureWidth {
			x, s.y = edge, s.y+20
		}
		s.swatch(x, s.y, 20, 12, k.Class)
		s.line(x+28, s.y+10, "small", k.Label)
		x += width
	}
	s.y += 20 * min(1, len(keys))
}

func (s *sketch) bars(b *bars) {
	s.keys(b.Keys)
	width := pictureWidth - 2*edge - namesWidth - valuesWidth
	for _, row := range b.Rows {
		top := s.y + 8
		s.plot(edge+namesWidth, top, width, barHeight, "parts", row.Parts)
		s.line(pictureWidth-edge-valuesWidth+12, top+14, "value", row.Value)
		s.y = top - 5
		for _, name := range wrapped(row.Name, 30) {
			s.y += 17
			s.line(edge, s.y, "name", name)
		}
		for _, under := range wrapped(row.Under, 38) {
			s.y += 14
			s.line(edge, s.y, "small", under)
		}
		s.y = max(s.y, top+barHeight)
	}
	s.plot(edge+namesWidth, s.y+8, width, 20, "ticks", b.Ticks)
	s.y += 28
	s.text(edge+namesWidth, "small", b.Label, 12)
}

func (s *sketch) matrix(m *matrix) {
	s.keys(m.Scale)
	s.text(edge, "small", m.Corner, 12)
	width := min((pictureWidth-2*edge-namesWidth)/max(1, len(m.Across)), 4*cellHeight)
	s.y += cellHeight
	if m.Upright {
		s.y += uprightRoom - cellHeight
	}
	for j, name := range m.Across {
		x := edge + namesWidth + j*width + width/2
		if m.Upright {
			fmt.Fprintf(&s.out, `<g transform="translate(%d %d) rotate(-90)">`, x+4, s.y-4)
			s.line(0, 0, "small", name)
			s.out.WriteString("</g>")
		} else {
			s.line(x, s.y-4, "cell", name)
		}
	}
	for _, row := range m.Down {
		s.line(edge, s.y+15, "small", row.Label)
		for j, c := range row.Cells {
			x, class := edge+namesWidth+j*width, "cell"
			if c.Class == "s4" || c.Class == "s5" {
				class += " light"
			}
			if c.Class != "" && c.Class != "zero" {
				s.swatch(x, s.y, width-1, cellHeight-1, c.Class)
			}
			s.line(x+width/2, s.y+15, class, c.Text)
		}
		s.y += cellHeight
	}
	s.y += 8
}

// Package page answers one question: how does a survey look? It writes the report page, a single HTML file that loads
// nothing, and the tables of its figures as CSV. figures*.go choose what each figure says and shows, plot.go computes
// where marks go, and templates/ has the markup, the styles and the script.
package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/tables"
)

//go:embed templates
var files embed.FS

// Options of Write.
type Options struct {
	Title      string // of the page; "" is one made of the list and the date
	Definition string // shown first: one of survey.DefinitionNames; "" is survey.Full
}

// The styles and the script stand in the page, and the page's policy allows these two texts and no other.
var (
	style  = asset("templates/marks.css") + asset("templates/page.css")
	script = asset("templates/page.js")
	policy = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src '" + digest(style) +
		"'; script-src '" + digest(script) + "'"
)

func asset(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

var markup = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count":   printable.Number[int64],
	"percent": percent,
	"marked":  marked,
	"whole":   whole,
	"spare":   spare,
	"kind":    func(plot any) string { return strings.TrimPrefix(fmt.Sprintf("%T", plot), "*page.") },
}).ParseFS(files, "templates/*.html"))

// view is what the template shows.
type view struct {
	Title, List, Date      string
	Policy                 template.HTMLAttr
	Style                  template.CSS
	Script                 template.JS
	Definitions            []choice
	Numbers                []number
	Explain                string  // what flags and ranges mean
	Groups                 []group // those of the story first
	Missing                []string
	Method                 []method.Section
	Citation               method.Section
	Tool, Registry, ScanID string
	LeftOut                string // see survey.Omissions.Line
	Counted                string // see summary.Summary.Counted
	Description            string // of the page, for what shows a link to it
	Source                 string // of each figure
}

// choice is a definition, and the sentence of the first screen by it.
type choice struct {
	Name, Words, Question, Answer string
	On                            bool
}

type number struct{ Value, Label string }

// group is figures under one heading of the list of sections.
type group struct {
	Title   string
	Figures []figure
}

// figure is one plot with its tables. A figure that depends on the definition has a variant for each.
type figure struct {
	ID, Short string // Short is its name in the list of sections
	Variants  []variant
	Tables    []sheet // of all definitions
	Queries   []query
	Since     string // why it is missing: a clause
	Folded    bool   // behind its headline
	Open      bool   // Tables are
}

// variant is a figure by one definition, or its only form.
type variant struct {
	Definition string // "" for the only form
	By         string // the definition of the numbers, or ""
	On         bool
	ID         string // of the figure and the definition
	Headline   string
	Subtitle   string
	Sites      int64  // that the headline counts
	Caveat     string // what it means, and what it does not; the same of all variants
	Empty      string // why there is nothing to show by this definition: a clause; then there is no plot
	Plots      []any
}

type query struct{ Name, SQL string }

func newBuilder(s *tables.Survey, o Options) (*builder, error) {
	on := cmp.Or(o.Definition, survey.Full)
	if !slices.Contains(survey.DefinitionNames(), on) {
		return nil, fmt.Errorf("no definition %.40q", on)
	}
	return &builder{survey: s, on: on}, nil
}

// Write writes the page of a survey.
func Write(w io.Writer, s *tables.Survey, o Options) error {
	b, err := newBuilder(s, o)
	if err != nil {
		return err
	}
	m := s.Manifest
	groups, missing := b.shown()
	v := view{
		Title: o.Title, List: plain(s.List), Date: m.ScanDate,
		Policy: template.HTMLAttr(`content="` + policy + `"`),    //nolint:gosec // these texts are ours
		Style:  template.CSS(style), Script: template.JS(script), //nolint:gosec // likewise
		Tool: m.ToolVersion, Registry: m.RegistryVersion, ScanID: m.ScanID,
		LeftOut: s.LeftOut.Line(), Counted: s.Summaries[0].Counted(), Numbers: b.numbers(),
		Explain: b.full().Explain(0, b.full().Blocking.Unobserved), Groups: groups, Missing: missing, Source: b.source(),
	}
	if v.Title == "" {
		v.Title = "Which sites block AI crawlers?"
	}
	for i, d := range survey.Definitions() {
		on := d.Name == b.on
		v.Definitions = append(v.Definitions, choice{d.Name, d.Words, d.Question, b.answer(s.Summaries[i]), on})
		if on {
			v.Description = v.Definitions[i].Answer
		}
	}
	for i, section := range s.Method {
		switch {
		case strings.HasPrefix(section.Title, "How to cite"):
			v.Citation = section
		case i > 0: // the first is about the dataset's folder
			v.Method = append(v.Method, section)
		}
	}
	// The page is written only when it is complete, so that an error leaves no half of it.
	var page bytes.Buffer
	if err := markup.Execute(&page, &v); err != nil {
		return fmt.Errorf("cannot write the page: %w", err)
	}
	// The markup, the styles and the script are printable, so this touches only what a dataset or a user has put in.
	_, err = io.WriteString(w, printable.Text(page.String()))
	return err
}

// shown returns the figures that have content, and one text for each reason why others have none.
func (b *builder) shown() (groups []group, missing []string) {
	var reasons []string
	names := map[string][]string{}
	for i, g := range b.groups() {
		for j := range g.Figures {
			f := &g.Figures[j]
			f.Folded = i > 0
			if f.Since != "" {
				names[f.Since] = append(names[f.Since], f.Short)
				if len(names[f.Since]) == 1 {
					reasons = append(reasons, f.Since)
				}
			}
		}
		g.Figures = slices.DeleteFunc(g.Figures, func(f figure) bool { return f.Since != "" })
		if len(g.Figures) > 0 {
			groups = append(groups, g)
		}
	}
	for _, since := range reasons {
		missing = append(missing, strings.Join(names[since], ", ")+", since "+since)
	}
	return groups, missing
}

// source says where the numbers of a figure come from.
func (b *builder) source() string {
	m := b.survey.Manifest
	return fmt.Sprintf("robots.txt of %s, %s; scan %s by bulkscan %s", plain(b.survey.List), m.ScanDate, m.ScanID,
		m.ToolVersion)
}

// plain makes a text from a dataset safe to show: one bounded line without characters that hide or turn others.
func plain(text string) string { return printable.Clip(text, 80) }

// whole makes a text in which no line end separates a number of sites from its sign, or divides a date. Names of
// definitions are in small print. Its blanks are character references, since printable.Text escapes the character.
func whole(text string) template.HTML {
	text = strings.ReplaceAll(template.HTMLEscapeString(text), ", n = ", ", n&nbsp;=&nbsp;")
	text = ids.ReplaceAllString(text, `<small>$0</small>`)
	return template.HTML(days.ReplaceAllString(text, `<span class="day">$0</span>`)) //nolint:gosec // it is escaped
}

var (
	days = regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`)
	ids  = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)
)

// span is a piece of a text of the method: code where it stood between backticks.
type span struct {
	Code bool
	Text string
}

func marked(text string) (spans []span) {
	for i, part := range strings.Split(printable.Line(text), "`") {
		spans = append(spans, span{i%2 == 1, part})
	}
	return spans
}

// Package page answers one question: how does a survey look? It writes the report page, a single HTML file that loads nothing,
// and the tables of its figures as CSV. figures*.go choose what each figure says and shows, plot.go computes where marks go, and
// templates/ has the markup, the styles and the script.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
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
	style  = asset("templates/page.css")
	script = asset("templates/page.js")
	policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src '" + digest(style) + "'; script-src '" + digest(script) + "'"
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
	"count":   grouped[int64],
	"percent": percent,
	"marked":  marked,
	"whole":   whole,
	"kind":    func(plot any) string { return strings.TrimPrefix(fmt.Sprintf("%T", plot), "*page.") },
}).ParseFS(files, "templates/*.html"))

// view is what the template shows.
type view struct {
	Title, List, Date      string
	Policy                 template.HTMLAttr
	Style                  template.CSS
	Script                 template.JS
	Definitions            []choice
	Answers                []answer // one a definition
	Numbers                []number
	Explain                string // what flags and ranges mean
	Groups                 []group
	Method                 []survey.Section
	Citation               survey.Section
	Tool, Registry, ScanID string
	Counted                string // see survey.Summary.Counted
}

type choice struct {
	Name, Question string
	On             bool
}

// answer is the first screen by one definition: a sentence and the ten tokens blocked most.
type answer struct {
	Definition string
	On         bool
	Sentence   string
	Title      string // over Top
	Top        *bars
	Subtitle   string
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
	Queries   []query
	Note      string // how the tables can be had that no query has
}

// variant is a figure by one definition, or its only form.
type variant struct {
	Definition string // "" for the only form
	On         bool
	ID         string // of the figure and the definition
	Headline   string
	Subtitle   string
	Sites      int64 // that the headline rests on
	Caveat     string
	Empty      string // why there is nothing to show; then there is no plot
	Plots      []any
	Tables     []sheet
	Open       bool // Tables are
}

type query struct{ Name, SQL string }

// Write writes the page of a survey.
func Write(w io.Writer, s *survey.Survey, o Options) error {
	if o.Definition == "" {
		o.Definition = survey.Full
	}
	if !slices.Contains(survey.DefinitionNames(), o.Definition) {
		return fmt.Errorf("no definition %.40q", o.Definition)
	}
	b := &builder{survey: s, on: o.Definition}
	m := s.Manifest
	v := view{
		Title: o.Title, List: plain(s.List), Date: m.ScanDate,
		Policy: template.HTMLAttr(`content="` + policy + `"`), Style: template.CSS(style), Script: template.JS(script), //nolint:gosec // these texts are ours
		Tool: m.ToolVersion, Registry: m.RegistryVersion, ScanID: m.ScanID,
		Counted: s.Summaries[0].Counted(grouped), Numbers: b.numbers(), Explain: b.full().Explain(0, b.full().Blocking.Unobserved), Groups: b.groups(),
	}
	if v.Title == "" {
		v.Title = "Which sites block AI crawlers?"
	}
	for i, d := range survey.Definitions() {
		on := d.Name == o.Definition
		v.Definitions = append(v.Definitions, choice{d.Name, d.Question, on})
		v.Answers = append(v.Answers, b.answer(s.Summaries[i], on))
	}
	for i, section := range s.Method {
		switch {
		case strings.HasPrefix(section.Title, "How to cite"):
			v.Citation = section
		case i > 0: // the first is about the dataset's folder
			v.Method = append(v.Method, section)
		}
	}
	// Written only when it is whole: an error leaves no half of a page.
	var page bytes.Buffer
	if err := markup.Execute(&page, &v); err != nil {
		return fmt.Errorf("cannot write the page: %w", err)
	}
	// The markup, the styles and the script are printable, so this touches only what a dataset or a user has put in.
	_, err := io.WriteString(w, printable.Text(page.String()))
	return err
}

// plain makes a text from a dataset safe to show: one bounded line without characters that hide or turn others.
func plain(text string) string { return printable.Clip(text, 80) }

// whole makes a text whose number of sites is not broken from its sign at the end of a line. The blanks are references, since
// printable.Text escapes the character.
func whole(text string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(text), ", n = ", ", n&nbsp;=&nbsp;")) //nolint:gosec // it is escaped
}

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

package options

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/terminal"
)

// Manual is a program's manual. Its pages say what --help says, from the same texts.
type Manual struct {
	Version              string // the program's name and version
	Date                 time.Time
	ExitCodes, Variables []terminal.Fact
	Home                 string
}

// HasPage reports whether a command has a manual page.
func HasPage(c *cobra.Command) bool {
	return !c.HasParent() || c.IsAvailableCommand() && c.Name() != "help"
}

// WriteAll writes the pages of a program to a folder.
func (m *Manual) WriteAll(dir string, root *cobra.Command) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if HasPage(c) {
			// #nosec G306 -- for everyone to read
			errs = append(errs, os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(m.Page(c)), 0o644))
		}
	}
	return errors.Join(errs...)
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// Page is the page of a command in the macros of man(7).
func (m *Manual) Page(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	var p page
	fmt.Fprintf(&p, ".TH %s 1 %s %q %q\n", strings.ToUpper(pageName(c)), m.Date.Format(time.DateOnly), m.Version, c.Root().Name()+" manual")
	p.WriteString(".SH NAME\n")
	p.fill(pageName(c) + " - " + c.Short)
	use := strings.TrimPrefix(c.UseLine(), c.CommandPath())
	if c.HasSubCommands() {
		use = " COMMAND [flags] [ARGUMENT…]"
	}
	fmt.Fprintf(&p, ".SH SYNOPSIS\n\\fB%s\\fR%s\n.SH DESCRIPTION\n", roff(c.CommandPath()), roff(use))
	p.text(cmp.Or(c.Long, c.Short+"."))
	if c.HasSubCommands() {
		p.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				p.item(`\fB`+roff(sub.Name())+`\fR`, sub.Short)
			}
		}
	}
	p.WriteString(".SH OPTIONS\n")
	c.Flags().VisitAll(p.option)
	if c.Example != "" {
		p.WriteString(".SH EXAMPLES\n")
		p.text(c.Example)
	}
	p.WriteString(".SH EXIT STATUS\n")
	for _, exit := range m.ExitCodes {
		p.item(exit.Name, exit.Text)
	}
	p.WriteString(".SH ENVIRONMENT\n")
	for _, variable := range m.Variables {
		p.item(roff(variable.Name), variable.Text)
	}
	p.WriteString(".SH SEE ALSO\n")
	for _, other := range append([]*cobra.Command{c.Root()}, c.Root().Commands()...) {
		if other != c && HasPage(other) {
			fmt.Fprintf(&p, "\\fB%s\\fR(1),\n", roff(pageName(other)))
		}
	}
	p.fill(m.Home)
	return p.String()
}

// page is the source of a manual page.
type page struct{ strings.Builder }

func (p *page) item(head, text string) {
	fmt.Fprintf(p, ".TP\n%s\n", head)
	p.fill(text)
}

func (p *page) option(f *pflag.Flag) {
	value, text := pflag.UnquoteUsage(f)
	head := `\fB` + roff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		head = `\fB\-` + f.Shorthand + `\fR, ` + head
	}
	if value != "" {
		head += ` \fI` + roff(value) + `\fR`
	}
	if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	p.item(head, text)
}

// text writes paragraphs. Paragraphs whose first line begins with two spaces keep their line ends.
func (p *page) text(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.WriteString(".PP\n")
		}
		if !strings.HasPrefix(paragraph, "  ") {
			p.fill(paragraph)
			continue
		}
		p.WriteString(".nf\n")
		for line := range strings.Lines(paragraph) {
			p.WriteString(`\&` + roff(line))
		}
		p.WriteString("\n.fi\n")
	}
}

// fill writes text that roff may break anywhere, in lines that mandoc does not call too long.
func (p *page) fill(text string) {
	width := 0
	for i, word := range strings.Fields(text) {
		word = roff(word)
		switch {
		case i == 0:
		case width+1+len(word) > 80:
			p.WriteString("\n")
			width = 0
		default:
			p.WriteString(" ")
			width++
		}
		if width == 0 && strings.ContainsAny(word[:1], ".'") { // else a request
			word = `\&` + word
		}
		p.WriteString(word)
		width += len(word)
	}
	p.WriteString("\n")
}

// roff escapes what has a meaning in roff, and what is not ASCII.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > 0x7e:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

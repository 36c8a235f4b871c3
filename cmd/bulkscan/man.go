package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The manual pages say what --help says, from the same texts.

func (a *app) manCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print a manual page, or write all of them",
		Long: `man prints the manual page of a command, or of bulkscan. -o writes all pages to a folder: bulkscan.1 and one a command.

The pages have today's date, or that of SOURCE_DATE_EPOCH (seconds since 1970).`,
		Example: `  bulkscan man scan | man -l -
  bulkscan man -o /usr/local/share/man/man1`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			date, err := manDate()
			if err != nil {
				return err
			}
			switch {
			case dir != "" && len(args) > 0:
				return usagef("-o writes all pages; leave %s out", args[0])
			case dir != "":
				return writeManPages(dir, c.Root(), date)
			}
			subject, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 || !hasManPage(subject) {
				return usagef("there is no command %q", args[0])
			}
			_, err = fmt.Fprint(a.stdout, manPage(subject, date))
			return err
		},
	}
	c.Flags().StringVarP(&dir, "write", "o", "", "folder that gets all pages")
	return c
}

// manDate is the date of the pages. A release sets SOURCE_DATE_EPOCH, so that building it again gives the same bytes.
func manDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usagef("SOURCE_DATE_EPOCH %q: not a number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func hasManPage(c *cobra.Command) bool {
	return !c.HasParent() || c.IsAvailableCommand() && c.Name() != "help"
}

func writeManPages(dir string, root *cobra.Command, date time.Time) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if hasManPage(c) {
			// #nosec G306 -- for everyone to read
			errs = append(errs, os.WriteFile(filepath.Join(dir, manName(c)+".1"), []byte(manPage(c, date)), 0o644))
		}
	}
	return errors.Join(errs...)
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command in the macros of man(7).
func manPage(c *cobra.Command, date time.Time) string {
	c.InitDefaultHelpFlag()
	var p manual
	fmt.Fprintf(&p, ".TH %s 1 %s %q %q\n", strings.ToUpper(manName(c)), date.Format(time.DateOnly), "bulkscan "+
		toolVersion(), "bulkscan manual")
	p.WriteString(".SH NAME\n")
	p.fill(manName(c) + " - " + c.Short)
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
	for _, exit := range exitCodes {
		p.item(exit.name, exit.meaning)
	}
	p.WriteString(".SH ENVIRONMENT\n")
	for _, variable := range variables {
		p.item(roff(variable.name), variable.meaning)
	}
	p.WriteString(".SH SEE ALSO\n")
	for _, other := range append([]*cobra.Command{c.Root()}, c.Root().Commands()...) {
		if other != c && hasManPage(other) {
			fmt.Fprintf(&p, "\\fB%s\\fR(1),\n", roff(manName(other)))
		}
	}
	p.fill(home)
	return p.String()
}

// manual is the source of a manual page.
type manual struct{ strings.Builder }

func (p *manual) item(head, text string) {
	fmt.Fprintf(p, ".TP\n%s\n", head)
	p.fill(text)
}

func (p *manual) option(f *pflag.Flag) {
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
func (p *manual) text(text string) {
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
func (p *manual) fill(text string) {
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

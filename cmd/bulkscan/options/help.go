package options

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/terminal"
)

// Group is a section of flags.
type Group struct {
	Title string
	Flags []string
}

// manyFlags is how many flags a command shows without groups.
const manyFlags = 15

// Divide divides the visible flags among groups. A flag of two groups is in the first. A group without flags gets the
// flags of no group. Up to manyFlags flags are one group.
func Divide(flags *pflag.FlagSet, groups []Group) []Group {
	var rest []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			rest = append(rest, f.Name)
		}
	})
	if len(rest) <= manyFlags {
		return []Group{{"Flags", rest}}
	}
	var divided []Group
	for _, group := range groups {
		of := Group{Title: group.Title}
		for _, name := range group.Flags {
			if i := slices.Index(rest, name); i >= 0 {
				of.Flags, rest = append(of.Flags, name), slices.Delete(rest, i, i+1)
			}
		}
		if len(of.Flags) > 0 || len(group.Flags) == 0 {
			divided = append(divided, of)
		}
	}
	for i := range divided {
		if len(divided[i].Flags) == 0 {
			divided[i].Flags = rest
		}
	}
	return divided
}

// Help is what --help prints: the description, examples, and the flags in groups, wrapped to a width.
type Help struct {
	strings.Builder
	width int
}

// NewHelp returns the help of a command, to which lines can be added.
func NewHelp(c *cobra.Command, groups []Group, width int) *Help {
	h := &Help{width: width}
	h.Text(c.Long)
	if c.Long == "" {
		h.Text(c.Short + ".")
	}
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND [flags] [ARGUMENT…]"
	}
	h.section("Usage", "  "+use)
	if c.Example != "" {
		h.section("Examples", c.Example)
	}
	var commands []terminal.Fact
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			commands = append(commands, terminal.Fact{Name: sub.Name(), Text: sub.Short})
		}
	}
	if len(commands) > 0 {
		h.Facts("Commands", commands)
	}
	for _, group := range Divide(c.Flags(), groups) {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range group.Flags {
			set.AddFlag(c.Flags().Lookup(name))
		}
		h.section(group.Title, set.FlagUsagesWrapped(width))
	}
	return h
}

// Text adds a paragraph.
func (h *Help) Text(text string) { h.WriteString(printable.Wrap(text, h.width) + "\n") }

func (h *Help) section(title, text string) {
	fmt.Fprintf(h, "\n%s:\n%s\n", title, strings.TrimRight(text, "\n"))
}

// Facts adds a section of facts, the texts below each other.
func (h *Help) Facts(title string, facts []terminal.Fact) {
	var lines strings.Builder
	column := 0
	for _, f := range facts {
		column = max(column, utf8.RuneCountInString(f.Name))
	}
	for _, f := range facts {
		text := strings.ReplaceAll(printable.Wrap(f.Text, h.width-column-4), "\n", "\n"+strings.Repeat(" ", column+4))
		fmt.Fprintf(&lines, "  %-*s  %s\n", column, f.Name, text)
	}
	h.section(title, lines.String())
}

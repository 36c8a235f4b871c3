package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/terminal"
)

// What --help prints: the description, examples, and the flags in groups, wrapped to the width of the terminal.

// flagGroup is a section of flags.
type flagGroup struct {
	title string
	names []string
}

// mostUsed are shown first by scan.
var mostUsed = flagGroup{"Most used", []string{"out", "config", "contact", "limit", "format", "column", "concurrency",
	"rate", "opt-out", "dry-run"}}

// flagGroups are the sections of commands with many flags. Flags of no section are shown with the command's own flags.
var flagGroups = []flagGroup{
	{"Input", []string{"format", "column", "label-column", "by", "columns", "limit", "sample", "shard", "workers",
		"tokens", "vantage", "list-id"}},
	{"Output", []string{"out", "fields", "tables", "part-rows", "part-age", "no-compact", "no-publish", "collect",
		"warc-out"}},
	{"Politeness", []string{"contact", "user-agent", "host-rate", "ip-rate", "rate", "dns-rate", "rates", "opt-out",
		"retries", "retry-after", "max-retry-after"}},
	{"Network", []string{
		"concurrency", "timeout", "connect-timeout", "tls-timeout", "header-timeout", "max-redirects", "max-body", "scheme",
		"no-fallback",
		"resolver", "connect-to", "ipv4", "ipv6", "source-ip", "allow-private", "tls-min", "strict-tls", "ca-file",
	}},
	{"Resume", []string{"scan-id", "date", "restart", "repair"}},
	{"Monitoring", []string{
		"progress", "quiet", "log-format", "log-level", "metrics-addr", "metrics-file", "max-error-rate",
		"allow-empty", "cpuprofile",
	}},
}

// manyFlags is how many flags a command shows without groups.
const manyFlags = 15

// maxHelpWidth is the longest line that is easy to read.
const maxHelpWidth = 110

// help prints the help of a command.
func (a *app) help(c *cobra.Command, _ []string) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	width := min(terminal.Width(a.stdout), maxHelpWidth)
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "\n%s:\n%s\n", title, strings.TrimRight(text, "\n")) }
	facts := func(title string, list []fact) {
		var lines strings.Builder
		column := 0
		for _, f := range list {
			column = max(column, utf8.RuneCountInString(f.name))
		}
		for _, f := range list {
			text := strings.ReplaceAll(printable.Wrap(f.meaning, width-column-4), "\n", "\n"+strings.Repeat(" ", column+4))
			fmt.Fprintf(&lines, "  %-*s  %s\n", column, f.name, text)
		}
		section(title, lines.String())
	}
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	b.WriteString(printable.Wrap(text, width) + "\n")
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND [flags] [ARGUMENT…]"
	}
	section("Usage", "  "+use)
	if c.Example != "" {
		section("Examples", c.Example)
	}
	var commands []fact
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			commands = append(commands, fact{sub.Name(), sub.Short})
		}
	}
	if len(commands) > 0 {
		facts("Commands", commands)
	}
	for _, group := range groupsOf(c) {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range group.names {
			set.AddFlag(c.Flags().Lookup(name))
		}
		section(group.title, set.FlagUsagesWrapped(width))
	}
	if !c.HasParent() {
		facts("Environment", variables)
		facts("Exit codes", exitCodes)
		b.WriteString("\n" +
			printable.Wrap(
				"`bulkscan COMMAND --help` has the flags and examples of a command. Settings in a file: docs/configuration.md.",
				width) + "\n")
	} else {
		b.WriteString("\nEnvironment and exit codes: bulkscan --help\n")
	}
	_, _ = io.WriteString(a.stdout, b.String()) // a write error only means that the reader has gone
}

// groupsOf divides the flags of a command that are not hidden.
func groupsOf(c *cobra.Command) []flagGroup {
	own := flagGroup{title: "Flags"}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			own.names = append(own.names, f.Name)
		}
	})
	if len(own.names) <= manyFlags {
		return []flagGroup{own}
	}
	var groups []flagGroup
	take := func(from flagGroup) {
		group := flagGroup{title: from.title}
		for _, name := range from.names {
			if i := slices.Index(own.names, name); i >= 0 {
				group.names, own.names = append(group.names, name), slices.Delete(own.names, i, i+1)
			}
		}
		if len(group.names) > 0 {
			groups = append(groups, group)
		}
	}
	if c.Name() == "scan" {
		take(mostUsed)
	}
	for _, group := range flagGroups {
		take(group)
	}
	if c.Name() == "scan" {
		own.title = "Other"
		return append(groups, own)
	}
	return append([]flagGroup{own}, groups...)
}

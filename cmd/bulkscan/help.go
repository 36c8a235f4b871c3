package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/terminal"
)

// What --help and help print, and what they say to words that are no commands.

// mostUsed are the flags that scan shows first.
var mostUsed = options.Group{Title: "Most used", Flags: []string{"out", "config", "contact", "limit", "format",
	"column", "concurrency", "rate", "opt-out", "dry-run"}}

// flagGroups are the sections of commands with many flags. Flags of no section are shown with the command's own flags.
var flagGroups = []options.Group{
	{Title: "Input", Flags: []string{"format", "column", "label-column", "by", "columns", "limit", "sample", "shard",
		"workers", "tokens", "vantage", "list-id"}},
	{Title: "Output", Flags: []string{"out", "fields", "tables", "part-rows", "part-age", "no-compact", "no-publish",
		"collect", "warc-out"}},
	{Title: "Politeness", Flags: []string{"contact", "user-agent", "host-rate", "ip-rate", "rate", "dns-rate", "rates",
		"opt-out", "retries", "retry-after", "max-retry-after"}},
	{Title: "Network", Flags: []string{
		"concurrency", "timeout", "connect-timeout", "tls-timeout", "header-timeout", "max-redirects", "max-body", "scheme",
		"no-fallback",
		"resolver", "connect-to", "ipv4", "ipv6", "source-ip", "allow-private", "tls-min", "strict-tls", "ca-file",
	}},
	{Title: "Resume", Flags: []string{"scan-id", "date", "restart", "repair"}},
	{Title: "Monitoring", Flags: []string{"progress", "quiet", "log-format", "log-level", "metrics-addr",
		"metrics-file", "max-error-rate", "allow-empty", "cpuprofile"}},
}

// groupsOf returns the groups of a command's flags.
func groupsOf(c *cobra.Command) []options.Group {
	if c.Name() == "scan" {
		return append(append([]options.Group{mostUsed}, flagGroups...), options.Group{Title: "Other"})
	}
	return append([]options.Group{{Title: "Flags"}}, flagGroups...)
}

// maxHelpWidth is the longest line that is easy to read.
const maxHelpWidth = 110

// help prints the help of a command.
func (a *app) help(c *cobra.Command, _ []string) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	h := options.NewHelp(c, groupsOf(c), min(terminal.Width(a.stdout), maxHelpWidth))
	if c.HasParent() {
		h.WriteString("\nEnvironment and exit codes: bulkscan --help\n")
	} else {
		h.Facts("Environment", variables)
		h.Facts("Exit codes", exitCodes)
		h.WriteByte('\n')
		h.Text("`bulkscan COMMAND --help` has the flags and examples of a command. Settings in a file: docs/configuration.md.")
	}
	_, _ = io.WriteString(a.stdout, h.String()) // a write error only means that the reader has gone
}

// unknownCommand refuses an unknown word in the place of a command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := options.DidYouMean("", args[0], commandNames(root), "")
	if hint == "" && options.IsSite(args[0]) {
		hint = "; for one site: bulkscan check " + clipped(args[0])
	}
	return usagef("unknown command %q%s", clipped(args[0]), hint)
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// unknownShell is completion without the name of a shell that it knows.
func unknownShell(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var shells []string
	for _, shell := range c.Commands() {
		shells = append(shells, shell.Name())
	}
	return oneOf("shell", args[0], shells)
}

// helpCommand is help. It refuses topics that it does not have.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print what --help prints",
		Example: "  bulkscan help scan",
		RunE: func(c *cobra.Command, args []string) error {
			subject, rest, err := c.Root().Find(args)
			switch {
			case err != nil || subject == c.Root():
				if err := unknownCommand(c.Root(), args); err != nil {
					return err
				}
				return c.Root().Help()
			case len(rest) > 0:
				return usagef("%s has no command %q", subject.CommandPath(), clipped(rest[0]))
			}
			return subject.Help()
		},
	}
}

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/jsonlines"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/terminal"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// Errors of the command line in the user's terms: what was probably meant, and what to write.

// didYouMean returns the question whether the user meant one of the known names, each between before and after. It
// returns "" if no name is near.
func didYouMean(before, given string, known []string, after string) string {
	var near []string
	best := 1 + len(given)/5 // names with more slips are not near
	for _, name := range known {
		slips := slipsBetween(strings.ToLower(given), strings.ToLower(name))
		if len(given) > 2 && strings.HasPrefix(strings.ToLower(name), strings.ToLower(given)) {
			slips = min(slips, best)
		}
		if slips < best {
			best, near = slips, nil
		}
		if slips == best {
			near = append(near, before+name+after)
		}
	}
	if len(near) == 0 || len(near) > 3 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
}

// slipsBetween counts the letters that were left out, added, replaced, or swapped with their neighbour.
func slipsBetween(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // no name is so long
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := range rows[i] {
			switch {
			case i == 0:
				rows[i][j] = j
			case j > 0:
				same := rows[i-1][j-1]
				if a[i-1] != b[j-1] {
					same++
				}
				rows[i][j] = min(same, rows[i-1][j]+1, rows[i][j-1]+1)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}

// likeToken returns the question whether the user meant a token or alias of the registry; "" if none is near.
func likeToken(registry *tokens.Registry, name string) string {
	var known []string
	for i := range registry.Tokens {
		known = append(append(known, registry.Tokens[i].Name), registry.Tokens[i].Aliases...)
	}
	return didYouMean("", name, known, "")
}

// named returns the tokens with these names or aliases, as Registry.Named does. Its error also says which one was
// misspelt.
func named(registry *tokens.Registry, names []string) ([]tokens.Token, error) {
	list, err := registry.Named(names)
	if err == nil {
		return list, nil
	}
	for _, name := range names {
		if id, _ := registry.Find([]byte(name)); id < 0 {
			if len(registry.Similar(name)) == 0 {
				err = fmt.Errorf("%w%s", err, likeToken(registry, name))
			}
			break
		}
	}
	return nil, err
}

// oneOf is the error of an unknown value.
func oneOf(what, given string, known []string) error {
	return usagef("%s %q: one of %s%s", what, clipped(given), strings.Join(known, ", "), didYouMean("", given, known, ""))
}

// choices are the flags whose values are known beforehand. They have the same ones in every command.
var choices = map[string][]string{
	"format":     inputs.FormatNames,
	"by":         replay.Bys,
	"progress":   terminal.ProgressForms,
	"log-format": terminal.LogFormats,
	"log-level":  terminal.LogLevels,
	"scheme":     {"https", "http"},
	"tls-min":    slices.Sorted(maps.Keys(tlsVersions)),
	"tables":     schema.AllTables,
	"fields":     append([]string{jsonlines.Short}, jsonlines.Fields()...),
	"dialect":    {parser.Google.String(), parser.RFC.String()},
}

// checkChoices refuses a value that is not among the choices of its flag.
func checkChoices(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if known := choices[f.Name]; known != nil && !slices.Contains(known, value) {
				errs = append(errs, withSource(flags, oneOf("--"+f.Name, value, known)))
			}
		}
	})
	return usage(errors.Join(errs...))
}

// unknownFlag says which flag was probably meant.
func unknownFlag(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, didYouMean("--", unknown.GetSpecifiedName(), names, ""))
}

// unknownCommand refuses an unknown word in the place of a command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := didYouMean("", args[0], commandNames(root), "")
	if hint == "" && isSite(args[0]) {
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

// isSite reports whether a text names a site of the public web: its host ends in an existing top-level domain.
func isSite(text string) bool {
	o, err := origin.Parse(text)
	return err == nil && strings.Contains(o.Host(), ".") && o.TLD() != ""
}

// flagError says what is wrong with a value of a flag in the user's terms, and what to write instead.
func flagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	given := invalid.GetValue()
	remedy := invalid.Unwrap().Error()
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		remedy = "true or false"
	case "int":
		remedy = "a whole number"
	case "uint64":
		remedy = "a whole number from 0 on"
	case "float64":
		remedy = "a number, as in 2 or 0.5"
	case "duration":
		remedy = "a duration, as in 5s, 10m or 1h30m"
		if _, err := strconv.ParseFloat(given, 64); err == nil {
			remedy = fmt.Sprintf("a duration needs a unit; try %ss", given)
		}
	}
	if errors.Is(err, strconv.ErrRange) {
		remedy += " of at most 64 bits"
	}
	return fmt.Errorf("--%s %q: %s", invalid.GetFlag().Name, clipped(given), remedy)
}

var flagInText = regexp.MustCompile(`--[a-z][a-z0-9-]*|-o\b`)

// withSource adds the source of a flag's value to an error of usage that names the flag, if the source is a variable or
// a configuration file.
func withSource(flags *pflag.FlagSet, err error) error {
	if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitUsage {
		return err
	}
	for _, name := range flagInText.FindAllString(err.Error(), -1) {
		f := flags.Lookup(strings.TrimPrefix(name, "--"))
		if name == "-o" {
			f = flags.ShorthandLookup("o")
		}
		if f == nil {
			continue
		}
		if source := sourceOf(f); source != "" && !strings.Contains(err.Error(), source) {
			return usagef("%s: %w", source, err)
		}
	}
	return err
}

// noSite refuses a site in the place of a list.
func noSite(paths []string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && isSite(path) {
			return usagef("%s: no such file; for one site: bulkscan check %[1]s", clipped(path))
		}
	}
	return nil
}

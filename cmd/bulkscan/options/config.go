// Package options answers one question: what do the words of a command line mean? Values of options come from the
// command line, else the environment, else a configuration file, else the default (config.go). An error of spelling
// says what was probably meant (mistakes.go); an argument is a site or a file (argument.go). The same texts of a
// command become --help (help.go), a manual page (man.go) and what a shell offers (complete.go). The commands say which
// options there are. All errors are errors of usage, except those of reading an argument's file.
package options

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/terminal"
)

// Rules say for the flags of all commands which values they take, and from where.
type Rules struct {
	// Tables are the tables that a configuration file may have, named after commands. Keys above all tables are those of
	// the first.
	Tables []string
	// Actions are the flags by which one run does something unusual. Neither variables nor a configuration file can set
	// them: every run would do it, and nights would be missing.
	Actions []string
	// CommandLine are further flags that a configuration file cannot set, but variables can.
	CommandLine []string
	// Choices are the flags whose values are known beforehand. A flag has the same values in every command.
	Choices map[string][]string
}

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// configFile is a configuration file as it was read: the settings of each table.
type configFile struct {
	*Rules
	name   string
	tables map[string][]configEntry
}

// configEntry is a key with its value, of the types that go-toml decodes to.
type configEntry struct {
	key   string
	value any
	line  int
}

func (r *Rules) ofOneRun(flag string) bool {
	return slices.Contains(r.CommandLine, flag) || slices.Contains(r.Actions, flag)
}

// AddConfig adds --config.
func AddConfig(flags *pflag.FlagSet) {
	flags.String("config", "",
		"file of settings in TOML, keys being the long names of flags; flags and variables come before it (docs/configuration.md)")
}

// Fill sets the flags that the command line leaves alone: from the environment, and else from a table of the
// configuration file that the flag config names. The flag is nil for commands without it.
func (r *Rules) Fill(flags *pflag.FlagSet, table string, config *pflag.Flag) error {
	if err := r.fromEnvironment(flags); err != nil || config == nil || config.Value.String() == "" {
		return err
	}
	file, err := r.readConfig(config.Value.String())
	if err != nil {
		return err
	}
	return file.set(flags, table)
}

// readConfig reads a configuration file. Whether its keys are flags is not known before set.
func (r *Rules) readConfig(name string) (*configFile, error) {
	text, err := inputs.ReadText(context.Background(), name, false, maxConfig+1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--config: cannot read %s: %w", printable.Short(name), Why(err))
	case len(text) > maxConfig:
		return nil, fmt.Errorf("--config: %s is longer than %d bytes", printable.Short(name), maxConfig)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var document map[string]any
	if err := toml.Unmarshal(text, &document); err != nil {
		line := 1
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = at.Position()
		}
		return nil, fmt.Errorf("%s:%d: no TOML: %s", name, line, strings.TrimPrefix(err.Error(), "toml: "))
	}
	c := &configFile{Rules: r, name: name, tables: map[string][]configEntry{}}
	return c, c.divide(document, linesOfKeys(text))
}

// divide gives each table its settings, in the order of lines.
func (c *configFile) divide(document map[string]any, lines map[string]int) error {
	var errs []error
	refuse := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: "+format, append([]any{c.name, line}, args...)...))
	}
	add := func(table, key string, value any, line int) {
		for _, other := range c.tables[table] {
			if other.key == key {
				refuse(max(line, other.line),
					"%s is in line %d, too; keys above all tables are those of [%s]: leave one of them out", key,
					min(line, other.line), c.Tables[0])
			}
		}
		c.tables[table] = append(c.tables[table], configEntry{key, value, line})
	}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		value, line := document[name], lines[name]
		within, isTable := value.(map[string]any)
		switch {
		case slices.Contains(c.Tables, name) && isTable:
			for key, value := range within {
				add(name, key, value, cmp.Or(lines[name+"\x00"+key], line))
			}
		case slices.Contains(c.Tables, name):
			refuse(line, "%s is a table: write [%s], and its keys in the lines below", name, name)
		case isTable:
			refuse(line, "there is no table [%s]%s", printable.Short(name), cmp.Or(DidYouMean("[", name, c.Tables, "]"),
				"; there are ["+strings.Join(c.Tables, "] and [")+"]"))
		default:
			add(c.Tables[0], name, value, line)
		}
	}
	for _, entries := range c.tables {
		slices.SortFunc(entries, func(a, b configEntry) int { return cmp.Or(a.line-b.line, strings.Compare(a.key, b.key)) })
	}
	return errors.Join(errs...)
}

// linesOfKeys finds the line of each key, table names included. The parts of a path have NUL between them.
func linesOfKeys(text []byte) map[string]int {
	lines := map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		path := table
		if e.Kind != unstable.KeyValue {
			path, table = "", ""
		}
		for key := e.Key(); key.Next(); {
			path = strings.TrimPrefix(path+"\x00"+string(key.Node().Data), "\x00")
			if lines[path] == 0 {
				lines[path] = 1 + bytes.Count(text[:key.Node().Raw.Offset], []byte("\n"))
			}
		}
		if e.Kind != unstable.KeyValue {
			table = path
		}
	}
	return lines
}

// set gives flags the settings of a table: those that neither the command line nor the environment has set.
func (c *configFile) set(flags *pflag.FlagSet, table string) error {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !c.ofOneRun(f.Name) {
			names = append(names, f.Name)
		}
	})
	var errs []error
	for _, e := range c.tables[table] {
		source := fmt.Sprintf("%s:%d", c.name, e.line)
		f := flags.Lookup(e.key)
		var err error
		switch {
		case c.ofOneRun(e.key):
			err = fmt.Errorf("%s is for the command line only", e.key)
		case f == nil:
			err = fmt.Errorf("there is no setting %s%s", printable.Short(e.key), cmp.Or(DidYouMean("", e.key, names, ""),
				fmt.Sprintf("; bulkscan %s --help lists them, without --", table)))
		case !f.Changed:
			err = e.set(flags, f)
			setSource(f, source)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
	}
	return errors.Join(errs...)
}

// set gives a flag the value, if it is of the flag's type.
func (e *configEntry) set(flags *pflag.FlagSet, f *pflag.Flag) error {
	text, isText := e.value.(string)
	if list, ok := f.Value.(pflag.SliceValue); ok && !isText {
		values, ok := textsOf(e.value)
		if !ok {
			return fmt.Errorf("%s: want texts in quotes between brackets, as in %[1]s = [\"a\", \"b\"]", e.key)
		}
		f.Changed = true
		return list.Replace(values)
	}
	given := literal(e.value)
	switch f.Value.Type() {
	case "bool":
		if _, ok := e.value.(bool); !ok {
			return fmt.Errorf("%s: want true or false, without quotes", e.key)
		}
		text = given
	case "int", "uint64", "float64":
		_, isWhole := e.value.(int64)
		if _, ok := e.value.(float64); !isWhole && (!ok || f.Value.Type() != "float64") {
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				return fmt.Errorf("%s: want a number; try %[1]s = %s, without quotes", e.key, text)
			}
			return fmt.Errorf("%s: want a number, as in %[1]s = %s", e.key, f.DefValue)
		}
		text = fmt.Sprint(e.value)
	case "duration":
		if !isText {
			return fmt.Errorf("%s: want a duration with its unit in quotes; try %[1]s = \"%ss\"", e.key, given)
		}
	default:
		if !isText {
			return fmt.Errorf("%s: want a text in quotes; try %[1]s = \"%s\"", e.key, given)
		}
	}
	return explained(flags.Set(f.Name, text))
}

// textsOf returns the elements of a list of texts.
func textsOf(value any) ([]string, bool) {
	list, ok := value.([]any)
	texts := []string{}
	for _, element := range list {
		text, isText := element.(string)
		texts, ok = append(texts, text), ok && isText
	}
	return texts, ok
}

// literal writes a value as TOML does.
func literal(value any) string {
	text, err := toml.Marshal(map[string]any{"x": value})
	if err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(text), "x = "))
}

// Print writes the settings in force as a configuration file. A comment names the source of each value that is
// not the default.
func (r *Rules) Print(w io.Writer, flags *pflag.FlagSet) error {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if r.ofOneRun(f.Name) {
			return
		}
		value := literal(f.Value.String())
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = literal(list.GetSlice())
		}
		if slices.Contains([]string{"bool", "int", "uint64", "float64"}, f.Value.Type()) {
			value = f.Value.String()
		}
		fmt.Fprintf(&b, "%s = %s", f.Name, value)
		if f.Changed {
			fmt.Fprintf(&b, " # %s", terminal.Line(cmp.Or(sourceOf(f), "the command line")))
		}
		b.WriteByte('\n')
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// sourceKey is the annotation that says where a flag's value comes from, if not from the command line.
const sourceKey = "source"

func setSource(f *pflag.Flag, source string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{source}
}

func sourceOf(f *pflag.Flag) string { return strings.Join(f.Annotations[sourceKey], "") }

// fromEnvironment sets each flag that the command line leaves alone from its variable. An empty variable counts as
// unset. White space separates the values of a repeatable flag. The flags of the command test separate theirs by
// commas, since the values contain white space.
func (r *Rules) fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variableOf(f)
		value := os.Getenv(name)
		if value == "" || f.Changed {
			return
		}
		if slices.Contains(r.Actions, f.Name) {
			errs = append(errs, fmt.Errorf("%s: --%s is for the command line only", name, f.Name))
			return
		}
		values := []string{value}
		if kind := f.Value.Type(); kind == "stringArray" || kind == "stringSlice" {
			values = strings.Fields(value)
		}
		for _, value := range values {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, explained(err)))
			}
		}
		setSource(f, name)
	})
	return errors.Join(errs...)
}

// variableOf is the variable of a flag: BULKSCAN_PART_ROWS that of --part-rows.
func variableOf(f *pflag.Flag) string {
	return "BULKSCAN_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

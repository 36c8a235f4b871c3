package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// A configuration file, and where a flag's value comes from: the command line, else the environment, else the file,
// else the default.

// configTables are the tables that a configuration file may have, named after commands. Keys above all tables are those
// of scan.
var configTables = []string{"scan", "nightly"}

// actions are the flags by which one run changes a dataset. Variables cannot set them: each run would repeat the
// change.
var actions = []string{"release", "discard", "withdraw", "reason", "prune", "accept-list", "accept-pruning", "restart",
	"repair"}

// ofTheCommandLine are the flags that say what one run does. A configuration file cannot set them.
var ofTheCommandLine = append([]string{"help", "status", "json", "config", "print-config", "dry-run"}, actions...)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// configFile is a configuration file as it was read: the settings of each table.
type configFile struct {
	name   string
	tables map[string][]configEntry
}

// configEntry is a key with its value, of the types that go-toml decodes to.
type configEntry struct {
	key   string
	value any
	line  int
}

func addConfig(flags *pflag.FlagSet) {
	flags.String("config", "",
		"file of settings in TOML, keys being the long names of flags; flags and variables come before it (docs/configuration.md)")
}

// fromFile sets the flags that neither the command line nor the environment has set from the table of --config that has
// the name of the command.
func fromFile(c *cobra.Command) error {
	f := c.Flags().Lookup("config")
	if f == nil || f.Value.String() == "" {
		return nil
	}
	file, err := readConfig(f.Value.String())
	if err != nil {
		return err
	}
	return file.set(c.Flags(), c.Name())
}

// readConfig reads a configuration file. Whether its keys are flags is not known before set.
func readConfig(name string) (*configFile, error) {
	text, err := inputs.ReadText(context.Background(), name, false, maxConfig+1)
	switch {
	case err != nil:
		return nil, usagef("--config: cannot read %s: %w", clipped(name), why(err))
	case len(text) > maxConfig:
		return nil, usagef("--config: %s is longer than %d bytes", clipped(name), maxConfig)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var document map[string]any
	if err := toml.Unmarshal(text, &document); err != nil {
		line := 1
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = at.Position()
		}
		return nil, usagef("%s:%d: no TOML: %s", name, line, strings.TrimPrefix(err.Error(), "toml: "))
	}
	c := &configFile{name: name, tables: map[string][]configEntry{}}
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
					"%s is in line %d, too; keys above all tables are those of [scan]: leave one of them out", key,
					min(line, other.line))
			}
		}
		c.tables[table] = append(c.tables[table], configEntry{key, value, line})
	}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		value, line := document[name], lines[name]
		within, isTable := value.(map[string]any)
		switch {
		case slices.Contains(configTables, name) && isTable:
			for key, value := range within {
				add(name, key, value, cmp.Or(lines[name+"\x00"+key], line))
			}
		case slices.Contains(configTables, name):
			refuse(line, "%s is a table: write [%s], and its keys in the lines below", name, name)
		case isTable:
			refuse(line, "there is no table [%s]%s", clipped(name), cmp.Or(didYouMean("[", name, configTables, "]"),
				"; there are ["+strings.Join(configTables, "] and [")+"]"))
		default:
			add("scan", name, value, line)
		}
	}
	for _, entries := range c.tables {
		slices.SortFunc(entries, func(a, b configEntry) int { return cmp.Or(a.line-b.line, strings.Compare(a.key, b.key)) })
	}
	return usage(errors.Join(errs...))
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
		if !slices.Contains(ofTheCommandLine, f.Name) {
			names = append(names, f.Name)
		}
	})
	var errs []error
	for _, e := range c.tables[table] {
		source := fmt.Sprintf("%s:%d", c.name, e.line)
		f := flags.Lookup(e.key)
		var err error
		switch {
		case slices.Contains(ofTheCommandLine, e.key):
			err = fmt.Errorf("%s is for the command line only", e.key)
		case f == nil:
			err = fmt.Errorf("there is no setting %s%s", clipped(e.key), cmp.Or(didYouMean("", e.key, names, ""),
				fmt.Sprintf("; bulkscan %s --help lists them, without --", table)))
		case !f.Changed:
			err = e.set(flags, f)
			setSource(f, source)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
	}
	return usage(errors.Join(errs...))
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
	return flagError(flags.Set(f.Name, text))
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

// readFiles refuses what a scan refuses before it begins: files and places that flags name, and settings of requests.
func (f *scanFlags) readFiles(ctx context.Context) error {
	_, err := f.registry()
	if err != nil {
		return err
	}
	for _, place := range []string{f.out, f.warcOut} {
		if place == "" || place == "-" || strings.Contains(place, "://") { // no network is used
			continue
		}
		st, err := openPlace(place)
		if err == nil {
			err = store.Try(ctx, st)
		}
		if err != nil {
			return err
		}
	}
	if f.cpuProfile != "" {
		if _, err := os.Stat(filepath.Dir(f.cpuProfile)); err != nil {
			return usagef("--cpuprofile: %w", err)
		}
	}
	_, end, err := f.fetcher(network{})
	if err != nil {
		return err
	}
	end()
	return f.checkMetrics()
}

// printConfig writes the settings in force as a configuration file. A comment names the source of each value that is
// not the default.
func printConfig(w io.Writer, flags *pflag.FlagSet) error {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(ofTheCommandLine, f.Name) {
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
// unset. White space separates the values of a flag that may be repeated. Commas do if values contain white space
// (agentNames).
func fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variableOf(f)
		value := os.Getenv(name)
		if value == "" || f.Changed {
			return
		}
		if slices.Contains(actions, f.Name) {
			errs = append(errs, fmt.Errorf("%s: --%s is for the command line only", name, f.Name))
			return
		}
		values := []string{value}
		if kind := f.Value.Type(); kind == "stringArray" || kind == "stringSlice" {
			values = strings.Fields(value)
		}
		for _, value := range values {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, flagError(err)))
			}
		}
		setSource(f, name)
	})
	return usage(errors.Join(errs...))
}

// variableOf is the variable of a flag: BULKSCAN_PART_ROWS that of --part-rows.
func variableOf(f *pflag.Flag) string {
	return "BULKSCAN_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

package schema

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestExamples shows that the example of every column is a valid value.
func TestExamples(t *testing.T) {
	for _, table := range tables {
		for i := range table.row.NumField() {
			field := table.row.Field(i)
			c := ColumnsOf(table.row)[i]
			if err := checkExample(field, c.Example); err != nil {
				t.Errorf("%s.%s: the example %q: %v", table.name, c.Name, c.Example, err)
			}
			if c.Nullable != strings.HasSuffix(c.Type, "?") {
				t.Errorf("%s.%s: nullable %v, type %s", table.name, c.Name, c.Nullable, c.Type)
			}
		}
	}
}

func checkExample(field reflect.StructField, example string) error {
	kind := field.Type
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	var err error
	switch {
	case example == "":
		return fmt.Errorf("there is none")
	case HasOption(field, "timestamp(millisecond)"):
		_, err = time.Parse("2006-01-02T15:04:05.000Z07:00", example)
		return err
	}
	switch kind.Kind() {
	case reflect.String:
		if !utf8.ValidString(example) || len(example) > MaxKey {
			err = fmt.Errorf("not UTF-8, or too long")
		}
	case reflect.Bool:
		_, err = strconv.ParseBool(example)
	case reflect.Int32:
		_, err = strconv.ParseInt(example, 10, 32)
	case reflect.Int64:
		_, err = strconv.ParseInt(example, 10, 64)
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(example, 64)
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return nil // any text is valid
		}
		var elements []any
		if err := json.Unmarshal([]byte(example), &elements); err != nil {
			return err
		}
		if len(elements) == 0 {
			return fmt.Errorf("an empty list shows nothing")
		}
		for _, e := range elements {
			if kind.Elem().Kind() == reflect.String {
				if _, ok := e.(string); !ok {
					return fmt.Errorf("%v is no text", e)
				}
				continue
			}
			fields, ok := e.(map[string]any)
			if !ok || len(fields) != kind.Elem().NumField() {
				return fmt.Errorf("%v is no %s", e, typeName(kind.Elem()))
			}
			for i := range kind.Elem().NumField() {
				inner := kind.Elem().Field(i)
				if err := checkExample(inner, fmt.Sprint(fields[ColumnName(inner)])); err != nil {
					return err
				}
			}
		}
	default:
		return fmt.Errorf("no rule for %s", kind)
	}
	return err
}

// TestPrintSchema shows that the description fits a terminal and lists all columns.
func TestPrintSchema(t *testing.T) {
	for _, width := range []int{60, 100} {
		var b strings.Builder
		if err := Print(&b, width); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(b.String()), " ")
		for _, table := range Tables() {
			for _, c := range table.Columns {
				if !strings.Contains(words, c.Name+" "+c.Type+" "+strings.Join(strings.Fields(c.Meaning), " ")) {
					t.Errorf("%s.%s is not there, or without its meaning", table.Name, c.Name)
				}
			}
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			// A long word cannot be broken, and types are not broken.
			if utf8.RuneCountInString(line) > width && strings.Count(strings.TrimSpace(line), " ") > 0 &&
				!strings.Contains(line, "list<struct") {
				t.Errorf("a line of %d characters on a terminal of %d: %q", utf8.RuneCountInString(line), width, line)
			}
		}
	}
	var b strings.Builder
	if err := Print(&b, 80, Bodies); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "BODIES\n") || strings.Contains(b.String(), "SITES") {
		t.Errorf("only bodies was asked for:\n%s", b.String())
	}
}

var update = flag.Bool("update", false, "write the document anew")

func TestSchemaDocument(t *testing.T) {
	var b strings.Builder
	if err := WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	const path = "../../docs/SCHEMA.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != b.String() {
		t.Errorf("%s is not up to date; see what changed with git diff after go test -update. %v. Now:\n%s", path, err,
			b.String())
	}
	for _, table := range Tables() {
		for _, c := range table.Columns {
			if c.Name == "" || c.Meaning == "" || strings.Contains(c.Type, "uint") {
				t.Errorf("%s: column %+v", table.Name, c)
			}
		}
	}
}

package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/survey/summary"
)

const fieldsPage = "../../docs/FIELDS.md"

// TestFieldsDocument writes docs/FIELDS.md from the tags of structs, and compares it.
func TestFieldsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Fields of what commands print

<!-- Generated from struct tags: go test ./cmd/bulkscan -run TestFieldsDocument -update -->

JSON fields may be added, not renamed. Shares are from 0 to 1. A ` + "`?`" + ` type may be null; an optional field is left out if it is empty or not
known. Dates have the form YYYY-MM-DD, and times that of RFC 3339. A nested object that occurs again has the fields of the first one.
`)
	json := func(title string, of reflect.Type) {
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", title)
		fieldsOf(t, &b, of, "", map[reflect.Type]string{})
	}
	columns := func(title string, of reflect.Type) {
		fmt.Fprintf(&b, "\n## %s\n\n| column | type | meaning |\n|---|---|---|\n", title)
		for _, c := range schema.ColumnsOf(of) {
			fieldRow(t, &b, c.Name, c.Type, c.Meaning)
		}
	}
	json("`summary --json`", reflect.TypeFor[summary.Summary]())
	json("`summary --sensitivity TOKEN --json`", reflect.TypeFor[summary.Sensitivity]())
	json("`diff --json`", reflect.TypeFor[diff.Diff]())
	json("`diff --paired --json`", reflect.TypeFor[diff.Paired]())
	columns("`changes.parquet` of `diff -o`", reflect.TypeFor[diff.ChangeRow]())
	columns("`sites.parquet` of `diff -o`", reflect.TypeFor[diff.ChangedSiteRow]())
	json("`history --json`, an object per site", reflect.TypeFor[history.Story]())
	columns("view `history`", reflect.TypeFor[history.Episode]())
	columns("view `history_policies`", reflect.TypeFor[history.Policy]())
	columns("view `gaps`", reflect.TypeFor[history.Gap]())
	json("`status --json`, an object per scan or night", reflect.TypeFor[nightly.Entry]())
	json("`night.json`, and `nightly --status --json`", reflect.TypeFor[nightly.Night]())
	if *update {
		if err := os.WriteFile(fieldsPage, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(fieldsPage); err != nil || string(page) != b.String() {
		t.Errorf("docs/FIELDS.md is not up to date; -update writes it anew (%v)", err)
	}
}

// fieldsOf writes a row for each JSON field of a struct. paths has the place where each struct was described.
func fieldsOf(t *testing.T, b *strings.Builder, of reflect.Type, before string, paths map[reflect.Type]string) {
	for field := range of.Fields() {
		within := field.Type
		for within.Kind() == reflect.Pointer || within.Kind() == reflect.Slice || within.Kind() == reflect.Map {
			within = within.Elem()
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			fieldsOf(t, b, within, before, paths)
			continue
		case !field.IsExported(), name == "-":
			continue
		}
		name = before + name
		about, nested := field.Tag.Get("about"), within.Kind() == reflect.Struct && !isText(within)
		if at := paths[within]; nested && at != "" {
			about, nested = about+"; its fields are those of `"+at+"`", false
		}
		fieldRow(t, b, name, jsonType(field.Type, strings.Split(options, ",")), about)
		if nested {
			paths[within] = name
			fieldsOf(t, b, within, name+".", paths)
		}
	}
}

func fieldRow(t *testing.T, b *strings.Builder, name, kind, about string) {
	if about == "" {
		t.Errorf("%s has no tag about", name)
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, strings.ReplaceAll(kind, "<", "\\<"), strings.ReplaceAll(about, "*",
		"`*`"))
}

// jsonType names the type of a field in JSON.
func jsonType(of reflect.Type, options []string) string {
	text, null := "", of.Kind() == reflect.Pointer
	if null {
		of = of.Elem()
	}
	switch kind := of.Kind(); {
	case isText(of), kind == reflect.String, slices.Contains(options, "string"):
		text = "string"
	case kind == reflect.Bool:
		text = "bool"
	case kind == reflect.Slice || kind == reflect.Array:
		text = "list"
	case kind == reflect.Map || kind == reflect.Struct:
		text = "object"
	default:
		text = "number"
	}
	switch {
	case slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero"):
		text += ", optional"
	case null:
		text += "?"
	}
	return text
}

// isText reports whether values of a struct or number are strings in JSON.
func isText(of reflect.Type) bool {
	return of == reflect.TypeFor[time.Time]() || of == reflect.TypeFor[history.Date]()
}

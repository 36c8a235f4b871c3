package sink

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// The tables of a dataset, in reading order.
const (
	TableSites       = "sites"
	TableVerdicts    = "verdicts"
	TableEvidence    = "evidence"
	TableBodies      = "bodies"
	TableTokenStats  = "token_stats"
	TableRecordStats = "record_stats"
)

// Table describes a table.
type Table struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Columns []Column `json:"columns"`
}

// Column describes a column. Type is one of string, bool, int32, int64, float, double, binary, timestamp(ms, UTC),
// list<…> and struct<name type, …>; a question mark at its end says that it may be null.
type Column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Meaning string `json:"meaning"`
}

// tables is every table with its row, in reading order.
var tables = []struct {
	name, about string
	row         reflect.Type
}{
	{TableSites, "A row a list entry.", reflect.TypeFor[SiteRow]()},
	{TableVerdicts, "A row for each agent that a file names or that is reached by fallback, and one for `*`. The rows of a site stand together, in the order of sites.", reflect.TypeFor[VerdictRow]()},
	{TableEvidence, "A row a noteworthy line: at most 32 a site and kind; totals stand in the n_ columns of sites.", reflect.TypeFor[EvidenceRow]()},
	{TableBodies, "Each distinct body of robots records once a part.", reflect.TypeFor[BodyRow]()},
	{TableTokenStats, "A row a token and segment, computed from the committed parts: registry tokens in all segments, unknown agents in `all` only.", reflect.TypeFor[TokenStatsRow]()},
	{TableRecordStats, "A row a key of unknown, extension and legacy records, computed from evidence.", reflect.TypeFor[RecordStatsRow]()},
}

// Schema returns every table with its columns, in reading order.
func Schema() []Table {
	all := make([]Table, 0, len(tables))
	for _, t := range tables {
		all = append(all, Table{Name: t.name, About: t.about, Columns: columnsOf(t.row)})
	}
	return all
}

func columnsOf(row reflect.Type) []Column {
	columns := make([]Column, 0, row.NumField())
	for i := range row.NumField() {
		field := row.Field(i)
		columns = append(columns, Column{Name: columnName(field), Type: columnType(field), Meaning: field.Tag.Get("about")})
	}
	return columns
}

func columnName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("parquet"), ",")
	return name
}

// hasOption reports whether the field's parquet tag has an option.
func hasOption(field reflect.StructField, option string) bool {
	_, options, _ := strings.Cut(field.Tag.Get("parquet"), ",")
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}

func columnType(field reflect.StructField) string {
	text := typeName(field.Type)
	if hasOption(field, "timestamp(millisecond)") {
		text = "timestamp(ms, UTC)"
	}
	if hasOption(field, "optional") {
		text += "?"
	}
	return text
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Float32:
		return "float"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "binary"
		}
		return "list<" + typeName(t.Elem()) + ">"
	case reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			fields = append(fields, columnName(t.Field(i))+" "+columnType(t.Field(i)))
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	return t.Kind().String() // bool, int32, int64, string
}

// WriteSchema writes Schema as Markdown, the content of docs/SCHEMA.md.
func WriteSchema(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Tables

<!-- Generated from the struct tags in sink/rows.go: go test ./sink -run TestSchemaDocument -update -->

Schema version %d. Files are Parquet (data pages v1, zstd), partitioned by `+"`scan_date`"+`, and hold in their metadata
`+"`schema_version`, `tool_version`, `registry_version` and `scan_id`"+`. There are no unsigned types. Strings are valid UTF-8
(U+FFFD for what is not), bounded as stated, and unescaped. A question mark marks what may be null. Columns are only ever added.
`, SchemaVersion)
	for _, table := range Schema() {
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n\n| column | type | meaning |\n|---|---|---|\n", table.Name, table.About)
		for _, c := range table.Columns {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, strings.NewReplacer("<", "\\<", "*", "\\*").Replace(c.Type), strings.ReplaceAll(c.Meaning, "*", "`*`"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package schema

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// The tables of a dataset, in reading order.
const (
	Sites       = "sites"
	Verdicts    = "verdicts"
	Evidence    = "evidence"
	Bodies      = "bodies"
	Policies    = "policies"
	TokenStats  = "token_stats"
	RecordStats = "record_stats"
	Superseded  = "superseded"
)

// AllTables are the tables that a scan writes. It always writes Policies, whichever other tables are chosen.
var AllTables = []string{Sites, Verdicts, Evidence, Bodies, Policies}

// HasSeq reports whether each row of a table belongs to a site, whose number is in the column seq.
func HasSeq(table string) bool { return table == Sites || table == Verdicts || table == Evidence }

// IsStatistics reports whether a table is computed from all parts of a scan.
func IsStatistics(table string) bool { return table == TokenStats || table == RecordStats }

// MonthTable is the table under which the index lists the merged months of a table of statistics.
func MonthTable(statistics string) string { return statistics + "_month" }

// Table describes a table.
type Table struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Columns []Column `json:"columns"`
}

// Column describes a column. Type is one of string, bool, int32, int64, float, double, binary, timestamp(ms, UTC),
// list<…> and struct<name type, …>; a question mark at its end says that the column may be null, as Nullable does.
// Example is a value as text: lists and structs as JSON, bytes quoted as in Go. MaxBytes bounds a text that others
// write; 0 is no bound.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Nullable bool   `json:"nullable"`
	MaxBytes int    `json:"max_bytes,omitempty"`
	Meaning  string `json:"meaning"`
	Example  string `json:"example"`
}

// tables has every table with its row type, in reading order.
var tables = []struct {
	name, about string
	row         reflect.Type
}{
	{Sites,
		"One row per list entry. Milliseconds are of the last exchange, to three digits. From n_lines on, all but star_verdict are 0, false, null or empty unless access is conditional.", reflect.TypeFor[SiteRow]()},
	{Verdicts,
		"One row per agent that a file names or that falls back to a named one, and one for `*`. Rows of a site are adjacent, in the order of sites. Lines and values are those of the group that the agent follows.", reflect.TypeFor[VerdictRow]()},
	{Evidence, "One row per noteworthy line, at most 32 per site and kind; the n_ columns of sites count all.",
		reflect.TypeFor[EvidenceRow]()},
	{Bodies, "One row per part and distinct body with robots records; compaction keeps all rows.",
		reflect.TypeFor[BodyRow]()},
	{Policies,
		"One row per part and distinct policy. policy_id and rfc_policy_id of sites refer to it. Later scans and parts repeat policies; the view has each once.", reflect.TypeFor[PolicyRow]()},
	{TokenStats, "One row per token and segment; unknown agents in `all` only.", reflect.TypeFor[TokenStatsRow]()},
	{RecordStats, "One row per key of records in evidence.", reflect.TypeFor[RecordStatsRow]()},
	{Superseded,
		"One row per row of sites that does not count, because another row counts for its site: a later one of the same date, observer and list, an observation, or an archive's by https. The views leave such rows out.", reflect.TypeFor[SupersededRow]()},
}

// Tables returns every table with its columns, in reading order. Callers share the columns, and must not change them.
func Tables() []Table { return slices.Clone(described()) }

var described = sync.OnceValue(func() []Table {
	all := make([]Table, 0, len(tables))
	for _, t := range tables {
		all = append(all, Table{Name: t.name, About: t.about, Columns: ColumnsOf(t.row)})
	}
	return all
})

// ColumnsOf describes the columns of a row's struct, by its tags.
func ColumnsOf(row reflect.Type) []Column {
	columns := make([]Column, 0, row.NumField())
	for i := range row.NumField() {
		field := row.Field(i)
		meaning := field.Tag.Get("about")
		maxBytes, _ := strconv.Atoi(field.Tag.Get("max"))
		if maxBytes > 0 {
			meaning += fmt.Sprintf("; at most %d bytes", maxBytes)
		}
		if IsText(field) {
			meaning += "; in JSON a string"
		}
		columns = append(columns, Column{
			Name: ColumnName(field), Type: columnType(field), Nullable: HasOption(field, "optional"),
			MaxBytes: maxBytes, Meaning: meaning, Example: field.Tag.Get("example"),
		})
	}
	return columns
}

// ColumnName returns the column of a field.
func ColumnName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("parquet"), ",")
	return name
}

// IsText reports whether JSON has the field's number as a string.
func IsText(field reflect.StructField) bool {
	_, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	return slices.Contains(strings.Split(options, ","), "string")
}

// HasOption reports whether the field's parquet tag has the given option.
func HasOption(field reflect.StructField, option string) bool {
	_, options, _ := strings.Cut(field.Tag.Get("parquet"), ",")
	return slices.Contains(strings.Split(options, ","), option)
}

func columnType(field reflect.StructField) string {
	text := typeName(field.Type)
	if HasOption(field, "timestamp(millisecond)") {
		text = "timestamp(ms, UTC)"
	}
	if HasOption(field, "optional") {
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
			fields = append(fields, ColumnName(t.Field(i))+" "+columnType(t.Field(i)))
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	return t.Kind().String() // bool, int32, int64, string
}

// WriteMarkdown writes Tables as Markdown, the content of docs/SCHEMA.md.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Tables

<!-- Generated from the struct tags in sink/schema/rows.go: go test ./sink/schema -run TestSchemaDocument -update -->

Schema version %d. Files are Parquet, partitioned by `+"`scan_date`"+`, with the metadata `+"`schema_version`"+`,
`+"`tool_version`, `registry_version` and `scan_id`"+`. Strings are valid UTF-8 (U+FFFD for what is not), unescaped. A `+"`?`"+`
type may be null. Columns are only ever added: read them by name (in DuckDB with `+"`union_by_name = true`"+`).
`, Version)
	for _, table := range Tables() {
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n\n| column | type | meaning | example |\n|---|---|---|---|\n", table.Name,
			table.About)
		for _, c := range table.Columns {
			meaning := strings.ReplaceAll(c.Meaning, "*", "`*`")
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` |\n", c.Name, strings.NewReplacer("<", "\\<", "*", "\\*").Replace(c.Type),
				meaning,
				strings.NewReplacer("\n", `\n`, "|", `\|`).Replace(c.Example))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes Tables for a terminal that is columns wide: the named tables, or all if none is named.
func Print(w io.Writer, width int, names ...string) error {
	var b strings.Builder
	for _, table := range Tables() {
		if len(names) > 0 && !slices.Contains(names, table.Name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s\n", strings.ToUpper(table.Name))
		wrap(&b, table.About, 2, width)
		for _, c := range table.Columns {
			fmt.Fprintf(&b, "\n  %-22s %s\n", c.Name, c.Type)
			wrap(&b, c.Meaning, 6, width)
			wrap(&b, "e.g. "+strings.ReplaceAll(c.Example, "\n", `\n`), 6, width)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes words in lines of at most width characters, indented.
func wrap(b *strings.Builder, text string, indent, width int) {
	margin := strings.Repeat(" ", indent)
	b.WriteString(margin + strings.ReplaceAll(printable.Wrap(text, width-indent), "\n", "\n"+margin) + "\n")
}

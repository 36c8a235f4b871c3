package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/docs/queries"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// WriteTables writes the tables of a survey as CSV, each by one call of write, then datapackage.json, which describes
// them.
func WriteTables(s *tables.Survey, write func(name string, content []byte) error) error {
	about := s.Manifest.Package("bulkscan-" + strings.ToLower(s.Manifest.ScanID))
	about.Description = s.LeftOut.Line()
	tables := maps.Clone(s.Tables)
	tables["headlines"] = headlines(s)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := tables[name]
		var text strings.Builder
		if err := writeCSV(&text, t.Columns, t.Rows); err != nil {
			return err
		}
		if err := write(name+".csv", []byte(text.String())); err != nil {
			return fmt.Errorf("cannot write %s.csv: %w", name, err)
		}
		about.Resources = append(about.Resources, described(t))
	}
	text, err := about.Encode()
	if err != nil {
		return err
	}
	return write(schema.PackageName, text)
}

// headlines are the headline shares by each definition, and how sure they are.
func headlines(s *tables.Survey) *tables.Table {
	t := &tables.Table{Name: "headlines", Note: "headline shares by each definition, and how sure they are",
		Columns: []string{"definition", "kind", "value", "blocking", "of", "enough", "interval_low", "interval_high",
			"bound_low", "bound_high"}}
	for _, by := range s.Summaries {
		by.Blocking.EachHeadline(func(kind, value string, sites int64, sure *survey.Certainty) {
			row := []any{by.Blocking.Definition, kind, value, sites, by.Blocking.Sites, by.Enough(by.Blocking.Sites)}
			for _, r := range []*[2]float64{sure.Interval, sure.Bounds} {
				if r == nil {
					row = append(row, nil, nil)
				} else {
					row = append(row, r[0], r[1])
				}
			}
			t.Rows = append(t.Rows, row)
		})
	}
	return t
}

// about returns the comment of a query: its question, or the name of a table that has no query, and the rest.
func about(name string) (question, rest string) {
	for line := range strings.Lines(queries.SQL(name)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		switch {
		case !ok:
			return question, rest
		case question == "":
			question = text
		default:
			rest += text + " "
		}
	}
	return cmp.Or(question, name), rest
}

// described is the description of a table: the comment of its query, and the types of its columns.
func described(t *tables.Table) schema.Resource {
	r := schema.Resource{Name: t.Name, Type: "table", Path: t.Name + ".csv", Format: "csv", Encoding: "utf-8"}
	question, rest := about(t.Name)
	r.Title, r.Description = question, strings.TrimSpace(rest+t.Note)
	for i, column := range t.Columns {
		f := schema.Field{Name: column, Type: "string"}
		for _, row := range t.Rows {
			switch row[i].(type) {
			case int64:
				f.Type = "integer"
			case float64:
				f.Type = "number"
			case bool:
				f.Type = "boolean"
			}
			if row[i] != nil {
				break
			}
		}
		r.Schema.Fields = append(r.Schema.Fields, f)
	}
	return r
}

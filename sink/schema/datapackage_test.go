package schema

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestResource checks each table against version 2.0 of Data Resource and Table Schema. It compares each column with
// its description: its name, its place, the type of its values, whether it may be null, and its bound.
func TestResource(t *testing.T) {
	// The type of the column's example in JSON: an integer, a text, or a list.
	values := map[string]string{
		"integer": `^-?[0-9]+$`, "number": `^-?[0-9.]+$`, "boolean": `^(true|false)$`, "array": `^\[.*\]$`,
		"datetime": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, "string": ``, "any": ``,
	}
	lengths := []int{MaxInput, MaxLabel, MaxURL, MaxTitle, MaxField, MaxError, MaxToken, MaxKey, MaxValue}
	bounded, seen := 0, map[string]bool{}
	for _, table := range Tables() {
		for _, files := range [][]string{{"a.parquet"}, {"a.parquet", "b.parquet"}} {
			r := table.Resource(files)
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			one, several := `"path":"a.parquet"`, `"path":["a.parquet","b.parquet"]`
			if want := map[int]string{1: one, 2: several}[len(files)]; !strings.Contains(string(text), want) {
				t.Errorf("%s of %d files has no %s", table.Name, len(files), want)
			}
			if !regexp.MustCompile(`^[a-z0-9._-]+$`).MatchString(r.Name) || r.Name != table.Name || seen[r.Name] &&
				len(files) == 1 || r.Type != "table" || r.Format != "parquet" || r.Description != table.About {
				t.Errorf("%s: %.300s", table.Name, text)
			}
			seen[r.Name] = true
			if len(r.Schema.Fields) != len(table.Columns) {
				t.Fatalf("%s has %d fields of %d columns", table.Name, len(r.Schema.Fields), len(table.Columns))
			}
			for i, f := range r.Schema.Fields {
				c := table.Columns[i]
				value, known := values[f.Type]
				if !known || !regexp.MustCompile(value).MatchString(c.Example) && c.Type != "binary" {
					t.Errorf("%s.%s: %s is of type %q, with the example %s", table.Name, c.Name, c.Type, f.Type, c.Example)
				}
				if f.Name != c.Name || f.Description != c.Meaning || f.Example != c.Example ||
					f.Constraints["required"] != !c.Nullable {
					t.Errorf("%s.%s: %+v", table.Name, c.Name, f)
				}
				length, has := f.Constraints["maxLength"]
				if has != (c.MaxBytes > 0 && f.Type == "string") || has && length != c.MaxBytes || c.MaxBytes > 0 &&
					!slices.Contains(lengths, c.MaxBytes) {
					t.Errorf("%s.%s: at most %d bytes, %v", table.Name, c.Name, c.MaxBytes, f.Constraints)
				}
				if has {
					bounded++
				}
			}
		}
	}
	if len(seen) != len(tables) || bounded < 30 {
		t.Errorf("%d tables, %d bounded texts", len(seen), bounded)
	}
}

package history

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/schema"
)

var update = flag.Bool("update", false, "write the columns into docs/history-sql.md")

// views are the views that docs/history-sql.md describes by column, with the structs of their rows.
var views = []struct {
	name string
	row  reflect.Type
}{{History, reflect.TypeFor[Episode]()}, {"history_" + Policies, reflect.TypeFor[Policy]()},
	{Gaps, reflect.TypeFor[Gap]()}}

// TestColumnsDocument compares the end of docs/history-sql.md with the structs of the rows.
func TestColumnsDocument(t *testing.T) {
	const path, heading = "../docs/history-sql.md", "\n## Columns\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	about, _, found := strings.Cut(string(page), heading)
	if !found {
		t.Fatalf("%s has no columns", path)
	}
	var b strings.Builder
	b.WriteString(about + heading + "\n<!-- Generated: go test ./history -run TestColumnsDocument -update -->\n")
	for _, table := range views {
		fmt.Fprintf(&b, "\n### `%s`\n\n| column | meaning | example |\n|---|---|---|\n", table.name)
		for _, column := range schema.ColumnsOf(table.row) {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", column.Name, column.Meaning, column.Example)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if b.String() != string(page) {
		t.Errorf("%s is out of date; make generate writes it", path)
	}
}

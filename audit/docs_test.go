package audit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what was made with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is out of date; go test ./audit -update rewrites it", path)
	}
}

// docs/CHECKS.md is written by: go test ./audit -run Docs -update
func TestDocs(t *testing.T) {
	golden(t, filepath.Join("..", "docs", "CHECKS.md"), checksDocument(&RobotsTxt))
}

func checksDocument(c *Check) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# The check `%s` %s", c.ID, c.Version)
	line("")
	line("<!-- Written by `go test ./audit -run Docs -update` from the tables in audit and parser. Do not edit. -->")
	line("")
	line("%s", c.Abstract)
	line("")
	line("| | |")
	line("|---|---|")
	for _, row := range [][2]string{
		{"suite", c.Suite}, {"category", c.Category}, {"subcategory", c.Subcategory},
		{"group", c.Group + " (`" + c.GroupID + "`)"}, {"maturity", c.Maturity}, {"scope", c.Scope},
		{"weight", fmt.Sprint(c.Weight)}, {"inspects", "`" + c.Resource + "`"},
	} {
		line("| %s | %s |", row[0], row[1])
	}
	line("")
	line("## Steps")
	line("")
	line("The steps run in this order. The score is the sum of the weights of those that pass or warn. When a required step")
	line("fails, the check fails and the steps behind it are skipped; otherwise the check warns if a step does, and else passes.")
	for _, step := range c.Steps {
		required := ""
		if step.Required {
			required = ", required"
		}
		line("")
		line("### `%s`: %s", step.ID, step.Title)
		line("")
		line("Weight %.2f%s. See %s.", step.Weight, required, step.Cite)
		line("")
		line("- **Passes:** %s", step.Passes)
		if step.Warns != "" {
			line("- **Warns:** %s", step.Warns)
		}
	}
	line("")
	line("## Records")
	line("")
	line("| class | keys |")
	line("|---|---|")
	for _, class := range []parser.Class{parser.ClassCore, parser.ClassExtension, parser.ClassLegacy} {
		var keys []string
		for k := parser.Key(0); k < parser.NumKeys; k++ {
			if k.Class() == class {
				keys = append(keys, "`"+k.String()+"`")
			}
		}
		line("| %s | %s |", class, strings.Join(keys, ", "))
	}
	line("")
	line("## Evidence")
	line("")
	line("A noteworthy line makes one row, of the first kind that fits; of each kind at most %d rows are kept, of a key %d bytes,", MaxEvidenceRows, MaxEvidenceKey)
	line("of a value %d. HTML pages have no rows of `%v` and `%v`. The totals are kept in any case.", MaxEvidenceValue, KindInvalid, KindUnknown)
	line("")
	line("| kind | a line is of this kind if it is |")
	line("|---|---|")
	for k := Kind(0); k < NumKinds; k++ {
		line("| `%v` | %s |", k, k.Meaning())
	}
	return b.String()
}

func TestEveryKindHasAMeaning(t *testing.T) {
	for k := Kind(0); k < NumKinds; k++ {
		if k.Meaning() == "" || k.String() == "?" {
			t.Errorf("kind %d: %q %q", k, k, k.Meaning())
		}
	}
}

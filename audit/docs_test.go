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

// golden compares a text with a file, or rewrites the file.
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

// TestDocs compares docs/CHECKS.md with the code. To write it: go test ./audit -run Docs -update
func TestDocs(t *testing.T) {
	golden(t, filepath.Join("..", "docs", "CHECKS.md"), checksDocument())
}

// conditions describes when each step passes and warns.
var conditions = [numSteps]string{
	StepFetch: `- **Passes:** An answer arrived, its final status is 2xx, and the limit of redirects was not exceeded. A body that was cut at the size limit passes.`,
	StepCoreSyntax: "- **Passes:** There is a valid group, with or without rules: a line whose key is spelled `user-agent`, colon included, and " +
		"whose whole value is `*`, a product token (letters, `-`, `_`) or a name that the registry knows.",
	StepExtensions: "- **Passes:** The records outside the core were classified. This step never fails.\n" +
		"- **Warns:** A record is present that was never standard and is no longer supported: `noindex`, `nofollow`, `noarchive`.",
}

func checksDocument() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# The check `%s` %s", CheckID, CheckVersion)
	line("")
	line("<!-- Written by `go test ./audit -run Docs -update` from the tables in audit and parser. Do not edit. -->")
	line("")
	line("A site publishes a robots.txt file that can be fetched and parsed.")
	line("")
	line("| | |")
	line("|---|---|")
	for _, row := range [][2]string{
		{"suite", CheckSuite}, {"category", CheckCategory}, {"subcategory", CheckSubcategory},
		{"group", CheckGroup + " (`" + CheckGroupID + "`)"}, {"maturity", CheckMaturity}, {"scope", CheckScope},
		{"weight", fmt.Sprint(CheckWeight)}, {"inspects", "`" + CheckResource + "`"},
	} {
		line("| %s | %s |", row[0], row[1])
	}
	line("")
	line("## Steps")
	line("")
	line(
		"The steps run in this order. The score is the sum of the weights of those that pass or warn. When a required step")
	line(
		"fails, the check fails and the later steps are skipped. Otherwise the check warns if a step warns, and passes if none does.")
	for i, step := range steps {
		required := ", required"
		if i == StepExtensions {
			required = ""
		}
		line("")
		line("### `%s`: %s", step.id, step.title)
		line("")
		line("Weight %.2f%s. See %s.", step.weight, required, step.cite)
		line("")
		line("%s", conditions[i])
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
	line(
		"A noteworthy line makes one row, of the first kind that fits; of each kind at most %d rows are kept, of a key %d bytes,", MaxEvidenceRows, MaxEvidenceKey)
	line("of a value %d. HTML pages have no rows of `%v` and `%v`. The totals are kept in any case.", MaxEvidenceValue,
		KindInvalid, KindUnknown)
	line("")
	line("| kind | a line is of this kind if it is |")
	line("|---|---|")
	for k := Kind(0); k < NumKinds; k++ {
		line("| `%v` | %s |", k, k.Meaning())
	}
	line("")
	line("## Findings")
	line("")
	line(
		"`finding` is the word by which a survey counts a site: the first of these that fits. It says what this scan was shown; `access` says")
	line("what a crawler would make of the same answer. Shares of sites that block are of those with `rules`.")
	line("")
	line("| finding | when |")
	line("|---|---|")
	for f := range NumFindings {
		line("| `%v` | %s |", f, f.Meaning())
	}
	line("")
	line("## Advice")
	line("")
	line(
		"`check` and `sites.advice` say in which way an answer probably does not do what its author wanted. Advice changes neither the score nor")
	line(
		"a verdict. A bot challenge gets none. Advice on lines is given to answers whose finding is `%v`; `%v` also to `%v`.",
		FindingRules, AdviceInvisible, FindingNoRules)
	line("")
	line("| advice | given if | text | why |")
	line("|---|---|---|---|")
	for a := range NumAdvice {
		line("| `%v` | %s | %s | %s |", a, advices[a].when, a.Text(), advices[a].why)
	}
	line("")
	line("## Managed files")
	line("")
	line(
		"`managed_by` is who wrote the file, or a block of it, in the site's place. It is recognised by a comment that begins with the text below,")
	line("upper or lower case. Of several the first in this table counts.")
	line("")
	line("| managed_by | comment |")
	line("|---|---|")
	for _, m := range managers {
		line("| `%s` | `# %s` |", m.name, m.comment)
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

package audit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// definitionVector is an element of definitions.json.
type definitionVector struct {
	About     string
	Status    *int
	Challenge string
	File      []string
	Expect    map[string]string // by token
}

// judged returns the site of a vector.
func (v *definitionVector) judged(by *audit.Auditor) *audit.Site {
	s := &audit.Site{Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200,
		Body: []byte(strings.Join(v.File, "\n"))}}
	if v.Status != nil {
		s.Fetch.Status = *v.Status
	}
	if s.Fetch.Status == 0 {
		s.Fetch.Outcome = exchange.Timeout
	}
	s.Fetch.Fields.Challenge = v.Challenge
	by.Judge(s)
	return s
}

// TestDefinitionVectors asks each definition for the cells of definitions.json, in which every two definitions must
// differ, and compares the examples of docs/definitions.md with it.
func TestDefinitionVectors(t *testing.T) {
	registry, err := tokens.Load(strings.NewReader(readVectors(t, "registry.txt")))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []definitionVector
	if err := json.Unmarshal([]byte(readVectors(t, "definitions.json")), &vectors); err != nil {
		t.Fatal(err)
	}
	auditor, examples, apart := audit.New(registry), examplesOf(t), map[string]bool{}
	for _, v := range vectors {
		s := v.judged(auditor)
		cells := s.Report.Policy.Cells(nil, registry)
		for token, want := range v.Expect {
			cell, got := cells[registry.Lookup(token)], "none"
			var by []string
			for _, via := range []struct {
				fact audit.Cell
				word string
			}{{audit.CellOwn, "own"}, {audit.CellFallback, "fallback"}, {audit.CellStar, "star"}} {
				if cell&via.fact != 0 {
					got = via.word
				}
			}
			rules, answered := s.Report.Finding == audit.FindingRules, s.Fetch.Status != 0
			holds := map[string]bool{"partial": rules && cell&audit.CellPartial != 0}
			for _, d := range audit.Definitions {
				holds[d.Name] = rules && d.Blocks(cell)
				if d.Name == "rfc_effective" {
					holds[d.Name] = answered && (d.Blocks(cell) || s.Report.Access == parser.AccessFullDisallow)
				}
				if holds[d.Name] {
					got, by = got+" "+d.Name, append(by, d.Name)
				}
				if d.Name == "full" && holds["partial"] {
					got += " partial"
				}
			}
			if got != want {
				t.Errorf("%s: %s is %q, want %q", v.About, token, got, want)
			}
			for a := range holds {
				for b := range holds {
					apart[a+" and not "+b] = apart[a+" and not "+b] || holds[a] && !holds[b]
				}
			}
			delete(examples, fmt.Sprintf("%d %s| %s | %s |", s.Fetch.Status, s.Fetch.Body, token, strings.Join(by, ", ")))
		}
	}
	for example := range examples {
		t.Errorf("definitions.json does not have the example of docs/definitions.md %q", example)
	}
	for both, found := range apart {
		a, b, _ := strings.Cut(both, " and not ")
		implied := a == b || b == "any" && (a == "full" || a == "partial" || a == "explicit_root") || a == "explicit_root" &&
			b == "mention" || a == "full" && b == "rfc_effective"
		if found == implied {
			t.Errorf("%s: a vector has it: %v", both, found)
		}
	}
}

// examplesOf returns the status and file of each example of docs/definitions.md, and a row of the table after it.
func examplesOf(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, head := map[string]bool{}, "| agent | counted by |\n|---|---|\n"
	for block := range strings.SplitSeq(string(page), "```text\n") {
		file, after, _ := strings.Cut(block, "\n```\n\n"+head)
		table, _, found := strings.Cut(after, "\n\n")
		if !found {
			continue
		}
		status := "200"
		if answer, ok := strings.CutPrefix(file, "HTTP/1.1 "); ok {
			status, file = answer[:3], ""
		}
		for row := range strings.SplitSeq(table, "\n") {
			examples[status+" "+file+row] = true
		}
	}
	if len(examples) == 0 || strings.Count(string(page), "```text\n") != strings.Count(string(page), head) {
		t.Error("docs/definitions.md has no example, or one without a table")
	}
	return examples
}

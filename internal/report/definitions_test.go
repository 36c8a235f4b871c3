package report

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// definitions are the columns of token_stats that count blocking sites, in the order of docs/definitions.md.
var definitions = []string{"mention", "explicit_root", "full", "any", "dpi_all", "rfc_effective"}

func definitionsOf(r *schema.TokenStatsRow) []int64 {
	return []int64{r.Mention, r.ExplicitRoot, r.Full, r.Any, r.DPIAll, r.RFCEffective}
}

// example is a file in docs/definitions.md, with the table after it.
type example struct {
	text string
	want map[string][]string // "yes" or "no" by definition
}

// readExamples reads the text blocks of docs/definitions.md, each with the table after it.
func readExamples(t *testing.T) []example {
	t.Helper()
	page, err := os.ReadFile("../../docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	header := "| agent | " + strings.Join(definitions, " | ") + " |\n|---|---|---|---|---|---|---|\n"
	block := regexp.MustCompile("(?s)^(.*?)\n```\n\n" + regexp.QuoteMeta(header) + `((?:\|[^\n]*\n)+)`)
	var examples []example
	for _, rest := range strings.Split(string(page), "```text\n")[1:] {
		found := block.FindStringSubmatch(rest)
		if found == nil {
			t.Fatalf("no table of what it means behind the example\n%s", rest)
		}
		e := example{text: found[1] + "\n", want: map[string][]string{}}
		for row := range strings.Lines(found[2]) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(row), "| "), " | ")
			e.want[cells[0]] = cells[1:]
		}
		examples = append(examples, e)
	}
	return examples
}

// TestDefinitionsPage judges every example of docs/definitions.md and compares token_stats with the table after it. An
// example is a file, or the head of an answer without one.
func TestDefinitionsPage(t *testing.T) {
	examples := readExamples(t)
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21"})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range examples {
		o, err := origin.Parse("example.com")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(e.text, "\n"); n != 3 {
			t.Errorf("an example has %d lines, not three:\n%s", n, e.text)
		}
		s := &audit.Site{Seq: uint64(i), Origin: o, Label: strconv.Itoa(i)}
		s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: http.StatusOK, Body: []byte(e.text)}
		if status, ok := strings.CutPrefix(e.text, "HTTP/1.1 "); ok {
			s.Fetch.Body = nil
			if s.Fetch.Status, err = strconv.Atoi(status[:3]); err != nil {
				t.Fatal(err)
			}
		}
		audit.Judge(s)
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	got := map[[2]string][]string{} // by label and token
	for _, row := range statsOf[schema.TokenStatsRow](t, dir, schema.TokenStats, Options{}) {
		var cells []string
		for _, n := range definitionsOf(&row) {
			cells = append(cells, []string{"no", "yes"}[min(n, 1)])
		}
		if row.SegmentKind == "label" {
			got[[2]string{row.SegmentValue, row.Token}] = cells
		}
	}
	apart := map[[2]string]bool{}
	for i, e := range examples {
		for token, want := range e.want {
			if tokens.Default().Lookup(token) < 0 {
				t.Errorf("%s is not in the registry", token)
			}
			if cells := got[[2]string{strconv.Itoa(i), token}]; !slices.Equal(cells, want) {
				t.Errorf("%s: got %v, the page says %v\n%s", token, cells, want, e.text)
			}
			for a := range want {
				for b := range want {
					if want[a] == "yes" && want[b] == "no" {
						apart[[2]string{definitions[a], definitions[b]}] = true
					}
				}
			}
		}
	}
	// The page must separate each pair of definitions, except where one implies the other: an explicit denial of /
	// mentions the token and denies something; a full block is also any.
	implied := map[[2]string]bool{{"explicit_root", "mention"}: true, {"explicit_root", "any"}: true, {"full", "any"}: true, {"full", "rfc_effective"}: true}
	for _, a := range definitions {
		for _, b := range definitions {
			if pair := [2]string{a, b}; a != b && apart[pair] == implied[pair] {
				t.Errorf("a file that %s counts and %s does not: on the page %v, possible %v", a, b, apart[pair], !implied[pair])
			}
		}
	}
}

package survey

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
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// example is a file in docs/definitions.md, with the table after it.
type example struct {
	text string
	want map[string][]string // "yes" or "no" by definition
}

// readExamples reads the text blocks of docs/definitions.md, each with the table after it.
func readExamples(t *testing.T) []example {
	t.Helper()
	page, err := os.ReadFile("../docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	header := "| agent | " + strings.Join(DefinitionNames(), " | ") + " |\n|---|---|---|---|---|---|---|\n"
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
		for _, d := range Definitions() {
			cells = append(cells, []string{"no", "yes"}[min(*d.In(&row), 1)])
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
						apart[[2]string{definitions[a].Name, definitions[b].Name}] = true
					}
				}
			}
		}
	}
	// The page must separate each pair of definitions, except where one implies the other: an explicit denial of /
	// mentions the token and denies something; a full block is also any.
	implied := map[[2]string]bool{{"explicit_root", "mention"}: true, {"explicit_root", "any"}: true, {"full", "any"}: true, {"full", "rfc_effective"}: true}
	for _, a := range DefinitionNames() {
		for _, b := range DefinitionNames() {
			if pair := [2]string{a, b}; a != b && apart[pair] == implied[pair] {
				t.Errorf("a file that %s counts and %s does not: on the page %v, possible %v", a, b, apart[pair], !implied[pair])
			}
		}
	}
}

// TestUnread compares what Unread says of sites that have shown no rules with what each definition counts.
func TestUnread(t *testing.T) {
	if strings.Contains(Unread, "five") != (len(Definitions()) == 6) {
		t.Error("the number of definitions is not what Unread says")
	}
	const closed = "User-agent: *\nDisallow: /\n"
	for i, c := range []struct {
		outcome        exchange.Outcome
		status         int
		challenge      string
		body           string
		counts, blocks bool // by rfc_effective
	}{
		{outcome: exchange.Answered, status: 503, counts: true, blocks: true},
		{outcome: exchange.ClosedEarly, status: 200, counts: true, blocks: true}, // the head came
		{outcome: exchange.Answered, status: 429, counts: true},
		{outcome: exchange.Answered, status: 403, counts: true},
		{outcome: exchange.Answered, status: 403, challenge: "cloudflare", counts: true},
		{outcome: exchange.Answered, status: 503, challenge: "cloudflare", counts: true, blocks: true},
		{outcome: exchange.Answered, status: 200, challenge: "cloudflare", body: closed, counts: true, blocks: true},
		{outcome: exchange.Answered, status: 200, challenge: "cloudflare", body: "Checking your browser", counts: true},
		{outcome: exchange.DNSNotFound},
		{outcome: exchange.Timeout},
		{outcome: exchange.ConnectRefused},
		{outcome: exchange.OptedOut},
	} {
		o, err := origin.Parse("https://a.example")
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Input: "a.example", Origin: o}
		site.Fetch = exchange.Response{Outcome: c.outcome, Status: c.status, Body: []byte(c.body)}
		site.Fetch.Fields.Challenge = c.challenge
		audit.Judge(site)
		if f := site.Report.Finding; f == audit.FindingRules {
			t.Fatalf("case %d shows its rules", i)
		}
		st := written(t, []*audit.Site{site}, cut{rows: 1, shards: 1})
		for _, d := range Definitions() {
			s, err := Summarize(t.Context(), st, "cut", SummaryOptions{Definition: d.Name})
			if err != nil {
				t.Fatal(err)
			}
			named := strings.Contains(Unread, d.Name)
			if counts := s.Blocking.Sites > 0; counts != (named && c.counts) {
				t.Errorf("case %d, %v %d: %s counts it: %v", i, c.outcome, c.status, d.Name, counts)
			}
			if blocks := s.Blocking.AtLeastOne > 0; blocks != (named && c.blocks) {
				t.Errorf("case %d, %v %d: by %s it blocks: %v", i, c.outcome, c.status, d.Name, blocks)
			}
		}
	}
}

// TestUnreadIsSaid holds that the methods of a dataset say so, and nothing else of it.
func TestUnreadIsSaid(t *testing.T) {
	var text strings.Builder
	for _, s := range []Section{limits(), meanings()} {
		text.Write(markdown([]Section{s}))
	}
	if !strings.Contains(text.String(), Unread) || strings.Contains(text.String(), "no share takes") {
		t.Errorf("the limitations are\n%s", text.String())
	}
}

package queries

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/index"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// definitionVectors is definitions.json of audit's vectors.
type definitionVectors []struct {
	About     string
	Status    *int
	Challenge string
	File      []string
	Expect    map[string]string // by token
}

// TestDefinitionVectors asks policy_tokens and site_tokens for audit's vectors, also where the registry that judged
// them spells tokens otherwise than that of the views.
func TestDefinitionVectors(t *testing.T) {
	needDuckDB(t)
	const folder = "../../../audit/testdata/vectors/"
	var vectors definitionVectors
	text, err := os.ReadFile(folder + "definitions.json")
	if err == nil {
		err = json.Unmarshal(text, &vectors)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile(folder + "registry.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, respelled := range map[string]string{"as spelled": string(rows), "otherwise": strings.NewReplacer("\nHouse-",
		"\nHOUSE-", "\nHermit", "\nhermit").Replace(string(rows)) + "gptbot | | yes |\n"} {
		t.Run(name, func(t *testing.T) { vectors.ask(t, registryOf(t, respelled), registryOf(t, string(rows))) })
	}
}

func registryOf(t *testing.T, rows string) *tokens.Registry {
	t.Helper()
	registry, err := tokens.Load(strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

// ask asks views of one registry for sites that another one has judged. A site's label is that of its vector.
func (all definitionVectors) ask(t *testing.T, judges, registry *tokens.Registry) {
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "vectors", Date: dates[0], Registry: judges})
	if err != nil {
		t.Fatal(err)
	}
	auditor, want, found, tokensOf := audit.New(judges), map[string]string{}, map[string]bool{}, map[string]bool{}
	for i, v := range all {
		from, err := origin.Parse(fmt.Sprintf("site%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		s := &audit.Site{Seq: uint64(i), Origin: from, Label: v.About, Fetch: exchange.Response{Outcome: exchange.Answered,
			Status: 200, Body: []byte(strings.Join(v.File, "\n"))}}
		if v.Status != nil {
			s.Fetch.Status = *v.Status
		}
		if s.Fetch.Status == 0 {
			s.Fetch.Outcome = exchange.Timeout
		}
		s.Fetch.Fields.Challenge = v.Challenge
		auditor.Judge(s)
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
		for token, facts := range v.Expect {
			want[v.About+": "+token], tokensOf[token] = facts, true
		}
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context()), index.Update(t.Context(), st)); err != nil {
		t.Fatal(err)
	}
	withHistory(t, st)
	if err := sinkviews.Write(t.Context(), st, registry); err != nil {
		t.Fatal(err)
	}
	asked := []Query{{Name: "site_tokens", SQL: `SELECT s.label || ': ' || s.token, concat_ws(' ', coalesce(p.via, 'none'), CASE WHEN s.mention THEN 'mention' END,
		CASE WHEN s.explicit_root THEN 'explicit_root' END, CASE WHEN s."full" THEN 'full' END, CASE WHEN s.partial THEN 'partial' END, CASE WHEN s."any" THEN 'any' END,
		CASE WHEN s.dpi_all THEN 'dpi_all' END, CASE WHEN s.rfc_effective THEN 'rfc_effective' END)
		FROM site_tokens AS s JOIN sites USING (scan_id, seq) LEFT JOIN policy_tokens AS p ON p.scan_date = sites.scan_date AND p.policy_id = sites.policy_id AND p.token = s.token`}}
	for token := range tokensOf {
		asked = append(asked, Query{Name: "policy_states",
			SQL: fmt.Sprintf(
				"SELECT label || ': ' || %[1]s, state FROM history AS h JOIN (SELECT label, host FROM sites) USING (host) JOIN policy_states(%[1]s) USING (policy_id)", literal(token))})
	}
	for _, a := range ask(t, dir, asked) {
		for _, row := range a.Rows {
			name, got := row[0].(string), row[1].(string)
			facts, expected := want[name]
			if a.Name == "policy_states" {
				if expected && (got == "blocked") != strings.Contains(facts, " full") {
					t.Errorf("%s is %s in the ledger, want %q", name, got, facts)
				}
			} else if found[name] = true; expected && got != facts {
				t.Errorf("%s is %q, want %q", name, got, facts)
			}
		}
	}
	for name := range want {
		if !found[name] {
			t.Errorf("site_tokens does not have %s", name)
		}
	}
}

package queries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
)

// TestPoliciesView joins sites with policies. Although parts and dates repeat policies, and a compaction keeps all
// rows, each site joins one row, before and after.
func TestPoliciesView(t *testing.T) {
	needDuckDB(t)
	nights := []string{"2026-11-02", "2026-11-03"}
	dir, st := write(t, Survey{Sites: 400, Dates: nights, Parts: 50, Observer: commit.Observer{Source: commit.Live,
		Vantage: "here"}, Statistics: statistics})
	all := []Query{
		{Name: "scans", SQL: "SELECT CAST(scan_date AS VARCHAR) FROM scans ORDER BY scan_date"},
		{Name: "sites",
			SQL: "SELECT CAST(scan_date AS VARCHAR), count(*), count(*) FILTER (access = 'conditional') FROM sites GROUP BY ALL ORDER BY ALL"},
		{Name: "joined",
			SQL: `SELECT CAST(s.scan_date AS VARCHAR), count(*), count(p.policy_id) FROM sites AS s LEFT JOIN policies AS p USING (policy_id) GROUP BY ALL ORDER BY ALL`},
		{Name: "joined by the RFC",
			SQL: `SELECT CAST(s.scan_date AS VARCHAR), count(*), count(p.policy_id) FROM sites AS s LEFT JOIN policies AS p ON p.policy_id = s.rfc_policy_id GROUP BY ALL ORDER BY ALL`},
		{Name: "of one date",
			SQL: `SELECT count(*) FROM sites AS s JOIN policies_on('2026-11-02') AS p USING (policy_id) WHERE s.scan_date = '2026-11-02'`},
		{Name: "other facts than sites have", SQL: `SELECT count(*) FROM sites AS s JOIN policies AS p USING (policy_id) WHERE list_sort(p.own) <> list_sort(s.named) OR p.star_verdict <> s.star_verdict
			OR list_sort(p.own_blocked) <> list_sort(list_intersect(s.named, s.blocked)) OR list_sort(p.own_partial) <> list_sort(list_intersect(s.named, s.partial))
			OR p.licensed <> (s.license IS NOT NULL) OR p.managed_by IS DISTINCT FROM s.managed_by OR p.content_signal IS DISTINCT FROM s.content_signal`},
		{Name: "other facts than verdicts have", SQL: `SELECT count(*) FROM sites AS s JOIN policies AS p USING (policy_id) JOIN verdicts AS v ON v.scan_id = s.scan_id AND v.seq = s.seq WHERE NOT v.lenient AND
			CASE WHEN v.token = '*' THEN p.star <> (v.via = 'star') OR p.star_root_denied = v.root_allowed OR p.star_dpi_all <> (v.dpi = 'all') OR p.content_usage IS DISTINCT FROM v.content_usage
			WHEN v.known AND v.via = 'own' THEN list_contains(p.own_root_denied, v.token) = v.root_allowed OR list_contains(p.own_dpi_all, v.token) <> (v.dpi = 'all') ELSE false END`},
		{Name: "rows of files, and of the view",
			SQL: `SELECT (SELECT CAST(sum(rows) AS BIGINT) FROM bulkscan_files WHERE "table" = 'policies'), count(*), count(DISTINCT policy_id) FROM policies`},
	}
	page, err := os.ReadFile("../../../docs/dataset.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "\n\tSELECT own, policies.")
	example, _, whole := strings.Cut(example, ";")
	if !found || !whole {
		t.Fatal("docs/dataset.md has no query of policies")
	}
	all = append(all, Query{Name: "the example", SQL: "SELECT own, policies." + example})
	before := ask(t, dir, all)
	if rows := before[8].Rows; len(rows) != 10 {
		t.Errorf("the example of docs/dataset.md has %d rows", len(rows))
	}
	compareAnswers(t, before[0], [][]any{{nights[0]}, {nights[1]}})
	compareAnswers(t, before[2], before[1].Rows)
	compareAnswers(t, before[3], before[1].Rows)
	compareAnswers(t, before[4], [][]any{{before[1].Rows[0][2]}})
	compareAnswers(t, before[5], [][]any{{int64(0)}})
	compareAnswers(t, before[6], [][]any{{int64(0)}})
	if n := before[7].Rows[0]; equal(n[0], n[1]) || !equal(n[1], n[2]) || equal(before[1].Rows[0][2], int64(0)) {
		t.Errorf("rows of files, of the view, and its ids: %v", n)
	}
	for _, night := range nights {
		if merged, err := compact.Scan(t.Context(), st, "survey-"+night, compact.Options{}); err != nil ||
			merged.PartsAfter != 1 {
			t.Fatal(merged, err)
		}
	}
	for i, after := range ask(t, dir, all[:8]) { // equal counts of the example have no order
		compareAnswers(t, after, before[i].Rows)
	}
}

// TestPoliciesOfOneDate: a query about one date opens no policies of other dates; a year has hundreds of these.
func TestPoliciesOfOneDate(t *testing.T) {
	needDuckDB(t)
	dir, _ := write(t, Survey{Sites: 200, Dates: dates})
	files, err := filepath.Glob(dir + "/policies/scan_date=" + dates[1] + "/*")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("no Parquet"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, view := range []string{"policy_tokens", "site_tokens", "site_blocks", "blocked_sets", "rollups",
		"policies_on(latest()), (SELECT latest() AS scan_date)"} {
		a := ask(t, dir, []Query{{Name: view, SQL: "SELECT count(*) > 0 FROM " + view + " WHERE scan_date = latest()"}})
		compareAnswers(t, a[0], [][]any{{true}})
	}
}

package queries

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// madeLater makes the scan of a date one that a later version of bulkscan has written: sites has a further column.
func madeLater(t *testing.T, dir string, st store.Store, id, date string) {
	t.Helper()
	m, err := commit.ReadManifest(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	commits, err := commit.Commits(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commits {
		c.SchemaVersion++
		for i := range c.Files {
			f := &c.Files[i]
			if f.Table != schema.Sites {
				continue
			}
			name := filepath.Join(dir, f.Name)
			copied := ask(t, dir, []Query{{SQL: fmt.Sprintf("COPY (SELECT *, 'of %s' AS further FROM read_parquet(%s, hive_partitioning = false)) TO %s (FORMAT parquet)", date, literal(name), literal(name+".new"))}})
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(copied, err)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f.Bytes, f.SHA256 = int64(len(data)), schema.SumOf(data)
		}
		data, err := commit.SealRecord(&c, &c.Sum)
		if err == nil {
			err = st.Put(t.Context(), c.Name(), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.SchemaVersion++
	if err := m.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
}

func viewsText(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, sinkviews.Name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSchemaVersions shows that a view has the rows and columns of every schema version, after a program that does not know the
// later one has written the index and the views; and that a query of one date does not open files of others.
func TestSchemaVersions(t *testing.T) {
	needDuckDB(t)
	here, there := commit.Observer{Source: commit.Live, Vantage: "here"}, commit.Observer{Source: commit.Live, Vantage: "there"}
	nights := []string{"2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"}
	dir, st := write(t, Survey{Name: "other", Sites: 20, Dates: nights[:1], Observer: there})
	survey := Survey{Sites: 40, Dates: nights, Parts: 25, Observer: here, Statistics: statistics}
	if err := survey.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	one := viewsText(t, dir)
	for _, night := range nights[2:] {
		madeLater(t, dir, st, "survey-"+night, night)
	}
	if merged, err := compact.Scan(t.Context(), st, "survey-"+nights[0], compact.Options{}); err != nil || merged.PartsAfter != 1 {
		t.Fatal(merged, err)
	}
	if strings.Contains(one, "UNION ALL BY NAME") || !strings.Contains(viewsText(t, dir), "UNION ALL BY NAME") {
		t.Error("there is a list for each version where there are several, and only there")
	}
	const counts = `SELECT count(*), count(DISTINCT scan_date), count(further), coalesce(string_agg(DISTINCT further ORDER BY further), '') FROM sites`
	of := func(observer commit.Observer, sql string) Query {
		return Query{SQL: "SET VARIABLE bulkscan_observer = " + literal(observer.String()) + "; " + sql}
	}
	answers := ask(t, dir, []Query{
		{Name: "chosen", SQL: counts},
		{Name: "the other observer, who has no later files", SQL: of(there, counts).SQL},
		{Name: "all", SQL: "RESET VARIABLE bulkscan_observer; " + counts},
		{Name: "a table of the same columns", SQL: of(here, "SELECT count(DISTINCT (v.scan_date, v.seq)) FROM sites AS s JOIN verdicts AS v USING (scan_id, seq) WHERE access = 'conditional'").SQL},
		{Name: "the same", SQL: "SELECT count(*) FROM sites WHERE access = 'conditional'"},
	})
	both := "of " + nights[2] + ",of " + nights[3]
	compareAnswers(t, answers[0], [][]any{{int64(160), int64(4), int64(80), both}})
	compareAnswers(t, answers[1], [][]any{{int64(20), int64(1), int64(0), ""}})
	compareAnswers(t, answers[2], [][]any{{int64(180), int64(4), int64(80), both}})
	compareAnswers(t, answers[3], [][]any{{answers[4].Rows[0][0]}})
	refused, err := Ask(t.Context(), tools, dir, []Query{of(commit.Observer{Source: "nobody"}, counts)}, 2, 1)
	if err != nil || !strings.Contains(refused[0].Error, "no complete scan of this observer") {
		t.Errorf("%v, %v", refused, err)
	}

	// DuckDB opens the first file of each version for its columns, and else only what a query needs.
	for _, night := range nights[1:3] {
		files, err := filepath.Glob(filepath.Join(dir, "sites", "scan_date="+night, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		if night == nights[2] {
			files = files[1:]
		}
		for _, file := range files {
			if err := os.WriteFile(file, []byte("no Parquet"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	answers, err = Ask(t.Context(), tools, dir, []Query{{SQL: counts + " WHERE scan_date = '" + nights[3] + "'"}, {SQL: counts}}, 2, 1)
	if err != nil || answers[0].Error != "" || answers[1].Error == "" {
		t.Fatalf("%v, %v", answers, err)
	}
	compareAnswers(t, answers[0], [][]any{{int64(40), int64(1), int64(40), "of " + nights[3]}})
}

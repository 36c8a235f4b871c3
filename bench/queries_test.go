package bench

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/integration/queries"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// BenchmarkQueries has DuckDB run each query of docs/queries with two threads on 365 nights, of which the last two have
// a million sites each, made with real files, and the others two thousand. ns/op is DuckDB's own time of a query,
// without the start of its process; the query "load" reads views.sql. It needs `make
// internal/integration/duckdb/node_modules`.
//
//	make compare BENCH=Queries TIME=5x
func BenchmarkQueries(b *testing.B) {
	root, tools := duckDB(b)
	all, err := queries.Load(filepath.Join(root, "docs", "queries"))
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	statistics := func(ctx context.Context, st store.Store, id string) error {
		return stats.Write(ctx, st, id, survey.Options{})
	}
	last := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var nights []string
	for n := scaled(364); n > 1; n-- {
		nights = append(nights, last.AddDate(0, 0, -n).Format(time.DateOnly))
	}
	early := queries.Survey{Name: "early", Sites: 2000, Dates: nights, Tables: []string{schema.Sites, schema.Verdicts,
		schema.Evidence}, Statistics: statistics}
	if err := early.Write(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	survey := queries.Survey{
		Sites: scaled(1_000_000), Dates: []string{"2026-11-20", "2026-11-21"},
		Bodies: slices.Concat(sharedtest.Bodies(b, "typical12k"), sharedtest.Bodies(b, "modern-ai"),
			sharedtest.Bodies(b, "mix12k")[:300]),
		Tables: early.Tables, Statistics: statistics, // no query reads bodies
	}
	if err := survey.Write(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	if _, err := history.Update(b.Context(), st, history.Options{}); err != nil {
		b.Fatal(err)
	}
	if err := views.Write(b.Context(), st, nil); err != nil {
		b.Fatal(err)
	}
	load, err := store.ReadAll(b.Context(), st, views.Name, views.MaxBytes)
	if err != nil {
		b.Fatal(err)
	}
	all = append([]queries.Query{{Name: "load", SQL: string(load)},
		{Name: "one-date", SQL: "SELECT count(*) FROM sites WHERE scan_date = latest()"}}, all...)
	for _, query := range all {
		b.Run("query="+query.Name, func(b *testing.B) { timeQuery(b, tools, dir, query.SQL) })
	}
}

// duckDB returns the root of the project and the folder with DuckDB, without which the benchmark is skipped.
func duckDB(b *testing.B) (root, tools string) {
	root, err := built.Root(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	tools = filepath.Join(root, "internal", "integration", "duckdb")
	if err := queries.Ready(tools); err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	return root, tools
}

// timeQuery has DuckDB run a query with two threads. ns/op is DuckDB's own time, without the start of its process, and
// cpu-ms that of processors.
func timeQuery(b *testing.B, tools, dir, sql string) {
	const threads = 2
	answers, err := queries.Ask(b.Context(), tools, dir, []queries.Query{{SQL: sql}}, threads, b.N)
	if err != nil {
		b.Fatal(err)
	}
	if answers[0].Error != "" {
		b.Fatal(answers[0].Error)
	}
	sum, cpu := 0.0, 0.0
	for i, ms := range answers[0].Millis {
		sum += ms
		cpu += answers[0].CPU[i]
	}
	runs := float64(len(answers[0].Millis))
	b.ReportMetric(sum/runs*1e6, "ns/op")
	b.ReportMetric(cpu/runs, "cpu-ms")
}

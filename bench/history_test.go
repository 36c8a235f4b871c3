package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/integration/queries"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/views"
)

// BenchmarkHistory has DuckDB read views.sql, and run each macro of the history, with two threads on the ledger of a million sites,
// merged night by night for 365 nights. nights=3650 is reading views.sql where the ledger has ten years of few sites. It measures
// as BenchmarkQueries does.
//
//	make compare BENCH=History TIME=5x
func BenchmarkHistory(b *testing.B) {
	_, tools := duckDB(b)
	write := func(ledger queries.Ledger) (dir, text string) {
		dir = b.TempDir()
		st, err := store.NewDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		survey := queries.Survey{Sites: 1000, Dates: []string{ledger.Last}, Statistics: func(ctx context.Context, st store.Store, id string) error {
			return report.Stats(ctx, st, id, report.Options{})
		}}
		if err := errors.Join(survey.Write(b.Context(), st), ledger.Write(b.Context(), st), views.Write(b.Context(), st, nil)); err != nil {
			b.Fatal(err)
		}
		data, err := store.ReadAll(b.Context(), st, views.Name, views.MaxBytes)
		if err != nil {
			b.Fatal(err)
		}
		return dir, string(data)
	}
	decade, text := write(queries.Ledger{Sites: 1000, Nights: 3650, Last: "2026-11-21"})
	b.Run("load/nights=3650", func(b *testing.B) { timeQuery(b, tools, decade, text) })
	dir, text := write(queries.Ledger{Sites: scaled(1_000_000), Nights: 365, Last: "2026-11-21"})
	for _, query := range []struct{ name, sql string }{
		{"load", text},
		{"policies_blocking", "SELECT count(*) FROM policies_blocking('GPTBot')"},
		{"token_history", "SELECT state, count(*) FROM token_history('GPTBot') GROUP BY ALL"},
		{"policies_at", "SELECT class, gap, count(*) FROM policies_at('2026-11-21') GROUP BY ALL"},
		{"history_on", "SELECT cause, count(*), max(host) FROM history_on('2026-11-21') GROUP BY ALL"},
		{"token_spells", "SELECT state, censoring, count(*) FROM token_spells('GPTBot') GROUP BY ALL"},
		{"first_blocked", "SELECT valid_from, censoring, count(*) FROM first_blocked('GPTBot') GROUP BY ALL"},
		{"transitions/apart=1", "SELECT before, after, change, count(*) FROM transitions('2026-11-20', '2026-11-21', 'GPTBot') GROUP BY ALL"},
		{"transitions/apart=356", "SELECT before, after, change, count(*) FROM transitions('2025-11-30', '2026-11-21', 'GPTBot') GROUP BY ALL"},
		{"reversals", "SELECT change, count(*) FROM reversals('GPTBot') GROUP BY ALL"},
		{"flapping", "FROM flapping('GPTBot')"},
		{"survival", "FROM survival('GPTBot')"},
		{"blocked_over_time", "FROM blocked_over_time('GPTBot')"},
	} {
		b.Run(query.name+"/nights=365", func(b *testing.B) { timeQuery(b, tools, dir, query.sql) })
	}
}

// BenchmarkCountTokens counts six tokens in that ledger, as bulkscan report does.
//
//	make compare BENCH=CountTokens TIME=5x
func BenchmarkCountTokens(b *testing.B) {
	ledger := queries.Ledger{Sites: scaled(1_000_000), Nights: 365, Last: "2026-11-21"}
	st, err := store.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	if err := ledger.Write(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	asked := history.TokensAsked{ScanID: "night-" + ledger.Last, Registry: tokens.Default()}
	for _, name := range []string{"GPTBot", "ClaudeBot", "CCBot", "Google-Extended", "PerplexityBot", "Bytespider"} {
		asked.Tokens = append(asked.Tokens, asked.Registry.Lookup(name))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := history.CountTokens(b.Context(), st, asked); err != nil {
			b.Fatal(err)
		}
	}
}

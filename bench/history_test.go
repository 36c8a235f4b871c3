package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/integration/queries"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// BenchmarkHistory has DuckDB read views.sql, and run each macro of the history, with two threads on the ledger of a
// million sites, merged night by night for 365 nights. It measures as BenchmarkQueries does.
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
		survey := queries.Survey{Sites: 1000, Dates: []string{ledger.Last}, Statistics: func(ctx context.Context,
			st store.Store, id string) error {
			return stats.Write(ctx, st, id, survey.Options{})
		}}
		if err := errors.Join(survey.Write(b.Context(), st), ledger.Write(b.Context(), st), views.Write(b.Context(), st,
			nil)); err != nil {
			b.Fatal(err)
		}
		data, err := store.ReadAll(b.Context(), st, views.Name, views.MaxBytes)
		if err != nil {
			b.Fatal(err)
		}
		return dir, string(data)
	}
	dir, text := write(queries.Ledger{Sites: scaled(1_000_000), Nights: 365, Last: "2026-11-21"})
	for _, query := range []struct{ name, sql string }{
		{"load", text},
		{"policies_blocking", "SELECT count(*) FROM policies_blocking('GPTBot')"},
		{"token_history", "SELECT state, count(*) FROM token_history('GPTBot') GROUP BY ALL"},
		{"policies_at", "SELECT class, gap, count(*) FROM policies_at('2026-11-21') GROUP BY ALL"},
		{"history_on", "SELECT cause, count(*), max(host) FROM history_on('2026-11-21') GROUP BY ALL"},
		{"token_spells", "SELECT state, censoring, count(*) FROM token_spells('GPTBot') GROUP BY ALL"},
		{"first_blocked", "SELECT valid_from, censoring, count(*) FROM first_blocked('GPTBot') GROUP BY ALL"},
		{"transitions/apart=1",
			"SELECT before, after, change, count(*) FROM transitions('2026-11-20', '2026-11-21', 'GPTBot') GROUP BY ALL"},
		{"transitions/apart=356",
			"SELECT before, after, change, count(*) FROM transitions('2025-11-30', '2026-11-21', 'GPTBot') GROUP BY ALL"},
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

// BenchmarkNights has DuckDB read views.sql, and count the sites of a date, where index and ledger have a year and ten
// years of nights. The files of a night are hard links to those of a small scan, and past months are merged. It
// measures as BenchmarkQueries does.
//
//	make compare BENCH=Nights TIME=20x
func BenchmarkNights(b *testing.B) {
	_, tools := duckDB(b)
	for _, nights := range []int{365, 3650} {
		dir := b.TempDir()
		text := writeNights(b, dir, nights)
		for _, query := range []struct{ name, sql string }{
			{"load", text},
			{"one-date", "SELECT count(*) FROM sites WHERE scan_date = '2026-06-15'"},
		} {
			b.Run(fmt.Sprintf("%s/nights=%d", query.name, nights), func(b *testing.B) { timeQuery(b, tools, dir, query.sql) })
		}
	}
}

// writeNights makes the dataset of BenchmarkNights, and returns its views.sql.
func writeNights(b *testing.B, dir string, nights int) string {
	st, err := store.NewDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	const last = "2026-11-21"
	survey := queries.Survey{Sites: 100, Dates: []string{"2026-10-30", "2026-10-31", last},
		Statistics: func(ctx context.Context, st store.Store, id string) error {
			return stats.Write(ctx, st, id, survey.Options{})
		}}
	ledger := queries.Ledger{Sites: 1000, Nights: nights, Last: last}
	if err := errors.Join(survey.Write(b.Context(), st), ledger.Write(b.Context(), st), index.RollUp(b.Context(), st,
		"bench")); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(repeatNights(b.Context(), st, dir, last, nights), views.Write(b.Context(), st,
		nil)); err != nil {
		b.Fatal(err)
	}
	text, err := store.ReadAll(b.Context(), st, views.Name, views.MaxBytes)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// repeatNights writes the index of so many nights, and links to their files. The last night and its month stay; those
// before are like the second night and its month.
func repeatNights(ctx context.Context, st store.Store, dir, last string, nights int) error {
	var like, rows []index.Row
	for row, err := range table.FileRows[index.Row](ctx, st, index.Name) {
		switch {
		case err != nil:
			return err
		case row.ScanDate == last:
			rows = append(rows, *row)
		case row.ScanDate != "2026-10-30":
			like = append(like, *row)
		}
	}
	end, err := time.Parse(time.DateOnly, last)
	if err != nil {
		return err
	}
	for n := 1; n < nights; n++ {
		date := end.AddDate(0, 0, -n)
		for _, row := range like {
			now := date.Format(time.DateOnly)
			if was := row.ScanDate; was == "2026-10-01" { // of a month
				if date.Day() > 1 {
					continue
				}
				row.Name = strings.ReplaceAll(row.Name, was[:7], now[:7])
			} else {
				row.ScanID, row.Name = strings.ReplaceAll(row.ScanID, was, now), strings.ReplaceAll(row.Name, was, now)
				row.StartedAt -= int64(n) * 86400_000
			}
			row.ScanDate = now
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b index.Row) int {
		return strings.Compare(a.ScanDate+" "+a.ScanID+" "+a.Name, b.ScanDate+" "+b.ScanID+" "+b.Name)
	})
	for _, row := range rows {
		for _, from := range like {
			if from.Table == row.Table {
				to := filepath.Join(dir, row.Name)
				err := os.MkdirAll(filepath.Dir(to), 0o777)
				if err == nil {
					err = os.Link(filepath.Join(dir, from.Name), to)
				}
				if err != nil && !errors.Is(err, fs.ErrExist) {
					return err
				}
			}
		}
	}
	data, err := table.Encode(nil, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(schema.Version)}, rows)
	if err != nil {
		return err
	}
	return st.Put(ctx, index.Name, data)
}

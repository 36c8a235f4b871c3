package tables

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// BenchmarkReport reads a scan of 200,000 sites with real bodies, in four parts.
//
//	go test ./survey/tables -run '^$' -bench Report -benchtime 1x -benchmem
func BenchmarkReport(b *testing.B) {
	const sites = 200_000
	bodies := sharedtest.Bodies(b, "typical12k")
	dir := surveytest.Scan(b, sites, func(i int) []byte { return bodies[i%len(bodies)] })
	perSite := func(b *testing.B) {
		b.ReportMetric(float64(b.N)*sites/b.Elapsed().Seconds(), "sites/s")
	}
	b.Run("stats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := stats.Write(b.Context(), dir, "bench", survey.Options{}); err != nil {
				b.Fatal(err)
			}
		}
		perSite(b)
	})
	for _, d := range survey.Definitions() {
		b.Run("summary/"+d.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := summary.Of(b.Context(), dir, "bench", summary.Options{Definition: d.Name,
					Selection: survey.Selection{Category: "ai"}}); err != nil {
					b.Fatal(err)
				}
			}
			perSite(b)
		})
	}
	b.Run("survey", func(b *testing.B) {
		scan, err := commit.ReadScan(b.Context(), dir, "bench")
		if err != nil {
			b.Fatal(err)
		}
		o := Options{Options: survey.Options{}.WithDefaults(), Counted: new(atomic.Int64)}
		b.ReportAllocs()
		for b.Loop() {
			s := Survey{Tables: map[string]*Table{}}
			if err := s.fromSites(b.Context(), dir, scan, &o); err != nil {
				b.Fatal(err)
			}
		}
		perSite(b)
	})
}

// BenchmarkOverTime reads the statistics of 365 nights, each of a million sites: some thousand segments of registry
// tokens, and agents that the registry does not have.
//
//	go test ./survey/tables -run '^$' -bench OverTime -benchtime 1x -benchmem
func BenchmarkOverTime(b *testing.B) {
	st, err := store.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	registry := tokens.Default()
	w := table.NewWriter[schema.TokenStatsRow](schema.TokenStats, 1024, table.PageBytes, nil)
	if err := w.Begin(b.Context(), st, "night.parquet"); err != nil {
		b.Fatal(err)
	}
	add := func(row schema.TokenStatsRow, sites, token int64) {
		next, err := w.Next()
		if err != nil {
			b.Fatal(err)
		}
		*next = row
		next.SitesAll, next.SitesAnswered, next.SitesRules = sites, sites*9/10, sites*7/10
		for i, count := range []*int64{&next.Mention, &next.ExplicitRoot, &next.Full, &next.Any, &next.DPIAll,
			&next.RFCEffective} {
			*count = sites * (token*7919%97 + int64(i)) / 1000
		}
	}
	for segment := range int64(1200) {
		kind := "all"
		if segment > 0 {
			kind = "tld"
		}
		for i, t := range registry.Tokens {
			add(schema.TokenStatsRow{Token: t.Name, Known: true, Category: t.Category, SegmentKind: kind,
				SegmentValue: fmt.Sprint(segment)}, 1_000_000/(segment*segment+1), int64(i))
		}
	}
	for i := range int64(60_000) {
		add(schema.TokenStatsRow{Token: fmt.Sprintf("agent-%d", i), SegmentKind: "all"}, 1_000_000, i/1000)
	}
	if err := errors.Join(w.Flush(), w.Seal(), w.Publish(b.Context())); err != nil {
		b.Fatal(err)
	}
	var nights []index.Row
	for n := range 365 {
		nights = append(nights, index.Row{ScanDate: time.Unix(int64(n)*86400, 0).UTC().Format(time.DateOnly),
			Table: schema.TokenStats, Name: "night.parquet", Rows: w.Describe().Rows})
	}
	b.ReportAllocs()
	for b.Loop() {
		s := &Survey{Tables: map[string]*Table{}}
		if err := s.overTime(b.Context(), st, nights, &Options{AllTokens: true}); err != nil {
			b.Fatal(err)
		}
	}
}

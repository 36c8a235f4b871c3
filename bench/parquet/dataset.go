package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// This file is what is done with a whole dataset: statistics of its sites are computed, and its parts are merged.

// What is done, as a measuring process hears it.
const (
	statistics = "statistics"
	compaction = "compaction"
)

// The tables that are written, read and merged. Bodies are merged as the others are, and would only take time to be written.
var datasetTables = []string{sink.TableSites, sink.TableVerdicts, sink.TableEvidence}

// partsOf makes parts of 50,000 sites, as a scan has them, where there are ten million rows, of which a site has seven.
const partsOf = 200

// scanID is what the scan of judged sites is called.
const scanID = "bench"

// The marks: sites a second, and seconds for as many rows as it is said of.
const (
	leastSites    = 1e6
	compactedRows = 10_000_000
	mostSeconds   = 10 // seconds
)

// measureDataset writes a scan of so many rows, in parts, and measures what is done with it.
func measureDataset(ctx context.Context, r *Report, plan Plan) error {
	if plan.Scan == 0 {
		return nil
	}
	dir, remove, err := temporary()
	if err != nil {
		return fmt.Errorf("cannot write a dataset: %w", err)
	}
	defer remove()
	r.note("writing a scan of %d rows\n", plan.Scan)
	files, err := writeJudged(ctx, dir, plan.Scan)
	if err != nil {
		return err
	}
	var computed []Measured
	for range max(1, plan.Rounds) {
		m, err := takeTurn(ctx, &job{Contender: statistics, Dir: dir})
		if err != nil {
			return fmt.Errorf("%s: %w", statistics, err)
		}
		r.note("statistics: %.0f sites in %s\n", float64(m.Rows), m.Wall)
		computed = append(computed, *m)
	}
	merged, err := takeTurn(ctx, &job{Contender: compaction, Dir: dir})
	if err != nil {
		return fmt.Errorf("%s: %w", compaction, err)
	}
	after, err := countParts(dir)
	if err != nil {
		return err
	}
	r.Dataset(files, after, computed, merged)
	return nil
}

// writeJudged writes a scan of so many rows, or a few more, of all tables together.
func writeJudged(ctx context.Context, dir string, rows int) (files int, err error) {
	sites, err := judgedSites()
	if err != nil {
		return 0, err
	}
	st, err := store.NewDir(dir)
	if err != nil {
		return 0, err
	}
	w, err := sink.Open(ctx, st, sink.Options{ScanID: scanID, Tables: datasetTables, PartRows: max(1000, rows/partsOf)})
	if err != nil {
		return 0, err
	}
	for seq := uint64(0); rows > 0; seq++ {
		s := numbered(sites, seq)
		rows -= 1 + len(s.Report.Verdicts) + len(s.Report.Evidence)
		if err := w.Add(s); err != nil {
			return 0, err
		}
	}
	if err := w.Close(ctx); err != nil {
		return 0, err
	}
	return countParts(dir)
}

// countParts counts the files of the table sites.
func countParts(dir string) (n int, err error) {
	err = filepath.WalkDir(filepath.Join(dir, sink.TableSites), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".parquet" {
			n++
		}
		return err
	})
	return n, err
}

// judgedSites are a few thousand sites with real files, which are kept again and again.
func judgedSites() ([]audit.Site, error) {
	const held = 4000
	replay, err := newReplay(held, Simulated)
	if err != nil {
		return nil, err
	}
	sites := make([]audit.Site, held)
	for i := range sites {
		replay.Site(i, &sites[i])
	}
	return sites, nil
}

// numbered returns the next site under the number seq.
func numbered(sites []audit.Site, seq uint64) *audit.Site {
	s := &sites[seq%uint64(len(sites))]
	s.Seq, s.Rank = seq, int64(seq)+1
	return s
}

// statsTurn computes the statistics of a scan. A first time does not count. What is counted is sites.
func statsTurn(j *job) (*Measured, error) {
	ctx := context.Background()
	st, err := store.NewDir(j.Dir)
	if err != nil {
		return nil, err
	}
	scan, err := sink.ReadScan(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	var sites int64
	for i := range scan.Commits {
		f, _ := scan.Commits[i].File(sink.TableSites)
		sites += f.Rows
	}
	compute := func() (int64, error) { return sites, report.Stats(ctx, st, scanID, report.Options{}) }
	if _, err := compute(); err != nil {
		return nil, err
	}
	return measure(compute)
}

// compactTurn merges the parts of a scan.
func compactTurn(j *job) (*Measured, error) {
	st, err := store.NewDir(j.Dir)
	if err != nil {
		return nil, err
	}
	done := &sink.Compacted{}
	m, err := measure(func() (rows int64, err error) {
		done, err = sink.Compact(context.Background(), st, scanID, sink.CompactOptions{})
		if err != nil {
			return 0, err
		}
		return done.Rows, nil
	})
	if err != nil {
		return nil, err
	}
	m.File = done.Bytes
	return m, nil
}

// Dataset writes what came of it.
func (r *Report) Dataset(before, after int, computed []Measured, merged *Measured) {
	speed := func(m *Measured) float64 { return float64(m.Rows) / m.Wall.Seconds() }
	sites := median(computed, speed)
	seconds := compactedRows / speed(merged)
	r.printf("\n## Statistics and compaction\n\nA scan of %s sites with real files, in %d parts of each table; %s rows, %.0f MB. Rates are by the clock.\n\n",
		thousands(float64(computed[0].Rows)), before, thousands(float64(merged.Rows)), float64(merged.File)/1e6)
	r.printf("| | a second | of processor time | peak MB |\n|---|--:|--:|--:|\n")
	r.printf("| `token_stats` and `record_stats` (`internal/report`), sites | %s | %s | %.0f |\n",
		thousands(sites), thousands(median(computed, (*Measured).rate)), median(computed, func(m *Measured) float64 { return float64(m.Peak) / 1e6 }))
	r.printf("| parts merged (`sink.Compact`) into %d, rows | %s | %s | %.0f |\n\n",
		after, thousands(speed(merged)), thousands(merged.rate()), float64(merged.Peak)/1e6)
	r.mark(sites >= leastSites, "statistics: %s sites/s, at least %s", thousands(sites), thousands(leastSites))
	r.mark(seconds < mostSeconds, "compaction: %s rows in %.1f s, below %d", thousands(compactedRows), seconds, mostSeconds)
}

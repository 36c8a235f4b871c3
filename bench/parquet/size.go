package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// This file weighs a replayed scan: what each column takes in its files, as another library reads their footers.

// Weight is what a column takes.
type Weight struct {
	Table, Column string
	Compressed    int64 // bytes of its pages, with their headers
	Raw           int64 // the same before compression
}

// Weights is what a scan of so many sites takes.
type Weights struct {
	Sites   int
	Real    bool // bodies, and wild hosts, are those of ../shared
	Kind    Kind
	Rows    map[string]int64 // by table
	Files   map[string]int64 // bytes of whole files by table
	Columns []Weight         // heaviest first
}

// PerMillion is what bytes of this scan are for a million sites, in MB.
func (w *Weights) PerMillion(bytes int64) float64 { return float64(bytes) / float64(w.Sites) }

// weigh writes n sites as a scan does, and weighs the files.
func weigh(n int, kind Kind) (*Weights, error) {
	dir, remove, err := temporary()
	if err != nil {
		return nil, fmt.Errorf("cannot write a dataset: %w", err)
	}
	defer remove()
	replay, err := newReplay(n, kind)
	if err != nil {
		return nil, err
	}
	files, err := writeScan(dir, replay, n)
	if err != nil {
		return nil, err
	}
	w := &Weights{Sites: n, Real: replay.Real, Kind: kind, Rows: map[string]int64{}, Files: map[string]int64{}}
	sums := map[[2]string]*Weight{}
	for _, f := range files {
		w.Rows[f.Table] += f.Rows
		w.Files[f.Table] += f.Bytes
		if err := weighFile(filepath.Join(dir, filepath.FromSlash(f.Name)), f.Table, sums); err != nil {
			return nil, err
		}
	}
	for _, sum := range sums {
		w.Columns = append(w.Columns, *sum)
	}
	slices.SortFunc(w.Columns, func(a, b Weight) int {
		return cmp.Or(cmp.Compare(b.Compressed, a.Compressed), cmp.Compare(a.Table+a.Column, b.Table+b.Column))
	})
	return w, nil
}

// writeScan writes a scan through the sink, and returns its files.
func writeScan(dir string, replay *Replay, n int) (files []sink.File, err error) {
	ctx := context.Background()
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, err
	}
	w, err := sink.Open(ctx, st, sink.Options{ScanID: "replay", Date: "2026-11-21", ToolVersion: "bench"})
	if err != nil {
		return nil, err
	}
	site := &audit.Site{}
	for i := range n {
		replay.Site(i, site)
		if err := w.Add(site); err != nil {
			return nil, err
		}
	}
	if err := w.Close(ctx); err != nil {
		return nil, err
	}
	commits, err := sink.Commits(ctx, st, "replay")
	for i := range commits {
		files = append(files, commits[i].Files...)
	}
	return files, err
}

// weighFile adds what the columns of a file take.
func weighFile(path, table string, sums map[[2]string]*Weight) (err error) {
	reader, err := file.OpenParquetFile(path, false)
	if err != nil {
		return fmt.Errorf("cannot weigh %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for g := range reader.NumRowGroups() {
		group := reader.MetaData().RowGroup(g)
		for c := range group.NumColumns() {
			chunk, err := group.ColumnChunk(c)
			if err != nil {
				return fmt.Errorf("cannot weigh %s: %w", path, err)
			}
			key := [2]string{table, strings.Clone(reader.MetaData().Schema.Column(c).Path())} // the reader's text ends with it
			if sums[key] == nil {
				sums[key] = &Weight{Table: table, Column: key[1]}
			}
			sums[key].Compressed += chunk.TotalCompressedSize()
			sums[key].Raw += chunk.TotalUncompressedSize()
		}
	}
	return nil
}

// mostPerMillion is what sites and verdicts may take for a million origins, in MB.
const mostPerMillion = 75

// both is what sites and verdicts take together.
func (w *Weights) both() int64 { return w.Files[sink.TableSites] + w.Files[sink.TableVerdicts] }

// Weights writes the figures by table and by column, the heaviest first; columns that take less than a two-hundredth of
// the two tables together are left out.
func (r *Report) Weights(all []*Weights) {
	r.printf("\n## What a million origins take\n\n%d sites, all of which answer with a file, written as a scan writes them; bytes as the footers say.\n", all[0].Sites)
	if !all[0].Real {
		r.printf("Made-up hosts and files, as ../shared is absent: **these sizes say nothing**.\n")
	}
	r.printf("\n| MB per million origins |%s **`sites` + `verdicts`** |\n|---|", strings.Join(headings(), ""))
	r.printf("%s--:|\n", strings.Repeat("--:|", len(sink.AllTables)))
	for _, w := range all {
		r.printf("| %s |", w.Kind)
		for _, table := range sink.AllTables {
			r.printf(" %.1f |", w.PerMillion(w.Files[table]))
		}
		r.printf(" **%.1f** |\n", w.PerMillion(w.both()))
	}
	w := all[0]
	r.printf("\n`verdicts` has %.2f rows a site, `evidence` %.2f. By column, MB per million origins and share:\n\n| |",
		float64(w.Rows[sink.TableVerdicts])/float64(w.Sites), float64(w.Rows[sink.TableEvidence])/float64(w.Sites))
	for _, w := range all {
		word, _, _ := strings.Cut(strings.TrimPrefix(string(w.Kind), "real files, "), ",")
		r.printf(" %s | |", word)
	}
	r.printf("\n|---|%s\n", strings.Repeat("--:|--:|", len(all)))
	last := all[len(all)-1]
	for _, c := range last.Columns {
		if (c.Table != sink.TableSites && c.Table != sink.TableVerdicts) || c.Compressed*200 < last.both() {
			continue
		}
		r.printf("| `%s.%s` |", c.Table, c.Column)
		for _, w := range all {
			i := slices.IndexFunc(w.Columns, func(o Weight) bool { return o.Table == c.Table && o.Column == c.Column })
			r.printf(" %.2f | %.1f %% |", w.PerMillion(w.Columns[i].Compressed), 100*float64(w.Columns[i].Compressed)/float64(w.both()))
		}
		r.printf("\n")
	}
	r.printf("\n")
	for i, w := range all {
		heavy, names := w.PerMillion(w.both()), w.PerMillion(w.names())
		said := "no mark, as names and header fields decide"
		if i == 0 {
			ok := heavy <= mostPerMillion
			said = fmt.Sprintf("at most %d: %s", mostPerMillion, reached(ok))
			r.failed = r.failed || !ok
		}
		r.printf("- %s: `sites` + `verdicts` take %.1f MB for a million origins, of them names of hosts %.1f; %s\n", w.Kind, heavy, names, said)
	}
}

// names is what the columns of host names take in sites and verdicts.
func (w *Weights) names() (sum int64) {
	for _, c := range w.Columns {
		switch c.Column {
		case "input", "host", "origin", "registrable_domain":
			if c.Table == sink.TableSites || c.Table == sink.TableVerdicts {
				sum += c.Compressed
			}
		}
	}
	return sum
}

func headings() (all []string) {
	for _, table := range sink.AllTables {
		all = append(all, fmt.Sprintf(" `%s` |", table))
	}
	return all
}

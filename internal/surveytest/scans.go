// Package surveytest answers one question: which scans do tests of figures count? It makes judged sites of all kinds,
// writes them in parts, and counts one site in the plainest way (plain.go).
package surveytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Cut is a way to write sites in parts.
type Cut struct {
	Rows   int    // of a part
	Shards int    // which write one after the other
	Seed   uint64 // of the order of sites; 0 is as listed
	Kill   bool   // writers are killed twice, and resume
}

// Written writes sites with the sink.
func Written(t *testing.T, sites []*audit.Site, c Cut) store.Store {
	t.Helper()
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sites = slices.Clone(sites)
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	if c.Seed != 0 {
		rng.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	}
	for shard := range c.Shards {
		var own []*audit.Site
		for _, s := range sites {
			if int(s.Seq)%c.Shards == shard {
				own = append(own, s)
			}
		}
		kills := 0
		if c.Kill {
			kills = 2
		}
		for ; kills >= 0; kills-- {
			w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "cut", Date: "2026-11-21", Shard: fmt.Sprint(shard),
				PartRows: c.Rows})
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range own {
				if kills > 0 && i == len(own)/2 {
					break
				}
				if w.Done(s.Seq) {
					continue
				}
				if err := w.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			if kills > 0 {
				err = w.Abort() // uncommitted rows are lost
			} else {
				err = w.Close(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// Scan writes a scan of so many sites with these bodies.
func Scan(b *testing.B, sites int, body func(i int) []byte) store.Store {
	b.Helper()
	dir, err := store.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	w, err := sink.Open(b.Context(), dir, sink.Options{ScanID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	s := &audit.Site{}
	for i := range sites {
		s.Reset()
		if s.Origin, err = origin.Parse(fmt.Sprintf("host%d.com", i)); err != nil {
			b.Fatal(err)
		}
		s.Seq, s.Rank, s.Input = uint64(i), int64(i)+1, s.Origin.Host()
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body(i)
		audit.Judge(s)
		if err := w.Add(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	return dir
}

// Rows reads all rows of a file of a dataset.
func Rows[T any](t *testing.T, st store.Store, name string) (rows []T) {
	t.Helper()
	for row, err := range table.FileRows[T](t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}

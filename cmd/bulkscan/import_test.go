//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/history"
)

// madeArchive writes an archive of made sites in the form of public archives: if a file is the same as before, or could
// not be fetched, the row says unchanged. began has the night on which each site truly began to block GPTBot.
func madeArchive(t *testing.T, sites, nights int) (path string, began map[string]history.Date) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(sites)))
	first := time.Date(2024, 1, 1, 6, 0, 0, 0, time.UTC)
	began = map[string]history.Date{}
	var rows []string
	for i := range sites {
		host, onset, kept := fmt.Sprintf("s%d.example", i), 1+random.IntN(nights), ""
		for night := range nights {
			body := "User-agent: *\nDisallow: /private\n"
			if night >= onset {
				body += "User-agent: GPTBot\nDisallow: /\n"
			}
			at := first.AddDate(0, 0, night)
			if night == onset {
				date, err := history.ParseDate(at.Format(time.DateOnly))
				if err != nil {
					t.Fatal(err)
				}
				began[host] = date
			}
			failed := kept != "" && random.IntN(3) == 0
			unchanged := failed || kept == body
			if !failed {
				kept = body
			}
			row, err := json.Marshal(map[string]any{"host": host, "fetched_at": at, "body": kept, "unchanged": unchanged})
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(row))
		}
	}
	random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	path = filepath.Join(t.TempDir(), "made.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, began
}

// TestCarriedForward imports an archive that carries failures forward, with rows in any order. Every true onset lies in
// the interval that the ledger gives, and no carried row is an observation.
func TestCarriedForward(t *testing.T) {
	path, began := madeArchive(t, 60, 12)
	out := filepath.Join(t.TempDir(), "out")
	start(t, "import", path, "-o", out, "--progress", "none").exits(t, 0)
	policies, episodes, gaps := ledgerTables(t, out)
	dated := 0
	for site, list := range episodes {
		slices.SortFunc(list, func(a, b history.Episode) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
		for _, e := range list {
			if e.Observations != 1 {
				t.Errorf("%s from %v has %d observations, want the one that changed", e.Host, e.ValidFrom, e.Observations)
			}
			onset := began[e.Host]
			if !slices.Contains(policies[e.Policy].OwnBlocked, "GPTBot") {
				continue
			}
			dated++
			if onset <= e.PreviousLast || onset > e.ValidFrom {
				t.Errorf("%s began on %v, and the ledger says after %v, by %v", e.Host, onset, e.PreviousLast, e.ValidFrom)
			}
		}
		nights := 0
		for _, g := range gaps[site] {
			if g.Class != history.Carried {
				t.Errorf("%s has a gap of class %s", list[0].Host, g.Class)
			}
			nights += int(g.Nights)
		}
		if nights+len(list) != 12 {
			t.Errorf("%s has %d carried nights and %d observations", list[0].Host, nights, len(list))
		}
	}
	if len(episodes) != 60 || dated < 40 {
		t.Errorf("%d sites, %d onsets", len(episodes), dated)
	}
}

// TestKilledImport kills an import in its first nights, between nights, and before they are published, and finishes it
// by the same command: the nights and their history are those of an undisturbed import.
func TestKilledImport(t *testing.T) {
	notShort(t)
	path, _ := madeArchive(t, 200, 12)
	folder := t.TempDir()
	calm, out := filepath.Join(folder, "calm"), filepath.Join(folder, "out")
	args := func(out string) []string {
		return []string{"import", path, "-o", out, "--progress", "none", "--part-rows", "50", "--no-compact"}
	}
	start(t, args(calm)...).exits(t, 0)
	complete := func() int {
		found, err := filepath.Glob(filepath.Join(out, "_scans", "*", "commits", "*.json"))
		if err != nil {
			t.Error(err)
		}
		return len(found)
	}
	for _, commits := range []int{2, 9, 30, 48} {
		p := start(t, args(out)...)
		p.await(t, "commits", func() bool { return complete() >= commits })
		p.signal(t, syscall.SIGKILL)
		_ = p.cmd.Wait()
	}
	start(t, args(out)...).exits(t, 0)
	said(t, 0, "verify", out)
	_, wantEpisodes, wantGaps := ledgerTables(t, calm)
	_, episodes, gaps := ledgerTables(t, out)
	if got, want := fmt.Sprint(episodes, gaps), fmt.Sprint(wantEpisodes, wantGaps); got != want {
		t.Error("the history of a killed import is another one")
	}
}

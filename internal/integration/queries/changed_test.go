package queries

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// changesOf returns the rows of changed-sites for GPTBot as lines: the host, the change, the days of the two nights,
// rank and label, and what decided before and after.
func changesOf(t *testing.T, st store.Store, night int, all bool) (lines []string, s *tables.Survey) {
	t.Helper()
	s, err := tables.Take(t.Context(), st, fmt.Sprintf("n2026-01-%02d", night), tables.Options{AllTokens: all})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range s.Tables["changed-sites"].Rows {
		if row[0] != "GPTBot" {
			continue
		}
		line := fmt.Sprint(row[2], " ", row[1])
		for _, v := range row[5:] {
			line += " " + strings.TrimPrefix(fmt.Sprint(v), "2026-01-")
		}
		lines = append(lines, line)
	}
	return lines, s
}

// TestChangedSites shows the rows for sites that change night after night. A host's name has a letter of `answered` for
// each night, and `-` for nights without the site.
func TestChangedSites(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it computes statistics, which -short leaves out")
	}
	const (
		open    = " partial 1 User-agent: * <nil>"
		named   = " blocked 2 User-agent: GPTBot Disallow: /"
		starred = " blocked 2 User-agent: * Disallow: /"
		unknown = " <nil> <nil> <nil> <nil>"
	)
	// The newest first; those of a night by rank, which is in the order of sites below.
	want := []string{
		"oxxb.test began 01 04 2 news" + open + named,   // two nights without an answer
		"o-sb.test began 01 04 3 <nil>" + open + named,  // a night without the site, and one without an answer
		"offb.test began 01 04 4 news" + open + named,   // refused: the rules were not seen
		"bxfo.test ceased 01 04 5 <nil>" + named + open, // likewise
		"oaao.test ceased 03 04 9 <nil>" + starred + open,
		"mmob.test began 03 04 13 <nil>" + open + named, // the first two nights had no file
		"ommb.test began 01 04 14 news" + open + named,  // removed, and back otherwise
		"oboo.test ceased 02 03 6 news" + named + open,  // its second change
		"oobb.test began 02 03 7 <nil>" + open + named,
		// the last file of the episode after the change
		"xobb.test began 02 03 19 <nil>" + open + " blocked 3 User-agent: GPTBot Disallow: /",
		"oboo.test began 01 02 6 news" + open + named,
		"obxx.test began 01 02 8 news" + open + named, // and its state is unknown since
		"oaao.test began 01 02 9 <nil>" + open + starred,
		"ob--.test began 01 02 <nil> <nil>" + open + named, // the last list does not have it
	}
	var sites []timeline
	for i, letters := range []string{"oooo", "oxxb", "o-sb", "offb", "bxfo", "oboo", "oobb", "obxx", "oaao", "abbb",
		"bmbb", "--bb", "mmob", "ommb", "bmmm", "oxxx", "bb--", "ob--", "xobB"} {
		sites = append(sites, timeline{host: letters + ".test", letters: letters, rank: int64(i + 1),
			label: []string{"", "news"}[i%2]})
	}
	st, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		nightOf(t, st, n, "n", 0, sites)
		if err := statistics(t.Context(), st, fmt.Sprintf("n2026-01-%02d", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := history.Rebuild(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	compare := func(about string, night int, want []string) {
		t.Helper()
		for _, all := range []bool{false, true} {
			got, s := changesOf(t, st, night, all)
			if !slices.Equal(got, want) {
				t.Errorf("%s, all tokens %v:\n got %s\nwant %s", about, all, strings.Join(got, "\n     "),
					strings.Join(want, "\n     "))
			}
			if s.Changes != int64(len(want)) {
				t.Errorf("%s: %d changes", about, s.Changes)
			}
			rows := s.Tables["changed-sites"].Rows
			ccbot := slices.ContainsFunc(rows, func(row []any) bool {
				return row[0] == "CCBot" && row[1] == "began" &&
					row[2] == "oaao.test"
			})
			googlebot := slices.ContainsFunc(rows, func(row []any) bool { return row[0] == "Googlebot" })
			if ccbot != all || googlebot {
				t.Errorf("%s, all tokens %v: CCBot %v, Googlebot %v", about, all, ccbot, googlebot)
			}
		}
	}
	compare("four nights", 4, want)
	third := slices.Clone(want[7:])
	for i, line := range third {
		if strings.HasPrefix(line, "xobb") {
			// the ledger has the later file
			third[i] = strings.TrimSuffix(line, " blocked 3 User-agent: GPTBot Disallow: /") + unknown
		}
	}
	compare("up to the third night", 3, third)
	if got, s := changesOf(t, st, 2, false); len(got) != 4 ||
		s.Tables["changed-sites"].Note != "from 2026-01-01 to 2026-01-02, the newest 500 at most" {
		t.Errorf("up to the second night: %q, %s", got, s.Tables["changed-sites"].Note)
	}
	// The only file that forbade all agents is pruned.
	publishing := scan.Publishing{Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}
	if _, err := scan.Prune(t.Context(), st, scan.Retention{Bodies: "2026-01-04", Accept: 3}, publishing); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i] = strings.Replace(want[i], starred, unknown, 1)
	}
	compare("without files of earlier nights", 4, want)
}

// TestDecide bounds the files that are read: those of the two newest nights up to the scan's are always read, those of
// earlier nights only until the bound is reached.
func TestDecide(t *testing.T) {
	st, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, "one.example=aobbbb") // a, o and b are files of the first night, of the second, and of the others
	if err := history.Rebuild(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	f := func(night string, files int64, want string) {
		t.Helper()
		counts, err := history.CountTokens(t.Context(), st, history.TokensAsked{ScanID: "n2026-01-" + night,
			Registry: tokens.Default(), Tokens: []int{tokens.Default().Lookup("GPTBot")}})
		if err == nil {
			err = counts.Decide(counts.Changes, files)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range counts.Changes {
			got += fmt.Sprintf("%s %v %v ", c.Change, c.Was.Treated != nil, c.Is.Treated != nil)
		}
		if got != want {
			t.Errorf("night %s, %d files: %s, want %s", night, files, got, want)
		}
	}
	f("06", 0, "began true true ceased true true ")
	f("06", 100, "began true true ceased true true ")
	f("06", 1, "began false true ceased false false ")
	f("06", 5, "began true true ceased false true ")
	f("03", 1, "began true true ceased false true ") // later nights are not read
}

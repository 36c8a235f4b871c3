//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

var panelTokens = []string{"GPTBot", "CCBot", "Google-Extended", "ClaudeBot"}

// counted are the figures of one night and token.
type counted struct{ named, byStar, of int }

// TestPanel imports two years of real files; most rows are carried forward. The committed figures of README's picture
// equal those of an independent program on every night, and those of the ledger on each month's last night. No carried
// row is an observation. A second independent program derives the same episodes, gaps and onsets as the ledger.
func TestPanel(t *testing.T) {
	archive := sharedtest.Path(t, "corpus", "panel.jsonl.zst")
	committed := committedFigures(t)
	plainly := panelPlainly(t)
	if len(plainly) != len(committed) || len(plainly) == 0 {
		t.Errorf("%d figures, want %d", len(committed), len(plainly))
	}
	for key, want := range plainly {
		if committed[key] != want {
			t.Errorf("%s: %s has %v, the independent program %v", key, namedCSV, committed[key], want)
		}
	}
	notShort(t)
	out := filepath.Join(t.TempDir(), "out")
	start(t, "import", archive, "-o", out, "--progress", "none").exits(t, 0)
	checkPanelHistory(t, out)
	for key, got := range ledgerFigures(t, out, plainly) {
		if want := plainly[key]; got != want {
			t.Errorf("%s: the ledger has %v, want %v", key, got, want)
		}
	}
}

func committedFigures(t *testing.T) map[string]counted {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(namedCSV)))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]counted{}
	for _, row := range rows[1:] {
		var c counted
		if _, err := fmt.Sscan(strings.Join(row[2:], " "), &c.named, &c.byStar, &c.of); err != nil {
			t.Fatal(err)
		}
		figures[row[0]+" "+row[1]] = c
	}
	return figures
}

// panelPlainly is the independent program: it uses no code of bulkscan, and reads files by RFC 9309 as far as the
// figures need.
func panelPlainly(t *testing.T) map[string]counted {
	type file struct {
		agents             map[string]bool
		starBlocks, isFile bool
	}
	read := func(body string) file {
		f, inRules, denied, allowed := file{agents: map[string]bool{}}, true, false, false
		var group []string
		for line := range strings.Lines(strings.ReplaceAll(strings.TrimPrefix(body, "\ufeff"), "\r", "\n")) {
			line, _, _ = strings.Cut(line, "#")
			key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
			value = strings.TrimSpace(value)
			switch key = strings.ToLower(strings.TrimSpace(key)); {
			case !ok:
			case strings.HasPrefix(key, "user") && strings.HasSuffix(key, "agent"):
				if inRules {
					group, inRules = nil, false
				}
				end := strings.IndexFunc(value, func(r rune) bool {
					return !strings.ContainsRune("-_*", r) &&
						(r|0x20 < 'a' || r|0x20 > 'z')
				})
				if end < 0 {
					end = len(value)
				}
				group = append(group, strings.ToLower(value[:end]))
				f.agents[group[len(group)-1]], f.isFile = true, true
			case strings.HasPrefix(key, "dis"), key == "allow":
				inRules, f.isFile = true, true
				denied = denied || slices.Contains(group, "*") && key != "allow" && value != "" && strings.Trim(value, "/*") == ""
				allowed = allowed || slices.Contains(group, "*") && key == "allow" && value != ""
			case slices.Contains([]string{"sitemap", "site-map", "crawl-delay", "host", "clean-param", "request-rate",
				"visit-time", "content-signal", "content-usage"}, key):
				f.isFile = true
			}
		}
		start := strings.ToLower(strings.TrimSpace(body))
		f.isFile = f.isFile && !strings.HasPrefix(start, "<!doctype") && !strings.HasPrefix(start, "<html")
		f.starBlocks = denied && !allowed
		return f
	}
	figures, last := map[string]counted{}, map[string]file{}
	for line := range bytes.Lines(sharedtest.Unpacked(t, "corpus", "panel.jsonl.zst")) {
		var row struct {
			Host, Body string
			At         string `json:"fetched_at"`
			Unchanged  bool
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if !row.Unchanged && row.Body == "" {
			continue
		}
		if !row.Unchanged {
			last[row.Host] = read(row.Body)
		}
		for _, token := range panelTokens {
			key := row.At[:len("2006-01-02")] + " " + token
			switch c, f := figures[key], last[row.Host]; {
			case f.isFile && f.agents[strings.ToLower(token)]:
				figures[key] = counted{c.named + 1, c.byStar, c.of + 1}
			case f.isFile && f.starBlocks:
				figures[key] = counted{c.named, c.byStar + 1, c.of + 1}
			case f.isFile:
				figures[key] = counted{c.named, c.byStar, c.of + 1}
			}
		}
	}
	return figures
}

// ledgerFigures returns the figures of the ledger on the last night of each month, as policies_at has them: of the
// sites whose rules were seen or carried forward that night. It also checks that no carried row was taken for an
// observation.
func ledgerFigures(t *testing.T, out string, nights map[string]counted) map[string]counted {
	t.Helper()
	lasts := map[string]string{}
	for key := range nights {
		lasts[key[:len("2006-01")]] = max(lasts[key[:len("2006-01")]], key[:len("2006-01-02")])
	}
	policies, episodes, gaps := ledgerTables(t, out)
	observed, carried := 0, 0
	for site := range episodes {
		for _, e := range episodes[site] {
			observed += int(e.Observations)
		}
	}
	for site := range gaps {
		for _, g := range gaps[site] {
			if g.Class == history.Carried {
				carried += int(g.Nights)
			}
		}
	}
	if rows := 101_009; carried != 95_883 || observed != rows-carried-30 { // 30 rows have no body
		t.Errorf("%d observations and %d carried nights", observed, carried)
	}
	figures := map[string]counted{}
	for _, last := range slices.Sorted(maps.Values(lasts)) {
		night, err := history.ParseDate(last)
		if err != nil {
			t.Fatal(err)
		}
		for site, list := range episodes {
			slices.SortFunc(list, func(a, b history.Episode) int { return cmp.Compare(b.ValidFrom, a.ValidFrom) })
			at := slices.IndexFunc(list, func(e history.Episode) bool { return e.ValidFrom <= night })
			if at < 0 || policies[list[at].Policy].Class != history.ClassRules || slices.ContainsFunc(gaps[site],
				func(g history.Gap) bool { return g.First <= night && g.Last >= night && g.Class != history.Carried }) {
				continue
			}
			p := policies[list[at].Policy]
			for _, token := range panelTokens {
				c := figures[last+" "+token]
				c.of++
				switch {
				case slices.Contains(slices.Concat(p.OwnBlocked, p.OwnPartial, p.OwnAllowed), token):
					c.named++
				case p.StarVerdict == "blocked":
					c.byStar++
				}
				figures[last+" "+token] = c
			}
		}
	}
	return figures
}

// ledgerTables reads the tables of a dataset's ledger: policies by id, episodes and gaps by site.
func ledgerTables(t *testing.T, out string) (policies map[int64]history.Policy, episodes map[int64][]history.Episode,
	gaps map[int64][]history.Gap) {
	t.Helper()
	st := mustPlace(t, out)
	ledger, err := history.ReadLedger(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	policies, episodes, gaps = map[int64]history.Policy{}, map[int64][]history.Episode{}, map[int64][]history.Gap{}
	for _, f := range ledger.Files {
		switch f.Table {
		case history.Policies:
			eachOf(t, st, f.Name, func(p *history.Policy) { policies[p.ID] = *p })
		case history.History:
			eachOf(t, st, f.Name, func(e *history.Episode) { episodes[e.Site] = append(episodes[e.Site], *e) })
		case history.Gaps:
			eachOf(t, st, f.Name, func(g *history.Gap) { gaps[g.Site] = append(gaps[g.Site], *g) })
		}
	}
	return policies, episodes, gaps
}

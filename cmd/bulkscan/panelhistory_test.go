//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file derives the history of the panel of real files a second time, from the archive and the rows of sites, site
// after site and night after night. From package history it uses only the types of rows.

// panelNight has the archive's entry of a host on a night, and the values of its row.
type panelNight struct {
	date, class  string // class: a finding, carried or unlisted
	body         int64
	policy       string
	blocked      []string
	rules, hides bool
}

func (n *panelNight) observed() bool {
	return slices.Contains([]string{"rules", "no_rules", "html", "none", "refused"}, n.class)
}

// panelNights returns the nights of each host since its first one, by the archive and by the rows of sites.
func panelNights(t *testing.T, st store.Store) (hosts map[string][]panelNight, dates []string) {
	t.Helper()
	type key struct{ host, date string }
	rows := map[key]panelNight{}
	all, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		scan, err := commit.ReadScan(t.Context(), st, m.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		dates = append(dates, m.ScanDate)
		each(t, scan, schema.Sites, func(row *schema.SiteRow) {
			n := panelNight{date: m.ScanDate, class: row.Finding, body: row.BodyHash, blocked: row.Blocked,
				rules: row.Finding == "rules", hides: row.Finding == "html" || row.Finding == "refused"}
			if row.Outcome == "carried" {
				n.class = "carried"
			}
			if n.rules {
				says := map[string][]string{}
				for _, token := range row.Named {
					verdict := "allowed"
					if slices.Contains(row.Blocked, token) {
						verdict = "blocked"
					} else if slices.Contains(row.Partial, token) {
						verdict = "partial"
					}
					says[verdict] = append(says[verdict], token)
				}
				n.policy = panelPolicy(row.StarVerdict, says["blocked"], says["partial"], says["allowed"], row.ContentSignal,
					row.ContentUsage, row.License, row.ManagedBy)
			}
			if _, twice := rows[key{row.Host, m.ScanDate}]; twice {
				t.Fatalf("%s has two rows on %s", row.Host, m.ScanDate)
			}
			rows[key{row.Host, m.ScanDate}] = n
		})
	}
	slices.Sort(dates)
	listed := map[string]bool{}
	for line := range bytes.Lines(sharedtest.Unpacked(t, "corpus", "panel.jsonl.zst")) {
		var archived struct {
			Host, Body string
			At         string `json:"fetched_at"`
			Unchanged  bool
		}
		if err := json.Unmarshal(line, &archived); err != nil {
			t.Fatal(err)
		}
		date := archived.At[:len("2006-01-02")]
		row, ok := rows[key{archived.Host, date}]
		cut := len(archived.Body) > 512_000 // by --max-body
		switch {
		case !ok:
			t.Errorf("the dataset has no row of %s on %s", archived.Host, date)
		case archived.Unchanged != (row.class == "carried"), !archived.Unchanged && row.observed() != (archived.Body != ""):
			t.Errorf("%s on %s is %s, and the archive has %d bytes, unchanged %v", archived.Host, date, row.class,
				len(archived.Body), archived.Unchanged)
		case row.observed() && !cut && row.body != int64(xxhash.Sum64String(archived.Body)):
			t.Errorf("the file of %s on %s is another one", archived.Host, date)
		}
		listed[archived.Host] = true
	}
	hosts = map[string][]panelNight{}
	for host := range listed {
		for _, date := range dates {
			n, ok := rows[key{host, date}]
			if !ok {
				n = panelNight{date: date, class: "unlisted"}
			}
			if ok || len(hosts[host]) > 0 {
				hosts[host] = append(hosts[host], n)
			}
		}
	}
	return hosts, dates
}

func panelPolicy(star string, blocked, partial, allowed []string, rest ...string) string {
	for _, list := range [][]string{blocked, partial, allowed} {
		slices.Sort(list)
	}
	return fmt.Sprintf("* %s %q %q %q %q", star, blocked, partial, allowed, rest)
}

// panelEpisodes returns the episodes and gaps of a host, as text.
func panelEpisodes(nights []panelNight) (episodes, gaps []string) {
	var at []int // observations
	for i := 0; i < len(nights); {
		j := i
		for j < len(nights) && nights[j].class == nights[i].class {
			if nights[j].observed() {
				at = append(at, j)
			}
			j++
		}
		if !nights[i].observed() {
			gaps = append(gaps, fmt.Sprintln(nights[i].class, nights[i].date, nights[j-1].date, j-i))
		}
		i = j
	}
	cause, previous := "first", ""
	for begin := 0; begin < len(at); {
		end := begin + 1
		first, bodies := &nights[at[begin]], 1
		for ; end < len(at) && nights[at[end]].class == first.class && nights[at[end]].policy == first.policy; end++ {
			if nights[at[end]].body != nights[at[end-1]].body {
				bodies++
			}
		}
		last, until := &nights[at[end-1]], len(nights)
		if end < len(at) {
			until = at[end]
		}
		failures, pending := 0, 0
		for i := at[begin]; i < until; i++ {
			switch {
			case nights[i].observed(), nights[i].class == "unlisted":
			case i < at[end-1]:
				failures++
			default:
				pending++
			}
		}
		episodes = append(episodes, panelEpisode(first.class, first.policy, cause, first.date, previous, last.date, end-begin,
			failures, pending, bodies, last.body))
		if end < len(at) {
			cause = "policy" // "managed" is for blocks of Cloudflare, which no file of these years has
			switch next := &nights[at[end]]; {
			case next.class != first.class && (next.class == "refused" || first.class == "refused"):
				cause = "refusal"
			case next.class != first.class:
				cause = "presence"
			}
		}
		begin, previous = end, last.date
	}
	return episodes, gaps
}

func panelEpisode(what ...any) string { return fmt.Sprintln(what...) }

// panelOnset says when a host was first seen to block a token, and how this date is censored.
func panelOnset(nights []panelNight, token string) (first history.FirstBlocked, ok bool) {
	observed, read := false, false
	for i := range nights {
		n := &nights[i]
		if !n.observed() {
			continue
		}
		if n.rules && slices.Contains(n.blocked, token) {
			date, _ := history.ParseDate(n.date)
			censoring := "interval"
			if !observed {
				censoring = "left"
			} else if !read {
				censoring = "unread"
			}
			return history.FirstBlocked{Night: date, Censoring: censoring}, true
		}
		observed = true
		read = read || !n.hides
	}
	return first, false
}

// checkPanelHistory compares the ledger of the panel with the independent program.
func checkPanelHistory(t *testing.T, out string) {
	t.Helper()
	st := mustPlace(t, out)
	hosts, dates := panelNights(t, st)
	policies, episodes, gaps := ledgerTables(t, out)
	got, gotGaps, sites, compared := map[string][]history.Episode{}, map[string][]string{}, map[int64]string{}, 0
	for site, all := range episodes {
		sites[site] = all[0].Host
		got[all[0].Host] = append(got[all[0].Host], all...)
	}
	for site, all := range gaps {
		slices.SortFunc(all, func(a, b history.Gap) int { return cmp.Compare(a.First, b.First) })
		for _, g := range all {
			gotGaps[sites[site]] = append(gotGaps[sites[site]], fmt.Sprintln(g.Class, g.First, g.Last, g.Nights))
		}
	}
	causes := map[history.Cause]int{}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		want, wantGaps := panelEpisodes(hosts[host])
		var is []string
		slices.SortFunc(got[host], func(a, b history.Episode) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
		for _, e := range got[host] {
			p, policy := policies[e.Policy], ""
			if p.Class == "rules" {
				policy = panelPolicy(p.StarVerdict, p.OwnBlocked, p.OwnPartial, p.OwnAllowed, p.ContentSignal, p.ContentUsage,
					p.License, p.Managed)
			}
			causes[e.Cause]++
			is = append(is, panelEpisode(p.Class, policy, e.Cause, e.ValidFrom, e.PreviousLast, e.ValidTo, e.Observations,
				e.Failures, e.Pending, e.Bodies, e.LastBody))
			compared++
		}
		if !slices.Equal(is, want) {
			t.Errorf("%s has the episodes\n%s\nwant\n%s", host, strings.Join(is, ""), strings.Join(want, ""))
		}
		if len(want) > 0 && !slices.Equal(gotGaps[host], wantGaps) {
			t.Errorf("%s has the gaps\n%s\nwant\n%s", host, strings.Join(gotGaps[host], ""), strings.Join(wantGaps, ""))
		}
	}
	if len(dates) != 127 || compared < len(hosts) {
		t.Errorf("%d nights, %d hosts and %d episodes", len(dates), len(hosts), compared)
	}
	checkPanelOnsets(t, st, hosts)
	t.Logf("%d hosts, %d episodes, by cause %v", len(hosts), compared, causes)
}

// checkPanelOnsets compares the onsets of every token of the registry.
func checkPanelOnsets(t *testing.T, st store.Store, hosts map[string][]panelNight) {
	t.Helper()
	ledger, err := history.ReadLedger(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	asked := history.TokensAsked{ScanID: ledger.Scans[len(ledger.Scans)-1].ScanID, Registry: tokens.Default()}
	for id := range asked.Registry.Tokens {
		asked.Tokens = append(asked.Tokens, id)
	}
	counts, err := history.CountTokens(t.Context(), st, asked)
	if err != nil {
		t.Fatal(err)
	}
	onsets := map[string]int64{}
	for id := range asked.Registry.Tokens {
		name, want, got := asked.Registry.Tokens[id].Name, map[history.FirstBlocked]int64{}, map[history.FirstBlocked]int64{}
		for _, nights := range hosts {
			if first, ok := panelOnset(nights, name); ok {
				want[first]++
				onsets[first.Censoring]++
			}
		}
		for _, row := range counts.Tokens[id].FirstBlocked {
			got[history.FirstBlocked{Night: row.Night, Censoring: row.Censoring}] = row.Sites
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s is first blocked\n%v\nwant\n%v", name, got, want)
		}
	}
	t.Logf("%d tokens, onsets by censoring %v", len(asked.Registry.Tokens), onsets)
}

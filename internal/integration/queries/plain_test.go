package queries

import (
	"cmp"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// This file answers every query a second time: from the rows as our own reader has them, in loops, by the sentence that
// the query opens with. It uses neither the statistics tables nor the code that computes them.

// survey is a dataset in memory.
type survey struct {
	dates  []string
	all    map[string][]*siteRows // by date
	tokens []tokens.Token
}

// siteRows is a row of sites with all that the other tables have of it.
type siteRows struct {
	sink.SiteRow
	date                   string
	named, blocked, partly map[string]bool
	rows                   map[string]*sink.VerdictRow // strict ones, by token; without `*`
	lenient                map[string]bool             // tokens with a lenient row
	star                   *sink.VerdictRow            // nil where we did not ask
	evidence               []sink.EvidenceRow
}

func readSurvey(t *testing.T, st store.Store) *survey {
	t.Helper()
	manifests, err := sink.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	w := &survey{all: map[string][]*siteRows{}, tokens: tokens.Default().Tokens}
	for _, m := range manifests {
		scan, err := sink.ReadScan(t.Context(), st, m.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(w.dates, m.ScanDate) {
			w.dates = append(w.dates, m.ScanDate)
		}
		bySeq := map[int64]*siteRows{}
		for row, err := range sink.Rows[sink.SiteRow](t.Context(), scan, sink.TableSites) {
			if err != nil {
				t.Fatal(err)
			}
			s := &siteRows{SiteRow: *row, date: m.ScanDate, rows: map[string]*sink.VerdictRow{}, lenient: map[string]bool{}, named: set(row.Named), blocked: set(row.Blocked), partly: set(row.Partial)}
			bySeq[s.Seq] = s
			w.all[s.date] = append(w.all[s.date], s)
		}
		for row, err := range sink.Rows[sink.VerdictRow](t.Context(), scan, sink.TableVerdicts) {
			if err != nil {
				t.Fatal(err)
			}
			v := *row
			switch s := bySeq[v.Seq]; {
			case v.Token == "*":
				s.star = &v
			case v.Lenient:
				s.lenient[v.Token] = true
			default:
				s.rows[v.Token] = &v
			}
		}
		for row, err := range sink.Rows[sink.EvidenceRow](t.Context(), scan, sink.TableEvidence) {
			if err != nil {
				t.Fatal(err)
			}
			bySeq[row.Seq].evidence = append(bySeq[row.Seq].evidence, *row)
		}
	}
	slices.Sort(w.dates)
	return w
}

func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, v := range list {
		m[v] = true
	}
	return m
}

// on returns the rows of a date; latest those of the newest.
func (w *survey) on(date string) []*siteRows { return w.all[date] }
func (w *survey) latest() []*siteRows        { return w.on(w.dates[len(w.dates)-1]) }

// withRules are those whose rules decide, answered those from which a status came.
func withRules(rows []*siteRows) []*siteRows { return filter(rows, (*siteRows).conditional) }
func answered(rows []*siteRows) []*siteRows  { return filter(rows, (*siteRows).answered) }

func (s *siteRows) conditional() bool { return s.Access == "conditional" }
func (s *siteRows) answered() bool    { return s.Status != 0 }

func filter(rows []*siteRows, keep func(*siteRows) bool) []*siteRows {
	return slices.DeleteFunc(slices.Clone(rows), func(s *siteRows) bool { return !keep(s) })
}

func (w *survey) ai() []tokens.Token {
	return slices.DeleteFunc(slices.Clone(w.tokens), func(t tokens.Token) bool { return t.Category != "ai" })
}

var definitions = []string{"any", "dpi_all", "explicit_root", "full", "mention", "rfc_effective"}

// blocks reports whether a site blocks a token by a definition.
func (s *siteRows) blocks(definition, token string) bool {
	row := s.rows[token]
	switch definition {
	case "rfc_effective":
		return s.answered() && (s.Access == "full_disallow" || s.blocked[token])
	case "mention":
		return s.conditional() && row != nil && row.Via == "own"
	case "explicit_root":
		return s.conditional() && row != nil && row.Via == "own" && !row.RootAllowed
	case "full":
		return s.conditional() && s.blocked[token]
	case "any":
		return s.conditional() && (s.blocked[token] || s.partly[token])
	case "dpi_all":
		if row == nil {
			row = s.star
		}
		return s.conditional() && row != nil && row.DPI == "all"
	}
	panic(definition)
}

// shares counts a token's sites by a definition: those that block it, and the denominator.
func shares(rows []*siteRows, definition, token string) (blocking, of int64) {
	for _, s := range rows {
		if definition == "rfc_effective" && s.answered() || definition != "rfc_effective" && s.conditional() {
			of++
		}
		if s.blocks(definition, token) {
			blocking++
		}
	}
	return blocking, of
}

func count(rows []*siteRows, which func(*siteRows) bool) int64 {
	return int64(len(filter(rows, which)))
}

func share(part, whole int64) any {
	if whole == 0 {
		return nil
	}
	return float64(part) / float64(whole)
}

// optional is nil where a value is its type's zero, which is how rows have what is absent.
func optional[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

func or[T comparable](v, other T) T { return cmp.Or(v, other) }

// groupBy divides rows by what key says of them; "" is a key too.
func groupBy[K comparable](rows []*siteRows, key func(*siteRows) K) map[K][]*siteRows {
	groups := map[K][]*siteRows{}
	for _, s := range rows {
		groups[key(s)] = append(groups[key(s)], s)
	}
	return groups
}

// rankLimits are the cumulative segments that there are.
func rankLimits(rows []*siteRows) (limits []int64) {
	most := int64(0)
	for _, s := range rows {
		most = max(most, s.Rank)
	}
	for limit := int64(1000); limit < 10*most; limit *= 10 {
		limits = append(limits, limit)
	}
	return limits
}

func withinRank(rows []*siteRows, limit int64) []*siteRows {
	return filter(rows, func(s *siteRows) bool { return s.Rank > 0 && s.Rank <= limit })
}

// bucket is the segment of a rank, 0 where there is none.
func bucket(rank int64) int64 {
	if rank == 0 {
		return 0
	}
	limit := int64(1000)
	for rank > limit {
		limit *= 10
	}
	return limit
}

// atPercentile is the value that so large a share of the values do not exceed, one of them.
func atPercentile[T cmp.Ordered](values []T, share float64) T {
	values = slices.Sorted(slices.Values(values))
	return values[max(0, int(math.Ceil(share*float64(len(values))))-1)]
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// ordered sorts rows of an answer by columns, 0-based; ^column is descending. nil comes last.
func ordered(rows [][]any, by ...int) [][]any {
	slices.SortFunc(rows, func(a, b []any) int {
		for _, column := range by {
			descending := column < 0
			if descending {
				column = ^column
			}
			order := compareValues(a[column], b[column])
			if descending && a[column] != nil && b[column] != nil {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
	return rows
}

func compareValues(a, b any) int {
	if a == nil && b == nil {
		return 0
	}
	if a == nil {
		return 1
	}
	if b == nil {
		return -1
	}
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case float64:
		return cmp.Compare(a, b.(float64))
	case bool:
		return cmp.Compare(strconv.FormatBool(a), strconv.FormatBool(b.(bool)))
	}
	panic("no order")
}

func first(rows [][]any, n int) [][]any { return rows[:min(n, len(rows))] }

// plain is the answer to each query, by its name.
var plain = map[string]func(*survey) [][]any{
	"blocked-by-definition": func(w *survey) (out [][]any) {
		for _, t := range w.tokens {
			for _, d := range definitions {
				n, of := shares(w.latest(), d, t.Name)
				out = append(out, []any{t.Name, t.Operator, t.Purpose, d, n, of, share(n, of)})
			}
		}
		return ordered(out, 0, 3)
	},
	"explicit-or-star": func(w *survey) (out [][]any) {
		for _, t := range w.tokens {
			via := map[string]int64{}
			for _, s := range w.latest() {
				if s.blocked[t.Name] {
					follows := "star"
					if row := s.rows[t.Name]; row != nil {
						follows = row.Via
					}
					via[follows]++
				}
			}
			out = append(out, []any{t.Name, via["own"] + via["fallback"] + via["star"], via["own"], via["fallback"], via["star"]})
		}
		return ordered(out, ^1, 0)
	},
	"blocked-by-rank": func(w *survey) (out [][]any) { return byRank(w, "full") },
	"blocked-by-tld": func(w *survey) (out [][]any) {
		for tld, rows := range groupBy(w.latest(), func(s *siteRows) string { return s.TLD }) {
			for _, token := range []string{"GPTBot", "ClaudeBot", "CCBot", "Google-Extended"} {
				if n, of := shares(rows, "full", token); tld != "" && of >= 30 {
					out = append(out, []any{tld, token, n, of, share(n, of)})
				}
			}
		}
		return ordered(out, 1, ^4, 0)
	},
	"blocked-by-label": func(w *survey) (out [][]any) {
		for label, rows := range groupBy(w.latest(), func(s *siteRows) string { return s.Label }) {
			for _, t := range w.ai() {
				if n, of := shares(rows, "full", t.Name); label != "" {
					out = append(out, []any{label, t.Name, n, of, share(n, of)})
				}
			}
		}
		return ordered(out, 1, 0)
	},
	"blocked-by-cdn": func(w *survey) (out [][]any) {
		for cdn, rows := range groupBy(w.latest(), func(s *siteRows) string { return or(s.CDN, "none") }) {
			line := []any{cdn, count(rows, (*siteRows).conditional), count(rows, (*siteRows).answered)}
			for _, d := range []string{"mention", "explicit_root", "full", "any", "dpi_all", "rfc_effective"} {
				n, _ := shares(rows, d, "GPTBot")
				line = append(line, n)
			}
			n, of := shares(rows, "full", "GPTBot")
			out = append(out, append(line, share(n, of)))
		}
		return ordered(out, ^1, 0)
	},
	"blocked-over-time": func(w *survey) (out [][]any) {
		for _, t := range w.ai() {
			for _, d := range definitions {
				var before any
				for _, date := range w.dates {
					n, of := shares(w.on(date), d, t.Name)
					line := []any{t.Name, d, date, n, of, share(n, of), nil}
					if before != nil && line[5] != nil {
						line[6] = line[5].(float64) - before.(float64)
					}
					before = line[5]
					out = append(out, line)
				}
			}
		}
		return ordered(out, 0, 1, 2)
	},
	"transitions": func(w *survey) (out [][]any) {
		type key struct {
			host      string
			port      int32
			requested string
		}
		states := map[key]*[2]string{}
		fetched := map[*string]int64{} // of several on a date the last counts
		for i, date := range w.dates[len(w.dates)-2:] {
			for _, s := range w.on(date) {
				state := s.Access
				if s.conditional() {
					state = map[bool]string{true: "blocked", false: "open"}[s.blocked["GPTBot"]]
				}
				k := key{s.Host, s.Port, s.Requested}
				if states[k] == nil {
					states[k] = &[2]string{"absent", "absent"}
				}
				if at, is := fetched[&states[k][i]]; !is || s.FetchedAt > at {
					states[k][i], fetched[&states[k][i]] = state, s.FetchedAt
				}
			}
		}
		counts := map[[2]string]int64{}
		for _, pair := range states {
			counts[*pair]++
		}
		for pair, n := range counts {
			out = append(out, []any{pair[0], pair[1], n})
		}
		return ordered(out, ^2, 0, 1)
	},
	"first-blocked": func(w *survey) (out [][]any) {
		seen, counts := map[string]bool{}, map[string]int64{}
		for _, date := range w.dates {
			for _, s := range w.on(date) {
				if s.blocked["GPTBot"] && !seen[s.Host] {
					seen[s.Host] = true
					counts[date]++
				}
			}
		}
		total := int64(0)
		for _, date := range slices.Sorted(maps.Keys(counts)) {
			total += counts[date]
			out = append(out, []any{date, counts[date], total})
		}
		return out
	},
	"operators": func(w *survey) [][]any { return strictest(w, func(t tokens.Token) string { return t.Operator }) },
	"purposes":  func(w *survey) [][]any { return strictest(w, func(t tokens.Token) string { return t.Purpose }) },
	"blocked-together": func(w *survey) (out [][]any) {
		counts := map[[2]string]int64{}
		for _, s := range withRules(w.latest()) {
			ai := slices.DeleteFunc(w.ai(), func(t tokens.Token) bool { return !s.blocked[t.Name] })
			for _, a := range ai {
				for _, b := range ai {
					counts[[2]string{a.Name, b.Name}]++
				}
			}
		}
		for pair, n := range counts {
			out = append(out, []any{pair[0], pair[1], n, share(n, counts[[2]string{pair[0], pair[0]}])})
		}
		return ordered(out, 0, 1)
	},
	"gptbot-not-googlebot": func(w *survey) [][]any {
		rows := withRules(w.latest())
		only := count(rows, func(s *siteRows) bool { return s.blocked["GPTBot"] && !s.blocked["Googlebot"] })
		return [][]any{{int64(len(rows)), count(rows, func(s *siteRows) bool { return s.blocked["GPTBot"] }),
			count(rows, func(s *siteRows) bool { return s.blocked["Googlebot"] }), only, share(only, int64(len(rows)))}}
	},
	"ai-tokens-blocked": func(w *survey) (out [][]any) {
		counts := map[int64]int64{}
		for _, s := range withRules(w.latest()) {
			n := int64(0)
			for _, t := range w.ai() {
				if s.blocked[t.Name] {
					n++
				}
			}
			counts[n]++
		}
		for n, sites := range counts {
			out = append(out, []any{n, sites})
		}
		return ordered(out, 0)
	},
	"outcomes-by-rank": func(w *survey) [][]any {
		out := inBuckets(w.latest(), func(s *siteRows) any { return s.Outcome })
		return ordered(out, 0, ^2, 1)
	},
	"status-by-rank": func(w *survey) [][]any {
		out := inBuckets(answered(w.latest()), func(s *siteRows) any { return int64(s.Status) })
		return ordered(out, 0, ^2, 1)
	},
	"redirects": func(w *survey) [][]any {
		rows := answered(w.latest())
		elsewhere := func(s *siteRows) bool { return s.FinalURL != "" && hostOf(s.FinalURL) != hostOf(s.Origin) }
		return [][]any{{int64(len(rows)),
			count(rows, func(s *siteRows) bool { return s.Hops > 0 }), count(rows, func(s *siteRows) bool { return s.Hops > 1 }),
			count(rows, elsewhere),
			count(rows, func(s *siteRows) bool {
				host := hostOf(s.FinalURL)
				return s.FinalURL != "" && s.Domain != "" && host != s.Domain && !strings.HasSuffix(host, "."+s.Domain)
			}),
			count(rows, func(s *siteRows) bool {
				return strings.HasPrefix(s.Origin, "https:") && slices.ContainsFunc(s.Redirects, func(h sink.HopRow) bool { return strings.HasPrefix(h.URL, "http:") })
			}),
		}}
	},
	"sizes": func(w *survey) (out [][]any) {
		rows := filter(w.latest(), func(s *siteRows) bool { return s.Outcome == "answered" && s.Status == 200 })
		classes := []string{"empty", "below 100 B", "below 1 KiB", "below 10 KiB", "below 100 KiB", "up to 500 KiB", "above 500 KiB"}
		groups := groupBy(rows, func(s *siteRows) string {
			switch n := s.BodyBytes; {
			case s.Truncated || n > 512_000:
				return classes[6]
			case n == 0:
				return classes[0]
			case n < 100:
				return classes[1]
			default:
				for i, limit := range []int64{1 << 10, 10 << 10, 100 << 10} {
					if n < limit {
						return classes[2+i]
					}
				}
				return classes[5]
			}
		})
		for _, class := range classes {
			if group := groups[class]; group != nil {
				bytes := int64(0)
				for _, s := range group {
					bytes += s.BodyBytes
				}
				out = append(out, []any{class, int64(len(group)), share(int64(len(group)), int64(len(rows))), bytes})
			}
		}
		return out
	},
	"groups-agents-rules": func(w *survey) (out [][]any) {
		for _, measure := range []struct {
			name string
			of   func(*siteRows) int32
		}{
			{"agents", func(s *siteRows) int32 { return s.NAgents }}, {"groups", func(s *siteRows) int32 { return s.NGroups }},
			{"lines", func(s *siteRows) int32 { return s.NLines }}, {"rules", func(s *siteRows) int32 { return s.NAllow + s.NDisallow }},
		} {
			var values []int32
			for _, s := range withRules(w.latest()) {
				values = append(values, measure.of(s))
			}
			line := []any{measure.name}
			for _, p := range []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1} {
				line = append(line, int64(atPercentile(values, p)))
			}
			out = append(out, line)
		}
		return out
	},
	"syntax": func(w *survey) (out [][]any) {
		rows := withRules(w.latest())
		lines := func(kind string, of func(*siteRows) int32) {
			sites, sum := int64(0), int64(0)
			for _, s := range rows {
				if n := of(s); n > 0 {
					sites, sum = sites+1, sum+int64(n)
				}
			}
			out = append(out, []any{kind, sites, share(sites, int64(len(rows))), sum})
		}
		lines("invalid", func(s *siteRows) int32 { return s.NInvalid })
		lines("invalid_no_html", func(s *siteRows) int32 {
			if s.IsHTML {
				return 0
			}
			return s.NInvalid
		})
		lines("unknown", func(s *siteRows) int32 { return s.NUnknown })
		lines("legacy", func(s *siteRows) int32 { return s.NLegacy })
		lines("typo", func(s *siteRows) int32 { return s.NTypo })
		lines("orphan", func(s *siteRows) int32 { return s.NOrphan })
		for kind, of := range map[string]func(*siteRows) bool{
			"bom": func(s *siteRows) bool { return s.HasBOM }, "html": func(s *siteRows) bool { return s.IsHTML },
			"not_utf8": func(s *siteRows) bool { return s.ValidUTF8 != nil && !*s.ValidUTF8 }, "no_group": func(s *siteRows) bool { return s.NGroups == 0 },
		} {
			n := count(rows, of)
			out = append(out, []any{kind, n, share(n, int64(len(rows))), nil})
		}
		return ordered(out, ^1, 0)
	},
	"unknown-keys": func(w *survey) (out [][]any) {
		sites, lines := map[[2]string]int64{}, map[[2]string]int64{}
		for _, s := range w.latest() {
			here := map[[2]string]bool{}
			for _, e := range s.evidence {
				if key := [2]string{e.Kind, strings.ToLower(e.Key)}; (e.Kind == "unknown" || e.Kind == "legacy") && e.Key != "" {
					lines[key]++
					if !here[key] {
						here[key] = true
						sites[key]++
					}
				}
			}
		}
		for key, n := range sites {
			out = append(out, []any{key[0], key[1], n, lines[key]})
		}
		return first(ordered(out, ^2, ^3, 0, 1), 100)
	},
	"unknown-agents": func(w *survey) (out [][]any) {
		rows := withRules(w.latest())
		for token := range strangers(rows) {
			scans := map[string]bool{} // statistics have a stranger where somebody names it
			for _, s := range rows {
				if s.rows[token] != nil {
					scans[s.ScanID] = true
				}
			}
			blocking := count(rows, func(s *siteRows) bool {
				if !scans[s.ScanID] {
					return false
				}
				if row := s.rows[token]; row != nil {
					return row.Verdict == "blocked"
				}
				return s.StarVerdict == "blocked"
			})
			mention, _ := shares(rows, "mention", token)
			root, _ := shares(rows, "explicit_root", token)
			out = append(out, []any{token, mention, root, blocking})
		}
		return first(ordered(out, ^1, 0), 100)
	},
	"crawl-delay": func(w *survey) (out [][]any) {
		delays := map[string][]float64{}
		for _, s := range w.latest() {
			for token, row := range s.agents() {
				if row.CrawlDelay != nil {
					delays[token] = append(delays[token], *row.CrawlDelay)
				}
			}
		}
		for token, d := range delays {
			out = append(out, []any{token, int64(len(d)), slices.Min(d), atPercentile(d, 0.5), atPercentile(d, 0.9), slices.Max(d)})
		}
		return first(ordered(out, ^1, 0), 100)
	},
	"content-signals": func(w *survey) [][]any {
		return inScopes(w.latest(), func(row *sink.VerdictRow) []string { return strings.Split(row.ContentSignal, ", ") }, func(e sink.EvidenceRow) []string {
			if e.Kind != "signal" || e.GroupLine != 0 {
				return nil
			}
			return strings.Split(strings.ToLower(strings.NewReplacer(" ", "", "\t", "").Replace(e.Value)), ",")
		})
	},
	"content-usage": func(w *survey) [][]any {
		return inScopes(w.latest(), func(row *sink.VerdictRow) []string { return []string{row.ContentUsage} }, func(sink.EvidenceRow) []string { return nil })
	},
	"licenses": func(w *survey) (out [][]any) {
		for host, rows := range groupBy(filter(w.latest(), func(s *siteRows) bool { return s.License != "" }), func(s *siteRows) string { return hostOf(s.License) }) {
			distinct := groupBy(rows, func(s *siteRows) string { return s.License })
			out = append(out, []any{host, int64(len(rows)), int64(len(distinct)), slices.Min(slices.Collect(maps.Keys(distinct)))})
		}
		return first(ordered(out, ^1, 0), 100)
	},
	"managed-blocks": func(w *survey) (out [][]any) {
		type key struct {
			cdn     string
			managed bool
		}
		for k, rows := range groupBy(withRules(w.latest()), func(s *siteRows) key { return key{or(s.CDN, "none"), s.ManagedBlock} }) {
			n, of := shares(rows, "full", "GPTBot")
			out = append(out, []any{k.cdn, k.managed, of, n, share(n, of)})
		}
		return ordered(out, 0, 1)
	},
	"equal-bodies": func(w *survey) (out [][]any) {
		for hash, rows := range groupBy(w.latest(), func(s *siteRows) int64 { return s.BodyHash }) {
			if hash == 0 || len(rows) < 2 {
				continue
			}
			hosts := groupBy(rows, func(s *siteRows) string { return s.Host })
			domains := groupBy(rows, func(s *siteRows) string { return s.Domain })
			delete(domains, "")
			out = append(out, []any{hash, int64(len(rows)), rows[0].BodyBytes, slices.Min(slices.Collect(maps.Keys(hosts))), int64(len(domains))})
		}
		return first(ordered(out, ^1, 0), 100)
	},
	"scores": func(w *survey) (out [][]any) {
		type key struct {
			score  float64
			status string
		}
		asked := filter(w.latest(), func(s *siteRows) bool { return s.Access != "unknown" })
		for k, rows := range groupBy(asked, func(s *siteRows) key { return key{s.Score, s.CheckStatus} }) {
			out = append(out, []any{k.score, k.status, int64(len(rows)), share(int64(len(rows)), int64(len(asked)))})
		}
		return ordered(out, 0, 1)
	},
	"latency-by-cdn": func(w *survey) (out [][]any) {
		for cdn, rows := range groupBy(answered(w.latest()), func(s *siteRows) string { return or(s.CDN, "none") }) {
			var ttfb, total []float32
			for _, s := range rows {
				if s.TTFBMillis > 0 {
					ttfb = append(ttfb, s.TTFBMillis)
				}
				if s.TotalMillis > 0 {
					total = append(total, s.TotalMillis)
				}
			}
			out = append(out, []any{cdn, int64(len(rows)), atPercentile(ttfb, 0.5), atPercentile(ttfb, 0.9), atPercentile(ttfb, 0.99), atPercentile(total, 0.5), atPercentile(total, 0.99)})
		}
		return ordered(out, ^1, 0)
	},
	"web-almanac": func(w *survey) [][]any {
		rows := answered(w.latest())
		line := []any{int64(len(rows))}
		for _, which := range []func(*siteRows) bool{
			func(s *siteRows) bool { return s.Status == 200 },
			func(s *siteRows) bool { return s.Status == 404 },
			func(s *siteRows) bool { return s.Status/100 == 4 && s.Status != 404 },
			func(s *siteRows) bool { return s.Status >= 500 },
			func(s *siteRows) bool { return s.Status == 200 && s.BodyBytes == 0 },
			func(s *siteRows) bool { return s.Truncated || s.BodyBytes > 512_000 },
		} {
			line = append(line, share(count(rows, which), int64(len(rows))))
		}
		return [][]any{line}
	},
	"web-almanac-agents": func(w *survey) [][]any {
		out := byRank(w, "mention")
		for _, t := range w.ai() {
			n, of := shares(w.latest(), "mention", t.Name)
			out = append(out, []any{t.Name, nil, n, of, share(n, of)})
		}
		return ordered(out, 0, 1)
	},
	"cloudflare-radar": func(w *survey) (out [][]any) {
		head := withinRank(w.latest(), 10_000)
		for _, t := range w.ai() {
			verdicts := map[string]int64{}
			for _, s := range head {
				if row := s.rows[t.Name]; row != nil && row.Via == "own" {
					verdicts[row.Verdict]++
				}
			}
			if named := verdicts["blocked"] + verdicts["partial"] + verdicts["allowed"]; named > 0 {
				out = append(out, []any{t.Name, named, verdicts["blocked"], verdicts["partial"], verdicts["allowed"]})
			}
		}
		return ordered(out, ^1, 0)
	},
	"data-provenance": func(w *survey) (out [][]any) {
		for _, date := range w.dates {
			for _, t := range w.ai() {
				if n, of := shares(w.on(date), "dpi_all", t.Name); t.Purpose == "training" {
					out = append(out, []any{date, t.Name, t.Operator, n, of, share(n, of)})
				}
			}
		}
		return ordered(out, 0, ^5, 1)
	},
	"imc-2025": func(w *survey) (out [][]any) {
		for _, date := range w.dates {
			var naming, fully, either int64
			rows := withRules(w.on(date))
			for _, s := range rows {
				verdicts := map[string]bool{}
				for _, t := range w.ai() {
					if row := s.rows[t.Name]; row != nil && row.Via == "own" {
						verdicts[row.Verdict] = true
					}
				}
				if len(verdicts) > 0 {
					naming++
				}
				if verdicts["blocked"] {
					fully++
				}
				if verdicts["blocked"] || verdicts["partial"] {
					either++
				}
			}
			out = append(out, []any{date, int64(len(rows)), naming, fully, either, share(either, int64(len(rows)))})
		}
		return out
	},
	"most-named": func(w *survey) (out [][]any) {
		rows := withRules(w.latest())
		known := map[string]bool{}
		for _, t := range w.tokens {
			known[t.Name] = true
		}
		all := maps.Clone(known)
		maps.Copy(all, strangers(rows))
		for token := range all {
			mention, of := shares(rows, "mention", token)
			root, _ := shares(rows, "explicit_root", token)
			lenient := filter(rows, func(s *siteRows) bool { return s.lenient[token] && !s.named[token] })
			n := int64(len(lenient))
			out = append(out, []any{token, known[token], mention, root, n, share(mention, of), mention + n})
		}
		out = first(ordered(out, ^6, 0), 100)
		for i := range out {
			out[i] = out[i][:6] // without what they are ordered by
		}
		return out
	},
}

// byRank counts AI tokens by a definition in each segment of ranks.
func byRank(w *survey, definition string) (out [][]any) {
	for _, limit := range rankLimits(w.latest()) {
		within := withinRank(w.latest(), limit)
		for _, t := range w.ai() {
			n, of := shares(within, definition, t.Name)
			out = append(out, []any{t.Name, limit, n, of, share(n, of)})
		}
	}
	return ordered(out, 0, 1)
}

// strictest rolls tokens up: of those that have a value in common the strictest verdict counts.
func strictest(w *survey, value func(tokens.Token) string) (out [][]any) {
	members := map[string][]string{}
	for _, t := range w.tokens {
		members[value(t)] = append(members[value(t)], t.Name)
	}
	rows := withRules(w.latest())
	for name, of := range members {
		blocked := count(rows, func(s *siteRows) bool { return slices.ContainsFunc(of, func(t string) bool { return s.blocked[t] }) })
		partial := count(rows, func(s *siteRows) bool {
			return !slices.ContainsFunc(of, func(t string) bool { return s.blocked[t] }) && slices.ContainsFunc(of, func(t string) bool { return s.partly[t] })
		})
		out = append(out, []any{name, blocked, partial, int64(len(rows)) - blocked - partial, share(blocked, int64(len(rows)))})
	}
	return ordered(out, ^4, 0)
}

// inBuckets counts rows by their segment of ranks and a value, with the share of the segment.
func inBuckets(rows []*siteRows, value func(*siteRows) any) (out [][]any) {
	for limit, segment := range groupBy(rows, func(s *siteRows) int64 { return bucket(s.Rank) }) {
		for v, group := range groupBy(segment, value) {
			out = append(out, []any{optional(limit), v, int64(len(group)), share(int64(len(group)), int64(len(segment)))})
		}
	}
	return out
}

// strangers are the agents outside of the registry that rows have.
func strangers(rows []*siteRows) map[string]bool {
	names := map[string]bool{}
	for _, s := range rows {
		for token, row := range s.rows {
			if !row.Known {
				names[token] = true
			}
		}
	}
	return names
}

// agents are the rows of a site whose groups are meant for them: by name, or `*` where there is such a group.
func (s *siteRows) agents() map[string]*sink.VerdictRow {
	own := map[string]*sink.VerdictRow{}
	for token, row := range s.rows {
		if row.Via == "own" {
			own[token] = row
		}
	}
	if s.star != nil && s.star.Via == "star" {
		own["*"] = s.star
	}
	return own
}

// inScopes counts sites by who is spoken to and what is said, of groups and of what stands before them.
func inScopes(rows []*siteRows, said func(*sink.VerdictRow) []string, before func(sink.EvidenceRow) []string) (out [][]any) {
	counts := map[[2]string]int64{}
	for _, s := range rows {
		here := map[[2]string]bool{}
		for token, row := range s.agents() {
			for _, text := range said(row) {
				here[[2]string{map[bool]string{true: "*", false: "named"}[token == "*"], text}] = true
			}
		}
		for _, e := range s.evidence {
			for _, text := range before(e) {
				here[[2]string{"file", text}] = true
			}
		}
		for key := range here {
			if key[1] != "" {
				counts[key]++
			}
		}
	}
	for key, n := range counts {
		out = append(out, []any{key[0], key[1], n})
	}
	return ordered(out, 0, ^2, 1)
}

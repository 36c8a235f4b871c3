package diff

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	machine "github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// scanOf writes sites as two scans of one date into a new dataset, in several parts. It returns the scan "cut".
func scanOf(t testing.TB, sites []*audit.Site, o sink.Options) ScanAt {
	t.Helper()
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"before", "cut"} {
		o.ScanID, o.PartRows = id, max(1, len(sites)/6)
		w, err := sink.Open(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for at, s := range sites {
			if at%2 == i {
				if err := w.Add(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return ScanAt{Store: dir, ScanID: "cut"}
}

// differing returns the sites of two scans. Some sites are only in one scan, half of the others have the same file, and
// rows of one site are repeated.
func differing(t *testing.T, n int) (before, after []*audit.Site) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 2026))
	others := surveytest.Mixed(t, n, 19)
	for i, s := range surveytest.Mixed(t, n, 18) {
		o := others[i]
		if random.IntN(2) == 0 {
			o = &audit.Site{Seq: s.Seq, Origin: s.Origin, Domain: s.Domain, TLD: s.TLD, Rank: s.Rank, Input: s.Input}
			o.Fetch = exchange.Response{Outcome: s.Fetch.Outcome, Status: s.Fetch.Status, Fields: s.Fetch.Fields,
				Answered: s.Fetch.Answered, Body: s.Fetch.Body}
			if random.IntN(8) == 0 {
				o.Fetch.Body = append([]byte("# another body\n"), o.Fetch.Body...)
			}
			audit.Judge(o)
		}
		for _, f := range []*exchange.Response{&s.Fetch, &o.Fetch} {
			f.FetchedAt = time.UnixMilli(1_790_000_000_000 + random.Int64N(1<<40))
		}
		if random.IntN(10) > 0 {
			before = append(before, s)
		}
		if random.IntN(10) > 0 {
			after = append(after, o)
		}
	}
	return before, after
}

// plainKey is a site's key.
func plainKey(s *audit.Site) string {
	return fmt.Sprintf("%s %d %s", s.Origin.Host(), s.Origin.Port(), s.Origin.Scheme())
}

// bySite returns the row of each site that counts: the last observation, else the last failure.
func bySite(sites []*audit.Site) map[string]*audit.Site {
	rows := map[string]*audit.Site{}
	for _, s := range sites {
		was := rows[plainKey(s)]
		if was == nil || was.Report.Finding.IsGap() && !s.Report.Finding.IsGap() ||
			was.Report.Finding.IsGap() == s.Report.Finding.IsGap() && s.Fetch.FetchedAt.After(was.Fetch.FetchedAt) {
			rows[plainKey(s)] = s
		}
	}
	return rows
}

// plainDiff has the differences of two scans, found by loops over the sites.
type plainDiff struct {
	findings                         map[FindingPair]int64
	tokens                           map[string]Token
	operators                        map[string]Sum
	changes                          map[string]bool // as changeLine has them
	sites                            map[string]bool
	withFiles                        map[string]bool // likewise, for files that appeared or were removed
	filesChanged                     int64
	changed, otherBody, otherPolicy  int64
	both, rules, appeared, vanished  int64
	presence, refusal, failed, blind int64
}

func countPlainly(before, after []*audit.Site, definition string, chosen []int) *plainDiff {
	p := &plainDiff{findings: map[FindingPair]int64{}, tokens: map[string]Token{}, operators: map[string]Sum{},
		changes: map[string]bool{}, withFiles: map[string]bool{}, sites: map[string]bool{}}
	at := slices.Index(survey.DefinitionNames(), definition)
	registry := tokens.Default()
	gaps := []string{"not_asked", "challenged", "rate_limited", "unreachable", "server_error"}
	was, is := bySite(before), bySite(after)
	for key, a := range is {
		b := was[key]
		if b == nil {
			p.appeared++
			p.sites[fmt.Sprintf("%s appeared  %s", key, a.Report.Finding)] = true
			continue
		}
		p.both++
		then, now := b.Report.Finding.String(), a.Report.Finding.String()
		p.findings[FindingPair{Before: then, After: now}]++
		change := ""
		switch blindThen, blindNow := slices.Contains(gaps, then), slices.Contains(gaps, now); {
		case blindThen && blindNow:
			p.blind++
		case blindThen != blindNow:
			change = "failed"
			p.failed++
		case then == now:
		case then == "refused" || now == "refused":
			change = "refusal"
			p.refusal++
		default:
			change = "presence"
			p.presence++
		}
		if change != "" {
			p.sites[fmt.Sprintf("%s %s %s %s", key, change, then, now)] = true
		}
		if then != "rules" || now != "rules" {
			came := now == "rules" && (then == "none" || then == "no_rules")
			if !came && (then != "rules" || now != "none" && now != "no_rules") {
				continue
			}
			operators := map[string]bool{}
			file, cells := a, surveytest.PlainCells(a)
			if !came {
				file, cells = b, surveytest.PlainCells(b)
			}
			for _, id := range chosen {
				t := &registry.Tokens[id]
				row := surveytest.PlainToken(file, cells[id])
				if *survey.Definitions()[at].In(&row) == 0 {
					continue
				}
				sum, verdict := p.tokens[t.Name], decisions[2*row.Full+row.Partial]
				if came {
					sum.Appeared++
					p.withFiles[fmt.Sprintf("%s %s appeared  %s", key, t.Name, verdict)] = true
				} else {
					sum.Removed++
					p.withFiles[fmt.Sprintf("%s %s removed %s ", key, t.Name, verdict)] = true
				}
				p.tokens[t.Name] = sum
				operators[""], operators[t.Operator] = true, true
			}
			for operator := range operators {
				sum := p.operators[operator]
				sum.Appeared += survey.One(came)
				sum.Removed += survey.One(!came)
				p.operators[operator] = sum
			}
			p.filesChanged += survey.One(len(operators) > 0)
			continue
		}
		p.rules++
		p.otherBody += survey.One(string(a.Fetch.Body) != string(b.Fetch.Body))
		began, other := false, false
		operators := map[string]*[2]bool{"": {}}
		cellsThen, cellsNow := surveytest.PlainCells(b), surveytest.PlainCells(a)
		for _, id := range chosen {
			t := &registry.Tokens[id]
			says := func(s *audit.Site, c audit.Cell) (blocks bool, verdict int) {
				row := surveytest.PlainToken(s, c)
				return *survey.Definitions()[at].In(&row) > 0, int(2*row.Full + row.Partial)
			}
			blockedThen, verdictThen := says(b, cellsThen[id])
			blockedNow, verdictNow := says(a, cellsNow[id])
			sum := p.tokens[t.Name]
			sum.Before += survey.One(blockedThen)
			sum.After += survey.One(blockedNow)
			if operators[t.Operator] == nil {
				operators[t.Operator] = &[2]bool{}
			}
			for _, of := range []string{"", t.Operator} {
				operators[of][0] = operators[of][0] || blockedThen
				operators[of][1] = operators[of][1] || blockedNow
			}
			other = other || verdictThen != verdictNow
			change := ""
			switch {
			case !blockedThen && blockedNow:
				change = "began"
				sum.Began++
				began = true
			case blockedThen && !blockedNow:
				change = "ceased"
				sum.Ceased++
				began = true
			case verdictThen < verdictNow:
				change = "tightened"
				sum.Tightened++
			case verdictThen > verdictNow:
				change = "loosened"
				sum.Loosened++
			}
			p.tokens[t.Name] = sum
			if change != "" {
				p.changes[fmt.Sprintf("%s %s %s %s %s", key, t.Name, change, decisions[verdictThen], decisions[verdictNow])] = true
			}
		}
		p.changed += survey.One(began)
		p.otherPolicy += survey.One(other)
		for operator, blocks := range operators {
			sum := p.operators[operator]
			sum.Before += survey.One(blocks[0])
			sum.After += survey.One(blocks[1])
			sum.Began += survey.One(!blocks[0] && blocks[1])
			sum.Ceased += survey.One(blocks[0] && !blocks[1])
			p.operators[operator] = sum
		}
	}
	for key, b := range was {
		if is[key] == nil {
			p.vanished++
			p.sites[fmt.Sprintf("%s vanished %s ", key, b.Report.Finding)] = true
		}
	}
	return p
}

// decisions are the verdicts by their strictness.
var decisions = [...]string{"allowed", "partial", "blocked"}

// TestDiffPlainly counts every difference again, from the judged sites in memory, by every definition, and compares the
// rows of both files.
func TestDiffPlainly(t *testing.T) {
	before, after := differing(t, 1500)
	from, to := scanOf(t, before, sink.Options{Date: "2026-11-20"}), scanOf(t, after, sink.Options{Date: "2026-11-21"})
	selection := survey.Selection{Category: "ai"}
	var chosen []int
	for id := range tokens.Default().Tokens {
		if selection.Takes(&tokens.Default().Tokens[id]) {
			chosen = append(chosen, id)
		}
	}
	for _, definition := range survey.NamesOverRules() {
		want := countPlainly(before, after, definition, chosen)
		out, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		got, err := Scans(t.Context(), from, to, Options{Definition: definition, Selection: selection, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		f := func(what string, got, want any) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("by %s, %s: got %v, want %v", definition, what, got, want)
			}
		}
		failed := int64(0)
		for _, n := range got.Failed {
			failed += n.Before + n.After
		}
		f("sites", []int64{got.Both, got.RulesBoth, got.Appeared, got.Vanished, got.Presence, got.Refusal, failed,
			got.Unobserved, got.Changed, got.OtherBody, got.OtherPolicy},
			[]int64{want.both, want.rules, want.appeared, want.vanished, want.presence, want.refusal, want.failed, want.blind,
				want.changed, want.otherBody, want.otherPolicy})
		findings := map[FindingPair]int64{}
		for _, p := range got.Findings {
			findings[FindingPair{Before: p.Before, After: p.After}] = p.Sites
		}
		f("findings", findings, want.findings)
		f("sites of the first scan", got.From.Sites, int64(len(bySite(before))))
		f("repeated rows", got.To.Repeated, int64(len(after)-len(bySite(after))))

		maps.DeleteFunc(want.tokens, func(_ string, s Token) bool {
			return s.Began+s.Ceased+s.Appeared+s.Removed+s.Tightened+s.Loosened == 0
		})
		f("tokens listed", len(got.Tokens), len(want.tokens))
		for _, g := range got.Tokens {
			w := want.tokens[g.Token]
			f(g.Token, []int64{g.Began, g.Ceased, g.Appeared, g.Removed, g.Net, g.Tightened, g.Loosened, g.Before, g.After},
				[]int64{w.Began, w.Ceased, w.Appeared, w.Removed, w.Began - w.Ceased, w.Tightened, w.Loosened, w.Before, w.After})
			f(g.Token+"'s share", g.ShareAfter, float64(w.After)/float64(want.rules))
		}
		for _, g := range append(got.Operators, got.AtLeastOne) {
			w := want.operators[g.Value]
			f("operator "+g.Value, []int64{g.Began, g.Ceased, g.Appeared, g.Removed, g.Before, g.After},
				[]int64{w.Began, w.Ceased, w.Appeared, w.Removed, w.Before, w.After})
		}
		pairs := int64(0)
		for _, n := range got.Causes {
			pairs += n.Began + n.Ceased
		}
		changes, crossing := map[string]bool{}, int64(0)
		for _, r := range surveytest.Rows[ChangeRow](t, out, ChangesName) {
			changes[fmt.Sprintf("%s %d %s %s %s %s %s", r.Host, r.Port, r.Requested, r.Token, r.Change, r.Before,
				r.After)] = true
			crossing += survey.One(r.Change == "began" || r.Change == "ceased")
			if r.FetchedBefore < 1_790_000_000_000 || r.BodyBefore == 0 || r.BodyBefore == r.BodyAfter {
				t.Fatalf("%+v", r)
			}
		}
		f("causes", pairs, crossing)
		f("rows of changes", changes, want.changes)
		sites := map[string]bool{}
		for _, r := range surveytest.Rows[ChangedSiteRow](t, out, ChangedSitesName) {
			sites[fmt.Sprintf("%s %d %s %s %s %s", r.Host, r.Port, r.Requested, r.Change, r.Before, r.After)] = true
		}
		f("rows of sites", sites, want.sites)
		if want.changed == 0 || want.refusal == 0 || want.presence == 0 || want.failed == 0 || want.blind == 0 ||
			got.To.Repeated == 0 || definition != "mention" && len(got.Operators) == 0 {
			t.Errorf("by %s: the sites show nothing", definition)
		}
		listed, err := Scans(t.Context(), from, to, Options{Definition: definition, Selection: selection, Top: 3})
		if err != nil {
			t.Fatal(err)
		}
		f("the top", [][]Site{listed.Sites}, [][]Site{got.Sites[:3]})
		f("tokens of the top", []int{len(listed.Tokens), listed.Changing}, []int{3, len(want.tokens)})
		f("all sites", int64(len(got.Sites)), got.Changed)

		files, err := Scans(t.Context(), from, to, Options{Definition: definition, Selection: selection, Out: out,
			Files: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range surveytest.Rows[ChangeRow](t, out, ChangesName) {
			line := fmt.Sprintf("%s %d %s %s %s %s %s", r.Host, r.Port, r.Requested, r.Token, r.Change, r.Before, r.After)
			if r.Cause == "presence" && !want.withFiles[line] {
				t.Errorf("by %s: %s", definition, line)
			}
			delete(want.withFiles, line)
		}
		f("files that are not listed", len(want.withFiles), 0)
		f("changed sites with files", []int64{files.Changed, int64(len(files.Sites))},
			[]int64{want.changed + want.filesChanged, want.changed + want.filesChanged})
		f("figures with files", []any{files.Tokens, files.AtLeastOne, files.Causes}, []any{got.Tokens, got.AtLeastOne,
			got.Causes})
		if want.filesChanged == 0 {
			t.Errorf("by %s: no file appeared or was removed", definition)
		}
	}
}

// TestDiffOfItself is empty.
func TestDiffOfItself(t *testing.T) {
	sites, _ := differing(t, 300)
	at := scanOf(t, sites, sink.Options{})
	d, err := Scans(t.Context(), at, at, Options{})
	if err != nil || !d.Empty() || d.Both == 0 || d.Unobserved == 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// answering returns the sites h0.example and so on with these files, judged by a registry.
func answering(t *testing.T, registry *tokens.Registry, bodies ...string) (sites []*audit.Site) {
	t.Helper()
	judge := audit.New(registry)
	for i, body := range bodies {
		o, err := origin.Parse(fmt.Sprintf("h%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		s := &audit.Site{Seq: uint64(i), Input: o.Host(), Origin: o}
		s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: o.As(origin.HTTPS), Body: []byte(body)}
		judge.Judge(s)
		sites = append(sites, s)
	}
	return sites
}

// TestDiffCauses has a site for each cause.
func TestDiffCauses(t *testing.T) {
	const (
		own     = "Sitemap: https://a.example/x.xml\nUser-agent: *\nDisallow: /private/\n"
		managed = "# BEGIN Cloudflare Managed content\nUser-agent: GPTBot\nDisallow: /\n# END Cloudflare Managed Content\n"
		blocks  = "User-agent: GPTBot\nDisallow: /\n"
		allows  = "User-agent: GPTBot\nDisallow:\n"
		star    = "User-agent: *\nDisallow: /\n"
		other   = "User-agent: Linguee\nDisallow: /\n"
	)
	now := tokens.Default()
	rows := slices.Clone(now.Tokens)
	rows[now.Lookup("Linguee Bot")].Aliases = nil
	earlier := surveytest.RegistryOf("earlier", rows)
	f := func(name, before, after, want string, was *tokens.Registry, o sink.Options) {
		t.Helper()
		// the other files show that the scan knew the tokens
		from := scanOf(t, answering(t, was, before, allows, star), sink.Options{Registry: was})
		to := scanOf(t, answering(t, now, after, allows, star), o)
		d, err := Scans(t.Context(), from, to, Options{Options: survey.Options{Only: []string{"GPTBot", "Linguee Bot"}}})
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && len(d.Causes) == 0 {
			return
		}
		if len(d.Causes) != 1 || d.Causes[0].Cause != want || d.Causes[0].Sites != 1 || d.Causes[0].Began+
			d.Causes[0].Ceased != 1 {
			t.Errorf("%s: %+v, want %s", name, d.Causes, want)
		}
	}
	f("a rule", own, own+blocks, "policy", now, sink.Options{})
	f("a block was switched on", own, managed+own, "managed", now, sink.Options{})
	f("and off", managed+own, own, "managed", now, sink.Options{})
	f("and a comment came", own, managed+"# own\n"+own, "managed", now, sink.Options{})
	f("and a rule of another group came", own, managed+own+"User-agent: CCBot\nDisallow: /\n", "policy", now,
		sink.Options{})
	f("the block has other rules", managed+own, strings.Replace(managed, "GPTBot", "CCBot", 1)+own, "managed", now,
		sink.Options{})
	f("and a group went", "User-agent: Googlebot\nDisallow:\nUser-agent: GPTBot\nDisallow:\n", managed, "policy", now,
		sink.Options{})
	rows = slices.Clone(now.Tokens)
	rows[now.Lookup("GPTBot")].HeedsStar = false
	f("a registry that says otherwise of *: both nights are asked by one", star, star, "", surveytest.RegistryOf("earlier", rows),
		sink.Options{})
	f("a registry that knows another name", other, other, "judge", earlier, sink.Options{})
	f("and a new file", "# old\n"+other, other, "unknown_judge", earlier, sink.Options{})
	f("a name needs no registry", allows, blocks, "policy", earlier, sink.Options{})
	f("another observer", own, own+blocks, "observer", now, sink.Options{Observer: commit.Observer{Source: commit.Live,
		Vantage: "ohio"}})
}

// TestDiffUnknownTokens does not compare tokens that a scan's registry lacks: its silence is not permission.
func TestDiffUnknownTokens(t *testing.T) {
	old := tokens.Default()
	now, err := tokens.Load(strings.NewReader("name | category\nMyBot | ai\n"))
	if err != nil {
		t.Fatal(err)
	}
	const body = "User-agent: *\nDisallow: /\n"
	from, to := scanOf(t, answering(t, old, body), sink.Options{Registry: old}), scanOf(t, answering(t, now, body),
		sink.Options{Registry: now})
	for _, definition := range survey.NamesOverRules() {
		for _, scans := range [][2]ScanAt{{from, to}, {to, from}} {
			d, err := Scans(t.Context(), scans[0], scans[1],
				Options{Options: survey.Options{Registry: now, Only: []string{"MyBot", "GPTBot"}}, Definition: definition})
			if err != nil || d.Changed != 0 || !slices.Equal(d.TokensUnknown, []string{"MyBot"}) || d.TokensCompared != 1 {
				t.Errorf("by %s: %+v, %v", definition, d, err)
			}
		}
	}
}

// TestDiffFolds joins an archive's captures with a list of hosts: the capture by https counts, wherever it is in the
// scan.
func TestDiffFolds(t *testing.T) {
	row := func(url, body string) *audit.Site {
		o, err := origin.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		s := &audit.Site{Input: url, Origin: o}
		s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: o, Body: []byte(body)}
		audit.Judge(s)
		return s
	}
	const open, closed = "User-agent: *\nDisallow:\n", "User-agent: GPTBot\nDisallow: /\n"
	archive := []*audit.Site{
		row("http://a.example", open), row("https://a.example", closed), // the https capture, listed after
		row("https://b.example", closed), row("http://b.example", open), // and before
		row("http://c.example", closed),      // http alone
		row("http://d.example:8080", closed), // another port
	}
	live := []*audit.Site{row("a.example", closed), row("b.example", closed), row("c.example", closed),
		row("d.example", closed)}
	for _, list := range [][]*audit.Site{archive, live} {
		for i, s := range list {
			s.Seq = uint64(i)
		}
	}
	from, to := scanOf(t, archive, sink.Options{Observer: commit.Observer{Source: commit.Archive}}),
		scanOf(t, live, sink.Options{})
	for i, scans := range [][2]ScanAt{{from, to}, {to, from}} {
		d, err := Scans(t.Context(), scans[0], scans[1], Options{})
		if err != nil {
			t.Fatal(err)
		}
		archived := []Scan{d.From, d.To}[i]
		if d.Changed != 0 || d.Both != 3 || d.Appeared != 1 || d.Vanished != 1 || archived.Folded != 2 ||
			archived.FoldsDisagree != 2 || archived.Sites != 4 || d.SameObserver {
			t.Errorf("%+v", d)
		}
	}
}

// TestPairedPlainly counts what another observer saw again.
func TestPairedPlainly(t *testing.T) {
	before, after := differing(t, 1500)
	for i, s := range slices.Concat(before, after) {
		s.Fetch.Fields.CDN = []string{"", "cloudflare", "fastly"}[i%3]
	}
	from, to := scanOf(t, before, sink.Options{}), scanOf(t, after, sink.Options{})
	d, err := Observers(t.Context(), from, to, Options{Options: survey.Options{Only: []string{"GPTBot", "CCBot"}}})
	if err != nil {
		t.Fatal(err)
	}
	ids := []int{tokens.Default().Lookup("GPTBot"), tokens.Default().Lookup("CCBot")}
	p := countPlainly(before, after, survey.Full, ids)
	want := map[string]PairedSum{}
	was := bySite(before)
	for key, a := range bySite(after) {
		b := was[key]
		if b == nil {
			continue
		}
		cdn := cmp.Or(a.Fetch.Fields.CDN, b.Fetch.Fields.CDN)
		sum := want[cdn]
		sum.Sites++
		sum.OtherFinding += survey.One(a.Report.Finding != b.Report.Finding)
		if a.Report.Finding == audit.FindingRules && b.Report.Finding == audit.FindingRules {
			sum.Rules++
			sum.OtherBody += survey.One(string(a.Fetch.Body) != string(b.Fetch.Body))
			sum.OtherPolicy += survey.One(slices.ContainsFunc(ids, func(id int) bool {
				return slices.Contains(a.Report.Blocked, uint16(id)) != slices.Contains(b.Report.Blocked, uint16(id)) ||
					slices.Contains(a.Report.Partial, uint16(id)) != slices.Contains(b.Report.Partial, uint16(id))
			}))
		}
		want[cdn] = sum
	}
	if d.OnlyFrom != p.vanished || d.OnlyTo != p.appeared || d.Both != p.both || d.OtherPolicy != p.otherPolicy ||
		d.All.OtherBody != p.otherBody || len(d.CDNs) != 3 {
		t.Errorf("got %+v", d)
	}
	for _, g := range d.CDNs {
		w := want[g.CDN]
		if g.Sites != w.Sites || g.OtherFinding != w.OtherFinding || g.Rules != w.Rules || g.OtherBody != w.OtherBody ||
			g.OtherPolicy != w.OtherPolicy ||
			*g.SharePolicy != float64(w.OtherPolicy)/float64(w.Rules) || w.OtherPolicy == 0 {
			t.Errorf("%q: got %+v, want %+v", g.CDN, g, w)
		}
	}
}

// TestDiffNeeds checks that scans without the needed tables are refused.
func TestDiffNeeds(t *testing.T) {
	at := scanOf(t, answering(t, tokens.Default(), "User-agent: *\n"), sink.Options{Tables: []string{"sites"}})
	for definition, says := range map[string]string{"rfc_effective": "the definitions are mention",
		"unheard": "the definitions are"} {
		if _, err := Scans(t.Context(), at, at, Options{Definition: definition}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("by %s: %v", definition, err)
		}
	}
}

// BenchmarkDiff compares two scans of a million sites, 100,000 with -short, with real files. Three in a hundred sites
// have another file in the later scan.
//
//	go test ./survey/diff -run '^$' -bench Diff -benchtime 1x -benchmem
func BenchmarkDiff(b *testing.B) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	bodies := sharedtest.Bodies(b, "typical12k")
	made := func(later int) ScanAt {
		return ScanAt{Store: surveytest.Scan(b, n, func(i int) []byte {
			if i%100 < 3*later {
				i += 7
			}
			return bodies[i%len(bodies)]
		}), ScanID: "bench"}
	}
	from, to := made(0), made(1)
	for _, definition := range []string{survey.Full, "dpi_all"} {
		b.Run(definition, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := store.NewDir(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				d, err := Scans(b.Context(), from, to, Options{Definition: definition, Selection: survey.Selection{Category: "ai"},
					Top: 20, Out: out})
				if err != nil || d.Changed == 0 {
					b.Fatal(d, err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "sites/s")
			b.ReportMetric(float64(machine.PeakMemory())/1e6, "peak-MB") // making the scans included
		})
	}
}

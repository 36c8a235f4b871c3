package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file makes worlds with a known truth: the file of each site on each night. Scans see it, or a refusal, a page or
// a failure in its place; they are late, repeated and cut, and the registry changes. Real scans write their
// observations, and the ledger is compared with the truth.

// knownBots are the tokens that a registry adds to the default one. fallback is one of them.
type knownBots map[string]struct {
	ignoresStar bool
	fallback    string
}

// registriesOfWorlds are a first registry, and others that gain, rename and lose tokens.
var registriesOfWorlds = []knownBots{
	{"AlphaBot": {}},
	{"AlphaBot": {}, "ZetaBot": {fallback: "AlphaBot"}},
	{"AlphaBot": {}, "ZetaNew": {fallback: "AlphaBot"}, "DeafBot": {ignoresStar: true}},
	{"ZetaBot": {}, "DeafBot": {}},
}

func (bots knownBots) load(t testing.TB) *tokens.Registry {
	t.Helper()
	text := "name | * | fallback\n"
	for _, name := range slices.Sorted(maps.Keys(bots)) {
		heeds := "yes"
		if bots[name].ignoresStar {
			heeds = "no"
		}
		text += fmt.Sprintf("%s | %s | %s\n", name, heeds, bots[name].fallback)
	}
	registry, err := tokens.Load(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

// trueFile is a file with rules: its groups by agent, and a block that a delivery network manages, or nil.
type trueFile struct {
	own, block map[string]string // an agent's rule
	note       int               // a comment
}

// The rules of a group: it blocks its agent, blocks it partly, or allows it all.
const (
	deniesAll  = "Disallow: /"
	deniesSome = "Disallow: /x"
	deniesNone = "Disallow:"
)

func (f *trueFile) text() string {
	text := ""
	add := func(groups map[string]string) {
		for _, agent := range slices.Sorted(maps.Keys(groups)) {
			text += "User-agent: " + agent + "\n" + groups[agent] + "\n\n"
		}
	}
	if f.block != nil {
		text = "# BEGIN Cloudflare Managed content\n"
		add(f.block)
		text += "# END Cloudflare Managed Content\n"
	}
	add(f.own)
	return fmt.Sprintf("# %d\n%s", f.note, text)
}

// group returns how the file treats an agent: blocked, partial, allowed; empty without a group.
func (f *trueFile) group(agent string) string {
	rules := f.own[agent] + "\n" + f.block[agent] + "\n"
	switch {
	case strings.Contains(rules, deniesAll+"\n"):
		return "blocked"
	case strings.Contains(rules, deniesSome+"\n"):
		return "partial"
	case strings.Contains(rules, deniesNone+"\n"):
		return "allowed"
	}
	return ""
}

// state is what a file means for a token: blocked or open.
func (f *trueFile) state(token string, bots knownBots) string {
	bot := bots[token]
	says := cmp.Or(f.group(token), f.group(bot.fallback))
	if says == "" && !bot.ignoresStar {
		says = f.group("*")
	}
	if says == "blocked" {
		return "blocked"
	}
	return "open"
}

// policy returns the columns of a row of policies, by a registry: equal texts are the same policy.
func (f *trueFile) policy(bots knownBots) string {
	by := map[string][]string{}
	for _, name := range append(slices.Sorted(maps.Keys(bots)), "GPTBot") {
		says := f.group(name)
		by[says] = append(by[says], name)
	}
	managed := ""
	if f.block != nil {
		managed = "cloudflare"
	}
	return policyText(cmp.Or(f.group("*"), "allowed"), by["blocked"], by["partial"], by["allowed"], managed)
}

func policyText(star string, blocked, partial, allowed []string, managed string) string {
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	return fmt.Sprintf("* %s, blocked %v, partial %v, allowed %v, managed %q", star, sorted(blocked), sorted(partial),
		sorted(allowed), managed)
}

// trueSite is the content of a site on a night: a file, no file, a text without rules, or a page.
type trueSite struct {
	class string
	file  *trueFile
}

func (s trueSite) state(token string, bots knownBots) string {
	if s.file == nil {
		return s.class
	}
	return s.file.state(token, bots)
}

// capture is a row of a scan: a site, and the class of its answer.
type capture struct {
	site  int
	plain bool // by http
	class string
	at    time.Time
}

func (c *capture) observed() bool { return !slices.Contains(trueFailures, c.class) }

var trueFailures = []string{"challenged", "rate_limited", "unreachable", "server_error"}

// trueScan is a scan of a world.
type trueScan struct {
	id       string
	date     Date
	registry int
	stored   bool // with bodies
	captures []capture
}

// trueWorld is a world with a known truth.
type trueWorld struct {
	seed       uint64
	archive    bool
	sites      int
	truth      map[Date][]trueSite
	scans      []trueScan // as they were written
	registries []*tokens.Registry
}

func newTrueWorld(t testing.TB, seed uint64) *trueWorld {
	rng := rand.New(rand.NewPCG(seed, 39))
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	w := &trueWorld{seed: seed, archive: chance(35), sites: 5 + rng.IntN(26), truth: map[Date][]trueSite{}}
	for _, bots := range registriesOfWorlds {
		w.registries = append(w.registries, bots.load(t))
	}
	agents := []string{"AlphaBot", "ZetaBot", "ZetaNew", "DeafBot", "GPTBot", "StrangeBot", "*"}
	rule := func() string { return []string{deniesAll, deniesAll, deniesSome, deniesNone}[rng.IntN(4)] }
	blocks := []map[string]string{{"GPTBot": deniesAll}, {"GPTBot": deniesAll, "ZetaBot": deniesAll},
		{"StrangeBot": deniesAll}}
	var files []*trueFile
	for range 4 + rng.IntN(6) {
		f := &trueFile{own: map[string]string{"*": deniesSome}, note: rng.IntN(2)}
		for range rng.IntN(4) {
			f.own[agents[rng.IntN(len(agents))]] = rule()
		}
		if chance(25) {
			f.block = blocks[rng.IntN(len(blocks))]
		}
		files = append(files, f)
		if chance(50) { // the same, but for its comment or its block
			twin := *f
			if chance(50) {
				twin.note++
			} else {
				twin.block = blocks[rng.IntN(len(blocks))]
			}
			files = append(files, &twin)
		}
	}
	anew := func() trueSite {
		if class := []string{"", "", "", "", "", "", ClassNone, ClassNoRules, ClassHTML}[rng.IntN(9)]; class != "" {
			return trueSite{class: class}
		}
		return trueSite{ClassRules, files[rng.IntN(len(files))]}
	}
	now := make([]trueSite, w.sites)
	hidden, failing, churn := make([]string, w.sites), rng.IntN(25), rng.IntN(15)
	for i := range now {
		now[i] = anew()
	}
	changing, hiding, odd, incomplete := 2+rng.IntN(20), rng.IntN(12), rng.IntN(30), chance(25)
	registry, written := rng.IntN(len(w.registries)), 0
	var late []trueScan
	write := func(s trueScan) {
		if chance(6) {
			registry = rng.IntN(len(w.registries))
		}
		written++
		s.id, s.registry, s.stored = fmt.Sprintf("%v-%02d", s.date, written), registry, !incomplete || chance(60)
		w.scans = append(w.scans, s)
	}
	date := Date(20454)
	for range 5 + rng.IntN(21) {
		date += Date(1 + rng.IntN(2))
		for i := range now {
			if chance(changing) {
				now[i] = anew()
			}
			switch {
			case hidden[i] == "" && chance(hiding):
				hidden[i] = []string{ClassRefused, ClassHTML}[rng.IntN(2)]
			case chance(40):
				hidden[i] = ""
			}
		}
		w.truth[date] = slices.Clone(now)
		at := time.Unix(int64(date)*24*60*60, 0)
		see := func(site int, plain bool) capture {
			at = at.Add(time.Second)
			c := capture{site, plain, cmp.Or(hidden[site], now[site].class), at}
			if chance(failing) {
				c.class = trueFailures[rng.IntN(len(trueFailures))]
			}
			return c
		}
		scan := trueScan{date: date}
		for i := range now {
			if chance(churn) {
				continue
			}
			scan.captures = append(scan.captures, see(i, false))
			for w.archive && chance(40) {
				scan.captures = append(scan.captures, see(i, chance(60)))
			}
		}
		scans := []trueScan{scan}
		if chance(odd) { // the list, or some of it, once more
			again := trueScan{date: date}
			for i := range now {
				if chance(50) {
					again.captures = append(again.captures, see(i, w.archive && chance(50)))
				}
			}
			scans = append(scans, again)
		}
		for w.archive && chance(odd) { // a piece of its own
			var piece trueScan
			piece.date = date
			scans[0].captures = slices.DeleteFunc(scans[0].captures, func(c capture) bool {
				moves := chance(40)
				if moves {
					piece.captures = append(piece.captures, c)
				}
				return moves
			})
			scans = append(scans, piece)
		}
		for i, s := range scans {
			if chance(odd/2) && (i > 0 || len(w.scans) > 0) {
				late = append(late, s)
			} else {
				write(s)
			}
		}
		for len(late) > 0 && chance(30) {
			write(late[0])
			late = late[1:]
		}
	}
	for _, s := range late {
		write(s)
	}
	return w
}

func hostOf(site int) string { return fmt.Sprintf("h%02d.example", site) }

// write writes a scan of the world.
func (w *trueWorld) write(t testing.TB, st store.Store, scan *trueScan) {
	t.Helper()
	registry := w.registries[scan.registry]
	o := sink.Options{ScanID: scan.id, Date: scan.date.String(), Observer: bot, Registry: registry,
		Tables: []string{schema.Sites}, Unlisted: true}
	if w.archive {
		o.Observer.Source = commit.Archive
	}
	if scan.stored {
		o.Tables = append(o.Tables, schema.Bodies)
	}
	auditor := audit.New(registry)
	out, err := sink.Open(t.Context(), st, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range scan.captures {
		c := &scan.captures[i]
		input := hostOf(c.site)
		switch {
		case c.plain:
			input = "http://" + input
		case w.archive:
			input = "https://" + input
		}
		s := &audit.Site{Seq: uint64(i), Input: input}
		s.SetOrigin(sitetest.Origin(t, input))
		s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Attempts: 1, FetchedAt: c.at}
		switch c.class {
		case ClassRules:
			s.Fetch.Body = []byte(w.truth[scan.date][c.site].file.text())
		case ClassNoRules:
			s.Fetch.Body = []byte("hello\n")
		case ClassHTML:
			s.Fetch.Body = []byte("<!doctype html><title>Wait</title>")
		case ClassNone:
			s.Fetch.Status = 404
		case ClassRefused:
			s.Fetch.Status = 403
		case "challenged":
			s.Fetch.Status, s.Fetch.Fields.Challenge = 403, "cloudflare"
		case "rate_limited":
			s.Fetch.Status = 429
		case "server_error":
			s.Fetch.Status = 503
		case "unreachable":
			s.Fetch.Outcome, s.Fetch.Status = exchange.ConnectTimeout, 0
		}
		auditor.Judge(s)
		if got := s.Report.Finding.String(); got != c.class {
			t.Fatalf("world %d: %s is %s, want %s:\n%s", w.seed, input, got, c.class, s.Fetch.Body)
		}
		if err := out.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Complete(t.Context()), out.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// toldWorld has the rows of the ledger by host.
type toldWorld struct {
	episodes map[string][]Told
	gaps     map[string][]Gap
	nights   []Date
	last     MergedScan
}

func readTold(t testing.TB, st store.Store) *toldWorld {
	t.Helper()
	l, policies, hosts := mustLedger(t, st), policySet{}, map[int64]string{}
	told := &toldWorld{episodes: map[string][]Told{}, gaps: map[string][]Gap{}, last: l.Scans[len(l.Scans)-1]}
	for _, s := range l.Scans {
		night, err := ParseDate(s.ScanDate)
		if err != nil {
			t.Fatal(err)
		}
		told.nights = append(told.nights, night)
	}
	told.nights = slices.Compact(told.nights)
	err := everyRow(t.Context(), st, l, Policies, func(p *Policy) { policies.intern(*p) })
	err = errors.Join(err, everyRow(t.Context(), st, l, History, func(e *Episode) {
		hosts[e.Site] = strings.Clone(e.Host)
		told.episodes[e.Host] = append(told.episodes[e.Host], Told{Episode: *e, What: *policies[e.Policy]})
	}))
	err = errors.Join(err, everyRow(t.Context(), st, l, Gaps,
		func(g *Gap) { told.gaps[hosts[g.Site]] = append(told.gaps[hosts[g.Site]], *g) }))
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range told.episodes {
		slices.SortFunc(all, func(a, b Told) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	}
	for _, all := range told.gaps {
		slices.SortFunc(all, func(a, b Gap) int { return cmp.Compare(a.First, b.First) })
	}
	return told
}

// counted returns the capture that counts of a site on a night, nil if it was not listed: an observation beats a
// failure, then https beats http, then the later one counts.
func (w *trueWorld) counted(site int, date Date) (best *capture, scan *trueScan) {
	rank := func(c *capture) string {
		return fmt.Sprint(c.observed(), !c.plain, " ", c.at.UTC().Format(time.RFC3339Nano))
	}
	for i := range w.scans {
		if s := &w.scans[i]; s.date == date {
			for j := range s.captures {
				if c := &s.captures[j]; c.site == site && (best == nil || rank(c) > rank(best)) {
					best, scan = c, s
				}
			}
		}
	}
	return best, scan
}

// trueEpisode is an episode as the truth has it.
type trueEpisode struct {
	class, policy                             string
	cause                                     Cause
	from, previous, to                        Date
	observations, failures, pending, ofBodies int32
}

// model returns the episodes and gaps of a site by one judge who has all files, as text: night after night.
//
// Pages and texts without rules are not stored, so they keep their old judge: if another judge may have made the class,
// the cause is unknown.
func (w *trueWorld) model(site int, nights []Date, current int) (episodes, gaps []string) {
	bots, judge := registriesOfWorlds[current], current
	var all []*trueEpisode
	var gap *Gap
	listed, before := false, trueSite{}
	for _, date := range nights {
		c, scan := w.counted(site, date)
		class := Unlisted
		if c != nil {
			class, listed = c.class, true
		}
		if !listed {
			continue
		}
		if c == nil || !c.observed() {
			if gap == nil || gap.Class != class {
				if gap != nil {
					gaps = append(gaps, fmt.Sprint(gap.Class, gap.First, gap.Last, gap.Nights))
				}
				gap = &Gap{Class: class, First: date}
			}
			gap.Last = date
			gap.Nights++
			if c != nil && len(all) > 0 {
				all[len(all)-1].pending++
			}
			continue
		}
		if gap != nil {
			gaps = append(gaps, fmt.Sprint(gap.Class, gap.First, gap.Last, gap.Nights))
			gap = nil
		}
		is := trueSite{class: class}
		e := &trueEpisode{class: class, cause: First, from: date, to: date, observations: 1, ofBodies: 1}
		if class == ClassRules {
			is.file = w.truth[date][site].file
			e.policy = is.file.policy(bots)
		}
		if len(all) == 0 {
			all, before, judge = append(all, e), is, w.judgeOf(is.class, scan, current)
			continue
		}
		last, judgeBefore := all[len(all)-1], judge
		judge = w.judgeOf(is.class, scan, current)
		if last.class == e.class && last.policy == e.policy {
			last.to = date
			last.observations++
			last.failures += last.pending
			last.pending = 0
			if is.file != nil && is.file.text() != before.file.text() {
				last.ofBodies++
			}
		} else {
			e.previous, e.cause = last.to, trueCause(before, is, bots)
			if e.cause == ByPresence && judge != judgeBefore && before.class != ClassNone && is.class != ClassNone {
				e.cause = UnknownJudge
			}
			all = append(all, e)
		}
		before = is
	}
	if gap != nil {
		gaps = append(gaps, fmt.Sprint(gap.Class, gap.First, gap.Last, gap.Nights))
	}
	for _, e := range all {
		episodes = append(episodes, fmt.Sprintf("%+v", *e))
	}
	return episodes, gaps
}

// judgeOf returns the registry that has judged an observation.
func (w *trueWorld) judgeOf(class string, scan *trueScan, current int) int {
	if class == ClassRules {
		return current
	}
	return scan.registry
}

// trueCause compares files without their managed blocks.
func trueCause(before, is trueSite, bots knownBots) Cause {
	rest := func(f *trueFile) string { return (&trueFile{own: f.own}).policy(bots) }
	switch {
	case before.class != is.class && (before.class == ClassRefused || is.class == ClassRefused):
		return ByRefusal
	case before.class != is.class:
		return ByPresence
	case rest(before.file) == rest(is.file):
		return ByManaged
	}
	return ByPolicy
}

// spellOfTruth is when a site began to block a token: after a night, 0 if that is not known, and by a night.
type spellOfTruth struct {
	after, by Date
	censoring string
}

// truths counts what was compared.
type truths struct {
	nights, unknown, episodes, onsets, changes int
	censoring                                  map[string]int
	causes                                     map[Cause]int
}

// check compares the ledger with the truth; whole: its judge has judged all nights.
func (w *trueWorld) check(t *testing.T, st store.Store, whole bool, n *truths) {
	t.Helper()
	told := readTold(t, st)
	at := slices.IndexFunc(w.scans, func(s trueScan) bool { return s.id == told.last.ScanID })
	current := w.scans[at].registry
	registry, bots := w.registries[current], registriesOfWorlds[current]
	names, lacks := slices.Sorted(maps.Keys(bots)), map[string]knownBots{}
	asked := TokensAsked{ScanID: told.last.ScanID, Registry: registry}
	for _, name := range names {
		asked.Tokens = append(asked.Tokens, registry.Lookup(name))
	}
	for i, registry := range w.registries {
		lacks[registry.Version] = registriesOfWorlds[i]
	}
	asked.Lacks = func(version, token string) bool {
		_, has := lacks[version][token]
		return !has
	}
	counts, err := CountTokens(t.Context(), st, asked)
	if err != nil {
		t.Fatal(err)
	}
	if whole && !slices.ContainsFunc(w.scans, func(s trueScan) bool { return !s.stored }) {
		for site := range w.sites {
			w.checkSite(t, site, told, current, n)
		}
	}
	for i, token := range names {
		w.checkToken(t, token, current, told, counts, i, asked, n)
	}
}

// checkSite compares the episodes and gaps of a site.
func (w *trueWorld) checkSite(t *testing.T, site int, told *toldWorld, current int, n *truths) {
	t.Helper()
	var episodes, gaps []string
	for _, e := range told.episodes[hostOf(site)] {
		p := &e.What
		n.causes[e.Cause]++
		is := trueEpisode{p.Class, "", e.Cause, e.ValidFrom, e.PreviousLast, e.ValidTo, e.Observations, e.Failures, e.Pending,
			e.Bodies}
		if p.Class == ClassRules {
			is.policy = policyText(p.StarVerdict, p.OwnBlocked, p.OwnPartial, p.OwnAllowed, p.Managed)
		} else {
			is.ofBodies = 1 // another page or text is the same to the ledger, and may be counted
		}
		episodes = append(episodes, fmt.Sprintf("%+v", is))
		n.episodes++
	}
	for _, g := range told.gaps[hostOf(site)] {
		gaps = append(gaps, fmt.Sprint(g.Class, g.First, g.Last, g.Nights))
	}
	wantEpisodes, wantGaps := w.model(site, told.nights, current)
	if len(wantEpisodes) == 0 {
		return // a site that was never observed has no host in the ledger
	}
	if !slices.Equal(episodes, wantEpisodes) {
		t.Errorf("world %d: %s has the episodes\n\t%s\nwant\n\t%s", w.seed, hostOf(site), strings.Join(episodes, "\n\t"),
			strings.Join(wantEpisodes, "\n\t"))
	}
	if !slices.Equal(gaps, wantGaps) {
		t.Errorf("world %d: %s has the gaps\n\t%s\nwant\n\t%s", w.seed, hostOf(site), strings.Join(gaps, "\n\t"),
			strings.Join(wantGaps, "\n\t"))
	}
}

// asserted returns the state of a token in an episode: blocked, open, unknown, or the episode's class.
func asserted(e *Told, token string, bots knownBots, lacks func(version, token string) bool) string {
	own := slices.Concat(e.What.OwnBlocked, e.What.OwnPartial, e.What.OwnAllowed)
	blocked := !bots[token].ignoresStar && e.What.StarVerdict == "blocked"
	for _, name := range []string{bots[token].fallback, token} {
		if slices.Contains(own, name) {
			blocked = slices.Contains(e.What.OwnBlocked, name)
		}
	}
	version, _, _ := strings.Cut(e.Judge, " ")
	switch {
	case e.What.Class != ClassRules:
		return e.What.Class
	case lacks(version, token):
		return "unknown"
	case blocked:
		return "blocked"
	}
	return "open"
}

// checkToken compares the ledger's states of a token with the truth.
func (w *trueWorld) checkToken(t *testing.T, token string, registry int, told *toldWorld, counts *TokenCounts,
	place int, asked TokensAsked, n *truths) {
	t.Helper()
	bots := registriesOfWorlds[registry]
	first, survival, truly := map[FirstBlocked]int64{}, map[Date]Survival{}, map[Date]int64{}
	var changes, wantChanges []string
	blocking := int64(0)
	var spells []spellOfTruth
	for site := range w.sites {
		host := hostOf(site)
		truth := func(night Date) string { return w.truth[night][site].state(token, bots) }
		before, until, read, broke := "", Date(0), Date(0), Date(0)
		observed, dated := false, false
		var spell spellOfTruth
		state := ""
		for _, night := range told.nights {
			state = ""
			c, scan := w.counted(site, night)
			at := slices.IndexFunc(told.episodes[host], func(e Told) bool { return e.ValidFrom <= night && night <= e.ValidTo })
			hole := slices.ContainsFunc(told.gaps[host], func(g Gap) bool { return g.First <= night && night <= g.Last })
			if c == nil || !c.observed() {
				if at >= 0 && !hole {
					t.Errorf("world %d: the ledger has an observation of %s on %v, which is %+v", w.seed, host, night, c)
				}
				continue
			}
			if at < 0 || hole {
				t.Errorf("world %d: the ledger has no observation of %s on %v", w.seed, host, night)
				continue
			}
			e := &told.episodes[host][at]
			state = asserted(e, token, bots, asked.Lacks)
			want := c.class
			if want == ClassRules {
				want = truth(night)
			}
			n.nights++
			switch {
			case state == "unknown":
				n.unknown++
				if scan.stored && e.ValidFrom == e.ValidTo && strings.HasPrefix(e.Judge, w.registries[registry].Version+" ") {
					t.Errorf("world %d: %s on %v is unknown, and its file is stored", w.seed, host, night)
				}
			case state != want:
				t.Errorf("world %d: the ledger says that %s is %s for %s on %v, and it is %s (episode %+v)", w.seed, host, state,
					token, night, want, e)
			}
			if night == e.ValidFrom && (e.Cause == ByObserver || e.Cause == UnknownJudge) {
				broke = night
			}
			if c.class == ClassRules {
				if state == "blocked" && before != "blocked" {
					spell = spellOfTruth{read, night, "interval"}
					switch {
					case !observed:
						spell = spellOfTruth{0, night, "left"}
					case read == 0:
						spell = spellOfTruth{0, night, "unread"}
					case before == "unknown" || broke > read:
						spell = spellOfTruth{0, night, "unknown"}
					case truth(read) == "blocked":
						t.Errorf("world %d: %s did not begin to block %s in (%v, %v]", w.seed, host, token, read, night)
					}
					n.onsets++
					n.censoring[spell.censoring]++
					if !dated {
						first[FirstBlocked{Night: night, Censoring: spell.censoring}]++
					}
					dated = true
				}
				if until != 0 && broke <= until && (before == "open" && state == "blocked" || before == "blocked" &&
					state == "open") {
					change := map[string]string{"blocked": "began", "open": "ceased"}[state]
					wantChanges = append(wantChanges, fmt.Sprintln(host, change, until, night))
					if truth(until) != before || truth(night) != state {
						t.Errorf("world %d: %s has not %s in (%v, %v]", w.seed, host, change, until, night)
					}
				}
				before, until = state, night
			}
			observed = true
			if c.class != ClassRefused && c.class != ClassHTML {
				read = night
			}
		}
		if state == "blocked" { // on the last night
			blocking++
			spells = append(spells, spell)
			for i := len(told.nights) - 1; i >= 0 && truth(told.nights[i]) == "blocked"; i-- {
				truly[told.nights[i]]++
			}
		}
	}
	for _, night := range told.nights {
		row := Survival{Night: night, Sites: blocking}
		for _, s := range spells {
			if s.by <= night {
				row.ByThen++
			}
			if s.after < night {
				row.Maybe++
			}
		}
		survival[night] = row
	}
	is := &counts.Tokens[place]
	got := map[FirstBlocked]int64{}
	for _, row := range is.FirstBlocked {
		got[FirstBlocked{Night: row.Night, Censoring: row.Censoring}] = row.Sites
	}
	if !maps.Equal(got, first) {
		t.Errorf("world %d: %s is first blocked %v, want %v", w.seed, token, got, first)
	}
	for _, row := range is.Survival {
		if row != survival[row.Night] {
			t.Errorf("world %d: survival of %s is %+v, want %+v", w.seed, token, row, survival[row.Night])
		}
		if row.Maybe < truly[row.Night] {
			t.Errorf("world %d: at most %d sites block %s since %v, and %d do", w.seed, row.Maybe, token, row.Night,
				truly[row.Night])
		}
	}
	if blocking > 0 && len(is.Survival) != len(told.nights) {
		t.Errorf("world %d: %d nights of survival", w.seed, len(is.Survival))
	}
	for _, c := range counts.Changes {
		if c.Token == asked.Tokens[place] {
			changes = append(changes, fmt.Sprintln(c.Host, c.Change, c.Before, c.After))
		}
	}
	slices.Sort(changes)
	slices.Sort(wantChanges)
	n.changes += len(changes)
	if !slices.Equal(changes, wantChanges) {
		t.Errorf("world %d: the changes for %s are\n%v\nwant\n%v", w.seed, token, changes, wantChanges)
	}
}

// last returns the scan that is merged last.
func (w *trueWorld) last(scans []trueScan) *trueScan {
	last := &scans[0]
	for i := range scans {
		if s := &scans[i]; s.date > last.date || s.date == last.date && s.id > last.id {
			last = s
		}
	}
	return last
}

// TestTruth compares ledgers with worlds of known truth. The ledger asserts nothing false about a night, each onset
// lies in its interval, survival is bounded, and the order and grouping of merges do not matter.
func TestTruth(t *testing.T) {
	worlds := uint64(60)
	if testing.Short() {
		worlds = 4
	}
	n := &truths{censoring: map[string]int{}, causes: map[Cause]int{}}
	for seed := range worlds {
		w, dir, whole := newTrueWorld(t, seed), newDir(t), true
		by := func(s *trueScan) Options { return Options{Rejudge: RejudgeBy(w.registries[s.registry])} }
		rng := rand.New(rand.NewPCG(seed, 40))
		var ids []string
		for i := range w.scans {
			w.write(t, dir, &w.scans[i])
			ids = append(ids, w.scans[i].id)
			if last := w.last(w.scans[:i+1]); i == len(w.scans)-1 || rng.IntN(2) == 0 {
				if _, err := Update(t.Context(), dir, by(&w.scans[i])); err != nil {
					t.Fatal(err)
				}
				whole = last.registry == w.scans[i].registry // else no judge of the last night is available
			}
		}
		last := w.last(w.scans)
		w.check(t, dir, whole, n)
		before := contents(t, dir)
		mustRebuild(t, dir, by(last))
		want := contents(t, dir)
		if whole && before != want {
			t.Errorf("world %d: derived anew, the ledger is\n%s\nand was\n%s", seed, want, before)
		} else if !whole {
			w.check(t, dir, true, n)
		}
		forget(t, dir)
		publication(t, dir, commit.PublicationDiscarded, ids...)
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for len(ids) > 0 {
			some := 1 + rng.IntN(min(len(ids), 12))
			publication(t, dir, commit.PublicationDone, ids[:some]...)
			ids = ids[some:]
			if _, err := Update(t.Context(), dir, by(last)); err != nil {
				t.Fatal(err)
			}
		}
		if got := contents(t, dir); got != want {
			t.Errorf("world %d: merged in another order, the ledger is\n%s\nand was\n%s", seed, got, want)
		}
	}
	t.Logf("%d worlds: %+v", worlds, *n)
	if testing.Short() {
		return
	}
	for _, censoring := range []string{"left", "unread", "unknown", "interval"} {
		if n.censoring[censoring] < 10 {
			t.Errorf("only %d onsets are %s: the worlds do not test it", n.censoring[censoring], censoring)
		}
	}
	if n.unknown == 0 || n.changes < 50 {
		t.Errorf("the worlds have too little: %+v", *n)
	}
}

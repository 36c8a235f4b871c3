package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/reaudit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// registries returns a registry with the token ZetaBot (true), and one without (false).
func registries(t testing.TB) map[bool]*tokens.Registry {
	t.Helper()
	all := map[bool]*tokens.Registry{}
	for has, text := range map[bool]string{false: "name\nGPTBot\n", true: "name\nGPTBot\nZetaBot\n"} {
		registry, err := tokens.Load(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all[has] = registry
	}
	return all
}

// stateOf returns the ledger's state of ZetaBot at a site on a night: b blocked, o open, ? unknown, . no rules.
func stateOf(t testing.TB, st store.Store, night Date, lacks string) string {
	t.Helper()
	l, policies, state := mustLedger(t, st), policySet{}, "."
	err := everyRow(t.Context(), st, l, Policies, func(p *Policy) { policies.intern(*p) })
	err = errors.Join(err, everyRow(t.Context(), st, l, History, func(e *Episode) {
		if e.ValidFrom > night || e.ValidTo < night || policies[e.Policy].Class != ClassRules {
			return
		}
		switch version, _, _ := strings.Cut(e.Judge, " "); {
		case version == lacks:
			state = "?"
		case slices.Contains(policies[e.Policy].OwnBlocked, "ZetaBot"):
			state = "b"
		default:
			state = "o"
		}
	}))
	err = errors.Join(err, everyRow(t.Context(), st, l, Gaps, func(g *Gap) {
		if g.First <= night && night <= g.Last {
			state = "."
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestAnotherRegistry has a site night by night, and a registry that gains or loses a token. A word is a scan: o and p
// are files that say nothing of the token, b and c block it, F is a refusal, - a failure. With + the registry has the
// token, with ! bodies are not stored, and & is a second scan of the night. | prunes the nights before. The ledger's
// state is that of the files and of reaudit, or unknown.
func TestAnotherRegistry(t *testing.T) {
	by := registries(t)
	testFiles["o"], testFiles["p"] = "User-agent: *\nDisallow: /x\n", "# p\nUser-agent: *\nDisallow: /x\n"
	testFiles["B"], testFiles["C"] = testFiles["o"]+"User-agent: ZetaBot\nDisallow: /\n", testFiles["p"]+
		"User-agent: ZetaBot\nDisallow: /\n"
	what := map[byte]string{'o': "o", 'p': "p", 'b': "B", 'c': "C", 'F': "403", '-': "dead"}
	f := func(scans, want string) {
		t.Helper()
		dir, truth, night, has := newDir(t), "", Date(20000), false
		options := func() Options { return Options{Rejudge: RejudgeBy(by[has])} }
		check := func(at string) {
			t.Helper()
			got := ""
			for i := range truth {
				got += stateOf(t, dir, Date(20001+i), by[false].Version)
			}
			if got != want {
				t.Errorf("%s %s: %s, want %s", scans, at, got, want)
			}
			for i := range got {
				if got[i] != '?' && got[i] != truth[i] {
					t.Errorf("%s %s: night %d is %c, and its file says %c", scans, at, i+1, got[i], truth[i])
				}
			}
		}
		for i, word := range strings.Fields(scans) {
			if word == "|" {
				prunedBy(t, dir, (night + 1).String(), options())
				continue
			}
			state := strings.NewReplacer("p", "o", "c", "b", "F", ".", "-", ".").Replace(word[:1])
			switch {
			case !strings.Contains(word, "&"):
				truth += state
				night++
			case state != ".": // an observation beats a failure
				truth = truth[:len(truth)-1] + state
			}
			has = strings.Contains(word, "+")
			scanned(t, dir, fmt.Sprint("n", i), night.String(), func(o *sink.Options) {
				if o.Registry = by[has]; strings.Contains(word, "!") {
					o.Tables = []string{schema.Sites}
				}
			}, "h.example="+what[word[0]])
			if _, err := Update(t.Context(), dir, options()); err != nil {
				t.Fatal(err)
			}
		}
		check("continued")
		before := contents(t, dir)
		mustRebuild(t, dir, options())
		if after := contents(t, dir); after != before {
			t.Errorf("%s: derived anew, the ledger is\n%s\nand was\n%s", scans, after, before)
		}
		for _, s := range scansOf(t, dir, idsOf(t, dir)...) {
			if got := reauditedState(t, dir, s.ScanID, by[has]); got != "" {
				date, _ := ParseDate(s.ScanDate)
				if state := stateOf(t, dir, date, by[false].Version); state != "?" && state != got &&
					!strings.Contains(scans, "&") {
					t.Errorf("%s: reaudit of %s finds %s, and the ledger %s", scans, s.ScanDate, got, state)
				}
			}
		}
		mustRebuild(t, dir, Options{}) // without a judge
		want = strings.Repeat("?", len(truth))
		for i := range truth {
			if got := stateOf(t, dir, Date(20001+i), by[false].Version); got != "?" && got != truth[i:i+1] {
				t.Errorf("%s without a judge: night %d is %s, and its file says %c", scans, i+1, got, truth[i])
			}
		}
	}
	f("o o o o o b b b b b+", "ooooobbbbb")
	f("o p b c b+", "oobbb")
	f("b o b o+", "bobo")
	f("b b b+", "bbb")
	f("o F b - c+ F+", "o.b.b.")
	f("- b& o+", "bo")
	f("b -&+ c+", "bb")
	// The registry loses it, and has it again.
	f("o+ b+ b", "???")
	f("o+ b+ b c+", "obbb")
	// Bodies that are not stored.
	f("b! b! b+", "bbb")
	f("o! b! b+", "??b")
	f("o! b b+", "?bb")
	f("o b! b+", "obb")
	f("o b! c+", "o?b")
	f("b! c+", "?b")
	f("b! F! c+", "?.b")
	f("o! - - b+", "?..b")
	// Nights that were pruned keep the last file of an open episode.
	f("b b | b+", "bbb")
	f("b | o+", "bo")
	f("b | -+ o+", "b.o")
	f("b | o o+ b+", "boob")
	f("o b | b b+", "??bb")
	f("o b | c+ b+", "??bb")
	f("b F | b+", "?.b")
	// They keep the earlier judgement of another registry.
	f("o b c+ | b+", "obbb")
	f("o b c+ | | b+ | b+ o+", "obbbbo")
	f("o b | b b+ | o+", "??bbo")
	f("o+ b+ | b o+", "obbo")
}

// nightsOf returns a function that scans one site, and merges the scan, by the registry with ZetaBot or without. The site
// has the file o, or B, which blocks ZetaBot.
func nightsOf(t *testing.T, st store.Store, by map[bool]*tokens.Registry) func(date Date, has bool, file string) {
	testFiles["o"], testFiles["B"] = "User-agent: *\nDisallow: /x\n", "User-agent: ZetaBot\nDisallow: /\n"
	return func(date Date, has bool, file string) {
		t.Helper()
		scanned(t, st, "n"+date.String(), date.String(), func(o *sink.Options) { o.Registry = by[has] }, "h.example="+file)
		if _, err := Update(t.Context(), st, Options{Rejudge: RejudgeBy(by[has])}); err != nil {
			t.Fatal(err)
		}
	}
}

// mustBeAsRebuilt fails the test unless the ledger is what it is when derived anew.
func mustBeAsRebuilt(t *testing.T, st store.Store, o Options) {
	t.Helper()
	before := contents(t, st)
	mustRebuild(t, st, o)
	if after := contents(t, st); after != before {
		t.Errorf("derived anew, the ledger is\n%s\nand was\n%s", after, before)
	}
}

// TestLateScanOfAnotherRegistry merges a late scan by a program whose registry is not that of the last night. Until the
// next night, its state may be unknown, and nothing is pruned. Then the ledger is what it is when derived anew.
func TestLateScanOfAnotherRegistry(t *testing.T) {
	by, dir := registries(t), newDir(t)
	night := nightsOf(t, dir, by)
	states := func() (all string) {
		for date := Date(20001); date <= 20004; date++ {
			all += stateOf(t, dir, date, by[false].Version)
		}
		return all
	}
	night(20001, false, "B")
	night(20003, true, "o")
	night(20002, false, "B")
	if got := states(); strings.ContainsFunc(got[:3], func(r rune) bool { return !strings.ContainsRune("b?o", r) }) ||
		got[2] != 'o' {
		t.Errorf("after the late scan the nights are %s", got)
	}
	all, err := commit.Scans(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prune(t.Context(), dir, Options{Rejudge: RejudgeBy(by[true])}, Pruning{All: all, Nights: all[:1]}); err ==
		nil || !strings.Contains(err.Error(), "the next night replaces it") {
		t.Errorf("pruning: %v", err)
	}
	night(20004, true, "o")
	if got := states(); got != "bboo" {
		t.Errorf("after the next night the nights are %s, want bboo", got)
	}
	mustBeAsRebuilt(t, dir, Options{Rejudge: RejudgeBy(by[true])})
}

// TestAnotherRegistryWithoutAScan has another registry come while a scan of the ledger is not there. Once it is back,
// the next night judges all nights.
func TestAnotherRegistryWithoutAScan(t *testing.T) {
	by, dir := registries(t), newDir(t)
	night := nightsOf(t, dir, by)
	night(20001, false, "B")
	night(20002, false, "B")
	name := commit.ManifestName("n" + Date(20001).String())
	manifest, err := store.ReadAll(t.Context(), dir, name, 1<<20)
	if err := errors.Join(err, dir.Delete(t.Context(), name)); err != nil {
		t.Fatal(err)
	}
	night(20003, true, "o")
	if err := dir.Put(t.Context(), name, manifest); err != nil {
		t.Fatal(err)
	}
	night(20004, true, "o")
	mustBeAsRebuilt(t, dir, Options{Rejudge: RejudgeBy(by[true])})
}

// prunedBy is pruned with these options.
func prunedBy(t testing.TB, st store.Store, before string, o Options) {
	t.Helper()
	all, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	p := Pruning{All: all}
	for _, m := range all {
		if m.ScanDate < before {
			p.Nights = append(p.Nights, m)
		}
	}
	removing, err := Prune(t.Context(), st, o, p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range removing {
		s := &removing[i]
		if err := errors.Join(st.Delete(t.Context(), commit.ManifestName(s.ScanID)), commit.RemoveScan(t.Context(), st,
			s)); err != nil {
			t.Fatal(err)
		}
	}
}

func idsOf(t testing.TB, st store.Store) (ids []string) {
	t.Helper()
	all, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		ids = append(ids, m.ScanID)
	}
	return ids
}

// reauditedState returns the state of ZetaBot at the site of a scan by reaudit, in the form of stateOf; "" without a
// stored body.
func reauditedState(t testing.TB, st store.Store, id string, registry *tokens.Registry) string {
	t.Helper()
	scan, err := commit.ReadScan(t.Context(), st, id)
	if err != nil {
		t.Fatal(err)
	}
	to := newDir(t)
	if _, err := reaudit.Scan(t.Context(), scan, to, reaudit.Options{Judge: audit.New(registry).Judge, Registry: registry,
		Workers: 1}); err != nil {
		t.Fatal(err)
	}
	if scan, err = commit.ReadScan(t.Context(), to, id); err != nil {
		t.Fatal(err)
	}
	state := ""
	for row, err := range read.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
		switch {
		case err != nil:
			t.Fatal(err)
		case row.RegistryVersion != registry.Version || registry.Lookup("ZetaBot") < 0:
		case row.Finding != ClassRules:
			state = "."
		case slices.Contains(row.Blocked, "ZetaBot"):
			state = "b"
		default:
			state = "o"
		}
	}
	return state
}

package summary

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// sensitive returns a scan's shares of GPTBot under each choice.
func sensitive(t *testing.T, st store.Store, definition string) map[string]Choice {
	t.Helper()
	s, err := SensitivityOf(t.Context(), st, "cut", "gptbot", Options{Definition: definition})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]Choice{}
	for _, r := range s.Rows {
		rows[r.ID] = r
	}
	return rows
}

// TestSensitivityPlainly counts every choice again, from the judged sites in memory, by every definition that it is
// for.
func TestSensitivityPlainly(t *testing.T) {
	sites := surveytest.Mixed(t, 3000, 18)
	st := surveytest.Written(t, sites, surveytest.Cut{Rows: 700, Shards: 2, Seed: 3})
	id := tokens.Default().Lookup("GPTBot")
	for _, definition := range survey.NamesOverRules() {
		at := slices.Index(survey.DefinitionNames(), definition)
		blocksIn := func(s *audit.Site) bool {
			row := surveytest.PlainToken(s, surveytest.PlainCells(s)[id])
			return *survey.Definitions()[at].In(&row) > 0
		}
		type count struct{ sites, of int }
		want := map[string]*count{}
		add := func(choice string, in, blocks bool) {
			if want[choice] == nil {
				want[choice] = &count{}
			}
			if in {
				want[choice].of++
				if blocks {
					want[choice].sites++
				}
			}
		}
		unseen := map[bool]int{} // by whether it is refused or HTML
		type file struct {
			sites   int
			blocks  bool
			domains map[string]bool
		}
		files, domains := map[string]*file{}, map[string][]*audit.Site{}
		for _, s := range sites {
			blocks, rules := blocksIn(s), s.Report.Finding == audit.FindingRules
			add("rules", rules, blocks)
			add("file", s.Report.Access == parser.AccessConditional, blocks)
			add("answered", s.Fetch.Status != 0, blocks && rules)
			add("listed", true, blocks && rules)
			other := len(s.Fetch.Hops) > 0 && s.Fetch.Final.Origin.Host() == "elsewhere.net"
			add("same_domain", rules && !other, blocks)
			add("unmanaged", rules && !strings.Contains(string(s.Fetch.Body), "Cloudflare"), blocks)
			again := &audit.Site{Dialect: parser.RFC, Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200,
				Body: s.Fetch.Body}}
			audit.Judge(again)
			add("rfc", rules, blocksIn(again))
			switch s.Report.Finding {
			case audit.FindingRefused, audit.FindingHTML:
				unseen[true]++
			case audit.FindingRules, audit.FindingNoRules, audit.FindingNone:
			default:
				unseen[false]++
			}
			domain := cmp.Or(s.Domain, s.Origin.Host())
			domains[domain] = append(domains[domain], s)
			if rules {
				f := files[string(s.Fetch.Body)]
				if f == nil {
					f = &file{blocks: blocks, domains: map[string]bool{}}
					files[string(s.Fetch.Body)] = f
				}
				f.sites++
				f.domains[domain] = true
			}
		}
		for _, f := range files {
			if len(f.domains) >= 100 {
				f.sites = 1
			}
			for range f.sites {
				add("files", true, f.blocks)
			}
		}
		for domain, of := range domains {
			slices.SortFunc(of, func(a, b *audit.Site) int {
				key := func(s *audit.Site) (int, int64) {
					class := slices.Index([]string{domain, "www." + domain}, s.Origin.Host())
					return []int{2, 0, 1}[class+1], cmp.Or(s.Rank, 1<<40)
				}
				classA, rankA := key(a)
				classB, rankB := key(b)
				return cmp.Or(cmp.Compare(classA, classB), cmp.Compare(rankA, rankB), cmp.Compare(a.Seq, b.Seq))
			})
			add("domains", of[0].Report.Finding == audit.FindingRules, blocksIn(of[0]))
		}
		rules := *want["rules"]
		want["unobserved_open"] = &count{rules.sites, rules.of + unseen[false]}
		want["unobserved_blocking"] = &count{rules.sites + unseen[false], rules.of + unseen[false]}
		all := unseen[false] + unseen[true]
		want["unread_open"], want["unread_blocking"] = &count{rules.sites, rules.of + all},
			&count{rules.sites + all, rules.of + all}

		got := sensitive(t, st, definition)
		if len(got) != len(want) {
			t.Errorf("%d choices, want %d", len(got), len(want))
		}
		for choice, w := range want {
			if g := got[choice]; int(g.Sites) != w.sites || int(g.Of) != w.of || g.Share == nil ||
				*g.Share != float64(w.sites)/float64(w.of) {
				t.Errorf("by %s, %s: got %d of %d, want %+v", definition, choice, g.Sites, g.Of, *w)
			}
		}
		if definition != survey.Full {
			continue
		}
		for _, choice := range []string{"file", "same_domain", "domains", "files", "unmanaged", "rfc"} {
			// if equal, the test would show nothing
			if *want[choice] == rules {
				t.Errorf("%s counts as rules does", choice)
			}
		}
	}
}

// TestDeliveryNetworkHidesRules puts sites behind a delivery network that answers our crawler with something else than
// the file. The sites' files are known here. If the network does so whatever a site's file says, the share over sites
// with rules stays right, within the error of the sample, while a share that reads answers like a crawler is far off.
// If the network does so for the sites that block, no denominator helps, but the bounds contain the truth: the outer
// bounds if nothing shows what was hidden.
func TestDeliveryNetworkHidesRules(t *testing.T) {
	answers := map[string]func(*exchange.Response){
		"403":         func(f *exchange.Response) { f.Status = 403 },
		"429":         func(f *exchange.Response) { f.Status = 429 },
		"challenge":   func(f *exchange.Response) { f.Status, f.Fields.Challenge = 403, "cloudflare" },
		"maintenance": func(f *exchange.Response) { f.Body = []byte("<!doctype html><title>Back soon</title>") },
		"503":         func(f *exchange.Response) { f.Status = 503 },
	}
	const n, blocking = 4000, 0.3
	for name, answer := range answers {
		for _, onlyBlocking := range []bool{false, true} {
			random := rand.New(rand.NewPCG(18, 2026))
			truth := 0
			var sites []*audit.Site
			for i := range n {
				o, _ := origin.Parse(fmt.Sprintf("host%d.example", i))
				s := &audit.Site{Seq: uint64(i), Origin: o}
				blocks := random.Float64() < blocking
				s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: o.As(origin.HTTPS),
					Body: []byte("User-agent: *\nDisallow: /private/\n")}
				if blocks {
					truth++
					s.Fetch.Body = []byte("User-agent: GPTBot\nDisallow: /\n")
				}
				if behind := random.Float64() < 0.4; behind && (blocks || !onlyBlocking) {
					if answer(&s.Fetch); s.Fetch.Status != 200 {
						s.Fetch.Body = nil
					}
				}
				audit.Judge(s)
				sites = append(sites, s)
			}
			got := sensitive(t, surveytest.Written(t, sites, surveytest.Cut{Rows: n, Shards: 1}), survey.Full)
			share, listed := *got["rules"].Share, *got["listed"].Share
			is := float64(truth) / n
			inner := *got["unobserved_open"].Share <= is && is <= *got["unobserved_blocking"].Share
			outer := *got["unread_open"].Share <= is && is <= *got["unread_blocking"].Share
			t.Logf(
				"%-11s only blocking %5v: truth %.3f, over rules %.3f, over listed %.3f, bounds %.3f to %.3f, outer %.3f to %.3f",
				name, onlyBlocking, is,
				share, listed, *got["unobserved_open"].Share, *got["unobserved_blocking"].Share, *got["unread_open"].Share,
				*got["unread_blocking"].Share)
			if !outer || !inner && name != "403" && name != "maintenance" {
				t.Errorf("%s, only blocking %v: %.3f is not within the bounds", name, onlyBlocking, is)
			}
			if !onlyBlocking && (share < is-0.03 || share > is+0.03 || listed > is-0.1) {
				t.Errorf("%s: %.3f of sites with rules, %.3f of those listed, want %.3f and far less", name, share, listed, is)
			}
		}
	}
}

// TestSensitivityNeeds checks that scans without the needed tables are refused, with an error that says what is
// missing.
func TestSensitivityNeeds(t *testing.T) {
	st := surveytest.Written(t, surveytest.Mixed(t, 30, 18), surveytest.Cut{Rows: 30, Shards: 1})
	for definition, token := range map[string]string{"rfc_effective": "GPTBot", survey.Full: "NoSuchBot", "unheard": "GPTBot"} {
		if _, err := SensitivityOf(t.Context(), st, "cut", token, Options{Definition: definition}); err == nil {
			t.Errorf("%s by %s: no error", token, definition)
		}
	}
}

package audit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

const registryHead = "name | aliases | category | purpose | operator | * | fallback | source | checked\n"

// TestPolicyVectors compares the ids of each pair in policies.txt.
func TestPolicyVectors(t *testing.T) {
	n := map[string]int{}
	var kind, about, was, rows, ends string
	var files [2]strings.Builder
	at := 0
	compare := func() {
		t.Helper()
		if kind == "" {
			return
		}
		with := func(rows string) *audit.Auditor {
			if rows == "" {
				return audit.New(tokens.Default())
			}
			registry, err := tokens.Load(strings.NewReader(registryHead + rows))
			if err != nil {
				t.Fatalf("%s: %v", about, err)
			}
			return audit.New(registry)
		}
		first, second := files[0].String(), files[1].String()
		if strings.TrimSpace(second) == "" {
			second = first
		}
		second = strings.ReplaceAll(second, "\n", map[string]string{"": "\n", "crlf": "\r\n", "cr": "\r"}[ends])
		a, b := judged(with(was), first).Report.Policy, judged(with(rows), second).Report.Policy
		if same := a.ID == b.ID; same != (kind == "same") || a.ID == 0 {
			t.Errorf("%s: the policies are the same: %v\n%+v\n%+v", about, same, a, b)
		}
		n[kind]++
		kind, was, rows, ends, at = "", "", "", "", 0
		files[0].Reset()
		files[1].Reset()
	}
	for line := range strings.Lines(readVectors(t, "policies.txt")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "same" || word == "other":
			compare()
			kind, about = word, rest
		case kind == "" || strings.HasPrefix(word, "%"):
		case word == "row":
			rows += rest + "\n"
		case word == "was":
			was += rest + "\n"
		case word == "ends":
			ends = rest
		case word == "---":
			at = 1
		default:
			files[at].WriteString(line)
		}
	}
	compare()
	if n["same"] < 15 || n["other"] < 15 {
		t.Errorf("%v", n)
	}
}

// TestCells compares the cells of all tokens with the rows of verdicts and the lists of sites, for real files and for
// made ones, by the default registry and by a user's.
func TestCells(t *testing.T) {
	own, err := tokens.Load(strings.NewReader(readVectors(t, "registry.txt")))
	if err != nil {
		t.Fatal(err)
	}
	f := func(t *testing.T, bodies [][]byte) {
		for _, registry := range []*tokens.Registry{tokens.Default(), own} {
			auditor := audit.New(registry)
			for _, body := range bodies {
				s := judged(auditor, string(body))
				r, p := &s.Report, &s.Report.Policy
				want := make([]audit.Cell, len(registry.Tokens))
				var star audit.Cell
				for i := range r.Verdicts {
					v := &r.Verdicts[i]
					var dpi audit.Cell
					if v.DPI == audit.DPIAll {
						dpi = audit.CellDPIAll
					}
					switch {
					case string(v.Token) == "*":
						if star = dpi; v.Via == audit.ViaStar {
							star |= audit.CellStar
						}
					case v.ID < 0:
					case v.Lenient:
						if !slices.Contains(r.Named, uint16(v.ID)) {
							want[v.ID] |= audit.CellLenient
						}
					case v.Via == audit.ViaFallback:
						want[v.ID] |= dpi | audit.CellFallback
					default:
						if want[v.ID] |= dpi | audit.CellOwn; !v.RootAllowed {
							want[v.ID] |= audit.CellRoot
						}
					}
				}
				for id := range want {
					switch {
					case want[id]&(audit.CellOwn|audit.CellFallback) != 0:
					case registry.Tokens[id].HeedsStar:
						want[id] |= star
					default:
						want[id] |= star & audit.CellDPIAll
					}
				}
				for _, id := range r.Blocked {
					want[id] |= audit.CellBlocked
				}
				for _, id := range r.Partial {
					want[id] |= audit.CellPartial
				}
				if got := p.Cells(nil, registry); !slices.Equal(got, want) {
					for id := range got {
						if got[id] != want[id] {
							t.Errorf("%s: %b, want %b", registry.Tokens[id].Name, got[id], want[id])
						}
					}
					t.Fatalf("%.2000q", body)
				}
			}
		}
	}
	f(t, policyBodies(t))
	for _, corpus := range []string{"typical12k", "modern-ai"} {
		t.Run(corpus, func(t *testing.T) { f(t, sharedtest.Bodies(t, corpus)) })
	}
}

// policyBodies are the files of policies.txt and crawlers.txt, each of their blocks as one file, and
// testdata/everything.txt.
func policyBodies(t *testing.T) (bodies [][]byte) {
	for _, block := range strings.Split(readVectors(t, "policies.txt"), "---\n") {
		bodies = append(bodies, []byte(block))
	}
	for _, block := range strings.Split(readVectors(t, "crawlers.txt"), "-----\n") {
		_, body, _ := strings.Cut(block, "\n\n")
		bodies = append(bodies, []byte(body))
	}
	return append(bodies, []byte(readVectors(t, "../everything.txt")), nil)
}

// TestRFCPolicy compares Report.RFCPolicy with the policy of the same site judged in the RFC dialect. Most files are
// not read a second time for RFCPolicy.
func TestRFCPolicy(t *testing.T) {
	auditor := audit.New(tokens.Default())
	f := func(t *testing.T, bodies [][]byte) {
		differ := 0
		for _, body := range bodies {
			s, rfc := judged(auditor, string(body)), &audit.Site{IsFile: true, Dialect: parser.RFC}
			rfc.Fetch.Body = body
			auditor.Judge(rfc)
			got, want := &s.Report.RFCPolicy, &rfc.Report.Policy
			if got.ID != want.ID || !slices.Equal(got.Cells(nil, auditor.Registry()), want.Cells(nil, auditor.Registry())) ||
				string(got.ContentSignal) != string(want.ContentSignal) || rfc.Report.RFCPolicy.ID != want.ID {
				t.Fatalf("%+v, want %+v\n%.2000q", got, want, body)
			}
			if got.ID != s.Report.Policy.ID {
				differ++
			}
		}
		t.Logf("%d of %d policies differ by the RFC", differ, len(bodies))
	}
	f(t,
		append(policyBodies(t),
			[]byte(
				"User-agent: GPTBot\nDissalow: /\nContent-Signal: search=no\n\nUser-agent: *\nDisallow: /a\nContent-Signal: a=1, b=2\n")))
	for _, corpus := range []string{"typical12k", "modern-ai"} {
		t.Run(corpus, func(t *testing.T) { f(t, sharedtest.Bodies(t, corpus)) })
	}
}

// TestPolicyOfStatus: a site without a file in force has no policy.
func TestPolicyOfStatus(t *testing.T) {
	s := judged(audit.New(tokens.Default()), "User-agent: *\nDisallow: /\n")
	s.Fetch.Status = 503
	audit.Judge(s)
	if s.Report.Policy.ID != 0 || s.Report.RFCPolicy.ID != 0 || len(s.Report.Policy.Named) > 0 {
		t.Errorf("%+v", s.Report.Policy)
	}
}

// TestUnmanaged compares the policy of a file without its managed blocks with that of a file that was written without
// them.
func TestUnmanaged(t *testing.T) {
	auditor := audit.New(tokens.Default())
	const (
		begin = "# BEGIN Cloudflare Managed content\n"
		block = begin + "User-agent: GPTBot\nDisallow: /\n# END Cloudflare Managed Content\n"
		own   = "User-agent: *\nDisallow: /a\nUser-agent: GPTBot\nAllow: /news\n"
	)
	f := func(file, rest string) {
		t.Helper()
		s, want := judged(auditor, file), judged(auditor, rest).Report.Policy.ID
		if !s.Report.ManagedBlock || s.Report.Unmanaged != want || rest != file && want == s.Report.Policy.ID {
			t.Errorf("%q: %d without its block, want %d; with it %d", file, s.Report.Unmanaged, want, s.Report.Policy.ID)
		}
	}
	f(block+own, own)
	f(own+block, own)
	f(block, "")
	f("User-agent: a\n"+block+"Disallow: /\n", "User-agent: a\nDisallow: /\n")
	f(block+own+block, own)
	f("\xEF\xBB\xBF"+block+own, own)
	f(strings.ReplaceAll(block+own, "\n", "\r"), own)
	f(own+begin+"User-agent: GPTBot\nDisallow: /\n", own) // it was cut
	f(block+"# START YOAST BLOCK\n"+own, "# START YOAST BLOCK\n"+own)
	f("User-agent: x\nDisallow: / "+begin, "User-agent: x\nDisallow: / "+begin)
	f(strings.Repeat("User-agent: a\nDisallow: / "+block, 3), strings.Repeat("User-agent: a\nDisallow: / "+begin+
		"User-agent: GPTBot\nDisallow: /\n# END Cloudflare Managed Content\n", 3))
	if s := judged(auditor, own); s.Report.Unmanaged != 0 {
		t.Errorf("a file without a block: %d", s.Report.Unmanaged)
	}
}

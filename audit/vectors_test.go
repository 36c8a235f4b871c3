package audit_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// readVectors reads a file of testdata/vectors, see the README there.
func readVectors(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// judged returns a site that answered with the body.
func judged(by *audit.Auditor, body string) *audit.Site {
	s := new(audit.Site)
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, []byte(body)
	by.Judge(s)
	return s
}

// spelled returns the names of registry tokens.
func spelled(reg *tokens.Registry, list []uint16) (names []string) {
	for _, id := range list {
		names = append(names, reg.Tokens[id].Name)
	}
	return names
}

// TestNameVectors reads each value of names.txt.
func TestNameVectors(t *testing.T) {
	auditor, n := audit.New(tokens.Default()), 0
	for line := range strings.Lines(readVectors(t, "names.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '%' {
			continue
		}
		value, want, ok := strings.Cut(line, "=>")
		value, want = strings.TrimSpace(value), strings.TrimSpace(want)
		if !ok {
			t.Fatalf("not a reading: %q", line)
		}
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		n++
		s := judged(auditor, "User-agent: "+value+"\nDisallow: /\n")
		if got := reading(s); got != want {
			t.Errorf("%q is read as %s, want %s", value, got, want)
		}
		lists := len(s.Report.Named) + len(s.Report.Blocked) + len(s.Report.Partial)
		if strings.HasPrefix(want, "lenient ") && lists > 0 {
			t.Errorf("%q: named %v, blocked %v, partial %v: a lenient match stands outside", value, s.Report.Named,
				s.Report.Blocked, s.Report.Partial)
		}
		if name, ok := strings.CutPrefix(want, "strict "); ok {
			id := auditor.Registry().Lookup(name)
			if named := slices.Contains(s.Report.Named, uint16(id)); named != (id >= 0) || len(s.Report.Named) > 1 {
				t.Errorf("%q: named are %v", value, spelled(auditor.Registry(), s.Report.Named))
			}
		}
	}
	t.Logf("%d values", n)
}

// TestTokensAreNamed checks which names of each token of the registry count as naming it: a name that is a product
// token, else the first alias that is one. Other spellings do not.
func TestTokensAreNamed(t *testing.T) {
	auditor := audit.New(tokens.Default())
	byAlias := 0
	for _, token := range auditor.Registry().Tokens {
		product := slices.IndexFunc(append([]string{token.Name}, token.Aliases...), tokens.IsProductToken[string])
		for i, name := range append([]string{token.Name}, token.Aliases...) {
			if i != product && strings.EqualFold(name[:tokens.ProductTokenLen(name)], token.InFiles()) && token.InFiles() != "" {
				continue // it is read as its beginning, which is the token
			}
			want := "lenient " + token.Name
			if i == product {
				want = "strict " + token.Name
				byAlias += min(1, i)
			}
			for _, spelling := range []string{name, strings.ToUpper(name)} {
				if got := reading(judged(auditor, "User-agent: "+spelling+"\nDisallow: /\n")); got != want {
					t.Errorf("%s is read as %s, want %s", spelling, got, want)
				}
			}
		}
	}
	if byAlias == 0 {
		t.Error("the registry has no token that files name by an alias")
	}
}

// reading describes the agent of a file's single user-agent line, in the form of names.txt.
func reading(s *audit.Site) string {
	got := []string{}
	for _, v := range s.Report.Verdicts {
		switch {
		case v.Via == audit.ViaStar:
			got = append(got, "star")
		case v.Via != audit.ViaOwn:
		case v.Decision != audit.Blocked:
			got = append(got, fmt.Sprintf("%s, but %v", v.Token, v.Decision))
		case v.Lenient:
			got = append(got, "lenient "+string(v.Token))
		default:
			got = append(got, "strict "+string(v.Token))
		}
	}
	if len(got) == 0 {
		return "nobody"
	}
	return strings.Join(got, " and ")
}

// crawlerBlock is a block of crawlers.txt whose header is being read.
type crawlerBlock struct {
	*testing.T
	cite string
	site *audit.Site
	all  audit.Result
	reg  *tokens.Registry
}

// TestCrawlerVectors checks every line of crawlers.txt.
func TestCrawlerVectors(t *testing.T) {
	own, err := tokens.Load(strings.NewReader(readVectors(t, "registry.txt")))
	if err != nil {
		t.Fatal(err)
	}
	auditors := map[bool]*audit.Auditor{false: audit.New(tokens.Default()), true: audit.New(own)}
	blocks, questions := strings.Split(readVectors(t, "crawlers.txt"), "-----\n"), 0
	for i, block := range blocks {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			head, body, _ := strings.Cut(block, "\n\n")
			auditor := auditors[strings.Contains(head, "registry: own\n")]
			b := crawlerBlock{T: t, reg: auditor.Registry(), site: judged(auditor, body)}
			b.all = audit.Explain(b.site)
			questions += b.ask(head)
		})
	}
	t.Logf("%d blocks, %d questions", len(blocks), questions)
}

// ask checks the fields of a header and returns their number.
func (b *crawlerBlock) ask(head string) (n int) {
	question := map[string]string{}
	for line := range strings.Lines(head) {
		field, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case strings.HasPrefix(line, "%"):
			continue
		case !ok:
			b.Fatalf("not a field: %q", line)
		}
		switch field {
		case "cite":
			b.cite = value
		case "registry":
		case "rows":
			var rows []string
			for _, v := range b.site.Report.Verdicts[1:] {
				row := string(v.Token)
				if v.Lenient {
					row += " lenient"
				}
				rows = append(rows, row)
			}
			b.same("rows", rows, value)
		case "named":
			b.same("named", spelled(b.reg, b.site.Report.Named), value)
		case "blocked":
			b.same("blocked", spelled(b.reg, b.site.Report.Blocked), value)
		case "partial":
			b.same("partial", spelled(b.reg, b.site.Report.Partial), value)
		case "agent", "lenient", "via", "group", "line":
			question[field] = value
		case "expect":
			n++
			b.answer(question, value)
			question = map[string]string{}
		default:
			b.Fatalf("unknown field %q", field)
		}
	}
	if b.cite == "" || n == 0 {
		b.Error("the block cites nothing, or asks nothing")
	}
	return n
}

// same compares a set of names with a list separated by commas.
func (b *crawlerBlock) same(what string, got []string, list string) {
	b.Helper()
	var want []string
	if list != "none" {
		want = strings.Split(list, ", ")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("%s\n%s: %s, want %s", b.cite, what, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// answer compares a crawler's verdict and its reason.
func (b *crawlerBlock) answer(q map[string]string, verdict string) {
	b.Helper()
	got := b.follow(q["agent"], q["lenient"] == "yes")
	if group, ok := q["group"]; ok && group != cmp.Or(got.Follows, "none") {
		b.Errorf("%s\n%s follows %s, want %s", b.cite, q["agent"], cmp.Or(got.Follows, "none"), group)
	}
	if via, ok := q["via"]; ok && via != got.Via {
		b.Errorf("%s\n%s: via %s, want %s", b.cite, q["agent"], got.Via, via)
	}
	if line, ok := q["line"]; ok && line != strconv.Itoa(got.Line) {
		b.Errorf("%s\n%s: line %d, want %s", b.cite, q["agent"], got.Line, line)
	}
	if got.Verdict != verdict {
		b.Errorf("%s\n%s is %s, want %s", b.cite, q["agent"], got.Verdict, verdict)
	}
}

// follow returns the crawler's verdict: by its lenient row, as a registry token, by its row, or by that of `*`.
func (b *crawlerBlock) follow(agent string, lenient bool) audit.TokenResult {
	if id := b.reg.Lookup(agent); id >= 0 && !lenient {
		return b.all.Tokens[id]
	}
	for _, v := range b.site.Report.Verdicts {
		if v.Lenient == lenient && strings.EqualFold(string(v.Token), agent) {
			r := audit.TokenResult{Verdict: v.Decision.String(), Via: v.Via.String(), Line: v.Line}
			if i := b.site.Robots.Find(agent); i >= 0 {
				r.Follows = string(b.site.Robots.Agent(i).Name)
			}
			return r
		}
	}
	if lenient {
		b.Errorf("%s\n%s has no lenient row", b.cite, agent)
	}
	return *b.all.Star
}

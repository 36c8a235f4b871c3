package page

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// hostileTexts are texts that sites, lists and registries might choose. Each is harmful if it is shown unescaped.
func hostileTexts() (list []string) {
	for _, h := range hostiletest.Texts() {
		list = append(list, h.Text)
	}
	return append(list,
		`<script>alert(1)</script>`+hostiletest.Mark, `</script><script>alert(1)</script>`+hostiletest.Mark,
		`</style></title></textarea>`+hostiletest.Mark,
		`" onload="alert(1)" `+hostiletest.Mark, `' onclick='alert(1)' style='color:red' `+hostiletest.Mark,
		`<img src=x onerror=alert(1)>`+hostiletest.Mark,
		`<svg><a href="javascript:alert(1)">`+hostiletest.Mark, `<!--`+hostiletest.Mark, `{{.Policy}}`+hostiletest.Mark,
		"a`<b>`"+hostiletest.Mark,
		hostiletest.Mark+strings.Repeat("x", 300), hostiletest.Mark+strings.Repeat("e\u0301\u0302\u0303\u0304", 100))
}

// changedColumns are those of changed-sites.
var changedColumns = strings.Fields(
	"token change host port requested last_before first_after rank label verdict_before line_before group_before rule_before verdict_after line_after group_after rule_after")

// hostileSurvey has hostile texts wherever a text is not the program's own.
func hostileSurvey() *tables.Survey {
	texts := hostileTexts()
	// a registry allows no longer names
	names := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return len(text) > 120 })
	// the token that some figures ask for
	first := "GPTBot"
	s := &tables.Survey{List: texts[0] + `<script>` + texts[1], Tables: map[string]*tables.Table{},
		Lines: append([]string{first}, names[:5]...)}
	s.Manifest = &commit.Manifest{ScanID: `s<script>`, ScanDate: "2026-11-22", StartedAt: time.Unix(0, 0),
		ToolVersion: `1"><script>`, RegistryVersion: `</p><script>`}
	for _, d := range survey.Definitions() {
		of := &summary.Summary{Asked: 500, Answered: 400, WithFile: 300, Rules: 200,
			Statuses: []survey.Count{{Value: "200", Rows: 400}}, Scores: []summary.Bin{{From: 0, To: 1, Rows: 500}}}
		b := &of.Blocking
		b.Definition, b.Question, b.Over, b.Sites, b.AtLeastOne, b.OneByName = d.Name, d.Question, d.Over, 200, 100, 50
		for i, text := range names {
			n := int64(len(names) - i)
			b.MostBlocked = append(b.MostBlocked, summary.TokenCount{Token: text, Operator: text, Purpose: text, Sites: n,
				Share: float64(n) / 200, ViaOwn: n})
			b.ByOperator = append(b.ByOperator, summary.Sum{Value: text, Tokens: 1, Sites: n, Share: float64(n) / 200})
			b.ByPurpose = append(b.ByPurpose, summary.Sum{Value: text, Tokens: 1, Sites: n, Share: float64(n) / 200})
		}
		s.Summaries = append(s.Summaries, of)
	}
	// The columns of all tables, by which figures find their values.
	columns := []string{"token", "other", "tld", "label", "agent", "key", "license_host", "signal", "content_usage",
		"scope", "cdn", "kind", "finding", "before", "after", "censoring",
		"definition", "scan_date", "first_blocked", "sites", "of", "blocking", "mention", "tokens_blocked", "ranks_to",
		"share", "share_full"}
	row := func(token, text string, n int) []any {
		row := []any{token}
		for range columns[1:16] {
			row = append(row, text)
		}
		return append(row, survey.Full, "2026-11-22", "2026-11-22", int64(n), int64(200), int64(n), int64(n), int64(n),
			int64(1000), float64(n)/200, float64(n)/200)
	}
	for _, name := range []string{"unknown-keys", "transitions", "syntax", "managed-blocks", "licenses", "first-blocked",
		"findings", "crawl-delay", "content-usage", "content-signals",
		"blocked-together", "blocked-over-time", "blocked-by-tld", "blocked-by-rank", "blocked-by-label", "blocked-by-cdn",
		"ai-tokens-blocked", "ai-and-search", "unknown-agents"} {
		t := &tables.Table{Name: name, Columns: columns, Rows: [][]any{row(first, "a", 1)}}
		for i, text := range texts {
			token := names[i%len(names)]
			if name == "blocked-by-tld" || name == "blocked-by-label" {
				token = first
			}
			t.Rows = append(t.Rows, row(token, text, i+2))
		}
		s.Tables[name] = t
	}
	s.Changes = 1000
	changes := &tables.Table{Name: "changed-sites", Columns: changedColumns}
	for _, text := range texts {
		changes.Rows = append(changes.Rows, []any{first, text, text, int64(1), text, text, text, int64(1), text, text,
			int64(1), text, text, text, int64(1), text, nil})
	}
	s.Tables["changed-sites"] = changes
	agents := s.Tables["unknown-agents"]
	for i := range 10_000 {
		agents.Rows = append(agents.Rows, row("", fmt.Sprintf("agent-%d<b>", i), 1))
	}
	for _, text := range names {
		s.Method = append(s.Method, method.Section{Title: text, Text: []string{text}, List: []string{text},
			Table: [][]string{{text}, {text}}, Code: text})
	}
	s.Method = append(s.Method, method.Section{Title: "How to cite", Text: names, Code: hostiletest.Lines()})
	return s
}

// TestHostileTexts parses the page of a hostile survey like a browser: no part of the texts becomes markup.
func TestHostileTexts(t *testing.T) {
	var page bytes.Buffer
	if err := Write(&page, hostileSurvey(), Options{Title: `<script>` + hostileTexts()[0]}); err != nil {
		t.Fatal(err)
	}
	hostiletest.Check(t, "the page", page.Bytes(), 1<<20)
	for _, escaped := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;" + hostiletest.Mark, "\\u202e" +
		hostiletest.Mark, "\\u0000" + hostiletest.Mark, "agent-1&lt;b&gt;"} {
		if !strings.Contains(page.String(), escaped) {
			t.Errorf("the page does not show %q", escaped)
		}
	}
	for _, absent := range []string{"agent-5000", strings.Repeat("x", 100)} {
		if strings.Contains(page.String(), absent) {
			t.Errorf("the page shows %q, without a bound", absent)
		}
	}
	document, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	texts, named, ids := map[string][]string{}, []string{}, map[string]int{}
	allowed := "html head meta title style body svg defs pattern rect circle line path text tspan desc a header div p h1 h2 h3 ul ol li b small span form fieldset legend label input nav main section figure figcaption table caption thead tbody tr th td details summary code pre footer script"
	for n := range document.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("a comment: %.100q", n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(strings.Fields(allowed), n.Data) {
			t.Errorf("the page has an element %s", n.Data)
		}
		if n.Data == "script" || n.Data == "style" {
			texts[n.Data] = append(texts[n.Data], n.FirstChild.Data)
		}
		for _, a := range n.Attr {
			switch key := strings.ToLower(a.Key); {
			case strings.HasPrefix(key, "on"), key == "style", key == "srcset", key == "action", key == "formaction":
				t.Errorf("%s has the attribute %s=%.100q", n.Data, a.Key, a.Val)
			case key == "href" || key == "src":
				if !strings.HasPrefix(a.Val, "#") && a.Val != "https://github.com/bulkscan/bulkscan" {
					t.Errorf("%s leads to %.100q", n.Data, a.Val)
				}
			case key == "id":
				ids[a.Val]++
			case key == "aria-labelledby":
				named = append(named, strings.Fields(a.Val)...)
			case key == "content" && strings.Contains(a.Val, "default-src"):
				texts["policy"] = append(texts["policy"], a.Val)
			}
		}
	}
	if len(texts["script"]) != 1 || len(texts["style"]) != 1 || len(texts["policy"]) != 1 {
		t.Fatalf("the page has %d scripts, %d styles and %d policies", len(texts["script"]), len(texts["style"]),
			len(texts["policy"]))
	}
	want := fmt.Sprintf(
		"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src '%s'; script-src '%s'",
		digest(texts["style"][0]), digest(texts["script"][0]))
	if texts["policy"][0] != want {
		t.Errorf("the policy is\n%s, want\n%s", texts["policy"][0], want)
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("%d elements have the id %q", n, id)
		}
	}
	if len(named) == 0 {
		t.Error("no figure has a name")
	}
	for _, id := range named {
		if ids[id] == 0 {
			t.Errorf("aria-labelledby names %q, which is nowhere", id)
		}
	}
}

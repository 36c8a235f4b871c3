package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// rowsFor prepares rows of a body for crawlers, which it writes to out.
func rowsFor(t testing.TB, out io.Writer, body string, d parser.Dialect, asJSON bool, agents ...string) *Rows {
	t.Helper()
	auditor := audit.New(tokens.Default())
	var crawlers []audit.Crawler
	for _, agent := range agents {
		c, err := auditor.Crawler(agent, false)
		if err != nil {
			t.Fatal(err)
		}
		crawlers = append(crawlers, c)
	}
	site := &audit.Site{IsFile: true, Dialect: d}
	site.Fetch.Body = []byte(body)
	auditor.Judge(site)
	return NewRows(out, auditor.Tester(site, crawlers), agents, asJSON, false)
}

// The tester and a survey agree: whom each token of the registry follows, why, and whether it may fetch the root. For
// names that are no product tokens, the survey's lenient row is compared, if there is one.
func TestRowsFollowAudit(t *testing.T) {
	bodies := []string{
		"", "Disallow: /\n", "User-agent: *\nDisallow: /private/\n", "User-agent: *\nDisallow: /\n",
		"User-agent: Googlebot\nDisallow: /\n\nUser-agent: Yandex\nUser-agent: msnbot\nDisallow: /\n",
		"User-agent: *\nDisallow: /\n\nUser-agent: googlebot-news\nuser-agent: ADSBOT-GOOGLE\nAllow: /\n\nUser-agent: Googlebot/2.1\nDisallow: /a\n",
		"User-agent: GoogleOther\nDisallow: /\nUser-agent: *\nDisallow: /$\nUser-agent: GPTBot\n",
		"User-agent: MJ12bot/v1.4\nDisallow: /\n\nUser-agent: AI21Bot\nDisallow: /\n\nUser-agent: Screaming Frog\nAllow: /\n\n" +
			"User-agent: img2dataset; all\nUser-agent: IMG2DATASET\nUser-agent: big\nUser-agent: Yahoo! Slurp\nDisallow: /\n\nUser-agent: *\nDisallow: /a\n",
		"User-agent: *\nDisallow: /\n\nUser-agent: AI2Bot foo\nDisallow: /a\n\nUser-agent: The Knowledge AI\nDisallow:\n\nUser-agent: ai2bot\nDisallow: /$\n",
	}
	compared, lenient := 0, 0
	for _, body := range bodies {
		site := &audit.Site{}
		site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Body = exchange.Answered, 200, []byte(body)
		audit.Judge(site)
		result := audit.Explain(site)
		for _, want := range result.Tokens {
			i := slices.IndexFunc(result.Verdicts, func(v audit.VerdictResult) bool {
				return v.Lenient && v.Token == want.Token && !tokens.IsProductToken(v.Token)
			})
			if i >= 0 {
				v := &result.Verdicts[i]
				want.Via, want.RootAllowed, want.Line = v.Via, v.RootAllowed, v.Line
			}
			var out bytes.Buffer
			if _, err := rowsFor(t, &out, body, parser.Google, true, want.Token).Add("/"); err != nil {
				t.Fatal(err)
			}
			var row struct {
				Token, Via, Group string
				Allowed, Lenient  bool
				GroupLines        [][2]int `json:"group_lines"`
			}
			if err := json.Unmarshal(out.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			agrees := row.Group == want.Follows
			if i >= 0 {
				lenient++
				agrees = row.GroupLines[0][0] <= want.Line && want.Line <= row.GroupLines[0][1]
			}
			if !agrees || row.Token != want.Token || row.Lenient != (i >= 0) || row.Via != want.Via ||
				row.Allowed != want.RootAllowed {
				t.Errorf("%q: %s\nthe survey has %+v, lenient %v", body, &out, want, i >= 0)
			}
			compared++
		}
	}
	if compared < len(bodies)*len(tokens.Default().Tokens) || lenient != 5 {
		t.Errorf("compared %d tokens, %d of them lenient", compared, lenient)
	}
}

// Lines are counted and quoted as the parser reads them, whatever ends them and whatever hides in them.
func TestRowsQuoteLines(t *testing.T) {
	body := "\xef\xbb\xbfUser-agent: *\rDisallow: /cr\r\n\r\n# comment\n\n  Disallow\t:\t/tab \x00 hidden\nDisallow:/last#x\n" +
		"Disallow: /" + strings.Repeat("é", 4000) + "\nDisallow: /end"
	var out bytes.Buffer
	r := rowsFor(t, &out, body, parser.Google, true, "*")
	f := func(url string, number int, text, value string) {
		t.Helper()
		out.Reset()
		if _, err := r.Add(url); err != nil {
			t.Fatal(err)
		}
		var row struct {
			Line             int
			Rule, Key, Value string
		}
		if err := json.Unmarshal(out.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v in %s", url, err, &out)
		}
		if row.Line != number || row.Rule != text || row.Value != value || row.Key != "disallow" {
			t.Errorf("%s: %+v; want line %d, %q, %q", url, row, number, text, value)
		}
	}
	f("/cr", 2, "Disallow: /cr", "/cr")
	f("/tab", 6, "Disallow\t:\t/tab \x00 hidden", "/tab")
	f("/last", 7, "Disallow:/last#x", "/last")
	f("/"+strings.Repeat("é", 4001), 8, "Disallow: /"+strings.Repeat("é", 244), "/"+strings.Repeat("é", 249))
	f("/end", 9, "Disallow: /end", "/end")
	if text := r.rule(2).text; text != `line 6: Disallow : /tab \u0000 hidden` {
		t.Errorf("shown as %q", text)
	}
}

// However many groups name a crawler, a row lists a few.
func TestRowsBoundGroups(t *testing.T) {
	var out bytes.Buffer
	r := rowsFor(t, &out, strings.Repeat("User-agent: a\nDisallow: /x\n", 1000), parser.Google, true, "a")
	if _, err := r.Add("/x"); err != nil {
		t.Fatal(err)
	}
	var row struct {
		Groups      int
		GroupLines  [][2]int `json:"group_lines"`
		GroupAgents []string `json:"group_agents"`
	}
	if err := json.Unmarshal(out.Bytes(), &row); err != nil {
		t.Fatal(err)
	}
	if row.Groups != 1000 || len(row.GroupLines) != maxListed || len(row.GroupAgents) != maxListed ||
		row.GroupLines[1] != [2]int{3, 4} {
		t.Errorf("%+v", row)
	}
	if why := r.followers[0].why; why != "group a, lines 1-2, 3-4, 5-6, …" {
		t.Errorf("text has %q", why)
	}
}

func FuzzAppendText(f *testing.F) {
	f.Add("/plain?a=b")
	f.Add("\"\\\x00\x1b\x7f\u009b\u202e\U0001F600\U000E0001\xff\xc3")
	f.Fuzz(func(t *testing.T, s string) {
		quoted := printable.AppendJSON(nil, s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil {
			t.Fatalf("%q: %v in %s", s, err, quoted)
		}
		if want := string([]rune(s)); back != want { // each broken octet is U+FFFD
			t.Errorf("%q came back as %q", s, back)
		}
		if shown := string(quoted); printable.Text(shown) != shown || strings.Contains(shown, "\n") {
			t.Errorf("%q is not fit for a terminal: %q", s, shown)
		}
	})
}

// go test ./terminal -run '^$' -bench Rows
func BenchmarkRows(b *testing.B) {
	var urls []string
	octets := 0
	for i := range 1000 {
		urls = append(urls, fmt.Sprintf("https://example.com/%s/%d", [...]string{"private", "public", "a.gif"}[i%3], i))
		octets += len(urls[i])
	}
	for _, form := range []string{"text", "json"} {
		b.Run(form, func(b *testing.B) {
			r := rowsFor(b, io.Discard, "User-agent: *\nDisallow: /private/\nAllow: /*.gif$\nDisallow: /search\nDisallow: /*?sort=\n",
				parser.Google, form == "json", "GPTBot", "CCBot")
			b.SetBytes(int64(octets))
			b.ReportAllocs()
			for b.Loop() {
				for _, url := range urls {
					if _, err := r.Add(url); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(urls)), "ns/URL")
		})
	}
}

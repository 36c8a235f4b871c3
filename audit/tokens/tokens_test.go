package tokens

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// This file follows the path from file to code: rules for the table and its rows (faults), then look-ups and added
// rows, then agreement with the lists in ../shared.

// named are the tokens of the check `robots.txt` 1.0.0, by its three lists.
const named = `APIs-Google AdsBot-Google Applebot Applebot-Extended Baiduspider BingPreview DuckDuckBot Google-CloudVertexBot
Google-Extended Google-InspectionTool GoogleOther GoogleOther-Image GoogleOther-Video Googlebot Googlebot-Image
Googlebot-News Googlebot-Video KagiBot Mediapartners-Google MojeekBot PetalBot Qwantify SeznamBot Slurp Sogou
Storebot-Google YandexBot YandexImages Yeti bingbot
Amazonbot Bytespider CCBot ChatGPT-User Claude-SearchBot Claude-User ClaudeBot Cohere-AI Diffbot FacebookBot GPTBot
ImagesiftBot Meta-ExternalAgent Meta-ExternalFetcher OAI-AdsBot OAI-SearchBot Perplexity-User PerplexityBot YouBot
omgili omgilibot
AhrefsBot DataForSeoBot DotBot MJ12bot Screaming_Frog_SEO_Spider SemrushBot`

func TestDefaultHoldsTheTokensOfTheCheck(t *testing.T) {
	for name := range strings.FieldsSeq(named) {
		name = strings.ReplaceAll(name, "_", " ")
		i := Default().Lookup(name)
		if i < 0 {
			t.Errorf("%s is missing", name)
		} else if got := Default().Tokens[i].Name; got != name {
			t.Errorf("%s is spelled %s", name, got)
		}
	}
}

// faults returns what is wrong with a registry file: the error of building it, or the rules that a row of the
// program's own registry breaks. Dates are compared with the file's version, never with the clock.
func faults(text string) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	rows, err := read(strings.NewReader(text))
	if err != nil {
		return []string{err.Error()}
	}
	reg, err := New(rows.version, rows.tokens)
	if err != nil {
		return []string{err.Error()}
	}
	version, err := time.Parse("2006.01.02", reg.Version)
	if err != nil {
		fault("version: %v", err)
	}
	known := func(set, value string) bool { return slices.Contains(strings.Fields(set), value) }
	for _, row := range reg.Tokens {
		source, err := url.Parse(row.Source)
		found := row.SourceKind != SourceUnverified || row.Source != ""
		if found && (err != nil || source.Host == "" || source.Scheme != "http" && source.Scheme != "https") {
			fault("%s: source %q is no URL", row.Name, row.Source)
		} else if found && isThirdParty(source) != (row.SourceKind == SourceThirdParty) &&
			row.SourceKind != SourceUnverified {
			fault("%s: whose page is %s? The row says %s", row.Name, row.Source, row.SourceKind)
		} else if (!found || isThirdParty(source)) && (len(row.Fallback) > 0 || !row.HeedsStar) {
			fault("%s: a list is no source for what it follows: %s", row.Name, row.Source)
		}
		if checked, err := time.Parse(time.DateOnly, row.Checked); row.Checked != "" && err != nil {
			fault("%s: checked: %v", row.Name, err)
		} else if checked.After(version) {
			fault("%s: checked on %s, after the version %s", row.Name, row.Checked, reg.Version)
		}
		if row.Checked != "" && row.SourceKind == SourceUnverified {
			fault("%s: checked on %s, but unverified", row.Name, row.Checked)
		}
		if !known("search ai seo social archive", row.Category) {
			fault("%s: category %q", row.Name, row.Category)
		}
		if !known("training search user-fetch agent data-provider ads preview platform seo other", row.Purpose) {
			fault("%s: purpose %q", row.Name, row.Purpose)
		}
		// If the leading part of a name is the name of another token, the strict reading would find that token.
		for _, name := range append([]string{row.Name}, row.Aliases...) {
			if i := reg.Lookup(name[:ProductTokenLen(name)]); i >= 0 && reg.Tokens[i].Name != row.Name {
				fault("%s: %q is read as %s", row.Name, name, reg.Tokens[i].Name)
			}
		}
		for i, next := range row.Chain {
			if name := reg.Tokens[next].Name; name != row.Fallback[i] {
				fault("%s: the fallback %s is spelled %s", row.Name, row.Fallback[i], name)
			}
		}
	}
	// A user's file may leave fields empty and have any order. Here sorted rows make short diffs.
	var header []string
	before := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := split(line, "|")
		switch {
		case line == "":
			before = ""
		case line[0] == '#' || len(fields) == 1:
		case header == nil:
			header = fields
		default:
			for i, value := range fields {
				if value == "" && !slices.Contains([]string{"aliases", "fallback", "source", "checked"}, header[i]) {
					fault("%s: no %s", fields[0], header[i])
				}
			}
			if name := fold(fields[0]); name > before {
				before = name
			} else {
				fault("%s stands behind %s", name, before)
			}
		}
	}
	return found
}

// thirdParties are the prefixes of pages by other authors, the only ones for rows marked third-party. Such a page may
// state that a crawler exists and its purpose, but only its operator can state what it follows.
var thirdParties = []string{
	"github.com/ai-robots-txt/", "github.com/monperrus/", "raw.githubusercontent.com/ai-robots-txt/",
	"raw.githubusercontent.com/monperrus/", "knownagents.com/", "darkvisitors.com/", "datadome.co/", "crawlerpolicy.com/",
	"imho.alex-kunz.com/",
}

// The lists with copies in ../shared.
const (
	aiRobotsList      = "github.com/ai-robots-txt/ai.robots.txt/blob/main/robots.json"
	crawlerUserAgents = "github.com/monperrus/crawler-user-agents/blob/master/crawler-user-agents.json"
)

func isThirdParty(page *url.URL) bool {
	address := strings.TrimPrefix(page.Host, "www.") + page.Path
	return slices.ContainsFunc(thirdParties, func(begins string) bool { return strings.HasPrefix(address, begins) })
}

func TestDefaultHasNoFaults(t *testing.T) {
	for _, fault := range faults(embedded) {
		t.Error(fault)
	}
	if len(Default().Tokens) < 200 {
		t.Errorf("only %d tokens", len(Default().Tokens))
	}
}

func TestFaultsAreFound(t *testing.T) {
	const header = "version 2026.01.31\nname|aliases|category|purpose|operator|*|fallback|source|kind|checked\n"
	const rest = "|https://a.example/bot|operator|2026-01-31\n"
	const abot = "Abot||ai|search|A|yes|" + rest
	f := func(text, want string) {
		t.Helper()
		found := strings.Join(faults(text), "\n")
		if want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%q: found %q, want %q", text, found, want)
		}
	}
	f(header+abot+"Bbot|B bot|seo|other|unknown|no|Abot"+rest, "")
	f(header+"Bbot||ai|search|A|yes|"+rest+"\n# next section\n"+abot, "")

	f(header+abot+"\n"+abot, "there twice")
	f(header+abot+"Bbot|abot|ai|search|A|yes|"+rest, "there twice")
	f(header+abot+"Bbot|x, X|ai|search|A|yes|"+rest, "there twice")
	f(header+"Abot||ai|search|A|yes|Bbot"+rest+"Bbot||ai|search|A|yes|Abot"+rest, "lead back")
	f(header+"Abot||ai|search|A|yes|Bbot"+rest, "unknown fallback")
	f(header+abot+"Bbot||ai|search|A|yes|abot"+rest, "the fallback abot is spelled Abot")
	f(header+abot+"Bbot||ai|search|A|perhaps|"+rest, "neither yes nor no")

	f(header+"Abot||ai|search|A|yes|||unverified|", "")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|unverified|", "")
	f(header+"Abot||ai|search|A|yes||https://knownagents.com/agents/abot|unverified|", "")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|operator|", "")
	f(header+"Abot||ai|search|A|yes||https://knownagents.com/agents/abot|third-party|2026-01-31", "")

	f(header+"Abot||ai|search|A|yes|||operator|2026-01-31", `source "" is no URL`)
	f(header+"Abot||ai|search|A|yes|||third-party|", `source "" is no URL`)
	f(header+"Abot||ai|search|A|yes||a.example/bot|operator|2026-01-31", "is no URL")
	f(header+"Abot||ai|search|A|yes||a.example/bot|unverified|", "is no URL")
	f(header+"Abot||ai|search|A|yes||ftp://a.example/bot|operator|2026-01-31", "is no URL")
	f(header+"Abot||ai|search|A|yes||https://knownagents.com/agents/abot|operator|", "The row says operator")
	f(header+"Abot||ai|search|A|yes||https://www.darkvisitors.com/agents/abot|operator|2026-01-31",
		"The row says operator")
	f(header+"Abot||ai|search|A|yes||https://github.com/ai-robots-txt/ai.robots.txt|operator|", "The row says operator")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|third-party|2026-01-31", "The row says third-party")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|mine|", `"mine" is none of`)
	f(header+abot+"Bbot||ai|search|A|yes|Abot|https://knownagents.com/agents/bbot|third-party|2026-01-31",
		"a list is no source")
	f(header+abot+"Bbot||ai|search|A|yes|Abot|https://knownagents.com/agents/bbot|unverified|", "a list is no source")
	f(header+"Abot||ai|search|A|no||https://github.com/ai-robots-txt/ai.robots.txt|third-party|2026-01-31",
		"a list is no source")
	f(header+"Abot||ai|search|A|no|||unverified|", "a list is no source")

	f(header+"Abot||ai|search|A|yes||https://a.example/bot||", "Abot: no kind")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|unverified|2026-01-31", "checked on 2026-01-31, but unverified")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|operator|31.01.2026", "Abot: checked")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|operator|2026-02-30", "out of range")
	f(header+"Abot||ai|search|A|yes||https://a.example/bot|operator|2026-02-01", "after the version")
	f(strings.Replace(header, "2026.01.31", "2026.1.31", 1)+abot, "version: ")
	f(strings.Replace(header, "version 2026.01.31\n", "", 1)+abot, "version: ")

	f(header+"Abot||bot|search|A|yes|"+rest, `category "bot"`)
	f(header+"Abot||ai|fun|A|yes|"+rest, `purpose "fun"`)
	f(header+"Abot||ai||A|yes|"+rest, "Abot: no purpose")
	f(header+"Abot||ai|search||yes|"+rest, "Abot: no operator")
	f(header+"Abot||ai|search|A||"+rest, "Abot: no *")
	f(header+"Abot||ai|search|A|yes|"+rest+"Bbot|Abot/2.0|ai|search|A|yes|"+rest, `"Abot/2.0" is read as Abot`)
	f(header+abot+"Abot 2||ai|search|A|yes|"+rest, `"Abot 2" is read as Abot`)
	f(header+"Bbot||ai|search|A|yes|"+rest+abot, "abot stands behind bbot")
	f(header+"Bbot||ai|search|A|yes|"+rest+"# no section\n"+abot, "abot stands behind bbot")
}

func TestKindOfSource(t *testing.T) {
	f := func(name, kind, checked string) {
		t.Helper()
		row := Default().Tokens[Default().Lookup(name)]
		if row.SourceKind != kind || row.Checked != checked {
			t.Errorf("%s: %s %q, want %s %q", name, row.SourceKind, row.Checked, kind, checked)
		}
	}
	f("GPTBot", SourceOperator, "2026-04-19")
	f("CCBot", SourceOperator, "2026-05-28")
	f("ClaudeBot", SourceOperator, "")
	f("Bytespider", SourceThirdParty, "")
	f("magpie-crawler", SourceThirdParty, "2026-06-17")
	f("Meta-ExternalAgent", SourceUnverified, "")
	f("Grok", SourceUnverified, "")
	if own, err := Load(strings.NewReader("name|source\nx|https://a.example")); err != nil ||
		own.Tokens[own.Lookup("x")].SourceKind != SourceUnverified {
		t.Errorf("a row that says nothing of its source: %v, %v", own, err)
	}
}

func TestFallbacksAndStar(t *testing.T) {
	f := func(name, chain string, heedsStar bool) {
		t.Helper()
		row := Default().Tokens[Default().Lookup(name)]
		if got := strings.Join(row.Fallback, " "); got != chain || row.HeedsStar != heedsStar {
			t.Errorf("%s: %q %v, want %q %v", name, got, row.HeedsStar, chain, heedsStar)
		}
	}
	f("Googlebot", "", true)
	f("Googlebot-Image", "Googlebot", true)
	f("Googlebot-News", "Googlebot", true)
	f("Googlebot-Video", "Googlebot", true)
	f("GoogleOther-Image", "GoogleOther", true)
	f("GoogleOther-Video", "GoogleOther", true)
	f("Applebot", "Googlebot", true)
	f("Applebot-Extended", "", true)
	f("Google-CloudVertexBot", "Googlebot", true)
	f("KagiBot", "Googlebot", true)
	f("Google-InspectionTool", "Googlebot", true)
	f("Google-Extended", "", true)
	f("Storebot-Google", "", true)
	f("bingbot", "msnbot", true)
	f("YandexImages", "Yandex", true)
	f("AdsBot-Google", "", false)
	f("AdsBot-Google-Mobile", "", false)
	f("Mediapartners-Google", "", false)
	f("APIs-Google", "", false)
}

func TestLookup(t *testing.T) {
	reg := Default()
	name := func(i int) string {
		if i < 0 {
			return ""
		}
		return reg.Tokens[i].Name
	}
	f := func(s, byName, byAlias string, product bool) {
		t.Helper()
		if got := name(reg.Lookup(s)); got != byName {
			t.Errorf("Lookup(%q) = %q, want %q", s, got, byName)
		}
		if got := name(lookupAlias(reg, s)); got != byAlias {
			t.Errorf("as an alias %q = %q, want %q", s, got, byAlias)
		}
		if i, alias := reg.Find([]byte(s)); name(i) != byName+byAlias || alias != (byAlias != "") {
			t.Errorf("Find(%q) = %q, %v", s, name(i), alias)
		}
		if IsProductToken(s) != product {
			t.Errorf("IsProductToken(%q) = %v", s, !product)
		}
	}
	f("GPTBot", "GPTBot", "", true)
	f("gptbot", "GPTBot", "", true)
	f("GPTBOT", "GPTBot", "", true)
	f("GPTBot ", "", "", false)
	f("gpt", "", "", true)
	f("meta-externalagent", "Meta-ExternalAgent", "", true)
	f("MJ12bot", "MJ12bot", "", false)
	f("screaming frog seo spider", "Screaming Frog SEO Spider", "", false)
	f("IASKSPIDER/2.0", "", "iaskspider", false)
	f("LINGUEE", "Linguee Bot", "", true)
	f("Linguee Bot", "Linguee Bot", "", false)
	f("\u212Aagibot", "", "", false) // the Kelvin sign is no k
	f("Factset_spyderbot", "Factset_spyderbot", "", true)
	f("", "", "", false)
	f("*", "", "", false)
	f(strings.Repeat("a", 1000), "", "", true)
}

func TestLookupAllocatesNothing(t *testing.T) {
	reg, known, unknown := Default(), []byte("googlebot-NEWS"), []byte("nobody-knows-this-one-that-has-a-long-name")
	if n := testing.AllocsPerRun(100, func() {
		reg.Find(known)
		reg.Find(unknown)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLoad(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "own.txt"))
	if err != nil {
		t.Fatal(err)
	}
	reg, err := Load(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	base := Default()
	if len(reg.Tokens) != len(base.Tokens)+2 {
		t.Errorf("%d tokens, want two more than %d", len(reg.Tokens), len(base.Tokens))
	}
	if !strings.HasPrefix(reg.Version, base.Version+"+") || len(reg.Version) != len(base.Version)+9 {
		t.Errorf("version %q", reg.Version)
	}
	f := func(name, category, operator string, heedsStar bool, fallback string) {
		t.Helper()
		i := reg.Lookup(name)
		if i < 0 {
			t.Errorf("%s is missing", name)
			return
		}
		row := reg.Tokens[i]
		if row.Category != category || row.Operator != operator || row.HeedsStar != heedsStar ||
			strings.Join(row.Fallback, ",") != fallback {
			t.Errorf("%s: %+v", name, row)
		}
	}
	f("HouseBot", "custom", "us", true, "")
	f("House Bot 2", "custom", "unknown", false, "HouseBot,Googlebot")
	f("GPTBot", "ai", "somebody else", true, "") // replaces the known row
	if reg.Lookup("gptbot") != base.Lookup("gptbot") {
		t.Error("a replaced row must keep its index")
	}
	if base.Tokens[base.Lookup("gptbot")].Operator != "OpenAI" || base.Lookup("HouseBot") >= 0 {
		t.Error("the default registry changed")
	}
}

func TestLoadRefuses(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := Load(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
	}
	f("", "no header")
	f("# nothing\n\n", "no header")
	f("aliases\nx", "no column `name`")
	f("name|colour\nx|y", `unknown column "colour"`)
	f("name|name\nx|y", "twice")
	f("name|*\nx", "line 2: 1 fields under 2 columns")
	f("name|*\nx|maybe", "neither yes nor no")
	f("name|kind\nx|list", `"list" is none of operator, third-party, unverified`)
	f("name\nx\n\nX", `"X": the name is there twice`)
	f("name\n*", "is no name")
	f("name|aliases\n|x", "is no name")
	f("name|aliases\nx|a,,b", "is no name")
	f("name|aliases\nx|a,A", "twice")
	f("name|aliases\nx|gptbot", "twice")
	f("name|fallback\nx|nobody", `unknown fallback "nobody"`)
	f("name|fallback\nx|x", "twice")
	f("name|fallback\nx|GPTBot,gptbot", "twice")
	f("name|fallback\nx|y\ny|z\nz|x", "lead back")
	f("name\n"+strings.Repeat("x", 101), "longer than 100")
	f("name\na\x00b", "control character")
	f("name\n\xff", "not UTF-8")
	f("name\n"+strings.Repeat("# comment\n", 200_000), "more than 1048576 bytes")
}

// Any user's file is refused, or makes a consistent registry.
func FuzzLoad(f *testing.F) {
	f.Add("name|aliases|fallback\nHouseBot|House, Maison|GPTBot")
	f.Add("version 1\nname\nx\n# y\nGPTBot")
	f.Add("\uFEFFname | *\n a | no")
	f.Fuzz(func(t *testing.T, text string) {
		reg, err := Load(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, row := range reg.Tokens {
			if reg.Lookup(row.Name) != i || len(row.Chain) != len(row.Fallback) || lookupAlias(reg, row.Name) >= 0 {
				t.Errorf("row %d: %+v", i, row)
			}
			for _, alias := range row.Aliases {
				upper, _ := reg.Find([]byte(strings.ToUpper(alias)))
				if same, _ := reg.Find([]byte(alias)); upper != i && same != i {
					t.Errorf("row %d: alias %q is lost", i, alias)
				}
			}
		}
	})
}

// The tests from here on compare the table with lists by others. An exception is a known difference, by its key, with
// its reason. An exception that is found no more must go.
type exceptions map[string]string

// report fails the test for each finding without an exception, and for each exception that was not found.
func (known exceptions) report(t *testing.T, found map[string]string) {
	t.Helper()
	for key, what := range found {
		if known[key] == "" {
			t.Errorf("%s: %s", key, what)
		}
	}
	for key, why := range known {
		if found[key] == "" {
			t.Errorf("%s is no exception any more (%s)", key, why)
		}
	}
}

// shared decodes a file of ../shared/lists.
func shared[T any](t *testing.T, name string) (list T) {
	t.Helper()
	text, err := os.ReadFile(sharedtest.Path(t, "lists", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// tokenOf returns the token that has this name or alias, nil if there is none.
func tokenOf(name string) *Token {
	if i, _ := Default().Find([]byte(name)); i >= 0 {
		return &Default().Tokens[i]
	}
	return nil
}

// robots is a row of ai-robots-txt.robots.json, whose keys are tokens.
type robots struct{ Operator, Function, Description string }

func TestSpecificationNamesTheSame(t *testing.T) {
	text, err := os.ReadFile(sharedtest.Path(t, "spec", "000_f7ec5e14b3d53956.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, begins := strings.Cut(string(text), "\nSearch and platform crawlers:\n")
	list, _, ends := strings.Cut(list, "\nSource Notes\n")
	if !begins || !ends {
		t.Fatal("the specification's tokens are not where they were")
	}
	var theirs []string
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, ":") {
			theirs = append(theirs, strings.ReplaceAll(line, " ", "_"))
		}
	}
	if ours := strings.Fields(named); !slices.Equal(ours, theirs) {
		t.Errorf("the tokens of the check are\n%q, ours\n%q", theirs, ours)
	}
}

func TestAIRobotsListIsCovered(t *testing.T) {
	for name := range shared[map[string]robots](t, "ai-robots-txt.robots.json") {
		if tokenOf(name) == nil {
			t.Errorf("%s is neither a token nor an alias", name)
		}
	}
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// statedOperator returns a list's operator without the link, and `unknown` if it is unclear.
func statedOperator(s string) string {
	s = strings.TrimSuffix(strings.TrimSpace(markdownLink.ReplaceAllString(s, "$1")), ".")
	if strings.EqualFold(s, "Unclear at this time") || strings.EqualFold(s, "unknown") {
		return "unknown"
	}
	return s
}

// sameOperator reports whether a list names our operator: alone, at the start of a sentence, or, if it names none, in
// its description.
func sameOperator(list robots, ours string) bool {
	stated := statedOperator(list.Operator)
	if stated == "unknown" {
		return ours == "unknown" || strings.Contains(strings.ToLower(list.Description), strings.ToLower(ours))
	}
	if len(stated) < len(ours) || !strings.EqualFold(stated[:len(ours)], ours) {
		return false
	}
	rest := stated[len(ours):]
	return rest == "" || strings.ContainsAny(rest[:1], " ,/(")
}

func TestSameOperator(t *testing.T) {
	f := func(stated, description, ours string, want bool) {
		t.Helper()
		if got := sameOperator(robots{Operator: stated, Description: description}, ours); got != want {
			t.Errorf("%q, %q, %q: %v", stated, description, ours, got)
		}
	}
	f("[Webz.io](https://webz.io/)", "", "Webz.io", true)
	f("Webz.io", "", "Webz", false)
	f("Kagi that fetches web content", "", "Kagi", true)
	f("Meta/Facebook", "", "Meta", true)
	f("Metaphor", "", "Meta", false)
	f("Google", "", "unknown", false)
	f("Unclear at this time.", "", "unknown", true)
	f("Unclear at this time", "a crawler of Exa's", "Exa", true)
	f("Unknown", "a crawler", "Exa", false)
}

func TestOperatorsAgreeWithAIRobotsList(t *testing.T) {
	justified := exceptions{
		"AI2Bot":                  "Ai2 is the Allen Institute for AI",
		"AI2Bot-DeepResearchEval": "Ai2 is the Allen Institute for AI",
		"Ai2Bot-Dolma":            "Ai2 is the Allen Institute for AI",
		"Bravebot":                "the list gives the address of Brave's page",
		"Brightbot 1.0":           "the list gives the address of Bright Data's page",
		"Cotoyogi":                "its page is that of ROIS-DS, a center of ROIS",
		"Devin":                   "Cognition makes Devin",
		"LAIONDownloader":         "LAION is its name in short",
		"Lightpanda":              "a tool that anybody may run has its maker for an operator",
		"MistralAI-User":          "Mistral is Mistral AI, as the list has it one row on",
		"PanguBot":                "the Chinese company Huawei is Huawei",
		"Reflectionbot":           "Reflection is Reflection AI, as its address says",
		"YouBot":                  "You is You.com, as its address says",

		"Amzn-SearchBot":    "the list describes nothing; Amazon's page names it",
		"AzureAI-SearchBot": "the list describes nothing; Azure is Microsoft's",
		"ChatGLM-Spider":    "the list describes nothing; ChatGLM is Zhipu AI's",
		"Code":              "GitHub Copilot is Microsoft's",
		"Cursor":            "Anysphere makes Cursor",
		"LCC":               "the list describes nothing; LCC is the Leipzig Corpora Collection",
		"Terra Cotta":       "the list says Ceramic, and Ceramic AI of TerraCotta",
		"webzio-extended":   "the list names Webz.io at the other spelling of it",
	}
	found := map[string]string{}
	for name, row := range shared[map[string]robots](t, "ai-robots-txt.robots.json") {
		if ours := tokenOf(name); ours != nil && !sameOperator(row, ours.Operator) {
			found[name] = fmt.Sprintf("operator %q, the list says %q", ours.Operator, statedOperator(row.Operator))
		}
	}
	justified.report(t, found)
}

// purposes maps phrases in a list's function to purposes. The first phrase that occurs decides; a function without any
// is `other`.
var purposes = []struct{ phrase, purposes string }{
	{"undocumented", "any"},
	{"unclear", "any"},
	{"ai assistants", "user-fetch"},
	{"ai coding agents", "agent"},
	{"ai data providers", "data-provider"},
	{"ai data scraper", "training data-provider"},
	{"ai search", "search"},
	{"ai agents", "agent"},
	{"search result", "search"},
	{"search engine", "search"},
	{"natural language search", "search"},
	{"user queries", "search user-fetch"},
	{"user prompts", "user-fetch"},
	{"user-initiated prompts", "user-fetch"},
	{"sold", "data-provider"},
	{"rss", "data-provider"},
	{"variety of uses", "data-provider"},
	{"business data sets", "data-provider"},
	{"custom ai applications", "data-provider"},
	{"data collection and analysis", "data-provider"},
	{"dataset", "training"},
	{"train", "training"},
	{"llm", "training"},
	{"ai development", "training"},
	{"sharing", "preview"},
	{"contentshake", "seo"},
	{"seo writing", "seo"},
}

func TestPurposesAgreeWithAIRobotsList(t *testing.T) {
	justified := exceptions{
		"aiHitBot":              "it feeds a data base of companies that aiHit sells",
		"Amazonbot":             "Amazon's page: it may be used to train Amazon's models",
		"Applebot-Extended":     "Apple's page: it steers the training of models, and crawls nothing",
		"Bravebot":              "its description: it indexes pages for Brave Search",
		"Brightbot 1.0":         "the same as Brightbot, of which the list says that it provides data",
		"CloudVertexBot":        "Google documents no such name; what it does for Vertex AI is no training",
		"ExaBot":                "its description: the index of Exa's search engine",
		"Google-CloudVertexBot": "it indexes a site for its owner's own search and agents, and trains nothing",
		"ImagesiftBot":          "its description: an index of images",
		"LAIONDownloader":       "LAION makes data sets to train models on",
		"Linguee Bot":           "its description: training data for a translation service",
		"meta-webindexer":       "Meta's page: it improves the search results of Meta AI",
		"YaK":                   "Meltwater sells what it gathers",
		"YandexAdditional":      "Yandex's page: answers in search, from pages found at that time",
		"YandexAdditionalBot":   "Yandex's page: answers in search, from pages found at that time",
	}
	found, used := map[string]string{}, map[string]bool{}
	for name, row := range shared[map[string]robots](t, "ai-robots-txt.robots.json") {
		ours, want := tokenOf(name), "other"
		for _, p := range purposes {
			if strings.Contains(strings.ToLower(row.Function), p.phrase) {
				want, used[p.phrase] = p.purposes, true
				break
			}
		}
		if ours != nil && want != "any" && !slices.Contains(strings.Fields(want), ours.Purpose) {
			found[name] = fmt.Sprintf("purpose %s, the list says %q, which is %s", ours.Purpose, row.Function, want)
		}
	}
	justified.report(t, found)
	for _, p := range purposes {
		if !used[p.phrase] {
			t.Errorf("no function says %q", p.phrase)
		}
	}
}

func TestCrawlerUserAgentsAreCovered(t *testing.T) {
	leftOut := exceptions{ // as the head of the table says
		"AISearchBot":              "nobody says whose it is",
		"PerplexityUser":           "a part of a user-agent string; Perplexity's token is Perplexity-User",
		"semantic-visions":         "a part of a user-agent string that nobody offers as a token",
		"TSM-turingos":             "a number that changes is part of it",
		`Spider[\s\S]*spider\.com`: "Spider is here; the pattern asks for a whole user-agent string",
	}
	found, tagged := map[string]string{}, 0
	for _, entry := range shared[[]struct {
		Pattern string
		Tags    []string
	}](t, "crawler-user-agents.json") {
		if !slices.Contains(entry.Tags, "ai-crawler") {
			continue
		}
		tagged++
		pattern, err := regexp.Compile("(?i)^(?:" + entry.Pattern + ")")
		if err != nil {
			t.Fatal(err)
		}
		// An entry is covered if it matches a user agent that consists of one of our names and a version.
		covers := func(name string) bool { return len(pattern.FindString(name+"/1.0")) >= len(name) }
		if !slices.ContainsFunc(Default().Tokens, func(row Token) bool {
			return covers(row.Name) || slices.ContainsFunc(row.Aliases, covers)
		}) {
			found[entry.Pattern] = "the pattern recognizes none of our names"
		}
	}
	if tagged < 70 {
		t.Errorf("only %d entries are tagged as AI crawlers", tagged)
	}
	leftOut.report(t, found)
}

// The merged list also says how Google's parser reads each token, which is our strict reading.
func TestMergedListIsCovered(t *testing.T) {
	for _, row := range shared[[]struct {
		Token   string
		Aliases []string
		Product bool   `json:"rfc9309_token"`
		Leading string `json:"google_extracts"`
	}](t, "ai-tokens-merged.json") {
		ours := tokenOf(row.Token)
		for _, name := range append([]string{row.Token}, row.Aliases...) {
			if found := tokenOf(name); found == nil {
				t.Errorf("%s is neither a token nor an alias", name)
			} else if found != ours {
				t.Errorf("%s is %s, but %s is %s", name, found.Name, row.Token, ours.Name)
			}
		}
		if IsProductToken(row.Token) != row.Product || row.Token[:ProductTokenLen(row.Token)] != row.Leading {
			t.Errorf("%s: a product token: %v, its leading part: %q", row.Token, !row.Product,
				row.Token[:ProductTokenLen(row.Token)])
		}
	}
}

// A row whose source is a list with a copy in ../shared must be in that copy.
func TestThirdPartyRowsAreInTheirLists(t *testing.T) {
	robotsList := shared[map[string]robots](t, "ai-robots-txt.robots.json")
	entries := shared[[]struct {
		Pattern string
		Added   string `json:"addition_date"`
	}](t, "crawler-user-agents.json")
	newest := ""
	for _, entry := range entries {
		newest = max(newest, strings.ReplaceAll(entry.Added, "/", "-"))
	}
	for _, row := range Default().Tokens {
		names := append([]string{row.Name}, row.Aliases...)
		switch strings.TrimPrefix(row.Source, "https://") {
		case aiRobotsList:
			if row.Checked != "" || !slices.ContainsFunc(names, func(name string) bool {
				return slices.ContainsFunc(slices.Collect(maps.Keys(robotsList)),
					func(key string) bool { return strings.EqualFold(key, name) })
			}) {
				t.Errorf("%s: it is not in the list, or the list has a date: %q", row.Name, row.Checked)
			}
		case crawlerUserAgents:
			if row.Checked != newest || !slices.ContainsFunc(entries, func(e struct {
				Pattern string
				Added   string `json:"addition_date"`
			}) bool {
				return regexp.MustCompile(e.Pattern).MatchString(row.Name + "/1.0")
			}) {
				t.Errorf("%s: no entry recognizes it, or the newest is not of %q but of %q", row.Name, row.Checked, newest)
			}
		}
	}
}

// leftOut returns the names in leftout.txt as the strict reading has them, in lower case: the leading product token,
// or the whole name if there is none.
func leftOut(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("leftout.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		reason, names, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found || line[0] == '#' {
			continue
		}
		for _, name := range split(names, ",") {
			read := strictly(name)
			if all[read] || name == "" {
				t.Errorf("%s: %q is there twice", reason, name)
			}
			all[read] = true
			if tokenOf(name) != nil || Default().Lookup(read) >= 0 {
				t.Errorf("%s: %s is a row", reason, name)
			}
		}
	}
	return all
}

func strictly(name string) string {
	if n := ProductTokenLen(name); n > 0 {
		name = name[:n]
	}
	return fold(name)
}

func TestAgentsOfRealFilesAreDecided(t *testing.T) {
	decided := leftOut(t)
	files, total := map[string]int{}, 0
	for _, pack := range []string{"modern-ai", "typical12k", "mix12k"} {
		bodies, here := sharedtest.Bodies(t, pack), map[string]int{}
		for _, body := range bodies {
			seen := map[string]bool{}
			for line := range strings.Lines(string(body)) {
				line, _, _ = strings.Cut(line, "#")
				key, value, _ := strings.Cut(line, ":")
				value = strings.TrimSpace(value)
				read := strictly(value)
				if !strings.EqualFold(strings.TrimSpace(key), "user-agent") || value == "" || value[0] == '*' || seen[read] ||
					Default().Lookup(read) >= 0 {
					continue
				}
				if first, _, _ := strings.Cut(value, "/"); tokenOf(value) == nil && tokenOf(strings.TrimSpace(first)) == nil {
					seen[read] = true
					here[read]++
				}
			}
		}
		total += len(bodies)
		for name, n := range here {
			files[name] += n
			if pack == "modern-ai" && 20*n >= len(bodies) && !decided[name] {
				t.Errorf("%d of %d modern files name %q", n, len(bodies), name)
			}
		}
	}
	for name, n := range files {
		if 200*n >= total && !decided[name] {
			t.Errorf("%d of %d files name %q, which is neither a row nor left out", n, total, name)
		}
	}
}

// lookupAlias returns the index of the token with this alias, or -1.
func lookupAlias(reg *Registry, name string) int {
	if i, alias := reg.Find([]byte(name)); alias {
		return i
	}
	return -1
}

package tokens

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

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

// Duplicates, unknown fallbacks and cycles are refused when a registry is built; what remains is asked of every row.
func TestDefaultRows(t *testing.T) {
	reg := Default()
	if len(reg.Tokens) < 180 {
		t.Errorf("only %d tokens", len(reg.Tokens))
	}
	if _, err := time.Parse("2006.01.02", reg.Version); err != nil {
		t.Errorf("version: %v", err)
	}
	known := func(set, value string) bool { return strings.Contains(" "+set+" ", " "+value+" ") }
	for _, row := range reg.Tokens {
		if source, err := url.Parse(row.Source); err != nil || source.Host == "" || !strings.HasPrefix(source.Scheme, "http") {
			t.Errorf("%s: source %q is no URL", row.Name, row.Source)
		}
		if _, err := time.Parse(time.DateOnly, row.Checked); err != nil {
			t.Errorf("%s: checked: %v", row.Name, err)
		}
		if !known("search ai seo social", row.Category) {
			t.Errorf("%s: category %q", row.Name, row.Category)
		}
		if !known("training search user-fetch agent data-provider ads preview platform seo other", row.Purpose) {
			t.Errorf("%s: purpose %q", row.Name, row.Purpose)
		}
		if row.Operator == "" {
			t.Errorf("%s: no operator", row.Name)
		}
		// A name or alias whose leading token is another token's name would be read strictly as that one.
		for _, name := range append([]string{row.Name}, row.Aliases...) {
			if i := reg.Lookup(name[:ProductTokenLen(name)]); i >= 0 && reg.Tokens[i].Name != row.Name {
				t.Errorf("%s: %q is read as %s", row.Name, name, reg.Tokens[i].Name)
			}
		}
	}
}

func TestFallbacksAndStar(t *testing.T) {
	f := func(name, chain string, heedsStar bool) {
		t.Helper()
		row := Default().Tokens[Default().Lookup(name)]
		if got := strings.Join(row.Fallback, " "); got != chain || row.HeedsStar != heedsStar {
			t.Errorf("%s: %q %v, want %q %v", name, got, row.HeedsStar, chain, heedsStar)
		}
		for i, next := range row.Chain {
			if Default().Tokens[next].Name != row.Fallback[i] {
				t.Errorf("%s: fallback %d is resolved as %s", name, i, Default().Tokens[next].Name)
			}
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
		if got := name(reg.LookupAlias(s)); got != byAlias {
			t.Errorf("LookupAlias(%q) = %q, want %q", s, got, byAlias)
		}
		if reg.LookupBytes([]byte(s)) != reg.Lookup(s) || reg.LookupAliasBytes([]byte(s)) != reg.LookupAlias(s) {
			t.Errorf("%q: octets are looked up otherwise than strings", s)
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
	f("\u212Aagibot", "", "", false) // the Kelvin sign is no k
	f("Factset_spyderbot", "Factset_spyderbot", "", true)
	f("", "", "", false)
	f("*", "", "", false)
	f(strings.Repeat("a", 1000), "", "", true)
}

func TestLookupAllocatesNothing(t *testing.T) {
	reg, known, unknown := Default(), []byte("googlebot-NEWS"), []byte("nobody-knows-this-one-that-has-a-long-name")
	if n := testing.AllocsPerRun(100, func() {
		reg.LookupBytes(known)
		reg.LookupBytes(unknown)
		reg.LookupAliasBytes(unknown)
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
		if row.Category != category || row.Operator != operator || row.HeedsStar != heedsStar || strings.Join(row.Fallback, ",") != fallback {
			t.Errorf("%s: %+v", name, row)
		}
	}
	f("HouseBot", "custom", "us", true, "")
	f("House Bot 2", "custom", "unknown", false, "HouseBot,Googlebot")
	f("GPTBot", "ai", "somebody else", true, "") // takes the place of the known row
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

func TestSharedListsAreCovered(t *testing.T) {
	text, err := os.ReadFile(sharedtest.Path(t, "lists", "ai-tokens-merged.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Token string }
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if Default().Lookup(row.Token) < 0 && Default().LookupAlias(row.Token) < 0 {
			t.Errorf("%s is neither a token nor an alias", row.Token)
		}
	}
}

// Whatever a user's file says, it is refused or makes a registry that holds together.
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
			if reg.Lookup(row.Name) != i || len(row.Chain) != len(row.Fallback) || reg.LookupAlias(row.Name) >= 0 {
				t.Errorf("row %d: %+v", i, row)
			}
			for _, alias := range row.Aliases {
				if reg.LookupAlias(strings.ToUpper(alias)) != i && reg.LookupAlias(alias) != i {
					t.Errorf("row %d: alias %q is lost", i, alias)
				}
			}
		}
	})
}

// Sorted rows make short diffs.
func TestSectionsAreSorted(t *testing.T) {
	before := ""
	for line := range strings.Lines(embedded) {
		name, _, isRow := strings.Cut(line, "|")
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case strings.TrimSpace(line) == "" || name == "name":
			before = ""
		case isRow && line[0] != '#':
			if name <= before {
				t.Errorf("%s stands behind %s", name, before)
			}
			before = name
		}
	}
}

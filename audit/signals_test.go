package audit

import (
	"regexp"
	"strings"
	"testing"
)

func TestRequestRates(t *testing.T) {
	f := func(value string, want float64) { // 0 for an invalid value
		t.Helper()
		if got, ok := parseRate([]byte(value)); got != want || ok != (want > 0) {
			t.Errorf("%q: %v %v, want %v", value, got, ok, want)
		}
	}
	f("1/5", 0.2)
	f("1/1", 1)
	f("5/1", 5)
	f("1/2s", 0.5)
	f("10/1m", 10.0/60)
	f("10/1M", 10.0/60)
	f("100/24h", 100.0/86400)
	f("1 / 5", 0.2)
	f("50/1m 2300-0159", 50.0/60)
	f("1/10 0600-0845", 0.1)
	f("999999999/1", 999999999)
	f("1/999999999h", 1/(999999999.0*3600))
	f("", 0)
	f("/", 0)
	f("1", 0)
	f("1/", 0)
	f("/5", 0)
	f("0/5", 0)
	f("1/0", 0)
	f("-1/5", 0)
	f("1.5/5", 0)
	f("1/5.5", 0)
	f("1/5d", 0)
	f("1/2E", 0)
	f("1/5ms", 0)
	f("1/5 later", 0)
	f("1/5 0600", 0)
	f("1/50600-0845", 0)
	f("1/5s0600-0845", 0)
	f("1000000000/1", 0)
	f("<rate> <time>", 0)
}

func TestVisitTimes(t *testing.T) {
	f := func(value string, from, to int16, ok bool) {
		t.Helper()
		if got, valid := parseHours([]byte(value)); got != (Hours{from, to}) || valid != ok {
			t.Errorf("%q: %v %v", value, got, valid)
		}
	}
	f("0600-0845", 360, 525, true)
	f("0000-2400", 0, 1440, true)
	f("2300-0159", 1380, 119, true) // over midnight
	f("2400-0645", 0, 405, true)
	f("0600 - 0845", 360, 525, true)
	f("1200-1200", 720, 720, true)
	f("", 0, 0, false)
	f("-", 0, 0, false)
	f("0600", 0, 0, false)
	f("600-845", 0, 0, false)
	f("06:00-08:45", 0, 0, false)
	f("0600-0845 UTC", 0, 0, false)
	f("0660-0845", 0, 0, false)
	f("0600-2401", 0, 0, false)
	f("2500-2600", 0, 0, false)
	f("0600-0845-0900", 0, 0, false)
	f("06 0-0845", 0, 0, false)
}

func TestAbsoluteURLs(t *testing.T) {
	f := func(value string, want bool) {
		t.Helper()
		if got := isAbsoluteURL([]byte(value)); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	f("https://example.com/sitemap.xml", true)
	f("http://example.com", true)
	f("HTTPS://EXAMPLE.COM/é", true)
	f("ftp://example.com/s", true)
	f("https://user@example.com:8080/?a=b#c", true)
	f("https://user:p@ss@example.com/", true)
	f("https://example.com/a@:b", true)
	f("https://example.com?@", true)
	f("https://[2001:db8::1]/s.xml", true)
	f("", false)
	f("/sitemap.xml", false)
	f("sitemap.xml", false)
	f("//example.com/s.xml", false)
	f("example.com/s.xml", false)
	f("https:/example.com", false)
	f("https://", false)
	f("https:///s.xml", false)
	f("https://:80/", false)
	f("https://user@/", false)
	f("https://a@:80/", false)
	f("https://?a", false)
	f("https://a b/", false)
	f("<https://a/>", false)
	f("https://a/<b>", false)
	f("https://a/\x00", false)
	f("javascript://a/", false)
}

func TestContentUsageValues(t *testing.T) {
	f := func(value, path string, trainAI, search Preference, ok bool) {
		t.Helper()
		u, valid := ParseUsage([]byte(value))
		if string(u.Path) != path || u.TrainAI != trainAI || u.Search != search || valid != ok {
			t.Errorf("%q: %q %v %v %v", value, u.Path, u.TrainAI, u.Search, valid)
		}
	}
	f("train-ai=n", "", UseRefused, Unstated, true)
	f("train-ai=y, search=n", "", UseAllowed, UseRefused, true)
	f("train-ai=n,search=y", "", UseRefused, UseAllowed, true)
	f("/a/b train-ai=n", "/a/b", UseRefused, Unstated, true)
	f("/a \t search=y", "/a", Unstated, UseAllowed, true)
	f("train-ai=n;exp=\"x;y\";a", "", UseRefused, Unstated, true)
	f("train-ai=n, train-ai=y", "", UseAllowed, Unstated, true) // RFC 9651 §4.2.2: the last wins
	f("train-ai=n, train-ai=1", "", Unstated, Unstated, true)
	f("train-ai", "", Unstated, Unstated, true)       // a true boolean, no token
	f("train-ai=N", "", Unstated, Unstated, true)     // tokens are case-sensitive
	f("train-ai=\"n\"", "", Unstated, Unstated, true) // a string is not a token
	f("train-ai=nn", "", Unstated, Unstated, true)
	f("other=(1 -2.5 \"s\" tok/x :YQ==: ?1 @123 %\"x\");q=?0, search=n", "", Unstated, UseRefused, true)
	f("", "", Unstated, Unstated, false)
	f("/a ", "", Unstated, Unstated, false)
	f("Train-AI=n", "", Unstated, Unstated, false) // keys are lower case
	f("/a", "", Unstated, Unstated, false)
	f("/a train-ai=", "", Unstated, Unstated, false)
	f("train-ai=n,", "", Unstated, Unstated, false)
	f("train-ai=n search=y", "", Unstated, Unstated, false)
	f("=n", "", Unstated, Unstated, false)
	f("a=(1 2", "", Unstated, Unstated, false)
	f("a=(1,2)", "", Unstated, Unstated, false)
	f("a=\"x", "", Unstated, Unstated, false)
	f("a=\"\\x\"", "", Unstated, Unstated, false)
	f("a=1.", "", Unstated, Unstated, false)
	f("a=1234567890123456", "", Unstated, Unstated, false)
	f("a=?2", "", Unstated, Unstated, false)
	f("a=:x", "", Unstated, Unstated, false)
	f("a;=1", "", Unstated, Unstated, false)
	f("é=1", "", Unstated, Unstated, false)
	f(`a=%"%c3%a9 x"`, "", Unstated, Unstated, true)
	f(`a=%"\"`, "", Unstated, Unstated, true) // no escape there
	f(`a=%"%C3%A9"`, "", Unstated, Unstated, false)
	f(`a=%"%c3"`, "", Unstated, Unstated, false)
	f(`a=%"%c3x"`, "", Unstated, Unstated, false)
	f(`a=%"%ff"`, "", Unstated, Unstated, false)
	f(`a=%"%e2%82%ac%f0%9f%98%80"`, "", Unstated, Unstated, true)
	f(`a=%"%ed%a0%80"`, "", Unstated, Unstated, false) // half a surrogate pair
	f(`a=%x`, "", Unstated, Unstated, false)
	f("a=123456789012.123", "", Unstated, Unstated, true)
	f("a=1234567890123.1", "", Unstated, Unstated, false)
	f("a=@1.5", "", Unstated, Unstated, false)
	f("\ta=1", "", Unstated, Unstated, false) // only spaces may surround a Dictionary
}

// dictionary is the grammar of a Dictionary (RFC 9651 §3) as a regular expression.
var dictionary = func() *regexp.Regexp {
	key := `[a-z*][a-z0-9_.*-]*`
	bare := `(?:-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})` + // Decimal, Integer
		`|"(?:[ !#-\[\]-~]|\\["\\])*"` + // String
		`|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_|~:/` + "`" + `-]*` + // Token
		`|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}` + // Byte Sequence, Boolean, Date
		`|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")` // Display String
	parameters := `(?:; *` + key + `(?:=` + bare + `)?)*`
	item := bare + parameters
	inner := `\( *(?:` + item + `(?: +` + item + `)*)? *\)` + parameters
	member := key + `(?:=(?:` + item + `|` + inner + `)|` + parameters + `)`
	// the algorithm in §4.2.2 allows the last white space
	return regexp.MustCompile(`^ *(?:` + member + `(?:[ \t]*,[ \t]*` + member + `)*[ \t]*)?$`)
}()

// FuzzUsage shows that a value is a Content-Usage exactly if it has the syntax of the drafts and of RFC 9651, and that
// the last member of each key decides.
func FuzzUsage(f *testing.F) {
	for _, seed := range []string{
		"train-ai=n", "/ai-ok/ train-ai=y", "train-ai=y, search=n", "/a/b \t train-ai=n;x=\"y\\\\\"",
		"a=(1 -2.5 \"s\" t/x :YQ==: ?1 @1);q=?0 , b",
		"a=1.", "a=-", "a;b;c=*d", `a=%"%c3%a9"`, "a=(1 2", "a=()", "a=( )", "a=(1  2 )", "a=:", "/x", "", " ", "/ ", ",",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		usage, ok := ParseUsage(value)
		text, path := string(value), ""
		hasText := true
		if strings.HasPrefix(text, "/") {
			end := strings.IndexAny(text, " \t")
			if hasText = end >= 0; hasText {
				path, text = text[:end], strings.TrimLeft(text[end:], " \t")
			}
		}
		want := hasText && strings.Trim(text, " ") != "" && dictionary.MatchString(text)
		if strings.Contains(text, "%\"") && want && !ok {
			return // the escapes may not be UTF-8
		}
		if ok != want {
			t.Fatalf("%q: %v, want %v", value, ok, want)
		}
		if ok && string(usage.Path) != path {
			t.Errorf("%q: path %q, want %q", value, usage.Path, path)
		}
		if more, _ := ParseUsage([]byte(path + " " + text + ",train-ai=y")); ok && strings.TrimSpace(text) != "" &&
			more.TrainAI != UseAllowed {
			t.Errorf("%q and train-ai=y says %v", value, more.TrainAI)
		}
	})
}

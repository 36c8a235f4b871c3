package audit

import (
	"fmt"
	"strings"
	"testing"
)

func TestCrawlDelayValues(t *testing.T) {
	f := func(value string, want float64, ok bool) {
		t.Helper()
		if got, valid := parseDelay([]byte(value)); got != want || valid != ok {
			t.Errorf("%q: %v %v, want %v %v", value, got, valid, want, ok)
		}
	}
	f("10", 10, true)
	f("0", 0, true)
	f("0.5", 0.5, true)
	f(".5", 0.5, true)
	f("5.", 5, true)
	f("+5", 5, true)
	f("1e2", 100, true)
	f("1E-2", 0.01, true)
	f("007", 7, true)
	f(strings.Repeat("9", maxDelayText), 1e40, true)
	f(strings.Repeat("9", maxDelayText+1), 0, false)
	f("", 0, false)
	f(".", 0, false)
	f("+", 0, false)
	f("-1", 0, false)
	f("-0", 0, false)
	f("1,5", 0, false)
	f("1.2.3", 0, false)
	f("10s", 0, false)
	f("10 20", 0, false)
	f("1e", 0, false)
	f("1e+", 0, false)
	f("e5", 0, false)
	f("1e999", 0, false)
	f("1_0", 0, false)
	f("0x10", 0, false)
	f("inf", 0, false)
	f("NaN", 0, false)
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
	f("https://a b/", false)
	f("<https://a/>", false)
	f("https://a/<b>", false)
	f("https://a/\x00", false)
	f("javascript://a/", false)
}

func TestContentSignalValues(t *testing.T) {
	f := func(value, want string) {
		t.Helper()
		var got []string
		for key, val := range SignalPairs([]byte(value)) {
			got = append(got, fmt.Sprintf("%s=%s", key, val))
		}
		if joined := strings.Join(got, " "); joined != want || isSignal([]byte(value)) != (want != "") {
			t.Errorf("%q: %q, want %q", value, joined, want)
		}
	}
	f("ai-train=no, search=yes, ai-input=no", "ai-train=no search=yes ai-input=no")
	f("ai-train=no,search=yes", "ai-train=no search=yes")
	f(" AI-Train = NO ", "AI-Train=NO")
	f("search=yes, search=no", "search=yes search=no") // the last counts
	f("use=reference", "use=reference")
	f("use=immediate, use=full", "use=immediate use=full")
	f("use=maybe", "")
	f("search=1", "")
	f("search=1, ai-train=no", "ai-train=no")
	f("colour=red", "colour=red") // unknown keys are kept
	f("search", "")
	f("search=", "")
	f("=yes", "")
	f(",,search=yes,", "search=yes")
	f("search=yes no", "")
	f("a=b=c", "")
	f("", "")
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
	f("train-ai=N", "", Unstated, Unstated, true)     // tokens have case
	f("train-ai=\"n\"", "", Unstated, Unstated, true) // a string is no token
	f("train-ai=nn", "", Unstated, Unstated, true)
	f("other=(1 -2.5 \"s\" tok/x :YQ==: ?1 @123 %\"x\");q=?0, search=n", "", Unstated, UseRefused, true)
	f("", "", Unstated, Unstated, true)
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
}

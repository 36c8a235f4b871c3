package terminal

import (
	"cmp"
	"regexp"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestSites shows sites of each kind on terminals: a line each, no wider than they are, aligned, with nothing that a
// terminal would obey but colours.
func TestSites(t *testing.T) {
	auditor := audit.New(tokens.Default())
	site := func(host string, outcome exchange.Outcome, status int, body string) *audit.Site {
		o, err := origin.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		s := &audit.Site{Origin: o.As(origin.HTTPS)}
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = outcome, status, []byte(body)
		auditor.Judge(s)
		return s
	}
	long := strings.Repeat("x", 60) + strings.Repeat("."+strings.Repeat("y", 60), 2) + ".example"
	aligned := map[int]int{} // the column of the mark, by the terminal's width
	f := func(want string, s *audit.Site) {
		t.Helper()
		for _, width := range []int{60, 72, 80, 100, 200} {
			master, terminal := hostiletest.Terminal(t, width)
			screen := hostiletest.Watch(master)
			err := NewSites(terminal, tokens.Default()).Add(s)
			_ = terminal.Close()
			line := strings.TrimSuffix(screen.End(), "\n")
			shown := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(line, "")
			hostiletest.Check(t, "a line", []byte(shown), 4*width)
			if columns := runewidth.StringWidth(shown); err != nil || columns > width || columns < 40 {
				t.Errorf("%v, %d columns of %d: %q", err, columns, width, shown)
			}
			if !strings.Contains(line, "\x1b[") || width > 100 && strings.Join(strings.Fields(shown), " ") != want {
				t.Errorf("on %d columns %q, want %q", width, shown, want)
			}
			at := runewidth.StringWidth(shown[:strings.IndexAny(shown, "✓✗?")])
			if aligned[width] = cmp.Or(aligned[width], at); at != aligned[width] {
				t.Errorf("not aligned on %d columns: %q", width, shown)
			}
		}
	}
	f("www.example.com rules ✗ 2 blocked CCBot, GPTBot", site("www.example.com", exchange.Answered, 200,
		"User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n"))
	f("http://example.com:8080 rules ✓ 0 blocked", func() *audit.Site {
		s := site("example.com", exchange.Answered, 200, "User-agent: *\nDisallow:\n")
		s.Fetch.Answered, _ = origin.Parse("http://example.com:8080")
		return s
	}())
	f("example.com none ✓ 0 blocked status 404", site("example.com", exchange.Answered, 404, ""))
	f("example.com unreachable ? unknown dns_not_found", site("example.com", exchange.DNSNotFound, 0, ""))
	f("example.com not_asked ? unknown opted_out", site("example.com", exchange.OptedOut, 0, ""))
	f("example.com rules ✗ 1 blocked GPTBot", site("example.com", exchange.Answered, 200,
		"User-agent: GPTBot\nUser-agent: evil\x1b[31m\u202e\nDisallow: /\n"))
	ai := 0
	for _, token := range tokens.Default().Tokens {
		if token.Category == "ai" {
			ai++
		}
	}
	f(strings.Join([]string{"example.com", "server_error", "✗", printable.Number(ai), "blocked", "status", "503"}, " "),
		site("example.com", exchange.Answered, 503, ""))
	f(strings.Repeat("x", 39)+"… rules ✗ 1 blocked GPTBot", site(long, exchange.Answered, 200,
		"User-agent: GPTBot\nDisallow: /\n"))
}

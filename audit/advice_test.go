package audit_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestAdviceVectors judges each answer of advice.txt. Each advice has answers of both kinds.
func TestAdviceVectors(t *testing.T) {
	seen := map[string]int{}
	for line := range strings.Lines(readVectors(t, "advice.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '%' {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) < 5 || len(cells) > 6 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		seen[cells[0]+", "+cells[1]]++
		want := "[]"
		if cells[1] == "given" {
			want = "[" + strings.Join(append(cells[:1:1], cells[5:]...), " line ") + "]"
		}
		s := answerOf(t, cells[2], cells[3], cells[4])
		audit.Judge(s)
		got := []string{}
		for _, a := range audit.Explain(s).Advice {
			if a.Line > 0 {
				a.ID += fmt.Sprintf(" line %d", a.Line)
			}
			got = append(got, a.ID)
		}
		if fmt.Sprint(got) != want || len(got) != s.Report.Advice.Len() {
			t.Errorf("%v, want %v: %s", got, want, line)
		}
	}
	for a := range audit.NumAdvice {
		for _, kind := range []string{"given", "near miss"} {
			if seen[a.String()+", "+kind] == 0 {
				t.Errorf("%v has no answer: %s", a, kind)
			}
			delete(seen, a.String()+", "+kind)
		}
	}
	if len(seen) > 0 {
		t.Errorf("unknown: %v", seen)
	}
}

// answerOf returns the site of a line of advice.txt.
func answerOf(t *testing.T, status, fields, body string) *audit.Site {
	t.Helper()
	text, err := strconv.Unquote(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	s := &audit.Site{IsFile: status == "file", Fetch: exchange.Response{Body: []byte(text)}}
	if !s.IsFile {
		s.Fetch.Outcome = exchange.Answered
		if s.Fetch.Status, err = strconv.Atoi(status); err != nil {
			t.Fatal(err)
		}
	}
	for field := range strings.SplitSeq(fields, ", ") {
		switch name, value, _ := strings.Cut(field, ": "); name {
		case "X-Robots-Tag":
			s.Fetch.Fields.XRobotsTag = []byte(value)
		case "challenge":
			s.Fetch.Fields.Challenge = value
		case "":
		default:
			t.Fatalf("field %q", field)
		}
	}
	return s
}

// TestAdviceOrder shows that advice comes in the order of the table, without that of an earlier site, and with an
// example.
func TestAdviceOrder(t *testing.T) {
	s := answerOf(t, "200", "X-Robots-Tag: noindex",
		`"User-agent: *\nDisallow:\n\nUser-agent: anthropic-ai\nDisallow: /\nDisallow: http://a/\nNoindex: /\n"`)
	audit.Judge(s)
	const want = "noindex_in_robots url_in_rule empty_rule_ends_group operator_partly_blocked x_robots_tag_of_robots"
	var got []string
	for a := range s.Report.Advice.All() {
		got = append(got, a.String())
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if text := audit.Explain(s).Advice[3].Text; !strings.HasSuffix(text,
		"Here, of Anthropic: anthropic-ai is blocked, ClaudeBot is not.") {
		t.Errorf("%q", text)
	}
	s.Fetch.Body, s.Fetch.Fields.XRobotsTag = []byte("User-agent: *\nDisallow: /\n"), nil
	if audit.Judge(s); s.Report.Advice != 0 {
		t.Errorf("%b after a site with advice", s.Report.Advice)
	}
}

// TestAdviceTable shows that each advice has an id and a text of its own, and that the text is short.
func TestAdviceTable(t *testing.T) {
	seen := map[string]bool{}
	for a := range audit.NumAdvice {
		if a.String() == "" || a.Text() == "" || len(a.Text()) > 140 || seen[a.String()] || seen[a.Text()] {
			t.Errorf("%d: %q, %q", a, a, a.Text())
		}
		seen[a.String()], seen[a.Text()] = true, true
	}
	if audit.NumAdvice.String() != "?" || audit.NumAdvice.Text() != "" {
		t.Errorf("%q, %q", audit.NumAdvice, audit.NumAdvice.Text())
	}
}

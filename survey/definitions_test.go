package survey

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestUnread compares the text of Unread, about sites that have shown no rules, with the counts of each definition.
func TestUnread(t *testing.T) {
	if strings.Contains(Unread, "five") != (len(Definitions()) == 6) {
		t.Error("the number of definitions is not what Unread says")
	}
	const closed = "User-agent: *\nDisallow: /\n"
	for i, c := range []struct {
		outcome        exchange.Outcome
		status         int
		challenge      string
		body           string
		counts, blocks bool // by rfc_effective
	}{
		{outcome: exchange.Answered, status: 503, counts: true, blocks: true},
		{outcome: exchange.ClosedEarly, status: 200, counts: true, blocks: true}, // the head came
		{outcome: exchange.Answered, status: 429, counts: true},
		{outcome: exchange.Answered, status: 403, counts: true},
		{outcome: exchange.Answered, status: 403, challenge: "cloudflare", counts: true},
		{outcome: exchange.Answered, status: 503, challenge: "cloudflare", counts: true, blocks: true},
		{outcome: exchange.Answered, status: 200, challenge: "cloudflare", body: closed, counts: true, blocks: true},
		{outcome: exchange.Answered, status: 200, challenge: "cloudflare", body: "Checking your browser", counts: true},
		{outcome: exchange.DNSNotFound},
		{outcome: exchange.Timeout},
		{outcome: exchange.ConnectRefused},
		{outcome: exchange.OptedOut},
	} {
		o, err := origin.Parse("https://a.example")
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Input: "a.example", Origin: o}
		site.Fetch = exchange.Response{Outcome: c.outcome, Status: c.status, Body: []byte(c.body)}
		site.Fetch.Fields.Challenge = c.challenge
		audit.Judge(site)
		if f := site.Report.Finding; f == audit.FindingRules {
			t.Fatalf("case %d shows its rules", i)
		}
		st := written(t, []*audit.Site{site}, cut{rows: 1, shards: 1})
		for _, d := range Definitions() {
			s, err := Summarize(t.Context(), st, "cut", SummaryOptions{Definition: d.Name})
			if err != nil {
				t.Fatal(err)
			}
			named := strings.Contains(Unread, d.Name)
			if counts := s.Blocking.Sites > 0; counts != (named && c.counts) {
				t.Errorf("case %d, %v %d: %s counts it: %v", i, c.outcome, c.status, d.Name, counts)
			}
			if blocks := s.Blocking.AtLeastOne > 0; blocks != (named && c.blocks) {
				t.Errorf("case %d, %v %d: by %s it blocks: %v", i, c.outcome, c.status, d.Name, blocks)
			}
		}
	}
}

// TestUnreadIsSaid checks that the methods of a dataset contain Unread, and no other text about it.
func TestUnreadIsSaid(t *testing.T) {
	var text strings.Builder
	for _, s := range []Section{limits(), meanings()} {
		text.Write(markdown([]Section{s}))
	}
	if !strings.Contains(text.String(), Unread) || strings.Contains(text.String(), "no share takes") {
		t.Errorf("the limitations are\n%s", text.String())
	}
}

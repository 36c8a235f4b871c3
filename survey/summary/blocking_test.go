package summary

import (
	"math"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/survey"
)

// TestUnread compares the text of Unread, about sites that have shown no rules, with the counts of each definition.
func TestUnread(t *testing.T) {
	if strings.Contains(survey.Unread, "five") != (len(survey.Definitions()) == 6) {
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
		st := surveytest.Written(t, []*audit.Site{site}, surveytest.Cut{Rows: 1, Shards: 1})
		for _, d := range survey.Definitions() {
			s, err := Of(t.Context(), st, "cut", Options{Definition: d.Name})
			if err != nil {
				t.Fatal(err)
			}
			named := strings.Contains(survey.Unread, d.Name)
			if counts := s.Blocking.Sites > 0; counts != (named && c.counts) {
				t.Errorf("case %d, %v %d: %s counts it: %v", i, c.outcome, c.status, d.Name, counts)
			}
			if blocks := s.Blocking.AtLeastOne > 0; blocks != (named && c.blocks) {
				t.Errorf("case %d, %v %d: by %s it blocks: %v", i, c.outcome, c.status, d.Name, blocks)
			}
		}
	}
}

// TestSummaryCertainty compares the bounds of summaries by each definition with the choices of sensitivity, and their
// intervals, of the whole list as a sample of itself, with the shares.
func TestSummaryCertainty(t *testing.T) {
	st := surveytest.Written(t, surveytest.Mixed(t, 400, 5), surveytest.Cut{Rows: 150, Shards: 1})
	for _, d := range survey.Definitions() {
		s, err := Of(t.Context(), st, "cut", Options{Options: survey.Options{Uncertainty: survey.Uncertainty{SampleOf: 400}},
			Definition: d.Name, Selection: survey.Selection{Category: "ai"}})
		if err != nil {
			t.Fatal(err)
		}
		b := &s.Blocking
		headlines := 0
		b.EachHeadline(func(kind, value string, k int64, sure *survey.Certainty) {
			headlines++
			n, u := b.Sites, b.Unobserved
			if u == 0 || *sure.Bounds != [2]float64{survey.Share(k, n+u), survey.Share(k+u, n+u)} ||
				math.Abs(sure.Interval[0]-survey.Share(k, n)) > 1e-9 || sure.Interval[0] != sure.Interval[1] {
				t.Errorf("by %s, %s %s, %d of %d, %d unobserved: %v, %v", d.Name, kind, value, k, n, u, *sure.Bounds,
					*sure.Interval)
			}
		})
		if headlines != 1+len(b.MostBlocked)+len(b.ByPurpose)+len(b.ByOperator) || s.LeastGroup != 30 || s.SampleOf != 400 {
			t.Errorf("by %s: %d headlines, %+v", d.Name, headlines, s.Uncertainty)
		}
		if d.Over == "sites_answered" {
			if b.Unobserved != s.Rows-s.Answered {
				t.Errorf("by %s, %d unobserved", d.Name, b.Unobserved)
			}
			continue
		}
		rows := sensitive(t, st, d.Name)
		for _, token := range b.MostBlocked {
			if token.Token == "GPTBot" && *token.Bounds != [2]float64{*rows["unobserved_open"].Share,
				*rows["unobserved_blocking"].Share} {
				t.Errorf("by %s: bounds %v, by sensitivity %v, %v", d.Name, *token.Bounds, *rows["unobserved_open"].Share,
					*rows["unobserved_blocking"].Share)
			}
		}
	}
	if _, err := Of(t.Context(), st, "cut",
		Options{Options: survey.Options{Uncertainty: survey.Uncertainty{SampleOf: 399}}}); err == nil {
		t.Error("a sample of 399 sites has 400")
	}
}

package page

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// seen returns a survey in which so many sites answered, and so many answers have a time.
func seen(answered, timed int64) *builder {
	s := &tables.Survey{Manifest: &commit.Manifest{ScanDate: "2026-11-22"}, Tables: map[string]*tables.Table{}}
	for _, d := range survey.Definitions() {
		of := &summary.Summary{Asked: 9, Answered: answered, Blocking: summary.Blocking{Definition: d.Name}}
		if answered > 0 {
			of.Statuses = []survey.Count{{Value: "404", Rows: answered}}
		}
		if timed > 0 {
			half, most := 20.0, 30.0
			of.MedianMillis, of.P99Millis = &half, &most
		}
		s.Summaries = append(s.Summaries, of)
	}
	if timed > 0 {
		s.Tables["histograms"] = &tables.Table{Columns: []string{"kind", "from", "to", "sites"},
			Rows: [][]any{{"total_ms", 16.0, 22.6, timed}}}
	}
	return &builder{survey: s, on: survey.Full}
}

// TestAnswersWithoutTimes checks that a figure says "no site answered" only if none did, and not if times or sizes are
// unknown.
func TestAnswersWithoutTimes(t *testing.T) {
	f := func(answered, timed int64, says, subtitle string) {
		t.Helper()
		b := seen(answered, timed)
		latency := b.latency()
		got := latency.Since
		if got == "" {
			got = latency.Variants[0].Headline
			if !strings.Contains(latency.Variants[0].Subtitle, subtitle) {
				t.Errorf("%d answered, %d have a time: %q", answered, timed, latency.Variants[0].Subtitle)
			}
		}
		if got != says {
			t.Errorf("%d answered, %d have a time: %q, want %q", answered, timed, got, says)
		}
		for _, g := range b.groups() {
			for _, f := range g.Figures {
				if f.Since == noAnswer && answered > 0 {
					t.Errorf("%s is missing, since %s, of %d answers", f.ID, f.Since, answered)
				}
			}
		}
	}
	f(0, 0, noAnswer, "")
	f(3, 0, "the dataset has no times of its answers, as captures of an archive have none", "")
	f(3, 2, "Half of the sites answer within 20 ms, 99% within 30 ms",
		"of sites that answered and whose time is known, n = 2")
	f(3, 3, "Half of the sites answer within 20 ms, 99% within 30 ms", "of sites that answered, n = 3")
}

// TestNumbersSayTheirDefinition checks that figures of the head name the definition that they depend on: they stay when
// the reader chooses another definition.
func TestNumbersSayTheirDefinition(t *testing.T) {
	b := seen(3, 3)
	for _, n := range b.numbers() {
		if strings.Contains(n.Label, "block") != strings.HasSuffix(n.Label, "(everything forbidden)") {
			t.Errorf("%q", n.Label)
		}
	}
}

// TestFindingsSayWhoCounts checks that the page has the text of Unread about sites without rules.
func TestFindingsSayWhoCounts(t *testing.T) {
	b := seen(3, 3)
	b.survey.Tables["findings"] = &tables.Table{Columns: []string{"finding", "sites"},
		Rows: [][]any{{"server_error", int64(3)}}}
	if v := b.findings().Variants[0]; v.Caveat != survey.Unread {
		t.Errorf("the page says %q", v.Caveat)
	}
}

package page

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// TestOverTime shows the headline of the shares of several dates.
func TestOverTime(t *testing.T) {
	const pruned = "The nights up to 2026-11-19 were pruned"
	f := func(want string, shares ...float64) {
		t.Helper()
		s := hostileSurvey()
		s.Pruned = "2026-11-19"
		rows := [][]any{}
		for i, share := range shares {
			rows = append(rows, []any{"GPTBot", survey.Full, "2026-11-2" + string(rune('0'+i)), share})
		}
		s.Tables["blocked-over-time"] = &tables.Table{Columns: []string{"token", "definition", "scan_date", "share"},
			Rows: rows}
		figure := (&builder{survey: s}).overTime()
		if figure.Since != want && len(figure.Variants) == 0 {
			t.Errorf("%v: missing, since %q, want %q", shares, figure.Since, want)
		}
		for _, v := range figure.Variants {
			if !strings.Contains(v.Caveat, pruned) {
				t.Errorf("%q does not say that nights were pruned", v.Caveat)
			}
			if v.Definition == survey.Full && v.Headline != want {
				t.Errorf("%v: %q, want %q", shares, v.Headline, want)
			}
		}
	}
	f(noHistory+": those up to 2026-11-19 were pruned", 0.5)
	f("GPTBot: from 0% to 100% of sites", 0, 0.5, 1)
	f("GPTBot: 50.0% of sites, as on the first date", 0.5, 1, 0.5)
}

// TestOverTimeOfOtherSites has dates with different numbers of observed sites. If one has less than half of another,
// the headline gives both numbers, since its shares then follow what was observed.
func TestOverTimeOfOtherSites(t *testing.T) {
	f := func(want string, before, after int64) {
		t.Helper()
		s := hostileSurvey()
		s.Tables["blocked-over-time"] = &tables.Table{Columns: []string{"token", "definition", "scan_date", "share", "of"},
			Rows: [][]any{{"GPTBot", survey.Full, "2026-11-20", 0.1, before}, {"GPTBot", survey.Full, "2026-11-21", 0.5, after}}}
		for _, v := range (&builder{survey: s}).overTime().Variants {
			if v.Definition == survey.Full && v.Headline != want {
				t.Errorf("%d, %d: %q, want %q", before, after, v.Headline, want)
			}
		}
	}
	f("GPTBot: from 10.0% to 50.0% of sites", 720, 360)
	f("GPTBot: from 10.0% to 50.0% of sites", 360, 720)
	f("GPTBot: 10.0% of 720 sites on the first date, 50.0% of 359 on the last", 720, 359)
	f("GPTBot: 10.0% of 37 sites on the first date, 50.0% of 7,200 on the last", 37, 7200)
}

package page

import (
	"testing"

	"github.com/bulkscan/bulkscan/internal/report"
)

// TestOverTime shows the headline of the shares of several dates.
func TestOverTime(t *testing.T) {
	f := func(want string, shares ...float64) {
		t.Helper()
		s := hostileSurvey()
		rows := [][]any{}
		for i, share := range shares {
			rows = append(rows, []any{"GPTBot", report.Full, "2026-11-2" + string(rune('0'+i)), share})
		}
		s.Tables["blocked-over-time"] = &report.Table{Columns: []string{"token", "definition", "scan_date", "share"}, Rows: rows}
		for _, v := range (&builder{survey: s}).overTime().Variants {
			if v.Definition == report.Full && v.Headline != want {
				t.Errorf("%v: %q, want %q", shares, v.Headline, want)
			}
		}
	}
	f("One night is no series", 0.5)
	f("GPTBot: from 0% to 100% of sites", 0, 0.5, 1)
	f("GPTBot: 50.0% of sites, as on the first date", 0.5, 1, 0.5)
}

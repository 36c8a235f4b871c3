package page

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/survey"
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
		s.Tables["blocked-over-time"] = &survey.Table{Columns: []string{"token", "definition", "scan_date", "share"}, Rows: rows}
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
	f(noHistory+", since those up to 2026-11-19 were pruned", 0.5)
	f("GPTBot: from 0% to 100% of sites", 0, 0.5, 1)
	f("GPTBot: 50.0% of sites, as on the first date", 0.5, 1, 0.5)
}

package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// TestSharesTellOfSilence shows a share by the time since its last report.
func TestSharesTellOfSilence(t *testing.T) {
	reported := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	f := func(state commit.ShareState, since time.Duration, wantState, wantSign string, wantSeconds float64) {
		t.Helper()
		now, seconds := reported.Add(since), 0.0
		share := &commit.Share{N: 1, State: state, UpdatedAt: reported,
			Holder: commit.Holder{StartedAt: reported.Add(-time.Minute)}}
		st := shares.StatusOf(&commit.Manifest{ScanID: "s", Shares: 1}, map[int]*commit.Share{0: share}, now)
		if st.Shares[0].NoSign != nil {
			seconds = *st.Shares[0].NoSign
		}
		var page strings.Builder
		if err := Shares(&page, st, now); err != nil {
			t.Fatal(err)
		}
		_, sign, _ := strings.Cut(page.String(), "no sign ")
		if got := st.Shares[0].State; got != wantState || seconds != wantSeconds || strings.TrimSpace(sign) != wantSign {
			t.Errorf("%s, %v after its report: %s, %v s, want %s, %v s\n%s", state, since, got, seconds, wantState, wantSeconds,
				&page)
		}
	}
	f(commit.ShareRunning, 40*time.Second, "running", "", 0)
	f(commit.ShareRunning, 50*time.Second, "running", "for 50s", 50)
	f(commit.ShareRunning, 4*time.Minute, "silent", "for 4m", 240)
	f(commit.ShareRunning, -time.Hour, "running", "", 0) // a clock is wrong
	f(commit.ShareInterrupted, time.Hour, "interrupted", "", 0)
	f(commit.ShareDone, time.Hour, "done", "", 0)
}

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// shareStates are the states of shares in the order in which they are shown: states that need attention first.
var shareStates = []string{string(commit.ShareFailed), shares.Silent, string(commit.ShareInterrupted),
	string(commit.ShareRunning), shares.Waiting, string(commit.ShareDone)}

// maxShares bounds how many shares are shown one by one.
const maxShares = 40

// Shares shows how far a scan in shares is.
func Shares(w io.Writer, st *shares.Status, now time.Time) error {
	var b strings.Builder
	var counts []string
	for _, state := range slices.Backward(shareStates) {
		if n := st.Count[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	what := "not collected"
	if st.State == commit.Complete {
		what = "collected"
	}
	fmt.Fprintf(&b, "Scan %s of %s, %s, %s: %s\n", st.ScanID, st.ScanDate, printable.Count(len(st.Shares), "share"), what,
		strings.Join(counts, ", "))
	fmt.Fprintf(&b, "%s sites kept, %s a second now\n", printable.Number(st.Sites), printable.Number(int64(st.PerSecond)))
	var shown []shares.ShareStatus
	for _, s := range st.Shares {
		if s.State != shares.Waiting && s.State != string(commit.ShareDone) {
			shown = append(shown, s)
		}
	}
	slices.SortStableFunc(shown, func(a, b shares.ShareStatus) int {
		return cmp.Compare(slices.Index(shareStates, a.State), slices.Index(shareStates, b.State))
	})
	if len(shown) > 0 {
		fmt.Fprintf(&b, "\n%7s  %-11s  %7s  %10s  %8s  %9s  %8s  %s\n", "share", "state", "attempt", "sites", "a second",
			"list read", "began", "where")
	}
	for i, s := range shown {
		if i == maxShares {
			fmt.Fprintf(&b, "… and %d more; --json has all\n", len(shown)-i)
			break
		}
		read := "–"
		if s.ListRead != nil {
			read = roundPercent(*s.ListRead)
		}
		fmt.Fprintf(&b, "%7d  %-11s  %7d  %10s  %8.0f  %9s  %8s  %s\n", s.I, s.State, s.Attempt, printable.Number(s.Sites), s.PerSecond,
			read, ago(s.Since, now), Line(s.Host))
		if s.Reason != "" {
			fmt.Fprintf(&b, "         %s\n", Line(s.Reason))
		}
		if s.NoSign != nil {
			fmt.Fprintf(&b, "         no sign for %s\n", strings.TrimSuffix(ago(s.Reported, now), " ago"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ago is how long ago something was, in two or three digits and a unit.
func ago(at *time.Time, now time.Time) string {
	if at == nil {
		return "–"
	}
	switch d := max(0, now.Sub(*at)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs ago", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm ago", d.Minutes())
	default:
		return fmt.Sprintf("%.0fh ago", d.Hours())
	}
}

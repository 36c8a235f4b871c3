package summary

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/survey"
)

// TestEmpty has scans without results, and the texts about them.
func TestEmpty(t *testing.T) {
	f := func(e Ending, want string) {
		t.Helper()
		if got := e.Empty(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%+v:\ngot  %q\nwant %q", e, got, want)
		}
	}
	outcomes := func(values ...any) (list []survey.Count) {
		for i := 0; i < len(values); i += 2 {
			list = append(list, survey.Count{Value: values[i].(string), Rows: int64(values[i+1].(int))})
		}
		return list
	}
	f(Ending{}, "the list is empty")
	f(Ending{Lines: 9}, "no usable site among the 9 lines of the list (0 rejected); see --dry-run")
	f(Ending{Lines: 9, Rejected: 4, LeftOut: 5}, "9 lines of the list (4 rejected, 5 left out by --sample); see")
	f(Ending{Lines: 9, Entries: 9, Outcomes: outcomes("dns_timeout", 8, "answered", 1)}, "")
	f(Ending{Lines: 9, Entries: 9, Outcomes: outcomes("dns_timeout", 8, "opted_out", 1)},
		"none of 9 sites answered (dns_timeout 8); check the name servers")
	f(Ending{Lines: 9, Entries: 9, Outcomes: outcomes("connect_failed", 5, "reset", 1, "timeout", 1, "tls_failed", 1,
		"dns_failed", 1)},
		"none of 9 sites answered (connect_failed 5, reset 1, timeout 1, tls_failed 1, others 1); check this machine's network")
	f(Ending{Lines: 2, Entries: 2, Outcomes: outcomes("opted_out", 1, "blocked_address", 1)},
		"none of 2 sites was asked (opted_out 1, blocked_address 1)")

	// The rest of a resumed scan may fail where the scan has answers.
	resumed := Ending{Lines: 9, Entries: 9, AlreadyKept: 8, Outcomes: outcomes("timeout", 1)}
	f(resumed, "")
	resumed.Scan = &Summary{Outcomes: outcomes("answered", 8, "timeout", 1)}
	f(resumed, "")
	resumed.Scan = &Summary{Outcomes: outcomes("timeout", 9)}
	f(resumed, "none of 9 sites answered (timeout 9)")
}

package compare

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Disturbance describes the web, the list and the faults of a scan through a bad network.
type Disturbance struct {
	Web    *simweb.Web
	Policy simweb.Policy
	Hosts  []string                         // the list
	Faced  func(host string) []simweb.Fault // faults of a host's connections, in order
	Within time.Duration                    // the longest time of an exchange with its look-up
}

// DisturbedResult is the result of Disturbed.
type DisturbedResult struct {
	Rows, Expected          int
	Twice, Missing, Unknown int
	True                    int                      // rows of the undisturbed web
	Explained               map[simweb.FaultKind]int // other rows, explained by a fault
	Outcomes                map[string]int           // of Explained
	Wrong                   int                      // rows that no fault explains
	Late                    int                      // rows that took too long
	Examples                []string                 // the first errors, described
}

// OK reports whether every origin has exactly one row, and each row is in time and true or explained.
func (r *DisturbedResult) OK() bool {
	return r.Rows == r.Expected && r.Twice+r.Missing+r.Unknown+r.Wrong+r.Late == 0
}

// String describes the result in a few lines.
func (r *DisturbedResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d rows of %d origins: %d twice, %d missing, %d unknown, %d true, %d neither true nor explained, %d late",
		r.Rows, r.Expected, r.Twice, r.Missing, r.Unknown, r.True, r.Wrong, r.Late)
	for _, kind := range slices.Sorted(maps.Keys(r.Explained)) {
		fmt.Fprintf(&b, "\n  %s explains %d", kind, r.Explained[kind])
	}
	for _, example := range r.Examples {
		fmt.Fprintf(&b, "\n  %s", example)
	}
	return b.String()
}

// Disturbed compares a scan's committed rows with the undisturbed web and the faults.
func Disturbed(ctx context.Context, scan *commit.Scan, d Disturbance) (*DisturbedResult, error) {
	expected := make(map[key]simweb.Expect, len(d.Hosts))
	for _, host := range d.Hosts {
		o, err := origin.Parse(host)
		if err != nil {
			return nil, err
		}
		expected[key{o.Host(), int(o.Port()), o.Scheme().String()}] = d.Web.Expect(o, d.Policy)
	}
	r := &DisturbedResult{Expected: len(expected), Explained: map[simweb.FaultKind]int{}, Outcomes: map[string]int{}}
	example := func(format string, args ...any) { addExample(&r.Examples, format, args...) }
	seen := make(map[key]bool, len(expected))
	for row, err := range read.Rows[schema.SiteRow](ctx, scan, schema.Sites) {
		if err != nil {
			return nil, err
		}
		r.Rows++
		k := key{row.Host, int(row.Port), row.Requested}
		want, known := expected[k]
		switch {
		case !known:
			r.Unknown++
			example("%v is in no list", k)
			continue
		case seen[k]:
			r.Twice++
			example("%v has two rows", k)
			continue
		}
		seen[k] = true
		if most := d.Within * time.Duration(max(1, row.Attempts)*(row.Hops+
			1)); float64(row.TotalMillis) > most.Seconds()*1000 {
			r.Late++
			example("%v took %.0f ms in %d attempts", k, row.TotalMillis, row.Attempts)
		}
		if isTrue(row, &want) {
			r.True++
			continue
		}
		kind, ok := d.explains(row, &want)
		if !ok {
			r.Wrong++
			example("%v (%s) is %s %d of %d bytes after %d hops and %d attempts, not %v %d of %d bytes; it met %v", k,
				want.Behaviour,
				row.Outcome, row.Status, row.BodyBytes, row.Hops, row.Attempts, want.Outcomes, want.Status, want.BodyBytes,
				d.Faced(last(row)))
			continue
		}
		r.Explained[kind]++
		r.Outcomes[row.Outcome]++
	}
	for k, want := range expected {
		if !seen[k] {
			r.Missing++
			example("%v (%s) has no row", k, want.Behaviour)
		}
	}
	return r, nil
}

// isTrue reports whether a row equals that of the undisturbed web.
func isTrue(row *schema.SiteRow, want *simweb.Expect) bool {
	return isAny(row.Outcome, want.Outcomes) && int(row.Status) == want.Status && row.BodyBytes == want.BodyBytes &&
		row.BodyHash == int64(want.BodyHash) && row.Truncated == want.Truncated &&
		(want.Hops < 0 || int(row.Hops) == want.Hops)
}

func isAny(text string, outcomes []exchange.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o exchange.Outcome) bool { return o.String() == text })
}

// last returns the host that was asked last.
func last(row *schema.SiteRow) string {
	if n := len(row.Redirects); n > 0 {
		if u, err := url.Parse(row.Redirects[n-1].URL); err == nil {
			return u.Hostname()
		}
	}
	return row.Host
}

// explains returns the fault that explains a row. If no redirect leads to the host, only its last connection and the
// faults without a connection count, since the row describes the last exchange.
func (d *Disturbance) explains(row *schema.SiteRow, want *simweb.Expect) (simweb.FaultKind, bool) {
	faults := d.Faced(last(row))
	if last(row) == row.Host && want.Hops == 0 {
		connections := 0
		for connections < len(faults) && faults[connections].Kind != simweb.FaultHole &&
			faults[connections].Kind != simweb.FaultLoss {
			connections++
		}
		faults = faults[max(0, connections-1):]
	}
	for _, f := range faults {
		if !isAny(row.Outcome, f.Explains()) {
			continue
		}
		if row.Outcome == exchange.Answered.String() {
			// Only a body that ends with the connection can be cut unnoticed, also by TLS: many servers omit
			// close_notify, so crypto/tls does not require it between two records (Conn.Read).
			if row.Status != int32(want.Status) || row.BodyBytes >= want.BodyBytes || !slices.Contains(endsWithConnection,
				want.Behaviour) {
				continue
			}
		}
		return f.Kind, true
	}
	return simweb.FaultNone, false
}

// endsWithConnection lists the behaviours whose bodies end with the connection.
var endsWithConnection = []string{"ok-until-close", "ok-http10", "endless"}

package compare

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/sink"
)

// Disturbance is what a scan through a bad network is held against.
type Disturbance struct {
	Web    *simweb.Web
	Policy simweb.Policy
	Hosts  []string                         // the list
	Faced  func(host string) []simweb.Fault // what the connections for a host met, in their order
	Within time.Duration                    // an exchange and its look-up take no longer
}

// DisturbedResult is what a comparison through a bad network found.
type DisturbedResult struct {
	Rows, Expected          int
	Twice, Missing, Unknown int
	True                    int                      // rows as the undisturbed web has them
	Explained               map[simweb.FaultKind]int // others that a fault explains
	Outcomes                map[string]int           // of those
	Wrong                   int                      // that nothing explains
	Late                    int                      // that took longer than they may
	Examples                []string                 // the first of what is wrong, in words
}

// OK reports whether every origin has exactly one row, and each row is true or explained, and was in time.
func (r *DisturbedResult) OK() bool {
	return r.Rows == r.Expected && r.Twice+r.Missing+r.Unknown+r.Wrong+r.Late == 0
}

// String says it in a few lines.
func (r *DisturbedResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows of %d origins: %d twice, %d missing, %d unknown, %d true, %d neither true nor explained, %d late",
		r.Rows, r.Expected, r.Twice, r.Missing, r.Unknown, r.True, r.Wrong, r.Late)
	for _, kind := range slices.Sorted(maps.Keys(r.Explained)) {
		fmt.Fprintf(&b, "\n  %s explains %d", kind, r.Explained[kind])
	}
	for _, example := range r.Examples {
		fmt.Fprintf(&b, "\n  %s", example)
	}
	return b.String()
}

// Disturbed holds a scan's committed rows against an undisturbed web and what disturbed it.
func Disturbed(ctx context.Context, scan *sink.Scan, d Disturbance) (*DisturbedResult, error) {
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
	for row, err := range sink.Rows[sink.SiteRow](ctx, scan, sink.TableSites) {
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
		if most := d.Within * time.Duration(max(1, row.Attempts)*(row.Hops+1)); float64(row.TotalMillis) > most.Seconds()*1000 {
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
			example("%v (%s) is %s %d of %d bytes after %d hops and %d attempts, not %v %d of %d bytes; it met %v", k, want.Behaviour,
				row.Outcome, row.Status, row.BodyBytes, row.Hops, row.Attempts, want.Outcomes, want.Status, want.BodyBytes, d.Faced(last(row)))
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

// isTrue reports whether a row is that of the undisturbed web.
func isTrue(row *sink.SiteRow, want *simweb.Expect) bool {
	return isAny(row.Outcome, want.Outcomes) && int(row.Status) == want.Status && row.BodyBytes == want.BodyBytes &&
		row.BodyHash == int64(want.BodyHash) && row.Truncated == want.Truncated && (want.Hops < 0 || int(row.Hops) == want.Hops)
}

func isAny(text string, outcomes []exchange.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o exchange.Outcome) bool { return o.String() == text })
}

// last is the host that was asked last.
func last(row *sink.SiteRow) string {
	if n := len(row.Redirects); n > 0 {
		if u, err := url.Parse(row.Redirects[n-1].URL); err == nil {
			return u.Hostname()
		}
	}
	return row.Host
}

// explains finds the fault that explains a row. Of a host that nobody was led to it is that of the last connection, since that is
// what a row tells of, unless there was none in the end.
func (d *Disturbance) explains(row *sink.SiteRow, want *simweb.Expect) (simweb.FaultKind, bool) {
	faults := d.Faced(last(row))
	if last(row) == row.Host && want.Hops == 0 {
		connections := 0
		for connections < len(faults) && faults[connections].Kind != simweb.FaultHole && faults[connections].Kind != simweb.FaultLoss {
			connections++
		}
		faults = faults[max(0, connections-1):]
	}
	for _, f := range faults {
		if !isAny(row.Outcome, f.Explains()) {
			continue
		}
		if row.Outcome == exchange.Answered.String() {
			// Only where a body has no other end than the connection's. By TLS that would have to be announced, and so many
			// servers do not that nobody insists on it between two records (crypto/tls, Conn.Read).
			if row.Status != int32(want.Status) || row.BodyBytes >= want.BodyBytes || !slices.Contains(endsWithConnection, want.Behaviour) {
				continue
			}
		}
		return f.Kind, true
	}
	return simweb.FaultNone, false
}

// endsWithConnection are the behaviours whose bodies have no other end.
var endsWithConnection = []string{"ok-until-close", "ok-http10", "endless"}

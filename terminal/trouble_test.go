package terminal

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// TestFailures shows when the log warns that most sites fail for one reason: judged by the last thousand sites, or by
// all once the list is read. The next warning needs ten times as many.
func TestFailures(t *testing.T) {
	var f failures
	var now outcomeCounts
	look := func(answered, timeout, notFound uint64, listDone bool, want exchange.Outcome, wantN, wantOf uint64) {
		t.Helper()
		now[exchange.Answered] += answered
		now[exchange.DNSTimeout] += timeout
		now[exchange.DNSNotFound] += notFound
		if outcome, n, of := f.look(now, listDone); outcome != want || n != wantN || of != wantOf {
			t.Errorf("of %d: got %v %d of %d, want %v %d of %d", now.sum(), outcome, n, of, want, wantN, wantOf)
		}
	}
	look(0, 999, 0, false, 0, 0, 0)
	look(0, 1, 0, false, exchange.DNSTimeout, 1000, 1000)
	look(0, 1000, 0, false, 0, 0, 0)
	look(500, 0, 500, false, 0, 0, 0)
	look(500, 0, 501, false, exchange.DNSNotFound, 501, 1001)
	look(0, 5999, 0, false, exchange.DNSTimeout, 5999, 5999)
	look(0, 1000, 0, false, 0, 0, 0)

	f, now = failures{}, outcomeCounts{}
	look(2000, 0, 0, false, 0, 0, 0)
	look(0, 1900, 0, true, 0, 0, 0) // the silent ones come last
	look(0, 1000, 0, true, exchange.DNSTimeout, 2900, 4900)
}

// TestAnonymous shows that a scan of more than a thousand sites without a contact in its User-Agent is warned of, once.
func TestAnonymous(t *testing.T) {
	f := func(sites uint64, want int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			d := &Display{Progress: new(pipeline.Progress), Anonymous: true}
			d.Progress.Fed.Store(sites)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d.Troubles(ctx, slog.New(slog.NewTextHandler(&said, nil)))
			if got := strings.Count(said.String(), "--contact you@example.org"); got != want {
				t.Errorf("of %d sites it says %q", sites, &said)
			}
		})
	}
	f(manySites, 0)
	f(manySites+1, 1)
}

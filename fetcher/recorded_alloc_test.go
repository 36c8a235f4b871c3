//go:build !race

package fetcher

import (
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestReplayAllocatesLittle needs pools that keep their elements, which those of the race detector do not.
func TestReplayAllocatesLittle(t *testing.T) {
	fetch := replayer(t, 1000)
	target, _ := ParseTarget("http://example.com/robots.txt")
	var r exchange.Response
	rec := Recorded{Block: []byte(
		"HTTP/1.1 200 x\r\nServer: y\r\nContent-Type: text/plain\r\nContent-Encoding: br\r\nTransfer-Encoding: chunked\r\n\r\nAllow: /\n"), Undone: true}
	x := exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		x.Past = exchange.Past{}
		fetch.Replay(ctx, &x, &rec)
	}); n > 1 { // fasthttp's, of the reason phrase
		t.Errorf("%v allocations", n)
	}
	r.Reset()
}

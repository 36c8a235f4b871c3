package fetcher

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// The body is complete after a head of any size, for any division into packets.
func TestBodyAfterLargeHead(t *testing.T) {
	body := strings.Repeat("Disallow: /x\n", 10_000)
	var conn *scripted
	cfg := testConfig(netip.AddrPort{})
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	f := newFetcher(t, cfg)
	for name, framed := range map[string][2]string{
		"by length": {fmt.Sprintf("Content-Length: %d\r\n", len(body)), body},
		"by chunks": {"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", 70_000,
			body[:70_000], 60_000, body[70_000:])},
		"until close": {"", body},
	} {
		for _, size := range []int{100, readBuffer - 1, readBuffer, readBuffer + 1, 2*readBuffer + 7, 20_000, maxHead - 1,
			maxHead, maxHead + 1} {
			head := okHead + framed[0]
			head += "X: " + strings.Repeat("x", size-len(head)-len("X: \r\n\r\n")) + "\r\n\r\n"
			for _, sizes := range [][]int{{0}, {size, 0}, {size + 1, 0}, {size - 1, 0}, {1000}, {readBuffer - 1}, {7}} {
				conn = &scripted{rest: []byte(head + framed[1]), sizes: sizes, end: io.EOF}
				r, _ := fetch(t, f, "http://127.0.0.1")
				want := answers(200, body)
				if size > maxHead {
					want = row{exchange.HeaderTooLarge, exchange.CauseHeadTooLarge, 0, ""}
				}
				if got := rowOf(r); got != want {
					t.Errorf("%s, after a head of %d bytes, read by %v: got %v (%v) %d, %d bytes", name, len(head), sizes, got.outcome,
						got.cause, got.status, len(got.body))
				}
				r.Reset()
			}
		}
	}
	allBack(t, f)
}

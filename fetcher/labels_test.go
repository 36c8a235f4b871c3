package fetcher

import (
	"bytes"
	"context"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Profiles show the stages of exchanges. After an exchange its goroutine has its caller's labels again.
func TestExchangesAreLabelled(t *testing.T) {
	profile := func(stage string) bool {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Error(err)
		}
		return strings.Contains(b.String(), `{"stage":"`+stage+`"}`)
	}
	f := func(stage, entry string, handle func(net.Conn)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			fetcher := newFetcher(t, site(t, 0, func(conn net.Conn) {
				if handle != nil {
					handle(conn)
				}
				synctest.Wait() // the client waits for more bytes
				if !profile(stage) {
					t.Errorf("%s: no goroutine has the label", stage)
				}
			}))
			ctx := pprof.WithLabels(t.Context(), pprof.Labels("stage", "caller-"+stage))
			x := exchange.Exchange{Origin: parse(t, entry), Response: new(exchange.Response)}
			x.Target = fetcher.First(x.Origin, x.Past)
			x.Lookup = fetcher.Resolve(ctx, x.Target)
			fetcher.Do(ctx, &x)
			if !profile("caller-" + stage) {
				t.Errorf("%s: the goroutine does not have its caller's label", stage)
			}
		})
	}
	f("tls", "https://example.com", nil)
	f("head", "http://example.com", nil)
	f("body", "http://example.com", func(conn net.Conn) {
		_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nUser-agent: *\n"))
	})
	f("ftp", "ftp://example.com", nil)
}

func TestLabelsAllocateNothing(t *testing.T) {
	caller := pprof.WithLabels(context.Background(), pprof.Labels("stage", "ask"))
	if n := testing.AllocsPerRun(1000, func() {
		label(dialLabel)
		label(tlsLabel)
		label(headLabel)
		label(bodyLabel)
		label(caller)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package fetcher

import (
	"bytes"
	"context"
	"net"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Profiles show the stages of exchanges. After an exchange its goroutine has its caller's labels again.
func TestExchangesAreLabelled(t *testing.T) {
	noLeaks(t)
	profile := func(stage string) bool {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Error(err)
		}
		return strings.Contains(b.String(), `{"stage":"`+stage+`"}`)
	}
	f := func(stage, entry string, handle func(net.Conn)) {
		t.Helper()
		looked := make(chan bool, 1)
		addr := serve(t, func(conn net.Conn) {
			if handle != nil {
				handle(conn)
			}
			// The client will soon wait for more bytes.
			found := false
			for i := 0; i < 2000 && !found; i++ {
				found = profile(stage)
			}
			looked <- found
		})
		cfg := testConfig(addr)
		cfg.Retries, cfg.NoFallback = 0, true
		fetcher := newFetcher(t, cfg)
		ctx := pprof.WithLabels(t.Context(), pprof.Labels("stage", "caller-"+stage))
		var wait sync.WaitGroup
		wait.Go(func() {
			x := exchange.Exchange{Origin: parse(t, entry), Response: new(exchange.Response)}
			x.Target = fetcher.First(x.Origin, x.Past)
			x.Lookup = fetcher.Resolve(ctx, x.Target, 0)
			fetcher.Do(ctx, &x)
			if !profile("caller-" + stage) {
				t.Errorf("%s: the goroutine does not have its caller's label", stage)
			}
		})
		if !<-looked {
			t.Errorf("%s: no goroutine has the label", stage)
		}
		wait.Wait()
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

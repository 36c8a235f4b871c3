package fetcher

import (
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

func TestDoPlain(t *testing.T) {
	noLeaks(t)
	addr := serve(t,
		reply(
			"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 14\r\nCF-RAY: 1\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\n"))
	f := newFetcher(t, testConfig(addr))
	r, asked := fetch(t, f, "http://example.com")
	if r.Outcome != exchange.Answered || r.Status != 200 || string(r.Body) != "User-agent: *\n" || r.Truncated {
		t.Fatalf("got %v %v %d %q", r.Outcome, r.Cause, r.Status, r.Body)
	}
	if string(r.Fields.Server) != "nginx" || r.Fields.CDN != "cloudflare" || r.Proto != "HTTP/1.1" || r.Remote != addr ||
		r.Attempts != 1 {
		t.Errorf("got %+v", r)
	}
	if len(asked) != 1 || asked[0] != "http://example.com/robots.txt" {
		t.Errorf("asked %v", asked)
	}
}

package pipeline_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/pipeline"
)

// dripList is a list of hosts, and the sink of what becomes of them.
type dripList struct {
	n, next int
	begun   time.Time
	healthy time.Duration // when the last healthy host was answered
	sites   map[string]*audit.Site
}

func (l *dripList) Next() (pipeline.Entry, error) {
	if l.next == l.n {
		return pipeline.Entry{}, io.EOF
	}
	host := fmt.Sprintf("h%d.example.com", l.next)
	o, err := origin.Parse("http://" + host)
	l.next++
	return pipeline.Entry{Seq: uint64(l.next - 1), Input: host, Origin: o}, err
}

func (l *dripList) Add(site *audit.Site) error {
	if !drips(site.Input) {
		l.healthy = max(l.healthy, time.Since(l.begun))
	}
	l.sites[site.Input] = &audit.Site{Fetch: exchange.Response{Outcome: site.Fetch.Outcome, Attempts: site.Fetch.Attempts, Body: append([]byte(nil), site.Fetch.Body...)}}
	return nil
}

func (l *dripList) Judge(*audit.Site) {}

// drips reports whether a host sends a few bytes every 100 ms: 6 of a hundred do.
func drips(host string) bool {
	var n int
	_, _ = fmt.Sscanf(host, "h%d.", &n)
	return n%17 == 0
}

// serveDrips answers each request, by host, at once or in drips of some 1.5 seconds.
func serveDrips(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			body := strings.Repeat("#", 80) + "\n"
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if !drips(req.Host) {
				_, _ = io.WriteString(conn, answer)
				return
			}
			for i := 0; i < len(answer); i += 8 {
				if _, err := io.WriteString(conn, answer[i:min(i+8, len(answer))]); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
}

// Hosts that drip give their slots to others, and are answered all the same.
func TestDrippingHostsDoNotHoldUpTheOthers(t *testing.T) {
	const n = 200
	at := netip.MustParseAddrPort("192.0.2.1:80")
	f := func(patience time.Duration) (healthy time.Duration, deferrals uint64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			network := memnet.New(func(_, _ netip.Addr) memnet.Link { return memnet.Link{Latency: 5 * time.Millisecond} })
			listener, err := network.Listen(at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go serveDrips(listener)
			fetch, err := fetcher.New(fetcher.Config{
				UserAgent: "bulkscan/test (+https://bulkscan.example/)", AllowPrivate: true, NoFallback: true,
				ConnectTo: []fetcher.ConnectTo{{Addr: at.Addr(), ToPort: at.Port()}},
				Dial:      memnet.Host{Net: network, Addr: netip.MustParseAddr("192.0.2.2")}.DialContext,
			})
			if err != nil {
				t.Fatal(err)
			}
			l := &dripList{n: n, begun: time.Now(), sites: map[string]*audit.Site{}}
			p := pipeline.New(pipeline.Config{Concurrency: 8, Patience: patience}, l, fetch, l, l)
			if err := p.Run(t.Context()); err != nil || len(l.sites) != n {
				t.Fatalf("kept %d of %d, error %v", len(l.sites), n, err)
			}
			for host, site := range l.sites {
				if site.Fetch.Outcome != exchange.Answered || site.Fetch.Attempts != 1 || len(site.Fetch.Body) != 81 {
					t.Errorf("%s: %v after %d attempts, %d bytes", host, site.Fetch.Outcome, site.Fetch.Attempts, len(site.Fetch.Body))
				}
			}
			healthy, deferrals = l.healthy, p.Progress().DeferredExchanges.Load()
			time.Sleep(time.Second) // the server sees the last end
		})
		return healthy, deferrals
	}
	without, none := f(0)
	with, deferrals := f(150 * time.Millisecond)
	// Twelve drip; the first of the list has its slot while most are free.
	if none != 0 || deferrals != 11 || with > without/2 {
		t.Errorf("the last healthy host was answered after %v, without patience after %v; %d and %d exchanges were deferred", with, without, deferrals, none)
	}
}

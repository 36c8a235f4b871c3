package histories

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// hosts are the sites of the list, by seq. One line is no host.
var hosts = map[int64]string{0: "h0.test", 1: "h1.test", 2: "h2.test", 4: "h4.test", 5: "h5.test", 6: "h6.test",
	7: "h7.test"}

// writeList writes the list of all scans.
func writeList(t *testing.T) string {
	t.Helper()
	lines := make([]string, 8)
	for seq := range lines {
		lines[seq] = "not a host"
		if host := hosts[int64(seq)]; host != "" {
			lines[seq] = "http://" + host
		}
	}
	path := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer is the answer of a host on a day.
type answer struct {
	status int // 0: it refuses connections
	body   string
}

// answers returns the answer of a host at a time: another one on most days.
func answers(seq int64, at time.Time) answer {
	day := at.UTC().Unix() / (24 * 60 * 60)
	switch kind := (seq*7 + day*5) % 11; {
	case seq == 0, kind < 3:
		return answer{200, "User-agent: GPTBot\nDisallow: /\n"}
	case kind < 6:
		return answer{200, fmt.Sprintf("User-agent: *\nDisallow: /%d\nFoo: bar\nSitemap: https://a.test/s.xml\n", day)}
	case kind < 8:
		return answer{404, ""}
	case kind < 10:
		return answer{403, ""}
	default:
		return answer{}
	}
}

// names is a fetcher.Resolver: an address says its host's seq.
type names struct{}

func (names) Lookup(_ context.Context, host string) resolve.Answer {
	return resolve.Answer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, host[1] - '0'})}}
}

func seqOf(address string) int64 { return int64(netip.MustParseAddrPort(address).Addr().As4()[3]) }

// dial opens a connection to a host, which answers one request. That takes a second, in which all other pending work is
// done.
func dial(_ context.Context, _, address string) (net.Conn, error) {
	to := answers(seqOf(address), time.Now())
	time.Sleep(time.Second)
	if to.status == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
			_,
				_ = fmt.Fprintf(theirs,
				"HTTP/1.1 %d x\r\nContent-Length: %d\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n%s", to.status,
				len(to.body), to.body)
		}
	}()
	return ours, nil
}

// scanning says how a scan is run.
type scanning struct {
	id, date                   string
	restart, repair, noPublish bool
	merged                     bool
	interrupted                int64 // after so many requests; 0: never
}

// scan runs a scan as the command does, against the web of the test.
func (h *history) scan(ctx context.Context, st store.Store, s scanning) error {
	var interrupted atomic.Bool
	var asked atomic.Int64
	var j *scan.Job
	fetch, err := fetcher.New(fetcher.Config{UserAgent: "test", AllowPrivate: true, NoFallback: true, Resolver: names{},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if !h.disk.Off() { // else the process is dead
				h.asked[site{s.id, seqOf(address)}] = true // one after another
			}
			if asked.Add(1) == s.interrupted {
				interrupted.Store(true)
				j.Stop()
			}
			return dial(ctx, network, address)
		}})
	if err != nil {
		return err
	}
	j = scan.New(scan.Options{
		Lists: []string{h.list}, Fetch: fetch, Store: st, Log: quiet, Begun: time.Now(), Compact: s.merged,
		Pipeline: pipeline.Config{Concurrency: 1},
		Sink: sink.Options{
			ScanID: s.id, Date: s.date, PartRows: 2, Registry: tokens.Default(), Observer: observerOf(s.id),
			Restart: s.restart, Repair: s.repair, NoPublish: s.noPublish,
		},
		Show:        func(context.Context, string, *pipeline.Progress, func() (int64, int64), uint64) {},
		Interrupted: interrupted.Load,
	})
	defer j.Close()
	_, err = j.Run(ctx)
	if err != nil && interrupted.Load() {
		err = errors.Join(errInterrupted, err)
	}
	return err
}

// observerOf returns the observer of a scan, by its id.
func observerOf(scanID string) commit.Observer {
	product := "test"
	if scanID[0] == 'o' {
		product = "another"
	}
	return commit.Observer{Source: commit.Live, Product: product}
}

var errInterrupted = errors.New("the scan was told to end")

var (
	quiet      = slog.New(slog.NewTextHandler(io.Discard, nil))
	publishing = scan.Publishing{Compact: true, Registry: tokens.Default(), Log: quiet}
)

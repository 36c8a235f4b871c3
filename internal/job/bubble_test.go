package job

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// TestScanInBubbles takes one list twice through a whole scan in virtual time, and then once on sockets: the list, names, hosts, the
// sink, statistics, the history and the views. All three keep the same rows: nothing that one leaves in the process ends the next.
func TestScanInBubbles(t *testing.T) {
	var scans [][]string
	for range 2 {
		bubble.Test(t, func(t *testing.T) {
			scans = append(scans, scanned(t, memnet.New(func(_, to netip.Addr) memnet.Link {
				if simweb.BlackHole(to) {
					return memnet.Link{Latency: -1}
				}
				return memnet.Link{Latency: 5 * time.Millisecond}
			})))
		})
	}
	for i, rows := range append(scans, scanned(t, nil)) {
		if len(rows) != 200 || !slices.Equal(rows, scans[0]) {
			t.Errorf("scan %d has %d rows, and they are not those of the first", i, len(rows))
		}
	}
}

// names is the resolve.Network of a host.
type names struct{ memnet.Host }

func (n names) Packets(server netip.AddrPort) (resolve.Packets, error) { return n.DialPackets(server) }

// scanned scans a web, and returns what its rows say, by seq. nil is the network of this machine.
func scanned(t *testing.T, network *memnet.Network) (rows []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Of these hosts the outcome does not depend on how busy the machine is.
	cfg := simweb.Config{Seed: 7, Addresses: 16, Only: []string{"ok", "ok-gzip", "ok-chunked", "empty", "not-found", "nxdomain"}, Hold: time.Hour}
	resolving := resolve.Options{Hosts: "-", Total: time.Minute}
	fetching := fetcher.Config{MaxRedirects: 5, UserAgent: "test", AllowPrivate: true, Timeout: time.Minute, ConnectTimeout: time.Minute}
	if network != nil {
		client := memnet.Host{Net: network, Addr: netip.AddrFrom4([4]byte{10, 0, 0, 1})}
		cfg.Network, resolving.Network, fetching.Dial = network, names{client}, client.DialContext
	}
	web, err := simweb.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	resolver, err := resolve.New([]string{web.DNSAddr().String()}, resolving)
	if err != nil {
		t.Fatal(err)
	}
	defer resolver.Close()
	fetching.Resolver = resolver
	for _, text := range web.ConnectTo() {
		to, err := fetcher.ParseConnectTo(text)
		if err != nil {
			t.Fatal(err)
		}
		fetching.ConnectTo = append(fetching.ConnectTo, to)
	}
	fetch, err := fetcher.New(fetching)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "list.txt")
	var lines []byte
	for _, host := range simweb.Names(7, 200) {
		lines = fmt.Appendln(lines, host)
	}
	if err := os.WriteFile(list, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	st := newDisk(t)
	j := New(Options{
		Lists: []string{list}, Fetch: fetch, Store: st, Log: publishing.Log, Begun: time.Now(), Compact: true,
		Pipeline: pipeline.Config{Concurrency: 50, HostRate: 1, IPRate: 10},
		Sink:     sink.Options{ScanID: "s", PartRows: 50, Registry: tokens.Default(), Observer: commit.Observer{Source: commit.Live}},
		Show:     func(context.Context, string, *pipeline.Progress, func() (int64, int64), uint64) {}, Interrupted: func() bool { return false },
	})
	defer j.Close()
	if _, err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
	scan, err := commit.ReadScan(ctx, st, "s")
	if err != nil || merged(t, st) != 1 {
		t.Fatalf("%d scans in the history, %v", merged(t, st), err)
	}
	for i := range scan.Commits {
		file, _ := scan.Commits[i].File(schema.Sites)
		for row, err := range table.FileRows[schema.SiteRow](ctx, st, file.Name) {
			if err != nil {
				t.Fatal(err)
			}
			said, err := json.Marshal([]any{row.Seq, row.Host, row.Outcome, row.Status, row.BodyHash, row.Finding, row.Access, row.Blocked})
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(said))
		}
	}
	slices.Sort(rows)
	return rows
}

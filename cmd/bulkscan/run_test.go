package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
	"github.com/bulkscan/bulkscan/simweb/demo"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// world is a simulated web with a list of its hosts and the truth about them.
type world struct {
	web     *simweb.Web
	list    string
	truth   string
	timeout string // of a request; "": 3s

	net     *memnet.Network      // nil: the world is on loopback, and commands are processes
	latency func() time.Duration // of a packet in memory; nil: 5 ms
}

// allAnswer is the time-out if no host is silent: on a busy machine a few hosts answer late.
const allAnswer = "1m"

// newWorld starts a web and makes a list of n of its hosts up. Waits of the web are short, and silent hosts, which only
// cost time-outs, are few: other tests with cheap time-outs cover them.
func newWorld(t *testing.T, n int, cfg simweb.Config) *world {
	t.Helper()
	cfg.Addresses, cfg.Bodies, cfg.Slow = cmp.Or(cfg.Addresses, 16), cmp.Or(cfg.Bodies, 128),
		cmp.Or(cfg.Slow, 100*time.Millisecond)
	web, err := simweb.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	folder := demo.Folder(t.TempDir())
	w := &world{web: web, list: folder.List(), truth: folder.Truth()}
	if len(cfg.Only) > 0 && !slices.ContainsFunc(cfg.Only, func(b string) bool { return b != "ok" && b != "not-found" }) {
		w.timeout = allAnswer
	}
	if err := folder.Write(web, n); err != nil {
		t.Fatal(err)
	}
	return w
}

// inBubble runs a test in virtual time, with a world in memory: its commands run in this process.
func inBubble(t *testing.T, n int, cfg simweb.Config, do func(t *testing.T, w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		var w *world
		network := memnet.New(func(_, to netip.Addr) memnet.Link {
			if simweb.BlackHole(to) {
				return memnet.Link{Latency: -1}
			}
			if w != nil && w.latency != nil {
				return memnet.Link{Latency: w.latency()}
			}
			return memnet.Link{Latency: 5 * time.Millisecond}
		})
		cfg.Network = network
		w = newWorld(t, n, cfg)
		w.net = network
		do(t, w)
	})
}

// client is the network of the machine from which a world in memory is scanned.
type client struct{ memnet.Host }

func (c client) Packets(server netip.AddrPort) (resolve.Packets, error) { return c.DialPackets(server) }

func (c client) listen(_, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return c.Net.Listen(at)
}

func (w *world) client() client {
	return client{memnet.Host{Net: w.net, Addr: netip.AddrFrom4([4]byte{10, 0, 0, 1})}}
}

// start starts bulkscan: in the bubble of a world in memory, else as a process.
func (w *world) start(t *testing.T, args ...string) *process {
	t.Helper()
	if w.net == nil {
		return start(t, args...)
	}
	p, c := &process{gone: make(chan struct{})}, w.client()
	a := &app{stdin: strings.NewReader(""), stdout: &p.stdout, stderr: &p.stderr, network: network{c, c.listen},
		notify: func(signals chan<- os.Signal) func() {
			p.signals.Store(&signals)
			return func() { p.signals.Store(nil) }
		}}
	go func() {
		defer close(p.gone)
		p.code = a.run(args)
	}()
	t.Cleanup(func() { <-p.gone })
	return p
}

// scan is the command that scans the list into out.
func (w *world) scan(t *testing.T, out string, flags ...string) *process {
	t.Helper()
	return w.scanBy(t, out, w.web.ConnectTo(), flags...)
}

// arguments are the arguments of a scan of the list into out.
func (w *world) arguments(t *testing.T, out string, connectTo []string, flags ...string) []string {
	t.Helper()
	ca := filepath.Join(filepath.Dir(w.list), "ca.pem")
	if _, err := os.Stat(ca); err != nil { // else another process may be reading it
		if err := os.WriteFile(ca, w.web.CAPEM(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	timeout := cmp.Or(w.timeout, "3s")
	args := []string{"scan", w.list, "-o", out, "--scan-id", "s", "--resolver", w.web.DNSAddr().String(), "--ca-file", ca,
		"--allow-private",
		"--host-rate", "0", "--ip-rate", "0", "--dns-rate", "0", "--retry-after", "0s", "--timeout", timeout,
		"--connect-timeout", timeout, "--concurrency", "200", "--progress", "none"}
	for _, to := range connectTo {
		args = append(args, "--connect-to", to)
	}
	return append(args, flags...)
}

// scanBy is scan by other ports.
func (w *world) scanBy(t *testing.T, out string, connectTo []string, flags ...string) *process {
	t.Helper()
	return w.start(t, w.arguments(t, out, connectTo, flags...)...)
}

// process is a running bulkscan: a process, or a goroutine in a bubble.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr output

	// Fields of a process in a bubble.
	signals atomic.Pointer[chan<- os.Signal]
	gone    chan struct{}
	code    int
}

// start starts bulkscan, as a process of its own.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith starts bulkscan with further variables in its environment.
func startWith(t *testing.T, environment []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("bulkscan", args...)}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// output is what a process has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if p.cmd == nil {
		signals := p.signals.Load()
		if signals == nil {
			t.Fatalf("it takes no signal\n%s", &p.stderr)
		}
		*signals <- s // the channel has room for all signals that tests send
		return
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("cannot signal: %v\n%s", err, &p.stderr)
	}
}

// exits waits for the end, and compares the exit code with what is expected: -1 for a process that was killed.
func (p *process) exits(t *testing.T, want int) {
	t.Helper()
	if p.cmd == nil {
		if <-p.gone; p.code != want {
			t.Fatalf("exit code %d, want %d\n%s", p.code, want, &p.stderr)
		}
		return
	}
	// its goroutines are printed
	hung := time.AfterFunc(waittest.Hanging, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	// the state says more than the error
	_ = p.cmd.Wait()
	if !hung.Stop() {
		t.Fatalf("it hangs\n%s", &p.stderr)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("exit code %d, want %d\n%s", got, want, &p.stderr)
	}
}

// says checks that the process has printed each of the texts on standard error.
func (p *process) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stderr.String(), text) {
			t.Errorf("nothing of %q in\n%s", text, &p.stderr)
		}
	}
}

// await polls until a condition holds.
func (p *process) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !eventually(holds) {
		t.Fatalf("no %s\n%s", what, &p.stderr)
	}
}

func commits(out string) int {
	found, err := filepath.Glob(filepath.Join(out, "_scans", "s", "commits", "*.json"))
	if err != nil {
		return 0
	}
	return len(found)
}

// mustPlace opens the place of a dataset.
func mustPlace(t *testing.T, place string) store.Store {
	t.Helper()
	st, err := openPlace(place)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// holds compares a dataset with the truth: each origin has one row, which says how the web behaved.
func (w *world) holds(t *testing.T, out string) *commit.Scan {
	t.Helper()
	scan, err := latest(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	mustBeTrue(t, scan, w.truth)
	return scan
}

func mustBeTrue(t *testing.T, scan *commit.Scan, truth string) {
	t.Helper()
	file, err := os.Open(truth)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	result, err := compare.Compare(t.Context(), scan, bufio.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if !result.OK() || result.Rows == 0 {
		t.Error(result)
	}
	if scan.Manifest.State != commit.Complete {
		t.Errorf("the scan is %s, not complete", scan.Manifest.State)
	}
}

// notShort skips a test that takes long: one that waits for time-outs, or starts very many processes.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED in short mode: it takes long; make long runs it, make real some of it")
	}
}

// notQuick leaves a test to `make long` and to the race detector, which finds more in larger tests.
func notQuick(t *testing.T) {
	t.Helper()
	if !raceEnabled {
		notShort(t)
	}
}

// fewWaits are shares of a web with few silent hosts, in short mode with none: each costs a scan all its time-outs.
func fewWaits() map[string]float64 {
	silent := 0.001
	if testing.Short() {
		silent = 0
	}
	return map[string]float64{"silent": silent, "tls-silent": silent, "silent-body": silent, "drip-head": 0,
		"dns-silent": 0, "endless-1xx": 0}
}

// TestScanFindsTheTruth scans a web and checks every row, and the consistency of the tables.
func TestScanFindsTheTruth(t *testing.T) {
	const n = 800
	inBubble(t, n, simweb.Config{Seed: 1}, func(t *testing.T, w *world) {
		out := filepath.Join(t.TempDir(), "out")
		p := w.scan(t, out, "--part-rows", "400")
		p.exits(t, 0)
		p.says(t, fmt.Sprintf("kept=%d", n))
		if p.stdout.String() != "" {
			t.Errorf("a scan that writes a dataset prints %q", &p.stdout)
		}
		consistent(t, out, w.holds(t, out))
	})
}

// consistent compares the tables of a scan with each other.
func consistent(t *testing.T, out string, scan *commit.Scan) {
	t.Helper()
	type site struct {
		sitemaps, unknown     int32
		verdicts, sitemapRows int
		unknownRows           int
		star, html            bool
		access, starVerdict   string
		named                 int
		hash                  int64
	}
	sites, hashes := map[int64]*site{}, map[int64]bool{}
	var conditional, answered int64
	blocked := map[string]int64{}
	each(t, scan, schema.Sites, func(r *schema.SiteRow) {
		sites[r.Seq] = &site{sitemaps: r.NSitemaps, unknown: r.NUnknown, html: r.IsHTML, access: r.Access,
			starVerdict: r.StarVerdict, named: len(r.Named), hash: r.BodyHash}
		if r.Access == "conditional" {
			conditional++
		}
		if r.Status != 0 {
			answered++
		}
		for _, token := range r.Blocked {
			blocked[token]++
		}
		records := r.NAgents + r.NAllow + r.NDisallow + r.NSitemaps + r.NExtensions + r.NLegacy + r.NUnknown + r.NOrphan +
			r.NTypo
		if r.Access == "conditional" && !r.IsHTML && records > 0 {
			hashes[r.BodyHash] = false
		}
	})
	each(t, scan, schema.Verdicts, func(r *schema.VerdictRow) {
		s := sites[r.Seq]
		if s == nil {
			t.Fatalf("a verdict of seq %d, which has no site", r.Seq)
		}
		s.verdicts++
		if r.Token == "*" {
			if s.star = true; r.Verdict != s.starVerdict {
				t.Errorf("seq %d: the verdict of * is %s, and star_verdict %s", r.Seq, r.Verdict, s.starVerdict)
			}
		}
	})
	each(t, scan, schema.Evidence, func(r *schema.EvidenceRow) {
		s := sites[r.Seq]
		if s == nil {
			t.Fatalf("evidence of seq %d, which has no site", r.Seq)
		}
		switch r.Kind {
		case "sitemap":
			s.sitemapRows++
		case "unknown":
			s.unknownRows++
		}
	})
	each(t, scan, schema.Bodies, func(r *schema.BodyRow) {
		if _, known := hashes[r.BodyHash]; !known {
			t.Errorf("a body %x of no site", r.BodyHash)
		}
		hashes[r.BodyHash] = true
	})
	const most = 32 // rows of evidence an origin and kind
	for seq, s := range sites {
		if want := min(int(s.sitemaps), most); s.sitemapRows != want {
			t.Errorf("seq %d: %d sitemaps in evidence, %d in sites", seq, s.sitemapRows, s.sitemaps)
		}
		if want := min(int(s.unknown), most); s.unknownRows != want && !s.html {
			t.Errorf("seq %d: %d unknown records in evidence, %d in sites", seq, s.unknownRows, s.unknown)
		}
		if s.access == "conditional" && (!s.star || s.verdicts < s.named) {
			t.Errorf("seq %d: %d verdicts, %d named tokens, of * %v", seq, s.verdicts, s.named, s.star)
		}
	}
	for hash, kept := range hashes {
		if !kept {
			t.Errorf("body %x of a site is not among the bodies", hash)
		}
	}
	checkStatistics(t, out, scan, int64(len(sites)), answered, conditional, blocked)
}

// checkStatistics compares the table token_stats with counts of the table sites.
func checkStatistics(t *testing.T, out string, scan *commit.Scan, all, answered, conditional int64,
	blocked map[string]int64) {
	t.Helper()
	st := mustPlace(t, out)
	rows := 0
	name := commit.StatsName(schema.TokenStats, scan.Manifest.ScanDate, scan.Manifest.ScanID)
	for r, err := range table.FileRows[schema.TokenStatsRow](t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		if r.SegmentKind != "all" || !r.Known {
			continue
		}
		rows++
		if r.SitesAll != all || r.SitesAnswered != answered || r.Sites != conditional {
			t.Errorf("%s: statistics of %d sites, %d answered, %d with rules; want %d, %d, %d", r.Token, r.SitesAll,
				r.SitesAnswered, r.Sites, all, answered, conditional)
		}
		if r.Full != blocked[r.Token] {
			t.Errorf("%s: blocked in full by %d in the statistics, by %d in sites", r.Token, r.Full, blocked[r.Token])
		}
	}
	if rows == 0 {
		t.Error("no statistics of any token")
	}
}

func each[T any](t *testing.T, scan *commit.Scan, table string, f func(*T)) {
	t.Helper()
	n := 0
	for row, err := range read.Rows[T](context.Background(), scan, table) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		f(row)
	}
	if n == 0 {
		t.Errorf("no rows in %s", table)
	}
}

// TestKilledScanResumes kills a scan at two moments. In the end there is one true row per origin.
func TestKilledScanResumes(t *testing.T) {
	notShort(t)
	t.Parallel()
	const n = 900
	w := newWorld(t, n, simweb.Config{Seed: 2, Shares: fewWaits()})
	out := filepath.Join(t.TempDir(), "out")
	flags := []string{"--part-rows", "60", "--rate", "400"}
	for _, enough := range []int{2, 6} {
		p := w.scan(t, out, flags...)
		p.await(t, fmt.Sprintf("%d commits", enough), func() bool { return commits(out) >= enough })
		p.signal(t, syscall.SIGKILL)
		p.exits(t, -1)
	}
	p := w.scan(t, out, flags...)
	p.exits(t, 0)
	p.says(t, "msg=resuming scan=s already_kept=")
	consistent(t, out, w.holds(t, out))
}

// TestInterruptOfRestart interrupts a scan that begins anew: the same command would delete the sites kept so far.
func TestInterruptOfRestart(t *testing.T) {
	inBubble(t, 600, simweb.Config{Seed: 3, Only: []string{"ok"}}, func(t *testing.T, w *world) {
		p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--rate", "60", "--restart")
		p.await(t, "requests", func() bool { return w.web.Stats().Requests >= 30 })
		p.signal(t, os.Interrupt)
		p.exits(t, exitInt)
		p.says(t, "is kept, and the same command begins scan s anew (without --restart a scan resumes)")
	})
}

// TestInterruptKeepsWhatIsFinished interrupts a scan, twice, and resumes it. Every host gets one request in all.
func TestInterruptKeepsWhatIsFinished(t *testing.T) {
	inBubble(t, 600, simweb.Config{Seed: 3, Only: []string{"ok"}}, func(t *testing.T, w *world) {
		out := filepath.Join(t.TempDir(), "out")
		asked := func() int64 { return w.web.Stats().Requests }
		for _, end := range []struct {
			signal os.Signal
			code   int
		}{{os.Interrupt, exitInt}, {syscall.SIGTERM, exitTerm}} {
			before := asked()
			p := w.scan(t, out, "--rate", "60")
			p.await(t, "requests", func() bool { return asked() >= before+30 })
			p.signal(t, end.signal)
			p.exits(t, end.code)
			p.says(t, "finishing what is being asked; once more to abort",
				"interrupted; everything finished so far is kept, and the same command resumes scan s")
			scan, err := latest(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			rows := int64(0)
			for _, c := range scan.Commits {
				rows += c.Rows
			}
			if rows != asked() || scan.Manifest.State != commit.Running {
				t.Errorf("%d rows are kept of %d hosts asked, and the scan is %s", rows, asked(), scan.Manifest.State)
			}
		}
		kept := asked()
		p := w.scan(t, out)
		p.exits(t, 0)
		p.says(t, "msg=resuming scan=s already_kept="+strconv.FormatInt(kept, 10))
		w.holds(t, out)
		if asked() != 600 {
			t.Errorf("600 hosts were asked %d times", asked())
		}
	})
}

// TestSecondInterruptAborts lets a scan wait for a silent host: after the first interrupt it still waits for the host,
// after the second it does not.
func TestSecondInterruptAborts(t *testing.T) {
	inBubble(t, 3, simweb.Config{Seed: 4, Only: []string{"silent"}, Hold: time.Hour}, func(t *testing.T, w *world) {
		out := filepath.Join(t.TempDir(), "out")
		p := w.scan(t, out, "--timeout", "1h")
		time.Sleep(time.Second)
		p.signal(t, os.Interrupt)
		time.Sleep(time.Second)
		p.says(t, "once more to abort")
		p.signal(t, os.Interrupt)
		begun := time.Now()
		p.exits(t, exitInt)
		p.says(t, "aborted; what was committed is kept")
		if took, n := time.Since(begun), commits(out); took > 0 || n != 0 {
			t.Errorf("%d commits of hosts that were cut off, %v after the second interrupt", n, took)
		}
	})
}

// TestDemoIsTrue runs the demonstration, whose dataset must match its truth file.
func TestDemoIsTrue(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "demo")
	const origins = "300"
	c := exec.Command("bulkscan", "demo", "--origins", origins, "--seed", "10", "-o", out)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for _, text := range []string{"Scan demo", " of " + origins + " sites answered", "blocked most",
		"every row is what its host did"} {
		if !strings.Contains(stdout.String(), text) {
			t.Errorf("nothing of %q in\n%s", text, &stdout)
		}
	}
	scan, err := latest(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	mustBeTrue(t, scan, demo.Folder(out).Truth())
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/terminal"
)

// demoFlags are the flags of demo.
type demoFlags struct {
	out     string
	origins int
	seed    uint64
	corpus  string
	warcOut string

	partRows  int
	noCompact bool
}

func (a *app) demoCommand() *cobra.Command {
	f := &demoFlags{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Scan a simulated web on this machine, without a network",
		Long: `demo starts the built-in simulated web on loopback (thousands of virtual hosts over HTTP and TLS, with a name server of
its own), makes up a list of its hosts, scans it with the ordinary pipeline, and prints the summary. It needs no
network and no privileges.`,
		Example: `  bulkscan demo
  bulkscan demo -o demo --origins 1000 && bulkscan summary demo`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), f) },
	}
	c.Flags().StringVarP(&f.out, "out", "o", "bulkscan-demo", "folder of the dataset; what an earlier demo wrote there is replaced, and one with other scans is refused")
	c.Flags().IntVar(&f.origins, "origins", 20000, "hosts to make up and scan")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "another seed is another web")
	c.Flags().IntVar(&f.partRows, "part-rows", sink.DefaultPartRows, "a part is closed at so many origins")
	c.Flags().BoolVar(&f.noCompact, "no-compact", false, "at the end, leave the parts as they are")
	c.Flags().StringVar(&f.corpus, "corpus", "", "pack of real robots.txt files to serve instead of made-up ones")
	c.Flags().StringVar(&f.warcOut, "warc-out", "", "folder for an archive of every exchange, as scan writes it")
	return c
}

// The files that a demo leaves beside its dataset, so that it can be looked into and done again by hand.
const (
	demoList  = "list.csv"
	demoTruth = "truth.jsonl"
	demoScan  = "demo"
)

func (a *app) demo(ctx context.Context, f *demoFlags) error {
	if f.origins < 1 {
		return usagef("--origins %d: at least 1", f.origins)
	}
	if f.partRows < 1 {
		return usagef("--part-rows %d: at least 1", f.partRows)
	}
	if strings.Contains(f.out, "://") {
		return usagef("-o: demo leaves its list and the truth beside the dataset, and writes to a local folder only")
	}
	if err := mayHoldDemo(ctx, f.out); err != nil {
		return err
	}
	web, err := simweb.Start(ctx, simweb.Config{Seed: f.seed, Corpus: f.corpus})
	if err != nil {
		return fmt.Errorf("cannot start the simulated web: %w", err)
	}
	defer web.Close()

	scan := demoScanFlags(f, web, a.stderr)
	if err := os.MkdirAll(f.out, 0o777); err != nil {
		return err
	}
	list := filepath.Join(f.out, demoList)
	if err := writeDemo(web, f, list, filepath.Join(f.out, demoTruth)); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "Scanning %d hosts of a simulated web on this machine (seed %d).\n", f.origins, f.seed)

	begun := time.Now()
	if err := a.scan(ctx, scan, demoSettings(scan), []string{list}); err != nil {
		return err
	}
	took := time.Since(begun)
	fmt.Fprintln(a.stdout)
	if err := a.summary(ctx, f.out, demoSummary()); err != nil {
		return err
	}
	truth := filepath.Join(f.out, demoTruth)
	held, err := holdAgainst(ctx, f.out, truth)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, `
%d origins in %.1f s: %.0f a second, peak memory %d MB, simulated web included (%d processors).

  dataset   %s
  list      %s
  truth     %s: %s
`,
		f.origins, took.Seconds(), float64(f.origins)/took.Seconds(), limits.PeakMemory()>>20, runtime.NumCPU(),
		f.out, list, truth, held)
	return err
}

// mayHoldDemo refuses a folder with scans that no demo has made: one that is called as a demo's would be deleted, and queries over
// the others would count made-up sites too.
func mayHoldDemo(ctx context.Context, out string) error {
	st, err := store.NewDir(out)
	if err != nil {
		return err
	}
	scans, err := commit.Scans(ctx, st)
	var ids []string
	if damaged, ok := errors.AsType[*commit.DamagedScansError](err); ok {
		for _, scan := range damaged.Scans {
			ids = append(ids, scan.ScanID)
		}
	} else if err != nil {
		return err
	}
	for _, scan := range scans {
		ids = append(ids, scan.ScanID)
	}
	if _, err := os.Stat(filepath.Join(out, demoTruth)); err == nil { // a demo has been there
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == demoScan })
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return fmt.Errorf("%s holds scans that are no demo's (%s), and a demo would be counted with them; give another folder with -o", clipped(out), clipped(strings.Join(ids, ", ")))
}

// demoSummary asks for what summary tells of a dataset where nothing else is asked for.
func demoSummary() *summaryFlags {
	f := newSummaryFlags()
	f.choice.id = demoScan
	return f
}

// holdAgainst says how many rows are what their hosts did. A machine that is too busy for the short time-outs of a demo
// may see a few hosts as silent that were only slow; that is told, and no failure.
func holdAgainst(ctx context.Context, dir, truth string) (string, error) {
	st, err := store.NewDir(dir)
	if err != nil {
		return "", err
	}
	scan, err := commit.ReadScan(ctx, st, demoScan)
	if err != nil {
		return "", err
	}
	file, err := os.Open(truth)
	if err != nil {
		return "", err
	}
	defer file.Close()
	result, err := compare.Compare(ctx, scan, file)
	if err != nil {
		return "", err
	}
	if result.OK() {
		return "every row is what its host did", nil
	}
	return "not every row is what its host did: " + result.String(), nil
}

// demoScanFlags are those of an ordinary scan, but for what a simulated web needs: where its names and ports are, that
// loopback is allowed, and time-outs and waits for a machine that is next to us.
func demoScanFlags(f *demoFlags, web *simweb.Web, stderr io.Writer) *scanFlags {
	s := &scanFlags{}
	c := &cobra.Command{}
	s.add(c.Flags())
	s.fetchFlags.add(c.Flags())
	s.out, s.scanID, s.restart, s.partRows, s.noCompact, s.warcOut = f.out, demoScan, true, f.partRows, f.noCompact, f.warcOut
	s.vantage, s.listID = "simulated-web", fmt.Sprintf("demo-seed-%d", f.seed)
	if terminal.Is(stderr) {
		s.logLevel = "warn" // the bar says it all
	}
	s.resolver = []string{web.DNSAddr().String()}
	s.connectTo = web.ConnectTo()
	s.allowPrivate, s.allowEmpty = true, true // a few hosts may be such as do not answer
	s.roots = web.CAPool()
	s.dnsRate = 0
	s.filesEach = 2 // a connection has both its ends here
	s.timeout, s.connectTimeout, s.names = 4*time.Second, 2*time.Second, 4*time.Second
	s.retries, s.retryAfter, s.maxRetryAfter = 1, 2*time.Second, 5*time.Second
	if web.SingleAddress() {
		s.ipRate = 0 // the whole web lives at one address here
	}
	return s
}

func demoSettings(s *scanFlags) []commit.Setting {
	return []commit.Setting{
		{Name: "resolver", Value: strings.Join(s.resolver, ",")},
		{Name: "connect-to", Value: strings.Join(s.connectTo, " ")},
		{Name: "timeout", Value: s.timeout.String()},
		{Name: "retries", Value: strconv.Itoa(s.retries)},
		{Name: "retry-after", Value: s.retryAfter.String()},
	}
}

// writeDemo writes the list of hosts and what a scan of it must find.
func writeDemo(web *simweb.Web, f *demoFlags, list, truth string) error {
	if err := writeTo(list, func(w *bufio.Writer) error {
		for rank, host := range web.Names(f.origins) {
			fmt.Fprintf(w, "%d,%s\n", rank, host)
		}
		return nil
	}); err != nil {
		return err
	}
	return writeTo(truth, func(w *bufio.Writer) error {
		hosts := func(yield func(string) bool) {
			for _, host := range web.Names(f.origins) {
				if !yield(host) {
					return
				}
			}
		}
		return web.WriteTruth(w, hosts, demoPolicy())
	})
}

// demoPolicy is what decides how a demo's scan ends.
func demoPolicy() simweb.Policy {
	policy := simweb.DefaultPolicy()
	policy.TrustCA = true
	return policy
}

// writeTo writes a file through a buffer, and looks at every error.
func writeTo(path string, write func(*bufio.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	w := bufio.NewWriter(file)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

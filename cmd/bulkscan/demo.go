package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/demo"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
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
	serve     bool
}

func (a *app) demoCommand() *cobra.Command {
	f := &demoFlags{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Scan a simulated web on this machine, without a network",
		Long: `demo starts the built-in simulated web on loopback (thousands of virtual hosts over HTTP and TLS, with a name server of
its own), makes up a list of its hosts, scans it with the ordinary pipeline, and prints a few figures and what to try
next. It leaves a dataset with its report. It needs no network and no privileges.

With --serve the web stays up until Ctrl-C, and demo prints the flags that lead there: with them scan, check, test and
the others work without a network.`,
		Example: `  bulkscan demo
  bulkscan demo -o demo --origins 1000 && bulkscan summary demo
  bulkscan demo --serve`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), f) },
	}
	c.Flags().StringVarP(&f.out, "out", "o", "bulkscan-demo",
		"folder of the dataset; what an earlier demo wrote there is replaced, and one with other scans, or files of those names, is refused")
	c.Flags().IntVar(&f.origins, "origins", 20000, "hosts to make up and scan")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "another seed is another web")
	c.Flags().IntVar(&f.partRows, "part-rows", sink.DefaultPartRows, "a part is closed at so many origins")
	c.Flags().BoolVar(&f.noCompact, "no-compact", false, "at the end, leave the parts as they are")
	c.Flags().StringVar(&f.corpus, "corpus", "", "pack of real robots.txt files to serve instead of made-up ones")
	c.Flags().BoolVar(&f.serve, "serve", false,
		"keep the simulated web and its name server up until Ctrl-C, and print the flags that scan it")
	c.Flags().StringVar(&f.warcOut, "warc-out", "", "folder for an archive of every exchange, as scan writes it")
	return c
}

func (a *app) demo(ctx context.Context, f *demoFlags) error {
	switch {
	case f.origins < 1:
		return usagef("--origins %d: at least 1", f.origins)
	case f.partRows < 1:
		return usagef("--part-rows %d: at least 1", f.partRows)
	case strings.Contains(f.out, "://"):
		return usagef("-o: demo leaves its list and the truth beside the dataset, and writes to a local folder only")
	}
	folder := demo.Folder(f.out)
	if err := folder.MayHold(ctx); err != nil {
		return err
	}
	web, err := simweb.Start(ctx, simweb.Config{Seed: f.seed, Corpus: f.corpus})
	if err != nil {
		return fmt.Errorf("cannot start the simulated web: %w", err)
	}
	defer web.Close()

	scan, flags := demoScanFlags(f, web, a.stderr)
	if err := os.MkdirAll(f.out, 0o777); err != nil {
		return err
	}
	if err := folder.Write(web, f.origins); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "Scanning %d hosts of a simulated web on this machine (seed %d).\n", f.origins, f.seed)

	var ending *summary.Ending
	o := terminal.EndingOptions{Out: f.out}
	scan.show = func(e *summary.Ending, took time.Duration) { ending, o.Took = e, took }
	if err := a.scan(ctx, scan, settings(flags), []string{folder.List()}); err != nil {
		return err
	}
	if err := a.report(ctx, f.out, &reportFlags{choice: scanChoice{id: demo.Scan}, out: folder.Report(),
		definition: survey.Full, progress: "none"}); err != nil {
		return err
	}
	held, err := folder.Compare(ctx)
	if err != nil {
		return err
	}
	site := ""
	for _, site = range web.Names(1) {
	}
	o.Facts = []terminal.Fact{{Name: "list", Text: folder.List()},
		{Name: "truth", Text: held + " (" + folder.Truth() + ")"}, {Name: "report", Text: folder.Report()}}
	o.Next = []terminal.Fact{
		{Name: "all figures", Text: ownCommand("summary", f.out)},
		{Name: "one site", Text: ownCommand("history", f.out, site)},
		{Name: "offline web", Text: ownCommand("demo", "--serve", "-o", f.out)},
	}
	if f.serve {
		o.Next = o.Next[:2]
	}
	if err := terminal.Ending(a.stdout, ending, o); err != nil || !f.serve {
		return err
	}
	return a.serveDemo(ctx, web, f, site)
}

// ownCommand is a command as this process was called, so that it can be pasted.
func ownCommand(args ...string) string {
	quoted := terminal.Quoted(os.Args[0])
	for _, word := range args {
		quoted += " " + terminal.Quoted(word)
	}
	return quoted
}

// serveDemo keeps the web up until a signal comes, and says how other commands find it.
func (a *app) serveDemo(ctx context.Context, web *simweb.Web, f *demoFlags, site string) error {
	ca, err := filepath.Abs(demo.Folder(f.out).CA())
	if err = errors.Join(err, os.WriteFile(ca, web.CAPEM(), 0o666)); err != nil {
		return err
	}
	web.Forget() // hosts that fail at first do so again
	var flags string
	for _, flag := range append(web.Flags(), "--timeout=2s", "--retry-after=1s", "--ca-file="+ca) {
		flags += " " + terminal.Quoted(flag)
	}
	ctx, _, end := a.interrupts(ctx, nil)
	defer end()
	fmt.Fprintf(a.stdout, `
The simulated web and its name server are up until Ctrl-C. These flags lead there:

 %s

In another terminal of this folder, for example:

  %s%s
  %s%[1]s
`, flags, ownCommand("check", site), flags, ownCommand("scan", demo.Folder(f.out).List(), "--limit", "1000", "-o", "offline"))
	<-ctx.Done()
	_, err = fmt.Fprintln(a.stdout, "\nThe simulated web is down.")
	return err
}

// demoScanFlags are the flags of an ordinary scan, except for what a simulated web needs: the places of its names and
// ports, permission for loopback, and rates and waits for a web on the same machine.
func demoScanFlags(f *demoFlags, web *simweb.Web, stderr io.Writer) (*scanFlags, *pflag.FlagSet) {
	s, flags := &scanFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	s.add(flags)
	s.fetchFlags.add(flags)
	_ = flags.Parse(web.Flags()) // which have no mistake
	s.out, s.scanID, s.restart, s.partRows, s.noCompact, s.warcOut = f.out, demo.Scan, true, f.partRows, f.noCompact,
		f.warcOut
	s.vantage, s.listID = "simulated-web", fmt.Sprintf("demo-seed-%d", f.seed)
	if terminal.Is(stderr) {
		s.logLevel = "warn" // the bar says it all
	}
	s.allowEmpty = true // all of a few hosts may be silent
	s.web = web
	s.dnsRate, s.hostRate, s.ipRate = 0, 10, 40
	s.filesEach = 2     // a connection has both its ends here
	s.concurrency = 100 // these keep two processors busy; with more, each answer takes longer, and look-ups are repeated
	s.Retries, s.RetryAfter, s.MaxRetryAfter = 1, 500*time.Millisecond, 5*time.Second
	if web.SingleAddress() {
		s.ipRate = 0 // the whole web lives at one address here
	}
	return s, flags
}

// silence is how long a demo waits for a host that has fallen silent for good. Other hosts have the time-outs of an
// ordinary scan, so that on a busy machine no host that answers counts as silent.
const silence = 250 * time.Millisecond

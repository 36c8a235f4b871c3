// Command bulkscan surveys robots.txt at the scale of the web. This package answers one question: what do you type? It
// turns flags into the configuration of the other rooms, wires them, and shows what they do; it decides nothing itself.
//
// main.go is the process: exit codes, signals, the environment. Each command has a file of its own. Commands share
// rules.go (what their flags have in common), fetch.go (how a site is fetched), place.go (where a dataset lies) and
// shown.go (how a result is shown).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/terminal"
	"github.com/bulkscan/bulkscan/terminal/metrics"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes that users may rely on.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitThreshold = 3
	exitDamaged   = 4
	exitAgain     = 75  // EX_TEMPFAIL: an engine may repeat the run
	exitInt       = 130 // 128 + SIGINT
	exitTerm      = 143 // 128 + SIGTERM
)

// exitCodes says in --help, in the manual pages and in docs/configuration.md what the codes mean.
var exitCodes = []terminal.Fact{
	{Name: "0", Text: "done"},
	{Name: "1", Text: "failed"},
	{Name: "2", Text: "the command line, a variable or a configuration file is wrong, or a list is in doubt (--accept-list)"},
	{Name: "3", Text: "done, but a threshold is broken or nothing answered"},
	{Name: "4", Text: "a dataset is damaged"},
	{Name: "75", Text: "something else stands in the way for now: try again"},
	{Name: "130, 143", Text: "interrupted by SIGINT or SIGTERM; what was committed is kept"},
}

// variables says in the same places which variables are read.
var variables = []terminal.Fact{
	{Name: "BULKSCAN_…", Text: "an option that the command line leaves alone: BULKSCAN_PART_ROWS is --part-rows. An empty variable counts as unset. Where an option may be repeated, white space separates its values"},
	{Name: "AWS_…, BULKSCAN_S3_…", Text: "access to object stores (docs/storage.md)"},
	{Name: "SSL_CERT_FILE, SSL_CERT_DIR", Text: "certificate authorities instead of the system's"},
	{Name: "NO_COLOR", Text: "if not empty, no colours"},
	{Name: "LC_ALL, LC_CTYPE, LANG", Text: "whether a terminal's bars are drawn with characters beyond ASCII"},
	{Name: "SOURCE_DATE_EPOCH", Text: "the date of manual pages, in seconds since 1970"},
}

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "" // the code says it all
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as one of the command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// clipped bounds what a message repeats of its input.
var clipped = printable.Short

// oneOf is the error of an unknown value.
func oneOf(what, given string, known []string) error { return usage(options.OneOf(what, given, known)) }

// app has the parts that the commands share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	network network
	// notify forwards the signals that ask the process to end, until the returned function is called.
	notify func(signals chan<- os.Signal) (stop func())
}

// network is where sites, name servers and the readers of metrics are. The zero value is this machine's.
type network struct {
	resolve.Network
	listen metrics.Listen
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{stdin: stdin, stdout: stdout, stderr: stderr, notify: notify}).run(args)
}

func notify(signals chan<- os.Signal) (stop func()) {
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return func() { signal.Stop(signals) }
}

// run returns the exit code.
func (a *app) run(args []string) int {
	root := a.root()
	root.SetArgs(args)
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	exit, _ := errors.AsType[*exitError](err)
	if exit != nil && exit.code == exitUsage {
		err = options.WithSource(c.Flags(), err)
	}
	if text := terminal.Message(err); text != "" {
		fmt.Fprintf(a.stderr, "bulkscan: %s\n", text)
	}
	if exit != nil {
		if exit.code == exitUsage {
			fmt.Fprintf(a.stderr, "Run `%s --help` for what there is.\n", c.CommandPath())
		}
		return exit.code
	}
	if survey.IsDamage(err) {
		return exitDamaged
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "bulkscan",
		Short: "Survey robots.txt and AI-crawler policy at the scale of the web",
		Long: `bulkscan reads a list of sites, fetches each one's robots.txt politely, says which crawlers the site blocks,
and writes the answers as Parquet.

  bulkscan demo                         see it work, without a network
  bulkscan scan top-1m.csv.zip -o out   the real thing; the same command again resumes
  bulkscan import bodies.jsonl -o out   nights from files that others have fetched
  bulkscan check example.com            one site, explained
  bulkscan test --robots robots.txt --agent GPTBot /private/x
                                        is it allowed, and by which rule
  bulkscan status out                   the scans and nights of a dataset
  bulkscan summary out                  the headline figures of a dataset
  bulkscan diff out 2026-11-20 2026-11-21
                                        who began or ceased to block which crawler
  bulkscan reaudit out -o again         re-evaluate stored files offline, and report differences
  bulkscan verify out                   whether every byte of it is what was written`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := rules.Fill(c.Flags(), c.Name(), c.Flags().Lookup("config")); err != nil {
				return usage(err)
			}
			return usage(rules.CheckChoices(c.Flags()))
		},
		Version: toolVersion(),
		Args:    unknownCommand,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetVersionTemplate(versionLine())
	root.SetHelpFunc(a.help)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(options.Mistake(c.Flags(), err)) })
	root.AddCommand(
		a.scanCommand(), a.importCommand(), a.demoCommand(), a.nightlyCommand(), a.planCommand(), a.collectCommand(),
		a.statusCommand(),
		a.checkCommand(), a.testCommand(), a.tokensCommand(),
		a.summaryCommand(), a.diffCommand(), a.reportCommand(), a.historyCommand(),
		a.statsCommand(), a.verifyCommand(), a.compactCommand(), a.reauditCommand(),
		a.schemaCommand(), a.versionCommand(), a.manCommand())
	root.SetHelpCommand(a.helpCommand())
	root.InitDefaultHelpCmd()                   // else it is added when it is called
	root.InitDefaultCompletionCmd("completion") // else it is added when it is called
	for _, c := range root.Commands() {
		addCompletion(c)
		if c.Name() == "completion" {
			c.Args, c.RunE = nil, unknownShell
		}
	}
	return root
}

// usageArgs makes errors of a command's arguments errors of usage, which show how the command is called.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usagef("%w: %s", err, c.UseLine())
		}
		return nil
	}
}

// interrupts turns signals into the steps of an ending: the first calls stop, the second ends the context, a third the
// process. If stop is nil, or reports that there is nothing to finish, the first ends the context without a message.
// end ends the watch; code returns the exit code of the first signal, or 0 before any signal.
func (a *app) interrupts(parent context.Context, stop func() bool) (ctx context.Context, code func() int, end func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	forget := a.notify(signals)
	first := make(chan int, 1)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ended:
			return
		case s := <-signals:
			first <- map[os.Signal]int{os.Interrupt: exitInt, syscall.SIGTERM: exitTerm}[s]
			if stop == nil || !stop() {
				cancel()
			}
		}
		select {
		case <-ended:
		case <-signals:
			forget() // a third one does what it does to any process, from the moment that the line is read
			fmt.Fprintln(a.stderr, "\nbulkscan: aborted; what was committed is kept")
			cancel()
		}
	})
	code = func() int {
		select {
		case c := <-first:
			first <- c
			return c
		default:
			return 0
		}
	}
	return ctx, code, func() {
		forget()
		close(ended)
		watching.Wait() // it writes to standard error
		cancel()
	}
}

// interruptible does work that a signal interrupts.
func (a *app) interruptible(parent context.Context, work func(ctx context.Context) error) error {
	ctx, code, end := a.interrupts(parent, nil)
	defer end()
	return interrupted(work(ctx), code())
}

// interrupted gives an error the exit code of the signal, if one came. An error that only says that work was given up
// becomes one word.
func interrupted(err error, code int) error {
	exit := (*exitError)(nil)
	switch {
	case err == nil, code == 0, errors.As(err, &exit) && exit.code == code:
		return err
	case errors.Is(err, context.Canceled):
		return &exitError{code, errors.New("interrupted")}
	}
	return &exitError{code, err}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/pipeline"
)

func (a *app) checkCommand() *cobra.Command {
	f := &fetchFlags{}
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "check URL|FILE|-",
		Short: "Fetch or read one robots.txt, and explain what it amounts to",
		Long: `check judges one origin, or one robots.txt file, and explains the result: the check's steps with their weights, the
evidence with line numbers, what the answer means for access, and for each AI crawler whether it is blocked.

An argument that names an existing file is read as one, - is standard input, and anything else is asked for over the
network.`,
		Example: `  bulkscan check example.com
  bulkscan check ./robots.txt
  curl -s https://example.com/robots.txt | bulkscan check - --json`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			result, err := a.check(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a, result)
			}
			return a.explain(result, all)
		},
	}
	f.addForOne(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&all, "all", false, "print the verdict of every token of the registry, not of AI crawlers only")
	return c
}

// addForOne adds the flags for a command that asks one origin while somebody is waiting.
func (f *fetchFlags) addForOne(flags *pflag.FlagSet) {
	f.add(flags)
	f.retries, flags.Lookup("retries").DefValue = 0, "0"
}

// check judges a file or asks an origin.
func (a *app) check(ctx context.Context, f *fetchFlags, arg string) (result audit.Result, err error) {
	registry, err := f.registry()
	if err != nil {
		return audit.Result{}, err
	}
	auditor := audit.New(registry)
	if site, err := a.fileSite(arg, f.maxBody); err != nil {
		return audit.Result{}, err
	} else if site != nil {
		auditor.Judge(site)
		return audit.Explain(site), nil
	}

	o, err := origin.Parse(arg)
	if err != nil {
		return audit.Result{}, usagef("%s is neither a file nor an origin: %w", arg, err)
	}
	err = a.ask(ctx, f, auditor, pipeline.Entry{Input: arg, Origin: o}, func(site *audit.Site) { result = audit.Explain(site) })
	return result, err
}

// ask asks one origin and hands over what became of it; the site is valid until keep returns.
func (a *app) ask(ctx context.Context, f *fetchFlags, auditor *audit.Auditor, entry pipeline.Entry, keep func(*audit.Site)) error {
	fetch, closeFetch, err := f.fetcher()
	if err != nil {
		return err
	}
	defer closeFetch()
	// One origin goes the way of all: the same pipeline, one tray, a list of one.
	one := &single{entry: entry, keep: keep}
	p := pipeline.New(pipeline.Config{Concurrency: 1, HostRate: 1}, one, fetch, auditor, one)
	ctx, code, end := a.interrupts(ctx, nil)
	defer end()
	err = p.Run(ctx)
	if code() != 0 {
		return &exitError{code(), errors.New("interrupted")}
	}
	return err
}

// fileSite makes of an argument that is a file the site of which it would be the answer, not judged yet; nil if it is no
// file. Of a file that is longer than the limit it takes the beginning, as a fetch does.
func (a *app) fileSite(arg string, limit int) (*audit.Site, error) {
	if limit < 1 || limit > 1<<30 {
		return nil, usagef("--max-body %d: from 1 to %d", limit, 1<<30)
	}
	body, isFile, err := a.readFile(arg, limit)
	if err != nil || !isFile {
		return nil, err
	}
	site := &audit.Site{Input: arg}
	site.Fetch.Outcome, site.Fetch.Status = exchange.Answered, 200
	site.Fetch.Body = body[:min(len(body), limit)]
	if site.Fetch.Truncated = len(body) > limit; site.Fetch.Truncated {
		site.Fetch.Body = fetcher.WholeLines(site.Fetch.Body)
	}
	return site, nil
}

// readFile reads an argument that is a file: at most one byte more than the limit, so that it shows when there is more.
func (a *app) readFile(arg string, limit int) (body []byte, isFile bool, err error) {
	in := a.stdin
	if arg != "-" {
		info, err := os.Stat(arg)
		if err != nil || info.IsDir() || isURL(arg) {
			return nil, false, nil // no file: an origin, then
		}
		file, err := os.Open(arg)
		if err != nil {
			return nil, true, fmt.Errorf("cannot read %s: %w", clipped(arg), why(err))
		}
		defer file.Close()
		in = file
	}
	body, err = io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return nil, true, fmt.Errorf("cannot read %s: %w", clipped(arg), why(err))
	}
	return body, true, nil
}

// why is an error without the operation and the name that the message has already.
func why(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// single is a list of one entry, and the sink of what becomes of it.
type single struct {
	entry pipeline.Entry
	read  bool
	keep  func(*audit.Site)
}

func (s *single) Next() (pipeline.Entry, error) {
	if s.read {
		return pipeline.Entry{}, io.EOF
	}
	s.read = true
	return s.entry, nil
}

func (s *single) Add(site *audit.Site) error {
	s.keep(site)
	return nil
}

// The marks of statuses and verdicts. They are words' first impressions; the words stand beside them.
var marks = map[string]string{
	"pass": "✓", "warn": "!", "fail": "✗", "skipped": "·",
	"allowed": "✓", "partial": "◐", "blocked": "✗", "unknown": "?",
}

// explain prints a result for a person. Everything that comes from the site is made printable.
func (a *app) explain(r audit.Result, all bool) error {
	out := bufio.NewWriter(a.stdout)
	a.explainAnswer(out, &r)
	a.explainCheck(out, &r)
	a.explainEvidence(out, &r)
	a.explainVerdicts(out, &r, all)
	return out.Flush()
}

// line makes a site's text fit into one line of a terminal.
func line(s string) string {
	const most = 100
	s = printable(strings.ReplaceAll(s, "\n", `\n`))
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func (a *app) explainAnswer(w io.Writer, r *audit.Result) {
	if r.Origin != "" {
		fmt.Fprintf(w, "%s\n", line(r.Origin))
	}
	if r.FinalURL != "" {
		fmt.Fprintf(w, "  file     %s\n", line(r.FinalURL))
	}
	if r.Origin != "" {
		fmt.Fprintf(w, "  answer   %s", r.Outcome)
		if r.HTTPStatus != 0 {
			fmt.Fprintf(w, ", status %d", r.HTTPStatus)
		}
		if r.Error != "" {
			fmt.Fprintf(w, ": %s", line(r.Error))
		}
		fmt.Fprintln(w)
	}
	access := map[string]string{
		"conditional":   "the file's rules decide",
		"full_allow":    "no file: everything may be crawled",
		"full_disallow": "the server failed: nothing may be crawled",
		"unknown":       "we did not ask",
	}[r.Access]
	fmt.Fprintf(w, "  access   %s (%s)\n", r.Access, access)
	if r.Access == "conditional" {
		fmt.Fprintf(w, "  file has %d lines, %d groups for %d agents, %d allow, %d disallow, %d sitemaps", r.Counts.Lines, r.Counts.Groups, r.Counts.Agents, r.Counts.Allow, r.Counts.Disallow, r.Counts.Sitemaps)
		if r.Truncated {
			fmt.Fprint(w, "; it is cut at --max-body")
		}
		if r.IsHTML {
			fmt.Fprint(w, "; it is an HTML page")
		}
		fmt.Fprintln(w)
	}
}

func (a *app) explainCheck(w io.Writer, r *audit.Result) {
	fmt.Fprintf(w, "\n%s %s %s: %s, score %.2f\n", marks[r.Status], r.Check, r.Version, r.Status, r.Score)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Steps {
		fmt.Fprintf(t, "  %s\t%s\t%.2f\t%s\t%s\n", marks[s.Status], s.ID, s.Weight, s.Status, line(s.Message))
	}
	_ = t.Flush() // into a buffer whose errors are looked at in the end
}

func (a *app) explainEvidence(w io.Writer, r *audit.Result) {
	if len(r.Evidence) == 0 {
		return
	}
	fmt.Fprintf(w, "\nEvidence\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range r.Evidence {
		fmt.Fprintf(t, "  line %d\t%s\t%s\t%s\n", e.Line, e.Kind, line(e.Key), line(e.Value))
	}
	_ = t.Flush()
}

// explainVerdicts prints a line for each token that the file speaks of, and those that only share a fate together.
func (a *app) explainVerdicts(w io.Writer, r *audit.Result, all bool) {
	fmt.Fprintf(w, "\nAn agent that nobody names: %s %s\n\nCrawlers\n", marks[r.Star.Verdict], r.Star.Verdict)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var fates []string // in the order in which they come up
	shared := map[string][]string{}
	for _, token := range r.Tokens {
		switch {
		case !all && token.Category != "ai":
		case token.Via == "own" || token.Via == "fallback":
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", marks[token.Verdict], printable(token.Token), token.Verdict, because(&token), printable(token.Operator))
		default:
			fate := fmt.Sprintf("%s %s %s", marks[token.Verdict], token.Verdict, because(&token))
			if shared[fate] == nil {
				fates = append(fates, fate)
			}
			shared[fate] = append(shared[fate], printable(token.Token))
		}
	}
	_ = t.Flush()
	for _, fate := range fates {
		fmt.Fprintf(w, "  %s (%d)\n", fate, len(shared[fate]))
		wrap(w, "      ", shared[fate])
	}
}

// wrap prints words with commas, in lines of at most 100 columns or so.
func wrap(w io.Writer, indent string, words []string) {
	column := 0
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		switch {
		case column == 0:
			fmt.Fprint(w, indent, word)
			column = len(indent) + len(word)
		case column+1+len(word) > 100:
			fmt.Fprint(w, "\n", indent, word)
			column = len(indent) + len(word)
		default:
			fmt.Fprint(w, " ", word)
			column += 1 + len(word)
		}
	}
	fmt.Fprintln(w)
}

// because says in words whose rules a token follows.
func because(t *audit.TokenResult) string {
	switch t.Via {
	case "own":
		return fmt.Sprintf("named in line %d", t.Line)
	case "fallback":
		return fmt.Sprintf("follows %s, line %d", line(t.Follows), t.Line)
	case "star":
		return fmt.Sprintf("by *, line %d", t.Line)
	case "http":
		return "by the answer"
	}
	return "no group applies"
}

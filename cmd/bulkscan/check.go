package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/terminal"
)

func (a *app) checkCommand() *cobra.Command {
	f := &fetchFlags{}
	var shown terminal.CheckOptions
	var asJSON, withBody bool
	var failOn string
	c := &cobra.Command{
		Use:   "check URL|FILE|-",
		Short: "Fetch or read one robots.txt, and explain what it means",
		Long: `check judges one origin, or one robots.txt file, and explains the result: the check's steps with their weights, the
evidence with line numbers, what the answer means for access, and for each AI crawler whether it is blocked, and why.

Crawlers that the file names, or that follow one that it names, stand by operator, the most restricted first; the rest
share their fates, and are listed by them. --json has everything, for programs.

An argument that names an existing file is read as one, - is standard input, and a URL or a host is a site, which is
asked over the network. ` + options.SiteOrFile + ` A page of a site stands for it; the URL of a
robots.txt that is not at the root is refused, since it counts for no site.

A site that gives no HTTP status (its name does not exist, nothing accepts the connection, no answer comes in time …)
has no score and no verdicts, and check exits with 1: nothing is known of it. One that answers 5xx is known to fail,
and closed to crawlers meanwhile.

Fields of JSON that are in the table sites too (bulkscan schema) have the same name and meaning: redirects,
body_bytes, body_hash, truncated and so on. What there is not is absent: a file has no origin, outcome and
http_status. Where known is false, status, score and star are absent, and steps, tokens and verdicts are empty. --body
adds the body as it was judged: as the string body where it is valid UTF-8, else as body_base64.`,
		Example: `  bulkscan check example.com
  bulkscan check ./robots.txt
  curl -s https://example.com/robots.txt | bulkscan check - --json
  bulkscan check ./robots.txt --fail-on warn
  bulkscan check example.com --json --body | jq -r .body`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			registry, err := registryOf(f.tokens)
			if err != nil {
				return err
			}
			if err := checkCategories(&shown, registry); err != nil {
				return err
			}
			if withBody && !asJSON {
				return usagef("--body: only JSON has the body; add --json")
			}
			if failOn != "" && failOn != audit.Fail.String() && failOn != audit.Warn.String() {
				return usagef("--fail-on %q: %s or %s", clipped(failOn), audit.Fail, audit.Warn)
			}
			result, err := a.check(c.Context(), f, registry, args[0])
			if err != nil {
				return err
			}
			if !withBody {
				result.Body, result.BodyBase64 = nil, nil
			}
			if asJSON {
				err = terminal.WriteJSON(a.stdout, result)
			} else {
				err = terminal.Check(a.stdout, args[0], &result.Result, shown)
			}
			switch {
			case err != nil:
				return err
			case !result.Known:
				return nothingKnown(&result.Result, f.optOut)
			case failsOn(result.Status, failOn):
				return &exitError{code: exitThreshold} // the output says why
			}
			return nil
		},
	}
	f.addForOne(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&withBody, "body", false, "with --json: add the body")
	c.Flags().StringVar(&failOn, "fail-on", "",
		"exit with 3 if the check says fail, or with warn, if it says warn or fail")
	c.Flags().BoolVar(&shown.All, "all", false,
		"show everything: crawlers of every category, all evidence, all unknown agents")
	c.Flags().StringSliceVar(&shown.Categories, "category", []string{"ai"},
		"show crawlers of these categories: ai, search, seo …")
	addColor(c.Flags(), &shown.Color)
	return c
}

// nothingKnown is the error of a site that gave no HTTP status: nothing is known of the site. No threshold is broken.
func nothingKnown(r *audit.Result, optOut string) error {
	site := cmp.Or(r.FinalURL, r.Origin) // the last site of a chain of redirects
	if r.Access == parser.AccessUnknown.String() {
		return notAsked(site, r.Outcome, optOut)
	}
	what := r.Outcome
	if r.Error != "" {
		what += ", " + r.Error
	}
	remedy := summary.Suspicion(r.Outcome)
	if r.Outcome == exchange.DNSNotFound.String() {
		remedy = "check how the name is spelled, and the name servers (--resolver)"
	}
	return fmt.Errorf("no answer from %s (%s), so that nothing is known of its %s; %s", site, what, exchange.RobotsPath,
		remedy)
}

// notAsked is the error of a site that was not fetched, with what the user may do about it.
func notAsked(site, outcome, optOut string) error {
	switch outcome {
	case exchange.BlockedAddress.String():
		return fmt.Errorf("%s was not asked (%s): it has no public address; --allow-private permits to ask it", site, outcome)
	case exchange.OptedOut.String():
		return fmt.Errorf("%s was not asked (%s): it is on the list %s; give its robots.txt as a file", site, outcome, optOut)
	}
	return fmt.Errorf("%s was not asked (%s)", site, outcome)
}

// failsOn reports whether a status is as bad as --fail-on, or worse.
func failsOn(status, failOn string) bool {
	return failOn != "" && (status == failOn || status == audit.Fail.String())
}

// checkCategories refuses unknown categories. With --all, it selects every category.
func checkCategories(o *terminal.CheckOptions, registry *tokens.Registry) error {
	known := registry.Values(tokens.Category)
	if o.All {
		o.Categories = known
		return nil
	}
	for i, name := range o.Categories {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if at < 0 {
			return oneOf("--category", name, known)
		}
		o.Categories[i] = known[at]
	}
	slices.Sort(o.Categories)
	o.Categories = slices.Compact(o.Categories)
	return nil
}

// addForOne adds the flags for a command that fetches one origin while a user waits.
func (f *fetchFlags) addForOne(flags *pflag.FlagSet) {
	f.add(flags)
	f.Retries, flags.Lookup("retries").DefValue = 0, "0"
}

// checkResult is what check finds out: what became of an origin or a file.
type checkResult struct {
	audit.Result

	// The body that was judged. A body that is not UTF-8 cannot be a string of JSON, and has a field of its own. Both are
	// nil if no body came.
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

// explain fills in the result of a site.
func (c *checkResult) explain(site *audit.Site) {
	c.Result = audit.Explain(site)
	switch body := site.Fetch.Body; {
	case body == nil:
	case utf8.Valid(body):
		text := string(body)
		c.Body = &text
	default:
		c.BodyBase64 = bytes.Clone(body)
	}
}

// check judges a file or fetches an origin.
func (a *app) check(ctx context.Context, f *fetchFlags, registry *tokens.Registry, arg string) (result checkResult,
	err error) {
	auditor := audit.New(registry)
	if site, err := a.fileSite(arg, f.MaxBody); err != nil {
		return checkResult{}, err
	} else if site != nil {
		auditor.Judge(site)
		result.explain(site)
		return result, nil
	}

	o, err := options.Site("", arg)
	if err != nil {
		return checkResult{}, usage(err)
	}
	if audit.NamesAnotherFile(arg) {
		return checkResult{},
			usagef(
				"%q: only %s at the root of a site counts (RFC 9309 §2.3); to explain this file all the same: curl -s URL | bulkscan check -", clipped(arg), exchange.RobotsPath)
	}
	err = a.ask(ctx, f, auditor, pipeline.Entry{Input: arg, Origin: o}, result.explain)
	return result, err
}

// ask fetches one origin and passes the result to keep; the site is valid until keep returns.
func (a *app) ask(ctx context.Context, f *fetchFlags, auditor *audit.Auditor, entry pipeline.Entry,
	keep func(*audit.Site)) error {
	fetch, closeFetch, err := f.fetcher(a.network)
	if err != nil {
		return err
	}
	defer closeFetch()
	// One origin goes through the same pipeline as many, with one slot and a list of one.
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

// fileSite returns a site, not judged yet, whose answer is the file that an argument names; nil if there is no such
// file. Of a file longer than the limit it takes the beginning, as a fetch does.
func (a *app) fileSite(arg string, limit int) (*audit.Site, error) {
	if limit < 1 || limit > 1<<30 {
		return nil, usagef("--max-body %d: from 1 to %d", limit, 1<<30)
	}
	body, isFile, err := options.ReadFile(a.stdin, arg, limit)
	if err != nil || !isFile {
		return nil, err
	}
	site := &audit.Site{Input: arg, IsFile: true}
	site.Fetch.Body = body
	if len(body) > limit {
		site.Fetch.Truncated, site.Fetch.CutAt = true, limit
		site.Fetch.Body = fetcher.WholeLines(body[:limit])
	}
	return site, nil
}

// single is a list of one entry, and the sink of its result.
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

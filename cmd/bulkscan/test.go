package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/terminal"
)

// The tester: may this crawler fetch that URL, and by which rule? This file follows the order of a run: the command,
// its stages, the crawlers, and which robots.txt is in force. testurls.go reads the URLs, audit decides, and terminal
// writes the rows.

// testFlags are the flags of test.
type testFlags struct {
	fetchFlags

	robots  string
	agents  agentNames
	dialect string
	literal bool
	shownAs
}

// agentNames are the values of --agent. Names contain white space, so that no value is split there, not even one from
// the environment.
type agentNames []string

func (n *agentNames) Set(value string) error { *n = append(*n, value); return nil }
func (n *agentNames) String() string         { return strings.Join(*n, ",") }
func (n *agentNames) Type() string           { return "names" }

func (a *app) testCommand() *cobra.Command {
	f := &testFlags{}
	c := &cobra.Command{
		Use:   "test --robots FILE|URL|- --agent NAME[,NAME…] [URL…]",
		Short: "Say whether crawlers may fetch URLs, and which line of robots.txt decides",
		Long: `test prints a line for each URL and crawler: allowed or disallowed, the URL, the group that the crawler follows, and
the line of the file that decides. It exits with 0 if all is allowed, with 3 if anything is not, else with 1 if the
robots.txt cannot be read or a line of standard input cannot be judged; interrupted while a site is asked, with 130 or
143.

URLs are whole (https://example.com/a?b) or paths (/a?b); //example.com/a is a URL without its scheme. Without any, or
where one is -, they are read from standard input, one a line.

The robots.txt is a file, - for standard input, or a site, which is then asked for it as check asks. ` + options.SiteOrFile + ` How
the site answers counts first: without a file (4xx) all is allowed, and while the server fails (5xx, no answer)
nothing is. It says nothing about other sites, which include the site's other schemes and ports: their URLs are
refused, and a line of standard input that has one is skipped. A file is taken for that of whichever site a URL is of.

A crawler that the registry knows (bulkscan tokens) is judged as its operator documents: Googlebot-Image follows the
groups of Googlebot where none names it, and AdsBot-Google ignores those of *. Any other name follows its own groups,
else those of *; where it is close to a name of the registry, a warning says so. --literal asks for every name in this
way. Whole User-Agent strings are taken for the crawler that they name, and * is a crawler that no group names.

MJ12bot, Screaming Frog SEO Spider and others of the registry are no product tokens, so that by RFC 9309 no group can
name them. They are found by the whole value of a user-agent line, or what stands before a / or ; or white space in
it; such a group is marked as lenient, since no crawler is known to read names so.

The dialect google is that of Google's code, usage records of drafts included: it reads DisallowAITraining as
Disallow. check and scan take such records for preferences, and a warning says so.

With --json each decision is an object in a line of its own: url, path, agent (as given), token (as asked),
allowed, reason (rule, no_rule, no_group, always_allowed, no_file, unavailable), line, rule, key, value, via (own,
fallback, star, none, http), group, lenient, groups, group_lines, group_agents, dialect, access, origin, outcome,
status, truncated. What there is not is null: a line where no rule decides, a status where none came, an origin where
a file decides.`,
		Example: `  bulkscan test --robots robots.txt --agent GPTBot,CCBot / /private/x
  bulkscan test --robots https://example.com --agent Googlebot-Image https://example.com/img/a.png
  curl -s https://example.com/robots.txt | bulkscan test --robots - --agent '*' '/search?q=1'
  bulkscan test --robots robots.txt --agent GPTBot --json < urls.txt`,
		RunE: func(c *cobra.Command, args []string) error { return a.test(c.Context(), f, args) },
	}
	flags := c.Flags()
	flags.StringVar(&f.robots, "robots", "", "the robots.txt: `FILE|URL|-`, a file, a site, or standard input")
	flags.Var(&f.agents, "agent", "crawlers to ask for, `NAME,...`; may be repeated")
	flags.StringVar(&f.dialect, "dialect", parser.Google.String(),
		"google, as the largest crawler reads; or rfc, RFC 9309 and no more")
	flags.BoolVar(&f.literal, "literal", false, "no fallbacks: each name's own groups, else those of *")
	f.shownAs.add(flags, "print one JSON object per line")
	f.addForOne(flags)
	return c
}

// test is the tester. It follows the order of events: the flags, the robots.txt, the decisions, and how it ends.
func (a *app) test(ctx context.Context, f *testFlags, urls []string) error {
	// A reader that leaves the pipe makes a write fail. It does not end the process.
	signal.Ignore(syscall.SIGPIPE)
	dialect, err := f.check(urls)
	if err != nil {
		return err
	}
	registry, err := registryOf(f.tokens)
	if err != nil {
		return err
	}
	auditor := audit.New(registry)
	given, crawlers, err := f.crawlers(registry, auditor)
	if err != nil {
		return err
	}
	a.noteUnknown(registry, given, crawlers)
	robots, err := a.inForce(ctx, f, auditor, dialect, urls)
	if err != nil {
		return err
	}
	if !f.json {
		a.noteReadings(given, crawlers)
	}
	if robots.Fetch.Truncated {
		a.note("the robots.txt is longer than --max-body %d; it is judged by its beginning", f.MaxBody)
	}
	if robots.HasNoAgent() {
		a.note("the robots.txt has no user-agent line, so that it disallows nothing; bulkscan check explains it")
	}
	if rec, ok := audit.UsageAsRule(&robots.Robots); ok {
		a.note(
			"the robots.txt, line %d: %s is read as %s, as Google's code reads it; by its draft it is no rule, and check and scan take it for none", rec.Line, rec.KeyText, rec.Key)
	}

	out := bufio.NewWriterSize(a.stdout, 64<<10)
	rows := terminal.NewRows(out, auditor.Tester(robots, crawlers), given, f.json, f.color.Colored(a.stdout))
	q := &questions{app: a, speaksOf: robots.SpeaksOf(), out: out, rows: rows, crawlers: len(crawlers)}
	for _, url := range urls {
		rows.Widen(url)
	}
	if len(urls) == 0 {
		urls = []string{"-"}
	}
	for _, url := range urls {
		if url == "-" {
			err = q.addAll(a.stdin)
		} else {
			err = q.add(url)
		}
		if err != nil {
			break
		}
	}
	if flushErr := q.out.Flush(); err == nil {
		err = flushErr
	}
	switch {
	case errors.Is(err, syscall.EPIPE) && q.disallowed > 0: // the reader has seen enough
		return &exitError{code: exitThreshold}
	case errors.Is(err, syscall.EPIPE):
		return nil
	case err != nil:
		return err
	}
	return q.verdict()
}

// note writes a message to the user that is no result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "bulkscan: %s\n", terminal.Line(fmt.Sprintf(format, args...)))
}

// check refuses wrong values that a flag's type allows.
func (f *testFlags) check(urls []string) (parser.Dialect, error) {
	fromStdin := len(urls) == 0 || slices.Contains(urls, "-")
	switch {
	case f.robots == "":
		return 0, usagef("--robots is missing: a file, a site's URL, or - for standard input")
	case len(f.agents) == 0:
		return 0,
			usagef("--agent is missing: the crawlers to ask for, such as --agent GPTBot,CCBot; '*' is one that no group names")
	case f.robots == "-" && fromStdin:
		return 0,
			usagef(
				"standard input cannot be both the robots.txt and the URLs; name URLs on the command line, or put one of the two into a file")
	}
	seen := false
	for _, url := range urls {
		if url == "-" {
			if seen {
				return 0, usagef("standard input (-) is there twice")
			}
			seen = true
		} else if err := audit.CheckURL(url); err != nil {
			return 0, usagef("%q %w", clipped(url), err)
		}
	}
	for _, d := range []parser.Dialect{parser.GoogleExact, parser.RFC} {
		if f.dialect == d.String() {
			return d, nil
		}
	}
	return 0, usagef("--dialect %q: google or rfc", f.dialect)
}

// crawlers returns the crawlers that --agent names.
func (f *testFlags) crawlers(registry *tokens.Registry, auditor *audit.Auditor) (given []string, list []audit.Crawler,
	err error) {
	for _, value := range f.agents {
		for _, name := range audit.CrawlerNames(value) {
			if name == "" {
				return nil, nil, usagef("--agent %q has an empty name; names are separated by single commas", clipped(value))
			}
			c, err := auditor.Crawler(name, f.literal)
			switch {
			case errors.Is(err, audit.ErrUnknownCrawler):
				return nil, nil, usagef("--agent %q: %w; names are separated by commas%s", clipped(name), err,
					likeToken(registry, name))
			case errors.Is(err, audit.ErrBrowser):
				return nil, nil, usagef("--agent %q: %w; give the crawler's token alone", clipped(name), err)
			case err != nil:
				return nil, nil,
					usagef(
						"--agent %q begins with %w (letters, - and _), so that no group can name it; '*' asks for a crawler that no group names%s", clipped(name), err, likeToken(registry, name))
			}
			given, list = append(given, name), append(list, c)
		}
	}
	return given, list, nil
}

// noteReadings reports which token a name stands for, if that differs from the name.
func (a *app) noteReadings(given []string, crawlers []audit.Crawler) {
	for i, c := range crawlers {
		if !strings.EqualFold(given[i], c.Token) {
			a.note("--agent %q is asked for as %s", clipped(given[i]), c.Token)
		}
	}
}

// noteUnknown warns of names that the registry does not know and that are close to one that it knows. Any other name is
// a crawler of the user's own, and there is no warning.
func (a *app) noteUnknown(registry *tokens.Registry, given []string, crawlers []audit.Crawler) {
	for i, c := range crawlers {
		name := given[i] // of a User-Agent string, what comes before its version
		if end := strings.IndexAny(name, " \t/;("); end >= 0 {
			name = name[:end]
		}
		id, _ := registry.Find([]byte(name))
		token, _ := registry.Find([]byte(c.Token))
		if id >= 0 || token >= 0 {
			continue
		}
		if hint := likeToken(registry, name); hint != "" {
			a.note("--agent %q: no token has this name, so that it follows its own groups, else those of *%s", clipped(given[i]),
				hint)
		}
	}
}

// inForce returns the judged robots.txt that decides: of the file that --robots names, or fetched from the site that it
// names. A missing robots.txt is judged, too.
func (a *app) inForce(ctx context.Context, f *testFlags, auditor *audit.Auditor, dialect parser.Dialect,
	urls []string) (*audit.Site, error) {
	site, err := a.fileSite(f.robots, f.MaxBody)
	if err != nil {
		return nil, err
	}
	if site != nil {
		site.Dialect = dialect
		auditor.Judge(site)
		return site, nil
	}
	o, err := siteOf(f.robots)
	if err != nil {
		return nil, err
	}
	site = &audit.Site{Origin: o, Dialect: dialect}
	if err := speaksOfAll(site, urls); err != nil {
		return nil, err
	}
	err = a.ask(ctx, &f.fetchFlags, auditor, pipeline.Entry{Input: f.robots, Origin: o}, func(asked *audit.Site) {
		from, to := &asked.Fetch, &site.Fetch
		to.Outcome, to.Cause, to.Status = from.Outcome, from.Cause, from.Status
		to.Body, to.Truncated = bytes.Clone(from.Body), from.Truncated
		if o.Scheme() == origin.Auto { // its answer decides whose robots.txt it is
			site.Origin = from.Answered
		}
	})
	if err != nil {
		return nil, err
	}
	if err := speaksOfAll(site, urls); err != nil {
		return nil, err
	}
	auditor.Judge(site)
	if site.Report.Access == parser.AccessUnknown { // it was not fetched
		err = notAsked(site.Origin.String(), site.Fetch.Outcome.String(), f.optOut)
	}
	return site, err
}

// siteOf returns the origin of a site's URL. Any other path than that of robots.txt is a mistake: the answer would be
// about a file that the user does not mean (RFC 9309 §2.3).
func siteOf(url string) (origin.Origin, error) {
	o, err := options.Site("--robots ", url)
	if err != nil {
		return origin.Origin{}, usage(err)
	}
	if path := string(parser.AppendPath(nil, url)); path != "/" && path != exchange.RobotsPath {
		return origin.Origin{},
			usagef(
				"--robots %q: only %s%s counts for a site; to test this file all the same: curl -s URL | bulkscan test --robots - …",
				clipped(url), o, exchange.RobotsPath)
	}
	return o, nil
}

// speaksOfAll returns an error of usage if one of the URLs belongs to another site.
func speaksOfAll(site *audit.Site, urls []string) error {
	speaksOf := site.SpeaksOf()
	for _, url := range urls {
		if url == "-" {
			continue
		}
		if err := speaksOf(url); err != nil {
			return usage(err)
		}
	}
	return nil
}

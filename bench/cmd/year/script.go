package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// answer is what a site can say on a night. Class and policy are written by hand, from the rules in RFC 9309: the truth asks
// no code that is tested.
type answer struct {
	behaviour string // of a host of the simulated web
	outcome   exchange.Outcome
	status    int
	body      string
	challenge string // whose challenge it is
	gap       string // the class of the gap; "" for an observation
	policy    history.Policy
}

const unlisted = history.Unlisted

// moved is what a site answers that has moved to another host, whose file it then is.
var moved = answer{behaviour: "to-other", status: 200, body: "User-agent: *\nDisallow: /shop/\n\nUser-agent: CCBot\nDisallow: /\n",
	policy: history.Policy{Class: history.ClassRules, StarVerdict: "partial", OwnBlocked: []string{"CCBot"}}}

// block is what Cloudflare puts before a site's own file.
const block = "# BEGIN Cloudflare Managed content\nUser-agent: GPTBot\nDisallow: /\n\nUser-agent: CCBot\nDisallow: /\n# END Cloudflare Managed Content\n\n"

// files are the answers that a site can have for long. Some have the policy of another.
var files = []answer{
	text("User-agent: *\nDisallow:\n", history.Policy{StarVerdict: "allowed"}),
	text("User-agent: *\nDisallow: /private/\n", history.Policy{StarVerdict: "partial"}),
	text("User-agent: *\nDisallow: /admin/\nSitemap: https://example.com/sitemap.xml\n", history.Policy{StarVerdict: "partial"}),
	text("User-agent: *\nDisallow: /\n", history.Policy{StarVerdict: "blocked"}),
	text("User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nDisallow:\n", history.Policy{StarVerdict: "allowed", OwnBlocked: []string{"GPTBot"}}),
	text("User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: *\nDisallow: /tmp\n", history.Policy{StarVerdict: "partial", OwnBlocked: []string{"CCBot", "GPTBot"}}),
	text("User-agent: *\nDisallow: /cache\n\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: GPTBot\nDisallow: /\n", history.Policy{StarVerdict: "partial", OwnBlocked: []string{"CCBot", "GPTBot"}}),
	text("User-agent: GPTBot\nDisallow: /news\n\nUser-agent: Googlebot\nAllow: /\n\nUser-agent: *\nDisallow: /\n", history.Policy{StarVerdict: "blocked", OwnPartial: []string{"GPTBot"}, OwnAllowed: []string{"Googlebot"}}),
	text("User-agent: CCBot\nDisallow: /\n", history.Policy{StarVerdict: "allowed", OwnBlocked: []string{"CCBot"}}),
	text("User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n", history.Policy{StarVerdict: "allowed", ContentSignal: "search=yes, ai-train=no"}),
	text("License: https://example.com/license.xml\nUser-agent: *\nContent-Usage: train-ai=n\nDisallow: /a\n", history.Policy{StarVerdict: "partial", ContentUsage: "train-ai=n", License: "https://example.com/license.xml"}),
	text(block+"User-agent: *\nDisallow:\n", history.Policy{StarVerdict: "allowed", OwnBlocked: []string{"CCBot", "GPTBot"}, Managed: "cloudflare"}),
	text("# START YOAST BLOCK\nUser-agent: *\nDisallow:\n# END YOAST BLOCK\n", history.Policy{StarVerdict: "allowed", Managed: "yoast"}),
	moved,
	{behaviour: "ok", status: 200, body: "Welcome to our web server.\n", policy: history.Policy{Class: history.ClassNoRules}},
	{behaviour: "html", status: 200, body: "<!DOCTYPE html>\n<html><title>Welcome</title></html>\n", policy: history.Policy{Class: history.ClassHTML}},
	{behaviour: "not-found", status: 404, policy: history.Policy{Class: history.ClassNone}},
	{behaviour: "gone", status: 410, policy: history.Policy{Class: history.ClassNone}},
	{behaviour: "forbidden", status: 403, policy: history.Policy{Class: history.ClassRefused}},
}

// failures are the answers of some nights in succession. The last, which needs a time-out, has nights of its own over sockets.
var failures = []answer{
	{behaviour: "reset-head", outcome: exchange.Reset, gap: "unreachable"},
	{behaviour: "close-head", outcome: exchange.ClosedEarly, gap: "unreachable"},
	{behaviour: "refuse", outcome: exchange.ConnectRefused, gap: "unreachable"},
	{behaviour: "nxdomain", outcome: exchange.DNSNotFound, gap: "unreachable"},
	{behaviour: "servfail", outcome: exchange.DNSFailed, gap: "unreachable"},
	{behaviour: "error-500", status: 500, gap: "server_error"},
	{behaviour: "error-503", status: 503, gap: "server_error"},
	{behaviour: "too-many", status: 429, gap: "rate_limited"},
	{behaviour: "silent", outcome: exchange.Timeout, gap: "unreachable"},
}

// outages are what a delivery network answers for all of its sites.
var outages = []answer{
	{behaviour: "challenge-cloudflare", status: 403, challenge: "cloudflare", gap: "challenged"},
	{behaviour: "too-many", status: 429, gap: "rate_limited"},
	{behaviour: "forbidden", status: 403, policy: history.Policy{Class: history.ClassRefused}},
	{behaviour: "maintenance", status: 200, body: "<!DOCTYPE html>\n<title>Down for maintenance</title>\n", policy: history.Policy{Class: history.ClassHTML}},
}

func text(body string, p history.Policy) answer {
	p.Class = history.ClassRules
	return answer{behaviour: "ok", status: 200, body: body, policy: p}
}

// answers are all of them, in this order, and not to be on the list. policies are theirs, by id.
var (
	answers      = slices.Concat(files, failures, outages, []answer{{gap: unlisted}})
	firstFailure = len(files)
	firstOutage  = len(files) + len(failures)
	notListed    = len(answers) - 1
	policies     = map[int64]*history.Policy{}
)

func init() {
	for i := range answers {
		a := &answers[i]
		a.outcome = cmp.Or(a.outcome, exchange.Answered)
		if a.gap == "" {
			a.policy = a.policy.Canonical()
			policies[a.policy.ID] = &a.policy
		}
	}
}

// script says what each site answers on each night.
type script struct {
	size
	first   history.Date
	hosts   []string
	origins []origin.Origin
	ids     []int64  // see schema.SiteID
	cells   [][]cell // by site and night
	outage  [2][]int // of two networks, by night; -1 for none

	name       func(night int) string // of the night's scan
	otherJudge int                    // the night with another token registry; -1: none
	outside    map[int]bool           // nights that the ledger must not have
	change     int                    // the first night on which another observer scans, for good; the sites answer it as the one before
}

// size is how many sites and nights a script has.
type size struct{ sites, nights int }

// cell is one night of a site.
type cell struct {
	file  uint8 // index of answers
	edit  uint8 // number of the comment in it
	shown uint8 // what comes instead of the file; the file itself: nothing does
}

// silentOn reports whether sites may be silent on a night over sockets: each takes seconds.
func silentOn(night int) bool { return night%10 == 0 }

// says is what a host of the simulated web does on a night, and its file: a site of the script, or the host that others have moved to.
func (s *script) says(sites map[string]int, host string, night int) (behaviour string, file []byte) {
	site, ok := sites[host]
	switch {
	case ok:
		a := s.shown(site, night)
		return a.behaviour, s.body(site, night, a)
	case strings.HasSuffix(host, ".landing.test"):
		return "ok", []byte(moved.body)
	}
	return "", nil
}

// newScript makes a script. The same seed makes the same. silent reports whether sites may be silent on a night.
func newScript(seed uint64, of size, silent func(night int) bool) (*script, error) {
	s := &script{size: of, name: scanID, otherJudge: -1, outside: map[int]bool{}, change: of.nights * 6 / 10}
	var err error
	if s.first, err = history.ParseDate("2025-01-01"); err != nil {
		return nil, err
	}
	for _, host := range simweb.Names(seed, of.sites) {
		o, err := origin.Parse(host)
		if err != nil {
			return nil, err
		}
		s.hosts, s.origins, s.ids = append(s.hosts, host), append(s.origins, o), append(s.ids, schema.SiteID(o.Host(), int32(o.Port()), o.Scheme().String()))
	}
	s.outage = [2][]int{outagesOf(seed, 1, of.nights), outagesOf(seed, 2, of.nights)} // of two networks
	for i := range of.sites {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		chance := func(perMille float64) bool { return rng.Float64()*1000 < perMille }
		network := rng.IntN(10) // a tenth of the sites each are at network 0 and 1
		file, other := rng.IntN(len(files)), rng.IntN(len(files))
		flaps, listed, failure, edit := chance(20), chance(950), -1, uint8(0)
		cells := make([]cell, of.nights)
		for n := range cells {
			switch {
			case flaps && chance(50):
				file, other = other, file
			case chance(2.2): // some of the new files are the old one
				file = rng.IntN(len(files))
			}
			if chance(20) {
				edit++
			}
			if listed { // 1 % go, and the same number comes back
				listed = !chance(10)
			} else {
				listed = chance(190)
			}
			if failure < 0 && chance(15) {
				failure = rng.IntN(len(failures))
			} else if failure >= 0 && chance(650) {
				failure = -1
			}
			shown := file
			switch {
			case !listed:
				shown = notListed
			case network < len(s.outage) && s.outage[network][n] >= 0:
				shown = firstOutage + s.outage[network][n]
			case failure == len(failures)-1 && !silent(n):
				shown = firstFailure
			case failure >= 0:
				shown = firstFailure + failure
			}
			cells[n] = cell{uint8(file), edit, uint8(shown)}
		}
		s.cells = append(s.cells, cells)
	}
	return s, nil
}

// outagesOf returns the outage of a network by night, -1 for none. One lasts up to three nights.
func outagesOf(seed, network uint64, nights int) (all []int) {
	rng := rand.New(rand.NewPCG(seed, network<<40))
	for len(all) < nights {
		kind, last := -1, 1
		if rng.IntN(20) == 0 {
			kind, last = rng.IntN(len(outages)), 1+rng.IntN(3)
		}
		for range last {
			all = append(all, kind)
		}
	}
	return all
}

// shown returns what the night's scans get.
func (s *script) shown(site, night int) *answer { return &answers[s.cells[site][night].shown] }

// body returns the bytes of an answer: a file of the site's own has a comment that changes without its rules.
func (s *script) body(site, night int, a *answer) []byte {
	if a.policy.Class != history.ClassRules || a.behaviour == moved.behaviour {
		return []byte(a.body)
	}
	return fmt.Appendf(nil, "%s# revision %d\n", a.body, s.cells[site][night].edit)
}

func (s *script) date(night int) history.Date { return s.first + history.Date(night) }

package queries

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	datasetviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// This file makes datasets for queries: the same list scanned on several dates, without a network. Outcomes have about
// the shares that surveys report. Files are real or made of pieces (madeBodies). From date to date, some sites begin
// to block AI crawlers, some stop, and some disappear. audit and sink do the rest, as in a scan.

// Survey describes a dataset. The same Survey makes the same rows.
type Survey struct {
	Name   string // the prefix of scan names; "survey" if empty
	Sites  int
	After  time.Duration // start of the scans, after midnight
	Dates  []string      // of the scans, YYYY-MM-DD, ascending; at least one
	Bodies [][]byte      // real files to draw from, besides made ones
	Parts  int           // origins a part; 0 is the sink's default
	Tables []string      // nil is all

	Observer commit.Observer
	Registry *tokens.Registry // nil is the default

	// every so many-th site that answers gives a bot challenge, with the site's file as its body; 0: none does
	Challenged int
	Cut        int   // every so many-th answer with a body breaks off; 0: none does
	RankStep   int64 // from rank to rank; 0 is 1

	// Judged is called for each row before it is written, if it is not nil. A row for which it returns false is left out.
	Judged func(scanID string, row *audit.Site) bool

	// Statistics computes the statistics of a scan whose sites are all committed, as stats.Write does.
	Statistics func(ctx context.Context, st store.Store, scanID string) error
}

// site has the facts of one list entry that apply to all dates.
type site struct {
	host   string
	rank   int64
	label  string
	cdn    string
	status int // 0: no answer, see fails
	fails  exchange.Outcome
	body   []byte
	own    bool // the file has a line of its own, so that it equals no other
	begins int  // index of the first date with its own block of AI crawlers; len(Dates): never
	ends   int  // index of the first date without that block again
	gone   int  // index of the first date on which its name does not exist
	hops   int  // redirects: 0 none, 1 to a subdomain, 2 to another domain, 3 to http, 4 to another path
}

var (
	tlds = []string{"com", "com", "com", "com", "org", "net", "de", "co.uk", "fr", "io", "ru", "jp", "com.br", "nl",
		"it", "pl"}
	labels = []string{"", "news", "shop", "news", "", "government", "état", "blog", "shop", "", "university"}
	cdns   = []string{"", "cloudflare", "", "cloudflare", "cloudfront", "", "fastly", "akamai", "", ""}
	words  = []string{"north", "river", "data", "kite", "market", "stone", "blue", "open", "garden", "press", "cloud",
		"forge", "paper", "city", "green"}
)

// outcomes have about the shares of large scans, in thousandths.
var outcomes = []struct {
	of      int
	status  int
	outcome exchange.Outcome
}{
	{690, 200, exchange.Answered},
	{118, 404, exchange.Answered},
	{28, 403, exchange.Answered},
	{7, 503, exchange.Answered},
	{4, 429, exchange.Answered},
	{3, 410, exchange.Answered},
	{2, 500, exchange.Answered},
	{2, 401, exchange.Answered},
	{3, 302, exchange.RedirectLimit},
	{80, 0, exchange.DNSNotFound},
	{14, 0, exchange.DNSTimeout},
	{22, 0, exchange.ConnectTimeout},
	{8, 0, exchange.ConnectRefused},
	{9, 0, exchange.TLSFailed},
	{4, 0, exchange.Timeout},
	{3, 0, exchange.Reset},
	{2, 0, exchange.BlockedAddress},
	{1, 0, exchange.OptedOut},
}

// draw returns the facts of one entry, the same at every call.
func (s *Survey) draw(seq int, made [][]byte) site {
	rng := rand.New(rand.NewPCG(uint64(seq), 9309))
	d := site{begins: len(s.Dates), ends: len(s.Dates), gone: len(s.Dates)}
	tld := tlds[rng.IntN(len(tlds))]
	name := words[rng.IntN(len(words))]
	switch rng.IntN(4) {
	case 0:
		d.host = fmt.Sprintf("www.%s-%d.%s", name, seq, tld)
	case 1:
		d.host = fmt.Sprintf("%s.%s%d.%s", words[rng.IntN(len(words))], name, seq, tld)
	default:
		d.host = fmt.Sprintf("%s%d.%s", name, seq, tld)
	}
	if rng.IntN(50) > 0 {
		d.rank = (int64(seq) + 1) * max(1, s.RankStep)
	}
	d.label = labels[rng.IntN(len(labels))]
	d.cdn = cdns[rng.IntN(len(cdns))]
	at := rng.IntN(1000)
	for _, o := range outcomes {
		if at -= o.of; at < 0 {
			d.status, d.fails = o.status, o.outcome
			break
		}
	}
	if from := made; d.status == 200 {
		if len(s.Bodies) > 0 && rng.IntN(8) > 0 {
			from = s.Bodies
		}
		d.body = from[rng.IntN(len(from))]
		d.own = rng.IntN(3) > 0
		if rng.IntN(100) == 0 {
			d.body, d.own = nil, false
		}
		if rng.IntN(20) == 0 {
			d.begins = rng.IntN(len(s.Dates))
			if rng.IntN(4) == 0 {
				d.ends = d.begins + 1
			}
		}
	}
	if rng.IntN(60) == 0 {
		d.gone = 1 + rng.IntN(len(s.Dates))
	}
	if d.status != 0 && rng.IntN(4) == 0 {
		d.hops = []int{1, 1, 1, 1, 1, 4, 2, 3}[rng.IntN(8)]
	}
	if seq%12 == 11 { // a second site of a domain
		d.host = []string{"www.", "shop."}[seq/12%2] + s.draw(seq-1, made).host
	}
	return d
}

// Write writes a scan of the list for each date, with statistics. Scans are named after their dates.
func (s *Survey) Write(ctx context.Context, st store.Store) error {
	made := madeBodies()
	for i := range s.Dates {
		if err := s.scan(ctx, st, i, made); err != nil {
			return fmt.Errorf("cannot make the scan of %s: %w", s.Dates[i], err)
		}
	}
	return nil
}

func (s *Survey) scan(ctx context.Context, st store.Store, date int, made [][]byte) error {
	at, err := time.Parse(time.DateOnly, s.Dates[date])
	if err != nil {
		return err
	}
	id := cmp.Or(s.Name, "survey") + "-" + s.Dates[date]
	w, err := sink.Open(ctx, st, sink.Options{ScanID: id, Date: s.Dates[date], Observer: s.Observer, PartRows: s.Parts,
		Tables: s.Tables, PartAge: time.Hour, Registry: s.Registry})
	if err != nil {
		return err
	}
	auditor := audit.New(cmp.Or(s.Registry, tokens.Default()))
	row := &audit.Site{}
	var body []byte
	for seq := range s.Sites {
		d := s.draw(seq, made)
		row.Reset()
		row.Seq, row.Rank, row.Label, row.Input = uint64(seq), d.rank, d.label, d.host
		o, err := origin.Parse(d.host)
		if err != nil {
			return errors.Join(err, w.Abort())
		}
		row.SetOrigin(o)
		body = d.answer(row, date, at.Add(s.After+time.Duration(seq)*time.Millisecond), body)
		if s.Challenged > 0 && seq%s.Challenged == 0 && row.Fetch.Status != 0 {
			row.Fetch.Fields.Challenge = "cloudflare"
		}
		if s.Cut > 0 && seq%s.Cut == 0 && len(row.Fetch.Body) > 0 {
			row.Fetch.Outcome = exchange.ClosedEarly
		}
		auditor.Judge(row)
		if s.Judged != nil && !s.Judged(id, row) {
			continue
		}
		if err := w.Add(row); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	if err := w.Flush(ctx); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := s.Statistics(ctx, st, id); err != nil {
		return errors.Join(err, w.Abort())
	}
	return errors.Join(w.Complete(ctx), w.Close(ctx), index.Update(ctx, st), datasetviews.Write(ctx, st, nil))
}

// answer fills in a site's answer on a date. It makes the body in the given memory, which it returns.
func (d *site) answer(row *audit.Site, date int, at time.Time, memory []byte) []byte {
	f := &row.Fetch
	rng := rand.New(rand.NewPCG(row.Seq, uint64(date)))
	f.Outcome, f.Status, f.FetchedAt, f.Attempts = d.fails, d.status, at, 1
	f.Answered = row.Origin.As(origin.HTTPS)
	f.Final.Origin = f.Answered
	if date >= d.gone {
		f.Outcome, f.Status = exchange.DNSNotFound, 0
	}
	switch f.Outcome {
	case exchange.OptedOut, exchange.BlockedAddress:
		f.Attempts, f.FetchedAt = 0, time.Time{}
		return memory
	}
	slow := math.Exp(rng.NormFloat64()*0.6) * map[bool]float64{true: 60, false: 190}[d.cdn != ""]
	f.Timing.Total = time.Duration(slow*3) * time.Millisecond
	if f.Status == 0 {
		return memory
	}
	f.Timing.TTFB = time.Duration(slow * float64(time.Millisecond))
	f.Timing.Connect, f.Timing.TLS = f.Timing.TTFB/2, f.Timing.TTFB/3*2
	f.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(row.Seq >> 8), byte(row.Seq)}), 443)
	f.TLSVersion, f.TLSVerified, f.Proto = tls.VersionTLS13, exchange.Yes, "HTTP/1.1"
	f.Fields.CDN = d.cdn
	f.Fields.ContentType = f.Keep([]byte("text/plain"))
	f.Fields.Server = f.Keep([]byte(d.cdn + "server"))
	d.redirect(row)
	if f.Outcome != exchange.Answered || f.Status != 200 {
		return memory
	}
	memory = append(memory[:0], d.body...)
	if !isPage(memory) {
		if len(memory) > 0 && memory[len(memory)-1] != '\n' {
			memory = append(memory, '\n')
		}
		if d.begins <= date && date < d.ends {
			memory = append(memory, turnedAway[d.cdn == "cloudflare"]...)
		}
		if d.own {
			memory = fmt.Appendf(memory, "Sitemap: https://%s/sitemap.xml\n", d.host)
		}
	}
	if f.Body = memory; len(memory) > maxBody {
		f.Body, f.Truncated = memory[:maxBody], true
	}
	return memory
}

// maxBody bounds the kept body. It is above the default of a scan, so that some files exceed that and are still
// complete.
const maxBody = 520_000

// redirect adds the site's redirects.
func (d *site) redirect(row *audit.Site) {
	f := &row.Fetch
	to := func(scheme origin.Scheme, host string) {
		if o, err := origin.New(scheme, host, scheme.DefaultPort()); err == nil {
			f.Final.Origin = o
			f.Hops = append(f.Hops, exchange.Hop{Status: 301, URL: f.Final.String()})
		}
	}
	switch d.hops {
	case 1:
		to(origin.HTTPS, "static."+d.host)
	case 2:
		f.Hops = append(f.Hops, exchange.Hop{Status: 308, URL: "https://" + d.host + "/en/robots.txt"})
		to(origin.HTTPS, "parking.example")
	case 3:
		to(origin.HTTP, d.host)
	case 4:
		f.Final.Path = "/static/robots.txt"
		f.Hops = append(f.Hops, exchange.Hop{Status: 302, URL: f.Final.String()})
	}
}

// isPage reports whether a body begins like HTML. Nothing is added to such a body.
func isPage(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n\ufeff"), []byte("<"))
}

// turnedAway is the block of AI crawlers: a site's own, and one that a delivery network manages.
var turnedAway = map[bool]string{
	false: "\nUser-agent: GPTBot\nUser-agent: ClaudeBot\nUser-agent: CCBot\nUser-agent: Google-Extended\nDisallow: /\n",
	true: `
# BEGIN Cloudflare Managed content
User-agent: *
Content-Signal: search=yes,ai-train=no
Allow: /

User-agent: Amazonbot
Disallow: /

User-agent: Applebot-Extended
Disallow: /

User-agent: Bytespider
Disallow: /

User-agent: CCBot
Disallow: /

User-agent: ClaudeBot
Disallow: /

User-agent: Google-Extended
Disallow: /

User-agent: GPTBot
Disallow: /

User-agent: meta-externalagent
Disallow: /
# END Cloudflare Managed Content
`,
}

// madeBodies returns 400 files of one to five pieces, and the files of whole. Each piece affects some query, so that no
// answer is trivial.
func madeBodies() [][]byte {
	rng := rand.New(rand.NewPCG(1, 9309))
	all := make([][]byte, 400)
	for i := range all {
		for range 1 + rng.IntN(5) {
			all[i] = append(all[i], pieces[rng.IntN(len(pieces))]...)
		}
	}
	return slices.Concat(all, whole(), whole(), whole(), whole())
}

// pieces are parts of files.
var pieces = []string{
	"User-agent: *\nDisallow:\n",
	"User-agent: *\nDisallow: /\n",
	"User-agent: *\nDisallow: /admin/\nDisallow: /search\nCrawl-delay: 10\n",
	"User-agent: *\nDisallow: /\nAllow: /*?page=\n",
	"User-agent: *\nDisallow: /cart\nDisallow: /*\n",
	"User-agent: *\nAllow: /\nContent-Signal: search=yes, ai-train=no\nContent-Usage: train-ai=n\n",
	"User-agent: GPTBot\nDisallow: /\n",
	"User-agent: GPTBot\nDisallow: /\nAllow: /press/\n",
	"User-agent: GPTBot\nAllow: /\nCrawl-delay: 2.5\n",
	"User-agent: gptbot/1.0\nUser-agent: CCBot\nUser-agent: anthropic-ai\nDisallow: /\n",
	"User-agent: Googlebot\nDisallow: /\n",
	"User-agent: Googlebot\nDisallow: /nogoogle/\n",
	"User-agent: Googlebot-News\nAllow: /news\nDisallow: /\n",
	"User-agent: Google-Extended\nUser-agent: PerplexityBot\nDisallow: /\n",
	"User-agent: ChatGPT-User\nDisallow: /private\nAllow: /private/but\n",
	"User-agent: AdsBot-Google\nDisallow: /ads\n",
	"User-agent: MJ12bot\nDisallow: /\nCrawl-delay: 60\n",
	"User-agent: ClaudeBot\nContent-Signal: ai-train=no, ai-input=yes\nDisallow: /\n",
	"User-agent: Bytespider\nContent-Usage: /art train-ai=n, search=y\nDisallow: /*?\n",
	"User-agent: some-stranger\nDisallow: /\n",
	"User-agent: another_one\nUser-agent: some-stranger\nCrawl-delay: 1\n",
	"Content-Signal: search=yes,ai-input=no,use=reference\n",
	"License: https://rsl.example/license.xml\n",
	"License: HTTPS://reader:x@RSL.example:8443/license.xml\n",
	"License: https://example.org/terms\nContent-Usage: train-ai=y\n",
	"Sitemap: https://example.com/sitemap.xml\nSitemap: /relative.xml\n",
	"Host: www.example.com\nClean-param: ref /\n",
	"Noindex: /old\nNofollow: /x\n",
	"X-Robots: yes\nFavourite-colour: blue\n",
	"Disallow: /before-any-group\n",
	"Dissallow: /typo\nuseragent: *\n",
	"this is no record\n<b>nor this</b>\n",
	"Disallow: no-slash\n",
	"# a comment\n\n",
	"User-agent: \xff\xfe\nDisallow: /caf\xe9\n",
}

// whole returns complete files that are special.
func whole() [][]byte {
	page := "<!DOCTYPE html><html><head><title>Not here</title></head><body>User-agent: *\nDisallow: /\n</body></html>\n"
	return [][]byte{
		nil, {}, []byte("\n"),
		[]byte(page), []byte(page), []byte("\ufeff" + page),
		[]byte("\ufeffUser-agent: *\nDisallow: /bom\n"),
		[]byte("\ufeffUser-agent: GPTBot\nDisallow: /\n"),
		bytes.Repeat([]byte("User-agent: *\nDisallow: /a/very/long/file/\n"), 12_000), // above 500 KiB, and whole
		bytes.Repeat([]byte("User-agent: *\nDisallow: /a/very/long/file/\n"), 13_000), // beyond maxBody
		bytes.Repeat([]byte("# padding\n"), 20_000),
	}
}

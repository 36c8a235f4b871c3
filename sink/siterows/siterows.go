// Package siterows answers one question: what do the rows of a site say? A Copier makes them from a judged site, and
// policy.go reads stored rows of policies and verdicts.
//
// A row outlives the slot of its site until its batch is written. So bytes that the slot owns are copied into slabs,
// which are freed at once after the write (memory.go). Strings of the list and of bulkscan's own tables are immutable
// and not copied.
package siterows

import (
	"math"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Copier makes rows whose memory is valid until Reset.
type Copier struct {
	scanID          string
	registryVersion string
	tokens          []tokenText // by registry index

	bytes  slab[byte]
	bodies slab[byte]
	lists  slab[string]
	hops   slab[schema.HopRow]
	floats slab[float64]
	ints   slab[int32]
}

// tokenText has the texts of a registry token in rows, made valid once for all rows.
type tokenText struct{ name, category string }

// Check returns the check by which this program judges.
func Check() commit.Check {
	return commit.Check{ID: audit.CheckID, Version: audit.CheckVersion, Suite: audit.CheckSuite, Reading: audit.Reading}
}

// New returns a Copier for the rows of a scan.
func New(scanID string, registry *tokens.Registry) *Copier {
	c := &Copier{scanID: scanID, registryVersion: schema.Bounded(registry.Version, schema.MaxVersion)}
	for _, t := range registry.Tokens {
		c.tokens = append(c.tokens, tokenText{schema.Bounded(t.Name, schema.MaxToken),
			schema.Bounded(t.Category, schema.MaxToken)})
	}
	return c
}

// Reset reuses the memory of all rows made so far.
func (c *Copier) Reset() {
	c.bytes.reset()
	c.bodies.reset()
	c.lists.reset()
	c.hops.reset()
	c.floats.reset()
	c.ints.reset()
}

// Copied returns how many bytes of texts and of bodies the rows made since Reset have.
func (c *Copier) Copied() (texts, bodies int) { return len(c.bytes.block), len(c.bodies.block) }

// Shared are the columns that all rows of a site share.
var Shared = []string{"origin", "host", "port", "requested", "seq", "rank", "tld"}

// Key has the Shared columns of a site.
type Key struct {
	origin, host, requested, tld string
	port                         int32
	seq, rank                    int64
}

// Key returns what the rows of a site share.
func (c *Copier) Key(s *audit.Site) Key {
	answered := s.Fetch.Answered
	if !answered.IsValid() {
		answered = s.Origin.As(origin.HTTPS)
	}
	return Key{
		origin:    c.origin(answered),
		host:      c.ours(s.Origin.Host(), 255),
		requested: s.Origin.Scheme().String(),
		tld:       c.ours(s.TLD, 63),
		port:      int32(s.Origin.Port()),
		seq:       int64(s.Seq),
		rank:      s.Rank,
	}
}

// yes and no are the targets of nullable boolean columns.
var yes, no = true, false

// truth returns a fact for a nullable column, nil if it does not apply.
func truth(t exchange.Tristate) *bool {
	switch t {
	case exchange.Yes:
		return &yes
	case exchange.No:
		return &no
	}
	return nil
}

// Site fills a row of the table sites.
func (c *Copier) Site(row *schema.SiteRow, k Key, s *audit.Site) {
	f, r := &s.Fetch, &s.Report
	*row = schema.SiteRow{
		ScanID:    c.scanID,
		Seq:       k.seq,
		Input:     c.ours(s.Input, schema.MaxInput),
		Host:      k.host,
		Port:      k.port,
		Requested: k.requested,
		Origin:    k.origin,
		Rank:      k.rank,
		Label:     c.ours(s.Label, schema.MaxLabel),
		Domain:    c.ours(s.Domain, 255),
		ICANN:     c.ours(s.ICANN, 255),
		TLD:       k.tld,

		Outcome:   f.Outcome.String(),
		Error:     c.ours(f.Cause.String(), schema.MaxError),
		Status:    clamp(f.Status),
		Hops:      clamp(len(f.Hops)),
		Redirects: c.redirects(f.Hops),
		Attempts:  clamp(f.Attempts),

		HTTPVersion:  c.ours(f.Proto, 16),
		Server:       c.text(f.Fields.Server, schema.MaxField),
		ContentType:  c.text(f.Fields.ContentType, schema.MaxField),
		CDN:          c.ours(f.Fields.CDN, 64),
		Challenge:    f.Fields.Challenge,
		ETag:         c.text(f.Fields.ETag, schema.MaxField),
		LastModified: c.text(f.Fields.LastModified, schema.MaxField),
		CacheControl: c.text(f.Fields.CacheControl, schema.MaxField),
		XRobotsTag:   c.text(f.Fields.XRobotsTag, schema.MaxField),
		UsageHeader:  c.text(f.Fields.ContentUsage, schema.MaxField),
		TLSVersion:   tlsName(f.TLSVersion),

		DNSMillis:     millis(f.Timing.DNS),
		ConnectMillis: millis(f.Timing.Connect),
		TLSMillis:     millis(f.Timing.TLS),
		TTFBMillis:    millis(f.Timing.TTFB),
		TotalMillis:   millis(f.Timing.Total),

		BodyBytes: int64(len(f.Body)),
		Truncated: f.Truncated,
		BodyHash:  int64(r.BodyHash),
	}
	c.Judge(row, r)
	if !f.FetchedAt.IsZero() {
		row.FetchedAt = f.FetchedAt.UnixMilli()
	}
	if f.Final.Origin.IsValid() && (f.Final.Origin != f.Answered || f.Final.Path != "" &&
		f.Final.Path != exchange.RobotsPath) {
		row.FinalURL = c.target(f.Final)
	}
	if f.Remote.IsValid() {
		row.RemoteIP = c.address(f.Remote.Addr().Unmap())
	}
	row.TLSVerified = truth(f.TLSVerified)
	row.RedirectScope = redirectScope(s)
}

// Judge sets exactly the columns of a row of sites that are tagged as judged.
func (c *Copier) Judge(row *schema.SiteRow, r *audit.Report) {
	row.RegistryVersion = c.registryVersion
	row.Finding = r.Finding.String()
	row.Access, row.AccessSource = r.Access.String(), audit.AccessSource
	row.CheckStatus, row.Score = r.Status.String(), r.Score
	row.StepFetch = r.Steps[audit.StepFetch].String()
	row.StepCoreSyntax = r.Steps[audit.StepCoreSyntax].String()
	row.StepExtensions = r.Steps[audit.StepExtensions].String()
	n := &r.Counts
	row.NLines, row.NGroups, row.NAgents = clamp(n.Lines), clamp(n.Groups), clamp(n.Agents)
	row.NAllow, row.NDisallow, row.NSitemaps = clamp(n.Allow), clamp(n.Disallow), clamp(n.Sitemaps)
	row.NExtensions, row.NLegacy, row.NUnknown = clamp(n.Extensions), clamp(n.Legacy), clamp(n.Unknown)
	row.NOrphan, row.NInvalid, row.NTypo = clamp(n.Orphan), clamp(n.Invalid), clamp(n.Typo)
	row.HasBOM, row.IsHTML, row.ValidUTF8, row.ManagedBlock = r.HasBOM, r.IsHTML, truth(r.ValidUTF8), r.ManagedBlock
	row.ManagedBy, row.HTMLTitle = r.ManagedBy, c.text(r.HTMLTitle, schema.MaxTitle)
	row.CrawlDelay = c.float(r.CrawlDelay, r.HasCrawlDelay)
	row.ContentSignal = c.text(r.ContentSignal, schema.MaxField)
	row.ContentUsage = c.text(r.ContentUsage, schema.MaxField)
	row.License = c.text(r.License, schema.MaxURL)
	row.Sitemaps = c.texts(r.Sitemaps[:min(len(r.Sitemaps), audit.MaxSitemaps)], schema.MaxURL)
	row.StarVerdict = starVerdict(r)
	row.Named, row.Blocked, row.Partial = c.names(r.Named), nil, nil
	if r.Access == parser.AccessConditional {
		row.Blocked, row.Partial = c.names(r.Blocked), c.names(r.Partial)
	}
	row.PolicyID, row.RFCPolicyID, row.UnmanagedID = int64(r.Policy.ID), int64(r.RFCPolicy.ID), int64(r.Unmanaged)
	row.Advice = c.advice(r.Advice)
}

// starVerdict is the verdict of an agent that no group names. With unknown access it is "unknown": the zero Decision
// would say that everything is allowed.
func starVerdict(r *audit.Report) string {
	if r.Access == parser.AccessUnknown {
		return "unknown"
	}
	return r.Star.String()
}

// Verdict fills a row of the table verdicts.
func (c *Copier) Verdict(row *schema.VerdictRow, k Key, v *audit.Verdict) {
	*row = schema.VerdictRow{
		Origin: k.origin, Host: k.host, Port: k.port, Requested: k.requested, Seq: k.seq, Rank: k.rank, TLD: k.tld,

		Verdict:         v.Decision.String(),
		Via:             v.Via.String(),
		RootAllowed:     v.RootAllowed,
		NAllow:          clamp(v.NAllow),
		NDisallow:       clamp(v.NDisallow),
		HasDisallowRoot: v.HasDisallowRoot,
		DPI:             v.DPI.String(),
		CrawlDelay:      c.float(v.CrawlDelay, v.HasCrawlDelay),
		RequestRate:     finite(v.RequestRate),
		VisitFrom:       c.integer(int(v.Visit.From), v.HasVisit),
		VisitTo:         c.integer(int(v.Visit.To), v.HasVisit),
		ContentSignal:   c.text(v.ContentSignal, schema.MaxField),
		ContentUsage:    v.ContentUsage.String(),
		Line:            clamp(v.Line),
		Lenient:         v.Lenient,
		Limited:         v.Limited,
	}
	if v.ID >= 0 && v.ID < len(c.tokens) {
		row.Known, row.Token, row.Category = true, c.tokens[v.ID].name, c.tokens[v.ID].category
	} else {
		row.Token = c.text(v.Token, schema.MaxToken)
	}
}

// Evidence fills a row of the table evidence.
func (c *Copier) Evidence(row *schema.EvidenceRow, k Key, e *audit.Evidence) {
	*row = schema.EvidenceRow{
		Origin:    k.origin,
		Seq:       k.seq,
		Line:      clamp(e.Line),
		GroupLine: clamp(e.GroupLine),
		Kind:      e.Kind.String(),
		Key:       c.text(e.Key, schema.MaxKey),
		Value:     c.text(e.Value, schema.MaxValue),
	}
}

// Body fills a row of the table bodies.
func (c *Copier) Body(row *schema.BodyRow, hash uint64, body []byte) {
	*row = schema.BodyRow{BodyHash: int64(hash), Body: c.bodies.take(len(body))}
	copy(row.Body, body)
}

func (c *Copier) texts(raw [][]byte, limit int) []string {
	list := c.lists.take(len(raw))
	for i := range raw {
		list[i] = c.text(raw[i], limit)
	}
	return list
}

// names spells registry tokens. It leaves out indexes that the registry does not have.
func (c *Copier) names(ids []uint16) []string {
	list := c.lists.take(len(ids))
	n := 0
	for _, id := range ids {
		if int(id) < len(c.tokens) {
			list[n] = c.tokens[id].name
			n++
		}
	}
	return list[:n]
}

func (c *Copier) advice(set audit.AdviceSet) []string {
	list := c.lists.take(set.Len())
	n := 0
	for a := range set.All() {
		list[n] = a.String()
		n++
	}
	return list
}

// redirectScope returns how far a site's redirects led, up to the last target that was fetched.
func redirectScope(s *audit.Site) string {
	final := s.Fetch.Final.Origin
	if len(s.Fetch.Hops) == 0 || !final.IsValid() {
		return "none"
	}
	from, to := s.Origin.Host(), final.Host()
	switch {
	case from == to:
		return "same_host"
	case strings.TrimPrefix(from, "www.") == strings.TrimPrefix(to, "www."):
		return "www"
	case s.Domain != "" && s.Domain == final.RegistrableDomain():
		return "same_domain"
	}
	return "other_domain"
}

func (c *Copier) redirects(hops []exchange.Hop) []schema.HopRow {
	hops = hops[:min(len(hops), schema.MaxHops)]
	list := c.hops.take(len(hops))
	for i, hop := range hops {
		list[i] = schema.HopRow{Status: clamp(hop.Status), URL: c.ours(hop.URL, schema.MaxURL)}
	}
	return list
}

// finite returns f, or 0 for NaN and infinities.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

func (c *Copier) float(f float64, has bool) *float64 {
	if !has || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	kept := c.floats.take(1)
	kept[0] = f
	return &kept[0]
}

func (c *Copier) integer(n int, has bool) *int32 {
	if !has {
		return nil
	}
	kept := c.ints.take(1)
	kept[0] = clamp(n)
	return &kept[0]
}

func clamp(n int) int32 { return int32(max(-math.MaxInt32, min(n, math.MaxInt32))) }

// millis rounds a duration to nine significant bits, three decimal digits: network measurements are not more exact, and
// the further bits, which do not compress, were a tenth of the dataset.
func millis(d time.Duration) float32 {
	const kept, mantissa = 8, 23 // bits after the leading one, which is implicit
	exact := math.Float32bits(float32(float64(d) / float64(time.Millisecond)))
	return math.Float32frombits((exact + 1<<(mantissa-kept-1)) &^ (1<<(mantissa-kept) - 1))
}

// tlsName spells the version of a TLS connection like crypto/tls, which sink does not import.
func tlsName(version uint16) string {
	switch version {
	case 0:
		return ""
	case 0x0301:
		return "TLS 1.0"
	case 0x0302:
		return "TLS 1.1"
	case 0x0303:
		return "TLS 1.2"
	case 0x0304:
		return "TLS 1.3"
	}
	return "other"
}

package siterows

import (
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file makes rows from stored rows that are judged again.

// Rows are the rows of one site in the tables sites, verdicts and evidence.
type Rows struct {
	Site     schema.SiteRow
	Verdicts []schema.VerdictRow
	Evidence []schema.EvidenceRow
}

// KeyOf returns what the rows of a site share.
func KeyOf(row *schema.SiteRow) Key {
	return Key{origin: row.Origin, host: row.Host, requested: row.Requested, tld: row.TLD, port: row.Port, seq: row.Seq,
		rank: row.Rank}
}

// lastingTruth returns the same value with a pointer that stays valid.
func lastingTruth(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	}
	return &no
}

// Keep copies a row, with the lists and the targets of its pointers, which are valid only for a moment.
func (c *Copier) Keep(row, from *schema.SiteRow) {
	*row = *from
	row.Redirects = c.hops.copy(from.Redirects)
	row.Sitemaps, row.Named = c.lists.copy(from.Sitemaps), c.lists.copy(from.Named)
	row.Blocked, row.Partial, row.Advice = c.lists.copy(from.Blocked), c.lists.copy(from.Partial),
		c.lists.copy(from.Advice)
	row.TLSVerified, row.ValidUTF8 = lastingTruth(from.TLSVerified), lastingTruth(from.ValidUTF8)
	if from.CrawlDelay != nil {
		row.CrawlDelay = c.float(*from.CrawlDelay, true)
	}
}

// TextsOf returns how many bytes of text a row has.
func TextsOf(r *schema.SiteRow) int {
	n := len(r.Input) + len(r.Host) + len(r.Origin) + len(r.Label) + len(r.Domain) + len(r.ICANN) + len(r.Error) +
		len(r.FinalURL) + len(r.Server) +
		len(r.ContentType) + len(r.ETag) + len(r.LastModified) + len(r.CacheControl) + len(r.XRobotsTag) +
		len(r.UsageHeader) +
		len(r.ContentSignal) + len(r.ContentUsage) + len(r.License) + len(r.HTMLTitle)
	for i := range r.Redirects {
		n += len(r.Redirects[i].URL)
	}
	for _, s := range r.Sitemaps {
		n += len(s)
	}
	return n
}

// Judged returns a function that makes rows of sites with the judged columns alone, as a scan with that registry would
// write them. A row is valid until the next call.
func Judged(registry *tokens.Registry) func(*audit.Report) *schema.SiteRow {
	c, row := New("", registry), &schema.SiteRow{}
	return func(r *audit.Report) *schema.SiteRow {
		c.Reset()
		*row = schema.SiteRow{}
		c.Judge(row, r)
		return row
	}
}

package history

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// night is what the scans of one date found, in memory: about 130 bytes a site.
type night struct {
	date     Date
	sites    []Observation
	policies map[int64]*Policy
	judges   map[string]bool
	disagree int64 // see Fold
}

// readNight reads the scans of one date.
func readNight(ctx context.Context, scans []*commit.Scan) (*night, error) {
	var rows int64
	for _, s := range scans {
		rows += commit.CountCommits(s.Commits).Rows
	}
	n := &night{sites: make([]Observation, 0, rows), policies: map[int64]*Policy{}, judges: map[string]bool{}}
	for _, s := range scans {
		var err error
		if n.date, err = ParseDate(s.Manifest.ScanDate); err != nil {
			return nil, err
		}
		first := len(n.sites)
		if err := n.read(ctx, s); err != nil {
			return nil, err
		}
		if s.Manifest.Observer.Source == commit.Archive {
			folded, disagree := Fold(n.sites[first:])
			n.sites, n.disagree = n.sites[:first+len(folded)], n.disagree+int64(disagree)
		}
	}
	n.sites = Arrange(n.sites)
	return n, nil
}

// siteColumns are the columns of sites that the ledger needs.
type siteColumns struct {
	Host, Requested, Finding, Registry string
	Port                               int32
	Seq, FetchedAt, Body               int64
	Star, Signal, Usage, License       string
	Managed                            string
	Named, Blocked, Partial            []string
}

func (c *siteColumns) fields() []table.Field {
	return []table.Field{
		{Name: "host", Into: &c.Host}, {Name: "port", Into: &c.Port}, {Name: "requested", Into: &c.Requested},
		{Name: "finding", Into: &c.Finding}, {Name: "registry_version", Into: &c.Registry},
		{Name: "seq", Into: &c.Seq}, {Name: "fetched_at", Into: &c.FetchedAt}, {Name: "body_hash", Into: &c.Body},
		{Name: "star_verdict", Into: &c.Star}, {Name: "content_signal", Into: &c.Signal}, {Name: "content_usage", Into: &c.Usage},
		{Name: "license", Into: &c.License}, {Name: "managed_by", Into: &c.Managed},
		{Name: "named", Into: &c.Named}, {Name: "blocked", Into: &c.Blocked}, {Name: "partial", Into: &c.Partial},
	}
}

// policy returns the row's policy. Its texts share memory with the row.
func (c *siteColumns) policy() Policy {
	if c.Finding != ClassRules {
		return Policy{Class: c.Finding}
	}
	p := Policy{Class: c.Finding, StarVerdict: c.Star, ContentSignal: c.Signal, ContentUsage: c.Usage, License: c.License, Managed: c.Managed}
	for _, token := range c.Named {
		switch {
		case slices.Contains(c.Blocked, token):
			p.OwnBlocked = append(p.OwnBlocked, token)
		case slices.Contains(c.Partial, token):
			p.OwnPartial = append(p.OwnPartial, token)
		default:
			p.OwnAllowed = append(p.OwnAllowed, token)
		}
	}
	return p
}

// read appends the sites of a scan.
func (n *night) read(ctx context.Context, s *commit.Scan) error {
	if err := s.Whole(); err != nil {
		return fmt.Errorf("cannot read scan %s: %w", s.Manifest.ScanID, err)
	}
	if !s.Has(schema.Sites) {
		return fmt.Errorf("cannot read table %s of scan %s: %w", schema.Sites, s.Manifest.ScanID, commit.ErrNoTable)
	}
	archive := s.Manifest.Observer.Source == commit.Archive
	observer, sources, words := s.Manifest.Observer.String(), map[string]*Source{}, map[string]string{}
	// word returns a copy of a text that many rows have. The row's own shares memory with its page.
	word := func(text string) string {
		if _, ok := words[text]; !ok {
			text = strings.Clone(text)
			words[text] = text
		}
		return words[text]
	}
	var c siteColumns
	for cursor, err := range sink.Cursors(ctx, s, schema.Sites, c.fields()...) {
		if err != nil {
			return err
		}
		for cursor.Next() {
			from := sources[c.Registry]
			if from == nil {
				from = &Source{Observer: observer, Judge: strings.Clone(c.Registry) + " " + s.Manifest.Check.Version}
				sources[word(c.Registry)], n.judges[from.Judge] = from, true
			}
			o := Observation{Host: strings.Clone(c.Host), Port: c.Port, Requested: word(c.Requested), Finding: word(c.Finding), Body: c.Body, From: from, FetchedAt: c.FetchedAt, Seq: c.Seq}
			if archive {
				o.Port, o.Site = schema.FoldedKey(o.Host, o.Port, o.Requested)
			} else {
				o.Site = schema.SiteID(o.Host, o.Port, o.Requested)
			}
			if !isGap(o.Finding) {
				o.Policy = n.intern(c.policy())
			}
			n.sites = append(n.sites, o)
		}
		if err := cursor.Err(); err != nil {
			_ = cursor.Close() // the first error counts
			return err
		}
		if err := cursor.Close(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// intern keeps a copy of a policy and returns its id.
func (n *night) intern(p Policy) int64 {
	p = p.Canonical()
	if n.policies[p.ID] != nil {
		return p.ID
	}
	for _, text := range []*string{&p.Class, &p.StarVerdict, &p.ContentSignal, &p.ContentUsage, &p.License, &p.Managed} {
		*text = strings.Clone(*text)
	}
	for _, list := range [][]string{p.OwnBlocked, p.OwnPartial, p.OwnAllowed} {
		for i := range list {
			list[i] = strings.Clone(list[i])
		}
	}
	n.policies[p.ID] = &p
	return p.ID
}

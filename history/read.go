package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/units"
)

// night is what the scans of one date found, in memory: about 130 bytes a site.
type night struct {
	host     string // if not empty, only its sites are read, without their policies
	again    *again // nil: nothing was judged again
	date     Date
	sites    []Observation
	policies policySet
	disagree int64 // see commit.Choice
}

// readNight reads the scans of one date: all sites, or those of a host that is not empty, without their policies.
func readNight(ctx context.Context, scans []*commit.Scan, host string, again *again) (*night, error) {
	var rows int64
	for _, s := range scans {
		if host == "" {
			rows += commit.CountCommits(s.Commits).Rows
		}
	}
	n := &night{host: host, again: again, sites: make([]Observation, 0, rows), policies: policySet{}}
	slices.SortFunc(scans, func(a, b *commit.Scan) int { return commit.ByStart(a.Manifest, b.Manifest) })
	choice, err := units.Choose(ctx, scans, host)
	if err != nil {
		return nil, err
	}
	n.disagree = choice.Disagree
	for _, s := range scans {
		if n.date, err = ParseDate(s.Manifest.ScanDate); err != nil {
			return nil, err
		}
		s.Unit.Choice = choice
		if err := n.read(ctx, s); err != nil {
			return nil, err
		}
	}
	n.sites = Arrange(n.sites)
	return n, nil
}

// columns are those of sites that the ledger needs for an observation: without its policy, and those that PolicyOf needs beside the
// finding.
var (
	columns       = []string{"host", "port", "requested", "outcome", "finding", "registry_version", "body_hash"}
	policyColumns = []string{"star_verdict", "content_signal", "content_usage", "license", "managed_by", "named", "blocked", "partial", "policy_id", "unmanaged_policy_id"}
)

// PolicyOf returns the policy of a row of sites, without its id. Its texts share memory with the row.
func PolicyOf(row *schema.SiteRow) Policy {
	if row.Finding != ClassRules {
		return Policy{Class: row.Finding}
	}
	p := Policy{Class: row.Finding, StarVerdict: row.StarVerdict, ContentSignal: row.ContentSignal, ContentUsage: row.ContentUsage, License: row.License, Managed: row.ManagedBy}
	for _, token := range row.Named {
		switch {
		case slices.Contains(row.Blocked, token):
			p.OwnBlocked = append(p.OwnBlocked, token)
		case slices.Contains(row.Partial, token):
			p.OwnPartial = append(p.OwnPartial, token)
		default:
			p.OwnAllowed = append(p.OwnAllowed, token)
		}
	}
	return p
}

// unmanagedOf returns Episode.Unmanaged of a row of sites.
func unmanagedOf(row *schema.SiteRow) int64 {
	if row.Finding != ClassRules {
		return 0
	}
	return cmp.Or(row.UnmanagedID, row.PolicyID)
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
	again := n.again.source(s.Manifest.Observer.String())
	observer, sources, words := s.Manifest.Observer.String(), map[string]*Source{}, map[string]string{}
	// word returns a copy of a text that many rows have. The row's own shares memory with its page.
	word := func(text string) string {
		if _, ok := words[text]; !ok {
			text = strings.Clone(text)
			words[text] = text
		}
		return words[text]
	}
	var row schema.SiteRow
	wanted := columns
	if n.host == "" {
		wanted = slices.Concat(columns, policyColumns)
	}
	for cursor, err := range sink.Cursors(ctx, s, schema.Sites, table.FieldsOf(&row, false, table.Some(wanted...))...) {
		if err != nil {
			return err
		}
		for cursor.Next() {
			if n.host != "" && row.Host != n.host {
				continue
			}
			from := sources[row.RegistryVersion]
			if from == nil {
				from = &Source{Observer: observer, Judge: judgeOf(row.RegistryVersion, s.Manifest.Check)}
				sources[word(row.RegistryVersion)] = from
			}
			o := Observation{Host: strings.Clone(row.Host), Port: row.Port, Requested: word(row.Requested), Finding: word(row.Finding), Body: row.BodyHash, From: from}
			if row.Outcome == Carried {
				o.Finding = Carried
			}
			if o.Port, o.Site = schema.FoldedKey(archive, o.Host, o.Port, o.Requested); archive && o.Requested != "ftp" {
				o.Requested = "auto"
			}
			if n.host == "" && !isGap(o.Finding) {
				file := n.again.file(&o)
				if file.Policy != nil {
					o.Finding, o.From = file.Class, again
				} else {
					file = judgedFile{n.policies.intern(PolicyOf(&row)), unmanagedOf(&row)}
				}
				o.Policy, o.Unmanaged, n.policies[file.ID] = file.ID, file.unmanaged, file.Policy
			}
			n.sites = append(n.sites, o)
		}
		if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

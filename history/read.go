package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/units"
)

// night is what the scans of one date found. The caller closes it.
type night struct {
	*sorted
	host     string // if not empty, only sites of this host are read, without their policies
	again    *again // nil: nothing was judged again
	date     Date
	policies policySet
	known    map[uint64]*Policy // by a hash of the row's columns about it
	disagree int64              // see commit.Choice
}

// readNight reads the scans of one date: all sites, or those of a host that is not empty, without their policies.
func readNight(ctx context.Context, scans []*commit.Scan, host string, again *again) (_ *night, err error) {
	var rows int64
	for _, s := range scans {
		if host == "" {
			rows += commit.CountCommits(s.Commits).Rows
		}
	}
	n := &night{sorted: newSorted(rows, rangeSites), host: host, again: again, policies: policySet{},
		known: map[uint64]*Policy{}}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
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
	return n, nil
}

// The columns of sites that the ledger needs: for an observation without its policy, and, beside the finding, for
// PolicyOf.
var (
	columns       = []string{"host", "port", "requested", "outcome", "finding", "registry_version", "body_hash"}
	policyColumns = []string{"star_verdict", "content_signal", "content_usage", "license", "managed_by", "named",
		"blocked", "partial", "policy_id", "unmanaged_policy_id"}
)

// PolicyOf returns the policy of a row of sites, without its id. Its texts share memory with the row.
func PolicyOf(row *schema.SiteRow) Policy {
	if row.Finding != ClassRules {
		return Policy{Class: row.Finding}
	}
	p := Policy{Class: row.Finding, StarVerdict: row.StarVerdict, ContentSignal: row.ContentSignal,
		ContentUsage: row.ContentUsage, License: row.License, Managed: row.ManagedBy}
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
	observer, sources := s.Manifest.Observer.String(), map[string]int{} // their numbers, by registry
	again := len(n.sources)
	n.sources = append(n.sources, n.again.source(observer))
	var row schema.SiteRow
	wanted := columns
	if n.host == "" {
		wanted = slices.Concat(columns, policyColumns)
	}
	for cursor, err := range read.Cursors(ctx, s, schema.Sites, table.FieldsOf(&row, false, table.Some(wanted...))...) {
		if err != nil {
			return err
		}
		for cursor.Next() {
			if n.host != "" && row.Host != n.host {
				continue
			}
			from, ok := sources[row.RegistryVersion]
			if !ok {
				by := &Source{Observer: observer, Judge: judgeOf(strings.Clone(row.RegistryVersion), s.Manifest.Check)}
				from, n.sources = len(n.sources), append(n.sources, by)
				sources[strings.Clone(row.RegistryVersion)] = from
			}
			o := Observation{Host: row.Host, Port: row.Port, Requested: row.Requested, Finding: row.Finding, Body: row.BodyHash}
			if row.Outcome == Carried {
				o.Finding = Carried
			}
			if o.Port, o.Site = schema.FoldedKey(archive, o.Host, o.Port, o.Requested); archive && o.Requested != "ftp" {
				o.Requested = "auto"
			}
			if n.host == "" && !isGap(o.Finding) {
				o.From = n.sources[from]
				file := n.again.file(&o)
				if file.Policy != nil {
					o.Finding, from = file.Class, again
				} else {
					file = judgedFile{n.policyOf(&row), unmanagedOf(&row)}
				}
				o.Policy, o.Unmanaged, n.policies[file.ID] = file.ID, file.unmanaged, file.Policy
			}
			if err := n.add(&o, from); err != nil {
				return errors.Join(err, cursor.Close())
			}
		}
		if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// policyOf interns the policy of a row. Most rows have the same columns as an earlier one, and so its policy.
func (n *night) policyOf(row *schema.SiteRow) *Policy {
	columns := Policy{Class: row.Finding, StarVerdict: row.StarVerdict, OwnBlocked: row.Blocked, OwnPartial: row.Partial,
		OwnAllowed: row.Named, ContentSignal: row.ContentSignal, ContentUsage: row.ContentUsage, License: row.License,
		Managed: row.ManagedBy}
	n.buffer = columns.content(n.buffer[:0])
	key := xxhash.Sum64(n.buffer)
	if n.known[key] == nil {
		n.known[key] = n.policies.intern(PolicyOf(row))
	}
	return n.known[key]
}

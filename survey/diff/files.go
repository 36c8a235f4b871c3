package diff

import (
	"context"
	"errors"
	"strconv"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// Names of the files that Scans writes.
const (
	ChangesName      = "changes.parquet"
	ChangedSitesName = "sites.parquet"
)

// ChangeRow is a row of changes.parquet: a site with rules in both scans, and a token whose verdict changed.
// docs/FIELDS.md describes the columns.
type ChangeRow struct {
	Host          string `parquet:"host,plain" about:"as listed in the later scan"`
	Port          int32  `parquet:"port" about:"as listed in the later scan"`
	Requested     string `parquet:"requested,dict" about:"as listed in the later scan"`
	Token         string `parquet:"token,dict" about:"token"`
	Operator      string `parquet:"operator,dict" about:"operator of the token"`
	Before        string `parquet:"before,dict" about:"allowed, partial, blocked; empty if the file appeared"`
	After         string `parquet:"after,dict" about:"allowed, partial, blocked; empty if the file was removed"`
	Change        string `parquet:"change,dict" about:"began, ceased, tightened, loosened; with --files appeared, removed"`
	Cause         string `parquet:"cause,dict" about:"why it changed: a cause of docs/diff.md; presence if the file appeared or was removed"`
	BodyBefore    int64  `parquet:"body_hash_before" about:"as in bodies; 0 without one"`
	BodyAfter     int64  `parquet:"body_hash_after" about:"as in bodies; 0 without one"`
	FetchedBefore int64  `parquet:"fetched_at_before,optional,timestamp(millisecond)" about:"time of the last attempt"`
	FetchedAfter  int64  `parquet:"fetched_at_after,optional,timestamp(millisecond)" about:"time of the last attempt"`
}

// ChangedSiteRow is a row of sites.parquet: a site that appeared, vanished, failed in one scan, or changed its class.
type ChangedSiteRow struct {
	Host          string `parquet:"host,plain" about:"as listed in the later scan; for vanished, in the earlier"`
	Port          int32  `parquet:"port" about:"as listed in the later scan; for vanished, in the earlier"`
	Requested     string `parquet:"requested,dict" about:"as listed in the later scan; for vanished, in the earlier"`
	Change        string `parquet:"change,dict" about:"appeared, vanished, failed, presence, refusal"`
	Before        string `parquet:"before,optional,dict" about:"finding; null if the site appeared"`
	After         string `parquet:"after,optional,dict" about:"finding; null if the site vanished"`
	BodyBefore    int64  `parquet:"body_hash_before" about:"as in bodies; 0 without one"`
	BodyAfter     int64  `parquet:"body_hash_after" about:"as in bodies; 0 without one"`
	FetchedBefore int64  `parquet:"fetched_at_before,optional,timestamp(millisecond)" about:"time of the last attempt"`
	FetchedAfter  int64  `parquet:"fetched_at_after,optional,timestamp(millisecond)" about:"time of the last attempt"`
}

type files struct {
	changes *table.Writer[ChangeRow]
	sites   *table.Writer[ChangedSiteRow]
}

func createFiles(ctx context.Context, c *comparison) (*files, error) {
	from, to := c.before.scan.Manifest, c.after.scan.Manifest
	metadata := map[string]string{
		table.MetaSchema: strconv.Itoa(schema.Version), table.MetaTool: c.o.ToolVersion,
		table.MetaRegistry: c.o.Registry.Version,
		"from_scan_id":     from.ScanID, "to_scan_id": to.ScanID, "definition": c.by.Name,
	}
	f := &files{
		changes: table.NewWriter[ChangeRow]("changes", batchRows, table.PageBytes, metadata),
		sites:   table.NewWriter[ChangedSiteRow]("sites", batchRows, table.PageBytes, metadata),
	}
	err := f.changes.Begin(ctx, c.o.Out, ChangesName)
	if err == nil {
		err = f.sites.Begin(ctx, c.o.Out, ChangedSitesName)
	}
	if err != nil {
		return nil, errors.Join(err, f.discard())
	}
	return f, nil
}

func (f *files) change(s *siteName, t *Token, was, is, change, cause string, before, after *siteState) error {
	row, err := f.changes.Next()
	if err != nil {
		return err
	}
	*row = ChangeRow{
		Host: s.Host, Port: s.Port, Requested: s.Requested, Token: t.Token, Operator: t.Operator, Before: was, After: is,
		Change: change, Cause: cause,
		BodyBefore: before.body, BodyAfter: after.body, FetchedBefore: before.fetched, FetchedAfter: after.fetched,
	}
	return nil
}

// site adds a site. A state is nil where the scan does not have the site.
func (f *files) site(s *siteName, change string, before, after *siteState) error {
	row, err := f.sites.Next()
	if err != nil {
		return err
	}
	*row = ChangedSiteRow{Host: s.Host, Port: s.Port, Requested: s.Requested, Change: change}
	if before != nil {
		row.Before, row.BodyBefore, row.FetchedBefore = before.finding.String(), before.body, before.fetched
	}
	if after != nil {
		row.After, row.BodyAfter, row.FetchedAfter = after.finding.String(), after.body, after.fetched
	}
	return nil
}

func (f *files) publish(ctx context.Context) error {
	for _, step := range []func() error{
		f.changes.Flush, f.sites.Flush, f.changes.Seal, f.sites.Seal,
		func() error { return f.changes.Publish(ctx) }, func() error { return f.sites.Publish(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) discard() error { return errors.Join(f.changes.Discard(), f.sites.Discard()) }

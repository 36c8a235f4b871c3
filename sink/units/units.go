// Package units answers one question: which row counts for a site? A unit is the published scans of one date, observer
// and list. A site of a unit may have several rows: a list is scanned again, an archive is read in pieces, or has
// captures by http and by https. Choose is the only rule. Readers of package sink pass over the rows that do not count.
package units

import (
	"cmp"
	"context"
	"errors"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// row has the values that decide between the rows of a site.
type row struct {
	fetched, body, seq int64
	scan               int32 // in the order of commit.ByStart
	finding            audit.Finding
	known              bool // this version has the finding
	plain              bool // an archive's capture by http
	folded             bool // the site has captures by both schemes
}

// compare orders the rows of a site; the greatest counts. scan and seq decide between rows that were fetched in the
// same millisecond and have the same file.
func (r *row) compare(o *row) int {
	return cmp.Or(
		less(!r.observed(), !o.observed()), // an observation beats a failure
		less(r.plain, o.plain),             // in an archive https beats http
		cmp.Compare(r.fetched, o.fetched),
		// not the scan: the result is the same however an archive is cut into scans
		cmp.Compare(r.finding, o.finding), cmp.Compare(r.body, o.body),
		cmp.Compare(r.scan, o.scan), cmp.Compare(r.seq, o.seq),
	)
}

func (r *row) observed() bool { return r.known && !r.finding.IsGap() }

// less is -1 if only a is true.
func less(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Several reports whether a site can have more than one row in these scans. In a live scan each site has one row.
func Several(scans []*commit.Scan) bool {
	return len(scans) > 1 || scans[0].Manifest.Observer.Source == commit.Archive
}

// Choose finds the rows of scans that do not count: of all sites, or of one host if host is not empty. It reads the
// deciding columns once, unless each site has one row. The scans are in the order of commit.ByStart.
func Choose(ctx context.Context, scans []*commit.Scan, host string) (commit.Choice, error) {
	if !Several(scans) {
		return commit.Choice{}, nil
	}
	sites := int64(0)
	for _, s := range scans {
		if host == "" {
			sites = min(max(sites, commit.CountCommits(s.Commits).Rows), mostAtOnce)
		}
	}
	c := chooser{host: host, choice: commit.Choice{Superseded: map[string]*roaring64.Bitmap{}}, scans: scans,
		best: make(map[int64]row, sites)}
	for place, scan := range scans {
		for i := range scan.Commits {
			if err := c.read(ctx, int32(place), scan, &scan.Commits[i]); err != nil {
				return commit.Choice{}, err
			}
		}
	}
	return c.choice, nil
}

// mostAtOnce bounds the number of sites, as records state it, for which memory is allocated before any row is read.
const mostAtOnce = 1 << 20

// chooser reads rows.
type chooser struct {
	host   string
	choice commit.Choice
	scans  []*commit.Scan
	best   map[int64]row
}

func (c *chooser) read(ctx context.Context, place int32, scan *commit.Scan, part *commit.Commit) error {
	var host, requested, finding string
	var port int32
	now := row{scan: place}
	open := func() table.Opened {
		at, err := scan.Open(ctx, part, schema.Sites)
		return table.Opened{Place: table.Place(at), Err: err}
	}
	rows, err := table.NewCursor(ctx, open(), open,
		table.Field{Name: "host", Into: &host}, table.Field{Name: "port", Into: &port}, table.Field{Name: "requested",
			Into: &requested}, table.Field{Name: "finding", Into: &finding},
		table.Field{Name: "fetched_at", Into: &now.fetched}, table.Field{Name: "body_hash", Into: &now.body},
		table.Field{Name: "seq", Into: &now.seq})
	if err != nil {
		return err
	}
	archive := scan.Manifest.Observer.Source == commit.Archive
	for rows.Next() {
		if c.host != "" && host != c.host {
			continue
		}
		now.finding, now.known = audit.FindingNamed(finding)
		now.plain = archive && requested == "http"
		_, key := schema.FoldedKey(archive, host, port, requested)
		c.add(key, &now)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// add compares a row with the best one of its site.
func (c *chooser) add(key int64, now *row) {
	best, repeated := c.best[key]
	if !repeated {
		c.best[key] = *now
		return
	}
	in, out := best, *now
	if now.compare(&best) > 0 {
		in, out = *now, best
	}
	if in.folded = best.folded || best.plain != now.plain; in.folded && !best.folded {
		c.choice.Folded++
		if best.observed() && now.observed() && (best.finding != now.finding || best.body != now.body) {
			c.choice.Disagree++
		}
	}
	c.best[key] = in
	id := c.scans[out.scan].Manifest.ScanID
	if c.choice.Superseded[id] == nil {
		c.choice.Superseded[id] = roaring64.New()
	}
	c.choice.Superseded[id].Add(uint64(out.seq))
}

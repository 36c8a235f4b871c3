package survey

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// EachSite calls do for each row of the table sites, after it has set the fields to the row.
func EachSite(ctx context.Context, scan *commit.Scan, fields []table.Field, do func()) error {
	for rows, err := range read.Cursors(ctx, scan, schema.Sites, fields...) {
		if err == nil {
			err = eachOf(rows, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachOf calls do for each row of an open file, after its fields are set, and closes it.
func eachOf(rows *table.Cursor, do func()) error {
	for rows.Next() {
		do()
	}
	return errors.Join(rows.Err(), rows.Close())
}

// NoToken is the index of tokens that the registry does not have.
const NoToken = -1

// verdictColumns are the columns of verdicts that figures need.
type verdictColumns struct {
	Seq         int64  `parquet:"seq"`
	Token       string `parquet:"token"`
	Known       bool   `parquet:"known"`
	Category    string `parquet:"category"`
	Verdict     string `parquet:"verdict"`
	Via         string `parquet:"via"`
	RootAllowed bool   `parquet:"root_allowed"`
	DPI         string `parquet:"dpi"`
	Lenient     bool   `parquet:"lenient"`

	id int32 // of Token in the registry, NoToken for unknown agents
}

// verdictReader reads verdicts together with sites: a commit has both in the same order. Its rows have texts of a page
// of the file, which are valid until the next site.
type verdictReader struct {
	registry *tokens.Registry
	row      verdictColumns        // set by the cursor of verdicts
	rows     []verdictColumns      // of the current site
	each     func(*verdictColumns) // called for each row, if not nil
}

// read calls do for each site of a commit, with the fields of both tables set, and closes the cursors. seq is where
// the cursor of sites stores the row's number.
func (r *verdictReader) read(commit *commit.Commit, sites *table.Cursor, seq *int64, verdicts *table.Cursor,
	do func()) error {
	verdict := func() {
		if r.row.id = NoToken; r.row.Known {
			r.row.id = int32(r.registry.Lookup(r.row.Token))
		}
		r.rows = append(r.rows, r.row)
		if r.each != nil {
			r.each(&r.row)
		}
	}
	return beside(commit, sites, seq, verdicts, &r.row.Seq, verdict, func() {
		do()
		r.rows = r.rows[:0]
	})
}

// beside calls do for each site of a commit. Before, it calls row for each row of another table that has the site's
// number. It closes the cursors.
func beside(commit *commit.Commit, sites *table.Cursor, seq *int64, others *table.Cursor, of *int64, row,
	do func()) error {
	more := others.Next()
	err := eachOf(sites, func() {
		for ; more && *of == *seq; more = others.Next() {
			row()
		}
		do()
	})
	if err == nil {
		err = others.Err()
	}
	if err == nil && more {
		err = fmt.Errorf("part %s-%d: the rows of seq %d are not in the order of sites", commit.Shard, commit.N, *of)
	}
	return errors.Join(err, others.Close())
}

// together calls each for each commit, with the open files of sites and of another table.
func together(ctx context.Context, scan *commit.Scan, fields []table.Field, tableName string, columns []table.Field,
	each func(c *commit.Commit, sites, others *table.Cursor) error) error {
	others, stop := iter.Pull2(read.Cursors(ctx, scan, tableName, columns...))
	defer stop()
	part := 0
	for sites, err := range read.Cursors(ctx, scan, schema.Sites, fields...) {
		if err != nil {
			return err
		}
		rows, err, _ := others() // both tables have one file a commit
		if err != nil {
			return errors.Join(err, sites.Close())
		}
		if err := each(&scan.Commits[part], sites, rows); err != nil {
			return err
		}
		part++
	}
	return nil
}

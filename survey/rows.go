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
			err = EachRow(rows, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EachRow calls do for each row of an open file, after its fields are set, and closes it.
func EachRow(rows *table.Cursor, do func()) error {
	for rows.Next() {
		do()
	}
	return errors.Join(rows.Err(), rows.Close())
}

// NoToken is the index of tokens that the registry does not have.
const NoToken = -1

// Verdict is a row of verdicts, with the columns that figures need. Its texts are valid until the next site.
type Verdict struct {
	Seq         int64  `parquet:"seq"`
	Token       string `parquet:"token"`
	Known       bool   `parquet:"known"`
	Category    string `parquet:"category"`
	Verdict     string `parquet:"verdict"`
	Via         string `parquet:"via"`
	RootAllowed bool   `parquet:"root_allowed"`
	DPI         string `parquet:"dpi"`
	Lenient     bool   `parquet:"lenient"`

	ID int32 // of Token in the registry, NoToken for unknown agents
}

// VerdictReader reads verdicts together with sites: a commit has both in the same order.
type VerdictReader struct {
	Registry *tokens.Registry
	Row      Verdict        // set by the cursor of verdicts: its fields are those of this row
	Rows     []Verdict      // of the current site
	Each     func(*Verdict) // called for each row, if not nil
}

// Read calls do for each site of a commit, with the fields of both tables set, and closes the cursors. seq is where
// the cursor of sites stores the row's number.
func (r *VerdictReader) Read(commit *commit.Commit, sites *table.Cursor, seq *int64, verdicts *table.Cursor,
	do func()) error {
	verdict := func() {
		if r.Row.ID = NoToken; r.Row.Known {
			r.Row.ID = int32(r.Registry.Lookup(r.Row.Token))
		}
		r.Rows = append(r.Rows, r.Row)
		if r.Each != nil {
			r.Each(&r.Row)
		}
	}
	return ReadBeside(commit, sites, seq, verdicts, &r.Row.Seq, verdict, func() {
		do()
		r.Rows = r.Rows[:0]
	})
}

// ReadBeside calls do for each site of a commit. Before, it calls row for each row of another table that has the site's
// number: seq and of are where the cursors store them. It closes the cursors, and it is an error if the rows are not in
// the order of sites.
func ReadBeside(commit *commit.Commit, sites *table.Cursor, seq *int64, others *table.Cursor, of *int64, row,
	do func()) error {
	more := others.Next()
	err := EachRow(sites, func() {
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

// OpenBeside calls each for each commit, with the open files of sites and of another table, which each
// closes.
func OpenBeside(ctx context.Context, scan *commit.Scan, fields []table.Field, tableName string, columns []table.Field,
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

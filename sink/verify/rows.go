package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// rowCheck compares the rows of a commit's sound files with the commit's bitmap.
type rowCheck struct {
	ctx      context.Context
	scan     *commit.Scan
	commit   *commit.Commit
	readable []schema.File
	seqs     *roaring64.Bitmap // of the commit
	findings []Finding
}

// rows compares the seq of all rows with the commit's bitmap, in files whose bytes are sound.
func (v *verifier) rows(ctx context.Context, c *commit.Commit, readable []schema.File,
	seqs *roaring64.Bitmap) ([]Finding, error) {
	r := &rowCheck{ctx: ctx, scan: &commit.Scan{Store: v.store}, commit: c, readable: readable, seqs: seqs}
	err := r.run()
	return r.findings, err
}

func (r *rowCheck) run() error {
	sites, hasSites := r.file(schema.Sites)
	if hasSites {
		if err := r.sites(sites); err != nil {
			return r.failed(sites, err)
		}
	}
	for _, tableName := range []string{schema.Verdicts, schema.Evidence} {
		f, ok := r.file(tableName)
		if !ok {
			continue
		}
		err, errSites := r.details(tableName, hasSites)
		if errSites != nil {
			return r.failed(sites, errSites)
		}
		if err != nil {
			if err := r.failed(f, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// sites checks that each site of the commit has one row of the table sites.
func (r *rowCheck) sites(f schema.File) error {
	left := r.seqs.Clone()
	var unknown int64
	err := r.each(schema.Sites, func(seq int64) {
		if !left.CheckedRemove(uint64(seq)) {
			unknown++
		}
	})
	if err == nil && (unknown > 0 || !left.IsEmpty()) {
		r.findings = append(r.findings,
			damaged(f.Name, fmt.Sprintf("its seq are not those of its commit: %d rows too many, %d sites without a row", unknown,
				left.GetCardinality())))
	}
	return err
}

// details checks that the rows of a table belong to sites of the commit and are in their order. It reads the table
// sites at the same time, up to the site of each row; errSites is an error of reading sites.
func (r *rowCheck) details(tableName string, hasSites bool) (err, errSites error) {
	var unknown int
	at, inOrder := int64(-1), true
	var along *table.Cursor
	if hasSites {
		if along, errSites = openCursor(r.ctx, r.scan, r.commit, schema.Sites,
			table.Field{Name: "seq", Into: &at}); errSites != nil {
			return nil, errSites
		}
	}
	err = r.each(tableName, func(seq int64) {
		if !r.seqs.Contains(uint64(seq)) {
			unknown++
			return
		}
		for hasSites && inOrder && at != seq {
			inOrder = along.Next()
		}
	})
	if hasSites {
		if errSites = errors.Join(along.Err(), along.Close()); errSites != nil {
			return nil, errSites
		}
	}
	if err == nil && unknown > 0 {
		err = fmt.Errorf("%d rows of sites that are not in its commit", unknown)
	} else if err == nil && !inOrder {
		err = errors.New("its rows are not in the order of sites")
	}
	return err, nil
}

func (r *rowCheck) file(tableName string) (schema.File, bool) {
	i := slices.IndexFunc(r.readable, func(f schema.File) bool { return f.Table == tableName })
	if i < 0 {
		return schema.File{}, false
	}
	return r.readable[i], true
}

// each calls do with the seq of each row of a table.
func (r *rowCheck) each(tableName string, do func(seq int64)) error {
	var seq int64
	rows, err := openCursor(r.ctx, r.scan, r.commit, tableName, table.Field{Name: "seq", Into: &seq})
	if err != nil {
		return err
	}
	for rows.Next() {
		do(seq)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// failed adds an error of reading a file as a finding, unless the context has ended.
func (r *rowCheck) failed(f schema.File, err error) error {
	if r.ctx.Err() != nil {
		return err
	}
	r.findings = append(r.findings, damaged(f.Name, cause(err)))
	return nil
}

func openCursor(ctx context.Context, s *commit.Scan, c *commit.Commit, name string,
	fields ...table.Field) (*table.Cursor, error) {
	open := func() table.Opened {
		at, err := s.Open(ctx, c, name)
		at.Damaged = nil // a finding has the rest
		return table.Opened{Place: table.Place(at), Err: err}
	}
	return table.NewCursor(ctx, open(), open, fields...)
}

package index

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file writes datapackage.json: the files of the index once more, by table, for programs that read Data Packages.
// Update keeps it as current as the index, so that it names no file that a command has deleted.

const packageAbout = `What the robots.txt of each site of a list said, which crawlers it blocks, and how that was found out, by bulkscan (https://github.com/bulkscan/bulkscan). README.md describes the newest scan.

A table is the Parquet files of all published scans: scan_date is in their paths, and _scans/index.parquet has scan, date and observer of each. A row that the table superseded names by scan_id and seq does not count: another row counts for its site. Files of an earlier schema version lack later columns. views.sql shows all this to DuckDB.`

// maxPackage bounds datapackage.json in bytes: some hundred thousand files.
const maxPackage = 64 << 20

// describe reports whether datapackage.json describes the files of an index. With write, an outdated one is written
// again, or deleted if no table has a file. It stays if bulkscan did not write it, if it cannot be read, or if a scan's
// manifest is damaged.
func describe(ctx context.Context, st store.Store, rows months, write bool) (described bool, err error) {
	before, err := store.ReadInto(ctx, st, schema.PackageName, maxPackage, takeSpare())
	defer spare.Store(&before)
	if !bytes.Contains(before, []byte(schema.PackageMark)) && !errors.Is(err, store.ErrNotExist) {
		return true, ctx.Err()
	}
	files, newest := map[string][]string{}, &Row{}
	for row := range rows.all() {
		if !row.Complete || row.Name == "" || schema.IsStatistics(row.Table) && row.Superseded {
			continue
		}
		files[row.Table] = append(files[row.Table], row.Name)
		if row.ScanID != "" && cmp.Or(strings.Compare(row.ScanDate, newest.ScanDate),
			cmp.Compare(row.StartedAt, newest.StartedAt)) >= 0 {
			newest = row
		}
	}
	if newest.ScanID == "" && (before == nil || !write) {
		return before == nil, nil
	}
	if newest.ScanID == "" {
		return false, st.Delete(ctx, schema.PackageName)
	}
	m, err := commit.ReadAnyManifest(ctx, st, newest.ScanID)
	if isDamage(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	p, was := m.Package("bulkscan-dataset"), schema.DataPackage{}
	_ = json.Unmarshal(withoutResources(before), &was) // of a damaged file nothing is kept
	p.Mark, p.Description, p.ID, p.Licenses, p.Contributors = schema.PackageMark, packageAbout, was.ID, was.Licenses,
		was.Contributors
	const mark = "files of " // in the place of names, since encoding thousands of them takes long
	for _, t := range schema.Tables() {
		if len(files[t.Name]) > 0 {
			p.Resources = append(p.Resources, t.Resource([]string{mark + t.Name}))
		}
	}
	rest, err := p.Encode()
	data := make([]byte, 0, max(len(rest), len(before))+1<<16)
	for _, r := range p.Resources {
		head, tail, _ := bytes.Cut(rest, fmt.Appendf(nil, "%q", mark+r.Name))
		data, rest = append(data, head...), tail
		between, end := "[\n        ", "\n      ]"
		if len(files[r.Name]) == 1 {
			between, end = "", ""
		}
		for _, name := range files[r.Name] { // no name needs an escape, see commit.CheckScanID
			data = append(append(append(append(data, between...), '"'), name...), '"')
			between = ",\n        "
		}
		data = append(data, end...)
	}
	data = append(data, rest...)
	if described = bytes.Equal(data, before); write && !described && err == nil {
		err = st.Put(ctx, schema.PackageName, data)
	}
	return described, err
}

// withoutResources returns a datapackage.json without its resources, if these are at its end: they are long.
func withoutResources(data []byte) []byte {
	head, resources, ok := bytes.Cut(data, []byte(",\n  \"resources\": ["))
	if !ok || bytes.Contains(resources, []byte("\n  \"")) {
		return data
	}
	return append(bytes.Clone(head), "\n}"...)
}

package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
)

// This file writes views.sql, with which DuckDB reads a dataset as our own readers do: the files that commits name, and
// no others. The views hold no names of files. They read the commit records whenever they are asked, so that what a
// running scan commits is seen at once, and what a compaction replaces is not seen twice.
//
// Several listings make a query, and the dataset may change between them. Each kind of file is listed once a view: two
// listings of the records, one from before a compaction and one from after it, would have neither the old parts nor the
// new one. DuckDB writes out a view wherever its name stands, so what is used twice is a materialized CTE. The records
// are listed first: the FROM clause is bound from left to right. A file that a record names was there before the record
// was, so the second listing has it, unless a compaction has deleted it since. A third listing notices that, and the
// query fails instead of missing rows. Grace (CompactOptions) makes this rare.
//
// Files are compared by the last three parts of their paths, which bulkscan gives them: before these DuckDB may write a
// place otherwise than it was given.
//
// DuckDB refuses a view of files that do not exist, so there are views only of tables that have some.

// ViewsName is the file of DuckDB views in the root of a dataset.
const ViewsName = "views.sql"

const (
	maxViews   = 1 << 20
	viewsSum   = "-- sha256 of all lines above: "
	viewsAt    = `coalesce(getvariable('bulkscan'), '')`
	viewsGlob  = `regexp_replace(` + viewsAt + `, '([[*?])', '[\1]', 'g')` // for patterns: the place itself is none
	viewsFile  = `STRUCT("table" VARCHAR, name VARCHAR, rows BIGINT, bytes BIGINT, sha256 VARCHAR)`
	viewsAbout = `-- The tables of this dataset as DuckDB views: every committed row, once, also while a scan or a compaction runs.
--
--   cd THIS-FOLDER && duckdb -cmd '.read views.sql'
--
-- The names of files below are relative to the folder in which DuckDB was started. To read the dataset from elsewhere,
-- or from an object store, say first where it is, with a slash at the end:
--
--   SET VARIABLE bulkscan = 'path/to/THIS-FOLDER/';
--   .read path/to/THIS-FOLDER/views.sql
--
-- A query sees in each view what was committed when it began; between two views of one query, or two queries, a running
-- scan may commit. To ask all of them about the same moment, take hold of the files that count, and let go afterwards:
--
--   SET VARIABLE bulkscan_snapshot = (SELECT list(f) FROM bulkscan_files AS f);
--   RESET VARIABLE bulkscan_snapshot;
--
-- Meanwhile bulkscan compact deletes files that are held, and queries fail that need them: take hold anew then.
--
-- Below are the commit records (bulkscan_commits), the files that count by them (bulkscan_files), and the tables. What
-- "blocked" means is told by queries in docs/definitions.md, which may ask these views as well as files.
--
-- bulkscan writes this file anew when a table gets its first file. Changes to it are lost: put views of your own
-- elsewhere. Tables without a file have no view yet.
`
	viewsCommits = `
-- Every commit record. A compaction's names those that it has replaced.
CREATE OR REPLACE VIEW bulkscan_commits AS
SELECT scan_id, shard, n, committed_at, rows, files, replaces
FROM read_json(` + viewsGlob + ` || '_scans/*/commits/*.json', maximum_object_size = %d, columns = {
  scan_id: 'VARCHAR', shard: 'VARCHAR', n: 'BIGINT', committed_at: 'TIMESTAMPTZ', rows: 'BIGINT',
  files: '` + viewsFile + `[]',
  replaces: 'STRUCT(shard VARCHAR, n BIGINT)[]'});
`
	// %[1]s are the sources, %[2]s what of them counts, joined.
	viewsFiles = `
-- Every file that counts, and where it lies; what of it is unknown is NULL.
CREATE OR REPLACE VIEW bulkscan_files AS
WITH %[1]s
SELECT *, ` + viewsAt + ` || name AS path FROM (
%[2]s)
WHERE getvariable('bulkscan_snapshot') IS NULL
UNION ALL
SELECT unnest(CAST(getvariable('bulkscan_snapshot') AS
  STRUCT(scan_id VARCHAR, "table" VARCHAR, name VARCHAR, rows BIGINT, bytes BIGINT, sha256 VARCHAR, path VARCHAR)[]), recursive := true);
`
	viewsRecords   = `records AS MATERIALIZED (SELECT * FROM bulkscan_commits)`
	viewsCommitted = `SELECT scan_id, unnest(files, recursive := true)
FROM records ANTI JOIN
  (SELECT scan_id, unnest(replaces, recursive := true) FROM records) AS replaced USING (scan_id, shard, n)`
	viewsStatistics = `statistics AS MATERIALIZED (SELECT scan_id, unnest(file)
FROM read_json(` + viewsGlob + ` || '_scans/*/files/*_stats.json', columns = {
  scan_id: 'VARCHAR', file: '` + viewsFile + `'}))`
	viewsNoStatistics = `statistics AS MATERIALIZED (SELECT '' AS scan_id, '' AS "table" WHERE false)`
	viewsRecorded     = `SELECT * FROM statistics`
	// Versions before wrote statistics without a record. %[1]s is the table.
	viewsUnrecorded = `SELECT * FROM
  (SELECT regexp_extract(file, 'part-([^/\\]+)[.]parquet$', 1) AS scan_id, '%[1]s' AS "table", replace(` + viewsName + `, '\', '/') AS name,
    NULL::BIGINT AS rows, NULL::BIGINT AS bytes, NULL::VARCHAR AS sha256
  FROM glob(` + viewsGlob + ` || '%[1]s/*/part-*.parquet')) ANTI JOIN statistics USING (scan_id, "table")`
	viewsName = `regexp_extract(file, '[^/\\]+[/\\][^/\\]+[/\\][^/\\]+$')`
	// %[1]s is the table, %[2]s its columns.
	viewsTable = `
CREATE OR REPLACE VIEW %[1]s AS
WITH counted AS MATERIALIZED (SELECT scan_id AS bulkscan_scan, name AS bulkscan_file FROM bulkscan_files WHERE "table" = '%[1]s')
SELECT %[2]s
FROM counted JOIN
  (SELECT * EXCLUDE (file), replace(` + viewsName + `, '\', '/') AS bulkscan_file
  FROM read_parquet(` + viewsGlob + ` || '%[1]s/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = 'file'))
  USING (bulkscan_file)
WHERE (SELECT CASE count(*) WHEN 0 THEN true ELSE error('files of %[1]s have gone: ask again, or run bulkscan verify') END
  FROM counted ANTI JOIN
    (SELECT replace(` + viewsName + `, '\', '/') AS bulkscan_file
    FROM glob(` + viewsGlob + ` || '%[1]s/*/*.parquet')) USING (bulkscan_file));
`
)

// writeViews writes views.sql of the tables that have committed files, unless it says so already.
func writeViews(ctx context.Context, st store.Store) error {
	with, noted, err := tablesWithFiles(ctx, st)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", ViewsName, err)
	}
	data := viewsOf(with, noted)
	before, err := store.ReadAll(ctx, st, ViewsName, maxViews)
	if err == nil && bytes.Equal(before, data) {
		return nil
	}
	// Several scans write them, each under its own lock, and each sweeps what drafts of them it finds: ours may be among
	// those. Then the store says that there is nothing to publish.
	for range putViews {
		if err = st.Put(ctx, ViewsName, data); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// putViews is how often views are tried to be written. A scan sweeps twice in its life.
const putViews = 5

// tablesWithFiles returns the tables that a view can be made of: a file lies there, and of those that commits name there
// are records. With noted, statistics have records too.
func tablesWithFiles(ctx context.Context, st store.Store) (with []string, noted bool, err error) {
	committed := false
	for entry, err := range st.List(ctx, scansFolder) {
		if err != nil {
			return nil, false, err
		}
		switch folder, base := path.Split(entry.Name); {
		case entry.Size == 0:
		case strings.HasSuffix(folder, "/commits/") && strings.HasSuffix(base, ".json"):
			committed = true
		case strings.HasSuffix(folder, "/files/") && strings.HasSuffix(base, "_stats.json"):
			noted = true
		}
	}
	for _, table := range tables {
		if !committed && !isStatistics(table.name) {
			continue
		}
		for entry, err := range st.List(ctx, table.name+"/") {
			if err != nil {
				return nil, false, err
			}
			if strings.HasSuffix(entry.Name, ".parquet") {
				with = append(with, table.name)
				break
			}
		}
	}
	return with, noted, nil
}

func isStatistics(table string) bool { return table == TableTokenStats || table == TableRecordStats }

// viewsOf is the views of some tables; noted is whether there are records of statistics.
func viewsOf(with []string, noted bool) []byte {
	var b strings.Builder
	b.WriteString(viewsAbout)
	var sources, counting, unrecorded []string
	for _, table := range with {
		if isStatistics(table) {
			unrecorded = append(unrecorded, fmt.Sprintf(viewsUnrecorded, table))
		}
	}
	if len(unrecorded) < len(with) {
		fmt.Fprintf(&b, viewsCommits, maxCommit)
		sources, counting = append(sources, viewsRecords), append(counting, viewsCommitted)
	}
	switch {
	case len(unrecorded) > 0 && noted:
		sources, counting = append(sources, viewsStatistics), append(counting, viewsRecorded)
	case len(unrecorded) > 0:
		sources = append(sources, viewsNoStatistics)
	}
	counting = append(counting, unrecorded...)
	if len(counting) > 0 {
		fmt.Fprintf(&b, viewsFiles, strings.Join(sources, ",\n"), strings.Join(counting, "\nUNION ALL\n"))
	}
	for _, table := range with {
		columns := "bulkscan_scan AS scan_id, * EXCLUDE (bulkscan_scan, bulkscan_file)"
		if table == TableSites {
			columns = "* EXCLUDE (bulkscan_scan, bulkscan_file)" // it has the column
		}
		fmt.Fprintf(&b, viewsTable, table, columns)
	}
	// Views that are made of the tables, such as the definitions of blocking, have their place here, behind them.
	text := b.String()
	return []byte(text + viewsSum + sumOf([]byte(text)) + "\n")
}

// soundViews reports whether a file of views is as some version of bulkscan wrote it.
func soundViews(data []byte) bool {
	at := bytes.LastIndex(data, []byte("\n"+viewsSum)) + 1
	return at > 0 && string(data[at:]) == viewsSum+sumOf(data[:at])+"\n"
}

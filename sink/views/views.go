// Package views answers one question: how does DuckDB see a dataset? It writes views.sql.
package views

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// With views.sql DuckDB reads a dataset as bulkscan does: only files that commits name. The views contain no file
// names. They read the commit records in every query, so commits of a running scan are seen at once, and replaced parts
// are not seen twice.
//
// A query makes several listings, and the dataset may change between them. DuckDB binds the FROM clause from left to
// right, so the records are listed first and the table's files second. A file is published before the record that names
// it, so the second listing has the file, unless a compaction has deleted it since. By then a record says so. So the
// records are read once more at the end. If more commits have been replaced (fence), or a file is missing, the query
// fails instead of returning fewer rows. compact.Options.Grace makes this rare.
//
// This check is in the condition of the join and runs once for each file that counts. After the join it would not run
// if all rows of a query were in deleted files. The join is a LEFT JOIN, which DuckDB turns into an inner one; written
// as an inner join, DuckDB would plan the product of all rows and files. Each reading of the records lists them once:
// two listings, one before a compaction and one after it, could lack both the old parts and the new one.
//
// No view has a CTE that DuckDB materializes: with one, DuckDB reads all columns of every file, which takes a hundred
// times as long. Instead of using a subquery twice, the views group, or count in a window.
//
// Files are compared by the last three parts of their paths, which bulkscan chooses. DuckDB may rewrite the part
// before.
//
// DuckDB refuses a view of files that do not exist, so only tables with files have views.

// Name is the name of views.sql, in the root of a dataset.
const Name = "views.sql"

const (
	// MaxBytes bounds views.sql, which includes the registry of tokens.
	MaxBytes   = 4 << 20
	viewsSum   = "-- sha256 of all lines above: "
	viewsAt    = `coalesce(getvariable('bulkscan'), '')`
	viewsGlob  = `regexp_replace(` + viewsAt + `, '([[*?])', '[\1]', 'g')` // escaped, since it becomes part of a glob pattern
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
-- scan may commit. To query all of them at the same moment, take a snapshot of the files that count, and reset it afterwards:
--
--   SET VARIABLE bulkscan_snapshot = (SELECT list(f) FROM bulkscan_files AS f);
--   RESET VARIABLE bulkscan_snapshot;
--
-- bulkscan compact deletes files of a snapshot, too. Queries that need them then fail: take a new snapshot.
--
-- The views have the scans of one observer only (who asked, from where, how): by default that of the newest date. The view
-- scans lists all scans, and which of them are chosen. To choose another observer, or to add up all of them:
--
--   SET VARIABLE bulkscan_observer = (SELECT observer FROM scans WHERE scan_id = '20261121-abcdef');
--   RESET VARIABLE bulkscan_observer;
--
-- Below are the commit records (bulkscan_commits), the files that count by them (bulkscan_parts, bulkscan_statistics, and
-- bulkscan_files, which is both), and the tables. After them come views for analyses, with every meaning of "blocks" that
-- docs/definitions.md lists. docs/queries has the analyses.
--
-- bulkscan writes this file again when a table gets its first file. Changes to it are lost: put views of your own
-- elsewhere. Tables without a file have no view yet.
`
	viewsCommits = `
-- Every commit record. That of a compaction names the commits that it replaced.
CREATE OR REPLACE VIEW bulkscan_commits AS
SELECT scan_id, observer, shard, n, committed_at, rows, files, replaces
FROM read_json(` + viewsGlob + ` || '_scans/*/commits/*.json', maximum_object_size = %d, columns = {
  scan_id: 'VARCHAR', observer: 'VARCHAR', shard: 'VARCHAR', n: 'BIGINT', committed_at: 'TIMESTAMPTZ', rows: 'BIGINT',
  files: '` + viewsFile + `[]',
  replaces: 'STRUCT(shard VARCHAR, n BIGINT)[]'});
`
	// The observer of a record is the one chosen, if one is. It is in a variable, so that a query may choose another.
	viewsChosen = `(getvariable('bulkscan_observer') IS NULL OR coalesce(observer, 'unknown') = getvariable('bulkscan_observer'))`
	viewsHeld   = `SELECT unnest(CAST(getvariable('bulkscan_snapshot') AS
  STRUCT(scan_id VARCHAR, "table" VARCHAR, name VARCHAR, rows BIGINT, bytes BIGINT, sha256 VARCHAR, path VARCHAR)[]), recursive := true)`
	viewsParts = `
-- Every file that commits of any observer name and no compaction has replaced. fence changes when more commits are replaced.
CREATE OR REPLACE VIEW bulkscan_counted AS
SELECT scan_id, coalesce(observer, 'unknown') AS observer, committed_at, unnest(files, recursive := true), fence FROM (
  SELECT scan_id, any_value(observer) AS observer, any_value(part.committed_at) AS committed_at, any_value(part.files) AS files, bool_or(part.replaced) AS replaced,
    bit_xor(CASE WHEN bool_or(part.replaced) THEN hash(scan_id, part.shard, part.n) END) OVER () AS fence
  FROM (SELECT scan_id, observer, unnest(list_prepend({'shard': shard, 'n': n, 'committed_at': committed_at, 'files': files, 'replaced': false},
      list_transform(replaces, r -> {'shard': r.shard, 'n': r.n, 'committed_at': NULL, 'files': NULL, 'replaced': true}))) AS part
    FROM bulkscan_commits)
  GROUP BY scan_id, part.shard, part.n)
WHERE NOT replaced;

-- Of these, the files of the chosen observer, with their paths.
CREATE OR REPLACE VIEW bulkscan_parts AS
SELECT * EXCLUDE (observer, committed_at, fence), ` + viewsAt + ` || name AS path, fence
FROM bulkscan_counted WHERE getvariable('bulkscan_snapshot') IS NULL AND ` + viewsChosen + `
UNION ALL
SELECT *, NULL FROM (` + viewsHeld + `) WHERE NOT ends_with("table", '_stats');
`
	viewsStatistics = `
-- Every file of statistics.
CREATE OR REPLACE VIEW bulkscan_statistics AS
SELECT *, ` + viewsAt + ` || name AS path, NULL AS fence FROM (
  SELECT scan_id, unnest(file)
  FROM (SELECT * FROM read_json(` + viewsGlob + ` || '_scans/*/files/*_stats.json', columns = {
    scan_id: 'VARCHAR', observer: 'VARCHAR', file: '` + viewsFile + `'}))
  WHERE ` + viewsChosen + `)
WHERE getvariable('bulkscan_snapshot') IS NULL
UNION ALL
SELECT *, NULL FROM (` + viewsHeld + `) WHERE ends_with("table", '_stats');
`
	// %[1]s is the union of parts and statistics.
	viewsFiles = `
-- Every file that counts, with its path.
CREATE OR REPLACE VIEW bulkscan_files AS
%[1]s;
`
	viewsName = `replace(regexp_extract(file, '[^/\\]+[/\\][^/\\]+[/\\][^/\\]+$'), '\', '/')`
	// %[1]s is the table, %[2]s its columns, %[3]s the view of its files.
	viewsTable = `
CREATE OR REPLACE VIEW %[1]s AS
SELECT %[2]s
FROM (SELECT scan_id AS bulkscan_scan, name AS bulkscan_file, fence AS bulkscan_fence FROM %[3]s WHERE "table" = '%[1]s') AS counted
LEFT JOIN (SELECT * EXCLUDE (file), ` + viewsName + ` AS bulkscan_file
  FROM read_parquet(` + viewsGlob + ` || '%[1]s/*/*.parquet', hive_partitioning = true, union_by_name = true, filename = 'file')) AS rows
  ON rows.bulkscan_file = CASE WHEN (
    SELECT CASE WHEN count(*) <> count(file) THEN error('files of %[1]s have gone: ask again, or run bulkscan verify')
      WHEN count(*) = 0 OR any_value(now.fence) IS DISTINCT FROM counted.bulkscan_fence
        THEN error('files of %[1]s have gone: a compaction has replaced some; ask again') ELSE true END
    FROM (SELECT name AS bulkscan_file, fence FROM %[3]s WHERE "table" = '%[1]s') AS now
    LEFT JOIN (SELECT file, ` + viewsName + ` AS bulkscan_file
      FROM glob(` + viewsGlob + ` || '%[1]s/*/*.parquet')) USING (bulkscan_file)) THEN counted.bulkscan_file END
WHERE rows.bulkscan_file IS NOT NULL;
`
)

// The views for analyses. A line above each lists the tables that it needs.
//
//go:embed analyses.sql
var viewsAnalyses string

// The text before and after the registry of tokens.
const (
	viewsRegistry = `
-- The registry of tokens of the scan that wrote this file: a crawler's operator and purpose, whether it heeds '*', and whose
-- group it follows if no group names it.
CREATE OR REPLACE VIEW tokens AS
SELECT * FROM (VALUES
`
	viewsRegistryEnd = `) AS tokens(token, category, operator, purpose, heeds_star, fallback);
`
)

// Write writes views.sql for the tables that have committed files, unless it is up to date. A nil registry keeps the
// one in the file.
func Write(ctx context.Context, st store.Store, registry *tokens.Registry) error {
	with, err := tablesWithFiles(ctx, st)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", Name, err)
	}
	before, err := store.ReadAll(ctx, st, Name, MaxBytes)
	data := viewsOf(with, registryView(registry, before))
	if err == nil && bytes.Equal(before, data) {
		return nil
	}
	// Several scans may write the file, each under its own lock, and each sweeps drafts of it. So another scan may
	// delete this draft. Then Put returns fs.ErrNotExist.
	for range putViews {
		if err = st.Put(ctx, Name, data); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// putViews bounds the attempts to write the file. A scan sweeps its drafts twice.
const putViews = 5

// tablesWithFiles returns the tables for which a view is possible: they have a file, and there are records of such
// files.
func tablesWithFiles(ctx context.Context, st store.Store) (with []string, err error) {
	var committed, noted bool // records of parts, and of statistics
	for entry, err := range st.List(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, err
		}
		switch folder, base := path.Split(entry.Name); {
		case entry.Size == 0:
		case strings.HasSuffix(folder, "/commits/") && strings.HasSuffix(base, ".json"):
			committed = true
		case strings.HasSuffix(folder, "/files/") && strings.HasSuffix(base, "_stats.json"):
			noted = true
		}
	}
	for _, table := range schema.Tables() {
		if schema.IsStatistics(table.Name) && !noted || !schema.IsStatistics(table.Name) && !committed {
			continue
		}
		for entry, err := range st.List(ctx, table.Name+"/") {
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(entry.Name, ".parquet") {
				with = append(with, table.Name)
				break
			}
		}
	}
	return with, nil
}

// viewsOf returns the text of views.sql for these tables.
func viewsOf(with []string, registry string) []byte {
	var b strings.Builder
	b.WriteString(viewsAbout)
	var counting []string
	if slices.ContainsFunc(with, func(table string) bool { return !schema.IsStatistics(table) }) {
		fmt.Fprintf(&b, viewsCommits, schema.MaxCommit)
		b.WriteString(viewsParts)
		counting = append(counting, "SELECT * EXCLUDE (fence) FROM bulkscan_parts")
	}
	if slices.ContainsFunc(with, schema.IsStatistics) {
		b.WriteString(viewsStatistics)
		counting = append(counting, "SELECT * EXCLUDE (fence) FROM bulkscan_statistics")
	}
	if len(counting) > 0 {
		fmt.Fprintf(&b, viewsFiles, strings.Join(counting, "\nUNION ALL\n"))
	}
	for _, table := range with {
		columns, files := "bulkscan_scan AS scan_id, rows.* EXCLUDE (bulkscan_file)", "bulkscan_parts"
		if table == schema.Sites {
			columns = "rows.* EXCLUDE (bulkscan_file)" // it has the scan's name
		}
		if schema.IsStatistics(table) {
			files = "bulkscan_statistics"
		}
		fmt.Fprintf(&b, viewsTable, table, columns, files)
	}
	if len(with) > 0 {
		b.WriteString(registry)
		writeAnalyses(&b, with)
	}
	text := b.String()
	return []byte(text + viewsSum + schema.SumOf([]byte(text)) + "\n")
}

// writeAnalyses writes the analysis views whose tables exist.
func writeAnalyses(b *strings.Builder, with []string) {
	for view := range strings.SplitSeq(viewsAnalyses, "\n-- needs: ") {
		needs, view, _ := strings.Cut(strings.TrimPrefix(view, "-- needs: "), "\n")
		if !slices.ContainsFunc(strings.Split(needs, ", "), func(table string) bool { return !slices.Contains(with, table) }) {
			b.WriteString("\n" + strings.TrimSuffix(view, "\n") + "\n")
		}
	}
}

// registryView returns the view of a registry. For a nil registry it keeps the view in the existing file: compact and
// stats do not know the registry of the scan.
func registryView(registry *tokens.Registry, before []byte) string {
	if registry == nil {
		_, rows, found := bytes.Cut(before, []byte(viewsRegistry))
		rows, _, whole := bytes.Cut(rows, []byte("\n"+viewsRegistryEnd))
		if found && whole && Sound(before) {
			return viewsRegistry + string(rows) + "\n" + viewsRegistryEnd
		}
		registry = tokens.Default()
	}
	rows := make([]string, len(registry.Tokens))
	for i := range rows {
		t := &registry.Tokens[i]
		fallback := make([]string, len(t.Chain))
		for j, next := range t.Chain {
			fallback[j] = quoted(registry.Tokens[next].Name) // the list's own spelling of the name may differ
		}
		rows[i] = fmt.Sprintf("(%s, %s, %s, %s, %t, CAST([%s] AS VARCHAR[]))",
			quoted(t.Name), quoted(t.Category), quoted(t.Operator), quoted(t.Purpose), t.HeedsStar, strings.Join(fallback, ", "))
	}
	return viewsRegistry + strings.Join(rows, ",\n") + "\n" + viewsRegistryEnd
}

// quoted returns a text as an SQL literal.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Sound reports whether views.sql is unchanged since some version of bulkscan wrote it.
func Sound(data []byte) bool {
	at := bytes.LastIndex(data, []byte("\n"+viewsSum)) + 1
	return at > 0 && string(data[at:]) == viewsSum+schema.SumOf(data[:at])+"\n"
}

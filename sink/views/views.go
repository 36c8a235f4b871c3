// Package views answers one question: how does DuckDB see a dataset? It writes views.sql.
package views

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// With views.sql DuckDB reads a dataset as bulkscan does: only files that commits name. Loading it reads the index (see
// package index) once, and puts the paths of the files into variables, which the views read. So a session sees the
// scans that were complete when it loaded views.sql. Each query opens only the files that it needs, also after ten
// years of nights. A query fails if one of its files was deleted since. Variables end with the session: the views of a
// reopened database file fail until views.sql is loaded again.
//
// When a view is created, DuckDB expands all its paths and opens a file. So a table's view is first bound to one file.
//
// The views do not set union_by_name, which opens every file. So DuckDB takes the columns of a list's first file for
// those of all: all scans of a dataset have one schema version. Statistics have a second list, of merged months (see
// package index). No list has files that were merged into a month, or statistics that those of a later scan of the unit
// replaced. Files with superseded rows have lists of their own, whose selects leave these rows out.
//
// DuckDB refuses a view of files that do not exist, so only tables with files have views.

// Name is the name of views.sql, in the root of a dataset.
const Name = "views.sql"

const (
	// MaxBytes bounds views.sql, which includes the registry of tokens.
	MaxBytes   = 4 << 20
	viewsSum   = "-- sha256 of all lines above: "
	viewsAt    = `coalesce(getvariable('bulkscan'), '')`
	viewsGlob  = `regexp_replace(` + viewsAt + `, '([[*?])', '[\1]', 'g')` // escaped, since paths are taken for patterns
	viewsAbout = `-- The tables of this dataset as DuckDB views: every row of every complete scan, once; but of several scans of one date, observer and
-- list, and of captures of a host by http and by https, only the rows that count (view superseded: the others).
--
--   cd THIS-FOLDER && duckdb -cmd '.read views.sql'
--
-- The names of files below are relative to the folder in which DuckDB was started. To read the dataset from elsewhere,
-- or from an object store, say first where it is, with a slash at the end:
--
--   SET VARIABLE bulkscan = 'path/to/THIS-FOLDER/';
--   .read path/to/THIS-FOLDER/views.sql
--
-- The views show what was complete when this file was read: read it again for later scans, and in every session. bulkscan
-- compact, --restart and pruning delete files; queries that need them fail until this file is read again.
--
-- The views have the scans of one observer only (who asked, from where, how): by default that of the newest date. The view
-- scans lists all scans, and which of them are chosen. To choose another observer, or to add up all of them:
--
--   SET VARIABLE bulkscan_observer = (SELECT observer FROM scans WHERE scan_id = '20261121-abcdef');
--   RESET VARIABLE bulkscan_observer;
--
-- Below are the files that count (bulkscan_files), the scans, and the tables. sites_live has the sites of scans that are
-- under way or were interrupted, as far as they were committed when this file was read. After the tables come views for
-- analyses, with every meaning of "blocks" that docs/definitions.md lists. docs/queries has the analyses.
--
-- bulkscan writes this file again when a table gets its first file. Changes to it are lost: put views of your own
-- elsewhere. Tables without a file have no view yet.
`
	// %[1]s is the list of all lists of files, %[3]s is the SQL that says which list a file is in.
	viewsFiles = `
-- Every file that counts, with its path. Other tools read the same list: docs/dataset.md.
CREATE OR REPLACE VIEW bulkscan_files AS
SELECT scan_id, CAST(scan_date AS DATE) AS scan_date, observer, list_id, started_at, registry_version, "table", schema_version, name, rows, bytes, merged, superseded,
  ` + viewsGlob + ` || name AS path
FROM read_parquet(` + viewsGlob + ` || '_scans/index.parquet') WHERE complete;

-- The observer whose scans are chosen: that of the newest date; of several the one whose scan started last.
SET VARIABLE bulkscan_newest = (SELECT arg_max({'observer': observer, 'scan_date': scan_date, 'scan_id': scan_id}, {'date': scan_date, 'started': started_at}) FROM bulkscan_files WHERE "table" = 'sites');
SET VARIABLE bulkscan_observer = CAST(getvariable('bulkscan_newest').observer AS VARCHAR); -- also where there is none: NULL has a type

-- The kinds of files, with the first of each.
SET VARIABLE bulkscan_kinds = (SELECT list({'complete': complete, 'table': "table", 'merged': merged, 'superseded': superseded, 'schema_version': schema_version, 'observer': observer,
    'registry_version': registry_version, 'path': ` + viewsGlob + ` || name})
  FROM (SELECT complete, "table", merged, superseded, schema_version, observer, registry_version, min(name) AS name FROM read_parquet(` + viewsGlob + ` || '_scans/index.parquet') GROUP BY ALL));

-- The commit records of scans that are not complete, and the files that they name. Where there are none, the record of a
-- scan stands in for them, since DuckDB reads no list without a file.
SET VARIABLE bulkscan_commits = [` + viewsGlob + ` || '_scans/' || getvariable('bulkscan_newest').scan_id || '/manifest.json',
  CASE WHEN len(list_filter(getvariable('bulkscan_kinds'), lambda kind: NOT kind.complete)) > 0 THEN ` + viewsGlob + ` || '_scans/*/commits/*.json' END];
SET VARIABLE bulkscan_live = (SELECT list(DISTINCT regexp_replace(file, '[^/\\]+$', '') || '*.json') FROM glob(coalesce(getvariable('bulkscan_commits')[2], ` + viewsGlob + ` || '_scans/index.parquet'))
  WHERE ends_with(file, '.json') AND regexp_extract(file, '([^/\\]+)[/\\]commits[/\\]', 1) NOT IN (SELECT scan_id FROM bulkscan_files WHERE getvariable('bulkscan_commits')[2] IS NOT NULL));
SET VARIABLE bulkscan_commits = coalesce(getvariable('bulkscan_live'), getvariable('bulkscan_commits')[:1]);
SET VARIABLE bulkscan_live_files = (SELECT list(` + viewsGlob + ` || name) FROM (
  SELECT unnest(files, recursive := true) FROM (
    SELECT scan_id, part.shard, part.n, any_value(part.files) AS files FROM (
      SELECT scan_id, unnest(list_prepend({'shard': shard, 'n': n, 'files': files, 'replaced': false},
        list_transform(replaces, r -> {'shard': r.shard, 'n': r.n, 'files': NULL, 'replaced': true}))) AS part
      FROM read_json(getvariable('bulkscan_commits'), maximum_object_size = %[2]d, columns = {
        scan_id: 'VARCHAR', shard: 'VARCHAR', n: 'BIGINT',
        files: 'STRUCT("table" VARCHAR, name VARCHAR, rows BIGINT, bytes BIGINT, sha256 VARCHAR)[]',
        replaces: 'STRUCT(shard VARCHAR, n BIGINT)[]'})
      WHERE getvariable('bulkscan_live') IS NOT NULL)
    GROUP BY scan_id, part.shard, part.n HAVING NOT bool_or(part.replaced)))
  WHERE "table" = 'sites');

-- The paths of each table: first of one file, which is enough to make the views.
RESET VARIABLE bulkscan_paths;
RESET VARIABLE bulkscan_none;
CREATE OR REPLACE MACRO bulkscan_list(t, observer) AS CAST(NULL AS VARCHAR[]);
SET VARIABLE bulkscan_lists = (SELECT list({'t': %[3]s, 'table': "table", 'observer': observer, 'path': path} ORDER BY schema_version, path)
  FROM (SELECT unnest(getvariable('bulkscan_kinds'), recursive := true)) WHERE complete);
SET VARIABLE bulkscan_first = map([%[1]s], list_transform([%[1]s], lambda t: [coalesce(list_filter(getvariable('bulkscan_lists'), lambda l: l.t = t)[1].path, ` + viewsGlob + ` || split_part(t, ' ', 1) || '/*/*.parquet')]));
`
	viewsTable = `
CREATE OR REPLACE VIEW %[1]s AS
%[2]s;
CREATE OR REPLACE MACRO %[1]s_on(date) AS TABLE SELECT * FROM %[1]s WHERE scan_date = %[3]s;
`
	// Parts and nights repeat policies, so each policy is taken once, either for each date or for all dates. Rows of one
	// id are equal, except for the spelling of tokens.
	viewsPolicies = `
CREATE OR REPLACE VIEW bulkscan_policies AS
SELECT DISTINCT ON (scan_date, policy_id) * EXCLUDE (scan_id) FROM (%[2]s);
CREATE OR REPLACE VIEW policies AS
SELECT DISTINCT ON (policy_id) * EXCLUDE (scan_date) FROM bulkscan_policies;
CREATE OR REPLACE MACRO policies_on(date) AS TABLE SELECT * EXCLUDE (scan_date) FROM bulkscan_policies WHERE scan_date = %[3]s;
`
	// %[1]s is the table, %[2]s the list of files, %[3]s the columns, %[4]s further arguments, %[5]s is viewsStandIn or
	// "".
	viewsList = `SELECT %[3]s FROM read_parquet(coalesce(bulkscan_list('%[2]s', getvariable('bulkscan_observer')),%[5]s
  getvariable('bulkscan_first')['%[2]s'], [error('no complete scan of this observer has files of %[1]s, or views.sql has to be read again')]), hive_partitioning = true%[4]s)`
	// %[1]s is the list of files. The months have the scans of all observers. Where there are no months, the file of a
	// scan stands in for them; the select without rows adds the columns that such a file lacks.
	viewsMonths = `SELECT * EXCLUDE (observer) FROM (SELECT '' AS scan_id, DATE '1970-01-01' AS scan_date, '' AS observer WHERE false
  UNION ALL BY NAME SELECT * FROM read_parquet(coalesce(bulkscan_list('%[1]s', NULL), getvariable('bulkscan_none')['%[1]s '],
    getvariable('bulkscan_first')['%[1]s'], [error('views.sql has to be read again')])))
  WHERE observer = coalesce(getvariable('bulkscan_observer'), observer) AND getvariable('bulkscan_none')['%[1]s '] IS NULL`
	// This view has the rows that do not count, of all observers. %[1]s is the list.
	viewsSuperseded = `
-- The rows of sites that do not count, since another one counts for their site: docs/dataset.md, "Each site once".
CREATE OR REPLACE VIEW superseded AS
SELECT * FROM read_parquet(coalesce(bulkscan_list('superseded', NULL), getvariable('bulkscan_first')['superseded'], [error('views.sql has to be read again')]));
`
	// For a table that has several lists.
	viewsStandIn = `
  getvariable('bulkscan_none')['%s ' || coalesce(getvariable('bulkscan_observer'), '')],`
	viewsHas = `
  WHERE getvariable('bulkscan_none')['%s ' || coalesce(getvariable('bulkscan_observer'), '')] IS NULL`
	viewsLive = `
-- The sites of scans that are under way or were interrupted.
CREATE OR REPLACE VIEW sites_live AS
SELECT * FROM read_parquet(coalesce(getvariable('bulkscan_live_files'), getvariable('bulkscan_first')['sites'],
  [error('no scan was under way when views.sql was read')]), hive_partitioning = true);
`
	viewsPaths = `
-- From here on the views have all files: those of one observer, or of all. The paths of a list are one text, which DuckDB puts into a
-- variable in a third of the time of a list. A list's paths are those of an observer, or, where it is NULL, those of all observers.
CREATE OR REPLACE MACRO bulkscan_list(t, observer) AS string_split(CASE WHEN observer IS NULL THEN nullif(array_to_string(map_values(getvariable('bulkscan_paths')[t]), chr(0)), '')
  ELSE getvariable('bulkscan_paths')[t][observer] END, chr(0));
SET VARIABLE bulkscan_paths = (SELECT map(list(t), list(paths)) FROM (
  SELECT t, map(list(observer), list(paths)) AS paths
  FROM (SELECT %s AS t, observer, ` + viewsGlob + ` || string_agg(name, chr(0) || ` + viewsGlob + ` ORDER BY name) AS paths FROM bulkscan_files GROUP BY ALL)
  WHERE t IS NOT NULL GROUP BY t));
`
	viewsNone = `
-- A view of several lists reads a file of each. Where an observer has none in one of them, another file stands in, and its rows
-- are left out.
SET VARIABLE bulkscan_none = map_from_entries(list_distinct(list_filter(
  flatten(list_transform(map_keys(getvariable('bulkscan_first')), lambda t: flatten(list_transform(
    list_filter(getvariable('bulkscan_lists'), lambda l: l."table" = split_part(t, ' ', 1)),
    lambda l: [{'key': t || ' ' || l.observer, 'path': getvariable('bulkscan_first')[t]}, {'key': t || ' ', 'path': getvariable('bulkscan_first')[t]}])))),
  lambda none: NOT list_contains(flatten(list_transform(getvariable('bulkscan_lists'), lambda l: [l.t || ' ' || l.observer, l.t || ' '])), none.key))));
`
	viewsReset = `RESET VARIABLE bulkscan_lists;
RESET VARIABLE bulkscan_first;
RESET VARIABLE bulkscan_commits;
RESET VARIABLE bulkscan_newest;
`
	viewsResetKinds = `RESET VARIABLE bulkscan_kinds;
`
	viewsLedger = `
-- The history of policies: episodes, their policies and gaps, from the files that the ledger's record names (docs/history.md). It has
-- archives and one live observer, whichever observer is chosen above. nights has its dates. The macros below read history and
-- gaps; to restrict them to a panel of sites, make these views of history_all() and gaps_all() anew (docs/history.md).
SET VARIABLE bulkscan_ledger = (WITH ledger AS MATERIALIZED (
  SELECT content->>'$.scans[*].scan_date' AS nights, content->>'$.files[*].name' AS names
  FROM (SELECT coalesce(any_value(content), error('no file ` + schema.LedgerName + `')) AS content FROM read_text(` + viewsGlob + ` || '` + schema.LedgerName + `')))
  SELECT map(list(t), list(entries)) FROM (
    SELECT split_part(name, '/', 2) AS t, ` + viewsGlob + ` || string_agg(name, chr(0) || ` + viewsGlob + `) AS entries FROM (SELECT unnest(names) AS name FROM ledger) GROUP BY t
    UNION ALL SELECT 'nights', array_to_string(list_sort(list_distinct(nights)), chr(0)) FROM ledger));
SET VARIABLE bulkscan_nights = split_part(getvariable('bulkscan_ledger')['nights'], chr(0), 1);
CREATE OR REPLACE VIEW nights AS
SELECT CAST(unnest(coalesce(string_split(getvariable('bulkscan_nights'), chr(0)), [error('views.sql has to be read again')])) AS DATE) AS night;
`
	// As above, each view is first bound to one file, or night.
	viewsLedgerTable = `SET VARIABLE bulkscan_%[1]s = split_part(getvariable('bulkscan_ledger')['%[2]s'], chr(0), 1);
CREATE OR REPLACE VIEW %[1]s AS
SELECT * FROM read_parquet(coalesce(string_split(getvariable('bulkscan_%[1]s'), chr(0)), [error('views.sql has to be read again')]));
CREATE OR REPLACE MACRO %[1]s_all() AS TABLE
SELECT * FROM read_parquet(coalesce(string_split(getvariable('bulkscan_%[1]s'), chr(0)), [error('views.sql has to be read again')]));
`
	viewsLedgerPaths = `SET VARIABLE bulkscan_%[1]s = getvariable('bulkscan_ledger')['%[2]s'];
`
)

// The views of the ledger, with their tables.
var viewsLedgerTables = [][2]string{{"history_policies", "policies"}, {"history", "history"}, {"gaps", "gaps"}}

// The views for analyses. A line above each lists the tables that it needs. pruned.fill replaces what stands in braces.
//
//go:embed analyses.sql
var viewsAnalyses string

// The macros of the ledger, in the same form.
//
//go:embed history.sql
var viewsHistory string

// The registry of tokens: first a view of no token, then the tokens, between two texts.
const (
	viewsTokens = `
-- The registry of tokens of the scan that wrote this file: a crawler's operator and purpose, whether it heeds '*', and whose
-- group it follows if no group names it. There are none until all views are made.
SET VARIABLE bulkscan_tokens = from_json('[]', '` + registryTypes + `');
CREATE OR REPLACE VIEW tokens AS
SELECT unnest(coalesce(getvariable('bulkscan_tokens'), [error('views.sql has to be read again')]), recursive := true);
`
	viewsRegistry = `SET VARIABLE bulkscan_tokens = from_json('[
`
	viewsRegistryEnd = `]', '` + registryTypes + `');
`
	registryTypes = `[{"token": "VARCHAR", "category": "VARCHAR", "operator": "VARCHAR", "purpose": "VARCHAR", "heeds_star": "BOOLEAN", "fallback": ["VARCHAR"]}]`
)

// Write writes views.sql for the tables that have committed files, and for the ledger if there is one, unless it is up
// to date. A nil registry keeps the one in the file.
func Write(ctx context.Context, st store.Store, registry *tokens.Registry) error {
	listed, err := listedIn(ctx, st)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", Name, err)
	}
	with, err := tablesWithFiles(ctx, st, listed)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", Name, err)
	}
	lists := listsOf(with, listed)
	ledger, err := hasLedger(ctx, st)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", Name, err)
	}
	gone, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", Name, err)
	}
	before, err := store.ReadAll(ctx, st, Name, MaxBytes)
	data := summed(viewsOf(with, lists, ledger, registryView(registry, before), pruned{gone}))
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

// summed returns the text with its hash at the end.
func summed(text string) []byte { return []byte(text + viewsSum + schema.SumOf([]byte(text)) + "\n") }

// Sound reports whether views.sql is unchanged since some version of bulkscan wrote it.
func Sound(data []byte) bool {
	at := bytes.LastIndex(data, []byte("\n"+viewsSum)) + 1
	return at > 0 && string(data[at:]) == viewsSum+schema.SumOf(data[:at])+"\n"
}

// putViews bounds the attempts to write the file. A scan sweeps its drafts twice.
const putViews = 5

// tablesWithFiles returns the tables for which a view is possible: those with a file and a record of such files, as all
// tables in the index have. If the index has none, before the first scan is complete, it lists the folders.
func tablesWithFiles(ctx context.Context, st store.Store, listed map[string]bool) (with []string, err error) {
	for _, table := range schema.Tables() {
		if listed[table.Name] {
			with = append(with, table.Name)
		}
	}
	if len(with) > 0 {
		return with, nil
	}
	committed, noted, err := recordsIn(ctx, st) // records of parts, and of statistics
	if err != nil {
		return nil, err
	}
	for _, table := range schema.Tables() {
		if table.Name == schema.Superseded || schema.IsStatistics(table.Name) && !noted || !schema.IsStatistics(table.Name) &&
			!committed {
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

// recordsIn reports whether there are records of parts, and of statistics.
func recordsIn(ctx context.Context, st store.Store) (committed, noted bool, err error) {
	for entry, err := range st.List(ctx, schema.ScansFolder) {
		if err != nil {
			return false, false, err
		}
		switch folder, base := path.Split(entry.Name); {
		case entry.Size == 0:
		case strings.HasSuffix(folder, "/commits/") && strings.HasSuffix(base, ".json"):
			committed = true
		case strings.HasSuffix(folder, "/files/") && strings.HasSuffix(base, "_stats.json"):
			noted = true
		}
	}
	return committed, noted, nil
}

// hasLedger reports whether the dataset has a ledger. Its record names a file of each of its tables.
func hasLedger(ctx context.Context, st store.Store) (bool, error) {
	for entry, err := range st.List(ctx, schema.LedgerName) {
		if err != nil {
			return false, err
		}
		if entry.Name == schema.LedgerName {
			return true, nil
		}
	}
	return false, nil
}

// list is a list of files that a table's view reads.
type list struct {
	name string // the table, and a mark for further lists of the table; "" if no view reads its files
	has  string // condition for its files; a file is in the first list whose condition it meets
}

// supersededList ends the name of a list of files with superseded rows.
const supersededList = " superseded"

// listedIn returns which tables have files in the index, and which have files with superseded rows there. It returns
// none if there is no index, or if the next index.Update will replace the index.
func listedIn(ctx context.Context, st store.Store) (map[string]bool, error) {
	listed := map[string]bool{}
	for row, err := range index.Rows(ctx, st) {
		if err != nil {
			clear(listed)
			break
		}
		of := row.Table
		if row.Superseded {
			of += supersededList
		}
		listed[of] = listed[of] || row.Complete
	}
	return listed, ctx.Err()
}

// listsOf returns the lists of each of these tables. A file is in the first whose condition it meets.
func listsOf(with []string, listed map[string]bool) map[string][]list {
	lists := map[string][]list{}
	for _, name := range with {
		all := []list{{name, fmt.Sprintf(`"table" = '%s'`, name)}}
		if listed[name+supersededList] {
			superseded := list{has: fmt.Sprintf(`"table" = '%s' AND superseded`, name)}
			if !schema.IsStatistics(name) {
				superseded.name = name + supersededList
			}
			all = slices.Insert(all, 0, superseded)
		}
		if month := schema.MonthTable(name); listed[month] {
			all = slices.Insert(all, 0, list{has: fmt.Sprintf(`"table" = '%s' AND merged`, name)})
			all = append(all, list{name + " month", fmt.Sprintf(`"table" = '%s'`, month)})
		}
		lists[name] = all
	}
	return lists
}

func viewsOf(with []string, lists map[string][]list, ledger bool, registry string, p pruned) string {
	var b strings.Builder
	b.WriteString(viewsAbout)
	b.WriteString(p.macros())
	var names, cases []string
	for _, name := range with {
		for _, l := range lists[name] {
			in := "NULL"
			if l.name != "" {
				in = quoted(l.name)
				names = append(names, in)
			}
			if len(lists[name]) > 1 {
				cases = append(cases, fmt.Sprintf("WHEN %s THEN %s", l.has, in))
			}
		}
	}
	listOf := `"table"` // SQL: the list that a file is in
	if len(cases) > 0 {
		listOf = "CASE " + strings.Join(cases, " ") + ` ELSE "table" END`
	}
	if len(with) > 0 {
		fmt.Fprintf(&b, viewsFiles, strings.Join(names, ", "), schema.MaxCommit, listOf)
	}
	if slices.Contains(with, schema.Superseded) {
		b.WriteString(viewsSuperseded)
	}
	for _, name := range with {
		if name == schema.Superseded {
			continue
		}
		columns, more := "*", ""
		if name != schema.Sites { // which has the scan's name
			columns,
				more = `regexp_extract(bulkscan_file, 'part-(.*)-[^-]+-[0-9]+\.parquet$', 1) AS scan_id, * EXCLUDE (bulkscan_file)`,
				", filename = 'bulkscan_file'"
		}
		if schema.IsStatistics(name) {
			columns = `regexp_extract(bulkscan_file, 'part-(.*)\.parquet$', 1) AS scan_id, * EXCLUDE (bulkscan_file)`
		}
		var selects []string
		for _, l := range lists[name] {
			switch {
			case l.name == "":
			case strings.HasPrefix(l.name, name+" month"):
				selects = append(selects, fmt.Sprintf(viewsMonths, l.name))
			case strings.HasPrefix(l.name, name+supersededList):
				of := fmt.Sprintf(viewsList, name, l.name, columns, more, fmt.Sprintf(viewsStandIn, l.name)) +
					fmt.Sprintf(viewsHas, l.name)
				selects = append(selects, "SELECT * FROM ("+of+") ANTI JOIN superseded USING (scan_id, seq)")
			case len(lists[name]) > 1:
				selects = append(selects, fmt.Sprintf(viewsList, name, l.name, columns, more, fmt.Sprintf(viewsStandIn, l.name))+
					fmt.Sprintf(viewsHas, l.name))
			default:
				selects = append(selects, fmt.Sprintf(viewsList, name, l.name, columns, more, ""))
			}
		}
		format := viewsTable
		if name == schema.Policies {
			format = viewsPolicies
		}
		fmt.Fprintf(&b, format, name, strings.Join(selects, "\nUNION ALL BY NAME\n"), p.of(name))
	}
	if slices.Contains(with, schema.Sites) {
		b.WriteString(viewsLive)
	}
	if len(with) > 0 {
		b.WriteString(viewsTokens)
		writeAnalyses(&b, p.fill(viewsAnalyses), with)
		fmt.Fprintf(&b, viewsPaths, listOf)
		b.WriteString(registry)
		if len(cases) > 0 {
			b.WriteString(viewsNone)
		}
		b.WriteString(viewsReset)
	}
	if ledger && slices.Contains(with, schema.Sites) {
		// At the end: if the ledger is deleted, reading views.sql fails here, and the views above are complete.
		b.WriteString(viewsLedger)
		for _, view := range viewsLedgerTables {
			fmt.Fprintf(&b, viewsLedgerTable, view[0], view[1])
		}
		writeAnalyses(&b, p.fill(viewsHistory), with)
		b.WriteString("\n-- From here on these views have all nights and files, too.\n")
		for _, list := range append([][2]string{{"nights", "nights"}}, viewsLedgerTables...) {
			fmt.Fprintf(&b, viewsLedgerPaths, list[0], list[1])
		}
		b.WriteString("RESET VARIABLE bulkscan_ledger;\n")
	}
	if len(with) > 0 {
		b.WriteString(viewsResetKinds)
	}
	return b.String()
}

func writeAnalyses(b *strings.Builder, all string, with []string) {
	for view := range strings.SplitSeq(all, "\n-- needs: ") {
		needs, view, _ := strings.Cut(strings.TrimPrefix(view, "-- needs: "), "\n")
		if !slices.ContainsFunc(strings.Split(needs, ", "), func(table string) bool {
			return !slices.Contains(with, table)
		}) {
			b.WriteString("\n" + strings.TrimSuffix(view, "\n") + "\n")
		}
	}
}

// registryRow is a token in views.sql. DuckDB reads a text of JSON in a fourth of the time of a list of values.
type registryRow struct {
	Token     string   `json:"token"`
	Category  string   `json:"category"`
	Operator  string   `json:"operator"`
	Purpose   string   `json:"purpose"`
	HeedsStar bool     `json:"heeds_star"`
	Fallback  []string `json:"fallback"`
}

// registryView returns the tokens of a registry. For a nil registry it keeps those in the existing file: compact and
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
			fallback[j] = registry.Tokens[next].Name // the list's own spelling of the name may differ
		}
		// texts cannot fail
		row, _ := json.Marshal(registryRow{t.Name, t.Category, t.Operator, t.Purpose, t.HeedsStar, fallback})
		rows[i] = strings.ReplaceAll(string(row), "'", "''")
	}
	return viewsRegistry + strings.Join(rows, ",\n") + "\n" + viewsRegistryEnd
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// check.mjs answers one question: does another program read what we wrote? It opens a dataset with DuckDB. It compares
// the dataset with the promises in schema.mjs, with the scan's commit records and with the queries of
// docs/definitions.md. With TRUTH it also compares each site with its expected result.
//
//	npm install && node check.mjs DIR [TRUTH]
//
// TRUTH is JSON lines with host (and port, requested, seq where known) and any of outcome or outcomes (one word or the
// list of acceptable ones), status, hops, origin, final_scheme, tls_verified, body_bytes, body_hash, truncated. A field
// that no line has is not compared. One scan in DIR is required for it.
//
// Every difference is one line on standard error; the exit code is 1 where there was any.

import { createHash } from "node:crypto";
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { DuckDBInstance } from "@duckdb/node-api";
import { columnsOf, tables, words } from "./schema.mjs";

const MOST_SHOWN = 20; // differences shown per check; all are counted

// The example tokens of docs/definitions.md, which are replaced by all others.
const exampleToken = "token = 'GPTBot'";
const exampleUnknown = "'ia_archiver'";

const [dir, truth, ...rest] = process.argv.slice(2);
if (!dir || rest.length > 0) {
  console.error("usage: node check.mjs DIR [TRUTH]");
  process.exit(2);
}

const db = await (await DuckDBInstance.create(":memory:")).connect();
const rows = async (sql) => (await db.runAndReadAll(sql)).getRowObjectsJson();
const value = async (sql) => Object.values((await rows(sql))[0])[0];
const literal = (text) => `'${String(text).replaceAll("'", "''")}'`;
const name = (text) => `"${text.replaceAll('"', '""')}"`;

let failures = 0;

// fail reports one difference. Its text may come from hostile sites, so it is escaped.
function fail(text) {
  failures++;
  const escaped = text.replace(/[^\x20-\x7e]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  console.error(`FAIL  ${escaped}`);
}

// none fails for each row of a query that must have no rows.
async function none(what, sql) {
  const found = await rows(`SELECT *, count(*) OVER () AS "of" FROM (${sql}) LIMIT ${MOST_SHOWN}`);
  for (const { of, ...row } of found) fail(`${what}: ${JSON.stringify(row)}`);
  if (found.length > 0 && Number(found[0].of) > found.length) {
    fail(`${what}: ${Number(found[0].of) - found.length} more`);
  }
}

await main();
console.log(failures === 0 ? "DuckDB: the dataset is as promised" : `DuckDB: ${failures} differences`);
process.exit(failures === 0 ? 0 : 1);

async function main() {
  const scans = readScans();
  const present = [];
  for (const table of Object.keys(tables)) {
    if (await openTable(table, scans)) present.push(table);
  }
  for (const table of present) {
    await checkNulls(table);
    await checkFilters(table);
    await none(`${table}: a column chunk does not say which column it is of`,
      `SELECT file_name, row_group_id, column_id FROM parquet_metadata(${literal(join(dir, table, "*", "*.parquet"))}) WHERE path_in_schema = ''`);
    await checkLists(table);
    await checkWords(table);
  }
  if (!present.includes("sites")) return;
  await checkParts(scans);
  await checkViews(scans, present);
  await checkKeys();
  await checkRelations(present);
  if (present.includes("token_stats")) await checkDefinitions(scans);
  if (truth) await checkTruth(scans);
}

// readScans reads every manifest with its commits, except those that a compaction replaced.
function readScans() {
  const root = join(dir, "_scans");
  const scans = existsSync(root) ? readdirSync(root).filter((id) => !id.startsWith("_") && statSync(join(root, id)).isDirectory()).map((id) => readScan(root, id)) : [];
  if (scans.length === 0) fail(`${root}: no scan`);
  return scans;
}

function readScan(root, id) {
  const folder = join(root, id);
  const manifest = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  if (!["running", "complete"].includes(manifest.state)) fail(`${id}: manifest state ${manifest.state}`);
  const commitsFolder = join(folder, "commits");
  const commits = existsSync(commitsFolder)
    ? readdirSync(commitsFolder)
        .filter((file) => file.endsWith(".json") && statSync(join(commitsFolder, file)).size > 0)
        .map((file) => JSON.parse(readFileSync(join(commitsFolder, file), "utf8")))
    : [];
  const key = (c) => `${c.shard}-${c.n}`;
  const replaced = new Set(commits.flatMap((c) => (c.replaces ?? []).map(key)));
  return { id, manifest, commits: commits.filter((c) => !replaced.has(key(c))) };
}

// openTable makes a view of one table over all its partitions and compares its columns with the promised ones. It
// reports whether further checks can use the table.
async function openTable(table, scans) {
  const folder = join(dir, table);
  if (!existsSync(folder)) {
    const wanted = scans.some((s) => s.manifest.tables?.includes(table) && s.commits.length > 0);
    if (wanted) fail(`${table}: the manifest lists it, but it has no folder`);
    return false;
  }
  await db.run(`CREATE VIEW ${table} AS SELECT * FROM
    read_parquet(${literal(join(folder, "*", "*.parquet"))}, hive_partitioning = true, filename = true)`);
  const have = new Map((await rows(`DESCRIBE ${table}`)).map((c) => [c.column_name, c.column_type]));
  for (const { name: column, type } of columnsOf(table)) {
    if (!have.has(column)) fail(`${table}.${column}: missing`);
    else if (have.get(column) !== type) fail(`${table}.${column}: ${have.get(column)}, promised is ${type}`);
  }
  if (have.get("scan_date") !== "DATE") fail(`${table}.scan_date: ${have.get("scan_date")}, promised is DATE`);
  const promised = new Set([...columnsOf(table).map((c) => c.name), "scan_date", "filename"]);
  const added = [...have.keys()].filter((c) => !promised.has(c));
  console.log(
    `${table.padEnd(13)}${String(await value(`SELECT count(*) FROM ${table}`)).padStart(9)} rows` +
      `${String(have.size - 2).padStart(4)} columns${added.length > 0 ? `, not yet promised: ${added.join(", ")}` : ""}`,
  );
  // Later checks use columns by name and would only repeat that one is missing.
  return columnsOf(table).every((c) => have.has(c.name));
}

async function checkNulls(table) {
  const required = columnsOf(table).filter((c) => !c.nullable);
  const counts = required.map((c) => `count(*) FILTER (${name(c.name)} IS NULL) AS ${name(c.name)}`);
  const [found] = await rows(`SELECT ${counts.join(", ")} FROM ${table}`);
  for (const [column, n] of Object.entries(found)) {
    if (n !== "0") fail(`${table}.${column}: ${n} nulls where there may be none`);
  }
}

// checkFilters filters by the rarest and the commonest value of each column. A reader that skips row groups by minimum
// and maximum must find as many rows as one that reads all.
async function checkFilters(table) {
  const kept = ["VARCHAR", "BIGINT", "INTEGER", "BOOLEAN", "TIMESTAMP WITH TIME ZONE"];
  for (const { name: column, type } of columnsOf(table).filter((c) => kept.includes(c.type))) {
    const counts = `SELECT ${name(column)} AS v, count(*) AS n FROM ${table} WHERE v IS NOT NULL GROUP BY ALL`;
    const values = await rows(`(${counts} ORDER BY n, v LIMIT 2) UNION ALL (${counts} ORDER BY n DESC, v DESC LIMIT 2)`);
    for (const { v, n } of values) {
      const found = await value(`SELECT count(*) FROM ${table} WHERE ${name(column)} = CAST(${literal(v)} AS ${type})`);
      if (found !== n) fail(`${table}.${column}: ${n} rows have ${v}, and ${found} are found by it`);
    }
  }
}

async function checkLists(table) {
  for (const column of columnsOf(table).filter((c) => c.type.endsWith("[]"))) {
    const total = `count(*) FILTER (list_contains(list_transform(${name(column.name)}, e -> e IS NULL), true))`;
    const n = await value(`SELECT ${total} FROM ${table}`);
    if (n !== "0") fail(`${table}.${column.name}: ${n} rows with null elements`);
  }
}

async function checkWords(table) {
  for (const [column, allowed] of Object.entries(words[table] ?? {})) {
    await none(
      `${table}.${column} holds a word that is not promised`,
      `SELECT ${column}, count(*) AS rows FROM ${table}
       WHERE ${column} NOT IN (${allowed.map(literal).join(", ")}) GROUP BY ALL`,
    );
  }
}

// checkParts compares the files with the commit records: the same names, bytes, hashes and rows, and no other files.
async function checkParts(scans) {
  const committed = new Map();
  for (const { id, manifest, commits } of scans) {
    let finished = 0;
    for (const commit of commits) {
      finished += commit.rows;
      for (const file of commit.files) {
        committed.set(file.name, file);
        if (!file.name.startsWith(`${file.table}/scan_date=${manifest.scan_date}/`)) {
          fail(`${file.name}: not in the partition ${manifest.scan_date} of scan ${id}`);
        }
        await checkFile(file);
        if (file.table === "sites" && file.rows !== commit.rows) {
          fail(`${file.name}: ${file.rows} rows, but its commit finished ${commit.rows} origins`);
        }
      }
    }
    const have = Number(await value(`SELECT count(*) FROM sites WHERE scan_id = ${literal(id)}`));
    if (have !== finished) fail(`scan ${id}: ${have} rows in sites, ${finished} in its commits`);
    if (manifest.state === "complete" && manifest.counts.rows !== finished) {
      fail(`scan ${id}: the manifest says ${manifest.counts.rows} rows, the commits ${finished}`);
    }
  }
  for (const table of ["sites", "verdicts", "evidence", "bodies", "policies"]) {
    const folder = join(dir, table);
    if (!existsSync(folder)) continue;
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const file = relative(dir, join(entry.parentPath, entry.name)).split(sep).join("/");
      if (!committed.has(file)) fail(`${file}: no commit names it`);
    }
  }
  console.log(`${committed.size} files of ${scans.reduce((n, s) => n + s.commits.length, 0)} commits, ${scans.length} scans`);
}

// checkViews reads the dataset by its views.sql, from its folder and from another one: every committed row, once.
async function checkViews(scans, present) {
  const sql = readFileSync(join(dir, "views.sql"), "utf8");
  const here = process.cwd();
  for (const place of ["its folder", "elsewhere"]) {
    const other = await (await DuckDBInstance.create(":memory:")).connect();
    const first = async (q) => (await other.runAndReadAll(q)).getRowsJson()[0][0];
    if (place === "its folder") process.chdir(dir);
    else await other.run(`SET VARIABLE bulkscan = ${literal(dir + sep)}`);
    try {
      await other.run(sql);
      for (const table of present) {
        const committed = scans.flatMap((s) => s.commits).flatMap((c) => c.files).filter((f) => f.table === table);
        const once = table === "policies"; // the view has each once, whatever scans have it
        const want = committed.length > 0 && !once ? committed.reduce((n, f) => n + f.rows, 0)
          : Number(await value(`SELECT count(${once ? "DISTINCT policy_id" : "*"}) FROM ${table}`));
        const have = Number(await first(`SELECT count(*) FROM ${table}`));
        if (have !== want) fail(`views.sql, ${table}, read in ${place}: ${have} rows, committed ${want}`);
        const columns = (await other.runAndReadAll(`DESCRIBE ${table}`)).getRowObjectsJson().map((c) => c.column_name);
        for (const { name: column } of [...columnsOf(table), ...(once ? [] : [{ name: "scan_id" }, { name: "scan_date" }])]) {
          if (!columns.includes(column)) fail(`views.sql, ${table}: no column ${column}`);
        }
      }
    } catch (error) {
      fail(`views.sql, read in ${place}: ${error}`);
    }
    process.chdir(here);
  }
}

async function checkFile(file) {
  const path = join(dir, file.name);
  if (!existsSync(path)) return fail(`${file.name}: missing`);
  if (statSync(path).size !== file.bytes) fail(`${file.name}: ${statSync(path).size} bytes, committed ${file.bytes}`);
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  if (hash.digest("hex") !== file.sha256) fail(`${file.name}: its hash is not the committed one`);
  const have = Number(await value(`SELECT count(*) FROM read_parquet(${literal(path)})`));
  if (have !== file.rows) fail(`${file.name}: ${have} rows, committed ${file.rows}`);
}

// checkKeys: a site is one row per scan, by its line in the list and by its stable key.
async function checkKeys() {
  await none("sites: a seq has more than one row",
    `SELECT scan_id, seq, count(*) AS rows FROM sites GROUP BY ALL HAVING count(*) > 1`);
  await none("sites: a key (host, port, requested) has more than one row",
    `SELECT scan_id, host, port, requested, count(*) AS rows FROM sites GROUP BY ALL HAVING count(*) > 1`);
}

// checkRelations: the tables must agree with each other. Parts of one commit have one file name.
async function checkRelations(present) {
  const part = (t) => `regexp_extract(${t}.filename, 'part-[^/]*$')`;
  for (const table of ["verdicts", "evidence"].filter((t) => present.includes(t))) {
    await none(`${table}: rows without their site`,
      `SELECT c.seq, c.origin FROM ${table} c ANTI JOIN sites s
       ON c.seq = s.seq AND c.origin = s.origin AND ${part("c")} = ${part("s")}`);
  }
  if (present.includes("verdicts")) {
    await none("verdicts: a token has more than one row a site",
      `SELECT filename, seq, token, lenient, count(*) AS rows FROM verdicts GROUP BY ALL HAVING count(*) > 1`);
    await none("sites.named and verdicts disagree",
      `WITH n AS (SELECT ${part("s")} AS part, seq, unnest(named) AS token FROM sites s)
       SELECT n.seq, n.token FROM n ANTI JOIN verdicts v ON n.part = ${part("v")} AND n.seq = v.seq AND n.token = v.token`);
  }
  if (present.includes("bodies")) {
    // A compacted part has the rows of several, each of which may have the same body.
    await none("bodies: a hash has more than one row a part",
      `SELECT filename, body_hash, count(*) AS rows FROM bodies
       WHERE NOT contains(filename, '-compacted-') GROUP BY ALL HAVING count(*) > 1`);
    await none("bodies: a body that no site of its part has",
      `SELECT b.body_hash, octet_length(b.body) AS bytes FROM bodies b ANTI JOIN sites s
       ON b.body_hash = s.body_hash AND octet_length(b.body) = s.body_bytes AND ${part("b")} = ${part("s")}`);
    await none("bodies: a site's file of robots records is missing",
      `SELECT s.seq, s.body_hash FROM sites s ANTI JOIN bodies b
       ON b.body_hash = s.body_hash AND ${part("b")} = ${part("s")}
       WHERE s.body_hash <> 0 AND NOT s.is_html AND s.n_groups > 0`);
  }
  if (present.includes("policies")) {
    await none("policies: an id has more than one row a part",
      `SELECT filename, policy_id, count(*) AS rows FROM policies
       WHERE NOT contains(filename, '-compacted-') GROUP BY ALL HAVING count(*) > 1`);
    await none("policies: a policy that no site of its part has",
      `SELECT p.policy_id FROM policies p WHERE NOT EXISTS (FROM sites s
       WHERE p.policy_id IN (s.policy_id, s.rfc_policy_id) AND ${part("p")} = ${part("s")})`);
    for (const id of ["policy_id", "rfc_policy_id"]) {
      await none(`policies: a site's ${id} is missing`,
        `SELECT s.seq, s.${id} FROM sites s ANTI JOIN policies p ON p.policy_id = s.${id} AND ${part("p")} = ${part("s")}
         WHERE s.access = 'conditional' OR s.${id} IS NOT NULL`);
    }
  }
  const absent = columnsOf("sites").filter((c) => c.nullable && ["VARCHAR", "INTEGER", "BIGINT"].includes(c.type))
    .map((c) => `${name(c.name)} = ${c.type === "VARCHAR" ? "''" : 0}`);
  await none("sites: an absent value is not null",
    `SELECT seq, filename FROM sites WHERE ${absent.join(" OR ")}`);
  await none("sites: numbers that contradict each other",
    `SELECT seq, outcome, status, hops, body_bytes, body_hash, score FROM sites WHERE
       (outcome = 'answered') AND status IS NULL OR
       hops < 0 OR attempts < 0 OR body_bytes < 0 OR (body_bytes = 0) <> (body_hash = 0) OR
       score NOT BETWEEN 0 AND 1 OR len(redirects) > hops OR len(sitemaps) > n_sitemaps OR
       (access <> 'conditional' AND (len(blocked) > 0 OR len(partial) > 0)) OR
       list_has_any(blocked, partial)`);
  await none("sites: a finding that contradicts the answer",
    `SELECT seq, finding, outcome, status, access, challenge, is_html, html_title, redirect_scope, hops FROM sites WHERE
       (finding = 'challenged') <> (challenge IS NOT NULL AND access <> 'unknown') OR
       (finding = 'not_asked') <> (access = 'unknown') OR
       (finding IN ('rules', 'no_rules', 'html') AND (access <> 'conditional' OR challenge IS NOT NULL)) OR
       (finding = 'rules' AND (is_html OR n_groups + n_allow + n_disallow + n_sitemaps + n_extensions + n_invalid = 0)) OR
       (is_html AND finding NOT IN ('html', 'challenged')) OR (html_title IS NOT NULL AND NOT is_html) OR
       (finding = 'rate_limited' AND status <> 429) OR (finding = 'server_error' AND status < 500 AND status <> 408) OR
       (finding = 'refused' AND (access <> 'full_allow' OR status IN (404, 408, 410, 429))) OR
       (redirect_scope = 'none') <> (hops = 0)`);
}

// checkDefinitions computes columns of token_stats by the queries of docs/definitions.md, as it prints them and for every token.
async function checkDefinitions(scans) {
  const page = readFileSync(new URL("../../../docs/definitions.md", import.meta.url), "utf8");
  const blocks = [...page.matchAll(/^```sql\n([^]*?)^```$/gm)].map(([, sql]) => sql);
  const views = await (await DuckDBInstance.create(":memory:")).connect();
  await views.run(`SET VARIABLE bulkscan = ${literal(dir + sep)}`);
  await views.run(readFileSync(join(dir, "views.sql"), "utf8"));
  await views.run("RESET VARIABLE bulkscan_observer");
  const ask = async (sql) => (await views.runAndReadAll(sql)).getRowObjectsJson();
  for (const { id } of scans) {
    const stats = await ask(`SELECT * FROM token_stats WHERE segment_kind = 'all' AND scan_id = ${literal(id)}`);
    if (stats.length === 0) fail(`token_stats: nothing for scan ${id}`);
    if (new Set(stats.map((row) => row.token)).size !== stats.length) fail(`token_stats: a token of scan ${id} has two rows`);
    let compared = 0;
    const compare = (row, counted) => {
      for (const [column, n] of Object.entries(counted)) {
        compared++;
        if (row[column] !== n) fail(`token_stats of scan ${id}, ${row.token}: ${column} is ${row[column]}, by docs/definitions.md ${n}`);
      }
    };
    for (const sql of blocks.map((sql) => sql.replaceAll("SCAN-ID", id))) {
      if (sql.includes(exampleToken)) {
        for (const printed of await ask(sql)) compare(stats.find((row) => row.token === printed.token), printed);
        const counted = new Map((await ask(sql.replace(exampleToken, "token IS NOT NULL"))).map((row) => [row.token, row]));
        const columns = (await views.runAndReadAll(sql)).columnNames().filter((column) => column !== "token");
        for (const row of stats.filter((row) => row.known)) compare(row, counted.get(row.token) ?? Object.fromEntries(columns.map((column) => [column, "0"])));
      } else if (sql.includes(exampleUnknown)) {
        for (const row of stats.filter((row) => !row.known)) compare(row, (await ask(sql.replace(exampleUnknown, literal(row.token))))[0]);
      } else {
        const [counted] = await ask(sql);
        for (const row of stats) compare(row, counted);
      }
    }
    console.log(`${stats.length} tokens of scan ${id} counted by docs/definitions.md, in ${compared} figures`);
  }
}

// checkTruth compares every site with its expected result, column by column.
async function checkTruth(scans) {
  if (scans.length !== 1) return fail(`${dir}: a truth file belongs to one scan, here are ${scans.length}`);
  const types = {
    seq: "BIGINT", host: "VARCHAR", port: "INTEGER", requested: "VARCHAR", origin: "VARCHAR", outcome: "JSON",
    outcomes: "VARCHAR[]", status: "INTEGER", hops: "INTEGER", final_scheme: "VARCHAR", tls_verified: "BOOLEAN",
    body_bytes: "BIGINT", body_hash: "BIGINT", truncated: "BOOLEAN", behaviour: "VARCHAR",
    access: "VARCHAR", attempts: "INTEGER",
  };
  const columns = Object.entries(types).map(([k, t]) => `${k}: ${literal(t)}`).join(", ");
  // The column types are explicit: body_hash, as every id of 64 bits in JSON, is a string.
  await db.run(`CREATE TABLE truth AS SELECT * REPLACE (coalesce(outcomes, CASE json_type(outcome)
      WHEN 'ARRAY' THEN from_json(outcome, '["VARCHAR"]') ELSE [outcome->>'$'] END) AS outcomes)
    FROM read_json(${literal(truth)}, format = 'newline_delimited', columns = {${columns}})`);
  const given = new Set((await rows(`DESCRIBE SELECT * FROM
    read_json_auto(${literal(truth)}, format = 'newline_delimited')`)).map((c) => c.column_name));
  if (given.has("outcome") || given.has("outcomes")) given.add("outcomes");
  const key = ["host", "port", "requested", "seq"].filter((c) => given.has(c));
  if (!given.has("host")) return fail(`${truth}: its lines have no host`);
  const on = key.map((c) => `t.${c} = s.${c}`).join(" AND ");

  await none(`${truth}: a key has more than one line`, `SELECT ${key}, count(*) AS lines FROM truth GROUP BY ALL HAVING count(*) > 1`);
  await none("a site of the truth has no row", `SELECT ${key.map((c) => `t.${c}`)} FROM truth t ANTI JOIN sites s ON ${on}`);
  await none("a row is of no site of the truth", `SELECT ${key.map((c) => `s.${c}`)} FROM sites s ANTI JOIN truth t ON ${on}`);

  // null means no status in the column status, and any value in other columns.
  const differs = {
    outcomes: ["s.outcome", "NOT list_contains(t.outcomes, s.outcome)"],
    status: ["s.status", "s.status IS DISTINCT FROM t.status"],
    hops: ["s.hops", "s.hops <> t.hops"],
    origin: ["s.origin", "s.origin <> t.origin"],
    final_scheme: ["split_part(coalesce(s.final_url, s.origin), ':', 1)",
      "split_part(coalesce(s.final_url, s.origin), ':', 1) <> t.final_scheme"],
    tls_verified: ["s.tls_verified", "t.tls_verified IS NOT NULL AND s.tls_verified IS DISTINCT FROM t.tls_verified"],
    body_bytes: ["s.body_bytes", "s.body_bytes <> t.body_bytes"],
    body_hash: ["s.body_hash", "s.body_hash <> t.body_hash"],
    truncated: ["s.truncated", "s.truncated <> t.truncated"],
    // Only for the first outcome: another may have another access, and more or fewer retries.
    access: ["s.access", "s.outcome = t.outcomes[1] AND s.access <> t.access"],
    attempts: ["s.attempts", "s.outcome = t.outcomes[1] AND s.attempts <> t.attempts"],
  };
  const compared = Object.keys(differs).filter((c) => given.has(c));
  const about = given.has("behaviour") ? ", t.behaviour" : "";
  for (const column of compared) {
    const [got, where] = differs[column];
    await none(`${column} differs from the truth`,
      `SELECT s.host${about}, ${got} AS got, t.${column} AS want, s.error FROM sites s JOIN truth t ON ${on} WHERE ${where}`);
  }
  console.log(`${await value("SELECT count(*) FROM truth")} sites compared with the truth: ${compared.join(", ")}`);
}

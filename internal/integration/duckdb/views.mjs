// views.mjs answers one question: does a query see every row once while the dataset changes? It compacts a dataset
// step by step into larger parts. Meanwhile it counts and adds up through views.sql, again and again.
//
//	node views.mjs DIR BULKSCAN
//
// A query may fail because a file was deleted before the query read it, if it took longer than the grace. The error
// must say so, and the query is repeated. A query must never return other rows.
//
// Luck decides what these queries meet. So it shows first what must hold for them: a view lists the records once, however
// its folder is called the names of files are found in it, a snapshot holds while commits come in and says when files
// have gone, and statistics without a record are there. The exit code is 1 where anything is otherwise.

import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve, sep } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

const [dir, bulkscan] = process.argv.slice(2);
if (!bulkscan) {
  console.error("usage: node views.mjs DIR BULKSCAN");
  process.exit(2);
}

const QUERIES = [
  "SELECT count(*), sum(seq), count(DISTINCT seq) FROM sites",
  "SELECT count(*), sum(seq), count(DISTINCT seq), count(DISTINCT token) FROM verdicts",
  "SELECT count(*), sum(line), sum(length(value)) FROM evidence",
  "SELECT count(*), sum(octet_length(body)), count(DISTINCT body_hash) FROM bodies",
  "SELECT count(*), count(DISTINCT v.seq) FROM sites s JOIN verdicts v USING (scan_id, seq)",
];
// Each step merges the parts of the step before.
const STEPS = [["1", "0s"], ["2", "200ms"], ["4", "1s"], ["64", "0s"]]; // --part-mb, --grace

let wrong = 0;
const fail = (text) => {
  wrong++;
  console.error(`FAIL  ${text}`);
};
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const db = await opened(dir + sep);
const rows = async (sql, of = db) => (await of.runAndReadAll(sql)).getRowsJson();
const ask = async (sql, of = db) => JSON.stringify(await rows(sql, of));
const want = new Map();
for (const sql of QUERIES) want.set(sql, await ask(sql));
await listings();
await moved();
// The records before compaction, for between().
const records = mkdtempSync(join(tmpdir(), "views-"));
cpSync(join(dir, "_scans"), join(records, "_scans"), { recursive: true });

for (const [mb, grace] of STEPS) {
  const before = await parts();
  let asked = 0, refused = 0, running = true;
  const merged = run(bulkscan, ["compact", dir, "--part-mb", mb, "--grace", grace]).finally(() => (running = false));
  do {
    for (const sql of QUERIES) {
      let got;
      try {
        got = await ask(sql);
      } catch (error) {
        if (!/have gone|No such file|Cannot open file|No files found/.test(String(error))) throw error;
        refused++;
        continue;
      }
      asked++;
      if (got !== want.get(sql)) {
        fail(`${sql}: ${got}, not ${want.get(sql)}`);
      }
    }
  } while (running);
  await merged;
  console.log(`views.sql: ${before} parts became ${await parts()}, grace ${grace}: ${asked} queries answered meanwhile, ${refused} refused`);
}
if ((await parts()) !== 1) fail("the dataset was not compacted into one part");
await between().finally(() => rmSync(records, { recursive: true }));
process.exit(wrong > 0 ? 1 : 0);

// opened returns a connection that has read the views of a dataset, under the given name.
async function opened(at, views = join(dir, "views.sql")) {
  const db = await (await DuckDBInstance.create(":memory:")).connect();
  await db.run(`SET VARIABLE bulkscan = ${quoted(at)}`);
  await db.run(readFileSync(views, "utf8"));
  return db;
}

// listings checks the plan of each table's view. It may list the records twice, before and after its files, so that it
// notices a compaction in between. Any other listing would show another moment.
async function listings() {
  for (const [view] of await rows("SELECT DISTINCT \"table\" FROM bulkscan_files")) {
    const plan = await ask(`EXPLAIN (FORMAT json) SELECT count(*) FROM ${view}`);
    const scans = plan.match(/"name\W+READ_JSON/g)?.length ?? 0;
    if (scans !== 2) fail(`a query of ${view} lists records ${scans} times`);
  }
  // A view that kept DuckDB from skipping columns would take a hundred times as long.
  const columns = await ask("EXPLAIN (FORMAT json) SELECT max(s.host), max(v.token) FROM sites s JOIN verdicts v USING (scan_id, seq)");
  for (const column of ["sitemaps", "partial", "content_signal"]) if (columns.includes(column)) fail(`a query that does not ask for ${column} reads it`);
}

// moved queries and changes a copy whose folder name looks like a pattern, under several spellings.
async function moved() {
  const folder = mkdtempSync(join(tmpdir(), "views-"));
  try {
    const at = join(folder, "a [1] *?'s");
    cpSync(dir, at, { recursive: true });
    for (const place of [at + sep, at + sep + sep, join(folder, ".") + "//" + basename(at) + "/", "file:" + resolve(at) + "/"]) {
      const copy = await opened(place);
      for (const [sql, answer] of want) {
        const got = await ask(sql, copy);
        if (got !== answer) fail(`${place}: ${sql}: ${got}, not ${answer}`);
      }
    }
    const copy = await opened(at + sep);
    await snapshot(at, copy);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

// snapshot checks that all views keep their files while a commit is added.
async function snapshot(at, copy) {
  const [both] = QUERIES.slice(-1);
  const commits = join(at, "_scans", readdirSync(join(at, "_scans"))[0], "commits");
  const last = join(commits, readdirSync(commits).sort().at(-1));
  const held = join(at, "held");
  renameSync(last, held);
  const before = await ask(both, copy);
  await copy.run("SET VARIABLE bulkscan_snapshot = (SELECT list(f) FROM bulkscan_files AS f)");
  renameSync(held, last);
  if ((await ask(both, copy)) !== before) fail("a snapshot sees what was committed after it");
  await copy.run("RESET VARIABLE bulkscan_snapshot");
  if (before === want.get(both) || (await ask(both, copy)) !== want.get(both)) fail("without a snapshot a commit is not seen");

  await copy.run("SET VARIABLE bulkscan_snapshot = (SELECT list(f) FROM bulkscan_files AS f)");
  const [[path]] = await rows("SELECT path FROM bulkscan_files WHERE \"table\" = 'sites' LIMIT 1", copy);
  renameSync(path, held);
  const error = await ask("SELECT count(*) FROM sites", copy).then(() => "none", String);
  if (!/files of sites have gone/.test(error)) fail(`a file of the snapshot has gone: ${error}`);
  renameSync(held, path);
  await copy.run("RESET VARIABLE bulkscan_snapshot");
}

// between checks that a query fails if it lists the records before and after the merges above, even if the rows that
// it needs are in a file that still exists.
async function between() {
  const copy = await opened(dir + sep);
  const view = async (name) => (await rows(`SELECT sql FROM duckdb_views() WHERE view_name = '${name}'`, copy))[0][0];
  await copy.run(`SET VARIABLE bulkscan_before = ${quoted(records + sep)}`);
  const before = (sql) => sql.replaceAll("bulkscan_commits", "before_commits").replaceAll("bulkscan_counted", "before_counted").replaceAll("bulkscan_parts", "before_parts").replaceAll("'bulkscan'", "'bulkscan_before'");
  await copy.run(before(await view("bulkscan_commits")));
  await copy.run(before(await view("bulkscan_counted")));
  await copy.run(before(await view("bulkscan_parts")));
  for (const table of ["sites", "verdicts"]) {
    const first = (await view(table)).replace("FROM bulkscan_parts", "FROM before_parts");
    await copy.run(first.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"));
  }
  for (const sql of ["SELECT count(*) FROM sites", "SELECT host FROM sites WHERE seq = 5 LIMIT 1", "SELECT count(*) FROM verdicts WHERE token = 'GPTBot'", ...QUERIES.slice(-1)]) {
    const answer = await ask(sql, copy).catch(String);
    if (!/have gone: a compaction/.test(answer)) fail(`${sql}, of files merged meanwhile: ${answer}`);
  }
  // After a restart of the only scan, no file counts.
  await copy.run("CREATE OR REPLACE VIEW bulkscan_commits AS SELECT * FROM before_commits WHERE false");
  const answer = await ask("SELECT count(*) FROM sites", copy).catch(String);
  if (!/have gone/.test(answer)) fail(`all files were taken out meanwhile: ${answer}`);
}

async function parts() {
  return Number((await db.runAndReadAll(`SELECT count(*) FROM bulkscan_files WHERE "table" = 'sites'`)).getRowsJson()[0][0]);
}

function run(program, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve() : reject(new Error(`${program} ${args.join(" ")}: exit ${code}`))));
  });
}

// views.mjs answers one question: does a query see every row once while the dataset changes? It compacts a dataset
// step by step into larger parts. Meanwhile it counts and adds up through views.sql, again and again: in a session that read
// it before, and in sessions that read it just now.
//
//	node views.mjs DIR BULKSCAN
//
// A query of the older session may fail because its files have been merged and deleted. One of a new session may fail only
// if the files were deleted just after it read views.sql. A query must never return other rows.
//
// Before, it shows what must hold without a compaction: the dataset may lie in a folder of any name, a query reads only the
// columns that it names, and a database file that is opened again says that views.sql has to be read. The exit code is 1
// where anything is otherwise.

import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve, sep } from "node:path";
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
  "SELECT count(*), count(DISTINCT policy_id), sum(len(own)) FROM sites JOIN policies USING (policy_id)",
  "SELECT count(*), count(DISTINCT site), max(host), max(license) FROM policies_at(latest())",
  "SELECT count(*), sum(nights) FROM gaps",
  "FROM blocked_over_time('GPTBot')",
  "SELECT count(*), count(DISTINCT token) FROM registry_tokens",
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
await columns();
await policies();
await moved();
await reopened();

for (const [mb, grace] of STEPS) {
  const before = await parts(await opened(dir + sep));
  const older = await opened(dir + sep);
  let asked = 0, refused = 0, refusedNow = 0, running = true;
  const merged = run(bulkscan, ["compact", dir, "--part-mb", mb, "--grace", grace]).finally(() => (running = false));
  do {
    // DuckDB opens a file more than once for a query. Where index.parquet is replaced in between, it looks for the footer of the
    // one in the other, and Thrift, in which footers are written, refuses one byte or another.
    const gone = (error) => {
      if (!/No such file|Cannot open file|No files found|TProtocolException|don't know what type/.test(String(error))) throw error;
      refused++;
    };
    const now = await opened(dir + sep).catch(gone);
    if (!now) refusedNow++;
    for (const of of now ? [older, now] : [older]) {
      for (const sql of QUERIES) {
        const got = await ask(sql, of).catch(gone);
        if (got === undefined) {
          if (of === now) refusedNow++;
          continue;
        }
        asked++;
        if (got !== want.get(sql)) fail(`${sql}: ${got}, not ${want.get(sql)}`);
      }
    }
  } while (running);
  await merged;
  const after = await opened(dir + sep);
  for (const sql of QUERIES) if ((await ask(sql, after)) !== want.get(sql)) fail(`${sql}: other rows after the compaction`);
  console.log(`views.sql: ${before} parts became ${await parts(after)}, grace ${grace}: ${asked} queries answered meanwhile, ${refused} refused, ${refusedNow} of new sessions`);
}
if ((await parts(await opened(dir + sep))) !== 1) fail("the dataset was not compacted into one part");
process.exit(wrong > 0 ? 1 : 0);

// opened returns a connection that has read the views of a dataset, under the given name.
async function opened(at, views = join(dir, "views.sql")) {
  const db = await (await DuckDBInstance.create(":memory:")).connect();
  await db.run(`SET VARIABLE bulkscan = ${quoted(at)}`);
  await db.run(readFileSync(views, "utf8"));
  return db;
}

// columns checks that a query reads only the columns that it names: with others it would take a hundred times as long.
async function columns() {
  const plan = await ask("EXPLAIN (FORMAT json) SELECT max(s.host), max(v.token) FROM sites s JOIN verdicts v USING (scan_id, seq)");
  for (const column of ["sitemaps", "partial", "content_signal"]) if (plan.includes(column)) fail(`a query that does not ask for ${column} reads it`);
}

// policies checks that the policies of the ledger block each token of the registry where the rows of sites say so.
async function policies() {
  for (const [token] of await rows("SELECT token FROM tokens")) {
    const sql = `SELECT count(*) > 0 AND count(*) FILTER (list_contains(blocked, ${quoted(token)}) <> (h.policy_id IN (SELECT b.policy_id FROM policies_blocking(${quoted(token)}) AS b))) = 0
      FROM sites JOIN policies_at(latest()) AS h USING (host, port, requested) WHERE scan_date = latest() AND finding = 'rules'`;
    if (!(await rows(sql))[0][0]) fail(`the policies that block ${token} are not those of the sites that do`);
  }
}

// moved queries a copy whose folder name looks like a pattern, under several spellings.
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
  } finally {
    rmSync(folder, { recursive: true });
  }
}

// reopened opens a database file with the views of an earlier session, which had the paths in its variables.
async function reopened() {
  const folder = mkdtempSync(join(tmpdir(), "views-"));
  try {
    const file = join(folder, "survey.duckdb");
    const text = readFileSync(join(dir, "views.sql"), "utf8");
    const session = async () => (await DuckDBInstance.create(file)).connect();
    let db = await session();
    await db.run(`SET VARIABLE bulkscan = ${quoted(dir + sep)}`);
    await db.run(text);
    db.closeSync();
    db = await session();
    for (const sql of QUERIES) {
      const error = await ask(sql, db).then((rows) => `rows ${rows}`, String);
      if (!/views.sql has to be read again/.test(error)) fail(`a reopened database says to ${sql}: ${error}`);
    }
    await db.run(`SET VARIABLE bulkscan = ${quoted(dir + sep)}`);
    await db.run(text);
    for (const [sql, answer] of want) {
      const got = await ask(sql, db);
      if (got !== answer) fail(`reopened: ${sql}: ${got}, not ${answer}`);
    }
    db.closeSync();
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function parts(of) {
  return Number((await rows(`SELECT count(*) FROM bulkscan_files WHERE "table" = 'sites'`, of))[0][0]);
}

function run(program, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve() : reject(new Error(`${program} ${args.join(" ")}: exit ${code}`))));
  });
}

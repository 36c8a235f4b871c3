// objects.mjs answers one question: does the views.sql of a dataset in an object store lead there? DuckDB reads s3://
// through its extension httpfs, which is fetched from the network; so this asks what DuckDB would ask, and does not ask it.
//
//	node objects.mjs FOLDER PLACE
//
// FOLDER is where the server keeps the objects of PLACE, s3://BUCKET/PREFIX, as files. The exit code is 1 where the views
// would read anything else than the dataset's own records and tables at PLACE, or name files that are not there. What the
// views answer is for check.mjs, which reads FOLDER by them.

import { existsSync, readFileSync } from "node:fs";
import { join, sep } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

const [folder, place] = process.argv.slice(2);
if (!place) {
  console.error("usage: node objects.mjs FOLDER PLACE");
  process.exit(2);
}

let wrong = 0;
const fail = (text) => {
  wrong++;
  console.error(`FAIL  ${text}`);
};
const sql = readFileSync(join(folder, "views.sql"), "utf8");
const root = `${place}/`;

await patterns();
await refused();
await paths();
if (wrong === 0) console.log(`DuckDB: views.sql leads to ${root} and nowhere else`);
process.exit(wrong > 0 ? 1 : 0);

// connect opens a DuckDB that fetches nothing, and is told that the dataset is there.
async function connect(at) {
  const db = await (await DuckDBInstance.create(":memory:")).connect();
  await db.run("SET autoinstall_known_extensions = false");
  await db.run("SET autoload_known_extensions = false");
  await db.run(`SET VARIABLE bulkscan = '${at.replaceAll("'", "''")}'`);
  return db;
}

// patterns lets DuckDB work out what each function that reads is called with, and holds it against what there is to read.
async function patterns() {
  const db = await connect(root);
  const calls = [...sql.matchAll(/\b(read_json|read_parquet|glob)\((regexp_replace\([^\n]*?, 'g'\) \|\| '[^'\n]*')/g)];
  const readers = sql.replaceAll(/^--.*$/gm, "").match(/\b(read_\w+|glob)\(/g)?.length ?? 0;
  if (calls.length !== readers) fail(`${readers} calls read something, ${calls.length} of them are understood`);
  const read = new Set();
  for (const [, , argument] of calls) {
    read.add((await db.runAndReadAll(`SELECT ${argument}`)).getRowsJson()[0][0]);
  }
  const tables = ["sites", "verdicts", "evidence", "bodies"].filter((table) => existsSync(join(folder, table)));
  const statistics = ["token_stats", "record_stats"].filter((table) => existsSync(join(folder, table)));
  const want = new Set([
    `${root}_scans/*/commits/*.json`,
    `${root}_scans/*/files/*_stats.json`,
    ...[...tables, ...statistics].map((table) => `${root}${table}/*/*.parquet`),
    ...statistics.map((table) => `${root}${table}/*/part-*.parquet`),
  ]);
  if (tables.length === 0 || statistics.length === 0) fail(`${folder}: too little to look at`);
  for (const pattern of read) if (!want.has(pattern)) fail(`reads ${pattern}`);
  for (const pattern of want) if (!read.has(pattern)) fail(`does not read ${pattern}`);
}

// refused shows that DuckDB itself understands the first of them as a place in an object store.
async function refused() {
  const error = await (await connect(root)).run(sql).then(() => "it reads them without its extension", String);
  if (!error.includes(`${root}_scans/*/commits/*.json`) || !error.includes("httpfs")) fail(`DuckDB says ${error}`);
}

// paths shows that the files which count, by the records as they lie there, are named at the place and are there.
async function paths() {
  const db = await connect(folder + sep);
  await db.run(sql);
  const files = (await db.runAndReadAll("SELECT name, path FROM bulkscan_files")).getRowObjectsJson();
  if (files.length === 0) fail("no file counts");
  for (const { name, path } of files) {
    if (path !== folder + sep + name || !existsSync(path)) fail(`${name}: ${path}`);
  }
}

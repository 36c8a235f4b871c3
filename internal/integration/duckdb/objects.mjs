// objects.mjs answers one question: does the views.sql of a dataset in an object store lead there? DuckDB's extension
// httpfs, which reads s3://, must be downloaded, so this checks the paths that DuckDB would read without reading them.
//
//	node objects.mjs FOLDER PLACE
//
// FOLDER is where the server keeps the objects of PLACE, s3://BUCKET/PREFIX, as files. The exit code is 1 if the views
// would read anything other than the dataset's records and tables at PLACE, or name files that are missing. check.mjs
// reads FOLDER and checks the answers of the views.

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

// connect opens a DuckDB without downloads and sets the dataset's place.
async function connect(at) {
  const db = await (await DuckDBInstance.create(":memory:")).connect();
  await db.run("SET autoinstall_known_extensions = false");
  await db.run("SET autoload_known_extensions = false");
  await db.run(`SET VARIABLE bulkscan = '${at.replaceAll("'", "''")}'`);
  return db;
}

// patterns has DuckDB evaluate the arguments of each reading function and compares them with the expected paths.
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
  ]);
  if (tables.length === 0 || statistics.length === 0) fail(`${folder}: too little to look at`);
  for (const pattern of read) if (!want.has(pattern)) fail(`reads ${pattern}`);
  for (const pattern of want) if (!read.has(pattern)) fail(`does not read ${pattern}`);
}

// refused checks that DuckDB itself takes the first path for one in an object store.
async function refused() {
  const error = await (await connect(root)).run(sql).then(() => "it reads them without its extension", String);
  if (!error.includes(`${root}_scans/*/commits/*.json`) || !error.includes("httpfs")) fail(`DuckDB says ${error}`);
}

// paths checks that the files of the commit records are named at the place and exist.
async function paths() {
  const db = await connect(folder + sep);
  await db.run(sql);
  const files = (await db.runAndReadAll("SELECT name, path FROM bulkscan_files")).getRowObjectsJson();
  if (files.length === 0) fail("no file counts");
  for (const { name, path } of files) {
    if (path !== folder + sep + name || !existsSync(path)) fail(`${name}: ${path}`);
  }
}

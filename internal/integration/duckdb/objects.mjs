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

// patterns checks that whatever is read is named by the dataset's place, or by a variable that was filled from there. It has
// DuckDB evaluate the names.
async function patterns() {
  const db = await connect(root);
  const calls = sql.replaceAll(/^--.*$/gm, "").match(/\b(read_\w+|glob)\([^\n]*/g) ?? [];
  let read = 0;
  for (const call of calls) {
    const [, place] = call.match(/\((regexp_replace\(.*?, 'g'\) \|\| '[^'\n]*')/) ?? [];
    if (place) {
      const path = (await db.runAndReadAll(`SELECT ${place}`)).getRowsJson()[0][0];
      if (path !== `${root}_scans/index.parquet` && path !== `${root}history/_ledger.json`) fail(`reads ${path}`);
      read++;
    } else if (!/\((coalesce\()?(bulkscan_list\('|(string_split\()?getvariable\('bulkscan_)/.test(call)) fail(`reads ${call}`);
  }
  if (read === 0) fail("does not read the index");
}

// refused checks that DuckDB itself takes the first path for one in an object store.
async function refused() {
  const error = await (await connect(root)).run(sql).then(() => "it reads them without its extension", String);
  if (!error.includes(`${root}_scans/index.parquet`) || !error.includes("httpfs")) fail(`DuckDB says ${error}`);
}

// paths checks that the files of the index are named at the place and exist, and that the views read these, and those of the ledger.
async function paths() {
  const db = await connect(folder + sep);
  await db.run(sql);
  const files = (await db.runAndReadAll("SELECT name, path FROM bulkscan_files")).getRowObjectsJson();
  if (files.length === 0) fail("no file counts");
  for (const { name, path } of files) {
    if (path !== folder + sep + name || !existsSync(path)) fail(`${name}: ${path}`);
  }
  const given = (await db.runAndReadAll("SELECT unnest(flatten(list_transform(map_keys(getvariable('bulkscan_paths')), lambda t: bulkscan_list(t, NULL)))) AS path")).getRowObjectsJson();
  const named = new Set(files.map((f) => f.path));
  for (const { path } of given) if (!named.has(path)) fail(`a view reads ${path}`);
  const ledger = (await db.runAndReadAll("SELECT unnest(string_split(concat_ws(chr(0), getvariable('bulkscan_history_policies'), getvariable('bulkscan_history'), getvariable('bulkscan_gaps')), chr(0))) AS path")).getRowObjectsJson();
  if (ledger.length < 3) fail("a table of the ledger has no file");
  for (const { path } of ledger) if (!path.startsWith(`${folder}${sep}history/`) || !existsSync(path)) fail(`a view of the ledger reads ${path}`);
}

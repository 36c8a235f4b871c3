// versions.mjs answers one question: do files of all schema versions read as one table? It opens the files of several
// datasets with DuckDB's union_by_name, as somebody does who has scanned for years, and holds what comes out against
// what `bulkscan schema --json` says: every column is there with its type, and those that came later are null in old rows.
//
//	bulkscan schema --json > SCHEMA; npm install && node versions.mjs SCHEMA DIR…
//
// Every difference is one line on standard error; the exit code is 1 where there was any.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { columnsOf } from "./schema.mjs";

const [schemaFile, ...dirs] = process.argv.slice(2);
if (!schemaFile || dirs.length === 0) {
  console.error("usage: node versions.mjs SCHEMA DIR…");
  process.exit(2);
}

const db = await (await DuckDBInstance.create(":memory:")).connect();
const rows = async (sql) => (await db.runAndReadAll(sql)).getRowObjectsJson();
const literal = (text) => `'${String(text).replaceAll("'", "''")}'`;
const name = (text) => `"${text.replaceAll('"', '""')}"`;

let failures = 0;
function fail(text) {
  failures++;
  console.error(`FAIL  ${text.replace(/[^\x20-\x7e]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)}`);
}

// committed lists the files of a table that commits of all datasets name, with the schema version of their commit.
function committed(table) {
  const files = [];
  for (const dir of dirs) {
    for (const scan of readdirSync(join(dir, "_scans"))) {
      const folder = join(dir, "_scans", scan, "commits");
      for (const record of existsSync(folder) ? readdirSync(folder).filter((f) => f.endsWith(".json")) : []) {
        const text = readFileSync(join(folder, record), "utf8");
        if (!text) continue;
        const commit = JSON.parse(text);
        for (const file of commit.files.filter((f) => f.table === table)) {
          files.push({ path: join(dir, file.name), rows: file.rows, version: commit.schema_version });
        }
      }
    }
  }
  return files;
}

const versions = new Set();
for (const { name: table, columns } of JSON.parse(readFileSync(schemaFile, "utf8"))) {
  const files = committed(table);
  if (files.length === 0) continue; // computed tables have no commits
  files.forEach((f) => versions.add(f.version));
  await db.run(`CREATE OR REPLACE TABLE version AS SELECT * FROM (VALUES
    ${files.map((f) => `(${literal(f.path)}, ${f.version}, ${f.rows})`).join(", ")}) AS v(filename, version, "rows")`);
  await db.run(`CREATE OR REPLACE VIEW together AS SELECT * FROM
    read_parquet([${files.map((f) => literal(f.path))}], union_by_name = true, hive_partitioning = true, filename = true)`);
  const have = new Map((await rows("DESCRIBE together")).map((c) => [c.column_name, c.column_type]));
  const promised = new Map(columnsOf(table).map((c) => [c.name, c.type]));
  for (const { name: column, since } of columns) {
    if (!have.has(column)) fail(`${table}.${column}: missing`);
    else if (promised.has(column) && have.get(column) !== promised.get(column)) {
      fail(`${table}.${column}: ${have.get(column)}, promised is ${promised.get(column)}`);
    } else if (since > 1) {
      const [found] = await rows(`SELECT count(*) FILTER (version < ${since} AND ${name(column)} IS NOT NULL) AS early
        FROM together JOIN version USING (filename)`);
      if (found.early !== "0") fail(`${table}.${column}: ${found.early} values in files older than version ${since}`);
    }
  }
  for (const bad of await rows(`SELECT filename, any_value(v.rows) AS want, count(t.filename) AS have
    FROM version v LEFT JOIN together t USING (filename) GROUP BY filename HAVING want <> have`)) {
    fail(`${bad.filename}: ${bad.have} rows, committed ${bad.want}`);
  }
  const counts = await rows(`SELECT version, count(*) AS n FROM together JOIN version USING (filename) GROUP BY ALL ORDER BY ALL`);
  console.log(`${table.padEnd(13)}${counts.map((c) => `version ${c.version}: ${c.n} rows`).join(", ")}`);
}
if (versions.size < 2) fail(`only version ${[...versions]} is here: nothing was read together`);
console.log(failures === 0 ? "DuckDB: all versions read as one" : `DuckDB: ${failures} differences`);
process.exit(failures === 0 ? 0 : 1);

// ask.mjs answers one question: what does DuckDB answer, and how fast? It opens a dataset by its views.sql and runs
// the requested queries, so that a test or benchmark in another language can use DuckDB.
//
//	node ask.mjs DIR < REQUEST
//
// REQUEST is a JSON object: threads, the bound for DuckDB; runs, how often each query is run; queries, a list of name
// and sql. The answer to a sql of several statements is that of the last. The output has a line of JSON for each
// query: name, columns, types, rows as JSON (a BIGINT is a string), and ms, the time of each run from the first to the
// last row, and cpu, that of all processors; or name and error.

import { readFileSync } from "node:fs";
import { sep } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

const [dir] = process.argv.slice(2);
if (!dir) {
  console.error("usage: node ask.mjs DIR < REQUEST");
  process.exit(2);
}
const { threads, runs, queries } = JSON.parse(readFileSync(0, "utf8"));
const db = await (await DuckDBInstance.create(":memory:", { threads: String(threads) })).connect();
await db.run(`SET VARIABLE bulkscan = '${(dir + sep).replaceAll("'", "''")}'`);
await db.run(readFileSync(dir + sep + "views.sql", "utf8"));
for (const { name, sql } of queries) {
  const ms = [], cpu = [];
  let answer = { error: "it was not run" };
  try {
    for (let i = 0; i < runs; i++) {
      const begun = performance.now(), used = process.cpuUsage();
      const reader = await db.runAndReadAll(sql);
      ms.push(performance.now() - begun);
      const { user, system } = process.cpuUsage(used);
      cpu.push((user + system) / 1000);
      if (i === runs - 1) {
        answer = { columns: reader.columnNames(), types: reader.columnTypes().map(String), rows: reader.getRowsJson() };
      }
    }
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify({ name, ...answer, ms, cpu }));
}

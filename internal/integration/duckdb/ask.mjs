// ask.mjs answers one question: what does DuckDB answer, and how fast? It opens a dataset by its views.sql and runs
// the requested queries, so that a test or benchmark in another language can use DuckDB.
//
//	node ask.mjs < REQUESTS
//
// A request is a line with a JSON object: folder, where relative paths start; dataset; threads, the bound for DuckDB;
// runs, how often each query is run; queries, a list of name and sql. The answer to a sql of several statements is that
// of the last. A reply is a line, too: error, if the dataset cannot be opened, or answers, with an object for each
// query: name, columns, types, rows as JSON (a BIGINT is a string), and ms, the time of each run from the first to the
// last row, and cpu, that of all processors; or name and error.

import { readFileSync } from "node:fs";
import { sep } from "node:path";
import { createInterface } from "node:readline";
import { DuckDBInstance } from "@duckdb/node-api";

async function answer(db, { name, sql }, runs) {
  const ms = [], cpu = [];
  let answer;
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
  return { name, ...answer, ms, cpu };
}

async function reply({ folder, dataset, threads, runs, queries }) {
  process.chdir(folder);
  const instance = await DuckDBInstance.create(":memory:", { threads: String(threads) });
  const db = await instance.connect();
  await db.run(`SET VARIABLE bulkscan = '${(dataset + sep).replaceAll("'", "''")}'`);
  await db.run(readFileSync(dataset + sep + "views.sql", "utf8"));
  const answers = [];
  for (const query of queries) {
    answers.push(await answer(db, query, runs).catch((error) => ({ name: query.name, error: String(error) })));
  }
  db.closeSync();
  instance.closeSync();
  return { answers };
}

for await (const request of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await reply(JSON.parse(request)).catch((error) => ({ error: String(error) }))));
}

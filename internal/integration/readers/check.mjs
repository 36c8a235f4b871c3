// check.mjs answers one question: do all readers find the same values in a dataset, bit by bit? The readers of
// readers.mjs read every file of every table row by row. Each value must be the written one, where that is known, else
// that of the first reader. Column types must be those of `bulkscan schema`, and partitions the scans' dates.
//
//	npm install && node check.mjs SCHEMA DIR [--rows FOLDER] [--lines FILE]
//
// SCHEMA is the output of `bulkscan schema --json`. FOLDER has a file TABLE.jsonl for each table with all its rows in
// order, each a list of values as readers.mjs spells them; values that are hard to read must be among them. FILE is
// the output of `bulkscan scan -o -` for the scan in DIR: objects with the columns of sites, and a list of verdicts.
//
// Every difference is one line on standard error; the exit code is 1 where there was any.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { duckdb, hyparquet, polars, versions } from "./readers.mjs";

const MOST_SHOWN = 20; // differences shown; all are counted

const { values: given, positionals } = parseArgs({ allowPositionals: true, options: { rows: { type: "string" }, lines: { type: "string" } } });
const [schemaFile, dir] = positionals;
if (positionals.length !== 2) {
  console.error("usage: node check.mjs SCHEMA DIR [--rows FOLDER] [--lines FILE]");
  process.exit(2);
}

let failures = 0;

// fail reports one difference. Its text may come from hostile sites, so it is escaped and cut.
function fail(text) {
  if (++failures > MOST_SHOWN) return;
  console.error(`FAIL  ${text.slice(0, 2000).replace(/[^\x20-\x7e]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)}`);
}

const schema = JSON.parse(readFileSync(schemaFile, "utf8"));
const typesOf = Object.fromEntries(schema.map(({ name, columns }) => [name, columns.map((c) => ({ name: c.name, type: c.type.replace(/\?$/, ""), nullable: c.nullable }))]));
const scans = readdirSync(join(dir, "_scans"), { withFileTypes: true }).filter((entry) => entry.isDirectory() && !entry.name.startsWith("_")).map(({ name: id }) => readScan(join(dir, "_scans", id)));
const lines = given.lines && readLines(given.lines);

let values = 0, files = 0;
for (const { name: table } of schema) if (table !== "superseded") await checkTable(table); // which lies elsewhere, and has no rows here
await checkIndex();
if (values === 0) fail("no value was read");
console.log(`${failures === 0 ? "all readers find the same" : `${failures} differences`}: ${values} values in ${files} files (${await versions()})`);
process.exit(failures === 0 ? 0 : 1);

// readScan returns the files of a scan in the order of its commits, except those that a compaction replaced.
function readScan(folder) {
  const { scan_date: date, scan_id: id } = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  const read = (part) => {
    const at = join(folder, part);
    return (existsSync(at) ? readdirSync(at) : []).filter((name) => name.endsWith(".json")).map((name) => JSON.parse(readFileSync(join(at, name), "utf8")));
  };
  const commits = read("commits");
  const key = (c) => `${c.shard}-${c.n}`;
  const replaced = new Set(commits.flatMap((c) => (c.replaces ?? []).map(key)));
  // A compacted part takes the place of the first of its sources.
  const place = (c) => Math.min(...(c.replaces ?? [c]).map((r) => r.n));
  const parts = commits.filter((c) => !replaced.has(key(c))).sort((a, b) => place(a) - place(b));
  return { id, date, files: [...parts.flatMap((c) => c.files), ...read("files").map((record) => record.file)] };
}

// readLines reads JSON lines of sites, as any program in JavaScript would: a number that JSON.parse rounds is a difference.
function readLines(path) {
  const rows = { sites: new Map(), verdicts: new Map() };
  const cell = ({ name, type }, value) => {
    if (/^int/.test(type) && typeof value === "number" && !Number.isSafeInteger(value)) fail(`${name}: ${value} is a number in JSON, which readers round`);
    return type === "int64" && value !== null ? String(value) : value; // as the readers spell it
  };
  for (const line of readFileSync(path, "utf8").split("\n").filter(Boolean)) {
    const { verdicts, ...site } = JSON.parse(line);
    if (site.fetched_at) site.fetched_at = String(Date.parse(site.fetched_at));
    const list = (row, table) => typesOf[table].map((c) => cell(c, row[c.name]));
    rows.sites.set(String(site.seq), [list(site, "sites")]);
    rows.verdicts.set(String(site.seq), verdicts.map((v) => list({ ...site, ...v }, "verdicts")));
  }
  return rows;
}

// checkIndex reads the index with each reader. It must name the files of the scans, all of which are complete, and no others.
async function checkIndex() {
  const want = scans.flatMap((s) => s.files.filter((f) => f.table !== "rejects").map((f) => JSON.stringify([s.id, s.date, f.table, f.name, String(f.rows), String(f.bytes)]))).sort();
  const columns = ["scan_id", "scan_date", "table", "name", "rows", "bytes"].map((name) => ({ name, type: /rows|bytes/.test(name) ? "int64" : "string" }));
  for (const reader of [duckdb, polars, hyparquet]) {
    const have = [];
    for await (const row of await reader.rows(join(dir, "_scans", "index.parquet"), columns)) if (row[2] !== "superseded") have.push(JSON.stringify(row));
    have.sort();
    if (JSON.stringify(have) !== JSON.stringify(want)) fail(`${reader.name}: the index names ${have.length} files, the records ${want.length}: ${have.find((row) => !want.includes(row)) ?? want.find((row) => !have.includes(row))}`);
  }
}

// checkTable reads every file of a table.
async function checkTable(table) {
  const columns = typesOf[table];
  const of = scans.flatMap((scan) => scan.files).filter((file) => file?.name.startsWith(`${table}/`));
  if (of.length === 0) return fail(`${table}: no file`);
  const written = given.rows && readFileSync(join(given.rows, `${table}.jsonl`), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  if (written) checkHard(table, columns, written);
  let at = 0;
  for (const file of of) {
    const path = join(dir, file.name);
    let want = written?.slice(at, at + file.rows), by = "written";
    for (const reader of [hyparquet, duckdb, polars]) {
      try {
        checkTypes(`${file.name}, ${reader.name}`, columns, await reader.types(path), reader !== hyparquet);
        const rows = await reader.rows(path, columns);
        values += rows.length * columns.length;
        if (rows.length !== file.rows) fail(`${file.name}: ${reader.name} finds ${rows.length} rows, its record says ${file.rows}`);
        if (lines?.[table]) want = linesOf(table, columns, rows, file.name);
        if (file === of[0]) await checkFilters(path, reader, columns, rows);
        if (want) compare(`${file.name}, ${reader.name}`, columns, rows, want, by);
        else [want, by] = [rows, `found by ${reader.name}`];
      } catch (error) {
        fail(`${file.name}: ${reader.name} cannot read it: ${error}`);
      }
    }
    files++;
    at += file.rows;
  }
  if (written && at !== written.length) fail(`${table}: its files have ${at} rows, ${written.length} were written`);
  if (lines?.[table]) for (const [seq, left] of lines[table]) if (left.length > 0 && !left.taken) fail(`${table}: no row of seq ${seq}, which was printed`);
  await checkHive(table);
  console.log(`${table.padEnd(13)}${String(at).padStart(8)} rows in ${of.length} files`);
}

// checkTypes compares a reader's types with the promised ones, in order.
function checkTypes(where, columns, types, allNullable) {
  const want = columns.map((c) => [c.name, c.type + (c.nullable && !allNullable ? "?" : "")].join(" "));
  const have = types.map((column) => column.join(" "));
  if (want.length !== have.length) fail(`${where}: ${have.length} columns, promised are ${want.length}`);
  want.forEach((w, i) => w !== have[i] && fail(`${where}: column ${have[i]}, promised is ${w}`));
  for (const text of have.filter((text) => /uint/i.test(text))) fail(`${where}: an unsigned type: ${text}`);
}

// checkFilters filters by values of a file. A reader that skips row groups or pages by minimum and maximum must find
// as many rows as there are.
async function checkFilters(path, reader, columns, rows) {
  for (const [i, column] of columns.entries()) {
    if (!["string", "int32", "int64", "bool", "timestamp(ms, UTC)"].includes(column.type)) continue;
    const all = rows.map((row) => row[i]).filter((value) => value !== null);
    for (const value of new Set([all[0], all[all.length >> 1], all.at(-1)])) {
      if (value === undefined) continue;
      const [found, there] = [await reader.count(path, column, value), all.filter((v) => v === value).length];
      if (found !== there) fail(`${path}, ${column.name}: ${reader.name} finds ${found} rows by ${JSON.stringify(value)}, there are ${there}`);
    }
  }
}

// compare compares rows with the expected ones, value by value.
function compare(where, columns, rows, want, by) {
  for (let n = 0; n < Math.min(rows.length, want.length); n++) {
    columns.forEach(({ name }, i) => {
      const [have, must] = [JSON.stringify(rows[n][i]), JSON.stringify(want[n][i])];
      if (have !== must) fail(`${where}: row ${n}, ${name}: ${have.slice(0, 400)}, ${by} is ${must?.slice(0, 400)}`);
    });
  }
  if (rows.length !== want.length) fail(`${where}: ${rows.length} rows, ${by} are ${want.length}`);
}

// linesOf returns the printed rows of a file's sites, in the file's order.
function linesOf(table, columns, rows, where) {
  const at = columns.findIndex((c) => c.name === "seq");
  const order = [...new Set(rows.map((row) => row[at]))];
  return order.flatMap((seq) => {
    const printed = lines[table].get(seq);
    if (!printed) fail(`${where}: rows of seq ${seq}, of which nothing was printed`);
    else printed.taken = true;
    return printed ?? [];
  });
}

// checkHard checks that values which are hard to read are present, since other values prove little.
function checkHard(table, columns, rows) {
  const flat = (value) => (value !== null && typeof value === "object" ? Object.values(value).flatMap(flat) : [value]);
  columns.forEach(({ name, type, nullable }, i) => {
    const all = rows.map((row) => row[i]);
    const texts = new Set(all.flatMap(flat));
    const must = (is, what) => is || fail(`${table}.${name}: what was written has ${what}`);
    must(nullable === all.includes(null), nullable ? "no null" : "a null");
    if (type.startsWith("list")) must(all.some((list) => list.length === 0) && all.some((list) => list.length > 1000), "no empty list, or no long one");
    if (type.startsWith("list<struct")) must(all.some((list) => list.length > 1 && new Set(list.map((e) => JSON.stringify(e))).size > 1), "no list of several structs");
    // An optional text or number that is empty or 0 is stored as null.
    if (/string/.test(type)) for (const text of [...(nullable ? [] : [""]), "\0", "\ufffd", "\ufeff\ufffe", "\u{10ffff}", "ÿ"]) must(texts.has(text), `no ${JSON.stringify(text)}`);
    if (type === "int64" && name !== "seq") for (const end of ["-9223372036854775808", "9223372036854775807"]) must(texts.has(end), `no ${end}`);
    if (type === "int32") for (const end of [-2147483648, 2147483647]) must(texts.has(end), `no ${end}`);
    if (type === "float") must(texts.has(Math.fround(3.4028234663852886e38)) && texts.has(1.401298464324817e-45), "no largest and smallest number");
    if (type === "double") must(texts.has(Number.MAX_VALUE) && texts.has(Number.MIN_VALUE), "no largest and smallest number");
    if (type === "binary") must(texts.has("") && texts.has("fffe206e6f74205554462d38"), "no bytes that are no text, or no empty ones");
  });
}

// checkHive checks that the folders of a table become a column of dates.
async function checkHive(table) {
  const folders = readdirSync(join(dir, table)).map((name) => basename(name).replace(/^scan_date=/, "")).sort();
  const dates = [...new Set(scans.map((scan) => scan.date))].sort();
  for (const reader of [duckdb, polars]) {
    const [type, found] = await reader.hive(join(dir, table, "*", "*.parquet")).catch((error) => [`nothing: ${error}`, []]);
    if (type !== "Date") fail(`${table}.scan_date: ${reader.name} takes it for ${type}`);
    if (found.join() !== folders.join() || found.some((date) => !dates.includes(date))) fail(`${table}.scan_date: ${reader.name} finds ${found}, there are ${folders}`);
  }
}

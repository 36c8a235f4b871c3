// killed.mjs answers one question: is a killed scan, once resumed, complete and correct? It scans the simulated web
// and kills the scan with SIGKILL when some parts are committed, several times. Then it lets the scan finish. After
// each kill it reads views.sql: every committed row, once, in sites_live while the scan is not complete.
//
//	node killed.mjs DIR BULKSCAN SIMWEB
//
// DIR gets the dataset, and list.txt and truth.jsonl for check.mjs. The exit code is 1 if anything is wrong.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, sep } from "node:path";
import { createInterface } from "node:readline";
import { DuckDBInstance } from "@duckdb/node-api";

const [dir, bulkscan, simweb] = process.argv.slice(2);
if (!simweb) {
  console.error("usage: node killed.mjs DIR BULKSCAN SIMWEB");
  process.exit(2);
}

const HOSTS = 2000;
const PART = 50; // hosts of a part
const KILLS = 4;
const PARTS = 5; // commits before each kill
// These hosts answer the same every time: a resumed scan requests lost sites again.
const BEHAVIOURS = [
  "ok", "ok-chunked", "ok-gzip", "empty", "html", "utf16", "http-only", "not-found", "forbidden", "gone", "tls-expired",
  "tls-12", "legal", "bare-lf", "nxdomain", "no-address", "refuse",
];

mkdirSync(dir, { recursive: true });
const [list, truth, ca, commits] = [join(dir, "list.txt"), join(dir, "truth.jsonl"), join(dir, "ca.pem"), join(dir, "_scans", "killed", "commits")];
writeFileSync(list, Array.from({ length: HOSTS }, (_, i) => `h${i}.${BEHAVIOURS[i % BEHAVIOURS.length]}.zoo.test\n`).join(""));
await ended(spawn(simweb, ["--list", list, "--truth", truth, "--retries", "0", "--trust-ca"], { stdio: "inherit" }));
const web = spawn(simweb, ["--json", "--ca", ca], { stdio: ["ignore", "pipe", "ignore"] });
try {
  const [line] = await once(createInterface({ input: web.stdout }), "line");
  await scans(JSON.parse(line));
} finally {
  web.kill();
}

async function scans({ resolver, connect_to }) {
  const args = [
    "scan", list, "-o", dir, "--scan-id", "killed", "--part-rows", String(PART), "--no-compact", "--resolver", resolver,
    ...connect_to.flatMap((to) => ["--connect-to", to]), "--ca-file", ca, "--allow-private", "--retries", "0",
    "--host-rate", "0", "--ip-rate", "0", "--dns-rate", "0", "--concurrency", "50", "--progress", "none", "--log-level", "warn",
  ];
  for (let kill = 1; kill <= KILLS; kill++) {
    const enough = committed() + PARTS;
    const scan = spawn(bulkscan, args, { stdio: "inherit" });
    const over = once(scan, "exit");
    while (committed() < enough && scan.exitCode === null && scan.signalCode === null) {
      await new Promise((next) => setTimeout(next, 1));
    }
    scan.kill("SIGKILL");
    const [code, signal] = await over;
    if (signal !== "SIGKILL") throw new Error(`kill ${kill}: the scan ended with ${code ?? signal} before ${enough} parts were committed`);
    const rows = await counted("sites_live");
    if (rows < enough * PART || rows >= HOSTS) throw new Error(`kill ${kill}: ${rows} rows are committed`);
    console.log(`killed.mjs: killed with ${committed()} parts and ${rows} rows committed`);
  }
  await ended(spawn(bulkscan, args, { stdio: "inherit" }));
  const rows = await counted("sites");
  if (rows !== HOSTS) throw new Error(`${rows} rows in the end, of ${HOSTS} hosts`);
}

// committed returns the number of commit records. An empty record is a claimed name.
function committed() {
  if (!existsSync(commits)) return 0;
  return readdirSync(commits).filter((file) => file.endsWith(".json") && statSync(join(commits, file)).size > 0).length;
}

// counted returns the number of rows that a view of sites has. Each row must be of another line of the list, and their number
// that of the commit records.
async function counted(view) {
  const db = await (await DuckDBInstance.create(":memory:")).connect();
  await db.run(`SET VARIABLE bulkscan = '${(dir + sep).replaceAll("'", "''")}'`);
  await db.run(readFileSync(join(dir, "views.sql"), "utf8"));
  const [[rows, distinct]] = (await db.runAndReadAll(`SELECT count(*), count(DISTINCT seq) FROM ${view}`)).getRowsJson();
  const recorded = readdirSync(commits).filter((file) => file.endsWith(".json")).map((file) => readFileSync(join(commits, file), "utf8")).filter((text) => text !== "")
    .reduce((n, text) => n + JSON.parse(text).rows, 0);
  if (rows !== distinct || Number(rows) !== recorded) throw new Error(`${view}: ${rows} rows of ${distinct} sites, ${recorded} by the records`);
  const other = view === "sites" ? "sites_live" : "sites";
  const error = await db.runAndReadAll(`SELECT count(*) FROM ${other}`).then(() => "none", String);
  if (!/no complete scan|no scan was under way/.test(error)) throw new Error(`${other} beside ${view}: ${error}`);
  return Number(rows);
}

// ended waits for a process that must succeed.
async function ended(child) {
  const [code, signal] = await once(child, "exit");
  if (code !== 0) throw new Error(`${child.spawnargs.slice(0, 2).join(" ")} ended with ${code ?? signal}`);
}

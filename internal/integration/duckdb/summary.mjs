// summary.mjs answers one question: does `bulkscan summary` agree with SQL? It computes summaries of a scan by each
// definition of blocking, for several selections of tokens, and counts the same in SQL through views.sql: the sites
// that block a token by docs/definitions.md, the reasons, the sites that block one of several tokens, and everything
// that does not depend on tokens.
//
//	node summary.mjs DIR BULKSCAN
//
// Every difference is one line on standard error; the exit code is 1 where there was any.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, sep } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

const [dir, bulkscan] = process.argv.slice(2);
if (!bulkscan) {
  console.error("usage: node summary.mjs DIR BULKSCAN");
  process.exit(2);
}

const MOST_SHOWN = 20; // differences shown; all are counted
const SELECTIONS = [[], ["--category", "all"], ["--category", "all", "--operator", "Google"], ["--purpose", "search"]];

const literal = (text) => `'${String(text).replaceAll("'", "''")}'`;
const run = (...args) => JSON.parse(execFileSync(bulkscan, args, { maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "inherit"] }));
const db = await (await DuckDBInstance.create(":memory:")).connect();
const rows = async (sql) => (await db.runAndReadAll(sql)).getRowObjectsJson();
const one = async (sql) => (await rows(sql))[0];
const inOrder = (pairs) => pairs.sort(([a], [b]) => (a < b ? -1 : 1));

let failures = 0, compared = 0;
function fail(text) {
  if (++failures <= MOST_SHOWN) console.error(`FAIL  ${text.replace(/[^\x20-\x7e]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)}`);
}
function same(what, got, want) {
  compared++;
  if (JSON.stringify(got) !== JSON.stringify(want)) fail(`${what}: the summary has ${JSON.stringify(got)}, DuckDB ${JSON.stringify(want)}`);
}
function near(what, got, want, by) {
  compared++;
  if (got === null || want === null ? got !== want : Math.abs(got - want) > by * Math.max(Math.abs(want), 1e-9)) fail(`${what}: the summary has ${got}, DuckDB ${want}`);
}

// A pair is a site and a token that it blocks, by a definition. `own` is the row of verdicts of a token that is named
// or reached by fallback; `star` is that of *.
const PAIRS = {
  mention: "SELECT seq, token FROM own JOIN ruled USING (seq) WHERE via = 'own'",
  explicit_root: "SELECT seq, token FROM own JOIN ruled USING (seq) WHERE via = 'own' AND NOT root_allowed",
  full: "SELECT seq, unnest(blocked) AS token FROM s WHERE finding = 'rules'",
  any: "SELECT DISTINCT seq, unnest(list_concat(blocked, partial)) AS token FROM s WHERE finding = 'rules'",
  dpi_all: `SELECT star.seq, t.token FROM star JOIN ruled USING (seq) CROSS JOIN known AS t LEFT JOIN own ON own.seq = star.seq AND own.token = t.token
    WHERE coalesce(own.dpi, star.dpi) = 'all'`,
  rfc_effective: `SELECT seq, token FROM s CROSS JOIN known WHERE access = 'full_disallow' AND status IS NOT NULL
    UNION ALL SELECT seq, unnest(blocked) FROM s WHERE status IS NOT NULL`,
};
const OVER = { rfc_effective: "status IS NOT NULL" };

await main();
console.log(failures === 0 ? `DuckDB: the summary agrees, in ${compared} figures` : `DuckDB: ${failures} differences from the summary`);
process.exit(failures === 0 ? 0 : 1);

async function main() {
  await db.run(`SET VARIABLE bulkscan = ${literal(dir + sep)}`);
  await db.run(readFileSync(join(dir, "views.sql"), "utf8"));
  const plain = run("summary", dir, "--json");
  const scan = `scan_id = ${literal(plain.scan_id)}`;
  await db.run(`CREATE TEMP TABLE s AS SELECT * FROM sites WHERE ${scan}`);
  await db.run("CREATE TEMP TABLE ruled AS SELECT seq FROM s WHERE finding = 'rules'");
  await db.run(`CREATE TEMP TABLE star AS SELECT * FROM verdicts WHERE ${scan} AND token = '*'`);
  await db.run(`CREATE TEMP TABLE own AS SELECT * FROM verdicts WHERE ${scan} AND known AND NOT lenient AND token <> '*'`);
  await db.run(`CREATE TEMP TABLE lenient AS SELECT seq, token FROM verdicts WHERE ${scan} AND known AND lenient`);
  await db.run(`CREATE TEMP TABLE stats AS SELECT * FROM token_stats WHERE ${scan} AND segment_kind = 'all' AND known`);
  await db.run("CREATE TEMP TABLE known(token VARCHAR, category VARCHAR, operator VARCHAR, purpose VARCHAR)");
  const values = run("tokens", "--json").map((t) => `(${[t.token, t.category, t.operator, t.purpose].map(literal)})`);
  await db.run(`INSERT INTO known VALUES ${values}`);
  await sites(plain);
  for (const definition of Object.keys(PAIRS)) {
    for (const selection of SELECTIONS) {
      await blocking(definition, run("summary", dir, "--json", "--top", "0", "--definition", definition, ...selection).blocking);
    }
  }
}

// sites compares the figures that do not depend on tokens.
async function sites(got) {
  const want = await one(`SELECT count(*) AS rows, count(*) FILTER (access <> 'unknown') AS asked, count(status) AS answered,
    count(*) FILTER (access = 'conditional') AS conditional, count(*) FILTER (finding = 'rules') AS rules,
    count(*) FILTER (hops > 0 AND access <> 'unknown') AS redirected, count(*) FILTER (is_html) AS html, count(*) FILTER (truncated) AS truncated,
    count(*) FILTER (managed_block) AS managed_block, coalesce(sum(body_bytes), 0)::BIGINT AS body_bytes FROM s`);
  for (const [field, n] of Object.entries(want)) same(field, got[field], Number(n));
  const files = await one(`SELECT coalesce(sum(bytes), 0)::BIGINT AS bytes FROM bulkscan_files WHERE scan_id = ${literal(got.scan_id)} AND NOT ends_with("table", '_stats')`);
  same("dataset_bytes", got.dataset_bytes, Number(files.bytes));
  const counts = {
    findings: ["finding", "true"], outcomes: ["outcome", "true"], access: ["access", "true"], check_status: ["check_status", "access <> 'unknown'"],
    statuses: ["status::VARCHAR", "status IS NOT NULL"], status_classes: ["(status // 100) || 'xx'", "status IS NOT NULL"],
  };
  for (const [field, [expression, where]] of Object.entries(counts)) {
    const found = await rows(`SELECT ${expression} AS value, count(*) AS rows FROM s WHERE ${where} GROUP BY ALL ORDER BY ALL`);
    same(field, inOrder(got[field].map((c) => [c.value, c.rows])), inOrder(found.map((c) => [c.value, Number(c.rows)])));
  }
  const bins = await rows(`SELECT range AS bin, (SELECT count(*) FROM s WHERE access <> 'unknown' AND least(floor(score * 10), 9) = range) AS rows FROM range(10) ORDER BY 1`);
  same("scores", got.scores.map((b) => b.rows), bins.map((b) => Number(b.rows)));
  const { mean, median, p99 } = await one(`SELECT avg(score) FILTER (access <> 'unknown') AS mean,
    quantile_disc(total_ms, 0.5) FILTER (status IS NOT NULL AND total_ms > 0)::DOUBLE AS median,
    quantile_disc(total_ms, 0.99) FILTER (status IS NOT NULL AND total_ms > 0)::DOUBLE AS p99 FROM s`);
  near("mean_score", got.mean_score, mean, 1e-6);
  near("median_ms", got.median_ms, median, 0.025);
  near("p99_ms", got.p99_ms, p99, 0.025);
}

// blocking compares the figures of a definition for some tokens.
async function blocking(definition, got) {
  const about = `by ${definition}, ${[got.category, got.operator, got.purpose].filter((x) => x) || "all tokens"}`;
  const takes = ["category", "operator", "purpose"].filter((f) => got[f]).map((f) => `lower(${f}) = ${literal(got[f].toLowerCase())}`);
  await db.run(`CREATE OR REPLACE TEMP TABLE chosen AS SELECT * FROM known ${takes.length > 0 ? `WHERE ${takes.join(" AND ")}` : ""}`);
  await db.run(`CREATE OR REPLACE TEMP TABLE pairs AS SELECT seq, token, chosen.operator, chosen.purpose,
      CASE WHEN s.access <> 'conditional' THEN 'http' WHEN own.via IS NOT NULL THEN own.via ELSE 'star' END AS via
    FROM (${PAIRS[definition]}) JOIN chosen USING (token) JOIN s USING (seq) LEFT JOIN own USING (seq, token)`);
  const whole = Number((await one(`SELECT count(*) AS n FROM s WHERE ${OVER[definition] ?? "finding = 'rules'"}`)).n);
  const nearest = (via) => `(SELECT count(*) FROM (SELECT min(list_position(['own', 'fallback', 'star', 'http'], via)) AS nearest FROM pairs GROUP BY seq) WHERE nearest = ${via})`;
  const sum = await one(`SELECT (SELECT count(DISTINCT seq) FROM pairs) AS at_least_one,
    ${nearest(1)} AS at_least_one_by_name, ${nearest(2)} AS at_least_one_by_fallback, ${nearest(3)} AS at_least_one_by_star, ${nearest(4)} AS at_least_one_by_http,
    (SELECT count(*) FROM s WHERE finding = 'rules' AND list_has_any(named, (SELECT coalesce(list(token), []) FROM chosen))) AS name_at_least_one,
    (SELECT count(*) FROM s WHERE finding = 'rules' AND star_verdict = 'blocked') AS block_whoever_else,
    (SELECT count(*) FROM chosen) AS tokens_selected, (SELECT count(DISTINCT token) FROM pairs) AS tokens_blocked`);
  same(`${about}: definition`, [got.definition, got.denominator, got.sites], [definition, OVER[definition] ? "sites_answered" : "sites_rules", whole]);
  for (const [field, n] of Object.entries(sum)) same(`${about}: ${field}`, got[field], Number(n));
  for (const property of ["purpose", "operator"]) {
    const found = await rows(`SELECT ${property} AS value, count(DISTINCT seq) AS sites, (SELECT count(*) FROM chosen c WHERE c.${property} = pairs.${property}) AS tokens
      FROM pairs GROUP BY ALL`);
    same(`${about}: by_${property}`, inOrder(got[`by_${property}`].map((g) => [g.value, g.sites, g.tokens])),
      inOrder(found.map((g) => [g.value, Number(g.sites), Number(g.tokens)])));
  }
  const tokens = await rows(`SELECT chosen.token, count(seq) AS sites, count(*) FILTER (via = 'own') AS via_own,
      count(*) FILTER (via = 'fallback') AS via_fallback, count(*) FILTER (via = 'star') AS via_star, count(*) FILTER (via = 'http') AS via_http,
      any_value(stats.mention) AS named, any_value(stats.partial) AS partial, any_value(stats."${definition}") AS stated
    FROM chosen LEFT JOIN pairs USING (token) LEFT JOIN stats ON stats.token = chosen.token GROUP BY ALL`);
  const listed = new Map(got.most_blocked.map((t) => [t.token, t]));
  for (const { token, stated, ...want } of tokens) {
    const have = listed.get(token);
    listed.delete(token);
    if (!have) {
      same(`${about}: ${token}, which is not listed`, 0, Number(want.sites));
    } else {
      for (const [field, n] of Object.entries(want)) same(`${about}: ${token}: ${field}`, have[field], Number(n));
      near(`${about}: ${token}: share`, have.share, Number(want.sites) / whole, 1e-12);
    }
    same(`${about}: ${token}: ${definition} of token_stats`, have?.sites ?? 0, Number(stated));
  }
  const leniently = await rows(`SELECT v.token, count(DISTINCT seq) AS sites, any_value(stats.lenient) AS stated FROM lenient AS v JOIN ruled USING (seq) JOIN chosen USING (token)
    LEFT JOIN stats USING (token) ANTI JOIN (SELECT seq, token FROM own WHERE via = 'own') AS own USING (seq, token) GROUP BY ALL`);
  same(`${about}: lenient`, inOrder(got.lenient.map((t) => [t.token, t.sites, t.sites])), inOrder(leniently.map((t) => [t.token, Number(t.sites), Number(t.stated)])));
  if (listed.size > 0) fail(`${about}: ${[...listed.keys()]} are listed`);
  const order = got.most_blocked.map((t) => t.sites);
  if (order.some((n, i) => n > order[i - 1])) fail(`${about}: the list does not begin with the most blocked`);
}

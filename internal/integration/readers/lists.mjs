// lists.mjs writes lists of sites as DuckDB and Polars write them: of many lengths, with nulls, dictionaries and enumerations. The
// test of package table that has the same rows reads them:
//
//	node lists.mjs DIR && LISTS_WRITTEN=DIR go test -run '^TestWrittenLists$' ./sink/table
//
// With --few it writes the files of sink/table/testdata/lists.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import pl from "nodejs-polars";

// DuckDB is installed with the checks in ../duckdb.
const { DuckDBInstance } = createRequire(new URL("../duckdb/check.mjs", import.meta.url))("@duckdb/node-api");

const [dir, few] = process.argv.slice(2);
if (!dir || (few && few !== "--few")) {
  console.error("usage: node lists.mjs DIR [--few]");
  process.exit(2);
}
mkdirSync(dir, { recursive: true });
const lengths = few ? [1, 33, 1000] : [1, 2, 3, 7, 8, 9, 31, 32, 33, 100, 255, 256, 257, 504, 1000, 1023, 2047, 2048, 2049, 4097, 9999, 10000];

const db = await (await DuckDBInstance.create(":memory:", { threads: "2" })).connect();
const rows = (n) => `SELECT 'h' || i || '.example' AS domain, ['news', 'shop', 'blog'][1 + i % 3] AS label,
  CASE WHEN i % 3 > 0 THEN i + 1 END AS rank, CASE WHEN i % 2 = 0 THEN 'a' END AS half,
  CASE WHEN i % 5 > 0 THEN ['x', 'y'][1 + i % 2] END::ENUM ('x', 'y') AS kind, CASE WHEN i < ${n} // 2 THEN 'b' END AS early,
  NULL::VARCHAR AS never FROM range(${n}) t(i)`;
for (const version of ["v1", "v2"]) {
  for (const n of few ? lengths : [...lengths, 1_000_000]) {
    const path = join(dir, `duckdb-${version}-${n}.parquet`).replaceAll("'", "''");
    await db.run(`COPY (${rows(n)}) TO '${path}' (PARQUET_VERSION ${version}, COMPRESSION ${version === "v1" ? "snappy" : "zstd"})`);
  }
}
for (const compression of few ? ["zstd"] : ["zstd", "snappy", "uncompressed"]) {
  for (const n of few ? lengths.slice(1) : lengths) {
    const of = (value) => Array.from({ length: n }, (_, i) => value(i));
    pl.DataFrame({
      domain: of((i) => `h${i}.example`),
      label: of((i) => ["news", "shop", "blog"][i % 3]),
      rank: pl.Series(of((i) => (i % 3 ? i + 1 : null)), pl.Int64),
      half: pl.Series(of((i) => (i % 2 ? null : "a")), pl.Utf8),
      kind: pl.Series(of((i) => (i % 5 ? ["x", "y"][i % 2] : null)), pl.Utf8).cast(pl.Categorical),
      early: pl.Series(of((i) => (i < Math.floor(n / 2) ? "b" : null)), pl.Utf8),
      never: pl.Series(of(() => null), pl.Utf8),
    }).writeParquet(join(dir, `polars-${compression}-${n}.parquet`), { compression });
  }
}

// Three readers of Parquet that share no code: DuckDB (C++), Polars (Rust) and hyparquet (JavaScript). Each has the
// same functions:
//
//	types(path)        the columns of a file, as [[name, type]], in the words of `bulkscan schema`
//	rows(path, columns) its rows, each a list of values, in the order of the file
//	count(path, c, v)  how many of its rows have a value in a column, by whatever the reader leaves out with the help of
//	                   minimum and maximum
//	hive(pattern)      what the partitions of a table's files are: [type, the distinct values]
//
// Values are spelled so that a reader's habits cannot hide a difference: 64-bit integers and timestamps (in
// milliseconds) as decimal text, since JavaScript numbers have 53 bits; bytes in hexadecimal; structs as objects;
// absent values as null. Users need the same settings for these readers: docs/dataset.md describes them.

import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asyncBufferFromFile, parquetMetadataAsync, parquetQuery, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import pl from "nodejs-polars";

// DuckDB is installed with the checks in ../duckdb.
const { DuckDBInstance } = createRequire(new URL("../duckdb/check.mjs", import.meta.url))("@duckdb/node-api");

// elementOf returns the element type of a list, undefined for other types.
const elementOf = (type) => type.match(/^list<(.*)>$/)?.[1];
// fieldsOf returns the fields of a struct, undefined for other types. No field is a struct or a list.
const fieldsOf = (type) => type.match(/^struct<(.*)>$/)?.[1].split(", ").map((field) => field.split(" "));

// spelled spells a reader's value; plain spells values that are neither lists nor structs.
function spelled(value, type, plain) {
  if (value === null || value === undefined) return null;
  const element = elementOf(type);
  if (element) return Array.from(value, (v) => spelled(v, element, plain));
  const fields = fieldsOf(type);
  if (fields) return Object.fromEntries(fields.map(([name, of]) => [name, spelled(value[name], of, plain)]));
  return plain(value, type);
}

// hyparquet returns the stored values: 64-bit integers as BigInt.
export const hyparquet = {
  name: "hyparquet",

  async types(path) {
    const { schema } = await parquetMetadataAsync(await asyncBufferFromFile(path));
    let at = 1;
    // columnType reads an element of the schema and those below it, which follow it.
    const columnType = () => {
      const e = schema[at++];
      const mark = e.repetition_type === "OPTIONAL" ? "?" : e.repetition_type === "REQUIRED" ? "" : ` ${e.repetition_type}`;
      const kind = [e.type, e.converted_type, ...Object.values(e.logical_type ?? {})].filter((word) => word !== undefined).join(" ");
      if (e.num_children === undefined) return [e.name, (physical[kind] ?? kind) + mark];
      if (kind === "LIST LIST" && e.num_children === 1) {
        const list = schema[at++];
        const [name, of] = columnType();
        if (list.name === "list" && list.repetition_type === "REPEATED" && list.num_children === 1 && name === "element") return [e.name, `list<${of}>${mark}`];
        return [e.name, `a list of ${list.repetition_type} ${list.name}.${name} ${of}`];
      }
      const fields = Array.from({ length: e.num_children }, columnType).map((field) => field.join(" "));
      return [e.name, `struct<${fields.join(", ")}>${kind}${mark}`];
    };
    return Array.from({ length: schema[0].num_children }, columnType);
  },

  async count(path, { name, type }, value) {
    const file = await asyncBufferFromFile(path);
    const metadata = await parquetMetadataAsync(file, { parsers });
    const target = type === "int64" || type.startsWith("timestamp") ? BigInt(value) : value;
    return (await parquetQuery({ file, metadata, compressors, parsers, columns: [name], filter: { [name]: { $eq: target } }, usePageIndex: true })).length;
  },

  async rows(path, columns) {
    const file = await asyncBufferFromFile(path);
    const metadata = await parquetMetadataAsync(file); // it reads all bounds as texts
    const rows = await parquetReadObjects({ file, metadata, compressors, utf8: false, parsers });
    const plain = (value, type) => {
      if (type === "binary") return Buffer.from(value).toString("hex");
      if (typeof value === "bigint") return String(value);
      return value;
    };
    return rows.map((row) => columns.map(({ name, type }) => spelled(row[name], type, plain)));
  },
};

// hyparquet's default decoder drops a U+FEFF at the start of a text and repairs invalid UTF-8.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const parsers = { stringFromBytes: (bytes) => bytes && decoder.decode(bytes), timestampFromMilliseconds: (millis) => millis };

// physical maps the types in a file to ours: physical type, converted type and logical type.
const physical = {
  BOOLEAN: "bool", FLOAT: "float", DOUBLE: "double", BYTE_ARRAY: "binary",
  "BYTE_ARRAY UTF8 STRING": "string",
  "INT32 INT_32 INTEGER 32 true": "int32",
  "INT64 INT_64 INTEGER 64 true": "int64",
  "INT64 TIMESTAMP_MILLIS TIMESTAMP true MILLIS": "timestamp(ms, UTC)",
};

// Polars has no columns that forbid null, so its types have no question marks.
export const polars = {
  name: "Polars",

  async types(path) {
    const names = {
      String: "string", Bool: "bool", Int32: "int32", Int64: "int64", Float32: "float", Float64: "double", "Datetime(ms,UTC)": "timestamp(ms, UTC)",
    };
    const nameOf = (type) => {
      const text = type.toString().replace(/^DataType\((.*)\)$/s, "$1");
      if (type.variant === "List") return `list<${nameOf(type.inner[0])}>`;
      if (type.variant === "Struct") return `struct<${type.fields.map((f) => `${f.name} ${nameOf(f.dtype)}`).join(", ")}>`;
      return names[text] ?? text;
    };
    // nodejs-polars cannot return the type of bytes; a file that Polars writes has it.
    if (hasBytes(path)) return rewritten(path, async (copy) => (await hyparquet.types(copy)).map(([name, type]) => [name, type.replace("?", "").replace(/^INT64$/, "int64")]));
    return Object.entries(pl.readParquet(path).schema).map(([name, type]) => [name, nameOf(type)]);
  },

  async rows(path, columns) {
    if (hasBytes(path)) return rewritten(path, (copy) => hyparquet.rows(copy, columns));
    // nodejs-polars returns numbers cut to 53 bits, but whole texts.
    const exact = { int64: (c) => c.cast(pl.Utf8), "timestamp(ms, UTC)": (c) => c.cast(pl.Int64).cast(pl.Utf8) };
    const frame = pl.readParquet(path).select(...columns.map(({ name, type }) => (exact[type] ?? ((c) => c))(pl.col(name)).alias(name)));
    return frame.toRecords().map((row) => columns.map(({ name, type }) => spelled(row[name], type, (value) => value)));
  },

  async count(path, { name, type }, value) {
    const exact = { int32: pl.Int32, int64: pl.Int64 };
    let target = pl.lit(value);
    if (type in exact) target = target.cast(exact[type]);
    if (type.startsWith("timestamp")) target = target.cast(pl.Int64).cast(pl.Datetime("ms", "UTC"));
    return pl.scanParquet(path).filter(pl.col(name).eq(target)).select(pl.col(name)).collectSync().height;
  },

  async hive(pattern) {
    const frame = pl.scanParquet(pattern, { hivePartitioning: true, tryParseHiveDates: true }).select(pl.col("scan_date")).unique().collectSync();
    const dates = frame.getColumn("scan_date").cast(pl.Utf8).toArray();
    return [frame.schema.scan_date.toString().replace(/^DataType\((.*)\)$/, "$1"), dates.sort()];
  },
};

// hasBytes reports whether a file is of the one table that has a column of bytes.
const hasBytes = (path) => path.includes("/bodies/");

// rewritten has Polars read and write a file, and reads the result.
async function rewritten(path, look) {
  const folder = mkdtempSync(join(tmpdir(), "readers-"));
  try {
    const copy = join(folder, "copy.parquet");
    pl.readParquet(path).writeParquet(copy, { compression: "uncompressed" });
    return await look(copy);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const db = await (await DuckDBInstance.create(":memory:")).connect();
const literal = (text) => `'${text.replaceAll("'", "''")}'`;
const quoted = (name) => `"${name}"`;

// DuckDB has no columns that forbid null, either.
export const duckdb = {
  name: "DuckDB",

  async types(path) {
    const names = {
      VARCHAR: "string", BOOLEAN: "bool", INTEGER: "int32", BIGINT: "int64", FLOAT: "float", DOUBLE: "double", BLOB: "binary", "TIMESTAMP WITH TIME ZONE": "timestamp(ms, UTC)",
    };
    const nameOf = (type) => {
      if (type.endsWith("[]")) return `list<${nameOf(type.slice(0, -2))}>`;
      const fields = type.match(/^STRUCT\((.*)\)$/)?.[1].split(", ");
      if (fields) return `struct<${fields.map((field) => field.match(/^"?(\w+)"? (.*)$/).slice(1)).map(([name, of]) => `${name} ${nameOf(of)}`).join(", ")}>`;
      return names[type] ?? type;
    };
    const columns = await answer(`DESCRIBE SELECT * FROM read_parquet(${literal(path)}, hive_partitioning = false)`);
    return columns.map(([name, type]) => [name, nameOf(type)]);
  },

  async rows(path, columns) {
    // DuckDB's Node binding drops a U+FEFF at the start of a text, so none may be there.
    const exact = {
      int64: (c) => `${c}::VARCHAR`, "timestamp(ms, UTC)": (c) => `epoch_ms(${c})::VARCHAR`, binary: (c) => `lower(hex(${c}))`, string: (c) => `'=' || ${c}`,
    };
    const select = (c, type) => {
      const [element, fields] = [elementOf(type), fieldsOf(type)];
      if (element) return `list_transform(${c}, e -> ${select("e", element)})`;
      if (fields) return `{${fields.map(([name, of]) => `${literal(name)}: ${select(`${c}.${quoted(name)}`, of)}`).join(", ")}}`;
      return (exact[type] ?? ((c) => c))(c);
    };
    const rows = await answer(`SELECT ${columns.map(({ name, type }) => select(quoted(name), type)).join(", ")} FROM read_parquet(${literal(path)}, file_row_number = true, hive_partitioning = false) ORDER BY file_row_number`);
    return rows.map((row) => columns.map(({ type }, i) => spelled(row[i], type, (value, of) => (of === "string" ? value.slice(1) : value))));
  },

  async count(path, { name, type }, value) {
    const target = { string: (v) => `decode(unhex('${Buffer.from(v).toString("hex")}'))`, "timestamp(ms, UTC)": (v) => `epoch_ms(${v})::TIMESTAMP AT TIME ZONE 'UTC'` }[type] ?? String;
    const [[found]] = await answer(`SELECT count(*)::INTEGER FROM read_parquet(${literal(path)}, hive_partitioning = false) WHERE ${quoted(name)} = ${target(value)}`);
    return found;
  },

  async hive(pattern) {
    const rows = await answer(`SELECT DISTINCT typeof(scan_date), scan_date::VARCHAR FROM read_parquet(${literal(pattern)}, hive_partitioning = true) ORDER BY ALL`);
    return [rows[0]?.[0] === "DATE" ? "Date" : rows[0]?.[0], rows.map(([, date]) => date)];
  },
};

async function answer(sql) {
  return (await db.runAndReadAll(sql)).getRowsJson();
}

// versions lists the readers and their versions.
export async function versions() {
  const [[duck]] = await answer("SELECT version()");
  const { dependencies } = createRequire(import.meta.url)("./package.json");
  return `DuckDB ${duck.slice(1)}, nodejs-polars ${dependencies["nodejs-polars"]}, hyparquet ${dependencies.hyparquet}`;
}

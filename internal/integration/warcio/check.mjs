// check.mjs answers one question: does another program read our archives? It opens the output of `bulkscan scan
// --warc-out DIR` with warcio, as an archivist would, and checks every record against its own fields.
//
//	npm install && node check.mjs DIR [LEAST]
//
// There must be at least LEAST responses (default 1). Every difference is one line on standard error; the exit code is
// 1 if there was any.

import { createHash } from "node:crypto";
import { createReadStream, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { WARCParser } from "warcio";

const MOST_SHOWN = 20; // differences shown; all are counted

const [dir, least = "1"] = process.argv.slice(2);
if (!dir) {
  console.error("usage: node check.mjs DIR [LEAST]");
  process.exit(2);
}

let wrong = 0;
function hold(is, where, what) {
  if (is) return;
  if (++wrong <= MOST_SHOWN) console.error(`${where}: ${what}`);
}

// base32 spells bytes as in digests (RFC 4648 §6); a SHA-1 needs no padding.
function base32(bytes) {
  let bits = "";
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  return bits.match(/.{5}/g).map((five) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[parseInt(five, 2)]).join("");
}
const sha1 = (bytes) => "sha1:" + base32(createHash("sha1").update(bytes).digest());

const uuid = /^<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}>$/;
const ids = new Set();
const counts = { files: 0, warcinfo: 0, request: 0, response: 0, truncated: 0, http: 0, redirects: 0 };

// readFile checks the records of one file against each other and their digests.
async function readFile(path) {
  let info, request, n = 0;
  let before = -1;
  const parser = new WARCParser(createReadStream(path), { parseHttp: false });
  for await (const record of parser) {
    const where = `${path}, record ${n++}`;
    const field = (name) => record.warcHeaders.headers.get(name);
    const block = await record.readFully(false);
    const id = field("WARC-Record-ID");
    counts[record.warcType] = (counts[record.warcType] ?? 0) + 1;
    hold(record.warcHeaders.statusline === "WARC/1.1", where, `it begins with ${record.warcHeaders.statusline}`);
    hold(uuid.test(id) && !ids.has(id), where, `its id is ${id}, which is none, or that of another`);
    ids.add(id);
    hold(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(field("WARC-Date")), where, `its date is ${field("WARC-Date")}`);
    hold(Number(field("Content-Length")) === block.length, where, `it has ${block.length} bytes, and says ${field("Content-Length")}`);
    hold(parser.offset > before, where, "it is in no gzip member of its own");
    before = parser.offset;
    if (record.warcType === "warcinfo") {
      hold(n === 1, where, "a warcinfo that is not the first record");
      hold(new TextDecoder().decode(block).startsWith("software: bulkscan/"), where, "it does not say who has written it");
      info = id;
      continue;
    }
    hold(field("WARC-Warcinfo-ID") === info, where, "it refers to another warcinfo");
    hold(field("WARC-Block-Digest") === sha1(block), where, "its block is not what its digest says");
    hold(/^https?:\/\/\S+$/.test(field("WARC-Target-URI")), where, `its target is ${field("WARC-Target-URI")}`);
    const text = Buffer.from(block).toString("latin1");
    if (record.warcType === "request") {
      hold(/^GET \/\S* HTTP\/1\.1\r\n(.*\r\n)*Host: /.test(text) && text.endsWith("\r\n\r\n"), where, `it is no request: ${JSON.stringify(text.slice(0, 80))}`);
      request = { id, uri: field("WARC-Target-URI"), answer: field("WARC-Concurrent-To") };
      continue;
    }
    hold(record.warcType === "response", where, `it is a ${record.warcType}`);
    hold(request?.id === field("WARC-Concurrent-To") && request?.answer === id && request?.uri === field("WARC-Target-URI"), where, "it does not belong to the request before it");
    hold(/^[0-9a-f.:]+$/.test(field("WARC-IP-Address") ?? ""), where, "it has no address");
    const truncated = field("WARC-Truncated");
    hold(truncated === undefined || truncated === null || ["length", "time", "disconnect"].includes(truncated), where, `it is truncated by ${truncated}`);
    if (truncated) counts.truncated++;
    const end = /\r?\n\r?\n/.exec(text);
    const payload = end ? block.subarray(end.index + end[0].length) : new Uint8Array();
    hold(field("WARC-Payload-Digest") === sha1(payload), where, "its payload is not what its digest says");
    if (field("Content-Type") === "application/http; msgtype=response") counts.http++;
    if (/^HTTP\/1\.[01] 30[1278]/.test(text)) counts.redirects++;
  }
  hold(info !== undefined, path, "no warcinfo");
}

// readAnswers reads the responses as HTTP, as most readers of archives do. warcio takes every response for HTTP. Of
// others, as their Content-Type says, it complains that they are too small, and continues.
async function readAnswers(path) {
  let read = 0;
  for await (const record of new WARCParser(createReadStream(path))) {
    if (record.warcType !== "response" || !record.httpHeaders) continue;
    if (/^HTTP\/\d\.\d \d{3}/.test(record.httpHeaders.statusline)) read++;
    await record.readFully(false);
  }
  return read;
}

let answers = 0;
for (const name of readdirSync(dir).filter((name) => name.endsWith(".warc.gz")).sort()) {
  const path = join(dir, name);
  counts.files++;
  hold(statSync(path).size > 0, path, "it is empty");
  await readFile(path);
  answers += await readAnswers(path);
}
hold(counts.response >= Number(least), dir, `${counts.response} responses, fewer than ${least}`);
hold(answers === counts.http, dir, `${answers} of ${counts.http} HTTP responses could be read`);
console.log(`warcio: ${Object.entries(counts).map(([what, n]) => `${n} ${what}`).join(", ")}; ${answers} of them read`);
if (wrong > 0) {
  console.error(`${wrong} differences`);
  process.exit(1);
}

// named.mjs answers one question: how many sites name an AI crawler, night after night? It asks the views of a dataset that bulkscan
// import has made, with files as last seen to change, and writes README's picture and its figures.
//
//	node named.mjs DIR FOLDER

import { writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

const [dir, folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node named.mjs DIR FOLDER");
  process.exit(2);
}
const TOKENS = ["GPTBot", "CCBot", "Google-Extended", "ClaudeBot"];

const connection = await (await DuckDBInstance.create(":memory:")).connect();
process.chdir(dir);
await connection.run(readFileSync("views.sql", "utf8"));
const rows = [];
for (const token of TOKENS) {
  const reader = await connection.runAndReadAll(
    `SELECT CAST(night AS VARCHAR), named, by_star, "of" FROM blocked_over_time('${token}', as_last_seen := true) ORDER BY night`);
  for (const [night, named, byStar, of] of reader.getRows()) rows.push({ night, token, named: Number(named), byStar: Number(byStar), of: Number(of) });
}
rows.sort((a, b) => (a.night < b.night ? -1 : a.night > b.night ? 1 : TOKENS.indexOf(a.token) - TOKENS.indexOf(b.token)));
writeFileSync(join(folder, "named.csv"), "night,token,named,by_star,of\n" + rows.map((r) => [r.night, r.token, r.named, r.byStar, r.of].join(",") + "\n").join(""));

// The picture: a line a token, named at its end, and a dashed one of the sites that block GPTBot by `*` alone.
const WIDTH = 900, HEIGHT = 420, LEFT = 44, RIGHT = 210, TOP = 92, BOTTOM = 64;
const nights = [...new Set(rows.map((r) => r.night))];
const day = (night) => Date.parse(night) / 86400000;
const [first, last] = [nights[0], nights.at(-1)];
const top = 20 * Math.ceil(Math.max(...rows.map((r) => r.named)) / 20);
const x = (night) => +(LEFT + ((day(night) - day(first)) / (day(last) - day(first))) * (WIDTH - LEFT - RIGHT)).toFixed(1);
const y = (n) => +(HEIGHT - BOTTOM - (n / top) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
const text = (at, down, what, more = "") => `<text x="${at}" y="${down}"${more}>${what}</text>`;
const end = (token) => rows.findLast((r) => r.token === token);
const path = (token, of) => rows.filter((r) => r.token === token).map((r, i) => `${i ? "L" : "M"}${x(r.night)} ${y(of(r))}`).join("");
const lines = [
  ...TOKENS.map((token, i) => ({ name: token, n: end(token).named, d: path(token, (r) => r.named), class: `l${i}` })),
  { name: "block GPTBot by * alone", n: end("GPTBot").byStar, d: path("GPTBot", (r) => r.byStar), class: "star" },
].sort((a, b) => b.n - a.n);
let above = -Infinity; // labels do not overlap
for (const line of lines) above = line.at = Math.max(y(line.n) + 5, above + 18);
const ticks = nights.filter((night, i) => i === 0 || night.slice(0, 7) !== nights[i - 1].slice(0, 7)).filter((night) => ["01", "04", "07", "10"].includes(night.slice(5, 7)));
const gpt = end("GPTBot");
const headline = `${gpt.named} of ${gpt.of} popular sites name GPTBot within a year of its announcement`;
writeFileSync(join(folder, "named.svg"), `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="title description">
<title id="title">${headline}</title>
<desc id="description">${lines.map((l) => `${l.name} ${l.n}`).join(", ")}, on ${last}</desc>
<style>
text { font: 14px system-ui, sans-serif; fill: #1f2933 } .head { font-size: 20px; font-weight: 600 } .small { font-size: 12px; fill: #52606d }
path { fill: none; stroke-width: 2.5 } .axis { stroke: #c9ced6; stroke-width: 1 } rect { fill: #fff }
.l0 { stroke: #0b4f8a } .l1 { stroke: #b45309 } .l2 { stroke: #007a5e } .l3 { stroke: #9c3d7a } .star { stroke: #52606d; stroke-width: 1.5; stroke-dasharray: 5 4 }
</style>
<rect width="${WIDTH}" height="${HEIGHT}"/>
${text(16, 32, headline, ' class="head"')}
${text(16, 54, `Sites that name a crawler in a group of their own, of those with rules, as last seen to change`)}
${text(16, 74, `Source: git archive bharath06/robotstxt, 805 popular sites, ${first} to ${last}; figures: named.csv`, ' class="small"')}
${[0, 1, 2, 3, 4].map((i) => { const n = (top / 4) * i; return `<path class="axis" d="M${LEFT} ${y(n)}H${WIDTH - RIGHT}"/>${text(LEFT - 8, y(n) + 4, n, ' class="small" text-anchor="end"')}`; }).join("\n")}
${ticks.map((night) => text(x(night), HEIGHT - BOTTOM + 20, night.slice(0, 7), ' class="small" text-anchor="middle"')).join("\n")}
${lines.map((l) => `<path class="${l.class}" d="${l.d}"/>${text(WIDTH - RIGHT + 8, l.at, `${l.name} ${l.n}`)}`).join("\n")}
${text(16, HEIGHT - 14, "What the archive carried forward is no observation: a site keeps its last seen file, also while it could not be fetched.", ' class="small"')}
</svg>
`);

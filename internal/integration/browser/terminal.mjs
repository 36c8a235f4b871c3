// terminal.mjs answers one question: how does a page of bulkscan look on a terminal? It draws coloured text as SVG.
//
//	bulkscan check robots.txt --color always | node terminal.mjs 'bulkscan check robots.txt' LINES > FILE

import { text } from "node:stream/consumers";

const MOST_BYTES = 30_000; // of a picture
const WIDTH = 8.43; // of a column: the common monospaced fonts have 0.60 times their size
const HEIGHT = 19; // of a line
const MARGIN = 16;
const COLUMNS = 100; // of a page of bulkscan that is no terminal's
const CLASSES = { 1: "bold", 2: "dim", 31: "red", 32: "green", 33: "yellow" };
const STYLE = `
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
rect { fill: #f6f8fa; stroke: #d1d9e0 } .bold { font-weight: bold } .dim { fill: #59636e }
.red { fill: #d1242f } .green { fill: #1a7f37 } .yellow { fill: #9a6700 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } rect { fill: #161b22; stroke: #30363d } .dim { fill: #9198a1 }
  .red { fill: #ff7b72 } .green { fill: #3fb950 } .yellow { fill: #d29922 }
}`;

const [command, most] = process.argv.slice(2);
if (!most) {
  console.error("usage: node terminal.mjs COMMAND LINES < TEXT > FILE");
  process.exit(2);
}
const escaped = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// Words that stand apart have a place each, so that columns are straight in every font.
function draw(line, row) {
  const y = MARGIN + HEIGHT * row + 14;
  let out = "";
  let column = 0;
  let style = "";
  for (const piece of line.split(/(\x1b\[\d+m)/)) {
    const code = piece.match(/^\x1b\[(\d+)m$/);
    if (code) {
      style = CLASSES[code[1]] ? ` class="${CLASSES[code[1]]}"` : "";
      continue;
    }
    for (const { 0: words, index } of piece.matchAll(/\S+(?: \S+)*/g)) {
      const x = MARGIN + WIDTH * (column + [...piece.slice(0, index)].length);
      out += `<text x="${+x.toFixed(1)}" y="${y}"${style}>${escaped(words)}</text>\n`;
    }
    column += [...piece].length;
  }
  return out;
}

const all = (await text(process.stdin)).trimEnd().split("\n");
const shown = [`\x1b[2m$\x1b[0m \x1b[1m${command}\x1b[0m`, ...all.slice(0, +most), ...(all.length > +most ? ["\x1b[2m…\x1b[0m"] : [])];
const width = Math.ceil(2 * MARGIN + WIDTH * COLUMNS);
const height = 2 * MARGIN + HEIGHT * shown.length;
const picture = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escaped(command)}</title>
<style>${STYLE}
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6"/>
${shown.map(draw).join("")}</svg>
`;
if (Buffer.byteLength(picture) > MOST_BYTES) {
  console.error(`the picture has ${Buffer.byteLength(picture)} bytes, more than ${MOST_BYTES}: show fewer lines`);
  process.exit(1);
}
process.stdout.write(picture);

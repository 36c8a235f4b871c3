// The page reads whole without this script. It adds: the choice of a theme, the state of the page in its address, figures as files and
// quotations, tables that sort and filter, and folds that open for links and for printing.
"use strict";
const form = document.querySelector(".controls form");
const theme = document.querySelector(".theme");
theme.hidden = false;

// The address ends with #SECTION;definition=NAME;theme=NAME, each part only where it is not the usual one.
const usual = form.elements.definition.value;
function parts() {
  let text = location.hash.slice(1);
  try {
    text = decodeURIComponent(text);
  } catch {
    // Not an address that this page has made.
  }
  const [section, ...rest] = text.split(";");
  return { section, ...Object.fromEntries(rest.map((part) => part.split("="))) };
}
function keep(section) {
  const { definition, theme: tone } = form.elements;
  let hash = "#" + section;
  if (definition.value !== usual) hash += ";definition=" + definition.value;
  if (tone.value) hash += ";theme=" + tone.value;
  history.replaceState(null, "", hash);
}
function show() {
  if (form.elements.theme.value) document.documentElement.dataset.theme = form.elements.theme.value;
  else delete document.documentElement.dataset.theme;
  for (const v of document.querySelectorAll(".v")) v.classList.toggle("on", v.classList.contains("v-" + form.elements.definition.value));
}
function restore() {
  const state = parts();
  for (const name of ["definition", "theme"]) {
    for (const input of form.elements[name]) if (input.value === (state[name] ?? (name === "definition" ? usual : ""))) input.checked = true;
  }
  show();
  go(state.section);
}
// go shows a section. Keys go on from there.
function go(section) {
  const target = document.getElementById(section);
  if (!target) return;
  for (const fold of target.querySelectorAll(":scope > .fold")) fold.open = true;
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.scrollIntoView();
}
form.addEventListener("change", () => { show(); keep(parts().section ?? ""); });
addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  keep(link.hash.slice(1));
  go(link.hash.slice(1));
});
addEventListener("hashchange", restore);
if (location.hash) restore();

// On a narrow screen the list of sections is folded.
const narrow = matchMedia("(max-width: 1000px)");
const fold = () => { document.querySelector("nav details").open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();

// Tables sort by a click on a column's name, are saved as CSV, and longer ones filter.
// cells returns a function that reads a cell as a file has it: shares with six digits, numbers without commas, null as nothing, texts so
// that no spreadsheet runs them.
function cells(table) {
  const heads = [...table.tHead.rows[0].cells];
  return function value(row, column) {
    const exact = row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
    if (exact === "–") return "";
    if (heads[column].classList.contains("t")) return exact;
    return exact.replaceAll(",", "");
  };
}
// compare orders numbers by value and texts, as which dates count, by their characters. Nothing comes before all else.
function compare(a, b, text) {
  if (!text && a !== "" && b !== "") return a - b;
  return a < b ? -1 : a > b ? 1 : 0;
}
function csv(table) {
  const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.v ?? cell.textContent);
  const value = cells(table);
  return [names, ...[...table.tBodies[0].rows].map((row) => names.map((_, column) => value(row, column)))].map((row) => row.map(quoted).join(",") + "\n").join("");
}
function save(name, type, content) {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.click();
  URL.revokeObjectURL(link.href);
}
function button(text, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    head.dataset.v ??= head.textContent;
    head.replaceChildren(button(head.textContent, () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = cells(table);
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      rows.sort(([a], [b]) => compare(a, b, head.classList.contains("t")) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    }));
  });
  const tools = document.createElement("p");
  tools.className = "tools";
  tools.append(button("Save as CSV", () => save(table.dataset.file, "text/csv", csv(table))));
  if (body.rows.length > 15) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.className = "filter";
    filter.placeholder = "Filter rows";
    filter.setAttribute("aria-label", "Filter rows of " + table.caption.textContent);
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    tools.append(filter);
  }
  table.parentElement.before(tools);
}

// A figure leaves the page as it is seen: each mark and each line of text where it stands, with its own colours and fonts.
const pen = document.createElement("canvas").getContext("2d");
function picture(section) {
  const shown = [...section.querySelectorAll("h2, .sub, figure, .caveat")].filter((part) => part.checkVisibility() && !part.closest(".tools"));
  const frame = section.getBoundingClientRect();
  const bottom = Math.max(...shown.map((part) => part.getBoundingClientRect().bottom));
  const [left, top, width, height] = [frame.left - 16, frame.top, frame.width + 32, bottom - frame.top + 40];
  const xml = document.implementation.createDocument(document.querySelector("svg").namespaceURI, "svg");
  const root = xml.documentElement;
  const add = (name, attributes, text = "", parent = root) => {
    const made = parent.appendChild(xml.createElementNS(root.namespaceURI, name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, typeof value === "number" ? value.toFixed(1) : value);
    made.textContent = text;
    return made;
  };
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif" })) root.setAttribute(key, value);
  const heading = shown[0].textContent;
  add("title", {}, heading);
  for (const pattern of document.querySelectorAll("pattern")) {
    const { id, width, height, patternUnits, patternTransform } = Object.fromEntries([...pattern.attributes].map((a) => [a.name, a.value]));
    const copy = add("pattern", { id, width, height, patternUnits, patternTransform });
    for (const rect of pattern.children) add("rect", { width: rect.getAttribute("width"), height: rect.getAttribute("height"), fill: getComputedStyle(rect).fill }, "", copy);
  }
  add("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  const draw = (element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (element.namespaceURI !== root.namespaceURI) {
      if (element.closest("td") && style.backgroundColor !== "rgba(0, 0, 0, 0)") add("rect", { x: box.left - left, y: box.top - top, width: box.width, height: box.height, fill: style.backgroundColor });
    } else if (element.getBBox && /^(rect|circle|line|path)$/.test(element.tagName)) {
      const { a, d, e, f } = element.getScreenCTM();
      const [x, y] = [(at) => at * a + e - left, (at) => at * d + f - top];
      const inner = element.getBBox();
      const at = { rect: { x: x(inner.x), y: y(inner.y), width: inner.width * a, height: inner.height * d },
        circle: { cx: x(inner.x + inner.width / 2), cy: y(inner.y + inner.height / 2), r: inner.width / 2 },
        line: { x1: x(inner.x), x2: x(inner.x + inner.width), y1: y(inner.y), y2: y(inner.y + inner.height) },
        path: { d: (element.getAttribute("d") ?? "").replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, px, py) => `${x(+px).toFixed(1)} ${y(+py).toFixed(1)}`) } }[element.tagName];
      add(element.tagName, { ...at, fill: style.fill.replaceAll('"', ""), stroke: style.stroke, "stroke-width": style.strokeWidth, "stroke-dasharray": style.strokeDasharray });
    }
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE && node.checkVisibility() && !node.matches("details, title, desc")) draw(node);
      if (node.nodeType === Node.TEXT_NODE && !element.matches("svg, g, figure, ul, tr, tbody, thead, table")) write(node, style);
    }
  };
  // write writes a text, one element a line, on the baseline of its font.
  const write = (node, style) => {
    const lines = new Map();
    const upright = style.writingMode !== "horizontal-tb";
    for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const box = range.getBoundingClientRect();
      const key = upright ? box.left : box.top;
      lines.set(key, { box: lines.get(key)?.box ?? box, text: (lines.has(key) ? lines.get(key).text + " " : "") + word });
    }
    const svg = node.parentElement.namespaceURI === root.namespaceURI;
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const rise = pen.measureText("x").fontBoundingBoxAscent;
    for (const { box, text } of lines.values()) {
      const [x, y] = upright ? [box.left - left + rise, box.bottom - top] : [box.left - left, box.top - top + rise];
      add("text", { ...(upright ? { transform: `translate(${x} ${y}) rotate(-90)` } : { x, y }), fill: svg ? style.fill : style.color, "font-size": style.fontSize, "font-weight": style.fontWeight }, text);
    }
  };
  shown.forEach(draw);
  add("text", { x: 16, y: height - 12, fill: getComputedStyle(shown[0]).color, "font-size": "12px" }, "Source: " + document.body.dataset.source);
  return { text: new XMLSerializer().serializeToString(root), width, height };
}
async function png({ text, width, height }) {
  const image = new Image();
  image.src = "data:image/svg+xml," + encodeURIComponent(text);
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
// quotation is one sentence: the finding, of which sites, by which definition, of which date, and the source.
function quotation(section) {
  const [headline, sub] = ["h2", ".sub"].map((name) => [...section.querySelectorAll(name)].find((part) => part.checkVisibility()).textContent.trim());
  return `${headline} (${sub}; source: ${document.body.dataset.source}).`;
}
for (const tools of document.querySelectorAll(".figure > .tools, .fold > .tools")) {
  const section = tools.closest("section");
  const table = section.querySelector("table[data-file]");
  tools.prepend(
    ...(section.querySelector("figure") ? [button("SVG", () => save(section.id + ".svg", "image/svg+xml", picture(section).text)),
      button("PNG", async () => save(section.id + ".png", "image/png", await png(picture(section))))] : []),
    ...(table ? [button("CSV", () => save(table.dataset.file, "text/csv", csv(table)))] : []),
    button("Quote", () => {
      const quote = tools.querySelector(".quote") ?? tools.appendChild(document.createElement("p"));
      [quote.className, quote.role, quote.textContent] = ["quote", "status", quotation(section)];
      navigator.clipboard?.writeText(quote.textContent).catch(() => {}); // it stands there to be copied, too
    }),
  );
}

// Printed, a page has no folds.
addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });

// A table with data-filter can show alone the rows that have one value in that column.
for (const table of document.querySelectorAll("table[data-filter]")) {
  const rows = [...table.tBodies[0].rows];
  const column = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent === table.dataset.filter);
  const value = (row) => row.cells[column].textContent.trim();
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Rows by " + table.dataset.filter);
  select.append(new Option("every " + table.dataset.filter, ""), ...[...new Set(rows.map(value))].sort().map((text) => new Option(text)));
  select.addEventListener("change", () => { for (const row of rows) row.style.display = ["", value(row)].includes(select.value) ? "" : "none"; });
  if (select.length > 2) table.parentElement.previousElementSibling.append(select);
}

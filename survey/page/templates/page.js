// The page reads whole without this script. It adds: the choice of a theme, the state of the page in its address, tables that
// sort and filter, and folds that open for printing.
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

// The list of sections marks the one in view.
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70%" });
for (const section of document.querySelectorAll("main section")) seen.observe(section);

// Tables sort by a click on a column's name, are saved as CSV, and longer ones filter.
// cells returns a function that reads a cell as a file has it: shares with every digit, numbers without commas, null as nothing,
// texts so that no spreadsheet runs them.
function cells(table) {
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map((head) => head.textContent);
  const [blocking, of] = [names.indexOf("blocking"), names.indexOf("of")];
  return function value(row, column) {
    const exact = row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
    if (exact === "–") return "";
    if (heads[column].classList.contains("t")) return exact;
    if (names[column] === "share" && blocking >= 0 && of >= 0) return String(value(row, blocking) / value(row, of));
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
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = cells(table);
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      rows.sort(([a], [b]) => compare(a, b, head.classList.contains("t")) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  });
  const tools = document.createElement("p");
  tools.className = "tools";
  const save = document.createElement("button");
  save.type = "button";
  save.textContent = "Save as CSV";
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.download = table.dataset.file;
    link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
    link.click();
    URL.revokeObjectURL(link.href);
  });
  tools.append(save);
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

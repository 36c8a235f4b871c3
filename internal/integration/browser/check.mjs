// check.mjs answers one question: does a report page do in a browser what readers are promised? It opens pages that
// `bulkscan report` has written in Chromium, reads and uses them with and without their script, by mouse and by keyboard, on
// screens of three widths and on paper, and lets axe-core judge them.
//
//	npm install && node check.mjs PAGE...
//
// CHROMIUM is the browser's program (default /usr/bin/chromium). Every fault is one line on standard error; the exit code is 1
// if there was any.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const MOST_SHOWN = 10; // faults shown of a check; all are counted
const MOST_ROWS = 10; // rows of a table that axe-core judges: all are made alike
const WIDTHS = [390, 1280, 2560];
const MOST_FIGURES = 5; // of the story
const MOST_STORY = 4000; // pixels to its end, on a screen of 1,280
const PAPER = { width: 718, height: 1047 }; // A4 within margins of 10 mm, in CSS pixels

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error("usage: node check.mjs PAGE...");
  process.exit(2);
}
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let wrong = 0;
let shown = 0;
let where = "";
function hold(is, what) {
  if (is) return;
  wrong++;
  if (++shown <= MOST_SHOWN) console.error(`${where}: ${what}`);
}
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// open shows a page in a browser of its own, and holds that it complains of nothing and asks for nothing else.
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  page.on("console", (message) => hold(!["error", "warning"].includes(message.type()), `the console says ${message.text()}`));
  page.on("pageerror", (error) => hold(false, `the script fails: ${error.message}`));
  page.on("request", (request) => hold(request.url().split("#")[0] === url.split("#")[0] || request.url() === "about:blank" || request.url().startsWith("blob:"), `the page asks for ${request.url()}`));
  await page.goto(url, { waitUntil: "load" });
  return page;
}
const close = (page) => page.context().close();

// unfold opens all folds.
const unfold = (page) => page.evaluate(() => { for (const fold of document.querySelectorAll("details")) fold.open = true; });

// seen returns what a reader sees of the definition: the one chosen, the variants shown, and headlines.
const seen = (page) =>
  page.evaluate(() => {
    const shown = [...document.querySelectorAll(".v")].filter((v) => v.checkVisibility());
    return {
      chosen: document.querySelector("[name=definition]:checked").value,
      definitions: [...new Set(shown.flatMap((v) => [...v.classList].filter((name) => name.startsWith("v-"))))],
      switched: [...document.querySelectorAll("section:has(h2.v)")].map((section) => shown.filter((v) => v.matches("h2") && section.contains(v)).length),
      answer: shown.filter((v) => v.matches(".answer")).map((v) => v.textContent).join("|"),
      headline: shown.filter((v) => v.matches("#tokens h2")).map((v) => v.textContent).join("|"),
    };
  });

// holdSwitch holds that one variant of each figure is shown: that of the chosen definition.
function holdSwitch(state, name) {
  hold(state.chosen === name, `the definition ${name} was chosen, and ${state.chosen} is`);
  hold(same(state.definitions, ["v-" + name]), `by ${name} the page shows ${state.definitions}`);
  hold(state.switched.every((n) => n === 1), `by ${name} the sections show ${state.switched} variants`);
}

async function opens(url) {
  const begun = performance.now();
  const page = await open(url);
  const wall = performance.now() - begun;
  const load = await page.evaluate(() => performance.getEntriesByType("navigation")[0].loadEventEnd);
  await close(page);
  return { load: Math.round(load), wall: Math.round(wall) };
}

// policy holds that the page's policy refuses what a page could be made to contain.
async function policy(url) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url);
  const refused = await page.evaluate(async () => {
    const seen = [];
    addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
    const script = document.createElement("script");
    script.textContent = "document.title = 'injected'";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", '<p id="styled" style="color: rgb(1, 2, 3)" onclick="document.title = `injected`">x</p><img src="https://injected.test/">');
    document.getElementById("styled").click();
    await new Promise((done) => setTimeout(done, 100));
    return { seen, colour: getComputedStyle(document.getElementById("styled")).color, title: document.title };
  });
  for (const directive of ["script-src-elem", "script-src-attr", "style-src-attr", "img-src"]) {
    hold(refused.seen.includes(directive), `the policy lets ${directive} in: it has refused ${refused.seen}`);
  }
  hold(refused.title !== "injected" && refused.colour !== "rgb(1, 2, 3)", "an injected script or style works");
  await context.close();
}

// NOTATION is what a page must not show of its own: escapes, references that were escaped twice, directives, and values without a
// text.
const NOTATION = /\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\x[0-9a-f]{2}|\\[nrt]|&(?:[a-z]{2,8}|#x?[0-9a-f]+);|%!|\{\{|\}\}|<nil>|\bNaN\b|\bInfinity\b|\[object |\ufffd/i;

// reads holds that no text that the page shows, in any state, is notation. Hostile sites write such texts themselves, and MARK behind
// them: TestShownPages of cmd/bulkscan reads their pages, and knows their texts.
async function reads(url) {
  const page = await open(url);
  await unfold(page);
  for (const name of await definitions(page)) {
    await page.locator("#d-" + name).evaluate((input) => input.click());
    const texts = await page.evaluate(() => {
      const all = [document.title];
      const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      for (let node = walk.nextNode(); node; node = walk.nextNode()) if (!node.parentElement.closest("script, style, details.sql pre")) all.push(node.data);
      for (const element of document.querySelectorAll("[title], [aria-label], [placeholder]")) all.push(element.title || "", element.ariaLabel || "", element.placeholder || "");
      return all;
    });
    if (texts.some((text) => /\bmark\b/i.test(text))) break;
    for (const text of texts) hold(!NOTATION.test(text), `${name}: the page shows ${text.slice(0, 80)}`);
  }
  await close(page);
}

// still holds that the page reads whole without its script.
async function still(url) {
  const page = await open(url, { javaScriptEnabled: false });
  holdSwitch(await seen(page), "full");
  const missing = await page.evaluate(() => [...document.querySelectorAll("nav a")].filter((link) => !document.querySelector(link.hash)?.checkVisibility()).map((link) => link.hash));
  hold(missing.length === 0, `without script the sections ${missing} are missing`);
  const figures = await page.evaluate(() => document.querySelectorAll(".figure").length + [...document.querySelectorAll("#missing li")].flatMap((reason) => reason.textContent.split(", since ")[0].split(", ")).length);
  hold(figures >= 20, `${figures} figures are shown or said not to be`);
  const empty = await page.locator(".figure:not(:has(figure, table.data))").evaluateAll((sections) => sections.map((section) => section.id));
  hold(empty.length === 0, `the sections ${empty} show nothing`);
  hold(!(await page.locator(".theme").isVisible()), "without script there is a switch of themes, which does nothing");
  for (const name of await definitions(page)) {
    await page.locator(`label:has(#d-${name})`).click();
    holdSwitch(await seen(page), name);
  }
  const fold = page.locator("main details:not([open]) summary:visible").first();
  const section = await fold.evaluateHandle((fold) => fold.parentElement);
  await fold.click();
  hold(await section.evaluate((details) => details.open), "without script a fold does not open");
  await close(page);
}

const definitions = (page) => page.locator("[name=definition]").evaluateAll((inputs) => inputs.map((input) => input.value));

// switches holds that the definition and the theme change the page and stay in its address.
async function switches(url) {
  const page = await open(url);
  const states = {};
  for (const name of await definitions(page)) {
    await page.locator(`label:has(#d-${name})`).click();
    states[name] = await seen(page);
    holdSwitch(states[name], name);
    await page.reload();
    hold(same(await seen(page), states[name]), `after a reload the page by ${name} is another`);
  }
  if (states.full.headline && !states.full.headline.endsWith("too few sites for a headline")) { // whatever the definition
    for (const part of ["answer", "headline"]) hold(states.full[part] !== states.mention[part], `full and mention have the same ${part}`);
  }
  await page.locator("label:has(#d-any)").click();
  await page.locator("nav a[href='#method']").click();
  hold(same(await seen(page), states.any), "a link to a section changes the definition");
  hold(await page.locator("#method > .fold").evaluate((fold) => fold.open), "a link to a section does not open it");
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  hold(same(await seen(page), states.any), "the skip link changes the definition");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const [auto, light] = [await ground(), await theme("light")];
  async function theme(name) {
    await page.locator(`.theme label:has([value=${name}])`).click();
    return ground();
  }
  const dark = await theme("dark");
  hold(auto === light && light !== dark, `the grounds are ${auto}, light ${light}, dark ${dark}`);
  await page.reload();
  hold((await ground()) === dark && same(await seen(page), states.any), "after a reload theme or definition is another");
  await page.emulateMedia({ colorScheme: "dark" });
  await theme("light");
  hold((await ground()) === light, "a dark system cannot show the page light");
  for (const hash of ["#%", "#%E0%A4%A;definition=%", "#nowhere;definition=none;theme", "#;definition=constructor"]) {
    await page.goto("about:blank"); // another hash alone does not load the page anew
    await page.goto(url + hash);
  }
  await close(page);
}

// sorts clicks twice on the name of each column, and returns the rows before and after each click, with their exact values.
const sorts = (table) =>
  table.evaluate((table) => {
    const heads = [...table.tHead.rows[0].cells];
    const names = heads.map((head) => head.dataset.v ?? head.textContent);
    const rows = () =>
      [...table.tBodies[0].rows].map((row) => {
        const values = [...row.cells].map((cell, i) => {
          const value = cell.dataset.v ?? cell.textContent.trim();
          return value === "–" ? "" : heads[i].classList.contains("t") ? value : value.replaceAll(",", "");
        });
        return values;
      });
    const clicked = (head) => {
      head.querySelector("button").click();
      return { marked: heads.map((head) => head.getAttribute("aria-sort") ?? "").join(""), rows: rows() };
    };
    const before = rows();
    return { names, before, columns: heads.map((head) => ({ number: !head.classList.contains("t"), descending: clicked(head), ascending: clicked(head) })) };
  });

// parsed reads CSV (RFC 4180) whose lines end with a line feed.
function parsed(csv) {
  const rows = [[]];
  for (const [, quoted, plain, end] of csv.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))([,\n])/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === "\n") rows.push([]);
  }
  return rows.slice(0, -1);
}

// tables holds that every table sorts by each column, both ways, filters, and is saved as it is, without formulas.
async function tables(url) {
  const page = await open(url, { acceptDownloads: true });
  await unfold(page);
  for (const table of await page.locator("table.data:visible").all()) {
    const about = await table.locator("caption").textContent();
    const { names, before, columns } = await sorts(table);
    const sorted = (rows) => rows.map((row) => JSON.stringify(row)).sort();
    for (const [i, column] of columns.entries()) {
      for (const direction of ["descending", "ascending"]) {
        const { marked, rows } = column[direction];
        hold(marked === direction, `table ${about}, column ${i} is marked ${marked}, not ${direction}`);
        const values = rows.map((row) => row[i]).filter((value) => value !== "");
        const ordered = (a, b) => (column.number ? Number(a) <= Number(b) : a <= b);
        hold(values.every((value, n) => n === 0 || (direction === "ascending" ? ordered(values[n - 1], value) : ordered(value, values[n - 1]))), `table ${about}, column ${i} is not ${direction}: ${values.slice(0, 8)}`);
        hold(same(sorted(before), sorted(rows)), `table ${about}: sorting changes rows`);
      }
    }
    const tools = page.locator(".tools", { has: page.locator("button") }).and(table.locator("xpath=../preceding-sibling::p[1]"));
    await page.waitForTimeout(100); // Chromium drops what a page saves beyond ten files a second
    const [download] = await Promise.all([page.waitForEvent("download"), tools.getByRole("button", { name: "Save as CSV" }).click()]);
    hold(download.suggestedFilename().endsWith(".csv"), `table ${about} is saved as ${download.suggestedFilename()}`);
    const saved = parsed(await readFile(await download.path(), "utf8"));
    hold(same(saved, [names, ...columns.at(-1).ascending.rows]), `table ${about} is not saved as it is`);
    const run = saved.flat().filter((cell) => /^[\s"]*[=+@＝＋－＠-]/u.test(cell) && !/^[+-]?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(cell));
    hold(run.length === 0, `table ${about} is saved with cells that a spreadsheet runs: ${run.slice(0, 3)}`);
    const filter = tools.locator("input");
    hold((await filter.count()) === (before.length > 15 ? 1 : 0), `table ${about} of ${before.length} rows has ${await filter.count()} filters`);
    if (before.length > 15) {
      const texts = await table.locator("tbody tr").allTextContents();
      const wanted = (await table.locator("tbody th").last().textContent()).toUpperCase();
      await filter.fill(wanted);
      const left = (await table.locator("tbody tr:visible").allTextContents());
      hold(left.length > 0 && same(left, texts.filter((text) => text.toUpperCase().includes(wanted))), `table ${about}, filtered by ${wanted}, has ${left.length} rows`);
      await filter.fill("");
    }
    const choice = tools.locator("select");
    for (const option of (await choice.count()) ? (await choice.locator("option").allTextContents()).slice(1) : []) {
      await choice.selectOption(option);
      const column = names.indexOf(await table.getAttribute("data-filter"));
      const texts = await table.evaluate((table, column) => [...table.tBodies[0].rows].map((row) => [row.checkVisibility(), row.cells[column].textContent.trim()]), column);
      hold(texts.some(([shown]) => shown) && texts.every(([shown, text]) => shown === (text === option)), `table ${about} does not show the rows of ${option}`);
      await choice.selectOption({ index: 0 });
    }
  }
  await close(page);
}

// keyboard holds that the page can be used by keys alone.
async function keyboard(url) {
  const page = await open(url);
  const press = async (key) => {
    await page.keyboard.press(key);
    return page.evaluate(() => {
      const at = document.activeElement;
      return { kind: at.matches(".skip") ? "skip" : at.name || at.closest("nav,main,footer")?.tagName.toLowerCase(), tag: at.tagName.toLowerCase(), section: at.closest("section")?.id, hash: at.hash };
    });
  };
  hold((await press("Tab")).kind === "skip", "the first stop is not the skip link");
  hold((await page.locator(".skip").boundingBox()).x >= 0, "the skip link is not shown when it has the focus");
  await press("Enter");
  hold((await press("Tab")).kind === "main", "the skip link does not lead into main");
  await page.goto("about:blank");
  await page.goto(url);
  await press("Tab");
  hold((await press("Tab")).kind === "definition", "the second stop is not the definition");
  const first = await seen(page);
  await press("ArrowRight");
  const next = await seen(page);
  hold(next.chosen !== first.chosen, "an arrow key does not change the definition");
  holdSwitch(next, next.chosen);
  await press("ArrowLeft");
  hold(same(await seen(page), first), "the other arrow key does not bring it back");
  hold((await press("Tab")).kind === "theme", "the third stop is not the theme");
  let at = await press("Tab");
  hold(at.kind === "nav", "the fourth stop is not the list of sections");
  for (let n = 0; n < 60 && at.hash !== "#method"; n++) at = await press("Tab");
  await press("Enter");
  hold(await page.locator("#method").evaluate((section) => Math.abs(section.getBoundingClientRect().top) < innerHeight / 2), "Enter on a link does not lead to its section");
  hold((await press("Tab")).section === "method", "the stop behind a link is not in its section");
  const fold = page.locator(".tools > details:has(table.data) > summary:visible").first();
  if (await fold.count()) {
    const section = await fold.evaluate((fold) => fold.closest("section").id);
    await fold.focus();
    await press("Space");
    hold(await fold.evaluate((fold) => fold.parentElement.open), "Space does not open a fold");
    const stops = new Set();
    for (at = await press("Tab"); at.section === section && stops.size < 20; at = await press("Tab")) {
      const head = await page.evaluate(() => document.activeElement.closest("th")?.cellIndex ?? -1);
      stops.add(head < 0 ? at.tag : "th" + head);
      if (head === 1) {
        await press("Enter");
        hold(await page.evaluate(() => document.activeElement.closest("th").hasAttribute("aria-sort")), "Enter does not sort");
      }
    }
    for (const stop of ["button", "th0", "th1"]) hold(stops.has(stop), `the stops in ${section} are ${[...stops]}, without ${stop}`);
  }
  await close(page);
}

// widths holds that nothing is cut at the edges of screens.
async function widths(url) {
  const page = await open(url);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    await page.reload();
    for (const name of await definitions(page)) {
      await page.locator("#d-" + name).evaluate((input) => input.click());
      const { wide, cut } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth,
        cut: [...document.querySelectorAll("svg text, h1, h2, h3, p, li, figcaption, summary")]
          .filter((text) => text.checkVisibility() && !text.closest(".scroll, .skip, .controls"))
          .map((text) => [text, text.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && (box.left < -0.5 || box.right > innerWidth + 0.5))
          .map(([text, box]) => `${text.closest("section")?.id}: ${text.textContent.slice(0, 40)} (${Math.round(box.left)} to ${Math.round(box.right)})`),
      }));
      hold(wide <= width, `${width} px, ${name}: the page is ${wide} px wide`);
      for (const text of cut) hold(false, `${width} px, ${name}: cut in ${text}`);
    }
    await unfold(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    hold(wide <= width, `${width} px: with its folds open the page is ${wide} px wide`);
  }
  await close(page);
}

// drawn holds that the title and the figures of the story are on the first 4,000 pixels, and that in each figure, on narrow and wide
// screens, light and dark, marks are within their axes, texts beside each other, and both stand out from the ground.
async function drawn(url) {
  const page = await open(url);
  for (const [width, colorScheme] of [[390, "light"], [1280, "light"], [1280, "dark"]]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    await page.reload();
    const story = await page.evaluate(() => {
      const figures = [...document.querySelectorAll(".figure:not(:has(> .fold))")];
      return { n: figures.length, end: Math.max(0, ...figures.map((figure) => figure.getBoundingClientRect().bottom + scrollY)) };
    });
    hold(story.n <= MOST_FIGURES && (width < 1280 || story.end <= MOST_STORY), `${width} px: ${story.n} figures end at ${Math.round(story.end)} px`);
    await unfold(page);
    const faults = await page.evaluate(() => {
      const faults = [];
      const luminance = (colour) => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
      const ground = getComputedStyle(document.body).backgroundColor;
      for (const plot of [...document.querySelectorAll("figure svg:not(svg svg, .swatch)")].filter((plot) => plot.checkVisibility())) {
        const where = `${plot.closest("section").id}: `;
        const [box, isBar] = [plot.getBoundingClientRect(), plot.matches(".bar")];
        for (const mark of plot.querySelectorAll("rect, circle, path.line")) {
          const at = mark.getBoundingClientRect();
          const spare = mark.tagName === "circle" ? at.width / 2 + 1 : 3.5; // the centre of a dot is its place; a stroke is 3 wide
          if (at.left < box.left - spare || at.right > box.right + spare || at.top < box.top - spare || at.bottom > box.bottom + spare) faults.push(`${where}a ${mark.tagName} is beyond its axis: ${Math.round(at.left - box.left)} to ${Math.round(at.right - box.left)} of ${Math.round(box.width)}`);
          const { fill, stroke } = getComputedStyle(mark);
          const colours = [fill, stroke].filter((colour) => colour.startsWith("rgb"));
          if (colours.length > 0 && !colours.some((colour) => contrast(colour, ground) >= 3)) faults.push(`${where}a ${mark.tagName} .${mark.getAttribute("class")} is as light as the ground`);
        }
        if (!isBar && plot.querySelector(".x")) {
          const last = Math.max(...[...plot.querySelectorAll(".x, .axis text")].map((tick) => tick.getBoundingClientRect()).map((at) => (at.left + at.right) / 2));
          for (const mark of plot.querySelectorAll("circle, path.line")) if (mark.getBoundingClientRect().right > last + 6) faults.push(`${where}a mark is behind the last tick`);
        }
        const texts = [...plot.querySelectorAll("text")].filter((text) => text.checkVisibility() && text.textContent.trim()).map((text) => [text, text.getBoundingClientRect()]);
        for (const [i, [a, at]] of texts.entries()) {
          if (contrast(getComputedStyle(a).fill, ground) < 4.5) faults.push(`${where}the text ${a.textContent} is too pale`);
          for (const [b, other] of texts.slice(i + 1)) if (at.left < other.right - 1 && other.left < at.right - 1 && at.top < other.bottom - 4 && other.top < at.bottom - 4) faults.push(`${where}${a.textContent} is over ${b.textContent}`);
        }
      }
      return faults;
    });
    for (const fault of faults) hold(false, `${width} px, ${colorScheme}: ${fault}`);
  }
  await close(page);
}

// leaves holds that each figure leaves the page: as an SVG without anything from elsewhere and with all texts within, as a PNG, as CSV,
// as a link, and as a sentence.
async function leaves(url) {
  const page = await open(url, { acceptDownloads: true });
  await page.evaluate(() => { for (const fold of document.querySelectorAll(".fold")) fold.open = true; });
  const saved = async (figure, name) => {
    await page.waitForTimeout(100); // as in tables
    const [download] = await Promise.all([page.waitForEvent("download"), figure.getByRole("button", { name, exact: true }).click()]);
    hold(download.suggestedFilename().endsWith("." + name.toLowerCase()), `${name} is saved as ${download.suggestedFilename()}`);
    return readFile(await download.path());
  };
  const files = {};
  for (const figure of await page.locator(".figure").all()) {
    const id = await figure.getAttribute("id");
    const { headline, sub, source } = await figure.evaluate((figure) => ({ headline: [...figure.querySelectorAll("h2")].find((h) => h.checkVisibility()).textContent, sub: [...figure.querySelectorAll(".sub")].find((p) => p.checkVisibility()).textContent, source: document.body.dataset.source }));
    if (await figure.locator("figure:visible").count()) { // not by each definition, and not of lists
      files[id] = (await saved(figure, "SVG")).toString();
      hold(!/ href=|url\((?!#)|<script|class=|var\(/.test(files[id]), `the SVG of ${id} needs something else`);
      const png = await saved(figure, "PNG");
      hold(png.subarray(1, 4).toString() === "PNG" && png.length > 10_000, `the PNG of ${id} has ${png.length} bytes`);
    }
    hold((await saved(figure, "CSV")).toString().includes("\n"), `the CSV of ${id} is empty`);
    hold((await figure.getByRole("link", { name: "Link", exact: true }).getAttribute("href")) === "#" + id, `${id} has no link`);
    await figure.getByRole("button", { name: "Quote", exact: true }).click();
    const quote = await figure.locator(".quote").textContent();
    for (const part of [headline, sub.trim(), source]) hold(quote.includes(part), `the quotation of ${id} lacks ${part}: ${quote}`);
  }
  await close(page);
  const context = await browser.newContext();
  const sheet = await context.newPage();
  for (const [id, svg] of Object.entries(files)) {
    await sheet.setContent(`<body>${svg}</body>`);
    const out = await sheet.evaluate(() => {
      const frame = document.querySelector("svg").getBoundingClientRect();
      return [...document.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.left < frame.left || box.right > frame.right + 1 || box.bottom > frame.bottom).map(([text]) => text);
    });
    hold(out.length === 0, `in the SVG of ${id} texts are cut: ${out}`);
  }
  await context.close();
}

// paper holds that a printed page has its folds open, and its figures whole; without script, as a browser may print it.
async function paper(url) {
  const page = await open(url, { javaScriptEnabled: false, viewport: PAPER });
  await page.emulateMedia({ media: "print" });
  const { wide, hidden, broken } = await page.evaluate((height) => {
    const shown = (element) => element.checkVisibility({ contentVisibilityAuto: true });
    return {
      wide: document.documentElement.scrollWidth,
      hidden: [...document.querySelectorAll("table.data")].filter((table) => shown(table.closest("details").parentElement) && !shown(table)).map((table) => table.caption.textContent),
      broken: [...document.querySelectorAll("figure")].filter(shown)
        .filter((figure) => figure.offsetHeight > height || getComputedStyle(figure).breakInside !== "avoid")
        .map((figure) => `${figure.closest("section").id} (${figure.offsetHeight} px)`),
    };
  }, PAPER.height);
  hold(wide <= PAPER.width, `the page is ${wide} px wide, and the paper ${PAPER.width}`);
  hold(hidden.length === 0, `the tables ${hidden} are not printed`);
  hold(broken.length === 0, `the figures ${broken} may be broken across pages`);
  await close(page);
  const printed = await open(url);
  const ink = () => printed.evaluate(() => getComputedStyle(document.body).color + getComputedStyle(document.documentElement).colorScheme);
  await printed.emulateMedia({ media: "print" });
  const light = await ink();
  await printed.locator(".theme [value=dark]").evaluate((input) => input.click());
  hold((await ink()) === light, "a dark page is printed with light ink");
  await printed.emulateMedia({ media: null });
  hold((await printed.pdf({ format: "A4" })).length > 10_000, "nothing is printed");
  hold(await printed.evaluate(() => [...document.querySelectorAll("details")].every((fold) => fold.open)), "printing does not open the folds");
  await close(printed);
}

// judged holds that axe-core finds no serious fault. In the dark, only rules about colours can say something else.
async function judged(url) {
  const page = await open(url);
  for (const [colorScheme, rules] of [["light", {}], ["dark", { runOnly: ["color-contrast", "link-in-text-block"] }]]) {
    await page.emulateMedia({ colorScheme });
    await page.reload();
    await unfold(page);
    await page.evaluate((most) => { for (const body of document.querySelectorAll("tbody")) for (const row of [...body.rows].slice(most)) row.remove(); }, MOST_ROWS);
    await page.evaluate(axe);
    const violations = await page.evaluate(async (rules) => (await window.axe.run(document, { resultTypes: ["violations"], ...rules })).violations.map(({ id, impact, nodes }) => ({ id, impact, n: nodes.length, first: nodes[0].html.slice(0, 160), why: nodes[0].failureSummary })), rules);
    for (const v of violations) hold(!["serious", "critical"].includes(v.impact), `${colorScheme}: ${v.id} (${v.impact}, ${v.n}): ${v.first} ${v.why}`);
  }
  await close(page);
}

for (const file of files) {
  const url = pathToFileURL(file).href;
  const times = [];
  where = basename(file);
  const { load, wall } = await opens(url);
  for (const check of [policy, reads, still, switches, tables, keyboard, widths, drawn, leaves, paper, judged]) {
    [where, shown] = [`${basename(file)}, ${check.name}`, 0];
    const begun = performance.now();
    try {
      await check(url);
    } catch (error) {
      hold(false, `the check fails: ${error.message.split("\n").slice(0, 3).join(" ")}`);
    }
    times.push(`${check.name} ${((performance.now() - begun) / 1000).toFixed(1)}`);
  }
  console.log(`browser: ${basename(file)} opens in ${load} ms (${wall} ms of wall time); seconds: ${times.join(", ")}`);
}
await browser.close();
if (wrong > 0) {
  console.error(`${wrong} faults`);
  process.exit(1);
}

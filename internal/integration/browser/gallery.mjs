// gallery.mjs answers one question: how does a report page look? It takes the pictures that docs/report.md shows.
//
//	npm install && node gallery.mjs PAGE FOLDER

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const MOST_BYTES = 150_000; // of a picture
const MARGIN = 16; // around a section
const [file, folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node gallery.mjs PAGE FOLDER");
  process.exit(2);
}

// Each picture: its name, the section it shows ("" is the first screen), and how the page is opened.
const wide = { width: 1280, height: 760 };
const PICTURES = [
  ["first", "", { viewport: wide }],
  ["dark", "", { viewport: wide, colorScheme: "dark" }],
  ["phone", "tokens", { viewport: { width: 390, height: 844 } }],
  ["tokens", "tokens", { viewport: wide }],
  ["ranks", "ranks", { viewport: wide }],
  ["together", "together", { viewport: wide }],
  ["findings", "findings", { viewport: wide }],
];

await mkdir(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
for (const [name, section, options] of PICTURES) {
  const page = await browser.newPage(options);
  await page.goto(pathToFileURL(file).href);
  const path = join(folder, name + ".png");
  if (section) await page.evaluate((section) => { for (const fold of document.querySelectorAll(`#${section} > .fold`)) fold.open = true; }, section);
  const whole = { x: 0, y: 0, ...options.viewport };
  const box = section ? await page.locator("#" + section).boundingBox() : whole;
  const clip = section ? { ...box, x: box.x - MARGIN, width: box.width + 2 * MARGIN } : box;
  // A picture that would be too large shows less of the bottom.
  let picture;
  do {
    picture = await page.screenshot({ clip, fullPage: true });
    clip.height -= 40;
  } while (picture.length > MOST_BYTES);
  await writeFile(path, picture);
  await page.close();
  console.log(`${path}: ${Math.round(picture.length / 1000)} kB`);
}
await browser.close();

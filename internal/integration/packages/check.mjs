// Reads the Dockerfile as an editor does, and the YAML files that a forge or a library reads. Their schemas are elsewhere, so
// that only what everything rests on is looked at: that they can be read, and have the fields that are asked for.
import { readFileSync, readdirSync } from "node:fs";
import { validate } from "dockerfile-utils";
import { parse } from "yaml";

const root = new URL("../../../", import.meta.url);
const read = (path) => readFileSync(new URL(path, root), "utf8");
const problems = [];

for (const { range, message } of validate(read("Dockerfile"))) {
  problems.push(`Dockerfile:${range.start.line + 1}: ${message}`);
}

const fields = (path, wanted, value = parse(read(path))) => {
  for (const name of wanted) {
    if (value?.[name] === undefined) problems.push(`${path}: no ${name}`);
  }
  return value;
};

// https://github.com/citation-file-format/citation-file-format, schema 1.2.0: what must be there, and what may.
const cff = fields("CITATION.cff", ["cff-version", "message", "title", "authors"]);
const known = ["cff-version", "message", "type", "title", "abstract", "authors", "license", "repository-code", "keywords", "version", "date-released", "doi", "url"];
for (const name of Object.keys(cff)) {
  if (!known.includes(name)) problems.push(`CITATION.cff: unknown field ${name}`);
}
if (cff["cff-version"] !== "1.2.0") problems.push("CITATION.cff: cff-version is a string, 1.2.0");

// A section a version, the newest first, and perhaps one before them for what has none yet.
const sections = read("CHANGELOG.md").match(/^## .*$/gm) ?? [];
if (sections[0] === "## Unreleased") sections.shift();
const versions = sections.map((head) => head.match(/^## v(\d+)\.(\d+)\.(\d+)$/)?.slice(1).map(Number));
const later = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
if (versions.length === 0 || versions.includes(undefined) || versions.some((v, i) => i > 0 && later(versions[i - 1], v) <= 0)) {
  problems.push(`CHANGELOG.md: sections ${sections.join(", ")} are no versions, or not in order`);
}

const templates = ".github/ISSUE_TEMPLATE/";
for (const name of readdirSync(new URL(templates, root))) {
  if (name === "config.yml") {
    fields(templates + name, ["blank_issues_enabled"]);
    continue;
  }
  const form = fields(templates + name, ["name", "description", "body"]);
  const ids = form.body.filter((part) => part.type !== "markdown").map((part) => part.id);
  if (ids.includes(undefined) || new Set(ids).size !== ids.length) problems.push(`${templates}${name}: a field without an id of its own`);
  for (const part of form.body) {
    if (!["markdown", "input", "textarea", "dropdown", "checkboxes"].includes(part.type)) problems.push(`${templates}${name}: unknown type ${part.type}`);
    if (part.type !== "markdown" && !part.attributes?.label) problems.push(`${templates}${name}: ${part.id} has no label`);
  }
}

for (const problem of problems) console.error(problem);
process.exit(problems.length ? 1 : 0);

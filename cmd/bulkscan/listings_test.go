package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/survey"
)

// quoted are names between backquotes; their arguments are left out.
var quoted = regexp.MustCompile("`([^`( ]+)[^`]*`")

// TestListings compares lists of names in the documents with the code: they contain all names, and no others.
func TestListings(t *testing.T) {
	t.Parallel()
	s := source{t: t}
	f := func(page, from, to string, name *regexp.Regexp, want []string) {
		t.Helper()
		_, rest, found := strings.Cut(s.text(page), from)
		part, _, ended := strings.Cut(rest, to)
		if !found || !ended {
			t.Errorf("%s has no list between %q and %q", page, from, to)
			return
		}
		var names []string
		for _, match := range name.FindAllStringSubmatch(part, -1) {
			names = append(names, match[1])
		}
		for _, missing := range lacking(want, names) {
			t.Errorf("%s, after %q: %s is missing", page, from, missing)
		}
		for _, other := range lacking(names, want) {
			t.Errorf("%s, after %q: %s is none", page, from, other)
		}
	}
	firstCell, linked := regexp.MustCompile("(?m)^\\| `([a-z_]+)"), regexp.MustCompile(`(?m)^\| \[[^\]]*\]\(([^)]+)\)`)

	tables := []string{schema.TokenStats, schema.RecordStats}
	for _, table := range schema.Tables() {
		tables = append(tables, table.Name)
	}
	f("README.md", "## What is in the dataset", "## How fast", regexp.MustCompile("[|,] `([a-z_]+)`"), unique(tables))

	pages := []string{"queries/README.md", "adr/README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md"}
	for name := range documents(t) {
		if name = filepath.ToSlash(name); filepath.Base(filepath.Dir(name)) == "docs" && filepath.Base(name) != "README.md" {
			pages = append(pages, filepath.Base(name))
		}
	}
	f("docs/README.md", "|---|---|", "how to build", linked, pages)

	f("docs/dataset.md", "`_scans/index.parquet` lists the files", ".", quoted, s.all("sink/index/index.go",
		`(?s)type Row struct(.*?)\n}`, `parquet:"([a-z_]+)`))

	made := regexp.MustCompile(`CREATE OR REPLACE (VIEW|MACRO) ([a-z_]+)`)
	of := func(file, kind string) (names []string) {
		for _, found := range made.FindAllStringSubmatch(s.text(file), -1) {
			if found[1] == kind && !strings.HasPrefix(found[2], "bulkscan_") {
				names = append(names, found[2])
			}
		}
		return names
	}
	f("docs/dataset.md", "| view | a row is |", "`token_groups`", firstCell,
		append(lacking(of("sink/views/analyses.sql", "VIEW"), []string{"sites_live", "token_groups"}), "tokens"))
	f("docs/dataset.md", "is a part of `rollups`. Macros:", "\n\n", regexp.MustCompile("`([a-z_]+)\\("),
		of("sink/views/analyses.sql", "MACRO"))
	// parts of other macros, and macros of panels
	inner := []string{"night_of", "registries_without", "registry_row", "may_hide_rules", "block_change", "state_by",
		"transition_causes", "panel_balanced", "panel_folded"}
	f("docs/history.md", "| macro | a row is |", "`censoring` is", firstCell,
		lacking(of("sink/views/history.sql", "MACRO"), inner))
	f("docs/history.md", "| view | a row is |", "Spell", firstCell, append(of("sink/views/history.sql", "VIEW"),
		"history", "history_policies", "gaps", "nights"))

	f("docs/nightly.md", "### How a night ends", "### What counts", firstCell, s.all("nightly/night.go", `(?s)(.*)`,
		`State = "([a-z]+)"`))
	f("docs/inputs.md", "hosts are under the first of", ";", quoted,
		s.all("inputs/detect.go", `(?s)var HostNames = (.*?)\}`, `"([^"]+)"`))
	f("docs/inputs.md", "ranks under", ".", quoted, s.all("inputs/detect.go", `(?s)var RankNames = (.*?)\}`, `"([^"]+)"`))
	f("docs/summary.md", "over other denominators", "FIELDS.md", regexp.MustCompile("`([a-z_]+)(?:_…)?`"),
		unique(s.all("survey/summary/sensitivity.go", `(?s)var choices = (.*?)\n}`,
			`\{"([a-z]+|same_domain|unobserved|unread)(?:_open|_blocking)?",`)))
	f("docs/divergences.md", "In `google` alone:\n", "are keys", regexp.MustCompile("`([^`]+)`"),
		lacking(s.all("parser/key.go", `(?s)var tolerated = (.*?)\n}\n`, `\{"([^"]+)"`), []string{"user-agent", "allow",
			"disallow", "sitemap"}))
	f("docs/definitions.md", "| definition | the question |", "\n\n", regexp.MustCompile(`(?m)^\| \[([a-z_]+)\]`),
		survey.DefinitionNames())
	f("docs/nightly.md", "### What is kept, and for how long", "Days count", regexp.MustCompile("`(keep-[a-z]+) "),
		s.all("cmd/bulkscan/nightly.go", `(?s)(.*)`, `flags\.\w+\([^"]*"(keep-[a-z]+)"`))
}

// lacking returns the names that are not in others.
func lacking(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/bulkscan/bulkscan"

// floors are the rooms of the top level by floor, the highest first. An arrow only goes down, or to a room within the
// same one. Tools and helpers of tests, in internal, may import the rooms below them. printable and memnet import
// nothing, and all may import them.
var floors = []string{
	"cmd", "terminal", "nightly", "scan", "survey", "internal", "history", "warc simweb", "sink", "pipeline",
	"audit inputs fetcher",
	"parser store origin", "internal/printable internal/memnet docs",
}

// floorOf returns the number of a room's floor from below, and its room of the top level; 0 if it is on none.
func floorOf(room string) (floor int, found string) {
	for i, rooms := range floors {
		for top := range strings.FieldsSeq(rooms) {
			if room == top || strings.HasPrefix(room, top+"/") {
				floor, found = len(floors)-i, top
			}
		}
	}
	return floor, found
}

// anything is the row of a command, which wires the rooms.
var anything = []string{"*"}

// arrows lists every package of the module and the packages of the module that it may import. Tests may import more.
var arrows = map[string][]string{
	"cmd/bulkscan":         anything,
	"cmd/bulkscan/options": {"inputs", "internal/printable", "origin", "terminal"},

	"inputs":          {"origin"},
	"fetcher":         {"fetcher/resolve", "origin", "origin/exchange"},
	"fetcher/resolve": {"origin/exchange"},
	"parser":          {},
	"audit":           {"audit/tokens", "parser", "origin", "origin/exchange", "internal/printable"},
	"audit/tokens":    {},
	"sink/schema":     {"internal/printable"},
	"sink/table":      {"sink/schema", "store"},
	"sink/commit":     {"sink/schema", "store", "internal/printable"},
	"sink/units":      {"sink/schema", "sink/table", "sink/commit", "audit"},
	"sink/siterows":   {"sink/schema", "sink/commit", "audit", "audit/tokens", "parser", "origin", "origin/exchange"},
	"sink/jsonlines":  {"sink/schema", "sink/commit", "sink/siterows", "audit", "audit/tokens", "internal/printable"},
	"sink/statistics": {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "store"},
	"sink/read":       {"sink/schema", "sink/table", "sink/commit", "store"},
	"sink/restart":    {"sink/schema", "sink/commit", "sink/index", "store"},
	"sink/repair":     {"sink/table", "sink/commit", "sink/verify", "store"},
	"sink/index":      {"sink/schema", "sink/table", "sink/commit", "sink/units", "store"},
	"sink/views":      {"sink/schema", "sink/commit", "sink/index", "audit/tokens", "store"},
	"sink/verify":     {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "store"},
	"sink/compact":    {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "store"},
	"sink": {"sink/schema", "sink/table", "sink/commit", "sink/siterows", "sink/index", "sink/views", "sink/repair",
		"sink/restart", "audit", "audit/tokens", "store"},
	"sink/reaudit": {"sink", "sink/siterows", "sink/read", "sink/schema", "sink/table", "sink/commit", "audit", "audit/tokens", "parser",
		"origin/exchange", "store", "internal/printable"},
	"history": {"audit", "audit/tokens", "origin/exchange", "sink/siterows", "sink/read", "sink/schema", "sink/table",
		"sink/commit", "sink/units", "sink/verify", "store"},
	"pipeline": {"audit", "origin", "origin/exchange"},

	"scan/shares":        {"pipeline", "sink/commit", "origin"},
	"warc":               {},
	"warc/archive":       {"sink", "fetcher", "store", "warc"},
	"warc/replay":        {"inputs", "fetcher", "warc", "origin/exchange", "origin"},
	"origin":             {},
	"origin/exchange":    {"origin"},
	"store":              {},
	"internal/printable": {},
	"internal/limits":    {},
	"scan": {"inputs", "fetcher", "pipeline", "audit", "audit/tokens", "sink", "sink/jsonlines", "sink/table",
		"sink/schema", "sink/commit", "sink/index", "sink/views", "sink/compact", "sink/repair", "history",
		"warc/archive", "warc/replay", "survey", "scan/shares", "store", "origin", "origin/exchange", "survey/diff",
		"survey/method", "survey/stats", "survey/summary", "survey/tables"},
	"nightly": {"audit", "inputs", "sink/schema", "sink/table", "sink/commit", "sink/verify", "scan", "survey",
		"survey/page", "internal/printable", "store", "survey/diff", "survey/summary", "survey/tables"},
	"survey": {"sink/siterows", "sink/read", "sink/schema", "sink/table", "sink/commit", "sink/index", "sink/verify",
		"audit", "audit/tokens", "parser", "internal/printable", "store"},
	"survey/stats": {"audit", "sink/commit", "sink/index", "sink/read", "sink/schema", "sink/siterows",
		"sink/statistics", "sink/table", "store", "survey"},
	"survey/summary": {"audit", "audit/tokens", "internal/printable", "origin/exchange", "sink/commit", "sink/schema",
		"sink/table", "store", "survey"},
	"survey/method": {"internal/printable", "sink/commit", "sink/index", "sink/schema", "sink/table", "store", "survey"},
	"survey/tables": {"audit", "audit/tokens", "history", "sink/commit", "sink/index", "sink/read", "sink/schema", "sink/table",
		"store", "survey", "survey/method", "survey/stats", "survey/summary"},
	"survey/diff":  {"audit", "sink/commit", "sink/schema", "sink/table", "store", "survey"},
	"survey/page":  {"survey", "survey/method", "survey/summary", "survey/tables", "sink/schema", "internal/printable", "docs/queries"},
	"docs/queries": {},
	"terminal": {"nightly", "history", "audit", "audit/tokens", "parser", "pipeline", "fetcher/resolve",
		"origin/exchange", "internal/printable", "survey", "scan", "scan/shares", "sink/commit", "survey/diff", "survey/summary"},
	"terminal/metrics":    {"nightly", "pipeline", "fetcher/resolve", "origin/exchange"},
	"internal/sharedtest": {},
	"internal/sitetest":   {"audit", "audit/tokens", "parser", "origin", "origin/exchange"},
	"internal/surveytest": {"audit", "audit/tokens", "parser", "origin", "origin/exchange", "sink", "sink/schema",
		"sink/index", "sink/siterows", "sink/table", "sink/views", "store"},
	"internal/hostiletest": {"internal/printable", "internal/waittest"},
	"internal/waittest":    {},
	"internal/memnet":      {},
	"internal/bubble":      {},
	"internal/histories":   {},
	"internal/arch":        {},

	"store/s3":        {"store"},
	"store/storetest": {"internal/memnet", "store"},

	"simweb":         {"origin", "origin/exchange"},
	"simweb/compare": {"simweb", "sink/read", "sink/schema", "sink/commit", "origin", "origin/exchange"},
	"simweb/demo":    {"internal/printable", "simweb", "simweb/compare", "sink/commit", "store"},
	"internal/integration/queries": {"audit", "audit/tokens", "history", "sink", "sink/schema", "sink/table",
		"sink/commit", "sink/index", "sink/views", "store", "origin", "origin/exchange"},
	"simweb/cmd/simweb":              anything,
	"internal/sharedtest/cmd/shared": anything,
}

// doors lists every library outside the standard one, and the rooms that may import it. A row covers the packages
// below the library, unless one has a row of its own.
var doors = map[string][]string{
	"github.com/spf13/cobra":          {"cmd/bulkscan", "cmd/bulkscan/options"},
	"github.com/spf13/pflag":          {"cmd/bulkscan", "cmd/bulkscan/options"},
	"github.com/cheggaaa/pb/v3":       {"terminal"},
	"github.com/pelletier/go-toml/v2": {"cmd/bulkscan/options"},
	"github.com/mattn/go-runewidth":   {"terminal"},

	"github.com/valyala/fasthttp":   {"fetcher"},
	"github.com/jlaffaye/ftp":       {"fetcher"},
	"github.com/andybalholm/brotli": {"fetcher", "sink/table", "simweb"}, // the first two decode, the last encodes
	"golang.org/x/sync/semaphore":   {"fetcher"},
	"github.com/miekg/dns":          {"fetcher/resolve", "simweb"},
	"golang.org/x/time/rate":        {"fetcher/resolve"},
	"golang.org/x/net/ipv4":         {"fetcher/resolve"},

	"golang.org/x/sync/errgroup": {"pipeline"},

	"github.com/rogpeppe/go-internal/diff": {"history"},

	"github.com/prometheus/client_golang": {"terminal/metrics"},
	"golang.org/x/net/netutil":            {"terminal/metrics"},
	"github.com/minio/minio-go/v7":        {"store/s3"},
	"gopkg.in/ini.v1":                     {"store/s3"},

	"github.com/parquet-go/parquet-go": {"sink/table", "internal/bubble"},
	"github.com/RoaringBitmap/roaring/v2": {"sink", "sink/commit", "sink/units", "sink/index", "sink/verify",
		"sink/compact", "sink/repair"},
	"github.com/parquet-go/jsonlite":     {"inputs"},
	"github.com/ulikunitz/xz":            {"inputs"},
	"golang.org/x/text/encoding/unicode": {"inputs"},
	"golang.org/x/net/publicsuffix":      {"origin"},
	"golang.org/x/net/idna":              {"origin", "simweb"}, // the simulated web spells names of its own
	"golang.org/x/sys":                   {"terminal", "store", "internal/hostiletest", "simweb"},
	"github.com/klauspost/compress": {"fetcher", "inputs", "sink/table", "simweb", "internal/sharedtest",
		"warc/replay", "warc"},
	"github.com/cespare/xxhash/v2": {"audit", "history", "inputs", "survey/stats", "survey/summary", "survey/tables", "scan/shares", "simweb", "sink/index",
		"sink/schema"},
}

// Package is one package as `go list -json` describes it.
type Package struct {
	ImportPath string
	Name       string
	Imports    []string
}

// Problems returns the differences from the tables. Each is one line with the correct direction of the arrow.
func Problems(packages []Package) []string {
	var problems []string
	graph := map[string][]string{}
	for _, p := range packages {
		graph[roomOf(p.ImportPath)] = ours(p)
		problems = append(problems, check(p)...)
	}
	for _, room := range slices.Sorted(maps.Keys(arrows)) {
		imported, there := graph[room]
		if !there {
			problems = append(problems, fmt.Sprintf("%s is in the table of arrows, but there is no such package", room))
			continue
		}
		for _, other := range arrows[room] {
			if other != "*" && !slices.Contains(imported, other) {
				problems = append(problems, fmt.Sprintf("%s may import %s, and does not: remove the arrow from the table", room,
					other))
			}
		}
	}
	return problems
}

// check compares one package with both tables.
func check(p Package) []string {
	room := roomOf(p.ImportPath)
	allowed, ok := arrows[room]
	if !ok {
		return []string{fmt.Sprintf(
			"%s is in no table: say in internal/arch which question it answers by what it may import, and in ARCHITECTURE.md",
			room)}
	}
	var problems []string
	floor, top := floorOf(room)
	if floor == 0 {
		return []string{fmt.Sprintf("%s is on no floor: say in internal/arch and in ARCHITECTURE.md on which", room)}
	}
	for _, other := range ours(p) {
		if below, its := floorOf(other); below >= floor && its != top {
			problems = append(problems, fmt.Sprintf("%s must not import %s: an arrow only goes down, and %s is not below %s",
				room, other, its, top))
			continue
		}
		if slices.Equal(allowed, anything) || slices.Contains(allowed, other) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s must not import %s: %s", room, other, advice(room, other, allowed)))
	}
	for _, path := range p.Imports {
		if !isLibrary(path) {
			continue
		}
		library, rooms := door(path)
		switch {
		case library == "":
			problems = append(problems,
				fmt.Sprintf("%s must not import %s: no door leads there (see the table of doors in internal/arch)", room, path))
		case !slices.Contains(rooms, room):
			problems = append(problems, fmt.Sprintf("%s must not import %s: the only door to %s is %s", room, path, library,
				strings.Join(rooms, " or ")))
		}
	}
	return problems
}

func advice(room, other string, allowed []string) string {
	if slices.Contains(arrows[other], room) {
		return fmt.Sprintf("the arrow runs from %s to %s", other, room)
	}
	if len(allowed) == 0 {
		return "it may import none of our rooms"
	}
	return "it may import " + strings.Join(slices.Sorted(slices.Values(allowed)), ", ")
}

// door returns the longest row of doors that covers a path.
func door(path string) (library string, rooms []string) {
	for name, through := range doors {
		if len(name) > len(library) && (path == name || strings.HasPrefix(path, name+"/")) {
			library, rooms = name, through
		}
	}
	return library, rooms
}

func roomOf(path string) string { return strings.TrimPrefix(path, Module+"/") }

// ours returns the rooms that a package imports.
func ours(p Package) []string {
	var rooms []string
	for _, path := range p.Imports {
		if room, ok := strings.CutPrefix(path, Module+"/"); ok {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// isLibrary reports whether an import is neither of this module nor of the standard library, whose paths have no dot
// in their first element.
func isLibrary(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(path, Module+"/")
}

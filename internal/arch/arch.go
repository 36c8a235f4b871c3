// Package arch answers one question: which package may do what? It has three tables: arrows (which room imports
// which), doors (which room uses which library), and the tests that wait by the clock of the machine (clock.go). Its
// tests compare them with the source. ARCHITECTURE.md has the reasons: change it with the tables.
package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/bulkscan/bulkscan"

// MaxChain bounds the length of a chain of arrows among rooms. Commands (package main), which no room imports, are not
// counted. The longest is that of internal/nightly, whose nights are jobs, which report what history has counted.
const MaxChain = 8

// anything is the row of a command, which wires the rooms.
var anything = []string{"*"}

// arrows lists every package of the module and the packages of the module that it may import. Tests may import more.
var arrows = map[string][]string{
	"cmd/bulkscan": anything,

	"inputs":          {"internal/origin", "internal/store"},
	"fetcher":         {"fetcher/resolve", "internal/origin", "internal/exchange"},
	"fetcher/resolve": {"internal/origin", "internal/exchange"},
	"parser":          {},
	"audit":           {"audit/tokens", "parser", "internal/origin", "internal/exchange"},
	"audit/tokens":    {},
	"sink/schema":     {},
	"sink/table":      {"sink/schema", "internal/store"},
	"sink/commit":     {"sink/schema", "internal/store", "internal/printable"},
	"sink/index":      {"sink/schema", "sink/table", "sink/commit", "internal/store"},
	"sink/views":      {"sink/schema", "sink/table", "audit/tokens", "internal/store"},
	"sink/verify":     {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "internal/store"},
	"sink/compact":    {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "internal/store"},
	"sink":            {"sink/schema", "sink/table", "sink/commit", "sink/index", "sink/views", "sink/verify", "audit", "audit/tokens", "parser", "internal/origin", "internal/exchange", "internal/store", "internal/printable"},
	"sink/reaudit":    {"sink", "sink/schema", "sink/table", "sink/commit", "audit", "audit/tokens", "internal/exchange", "internal/store", "internal/printable"},
	"history":         {"audit", "audit/tokens", "internal/exchange", "sink", "sink/schema", "sink/table", "sink/commit", "sink/verify", "internal/store"},
	"pipeline":        {"audit", "internal/origin", "internal/exchange"},

	"internal/shares":      {"sink/commit", "internal/store", "internal/origin"},
	"internal/warc":        {},
	"internal/archive":     {"sink", "sink/schema", "sink/table", "sink/commit", "fetcher", "internal/store", "internal/warc"},
	"internal/replay":      {"inputs", "fetcher", "internal/warc", "internal/exchange", "internal/origin"},
	"internal/origin":      {},
	"internal/exchange":    {"internal/origin"},
	"internal/store":       {},
	"internal/printable":   {},
	"internal/limits":      {},
	"internal/job":         {"inputs", "fetcher", "pipeline", "audit", "audit/tokens", "sink", "sink/table", "sink/schema", "sink/commit", "sink/index", "sink/views", "sink/compact", "history", "internal/archive", "internal/replay", "internal/report", "internal/shares", "internal/store", "internal/origin", "internal/exchange"},
	"internal/nightly":     {"audit", "sink", "sink/schema", "sink/table", "sink/commit", "sink/verify", "internal/job", "internal/report", "internal/page", "internal/printable", "internal/store"},
	"internal/report":      {"history", "sink", "sink/schema", "sink/table", "sink/commit", "sink/index", "audit", "audit/tokens", "parser", "internal/exchange", "internal/printable", "internal/store"},
	"internal/page":        {"internal/report", "internal/printable", "docs/queries"},
	"docs/queries":         {},
	"internal/observer":    {"fetcher/resolve"},
	"internal/terminal":    {"history", "audit", "audit/tokens", "parser", "pipeline", "fetcher/resolve", "internal/exchange", "internal/observer", "internal/printable", "internal/report", "internal/shares", "sink/commit"},
	"internal/metrics":     {"pipeline", "fetcher/resolve", "internal/exchange"},
	"internal/sharedtest":  {},
	"internal/rowtest":     {},
	"internal/sitetest":    {"audit", "audit/tokens", "parser", "internal/origin", "internal/exchange"},
	"internal/hostiletest": {"internal/printable", "internal/waittest"},
	"internal/waittest":    {},
	"internal/memnet":      {},
	"internal/bubble":      {},
	"internal/histories":   {},
	"internal/arch":        {},

	"internal/store/s3":        {"internal/store"},
	"internal/store/storetest": {"internal/memnet", "internal/store"},

	"internal/simweb":                {"internal/origin", "internal/exchange"},
	"internal/simweb/compare":        {"internal/simweb", "sink", "sink/schema", "sink/table", "sink/commit", "internal/origin", "internal/exchange"},
	"internal/integration/queries":   {"audit", "audit/tokens", "history", "sink", "sink/schema", "sink/table", "sink/commit", "internal/store", "internal/origin", "internal/exchange"},
	"internal/simweb/cmd/simweb":     anything,
	"internal/sharedtest/cmd/shared": anything,
}

// doors lists every library outside the standard one, and the rooms that may import it. A row covers the packages
// below the library, unless one has a row of its own.
var doors = map[string][]string{
	"github.com/spf13/cobra":          {"cmd/bulkscan"},
	"github.com/spf13/pflag":          {"cmd/bulkscan"},
	"github.com/cheggaaa/pb/v3":       {"internal/terminal"},
	"github.com/pelletier/go-toml/v2": {"cmd/bulkscan"},
	"github.com/mattn/go-runewidth":   {"internal/terminal"},

	"github.com/valyala/fasthttp":   {"fetcher"},
	"github.com/jlaffaye/ftp":       {"fetcher"},
	"github.com/andybalholm/brotli": {"fetcher", "sink/table", "internal/simweb"}, // the first two decode, the last encodes
	"golang.org/x/sync/semaphore":   {"fetcher"},
	"github.com/miekg/dns":          {"fetcher/resolve", "internal/simweb"},
	"golang.org/x/time/rate":        {"fetcher/resolve"},

	"golang.org/x/sync/errgroup": {"pipeline"},

	"github.com/rogpeppe/go-internal/diff": {"history"},

	"github.com/prometheus/client_golang": {"internal/metrics"},
	"golang.org/x/net/netutil":            {"internal/metrics"},
	"github.com/minio/minio-go/v7":        {"internal/store/s3"},
	"gopkg.in/ini.v1":                     {"internal/store/s3"},

	"github.com/parquet-go/parquet-go":    {"sink/table", "internal/bubble"},
	"github.com/RoaringBitmap/roaring/v2": {"sink", "sink/commit", "sink/verify", "sink/compact"},
	"github.com/ulikunitz/xz":             {"inputs"},
	"golang.org/x/text/encoding/unicode":  {"inputs"},
	"golang.org/x/net/publicsuffix":       {"internal/origin"},
	"golang.org/x/net/idna":               {"internal/origin", "internal/simweb"}, // the simulated web spells names of its own
	"golang.org/x/sys":                    {"internal/terminal", "internal/store", "internal/hostiletest", "internal/simweb"},
	"github.com/klauspost/compress":       {"fetcher", "inputs", "sink/table", "internal/simweb", "internal/sharedtest", "internal/replay", "internal/warc"},
	"github.com/cespare/xxhash/v2":        {"audit", "history", "inputs", "internal/report", "internal/shares", "internal/simweb", "sink/index", "sink/schema"},
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
	seen := map[string]bool{}
	graph := map[string][]string{}
	for _, p := range packages {
		room := roomOf(p.ImportPath)
		seen[room] = true
		problems = append(problems, check(p)...)
		if p.Name != "main" {
			graph[room] = ours(p)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(arrows)) {
		if !seen[room] {
			problems = append(problems, fmt.Sprintf("%s is in the table of arrows, but there is no such package", room))
		}
	}
	if chain := longest(graph); len(chain) > MaxChain+1 {
		problems = append(problems, fmt.Sprintf("%d arrows in a row, at most %d are wanted: %s",
			len(chain)-1, MaxChain, strings.Join(chain, " → ")))
	}
	return problems
}

// check compares one package with both tables.
func check(p Package) []string {
	room := roomOf(p.ImportPath)
	allowed, ok := arrows[room]
	if !ok {
		return []string{fmt.Sprintf("%s is in no table: say in internal/arch which question it answers by what it may import, and in ARCHITECTURE.md", room)}
	}
	var problems []string
	for _, other := range ours(p) {
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
			problems = append(problems, fmt.Sprintf("%s must not import %s: no door leads there (see the table of doors in internal/arch)", room, path))
		case !slices.Contains(rooms, room):
			problems = append(problems, fmt.Sprintf("%s must not import %s: the only door to %s is %s", room, path, library, strings.Join(rooms, " or ")))
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

// longest returns the longest chain of arrows. A cycle, which Go refuses anyway, ends a chain where it closes.
func longest(graph map[string][]string) []string {
	var best, trail []string
	var walk func(room string)
	walk = func(room string) {
		circle := slices.Contains(trail, room)
		trail = append(trail, room)
		if len(trail) > len(best) {
			best = slices.Clone(trail)
		}
		if !circle {
			for _, next := range graph[room] {
				walk(next)
			}
		}
		trail = trail[:len(trail)-1]
	}
	for _, room := range slices.Sorted(maps.Keys(graph)) {
		walk(room)
	}
	return best
}

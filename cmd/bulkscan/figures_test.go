package main

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A figure is a sentence of a document with holes, and the values for them: from the code, from the output of a run, or
// from a committed measurement. A hole `{}` is a number or a word, `{…}` is more. White space stands for any other,
// line ends too.
type figure struct {
	page, sentence string
	values         []string
}

// TestFigures fills the holes and compares the sentences with the documents. Each number of their prose must be in such
// a sentence, in a generated part, or in a command. `make generate` writes the figures anew.
func TestFigures(t *testing.T) {
	t.Parallel()
	pages, claimed, all := documents(t), map[string][]string{}, figures(t)
	for _, f := range all {
		name := filepath.Join("../..", f.page)
		pattern := spaces.ReplaceAllString(regexp.QuoteMeta(f.sentence), `\s+`)
		pattern = strings.NewReplacer(`\{\}`, `([^\s|]*)`, `\{…\}`, `((?s:.*?))`).Replace(pattern)
		found := regexp.MustCompile(pattern).FindAllStringSubmatchIndex(pages[name], -1)
		if len(found) != 1 || len(found[0]) != 2+2*len(f.values) {
			t.Errorf("%s has %d times, with %d values: %s", f.page, len(found), len(f.values), f.sentence)
			continue
		}
		grown := 0
		for i, value := range slices.Backward(f.values) { // the last first, so that the positions of the others stay right
			from, to := found[0][2+2*i], found[0][3+2*i]
			page := pages[name]
			if page[from:to] != value && !*update {
				t.Errorf("%s says %q where it is %q (make generate writes it): %s", f.page, page[from:to], value, f.sentence)
			}
			pages[name] = page[:from] + value + page[to:]
			grown += len(value) - (to - from)
		}
		claimed[name] = append(claimed[name], pages[name][found[0][0]:found[0][1]+grown])
	}
	for name, was := range documents(t) {
		if *update && pages[name] != was {
			if err := os.WriteFile(name, []byte(pages[name]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, page := range pages {
		if strings.HasSuffix(name, "CHANGELOG.md") || strings.Contains(filepath.ToSlash(name), "/adr/") {
			// these pages describe the past
			continue
		}
		bare := []byte(page)
		for _, sentence := range claimed[name] {
			if at := strings.Index(page, sentence); at >= 0 { // else another figure has written into it
				takeOut(bare, at, at+len(sentence))
			}
		}
		for _, not := range notFigures {
			for _, at := range not.FindAllStringIndex(page, -1) {
				takeOut(bare, at[0], at[1])
			}
		}
		for _, at := range number.FindAllIndex(bare, -1) {
			begin, end := bytes.LastIndexByte(bare[:at[0]], '\n')+1, at[1]+bytes.IndexByte(append(bare[at[1]:], '\n'), '\n')
			t.Errorf("%s: nothing says whether %s is true; give it a row in figures, or leave it out: %s", name,
				bare[at[0]:at[1]], page[begin:end])
		}
	}
}

// takeOut blanks a part of a page, so that other positions stay right.
func takeOut(page []byte, from, to int) {
	for i := from; i < to; i++ {
		if page[i] != '\n' {
			page[i] = ' '
		}
	}
}

var (
	spaces = regexp.MustCompile(`\s+`)
	number = regexp.MustCompile(
		`(?i)\b[0-9][0-9.,]*[0-9]|\b[2-9]\b|\b(?:five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)(?:teen|ty)|twenty)\b`)
)

// notFigures are the parts of pages whose numbers are no figures, or are tested elsewhere.
var notFigures = []*regexp.Regexp{
	// up to the page's end; other tests check it
	regexp.MustCompile(`(?s)<!-- (?:Written by|Generated).*`),
	regexp.MustCompile(`(?s)<!-- outcomes -->.*?<!-- /`), // likewise
	// blocks: see TestShownOutput
	regexp.MustCompile("(?ms)^ *```[a-z]*[^\n]*\n.*?^ *```"),
	regexp.MustCompile(`(?m)^(?:\t|    ).*$`), // likewise
	// typed text, or text of a file
	regexp.MustCompile("`[^`\n]+`"),
	// addresses and tags
	regexp.MustCompile(`\]\([^)\s]*\)|<[a-z/][^>]*>|https?://\S+`),
	// steps, times, dates
	regexp.MustCompile(`(?m)^\d+\. |^\*\*\d+\. |\d\d:\d\d|\b20\d\d(?:-\d\d-\d\d)?\b|\b19\d\d\b`),
	regexp.MustCompile(`RFC \d+|§+[\d.]+|ADR \d+|ISO \d+|SHA-\d+|IPv\d|UTF-\d+|HTTP/[\d.]+|License 2\.0`), // names
	// statuses of HTTP
	regexp.MustCompile(`\b[1-5]xx\b|\b(?:401|403|404|408|429|503|504|599)\b`),
}

// constants are the constants of a package of this module, also those that only the package sees.
func constants(t *testing.T, folder string) map[string]constant.Value {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(names), err)
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	// what depends on other packages has no value
	config := types.Config{Importer: onlyTime{}, Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := config.Check(folder, files, parsed, nil)
	values := map[string]constant.Value{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			values[name] = c.Val()
		}
	}
	return values
}

// onlyTime imports package time with its durations, and others without anything.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	if path == "time" {
		duration := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "Duration", nil), types.Typ[types.Int64], nil)
		pkg.Scope().Insert(duration.Obj())
		for name, ns := range map[string]int64{"Nanosecond": 1, "Microsecond": 1e3, "Millisecond": 1e6, "Second": 1e9,
			"Minute": 60e9, "Hour": 3600e9} {
			pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, name, duration, constant.MakeInt64(ns)))
		}
	}
	pkg.MarkComplete()
	return pkg, nil
}

// A source has what the code and other files of the project say.
type source struct {
	t     *testing.T
	known map[string]map[string]constant.Value // the constants of each package
}

// number returns a constant, as in `sink.DefaultPartRows`; durations are in nanoseconds.
func (s *source) number(name string) constant.Value {
	folder, of := filepath.Dir(name)+"/"+strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)),
		strings.TrimPrefix(filepath.Ext(name), ".")
	if s.known[folder] == nil {
		s.known[folder] = constants(s.t, folder)
	}
	value := s.known[folder][of]
	if value == nil || value.Kind() == constant.Unknown {
		s.t.Fatalf("%s has no constant %s with a value", folder, of)
	}
	return value
}

func (s *source) constant(name string) int64 {
	value, exact := constant.Int64Val(constant.ToInt(s.number(name)))
	if !exact {
		s.t.Errorf("%s is no whole number", name)
	}
	return value
}

func (s *source) fraction(name string) float64 {
	value, _ := constant.Float64Val(s.number(name))
	return value
}

// text is a file of the project.
func (s *source) text(file string) string {
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// commentWrap is where a comment continues in its next line.
var commentWrap = regexp.MustCompile(`\n\t*// `)

// in is what the only group of a pattern matches in a file, whose comments are taken as lines without an end.
func (s *source) in(file, pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(commentWrap.ReplaceAllString(s.text(file), " "))
	if found == nil {
		s.t.Errorf("%s has no %s", file, pattern)
		return ""
	}
	return found[1]
}

// all are the groups of a pattern in a part of a file.
func (s *source) all(file, part, pattern string) (names []string) {
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(s.in(file, part), -1) {
		names = append(names, found[1])
	}
	return names
}

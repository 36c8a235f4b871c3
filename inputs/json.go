package inputs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/jsonlite"
)

// maxJSONDepth bounds the recursion of the library.
const maxJSONDepth = 100

// The values that are read from a line.
const (
	jsonHost = iota
	jsonRank
	jsonLabel
	jsonWanted
)

// jsonPath is the keys that lead to a value, outermost first. Empty: the value is not wanted.
type jsonPath []string

func (p jsonPath) String() string { return strings.Join(p, ".") }

// parseJSON returns the object in a line, and false if the line is no object by RFC 8259, or too deep.
func parseJSON(line string) (object *jsonlite.Value, ok bool) {
	depth, tokens := 0, jsonlite.Tokenize(line)
	for token, ok := tokens.Next(); ok; token, ok = tokens.Next() {
		switch token {
		case "{", "[":
			depth++
		case "}", "]":
			depth--
		}
		if depth > maxJSONDepth {
			return nil, false
		}
	}
	object, err := jsonlite.ParseMaxDepth(line, maxJSONDepth)
	return object, err == nil && object.Kind() == jsonlite.Object
}

// of returns the value that the path leads to, nil if there is none. The last of equal keys counts.
func (p jsonPath) of(value *jsonlite.Value) *jsonlite.Value {
	if len(p) == 0 {
		return nil
	}
	for _, key := range p {
		if value == nil || value.Kind() != jsonlite.Object {
			return nil
		}
		object := value
		value = nil
		for name, of := range object.Object {
			if name == key {
				value = of
			}
		}
	}
	return value
}

// readJSON reads a line with an object or a string.
func (c *record) readJSON(line []byte, l *layout) string {
	text := string(trimSpace(line))
	if text[0] == '"' {
		host, err := jsonlite.Parse(text)
		if err != nil {
			return "not valid JSON"
		}
		c.host = trimSpace(jsonText(host))
		return ""
	}
	object, ok := parseJSON(text)
	if !ok {
		return "not a JSON object"
	}
	if c.host = trimSpace(jsonText(l.paths[jsonHost].of(object))); len(c.host) == 0 {
		return "the object has no text under the key of the host"
	}
	c.label = trimSpace(jsonText(l.paths[jsonLabel].of(object)))
	c.rank = Number(trimSpace(jsonText(l.paths[jsonRank].of(object))))
	return ""
}

// jsonText returns the text of a string, a number or a truth, and nil for other values. Half a surrogate pair, which
// the library refuses, becomes U+FFFD.
func jsonText(value *jsonlite.Value) []byte {
	switch {
	case value == nil || slices.Contains([]jsonlite.Kind{jsonlite.Null, jsonlite.Object, jsonlite.Array}, value.Kind()):
		return nil
	case value.Kind() != jsonlite.String:
		return []byte(value.JSON())
	}
	raw := value.JSON()
	text, err := jsonlite.AppendUnquote(make([]byte, 0, len(raw)), raw)
	if err != nil {
		var lossy string
		_ = json.Unmarshal([]byte(raw), &lossy) // it was parsed
		text = []byte(lossy)
	}
	return text
}

// detectJSON chooses the keys from the sampled objects.
func (l *layout) detectJSON(lines [][]byte, opt Options) error {
	l.format = JSONL
	paths, err := objectPaths(lines)
	if err != nil {
		return err
	}
	var keys []string
	for _, p := range paths {
		keys = append(keys, p.String())
	}
	all := listed(len(keys), func(i int) string { return strconv.Quote(Clip(keys[i], 80)) })
	for wanted, names := range map[int][]string{jsonHost: HostNames, jsonRank: RankNames} {
		if i := named(keys, names); i >= 0 {
			l.paths[wanted] = paths[i]
		}
	}
	for _, f := range []struct {
		wanted     int
		flag, name string
	}{{jsonHost, "--column", opt.Column}, {jsonLabel, "--label-column", opt.LabelColumn}} {
		if f.name == "" {
			continue
		}
		i := slices.IndexFunc(keys, func(key string) bool { return normalName(key) == normalName(f.name) })
		if i < 0 {
			return &layoutError{fmt.Sprintf("its first objects have no key %q, but %s", Clip(f.name, 80), all),
				"choose one of these with " + f.flag}
		}
		l.paths[f.wanted] = paths[i]
	}
	if l.paths[jsonHost] == nil && len(paths) > 0 {
		return &layoutError{fmt.Sprintf("no key of its first objects is known to hold hosts (%s)", all),
			"choose one with --column"}
	}
	return nil
}

// Bounds on what is read of the sampled objects.
const (
	maxPaths      = 1000
	maxNestedKeys = 6
	maxKey        = 200 // bytes
)

// objectPaths returns the paths to values that are neither objects nor arrays in the sampled lines, the shortest
// first, at most maxPaths.
func objectPaths(lines [][]byte) ([]jsonPath, error) {
	seen := map[string]bool{}
	var paths []jsonPath
	var walk func(above jsonPath, object *jsonlite.Value)
	walk = func(above jsonPath, object *jsonlite.Value) {
		for key, value := range object.Object {
			if len(key) > maxKey {
				continue
			}
			path := append(slices.Clip(above), key)
			switch value.Kind() {
			case jsonlite.Array:
			case jsonlite.Object:
				if len(path) < maxNestedKeys {
					walk(path, value)
				}
			default:
				if id := strings.Join(path, "\x00"); !seen[id] {
					seen[id] = true
					paths = append(paths, path)
				}
			}
		}
	}
	objects := 0
	for _, line := range lines {
		if object, err := jsonlite.Parse(string(line)); err == nil && object.Kind() == jsonlite.Object {
			objects++
			walk(nil, object)
		}
	}
	if objects == 0 && trimSpace(lines[0])[0] != '"' {
		return nil, &layoutError{"its first lines are no JSON objects",
			"write one object a line, as `jq -c .` does, or pass --format lines or csv"}
	}
	slices.SortFunc(paths, func(a, b jsonPath) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	return paths[:min(len(paths), maxPaths)], nil // sorted, so that every run keeps the same paths
}

package inputs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// This file reads JSON lines. One walk over a line checks all of it and finds the few values needed. Making a map of
// each line, as encoding/json does, takes five times as long.

// maxJSONDepth bounds the recursion of the walk.
const maxJSONDepth = 500

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

// jsonWalk is the walk over one line.
type jsonWalk struct {
	line  []byte
	at    int
	paths []jsonPath // at most 64
	found [][]byte   // by path, as written in the line
}

// walkJSON finds the values at the paths of an object. It reports false if the line is no object by RFC 8259. The last
// of equal keys counts.
func walkJSON(line []byte, paths []jsonPath, found [][]byte) bool {
	w := jsonWalk{line: line, paths: paths, found: found}
	w.space()
	if w.peek() != '{' {
		return false
	}
	var all uint64
	for i, path := range paths {
		if len(path) > 0 {
			all |= 1 << i
		}
	}
	if !w.value(all, 0) {
		return false
	}
	w.space()
	return w.at == len(line)
}

func (w *jsonWalk) peek() byte {
	if w.at < len(w.line) {
		return w.line[w.at]
	}
	return 0
}

func (w *jsonWalk) space() {
	for w.at < len(w.line) {
		switch w.line[w.at] {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return
		}
	}
}

// value skips a value at a depth. The first depth keys of the paths in on lead to it.
func (w *jsonWalk) value(on uint64, depth int) bool {
	if depth > maxJSONDepth {
		return false
	}
	from := w.at
	var ok bool
	switch c := w.peek(); {
	case c == '{':
		ok = w.object(on, depth)
	case c == '[':
		ok = w.array(depth)
	case c == '"':
		_, ok = w.text()
	case c == '-' || c >= '0' && c <= '9':
		ok = w.number()
	default:
		ok = w.word("true") || w.word("false") || w.word("null")
	}
	for i := 0; on != 0 && i < len(w.paths); i++ {
		if on&(1<<i) != 0 && len(w.paths[i]) == depth {
			w.found[i] = w.line[from:w.at]
		}
	}
	return ok
}

func (w *jsonWalk) object(on uint64, depth int) bool {
	w.at++
	w.space()
	if w.peek() == '}' {
		w.at++
		return true
	}
	for {
		key, ok := w.text()
		if !ok {
			return false
		}
		var under uint64
		if on != 0 {
			under = w.under(key, on, depth)
		}
		w.space()
		if w.peek() != ':' {
			return false
		}
		w.at++
		w.space()
		if !w.value(under, depth+1) {
			return false
		}
		w.space()
		switch w.peek() {
		case ',':
			w.at++
			w.space()
		case '}':
			w.at++
			return true
		default:
			return false
		}
	}
}

// under returns which of the paths continue with a key. It drops the values of an earlier, equal key.
func (w *jsonWalk) under(key []byte, on uint64, depth int) (under uint64) {
	key = unescapeJSON(key)
	for i, path := range w.paths {
		if on&(1<<i) != 0 && len(path) > depth && path[depth] == string(key) {
			under |= 1 << i
			w.found[i] = nil
		}
	}
	return under
}

func (w *jsonWalk) array(depth int) bool {
	w.at++
	w.space()
	if w.peek() == ']' {
		w.at++
		return true
	}
	for {
		if !w.value(0, depth+1) {
			return false
		}
		w.space()
		switch w.peek() {
		case ',':
			w.at++
			w.space()
		case ']':
			w.at++
			return true
		default:
			return false
		}
	}
}

// text skips a string and returns it with its quotes and escapes.
func (w *jsonWalk) text() (raw []byte, ok bool) {
	from := w.at
	if w.peek() != '"' {
		return nil, false
	}
	for w.at++; w.at < len(w.line); w.at++ {
		switch c := w.line[w.at]; {
		case c == '"':
			w.at++
			return w.line[from:w.at], true
		case c < ' ':
			return nil, false
		case c == '\\':
			if w.at++; !w.escape() {
				return nil, false
			}
		}
	}
	return nil, false
}

// escape skips an escape after its backslash, except its last byte.
func (w *jsonWalk) escape() bool {
	switch w.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		if w.at+4 >= len(w.line) {
			return false
		}
		for range 4 {
			w.at++
			if c := w.line[w.at] | 0x20; !(c >= '0' && c <= '9' && w.line[w.at] == c || c >= 'a' && c <= 'f') {
				return false
			}
		}
		return true
	}
	return false
}

// number skips a number: `-`, an integer without leading zeros, a fraction and an exponent.
func (w *jsonWalk) number() bool {
	if w.peek() == '-' {
		w.at++
	}
	if w.peek() == '0' {
		w.at++
	} else if !w.digits() {
		return false
	}
	if w.peek() == '.' {
		if w.at++; !w.digits() {
			return false
		}
	}
	if w.peek()|0x20 == 'e' {
		w.at++
		if c := w.peek(); c == '+' || c == '-' {
			w.at++
		}
		return w.digits()
	}
	return true
}

func (w *jsonWalk) digits() bool {
	from := w.at
	for c := w.peek(); c >= '0' && c <= '9'; c = w.peek() {
		w.at++
	}
	return w.at > from
}

func (w *jsonWalk) word(word string) bool {
	if !bytes.HasPrefix(w.line[w.at:], []byte(word)) {
		return false
	}
	w.at += len(word)
	return true
}

// readJSON reads a line with an object or a string.
func (c *record) readJSON(line []byte, l *layout) string {
	text := trimSpace(line)
	if text[0] == '"' {
		host, ok := jsonText(text)
		if !ok {
			return "not valid JSON"
		}
		c.host = host
		return ""
	}
	var found [jsonWanted][]byte
	if !walkJSON(text, l.paths[:], found[:]) {
		return "not a JSON object"
	}
	var ok bool
	if c.host, ok = jsonText(found[jsonHost]); !ok || len(c.host) == 0 {
		c.host = nil
		return "the object has no text under the key of the host"
	}
	c.label = jsonCell(found[jsonLabel])
	c.rank = Number(jsonCell(found[jsonRank]))
	return ""
}

// jsonCell returns the text of a string, number or boolean, and nil for other values.
func jsonCell(raw []byte) []byte {
	if len(raw) > 0 && (raw[0] == 't' || raw[0] == 'f' || raw[0] == '-') {
		return raw
	}
	text, _ := jsonText(raw)
	return text
}

// jsonText returns the text of a string, or the digits of a number that is not negative.
func jsonText(raw []byte) ([]byte, bool) {
	switch {
	case len(raw) > 0 && raw[0] >= '0' && raw[0] <= '9':
		return raw, true
	case len(raw) == 0 || raw[0] != '"':
		return nil, false
	}
	w := jsonWalk{line: raw}
	if text, ok := w.text(); !ok || len(text) != len(raw) {
		return nil, false
	}
	return trimSpace(unescapeJSON(raw)), true
}

// unescapeJSON returns the text of a valid string.
func unescapeJSON(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	_ = json.Unmarshal(raw, &s) // lone surrogates become U+FFFD
	return []byte(s)
}

// detectJSON chooses the keys from the sampled objects.
func (l *layout) detectJSON(lines [][]byte, opt Options) error {
	l.format = JSONL
	paths, err := objectPaths(lines)
	if err != nil {
		return err
	}
	find := func(names []string, nameOf func(jsonPath) string) jsonPath {
		for _, want := range names {
			if i := slices.IndexFunc(paths, func(p jsonPath) bool { return normalName(nameOf(p)) == normalName(want) }); i >= 0 {
				return paths[i]
			}
		}
		return nil
	}
	last := func(p jsonPath) string { return p[len(p)-1] }
	known := func(names []string) jsonPath {
		if p := find(names, jsonPath.String); p != nil {
			return p
		}
		return find(names, last)
	}
	l.paths[jsonHost], l.paths[jsonRank] = known(HostNames), known(RankNames)
	for _, f := range []struct {
		wanted     int
		flag, name string
	}{{jsonHost, "--column", opt.Column}, {jsonLabel, "--label-column", opt.LabelColumn}} {
		if f.name == "" {
			continue
		}
		if l.paths[f.wanted] = find([]string{f.name}, jsonPath.String); l.paths[f.wanted] == nil {
			return &layoutError{fmt.Sprintf("its first objects have no key %q, but %s", Clip(f.name, 80), listPaths(paths)), "choose one of these with " + f.flag}
		}
	}
	if l.paths[jsonHost] == nil && len(paths) > 0 {
		return &layoutError{fmt.Sprintf("no key of its first objects is known to hold hosts (%s)", listPaths(paths)), "choose one with --column"}
	}
	return nil
}

// listPaths lists keys for a message.
func listPaths(paths []jsonPath) string {
	var b strings.Builder
	for i, p := range paths {
		if i == maxListed {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", Clip(p.String(), 80))
	}
	return b.String()
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
	var walk func(above jsonPath, object map[string]any)
	walk = func(above jsonPath, object map[string]any) {
		for key, value := range object {
			if len(key) > maxKey {
				continue
			}
			path := append(slices.Clip(above), key)
			switch value := value.(type) {
			case []any:
			case map[string]any:
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
		var object map[string]any
		if json.Unmarshal(line, &object) == nil && object != nil {
			objects++
			walk(nil, object)
		}
	}
	if objects == 0 && trimSpace(lines[0])[0] != '"' {
		return nil, &layoutError{"its first lines are no JSON objects", "write one object a line, as `jq -c .` does, or pass --format lines or csv"}
	}
	slices.SortFunc(paths, func(a, b jsonPath) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	return paths[:min(len(paths), maxPaths)], nil // sorted, so that every run keeps the same paths
}

package bodies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/inputs"
)

// objects are JSON lines. A row may lack any key, so that each is looked up by all its usual names.
type objects struct {
	*records
	find    *inputs.JSONFinder
	from    [numColumns + 1]int // by column, its first name in find
	scratch [numColumns][]byte
}

func newObjects(text *records, columns Columns) (*objects, error) {
	o := &objects{records: text}
	var keys []string
	for column := range numColumns {
		o.from[column] = len(keys)
		keys = append(keys, columns.names(column)...)
	}
	o.from[numColumns] = len(keys)
	o.find = inputs.NewJSONFinder(keys)
	return o, o.look(columns)
}

// look refuses a stream whose first object has nothing of what is needed.
func (o *objects) look(columns Columns) error {
	for !bytes.Contains(bytes.TrimLeft(o.buf[o.r:o.w], " \t\r\n"), []byte{'\n'}) && o.more() {
	}
	first, _, _ := bytes.Cut(bytes.TrimLeft(o.buf[o.r:o.w], " \t\r\n"), []byte{'\n'})
	var object map[string]json.RawMessage
	if !o.find.Find(first) || json.Unmarshal(first, &object) != nil {
		return nil // it will be a reject
	}
	for _, need := range [][]int{{site}, {body, status, observed, unchanged}} {
		if !slices.ContainsFunc(need, func(column int) bool { return o.raw(column) != nil }) {
			return columns.unknown(slices.Sorted(maps.Keys(object)), need[0], "key", "first object")
		}
	}
	return nil
}

// maxNamed is how many columns a message names, each with so many bytes at most.
const maxNamed, maxName = 20, 80

// unknown is the error of a file without a column that is needed.
func (c Columns) unknown(names []string, column int, what, where string) error {
	var list []string
	for _, name := range names[:min(len(names), maxNamed)] {
		list = append(list, fmt.Sprintf("%.*q", maxName, strings.ToValidUTF8(name, "\uFFFD")))
	}
	is := "known to hold " + map[int]string{site: "hosts", body: "bodies"}[column]
	if name, given := c[known[column].name]; given {
		is = fmt.Sprintf("called %.*q", maxName, name)
	}
	return inputs.ErrColumns(fmt.Sprintf("no %s of its %s is %s (%s)", what, where, is, strings.Join(list, ", ")), fmt.Sprintf("name one with --columns %s=NAME", known[column].name))
}

func (o *objects) layout() string { return "jsonl" }

func (o *objects) next() (line uint64, text []byte, reason string, err error) {
	for len(text) == 0 {
		line = o.lines + 1
		var long bool
		if text, long, err = o.line(); err != nil {
			return line, nil, "", err
		}
		if text = bytes.TrimSpace(text); long {
			return line, text, "the line is longer than 8 MiB", nil
		}
	}
	if !o.find.Find(text) {
		reason = "not a JSON object"
	}
	return line, text, reason, nil
}

// raw is a column's value as written; nil if it has none.
func (o *objects) raw(column int) []byte {
	for i := o.from[column]; i < o.from[column+1]; i++ {
		if raw := o.find.Raw(i); raw != nil {
			return raw
		}
	}
	return nil
}

func (o *objects) cell(column int) ([]byte, bool) {
	raw := o.raw(column)
	switch {
	case raw == nil || string(raw) == "null":
		return nil, false
	case raw[0] != '"':
		return raw, true
	}
	o.scratch[column] = inputs.AppendJSONText(o.scratch[column][:0], raw)
	return o.scratch[column], true
}

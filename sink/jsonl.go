package sink

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// JSONLines is the sink of `-o -`. It writes one JSON object for each site on one line: the columns of sites by name,
// and `verdicts`, a list of objects with the remaining columns of verdicts; or only some of these fields, in another
// order. Absent values are null, ids of 64 bits are strings. Lines are valid UTF-8. Characters that could affect a
// terminal are escaped: control characters, including the C1 block, and characters that reverse or hide text. A line is
// written whole, at most one second after its site was added.
type JSONLines struct {
	mu      sync.Mutex
	copier  copier
	fields  []jsonField
	most    int // bytes of a line; 0: no bound
	out     *bufio.Writer
	line    []byte
	site    schema.SiteRow
	verdict schema.VerdictRow
	closed  bool
	err     error
	flusher *time.Timer
}

const (
	jsonBuffer = 64 << 10
	jsonDelay  = time.Second
	jsonKeep   = 1 << 20 // bytes of a line's buffer that are kept for reuse
)

// Short is the name of some fields that say in at most 300 bytes what a site came to. Where the name of a host is so
// long that the others have no room behind it, the last of them are left out.
const Short = "short"

const shortLine = 300

var shortFields = []string{"host", "finding", "status", "star_verdict", "score"}

// NewJSONLines returns a sink that writes to w lines with these fields, in this order, or with all. Their names are
// those of JSONFields, and Short. Of the options it uses ScanID and Registry.
func NewJSONLines(w io.Writer, o Options, names ...string) *JSONLines {
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	j := &JSONLines{
		copier: newCopier(o.ScanID, o.Registry),
		fields: lineFields,
		out:    bufio.NewWriterSize(w, jsonBuffer),
	}
	if slices.Equal(names, []string{Short}) {
		j.most = shortLine
	}
	if at := slices.Index(names, Short); at >= 0 {
		names = slices.Replace(slices.Clone(names), at, at+1, shortFields...)
	}
	if len(names) > 0 {
		j.fields = nil
	}
	for i, name := range names {
		if at := slices.Index(JSONFields(), name); at >= 0 && !slices.Contains(names[:i], name) {
			j.fields = append(j.fields, lineFields[at])
		}
	}
	return j
}

// JSONFields are the names of all fields of a line, in its order.
func JSONFields() (names []string) {
	for _, field := range lineFields {
		names = append(names, strings.Trim(field.label, `":`))
	}
	return names
}

var (
	lineFields = append(jsonFieldsOf(reflect.TypeFor[schema.SiteRow]()), jsonField{label: `"verdicts":`,
		index: ofVerdicts})
	verdictFields = jsonFieldsOf(reflect.TypeFor[schema.VerdictRow](), "origin", "host", "port", "requested", "seq",
		"rank", "tld")
)

// Add writes a site's line.
func (j *JSONLines) Add(s *audit.Site) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return commit.ErrClosed
	}
	if j.err != nil {
		return j.err
	}
	k := j.copier.key(s)
	j.copier.site(&j.site, k, s)
	b, row := append(j.line[:0], '{'), reflect.ValueOf(&j.site).Elem()
	for i := range j.fields {
		f, before := &j.fields[i], len(b)
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.label...)
		if f.index == ofVerdicts {
			b = j.appendVerdicts(b, k, s)
		} else {
			b = appendField(b, f, row.Field(f.index))
		}
		if j.most > 0 && len(b)+len("}\n") > j.most {
			b = b[:before]
			break
		}
	}
	b = append(b, "}\n"...)
	j.copier.reset()
	if j.out.Available() < len(b) && j.out.Buffered() > 0 {
		j.err = j.out.Flush() // whole lines only, so that a reader of a pipe never waits for the rest of a line
	}
	if j.err == nil {
		_, j.err = j.out.Write(b)
	}
	if j.line = b; cap(b) > jsonKeep {
		j.line = nil
	}
	if j.err != nil {
		j.err = fmt.Errorf("cannot write a JSON line: %w", j.err)
		return j.err
	}
	if j.flusher == nil {
		j.flusher = time.AfterFunc(jsonDelay, j.flushLater)
	} else if j.out.Buffered() == len(b) {
		j.flusher.Reset(jsonDelay)
	}
	return nil
}

// appendVerdicts appends the list of a site's verdicts.
func (j *JSONLines) appendVerdicts(b []byte, k key, s *audit.Site) []byte {
	b = append(b, '[')
	for i := range s.Report.Verdicts {
		if i > 0 {
			b = append(b, ',')
		}
		j.copier.verdict(&j.verdict, k, &s.Report.Verdicts[i])
		b = append(b, '{')
		b = appendFields(b, verdictFields, reflect.ValueOf(&j.verdict).Elem())
		b = append(b, '}')
	}
	return append(b, ']')
}

// flushLater writes the buffered lines.
func (j *JSONLines) flushLater() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.out.Flush(); err != nil && j.err == nil {
		j.err = fmt.Errorf("cannot write a JSON line: %w", err)
	}
}

// Close writes what is buffered. It does not close the io.Writer.
func (j *JSONLines) Close(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if j.flusher != nil {
		j.flusher.Stop()
	}
	if err := j.out.Flush(); err != nil && j.err == nil {
		j.err = fmt.Errorf("cannot write a JSON line: %w", err)
	}
	return j.err
}

// jsonField says how to write a column: its `"name":` and its field.
type jsonField struct {
	label     string
	index     int  // in the row, or ofVerdicts
	optional  bool // null if the field is zero
	timestamp bool
	text      bool        // a number that is written as a string
	fields    []jsonField // fields of a struct, or of the structs in a list
}

// ofVerdicts is the index of a field that is a list of rows of verdicts.
const ofVerdicts = -1

// jsonFieldsOf returns the columns of a row type, except those in without.
func jsonFieldsOf(row reflect.Type, without ...string) []jsonField {
	var fields []jsonField
	for i := range row.NumField() {
		f := row.Field(i)
		if slices.Contains(without, schema.ColumnName(f)) {
			continue
		}
		field := jsonField{
			label:     strconv.Quote(schema.ColumnName(f)) + ":",
			index:     i,
			optional:  schema.HasOption(f, "optional"),
			timestamp: schema.HasOption(f, "timestamp(millisecond)"),
			text:      schema.IsText(f),
		}
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			field.fields = jsonFieldsOf(f.Type.Elem())
		}
		fields = append(fields, field)
	}
	return fields
}

// appendFields appends a row's columns without its braces.
func appendFields(b []byte, fields []jsonField, row reflect.Value) []byte {
	for i := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, fields[i].label...)
		b = appendField(b, &fields[i], row.Field(fields[i].index))
	}
	return b
}

func appendField(b []byte, f *jsonField, v reflect.Value) []byte {
	if f.optional && v.IsZero() {
		return append(b, "null"...)
	}
	if f.timestamp {
		b = append(b, '"')
		b = time.UnixMilli(v.Int()).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
		return append(b, '"')
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int32, reflect.Int64:
		if f.text {
			return append(strconv.AppendInt(append(b, '"'), v.Int(), 10), '"')
		}
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Float32:
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 32)
	case reflect.Float64:
		return appendJSONFloat(b, v.Float())
	case reflect.String:
		return printable.AppendJSON(b, v.String())
	case reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if element := v.Index(i); element.Kind() == reflect.Struct {
				b = append(b, '{')
				b = appendFields(b, f.fields, element)
				b = append(b, '}')
			} else {
				b = printable.AppendJSON(b, element.String())
			}
		}
		return append(b, ']')
	}
	panic("sink: a column of kind " + v.Kind().String()) // a new kind in a row type; tests cover all kinds that exist
}

// appendJSONFloat writes a finite number. JSON has no others, so they are null.
func appendJSONFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, 64)
}

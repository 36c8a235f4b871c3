// Package jsonlines answers one question: what does a scan print? It is the sink of `-o -`: one JSON object for each
// site on one line, with the columns of sites by name, and `verdicts`, a list of objects with the remaining columns of
// verdicts; or only some of these fields, in another order. Absent values are null, ids of 64 bits are strings. Lines
// are valid UTF-8. Characters that could affect a terminal are escaped: control characters, including the C1 block, and
// characters that reverse or hide text.
package jsonlines

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
	"github.com/bulkscan/bulkscan/sink/siterows"
)

// Writer writes lines. Each line is written in one piece, at most one second after its site was added.
type Writer struct {
	mu      sync.Mutex
	copier  *siterows.Copier
	fields  []field
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
	buffered = 64 << 10
	delay    = time.Second
	keptLine = 1 << 20 // bytes of a line's buffer that are kept for reuse
)

// Short stands for a few fields that describe a site's result. If only Short is given, a line has at most 300 bytes: if
// the host's name is too long, the last fields are left out.
const Short = "short"

const shortLine = 300

var shortFields = []string{"host", "finding", "status", "star_verdict", "score"}

// New returns a sink that writes lines to w. The lines have the fields in names (of Fields, or Short) in this order, or
// all fields if there are no names. The registry is the one with which the sites are judged.
func New(w io.Writer, scanID string, registry *tokens.Registry, names ...string) *Writer {
	j := &Writer{
		copier: siterows.New(scanID, registry),
		fields: lineFields,
		out:    bufio.NewWriterSize(w, buffered),
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
		if at := slices.Index(Fields(), name); at >= 0 && !slices.Contains(names[:i], name) {
			j.fields = append(j.fields, lineFields[at])
		}
	}
	return j
}

// Fields are the names of all fields of a line, in its order.
func Fields() (names []string) {
	for _, field := range lineFields {
		names = append(names, strings.Trim(field.label, `":`))
	}
	return names
}

var (
	lineFields    = append(fieldsOf(reflect.TypeFor[schema.SiteRow]()), field{label: `"verdicts":`, index: ofVerdicts})
	verdictFields = fieldsOf(reflect.TypeFor[schema.VerdictRow](), siterows.Shared...)
)

// Add writes a site's line.
func (j *Writer) Add(s *audit.Site) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return commit.ErrClosed
	}
	if j.err != nil {
		return j.err
	}
	k := j.copier.Key(s)
	j.copier.Site(&j.site, k, s)
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
	j.copier.Reset()
	if j.out.Available() < len(b) && j.out.Buffered() > 0 {
		j.failed(j.out.Flush()) // complete lines only, so that a reader of a pipe never waits for the rest of a line
	}
	_, err := j.out.Write(b) // after an error of Flush the same
	j.failed(err)
	if j.line = b; cap(b) > keptLine {
		j.line = nil
	}
	if j.err != nil {
		return j.err
	}
	if j.flusher == nil {
		j.flusher = time.AfterFunc(delay, j.flushLater)
	} else if j.out.Buffered() == len(b) {
		j.flusher.Reset(delay)
	}
	return nil
}

func (j *Writer) appendVerdicts(b []byte, k siterows.Key, s *audit.Site) []byte {
	b = append(b, '[')
	for i := range s.Report.Verdicts {
		if i > 0 {
			b = append(b, ',')
		}
		j.copier.Verdict(&j.verdict, k, &s.Report.Verdicts[i])
		b = append(b, '{')
		b = appendFields(b, verdictFields, reflect.ValueOf(&j.verdict).Elem())
		b = append(b, '}')
	}
	return append(b, ']')
}

// flushLater writes the buffered lines.
func (j *Writer) flushLater() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed(j.out.Flush())
}

// failed keeps the first error of writing.
func (j *Writer) failed(err error) {
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("cannot write a JSON line: %w", err)
	}
}

// Close writes what is buffered. It does not close the io.Writer.
func (j *Writer) Close(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if j.flusher != nil {
		j.flusher.Stop()
	}
	j.failed(j.out.Flush())
	return j.err
}

// field says how to write a column: its `"name":` and its field.
type field struct {
	label     string
	index     int  // in the row, or ofVerdicts
	optional  bool // null if the field is zero
	timestamp bool
	text      bool    // a number that is written as a string
	fields    []field // fields of a struct, or of the structs in a list
}

// ofVerdicts is the index of a field that is a list of rows of verdicts.
const ofVerdicts = -1

// fieldsOf returns the columns of a row type, except those in without.
func fieldsOf(row reflect.Type, without ...string) []field {
	var fields []field
	for i := range row.NumField() {
		f := row.Field(i)
		if slices.Contains(without, schema.ColumnName(f)) {
			continue
		}
		field := field{
			label:     strconv.Quote(schema.ColumnName(f)) + ":",
			index:     i,
			optional:  schema.HasOption(f, "optional"),
			timestamp: schema.HasOption(f, "timestamp(millisecond)"),
			text:      schema.IsText(f),
		}
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			field.fields = fieldsOf(f.Type.Elem())
		}
		fields = append(fields, field)
	}
	return fields
}

func appendFields(b []byte, fields []field, row reflect.Value) []byte {
	for i := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, fields[i].label...)
		b = appendField(b, &fields[i], row.Field(fields[i].index))
	}
	return b
}

func appendField(b []byte, f *field, v reflect.Value) []byte {
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
	panic("jsonlines: a column of kind " + v.Kind().String()) // a new kind in a row type; tests cover all kinds that exist
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

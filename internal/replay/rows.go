package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/bodies"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// readRows reads the rows of one stream.
func (n *Nights) readRows(in inputs.Stream, progress func()) error {
	r, err := bodies.Open(n.ctx, in, n.opt.Columns, n.opt.Parquet)
	if err != nil {
		return n.failed(in.Name, err)
	}
	n.begin(in.Name, r.Layout(), in.Compression)
	for !n.full() {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		progress()
		if err := n.takeRow(row); err != nil {
			return err
		}
	}
	return nil
}

// readFolder reads a folder of bodies.
func (n *Nights) readFolder(paths []string) error {
	files, err := bodies.Files(paths[0])
	if err != nil {
		return &inputs.Error{File: paths[0], Err: plain(err)}
	}
	n.begin(paths[0], "folder", "")
	for _, file := range files {
		if n.full() {
			break
		}
		row, err := bodies.ReadFile(n.ctx, file, n.opt.MaxBody)
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(paths[0], file); err == nil {
			row.Text = []byte(name)
		}
		if err := n.takeRow(row); err != nil {
			return err
		}
	}
	return nil
}

// takeRow takes a row of bodies.
func (n *Nights) takeRow(row *bodies.Row) error {
	r := n.count()
	if row.Line > 0 {
		r.line = row.Line
	}
	if row.Reason != "" {
		return n.reject(&r, row.Text, row.Reason)
	}
	site := string(row.Site)
	o, reason := inputs.ParseSite(site, n.opt.LocalNames)
	if reason != "" {
		return n.reject(&r, row.Text, reason)
	}
	if n.leftOut(o.Host()) {
		return nil
	}
	n.found.Rows++
	asked := exchange.Target{Origin: o}
	switch o.Scheme() {
	case origin.Auto:
		r.flags |= auto
		asked.Origin = o.As(origin.HTTPS)
	case origin.HTTP, origin.HTTPS:
	default:
		return n.reject(&r, row.Text, "its scheme is neither http nor https")
	}
	if len(row.FinalURL) > 0 {
		final, ok := fetcher.ParseTarget(string(row.FinalURL))
		if !ok {
			return n.reject(&r, row.Text, "its final URL is no http or https URL")
		}
		if final != asked {
			r.final = final.AppendTo(nil)
		}
	}
	switch {
	case row.Carried:
		r.flags |= unseen | carried
		n.found.Carried++
	case row.Status < 0, row.Status == 0 && len(row.Body) == 0:
		r.flags |= unseen
		n.found.NoBody++
	default:
		if row.Status == 0 {
			row.Status = 200
			n.found.NoStatus++
		}
		is, leads := settles(strconv.Itoa(row.Status), false)
		if is {
			r.flags |= settled
		}
		if leads {
			r.flags |= redirect
		}
		r.block = n.response(row)
	}
	r.url, r.rank = asked.AppendTo(nil), row.Rank
	r.input = []byte(inputs.Clip(strings.ToValidUTF8(site, "\uFFFD"), inputs.MaxInput))
	r.label = []byte(inputs.Clip(strings.ToValidUTF8(string(row.Label), "\uFFFD"), inputs.MaxLabel))
	return n.add(&r, row.At, "")
}

// response writes the row as the response that its body was: the fetcher reads it like any other.
func (n *Nights) response(row *bodies.Row) []byte {
	body := row.Body[:min(len(row.Body), n.opt.MaxBody+1)]
	block := make([]byte, 0, 128+len(body))
	block = fmt.Appendf(block, "HTTP/1.1 %d\r\n", row.Status)
	for _, field := range fieldsOf(row.Headers) {
		if name := strings.ToLower(field[0]); !framing[name] && (name != "content-type" || len(row.ContentType) == 0) {
			block = appendField(block, field[0], field[1])
		}
	}
	if len(row.ContentType) > 0 {
		block = appendField(block, "Content-Type", string(row.ContentType))
	}
	block = fmt.Appendf(block, "Content-Length: %d\r\n\r\n", len(body))
	return append(block, body...)
}

// framing are the fields that describe a body as it was sent. Those of rows are decoded.
var framing = map[string]bool{"content-length": true, "transfer-encoding": true, "content-encoding": true, "connection": true, "trailer": true}

// maxFields bounds the fields of a row, in bytes of all and of each.
const maxFields, maxField = 32 << 10, 4 << 10

// appendField appends a field, unless it is none. The values of rows come from anywhere, so line ends become spaces.
func appendField(block []byte, name, value string) []byte {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) || len(name)+len(value) > maxField {
		return block
	}
	value = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
	return fmt.Appendf(block, "%s: %s\r\n", name, strings.TrimSpace(value))
}

// fieldsOf reads header fields: a JSON object, of which values may be lists, or lines. What cannot be read is left out.
func fieldsOf(headers []byte) (fields [][2]string) {
	headers = headers[:min(len(headers), maxFields)]
	if bytes.HasPrefix(headers, []byte("{")) {
		var object map[string]any
		_ = json.Unmarshal(headers, &object)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			values, ok := object[name].([]any)
			if !ok {
				values = []any{object[name]}
			}
			for _, value := range values {
				if text, ok := value.(string); ok {
					fields = append(fields, [2]string{name, text})
				}
			}
		}
		return fields
	}
	for line := range strings.Lines(string(headers)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields = append(fields, [2]string{name, value})
		}
	}
	return fields
}

package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/bodies"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// readFolder reads a folder of bodies.
func (n *Nights) readFolder(folder string) error {
	files, err := bodies.Files(folder)
	if err != nil {
		return &inputs.Error{File: folder, Err: plain(err)}
	}
	n.begin(inputs.FileStats{Name: folder, Layout: "folder"})
	for _, file := range files {
		if n.full() {
			break
		}
		row, err := bodies.ReadFile(n.ctx, file, n.opt.MaxBody)
		if err != nil {
			return err
		}
		row.Text = []byte(strings.TrimPrefix(file, folder+string(filepath.Separator)))
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
		r.block = n.response(row)
	}
	r.rank = uint64(row.Rank)
	r.input = []byte(inputs.Clip(strings.ToValidUTF8(site, "\uFFFD"), inputs.MaxInput))
	r.label = []byte(inputs.Clip(strings.ToValidUTF8(string(row.Label), "\uFFFD"), inputs.MaxLabel))
	return n.add(&r, asked, row.At, "")
}

// response writes the row as the response that its body was: the fetcher reads it like any other.
func (n *Nights) response(row *bodies.Row) []byte {
	body := row.Body[:min(len(row.Body), n.opt.MaxBody+1)]
	fields := fieldsOf(row.Headers[:min(len(row.Headers), maxFields)])
	if len(row.ContentType) > 0 {
		fields.Set("Content-Type", string(row.ContentType[:min(len(row.ContentType), maxFields)]))
	}
	var block bytes.Buffer
	fmt.Fprintf(&block, "HTTP/1.1 %d\r\n", row.Status)
	_ = fields.WriteSubset(&block, framing) // to memory
	fmt.Fprintf(&block, "Content-Length: %d\r\n\r\n", len(body))
	block.Write(body)
	return block.Bytes()
}

// framing are the fields that describe a body as it was sent. Those of rows are decoded.
var framing = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Content-Encoding": true, "Connection": true, "Trailer": true}

// maxFields bounds the fields of a row in bytes.
const maxFields = 16 << 10

// fieldsOf reads header fields: a JSON object, of which values may be lists, or lines. What cannot be read is left out.
func fieldsOf(headers []byte) http.Header {
	fields := http.Header{}
	if bytes.HasPrefix(headers, []byte("{")) {
		var object map[string]any
		_ = json.Unmarshal(headers, &object)
		for name, value := range object {
			values, ok := value.([]any)
			if !ok {
				values = []any{value}
			}
			for _, value := range values {
				if text, ok := value.(string); ok {
					fields.Add(name, text)
				}
			}
		}
		return fields
	}
	for line := range strings.Lines(string(headers)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields.Add(name, value)
		}
	}
	return fields
}

package schema

import (
	"encoding/json"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// This file describes tables for programs that read Data Packages: those of a dataset (see package index), and a
// report's CSV files.

// PackageName is the file name of a description. In a dataset bulkscan replaces only one that contains PackageMark.
const (
	PackageName = "datapackage.json"
	PackageMark = "bulkscan writes this file anew; id, licenses and contributors that its publisher adds stay. Without this line the file stays as it is."
)

// DataPackage describes tables as files. The fields of raw JSON are for the publisher of a dataset to fill in.
type DataPackage struct {
	Schema       string              `json:"$schema"`
	Mark         string              `json:"bulkscan,omitempty"`
	Name         string              `json:"name"`
	ID           json.RawMessage     `json:"id,omitempty"`
	Title        string              `json:"title"`
	Description  string              `json:"description,omitempty"`
	Created      string              `json:"created"` // RFC 3339
	Licenses     json.RawMessage     `json:"licenses,omitempty"`
	Contributors json.RawMessage     `json:"contributors,omitempty"`
	Sources      []map[string]string `json:"sources"`
	Citation     string              `json:"bibliographicCitation"` // BibTeX; the name is that of Dublin Core
	Resources    []Resource          `json:"resources"`
}

// Resource is a table. Path is a file or a list of files: the standard has no patterns.
type Resource struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // table
	Path        any    `json:"path"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description"`
	Format      string `json:"format"`
	Encoding    string `json:"encoding,omitempty"` // of text
	Schema      struct {
		Fields []Field `json:"fields"`
	} `json:"schema"`
}

// Field is a column. The constraint maxLength counts characters, but is set to the bound in bytes, which is no less.
type Field struct {
	Name        string         `json:"name"`
	Type        string         `json:"type"`
	Description string         `json:"description,omitempty"`
	Example     string         `json:"example,omitempty"`
	Constraints map[string]any `json:"constraints,omitempty"`
}

// fieldTypes are the types of Table Schema by the first word of a column's type. Strings of Table Schema are text, so
// bytes have the type any.
var fieldTypes = map[string]string{
	"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer", "float": "number", "double": "number",
	"timestamp": "datetime", "list": "array", "struct": "object", "binary": "any",
}

// Resource describes a table as Parquet files, of which there is at least one.
func (t *Table) Resource(files []string) Resource {
	r := Resource{Name: t.Name, Type: "table", Path: files, Description: t.About, Format: "parquet"}
	if len(files) == 1 {
		r.Path = files[0]
	}
	for _, c := range t.Columns {
		word := c.Type[:len(c.Type)-len(strings.TrimLeft(c.Type, "abcdefghijklmnopqrstuvwxyz0123456789"))]
		f := Field{Name: c.Name, Type: fieldTypes[word], Description: c.Meaning, Example: c.Example,
			Constraints: map[string]any{"required": !c.Nullable}}
		if f.Type == "string" && c.MaxBytes > 0 {
			f.Constraints["maxLength"] = c.MaxBytes
		}
		r.Schema.Fields = append(r.Schema.Fields, f)
	}
	return r
}

// Encode returns the description as JSON, without characters that a terminal would obey.
func (p *DataPackage) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(p, "", "  ")
	return printable.EscapeJSON(nil, append(text, '\n')), err
}

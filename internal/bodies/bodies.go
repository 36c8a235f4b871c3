// Package bodies answers one question: which files did others fetch? It reads robots.txt files as researchers keep them, a
// row a file: JSON lines, CSV, Parquet, and folders.
//
// This file says what a row is and which columns it is made of; json.go, csv.go and parquet.go read the forms, rows.go the
// bounded records of text, and folder.go reads folders.
package bodies

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
)

// MaxRow bounds a row of text in bytes: a body of 512,000 bytes has at most six times as many in JSON.
const MaxRow = 8 << 20

// Row is one file, or why there is none. Its bytes are valid until the next Next.
type Row struct {
	Line   uint64 // 1-based, where it begins; of a table the row, of a folder 0
	Text   []byte // its beginning, for a reject
	Reason string // why it is none; then the rest is not set

	Site        []byte // host or URL, as written
	Body        []byte // nil if it is missing; as stored
	Carried     bool   // the archive repeats an earlier file: nobody saw the site that day
	Status      int    // 0: none was written; below 0: written as a failure
	At          time.Time
	FinalURL    []byte
	ContentType []byte
	Headers     []byte // as written: lines, or a JSON object
	Label       []byte
	Rank        int64
}

// The columns.
const (
	site = iota
	body
	status
	fetchedAt
	observed
	unchanged
	finalURL
	contentType
	headers
	rank
	label
	numColumns
)

// known are the columns by their names for --columns, and the usual names of each.
var known = [numColumns]struct {
	name  string
	usual []string
}{
	site:        {"host", inputs.HostNames()},
	body:        {"body", []string{"body", "content", "robots_txt", "robotstxt", "robots", "text"}},
	status:      {"status", []string{"status", "status_code", "http_status"}},
	fetchedAt:   {"fetched_at", []string{"fetched_at", "timestamp", "date", "crawl_date", "fetch_time"}},
	observed:    {"observed", []string{"observed"}},
	unchanged:   {"unchanged", []string{"unchanged"}},
	finalURL:    {"final_url", []string{"final_url"}},
	contentType: {"content_type", []string{"content_type"}},
	headers:     {"headers", []string{"headers", "response_headers"}},
	rank:        {"rank", inputs.RankNames()},
	label:       {"label", nil},
}

// Columns are the names of columns that the user has given, by what they hold. Others have usual names.
type Columns map[string]string

// ParseColumns reads the value of --columns: `body=robots,host=site`.
func ParseColumns(text string) (Columns, error) {
	c := Columns{}
	for _, part := range strings.Split(text, ",") {
		what, name, ok := strings.Cut(strings.TrimSpace(part), "=")
		if text == "" {
			break
		}
		is := func(k struct {
			name  string
			usual []string
		}) bool {
			return k.name == what
		}
		if !ok || name == "" || !slices.ContainsFunc(known[:], is) {
			var all []string
			for _, k := range known {
				all = append(all, k.name)
			}
			return nil, fmt.Errorf("%.80q: want WHAT=COLUMN, separated by commas; WHAT is one of %s", part, strings.Join(all, ", "))
		}
		c[what] = name
	}
	return c, nil
}

// names returns the names under which a column may be found, the most usual first.
func (c Columns) names(column int) []string {
	if name, given := c[known[column].name]; given {
		return []string{name}
	}
	return known[column].usual
}

// cells is a form of rows.
type cells interface {
	// next goes on to the next row, and returns its line, its beginning, and why it is none, or io.EOF after the last.
	next() (line uint64, text []byte, reason string, err error)
	// cell returns the row's value of a column, valid until the next call of next; ok is false if it has none.
	cell(column int) (value []byte, ok bool)
	layout() string
}

// Reader reads the rows of one file. It is not safe for concurrent use.
type Reader struct {
	name  string
	cells cells
	row   Row
}

// Open finds out how a stream has its rows. openTable opens Parquet.
func Open(ctx context.Context, in inputs.Stream, columns Columns, openTable func(io.ReaderAt, int64) (inputs.Table, error)) (r *Reader, err error) {
	r = &Reader{name: in.Name}
	if in.At != nil {
		r.cells, err = newTable(ctx, in, columns, openTable)
	} else {
		r.cells, err = openText(in, columns)
	}
	if err != nil {
		return nil, inputs.Damaged(in.Name, 0, err)
	}
	return r, nil
}

// openText tells JSON lines from CSV by the first byte.
func openText(in inputs.Stream, columns Columns) (cells, error) {
	text := newRecords(in.Reader)
	switch first, err := text.first(); {
	case err != nil:
		return nil, err
	case first == '{':
		return newObjects(text, columns)
	case first == '[':
		return nil, inputs.ErrColumns("it is a JSON array", "write one object a line, as `jq -c '.[]'` does")
	}
	return newCSV(text, columns)
}

// Layout describes the form in words.
func (r *Reader) Layout() string { return r.cells.layout() }

// Next returns the next row, or io.EOF after the last.
func (r *Reader) Next() (*Row, error) {
	line, text, reason, err := r.cells.next()
	if err != nil {
		if err != io.EOF {
			err = inputs.Damaged(r.name, line, err)
		}
		return nil, err
	}
	r.row = Row{Line: line, Text: text[:min(len(text), inputs.MaxText)], Reason: reason}
	if reason == "" {
		r.row.Reason = r.row.fill(r.cells)
	}
	return &r.row, nil
}

// fill reads the cells, and returns why the row is none.
func (r *Row) fill(c cells) string {
	r.Site = trimmed(c, site)
	if len(r.Site) == 0 {
		return "it has no host"
	}
	r.Text = r.Site[:min(len(r.Site), inputs.MaxText)]
	if len(r.Site) > inputs.MaxLine {
		return "its host is longer than 64 KiB"
	}
	seen, seenOK := truth(trimmed(c, observed), true)
	same, sameOK := truth(trimmed(c, unchanged), false)
	if !seenOK || !sameOK {
		return "whether it was observed is neither true nor false"
	}
	r.Carried = !seen || same
	var ok bool
	if text := trimmed(c, fetchedAt); len(text) > 0 {
		if r.At, ok = parseTime(string(text)); !ok {
			return "its date is in no known form"
		}
	}
	if text := trimmed(c, status); len(text) > 0 {
		n, err := strconv.ParseFloat(string(text), 64)
		switch {
		case err != nil || n != float64(int(n)) || n > 599 || n > 0 && n < 100:
			return "its status is no number from 100 to 599"
		case n <= 0:
			n = -1
		}
		r.Status = int(n)
	}
	r.Label = trimmed(c, label)
	if n, err := strconv.ParseInt(string(trimmed(c, rank)), 10, 64); err == nil && n > 0 && n < 1e15 {
		r.Rank = n
	}
	if r.Carried {
		return ""
	}
	r.FinalURL, r.ContentType, r.Headers = trimmed(c, finalURL), trimmed(c, contentType), trimmed(c, headers)
	r.Body, ok = c.cell(body)
	if ok && r.Body == nil {
		r.Body = []byte{}
	}
	return ""
}

func trimmed(c cells, column int) []byte {
	value, _ := c.cell(column)
	return bytes.TrimSpace(value)
}

// truth reads a boolean; ok is false of other words. An empty text is the default.
func truth(text []byte, otherwise bool) (value, ok bool) {
	switch strings.ToLower(string(text[:min(len(text), 8)])) {
	case "":
		return otherwise, true
	case "true", "t", "yes", "1":
		return true, true
	case "false", "f", "no", "0":
		return false, true
	}
	return otherwise, false
}

// forms are those of dates, beside numbers. Without a zone a time is in UTC.
var forms = []string{
	time.RFC3339, "2006-01-02", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05 MST", time.RFC1123, time.RFC1123Z,
}

// parseTime reads a date: by one of the forms, 20240131, 20240131235959, or seconds, milliseconds, microseconds or nanoseconds since
// 1970, told apart by their digits.
func parseTime(text string) (time.Time, bool) {
	if whole, fraction, _ := strings.Cut(text, "."); strings.Trim(text, "0123456789.") == "" && !strings.Contains(fraction, ".") {
		n, err := strconv.ParseInt(whole, 10, 64)
		switch {
		case err != nil:
			return time.Time{}, false
		case len(whole) == 8 && fraction == "":
			t, err := time.Parse("20060102", text)
			return t, err == nil
		case len(whole) == 14:
			t, err := time.Parse("20060102150405", whole)
			return t, err == nil
		case len(whole) <= 11:
			return time.Unix(n, 0).UTC(), true
		case len(whole) == 13:
			return time.UnixMilli(n).UTC(), true
		case len(whole) == 16:
			return time.UnixMicro(n).UTC(), true
		case len(whole) == 19:
			return time.Unix(0, n).UTC(), true
		}
		return time.Time{}, false
	}
	for _, form := range forms {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

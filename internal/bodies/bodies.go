// Package bodies answers one question: which files did others fetch? It reads robots.txt files as researchers keep them, a
// row a file: JSON lines, CSV, Parquet, and folders.
//
// This file says what a row is and which columns it is made of; folder.go reads folders.
package bodies

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
)

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

// known are the columns with their usual names.
var known = [numColumns]inputs.Column{
	site:        {Name: "host", Names: inputs.HostNames, Needed: "hosts"},
	body:        {Name: "body", Names: []string{"body", "content", "robots_txt", "robotstxt", "robots", "text"}, Needed: "bodies", Instead: []int{status, observed, unchanged}},
	status:      {Name: "status", Names: []string{"status", "status_code", "http_status"}},
	fetchedAt:   {Name: "fetched_at", Names: []string{"fetched_at", "timestamp", "date", "crawl_date", "fetch_time"}},
	observed:    {Name: "observed", Names: []string{"observed"}},
	unchanged:   {Name: "unchanged", Names: []string{"unchanged"}},
	finalURL:    {Name: "final_url", Names: []string{"final_url"}},
	contentType: {Name: "content_type", Names: []string{"content_type"}},
	headers:     {Name: "headers", Names: []string{"headers", "response_headers"}},
	rank:        {Name: "rank", Names: inputs.RankNames},
	label:       {Name: "label"},
}

// Columns are the columns of rows. Those that the user has not named have usual names. The zero value has only these.
type Columns []inputs.Column

// ParseColumns reads the value of --columns: `body=robots,host=site`.
func ParseColumns(text string) (Columns, error) {
	c := slices.Clone(known[:])
	if text == "" {
		return c, nil
	}
	for _, part := range strings.Split(text, ",") {
		what, name, ok := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(c, func(c inputs.Column) bool { return c.Name == what })
		if !ok || name == "" || i < 0 {
			var all []string
			for _, c := range known {
				all = append(all, c.Name)
			}
			return nil, fmt.Errorf("%.80q: want WHAT=COLUMN, separated by commas; WHAT is one of %s", part, strings.Join(all, ", "))
		}
		c[i].Names, c[i].Given = []string{name}, true
	}
	return c, nil
}

// Reader reads the rows of files, and finds the archives among them. See inputs.Rows.
type Reader struct {
	*inputs.Rows
	row Row
}

// Open prepares to read the files in the given order.
func Open(ctx context.Context, paths []string, columns Columns, opt inputs.Options) *Reader {
	if len(columns) == 0 {
		columns = known[:]
	}
	return &Reader{Rows: inputs.OpenRows(ctx, paths, opt, columns)}
}

// Next returns the next row of the stream, or io.EOF after the last.
func (r *Reader) Next() (*Row, error) {
	line, text, reason, err := r.Rows.Next()
	if err != nil {
		return nil, err
	}
	r.row = Row{Line: line, Text: text[:min(len(text), inputs.MaxText)], Reason: reason}
	if reason == "" {
		r.row.Reason = r.row.fill(r.Cell)
	}
	return &r.row, nil
}

// cells returns a row's value of a column; ok is false if it has none.
type cells func(column int) (value []byte, ok bool)

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
	r.Body, ok = c(body)
	if ok && r.Body == nil {
		r.Body = []byte{}
	}
	return ""
}

func trimmed(c cells, column int) []byte {
	value, _ := c(column)
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

package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin"
)

// usual are the columns of rows with their usual names.
var usual = []inputs.Column{
	{Name: "host", Names: inputs.HostNames, Needed: "hosts"},
	{Name: "status", Names: []string{"status", "status_code", "http_status"}},
	{Name: "fetched_at", Names: []string{"fetched_at", "timestamp", "date", "crawl_date", "fetch_time"}},
	{Name: "observed", Names: []string{"observed"}},
	{Name: "unchanged", Names: []string{"unchanged"}},
	{Name: "body", Names: []string{"body", "content", "robots_txt", "robotstxt", "robots", "text"}, Needed: "bodies",
		Instead: []string{"status", "observed", "unchanged"}},
	{Name: "final_url", Names: []string{"final_url"}},
	{Name: "content_type", Names: []string{"content_type"}},
	{Name: "headers", Names: []string{"headers", "response_headers"}, Objects: true},
	{Name: "rank", Names: inputs.RankNames},
	{Name: "label"},
}

// ParseColumns reads the value of --columns: `body=robots,host=site`. Columns that it does not name have their usual
// names.
func ParseColumns(text string) ([]inputs.Column, error) {
	columns := slices.Clone(usual)
	if text == "" {
		return columns, nil
	}
	for _, part := range strings.Split(text, ",") {
		what, name, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(columns, func(c inputs.Column) bool { return c.Name == what })
		if name == "" || i < 0 {
			var all []string
			for _, c := range columns {
				all = append(all, c.Name)
			}
			return nil, fmt.Errorf("%.80q: want WHAT=COLUMN, separated by commas; WHAT is one of %s", part,
				strings.Join(all, ", "))
		}
		columns[i].Names, columns[i].Given = []string{name}, true
	}
	return columns, nil
}

// Files lists the files of a folder, which may be a link, in lexical order. Links in it are not followed.
func Files(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// fileName is HOST/robots.txt, RANK-HOST.txt or HOST.txt, plain or compressed. A host may begin with digits and a
// hyphen, so that HOST behind a RANK has a dot.
var fileName = regexp.MustCompile(
	`(?:^|/)(?:([^/]+)/robots|([0-9]{1,15})-([^/]*\.[^/]*)|([^/]+))\.txt(\.gz|\.zst|\.xz|\.bz2)?$`)

// cells are a row's values by column.
type cells map[string][]byte

// text returns a value that is no body, without white space around it, at most 16 KiB.
func (c cells) text(column string) string {
	value := c[column]
	return string(bytes.TrimSpace(value[:min(len(value), 16<<10)]))
}

// item makes an item of a row.
func (o *Options) item(row *inputs.Row) item {
	it := item{record: record{line: row.Line, flags: ofRow}, reason: row.Reason}
	if it.reason == "" {
		it.reason = o.readRow(&it, row.Cells)
	}
	if it.reason != "" && len(it.input) == 0 {
		it.input = bytes.Clone(row.Text[:min(len(row.Text), inputs.MaxText)])
	}
	return it
}

// readRow reads the values, or returns why the row is not one.
func (o *Options) readRow(it *item, row cells) (reason string) {
	name := row.text("host")
	if name == "" {
		return "it has no host"
	}
	it.input = []byte(inputs.Clip(strings.ToValidUTF8(name, "\uFFFD"), inputs.MaxInput))
	it.label = []byte(inputs.Clip(strings.ToValidUTF8(row.text("label"), "\uFFFD"), inputs.MaxLabel))
	it.rank = uint64(inputs.Number([]byte(row.text("rank"))))
	if it.url.Origin, reason = inputs.ParseSite(name, o.LocalNames); reason != "" {
		return reason
	}
	switch it.url.Origin.Scheme() {
	case origin.Auto:
		it.flags |= auto
		it.url.Origin = it.url.Origin.As(origin.HTTPS)
	case origin.HTTP, origin.HTTPS:
	default:
		return "its scheme is neither http nor https"
	}
	seen, known := truths[strings.ToLower(cmp.Or(row.text("observed"), "true"))]
	same, alsoKnown := truths[strings.ToLower(cmp.Or(row.text("unchanged"), "false"))]
	if !known || !alsoKnown {
		return "whether it was observed is neither true nor false"
	}
	if text := row.text("fetched_at"); text != "" {
		var ok bool
		if it.when, ok = parseTime(text); !ok {
			return "its date is in no known form"
		}
	}
	body, code, text := row["body"], 0, row.text("status")
	if text != "" {
		number, err := strconv.ParseFloat(text, 64)
		if code = int(number); err != nil || number != float64(code) || code > 599 || code > 0 && code < 100 {
			return "its status is no number from 100 to 599"
		}
		if code/100 == 2 && body == nil { // the answer is not known
			code = 0
		}
	} else if len(body) > 0 {
		code, it.flags = http.StatusOK, it.flags|noStatus
	}
	if !seen || same {
		it.flags |= unseen | carried
		return ""
	}
	if text := row.text("final_url"); text != "" {
		final, ok := fetcher.ParseTarget(text)
		if !ok {
			return "its final URL is no http or https URL"
		}
		if final != it.url {
			it.final = final.AppendTo(nil)
		}
	}
	if code <= 0 {
		it.flags |= unseen
	} else {
		it.block = response(code, row, body[:min(len(body), o.MaxBody+1)])
	}
	return ""
}

// truths are the words of observed and unchanged, in lower case.
var truths = map[string]bool{"true": true, "t": true, "yes": true, "1": true, "false": false, "f": false, "no": false,
	"0": false}

// forms are the forms of dates, beside seconds since 1970 and parts of seconds. Without a zone a time is in UTC.
var forms = []string{
	time.RFC3339, "2006-01-02", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04:05",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02 15:04:05 MST", time.RFC1123, time.RFC1123Z, "20060102", "20060102150405",
}

// units are the units per second of a number that counts since 1970, by its digits: 13 digits are milliseconds.
var units = map[int]int64{9: 1, 10: 1, 11: 1, 13: 1e3, 16: 1e6, 19: 1e9}

// parseTime reads a date by one of the forms, or a number of seconds, milliseconds, microseconds or nanoseconds since
// 1970.
func parseTime(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if unit := units[len(whole)]; unit > 0 && err == nil && strings.Trim(fraction, "0123456789") == "" {
		return time.Unix(int64(n)/unit, int64(n)%unit*(1e9/unit)).UTC(), true
	}
	for _, form := range forms {
		t, err := time.Parse(form, text)
		if zone, offset := t.Zone(); err == nil && (offset != 0 || zone == "" || zone == "UTC" || zone == "GMT") {
			// the offsets of other zones are not known
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// response writes the row as the response that its body was: the fetcher reads it like any other.
func response(code int, row cells, text []byte) []byte {
	fields := fieldsOf(row.text("headers"))
	if kind := row.text("content_type"); kind != "" {
		fields.Set("Content-Type", kind)
	}
	fields.Set("Content-Length", strconv.Itoa(len(text)))
	block := bytes.NewBuffer(make([]byte, 0, len(text)+1024))
	fmt.Fprintf(block, "HTTP/1.1 %d\r\n", code)
	_ = fields.WriteSubset(block, codings) // to memory
	block.WriteString("\r\n")
	block.Write(text)
	return block.Bytes()
}

// codings are left out: bodies of rows are decoded.
var codings = map[string]bool{"Content-Encoding": true, "Transfer-Encoding": true, "Trailer": true, "Connection": true}

// fieldsOf reads header fields: lines, or a JSON object whose values may be lists. It leaves out what it cannot read.
func fieldsOf(text string) http.Header {
	fields := http.Header{}
	var object map[string]any
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &object) != nil {
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				fields.Add(name, value)
			}
		}
	}
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

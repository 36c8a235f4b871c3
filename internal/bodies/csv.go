package bodies

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/inputs"
)

// csv are rows by RFC 4180: a quoted cell may have many lines. A record without an end costs the lines up to the next one that looks
// like a row.
type csv struct {
	*records
	delimiter byte
	names     []string
	columns   [numColumns]int // -1: none
	cells     []span
	row       []byte
	lost      bool // a record had no end: lines that look like no row may belong to it
}

// span is where a cell stands in its record.
type span struct {
	from, to int
	quoted   bool // with doubled quotes
}

func newCSV(text *records, columns Columns) (*csv, error) {
	c := &csv{records: text, delimiter: ','}
	line, long, err := c.line()
	if err != nil && err != io.EOF {
		return nil, err
	}
	line = bytes.Clone(bytes.TrimSpace(line))
	if long || bytes.IndexByte(line, 0) >= 0 {
		return nil, inputs.ErrColumns("it is neither JSON lines nor CSV, nor Parquet, nor an archive", "see docs/archives.md for what is read")
	}
	if len(line) == 0 {
		return c, nil // without rows
	}
	for _, d := range []byte(",\t;") {
		if bytes.Count(line, []byte{d}) > bytes.Count(line, []byte{c.delimiter}) {
			c.delimiter = d
		}
	}
	if _, reason, _ := c.split(line, true); reason != "" {
		return nil, inputs.ErrColumns("its first line is no header: "+reason, "begin it with the names of the columns")
	}
	for _, s := range c.cells {
		c.names = append(c.names, string(s.text(line)))
	}
	for column := range numColumns {
		c.columns[column] = c.column(columns.names(column))
		if _, given := columns[known[column].name]; given && c.columns[column] < 0 {
			return nil, columns.unknown(c.names, column, "column", "header")
		}
	}
	if c.columns[site] < 0 {
		return nil, columns.unknown(c.names, site, "column", "header")
	}
	if c.columns[body] < 0 && c.columns[status] < 0 {
		return nil, columns.unknown(c.names, body, "column", "header")
	}
	return c, nil
}

// column finds a column by one of the names, or by its number from 1 if it is the only name.
func (c *csv) column(names []string) int {
	for _, name := range names {
		if i := slices.IndexFunc(c.names, func(n string) bool { return inputs.NormalName(n) == inputs.NormalName(name) }); i >= 0 {
			return i
		}
	}
	if len(names) == 1 {
		if n, err := strconv.Atoi(names[0]); err == nil && n >= 1 && n <= len(c.names) {
			return n - 1
		}
	}
	return -1
}

func (c *csv) layout() string {
	return "csv, columns " + strings.Join(c.names[:min(len(c.names), maxNamed)], ", ")
}

func (c *csv) next() (line uint64, text []byte, reason string, err error) {
	for {
		line = c.lines + 1
		n, reason, whole := c.split(c.buf[c.r:c.w], c.err != nil)
		if !whole && c.more() {
			continue
		}
		if err := c.ended(); err != nil {
			return line, nil, "", err
		}
		if c.r == c.w {
			return line, nil, "", io.EOF
		}
		endless := !whole
		if endless {
			reason = "a quoted cell, or the row, is longer than 8 MiB"
			if c.err != nil {
				reason = "a quoted cell is not closed"
			}
		}
		if reason != "" { // reading goes on behind its line
			if text, _, err = c.line(); err != nil {
				return line, nil, "", err
			}
		} else if text = c.take(n); len(bytes.TrimSpace(text)) == 0 {
			continue
		} else if len(c.cells) != len(c.names) {
			reason = "the row has " + strconv.Itoa(len(c.cells)) + " cells, and the header " + strconv.Itoa(len(c.names))
		}
		if c.lost && reason != "" {
			continue
		}
		c.row, c.lost = text, endless
		return line, text, reason, nil
	}
}

// split finds the cells of the record at the beginning of a text, and returns its length, or what is wrong with it. whole is false if
// the text may not have all of it; ended says that nothing follows the text.
func (c *csv) split(text []byte, ended bool) (n int, reason string, whole bool) {
	c.cells = c.cells[:0]
	for at := 0; ; {
		if at < len(text) && text[at] == '"' {
			s := span{from: at + 1}
			for at++; ; at += 2 {
				i := bytes.IndexByte(text[at:], '"')
				if i < 0 {
					return 0, "", false
				}
				if at += i; at+1 >= len(text) || text[at+1] != '"' {
					break
				}
				s.quoted = true
			}
			s.to = at
			c.cells = append(c.cells, s)
			at++
			if at == len(text) && !ended {
				return 0, "", false
			}
			if at < len(text) && text[at] == '\r' {
				at++
			}
		} else {
			i := bytes.IndexAny(text[at:], string([]byte{c.delimiter, '\n'}))
			if i < 0 {
				if !ended {
					return 0, "", false
				}
				i = len(text) - at
			}
			c.cells = append(c.cells, span{from: at, to: at + len(bytes.TrimSuffix(text[at:at+i], []byte{'\r'}))})
			at += i
		}
		switch {
		case at == len(text):
			return at, "", ended
		case text[at] == '\n':
			return at + 1, "", true
		case text[at] != c.delimiter:
			return 0, "text after a quoted cell", true
		}
		at++
	}
}

func (s span) text(record []byte) []byte {
	text := record[s.from:s.to]
	if s.quoted {
		text = bytes.ReplaceAll(text, []byte(`""`), []byte(`"`))
	}
	return text
}

func (c *csv) cell(column int) ([]byte, bool) {
	i := c.columns[column]
	if i < 0 {
		return nil, false
	}
	return c.cells[i].text(c.row), true
}

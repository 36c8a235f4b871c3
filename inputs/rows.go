package inputs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// MaxRow bounds a row of text in bytes: a robots.txt file of 512,000 bytes has at most six times as many in JSON.
const MaxRow = 8 << 20

// Column is a column of rows.
type Column struct {
	Name    string   // for messages: what --columns calls it
	Names   []string // of which the first that there is counts
	Given   bool     // the user has chosen it, by the only one of Names or a number from 1
	Needed  string   // what it holds, of a column that must be there, or one of Instead
	Instead []int
}

// Stream is the content of a file, or of a member of a zip, without its compressions: rows, or a web archive.
type Stream struct {
	FileStats             // without Lines
	Archive   io.ReaderAt // a WARC file, which may be packed by gzip; nil of rows
	Size      int64       // of Archive
}

// Rows reads files that have the same columns, for packages that read no lists. It is not safe for concurrent use, except for Read.
type Rows struct {
	opt     Options
	columns []Column
	src     source
	lines   lineReader
	table   Table // in place of lines, if not nil
	take    record
	layout  layout
	line    uint64
	name    string

	at    []int      // by column, where it is among the cells, the table's selection or the paths; -1: nowhere
	paths []jsonPath // all names of all columns: an object may lack any key
	found [][]byte   // by path
}

// OpenRows prepares to read the files in the given order. Of the options those of temporary files, Stdin and Parquet count. Errors of
// NextStream and Next are io.EOF, an *Error, or that of the context.
func OpenRows(ctx context.Context, paths []string, opt Options, columns []Column) *Rows {
	r := &Rows{opt: opt, columns: columns, at: make([]int, len(columns))}
	r.src.init(ctx, paths, opt)
	r.src.archives = true
	for _, c := range columns {
		for _, name := range c.Names {
			r.paths = append(r.paths, strings.Split(name, "."))
		}
	}
	r.found = make([][]byte, len(r.paths))
	return r
}

// NextStream goes on to the next file, which is valid until the next call.
func (r *Rows) NextStream() (*Stream, error) {
	in, err := r.src.next()
	if err != nil {
		return nil, err
	}
	s := &Stream{FileStats: FileStats{Name: in.name, Compression: in.compression, Layout: "warc"}}
	if in.archive {
		s.Archive, s.Size = in.table, in.size
		return s, nil
	}
	r.name, r.line, r.table = in.name, 0, nil
	if r.layout = (layout{}); in.table != nil {
		err = r.beginTable(in)
	} else {
		err = r.beginLines(in)
	}
	if err != nil {
		return nil, damaged(in.name, 0, err)
	}
	s.Layout = r.layout.format.String()
	return s, nil
}

// beginTable opens Parquet.
func (r *Rows) beginTable(in stream) (err error) {
	r.layout.format = Parquet
	if r.table, err = r.opt.Parquet(in.table, in.size); err != nil {
		return err
	}
	var names []string
	for i := range r.table.Columns() {
		name, _ := r.table.Column(i) // Select refuses what cannot be read, with a remedy
		names = append(names, name)
	}
	if err := r.find(names); err != nil {
		return err
	}
	var chosen []int
	for i, at := range r.at {
		if at >= 0 {
			_, holds := r.table.Column(at)
			if r.at[i] = len(chosen); !r.columns[i].Given && r.columns[i].Needed == "" && !slices.Contains([]string{"text", "numbers", "truths", "times"}, holds) {
				r.at[i] = -1
				continue
			}
			chosen = append(chosen, at)
		}
	}
	return r.table.Select(chosen...)
}

// beginLines tells JSON lines from CSV by the first byte.
func (r *Rows) beginLines(in stream) error {
	r.lines.reset(in.Reader, in.compression, r.src.read.Load, MaxRow)
	head, err := r.lines.peek()
	if err != nil && err != io.EOF {
		return err
	}
	text := bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	r.lines.begin(len(head)-len(text), '\n')
	r.layout.format, r.layout.eol = CSV, '\n'
	switch first := bytes.TrimLeft(text, " \t\r\n"); {
	case len(first) == 0 && r.lines.ended():
		return nil // without rows
	case bytes.IndexByte(text, 0) >= 0:
		return &layoutError{"it is neither JSON lines nor CSV, nor Parquet, nor an archive", "see docs/archives.md for what is read"}
	case bytes.HasPrefix(first, []byte("[")):
		return errJSONArray
	case !bytes.HasPrefix(first, []byte("{")):
		return r.beginCSV()
	}
	r.layout.format = JSONL
	if paths, err := objectPaths(r.layout.sample(text, r.lines.ended())); err == nil { // others will be rejects
		var names []string
		for _, p := range paths {
			names = append(names, p.String())
		}
		err = r.find(names)
		if err != nil {
			return err
		}
	}
	n := 0
	for i, c := range r.columns {
		r.at[i] = n
		n += len(c.Names)
	}
	return nil
}

// beginCSV reads the header.
func (r *Rows) beginCSV() error {
	r.lines.quoted = true
	_, header, reason, err := r.nextLine()
	if err != nil {
		return err
	}
	r.layout.delimiter = cmp.Or(findDelimiter([][]byte{header}, outsideQuotes), ',')
	if reason = cmp.Or(reason, r.take.split(header, r.layout.delimiter, 1<<16)); reason != "" {
		return &layoutError{"its first line is no header: " + reason, "begin it with the names of the columns"}
	}
	for i := range r.take.cells {
		r.layout.names = append(r.layout.names, string(r.take.cell(i)))
	}
	return r.find(r.layout.names)
}

// find finds the columns by their names.
func (r *Rows) find(names []string) error {
	for i, c := range r.columns {
		r.at[i] = -1
		for _, want := range c.Names {
			if r.at[i] = slices.IndexFunc(names, func(name string) bool { return normalName(name) == normalName(want) }); r.at[i] >= 0 {
				break
			}
		}
		if c.Given && r.at[i] < 0 {
			if n, err := strconv.Atoi(c.Names[0]); err == nil && n >= 1 && n <= len(names) {
				r.at[i] = n - 1
			}
		}
	}
	for i, c := range r.columns {
		instead := !c.Given && slices.ContainsFunc(c.Instead, func(other int) bool { return r.at[other] >= 0 })
		if r.at[i] >= 0 || instead || c.Needed == "" && (!c.Given || r.layout.format == JSONL) { // later objects may have a key that the first lack
			continue
		}
		is := "known to hold " + c.Needed
		if c.Given {
			is = fmt.Sprintf("called %q", Clip(c.Names[0], 80))
		}
		var there []jsonPath
		for _, name := range names {
			there = append(there, jsonPath{strings.ToValidUTF8(name, "\uFFFD")})
		}
		return &layoutError{fmt.Sprintf("no column is %s (%s)", is, listPaths(there)), fmt.Sprintf("name one with --columns %s=NAME", c.Name)}
	}
	return nil
}

// nextLine returns the next line, or record of CSV, that is not blank.
func (r *Rows) nextLine() (line uint64, text []byte, reason string, err error) {
	for len(trimSpace(text)) == 0 {
		line = r.line + 1
		var long bool
		if text, long, err = r.lines.next(); err != nil {
			return line, nil, "", err
		}
		r.line += 1 + r.lines.wraps
		if long {
			return line, text, "the row is longer than 8 MiB, or a quoted cell is not closed", nil
		}
	}
	return line, text, "", nil
}

// Next goes on to the next row, and returns its 1-based line, or row of a table, its text as far as it has one, and why it cannot be
// read, valid until the next call; io.EOF after the last.
func (r *Rows) Next() (line uint64, text []byte, reason string, err error) {
	if r.table != nil {
		if err = r.src.ctx.Err(); err == nil {
			err = r.table.Next()
		}
		r.line++
		line = r.line
	} else if line, text, reason, err = r.nextLine(); err == nil && reason == "" {
		reason = r.split(text)
	}
	if err != nil && err != io.EOF {
		err = damaged(r.name, line, err)
	}
	return line, text, reason, err
}

func (r *Rows) split(text []byte) (reason string) {
	if r.layout.format == JSONL {
		clear(r.found)
		if !walkJSON(text, r.paths, r.found) {
			return "not a JSON object"
		}
		return ""
	}
	width := len(r.layout.names)
	if reason := r.take.split(text, r.layout.delimiter, 1<<16); reason != "" {
		return reason
	}
	if n := len(r.take.cells); n != width {
		return fmt.Sprintf("the row has %d cells, and the header %d", n, width)
	}
	return ""
}

// Cell returns the row's value of the i-th column, valid until the next call of Next; ok is false if it has none.
func (r *Rows) Cell(i int) (value []byte, ok bool) {
	at := r.at[i]
	switch {
	case at < 0:
		return nil, false
	case r.table != nil:
		return r.table.Text(at)
	case r.layout.format == CSV:
		return r.take.cells[at], true
	}
	for _, raw := range r.found[at : at+len(r.columns[i].Names)] {
		switch {
		case raw == nil:
			continue
		case string(raw) == "null":
			return nil, false
		case raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0:
			return raw[1 : len(raw)-1], true
		case raw[0] == '"':
			return unescapeJSON(raw), true
		}
		return raw, true
	}
	return nil, false
}

// Read returns how many bytes of the files were read. It is safe for concurrent use.
func (r *Rows) Read() int64 { return r.src.read.Load() }

// Close closes what is open.
func (r *Rows) Close() error { return r.src.Close() }

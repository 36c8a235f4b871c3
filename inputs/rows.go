package inputs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// MaxRow bounds a row of text in bytes: a robots.txt file of 512,000 bytes has at most six times as many in JSON.
const MaxRow = 8 << 20

// Column is a column of rows.
type Column struct {
	Name    string   // as --columns and Stream.Cell call it
	Names   []string // of which the first that there is counts
	Given   bool     // the user has chosen it, by the only one of Names or a number from 1
	Needed  string   // what it holds, of a column that must be there, or one of Instead
	Instead []string // columns before it
}

// Rows opens files that have the same columns, for packages that read no lists. It is not safe for concurrent use, except for Read.
type Rows struct {
	opt     Options
	columns []Column
	src     source
}

// Stream is the content of a file, or of a member of a zip, without its compressions: rows, or a web archive.
type Stream struct {
	FileStats             // without Lines
	Archive   io.ReaderAt // a WARC file, which may be packed by gzip; nil of rows
	Size      int64       // of Archive

	ctx    context.Context
	layout layout
	at     map[string][]int // by column, where it is in a row; of several places the first with a value counts
	table  Table            // in place of text, if not nil
	text   *bufio.Scanner   // of cut
	take   record           // of CSV
	paths  []jsonPath       // all names of all columns: an object may lack any key
	found  [][]byte         // by path

	begins, ends uint64 // lines of the row
	bad          bool   // it is too long, or its quotes are not closed
	tail         bool   // the next bytes are the rest of its line
	searched     int    // of the next bytes
}

// OpenRows prepares to read the files in the given order. Of the options those of temporary files, Stdin and Parquet count. Errors of
// NextStream and Next are io.EOF, an *Error, or that of the context.
func OpenRows(ctx context.Context, paths []string, opt Options, columns []Column) *Rows {
	r := &Rows{opt: opt, columns: columns}
	r.src.init(ctx, paths, opt)
	r.src.archives = true
	return r
}

// NextStream goes on to the next file, which is valid until the next call.
func (r *Rows) NextStream() (*Stream, error) {
	in, err := r.src.next()
	if err != nil {
		return nil, err
	}
	s := &Stream{FileStats: FileStats{Name: in.name, Compression: in.compression}, ctx: r.src.ctx, layout: layout{eol: '\n', header: true}}
	switch {
	case in.archive:
		s.layout.format, s.Archive, s.Size = WARC, in.table, in.size
	case in.table != nil:
		if s.table, err = r.opt.Parquet(in.table, in.size); err == nil {
			err = s.beginTable(r.columns)
		}
	default:
		err = s.beginText(in, r.columns)
	}
	if err != nil {
		return nil, damaged(in.name, 0, err)
	}
	s.Layout = s.layout.format.String()
	return s, nil
}

func (s *Stream) beginTable(columns []Column) error {
	s.layout.format = Parquet
	var names []string
	for i := range s.table.Columns() {
		name, holds := s.table.Column(i)
		if !slices.Contains([]string{"text", "numbers", "truths", "times"}, holds) {
			name += " (holds " + holds + ")" // which is no usual name
		}
		names = append(names, name)
	}
	if err := s.find(columns, names); err != nil {
		return err
	}
	var chosen []int
	for _, places := range s.at {
		for i, at := range places {
			places[i] = len(chosen)
			chosen = append(chosen, at)
		}
	}
	return s.table.Select(chosen...)
}

// beginText tells JSON lines from CSV by the first byte.
func (s *Stream) beginText(in stream, columns []Column) error {
	buffered := bufio.NewReaderSize(in.Reader, headBytes)
	head, err := buffered.Peek(headBytes)
	if err != nil && err != io.EOF {
		return err
	}
	text := bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	_, _ = buffered.Discard(len(head) - len(text)) // of what is buffered
	s.text = bufio.NewScanner(buffered)
	s.text.Buffer(nil, MaxRow+1)
	s.text.Split(s.cut)
	s.layout.format = JSONL
	switch first := bytes.TrimLeft(text, " \t\r\n"); {
	case bytes.IndexByte(text, 0) >= 0:
		return &layoutError{"it is neither JSON lines nor CSV, nor Parquet, nor an archive", "see docs/archives.md for what is read"}
	case bytes.HasPrefix(first, []byte("[")):
		return errJSONArray
	case !bytes.HasPrefix(first, []byte("{")):
		return s.beginCSV(columns)
	}
	var names []string
	sampled, broken := objectPaths(s.layout.sample(text, err == io.EOF))
	for _, path := range sampled {
		names = append(names, path.String())
	}
	if err := s.find(columns, names); err != nil && broken == nil { // else the objects will be rejects
		return err
	}
	for _, c := range columns {
		found := s.at[c.Name]
		s.at[c.Name] = nil
		var paths []jsonPath
		for _, name := range c.Names {
			paths = append(paths, strings.Split(name, "."))
		}
		for _, at := range found { // as the first objects spell it, where no name does
			if !slices.ContainsFunc(paths, func(p jsonPath) bool { return slices.Equal(p, sampled[at]) }) {
				paths = append([]jsonPath{sampled[at]}, paths...)
			}
		}
		for _, path := range paths {
			s.at[c.Name] = append(s.at[c.Name], len(s.paths))
			s.paths = append(s.paths, path)
		}
	}
	s.found = make([][]byte, len(s.paths))
	return nil
}

// beginCSV reads the header.
func (s *Stream) beginCSV(columns []Column) error {
	s.layout.format = CSV
	if !s.text.Scan() {
		return s.text.Err() // nil of a file without rows
	}
	s.layout.delimiter = cmp.Or(findDelimiter([][]byte{s.text.Bytes()}, outsideQuotes), ',')
	if reason := s.split(); reason != "" {
		return &layoutError{"its first line is no header: " + reason, "begin it with the names of the columns"}
	}
	var names []string
	for i := range s.take.cells {
		names = append(names, string(s.take.cell(i)))
	}
	return s.find(columns, names)
}

// find finds the columns by their names.
func (s *Stream) find(columns []Column, names []string) error {
	s.layout.names, s.at = names, map[string][]int{}
	for _, c := range columns {
		var missing error
		for _, name := range c.Names {
			at, err := s.layout.column(name, len(names), "--columns "+c.Name+"=NAME")
			if missing = err; err == nil {
				s.at[c.Name] = []int{at}
				break
			}
		}
		instead := slices.ContainsFunc(c.Instead, func(other string) bool { return s.at[other] != nil })
		switch {
		case s.at[c.Name] != nil, c.Needed == "" && s.layout.format == JSONL: // later objects may have a key that the first lack
		case c.Given:
			return missing
		case c.Needed != "" && !instead:
			return &layoutError{fmt.Sprintf("no column is known to hold %s (%s)", c.Needed, s.layout.list(upTo(len(names)))), "name one with --columns " + c.Name + "=NAME"}
		}
	}
	return nil
}

// cut is the bufio.SplitFunc of rows that are not blank. A row ends behind a line, and of CSV behind one after which no quote is open
// (RFC 4180 §2). One that is too long, or has a quote that is not closed, costs its first line only.
func (s *Stream) cut(data []byte, ended bool) (advance int, row []byte, _ error) {
	if len(data) <= MaxRow && !ended && len(data) < 2*s.searched { // a long row is not searched for each of its pieces
		return 0, nil, nil
	}
	begin, end, open, found := 0, 0, false, false
	for line := range bytes.Lines(data) {
		end += len(line)
		open = !s.tail && open != (s.layout.format == CSV && bytes.Count(line, []byte{'"'})%2 == 1)
		if whole := ended || line[len(line)-1] == '\n'; !whole || open {
			continue
		}
		if found = !s.tail && len(trimSpace(data[begin:end])) > 0; found {
			break
		}
		begin, s.tail = end, false
		s.ends++
	}
	if s.tail {
		return len(data), nil, nil
	}
	row = data[begin:end]
	if s.searched = len(row); len(row) == 0 || !found && len(row) <= MaxRow && !ended {
		return begin, nil, nil
	}
	several := s.layout.delimiter != 0 && bytes.IndexByte(row[:len(row)-1], '\n') >= 0 // lines, of CSV
	if s.bad = !found || several && s.cells(row) != ""; s.bad {                        // a quote of another row may close this one's
		first := bytes.IndexByte(row, '\n') + 1
		s.tail = first == 0
		row = row[:cmp.Or(first, len(row))]
	}
	s.begins, s.searched = s.ends+1, 0
	s.ends += uint64(bytes.Count(row, []byte{'\n'}))
	return begin + len(row), bytes.TrimRight(row, "\r\n"), nil
}

// split finds the values in the text of a row, or returns why it cannot be read.
func (s *Stream) split() (reason string) {
	switch {
	case s.bad:
		return "the row is longer than 8 MiB, or a quoted cell is not closed"
	case s.layout.format == JSONL:
		clear(s.found)
		if !walkJSON(s.text.Bytes(), s.paths, s.found) {
			return "not a JSON object"
		}
		return ""
	}
	return s.cells(s.text.Bytes())
}

// cells finds the cells of a row of CSV.
func (s *Stream) cells(row []byte) (reason string) {
	const maxCells = 1 << 16
	reason = s.take.split(bytes.TrimRight(row, "\r\n"), s.layout.delimiter, maxCells)
	if n, width := len(s.take.cells), len(s.layout.names); reason == "" && n != width && width > 0 { // 0: this is the header
		return fmt.Sprintf("the row has %d cells, and the header %d", n, width)
	}
	return reason
}

// Next goes on to the next row, and returns its 1-based line, or row of a table, its text as far as it has one, and why it cannot be
// read, valid until the next call; io.EOF after the last.
func (s *Stream) Next() (line uint64, text []byte, reason string, err error) {
	switch {
	case s.table != nil:
		s.begins++
		if err = s.ctx.Err(); err == nil {
			err = s.table.Next()
		}
	case s.text.Scan():
		return s.begins, s.text.Bytes(), s.split(), nil
	default:
		s.begins, err = s.ends+1, cmp.Or(s.text.Err(), io.EOF)
	}
	if err != nil && err != io.EOF {
		err = damaged(s.Name, s.begins, err)
	}
	return s.begins, nil, "", err
}

// Cell returns the row's value of a column, valid until the next call of Next; nil if it has none.
func (s *Stream) Cell(column string) (value []byte) {
	for _, at := range s.at[column] {
		switch s.layout.format {
		case Parquet:
			value, _ = s.table.Text(at)
		case CSV:
			value = s.take.cells[at]
		default:
			if value = s.found[at]; string(value) == "null" {
				value = nil
			} else if len(value) > 0 && value[0] == '"' {
				value = unescapeJSON(value)
			}
		}
		if value != nil {
			break
		}
	}
	return value
}

// Read returns how many bytes of the files were read. It is safe for concurrent use.
func (r *Rows) Read() int64 { return r.src.read.Load() }

// Close closes what is open.
func (r *Rows) Close() error { return r.src.Close() }

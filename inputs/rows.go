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

	"github.com/parquet-go/jsonlite"
)

// MaxRow bounds a row of text in bytes: a robots.txt file of 512,000 bytes has at most six times as many in JSON.
const MaxRow = 8 << 20

// Column is a column of rows.
type Column struct {
	Name    string   // as --columns and Row.Cells call it
	Names   []string // the first existing one counts
	Given   bool     // the user has chosen it, by the only one of Names or a number from 1
	Needed  string   // its contents, if the list must have it or one of Instead; "" if it may be missing
	Instead []string // columns before it that a list may have instead
	Objects bool     // in JSON its values may be objects; other columns have texts
}

// Rows opens files that have the same columns, for packages that read no lists. It is not safe for concurrent use,
// except for Read.
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

	ctx     context.Context
	columns []Column
	layout  layout
	at      map[string]int        // by column, where it is in a row of a table or of CSV
	paths   map[string][]jsonPath // by column, all of its names: an object may lack any key
	table   Table                 // in place of text, if not nil
	text    *bufio.Scanner        // of cut
	take    record                // of CSV
	row     Row

	ends     uint64 // line
	bad      bool   // the row is too long, or its quotes are not closed
	tail     bool   // the next bytes are the rest of its line
	searched int    // of the next bytes
}

// Row is a row of a Stream.
type Row struct {
	Line   uint64            // 1-based, or the number of a row of a table
	Text   []byte            // as far as it has one
	Reason string            // why it cannot be read
	Cells  map[string][]byte // by column; nil: it has none
}

// OpenRows prepares to read the files in the given order. Only the options for temporary files, Stdin and Parquet
// count. Errors of NextStream and Next are io.EOF, an *Error, or that of the context.
func OpenRows(ctx context.Context, paths []string, opt Options, columns []Column) *Rows {
	r := &Rows{opt: opt, columns: columns}
	r.src.init(ctx, paths, opt)
	r.src.archives = true
	return r
}

// NextStream advances to the next file, which is valid until the next call.
func (r *Rows) NextStream() (*Stream, error) {
	in, err := r.src.next()
	if err != nil {
		return nil, err
	}
	s := &Stream{FileStats: FileStats{Name: in.name, Compression: in.compression}, ctx: r.src.ctx, columns: r.columns,
		row: Row{Cells: map[string][]byte{}}, layout: layout{eol: '\n', header: true}}
	switch {
	case in.archive:
		s.layout.format, s.Archive, s.Size = WARC, in.table, in.size
	case in.table != nil:
		if s.table, err = r.opt.Parquet(in.table, in.size); err == nil {
			err = s.beginTable()
		}
	default:
		err = s.beginText(in)
	}
	if err != nil {
		return nil, damaged(in.name, 0, err)
	}
	s.Layout = s.layout.format.String()
	return s, nil
}

func (s *Stream) beginTable() error {
	s.layout.format = Parquet
	var names []string
	for i := range s.table.Columns() {
		name, holds := s.table.Column(i)
		if !slices.Contains([]string{"text", "numbers", "truths", "times"}, holds) {
			name += " (holds " + holds + ")" // which is no usual name
		}
		names = append(names, name)
	}
	if err := s.find(names); err != nil {
		return err
	}
	var chosen []int
	for column, at := range s.at {
		s.at[column] = len(chosen)
		chosen = append(chosen, at)
	}
	return s.table.Select(chosen...)
}

// beginText distinguishes JSON lines from CSV by the first byte.
func (s *Stream) beginText(in stream) error {
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
		return &layoutError{"it is neither JSON lines nor CSV, nor Parquet, nor an archive",
			"see docs/archives.md for what is read"}
	case bytes.HasPrefix(first, []byte("[")):
		return errJSONArray
	case !bytes.HasPrefix(first, []byte("{")):
		return s.beginCSV()
	}
	var names []string
	sampled, broken := objectPaths(s.layout.sample(text, err == io.EOF))
	for _, path := range sampled {
		names = append(names, path.String())
	}
	if err := s.find(names); err != nil && broken == nil { // else the objects will be rejects
		return err
	}
	s.paths = map[string][]jsonPath{}
	for _, c := range s.columns {
		if at, known := s.at[c.Name]; known { // as the first objects spell it
			s.paths[c.Name] = []jsonPath{sampled[at]}
		}
		for _, name := range c.Names {
			s.paths[c.Name] = append(s.paths[c.Name], strings.Split(name, "."))
		}
	}
	return nil
}

// beginCSV reads the header.
func (s *Stream) beginCSV() error {
	s.layout.format = CSV
	if !s.text.Scan() {
		return s.text.Err() // nil of a file without rows
	}
	s.layout.delimiter = cmp.Or(findDelimiter([][]byte{s.text.Bytes()}, outsideQuotes), ',')
	if reason := s.parse(); reason != "" {
		return &layoutError{"its first line is no header: " + reason, "begin it with the names of the columns"}
	}
	var names []string
	for i := range s.take.cells {
		names = append(names, string(s.take.cell(i)))
	}
	return s.find(names)
}

// find finds the columns by their names.
func (s *Stream) find(names []string) error {
	s.layout.names, s.at = names, map[string]int{}
	there := func(column string) bool { _, there := s.at[column]; return there }
	for _, c := range s.columns {
		var missing error
		for _, name := range c.Names {
			at, err := s.layout.column(name, len(names), "--columns "+c.Name+"=NAME")
			if missing = err; err == nil {
				s.at[c.Name] = at
				break
			}
		}
		switch {
		case there(c.Name), c.Needed == "" && s.layout.format == JSONL: // later objects may have a key that the first lack
		case c.Given:
			return missing
		case c.Needed != "" && !slices.ContainsFunc(c.Instead, there):
			return &layoutError{fmt.Sprintf("no column is known to hold %s (%s)", c.Needed, s.layout.list(upTo(len(names)))),
				"name one with --columns " + c.Name + "=NAME"}
		}
	}
	return nil
}

// cut is the bufio.SplitFunc of rows that are not blank. A row ends at the end of a line, in CSV only if no quote is
// open there (RFC 4180 §2). If a row is too long or has an unclosed quote, only its first line is lost.
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
	if s.bad = !found || several && s.cells(row) != ""; s.bad {
		// a quote in another row may close the quote of this row
		first := bytes.IndexByte(row, '\n') + 1
		s.tail = first == 0
		row = row[:cmp.Or(first, len(row))]
	}
	s.row.Line, s.searched = s.ends+1, 0
	s.ends += uint64(bytes.Count(row, []byte{'\n'}))
	return begin + len(row), bytes.TrimRight(row, "\r\n"), nil
}

// parse finds the values in the text of a row, or returns why it cannot be read.
func (s *Stream) parse() (reason string) {
	switch {
	case s.bad:
		return "the row is longer than 8 MiB, or a quoted cell is not closed"
	case s.layout.format == JSONL:
		return s.parseJSON(s.text.Text())
	}
	reason = s.cells(s.text.Bytes())
	for column, at := range s.at {
		if reason == "" {
			s.row.Cells[column] = s.take.cells[at]
		}
	}
	return reason
}

// parseJSON is parse for a row of JSON. Among several keys of a column the first with a value counts.
func (s *Stream) parseJSON(row string) (reason string) {
	object, ok := parseJSON(row)
	if !ok {
		return "not a JSON object"
	}
	for _, c := range s.columns {
		for _, path := range s.paths[c.Name] {
			value := path.of(object)
			if value == nil || value.Kind() == jsonlite.Null {
				continue
			}
			cell := jsonText(value)
			switch {
			case cell == nil && !c.Objects:
				return fmt.Sprintf("its %s is an object or a list, and no text", c.Name)
			case cell == nil:
				cell = []byte(value.JSON())
			}
			s.row.Cells[c.Name] = cell
			break
		}
	}
	return ""
}

// cells finds the cells of a row of CSV.
func (s *Stream) cells(row []byte) (reason string) {
	const maxCells = 1 << 16
	reason = s.take.split(bytes.TrimRight(row, "\r\n"), s.layout.delimiter, maxCells)
	if n, width := len(s.take.cells), len(s.layout.names); reason == "" && n != width && width > 0 {
		// 0: this is the header
		return fmt.Sprintf("the row has %d cells, and the header %d", n, width)
	}
	return reason
}

// Next returns the next row, valid until the next call; io.EOF after the last.
func (s *Stream) Next() (*Row, error) {
	clear(s.row.Cells)
	s.row.Text, s.row.Reason = nil, ""
	var err error
	switch {
	case s.table != nil:
		s.row.Line++
		if err = s.ctx.Err(); err == nil {
			err = s.table.Next()
		}
		for column, at := range s.at {
			if err == nil {
				s.row.Cells[column], _ = s.table.Text(at)
			}
		}
	case s.text.Scan():
		s.row.Text, s.row.Reason = s.text.Bytes(), s.parse()
	default:
		s.row.Line, err = s.ends+1, cmp.Or(s.text.Err(), io.EOF)
	}
	if err != nil && err != io.EOF {
		err = damaged(s.Name, s.row.Line, err)
	}
	return &s.row, err
}

// Read returns how many bytes of the files were read. It is safe for concurrent use.
func (r *Rows) Read() int64 { return r.src.read.Load() }

// Close closes what is open.
func (r *Rows) Close() error { return r.src.Close() }

package inputs

import (
	"bytes"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// skipLine is the reason for lines that are neither entries nor broken.
const skipLine = "skip"

// record is the content of one line: views of the line or of scratch memory, valid until the next read.
type record struct {
	host, label []byte
	rank        int64

	started bool // the first line that is no comment was read
	cells   [][]byte
	scratch []byte
}

// begin prepares for another stream.
func (c *record) begin() { c.started = false }

// read parses a line by the layout. It returns "" if host is set, skipLine, or why the line is rejected.
func (c *record) read(line []byte, l *layout) (reason string) {
	c.host, c.label, c.rank = nil, nil, 0
	if text := trimSpace(line); len(text) == 0 || text[0] == '#' {
		return skipLine
	}
	first := !c.started
	c.started = true
	if first && l.separator {
		c.started = false
		l.separator = false
		return skipLine
	}
	if first && l.header {
		return skipLine
	}
	if !utf8.Valid(line) {
		return "not valid UTF-8"
	}
	switch l.format {
	case CSV:
		return c.readCSV(line, l)
	case JSONL:
		return c.readJSON(line, l)
	}
	return c.readPlain(line)
}

// readPlain reads the complete line, without a comment after white space: `example.com # why`. A `#` without the space
// begins a URL's fragment.
func (c *record) readPlain(line []byte) string {
	for i := 1; i < len(line); i++ {
		j := bytes.IndexByte(line[i:], '#')
		if j < 0 {
			break
		}
		i += j
		if line[i-1] == ' ' || line[i-1] == '\t' {
			line = line[:i]
			break
		}
	}
	c.host = trimSpace(line)
	return ""
}

func (c *record) readCSV(line []byte, l *layout) string {
	if reason := c.split(line, l.delimiter, l.width); reason != "" {
		return reason
	}
	c.host = c.cell(l.host)
	if len(c.host) == 0 {
		c.host = c.cell(l.fallback)
	}
	if len(c.host) == 0 {
		if l.host >= len(c.cells) {
			return "the line ends before the column of the hosts"
		}
		return "the cell of the host is empty"
	}
	c.label = c.cell(l.label)
	c.rank = Number(c.cell(l.rank))
	return ""
}

// unbracketed returns the text within `<…>`, as tables of RDF write URLs.
func unbracketed(b []byte) []byte {
	if n := len(b); n > 2 && b[0] == '<' && b[n-1] == '>' {
		return b[1 : n-1]
	}
	return b
}

// cell returns a column's cell without white space around it, or nil.
func (c *record) cell(column int) []byte {
	if column < 0 || column >= len(c.cells) {
		return nil
	}
	return trimSpace(c.cells[column])
}

// split splits off the first n cells of a line (RFC 4180 §2). A record is one line, so that a missing quote cannot
// swallow the rest of a file.
func (c *record) split(line []byte, delimiter byte, n int) (reason string) {
	c.cells = c.cells[:0]
	if bytes.IndexByte(line, '"') >= 0 {
		return c.splitQuoted(line, delimiter, n)
	}
	for len(c.cells) < n {
		i := bytes.IndexByte(line, delimiter)
		if i < 0 {
			c.cells = append(c.cells, line)
			break
		}
		c.cells = append(c.cells, line[:i])
		line = line[i+1:]
	}
	return ""
}

func (c *record) splitQuoted(line []byte, delimiter byte, n int) (reason string) {
	// Unescaped cells are never longer than the line, so scratch does not move under earlier cells.
	if cap(c.scratch) < len(line) {
		c.scratch = make([]byte, 0, len(line))
	}
	c.scratch = c.scratch[:0]
	for len(c.cells) < n {
		if lead := trimSpace(line); len(lead) == 0 || lead[0] != '"' {
			i := bytes.IndexByte(line, delimiter)
			if i < 0 {
				c.cells = append(c.cells, line)
				return ""
			}
			c.cells = append(c.cells, line[:i])
			line = line[i+1:]
			continue
		}
		line = line[bytes.IndexByte(line, '"')+1:]
		start := len(c.scratch)
		for {
			i := bytes.IndexByte(line, '"')
			if i < 0 {
				return "a quoted cell is not closed on its line"
			}
			c.scratch = append(c.scratch, line[:i]...)
			line = line[i+1:]
			if len(line) == 0 || line[0] != '"' {
				break
			}
			c.scratch = append(c.scratch, '"')
			line = line[1:]
		}
		c.cells = append(c.cells, c.scratch[start:])
		i := bytes.IndexByte(line, delimiter)
		if i < 0 {
			i = len(line)
		}
		if len(trimSpace(line[:i])) > 0 {
			return "text after a quoted cell"
		}
		if i == len(line) {
			return ""
		}
		line = line[i+1:]
	}
	return ""
}

// maxNumber bounds a rank, so that no reader of JSON rounds it: many keep numbers in 53 bits.
const maxNumber = 1e15

// number is how pandas and spreadsheets spell one.
var number = regexp.MustCompile(`^([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]*)?([eE]\+?[0-9]+)?$`)

// Number reads a positive whole number below maxNumber, also as pandas and spreadsheets write it: `2.0`, `1,000`,
// `1e3`. It returns 0 for anything else.
func Number(b []byte) int64 {
	if n, err := strconv.ParseUint(string(b), 10, 63); err == nil && n < maxNumber {
		return int64(n)
	}
	if len(b) > 30 || !number.Match(b) {
		return 0
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(string(b), ",", ""), 64)
	if err != nil || n != math.Trunc(n) || n >= maxNumber {
		return 0
	}
	return int64(n)
}

// addressRange reports whether text is `192.0.2.0/24`, or the short form `192.0.2/24`, which would otherwise be read
// as an address with a path.
func addressRange(text string) bool {
	i := strings.IndexByte(text, '/')
	if i < 0 || len(text)-i > 4 || len(text)-i < 2 || i > len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255") {
		return false
	}
	if strings.Trim(text[:i], "0123456789.") == "" && i > 0 {
		bits, err := strconv.ParseUint(text[i+1:], 10, 8)
		return err == nil && bits <= 32
	}
	_, err := netip.ParsePrefix(text)
	return err == nil
}

// trimSpace drops ASCII white space from both ends.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

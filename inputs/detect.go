package inputs

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
)

// Format is the form of a list, the values of the flag --format.
type Format uint8

// The formats. WARC is named only to be refused with a remedy.
const (
	Auto Format = iota
	Lines
	CSV
	JSONL
	Parquet
	WARC
)

// FormatNames are the values of the flag --format.
var FormatNames = []string{"auto", "lines", "csv", "jsonl", "parquet", "warc"}

// String returns the name that ParseFormat reads.
func (f Format) String() string {
	if int(f) < len(FormatNames) {
		return FormatNames[f]
	}
	return "invalid"
}

// ParseFormat reads a value of the flag --format.
func ParseFormat(name string) (Format, error) {
	if i := slices.Index(FormatNames, name); i >= 0 {
		return Format(i), nil
	}
	return Auto, fmt.Errorf("unknown format %q: known are %s", name, strings.Join(FormatNames, ", "))
}

func refused(f Format) error {
	return fmt.Errorf("cannot read a list as %s: export the hosts as csv or plain lines", f)
}

// layout is how the lines of one stream are read.
type layout struct {
	format Format
	bom    int  // bytes of the byte order mark
	eol    byte // what ends a line

	// For CSV. Columns count from 0; -1 is none.
	delimiter      byte
	separator      bool // the first line is `sep=;`, as spreadsheets write it
	header         bool // the next line has the names of the columns
	names          []string
	host, fallback int // fallback stands in for an empty host cell
	rank, label    int
	width          int  // cells that must be split off
	reversed       bool // names are written as com.example.www; also for plain lines

	// For JSON lines.
	paths [jsonWanted]jsonPath

	empty bool // the head has only blank lines and comments
}

// layoutError says why no layout was found, and what to do.
type layoutError struct{ text, remedy string }

var errJSONArray = &layoutError{"it is a JSON array", "write one object a line, as `jq -c '.[]'` does"}

func (e *layoutError) Error() string { return e.text }

// Remedy says what to do.
func (e *layoutError) Remedy() string { return e.remedy }

// sampleLines is how many lines determine the layout.
const sampleLines = 200

// HostNames are the usual names of host columns, the most specific first: an origin has more than a domain.
var HostNames = []string{"origin", "url", "domain", "host", "hostname", "fqdn", "website", "site", "domain_name",
	"root_domain", "host_name", "homepage"}

// RankNames are the usual names of rank columns.
var RankNames = []string{"rank", "globalrank", "global_rank", "popularity_rank", "tranco_rank", "alexa_rank"}

// detect determines from the first bytes of a stream how to read it; whole says that these are all bytes. An ambiguous
// list is an error that asks for a column, since reading the wrong column would waste a scan.
func detect(head []byte, whole bool, opt Options) (layout, error) {
	l := layout{format: Lines, eol: '\n', host: -1, fallback: -1, rank: -1, label: -1}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		l.bom = 3
		head = head[3:]
	}
	if n := bytes.Count(head, []byte{0}); n > len(head)/20 {
		return l, &layoutError{"it is binary data, or UTF-16 without a byte order mark", "convert it to UTF-8 text"}
	}
	// Text with CR and without LF was written by an old Macintosh.
	if bytes.IndexByte(head, '\n') < 0 && bytes.IndexByte(head[:max(0, len(head)-1)], '\r') >= 0 {
		l.eol = '\r'
	}
	lines := l.sample(head, whole)
	if len(lines) == 0 && !whole {
		return l, &layoutError{"its first 64 KiB are blank lines and comments", "take them out"}
	}
	if len(lines) == 0 {
		l.empty = true
		return l, nil
	}
	switch opt.Format {
	case Lines:
		return l, nil
	case CSV:
		return l, l.detectCSV(lines, opt)
	case JSONL:
		return l, l.detectJSON(lines, opt)
	case Parquet:
		return l, &layoutError{"it is no Parquet file", "pass --format auto"}
	}
	first := trimSpace(lines[0])
	switch {
	case first[0] == '{':
		return l, l.detectJSON(lines, opt)
	case bytes.HasPrefix(first, []byte("[{")), string(first) == "[":
		return l, errJSONArray
	case first[0] == '<':
		return l, &layoutError{"it is HTML or XML", "fetch the list itself, or pass --format lines"}
	case opt.Column != "" || opt.LabelColumn != "" || looksLikeCSV(lines):
		return l, l.detectCSV(lines, opt)
	case isHostsFile(lines):
		return l, &layoutError{"it is a hosts file, with an address before each name",
			"write its names alone, as `awk '!/^#/ {print $2}'` does"}
	}
	var names weight
	for _, line := range lines {
		names.weigh(string(trimSpace(line)))
	}
	l.reversed = names.holdsReversed()
	return l, nil
}

// isHostsFile reports whether most lines have an address, white space and more.
func isHostsFile(lines [][]byte) bool {
	n := 0
	for _, line := range lines {
		if fields := bytes.Fields(line); len(fields) > 1 {
			if _, err := netip.ParseAddr(string(fields[0])); err == nil {
				n++
			}
		}
	}
	return n*2 > len(lines)
}

// sample returns the first lines that are neither blank nor comments.
func (l *layout) sample(head []byte, whole bool) [][]byte {
	var lines [][]byte
	for len(head) > 0 && len(lines) < sampleLines {
		line, rest, ended := bytes.Cut(head, []byte{l.eol})
		if !ended && !whole && len(lines) > 0 {
			break // the head ends within a line
		}
		head = rest
		if text := trimSpace(line); len(text) > 0 && text[0] != '#' {
			// A tab at the start may be an empty first cell.
			lines = append(lines, bytes.TrimRight(line, "\r "))
		}
	}
	return lines
}

// looksLikeCSV reports whether lines have columns, or one column with a header.
func looksLikeCSV(lines [][]byte) bool {
	return separatorLine(lines[0]) != 0 || headerDelimiter(lines[0]) != 0 || findDelimiter(lines, outsidePaths) != 0 ||
		tableDelimiter(lines) != 0 || allQuoted(lines)
}

// tableDelimiter returns the delimiter of lines that begin with a URL whose path may contain delimiters; 0 for none.
// Nearly all lines must have the same number of cells. The first line must be a header, or most others must have a
// number, another URL, or a tab, which no URL has.
func tableDelimiter(lines [][]byte) byte {
	for _, d := range []byte(delimiters) {
		width, same, telling := 0, 0, 0
		var first weight
		for i, line := range lines {
			var c record
			if c.split(line, d, 1<<10) != "" || i > 0 && len(c.cells) != width || len(c.cells) < 2 {
				continue
			}
			tells := d == '\t'
			for j := range c.cells {
				cell := string(c.cell(j))
				if i == 0 {
					first.weigh(cell)
				}
				tells = tells || j > 0 && (Number([]byte(cell)) > 0 || schemed(cell))
			}
			width = len(c.cells)
			if same++; tells {
				telling++
			}
		}
		header := first.filled > 0 && first.names+first.addresses+first.numbers == 0 && len(lines) > 1
		if width > 0 && same*10 >= len(lines)*9 && (header || telling*2 > same) {
			return d
		}
	}
	return 0
}

// schemed reports whether a cell begins with the scheme of a URL.
func schemed(cell string) bool {
	scheme, _, ok := strings.Cut(cell, "://")
	return ok && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func allQuoted(lines [][]byte) bool {
	for _, line := range lines {
		if len(line) < 2 || line[0] != '"' || line[len(line)-1] != '"' {
			return false
		}
	}
	return true
}

// separatorLine returns x of a line `sep=x`, or 0.
func separatorLine(line []byte) byte {
	if len(line) == 5 && bytes.EqualFold(line[:4], []byte("sep=")) && strings.IndexByte(",;|\t", line[4]) >= 0 {
		return line[4]
	}
	return 0
}

// delimiters are the possible separators of cells. On a tie the first wins.
const delimiters = "\t,;"

// headerDelimiter returns the delimiter of a header, which has a cell with a usual name of a host column. It returns a
// comma if that is the only cell, and 0 if the line is no such header.
func headerDelimiter(line []byte) byte {
	for _, d := range []byte(delimiters) {
		for _, cell := range strings.Split(string(line), string(d)) {
			if slices.Contains(HostNames, normalName(cell)) {
				if bytes.IndexByte(line, d) < 0 {
					return ','
				}
				return d
			}
		}
	}
	return 0
}

// findDelimiter returns the delimiter of most lines, or 0.
func findDelimiter(lines [][]byte, visible func([]byte) []byte) byte {
	var best byte
	most := 0
	for _, d := range []byte(delimiters) {
		n := 0
		for _, line := range lines {
			if bytes.IndexByte(visible(line), d) >= 0 {
				n++
			}
		}
		if n > most {
			best, most = d, n
		}
	}
	if most*2 <= len(lines) {
		return 0
	}
	return best
}

// outsideQuotes returns the line without its quoted parts.
func outsideQuotes(line []byte) []byte {
	if bytes.IndexByte(line, '"') < 0 {
		return line
	}
	var out []byte
	for i, part := range bytes.Split(line, []byte{'"'}) {
		if i%2 == 0 {
			out = append(out, part...)
		}
	}
	return out
}

// outsidePaths is outsideQuotes without the path of a URL at the start of the line: commas and semicolons in a path
// are no delimiters.
func outsidePaths(line []byte) []byte {
	line = outsideQuotes(line)
	scheme := bytes.Index(line, []byte("://"))
	if scheme < 0 || bytes.ContainsAny(line[:scheme], delimiters) {
		return line
	}
	authority := line[scheme+3:]
	if end := bytes.IndexAny(authority, "/?#"); end >= 0 {
		return authority[:end]
	}
	return authority
}

// detectCSV finds the delimiter, the header and the columns.
func (l *layout) detectCSV(lines [][]byte, opt Options) error {
	l.format = CSV
	if d := separatorLine(lines[0]); d != 0 {
		l.separator, l.delimiter = true, d
		lines = lines[1:]
	} else {
		l.delimiter = cmp.Or(headerDelimiter(lines[0]), findDelimiter(lines, outsidePaths))
		if l.delimiter == 0 {
			l.delimiter = cmp.Or(tableDelimiter(lines), findDelimiter(lines, outsideQuotes), ',')
		}
	}
	rows := l.rows(lines)
	if len(rows) == 0 {
		l.empty = true
		return nil
	}
	columns := weigh(rows)
	l.findHeader(rows, columns, opt)
	if err := l.findHost(rows, columns, opt); err != nil {
		return err
	}
	if err := l.findLabel(len(columns), opt); err != nil {
		return err
	}
	l.findRank(columns)
	l.reversed = l.host < len(columns) && columns[l.host].holdsReversed()
	l.width = 1 + max(l.host, l.fallback, l.rank, l.label)
	return nil
}

// rows splits the sampled lines into cells.
func (l *layout) rows(lines [][]byte) [][]string {
	rows := make([][]string, 0, len(lines))
	for i, line := range lines {
		var c record
		if c.split(line, l.delimiter, 1<<10) != "" && i > 0 {
			continue // the line will be a reject; the first row stays the first
		}
		row := make([]string, len(c.cells))
		for i := range c.cells {
			row[i] = string(c.cell(i))
		}
		rows = append(rows, row)
	}
	return rows
}

// weight counts the kinds of cells of a column, without the first row.
type weight struct {
	filled, names, addresses, numbers int
	// the names with a top-level domain only at their end, and only at their beginning
	forward, backward int
}

// holdsReversed reports whether most names are written as com.example.www.
func (w weight) holdsReversed() bool { return w.backward*2 > w.names && w.backward > 4*w.forward }

// holdsNames reports whether most filled cells are host names, or URLs.
func (w weight) holdsNames() bool { return w.names > 0 && w.names*10 >= w.filled*6 }

// holdsAddresses reports whether most filled cells are addresses.
func (w weight) holdsAddresses() bool { return w.addresses > 0 && w.addresses*10 >= w.filled*9 }

func (w weight) holdsNumbers() bool { return w.numbers > 0 && w.numbers == w.filled }

// weigh counts all rows but the first, which may be a header. A single row is counted.
func weigh(rows [][]string) []weight {
	width := 0
	for _, row := range rows {
		width = max(width, len(row))
	}
	columns := make([]weight, width)
	below := rows
	if len(rows) > 1 {
		below = rows[1:]
	}
	for _, row := range below {
		for i, cell := range row {
			columns[i].weigh(cell)
		}
	}
	return columns
}

func (w *weight) weigh(cell string) {
	if cell == "" {
		return
	}
	w.filled++
	if Number([]byte(cell)) > 0 {
		w.numbers++
		return
	}
	if c := cell[0]; c >= '0' && c <= '9' {
		if _, err := strconv.ParseFloat(cell, 64); err == nil {
			return // 1.5E-7 is no host
		}
	}
	o, err := origin.Parse(string(unbracketed([]byte(cell))))
	if err != nil {
		return
	}
	if addr, isAddress := o.Addr(); isAddress {
		// Browsers read 0.75 as an address, but no column of addresses has such spellings.
		if addr.Is6() || strings.Contains(cell, o.Host()) {
			w.addresses++
		}
	} else if o.Scheme() != origin.Auto || strings.IndexByte(o.Host(), '.') >= 0 {
		w.names++
		switch begins, ends := origin.IsTLD(firstLabel(o.Host())), o.TLD() != ""; {
		case ends && !begins:
			w.forward++
		case begins && !ends && o.Scheme() == origin.Auto:
			w.backward++
		}
	}
}

func firstLabel(host string) string {
	label, _, _ := strings.Cut(host, ".")
	return label
}

// findHeader decides whether the first row is a header. A header has neither hosts nor numbers. It has a usual name,
// or a cell unlike those below it.
func (l *layout) findHeader(rows [][]string, columns []weight, opt Options) {
	known := false
	var first weight
	for _, cell := range rows[0] {
		first.weigh(cell)
		name := normalName(cell)
		known = known || slices.Contains(HostNames, name) || slices.Contains(RankNames, name) ||
			name != "" && (name == normalName(opt.Column) || name == normalName(opt.LabelColumn))
	}
	if first.names+first.addresses+first.numbers > 0 || first.filled == 0 {
		return
	}
	below := len(rows) > 1 && slices.ContainsFunc(columns, func(w weight) bool {
		return w.holdsNames() || w.holdsAddresses() || w.holdsNumbers()
	})
	if l.header = known || below; l.header {
		l.names = rows[0]
	}
}

// findHost finds the host column: the requested one, one with a usual name, or the only one with host names.
func (l *layout) findHost(rows [][]string, columns []weight, opt Options) (err error) {
	if opt.Column != "" {
		l.host, err = l.column(opt.Column, len(columns), "--column")
		return err
	}
	if l.header {
		if l.host = named(l.names, HostNames); l.host >= 0 {
			return nil
		}
	}
	var names, addresses []int
	for i, w := range columns {
		if w.holdsNames() {
			names = append(names, i)
		} else if w.holdsAddresses() {
			addresses = append(addresses, i)
		}
	}
	switch {
	case len(names) == 1:
		l.host = names[0]
		// zgrab2 writes `IP, DOMAIN, TAG`: the address replaces a missing domain.
		if len(addresses) == 1 && addresses[0] == l.host-1 && !l.header {
			l.fallback = addresses[0]
		}
	case len(names) > 1:
		return &layoutError{fmt.Sprintf("several columns hold host names (%s)", l.list(names)),
			"choose one with --column, or pass --format lines"}
	case len(addresses) == 1:
		l.host = addresses[0]
	case len(columns) == 2 && columns[0].holdsNumbers():
		l.host = 1 // a rank list of bare top-level domains
	case len(columns) == 1:
		l.host = 0
	default:
		return &layoutError{fmt.Sprintf("none of its %d columns is known to hold hosts (%s)", len(columns),
			l.list(upTo(len(columns)))), "choose one with --column, or pass --format lines"}
	}
	return nil
}

func (l *layout) findLabel(width int, opt Options) (err error) {
	if opt.LabelColumn != "" {
		l.label, err = l.column(opt.LabelColumn, width, "--label-column")
	}
	return err
}

// findRank takes the column with a usual name. Without a header it takes a column of numbers before the hosts.
func (l *layout) findRank(columns []weight) {
	if l.header {
		l.rank = named(l.names, RankNames)
		return
	}
	for i, w := range columns[:min(l.host, len(columns))] {
		if w.holdsNumbers() {
			l.rank = i
			return
		}
	}
}

// column finds a column by its name or its 1-based number.
func (l *layout) column(want string, width int, flag string) (int, error) {
	if i := slices.IndexFunc(l.names, func(name string) bool { return normalName(name) == normalName(want) }); i >= 0 {
		return i, nil
	}
	if n, err := strconv.Atoi(want); err == nil && n >= 1 {
		if n > width {
			return -1, &layoutError{fmt.Sprintf("it has no column %d, only %d", n, width), ""}
		}
		return n - 1, nil
	}
	if !l.header {
		return -1, &layoutError{fmt.Sprintf("its first line does not name a column %q", want), "give " + flag +
			" a number, counted from 1"}
	}
	return -1, &layoutError{fmt.Sprintf("it has no column %q, but %s", Clip(want, 80), l.list(upTo(len(l.names)))),
		"choose one of these with " + flag}
}

// named returns the index of the first wanted name among names. If no name matches, the part of a name after its last
// dot counts, as in structs. It returns -1 if there is none.
func named(names, wanted []string) int {
	for _, last := range []bool{false, true} {
		for _, want := range wanted {
			for i, name := range names {
				if last {
					name = name[strings.LastIndexByte(name, '.')+1:]
				}
				if normalName(name) == want {
					return i
				}
			}
		}
	}
	return -1
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// maxListed is how many columns a message names.
const maxListed = 20

// listed lists names for a message.
func listed(n int, name func(i int) string) string {
	var names []string
	for i := range min(n, maxListed) {
		names = append(names, name(i))
	}
	if n > maxListed {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// list names columns for a message.
func (l *layout) list(columns []int) string {
	return listed(len(columns), func(i int) string { return l.columnName(columns[i]) })
}

// columnName is `3 "Domain"`, or `3` without a header.
func (l *layout) columnName(column int) string {
	if l.header && column < len(l.names) {
		return fmt.Sprintf("%d %q", column+1, Clip(l.names[column], 80))
	}
	return strconv.Itoa(column + 1)
}

// normalName returns one spelling for all spellings of a column name.
func normalName(name string) string {
	if len(name) > 200 {
		return ""
	}
	name = strings.ToLower(strings.Trim(strings.TrimSpace(name), `"`))
	return strings.NewReplacer(" ", "_", "-", "_").Replace(name)
}

// String describes the layout in words.
func (l *layout) String() string {
	if l.empty {
		return "empty"
	}
	var b strings.Builder
	b.WriteString(l.format.String())
	switch l.format {
	case CSV, Parquet:
		if l.format == CSV {
			fmt.Fprintf(&b, " (%s)", map[byte]string{',': "comma", '\t': "tab", ';': "semicolon", '|': "bar"}[l.delimiter])
			if l.header {
				b.WriteString(", header")
			}
		}
		fmt.Fprintf(&b, ", host in column %s", l.columnName(l.host))
		if l.fallback >= 0 {
			fmt.Fprintf(&b, " or %s", l.columnName(l.fallback))
		}
		if l.rank >= 0 {
			fmt.Fprintf(&b, ", rank in column %s", l.columnName(l.rank))
		}
		if l.label >= 0 {
			fmt.Fprintf(&b, ", label in column %s", l.columnName(l.label))
		}
	case JSONL:
		for i, what := range [...]string{jsonHost: "host", jsonRank: "rank", jsonLabel: "label"} {
			if len(l.paths[i]) > 0 || i == jsonHost {
				fmt.Fprintf(&b, ", %s under %q", what, Clip(l.paths[i].String(), 80))
			}
		}
	}
	if l.reversed {
		b.WriteString(", names reversed")
	}
	if l.eol == '\r' {
		b.WriteString(", lines ended by CR")
	}
	return b.String()
}

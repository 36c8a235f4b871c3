package inputs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// Stream is the content of a file, or of a member of a zip, without its compressions.
type Stream struct {
	io.Reader               // of text; nil of a table and of an archive
	At          io.ReaderAt // of a table (Parquet), and of an archive, which may be packed by gzip
	Size        int64       // of At
	Archive     bool        // At is a WARC file
	Name        string
	Compression string // as in FileStats
}

// Streams returns the contents of files in order, for packages that read no lists. It is not safe for concurrent use, except
// for Read.
type Streams struct{ src source }

// OpenStreams prepares to read the files in the given order. Errors of Next are an *Error, or that of the context.
func OpenStreams(ctx context.Context, paths []string, tempDir string) *Streams {
	s := &Streams{}
	s.src.init(ctx, paths, Options{TempDir: tempDir})
	s.src.archives = true
	return s
}

// Next returns the next stream, which is valid until the next call, or io.EOF after the last.
func (s *Streams) Next() (Stream, error) {
	in, err := s.src.next()
	if err != nil {
		return Stream{}, err
	}
	return Stream{Reader: in.Reader, At: in.table, Size: in.size, Archive: in.archive, Name: in.name, Compression: in.compression}, nil
}

// Read returns how many bytes of the files were read. It is safe for concurrent use.
func (s *Streams) Read() int64 { return s.src.read.Load() }

// Close closes what is open.
func (s *Streams) Close() error { return s.src.Close() }

// openWARC returns an archive for random access: a plain file or one packed by gzip as it is, others unpacked.
func (s *source) openWARC(in stream) (stream, error) {
	in.archive = true
	if in.file == nil || in.compression != "" && in.compression != "gzip" {
		return s.copyTable(in)
	}
	info, err := in.file.Stat()
	if err != nil {
		return stream{}, &Error{File: in.name, Err: plainPathError(err)}
	}
	if !info.Mode().IsRegular() {
		return s.copyTable(in)
	}
	in.Reader, in.table, in.size = nil, readerAt{s.ctx, in.file, &s.read}, info.Size()
	return in, nil
}

// Scratch makes a temporary file without a name, so that none is left over if the process dies. Systems that cannot
// unlink an open file keep it in the temporary folder.
func Scratch(dir string) (*os.File, error) { return scratch(dir) }

// Compressed reports whether a file that begins so has to be unpacked before it can be read, or is an archive of files.
func Compressed(head []byte) bool {
	kind, _ := magic(head)
	return kind != "" && kind != kindTable || bytes.HasPrefix(head, []byte("PK\x03\x04"))
}

// HostNames are the usual names of host columns, the most specific first.
func HostNames() []string { return hostNames }

// RankNames are the usual names of rank columns.
func RankNames() []string { return rankNames }

// NormalName returns one spelling for all spellings of a column name.
func NormalName(name string) string { return normalName(name) }

// Damaged adds the place (line 0: before the first) and the remedy to an error of reading, except to that of the context.
func Damaged(name string, line uint64, err error) error { return damaged(name, line, err) }

// ParseSite returns the origin of a host or URL as it stands on a list, or why it is none. See Options.LocalNames.
func ParseSite(text string, localNames bool) (o origin.Origin, reason string) {
	if addressRange(text) {
		return o, "an address range is no origin"
	}
	o, spelling, err := origin.ParseSpelling(text)
	if err != nil {
		return o, err.Error()
	}
	if !localNames && isLocal(o.Host()) {
		return o, "a name without a top-level domain (--allow-private takes internal names)"
	}
	if misread(o, spelling) {
		return o, fmt.Sprintf("write the address in full: this would be read as %s", o.Host())
	}
	return o, ""
}

// Clip cuts valid UTF-8 to at most n bytes, between runes.
func Clip(s string, n int) string { return clip(s, n) }

// JSONFinder finds values in JSON objects. Its results are valid until the next Find, and share memory with the line.
type JSONFinder struct {
	paths []jsonPath
	found [][]byte
}

// NewJSONFinder returns a finder of the values under these keys, at most 64; `site.host` is the key host in the object under
// site.
func NewJSONFinder(keys []string) *JSONFinder {
	f := &JSONFinder{found: make([][]byte, len(keys))}
	for _, key := range keys {
		f.paths = append(f.paths, strings.Split(key, "."))
	}
	return f
}

// Find reports whether the line is an object by RFC 8259.
func (f *JSONFinder) Find(line []byte) bool {
	clear(f.found)
	return walkJSON(line, f.paths, f.found)
}

// Raw returns the i-th value as written in the line, or nil.
func (f *JSONFinder) Raw(i int) []byte { return f.found[i] }

// AppendJSONText appends the text of a valid JSON string, with its quotes, to dst. Lone surrogates become U+FFFD; bytes that
// are no UTF-8 stay.
func AppendJSONText(dst, raw []byte) []byte { return appendUnescaped(dst, raw[1:len(raw)-1]) }

// ErrColumns is the error of a table whose columns are not as needed.
func ErrColumns(text, remedy string) error { return &layoutError{text, remedy} }

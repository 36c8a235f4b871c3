package inputs

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/text/encoding/unicode"
)

// Bounds against hostile archives. Decompression is streaming, so only its window takes memory.
const (
	maxWindow  = 128 << 20 // of zstd and xz; the maximum for `zstd --long` and `xz -9`
	maxNesting = 3         // compressions around one list
	maxMembers = 10_000    // files in a zip
)

// stream is decompressed text, or a table with random access.
type stream struct {
	io.Reader
	table       io.ReaderAt // nil of text
	size        int64       // of the table
	archive     bool        // table is a WARC file, see source.archives
	name        string
	compression string
}

// source opens the inputs in order, and the members of archives in order.
type source struct {
	ctx   context.Context
	paths []string
	stdin io.Reader
	dir   string // of temporary files; "" is the system's

	archives bool // WARC files are returned, and not refused

	archive string // the zip whose members are being read
	members []*zip.File
	closers []func() error // of the current file, in the order of opening

	read  atomic.Int64
	begun atomic.Int64 // bytes that were read before the current stream was opened
	total int64
	ended int64 // bytes counted as read once the current table is done: not all its columns are read
}

func (s *source) init(ctx context.Context, paths []string, opt Options) {
	s.ctx, s.paths, s.stdin, s.dir = ctx, paths, opt.Stdin, opt.TempDir
}

// ReadText reads a file of any contents, but no more than limit bytes. If it may be packed, its compression is removed.
func ReadText(ctx context.Context, path string, packed bool, limit int) (text []byte, err error) {
	s := &source{ctx: ctx}
	defer func() { err = errors.Join(err, s.Close()) }()
	file, err := OpenFile(ctx, path)
	if err != nil {
		return nil, plainPathError(err)
	}
	s.closers = append(s.closers, file.Close)
	buffered := bufio.NewReader(s.watch(file))
	head, _ := buffered.Peek(512) // an error comes again
	var r io.Reader = buffered
	if kind, _ := magic(head); packed && kind != "" && kind != kindTable {
		if r, err = s.unpack(kind, buffered); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(r, int64(limit)))
}

// next opens the next stream, or returns io.EOF.
func (s *source) next() (stream, error) {
	if len(s.members) > 0 {
		// Only the archive itself, which was opened first, stays open between members.
		if err := s.closeDownTo(1); err != nil {
			return stream{}, damaged(s.archive, 0, err)
		}
		member := s.members[0]
		s.members = s.members[1:]
		return s.openMember(member)
	}
	if err := s.Close(); err != nil {
		return stream{}, fmt.Errorf("cannot close a list: %w", err)
	}
	if s.ended > 0 {
		s.read.Store(s.ended)
		s.ended = 0
	}
	s.begun.Store(s.read.Load())
	if len(s.paths) == 0 {
		return stream{}, io.EOF
	}
	name := s.paths[0]
	s.paths = s.paths[1:]
	if name == "-" {
		ctx, cancel := context.WithCancel(s.ctx)
		s.closers = append(s.closers, func() error { cancel(); return nil })
		return s.decode(stream{Reader: s.watch(abandonable(ctx, s.stdin)), name: "standard input"})
	}
	file, err := OpenFile(s.ctx, name)
	if err != nil {
		return stream{}, &Error{File: name, Err: plainPathError(err)}
	}
	s.closers = append(s.closers, file.Close)
	head, _ := io.ReadAll(io.NewSectionReader(file, 0, 5)) // empty for a stream without random access
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return s.openArchive(name, file)
	case isTable(string(head)):
		info, err := file.Stat()
		if err != nil {
			return stream{}, &Error{File: name, Err: plainPathError(err)}
		}
		s.ended = s.read.Load() + info.Size()
		return stream{table: readerAt{s.ctx, file, &s.read}, size: info.Size(), name: name}, nil
	}
	return s.decode(stream{Reader: s.watch(file), name: name})
}

// Close closes what is open.
func (s *source) Close() error {
	s.members = nil
	return s.closeDownTo(0)
}

// closeDownTo closes in reverse order, and keeps the first n open.
func (s *source) closeDownTo(n int) error {
	var first error
	for i := len(s.closers) - 1; i >= n; i-- {
		if err := s.closers[i](); err != nil && first == nil {
			first = err
		}
	}
	s.closers = s.closers[:min(n, len(s.closers))]
	return first
}

// watch counts the bytes read and fails when the context ends.
func (s *source) watch(r io.Reader) io.Reader { return &watched{ctx: s.ctx, r: r, n: &s.read} }

type watched struct {
	ctx context.Context
	r   io.Reader
	n   *atomic.Int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.n.Add(int64(n))
	if w.ctx.Err() != nil {
		err = w.ctx.Err()
	}
	return n, err
}

// decode removes compressions until text or a table is left.
func (s *source) decode(in stream) (stream, error) {
	for depth := 0; ; depth++ {
		buffered := bufio.NewReaderSize(in.Reader, 64<<10)
		head, err := buffered.Peek(512)
		if err != nil && err != io.EOF && len(head) == 0 {
			return stream{}, damaged(in.name, 0, err)
		}
		in.Reader = buffered
		if s.archives && bytes.HasPrefix(head, []byte(magicWARC)) {
			in.archive = true
			return s.copyTable(in)
		}
		kind, problem := magic(head)
		if problem != nil {
			return stream{}, &Error{File: in.name, Err: problem, Remedy: problem.remedy}
		}
		switch kind {
		case "":
			return in, nil
		case kindTable:
			return s.copyTable(in)
		}
		if depth == maxNesting {
			return stream{}, &Error{File: in.name, Err: errors.New("too many compressions around one list"),
				Remedy: "unpack it first"}
		}
		if in.Reader, err = s.unpack(kind, buffered); err != nil {
			return stream{}, damaged(in.name, 0, err)
		}
		if in.compression != "" {
			in.compression += "+"
		}
		in.compression += kind
	}
}

// damaged adds place (line 0: before the first) and remedy to an error of reading, except to that of the context.
func damaged(name string, line uint64, err error) error {
	if e, ok := errors.AsType[remedied](err); ok {
		return &Error{File: name, Line: line, Err: err, Remedy: e.Remedy()}
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, zip.ErrAlgorithm), errors.Is(err, zstd.ErrWindowSizeExceeded),
		errors.Is(err, zstd.ErrUnknownDictionary), errors.Is(err, errDictionary):
		return &Error{File: name, Line: line, Err: err, Remedy: "unpack it first"}
	}
	return &Error{File: name, Line: line, Err: err, Remedy: "the file is cut off or damaged: fetch it again"}
}

// remedied is an error that has a remedy.
type remedied interface {
	error
	Remedy() string
}

// unpack returns the reader for one compression.
func (s *source) unpack(kind string, r *bufio.Reader) (io.Reader, error) {
	switch kind {
	case "gzip":
		return gzip.NewReader(r)
	case "zstd":
		decoder, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, func() error { decoder.Close(); return nil })
		return decoder, nil
	case "xz":
		return xz.NewReader(newXZGuard(r))
	case "bzip2":
		return bzip2.NewReader(r), nil
	case "utf-16le":
		return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(r), nil
	default: // utf-16be
		return unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM).NewDecoder().Reader(r), nil
	}
}

// openArchive lists the data members of a zip and opens the first.
func (s *source) openArchive(name string, file *os.File) (stream, error) {
	info, err := file.Stat()
	if err != nil {
		return stream{}, &Error{File: name, Err: plainPathError(err)}
	}
	archive, err := zip.NewReader(readerAt{s.ctx, file, &s.read}, info.Size())
	if err != nil {
		return stream{}, damaged(name, 0, err)
	}
	if len(archive.File) > maxMembers {
		return stream{}, &Error{File: name, Err: fmt.Errorf("more than %d files in the archive", maxMembers),
			Remedy: "unpack it and name the files"}
	}
	for _, member := range archive.File {
		if member.Name == "[Content_Types].xml" {
			return stream{}, &Error{File: name, Err: errors.New("it is an office document"), Remedy: "save the sheet as CSV"}
		}
		if isData(member) {
			s.members = append(s.members, member)
		}
	}
	if len(s.members) == 0 {
		return stream{}, &Error{File: name, Err: errors.New("no list in the archive")}
	}
	s.archive = name
	first := s.members[0]
	s.members = s.members[1:]
	return s.openMember(first)
}

func (s *source) openMember(member *zip.File) (stream, error) {
	// The archive's author chose the member's name: it must not carry control bytes into a message.
	quoted := strconv.Quote(Clip(strings.ToValidUTF8(member.Name, "\uFFFD"), 200))
	name := s.archive + ":" + quoted[1:len(quoted)-1]
	if member.Flags&1 != 0 {
		return stream{}, &Error{File: name, Err: errors.New("it is encrypted"), Remedy: "unpack the archive first"}
	}
	s.begun.Store(s.read.Load())
	r, err := member.Open()
	if err != nil {
		return stream{}, damaged(name, 0, err)
	}
	s.closers = append(s.closers, r.Close)
	return s.decode(stream{Reader: r, name: name, compression: "zip"})
}

// isData reports whether a member of a zip is a list, not a folder, a note or a file of the operating system.
func isData(member *zip.File) bool {
	base := path.Base(member.Name)
	if !member.Mode().IsRegular() || strings.HasSuffix(member.Name, "/") || strings.HasPrefix(base, ".") ||
		strings.HasPrefix(member.Name, "__MACOSX/") {
		return false
	}
	lower := strings.ToLower(base)
	for _, note := range []string{"readme", "license", "licence", "copying", "changelog"} {
		if strings.HasPrefix(lower, note) {
			return false
		}
	}
	switch path.Ext(lower) {
	case ".md", ".pdf", ".html", ".htm", ".rtf":
		return false
	}
	return true
}

// readerAt is watch for the random access of zip.
type readerAt struct {
	ctx  context.Context
	file *os.File
	n    *atomic.Int64
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.file.ReadAt(p, off)
	r.n.Add(int64(n))
	return n, err
}

// isTable reports whether a file that begins with head is Parquet. The bytes after the magic cannot be text: a list
// may begin with PAR1S.EXAMPLE.
func isTable(head string) bool {
	return len(head) > 4 && head[:4] == "PAR1" && head[4] < ' ' && !isSpace(head[4])
}

// maxTable bounds a table that is copied for random access: a small archive may unpack to any size.
const maxTable = 64 << 30

// copyTable copies a table from a stream to a temporary file.
func (s *source) copyTable(in stream) (stream, error) {
	file, err := Scratch(s.dir)
	if err != nil {
		return stream{}, &Error{File: in.name, Err: err, Remedy: temporaryRemedy}
	}
	s.closers = append(s.closers, file.Close)
	in.size, err = io.Copy(scratchWriter{file}, io.LimitReader(in.Reader, maxTable+1))
	if e, ok := errors.AsType[*scratchError](err); ok {
		return stream{}, &Error{File: in.name, Err: e, Remedy: temporaryRemedy}
	}
	if err != nil {
		return stream{}, damaged(in.name, 0, err)
	}
	if in.size > maxTable {
		return stream{}, &Error{File: in.name, Err: fmt.Errorf("it has more than %d GiB", maxTable>>30),
			Remedy: "unpack it and name the file"}
	}
	in.Reader, in.table = nil, readerAt{s.ctx, file, new(atomic.Int64)}
	return in, nil
}

const temporaryRemedy = "make room for temporary files, or set TMPDIR to where there is"

// scratchWriter separates errors of writing from those of reading.
type scratchWriter struct{ file *os.File }

func (w scratchWriter) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil {
		err = &scratchError{plainPathError(err)}
	}
	return n, err
}

type scratchError struct{ err error }

func (e *scratchError) Error() string {
	return fmt.Sprintf("cannot copy it to a temporary file: %v", e.err)
}
func (e *scratchError) Unwrap() error { return e.err }

// problem is a kind of file that is no list, with a remedy.
type problem struct{ text, remedy string }

func (p *problem) Error() string { return p.text }

// magic returns the compression or encoding of the first bytes, "" for text, or why they are no list.
func magic(head []byte) (kind string, _ *problem) {
	if isTable(string(head[:min(len(head), 5)])) {
		return kindTable, nil
	}
	for _, m := range magics {
		if len(head) >= m.offset && bytes.HasPrefix(head[m.offset:], []byte(m.bytes)) {
			return m.kind, m.problem
		}
	}
	return "", nil
}

// kindTable is the kind of files that are not unpacked, but need random access.
const kindTable = "parquet"

const magicWARC = "WARC/"

// magics are tried in order.
var magics = []struct {
	offset  int
	bytes   string
	kind    string
	problem *problem
}{
	{0, "\x1f\x8b", "gzip", nil},
	{0, "\x28\xb5\x2f\xfd", "zstd", nil},
	{1, "\x2a\x4d\x18", "zstd", nil}, // a skippable frame comes first (RFC 8878 §3.1.2): the dictionary of a web archive
	{0, "\xfd7zXZ\x00", "xz", nil},
	{0, "BZh", "bzip2", nil},
	{0, "\xff\xfe\x00\x00", "", &problem{"it is UTF-32 text", "convert it to UTF-8"}},
	{0, "\x00\x00\xfe\xff", "", &problem{"it is UTF-32 text", "convert it to UTF-8"}},
	{0, "\xff\xfe", "utf-16le", nil},
	{0, "\xfe\xff", "utf-16be", nil},
	{0, "PK\x03\x04", "", &problem{"it is a zip archive inside another or in a pipe",
		"save it as a file, or unpack it first"}},
	{0, "PK\x05\x06", "", &problem{"it is an empty zip archive", ""}},
	{0, "PARE\x15", "", &problem{"it is an encrypted Parquet file", "decrypt it first"}},
	{0, magicWARC, "", &problem{"it is an archive (WARC) and no list", "bulkscan import judges its captures"}},
	{0, "SQLite format 3\x00", "", &problem{"it is an SQLite database", "export the column of hosts as CSV"}},
	{0, "\x04\x22\x4d\x18", "", &problem{"it is compressed by lz4", "unpack it, or compress it by zstd"}},
	{0, "7z\xbc\xaf\x27\x1c", "", &problem{"it is a 7z archive", "unpack it first"}},
	{0, "Rar!\x1a\x07", "", &problem{"it is a RAR archive", "unpack it first"}},
	{0, "%PDF-", "", &problem{"it is a PDF document", "save the list as plain lines"}},
	{257, "ustar", "", &problem{"it is a tar archive", "unpack it and name the files"}},
}

// rereadable reports whether a path is a regular file, which can be opened twice, and its size.
func rereadable(name string) (bool, int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return false, 0, &Error{File: name, Err: plainPathError(err)}
	}
	if info.IsDir() {
		return false, 0, &Error{File: name, Err: errors.New("it is a folder"), Remedy: "name the files in it"}
	}
	if !info.Mode().IsRegular() {
		return false, 0, nil
	}
	return true, info.Size(), nil
}

// plainPathError removes the operation and the path, which our message has already.
func plainPathError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Scratch makes a temporary file without a name, so that none is left over if the process dies. Systems that cannot
// unlink an open file keep it in the temporary folder.
func Scratch(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "bulkscan-list-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name())
	return file, nil
}

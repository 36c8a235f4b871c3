package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
)

// Reader reads the records of one file after the other. Next returns views of its memory, valid until the next call.
// The zero value is not usable. A Reader is not safe for concurrent use.
//
//	file ─► raw ─► gzip ─► text ─► head, block
//	          └─────────────┘ of a plain file
//
// The first bytes of a file decide whether its records are in gzip members. A member may hold several records, but a
// record lies in one member.
//
// Broken receives damage, which is then skipped. Reading continues at the next line that begins a record. In a packed
// file it continues at the next member that begins with a record. A server may have sent such bytes in a body, so only
// damage leads to this search: the reader skips the rest of a long record by its length.
//
// A length that is wrong leaves text behind its record that is no record, or too many or too few line ends. Next
// returns no such record.
//
// The checksum of a member follows its last record. Next returns that record once the checksum is right. It returns
// earlier ones unchecked, since a member may be larger than memory, and Broken receives their number.
type Reader struct {
	// MaxBlock is how many bytes of a block are kept.
	MaxBlock int
	// Broken, if not nil, receives each stretch of the file that is not read. Its error ends the reading.
	Broken func(Broken) error

	src     source
	raw     *bufio.Reader
	gzip    *gzip.Reader
	text    *bufio.Reader // of the current member; raw in a plain file
	inflate *bufio.Reader // text of members
	probe   bytes.Reader  // of a candidate for a member
	trial   *gzip.Reader  // of probe

	packed bool  // records are in gzip members
	inside bool  // text is within a member, at a record or at the end
	member int64 // offset of the member
	handed int   // records of the member that Next has returned

	head  []byte
	block []byte
	rec   Record
	err   error
}

// Broken is a stretch of a file that is not read.
type Broken struct {
	Offset int64 // of its first byte
	Bytes  int64 // of the file, at least; records may have been read from the rest
	Reason string

	// Records is how many records of the stretch Next returned before the damage was found. Any of them may be wrong.
	// They are those of a gzip member, whose checksum comes last.
	Records int
}

const (
	rawBuffer  = 256 << 10
	textBuffer = MaxHead
	maxBlank   = 256      // bytes of line ends between records; four are usual
	trialBytes = 4 << 10  // of a candidate for a member, within which its first record must begin
	maxCut     = 16       // times the length that is asked for
	keptBlock  = 64 << 10 // larger memory of a block is released, unless MaxBlock is smaller still
)

// NewReader returns a Reader that keeps up to maxBlock bytes of each block. Reset gives it a file.
func NewReader(maxBlock int) *Reader { return newReader(maxBlock, rawBuffer) }

func newReader(maxBlock, buffer int) *Reader {
	return &Reader{
		MaxBlock: maxBlock,
		raw:      bufio.NewReaderSize(nil, buffer),
		gzip:     new(gzip.Reader),
		inflate:  bufio.NewReaderSize(nil, textBuffer),
		trial:    new(gzip.Reader),
		err:      io.EOF,
	}
}

// Reset starts reading a file of the given size at an offset where a record or its gzip member begins. Next returns an
// error of the file again.
func (r *Reader) Reset(file io.ReaderAt, size, from int64) error {
	r.src, r.err = source{file: file, size: size}, nil
	r.seek(from)
	first, err := r.raw.Peek(len(gzipMagic))
	if r.src.err != nil {
		r.err = r.wrong(err)
		return r.err
	}
	r.packed = bytes.HasPrefix(first, gzipMagic[:2])
	if first, _ = r.raw.Peek(len(versionOne)); !r.packed && !bytes.Equal(first, versionOne) {
		// Damage or blank lines come before the first record. What begins first after them decides.
		member, err := r.findMember(from + 1)
		if err == nil {
			var line int64
			line, err = r.findRecord(from + 1)
			r.packed = member < line
		}
		if err != nil {
			r.err = err
			return err
		}
		r.seek(from)
	}
	r.text, r.inside = r.raw, !r.packed
	return nil
}

// Packed reports whether the file's records are in gzip members.
func (r *Reader) Packed() bool { return r.packed }

// Cut returns where a second Reader may begin, while a first one reads a packed file from an offset on: about so many
// bytes later, at what seems to be a member with a record, or at the file's end. A server may have sent such bytes. It
// is a member if the first Reader returns a record with that offset. Call Reset afterwards.
func (r *Reader) Cut(file io.ReaderAt, size, from, about int64) int64 {
	var first [3]byte
	if _, err := file.ReadAt(first[:], from); err != nil || !bytes.Equal(first[:], gzipMagic) {
		return size
	}
	r.src = source{file: file, size: min(size, from+maxCut*about)}
	at, err := r.findMember(from + about)
	if err != nil || at == r.src.size {
		return size
	}
	return at
}

// gzipMagic begins a member: the magic number, and deflate, the only method (RFC 1952 §2.3.1).
var gzipMagic = []byte("\x1f\x8b\x08")

// Next returns the next record, or io.EOF after the last. Other errors are those of the file or of Broken.
func (r *Reader) Next() (*Record, error) {
	for r.err == nil {
		rec, err := r.next()
		if rec != nil && err == nil {
			r.handed++
			return rec, nil
		}
		if err != nil {
			if damage, is := errors.AsType[*damage](err); is {
				err = r.recover(damage)
			}
			r.err = err
		}
	}
	return nil, r.err
}

// damage is what is wrong with a record or a member.
type damage struct{ reason string }

func (d *damage) Error() string { return d.reason }

// next reads one record, or opens the next member.
func (r *Reader) next() (*Record, error) {
	if !r.inside {
		return nil, r.open()
	}
	if !r.packed {
		r.member = r.offset()
	}
	if ended, err := r.skipBlank(); err != nil || ended {
		return nil, err
	}
	if !r.packed {
		r.member = r.offset()
	}
	r.rec = Record{Offset: r.member}
	if err := r.readHead(); err != nil {
		return nil, err
	}
	if wrong := r.rec.readHead(r.head); wrong != "" {
		return nil, &damage{wrong}
	}
	if err := r.readBlock(); err != nil {
		return nil, err
	}
	if err := r.readBehind(); err != nil {
		return nil, err
	}
	return &r.rec, nil
}

// readBehind checks what follows a record before Next returns the record: two line ends of one kind (WARC 1.1 §4), and
// then another record or the end of the file or member. Otherwise the length is wrong: it leaves a part of the block
// behind, or takes a part of the line ends for the block's. Both may be missing at the end of a file or member, and one
// at that of a plain file, which an editor may have saved. The checksum of a member is compared there.
func (r *Reader) readBehind() error {
	next, err := r.text.Peek(len("\r\n\r\n") + len(versionOne))
	n := 0
	for _, ends := range []string{"\r\n\r\n", "\n\n"} {
		if bytes.HasPrefix(next, []byte(ends)) {
			n = len(ends)
		}
	}
	rest := next[n:]
	if !r.packed && err == io.EOF && bytes.Equal(next, lineEnd(r.head)) {
		return nil
	}
	switch {
	case n > 0 && bytes.HasPrefix(rest, versionOne), len(rest) == 0 && err == io.EOF && r.src.err == nil:
		_, err := r.text.Discard(n)
		return r.wrong(err)
	case err != nil && (err != io.EOF || r.src.err != nil):
		return r.wrong(err)
	}
	return &damage{"what follows a record is no record: its length is wrong"}
}

// lineEnd returns what ends the lines of a head.
func lineEnd(head []byte) []byte {
	if bytes.HasSuffix(head, []byte("\r\n")) {
		return []byte("\r\n")
	}
	return []byte("\n")
}

// open begins the next member.
func (r *Reader) open() error {
	r.member, r.handed = r.offset(), 0
	if _, err := r.raw.Peek(1); err == io.EOF {
		return io.EOF
	} else if err != nil {
		return r.wrong(err)
	}
	if err := r.gzip.Reset(r.raw); err != nil {
		return r.wrong(err)
	}
	r.gzip.Multistream(false)
	r.inflate.Reset(r.gzip)
	r.text, r.inside = r.inflate, true
	return nil
}

// skipBlank skips the line ends between records. It reports whether the file or the member ends there.
func (r *Reader) skipBlank() (ended bool, err error) {
	for range maxBlank {
		next, err := r.text.Peek(1)
		switch {
		case err == io.EOF && r.src.err == nil && r.packed:
			r.inside = false
			return true, nil
		case err == io.EOF && r.src.err == nil:
			return true, io.EOF
		case err != nil:
			return true, r.wrong(err)
		case next[0] != '\r' && next[0] != '\n':
			return false, nil
		}
		if _, err := r.text.Discard(1); err != nil {
			return true, r.wrong(err)
		}
	}
	return true, &damage{"no record where one should begin"}
}

// readHead reads a record's head and removes it from text.
func (r *Reader) readHead() error {
	seen := 0
	for {
		head, err := r.text.Peek(max(r.text.Buffered(), seen+1))
		head = head[:min(len(head), MaxHead)]
		if end := headEnd(head, seen); end > 0 {
			r.head = append(r.head[:0], head[:end]...)
			_, err := r.text.Discard(end)
			return r.wrong(err)
		}
		switch seen = len(head); {
		case !bytes.HasPrefix(head, versionOne[:min(len(head), len(versionOne))]):
			return &damage{"no record where one should begin"}
		case seen == MaxHead:
			return &damage{"the head of a record is too long"}
		case err != nil:
			return r.wrong(err)
		}
	}
}

// headEnd returns the length of a head with its empty line, 0 if that is missing. The first seen bytes hold no empty
// line.
func headEnd(b []byte, seen int) int {
	for at := max(0, seen-3); ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i + 1
		switch rest := b[at:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return at + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return at + 2
		}
	}
}

// readBlock reads the kept part of a block and skips the rest.
func (r *Reader) readBlock() error {
	kept := int(min(r.rec.Length, int64(r.MaxBlock)))
	if cap(r.block) > keptBlock && kept <= keptBlock {
		r.block = nil
	}
	// The length may be false: memory grows with the bytes that arrive.
	r.block = r.block[:0]
	for len(r.block) < kept {
		r.block = slices.Grow(r.block, min(kept-len(r.block), keptBlock))
		n, err := io.ReadFull(r.text, r.block[len(r.block):min(cap(r.block), kept)])
		r.block = r.block[:len(r.block)+n]
		if err != nil {
			return r.wrong(err)
		}
	}
	r.rec.Block = r.block
	rest := r.rec.Length - int64(kept)
	if !r.packed {
		// A seek past the rest suffices in a plain file.
		if r.offset()+rest > r.src.size {
			return r.wrong(io.ErrUnexpectedEOF)
		}
		if rest > int64(r.text.Buffered()) {
			r.seek(r.offset() + rest)
			return nil
		}
	}
	if rest > MaxSkip {
		return &damage{"a record is too long"}
	}
	_, err := r.text.Discard(int(rest))
	return r.wrong(err)
}

// recover reports damage and moves to where reading can continue.
func (r *Reader) recover(d *damage) error {
	from := r.member
	to, err := r.findMember(from + 1)
	if !r.packed {
		to, err = r.findRecord(from + 1)
	}
	if err != nil {
		return err
	}
	if r.Broken != nil {
		broken := Broken{Offset: from, Bytes: to - from, Reason: d.reason}
		if r.packed { // no checksum covers several records of a plain file
			broken.Records = r.handed
		}
		if err := r.Broken(broken); err != nil {
			return err
		}
	}
	r.seek(to)
	r.text, r.inside = r.raw, !r.packed
	return nil
}

// findMember returns the first offset where a gzip member begins whose text begins with a record, or the file's end.
func (r *Reader) findMember(from int64) (int64, error) {
	return r.find(from, gzipMagic, func(b []byte) bool {
		r.probe.Reset(b)
		if len(b) < len(gzipMagic)+1 || b[3] > 0x1f || r.trial.Reset(&r.probe) != nil {
			// reserved flags are zero (RFC 1952 §2.3.1.2)
			return false
		}
		var begin [len("WARC/1.")]byte
		_, err := io.ReadFull(r.trial, begin[:])
		return err == nil && bytes.Equal(begin[:], versionOne)
	})
}

// findRecord is findMember in a plain file: a record begins a line.
func (r *Reader) findRecord(from int64) (int64, error) {
	at, err := r.find(from-1, []byte("\n"+string(versionOne)), func([]byte) bool { return true })
	return min(at+1, r.src.size), err
}

// find returns the first offset of a sign that, with what follows it, passes the test, or the file's end. The test
// receives up to trialBytes.
func (r *Reader) find(from int64, sign []byte, test func([]byte) bool) (int64, error) {
	r.seek(from)
	for {
		window, err := r.raw.Peek(r.raw.Size())
		if r.src.err != nil {
			return 0, r.wrong(err)
		}
		// A sign near the end of the window is tested in the next window, which has what follows it.
		last := err == io.EOF
		limit := len(window)
		if !last {
			limit -= trialBytes
		}
		at := 0
		for at < limit {
			i := bytes.Index(window[at:], sign)
			if i < 0 || at+i >= limit {
				break
			}
			at += i
			if test(window[at:min(len(window), at+trialBytes)]) {
				return r.offset() + int64(at), nil
			}
			at++
		}
		if last {
			return r.src.size, nil
		}
		if _, err := r.raw.Discard(limit); err != nil {
			return 0, r.wrong(err)
		}
	}
}

// offset returns the file's offset of the next byte of raw.
func (r *Reader) offset() int64 { return r.src.at - int64(r.raw.Buffered()) }

func (r *Reader) seek(to int64) {
	r.src.at = min(to, r.src.size)
	r.raw.Reset(&r.src)
}

// wrong separates errors of the file from damage of its content.
func (r *Reader) wrong(err error) error {
	switch {
	case err == nil:
		return nil
	case r.src.err != nil:
		return fmt.Errorf("cannot read the archive: %w", r.src.err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &damage{"the file, or a member of it, ends within a record"}
	case errors.Is(err, gzip.ErrChecksum):
		return &damage{"a gzip member is not what its checksum says"}
	}
	return &damage{"a gzip member is damaged"}
}

// source reads a file from an offset on. It keeps errors of the file, so that they are not taken for damage.
type source struct {
	file     io.ReaderAt
	at, size int64
	err      error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.at >= s.size {
		return 0, io.EOF
	}
	n, err := s.file.ReadAt(p[:min(int64(len(p)), s.size-s.at)], s.at)
	s.at += int64(n)
	switch {
	case n > 0, err == nil:
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // the file was longer
	}
	s.err = err
	return 0, err
}

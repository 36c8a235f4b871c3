package inputs

import (
	"bytes"
	"io"
	"math"
)

// headBytes is how much of a stream the detection reads.
const headBytes = 64 << 10

// lineReader splits a stream into lines of bounded size, or records of CSV, in one buffer of fixed size.
//
//	buf: |  given out  |  to be searched                |  free  |
//	     0             r         scanned (no eol before)  w      len(buf)
//
// Invariant: 0 <= r <= scanned <= w <= len(buf), and buf[r:scanned] holds no eol, but of records those within quotes.
type lineReader struct {
	src           io.Reader
	buf           []byte
	r, scanned, w int
	filled        int64 // bytes that src has given
	// Of a compressed stream: how many bytes of the file stand for how many of the text. When the file is read on, all that was
	// read of it before has been given as text.
	position     func() int64 // bytes of the file that were read
	packed, text int64
	least        int64 // of text, from which on that is known
	err          error // of src, once it has ended
	eol          byte
	longest      int    // of a line, in bytes
	quoted       bool   // an eol behind an odd number of quotes ends no record (RFC 4180 §2)
	within       bool   // the number of quotes in buf[r:scanned] is odd
	wraps        uint64 // how many ends of lines are within the record that was returned last
}

// ahead bounds what a compression decodes before it gives it, in bytes of text.
var ahead = map[string]int64{"": 0, "gzip": 32 << 10, "zip": 32 << 10, "zstd": 128 << 10}

// known says from which multiple of that on the length of a list is estimated, within 2 %.
const known = 50

func (l *lineReader) reset(src io.Reader, compression string, position func() int64, longest int) {
	if l.buf == nil {
		l.buf = make([]byte, 2*longest)
	}
	*l = lineReader{src: src, buf: l.buf, eol: '\n', position: position, least: math.MaxInt64, longest: longest}
	if bytes, ok := ahead[compression]; ok {
		l.least = known * bytes
	}
}

// taken returns how many bytes of the stream are in lines that were returned.
func (l *lineReader) taken() int64 { return l.filled - int64(l.w-l.r) }

// peek returns the first bytes of the stream, and exactly headBytes if there are as many, so that the layout does not
// depend on how reads split them. Bytes before an error of reading hide it; next returns it.
func (l *lineReader) peek() ([]byte, error) {
	for l.w-l.r < headBytes && l.err == nil {
		l.fill()
	}
	if l.w == l.r && l.err != io.EOF {
		return nil, l.err
	}
	return l.buf[l.r:min(l.w, l.r+headBytes)], nil
}

// ended reports whether peek has returned the whole stream.
func (l *lineReader) ended() bool { return l.err != nil && l.w-l.r <= headBytes }

// begin skips the byte order mark and sets the end of lines.
func (l *lineReader) begin(bom int, eol byte) {
	l.r += bom
	l.scanned = l.r
	l.eol = eol
}

// fill makes room and reads once.
func (l *lineReader) fill() {
	if l.r > 0 {
		copy(l.buf, l.buf[l.r:l.w])
		l.w -= l.r
		l.scanned -= l.r
		l.r = 0
	}
	for range 100 {
		before := l.position()
		n, err := l.src.Read(l.buf[l.w:])
		if l.position() != before && l.filled > l.least {
			l.packed, l.text = before, l.filled
		}
		l.w += n
		l.filled += int64(n)
		if err != nil {
			l.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	l.err = io.ErrNoProgress
}

// next returns the next line without its end, valid until the next call. Of a line that is too long it returns the
// beginning, and long; of a record whose quotes are not closed within the bound, its first line. Text before an error is dropped unless a line end follows it: half a line may be another site's
// name.
func (l *lineReader) next() (line []byte, long bool, err error) {
	l.wraps = 0
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.w], l.eol); i >= 0 {
			end := l.scanned + i
			l.scan(end)
			if l.within && end-l.r <= l.longest {
				l.scanned++
				l.wraps++
				continue
			}
			if l.within {
				return l.firstLine(), true, nil
			}
			line = l.buf[l.r:end]
			l.r = end + 1
			l.scanned = l.r
			return l.trim(line)
		}
		l.scan(l.w)
		ended := l.err == io.EOF && l.w > l.r
		if l.within && l.wraps > 0 && (ended || l.w-l.r > l.longest+1) {
			return l.firstLine(), true, nil
		}
		switch {
		case l.w-l.r > l.longest+1:
			head := bytes.Clone(l.buf[l.r : l.r+MaxText])
			l.within = false
			return head, true, l.discard()
		case ended:
			line = l.buf[l.r:l.w]
			l.r = l.w
			if l.within {
				l.within = false
				return line, true, nil
			}
			return l.trim(line)
		case l.err != nil:
			return nil, false, l.err
		}
		l.fill()
	}
}

// firstLine gives up a record whose quotes are not closed, but for its first line.
func (l *lineReader) firstLine() []byte {
	end := l.r + bytes.IndexByte(l.buf[l.r:l.w], l.eol)
	line := l.buf[l.r:end]
	l.r, l.scanned, l.within, l.wraps = end+1, end+1, false, 0
	return line
}

// scan goes on to an index of buf.
func (l *lineReader) scan(to int) {
	if l.quoted && bytes.Count(l.buf[l.scanned:to], []byte{'"'})%2 == 1 {
		l.within = !l.within
	}
	l.scanned = to
}

func (l *lineReader) trim(line []byte) ([]byte, bool, error) {
	if n := len(line); l.eol == '\n' && n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > l.longest {
		return line[:MaxText], true, nil
	}
	return line, false, nil
}

// discard drops the rest of a line. The next call returns an error of reading.
func (l *lineReader) discard() error {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.w], l.eol); i >= 0 {
			l.r = l.scanned + i + 1
			l.scanned = l.r
			return nil
		}
		l.r, l.scanned = l.w, l.w
		if l.err != nil {
			return nil
		}
		l.fill()
	}
}

package inputs

import (
	"bytes"
	"io"
)

// headBytes is how much of a stream the detection looks at.
const headBytes = 64 << 10

// lineReader cuts a stream into lines of at most MaxLine bytes, in one buffer of fixed size.
//
//	buf: |  given out  |  to be searched                |  free  |
//	     0             r         scanned (no eol before)  w      len(buf)
//
// Invariant: 0 <= r <= scanned <= w <= len(buf), and buf[r:scanned] holds no eol.
type lineReader struct {
	src           io.Reader
	buf           []byte
	r, scanned, w int
	err           error // of src, once it has ended
	eol           byte
}

func (l *lineReader) reset(src io.Reader) {
	if l.buf == nil {
		l.buf = make([]byte, 2*MaxLine)
	}
	*l = lineReader{src: src, buf: l.buf, eol: '\n'}
}

// peek returns the first bytes of the stream, headBytes where it has so many, and never more, however they come: a layout
// must not depend on that. An error is one of reading; bytes before it hide it until next comes there.
func (l *lineReader) peek() ([]byte, error) {
	for l.w-l.r < headBytes && l.err == nil {
		l.fill()
	}
	if l.w == l.r && l.err != io.EOF {
		return nil, l.err
	}
	return l.buf[l.r:min(l.w, l.r+headBytes)], nil
}

// ended reports whether peek has seen all of the stream.
func (l *lineReader) ended() bool { return l.err != nil && l.w-l.r <= headBytes }

// begin skips the byte order mark and sets what ends a line.
func (l *lineReader) begin(bom int, eol byte) {
	l.r += bom
	l.scanned = l.r
	l.eol = eol
}

// fill reads once, after making room.
func (l *lineReader) fill() {
	if l.r > 0 {
		copy(l.buf, l.buf[l.r:l.w])
		l.w -= l.r
		l.scanned -= l.r
		l.r = 0
	}
	for range 100 {
		n, err := l.src.Read(l.buf[l.w:])
		l.w += n
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
// beginning, and long. What stands before an error without a line end is not returned: half a line may be another
// site's name.
func (l *lineReader) next() (line []byte, long bool, err error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.w], l.eol); i >= 0 {
			line = l.buf[l.r : l.scanned+i]
			l.r = l.scanned + i + 1
			l.scanned = l.r
			return l.trim(line)
		}
		l.scanned = l.w
		switch {
		case l.w-l.r > MaxLine+1:
			head := bytes.Clone(l.buf[l.r : l.r+MaxText])
			return head, true, l.discard()
		case l.err == io.EOF && l.w > l.r:
			line = l.buf[l.r:l.w]
			l.r = l.w
			return l.trim(line)
		case l.err != nil:
			return nil, false, l.err
		}
		l.fill()
	}
}

func (l *lineReader) trim(line []byte) ([]byte, bool, error) {
	if n := len(line); l.eol == '\n' && n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > MaxLine {
		return line[:MaxText], true, nil
	}
	return line, false, nil
}

// discard drops the rest of a line. An error of reading is left for the next call.
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

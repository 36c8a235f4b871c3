package inputs

import (
	"bytes"
	"io"
	"math"
)

// headBytes is how much of a stream the detection reads.
const headBytes = 64 << 10

// lineReader splits a stream into lines of at most MaxLine bytes, in one buffer of fixed size.
//
//	buf: |  given out  |  to be searched                |  free  |
//	     0             r         scanned (no eol before)  w      len(buf)
//
// Invariant: 0 <= r <= scanned <= w <= len(buf), and buf[r:scanned] holds no eol.
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
}

// ahead bounds what a compression decodes before it gives it, in bytes of text.
var ahead = map[string]int64{"": 0, "gzip": 32 << 10, "zip": 32 << 10, "zstd": 128 << 10}

// known says from which multiple of that on the length of a list is estimated, within 2 %.
const known = 50

func (l *lineReader) reset(src io.Reader, compression string, position func() int64) {
	if l.buf == nil {
		l.buf = make([]byte, 2*MaxLine)
	}
	*l = lineReader{src: src, buf: l.buf, eol: '\n', position: position, least: math.MaxInt64}
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
// beginning, and long. Text before an error is dropped unless a line end follows it: half a line may be another site's
// name.
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

package inputs

import (
	"bufio"
	"bytes"
	"io"
	"math"
)

// headBytes is how much of a stream the detection reads.
const headBytes = 64 << 10

// lineReader splits a stream into lines of at most MaxLine bytes.
type lineReader struct {
	counted
	in    *bufio.Reader // of counted
	whole bool          // peek has returned the whole stream
	eol   byte
}

// counted counts the bytes read from a stream. After the first error it reads no more.
type counted struct {
	src    io.Reader
	filled int64 // bytes of text
	err    error
	// For a compressed stream: packed bytes of the file stand for text bytes of text. Both are noted when the file is
	// read further: all bytes read before have then been returned as text.
	position     func() int64 // bytes of the file that were read
	packed, text int64
	least        int64 // bytes of text from which on that is known
}

// ahead bounds the text that a compression decodes before it returns it, in bytes.
var ahead = map[string]int64{"": 0, "gzip": 32 << 10, "zip": 32 << 10, "zstd": 128 << 10}

// known is the multiple of ahead from which the length of a list is estimated, within 2 %.
const known = 50

// Read is io.Reader's.
func (c *counted) Read(p []byte) (n int, err error) {
	if c.err != nil {
		return 0, c.err
	}
	before := c.position()
	n, c.err = c.src.Read(p)
	if c.position() != before && c.filled > c.least {
		c.packed, c.text = before, c.filled
	}
	c.filled += int64(n)
	return n, c.err
}

func (l *lineReader) reset(src io.Reader, compression string, position func() int64) {
	if l.in == nil {
		l.in = bufio.NewReaderSize(nil, 2*MaxLine)
	}
	l.counted = counted{src: src, position: position, least: math.MaxInt64}
	if bytes, ok := ahead[compression]; ok {
		l.least = known * bytes
	}
	l.in.Reset(&l.counted)
}

// taken returns how many bytes of the stream are in lines that were returned.
func (l *lineReader) taken() int64 { return l.filled - int64(l.in.Buffered()) }

// peek returns the first bytes of the stream, and exactly headBytes if there are as many, so that the layout does not
// depend on how reads split them. If bytes precede an error of reading, only next returns the error.
func (l *lineReader) peek() ([]byte, error) {
	head, err := l.in.Peek(headBytes)
	if l.whole = err != nil; err == io.EOF || len(head) > 0 {
		err = nil
	}
	return head, err
}

// begin skips the byte order mark and sets the end of lines.
func (l *lineReader) begin(bom int, eol byte) {
	_, _ = l.in.Discard(bom) // which is buffered
	l.eol = eol
}

// next returns the next line without its end, valid until the next call. If the line is too long, it returns the
// beginning, and long is true. Text before an error is dropped unless a line end follows it: half a line may be another
// site's name.
func (l *lineReader) next() (line []byte, long bool, err error) {
	line, err = l.in.ReadSlice(l.eol)
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line[:MaxText])
		for err == bufio.ErrBufferFull {
			_, err = l.in.ReadSlice(l.eol)
		}
		return line, true, nil // the next call returns an error of reading
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, false, err
	}
	line = bytes.TrimSuffix(line, []byte{l.eol})
	if l.eol == '\n' {
		line = bytes.TrimSuffix(line, []byte{'\r'})
	}
	if len(line) > MaxLine {
		return line[:MaxText], true, nil
	}
	return line, false, nil
}

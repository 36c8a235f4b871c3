package bodies

import (
	"bytes"
	"errors"
	"io"
)

// records splits a stream of text into records of at most MaxRow bytes.
//
//	buf: |  given out  |  to be read      |  free  |
//	     0             r                  w      len(buf)
type records struct {
	src   io.Reader
	buf   []byte
	r, w  int
	err   error  // of src, once it has ended
	lines uint64 // given out
}

func newRecords(src io.Reader) *records { return &records{src: src, buf: make([]byte, 256<<10)} }

// more reads on. It reports false at the end of the stream, and where MaxRow bytes wait to be read.
func (s *records) more() bool {
	if s.err != nil || s.w-s.r >= MaxRow {
		return false
	}
	switch {
	case s.r > 0 && s.w-s.r <= len(s.buf)/2:
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	case s.w == len(s.buf):
		grown := make([]byte, 2*len(s.buf))
		s.w = copy(grown, s.buf[s.r:s.w])
		s.buf, s.r = grown, 0
	}
	for range 100 {
		n, err := s.src.Read(s.buf[s.w:])
		s.w += n
		if s.err = err; n > 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// first returns the first byte that is no white space, without a byte order mark; 0 of a stream without one.
func (s *records) first() (byte, error) {
	for s.w < 3 && s.more() {
	}
	s.r += len(s.buf[s.r:s.w]) - len(bytes.TrimPrefix(s.buf[s.r:s.w], []byte("\xef\xbb\xbf")))
	for {
		if text := bytes.TrimLeft(s.buf[s.r:s.w], " \t\r\n"); len(text) > 0 {
			return text[0], nil
		}
		if !s.more() {
			return 0, s.ended()
		}
	}
}

// ended returns the error of a stream that gives no more; nil at its end.
func (s *records) ended() error {
	if s.err == nil || errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// line returns the next line with its end, valid until the next call. Of a line that is too long it returns the beginning, and
// long. A line that an error breaks off is none.
func (s *records) line() (line []byte, long bool, err error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(s.buf[s.r+seen:s.w], '\n'); i >= 0 {
			return s.take(seen + i + 1), false, nil
		}
		seen = s.w - s.r
		if s.more() {
			continue
		}
		switch err := s.ended(); {
		case err != nil:
			return nil, false, err
		case s.err == nil:
			line = bytes.Clone(s.buf[s.r : s.r+1<<10])
			s.skipLine()
			return line, true, nil
		case seen > 0:
			return s.take(seen), false, nil
		}
		return nil, false, io.EOF
	}
}

func (s *records) take(n int) []byte {
	line := s.buf[s.r : s.r+n]
	s.r += n
	s.lines += uint64(bytes.Count(line, []byte{'\n'}))
	return line
}

// skipLine drops the rest of a line.
func (s *records) skipLine() {
	for {
		if i := bytes.IndexByte(s.buf[s.r:s.w], '\n'); i >= 0 {
			s.r += i + 1
			s.lines++
			return
		}
		if s.r = s.w; !s.more() {
			return
		}
	}
}

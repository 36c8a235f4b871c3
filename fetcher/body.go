package fetcher

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file reads bodies. framing finds the end of the transferred body (RFC 9112 §6), memory lends the bytes that hold
// it, and collect stops at the size limit without an error.

// maxExtensions bounds the chunk extensions and padding of one body in all, in bytes. RFC 9112 §7.1.1 asks for such a
// bound.
const maxExtensions = 64 << 10

// framing is the transferred body as an io.Reader. Read returns io.EOF only at the body's proper end.
type framing struct {
	br         *bufio.Reader
	kind       framingKind
	left       int64 // bytes to the end of the body, or of the chunk
	begun      bool  // a chunk came before; a line end follows its data
	done       bool
	extensions int // bytes spent on chunk extensions
}

type framingKind uint8

const (
	byLength framingKind = iota
	byChunks
	byClose
)

// frame returns the framing that a parsed head announces. contentLength is fasthttp's: inChunks, untilClose or a
// length.
func frame(br *bufio.Reader, contentLength int) framing {
	switch {
	case contentLength >= 0:
		return framing{br: br, kind: byLength, left: int64(contentLength)}
	case contentLength == inChunks:
		return framing{br: br, kind: byChunks}
	}
	return framing{br: br, kind: byClose}
}

// Read implements io.Reader.
func (f *framing) Read(p []byte) (int, error) {
	if f.done || len(p) == 0 {
		return 0, f.end()
	}
	if f.kind == byClose {
		// Many servers end TLS without a close_notify. Between two records this counts as the body's end, because a cut
		// there cannot be detected. Within a record crypto/tls returns io.ErrUnexpectedEOF: bytes are missing.
		n, err := f.br.Read(p)
		f.done = errors.Is(err, io.EOF)
		return n, err
	}
	if f.left == 0 {
		if f.kind == byChunks {
			if err := f.nextChunk(); err != nil {
				return 0, err
			}
		} else {
			f.done = true
		}
		if f.done {
			return 0, io.EOF
		}
	}
	n, err := f.br.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	if n > 0 {
		// crypto/tls returns an error together with the bytes before it. These may complete the body, and then the
		// error does not matter. If they do not, the next Read gets the same error again.
		err = nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (f *framing) end() error {
	if f.done {
		return io.EOF
	}
	return nil
}

// nextChunk reads the size line of a chunk. At the last chunk it sets done, without waiting for trailers.
func (f *framing) nextChunk() error {
	if f.begun {
		c, err := f.byte()
		if err == nil && c == '\r' {
			c, err = f.byte()
		}
		if err != nil {
			return err
		}
		if c != '\n' {
			return protocolError(exchange.CauseBadChunk)
		}
	}
	f.begun = true
	var size int64
	digits, state := 0, inSize
	for {
		c, err := f.byte()
		if err != nil {
			return err
		}
		switch value, hex := hexValue(c); {
		case c == '\n' && digits > 0:
			f.left = size
			f.done = size == 0
			return nil
		case state == inExtension:
			if f.extensions++; f.extensions > maxExtensions {
				return protocolError(exchange.CauseBadChunk)
			}
		case state == inSize && hex:
			// More than sixteen digits are leading zeros, which no honest server sends.
			if digits++; digits > 16 || size >= 1<<59 {
				return protocolError(exchange.CauseBadChunk)
			}
			size = size<<4 | int64(value)
		case digits > 0 && c == ';':
			state = inExtension
		case digits > 0 && (c == ' ' || c == '\t' || c == '\r'):
			// Some servers pad sizes with spaces.
			state = afterSize
			if f.extensions++; f.extensions > maxExtensions {
				return protocolError(exchange.CauseBadChunk)
			}
		default:
			return protocolError(exchange.CauseBadChunk)
		}
	}
}

const (
	inSize = iota
	afterSize
	inExtension
)

func (f *framing) byte() (byte, error) {
	c, err := f.br.ReadByte()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return c, err
}

func hexValue(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// The sizes of body memory. The median file has 330 bytes and the ninth decile 10 KB.
const (
	smallBody  = 4 << 10
	middleBody = 16 << 10
	largeBody  = 64 << 10
)

// memory lends the bytes that hold bodies. A body gets the next larger size when its bytes fill the current one: an
// announced length alone takes no memory. memory implements exchange.Recycler; a body is recycled once.
//
//	first byte ─► small, middle: pools ─► large ─► whole: stores within the budget
//
// An exchange holds one size at a time. It may wait for a larger size while it holds a smaller one, never the reverse.
// An exchange that holds whole or a decoder waits for no memory. So exchanges cannot deadlock.
type memory struct {
	small, middle sync.Pool
	large, whole  *store
}

// newMemory returns memory for bodies of at most limit bytes. A quarter of the budget is reserved for bodies up to
// largeBody, which are frequent. Otherwise a few of the largest bodies could delay all others.
func newMemory(budget int64, limit int) *memory {
	m := &memory{}
	m.small.New = func() any { return new([smallBody]byte) }
	m.middle.New = func() any { return new([middleBody]byte) }
	switch {
	case limit <= middleBody: // the pools suffice
		m.large = newStore(0, limit)
		m.whole = m.large
	case limit <= largeBody:
		m.large = newStore(budget, limit)
		m.whole = m.large
	default:
		m.large = newStore(budget/4, largeBody)
		m.whole = newStore(budget-budget/4, limit)
	}
	return m
}

// take returns an empty slice with a capacity of at least n bytes; n is at most the limit. If the budget is used up, it
// waits until the deadline.
func (m *memory) take(ctx context.Context, n int, deadline time.Time) ([]byte, error) {
	if b := m.tryTake(n); b != nil {
		return b, nil
	}
	return await(ctx, m.store(n).free, deadline)
}

// tryTake is take without waiting. It returns nil if the budget is used up.
func (m *memory) tryTake(n int) []byte {
	switch {
	case n <= smallBody:
		return m.small.Get().(*[smallBody]byte)[:0]
	case n <= middleBody:
		return m.middle.Get().(*[middleBody]byte)[:0]
	}
	return m.store(n).tryTake()
}

// store returns the store that lends n bytes.
func (m *memory) store(n int) *store {
	if n <= m.large.size {
		return m.large
	}
	return m.whole
}

// Recycle implements exchange.Recycler.
func (m *memory) Recycle(b []byte) {
	switch cap(b) {
	case 0:
	case smallBody:
		m.small.Put((*[smallBody]byte)(b[:smallBody]))
	case middleBody:
		m.middle.Put((*[middleBody]byte)(b[:middleBody]))
	default:
		select {
		case m.store(cap(b)).free <- b[:0]:
		default:
			panic("fetcher: a body was recycled twice")
		}
	}
}

// store lends a bounded number of slices of one size. It lends returned slices again, so none becomes garbage: the
// memory of a store never exceeds its budget, whenever the collector runs.
type store struct {
	size int
	free chan []byte  // the free list; its capacity is the greatest number of slices
	made atomic.Int64 // slices allocated; exceeds the capacity for a moment in tryTake
}

func newStore(budget int64, size int) *store {
	return &store{size: size, free: make(chan []byte, budget/int64(size))}
}

// tryTake returns an empty slice of the store's size, or nil if all are lent.
func (s *store) tryTake() []byte {
	select {
	case b := <-s.free:
		return b
	default:
	}
	if s.made.Add(1) > int64(cap(s.free)) {
		s.made.Add(-1)
		return nil
	}
	return make([]byte, 0, s.size)
}

// await returns the next value from a free list, or an error once the deadline has passed.
func await[T any](ctx context.Context, free <-chan T, deadline time.Time) (t T, err error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case t = <-free:
		return t, nil
	case <-timer.C:
		return t, protocolError(exchange.CauseNoLocalResource)
	case <-ctx.Done():
		return t, ctx.Err()
	}
}

// collect reads src to its end or to limit bytes, whichever comes first. cut reports whether src has more. The caller
// must recycle body, also after an error.
func (m *memory) collect(ctx context.Context, src io.Reader, limit int, deadline time.Time) (body []byte, cut bool,
	err error) {
	body = []byte{} // an empty body is a body
	for {
		if len(body) < min(cap(body), limit) {
			n, err := readSome(src, body[len(body):min(cap(body), limit)])
			body = body[:len(body)+n]
			if errors.Is(err, io.EOF) {
				return body, false, nil
			}
			if err != nil {
				return body, false, err
			}
			continue
		}
		// The body's memory is full, or not yet allocated. If another byte comes, the body needs the next size; at the
		// limit it is cut.
		var probe [1]byte
		n, err := readSome(src, probe[:])
		switch {
		case n == 0 && errors.Is(err, io.EOF):
			return body, false, nil
		case len(body) == limit:
			// After the limit comes a byte or an error. Either way the body has not ended: it is cut.
			return body, true, nil
		case n == 0:
			return body, false, err
		}
		larger, err := m.take(ctx, len(body)+1, deadline)
		if err != nil {
			return body, false, err
		}
		larger = append(append(larger, body...), probe[0])
		m.Recycle(body)
		body = larger
	}
}

// readSome is src.Read, but bounds how often a reader may return neither bytes nor an error.
func readSome(src io.Reader, p []byte) (int, error) {
	for range 100 {
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// WholeLines drops the unfinished last line of a cut body: half of `Disallow: /private` may be `Disallow: /`. The
// result is a view of body.
func WholeLines(body []byte) []byte {
	return body[:bytes.LastIndexAny(body, "\r\n")+1]
}

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

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// This file reads bodies: framing tells where the transferred body ends (RFC 9112 §6), memory lends the bytes it is
// collected in, and collect stops at the bound, which is no error.

// maxExtensions bounds what a chunked body may spend on chunk extensions and on line ends, in bytes of the whole body
// beyond its chunk sizes. RFC 9112 §7.1.1 asks for such a bound.
const maxExtensions = 64 << 10

// framing is the transferred body as an io.Reader. Its Read returns io.EOF exactly at the body's proper end.
type framing struct {
	br         *bufio.Reader
	kind       framingKind
	left       int64 // bytes to the end of the body, or of the chunk
	begun      bool  // a chunk came before, whose data is followed by a line end
	done       bool
	extensions int // bytes spent on chunk extensions
}

type framingKind uint8

const (
	byLength framingKind = iota
	byChunks
	byClose
)

// frame returns the framing that a parsed head announces. contentLength is fasthttp's: -1 is chunked, -2 neither.
func frame(br *bufio.Reader, contentLength int) framing {
	switch {
	case contentLength >= 0:
		return framing{br: br, kind: byLength, left: int64(contentLength)}
	case contentLength == -1:
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
		// TLS may end without a close_notify, and very many servers end so: between two records that is the end, as there
		// is no way to tell a cut. Within one it is io.ErrUnexpectedEOF, and something is missing.
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
		// crypto/tls tells the end, or an alert, along with the bytes before it. Whether these are the body's last, so
		// that what comes behind them does not matter, the next Read says; the connection repeats its error.
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

// nextChunk reads the line before a chunk, and marks the end at the last chunk. Trailers are not waited for: nobody
// reads them.
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
			// Leading zeros beyond sixteen digits are nothing an honest server sends.
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

// memory lends the bytes of bodies, a size larger whenever what has arrived fills the last: a server's word for how much
// will come takes nothing, and its silence holds nothing. It implements exchange.Recycler; a body is recycled once.
//
//	first byte ─► small, middle: pools ─► large ─► whole: stores within the budget
//
// An exchange has one size at a time. It may wait for a larger one while it holds what it has, but never for a smaller
// one, so that no two can wait for each other: who holds whole waits for nobody. (Nor for a decoder's holder, who waits
// for nobody either.)
type memory struct {
	small, middle sync.Pool
	large, whole  *store
}

// newMemory returns memory for bodies of at most limit bytes. A quarter of the budget is for the size below the limit:
// bodies that large are many, and else a few of the largest could keep all of them waiting.
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

// take returns an empty slice with a capacity of at least n bytes, which are no more than the limit. For the larger
// sizes it waits until the deadline.
func (m *memory) take(ctx context.Context, n int, deadline time.Time) ([]byte, error) {
	if b := m.tryTake(n); b != nil {
		return b, nil
	}
	return await(ctx, m.store(n).free, deadline)
}

// tryTake is take without waiting: nil where the budget does not suffice.
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
			panic("fetcher: a body was given back twice")
		}
	}
}

// store lends slices of one size, so many and no more. What comes back is what is lent next: it never becomes garbage, so
// that no more memory than that is ever behind a store, whenever the collector runs.
type store struct {
	size int
	free chan []byte  // what came back; its capacity is how many there may be
	made atomic.Int64 // never more, but for a moment
}

func newStore(budget int64, size int) *store {
	return &store{size: size, free: make(chan []byte, budget/int64(size))}
}

// tryTake returns an empty slice of the store's size, or nil where all there may be are lent.
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

// await returns what comes out of a channel of things that are lent, or an error once the deadline has passed.
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

// collect reads src to its end or to limit bytes, whichever comes first, and reports whether more would have come. The
// bytes must be recycled, also where an error came after them.
func (m *memory) collect(ctx context.Context, src io.Reader, limit int, deadline time.Time) (body []byte, cut bool, err error) {
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
		// Full, or not begun. One byte more tells whether it is time for larger memory, or at the bound whether the body
		// was cut.
		var probe [1]byte
		n, err := readSome(src, probe[:])
		switch {
		case n == 0 && errors.Is(err, io.EOF):
			return body, false, nil
		case len(body) == limit:
			// Where that byte fails to come there is something behind the bound, if only a bad end: a cut.
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

// readSome is src.Read, but bounds how often a reader may return nothing at all.
func readSome(src io.Reader, p []byte) (int, error) {
	for range 100 {
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// WholeLines drops the unfinished last line of a body that was cut: half of `Disallow: /private` may be `Disallow: /`.
// The result is a part of body.
func WholeLines(body []byte) []byte {
	return body[:bytes.LastIndexAny(body, "\r\n")+1]
}

package fetcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Bodies are decoded in memory, after they were received. So a slow server never holds a decoder of many megabytes, and
// one decoder per processor serves all exchanges.

// Bounds of decoding.
const (
	maxCodings = 2       // on one body
	maxWindow  = 8 << 20 // bytes; RFC 9659 for zstd in HTTP. Brotli's is 16 MiB by its format
	maxScratch = 1 << 20 // bytes of a decoder's buffer that are kept for the next body
)

// coding is a Content-Encoding.
type coding uint8

const (
	gzipCoding coding = iota + 1
	deflateCoding
	brotliCoding
	zstdCoding
)

// noCodings are values that servers send in Content-Encoding though they are no codings: character sets, media types,
// and the framing of uploads to object stores. They are ignored if the body is text.
var noCodings = [...]string{
	"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "7bit", "8bit", "binary", "text", "text/plain", "plain",
	"aws-chunked", "chunked",
}

// contentCodings appends the codings of a head's Content-Encoding. Several field lines form one list (RFC 9110 §5.3);
// fasthttp returns only the last line. doubtful reports whether one of noCodings is in the list: the decoded body must
// then be text.
func contentCodings(dst []coding, head []byte) (_ []coding, doubtful bool, err error) {
	const field = "content-encoding"
	for line := range bytes.Lines(head) {
		if len(line) <= len(field) || line[0]|0x20 != field[0] || !bytes.EqualFold(line[:len(field)], []byte(field)) {
			continue
		}
		if name, value, ok := bytes.Cut(line, []byte{':'}); ok && len(bytes.TrimRight(name, " \t")) == len(field) {
			no := false
			if dst, no, err = parseCodings(dst, value); err != nil {
				return dst, false, err
			}
			doubtful = doubtful || no
		}
	}
	return dst, doubtful, nil
}

// parseCodings appends the codings in a Content-Encoding, in the order in which they were applied (RFC 9110 §8.4).
func parseCodings(dst []coding, value []byte) (_ []coding, doubtful bool, err error) {
	for len(value) > 0 {
		var name []byte
		name, value, _ = bytes.Cut(value, []byte{','})
		name = bytes.TrimSpace(name)
		is := func(s string) bool { return bytes.EqualFold(name, []byte(s)) }
		var c coding
		switch {
		case len(name) == 0, is("identity"), is("none"): // "none" is not registered, but some servers send it
			continue
		case is("gzip"), is("x-gzip"):
			c = gzipCoding
		case is("deflate"):
			c = deflateCoding
		case is("br"):
			c = brotliCoding
		case is("zstd"):
			c = zstdCoding
		case slices.ContainsFunc(noCodings[:], is):
			doubtful = true
			continue
		default:
			return dst, false, protocolError(exchange.CauseUnknownCoding)
		}
		if len(dst) == maxCodings {
			return dst, false, protocolError(exchange.CauseNestedCoding)
		}
		dst = append(dst, c)
	}
	return dst, doubtful, nil
}

// begins reports whether a body with this beginning may be in the coding. gzip and zstd begin with a magic number.
// Brotli and deflate have none, but do not look like text.
func (c coding) begins(body []byte) bool {
	marked := func(mark string) bool { // the body may end within the mark
		n := min(len(body), len(mark))
		return string(body[:n]) == mark[:n]
	}
	switch c {
	case gzipCoding:
		return marked("\x1f\x8b")
	case zstdCoding: // a frame or a skippable frame (RFC 8878 §3.1)
		return marked("\x28\xb5\x2f\xfd") || len(body) >= 4 && body[0]&0xf0 == 0x50 &&
			bytes.Equal(body[1:4], []byte("\x2a\x4d\x18"))
	}
	// Fewer than three bytes cannot hold a record, but can be an empty body's coding: ";" in Brotli.
	return len(body) < 3 || !text(body)
}

// text reports whether a body, or the beginning of one, is UTF-8 without control characters.
func text(body []byte) bool {
	for len(body) > 0 {
		r, size := utf8.DecodeRune(body)
		switch {
		case r == utf8.RuneError && size == 1:
			return !utf8.FullRune(body) // the beginning may end within a rune
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f', r == 0x7f:
			return false
		}
		body = body[size:]
	}
	return true
}

// decoder decodes one body at a time. It keeps its memory for the next body.
type decoder struct {
	src    bytes.Reader
	gzip   *gzip.Reader
	zlib   io.ReadCloser
	flate  io.ReadCloser
	brotli *brotli.Reader
	zstd   *zstd.Decoder
	out    [2][]byte // results, in turn
	proven bool      // a right checksum ended the body that was decoded last, so no byte of it is missing
}

// open returns a reader that decodes src. It is valid until the next call.
func (d *decoder) open(c coding, src []byte) (_ io.Reader, err error) {
	d.src.Reset(src)
	switch c {
	case gzipCoding:
		if d.gzip == nil {
			d.gzip = new(gzip.Reader)
		}
		if err := d.gzip.Reset(&d.src); err != nil {
			return nil, err
		}
		d.gzip.Multistream(false)
		return (*members)(d), nil
	case deflateCoding:
		// RFC 9110 §8.4.1.2 requires the zlib format, whose header has a checksum. Some servers send bare deflate.
		if isZlib(src) {
			if d.zlib == nil {
				d.zlib, err = zlib.NewReader(&d.src)
				return d.zlib, err
			}
			return d.zlib, d.zlib.(zlib.Resetter).Reset(&d.src, nil)
		}
		if d.flate == nil {
			d.flate = flate.NewReader(&d.src)
			return (*bare)(d), nil
		}
		return (*bare)(d), d.flate.(flate.Resetter).Reset(&d.src, nil)
	case brotliCoding:
		if d.brotli == nil {
			d.brotli = brotli.NewReader(&d.src)
			return d.brotli, nil
		}
		return d.brotli, d.brotli.Reset(&d.src)
	default:
		if d.zstd == nil {
			d.zstd, err = zstd.NewReader(&d.src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
			return d.zstd, err
		}
		return d.zstd, d.zstd.Reset(&d.src)
	}
}

// members reads one gzip member after the other (RFC 1952 §2.2). Like browsers it ignores trailing bytes that begin no
// member, mostly zeros or a line end.
type members decoder

func (m *members) Read(p []byte) (int, error) {
	n, err := m.gzip.Read(p)
	if err != io.EOF || m.src.Len() < 2 {
		return n, err
	}
	var magic [2]byte
	if _, _ = m.src.ReadAt(magic[:], m.src.Size()-int64(m.src.Len())); magic != [2]byte{0x1F, 0x8B} {
		return n, io.EOF
	}
	if err := m.gzip.Reset(&m.src); err != nil {
		return n, err
	}
	m.gzip.Multistream(false)
	return n, nil
}

// bare reads a deflate stream without a wrapper. Such a stream has neither a magic number nor a checksum, and a plain
// text may begin like one. So the stream must span the whole body. (Brotli has neither, too; its reader makes the
// same check.)
type bare decoder

func (b *bare) Read(p []byte) (int, error) {
	n, err := b.flate.Read(p)
	if err == io.EOF && b.src.Len() > 0 {
		err = protocolError(exchange.CauseCorruptCoding)
	}
	return n, err
}

// errEndsEarly means that a received body ends before its coding does.
var errEndsEarly = errors.New("the coding has no end")

// decode decodes a body into the memory of the coded bytes, or into larger memory if the result does not fit. cut says
// that the received body was cut. The first returned bool says that the result is: because body was, or at the limit.
// An error discards the decoded bytes. proven reports whether a checksum of a coding shows that body is complete.
// decode recycles body; the caller must recycle the result. It waits for a decoder and for memory until the deadline.
func (f *Fetcher) decode(ctx context.Context, body []byte, codings []coding, cut bool, deadline time.Time) (_ []byte, _,
	proven bool, _ error) {
	var room []byte // for a result that does not fit in body
	for {
		d, err := f.takeDecoder(ctx, deadline)
		if err != nil {
			f.memory.Recycle(body)
			f.memory.Recycle(room)
			return nil, false, false, err
		}
		decoded, cut, err := d.decode(body, codings, f.cfg.MaxBody, cut)
		size := len(decoded)
		if err == nil && size > cap(body) {
			if room == nil {
				room = f.memory.tryTake(size)
			}
			if room != nil {
				f.memory.Recycle(body)
				body, room = room, nil
			}
		}
		fits := size <= cap(body)
		if err == nil && fits {
			body = append(body[:0], decoded...)
		}
		proven := d.proven
		d.release(f.decoders)
		switch {
		case err != nil:
			f.memory.Recycle(body)
			f.memory.Recycle(room)
			return nil, false, false, err
		case fits:
			return body, cut, proven, nil
		}
		// Decoders are few. So release this one while waiting for memory, and decode again.
		if room, err = f.memory.take(ctx, size, deadline); err != nil {
			f.memory.Recycle(body)
			return nil, false, false, err
		}
	}
}

func (f *Fetcher) takeDecoder(ctx context.Context, deadline time.Time) (*decoder, error) {
	select {
	case d := <-f.decoders:
		return d, nil
	default:
	}
	return await(ctx, f.decoders, deadline)
}

// isZlib reports whether a deflate body begins with a header of the zlib format (RFC 1950 §2.2).
func isZlib(body []byte) bool {
	return len(body) >= 2 && body[0]&0x0f == 8 && (uint(body[0])<<8|uint(body[1]))%31 == 0
}

// release returns a decoder to the free list.
func (d *decoder) release(decoders chan<- *decoder) {
	d.src.Reset(nil) // the decoder no longer owns the body
	for i := range d.out {
		if cap(d.out[i]) > maxScratch {
			d.out[i] = nil
		}
	}
	decoders <- d
}

// decode undoes the codings of a body, the last one first. Each result has at most limit bytes. The result is a view
// of the decoder's memory, valid until the next call.
func (d *decoder) decode(body []byte, codings []coding, limit int, cut bool) ([]byte, bool, error) {
	d.proven = false
	for i := len(codings) - 1; i >= 0 && len(body) > 0; i-- {
		out := &d.out[i%2] // from the second coding on, body is in the other
		*out = (*out)[:0]
		more := false
		src, err := d.open(codings[i], body)
		if err == nil {
			*out, more, err = readUpTo(*out, src, limit)
		}
		if err == nil && !more && checksummed(codings[i], body) {
			d.proven = true
		}
		body = *out
		early := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
		switch {
		case err == nil:
			cut = cut || more
		case cut && early:
			// The coded body was cut, so its decoded beginning is valid.
		case early && i == len(codings)-1:
			return nil, false, errEndsEarly
		default:
			return nil, false, protocolError(exchange.CauseCorruptCoding)
		}
	}
	return body, cut, nil
}

// checksummed reports whether a body in a coding ends in a checksum, which its reader has compared.
func checksummed(c coding, body []byte) bool {
	switch c {
	case gzipCoding:
		return true
	case deflateCoding:
		return isZlib(body)
	case zstdCoding:
		// The checksum is optional (RFC 8878 §3.1.1.1.1). An encoder gives it to all frames or to none.
		var first zstd.Header
		return first.Decode(body) == nil && first.HasCheckSum
	}
	return false
}

// readUpTo reads src and appends to dst, up to limit bytes in all. more reports whether src has more.
func readUpTo(dst []byte, src io.Reader, limit int) (_ []byte, more bool, err error) {
	for {
		dst = slices.Grow(dst, 512)
		n, err := readSome(src, dst[len(dst):min(cap(dst), limit+1)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst[:limit], true, nil
		case errors.Is(err, io.EOF):
			return dst, false, nil
		case err != nil:
			// After the limit comes an error, not the end: the body is cut, as in collect.
			if len(dst) == limit {
				return dst, true, nil
			}
			return dst, false, err
		}
	}
}

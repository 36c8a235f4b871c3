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

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Bodies are decoded after they have been received, out of memory into memory: a decoder, which may hold many megabytes,
// is then never held by a slow server, and a handful serves all exchanges.

// Bounds of decoding.
const (
	maxCodings = 2       // on one body
	maxWindow  = 8 << 20 // bytes; RFC 9659 for zstd in HTTP. Brotli's is 16 MiB by its format
	maxScratch = 1 << 20 // bytes that a decoder keeps for its next result
)

// coding is a Content-Encoding.
type coding uint8

const (
	gzipCoding coding = iota + 1
	deflateCoding
	brotliCoding
	zstdCoding
)

// noCodings are what servers say in Content-Encoding that is no coding: mostly a character set or a media type, and what an
// upload to an object store was framed by. They count for nothing where the body is text.
var noCodings = [...]string{
	"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "7bit", "8bit", "binary", "text", "text/plain", "plain", "aws-chunked", "chunked",
}

// contentCodings appends the codings of a head's Content-Encoding, whose lines are one list (RFC 9110 §5.3): fasthttp
// knows the last of them, and a body's outer coding undone is not yet the file. doubtful reports whether one of noCodings is
// among them, so that what comes of undoing the others must be text.
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

// parseCodings appends the codings that a Content-Encoding lists in the order they were applied (RFC 9110 §8.4).
func parseCodings(dst []coding, value []byte) (_ []coding, doubtful bool, err error) {
	for len(value) > 0 {
		var name []byte
		name, value, _ = bytes.Cut(value, []byte{','})
		name = bytes.TrimSpace(name)
		is := func(s string) bool { return bytes.EqualFold(name, []byte(s)) }
		var c coding
		switch {
		case len(name) == 0, is("identity"), is("none"): // which nobody has registered, and some servers say
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

// begins reports whether a body that begins so may be in the coding. gzip and zstd have a mark; of the others, which have
// none, it is known that they do not look like text.
func (c coding) begins(body []byte) bool {
	marked := func(mark string) bool { // or cut off within the mark
		n := min(len(body), len(mark))
		return string(body[:n]) == mark[:n]
	}
	switch c {
	case gzipCoding:
		return marked("\x1f\x8b")
	case zstdCoding: // a frame, or one to be skipped (RFC 8878 §3.1)
		return marked("\x28\xb5\x2f\xfd") || len(body) >= 4 && body[0]&0xf0 == 0x50 && bytes.Equal(body[1:4], []byte("\x2a\x4d\x18"))
	}
	// Fewer than three bytes are too few for a record, and enough for the coding of nothing, which Brotli spells ";".
	return len(body) < 3 || !text(body)
}

// text reports whether a body, or the beginning of one, is UTF-8 without control characters.
func text(body []byte) bool {
	for len(body) > 0 {
		r, size := utf8.DecodeRune(body)
		switch {
		case r == utf8.RuneError && size == 1:
			return !utf8.FullRune(body) // only cut there
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f', r == 0x7f:
			return false
		}
		body = body[size:]
	}
	return true
}

// decoder decodes one body at a time and keeps its memory for the next.
type decoder struct {
	src    bytes.Reader
	gzip   *gzip.Reader
	zlib   io.ReadCloser
	flate  io.ReadCloser
	brotli *brotli.Reader
	zstd   *zstd.Decoder
	out    [2][]byte // what it decodes into, in turn
}

// open returns a reader of src decoded. It is valid until the next call.
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
		// RFC 9110 §8.4.1.2 means the zlib format; some servers send it bare. The zlib header has a check of its own.
		if len(src) >= 2 && src[0]&0x0f == 8 && (uint(src[0])<<8|uint(src[1]))%31 == 0 {
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

// members reads one gzip member after the other (RFC 1952 §2.2). What stands behind a whole one and begins no other, zeros or
// a line end mostly, is no part of the body: browsers pass over it, and so the file counts.
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

// bare reads a deflate stream without a wrapper. It has neither a mark nor a sum, so that some texts which are not coded
// at all begin with what could be one: only a stream that is all of the body is taken for it. (Brotli is as bare, and
// its reader does the same.)
type bare decoder

func (b *bare) Read(p []byte) (int, error) {
	n, err := b.flate.Read(p)
	if err == io.EOF && b.src.Len() > 0 {
		err = protocolError(exchange.CauseCorruptCoding)
	}
	return n, err
}

// errEndsEarly says that a body as it was received ends before its coding does.
var errEndsEarly = errors.New("the coding has no end")

// decode undoes the codings of a body: what outgrows the memory that the coded bytes are in moves to a larger one. cut
// says that the body was cut when it was received, and is returned true where that or the bound cut the result. With an
// error comes nothing of what was decoded before it. It recycles body, and returns memory that must be recycled. It waits
// for a decoder, and for memory, until the deadline.
func (f *Fetcher) decode(ctx context.Context, body []byte, codings []coding, cut bool, deadline time.Time) ([]byte, bool, error) {
	var room []byte // for a result that does not fit
	for {
		d, err := f.takeDecoder(ctx, deadline)
		if err != nil {
			f.memory.Recycle(body)
			f.memory.Recycle(room)
			return nil, false, err
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
		d.release(f.decoders)
		switch {
		case err != nil:
			f.memory.Recycle(body)
			f.memory.Recycle(room)
			return nil, false, err
		case fits:
			return body, cut, nil
		}
		// There are few decoders. Rather than keep one while waiting for memory we decode once more.
		if room, err = f.memory.take(ctx, size, deadline); err != nil {
			f.memory.Recycle(body)
			return nil, false, err
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

// release puts a decoder back.
func (d *decoder) release(decoders chan<- *decoder) {
	d.src.Reset(nil) // the body is somebody else's from here on
	for i := range d.out {
		if cap(d.out[i]) > maxScratch {
			d.out[i] = nil
		}
	}
	decoders <- d
}

// decode undoes the codings of a body, last first, each result at most limit bytes. The result is a view of the
// decoder's own memory, valid until the next call.
func (d *decoder) decode(body []byte, codings []coding, limit int, cut bool) ([]byte, bool, error) {
	for i := len(codings) - 1; i >= 0 && len(body) > 0; i-- {
		out := &d.out[i%2] // and body is, from the second coding on, in the other
		*out = (*out)[:0]
		more := false
		src, err := d.open(codings[i], body)
		if err == nil {
			*out, more, err = readUpTo(*out, src, limit)
		}
		body = *out
		early := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
		switch {
		case err == nil:
			cut = cut || more
		case cut && early:
			// The coded body was cut: its decoded beginning is good.
		case early && i == len(codings)-1:
			return nil, false, errEndsEarly
		default:
			return nil, false, protocolError(exchange.CauseCorruptCoding)
		}
	}
	return body, cut, nil
}

// readUpTo appends what src yields to dst, up to limit bytes in all, and reports whether more would have come.
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
			// At the bound there is something behind it, if only a bad end: a cut, as in collect.
			if len(dst) == limit {
				return dst, true, nil
			}
			return dst, false, err
		}
	}
}

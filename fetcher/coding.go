package fetcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

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
)

// coding is a Content-Encoding.
type coding uint8

const (
	gzipCoding coding = iota + 1
	deflateCoding
	brotliCoding
	zstdCoding
)

// parseCodings appends the codings that a Content-Encoding lists in the order they were applied (RFC 9110 §8.4).
func parseCodings(dst []coding, value []byte) ([]coding, error) {
	for len(value) > 0 {
		var name []byte
		name, value, _ = bytes.Cut(value, []byte{','})
		name = bytes.TrimSpace(name)
		is := func(s string) bool { return bytes.EqualFold(name, []byte(s)) }
		var c coding
		switch {
		case len(name) == 0, is("identity"):
			continue
		case is("gzip"), is("x-gzip"):
			c = gzipCoding
		case is("deflate"):
			c = deflateCoding
		case is("br"):
			c = brotliCoding
		case is("zstd"):
			c = zstdCoding
		default:
			return dst, protocolError(exchange.CauseUnknownCoding)
		}
		if len(dst) == maxCodings {
			return dst, protocolError(exchange.CauseNestedCoding)
		}
		dst = append(dst, c)
	}
	return dst, nil
}

// decoder decodes one body at a time and keeps its memory for the next.
type decoder struct {
	src    bytes.Reader
	gzip   *gzip.Reader
	zlib   io.ReadCloser
	flate  io.ReadCloser
	brotli *brotli.Reader
	zstd   *zstd.Decoder
}

// open returns a reader of src decoded. It is valid until the next call.
func (d *decoder) open(c coding, src []byte) (_ io.Reader, err error) {
	d.src.Reset(src)
	switch c {
	case gzipCoding:
		if d.gzip == nil {
			d.gzip = new(gzip.Reader)
		}
		return d.gzip, d.gzip.Reset(&d.src)
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
			return d.flate, nil
		}
		return d.flate, d.flate.(flate.Resetter).Reset(&d.src, nil)
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

// decode undoes the codings of a body, last first, each result at most limit bytes. cut says that the body was cut when
// it was received, and is returned true where that or the bound cut the result. It recycles body, and returns memory
// that must be recycled. It waits for a decoder until the deadline.
func (f *Fetcher) decode(ctx context.Context, body []byte, codings []coding, cut bool, deadline time.Time) ([]byte, bool, error) {
	var d *decoder
	select {
	case d = <-f.decoders:
	default:
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		select {
		case d = <-f.decoders:
		case <-timer.C:
			f.memory.Recycle(body)
			return nil, false, protocolError(exchange.CauseNoLocalResource)
		case <-ctx.Done():
			f.memory.Recycle(body)
			return nil, false, ctx.Err()
		}
	}
	defer func() {
		d.src.Reset(nil) // the body is somebody else's from here on
		f.decoders <- d
	}()

	for i := len(codings) - 1; i >= 0 && len(body) > 0; i-- {
		var decoded []byte
		more := false
		src, err := d.open(codings[i], body)
		if err == nil {
			decoded, more, err = f.memory.collect(ctx, src, 2*len(body), f.cfg.MaxBody, deadline)
		}
		f.memory.Recycle(body)
		body = decoded
		var own protocolError
		switch {
		case err == nil:
			cut = cut || more
		case errors.As(err, &own):
			f.memory.Recycle(body)
			return nil, false, err
		case cut && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)):
			// The coded body was cut: its decoded beginning is good.
		default:
			f.memory.Recycle(body)
			return nil, false, protocolError(exchange.CauseCorruptCoding)
		}
	}
	return body, cut, nil
}

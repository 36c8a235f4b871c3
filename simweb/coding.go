package simweb

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// coding is a Content-Encoding, and how it is written.
type coding uint8

const (
	gzipped      coding = iota
	deflated            // in a zlib wrapper (RFC 9110 §8.4.1.2)
	deflatedBare        // without one, as some servers send it
	brotlied
	zstandard
)

// String returns the coding's name in a header.
func (c coding) String() string {
	switch c {
	case gzipped:
		return "gzip"
	case brotlied:
		return "br"
	case zstandard:
		return "zstd"
	}
	return "deflate"
}

// contentEncoding returns the header line of a body's codings, in the order in which they were applied.
func contentEncoding(codings []coding) string {
	if len(codings) == 0 {
		return ""
	}
	names := make([]string, len(codings))
	for i, c := range codings {
		names[i] = c.String()
	}
	return "Content-Encoding: " + strings.Join(names, ", ") + "\r\n"
}

// gzips are pooled, since ordinary hosts send gzip; the other codings are rare.
var gzips = sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return z }}

// encoded returns a finite body in the given codings, applied in order.
func encoded(body content, codings ...coding) []byte {
	var data []byte
	for i, c := range codings {
		if i > 0 {
			body = content{data, int64(len(data))}
		}
		data = encodedBy(body, c)
	}
	return data
}

// encodedBy returns a body in one coding. Writing to memory does not fail, so errors are ignored.
func encodedBy(body content, c coding) []byte {
	var b bytes.Buffer
	var z io.WriteCloser
	switch c {
	case gzipped:
		g := gzips.Get().(*gzip.Writer)
		defer gzips.Put(g)
		g.Reset(&b)
		z = g
	case deflated:
		z = zlib.NewWriter(&b)
	case deflatedBare:
		z, _ = flate.NewWriter(&b, flate.DefaultCompression)
	case brotlied:
		z = brotli.NewWriterLevel(&b, brotli.BestSpeed+1)
	case zstandard:
		z, _ = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	}
	for left := body.total; left > 0; left -= int64(len(body.block)) {
		_, _ = z.Write(body.block[:min(left, int64(len(body.block)))])
	}
	_ = z.Close()
	return b.Bytes()
}

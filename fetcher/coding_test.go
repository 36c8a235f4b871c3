package fetcher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// gzipMember returns a member of RFC 1952 §2.3 around a deflate stream, with the fields of its flags. No library
// writes all of them.
func gzipMember(file string, flags byte, edit func(head, tail []byte)) string {
	const (
		hasCRC     = 1 << 1
		hasExtra   = 1 << 2
		hasName    = 1 << 3
		hasComment = 1 << 4
	)
	head := []byte{0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 3}
	if flags&hasExtra != 0 {
		head = append(head, 6, 0, 'A', 'p', 2, 0, 'x', 'y')
	}
	if flags&hasName != 0 {
		head = append(head, "robots.txt\x00"...)
	}
	if flags&hasComment != 0 {
		head = append(head, "a comment\x00"...)
	}
	if flags&hasCRC != 0 {
		head = binary.LittleEndian.AppendUint16(head, uint16(crc32.ChecksumIEEE(head)))
	}
	tail := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(file)))
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(file)))
	if edit != nil {
		edit(head, tail)
	}
	return string(head) + string(encoders["deflate/raw"]([]byte(file))) + string(tail)
}

// zstdFrame returns a frame of RFC 8878 §3.1.1 with a header and raw blocks.
func zstdFrame(header string, blocks ...string) string {
	frame := []byte("\x28\xb5\x2f\xfd" + header)
	for i, block := range blocks {
		last := 0
		if i == len(blocks)-1 {
			last = 1
		}
		size := uint32(len(block)<<3 | last)
		frame = append(append(frame, byte(size), byte(size>>8), byte(size>>16)), block...)
	}
	return string(frame)
}

// The corner cases of all formats.
func TestDecodeFormats(t *testing.T) {
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 1000
	f := newFetcher(t, cfg)
	const file = "User-agent: *\nDisallow: /\n"
	decode := func(codings, coded string) (string, bool, error) {
		t.Helper()
		list, _, err := parseCodings(nil, []byte(codings))
		if err != nil {
			t.Fatal(err)
		}
		d := <-f.decoders
		defer d.release(f.decoders)
		body, cut, err := d.decode([]byte(coded), list, cfg.MaxBody, false)
		if err != nil && body != nil {
			t.Errorf("%s: %d bytes with an error", codings, len(body))
		}
		return string(body), cut, err
	}
	good := func(name, codings, coded, want string) {
		t.Helper()
		if got, cut, err := decode(codings, coded); got != want || cut || err != nil {
			t.Errorf("%s: got %q, cut %v, %v", name, got, cut, err)
		}
	}
	bad := func(name, codings, coded string) {
		t.Helper()
		if got, cut, err := decode(codings, coded); !errors.Is(err, protocolError(exchange.CauseCorruptCoding)) &&
			!errors.Is(err, errEndsEarly) {
			t.Errorf("%s as %s: got %q, cut %v, %v", name, codings, got, cut, err)
		}
	}

	for flags := byte(0); flags < 32; flags++ {
		good(fmt.Sprintf("gzip with flags %05b", flags), "gzip", gzipMember(file, flags, nil), file)
		good(fmt.Sprintf("two members with flags %05b", flags), "gzip", gzipMember(file, flags, nil)+
			gzipMember("x", flags^31, nil), file+"x")
	}
	bad("gzip with reserved flags", "gzip", gzipMember(file, 0xe0, nil))
	bad("gzip by another method", "gzip", gzipMember(file, 0, func(head, _ []byte) { head[2] = 7 }))
	bad("gzip with a wrong header sum", "gzip", gzipMember(file, 2, func(head, _ []byte) { head[len(head)-1]++ }))
	bad("gzip with a wrong sum", "gzip", gzipMember(file, 0, func(_, tail []byte) { tail[0]++ }))
	bad("gzip with a wrong length", "gzip", gzipMember(file, 0, func(_, tail []byte) { tail[4]++ }))
	bad("gzip whose second member has a wrong sum", "gzip", gzipMember(file, 0, nil)+
		gzipMember(file, 0, func(_, tail []byte) { tail[0]++ }))
	bad("gzip with an endless name", "gzip", "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"+strings.Repeat("x", 900))
	good("gzip in ninety empty members", "gzip", strings.Repeat(gzipMember("", 0, nil), 90)+gzipMember("x", 0, nil), "x")
	bad("gzip in a thousand empty members", "gzip", strings.Repeat(gzipMember("", 0, nil), 1000)+gzipMember("x", 0, nil))

	stored := "\x01\x02\x00\xfd\xffab" // RFC 1951 §3.2.4
	good("a stored block", "deflate", stored, "ab")
	good("a stored block in zlib", "deflate", string(binary.BigEndian.AppendUint32([]byte("\x78\x01"+stored),
		adler32.Checksum([]byte("ab")))), "ab")
	bad("a stored block with a wrong length", "deflate", "\x01\x02\x00\xfd\xfeab")
	bad("zlib with a dictionary", "deflate", "\x78\xbb\x00\x00\x00\x01"+stored)
	bad("a reserved block", "deflate", "\x07\x00")
	bad("a distance before the beginning", "deflate", "\x03\x02")

	good("zstd, one frame", "zstd", zstdFrame("\x20\x1a", file), file)
	good("zstd, no content size", "zstd", zstdFrame("\x00\x00", file[:5], file[5:]), file)
	good("zstd, two frames", "zstd", zstdFrame("\x20\x1a", file)+zstdFrame("\x00\x00", "x"), file+"x")
	good("zstd, skippable frames", "zstd", "\x50\x2a\x4d\x18\x03\x00\x00\x00abc"+zstdFrame("\x20\x1a", file)+
		"\x5f\x2a\x4d\x18\x00\x00\x00\x00", file)
	good("zstd, a dictionary of number 0", "zstd", zstdFrame("\x21\x00\x1a", file), file)
	good("zstd, a window of 8 MiB", "zstd", zstdFrame("\x00\x68", file), file)
	bad("zstd, a window of 9 MiB", "zstd", zstdFrame("\x00\x69", file))
	bad("zstd, a window of 3.75 TiB", "zstd", zstdFrame("\x00\xff", file))
	bad("zstd, a content of 2⁶⁴-1", "zstd", zstdFrame("\xe0\xff\xff\xff\xff\xff\xff\xff\xff", file))
	bad("zstd, a dictionary", "zstd", zstdFrame("\x21\x07\x1a", file))
	bad("zstd, another content size", "zstd", zstdFrame("\x20\x1b", file))
	bad("zstd, a wrong sum", "zstd", zstdFrame("\x24\x1a", file)+"abcd")
	bad("zstd, a reserved bit", "zstd", zstdFrame("\x28\x1a", file))
	bad("zstd, an endless skippable frame", "zstd", "\x50\x2a\x4d\x18\xff\xff\xff\xffabc")

	// Brotli and bare deflate have no magic number, bare deflate has no checksum. Even so, text that is not coded, or
	// coded in another format, must not decode.
	for _, codings := range []string{"gzip", "deflate", "br", "zstd", "gzip, gzip", "br, br", "deflate, br"} {
		for c := range 256 {
			for _, text := range []string{"ser-agent: *\nDisallow: /\n", "itemap: https://example.com/sitemap.xml\n",
				" a comment", "\n", "\r\n\r\n", "<html>", "  ", "\x00\x00\x00"} {
				bad(fmt.Sprintf("%q", string(rune(c))+text), codings, string(rune(c))+text)
				if c >= 0x80 {
					bad(fmt.Sprintf("%q", string([]byte{byte(c)})+text), codings, string([]byte{byte(c)})+text)
				}
			}
		}
	}
	for name, encode := range encoders {
		is, _, _ := strings.Cut(name, "/")
		for _, named := range []string{"gzip", "deflate", "br", "zstd"} {
			if named != is {
				bad(name+" named "+named, named, string(encode([]byte(file))))
			}
		}
	}
}

// A coded body that ends early is an error, and nothing of it is kept.
func TestDecodeCut(t *testing.T) {
	f := newFetcher(t, testConfig(netip.AddrPort{}))
	file := []byte(strings.Repeat("User-agent: *\nDisallow: /private\n", 20))
	for name, encode := range encoders {
		codings, _, err := contentCodings(nil, []byte("Content-Encoding: "+
			strings.TrimSuffix(strings.TrimSuffix(name, "/zlib"), "/raw")+"\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		whole := encode(file)
		d := <-f.decoders
		for n := 1; n < len(whole); n++ {
			if body, cut, err := d.decode(whole[:n], codings, 10_000, false); body != nil || cut || err != errEndsEarly {
				t.Errorf("%s of %d bytes, %d of them: got %d bytes, cut %v, %v", name, len(whole), n, len(body), cut, err)
			}
			// A body that we cut ourselves is the beginning of the file.
			if body, cut, err := d.decode(whole[:n], codings, 10_000, true); !bytes.HasPrefix(file, body) || !cut || err != nil {
				t.Errorf("%s of %d bytes, cut at %d: got %d bytes, cut %v, %v", name, len(whole), n, len(body), cut, err)
			}
		}
		d.release(f.decoders)
	}
}

// A coded body is cut at the limit, like one without coding: the decoded bytes and the received bytes are bounded.
func TestCodedBodyIsTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 300_000
		lines := strings.Repeat("Disallow: /x\n", 24_000) // 312,000 bytes
		noise := make([]byte, 450_000)                    // no coding makes it smaller
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(noise)
		for i := range noise {
			if noise[i] == '\n' || noise[i] == '\r' {
				noise[i] = 'x'
			}
		}
		noise[50_000] = '\n'
		for name, encode := range encoders {
			codings, _, _ := strings.Cut(name, "/")
			head := okHead + "Content-Encoding: " + codings + "\r\n\r\n"
			ask := func(file []byte) *exchange.Response {
				cfg := site(t, 0, reply(head, string(encode(file))))
				cfg.MaxBody = limit
				r, _ := fetch(t, newFetcher(t, cfg), "http://example.com")
				return r
			}
			if r := ask([]byte(lines)); rowOf(r) != answers(200, lines[:limit/13*13]) || !r.Truncated {
				t.Errorf("%s: got %v (%v), %d bytes, truncated %v", name, r.Outcome, r.Cause, len(r.Body), r.Truncated)
			}
			if r := ask([]byte(lines[:290_000])); rowOf(r) != answers(200, lines[:290_000]) || r.Truncated {
				t.Errorf("%s, below the bound: got %v (%v), %d bytes, truncated %v", name, r.Outcome, r.Cause, len(r.Body),
					r.Truncated)
			}
			if r := ask(noise); rowOf(r) != answers(200, string(noise[:50_001])) || !r.Truncated {
				t.Errorf("%s of noise: got %v (%v), %d bytes, truncated %v", name, r.Outcome, r.Cause, len(r.Body), r.Truncated)
			}
		}
	})
}

// A bomb only costs decoding up to the limit: few of its bytes are read, and the decoder's memory does not grow with
// it. The same holds for a bomb in a bomb.
func TestBombs(t *testing.T) {
	const (
		limit = 512_000
		size  = 20 << 20 // more than any window
		// Brotli decodes into its window, of 16 MiB at most, before it returns any of it.
		window = 16 << 20
	)
	windowed := map[string]func([]byte) []byte{
		"br, a window of 16 MiB": func(b []byte) []byte {
			return encode(b, func(w io.Writer) io.WriteCloser {
				return brotli.NewWriterOptions(w, brotli.WriterOptions{Quality: 5, LGWin: 24})
			})
		},
		"zstd, a window of 8 MiB": func(b []byte) []byte {
			return encode(b, func(w io.Writer) io.WriteCloser {
				e, _ := zstd.NewWriter(w, zstd.WithWindowSize(8<<20))
				return e
			})
		},
	}
	for name, encode := range encoders {
		windowed[name] = encode
	}
	bomb := bytes.Repeat([]byte("Disallow: /x\n"), size/13)
	for name, encode := range windowed {
		codings, _, _ := strings.Cut(name, "/")
		codings, _, _ = strings.Cut(codings, ",")
		single, _, err := parseCodings(nil, []byte(codings))
		if err != nil {
			t.Fatal(err)
		}
		once := encode(bomb)
		check := func(name string, coded []byte, codings []coding) {
			t.Helper()
			// As collect cuts it.
			received := coded[:min(len(coded), limit)]
			d := new(decoder)
			decode := func() {
				body, cut, err := d.decode(received, codings, limit, len(received) < len(coded))
				if err != nil || !cut || len(body) != limit && len(codings) == 1 || len(body) == 0 || !bytes.HasPrefix(bomb, body) {
					t.Errorf("%s: got %d bytes, cut %v, %v", name, len(body), cut, err)
				}
			}
			before := heapOf()
			decode()
			live := int64(heapOf()) - int64(before)
			consumed := d.src.Size() - int64(d.src.Len())
			allocations := testing.AllocsPerRun(3, decode)
			scratch := cap(d.out[0]) + cap(d.out[1])
			t.Logf("%s: %d bytes, decoded %d; the last coding consumed %d; %d KB are held, %v allocations each time", name,
				len(coded), size, consumed, live>>10, allocations)
			// The decoders read ahead, 32 KiB at most.
			if most := int64(len(once))*2*limit/size + 32<<10; codings[0] != brotliCoding && consumed > most {
				t.Errorf("%s: %d bytes were consumed, of at most %d", name, consumed, most)
			}
			if most := int64(window + 6<<20); live > most {
				t.Errorf("%s: %d bytes are held, of at most %d", name, live, most)
			}
			if scratch > len(codings)*2*maxScratch {
				t.Errorf("%s: %d bytes of scratch memory", name, scratch)
			}
			if allocations > 16 {
				t.Errorf("%s: %v allocations each time", name, allocations)
			}
			runtime.KeepAlive(d)
		}
		check(name, once, single)
		check(name+" twice", encode(once), append(single, single...))
		check(name+" in gzip", encoders["gzip"](once), append(single[:1:1], gzipCoding))
	}

	// The other kind of bomb costs time: it has only headers.
	d := new(decoder)
	idle := func(name string, c coding, part string) {
		t.Helper()
		body, cut, err := d.decode([]byte(strings.Repeat(part, limit/len(part))), []coding{c}, limit, false)
		if len(body) > 0 || cut || err != nil && err != errEndsEarly && err != protocolError(exchange.CauseCorruptCoding) {
			t.Errorf("%s: got %d bytes, cut %v, %v", name, len(body), cut, err)
		}
		allocations := testing.AllocsPerRun(1, func() {
			_, _, _ = d.decode([]byte(strings.Repeat(part, limit/len(part))), []coding{c}, limit, false)
		})
		// The zstd decoder makes one for each skippable frame, and the race detector another for some.
		if most := float64(limit/4 + 64); allocations > most {
			t.Errorf("%s: %v allocations, of at most %v", name, allocations, most)
		}
	}
	idle("empty members", gzipCoding, gzipMember("", 0, nil))
	idle("empty frames", zstdCoding, zstdFrame("\x20\x00", ""))
	idle("skippable frames", zstdCoding, "\x50\x2a\x4d\x18\x00\x00\x00\x00")
	idle("empty blocks", deflateCoding, "\x00\x00\x00\xff\xff")
}

// heapOf returns the bytes of this process's reachable heap.
func heapOf() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

package fetcher

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// reading is a response that allows more than one reading, and ours.
type reading struct {
	name    string
	wire    string
	want    row
	differs string // what curl reads in another way, one of differences; "" if it reads the same
}

// differences are the readings of curl that are not ours, as docs/CURL.md lists them.
var differences = []struct{ what, here, curl string }{
	{"a version that is not 1.0, 1.1 or 2", "any digit, point, digit is read as 1.1", "refused"},
	{"line ends before the status line", "up to eight are skipped", "refused"},
	{"a status from 600 to 999", "`bad_response`; the status is kept", "an answer"},
	{"a body behind 205", "ignored (RFC 9110 §15.3.6)", "read"},
	{"the body of another status than 2xx, its framing and coding",
		"not read, so they cannot fail: the status counts", "read"},
	{"more than ten interim responses", "`bad_response`", "read"},
	{"a head of more than 64 KiB", "`header_too_large`", "read up to 300 KB"},
	{"an empty line of two carriage returns", "part of the head (RFC 9112 §2.2)", "ends the head"},
	{"a folded Content-Length", "joined (RFC 9112 §5.2)", "refused"},
	{"a folded Content-Encoding", "joined", "ignored"},
	{"a line that is no field", "skipped", "refused"},
	{"white space before the colon of Content-Length", "removed (RFC 9112 §5.1)", "field ignored"},
	{"white space before the colon of Content-Encoding", "removed", "field ignored"},
	{"a NUL in the head", "read as a space", "refused"},
	{"several lengths that differ",
		"in a 2xx `bad_response` (RFC 9112 §6.3)", "the last line counts, of a list the first"},
	{"a length that is not digits alone", "likewise", "its leading digits count"},
	{"a length of 2⁶³ or more", "likewise", "ignored"},
	{"a coded body that its checksum proves whole, and then less than announced",
		"the file: gzip, zlib, zstd with a checksum", "cut off"},
	{"a Transfer-Encoding of gzip", "`bad_encoding` (RFC 9112 §7.4)", "decoded"},
	{"Transfer-Encoding: identity, or empty, beside a length", "the length counts", "the connection's end counts"},
	{"nothing behind the last chunk", "the body is whole", "cut off"},
	{"a Content-Encoding that names no coding, over text",
		"the text is the file (`utf-8` …); else `bad_encoding`", "refused"},
	{"more than two codings", "`bad_encoding`", "decoded, up to five"},
	{"zlib that is called gzip", "`bad_encoding`", "decoded"},
	{"gzip in several members", "all are the file (RFC 1952 §2.2)", "refused"},
	{"octets behind a gzip or zlib body", "ignored: the checksum holds", "refused"},
	{"up to four octets behind a bare deflate body", "`bad_encoding` (brotli likewise): no checksum", "ignored"},
	{"a coding without its end",
		"`closed_early` if the connection ended the body, else `bad_encoding`", "what was decoded is the file"},
}

// readings lists every choice of a reader of HTTP/1 that matters on the web. A response ends with its connection.
func readings() []reading {
	const (
		two  = "Content-Length: 2\r\n\r\nab"
		chks = okHead + "Transfer-Encoding: chunked\r\n\r\n"
		file = "User-agent: *\nDisallow: /\n"
	)
	ab := answers(200, "ab")
	bad := func(cause exchange.Cause, status int) row { return row{protocolOutcome[cause], cause, status, ""} }
	notHTTP := bad(exchange.CauseNotHTTP, 0)
	badLength := bad(exchange.CauseBadLength, 200)
	badChunk := bad(exchange.CauseBadChunk, 200)
	badTransfer := bad(exchange.CauseUnknownTransfer, 200)
	badStatus := func(status int) row { return bad(exchange.CauseBadStatus, status) }
	beforeHead := row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0, ""}
	inHead, inBody := bad(exchange.CauseClosedInHead, 0), bad(exchange.CauseClosedInBody, 200)
	corrupt, unknown, nested := bad(exchange.CauseCorruptCoding, 200), bad(exchange.CauseUnknownCoding, 200),
		bad(exchange.CauseNestedCoding, 200)

	gz := string(encoders["gzip"]([]byte(file)))
	zl := string(encoders["deflate/zlib"]([]byte(file)))
	raw := string(encoders["deflate/raw"]([]byte(file)))
	br := string(encoders["br"]([]byte(file)))
	zs := string(encoders["zstd"]([]byte(file)))
	coded := func(codings, body string) string {
		return okHead + "Content-Encoding: " + codings + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	closed := func(codings, body string) string {
		return okHead + "Content-Encoding: " + codings + "\r\n\r\n" + body
	}
	filler := "X: 0123456789012345678901234567\r\n"

	return []reading{
		{"a part without a request for it", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-11/100\r\n" + two,
			answers(206, "ab"), ""},
		// The status line.
		{"plain", okHead + two, ab, ""},
		{"no reason phrase", "HTTP/1.1 200\r\n" + two, ab, ""},
		{"an empty reason phrase", "HTTP/1.1 200 \r\n" + two, ab, ""},
		{"no space after the status", "HTTP/1.1 200OK\r\n" + two, ab, ""},
		{"two spaces before the status", "HTTP/1.1  200 OK\r\n" + two, ab, ""},
		{"a tab before the status", "HTTP/1.1\t200 OK\r\n" + two, notHTTP, ""},
		{"lower case", "http/1.1 200 OK\r\n" + two, ab, ""},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nab", ab, ""},
		{"HTTP/2 in words", "HTTP/2 200\r\n" + two, ab, ""},
		{"HTTP/2.0 in words", "HTTP/2.0 200 OK\r\n" + two, ab, ""},
		{"HTTP/3 in words", "HTTP/3 200\r\n" + two, notHTTP, ""},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n" + two, ab, "a version that is not 1.0, 1.1 or 2"},
		{"HTTP/0.9 in words", "HTTP/0.9 200 OK\r\n" + two, ab, "a version that is not 1.0, 1.1 or 2"},
		{"HTTP/9.9", "HTTP/9.9 200 OK\r\n" + two, ab, "a version that is not 1.0, 1.1 or 2"},
		{"HTTP/1", "HTTP/1 200 OK\r\n" + two, notHTTP, ""},
		{"HTTP/11.1", "HTTP/11.1 200 OK\r\n" + two, notHTTP, ""},
		{"HTTP/0.9", file, notHTTP, ""},
		{"white space first", " HTTP/1.1 200 OK\r\n" + two, notHTTP, ""},
		{"a line end first", "\r\n" + okHead + two, ab, "line ends before the status line"},
		{"eight line ends first", "\n\n\n\n\n\n\n\n" + okHead + two, ab, "line ends before the status line"},
		{"nine line ends first", "\n\n\n\n\n\n\n\n\n" + okHead + two, notHTTP, ""},
		{"ICY", "ICY 200 OK\r\n" + two, notHTTP, ""},
		{"RTSP", "RTSP/1.0 200 OK\r\n" + two, notHTTP, ""},
		{"SSH", "SSH-2.0-OpenSSH_9.9\r\n", notHTTP, ""},
		{"SMTP", "220 mail.example ESMTP\r\n", notHTTP, ""},
		{"TLS", "\x15\x03\x01\x00\x02\x02\x46", notHTTP, ""},
		{"binary", "\x00\x01\x02\x03abcdefgh", notHTTP, ""},
		{"a part of a status line", "HTTP/1.1 200", inHead, ""},
		{"a part of the word", "HT", inHead, ""},
		{"nothing", "", beforeHead, ""},

		// Statuses.
		{"status 000", "HTTP/1.1 000 x\r\n" + two, badStatus(0), ""},
		{"status 099", "HTTP/1.1 099 x\r\n" + two, badStatus(99), ""},
		{"status 299", "HTTP/1.1 299 x\r\n" + two, answers(299, "ab"), ""},
		{"status 599", "HTTP/1.1 599 x\r\n" + two, answers(599, ""), ""},
		{"status 600", "HTTP/1.1 600 x\r\n" + two, badStatus(600), "a status from 600 to 999"},
		{"status 999", "HTTP/1.1 999 x\r\n" + two, badStatus(999), "a status from 600 to 999"},
		{"status 101", "HTTP/1.1 101 x\r\nUpgrade: x\r\n\r\n", badStatus(101), ""},
		{"a status of two digits", "HTTP/1.1 20 x\r\n" + two, notHTTP, ""},
		{"a status of four digits", "HTTP/1.1 2000 x\r\n" + two, notHTTP, ""},
		{"a negative status", "HTTP/1.1 -200 x\r\n" + two, notHTTP, ""},
		{"a status of letters", "HTTP/1.1 abc x\r\n" + two, notHTTP, ""},
		{"204 with a body", "HTTP/1.1 204 x\r\n" + two, answers(204, ""), ""},
		{"205 with a body", "HTTP/1.1 205 x\r\n" + two, answers(205, ""), "a body behind 205"},
		{"206", "HTTP/1.1 206 x\r\nContent-Range: bytes 0-1/9\r\n" + two, answers(206, "ab"), ""},
		{"304 with a length", "HTTP/1.1 304 x\r\nContent-Length: 2\r\n\r\n", row{exchange.RedirectInvalid,
			exchange.CauseNoLocation, 304, ""}, ""},
		{"404 cut in its body", "HTTP/1.1 404 x\r\nContent-Length: 9\r\n\r\nab", answers(404, ""),
			"the body of another status than 2xx, its framing and coding"},
		{"404 of two lengths", "HTTP/1.1 404 x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab", answers(404, ""),
			"the body of another status than 2xx, its framing and coding"},
		{"404 of a negative length", "HTTP/1.1 404 x\r\nContent-Length: -2\r\n\r\nab", answers(404, ""),
			"the body of another status than 2xx, its framing and coding"},
		{"404 in an unknown transfer coding", "HTTP/1.1 404 x\r\nTransfer-Encoding: x\r\n\r\nab", answers(404, ""),
			"the body of another status than 2xx, its framing and coding"},
		{"404 badly coded", "HTTP/1.1 404 x\r\nContent-Encoding: gzip\r\n" + two, answers(404, ""),
			"the body of another status than 2xx, its framing and coding"},

		// Interim responses.
		{"100, 102, 103, 199",
			"HTTP/1.1 100 x\r\n\r\nHTTP/1.1 102 x\r\n\r\nHTTP/1.1 103 x\r\nLink: </x>\r\n\r\nHTTP/1.1 199 x\r\n\r\n" + okHead +
				two, ab, ""},
		{"103 with bare line ends", "HTTP/1.1 103\n\n" + okHead + two, ab, ""},
		{"ten interim responses", strings.Repeat("HTTP/1.1 100 x\r\n\r\n", 10) + okHead + two, ab, ""},
		{"eleven interim responses", strings.Repeat("HTTP/1.1 100 x\r\n\r\n", 11) + okHead + two,
			bad(exchange.CauseTooManyInterim, 0), "more than ten interim responses"},
		{"an interim response with a body", "HTTP/1.1 100 x\r\nContent-Length: 2\r\n\r\nxy" + okHead + two, notHTTP, ""},
		{"nothing after 100", "HTTP/1.1 100 x\r\n\r\n", beforeHead, ""},
		{"nothing after 103", "HTTP/1.1 103 x\r\nLink: </x>\r\n\r\n", beforeHead, ""},

		// Lines.
		{"bare line ends", "HTTP/1.1 200 OK\nContent-Length: 2\n\nabc", ab, ""},
		{"bare line ends, nothing more", "HTTP/1.1 200\n\nab", ab, ""},
		{"mixed line ends", "HTTP/1.1 200 OK\nContent-Length: 2\r\n\nabc", ab, ""},
		{"mixed line ends, the other way", okHead + "Content-Length: 2\n\r\nabc", ab, ""},
		{"doubled carriage returns", "HTTP/1.1 200 OK\r\r\nContent-Length: 2\r\r\n\r\r\nab", inHead,
			"an empty line of two carriage returns"},
		{"carriage returns alone", "HTTP/1.1 200 OK\rContent-Length: 2\r\rab", inHead, ""},
		{"a carriage return within", okHead + "X: a\rb\r\n" + two, ab, ""},
		{"no fields", okHead + "\r\nab", ab, ""},
		{"a folded field", okHead + "X: a\r\n b\r\n\tc\r\n" + two, ab, ""},
		{"a folded length", okHead + "Content-Length:\r\n 2\r\n\r\nabc", ab, "a folded Content-Length"},
		{"a folded length beside a NUL", okHead + "Content-Length:\r\n 2\r\nX: a\x00\r\n\r\nabc", ab, "a NUL in the head"},
		{"a fold without a field", okHead + " folded\r\n" + two, ab, "a line that is no field"},
		{"no colon", okHead + "nonsense\r\n" + two, ab, "a line that is no field"},
		{"no name", okHead + ": x\r\n" + two, ab, ""},
		{"a space in a name", okHead + "A B: x\r\n" + two, ab, ""},
		{"a space before a colon", okHead + "Content-Length : 2\r\n\r\nabc", ab,
			"white space before the colon of Content-Length"},
		{"octets above 127", okHead + "X: \xff\xfe\r\n" + two, ab, ""},
		{"NUL in a value", okHead + "X: a\x00b\r\n" + two, ab, "a NUL in the head"},
		{"NUL in a name", okHead + "X\x00Y: ab\r\n" + two, ab, "a NUL in the head"},
		{"NUL in the reason phrase", "HTTP/1.1 200 O\x00K\r\n" + two, ab, "a NUL in the head"},
		{"cut in a field", okHead + "Content-Length: 2\r\n", inHead, ""},
		{"60 KB of fields", okHead + strings.Repeat(filler, 1800) + two, ab, ""},
		{"a line of 60 KB", okHead + "X: " + strings.Repeat("x", 60_000) + "\r\n" + two, ab, ""},
		{"70 KB of fields", okHead + strings.Repeat(filler, 2100) + two, bad(exchange.CauseHeadTooLarge, 0),
			"a head of more than 64 KiB"},
		{"a line of 90 KB", okHead + "X: " + strings.Repeat("x", 90_000) + "\r\n" + two, bad(exchange.CauseHeadTooLarge, 0),
			"a head of more than 64 KiB"},

		// Lengths.
		{"two equal lengths", okHead + "Content-Length: 2\r\n" + two, ab, ""},
		{"two equal lengths in a list", okHead + "Content-Length: 2, 2\r\n\r\nab", ab, ""},
		{"two lengths", okHead + "Content-Length: 3\r\n" + two, badLength, "several lengths that differ"},
		{"two lengths in a list", okHead + "Content-Length: 2, 3\r\n\r\nab", badLength, "several lengths that differ"},
		{"a negative length", okHead + "Content-Length: -2\r\n\r\nab", badLength, ""},
		{"a quoted length", okHead + "Content-Length: \"2\"\r\n\r\nab", badLength, ""},
		{"an empty length", okHead + "Content-Length:\r\n\r\nab", badLength, ""},
		{"a length and a plus", okHead + "Content-Length: +2\r\n\r\nab", badLength, "a length that is not digits alone"},
		{"a length and more", okHead + "Content-Length: 2x\r\n\r\nab", badLength, "a length that is not digits alone"},
		{"two numbers", okHead + "Content-Length: 2 2\r\n\r\nab", badLength, "a length that is not digits alone"},
		{"a hexadecimal length", okHead + "Content-Length: 0x2\r\n\r\nab", badLength, "a length that is not digits alone"},
		{"a length beyond 2⁶³", okHead + "Content-Length: 9223372036854775808\r\n\r\nab", badLength,
			"a length of 2⁶³ or more"},
		{"a length of 2⁶³-1", okHead + "Content-Length: 9223372036854775807\r\n\r\nab", inBody, ""},
		{"spaces around a length", okHead + "Content-Length: \t 2  \r\n\r\nab", ab, ""},
		{"zeros before a length", okHead + "Content-Length: 0002\r\n\r\nab", ab, ""},
		{"fewer than the length", okHead + "Content-Length: 5\r\n\r\nab", inBody, ""},
		{"more than the length", okHead + "Content-Length: 1\r\n\r\nab", answers(200, "a"), ""},
		{"length 0", okHead + "Content-Length: 0\r\n\r\nab", answers(200, ""), ""},

		// Transfer codings.
		{"chunked", chks + "2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"chunked in upper case", okHead + "TRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"chunked, then a length", okHead + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
			answers(200, "abcde"), ""},
		{"a length, then chunked", okHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
			answers(200, "abcde"), ""},
		{"chunked and a broken length", okHead +
			"Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", badLength, ""},
		{"chunked in two lines", okHead +
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"chunked twice", okHead + "Transfer-Encoding: chunked, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"identity, chunked", okHead + "Transfer-Encoding: identity, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ab, ""},
		{"chunked and a parameter", okHead + "Transfer-Encoding: chunked;q=1\r\n\r\n2\r\nab\r\n0\r\n\r\n", badTransfer, ""},
		{"chunked after a vertical tab", okHead + "Transfer-Encoding: \x0bchunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", badTransfer,
			""},
		{"gzip, chunked", okHead + "Transfer-Encoding: gzip, chunked\r\n\r\n" + strconv.FormatInt(int64(len(gz)), 16) +
			"\r\n" + gz + "\r\n0\r\n\r\n", badTransfer, "a Transfer-Encoding of gzip"},
		{"gzip as transfer coding", okHead + "Transfer-Encoding: gzip\r\n\r\n" + gz, badTransfer,
			"a Transfer-Encoding of gzip"},
		{"an unknown transfer coding", okHead + "Transfer-Encoding: x\r\n" + two, badTransfer, ""},
		{"identity and a length", okHead + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nabc", ab,
			"Transfer-Encoding: identity, or empty, beside a length"},
		{"no transfer coding and a length", okHead + "Transfer-Encoding:\r\nContent-Length: 2\r\n\r\nabc", ab,
			"Transfer-Encoding: identity, or empty, beside a length"},

		// Chunks.
		{"chunk extensions", chks + "2;a=b\r\nab\r\n0;x\r\n\r\n", ab, ""},
		{"a line end in a chunk extension", chks + "2;a=\"\n\"\r\nab\r\n0\r\n\r\n", inBody, ""},
		{"spaces after a chunk's size", chks + "2  \r\nab\r\n0\r\n\r\n", ab, ""},
		{"a space before a chunk's size", chks + " 2\r\nab\r\n0\r\n\r\n", badChunk, ""},
		{"chunks with bare line ends", chks + "2\nab\n0\n\n", ab, ""},
		{"a chunk's size in upper case", chks + "000A\r\n0123456789\r\n000\r\n\r\n", answers(200, "0123456789"), ""},
		{"a chunk's size of 16 digits", chks + "0000000000000002\r\nab\r\n0\r\n\r\n", ab, ""},
		{"a chunk's size of 17 digits", chks + "00000000000000002\r\nab\r\n0\r\n\r\n", badChunk, ""},
		{"the largest chunk", chks + "ffffffffffffffff\r\nab\r\n0\r\n\r\n", badChunk, ""},
		{"a negative chunk", chks + "-2\r\nab\r\n0\r\n\r\n", badChunk, ""},
		{"a chunk's size in C", chks + "0x2\r\nab\r\n0\r\n\r\n", badChunk, ""},
		{"trailers", chks + "2\r\nab\r\n0\r\nX: y\r\nZ: z\r\n\r\n", ab, ""},
		{"no end after the last chunk", chks + "2\r\nab\r\n0\r\n", ab, "nothing behind the last chunk"},
		{"no last chunk", chks + "2\r\nab\r\n", inBody, ""},
		{"no line end after a chunk", chks + "2\r\nab0\r\n\r\n", badChunk, ""},
		{"a chunk longer than it says", chks + "2\r\nabcd\r\n0\r\n\r\n", badChunk, ""},
		{"no chunks but the last", chks + "0\r\n\r\n", answers(200, ""), ""},
		{"no chunks at all", chks, inBody, ""},
		{"chunked by its word alone", chks + file, badChunk, ""},

		// Content codings.
		{"gzip", coded("gzip", gz), answers(200, file), ""},
		{"gzip in upper case", coded("GZIP", gz), answers(200, file), ""},
		{"x-gzip", coded("x-gzip", gz), answers(200, file), ""},
		{"deflate", coded("deflate", zl), answers(200, file), ""},
		{"deflate without zlib", coded("deflate", raw), answers(200, file), ""},
		{"br", coded("br", br), answers(200, file), ""},
		{"zstd", coded("zstd", zs), answers(200, file), ""},
		{"identity", coded("identity", file), answers(200, file), ""},
		{"none", coded("none", file), answers(200, file), ""},
		{"an empty coding", coded("", file), answers(200, file), ""},
		{"gzip in a list of nothing", coded(", gzip ,,", gz), answers(200, file), ""},
		{"identity, gzip", coded("identity, gzip", gz), answers(200, file), ""},
		{"gzip and a parameter", coded("gzip;q=1", gz), unknown, ""},
		{"a character set", coded("utf-8", file), answers(200, file), "a Content-Encoding that names no coding, over text"},
		{"a character set in capitals", coded("UTF-8", "\xef\xbb\xbf"+file+"# é\n"), answers(200, "\xef\xbb\xbf"+file+
			"# é\n"), "a Content-Encoding that names no coding, over text"},
		{"a character set, over nothing", coded("utf-8", ""), answers(200, ""), ""},
		{"a character set, over gzip", coded("utf-8", gz), unknown, ""},
		{"a character set, over a control byte", coded("utf-8", file+"\x00"), unknown, ""},
		{"a character set and gzip", coded("utf-8, gzip", gz), answers(200, file),
			"a Content-Encoding that names no coding, over text"},
		{"gzip and how it was uploaded", coded("gzip, aws-chunked", gz), answers(200, file),
			"a Content-Encoding that names no coding, over text"},
		{"how it was uploaded", coded("aws-chunked", file), answers(200, file),
			"a Content-Encoding that names no coding, over text"},
		{"as it was uploaded", coded("aws-chunked", "e;chunk-signature=0\r\nUser-agent: *\n\r\n0;chunk-signature=0\r\n\r\n"),
			unknown, ""},
		{"a media type", coded("text/plain", file), answers(200, file), "a Content-Encoding that names no coding, over text"},
		{"a character set unknown to us", coded("utf-9", file), unknown, ""},
		{"compress", coded("compress", file), unknown, ""},
		{"deflate, gzip", coded("deflate, gzip", string(encoders["gzip"]([]byte(zl)))), answers(200, file), ""},
		{"deflate, then gzip in another line", okHead + "Content-Encoding: deflate\r\n" +
			coded("gzip", string(encoders["gzip"]([]byte(zl))))[len(okHead):], answers(200, file), ""},
		{"gzip, then nothing in another line", okHead + "Content-Encoding: gzip\r\n" + coded("", gz)[len(okHead):],
			answers(200, file), ""},
		{"gzip, then identity in another line", okHead + "content-encoding: gzip\r\n" + coded("identity", gz)[len(okHead):],
			answers(200, file), ""},
		{"gzip named twice", okHead + "Content-Encoding: gzip\r\n" + coded("gzip", gz)[len(okHead):], corrupt, ""},
		{"gzip, folded", okHead + "Content-Encoding:\r\n gzip\r\n" + "Content-Length: " + strconv.Itoa(len(gz)) + "\r\n\r\n" +
			gz, answers(200, file), "a folded Content-Encoding"},
		{"gzip, a space before the colon", okHead + "Content-Encoding : gzip\r\n" + "Content-Length: " +
			strconv.Itoa(len(gz)) + "\r\n\r\n" + gz, answers(200, file), "white space before the colon of Content-Encoding"},
		{"three codings", coded("gzip, gzip, gzip", gz), nested, ""},
		{"three codings, rightly", coded("gzip, gzip, gzip", string(encoders["gzip"](encoders["gzip"]([]byte(gz))))), nested,
			"more than two codings"},
		{"gzip of nothing", coded("gzip", ""), answers(200, ""), ""},
		{"gzip of nothing until the end", closed("gzip", ""), answers(200, ""), ""},
		{"gzip of no chunks", okHead + "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			answers(200, ""), ""},
		{"br of nothing until the end", closed("br", ""), answers(200, ""), ""},
		{"gzip that is text", coded("gzip", file), corrupt, ""},
		{"gzip that is zlib", coded("gzip", zl), corrupt, "zlib that is called gzip"},
		{"deflate that is gzip", coded("deflate", gz), corrupt, ""},
		{"deflate that is text", coded("deflate", file), corrupt, ""},
		{"br that is text", coded("br", file), corrupt, ""},
		{"zstd that is text", coded("zstd", file), corrupt, ""},
		{"gzip with a wrong sum", coded("gzip", gz[:len(gz)-8]+"abcd"+gz[len(gz)-4:]), corrupt, ""},
		{"gzip with a wrong length", coded("gzip", gz[:len(gz)-4]+"abcd"), corrupt, ""},
		{"deflate with a wrong sum", coded("deflate", zl[:len(zl)-4]+"abcd"), corrupt, ""},
		{"gzip in two members", coded("gzip", gz+gz), answers(200, file+file), "gzip in several members"},
		{"gzip and rubbish", coded("gzip", gz+"rubbish"), answers(200, file), "octets behind a gzip or zlib body"},
		{"gzip and zeros", coded("gzip", gz+"\x00\x00\x00"), answers(200, file), "octets behind a gzip or zlib body"},
		{"deflate and rubbish", coded("deflate", zl+"rubbish"), answers(200, file), "octets behind a gzip or zlib body"},
		{"deflate without zlib, and rubbish", coded("deflate", raw+"rubbish"), corrupt, ""},
		{"deflate without zlib, and a line end", coded("deflate", raw+"\r\n"), corrupt,
			"up to four octets behind a bare deflate body"},
		{"br and rubbish", coded("br", br+"rubbish"), corrupt, ""},
		{"zstd and rubbish", coded("zstd", zs+"rubbish"), corrupt, ""},
		{"gzip without its end", coded("gzip", gz[:len(gz)-4]), corrupt, "a coding without its end"},
		{"gzip without its half", coded("gzip", gz[:len(gz)/2]), corrupt, "a coding without its end"},
		{"gzip of an octet", coded("gzip", gz[:1]), corrupt, "a coding without its end"},
		{"gzip without its half, until the end", closed("gzip", gz[:len(gz)/2]), inBody, "a coding without its end"},
		{"deflate without its half, until the end", closed("deflate", zl[:len(zl)/2]), inBody, "a coding without its end"},
		{"bare deflate without its half, until the end", closed("deflate", raw[:len(raw)/2]), inBody,
			"a coding without its end"},
		{"br without its half, until the end", closed("br", br[:len(br)/2]), inBody, "a coding without its end"},
		{"zstd without its half, until the end", closed("zstd", zs[:len(zs)/2]), inBody, "a coding without its end"},
		{"gzip in gzip, the inner without its end", closed("gzip, gzip", string(encoders["gzip"]([]byte(gz[:len(gz)/2])))),
			corrupt, "a coding without its end"},
		{"gzip with fewer octets than said", okHead + "Content-Encoding: gzip\r\nContent-Length: 500\r\n\r\n" + gz,
			answers(200, file), "a coded body that its checksum proves whole, and then less than announced"},
		{"206 with gzip", "HTTP/1.1 206 x\r\n" + coded("gzip", gz)[len(okHead):], answers(206, file), ""},
	}
}

// curlVersion is the version that `differs` and docs/divergences.md describe.
const curlVersion = "7.88"

// TestReadings checks each reading, and compares it with curl if this machine has it.
func TestReadings(t *testing.T) {
	noLeaks(t)
	cases := readings()
	host := func(i int) string { return fmt.Sprintf("reading-%d.example", i) }
	addr := serve(t, func(conn net.Conn) {
		_, after, ok := strings.Cut(readRequest(conn), "Host: reading-")
		if number, _, _ := strings.Cut(after, "."); ok {
			i, err := strconv.Atoi(number)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, cases[i].wire)
		}
		// Closing outright could reset the connection before the client has read all.
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	})
	f := newFetcher(t, testConfig(addr))
	got := make([]row, len(cases))
	for i, c := range cases {
		r, _ := fetch(t, f, "http://"+host(i))
		if got[i] = rowOf(r); got[i] != c.want {
			t.Errorf("%s: got %v (%v) %d %.80q, want %v (%v) %d %.80q", c.name, got[i].outcome, got[i].cause, got[i].status,
				got[i].body,
				c.want.outcome, c.want.cause, c.want.status, c.want.body)
		}
		r.Reset()
	}

	t.Run("document", func(t *testing.T) { curlDocument(t, cases) })
	t.Run("curl", func(t *testing.T) {
		hosts := make([]string, len(cases))
		for i := range hosts {
			hosts[i] = host(i)
		}
		version, said := askCurl(t, addr, hosts)
		wrong := 0
		report := t.Errorf
		if !strings.HasPrefix(version, "curl "+curlVersion+".") {
			// Versions of curl differ. Differences of another version are only logged, unless there are many.
			report = t.Logf
			t.Logf("SKIPPED: differences of this curl, which is not %s, are no failures", curlVersion)
		}
		for i, said := range said {
			ours := got[i]
			refused := ours.outcome != exchange.Answered && ours.outcome != exchange.RedirectInvalid
			same := refused == (said.exit != 0)
			if same && !refused {
				same = ours.status == said.status && (ours.status/100 != 2 || ours.body == said.body)
			}
			if c := cases[i]; same != (c.differs == "") {
				wrong++
				report("%s: the same as curl: %v; ours %v (%v) %d %.80q, curl's exit %d, status %d, %.80q", c.name, same,
					ours.outcome, ours.cause, ours.status, ours.body, said.exit, said.status, said.body)
			}
		}
		if wrong > len(cases)/10 {
			t.Errorf("for %d of %d responses the table is wrong about curl", wrong, len(cases))
		}
	})
}

var update = flag.Bool("update", false, "write docs/CURL.md")

// curlDocument compares docs/CURL.md with the table, whose rows are those that the readings name.
func curlDocument(t *testing.T, cases []reading) {
	var b strings.Builder
	fmt.Fprintf(&b, `# Where curl reads HTTP in another way

<!-- Generated: go test ./fetcher -run TestReadings/document -update -->

Servers that break RFC 9110 or RFC 9112 are read as curl %s reads them, but for these. `+"`fetcher/readings_test.go`"+` has every
reading, and compares them with the curl at hand.

| what comes | here | curl |
|---|---|---|
`, curlVersion)
	known := map[string]bool{}
	for _, d := range differences {
		known[d.what] = true
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.what, d.here, d.curl)
		if !slices.ContainsFunc(cases, func(c reading) bool { return c.differs == d.what }) {
			t.Errorf("no reading shows the difference %q", d.what)
		}
	}
	for _, c := range cases {
		if c.differs != "" && !known[c.differs] {
			t.Errorf("%s: there is no difference %q", c.name, c.differs)
		}
	}
	const path = "../docs/CURL.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != b.String() {
		t.Errorf("%s is out of date; make generate writes it (%v)", path, err)
	}
}

// curled is curl's result for a response.
type curled struct {
	exit, status int
	body         string
}

// askCurl requests each host's file by curl, with the fields of our requests. curl decodes codings, as we do.
func askCurl(t *testing.T, addr netip.AddrPort, hosts []string) (version string, answers []curled) {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("SKIPPED: curl is not on PATH, so nothing was compared with it")
	}
	features, err := exec.Command(curl, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range []string{"HTTP2", "brotli", "libz", "zstd"} {
		if !bytes.Contains(features, []byte(feature)) {
			t.Skipf("SKIPPED: this curl has no %s, so nothing was compared with it", feature)
		}
	}
	for len(answers) < len(hosts) {
		folder := t.TempDir()
		var config, out bytes.Buffer
		for _, host := range hosts[len(answers):] {
			fmt.Fprintf(&config, "url = http://%s/robots.txt\noutput = %s\n", host, strconv.Quote(filepath.Join(folder, host)))
		}
		command := exec.Command(curl, "-q", "--config", "-", "--silent", "--http1.1", "--compressed", "--noproxy", "*",
			"--max-time", fmt.Sprint(hang.Seconds()),
			"--header", "Accept-Encoding: identity", "--header", "Connection: close", "--connect-to", "::"+addr.String(),
			"--write-out", "%{exitcode} %{http_code}\n")
		command.Stdin, command.Stdout = &config, &out
		// the error is the last transfer's; some failures end curl early, and then it runs again for the rest
		_ = command.Run()
		if out.Len() == 0 {
			t.Fatalf("curl has answered %d of %d times", len(answers), len(hosts))
		}
		for out.Len() > 0 {
			var said curled
			if _, err := fmt.Fscanln(&out, &said.exit, &said.status); err != nil {
				t.Fatal(err)
			}
			body, err := os.ReadFile(filepath.Join(folder, hosts[len(answers)]))
			if err != nil && !os.IsNotExist(err) { // curl makes no file for an empty body
				t.Fatal(err)
			}
			said.body = string(body)
			answers = append(answers, said)
		}
	}
	version, _, _ = strings.Cut(string(features), "\n")
	t.Logf("%d responses were compared with %.60s", len(hosts), version)
	return version, answers
}

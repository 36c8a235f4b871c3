package warc

import (
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Exchange is one exchange to be written. The Writer keeps none of its bytes.
type Exchange struct {
	URI       string // that was asked, absolute and ASCII, without line ends
	Date      time.Time
	IP        netip.Addr // invalid: unknown
	Protocols []string   // as in "http/1.1", "tls/1.3"; without line ends
	Request   []byte     // as sent, head and body; nil if nothing was sent
	Response  []byte     // as received, head and body; nil if nothing was received
	Payload   int        // offset of the body in Response; its length if there is no body
	NoHTTP    bool       // Response is no HTTP response, or has no whole head
	Truncated Truncation // of Response
	Metadata  []byte     // fields about the exchange, a line each; nil: none
}

// Writer writes exchanges to WARC 1.1 files, each record in a gzip member of its own. Its errors are those of the
// file. The zero value is not usable. A Writer is not safe for concurrent use.
//
// The same exchanges in the same order give the same bytes: a record's id is a hash of its content and place.
type Writer struct {
	Software string // for the warcinfo of each file; without line ends

	out   io.Writer
	size  int64
	count int
	name  string
	info  id // of the file's warcinfo

	gzip *gzip.Writer
	head []byte
}

// id is a record's: a UUID of version 5.
type id [16]byte

// NewWriter returns a Writer. Begin gives it a file.
func NewWriter(software string) *Writer {
	w := &Writer{Software: software}
	w.gzip, _ = gzip.NewWriterLevel(nil, level) // the error is for unknown levels only
	return w
}

// level of compression. Higher levels take twice the time and save a few per cent.
const level = 5

// Begin starts a file and writes its warcinfo. Record ids depend on the name, which should be unique.
func (w *Writer) Begin(out io.Writer, name string, at time.Time) error {
	w.out, w.size, w.count, w.name, w.info = out, 0, 0, name, id{}
	block := []byte("software: " + w.Software + "\r\nformat: WARC File Format 1.1\r\n" +
		"conformsTo: http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n")
	w.info = w.id(Info, name, at, sha1.Sum(block))
	w.start(Info, w.info, at)
	w.field("WARC-Filename", name)
	return w.end("application/warc-fields", block)
}

// Size returns the size of the file so far, in bytes.
func (w *Writer) Size() int64 { return w.size }

// Write writes the request, response and metadata of an exchange, where present.
func (w *Writer) Write(x *Exchange) error {
	var request, response id
	var requestSum, responseSum [sha1.Size]byte
	if x.Request != nil {
		requestSum = sha1.Sum(x.Request)
		request = w.id(Request, x.URI, x.Date, requestSum)
	}
	if x.Response != nil {
		responseSum = sha1.Sum(x.Response)
		response = w.id(Response, x.URI, x.Date, responseSum)
	}
	if x.Request != nil {
		w.begin(Request, request, x, response)
		w.digest("WARC-Block-Digest", requestSum)
		if err := w.end("application/http; msgtype=request", x.Request); err != nil {
			return err
		}
	}
	if x.Response != nil {
		w.begin(Response, response, x, request)
		if x.Truncated != Whole {
			w.field("WARC-Truncated", x.Truncated.String())
		}
		w.digest("WARC-Block-Digest", responseSum)
		w.digest("WARC-Payload-Digest", sha1.Sum(x.Response[x.Payload:]))
		contentType := "application/http; msgtype=response"
		if x.NoHTTP {
			contentType = "application/octet-stream"
		}
		if err := w.end(contentType, x.Response); err != nil {
			return err
		}
	}
	if x.Metadata == nil {
		return nil
	}
	sum := sha1.Sum(x.Metadata)
	w.begin(Metadata, w.id(Metadata, x.URI, x.Date, sum), x, response)
	w.digest("WARC-Block-Digest", sum)
	return w.end("application/warc-fields", x.Metadata)
}

// begin starts the head of a record; other is the id of the exchange's other record.
func (w *Writer) begin(t Type, own id, x *Exchange, other id) {
	w.start(t, own, x.Date)
	w.field("WARC-Target-URI", x.URI)
	if x.IP.IsValid() {
		w.head = append(w.head, "WARC-IP-Address: "...)
		w.head = append(x.IP.AppendTo(w.head), "\r\n"...)
	}
	for _, protocol := range x.Protocols {
		w.field("WARC-Protocol", protocol)
	}
	if other != (id{}) {
		w.uuid("WARC-Concurrent-To", other)
	}
	w.uuid("WARC-Warcinfo-ID", w.info)
}

// start begins a head.
func (w *Writer) start(t Type, own id, at time.Time) {
	w.head = append(w.head[:0], "WARC/1.1\r\n"...)
	w.field("WARC-Type", t.String())
	w.uuid("WARC-Record-ID", own)
	w.head = append(w.head, "WARC-Date: "...)
	w.head = at.UTC().AppendFormat(w.head, "2006-01-02T15:04:05.000Z")
	w.head = append(w.head, "\r\n"...)
}

func (w *Writer) field(name, value string) {
	w.head = append(append(append(append(w.head, name...), ": "...), value...), "\r\n"...)
}

func (w *Writer) uuid(name string, u id) {
	w.head = append(append(w.head, name...), ": <urn:uuid:"...)
	for i, group := range [][]byte{u[0:4], u[4:6], u[6:8], u[8:10], u[10:16]} {
		if i > 0 {
			w.head = append(w.head, '-')
		}
		w.head = hex.AppendEncode(w.head, group)
	}
	w.head = append(w.head, ">\r\n"...)
}

func (w *Writer) digest(name string, sum [sha1.Size]byte) {
	w.head = append(append(w.head, name...), ": sha1:"...)
	w.head = base32.StdEncoding.AppendEncode(w.head, sum[:])
	w.head = append(w.head, "\r\n"...)
}

// id returns the id of the file's next record.
func (w *Writer) id(t Type, uri string, at time.Time, block [sha1.Size]byte) (u id) {
	w.count++
	w.head = append(append(w.head[:0], w.name...), 0)
	w.head = binary.BigEndian.AppendUint64(w.head, uint64(w.count))
	w.head = binary.BigEndian.AppendUint64(w.head, uint64(at.UnixNano()))
	w.head = append(append(w.head, byte(t)), uri...)
	sum := sha1.Sum(append(w.head, block[:]...))
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 5<<4 // version 5: made of a SHA-1 (RFC 9562 §5.5)
	u[8] = u[8]&0x3f | 0x80
	return u
}

// end completes the head and writes the record.
func (w *Writer) end(contentType string, block []byte) error {
	w.field("Content-Type", contentType)
	w.head = append(w.head, "Content-Length: "...)
	w.head = append(strconv.AppendInt(w.head, int64(len(block)), 10), "\r\n\r\n"...)
	w.gzip.Reset((*counted)(w))
	for _, piece := range [...][]byte{w.head, block, recordEnd} {
		if _, err := w.gzip.Write(piece); err != nil {
			return err
		}
	}
	return w.gzip.Close()
}

var recordEnd = []byte("\r\n\r\n")

// counted counts the bytes of a Writer's file.
type counted Writer

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.size += int64(n)
	return n, err
}

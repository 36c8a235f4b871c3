package replay

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/netip"
	"strings"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/warc"
)

// infoField returns the first value of a field of a warcinfo, at most 100 bytes; nil if it has none.
func infoField(info []byte, name string) []byte {
	for line := range bytes.Lines(info[:min(len(info), 4<<10)]) {
		if key, value, _ := bytes.Cut(line, []byte{':'}); strings.EqualFold(string(key), name) {
			value = bytes.TrimSpace(value)
			return value[:min(len(value), 100)]
		}
	}
	return nil
}

// skipped is the reason for records that were not meant to be captures of a robots.txt.
const skipped = "no capture"

// capture reads a record of an archive. The item has memory of its own.
func capture(rec *warc.Record) (it item) {
	it.offset = rec.Offset
	kind, _, _ := bytes.Cut(rec.ContentType, []byte{';'})
	if rec.Type != warc.Response && rec.Type != warc.Revisit || !answers[strings.ToLower(string(bytes.TrimSpace(kind)))] {
		it.reason = skipped
		return it
	}
	var ok bool
	it.input = []byte(strings.ToValidUTF8(string(rec.TargetURI[:min(len(rec.TargetURI), inputs.MaxInput)]), ""))
	it.url, ok = fetcher.ParseTarget(string(rec.TargetURI))
	switch {
	case !ok:
		it.reason = "its target is no http or https URL that can be asked"
	case !rec.Segmented && rec.Type != warc.Revisit:
	case it.url.Path != "":
		it.reason = skipped
	case rec.Segmented:
		it.reason = "one of several segments of a record, which are not joined"
	default:
		it.reason = "a revisit, whose body is that of another record"
	}
	if it.reason != "" {
		return it
	}
	it.block, it.when = bytes.Clone(rec.Block), rec.Date()
	ending := endings[rec.Truncated]
	if rec.Length > int64(len(rec.Block)) && ending == fetcher.Whole {
		ending = fetcher.CutOff
	}
	it.flags = flags(ending) << endingShift
	if len(rec.IP) <= len("0000:0000:0000:0000:0000:ffff:255.255.255.255") {
		addr, _ := netip.ParseAddr(string(rec.IP)) // an invalid address counts as unknown
		it.addr = addr.AsSlice()
	}
	for _, protocol := range rec.Protocols {
		switch string(protocol) {
		case "h2":
			it.proto = []byte("HTTP/2")
		case "h3":
			it.proto = []byte("HTTP/3")
		default:
			if version, is := tlsVersions[string(protocol)]; is {
				it.tls = uint64(version)
			}
		}
	}
	return it
}

// damage is a stretch of an archive that could not be read.
func damage(b warc.Broken) item {
	it := item{reason: fmt.Sprintf("%s: bytes %d to %d are passed over", b.Reason, b.Offset, b.Offset+b.Bytes),
		broken: b.Records, offset: b.Offset}
	if b.Records > 0 {
		it.reason += fmt.Sprintf(", but for %d records at their beginning, which may be wrong", b.Records)
	}
	return it
}

// settles reports whether the status of a response says whether robots.txt exists. See the package comment.
func settles(status string, ending fetcher.Ending) bool {
	if status == "" || status == "408" || status == "429" {
		return false
	}
	return status[0] == '4' || status[0] == '2' && ending != fetcher.TimedOut && ending != fetcher.Disconnected
}

// answers are the block types of HTTP responses. Other responses are those of name servers or FTP.
var answers = map[string]bool{"application/http": true, "application/octet-stream": true, /* what is no HTTP */
	"": true}

// endings maps truncations: a response that a scan would not have received whole has failed.
var endings = [...]fetcher.Ending{
	warc.Whole: fetcher.Whole, warc.CutAtLength: fetcher.CutOff, warc.CutUnspecified: fetcher.CutOff,
	warc.CutAtTime: fetcher.TimedOut, warc.CutByDisconnect: fetcher.Disconnected,
}

// tlsVersions are the values of WARC-Protocol that name a version of TLS.
var tlsVersions = map[string]uint16{
	"tls/1.0": tls.VersionTLS10, "tls/1.1": tls.VersionTLS11, "tls/1.2": tls.VersionTLS12, "tls/1.3": tls.VersionTLS13,
}

// statusOf returns the status at the start of a response, or "".
func statusOf(block []byte) string {
	const name = "HTTP/" // case is ignored, as in the fetcher
	line := block[:min(len(block), 32)]
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return ""
	}
	_, rest, _ := bytes.Cut(line, []byte{' '})
	rest = bytes.TrimLeft(rest, " ")
	return string(rest[:min(len(rest), len("200"))])
}

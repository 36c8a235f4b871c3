package replay

import (
	"bytes"
	"crypto/tls"
	"net/netip"
	"strings"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/warc"
)

// capture is the record of a response. It views the record's bytes.
type capture struct {
	target   exchange.Target
	recorded fetcher.Recorded
}

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

// skipRecord is the reason for records that were not meant to be captures.
const skipRecord = "no capture"

// readCapture parses a record. It returns the reason if the record is no capture, with the target where it is known.
func readCapture(rec *warc.Record) (c capture, reason string) {
	if rec.Type != warc.Response && rec.Type != warc.Revisit {
		return c, skipRecord
	}
	if kind, _, _ := bytes.Cut(rec.ContentType, []byte{';'}); !answers[strings.ToLower(string(bytes.TrimSpace(kind)))] {
		return c, skipRecord
	}
	var ok bool
	if c.target, ok = fetcher.ParseTarget(string(rec.TargetURI)); !ok {
		return c, "its target is no http or https URL that can be asked"
	}
	switch {
	case rec.Segmented:
		return c, "one of several segments of a record, which are not joined"
	case rec.Type == warc.Revisit:
		return c, "a revisit, whose body is that of another record"
	}
	c.recorded = fetcher.Recorded{Block: rec.Block, Ending: endings[rec.Truncated], At: rec.Date()}
	if rec.Length > int64(len(rec.Block)) && c.recorded.Ending == fetcher.Whole {
		c.recorded.Ending = fetcher.CutOff
	}
	if len(rec.IP) <= len("0000:0000:0000:0000:0000:ffff:255.255.255.255") {
		c.recorded.Addr, _ = netip.ParseAddr(string(rec.IP)) // an invalid address counts as unknown
	}
	for _, protocol := range rec.Protocols {
		switch string(protocol) {
		case "h2":
			c.recorded.Proto = "HTTP/2"
		case "h3":
			c.recorded.Proto = "HTTP/3"
		default:
			if version, is := tlsVersions[string(protocol)]; is {
				c.recorded.TLSVersion = version
			}
		}
	}
	return c, ""
}

// settles reports whether the status of a response says whether robots.txt exists. See the package comment.
func settles(block []byte, ending fetcher.Ending) bool {
	status := string(statusOf(block))
	if status == "" || status == "408" || status == "429" {
		return false
	}
	return status[0] == '4' || status[0] == '2' && ending != fetcher.TimedOut && ending != fetcher.Disconnected
}

// answers are the block types of HTTP responses. Other responses are those of name servers or FTP.
var answers = map[string]bool{"application/http": true, "application/octet-stream": true /* what is no HTTP */, "": true}

// endings maps truncations: a response that a scan would not have received whole has failed.
var endings = [...]fetcher.Ending{
	warc.Whole: fetcher.Whole, warc.CutAtLength: fetcher.CutOff, warc.CutUnspecified: fetcher.CutOff,
	warc.CutAtTime: fetcher.TimedOut, warc.CutByDisconnect: fetcher.Disconnected,
}

// tlsVersions are the values of WARC-Protocol that name a version of TLS.
var tlsVersions = map[string]uint16{
	"tls/1.0": tls.VersionTLS10, "tls/1.1": tls.VersionTLS11, "tls/1.2": tls.VersionTLS12, "tls/1.3": tls.VersionTLS13,
}

// statusOf returns the status at the start of a response, or nil.
func statusOf(block []byte) []byte {
	const name = "HTTP/" // case is ignored, as in the fetcher
	line := block[:min(len(block), 32)]
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil
	}
	_, rest, _ := bytes.Cut(line, []byte{' '})
	rest = bytes.TrimLeft(rest, " ")
	return rest[:min(len(rest), len("200"))]
}

package fetcher

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// corked is a connection that holds written bytes and sends them at once. So a body's last bytes and the alert after
// them arrive together, and crypto/tls returns both from one Read.
type corked struct {
	net.Conn
	held bytes.Buffer
	cork bool
}

// Write implements io.Writer.
func (c *corked) Write(p []byte) (int, error) {
	if c.cork {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

// A body is complete when its framing says so, however the connection ends afterwards. Without framing it is complete
// when the connection ends between two records.
func TestBodyOverTLS(t *testing.T) {
	ca := newAuthority(t)
	cert := ca.certificate(t, "example.com", nil)
	line := "Disallow: /" + strings.Repeat("x", 88) + "\n"
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, size := range []int{1, 100, 4_000, 16_000, 16_400, 70_000, 300_000, 512_000 - 12} {
			body := strings.Repeat(line, size/len(line)+1)[:size]
			half := len(body) / 2
			chunks := strconv.FormatInt(int64(half), 16) + "\r\n" + body[:half] + "\r\n"
			if half == 0 {
				chunks = ""
			}
			chunks += strconv.FormatInt(int64(len(body)-half), 16) + "\r\n" + body[half:] + "\r\n0\r\n\r\n"
			f := func(name, answer string, end func(*tls.Conn, *corked), want row) {
				t.Helper()
				synctest.Test(t, func(t *testing.T) {
					t.Helper()
					cfg := site(t, 0, func(conn net.Conn) {
						under := &corked{Conn: conn}
						server := tls.Server(under, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: version,
							MaxVersion: version})
						if server.Handshake() != nil {
							return
						}
						readRequest(server)
						under.cork = true
						_, _ = io.WriteString(server, answer)
						end(server, under)
						_ = conn.SetWriteDeadline(time.Time{}) // CloseWrite leaves one
						_, _ = conn.Write(under.held.Bytes())
						_ = conn.(stream).CloseWrite()
						silent(conn)
					})
					cfg.Roots = ca.pool()
					r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
					if got := rowOf(r); got != want || r.Truncated || r.Timing.Total != 0 {
						t.Errorf("TLS %x, %s, %d bytes: got %v (%v) %d, %d bytes after %v", version, name, size, got.outcome, got.cause,
							got.status, len(got.body), r.Timing.Total)
					}
					r.Reset()
				})
			}
			notified := func(c *tls.Conn, _ *corked) { _ = c.CloseWrite() }
			nothing := func(*tls.Conn, *corked) {}
			whole, length := answers(200, body), "Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"
			f("by length", okHead+length+body, notified, whole)
			f("by length, no close_notify", okHead+length+body, nothing, whole)
			f("by chunks", okHead+"Transfer-Encoding: chunked\r\n\r\n"+chunks, notified, whole)
			f("by chunks, no close_notify", okHead+"Transfer-Encoding: chunked\r\n\r\n"+chunks, nothing, whole)
			f("until close", okHead+"\r\n"+body, notified, whole)
			f("until close, no close_notify", okHead+"\r\n"+body, nothing, whole)
			short := row{exchange.ClosedEarly, exchange.CauseClosedInBody, 200, ""}
			f("short of its length", okHead+"Content-Length: "+strconv.Itoa(len(body)+1)+"\r\n\r\n"+body, notified, short)
			f("without the last chunk", okHead+"Transfer-Encoding: chunked\r\n\r\n"+strings.TrimSuffix(chunks, "0\r\n\r\n"),
				notified, short)
			torn := func(_ *tls.Conn, c *corked) { c.held.Truncate(c.held.Len() - 3) }
			if size >= 4_000 { // smaller bodies share a record with the head
				f("until close, within a record", okHead+"\r\n"+body, torn, short)
			}
			// A broken record after the body does not matter.
			broken := func(_ *tls.Conn, c *corked) { c.held.WriteString("\x15\x03\x03\x00\x02\x02\x50") }
			f("by length, then a broken alert", okHead+length+body, broken, whole)
		}
	}
}

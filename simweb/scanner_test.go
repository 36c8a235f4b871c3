package simweb

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// plainScanner is the simplest scanner that knows all outcomes. It blocks, and shares no code with Expect, which it
// must agree with.
type plainScanner struct {
	web    *Web
	policy Policy
}

// The scanner's time-outs: for a name, before a question is repeated, for a connection, and for each part of an
// exchange.
const (
	nameTime  = 10 * time.Second
	askAgain  = time.Second
	dialTime  = 5 * time.Second
	stageTime = 15 * time.Second
)

// found is a scan's result in a comparable form.
type found struct {
	Outcome   exchange.Outcome
	Status    int
	Hops      int
	Truncated bool
	Bytes     int64
	Hash      uint64
	Scheme    origin.Scheme
	Verified  exchange.Tristate
}

// same reports whether the scanner found what Expect says.
func (e Expect) same(f found) bool {
	return slices.Contains(e.Outcomes, f.Outcome) && e.Status == f.Status && e.Hops == f.Hops &&
		e.Truncated == f.Truncated && e.BodyBytes == f.Bytes && e.BodyHash == f.Hash &&
		e.FinalScheme == f.Scheme && (e.Status == 0 || e.TLSVerified == f.Verified)
}

func (s *plainScanner) scan(o origin.Origin) found {
	var f found
	for range s.policy.Retries + 1 {
		f = s.try(o)
		if !(f.Outcome == exchange.Answered && (f.Status >= 500 || f.Status == 408 || f.Status == 429) ||
			f.Outcome.Transient()) {
			break
		}
	}
	return f
}

func (s *plainScanner) try(o origin.Origin) found {
	if o.Scheme() != origin.Auto {
		return s.follow(o)
	}
	order := []origin.Scheme{origin.HTTPS, origin.HTTP}
	if s.policy.HTTPFirst {
		slices.Reverse(order)
	}
	first := s.follow(o.As(order[0]))
	if s.policy.NoFallback || first.Status != 0 || first.Hops > 0 || !first.Outcome.FallsBack() {
		return first
	}
	if other := s.follow(o.As(order[1])); other.Status != 0 || other.Hops > 0 {
		return other
	}
	return first
}

func (s *plainScanner) follow(o origin.Origin) found {
	at, _ := url.Parse(o.String() + "/robots.txt")
	asked := []string{at.String()}
	for hops := 0; ; hops++ {
		f, location := s.ask(at)
		f.Hops = hops
		if f.Outcome != exchange.Answered || !slices.Contains([]int{301, 302, 303, 307, 308}, f.Status) {
			return f
		}
		next, err := at.Parse(location)
		if location == "" || len(location) > 8<<10 || err != nil || next.Scheme != "http" && next.Scheme != "https" ||
			next.User != nil {
			f.Outcome = exchange.RedirectInvalid
			return f
		}
		next.Fragment = ""
		if hops == s.policy.MaxRedirects || slices.Contains(asked, next.String()) {
			f.Outcome = exchange.RedirectLimit
			return f
		}
		asked = append(asked, next.String())
		at = next
	}
}

func (s *plainScanner) ask(at *url.URL) (f found, location string) {
	f.Scheme = origin.HTTP
	port := s.web.HTTPPort()
	if at.Scheme == "https" {
		f.Scheme, port = origin.HTTPS, s.web.TLSPort()
	}
	raw, outcome, err := s.dial(at.Hostname(), uint16(port))
	if outcome != 0 {
		f.Outcome = outcome
		return f, ""
	}
	if err != nil {
		var waited net.Error
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			f.Outcome = exchange.ConnectRefused
		case errors.As(err, &waited) && waited.Timeout():
			f.Outcome = exchange.ConnectTimeout
		default:
			f.Outcome = exchange.ConnectFailed
		}
		return f, ""
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(stageTime))
	conn := raw
	if f.Scheme == origin.HTTPS {
		secure := tls.Client(raw, &tls.Config{ServerName: at.Hostname(), InsecureSkipVerify: true,
			NextProtos: []string{"http/1.1"}})
		if err := secure.Handshake(); err != nil {
			f.Outcome = classify(err, exchange.TLSFailed)
			return f, ""
		}
		conn = secure
		f.Verified = exchange.No
		certificate := secure.ConnectionState().PeerCertificates[0]
		if _, err := certificate.Verify(verifyOptions(s.web, at.Hostname())); err == nil && s.policy.TrustCA {
			f.Verified = exchange.Yes
		}
		if s.policy.StrictTLS && f.Verified != exchange.Yes {
			f.Outcome = exchange.TLSFailed
			return f, ""
		}
	}
	_ = raw.SetDeadline(time.Now().Add(stageTime))
	if _, err := io.WriteString(conn, "GET "+at.RequestURI()+" HTTP/1.1\r\nHost: "+at.Host+
		"\r\nUser-Agent: test\r\n\r\n"); err != nil {
		f.Outcome = classify(err, exchange.Reset)
		return f, ""
	}
	head := &io.LimitedReader{R: conn, N: 100 << 10}
	reader := bufio.NewReader(head)
	var response *http.Response
	for interim := 0; ; interim++ {
		text, err := readHead(reader)
		switch {
		case head.N == 0:
			f.Outcome = exchange.HeaderTooLarge
		case !strings.HasPrefix(text, "HTTP/"[:min(5, len(text))]):
			f.Outcome = exchange.BadResponse
		case err != nil:
			f.Outcome = classify(err, exchange.BadResponse)
		default:
			reader = bufio.NewReader(io.MultiReader(strings.NewReader(text), reader))
			if response, err = http.ReadResponse(reader, nil); err != nil {
				f.Outcome = exchange.BadResponse
				if strings.Contains(err.Error(), "transfer encoding") {
					f.Outcome = exchange.BadEncoding
				}
				if status := wholeStatus.FindStringSubmatch(text); status != nil {
					f.Status, _ = strconv.Atoi(status[1])
					if f.Status >= 300 { // its body does not matter
						f.Outcome = exchange.Answered
					}
				}
			}
		}
		if f.Outcome != 0 {
			if to := wholeLocation.FindStringSubmatch(text); to != nil {
				return f, to[1]
			}
			return f, ""
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			break
		}
		if interim > 20 {
			f.Outcome = exchange.BadResponse
			return f, ""
		}
	}
	head.N = 1 << 40
	_ = raw.SetDeadline(time.Now().Add(stageTime))
	f.Outcome, f.Status = exchange.Answered, response.StatusCode
	if f.Status < 200 || f.Status > 599 {
		f.Outcome = exchange.BadResponse
	}
	if f.Outcome == exchange.Answered && f.Status <= 299 {
		s.read(response, &f)
	}
	return f, response.Header.Get("Location")
}

// wholeStatus matches the beginning of a head with a usable status, whatever follows.
var wholeStatus = regexp.MustCompile(`^HTTP/1\.[01] ([2-5]\d\d) `)

// wholeLocation matches a Location in a head.
var wholeLocation = regexp.MustCompile(`(?m)^Location: (.*?)\r$`)

// readHead reads up to and including an empty line.
func readHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\n" || line == "\r\n" {
			return head.String(), err
		}
	}
}

func (s *plainScanner) read(response *http.Response, f *found) {
	codings := strings.FieldsFunc(response.Header.Get("Content-Encoding"), func(r rune) bool {
		return r == ',' ||
			r == ' '
	})
	most := s.policy.MaxBody + 1
	if len(codings) > 0 {
		most *= 2 // a coding may lengthen a short file
	}
	all, err := io.ReadAll(io.LimitReader(response.Body, most))
	unframed := response.ContentLength < 0 && response.TransferEncoding == nil
	if unframed && errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // closed without close_notify
	}
	if err != nil && int64(len(all)) <= s.policy.MaxBody && !summed(codings, all, most) {
		f.Outcome = classify(err, exchange.BadResponse)
		return
	}
	if len(codings) > 2 {
		f.Outcome = exchange.BadEncoding
		return
	}
	for _, coding := range slices.Backward(codings) {
		if len(all) > 0 {
			if all, err = decode(coding, all, most); err != nil && int64(len(all)) <= s.policy.MaxBody {
				f.Outcome = exchange.BadEncoding
				if unframed && errors.Is(err, io.ErrUnexpectedEOF) {
					f.Outcome = exchange.ClosedEarly
				}
				return
			}
		}
	}
	if int64(len(all)) > s.policy.MaxBody {
		all, f.Truncated = all[:s.policy.MaxBody], true
		all = all[:1+bytes.LastIndexAny(all, "\r\n")]
	}
	if f.Bytes = int64(len(all)); f.Bytes > 0 {
		f.Hash = xxhash.Sum64(all)
	}
}

// summed reports whether a body in one coding ends in a right checksum.
func summed(codings []string, data []byte, most int64) bool {
	if len(codings) != 1 || len(data) < 5 {
		return false
	}
	if _, err := decode(codings[0], data, most); err != nil {
		return false
	}
	return codings[0] == "gzip" || codings[0] == "deflate" && data[0] == 0x78 || codings[0] == "zstd" && data[4]&4 != 0
}

// decode undoes one coding, up to a bound.
func decode(coding string, data []byte, most int64) ([]byte, error) {
	var body io.Reader = bytes.NewReader(data)
	var err error
	switch coding {
	case "identity":
	case "UTF-8", "aws-chunked":
		if !utf8.Valid(data) {
			err = errors.New("no text")
		}
	case "gzip":
		body, err = gzip.NewReader(body)
	case "deflate":
		if body, err = zlib.NewReader(body); errors.Is(err, zlib.ErrHeader) {
			body, err = flate.NewReader(bytes.NewReader(data)), nil
		}
	case "br":
		body = brotli.NewReader(body)
	case "zstd":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(body); err == nil {
			defer z.Close()
			body = z
		}
	default:
		err = errors.New("unknown coding")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(body, most))
}

func classify(err error, otherwise exchange.Outcome) exchange.Outcome {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return exchange.Timeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return exchange.Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return exchange.ClosedEarly
	}
	return otherwise
}

// dial tries the first two addresses of a host in turn, IPv4 first, and IPv6 if no IPv4 address accepts.
func (s *plainScanner) dial(host string, port uint16) (conn net.Conn, outcome exchange.Outcome, err error) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		addrs, missing := s.lookup(host, qtype)
		if missing != 0 && (qtype == dns.TypeA || err == nil) {
			outcome = missing
		}
		for _, addr := range addrs[:min(len(addrs), 2)] {
			if s.policy.Guarded && (addr.IsLoopback() || addr.IsUnspecified()) {
				return nil, exchange.BlockedAddress, nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), dialTime)
			conn, err = clientOf(s.web).DialContext(ctx, "tcp", netip.AddrPortFrom(addr, port).String())
			cancel()
			if err == nil {
				return conn, 0, nil
			}
			outcome = 0
		}
		if outcome != 0 && outcome != exchange.DNSNotFound || isAddr(host) {
			break
		}
	}
	return nil, outcome, err
}

func (s *plainScanner) lookup(host string, qtype uint16) (addrs []netip.Addr, outcome exchange.Outcome) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, 0
	}
	answer, err := s.question(host, qtype)
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, exchange.DNSTimeout
	case err != nil:
		return nil, exchange.DNSFailed
	case answer.Rcode == dns.RcodeNameError:
		return nil, exchange.DNSNotFound
	case answer.Rcode != dns.RcodeSuccess:
		return nil, exchange.DNSFailed
	}
	// An unbroken chain of aliases must lead to the addresses.
	name := strings.ToLower(dns.Fqdn(host))
	for _, rr := range answer.Answer {
		if strings.ToLower(rr.Header().Name) != name {
			continue
		}
		switch rr := rr.(type) {
		case *dns.CNAME:
			name = strings.ToLower(rr.Target)
		case *dns.A:
			addr, _ := netip.AddrFromSlice(rr.A.To4())
			addrs = append(addrs, addr)
		case *dns.AAAA:
			addr, _ := netip.AddrFromSlice(rr.AAAA)
			addrs = append(addrs, addr)
		}
	}
	if addrs == nil {
		return nil, exchange.DNSNotFound
	}
	return addrs, 0
}

// question asks about a name by UDP, repeatedly if necessary, and by TCP if the answer is truncated. It ignores answers
// to other questions.
func (s *plainScanner) question(host string, qtype uint16) (answer *dns.Msg, err error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(host), qtype)
	conn := askName(s.web, q)
	defer conn.Close()
	for range int(nameTime / askAgain) {
		_ = conn.SetReadDeadline(time.Now().Add(askAgain))
		for {
			if answer, err = nextAnswer(conn); err != nil {
				break
			}
			if answer.Id != q.Id || len(answer.Question) != 1 || answer.Question[0] != q.Question[0] {
				continue
			}
			if !answer.Truncated {
				return answer, nil
			}
			return askNameByTCP(s.web, q)
		}
		send(conn, q)
	}
	return nil, err
}

// askName sends a question to a web's name server, from a socket of its own.
func askName(w *Web, q *dns.Msg) *memnet.Packets {
	conn, err := clientOf(w).DialPackets(w.DNSAddr())
	if err != nil {
		panic(err) // there is always a free port
	}
	send(conn, q)
	return conn
}

func send(conn *memnet.Packets, q *dns.Msg) {
	packet, _ := q.Pack()
	_, _ = conn.Send([][]byte{packet})
}

// nextAnswer waits for the next packet.
func nextAnswer(conn *memnet.Packets) (*dns.Msg, error) {
	var b [4096]byte
	var size [1]int
	if _, err := conn.Receive([][]byte{b[:]}, size[:]); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(b[:size[0]])
}

func askNameByTCP(w *Web, q *dns.Msg) (*dns.Msg, error) {
	conn, err := clientOf(w).DialContext(context.Background(), "tcp", w.DNSAddr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	m, _, err := new(dns.Client).ExchangeWithConn(q, &dns.Conn{Conn: conn})
	return m, err
}

// trip is how long a packet takes from a client to the web, and back.
const trip = 5 * time.Millisecond

// clientOf is the host from which tests ask a web in memory.
func clientOf(w *Web) memnet.Host {
	return memnet.Host{Net: w.net.(*memnet.Network), Addr: netip.AddrFrom4([4]byte{10, 0, 0, 1})}
}

// inMemory is a network for a web.
func inMemory() Network {
	return memnet.New(func(_, to netip.Addr) memnet.Link {
		if BlackHole(to) {
			return memnet.Link{Latency: -1}
		}
		return memnet.Link{Latency: trip}
	})
}

// testWeb starts a small web in memory that ends with the test.
func testWeb(t testing.TB, cfg Config) *Web {
	t.Helper()
	if cfg.Addresses == 0 {
		cfg.Addresses = 8
	}
	if cfg.Slow == 0 {
		cfg.Slow = 50 * time.Millisecond
	}
	cfg.Network = inMemory()
	w, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is the server, a process of its own: a connection has one request and one answer, and then it is closed. It
// counts what it did, so that nobody's figures rest on that one's own word alone.

// serverConfig is the first thing that the server hears.
type serverConfig struct {
	Addresses, Certificates int
	Fault                   string // what every tenth request gets instead of an answer: see answerTo; "" for none
}

// serverCommand is what it hears then. Each is answered by one serverReply; a Hold also by a second one, once so many wait.
type serverCommand struct {
	Hold    int  `json:",omitempty"` // keep answers back until so many requests are there and Release comes
	Release bool `json:",omitempty"`
	Count   bool `json:",omitempty"` // tell what was counted since the last time
}

type serverReply struct {
	Web    *Web      `json:",omitempty"`
	Counts *Counts   `json:",omitempty"`
	Held   int       `json:",omitempty"`
	Error  string    `json:",omitempty"`
	At     time.Time `json:",omitzero"`
}

// Counts is what the server has seen.
type Counts struct {
	Accepted, Requests, Handshakes, Resumed, Older int64         // Older: handshakes of a version before TLS 1.3
	CPU                                            time.Duration // that the server used
}

// maxConnection bounds a connection's life.
const maxConnection = 10 * time.Minute

type server struct {
	fault string
	tls   *tls.Config

	accepted, requests, handshakes, resumed, older atomic.Int64

	mu   sync.Mutex
	gate gate

	replies sync.Mutex
	out     *json.Encoder
}

// gate keeps answers back.
type gate struct {
	want, have int
	open       chan struct{} // closed when the answers may go; nil while none are kept back
}

// serverPart is the server's process. It ends when its input does.
func serverPart(in io.Reader, out io.Writer) error {
	commands := json.NewDecoder(in)
	var cfg serverConfig
	if err := commands.Decode(&cfg); err != nil {
		return fmt.Errorf("cannot read what to serve: %w", err)
	}
	s := &server{fault: cfg.Fault, out: json.NewEncoder(out)}
	web, err := s.listen(cfg)
	if err != nil {
		s.reply(serverReply{Error: err.Error()})
		return err
	}
	s.reply(serverReply{Web: web})
	last := facts.CPU()
	for {
		var c serverCommand
		if err := commands.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read a command: %w", err)
		}
		var r serverReply
		switch {
		case c.Hold > 0:
			s.mu.Lock()
			s.gate = gate{want: c.Hold, open: make(chan struct{})}
			s.mu.Unlock()
		case c.Release:
			s.mu.Lock()
			if s.gate.open != nil {
				close(s.gate.open)
			}
			s.gate = gate{}
			s.mu.Unlock()
		case c.Count:
			now := facts.CPU()
			r.Counts = &Counts{
				Accepted: s.accepted.Swap(0), Requests: s.requests.Swap(0), Handshakes: s.handshakes.Swap(0),
				Resumed: s.resumed.Swap(0), Older: s.older.Swap(0), CPU: now - last,
			}
			last = now
		}
		s.reply(r)
	}
}

// reply tells. Where nobody listens any more, the input will end too.
func (s *server) reply(r serverReply) {
	s.replies.Lock()
	defer s.replies.Unlock()
	_ = s.out.Encode(r)
}

// listen opens the ports and serves them.
func (s *server) listen(cfg serverConfig) (*Web, error) {
	var err error
	web := &Web{Timeout: timeout}
	if web.Roots, err = s.certify(cfg); err != nil {
		return nil, err
	}
	plain, secure, err := listenAll(cfg.Addresses)
	if err != nil {
		return nil, err
	}
	for i := range plain {
		go s.accept(plain[i], false)
		go s.accept(secure[i], true)
		web.Addrs = append(web.Addrs, addrOf(plain[i]).Addr())
	}
	web.Plain, web.TLS = addrOf(plain[0]).Port(), addrOf(secure[0]).Port()
	return web, nil
}

func addrOf(l *net.TCPListener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

// listenAll opens two ports, each the same at all addresses, because some contenders can be told only one. Where the system
// has but one loopback address, that must do.
func listenAll(addresses int) (plain, secure []*net.TCPListener, err error) {
	if plain, err = listenSame(addresses); err != nil {
		return nil, nil, err
	}
	secure, err = listenSame(len(plain))
	if err == nil && len(secure) < len(plain) {
		err = errors.New("cannot listen at the same addresses twice")
	}
	return plain, secure, err
}

func listenSame(addresses int) ([]*net.TCPListener, error) {
	var last error
	for range 20 { // somebody else may have the port at one of the addresses
		var all []*net.TCPListener
		port := 0
		for i := range addresses {
			l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i)), Port: port})
			if last = err; err != nil {
				break
			}
			all = append(all, l)
			port = int(addrOf(l).Port())
		}
		if last == nil || len(all) == 1 && !manyLoopbacks() {
			return all, nil
		}
		for _, l := range all {
			_ = l.Close()
		}
	}
	return nil, fmt.Errorf("cannot listen: %w", last)
}

// manyLoopbacks reports whether 127.0.0.2 is ours too, as it is on Linux and Windows.
func manyLoopbacks() bool {
	l, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func (s *server) accept(l *net.TCPListener, secure bool) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			time.Sleep(time.Millisecond) // out of files, or the client has gone again
			continue
		}
		s.accepted.Add(1)
		go s.serve(c, secure)
	}
}

var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// serve is a connection's life.
func (s *server) serve(tcp *net.TCPConn, secure bool) {
	defer func() { _ = tcp.Close() }()
	if tcp.SetDeadline(time.Now().Add(maxConnection)) != nil {
		return
	}
	var conn net.Conn = tcp
	if secure {
		c := tls.Server(tcp, s.tls)
		if c.Handshake() != nil {
			return
		}
		s.handshakes.Add(1)
		state := c.ConnectionState()
		if state.DidResume {
			s.resumed.Add(1)
		}
		if state.Version != tls.VersionTLS13 {
			s.older.Add(1)
		}
		defer func() { _ = c.Close() }() // says farewell
		conn = c
	}
	target, ok := readRequest(conn)
	if !ok {
		return
	}
	number := s.requests.Add(1)
	s.wait()
	_, _ = conn.Write(s.answerTo(target, number))
}

// readRequest reads a request's head and returns its method and target.
func readRequest(conn net.Conn) (target string, ok bool) {
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	for n := 0; n < len(buf); {
		m, err := conn.Read(buf[n:])
		n += m
		if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
			line, _, _ := bytes.Cut(buf[:n], []byte(" HTTP/1."))
			if string(line) == robots {
				return robots, true // the same for nearly all, and not made anew
			}
			return string(line), true
		}
		if err != nil {
			return "", false
		}
	}
	return "", false
}

const robots = "GET /robots.txt"

var notFound = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

// faults are what tests let every tenth request get: whoever calls that an answer is no contender.
var faults = map[string][]byte{
	"silent": nil,                    // closed without an answer
	"short":  answer[:len(answer)-9], // closed within the body
	"status": bytes.Replace(answer, []byte("200 OK"), []byte("503 No"), 1),
	"other":  bytes.Replace(answer, []byte("Disallow: /private/29"), []byte("Disallow: /private/xx"), 1),
}

// answerTo returns what the request with this number gets.
func (s *server) answerTo(target string, number int64) []byte {
	if path, _, _ := strings.Cut(target, "?"); path != robots {
		return notFound
	}
	if s.fault != "" && number%10 == 0 {
		return faults[s.fault]
	}
	return answer
}

// wait keeps an answer back while it must be.
func (s *server) wait() {
	s.mu.Lock()
	open := s.gate.open
	s.gate.have++
	full := open != nil && s.gate.have == s.gate.want
	s.mu.Unlock()
	if full {
		s.reply(serverReply{Held: s.gate.want, At: time.Now()})
	}
	if open != nil {
		<-open
	}
}

// certify makes an authority and the hosts' certificates, and returns the authority's.
func (s *server) certify(cfg serverConfig) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make the authority's key: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // one for all: the cost is the same for who asks
	if err != nil {
		return nil, fmt.Errorf("cannot make the hosts' key: %w", err)
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throwaway authority"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make the authority's certificate: %w", err)
	}
	leaves := make([]*tls.Certificate, cfg.Certificates)
	for i := range leaves {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(2 + i)), Subject: pkix.Name{CommonName: domain}, NotBefore: from, NotAfter: until,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			DNSNames: []string{domain, "*." + domain},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), key)
		if err != nil {
			return nil, fmt.Errorf("cannot make a host's certificate: %w", err)
		}
		leaves[i] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leafKey}
	}
	s.tls = &tls.Config{
		// Every handshake is a whole one, as it is for who asks each host once.
		SessionTicketsDisabled: true,
		NextProtos:             []string{"http/1.1"},
		MinVersion:             tls.VersionTLS12,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return leaves[numberOf(hello.ServerName)%len(leaves)], nil
		},
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// numberOf is hostOf backwards, 0 for what is none of its names.
func numberOf(host string) int {
	label, _, _ := strings.Cut(host, ".")
	n, err := strconv.Atoi(strings.TrimPrefix(label, "h"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

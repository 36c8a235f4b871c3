package s3

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// fault is a kind of harm to a request between client and server.
type fault string

const (
	none     fault = ""
	reset    fault = "reset before the server sees it"
	busy     fault = "503 without effect"
	internal fault = "500 after the server has acted"
	drop     fault = "reset after the server has acted"
	stall    fault = "silence before the server sees it"
	mute     fault = "silence after the server has acted"
	cut      fault = "answer cut in the middle"
	flip     fault = "a byte of the body changed"
	gone     fault = "no such upload any more"
	denied   fault = "403"
)

var faults = []fault{reset, busy, internal, drop, cut, stall, mute, flip}

// proxy forwards requests between client and server, and harms some.
type proxy struct {
	URL     string
	gateway *storetest.Gateway
	onward  *http.Transport
	next    func(r *http.Request) fault // asked for each request, one at a time
	before  func(r *http.Request)       // if not nil, called before a request goes on to the server
	after   func(r *http.Request)       // if not nil, called before a connection is reset

	mu   sync.Mutex
	seen []string // METHOD PATH?QUERY of each request
}

func newProxy(t *testing.T, g *storetest.Gateway, next func(r *http.Request) fault) *proxy {
	p := &proxy{gateway: g, onward: &http.Transport{DialContext: g.Dial}, next: next}
	t.Cleanup(p.onward.CloseIdleConnections)
	p.URL = g.Serve(p)
	return p
}

// requests returns the requests that the proxy has seen.
func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	f := p.next(r)
	p.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	switch f {
	case reset:
		p.done(r)
		panic(http.ErrAbortHandler)
	case busy:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
		return
	case gone:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w,
			`<Error><Code>NoSuchUpload</Code><Message>The specified multipart upload does not exist.</Message></Error>`)
		return
	case denied:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>`)
		return
	case stall:
		<-r.Context().Done()
		return
	case flip:
		if len(body) > 0 {
			body[len(body)/2] ^= 1
		}
	}
	if p.before != nil {
		p.before(r)
	}
	answer, err := p.forward(r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch f {
	case internal:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w,
			`<Error><Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message></Error>`)
		return
	case drop:
		p.done(r)
		panic(http.ErrAbortHandler)
	case mute:
		<-r.Context().Done()
		return
	}
	for key, values := range answer.Header {
		w.Header()[key] = values
	}
	content := answer.Body.(*heldBody).data
	if f == cut && len(content) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(content[:len(content)/2])
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(content)
}

func (p *proxy) done(r *http.Request) {
	if p.after != nil {
		p.after(r)
	}
}

// heldBody is a body that has been read.
type heldBody struct {
	io.Reader
	data []byte
}

func (*heldBody) Close() error { return nil }

// forward repeats the client's request with the host name that the client has signed, and with the body's length only
// if the client has given it.
func (p *proxy) forward(r *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequest(r.Method, p.gateway.URL+r.URL.RequestURI(), io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, err
	}
	out.Header, out.Host, out.ContentLength = r.Header.Clone(), r.Host, r.ContentLength
	if r.ContentLength == 0 {
		out.Body = nil // else it would have an unknown length again
	}
	answer, err := p.onward.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	answer.Body = &heldBody{bytes.NewReader(data), data}
	return answer, nil
}

// once harms the n-th request (1-based).
func once(n int, f fault) func(*http.Request) fault {
	asked := 0
	return func(*http.Request) fault {
		if asked++; asked == n {
			return f
		}
		return none
	}
}

// sometimes harms about one request in n.
func sometimes(seed uint64, n int) func(*http.Request) fault {
	random := rand.New(rand.NewPCG(seed, 1))
	return func(*http.Request) fault {
		if random.IntN(n) > 0 {
			return none
		}
		return faults[random.IntN(5)] // except the last three: silence takes time, and corruption is not always survived
	}
}

package metrics

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// journal is a log that tests can read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func serve(t *testing.T) *Server {
	t.Helper()
	var j journal
	s, err := Serve(nil, "127.0.0.1:0", example(), j.log())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if text := j.String(); text != "" {
			t.Errorf("the server logged:\n%s", text)
		}
	})
	return s
}

func TestServer(t *testing.T) {
	s := serve(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	f := func(method, path string, status int, texts ...string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status {
			t.Errorf("%s %s: %s, %v, want %d", method, path, response.Status, err, status)
		}
		for _, text := range texts {
			if !strings.Contains(string(body), text) {
				t.Errorf("%s %s: no %q in\n%s", method, path, text, body)
			}
		}
	}
	f("GET", "/metrics", 200, "\nbulkscan_dns_lookups_total 100\n", "\ngo_goroutines ",
		"# HELP bulkscan_origins_kept_total Origins ")
	f("HEAD", "/metrics", 200)
	f("GET", "/", 200, `<a href="/metrics">`, "This is bulkscan 1.2.3")
	f("HEAD", "/", 200)
	f("POST", "/metrics", 405)
	f("PUT", "/", 405)
	f("GET", "/metrics/", 404)
	f("GET", "/debug/pprof/", 404)
}

// The server accepts maxConns connections, which bounds its files. A further one waits until another ends.
func TestServerBoundsConnections(t *testing.T) {
	s := serve(t)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	ask := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 4096))
		return err
	}
	open := make([]net.Conn, maxConns)
	for i := range open {
		open[i] = dial()
		if err := ask(open[i]); err != nil {
			t.Fatal(err)
		}
	}
	last, late := make(chan error, 1), dial()
	go func() { last <- ask(late) }()
	// The open connections are answered many times, which would be enough time to answer the further one.
	for range 50 {
		for _, conn := range open {
			if err := ask(conn); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-last:
		t.Fatalf("one connection too many was answered (%v)", err)
	default:
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-last; err != nil {
		t.Fatal(err)
	}
}

func TestServerErrors(t *testing.T) {
	s := serve(t)
	f := func(addr, want string) {
		t.Helper()
		other, err := Serve(nil, addr, example(), slog.New(slog.DiscardHandler))
		if err == nil {
			_ = other.Close()
			t.Errorf("%s can be served", addr)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "listen tcp") {
			t.Errorf("%s: %q, want %q", addr, err, want)
		}
	}
	f(s.Addr(), "address already in use")
	f("127.0.0.1", "missing port in address")
	f("127.0.0.1:99999", "invalid port")
	f("192.0.2.1:0", "assign requested address")
}

func TestServerEnds(t *testing.T) {
	s, err := Serve(nil, "127.0.0.1:0", example(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr()) // never sends a request
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = conn.Close()
		t.Error("the port is still open")
	}
}

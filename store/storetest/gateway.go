package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/memnet"
)

// Gateway is an S3 server for a test: versitygw on a folder, on a port of the loopback interface (StartGateway), or a
// server on a network in memory (NewGateway). In front of it is a handler that refuses requests which versitygw accepts
// but public stores do not.
type Gateway struct {
	URL    string // http://HOST:PORT of the front
	Folder string // in which a bucket is a folder, and an object a file; "" in memory
	Access string
	Secret string
	// connects to it; nil: over the system's network
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	tb      testing.TB
	network *memnet.Network // nil: the system's
	process *exec.Cmd
	output  lockedBuffer
}

// Bucket is the bucket that a Gateway begins with.
const Bucket = "dataset"

// gatewayTool is where `make .bin/versitygw` installs the server.
const gatewayTool = ".bin/versitygw"

// demandGateway is the variable that makes a missing server fail the test, not skip it.
const demandGateway = "BULKSCAN_TEST_S3"

// StartGateway starts a Gateway with one bucket, until the end of the test. If the server is not installed, the test
// is skipped; with BULKSCAN_TEST_S3=required, as in continuous integration, it fails.
func StartGateway(tb testing.TB) *Gateway {
	tb.Helper()
	tool := findUp(gatewayTool)
	if tool == "" {
		if os.Getenv(demandGateway) == "required" {
			tb.Fatalf("%s is not there, and %s=required: `make %s` builds it", gatewayTool, demandGateway, gatewayTool)
		}
		tb.Skipf("SKIPPED: what needs a real S3 server; `make %s` builds one", gatewayTool)
	}
	folder := tb.TempDir()
	g := &Gateway{Folder: filepath.Join(folder, "objects"), Access: "tester", Secret: "secret-of-the-tester", tb: tb}
	for _, path := range []string{filepath.Join(g.Folder, Bucket), filepath.Join(folder, "metadata")} {
		if err := os.MkdirAll(path, 0o777); err != nil {
			tb.Fatal(err)
		}
	}
	// Another process may take a free port first: then the server ends, and the next port is tried.
	for range 5 {
		address := freeAddress(tb)
		g.process = exec.Command(tool, "--port", address, "--access", g.Access, "--secret", g.Secret, "--quiet",
			"--health", "/health", "posix", "--sidecar", filepath.Join(folder, "metadata"), g.Folder)
		g.process.Dir = folder
		if g.start("http://" + address) {
			g.URL = g.Serve(g.front(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) {
					r.SetURL(&url.URL{Scheme: "http", Host: address})
					r.Out.Host = r.In.Host // which is signed
				},
				Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
				ErrorLog:  log.New(io.Discard, "", 0), // of clients that have left
			}))
			return g
		}
	}
	tb.Fatalf("versitygw does not start:\n%s", g.output.String())
	return nil
}

// NewGateway starts a Gateway with a server of the caller's on a network in memory, for a test in virtual time (see
// testing/synctest).
func NewGateway(tb testing.TB, server http.Handler) *Gateway {
	network := memnet.New(nil)
	g := &Gateway{Access: "tester", Secret: "secret-of-the-tester", tb: tb, network: network,
		Dial: memnet.Host{Net: network, Addr: netip.MustParseAddr("192.0.2.1")}.DialContext}
	g.URL = g.Serve(g.front(server))
	return g
}

// front returns the handler in front of the server.
func (g *Gateway) front(onward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if header := notImplemented(r); header != "" {
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprintf(w,
				"<Error><Code>NotImplemented</Code><Message>A header you provided implies functionality that is not implemented</Message><Header>%s</Header></Error>", header)
			return
		}
		onward.ServeHTTP(w, r)
	})
}

// Serve starts an HTTP server on the network of the Gateway, until the end of the test, and returns its URL.
func (g *Gateway) Serve(handler http.Handler) string {
	listen := func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	if g.network != nil {
		listen = func() (net.Listener, error) {
			return memnet.Host{Net: g.network, Addr: netip.MustParseAddr("192.0.2.2")}.Listen(0)
		}
	}
	listener, err := listen()
	if err != nil {
		g.tb.Fatal(err)
	}
	silent := log.New(io.Discard, "", 0)
	server := &http.Server{Handler: handler, ErrorLog: silent} //nolint:gosec // its clients are those of the test
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until Close
	}()
	g.tb.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

// notImplemented returns the header for which public stores refuse a request, or "". They take no body of unknown
// length, and no header of an extension that they do not have.
func notImplemented(r *http.Request) string {
	if len(r.TransferEncoding) > 0 {
		return "Transfer-Encoding"
	}
	for name := range r.Header {
		switch {
		case !strings.HasPrefix(name, "X-"), strings.HasPrefix(name, "X-Amz-Meta-"):
		case name == "X-Amz-Date", name == "X-Amz-Content-Sha256", name == "X-Amz-Security-Token":
		default:
			return name
		}
	}
	if sum := r.Header.Get("X-Amz-Content-Sha256"); strings.HasPrefix(sum, "STREAMING-") {
		return "X-Amz-Content-Sha256" // bodies of signed chunks, which not all stores know
	}
	return ""
}

// start runs the server until the test ends, and reports whether it answers at this URL.
func (g *Gateway) start(at string) bool {
	g.process.Stdout, g.process.Stderr = &g.output, &g.output
	if err := g.process.Start(); err != nil {
		g.tb.Fatalf("cannot start versitygw: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = g.process.Wait() // it is killed
		close(ended)
	}()
	stop := func() {
		_ = g.process.Process.Kill() // it may have ended
		<-ended
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			return false
		default:
		}
		answer, err := http.Get(at + "/health")
		if err == nil {
			_ = answer.Body.Close()
			g.tb.Cleanup(stop)
			return true
		}
	}
	stop()
	return false
}

// Environment returns the variables that lead bulkscan and other S3 tools to the Gateway.
func (g *Gateway) Environment() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL_S3": g.URL, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": g.Access, "AWS_SECRET_ACCESS_KEY": g.Secret, "AWS_SESSION_TOKEN": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_PROFILE": "",
	}
}

// Address is HOST:PORT of URL.
func (g *Gateway) Address() string { return strings.TrimPrefix(g.URL, "http://") }

func freeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// findUp looks for a file in the working directory and those above it, up to the module's.
func findUp(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// lockedBuffer keeps the output of a process.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(fmt.Sprint(b.text.String()))
}

package metrics

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// Bounds of a client's cost. maxConns fits in the files that a scan leaves free when it shares out its files.
const (
	maxConns   = 8
	maxHeader  = 16 << 10 // bytes of a request's head
	readTime   = 5 * time.Second
	gatherTime = 10 * time.Second
	writeTime  = 20 * time.Second // gathering included
	idleTime   = 30 * time.Second
	closeTime  = time.Second
)

// Server serves a scan's metrics by HTTP: /metrics for Prometheus, and / as a page for people. It only answers GET
// and HEAD.
type Server struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
}

// Listen opens a listener as net.Listen does; nil stands for net.Listen.
type Listen func(network, address string) (net.Listener, error)

// Serve listens at HOST:PORT (port 0: any free port) and serves a scan there until Close. Errors of single requests
// are logged at level debug.
func Serve(listen Listen, addr string, scan *Scan, log *slog.Logger) (*Server, error) {
	if listen == nil {
		listen = net.Listen
	}
	listener, err := listen("tcp", addr)
	if err != nil {
		return nil, shortened(err)
	}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(scan.page(), promhttp.HandlerOpts{
		ErrorLog: errorLog, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxConns, Timeout: gatherTime,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, front, html.EscapeString(scan.version)) // an error means that the client has left
	})
	s := &Server{
		listener: listener,
		http: &http.Server{
			Handler: mux, ErrorLog: errorLog, MaxHeaderBytes: maxHeader,
			ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		if err := s.http.Serve(netutil.LimitListener(listener, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("metrics are no longer served", "error", err)
		}
	}()
	return s, nil
}

// front is the page at /.
const front = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>bulkscan</title>
<h1>bulkscan</h1>
<p>This is bulkscan %s, a survey of robots.txt files, at work. It shows how the scan goes on, until the scan ends:
<a href="/metrics">/metrics</a>, for Prometheus.
</html>
`

// shortened returns the cause of an error of net.Listen, without operation and address.
func shortened(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return err
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the server. Requests in flight have closeTime to finish.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.ended
	return err
}

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

// Bounds of what a visitor may cost. A scan shares its files out before it begins, and leaves a few for other things: all
// connections together stay among those.
const (
	maxConns   = 8
	maxHeader  = 16 << 10 // bytes of a request's head
	readTime   = 5 * time.Second
	gatherTime = 10 * time.Second
	writeTime  = 20 * time.Second // the gathering included
	idleTime   = 30 * time.Second
	closeTime  = time.Second
)

// Server shows a scan by HTTP: /metrics to a Prometheus, and / to whoever wonders what listens there. It answers GET and
// HEAD, and changes nothing.
type Server struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
}

// Serve listens at HOST:PORT (port 0: one that is free) and serves a scan there until Close. What goes wrong with single
// requests is told to log at level debug.
func Serve(addr string, scan *Scan, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, inShort(err)
	}
	complaints := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(scan.page(), promhttp.HandlerOpts{
		ErrorLog: complaints, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxConns, Timeout: gatherTime,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, front, html.EscapeString(scan.version)) // whoever leaves before the page's end does not want it
	})
	s := &Server{
		listener: listener,
		http: &http.Server{
			Handler: mux, ErrorLog: complaints, MaxHeaderBytes: maxHeader,
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

// inShort is why an address cannot be listened at, without the words about which operation on which address it was.
func inShort(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return err
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the server. Whoever is being answered has a moment to hear the end.
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

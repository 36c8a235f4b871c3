package fetcher

import (
	"context"
	"runtime/pprof"
)

// Where an exchange stands, for profiles of the processor: labels of the goroutine, made once so that setting one costs a
// few nanoseconds and no memory. After the exchange its goroutine has the labels of its caller's context again.
var (
	dialLabel = labelled("dial")
	tlsLabel  = labelled("tls")
	headLabel = labelled("head") // with the request before it
	bodyLabel = labelled("body")
	ftpLabel  = labelled("ftp")
)

func labelled(stage string) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("stage", stage))
}

// label marks what the calling goroutine does from here on.
func label(ctx context.Context) { pprof.SetGoroutineLabels(ctx) }

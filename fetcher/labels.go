package fetcher

import (
	"context"
	"runtime/pprof"
)

// The stages of an exchange in CPU profiles, as goroutine labels. They are made once: setting one takes a few
// nanoseconds and no memory. After the exchange its goroutine has the labels of its caller's context again.
var (
	dialLabel = labelled("dial")
	tlsLabel  = labelled("tls")
	headLabel = labelled("head") // includes sending the request
	bodyLabel = labelled("body")
	ftpLabel  = labelled("ftp")
)

func labelled(stage string) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("stage", stage))
}

// label sets the labels of the calling goroutine.
func label(ctx context.Context) { pprof.SetGoroutineLabels(ctx) }

package inputs

import (
	"context"
	"io"
)

// abandonable returns a reader of r whose Read returns when ctx ends, even if r blocks forever, as a terminal does. A goroutine reads r.
// After the end of ctx it lives until r returns.
func abandonable(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err) // nil is the end; the first call counts
	}()
	return out
}

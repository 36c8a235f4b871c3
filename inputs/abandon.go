package inputs

import (
	"context"
	"io"
	"os"
)

// OpenFile opens a file that a person names. It returns when ctx ends, even if the file is a named pipe that no process
// opens for writing: then the opening continues in the background. The end of ctx closes the file, which ends reads of
// a pipe.
func OpenFile(ctx context.Context, path string) (*os.File, error) {
	var file *os.File
	opened := make(chan error, 1)
	go func() {
		var err error
		file, err = os.Open(path) // #nosec G304 -- the user names it
		opened <- err
	}()
	select {
	case err := <-opened:
		context.AfterFunc(ctx, func() { _ = file.Close() })
		return file, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// abandonable returns a reader of r whose Read returns when ctx ends, even if r blocks forever, as a terminal does. A
// goroutine reads r. After the end of ctx it lives until r returns.
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

package inputs

import (
	"context"
	"io"
)

// abandonable returns a reader of r whose Read returns when ctx ends, even if r blocks forever, as a terminal does. A
// goroutine reads ahead by one buffer. After the end of ctx it lives until r returns.
func abandonable(ctx context.Context, r io.Reader) io.Reader {
	a := &abandoning{ctx: ctx, chunks: make(chan chunk), free: make(chan []byte, 2)}
	for range cap(a.free) {
		a.free <- make([]byte, 64<<10)
	}
	go a.pump(r)
	return a
}

type abandoning struct {
	ctx    context.Context
	chunks chan chunk
	free   chan []byte // buffers that pump may fill

	present chunk
	rest    []byte // of present, not yet read
}

type chunk struct {
	buf []byte
	n   int
	err error
}

func (a *abandoning) pump(r io.Reader) {
	for {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-a.ctx.Done():
			return
		}
		n, err := r.Read(buf)
		select {
		case a.chunks <- chunk{buf, n, err}:
		case <-a.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read is io.Reader's.
func (a *abandoning) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.present.err != nil {
			return 0, a.present.err
		}
		if a.present.buf != nil {
			a.free <- a.present.buf
			a.present = chunk{}
		}
		select {
		case a.present = <-a.chunks:
			a.rest = a.present.buf[:a.present.n]
		case <-a.ctx.Done():
			return 0, a.ctx.Err()
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

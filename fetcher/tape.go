package fetcher

import (
	"bytes"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file records exchanges for Config.Record: the request as sent, and the response as received, before decoding.
// recorded.go replays recordings.

// Recording is a recorded exchange in which a request was sent by http or https. The Fetcher owns its bytes.
type Recording struct {
	Target     exchange.Target
	At         time.Time
	Remote     netip.AddrPort
	TLSVersion uint16 // as in crypto/tls; 0 on plain connections
	Request    []byte
	Response   []byte // head and body, as far as read; empty: nothing came
	Head       int    // length of the head in Response; all of it if the head has no end
	Ending     Ending // of Response; CutOff also if the body was not read, as after redirects
}

// tape holds the bytes received in one exchange. Without recording there is none.
type tape struct {
	src    io.Reader
	budget *tapeBudget
	limit  int // greatest length of in, in bytes
	held   int // bytes taken from the budget

	asked  bool   // a request was sent
	taken  int    // bytes received
	in     []byte // the received bytes, up to limit and budget
	final  int    // offset of the final head in in; -1 before it begins
	head   int    // length of the final head
	length int    // of the body, as announced; see fasthttp.ResponseHeader.ContentLength
	full   bool   // more bytes were received than in holds
}

// tapeBudget bounds the memory of all tapes beyond freeTape bytes each.
type tapeBudget struct {
	left atomic.Int64
}

const (
	freeTape  = 16 << 10  // bytes of each tape outside the budget; nearly every answer fits
	tapeRoom  = 256 << 10 // bytes of a tape beyond twice a body: for heads, and the overhead of chunks
	allTapes  = 256 << 20 // the budget in bytes; more if that is less than four times tapeLimit
	tapeSteps = 64 << 10  // bytes taken from the budget at once
)

// tapeLimit returns how many bytes of one exchange are recorded at most.
func (f *Fetcher) tapeLimit() int64 { return 2*int64(f.cfg.MaxBody) + tapeRoom }

// Read implements io.Reader: it reads from src and keeps the bytes.
func (t *tape) Read(p []byte) (int, error) {
	n, err := t.src.Read(p)
	t.taken += n
	t.keep(p[:n])
	return n, err
}

func (t *tape) keep(b []byte) {
	if t.full || len(b) == 0 {
		return
	}
	need := len(t.in) + len(b)
	for need > freeTape+t.held {
		if need > t.limit || t.budget.left.Add(-tapeSteps) < 0 {
			if need <= t.limit {
				t.budget.left.Add(tapeSteps)
			}
			t.full = true
			return
		}
		t.held += tapeSteps
	}
	if need > cap(t.in) {
		t.in = slices.Grow(t.in, max(len(b), min(len(t.in), freeTape+t.held-len(t.in))))
	}
	t.in = append(t.in, b...)
}

// reset makes the tape ready for the next exchange.
func (t *tape) reset() {
	t.budget.left.Add(int64(t.held))
	if cap(t.in) > freeTape {
		t.in = nil
	}
	*t = tape{budget: t.budget, limit: t.limit, in: t.in[:0], final: -1}
}

// consumed returns how many received bytes were read out of the wire's buffers.
func (w *wire) consumed() int {
	n := w.tape.taken - w.small.Buffered() - w.back.Len()
	if w.large != nil {
		n -= w.large.Buffered()
	}
	return n
}

// between returns the received bytes between two offsets, as far as the tape has them.
func (t *tape) between(from, to int) []byte { return t.in[min(from, len(t.in)):min(to, len(t.in))] }

// headBegins and headEnds mark a head on the tape. The last head marked is the final one.
func (w *wire) headBegins() {
	if w.tape != nil {
		w.tape.final, w.tape.head = w.consumed(), 0
	}
}

func (w *wire) headEnds() {
	if w.tape != nil {
		w.tape.head, w.tape.length = w.consumed()-w.tape.final, w.res.ContentLength()
	}
}

// record passes the exchange to Config.Record. err is the exchange's error, or nil.
func (w *wire) record(x *exchange.Exchange, began time.Time, err error) {
	t := w.tape
	if !t.asked {
		return
	}
	if err == nil {
		err = w.lost // which did not matter, but is how the exchange ended
	}
	rec := Recording{
		Target: x.Response.Final, At: began, Remote: x.Response.Remote, TLSVersion: x.Response.TLSVersion,
		Request: w.out, Response: t.in,
	}
	switch {
	case t.head > 0:
		// Bytes after a body do not belong to the response. If the body has no end, all received bytes are kept,
		// because they show what went wrong.
		rec.Response = t.between(t.final, t.taken)
		if err == nil || w.body.done {
			end := w.consumed()
			if w.body.done && w.body.kind == byChunks && bytes.HasPrefix(t.between(end, t.taken), crlf) {
				end += len(crlf) // after the last chunk; reading does not wait for it
			}
			rec.Response = t.between(t.final, end)
		}
		blank := len(rec.Response) - len(bytes.TrimLeft(rec.Response, "\r\n")) // before the status line
		rec.Response = rec.Response[blank:]
		rec.Head = min(t.head-blank, len(rec.Response))
		rec.Ending = w.ending(x.Response)
	default:
		rec.Head = len(rec.Response)
	}
	if err != nil {
		switch outcome, _ := classify(readingBody, err); outcome {
		case exchange.Timeout:
			rec.Ending = TimedOut
		case exchange.ClosedEarly, exchange.Reset:
			rec.Ending = Disconnected
		}
	}
	if t.full && rec.Ending == Whole {
		rec.Ending = CutOff
	}
	w.f.cfg.Record(&rec)
}

var crlf = []byte("\r\n")

// ending returns whether a response with a complete head was read to its end.
func (w *wire) ending(r *exchange.Response) Ending {
	switch {
	case w.body.done, w.tape.length == 0, r.Status == 204, r.Status == 205, r.Status == 304:
		return Whole
	}
	return CutOff
}

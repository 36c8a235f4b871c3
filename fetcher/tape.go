package fetcher

import (
	"bytes"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// This file records exchanges where Config.Record asks for it: the request as sent, and the response as it came, before
// anything is decoded. recorded.go reads what is recorded here.

// Recording is one exchange as it took place: a request was sent, by http or https. Its bytes are the Fetcher's.
type Recording struct {
	Target     exchange.Target
	At         time.Time
	Remote     netip.AddrPort
	TLSVersion uint16 // as in crypto/tls; 0 on plain connections
	Request    []byte
	Response   []byte // head and body; as much as was read; empty: nothing came
	Head       int    // bytes of Response that are the head; all where it has no end
	Ending     Ending // of Response; CutOff also where nobody wanted the body, as of redirects
}

// tape is what one exchange has sent and received. Where recording is off there is none.
type tape struct {
	src    io.Reader
	budget *tapeBudget
	limit  int // bytes of in
	held   int // bytes of the budget

	asked  bool   // a request was sent
	taken  int    // bytes received
	in     []byte // those, but for what was too much
	final  int    // where in it the final head begins; -1 before one has
	head   int    // its length
	length int    // of the body, as it says; see fasthttp.ResponseHeader.ContentLength
	full   bool   // more came than is on the tape
}

// tapeBudget bounds what all tapes hold beyond freeTape bytes each.
type tapeBudget struct {
	left atomic.Int64
}

const (
	freeTape  = 16 << 10  // bytes of a tape that its exchange may have besides; what nearly every answer fits in
	tapeRoom  = 256 << 10 // bytes of a tape beyond twice a body: for heads, and what chunks cost
	allTapes  = 256 << 20 // bytes of all tapes beyond those, or four times the largest
	tapeSteps = 64 << 10  // in which it is taken from the budget
)

// tapeLimit is how many bytes of one exchange are recorded.
func (f *Fetcher) tapeLimit() int64 { return 2*int64(f.cfg.MaxBody) + tapeRoom }

// Read implements io.Reader for the connection, and keeps what it yields.
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

// consumed is how many bytes that came have been read out of the wire's buffers.
func (w *wire) consumed() int {
	n := w.tape.taken - w.small.Buffered() - w.back.Len()
	if w.large != nil {
		n -= w.large.Buffered()
	}
	return n
}

// between is a part of what was received, as far as the tape has it.
func (t *tape) between(from, to int) []byte { return t.in[min(from, len(t.in)):min(to, len(t.in))] }

// headBegins and headEnds mark a head on the tape. Of several the last is the final one.
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

// record hands the exchange to Config.Record; err is what ended it, nil where it ended well.
func (w *wire) record(x *exchange.Exchange, began time.Time, err error) {
	t := w.tape
	if !t.asked {
		return
	}
	rec := Recording{
		Target: x.Response.Final, At: began, Remote: x.Response.Remote, TLSVersion: x.Response.TLSVersion,
		Request: w.out, Response: t.in,
	}
	switch {
	case t.head > 0:
		// What stands behind a body is none of it. Where none was read to an end, all that came tells what went wrong.
		rec.Response = t.between(t.final, t.taken)
		if err == nil || w.body.done {
			end := w.consumed()
			if w.body.done && w.body.kind == byChunks && bytes.HasPrefix(t.between(end, t.taken), crlf) {
				end += len(crlf) // behind the last chunk, which nobody waits for
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

// ending says whether a response whose head came has been read to its end.
func (w *wire) ending(r *exchange.Response) Ending {
	switch {
	case w.body.done, w.tape.length == 0, r.Status == 204, r.Status == 205, r.Status == 304:
		return Whole
	}
	return CutOff
}

package fetcher

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// recordings are copies of the Recordings passed to Config.Record.
type recordings struct {
	mu   sync.Mutex
	list []Recording
}

func (r *recordings) add(rec *Recording) {
	kept := *rec
	kept.Request, kept.Response = bytes.Clone(rec.Request), bytes.Clone(rec.Response)
	r.mu.Lock()
	r.list = append(r.list, kept)
	r.mu.Unlock()
}

// check replays an origin's recordings and compares the result with its live Response. A recording does not show how a
// connection was lost.
func (r *recordings) check(t *testing.T, f *Fetcher, live *exchange.Response) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		t.Error("nothing was recorded")
		return
	}
	var again exchange.Response
	x := exchange.Exchange{Origin: r.list[0].Target.Origin, Target: r.list[0].Target, Response: &again}
	for i, rec := range r.list {
		if string(rec.Request[:min(len(rec.Request), 4)]) != "GET " || !bytes.Contains(rec.Request,
			[]byte("\r\nHost: example.com")) {
			t.Errorf("exchange %d was asked %q", i, rec.Request)
		}
		if rec.Head > len(rec.Response) || rec.Target != x.Target {
			t.Errorf("exchange %d is %+v, of %v", i, rec, x.Target)
		}
		if len(rec.Response) == 0 { // archives do not keep it
			if live.HasStatus() || live.Outcome == exchange.Answered {
				t.Errorf("nothing is recorded of an answer: %+v", live)
			}
			return
		}
		next := f.Replay(t.Context(), &x, &Recorded{Block: rec.Response, Ending: rec.Ending, At: rec.At,
			Addr: rec.Remote.Addr(), TLSVersion: rec.TLSVersion})
		if next.Again != (i < len(r.list)-1) {
			t.Fatalf("after exchange %d of %d, with %v, Next is %v", i+1, len(r.list), x.Target, next)
		}
		x.Target = next.Target
	}
	want, got := rowOf(live), rowOf(&again)
	if want.outcome == exchange.Reset {
		want.outcome = exchange.ClosedEarly
	}
	want.cause, got.cause = 0, 0
	if got != want || again.Truncated != live.Truncated || again.Proto != live.Proto ||
		string(again.Fields.Server) != string(live.Fields.Server) || len(again.Hops) != len(live.Hops) {
		t.Errorf("recorded as %q…, %d:\n got %v %.80q\nwant %v %.80q", r.list[0].Response[:min(len(r.list[0].Response), 80)],
			r.list[0].Ending, got, got.body, want, want.body)
	}
	again.Reset()
}

// TestTape checks recordings: the response, with a bar between head and body, and its ending.
func TestTape(t *testing.T) {
	f := func(name string, handle func(net.Conn), want string, ending Ending) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			cfg := site(t, 0, handle)
			cfg.MaxBody = 20
			var tapes recordings
			cfg.Record = tapes.add
			fetcher := newFetcher(t, cfg)
			r, _ := fetch(t, fetcher, "http://example.com")
			if late := r.Timing.Total == 15*time.Second; late != (ending == TimedOut) {
				t.Errorf("took %v", r.Timing.Total)
			}
			r.Reset()
			if len(tapes.list) != 1 {
				t.Fatalf("%d exchanges were recorded", len(tapes.list))
			}
			rec := tapes.list[0]
			got := string(rec.Response[:rec.Head]) + "|" + string(rec.Response[rec.Head:])
			if got != want || rec.Ending != ending || !rec.Remote.IsValid() || rec.At.IsZero() {
				t.Errorf("%q, %d, want %q, %d", got, rec.Ending, want, ending)
			}
			if left := fetcher.tapes.left.Load(); left != allTapes {
				t.Errorf("%d bytes of the budget were not returned", allTapes-left)
			}
		})
	}
	f("a body of its length", reply(okHead+"Content-Length: 3\r\n\r\nab\nrubbish"), okHead+
		"Content-Length: 3\r\n\r\n|ab\n", Whole)
	f("a body until the end", reply(okHead+"\r\nab\n"), okHead+"\r\n|ab\n", Whole)
	f("a body in chunks", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\nrubbish"), okHead+
		"Transfer-Encoding: chunked\r\n\r\n|3\r\nab\n\r\n0\r\n\r\n", Whole)
	f("no body", reply(okHead+"Content-Length: 0\r\n\r\n"), okHead+"Content-Length: 0\r\n\r\n|", Whole)
	f("after an interim response", reply("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"+okHead+"\r\nab\n"), okHead+"\r\n|ab\n",
		Whole)
	f("after line ends", reply("\r\n\r\n"+okHead+"\r\nab\n"), okHead+"\r\n|ab\n", Whole)
	long := okHead + "X-Long: " + strings.Repeat("y", 3*readBuffer) + "\r\n"
	f("after a long head", reply(long+"Content-Length: 3\r\n\r\nab\n"+strings.Repeat("rubbish", readBuffer)), long+
		"Content-Length: 3\r\n\r\n|ab\n", Whole)
	f("after a long head, in chunks", reply(long+"Transfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\nrubbish"), long+
		"Transfer-Encoding: chunked\r\n\r\n|3\r\nab\n\r\n0\r\n\r\n", Whole)
	f("after a long head, too long", reply(long+"Content-Length: 30\r\n\r\n"+strings.Repeat("a", 30)), long+
		"Content-Length: 30\r\n\r\n|"+strings.Repeat("a", 21), CutOff)
	f("after a long head, a short one", reply(long+"Content-Length: 30\r\n\r\nab\n"), long+
		"Content-Length: 30\r\n\r\n|ab\n", Disconnected)
	f("too long", reply(okHead+"\r\n"+strings.Repeat("a", 21)), okHead+"\r\n|"+strings.Repeat("a", 21), CutOff)
	f("a body that is not read", reply("HTTP/1.1 404 x\r\nContent-Length: 3\r\n\r\nab\n"),
		"HTTP/1.1 404 x\r\nContent-Length: 3\r\n\r\n|", CutOff)
	f("an empty body that is not read", reply("HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n"),
		"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n|", Whole)
	f("a short body", reply(okHead+"Content-Length: 30\r\n\r\nab\n"), okHead+"Content-Length: 30\r\n\r\n|ab\n",
		Disconnected)
	f("half a head", reply(okHead+"Server"), okHead+"Server|", Disconnected)
	f("nothing", reply(), "|", Disconnected)
	f("silence", hold(okHead+"Content-Length: 30\r\n\r\nab\n"), okHead+"Content-Length: 30\r\n\r\n|ab\n", TimedOut)
	f("no HTTP", reply("SSH-2.0-x\r\n"), "SSH-2.0-x\r\n|", Whole)
}

// TestTapeBudget checks that tapes stay within the budget, and that a cut recording says so.
func TestTapeBudget(t *testing.T) {
	body := strings.Repeat("Disallow: /x\n", 10_000)
	cfg := testConfig(serve(t, reply(okHead+"\r\n"+body)))
	cfg.MaxBody = 200_000
	var tapes recordings
	cfg.Record = tapes.add
	fetcher := newFetcher(t, cfg)
	for _, budget := range []int64{allTapes, tapeSteps, 0} {
		fetcher.tapes.left.Store(budget)
		r, _ := fetch(t, fetcher, "http://example.com")
		if string(r.Body) != body {
			t.Errorf("a body of %d bytes was read, with %d for tapes", len(r.Body), budget)
		}
		r.Reset()
		if left := fetcher.tapes.left.Load(); left != budget {
			t.Errorf("%d bytes were not returned", budget-left)
		}
		rec := tapes.list[len(tapes.list)-1]
		whole := len(okHead) + 2 + len(body)
		if budget == allTapes && (rec.Ending != Whole || len(rec.Response) != whole) ||
			budget < allTapes && (rec.Ending != CutOff || int64(len(rec.Response)) > budget+freeTape ||
				!strings.HasPrefix(okHead+"\r\n"+body, string(rec.Response))) {
			t.Errorf("with %d for tapes, %d bytes of %d are recorded, ending %d", budget, len(rec.Response), whole, rec.Ending)
		}
	}
}

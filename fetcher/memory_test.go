package fetcher

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// fetchMany fetches n times at once, each giving its body back when it is done, and tells what went wrong.
func fetchMany(t *testing.T, f *Fetcher, n int, want row) {
	t.Helper()
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			r, _ := fetch(t, f, "http://example.com")
			if got := rowOf(r); got != want {
				t.Errorf("got %v (%v) %d, %d bytes", got.outcome, got.cause, got.status, len(got.body))
			}
			r.Reset()
		})
	}
	wait.Wait()
	if !f.memory.budget.TryAcquire(f.cfg.BodyBudget) {
		t.Error("a part of the budget is lost")
	}
}

// Bodies that outgrow what was lent them never wait for each other: with any number of them the budget suffices.
func TestBodyBudgetIsNoDeadlock(t *testing.T) {
	noLeaks(t)
	const many = 12
	body := strings.Repeat("Disallow: /x\n", 30_000) // 390,000 bytes
	var begun sync.WaitGroup
	begun.Add(many)
	cfg := testConfig(serve(t, func(conn net.Conn) {
		reply(okHead+"\r\n", body[:250_000])(conn)
		begun.Done()
		begun.Wait()
		_, _ = io.WriteString(conn, body[250_000:])
	}))
	cfg.MaxBody, cfg.BodyBudget, cfg.Timeout = 512_000, 4*512_000, 20*time.Second
	fetchMany(t, newFetcher(t, cfg), many, answers(200, body))
}

// Coded bodies need memory twice, and a decoder of the few there are: neither may be held while waiting for the other.
func TestDecodeIsNoDeadlock(t *testing.T) {
	noLeaks(t)
	noise := make([]byte, 90_000)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	for name, body := range map[string]string{"large": string(noise), "small, large once decoded": strings.Repeat("Disallow: /x\n", 7000)} {
		t.Run(name, func(t *testing.T) {
			coded := encoders["gzip"]([]byte(body))
			cfg := testConfig(serve(t, reply(fmt.Sprintf("%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", okHead, len(coded)), string(coded))))
			cfg.MaxBody, cfg.BodyBudget, cfg.Timeout = 100_000, 400_000, 20*time.Second
			fetchMany(t, newFetcher(t, cfg), 24, answers(200, body))
		})
	}
}

// A length that is only announced takes nothing of the budget: else a few silent servers would starve all others.
func TestAnnouncedLengthTakesNoBudget(t *testing.T) {
	noLeaks(t)
	body := strings.Repeat("Disallow: /x\n", 7000)
	var arrived sync.WaitGroup
	arrived.Add(8)
	done := make(chan struct{})
	cfg := testConfig(serve(t, func(conn net.Conn) {
		if request := readRequest(conn); strings.Contains(request, "liar") {
			_, _ = io.WriteString(conn, okHead+"Content-Length: 9000000\r\n\r\nabc")
			arrived.Done()
			<-done
			return
		}
		arrived.Wait()
		_, _ = io.WriteString(conn, okHead+"\r\n"+body)
	}))
	cfg.MaxBody, cfg.BodyBudget, cfg.Timeout = 100_000, 400_000, 20*time.Second
	f := newFetcher(t, cfg)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			r, _ := fetch(t, f, "http://liar.example")
			if r.Outcome != exchange.ClosedEarly || r.Cause != exchange.CauseClosedInBody {
				t.Errorf("a liar got %v (%v)", r.Outcome, r.Cause)
			}
		})
	}
	arrived.Wait()
	fetchMany(t, f, 1, answers(200, body))
	close(done)
	wait.Wait()
}

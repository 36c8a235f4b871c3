package fetcher

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// replayer returns a Fetcher for replays.
func replayer(tb testing.TB, maxBody int) *Fetcher {
	tb.Helper()
	f, err := New(Config{UserAgent: "test", MaxBody: maxBody, MaxRedirects: 2, Resolver: noDNS{}})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestReplay is the table of recorded answers: outcome, status, version, body (with `…` if it was cut), and the next
// target.
func TestReplay(t *testing.T) {
	fetch := replayer(t, 60)
	f := func(block string, ending Ending, want string) {
		t.Helper()
		target, ok := ParseTarget("https://example.com/robots.txt")
		if !ok {
			t.Fatal("the target is invalid")
		}
		var r exchange.Response
		x := exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}
		next := fetch.Replay(t.Context(), &x, &Recorded{Block: []byte(block), Ending: ending})
		got := fmt.Sprintf("%s %d %s", r.Outcome, r.Status, r.Proto)
		if r.Body != nil {
			got += fmt.Sprintf(" %q", r.Body)
		}
		if r.Truncated {
			got += "…"
		}
		if next.Again {
			got += " → " + next.Target.String()
		}
		r.Reset()
		if got != want {
			t.Errorf("%.60q, %d: %s, want %s", block, ending, got, want)
		}
	}
	ok := func(head, body string) string { return "HTTP/1.1 200 OK\r\n" + head + "\r\n" + body }

	packed := string(encoders["gzip"]([]byte("Allow: /\nDisallow: /\n")))

	f(ok("", "Allow: /\n"), Whole, `answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("Content-Length: 9\r\n", "Allow: /\n"), Whole, `answered 200 HTTP/1.1 "Allow: /\n"`)
	f("HTTP/1.0 200\r\n\r\nx\n", Whole, `answered 200 HTTP/1.0 "x\n"`)
	f("HTTP/2 200\r\nserver: x\r\n\r\nx\n", Whole, `answered 200 HTTP/2 "x\n"`)
	f("HTTP/2.0 200 OK\r\n\r\nx\n", Whole, `answered 200 HTTP/2 "x\n"`)
	f("HTTP/3 404 \r\n\r\nx\n", Whole, `answered 404 HTTP/3`)
	f("HTTP/1.1 200 OK\nServer: x\n\nx\n", Whole, `answered 200 HTTP/1.1 "x\n"`)
	f("HTTP/1.1 103 Early Hints\r\n\r\n"+ok("", "x\n"), Whole, `answered 200 HTTP/1.1 "x\n"`)
	f("HTTP/1.1 204 No Content\r\n\r\nx\n", Whole, `answered 204 HTTP/1.1 ""`)
	f("HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n", CutOff, `answered 404 HTTP/1.1`)

	// Codings undone before the recording, with or without their fields.
	f(ok("X-Crawl-Content-Encoding: gzip\r\nX-Crawl-Content-Length: 5\r\nContent-Length: 9\r\n", "Allow: /\n"), Whole,
		`answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("Content-Length: 4\r\n", "Allow: /\n"), Whole, `answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("Transfer-Encoding: chunked\r\n", "3\r\nAll\r\n6\r\now: /\n\r\n0\r\n\r\n"), Whole,
		`answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("Content-Encoding: gzip\r\n", string(encoders["gzip"]([]byte("Allow: /\n")))), Whole,
		`answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("Content-Encoding: gzip\r\n", "Allow: /a\nAllow: /b\n"), Whole, `bad_encoding 200 HTTP/1.1`)

	// If a coding ends early, it is corrupt if the body has its length or last chunk; otherwise the connection was
	// closed early.
	f(ok("Content-Encoding: gzip\r\nContent-Length: 24\r\n", packed[:24]), Whole, `bad_encoding 200 HTTP/1.1`)
	f(ok("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "18\r\n"+packed[:24]+"\r\n0\r\n\r\n"), Whole,
		`bad_encoding 200 HTTP/1.1`)
	f(ok("Content-Encoding: gzip\r\n", packed[:24]), Whole, `closed_early 200 HTTP/1.1`)
	f(ok("Content-Encoding: gzip\r\nContent-Length: 25\r\n", packed[:24]), Whole, `closed_early 200 HTTP/1.1`)

	// Cut recordings, and recorded failures.
	f(ok("", strings.Repeat("a\n", 31)), Whole, `answered 200 HTTP/1.1 "`+strings.Repeat(`a\n`, 30)+`"…`)
	f(ok("", "Allow: /\nDisallow: /a"), CutOff, `answered 200 HTTP/1.1 "Allow: /\n"…`)
	f(ok("Content-Length: 100\r\n", "Allow: /\nDis"), CutOff, `answered 200 HTTP/1.1 "Allow: /\n"…`)
	f(ok("Transfer-Encoding: chunked\r\n", "30\r\nAllow: /\nDis"), CutOff, `answered 200 HTTP/1.1 "Allow: /\n"…`)
	f(ok("Content-Encoding: gzip\r\n", packed[:24]), CutOff, `answered 200 HTTP/1.1 "Allow: /\n"…`)
	f(ok("Content-Length: 100\r\n", "Allow: /\nDis"), Whole, `closed_early 200 HTTP/1.1`)
	f(ok("", "Allow: /\nDis"), Disconnected, `closed_early 200 HTTP/1.1`)
	f(ok("Content-Length: 100\r\n", "Allow: /\nDis"), TimedOut, `timeout 200 HTTP/1.1`)
	f(ok("Transfer-Encoding: chunked\r\n", "30\r\nAllow: /\nDis"), TimedOut, `timeout 200 HTTP/1.1`)
	f(ok("", strings.Repeat("a\n", 31)), TimedOut, `answered 200 HTTP/1.1 "`+strings.Repeat(`a\n`, 30)+`"…`)
	f(ok("X-Long: "+strings.Repeat("y", 10_000)+"\r\nContent-Length: 9\r\n", "Allow: /\n"), Whole,
		`answered 200 HTTP/1.1 "Allow: /\n"`)
	f(ok("X-Long: "+strings.Repeat("y", 10_000)+"\r\nContent-Length: 10\r\n", "Allow: /\n"), Whole,
		`closed_early 200 HTTP/1.1`)

	f("", Whole, `closed_early 0 `)
	f("HTTP/1.1 200 OK\r\nServ", Whole, `closed_early 0 `)
	f("HTTP/1.1 200 OK\r\nServ", TimedOut, `timeout 0 `)
	f("<html>", Whole, `bad_response 0 `)
	f("HTTP/1.1 999 No\r\n\r\n", Whole, `bad_response 999 HTTP/1.1`)
	f(ok(strings.Repeat("X: y\r\n", 20_000), ""), Whole, `header_too_large 0 `)

	f("HTTP/1.1 301 Moved\r\nLocation: //www.example.com/robots.txt\r\n\r\n", Whole,
		`answered 301 HTTP/1.1 → https://www.example.com/robots.txt`)
	f("HTTP/1.1 301 Moved\r\nLocation: /robots.txt\r\n\r\n", Whole, `redirect_limit 301 HTTP/1.1`)
	f("HTTP/1.1 301 Moved\r\n\r\n", Whole, `redirect_invalid 301 HTTP/1.1`)
}

// TestReplayUndone has answers whose codings a crawler has undone without removing their fields: the body is read as
// it is. A body that is still coded is decoded, and a corrupt one is an error.
func TestReplayUndone(t *testing.T) {
	fetch := replayer(t, 1000)
	body := strings.Repeat("# Überblick\nAllow: /\n", 5)
	f := func(head, block, want string, ending ...Ending) {
		t.Helper()
		target, _ := ParseTarget("https://example.com/robots.txt")
		var r exchange.Response
		rec := Recorded{Block: []byte("HTTP/1.1 200 OK\r\n" + head + "\r\n" + block), Undone: true}
		if len(ending) > 0 {
			rec.Ending = ending[0]
		}
		fetch.Replay(t.Context(), &exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}, &rec)
		got := r.Outcome.String()
		switch {
		case string(r.Body) == body:
			got += " whole"
		case r.Body != nil:
			got += fmt.Sprintf(" %q", r.Body)
		}
		if r.Truncated {
			got += "…"
		}
		if got != want {
			t.Errorf("%.60q, %.60q: %s, want %s", head, block, got, want)
		}
		r.Reset()
	}
	chunked := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text) }
	f("Transfer-Encoding: chunked\r\n", body, "answered whole")
	f("Transfer-Encoding: chunked\r\n", chunked(body), "answered whole")
	f("Transfer-Encoding: chunked\r\n", "", `answered ""`)
	f("Transfer-Encoding: chunked\r\n", "3 ;x\r\nAll", "closed_early")
	f("Transfer-Encoding: chunked\r\n", "add: x\n", `answered "add: x\n"`)
	f("Transfer-Encoding: chunked\r\n", "Dead end\n", `answered "Dead end\n"`)
	f("Transfer-Encoding: chunked\r\n", "3 \t\r\nAll\r\n0\r\n\r\n", `answered "All"`)
	// Common Crawl, August 2018
	f("Transfer-Encoding: chunked\r\n", "\r\n"+body, `answered `+fmt.Sprintf("%q", "\r\n"+body))
	f("Transfer-Encoding: chunked\r\n", body+"Dis", "answered whole…", CutOff)
	for name, encode := range encoders {
		packed := string(encode([]byte(body)))
		bare := name == "deflate/raw"
		name, _, _ = strings.Cut(name, "/")
		coding := "Content-Encoding: " + name + "\r\n"
		f(coding, body, "answered whole")
		f(coding+"Content-Length: 999\r\n", body, "answered whole")
		f(coding+"Content-Length: 9\r\n", body, "answered whole")
		f(coding+"Transfer-Encoding: chunked\r\n", body, "answered whole")
		f(coding+"X-Long: "+strings.Repeat("y", 10_000)+"\r\n", body, "answered whole")
		// one body byte is in the buffer
		f(coding+"X-Long: "+strings.Repeat("y", readBuffer-len("HTTP/1.1 200 OK\r\n")-len(coding)-len("X-Long: \r\n\r\n")-1)+
			"\r\n", body, "answered whole")
		f(coding, "", `answered ""`)
		f(coding+"Content-Length: 999\r\n", body, "closed_early", Disconnected)
		f(coding, packed, "answered whole")
		f(coding+fmt.Sprintf("Content-Length: %d\r\n", len(packed)), packed, "answered whole")
		if n := len(packed) + 1; name == "br" || bare {
			f(coding+fmt.Sprintf("Content-Length: %d\r\n", n), packed, "closed_early")
		} else {
			f(coding+fmt.Sprintf("Content-Length: %d\r\n", n), packed, "answered whole") // by its checksum
		}
		f(coding+"Transfer-Encoding: chunked\r\n", packed, "answered whole") // only the chunks are undone
		f(coding+"Transfer-Encoding: chunked\r\n", chunked(packed), "answered whole")
		f(coding+"Transfer-Encoding: chunked\r\n", chunked(body), "bad_encoding") // corrupt on the wire
		f(coding, packed[:len(packed)/2], "closed_early")
		f(coding+fmt.Sprintf("Content-Length: %d\r\n", len(packed)), packed[:1], "closed_early")
	}
	f("Content-Encoding: br\r\n", ";", `answered ""`)
	f("Content-Encoding: rot13\r\n", body, "bad_encoding")
	f("Content-Length: 999\r\n", body, "closed_early")
}

// TestReplayHops follows recorded redirects to a recorded answer, and to one that was not recorded.
func TestReplayHops(t *testing.T) {
	fetch := replayer(t, 1000)
	target, _ := ParseTarget("http://example.com/robots.txt")
	at := time.Date(2024, 5, 18, 12, 0, 0, 0, time.UTC)
	var r exchange.Response
	x := exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}
	next := fetch.Replay(t.Context(), &x,
		&Recorded{Block: []byte("HTTP/1.1 301 x\r\nLocation: https://example.com/robots.txt\r\n\r\n"), At: at})
	x.Target = next.Target
	past := x.Past
	next = fetch.Replay(t.Context(), &x, &Recorded{Block: []byte("HTTP/1.1 200 x\r\nServer: y\r\n\r\nz\n"), At: at,
		Addr: netip.MustParseAddr("192.0.2.1"), TLSVersion: 0x304})
	if next.Again || r.Outcome != exchange.Answered || len(r.Hops) != 1 ||
		r.Hops[0] != (exchange.Hop{Status: 301, URL: "https://example.com/robots.txt"}) ||
		r.Answered != target.Origin || r.Final.String() != "https://example.com/robots.txt" || r.Attempts != 1 ||
		!r.FetchedAt.Equal(at) ||
		r.Remote.String() != "192.0.2.1:443" || r.TLSVersion != 0x304 || string(r.Fields.Server) != "y" ||
		string(r.Body) != "z\n" {
		t.Errorf("%v %+v", next, r)
	}
	x.Past = past
	next = fetch.Replay(t.Context(), &x, nil)
	if next.Again || r.Outcome != exchange.NotArchived || r.HasStatus() || len(r.Hops) != 1 ||
		r.Final.String() != "https://example.com/robots.txt" || r.Body != nil {
		t.Errorf("%v %+v", next, r)
	}
	r.Reset()
}

// TestReplayKeepsNothing checks that a replayed Response has no view of the recording.
func TestReplayKeepsNothing(t *testing.T) {
	fetch := replayer(t, 1000)
	target, _ := ParseTarget("http://example.com/robots.txt")
	recorded := []byte("HTTP/1.1 200 x\r\nServer: y\r\nContent-Type: text/plain\r\n\r\nAllow: /\n")
	var r exchange.Response
	rec := Recorded{Block: recorded}
	x := exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}
	fetch.Replay(t.Context(), &x, &rec)
	clear(recorded)
	if string(r.Fields.Server) != "y" || string(r.Body) != "Allow: /\n" {
		t.Errorf("%q %q", r.Fields.Server, r.Body)
	}
	r.Reset()
}

func TestParseTarget(t *testing.T) {
	f := func(url, want string) {
		t.Helper()
		got := "-"
		if target, ok := ParseTarget(url); ok {
			got = target.String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", url, got, want)
		}
	}
	f("http://Example.COM/robots.txt", "http://example.com/robots.txt")
	f("https://example.com:443/robots.txt#x", "https://example.com/robots.txt")
	f("https://example.com", "https://example.com/")
	f("https://example.com/a/../robots.txt?x", "https://example.com/robots.txt?x")
	f("dns:example.com", "-")
	f("ftp://example.com/robots.txt", "-")
	f("/robots.txt", "-")
	f("example.com/robots.txt", "-")
	f("https://user@example.com/robots.txt", "-")
	f("https:///robots.txt", "-")
	f("", "-")
}

// BenchmarkReplay reads one recorded answer:
//
//	go test ./fetcher -run xxx -bench Replay -benchmem
func BenchmarkReplay(b *testing.B) {
	fetch := replayer(b, 512000)
	target, _ := ParseTarget("http://example.com/robots.txt")
	var r exchange.Response
	rec := Recorded{Block: []byte("HTTP/1.1 200 x\r\nServer: y\r\nContent-Type: text/plain\r\n\r\n" +
		strings.Repeat("Disallow: /private\n", 100))}
	x := exchange.Exchange{Origin: target.Origin, Target: target, Response: &r}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		x.Past = exchange.Past{}
		fetch.Replay(ctx, &x, &rec)
	}
	r.Reset()
}

package fetcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// An origin's exchanges are a script: the result of each, and the policy's decisions. A result is an outcome's text,
// no_port (this machine had no port left), unreachable, a status, or a status and a location as `301>/x`. A slash after
// it means that the host may have another address, a question mark after a status that it is a challenge. In decisions,
// `@1` begins at the second address, and `#1` is the second address of an attempt.
func TestNext(t *testing.T) {
	base := policy{maxRedirects: 5, retries: 2, retryAfter: time.Minute, maxRetryAfter: 10 * time.Minute,
		first: origin.HTTPS}
	outcomes := map[string]exchange.Outcome{}
	for _, o := range exchange.Outcomes() {
		outcomes[o.String()] = o
	}
	f := func(entry, script, want, final string, edit ...func(*policy)) {
		t.Helper()
		p := base
		for _, e := range edit {
			e(&p)
		}
		o := parse(t, entry)
		past := exchange.Past{Scheme: p.begins(o)}
		target := start(o, past.Scheme)
		var said []string
		var r exchange.Response
		steps := strings.Fields(script)
		for i, step := range steps {
			r = exchange.Response{Outcome: exchange.Answered, Answered: o.As(past.Scheme), Final: target}
			if past.Trail != nil {
				r.Hops = past.Trail.Hops
			} else {
				past.Attempts++
			}
			step, more := strings.CutSuffix(step, "/")
			h := hints{more: more}
			if outcome, ok := outcomes[step]; ok {
				r.Outcome = outcome
			} else if step == "unreachable" {
				r.Outcome, r.Cause = exchange.ConnectFailed, exchange.CauseUnreachable
			} else if step == "no_port" {
				r.Outcome, r.Cause = exchange.ConnectFailed, exchange.CauseNoLocalResource
			} else {
				if step, ok = strings.CutSuffix(step, "?"); ok {
					r.Fields.Challenge = "vercel"
				}
				_, _ = fmt.Sscanf(step, "%d", &r.Status)
				_, h.location, _ = strings.Cut(step, ">")
				if _, after, ok := strings.Cut(step, "+"); ok {
					h.location = ""
					h.retryAfter, _ = time.ParseDuration(after)
				}
			}
			next := p.next(o, target, &past, &r, h, 0.5)
			if !next.Again {
				said = append(said, "done")
				if i != len(steps)-1 {
					t.Errorf("%s: done after %d of %d steps", script, i+1, len(steps))
				}
				break
			}
			at := ""
			begin, tried := round(next.Target)
			if begin > 0 {
				at = fmt.Sprintf("@%d", begin)
			}
			if tried > 0 {
				at += fmt.Sprintf("#%d", tried)
			}
			said = append(said, fmt.Sprintf("%v:%s%s", next.After, next.Target, at))
			target = next.Target
		}
		if got := strings.Join(said, " "); got != want {
			t.Errorf("%s %s:\n got %s\nwant %s", entry, script, got, want)
		}
		if got := fmt.Sprintf("%v %d %s %d", r.Outcome, r.Status, r.Answered, len(r.Hops)); got != final {
			t.Errorf("%s %s: row %s, want %s", entry, script, got, final)
		}
	}
	const h, s = "http://a.com/robots.txt", "https://a.com/robots.txt"
	noFallback := func(p *policy) { p.noFallback = true }
	httpFirst := func(p *policy) { p.first = origin.HTTP }
	retries := func(n int) func(*policy) { return func(p *policy) { p.retries = n } }
	atOnce := func(p *policy) { p.retryAfter = 0 }

	// Answers are final.
	f("a.com", "200", "done", "answered 200 https://a.com 0")
	f("a.com", "404", "done", "answered 404 https://a.com 0")
	f("a.com", "404+5m", "done", "answered 404 https://a.com 0")
	// Final failures.
	f("a.com", "dns_not_found", "done", "dns_not_found 0 https://a.com 0")
	f("a.com", "blocked_address", "done", "blocked_address 0 https://a.com 0")
	f("a.com", "opted_out", "done", "opted_out 0 https://a.com 0")
	f("a.com", "bad_response", "done", "bad_response 0 https://a.com 0")
	f("http://a.com", "connect_refused", "done", "connect_refused 0 http://a.com 0")
	f("https://a.com", "tls_failed", "done", "tls_failed 0 https://a.com 0")
	// The other scheme.
	f("a.com", "tls_failed 200", "0s:"+h+" done", "answered 200 http://a.com 0")
	f("a.com", "connect_refused connect_refused", "0s:"+h+" done", "connect_refused 0 https://a.com 0")
	f("a.com", "tls_failed connect_refused", "0s:"+h+" done", "tls_failed 0 https://a.com 0")
	f("a.com", "connect_failed bad_response", "0s:"+h+" done", "connect_failed 0 https://a.com 0")
	f("a.com", "tls_failed 404", "0s:"+h+" done", "answered 404 http://a.com 0")
	f("a.com", "tls_failed", "done", "tls_failed 0 https://a.com 0", noFallback)
	f("a.com", "connect_refused 200", "0s:"+s+" done", "answered 200 https://a.com 0", httpFirst)
	f("a.com:8080", "connect_refused 200", "0s:http://a.com:8080/robots.txt done", "answered 200 http://a.com:8080 0")
	f("a.com", "tls_failed 301>https://a.com/robots.txt tls_failed", "0s:"+h+" 0s:"+s+" done",
		"tls_failed 0 http://a.com 1")
	// No other scheme once a status came, even a redirect's.
	f("a.com", "301>https://b.com/robots.txt connect_refused", "0s:https://b.com/robots.txt done",
		"connect_refused 0 https://a.com 1")
	// Retries.
	f("https://a.com", "503 503 503", "1m0s:"+s+" 2m0s:"+s+" done", "answered 503 https://a.com 0")
	f("https://a.com", "503 200", "1m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "429 429 429", "1m0s:"+s+" 2m0s:"+s+" done", "answered 429 https://a.com 0")
	f("https://a.com", "429 200", "1m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "429+5m 429+1h 404", "5m0s:"+s+" 10m0s:"+s+" done", "answered 404 https://a.com 0")
	f("https://a.com", "429+5m 200", "0s:"+s+" done", "answered 200 https://a.com 0", func(p *policy) {
		p.retryAfter,
			p.maxRetryAfter = 0, 0
	})
	f("https://a.com", "429", "done", "answered 429 https://a.com 0", retries(0))
	f("https://a.com", "408 408 408", "1m0s:"+s+" 2m0s:"+s+" done", "answered 408 https://a.com 0")
	f("https://a.com", "408 200", "1m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "408+5m 408+1h 404", "5m0s:"+s+" 10m0s:"+s+" done", "answered 404 https://a.com 0")
	f("https://a.com", "408 blocked_address", "1m0s:"+s+" done", "answered 408 https://a.com 0")
	f("a.com", "408?", "done", "answered 408 https://a.com 0")
	f("a.com", "429?", "done", "answered 429 https://a.com 0")
	f("https://a.com", "503?", "done", "answered 503 https://a.com 0")
	f("https://a.com", "503 429?", "1m0s:"+s+" done", "answered 429 https://a.com 0")
	f("a.com", "tls_failed 429 429 200", "0s:"+h+" 1m0s:"+h+" 2m0s:"+h+" done", "answered 200 http://a.com 0")
	f("https://a.com", "301>https://b.com/robots.txt 429 301>https://b.com/robots.txt 200",
		"0s:https://b.com/robots.txt 1m0s:"+s+" 0s:https://b.com/robots.txt done", "answered 200 https://a.com 1")
	f("https://a.com", "timeout reset closed_early", "1m0s:"+s+" 2m0s:"+s+" done", "closed_early 0 https://a.com 0")
	f("https://a.com", "dns_timeout dns_failed 200", "1m0s:"+s+" 2m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "timeout connect_refused", "1m0s:"+s+" done", "connect_refused 0 https://a.com 0")
	f("https://a.com", "503", "done", "answered 503 https://a.com 0", retries(0))
	f("https://a.com", "503 503", "0s:"+s+" done", "answered 503 https://a.com 0", atOnce, retries(1))
	f("https://a.com", "503+3m 503+1s 200", "3m0s:"+s+" 2m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "503+24h 200", "10m0s:"+s+" done", "answered 200 https://a.com 0")
	f("https://a.com", "503+5s 200", "5s:"+s+" done", "answered 200 https://a.com 0", atOnce)
	f("https://a.com", "503 503 503 503 503 503", "1m0s:"+s+" 2m0s:"+s+" 4m0s:"+s+" 8m0s:"+s+" 10m0s:"+s+" done",
		"answered 503 https://a.com 0", retries(5))
	f("https://a.com", "connect_failed", "done", "connect_failed 0 https://a.com 0")
	f("https://a.com", "no_port 200", "1m0s:"+s+" done", "answered 200 https://a.com 0")
	f("a.com", "no_port no_port 200", "0s:"+h+" 1m0s:"+s+" done", "answered 200 https://a.com 0")
	// If a target is not fetched once more, the earlier result stays.
	f("https://a.com", "503 blocked_address", "1m0s:"+s+" done", "answered 503 https://a.com 0")
	f("https://a.com", "503 503 opted_out", "1m0s:"+s+" 2m0s:"+s+" done", "answered 503 https://a.com 0")
	f("https://a.com", "500 timeout blocked_address", "1m0s:"+s+" 2m0s:"+s+" done", "answered 500 https://a.com 0")
	f("https://a.com", "503 no_port 502 no_port", "1m0s:"+s+" 2m0s:"+s+" 4m0s:"+s+" done", "answered 502 https://a.com 0",
		retries(3))
	f("https://a.com", "599 301>/x blocked_address", "1m0s:"+s+" 0s:https://a.com/x done", "answered 599 https://a.com 0")
	f("a.com", "timeout 503 blocked_address", "0s:"+h+" 1m0s:"+h+" done", "answered 503 http://a.com 0")
	f("https://a.com", "503 dns_not_found", "1m0s:"+s+" done", "dns_not_found 0 https://a.com 0")
	f("https://a.com", "timeout blocked_address", "1m0s:"+s+" done", "blocked_address 0 https://a.com 0")
	f("https://a.com", "301>/x blocked_address", "0s:https://a.com/x done", "blocked_address 0 https://a.com 1")
	f("https://a.com", "301>/x 503 301>/x blocked_address", "0s:https://a.com/x 1m0s:"+s+" 0s:https://a.com/x done",
		"answered 503 https://a.com 0")
	// Retries of an entry without a scheme: by the scheme that a status came by, else by the one with a transient
	// failure, else in turn.
	f("a.com", "503 timeout 200", "1m0s:"+s+" 2m0s:"+s+" done", "answered 200 https://a.com 0")
	f("a.com", "timeout 503 timeout 200", "0s:"+h+" 1m0s:"+h+" 2m0s:"+h+" done", "answered 200 http://a.com 0")
	f("a.com", "timeout 503 timeout timeout", "0s:"+h+" 1m0s:"+h+" 2m0s:"+h+" done", "timeout 0 http://a.com 0")
	f("a.com", "connect_refused timeout 200", "0s:"+h+" 1m0s:"+h+" done", "answered 200 http://a.com 0")
	f("a.com", "connect_refused timeout timeout timeout", "0s:"+h+" 1m0s:"+h+" 2m0s:"+h+" done",
		"connect_refused 0 https://a.com 0")
	f("a.com", "connect_timeout connect_refused connect_timeout connect_timeout", "0s:"+h+" 1m0s:"+s+" 2m0s:"+s+" done",
		"connect_timeout 0 https://a.com 0")
	f("a.com", "connect_timeout reset connect_timeout reset", "0s:"+h+" 1m0s:"+s+" 2m0s:"+h+" done",
		"connect_timeout 0 https://a.com 0")
	f("a.com", "connect_timeout reset tls_failed reset", "0s:"+h+" 1m0s:"+s+" 2m0s:"+h+" done",
		"tls_failed 0 https://a.com 0")
	f("a.com", "reset connect_timeout reset connect_timeout", "0s:"+s+" 1m0s:"+h+" 2m0s:"+s+" done",
		"reset 0 http://a.com 0", httpFirst)
	f("a.com", "dns_timeout 200", "1m0s:"+s+" done", "answered 200 https://a.com 0")
	f("a.com", "dns_timeout connect_refused 200", "1m0s:"+s+" 0s:"+h+" done", "answered 200 http://a.com 0")
	f("a.com", "dns_failed tls_failed connect_refused", "1m0s:"+s+" 0s:"+h+" done", "tls_failed 0 https://a.com 0")
	f("a.com", "dns_timeout timeout reset timeout", "1m0s:"+s+" 0s:"+h+" 2m0s:"+h+" done", "timeout 0 https://a.com 0")
	f("a.com", "timeout timeout", "0s:"+h+" done", "timeout 0 https://a.com 0", retries(0))
	// Another address of the host, at once if one is refused or unreachable.
	f("https://a.com", "connect_refused/ 200", "0s:"+s+"#1 done", "answered 200 https://a.com 0")
	f("https://a.com", "unreachable/ unreachable/ 200", "0s:"+s+"#1 0s:"+s+"#2 done", "answered 200 https://a.com 0")
	f("https://a.com", "connect_refused/ connect_refused", "0s:"+s+"#1 done", "connect_refused 0 https://a.com 0")
	f("https://a.com", "connect_refused/ unreachable", "0s:"+s+"#1 done", "connect_refused 0 https://a.com 0")
	f("https://a.com", "unreachable/ connect_refused/ unreachable", "0s:"+s+"#1 0s:"+s+"#2 done",
		"connect_refused 0 https://a.com 0")
	f("https://a.com", "unreachable/ unreachable", "0s:"+s+"#1 done", "connect_failed 0 https://a.com 0")
	f("https://a.com", "connect_refused/ tls_failed", "0s:"+s+"#1 done", "tls_failed 0 https://a.com 0")
	f("https://a.com", "connect_failed/", "done", "connect_failed 0 https://a.com 0") // for another reason
	f("https://a.com", "tls_failed/", "done", "tls_failed 0 https://a.com 0")         // connected
	// The other scheme begins at the first address, or at the one that took the connection.
	f("a.com", "connect_refused/ connect_refused connect_refused/ 200", "0s:"+s+"#1 0s:"+h+" 0s:"+h+"#1 done",
		"answered 200 http://a.com 0")
	f("a.com", "connect_refused/ tls_failed 200", "0s:"+s+"#1 0s:"+h+"@1 done", "answered 200 http://a.com 0")
	// Before another address a time-out counts like a refusal. After the last address it takes precedence.
	f("https://a.com", "connect_timeout/ connect_timeout/ 200", "0s:"+s+"#1 0s:"+s+"#2 done",
		"answered 200 https://a.com 0")
	f("https://a.com", "connect_timeout/ connect_refused/ 200", "0s:"+s+"#1 0s:"+s+"#2 done",
		"answered 200 https://a.com 0", retries(0))
	f("a.com", "connect_timeout/ 200", "0s:"+s+"#1 done", "answered 200 https://a.com 0")
	f("a.com", "connect_timeout/ tls_failed 200", "0s:"+s+"#1 0s:"+h+"@1 done", "answered 200 http://a.com 0")
	f("https://a.com", "connect_timeout/ connect_refused 200", "0s:"+s+"#1 1m0s:"+s+" done",
		"answered 200 https://a.com 0")
	f("https://a.com", "connect_timeout/ unreachable", "0s:"+s+"#1 done", "connect_timeout 0 https://a.com 0", retries(0))
	f("https://a.com", "connect_refused/ connect_timeout/ unreachable", "0s:"+s+"#1 0s:"+s+"#2 done",
		"connect_timeout 0 https://a.com 0", retries(0))
	f("a.com", "connect_timeout/ connect_refused connect_refused", "0s:"+s+"#1 0s:"+h+" done",
		"connect_timeout 0 https://a.com 0", retries(0))
	f("a.com", "connect_timeout/ connect_timeout connect_timeout/ 200", "0s:"+s+"#1 0s:"+h+" 0s:"+h+"#1 done",
		"answered 200 http://a.com 0")
	f("https://a.com", "connect_refused/ 503 503 503", "0s:"+s+"#1 1m0s:"+s+"@1 2m0s:"+s+"@1 done",
		"answered 503 https://a.com 0")
	f("https://a.com", "connect_timeout/ connect_timeout 200", "0s:"+s+"#1 1m0s:"+s+" done",
		"answered 200 https://a.com 0")
	f("https://a.com", "connect_refused/ connect_timeout 200", "0s:"+s+"#1 1m0s:"+s+" done",
		"answered 200 https://a.com 0")
	f("https://a.com", "connect_refused/ 503 connect_timeout/ 503 200", "0s:"+s+"#1 1m0s:"+s+"@1 0s:"+s+"@1#1 2m0s:"+s+
		"@2 done", "answered 200 https://a.com 0")
	f("https://a.com", "timeout/ 200", "1m0s:"+s+" done", "answered 200 https://a.com 0") // connected
	// After a redirect the addresses are the target's, and a retry begins at the origin's first.
	f("https://a.com", "connect_refused/ 301>/x connect_refused/ 200", "0s:"+s+
		"#1 0s:https://a.com/x 0s:https://a.com/x#1 done", "answered 200 https://a.com 1")
	f("https://a.com", "301>http://b.com/ connect_refused/ connect_refused", "0s:http://b.com/ 0s:http://b.com/#1 done",
		"connect_refused 0 https://a.com 1")
	f("https://a.com", "301>http://b.com/ connect_timeout/ 200", "0s:http://b.com/ 0s:http://b.com/#1 done",
		"answered 200 https://a.com 1", retries(0))
	f("https://a.com", "301>http://b.com/ connect_timeout/ connect_timeout 200",
		"0s:http://b.com/ 0s:http://b.com/#1 1m0s:"+s+" done", "answered 200 https://a.com 0")
	// Redirects.
	f("https://a.com", "301>/x 200", "0s:https://a.com/x done", "answered 200 https://a.com 1")
	f("https://a.com", "302>http://b.com/robots.txt 307>/y 404", "0s:http://b.com/robots.txt 0s:http://b.com/y done",
		"answered 404 https://a.com 2")
	f("https://a.com", "303>/1 308>/2 300>/3 304>/4 399>/5 200",
		"0s:https://a.com/1 0s:https://a.com/2 0s:https://a.com/3 0s:https://a.com/4 0s:https://a.com/5 done",
		"answered 200 https://a.com 5")
	f("https://a.com", "301>/1 301>/2 301>/3 301>/4 301>/5 301>/6",
		"0s:https://a.com/1 0s:https://a.com/2 0s:https://a.com/3 0s:https://a.com/4 0s:https://a.com/5 done",
		"redirect_limit 301 https://a.com 5")
	f("https://a.com", "301>/1", "done", "redirect_limit 301 https://a.com 0", func(p *policy) { p.maxRedirects = 0 })
	f("https://a.com", "301>/robots.txt", "done", "redirect_limit 301 https://a.com 0")
	f("https://a.com", "301>/1 301>/2 301>/1", "0s:https://a.com/1 0s:https://a.com/2 done",
		"redirect_limit 301 https://a.com 2")
	f("https://a.com", "301>/1 301>/robots.txt", "0s:https://a.com/1 done", "redirect_limit 301 https://a.com 1")
	f("https://a.com", "301", "done", "redirect_invalid 301 https://a.com 0")
	f("https://a.com", "301>ftp://a.com/", "done", "redirect_invalid 301 https://a.com 0")
	f("https://a.com", "301>https://u@b.com/", "done", "redirect_invalid 301 https://a.com 0")
	// A retry begins at the origin again, and may follow the same redirects.
	f("https://a.com", "301>/1 503 301>/1 200", "0s:https://a.com/1 1m0s:"+s+" 0s:https://a.com/1 done",
		"answered 200 https://a.com 1")
	f("a.com", "301>https://b.com/robots.txt dns_timeout 301>https://b.com/robots.txt dns_not_found",
		"0s:https://b.com/robots.txt 1m0s:"+s+" 0s:https://b.com/robots.txt done", "dns_not_found 0 https://a.com 1")
}

func TestWait(t *testing.T) {
	p := policy{retryAfter: time.Minute, maxRetryAfter: 10 * time.Minute}
	f := func(before int, asked time.Duration, jitter float64, want time.Duration) {
		t.Helper()
		if got := p.wait(before, asked, jitter); got != want {
			t.Errorf("wait(%d, %v, %v) = %v, want %v", before, asked, jitter, got, want)
		}
	}
	f(0, 0, 0, time.Minute) // never earlier
	f(0, 0, 1, 72*time.Second)
	f(1, 0, 0, 96*time.Second)
	f(1, 0, 1, 144*time.Second)
	f(90, 0, 0.5, 10*time.Minute)
	f(0, time.Hour, 0.5, 10*time.Minute)
}

func TestTrailIsNotShared(t *testing.T) {
	a := extend(nil, 301, exchange.Target{Origin: parse(t, "http://a.com"), Path: "/1"})
	b := extend(a, 301, exchange.Target{Origin: parse(t, "http://a.com"), Path: "/2"})
	c := extend(a, 302, exchange.Target{Origin: parse(t, "http://a.com"), Path: "/3"})
	if len(a.Hops) != 1 || b.Hops[1].URL != "http://a.com/2" || c.Hops[1].URL != "http://a.com/3" {
		t.Errorf("got %v %v %v", a, b, c)
	}
}

package simweb

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Policy holds the scanner's settings that decide how a scan ends.
type Policy struct {
	HTTPFirst    bool  // entries without a scheme begin with http instead of https
	NoFallback   bool  // entries without a scheme do not try the other one
	MaxRedirects int   // hops followed
	MaxBody      int64 // decoded bytes kept
	Retries      int   // retries of transient failures
	Attempts     bool  // the truth has the number of attempts: of a web not asked before, whose network never fails
	StrictTLS    bool  // an unverifiable certificate is a failure
	TrustCA      bool  // the scanner trusts the web's authority (CAPool)
	Guarded      bool  // the scanner dials no private address, and all hosts here have one
}

// DefaultPolicy is the policy of a scan without flags, on a machine that does not know the web's authority.
func DefaultPolicy() Policy { return Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 2} }

// Expect is what a scan of an origin finds, in the words of the table `sites`. Hosts that fail at first must not have
// been asked before (see Forget), and the scanner's time-outs must be longer than Config.Slow and shorter than
// Config.Hold.
type Expect struct {
	Behaviour   string             // of the listed host
	Outcomes    []exchange.Outcome // any of these; several where system or scanner may choose
	Status      int                // 0: none
	Hops        int                // redirects followed, up to the end or a loop
	Truncated   bool
	Body        []byte // decoded bytes kept, which may be shared with other hosts: read them only
	BodyHash    uint64 // xxh64 of Body; 0: none
	BodyBytes   int64  // length of Body
	FinalScheme origin.Scheme
	// TLSVerified is Unknown by http, and without a status: scanners may differ in what they keep of a failed
	// handshake.
	TLSVerified exchange.Tristate
	// Access is what the first of Outcomes means for a crawler: conditional, full_allow, full_disallow or unknown.
	Access string
	// Finding is what a survey counts for the first of Outcomes. It is empty for a body of Config.Corpus, which only a
	// parser can tell.
	Finding  string
	Attempts int // attempts up to the first of Outcomes

	Answered origin.Origin // the row's origin: the one that answered, or was tried first
}

// result is the end of an exchange or an attempt.
type result struct {
	outcomes  []exchange.Outcome
	status    int
	location  string
	body      []byte
	truncated bool
	verified  exchange.Tristate
	scheme    origin.Scheme
	hops      int
	anyStatus bool // a status came, of this exchange or of an earlier hop
	asked     origin.Origin
	challenge string // of the last response
}

func failed(outcomes ...exchange.Outcome) result { return result{outcomes: outcomes} }

// walk is a scan of one origin in the pure half of the web.
type walk struct {
	world *world
	web   *Web
	p     Policy

	asked    map[countKey]int
	attempts int
}

// Expect returns what a scan of an origin finds. It makes no requests and changes nothing.
func (w *Web) Expect(o origin.Origin, p Policy) Expect {
	wk := walk{world: w.world, web: w, p: p}
	e := Expect{Behaviour: w.world.behaviour(o.Host()).Name}
	r := wk.life(o)
	e.Answered, e.Attempts, e.Access = r.asked, wk.attempts, accessAfter(r.outcomes[0], r.status)
	if e.Finding = findingAfter(&r); w.world.cfg.Corpus != "" && r.status/100 == 2 && e.Finding != "challenged" {
		e.Finding = ""
	}
	e.Outcomes, e.Status, e.Hops, e.Body, e.Truncated = r.outcomes, r.status, r.hops, r.body, r.truncated
	e.FinalScheme = r.scheme
	if r.status != 0 {
		e.TLSVerified = r.verified
	}
	if e.BodyBytes = int64(len(r.body)); e.BodyBytes > 0 {
		e.BodyHash = xxhash.Sum64(r.body)
	}
	return e
}

// accessAfter returns what an outcome means for a crawler (RFC 9309 §2.3.1), in the words of the dataset.
func accessAfter(outcome exchange.Outcome, status int) string {
	switch {
	case outcome == exchange.BlockedAddress, outcome == exchange.OptedOut, outcome == exchange.NotArchived,
		outcome == exchange.Carried:
		return "unknown"
	case outcome == exchange.RedirectLimit, outcome == exchange.RedirectInvalid:
		return "full_allow"
	case outcome != exchange.Answered, status >= 500:
		return "full_disallow"
	case status >= 300:
		return "full_allow"
	}
	return "conditional"
}

// findingAfter returns the finding of an end, in the words of the dataset. The bodies of this web are plain enough to
// tell it from their beginning or one record.
func findingAfter(r *result) string {
	outcome := r.outcomes[0]
	switch body := string(r.body); {
	case !outcome.Asked():
		return "not_asked"
	case r.challenge != "":
		return "challenged"
	case r.status == 429:
		return "rate_limited"
	case outcome == exchange.RedirectLimit, outcome == exchange.RedirectInvalid:
		return "none"
	case outcome != exchange.Answered:
		return "unreachable"
	case r.status >= 500, r.status == 408:
		return "server_error"
	case r.status == 404, r.status == 410:
		return "none"
	case r.status >= 400:
		return "refused"
	case strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(body, "\ufeff"), " \t\r\n"), "<"),
		strings.HasPrefix(body, "GIF89a"):
		return "html"
	case anyRecord.MatchString(body):
		return "rules"
	}
	return "no_rules"
}

// anyRecord finds a record with a known key, in the spellings that this web uses.
var anyRecord = regexp.MustCompile(
	`(?im)(?:^|\r)[ \t\x00]*(?:\x{feff})?(?:user[ -]?agent|dis*all?ow|allow|sitemap|site-map|crawl-delay|content-signal|content-usage|license|host|clean-param|request-rate|visit-time)[ \t]*:`)

// mayPass reports whether a retry may end otherwise.
func (r *result) mayPass() bool {
	if r.outcomes[0] == exchange.Answered {
		return r.challenge == "" && (r.status >= 500 || r.status == 408 || r.status == 429)
	}
	return r.outcomes[0].Transient()
}

// life makes all attempts at an origin: one by the first scheme; one by the other, if no status came and the entry
// names no scheme; then retries. Retries keep to a scheme by which a status came, and else alternate. Without a status
// the row is the first scheme's.
func (wk *walk) life(o origin.Origin) result {
	schemes := []origin.Scheme{o.Scheme()}
	if o.Scheme() == origin.Auto {
		schemes = []origin.Scheme{origin.HTTPS, origin.HTTP}
		if wk.p.HTTPFirst {
			slices.Reverse(schemes)
		}
	}
	last := make([]result, 1, 2)
	last[0] = wk.attempt(o.As(schemes[0]))
	if len(schemes) > 1 && !last[0].anyStatus && !wk.p.NoFallback && last[0].outcomes[0].FallsBack() {
		last = append(last, wk.attempt(o.As(schemes[1])))
	}
	for try := range wk.p.Retries {
		answered := slices.IndexFunc(last, func(r result) bool { return r.anyStatus })
		var of []int // schemes worth a retry
		for i := range last {
			if last[i].mayPass() && (answered < 0 || answered == i) {
				of = append(of, i)
			}
		}
		if len(of) == 0 {
			break
		}
		i := of[try%len(of)]
		r := wk.attempt(o.As(schemes[i]))
		r.anyStatus = r.anyStatus || last[i].anyStatus
		last[i] = r
	}
	if len(last) > 1 && last[1].anyStatus {
		return last[1]
	}
	return last[0]
}

// attempt asks an origin by its scheme, redirects included.
func (wk *walk) attempt(o origin.Origin) result {
	target := exchange.Target{Origin: o, Path: exchange.RobotsPath}
	visited := []string{target.String()}
	anyStatus := false
	for hops := 0; ; hops++ {
		r := wk.exchange(target)
		r.hops, r.scheme, r.asked = hops, target.Origin.Scheme(), o
		if hops == 0 && r.outcomes[0].Asked() {
			wk.attempts++
		}
		anyStatus = anyStatus || r.status != 0
		r.anyStatus = anyStatus
		if r.location == "" {
			return r
		}
		next, err := locate(target, r.location)
		if err != nil {
			r.outcomes = []exchange.Outcome{exchange.RedirectInvalid}
			return r
		}
		if slices.Contains(visited, next.String()) || hops == wk.p.MaxRedirects {
			r.outcomes = []exchange.Outcome{exchange.RedirectLimit}
			return r
		}
		target = next
		visited = append(visited, next.String())
	}
}

// locate returns the target of a Location.
func locate(from exchange.Target, location string) (exchange.Target, error) {
	base, err := url.Parse(from.String())
	if err != nil {
		return exchange.Target{}, err
	}
	to, err := base.Parse(location)
	if err != nil {
		return exchange.Target{}, err
	}
	path := to.RequestURI()
	to.Path, to.RawQuery, to.Fragment = "", "", ""
	o, err := origin.Parse(to.String())
	if err != nil {
		return exchange.Target{}, err
	}
	return exchange.Target{Origin: o, Path: path}, nil
}

// exchange asks one URL. Name, connection, TLS or HTTP may end it.
func (wk *walk) exchange(t exchange.Target) result {
	w, host, scheme := wk.world, t.Origin.Host(), t.Origin.Scheme()
	if scheme == origin.FTP {
		return failed(exchange.ConnectRefused)
	}
	b := w.behaviour(host)
	if addr, ok := t.Origin.Addr(); ok {
		if slices.Contains(w.vacant, addr) && !wk.p.Guarded {
			return failed(exchange.ConnectRefused)
		}
		if wk.web.places[addr] == nil {
			return failed(exchange.ConnectRefused, exchange.ConnectTimeout, exchange.ConnectFailed, exchange.BlockedAddress)
		}
	} else if outcomes := b.name.outcomes(); outcomes != nil {
		return failed(outcomes...)
	}
	if wk.p.Guarded {
		return failed(exchange.BlockedAddress)
	}
	secure, listening := false, true
	switch port := t.Origin.Port(); port {
	case 80, w.httpPort:
	case 443, w.tlsPort:
		secure = true
	default:
		return failed(exchange.ConnectRefused)
	}
	if !w.single {
		listening = b.place == placeFull || b.place == placeHole || b.place == placePlainOnly && !secure
		listening = listening && b.name != nameZero
	}
	switch {
	case b.name == nameSixBesideHole && !w.six && len(w.holes) > 0:
		return failed(exchange.ConnectTimeout)
	case (b.name == nameSix || b.name == nameSixBesideHole) && !w.six:
		return failed(exchange.ConnectFailed, exchange.ConnectRefused)
	case !listening:
		return failed(exchange.ConnectRefused)
	case b.place == placeHole && len(w.holes) > 0:
		return failed(exchange.ConnectTimeout)
	}
	verified := exchange.Unknown
	switch {
	case scheme == origin.HTTP && secure:
		return result{outcomes: []exchange.Outcome{exchange.Answered}, status: 400}
	case scheme == origin.HTTPS && !secure:
		return failed(exchange.TLSFailed)
	case secure:
		if outcomes := b.hello.outcomes(); outcomes != nil {
			return failed(outcomes...)
		}
		verified = exchange.No
		if wk.p.TrustCA && b.hello.verifies() {
			verified = exchange.Yes
		}
		if wk.p.StrictTLS && verified == exchange.No {
			return failed(exchange.TLSFailed)
		}
	}
	a := ask{w: w, host: host, scheme: scheme, path: t.Path}
	if p := t.Origin.Port(); p != scheme.DefaultPort() {
		a.port = p
	}
	if b.counts {
		if wk.asked == nil {
			wk.asked = map[countKey]int{}
		}
		key := countKey{xxhash.Sum64String(host), scheme}
		wk.asked[key]++
		a.nth = wk.asked[key]
	}
	reply := b.answer(&a)
	r := reply.result(wk.p.MaxBody)
	r.verified = verified
	return r
}

// result returns what a client finds that keeps at most the given number of bytes.
func (r *reply) result(most int64) result {
	out := result{outcomes: r.yields, status: r.status, location: r.location, challenge: r.challenge}
	if r.yields != nil {
		sent := r.sent
		if r.cut {
			sent = r.body.sentOfCut()
		}
		if int64(sent) > most {
			// The client has enough before the answer fails.
			out.outcomes = nil
		} else {
			return out
		}
	}
	out.outcomes = []exchange.Outcome{exchange.Answered}
	if r.status >= 200 && r.status <= 299 {
		out.body, out.truncated = r.body.kept(most)
	}
	return out
}

// outcomes returns how a look-up without an address ends; nil: it finds one.
func (k nameKind) outcomes() []exchange.Outcome {
	switch k {
	case nameMissing, nameNoAddress:
		return []exchange.Outcome{exchange.DNSNotFound}
	case nameServFail, nameRefused:
		return []exchange.Outcome{exchange.DNSFailed}
	case nameSilent:
		return []exchange.Outcome{exchange.DNSTimeout}
	case nameAliasLoop:
		return []exchange.Outcome{exchange.DNSFailed, exchange.DNSNotFound}
	}
	return nil
}

// outcomes returns how a failed handshake ends; nil: it succeeds.
func (k helloKind) outcomes() []exchange.Outcome {
	switch k {
	case hello10Only, helloAlert, helloPlain, helloGarbage, helloOtherProtocol:
		return []exchange.Outcome{exchange.TLSFailed}
	case helloHang, helloDrip, helloStall:
		return []exchange.Outcome{exchange.Timeout, exchange.TLSFailed}
	case helloReset:
		return []exchange.Outcome{exchange.Reset, exchange.TLSFailed}
	case helloClose:
		return []exchange.Outcome{exchange.ClosedEarly, exchange.TLSFailed, exchange.Reset}
	}
	return nil
}

// verifies reports whether the certificate is valid for a client that trusts the authority.
func (k helloKind) verifies() bool { return k == helloFine || k == hello12Only || k == helloLongChain }

// Truth is a line of a truth file: what a scan finds for one line of a list, under the names of the table `sites`.
// Outcomes lists all right outcomes, and Outcome is the first.
type Truth struct {
	Seq         int      `json:"seq"`
	Input       string   `json:"input"`
	Host        string   `json:"host"`
	Port        int      `json:"port"`
	Requested   string   `json:"requested"`
	Origin      string   `json:"origin"`
	Behaviour   string   `json:"behaviour"`
	Outcome     string   `json:"outcome"`
	Outcomes    []string `json:"outcomes"`
	Status      *int     `json:"status"`
	Hops        int      `json:"hops"`
	FinalScheme string   `json:"final_scheme"`
	TLSVerified *bool    `json:"tls_verified"`
	BodyBytes   int64    `json:"body_bytes"`
	Truncated   bool     `json:"truncated"`
	Access      string   `json:"access"`             // where the outcome is Outcome
	Finding     string   `json:"finding,omitempty"`  // likewise; absent for a body of a corpus
	Attempts    *int     `json:"attempts,omitempty"` // if Policy.Attempts is set and the number is certain
	BodyHash    int64    `json:"body_hash,string"`   // signed, as in the dataset
}

// WriteTruth writes what a scan of a list finds, as one JSON line per entry. As in the dataset, entries that are not
// origins are left out, but counted in seq.
func (w *Web) WriteTruth(out io.Writer, list iter.Seq[string], p Policy) error {
	buffered := bufio.NewWriterSize(out, 64<<10)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	seq := -1
	for input := range list {
		seq++
		o, err := origin.Parse(input)
		if err != nil {
			continue
		}
		if err := encoder.Encode(truth(seq, strings.TrimSpace(input), o, w.Expect(o, p), p.Attempts)); err != nil {
			return fmt.Errorf("cannot write the truth: %w", err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("cannot write the truth: %w", err)
	}
	return nil
}

func truth(seq int, input string, o origin.Origin, e Expect, attempts bool) Truth {
	t := Truth{
		Seq: seq, Input: input, Host: o.Host(), Port: int(o.Port()), Requested: o.Scheme().String(),
		Origin: e.Answered.String(), Behaviour: e.Behaviour, Outcome: e.Outcomes[0].String(),
		BodyBytes: e.BodyBytes, Truncated: e.Truncated, BodyHash: int64(e.BodyHash), Access: e.Access, Finding: e.Finding,
		Hops: e.Hops, FinalScheme: e.FinalScheme.String(),
	}
	if attempts {
		t.Attempts = &e.Attempts
	}
	for _, outcome := range e.Outcomes {
		t.Outcomes = append(t.Outcomes, outcome.String())
	}
	if e.Status != 0 {
		t.Status = &e.Status
	}
	if e.TLSVerified != exchange.Unknown {
		verified := e.TLSVerified == exchange.Yes
		t.TLSVerified = &verified
	}
	return t
}

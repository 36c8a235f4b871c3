package main

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// What check says about names: for each host on an origin's way, what it was looked up to, who said so, and which of the
// addresses was dialled. The rows of a scan have the time that it took, and no more: what is told here is remembered for
// check alone, by a witness between the fetcher and the resolver.

// witness remembers what was answered about the hosts of one origin, in the order in which they were asked for. Its zero value
// has seen nothing. It is safe for use by many goroutines.
type witness struct {
	mu    sync.Mutex
	hosts []*witnessed
}

// witnessed is one host.
type witnessed struct {
	host    string
	answer  resolve.Answer
	six     *resolve.Answer // to the question for IPv6 addresses besides; nil: it was not asked
	dialled []netip.Addr
}

// resolver returns r, seen by the witness.
func (w *witness) resolver(r *resolve.Resolver) fetcher.Resolver { return &witnessedResolver{r, w} }

type witnessedResolver struct {
	*resolve.Resolver
	witness *witness
}

func (r *witnessedResolver) Lookup(ctx context.Context, host string, patience time.Duration) resolve.Answer {
	answer := r.Resolver.Lookup(ctx, host, patience)
	r.witness.heard(host, answer, false)
	return answer
}

func (r *witnessedResolver) LookupIPv6(ctx context.Context, host string, patience time.Duration) resolve.Answer {
	answer := r.Resolver.LookupIPv6(ctx, host, patience)
	r.witness.heard(host, answer, true)
	return answer
}

// fetcher returns f, seen by the witness.
func (w *witness) fetcher(f pipeline.Fetcher) pipeline.Fetcher { return &witnessedFetcher{f, w} }

type witnessedFetcher struct {
	pipeline.Fetcher
	witness *witness
}

func (f *witnessedFetcher) Do(ctx context.Context, x *exchange.Exchange) exchange.Next {
	host := x.Target.Origin.Host()
	next := f.Fetcher.Do(ctx, x)
	f.witness.saw(host, x.Response.Remote.Addr())
	return next
}

// heard notes an answer. Of several about one host, as each hop and later try brings one, it keeps the last that came from
// somewhere: what the cache repeats says less.
func (w *witness) heard(host string, answer resolve.Answer, six bool) {
	if answer.PutOff {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.of(host)
	switch {
	case h == nil:
		h = &witnessed{host: host}
		w.hosts = append(w.hosts, h)
	case six && h.six != nil && answer.Took == 0, !six && answer.Took == 0:
		return
	}
	if six {
		h.six = &answer
	} else {
		h.answer = answer
	}
}

// saw notes an address that was dialled. A host that nobody was asked about has its address from the command line.
func (w *witness) saw(host string, addr netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.of(host); h != nil && addr.IsValid() && !slices.Contains(h.dialled, addr) {
		h.dialled = append(h.dialled, addr)
	}
}

func (w *witness) of(host string) *witnessed {
	for _, h := range w.hosts {
		if h.host == host {
			return h
		}
	}
	return nil
}

// dnsResult is what check --json says about names.
type dnsResult struct {
	Hosts []hostResult `json:"hosts"` // those on the origin's way, in its order
}

// hostResult is what became of one name.
type hostResult struct {
	Host      string       `json:"host"`
	Outcome   string       `json:"outcome"`           // found, or an outcome of docs/outcomes.md
	Error     string       `json:"error,omitempty"`   // why it was not found, in words
	Alias     string       `json:"alias,omitempty"`   // the name that it leads to
	Addresses []netip.Addr `json:"addresses"`         // those that were asked for, IPv6 only where IPv4 did not do; and any that was dialled
	Dialled   []netip.Addr `json:"dialled,omitempty"` // of them, in turn
	Source    string       `json:"source"`            // name_server, this_machine, or none where nobody answered
	Server    string       `json:"server,omitempty"`  // that answered, or refused to, with its port
	DNSMillis float64      `json:"dns_ms"`            // the time that it took; 0 without a name server
	TTL       *int64       `json:"ttl_seconds"`       // for which the answer still counts; null: for ever, and where it is none to keep
}

// The values of hostResult.Source, and of Outcome besides those of failures.
const (
	fromServer  = "name_server"
	fromMachine = "this_machine"
	fromNobody  = "none"
	nameFound   = "found"
)

// result is what the witness has to tell at this time; nil where it has seen nothing.
func (w *witness) result(now time.Time) *dnsResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.hosts) == 0 {
		return nil
	}
	r := &dnsResult{}
	for _, h := range w.hosts {
		r.Hosts = append(r.Hosts, h.result(now))
	}
	return r
}

func (h *witnessed) result(now time.Time) hostResult {
	a := h.answer
	r := hostResult{Host: h.host, Outcome: nameFound, Alias: strings.TrimSuffix(a.Alias, "."), Addresses: []netip.Addr{}, Dialled: h.dialled}
	if a.Outcome != 0 {
		r.Outcome, r.Error = a.Outcome.String(), a.Cause.String()
	}
	r.Addresses = append(r.Addresses, a.Addrs...)
	took, until := a.Took, a.Until
	addresses := h.dialled // an earlier answer may have had others
	if h.six != nil {
		took += h.six.Took
		if h.six.Outcome == 0 {
			addresses = append(slices.Clone(h.six.Addrs), addresses...)
			if h.six.Until.Before(until) {
				until = h.six.Until
			}
		}
	}
	for _, addr := range addresses {
		if !slices.Contains(r.Addresses, addr) {
			r.Addresses = append(r.Addresses, addr)
		}
	}
	r.DNSMillis = math.Round(took.Seconds()*1e6) / 1e3
	if !until.IsZero() {
		ttl := max(0, int64(until.Sub(now).Round(time.Second)/time.Second))
		r.TTL = &ttl
	}
	switch {
	case a.Server.IsValid():
		r.Source, r.Server = fromServer, a.Server.String()
	case a.Outcome == 0:
		r.Source = fromMachine
	default:
		r.Source = fromNobody
	}
	return r
}

// names shows a line about each host that was looked up.
func (x *explanation) names() {
	if x.dns == nil {
		return
	}
	for i := range x.dns.Hosts {
		x.fact("dns", text(x.dnsWords(&x.dns.Hosts[i])))
	}
}

// dnsWords says what became of a name: what it leads to, for how long, and who said so.
func (x *explanation) dnsWords(h *hostResult) string {
	name := h.Host
	if h.Alias != "" {
		name += " is an alias of " + h.Alias
	}
	what := x.addresses(h)
	if h.Outcome != nameFound {
		what = failureWords(h.Outcome) + ": " + h.Error
	}
	var who string
	switch h.Source {
	case fromServer:
		who = fmt.Sprintf("by %s in %s", h.Server, millis(h.DNSMillis))
	case fromMachine:
		who = "from the hosts file"
		if h.Host == "localhost" || strings.HasSuffix(h.Host, ".localhost") {
			who = "known to this machine" // RFC 6761 §6.3
		}
	case fromNobody:
		if h.DNSMillis > 0 {
			who = "after " + millis(h.DNSMillis)
		}
	}
	parts := []string{name + ": " + what}
	if h.TTL != nil {
		parts = append(parts, left(*h.TTL))
	}
	if who != "" {
		parts = append(parts, who)
	}
	return strings.Join(parts, "; ")
}

// failureWords is an outcome of a name as a word of prose.
func failureWords(outcome string) string {
	switch outcome {
	case exchange.DNSNotFound.String():
		return "not found"
	case exchange.DNSFailed.String():
		return "failed"
	case exchange.DNSTimeout.String():
		return "timeout"
	}
	return outcome
}

// addresses lists a host's addresses, those that were dialled among them; of many, the first.
func (x *explanation) addresses(h *hostResult) string {
	const shown = 4
	var list []string
	for i, addr := range h.Addresses {
		switch dialled := slices.Contains(h.Dialled, addr); {
		case dialled:
			list = append(list, addr.String()+" (dialled)")
		case i < shown || x.all:
			list = append(list, addr.String())
		}
	}
	if n := len(h.Addresses) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("%d more", n))
	}
	return strings.Join(list, ", ")
}

// left is a time to live, no finer than a reader cares for.
func left(seconds int64) string {
	const minute, hour = 60, 3600
	switch {
	case seconds < 2*minute:
		return fmt.Sprintf("%d s left", seconds)
	case seconds < 2*hour:
		return fmt.Sprintf("%d min left", seconds/minute)
	}
	return fmt.Sprintf("%d h left", seconds/hour)
}

// millis is a time in milliseconds, no finer than a reader cares for.
func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < 10*time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

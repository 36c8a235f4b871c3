// Package observer answers one question: which names were looked up on the way to one site, and what was answered? The
// rows of a scan have the time that a look-up took, and no more; what is told here is remembered for `check` alone, by an
// observer between the fetcher and the resolver.
package observer

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
)

// Observer remembers what was answered about the hosts of one site, in the order in which they were asked for. Its zero
// value has seen nothing. It is safe for use by many goroutines.
type Observer struct {
	mu    sync.Mutex
	hosts []*observed
}

// observed is one host.
type observed struct {
	host    string
	answer  resolve.Answer
	six     *resolve.Answer // to the question for IPv6 addresses besides; nil: it was not asked
	dialled []netip.Addr
}

// Resolver is a resolver whose answers the observer sees.
type Resolver struct {
	*resolve.Resolver
	Observer *Observer
}

// Lookup asks the resolver.
func (r *Resolver) Lookup(ctx context.Context, host string) resolve.Answer {
	answer := r.Resolver.Lookup(ctx, host)
	r.Observer.Answered(host, answer, false)
	return answer
}

// LookupIPv6 asks the resolver.
func (r *Resolver) LookupIPv6(ctx context.Context, host string) resolve.Answer {
	answer := r.Resolver.LookupIPv6(ctx, host)
	r.Observer.Answered(host, answer, true)
	return answer
}

// Answered notes an answer; six tells that it is to the question for IPv6 addresses. Of several about one host, as each hop
// and retry brings one, the last counts that did not come from the cache.
func (o *Observer) Answered(host string, answer resolve.Answer, six bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.of(host)
	switch {
	case h == nil:
		h = &observed{host: host}
		o.hosts = append(o.hosts, h)
	case six && h.six != nil && answer.Took == 0, !six && answer.Took == 0:
		return
	}
	if six {
		h.six = &answer
	} else {
		h.answer = answer
	}
}

// Dialled notes an address that was dialled. A host that was not looked up has its address from the command line.
func (o *Observer) Dialled(host string, addr netip.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.of(host); h != nil && addr.IsValid() && !slices.Contains(h.dialled, addr) {
		h.dialled = append(h.dialled, addr)
	}
}

func (o *Observer) of(host string) *observed {
	for _, h := range o.hosts {
		if h.host == host {
			return h
		}
	}
	return nil
}

// Result is what `check --json` says about names.
type Result struct {
	Hosts []Host `json:"hosts"` // those on the origin's way, in its order
}

// Host is what became of one name.
type Host struct {
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

// The values of Host.Source, and of Outcome besides those of failures.
const (
	FromServer  = "name_server"
	FromMachine = "this_machine"
	FromNobody  = "none"
	Found       = "found"
)

// Result is what the observer has seen, at this time; nil where it has seen nothing.
func (o *Observer) Result(now time.Time) *Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.hosts) == 0 {
		return nil
	}
	r := &Result{}
	for _, h := range o.hosts {
		r.Hosts = append(r.Hosts, h.result(now))
	}
	return r
}

func (h *observed) result(now time.Time) Host {
	a := h.answer
	r := Host{Host: h.host, Outcome: Found, Alias: strings.TrimSuffix(a.Alias, "."), Addresses: []netip.Addr{}, Dialled: h.dialled}
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
		r.Source, r.Server = FromServer, a.Server.String()
	case a.Outcome == 0:
		r.Source = FromMachine
	default:
		r.Source = FromNobody
	}
	return r
}

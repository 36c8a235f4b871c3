package terminal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/observer"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// What check says about names: for each host on the way to a site, what it was looked up to, who said so, and which of the
// addresses was dialled.

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
func (x *explanation) dnsWords(h *observer.Host) string {
	name := h.Host
	if h.Alias != "" {
		name += " is an alias of " + h.Alias
	}
	what := x.addresses(h)
	if h.Outcome != observer.Found {
		what = failureWords(h.Outcome) + ": " + h.Error
	}
	var who string
	switch h.Source {
	case observer.FromServer:
		who = fmt.Sprintf("by %s in %s", h.Server, millis(h.DNSMillis))
	case observer.FromMachine:
		who = "from the hosts file"
		if h.Host == "localhost" || strings.HasSuffix(h.Host, ".localhost") {
			who = "known to this machine" // RFC 6761 §6.3
		}
	case observer.FromNobody:
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
func (x *explanation) addresses(h *observer.Host) string {
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

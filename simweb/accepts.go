package simweb

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"
)

// This file records when connections came, at which address and for which host, to test a scanner's rates. It costs
// nothing unless Config.RecordAccepts is set.

const (
	// maxRecorded bounds the recorded connections of the whole web: 12 MB, and about 80 bytes for each host name. Later
	// connections are counted as missed.
	maxRecorded = 1 << 19

	maxHostName = 253 // bytes of a recorded name (RFC 1035 §2.3.4); a connection for a longer one has no host
)

// ledger holds the recorded connections in their order.
type ledger struct {
	begun time.Time

	mu     sync.Mutex
	rows   []acceptRow
	missed int
}

type acceptRow struct {
	at    time.Duration // when the connection came, since the web began, by the monotonic clock
	place *place
	host  unique.Handle[string] // zero until the request names it
}

// note records a connection that has waited to be accepted. It returns the connection's number, or -1 if the ledger is
// full.
//
// The ledger has the time at which a connection came. On a busy machine the web may accept half a second later, and
// then all connections at once, although they came in good order.
func (l *ledger) note(at *place, waited time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rows) == maxRecorded {
		l.missed++
		return -1
	}
	l.rows = append(l.rows, acceptRow{at: time.Since(l.begun) - waited, place: at})
	return len(l.rows) - 1
}

// inOrder returns the rows in the order of time.
func (l *ledger) inOrder() []acceptRow {
	rows := slices.Clone(l.rows)
	slices.SortStableFunc(rows, func(a, b acceptRow) int { return cmp.Compare(a.at, b.at) })
	return rows
}

// name records a connection's host.
func (l *ledger) name(row int, host string) {
	if row < 0 || len(host) > maxHostName {
		return
	}
	h := unique.Make(host)
	l.mu.Lock()
	l.rows[row].host = h
	l.mu.Unlock()
}

// Accepts returns the times at which an address's connections came, in order, if Config.RecordAccepts is set. The first
// 524,288 connections of the web are recorded.
func (w *Web) Accepts(addr netip.Addr) []time.Time {
	p := w.places[addr]
	if p == nil {
		return nil
	}
	var all []time.Time
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, row := range w.ledger.inOrder() {
		if row.place == p {
			all = append(all, w.ledger.begun.Add(row.at))
		}
	}
	return all
}

// busiest finds the most instants within any window. Instants are added in order, always with the same window.
type busiest struct {
	recent []time.Duration // within one window before the last instant
	most   int
}

func (b *busiest) add(at, window time.Duration) {
	gone := 0
	for gone < len(b.recent) && at-b.recent[gone] >= window {
		gone++
	}
	b.recent = append(b.recent[gone:], at)
	b.most = max(b.most, len(b.recent))
}

// Load describes the connections of an address or a host.
type Load struct {
	Name       string    `json:"name"`         // the address, or the host
	Total      int       `json:"total"`        // connections
	Second     int       `json:"busiest_1s"`   // the most of them within any second
	TenSeconds int       `json:"busiest_10s"`  // likewise within any ten
	First      time.Time `json:"first_accept"` // when the first came
	Last       time.Time `json:"last_accept"`  // and the last
}

// Record summarises a web's connections, for tests of rates. An accepted connection is counted when it came, and for a
// host only if the client has sent a request. A busiest Load is nil without connections.
type Record struct {
	Connections int64 `json:"connections"`
	MostOpen    int64 `json:"most_open"` // connections at once
	Missed      int   `json:"missed"`    // connections not recorded, since the ledger was full

	Hot          *Load `json:"hot_address"`         // of HotAddr, nil without connections
	Address      *Load `json:"busiest_address_1s"`  // the other address with the busiest second
	AddressOfTen *Load `json:"busiest_address_10s"` // likewise, ten seconds
	Host         *Load `json:"busiest_host_1s"`     // the host with the busiest second
	HostOfTen    *Load `json:"busiest_host_10s"`    // likewise, ten seconds
}

// Record returns the connections so far, if Config.RecordAccepts is set.
func (w *Web) Record() Record {
	r := Record{Connections: w.accepts.Load(), MostOpen: w.mostOpen.Load()}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	r.Missed = w.ledger.missed
	places := loadsBy(&w.ledger, func(row *acceptRow) (*place, bool) { return row.place, true })
	hosts := loadsBy(&w.ledger, func(row *acceptRow) (unique.Handle[string], bool) {
		return row.host, row.host != unique.Handle[string]{}
	})
	for p, load := range places {
		load.Name = p.addr.String()
		if p.addr == w.HotAddr() {
			r.Hot = &load.Load
			continue
		}
		r.Address, r.AddressOfTen = busier(r.Address, r.AddressOfTen, &load.Load)
	}
	for host, load := range hosts {
		load.Name = host.Value()
		r.Host, r.HostOfTen = busier(r.Host, r.HostOfTen, &load.Load)
	}
	return r
}

// runningLoad is a Load with its windows.
type runningLoad struct {
	Load
	second, ten busiest
}

// loadsBy counts the connections of each key.
func loadsBy[K comparable](l *ledger, key func(*acceptRow) (K, bool)) map[K]*runningLoad {
	loads := map[K]*runningLoad{}
	for _, row := range l.inOrder() {
		k, ok := key(&row)
		if !ok {
			continue
		}
		load := loads[k]
		if load == nil {
			load = &runningLoad{Load: Load{First: l.begun.Add(row.at)}}
			loads[k] = load
		}
		load.Total++
		load.Last = l.begun.Add(row.at)
		load.second.add(row.at, time.Second)
		load.ten.add(row.at, 10*time.Second)
		load.Second, load.TenSeconds = load.second.most, load.ten.most
	}
	return loads
}

// busier returns the loads with the busiest second and with the busiest ten seconds of the three given. Among equals
// the first name wins, so that the result does not depend on the order.
func busier(second, ten, other *Load) (*Load, *Load) {
	before := func(a int, x *Load, b int) bool { return a > b || a == b && other.Name < x.Name }
	if second == nil || before(other.Second, second, second.Second) {
		second = other
	}
	if ten == nil || before(other.TenSeconds, ten, ten.TenSeconds) {
		ten = other
	}
	return second, ten
}

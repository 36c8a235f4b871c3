package simweb

import (
	"net/netip"
	"sync"
	"time"
	"unique"
)

// This file keeps when connections came, to which address and for which host, and says how hard the busiest of them were
// pressed: what a scanner's promises about its pace are held against. Nothing of it costs anything unless
// Config.RecordAccepts asks for it.

const (
	// maxRecorded bounds the connections that are kept, of the whole web: 12 MB of them, and the names of their hosts,
	// about 80 bytes each. Those that come after are counted as missed.
	maxRecorded = 1 << 19

	maxHostName = 253 // bytes of a name that is kept (RFC 1035 §2.3.4); the record of a longer one has no host
)

// ledger holds the connections kept, in the order in which they came.
type ledger struct {
	begun time.Time

	mu     sync.Mutex
	rows   []acceptRow
	missed int
}

type acceptRow struct {
	at    time.Duration // since the web began, by the clock that nobody sets
	place *place
	host  unique.Handle[string] // the zero value until the client has said whom it wants
}

// note keeps that a connection came now, and returns its number; -1 where it is not kept. The time is taken within the
// lock, so that the rows are in its order.
func (l *ledger) note(at *place) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rows) == maxRecorded {
		l.missed++
		return -1
	}
	l.rows = append(l.rows, acceptRow{at: time.Since(l.begun), place: at})
	return len(l.rows) - 1
}

// name keeps for whom a connection was.
func (l *ledger) name(row int, host string) {
	if row < 0 || len(host) > maxHostName {
		return
	}
	h := unique.Make(host)
	l.mu.Lock()
	l.rows[row].host = h
	l.mu.Unlock()
}

// Accepts returns when connections to an address were taken, in order, where Config.RecordAccepts asks for it. Of the
// whole web the first 524,288 connections are kept.
func (w *Web) Accepts(addr netip.Addr) []time.Time {
	p := w.places[addr]
	if p == nil {
		return nil
	}
	var all []time.Time
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for i := range w.ledger.rows {
		if row := &w.ledger.rows[i]; row.place == p {
			all = append(all, w.ledger.begun.Add(row.at))
		}
	}
	return all
}

// Busiest returns the most connections that an address took within any window of that length.
func (w *Web) Busiest(addr netip.Addr, window time.Duration) int {
	var b busiest
	for _, t := range w.Accepts(addr) {
		b.add(t.Sub(w.ledger.begun), window)
	}
	return b.most
}

// busiest finds the most instants within any window. They are added in order, with the window always the same.
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

// Load is how hard an address or a host was pressed.
type Load struct {
	Name       string    `json:"name"`         // the address, or the host
	Total      int       `json:"total"`        // connections
	Second     int       `json:"busiest_1s"`   // the most of them within any second
	TenSeconds int       `json:"busiest_10s"`  // and within any ten
	First      time.Time `json:"first_accept"` // when the first was accepted
	Last       time.Time `json:"last_accept"`  // and the last
}

// Record is what came to a web, boiled down to what a pace is judged by. All of it is counted where connections are
// accepted; for whom one was is known once its client has sent a request, so that connections without a request count
// for no host. The busiest of an interval is nil where nobody came.
type Record struct {
	Connections int64 `json:"connections"`
	MostOpen    int64 `json:"most_open"` // connections at once
	Missed      int   `json:"missed"`    // connections that came after so many were kept that the rest does not know of them

	Hot          *Load `json:"hot_address"`         // HotAddr, nil where nobody came
	Address      *Load `json:"busiest_address_1s"`  // of the other addresses, the one with the busiest second
	AddressOfTen *Load `json:"busiest_address_10s"` // and the one with the busiest ten
	Host         *Load `json:"busiest_host_1s"`     // of all hosts, the one with the busiest second
	HostOfTen    *Load `json:"busiest_host_10s"`    // and again the one with the busiest ten
}

// Record returns what came so far, where Config.RecordAccepts asks for it.
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

// runningLoad is a load with what its count needs until the last connection is added.
type runningLoad struct {
	Load
	second, ten busiest
}

// loadsBy counts the connections of each key.
func loadsBy[K comparable](l *ledger, key func(*acceptRow) (K, bool)) map[K]*runningLoad {
	loads := map[K]*runningLoad{}
	for i := range l.rows {
		row := &l.rows[i]
		k, ok := key(row)
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

// busier returns the loads with the busiest second and the busiest ten, where another is looked at. Of equals it is the
// one whose name comes first, so that the same connections make the same record.
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

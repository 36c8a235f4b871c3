package resolve

import (
	"context"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file looks up many names at a time, without a goroutine for each. The first questions of a batch are sent
// together, and what arrives together is read together. Most look-ups need no more. A look-up whose answer is unusual
// or late continues in a goroutine of its own, by the same code as Lookup.

// maxBatch bounds the questions that are sent together.
const maxBatch = 64

// Query is one look-up of LookupAll. It is used once.
type Query struct {
	Host   string          // as for Lookup
	Of     *exchange.Query // the caller's
	Answer Answer

	batch    *batch
	flight   *flight
	question []byte // as sent
	id       uint16 // of the question
}

// batch has the queries whose first questions are sent together, through one socket.
type batch struct {
	resolver *Resolver
	ctx      context.Context
	done     func([]*Query)
	queries  []*Query
	server   *server
	socket   *socket
	sent     time.Time
}

// LookupAll is Lookup for many names. It does not wait for answers, but may open sockets. It calls done with each query
// once and several at a time, partly from other goroutines. done must not block or keep the slice.
func (r *Resolver) LookupAll(ctx context.Context, queries []*Query, done func([]*Query)) {
	var asked []*Query
	now := time.Now()
	for _, q := range queries {
		var local, leads bool
		if q.Answer, local = r.localAnswer(q.Host); !local {
			q.Answer, q.flight, leads = r.cache.begin(q.Host, now)
		}
		switch {
		case local:
			done([]*Query{q})
		case q.flight == nil:
			r.counters.lookups.Add(1)
			r.counters.cacheHits.Add(1)
			done([]*Query{q})
		case leads:
			r.counters.lookups.Add(1)
			asked = append(asked, q)
		default:
			go func() {
				q.Answer = r.Lookup(ctx, q.Host)
				done([]*Query{q})
			}()
		}
	}
	for len(asked) > 0 {
		b := &batch{resolver: r, ctx: ctx, done: done, server: r.servers[r.first(r.crowded())]}
		p := b.server.pacer
		n := min(len(asked), p.burst())
		b.queries, asked = asked[:n], asked[n:]
		if p.open.Load() {
			b.send(false)
		} else {
			p.waiting.Add(int64(n)) // before the next batch chooses a server
			go b.send(true)
		}
	}
}

// send sends the first questions, if paced when the server's rate allows. A query whose question cannot be sent
// continues in a goroutine of its own.
func (b *batch) send(paced bool) {
	s, n := b.server, len(b.queries)
	c := b.resolver.calls.Get().(*call)
	defer b.resolver.calls.Put(c)
	if paced {
		s.pacer.waiting.Add(-int64(n)) // they count in wait
		_, _ = s.pacer.wait(b.ctx, c.timer, nil, n)
		c.timer.Stop()
	}
	edns := s.edns.Load() != ednsFails
	queries, packets, buf := make([]*Query, 0, n), make([][]byte, 0, n), make([]byte, 0, n*64)
	var k *socket
	err := b.ctx.Err()
	if err == nil {
		k, err = s.socket()
	}
	b.socket, b.sent = k, time.Now()
	for _, q := range b.queries {
		q.batch = b
		name := dns.Fqdn(q.Host)
		if err != nil || !askable(name) || c.put(name, b.resolver.firstType()) != nil {
			q.alone(nil)
			continue
		}
		c.withEDNS(edns)
		buf = append(buf, c.packet...)
		packet := buf[len(buf)-len(c.packet):]
		q.question = packet[headerSize : headerSize+len(c.question)]
		id, err := k.enter(waiter{query: q, edns: edns})
		if err != nil {
			q.alone(nil)
			continue
		}
		packet[0], packet[1] = byte(id>>8), byte(id)
		queries, packets = append(queries, q), append(packets, packet)
	}
	b.queries = queries
	s.questions.Add(uint64(len(queries)))
	sent := 0
	for tries := 0; tries < 2 && sent < len(queries); tries++ { // a second time as in server.send
		n, _ := k.conn.Send(packets[sent:])
		sent += n
	}
	for _, q := range queries[sent:] {
		if k.leave(q.id, nil, q) {
			q.alone(nil)
		}
	}
	if sent > 0 {
		stop := context.AfterFunc(b.ctx, b.overdue)
		time.AfterFunc(b.resolver.opts.First, func() {
			stop()
			b.overdue()
		})
	}
}

// overdue continues the look-ups without an answer, when it is late or ctx has ended. Their questions stay valid.
func (b *batch) overdue() {
	for _, q := range b.queries {
		b.socket.mu.Lock()
		if w := b.socket.calls[q.id]; w.query == q {
			c := q.continued(w.edns)
			c.sendings = append(c.sendings, sending{b.socket, q.id})
			b.socket.calls[q.id] = waiter{call: c, edns: w.edns}
			q.alone(c)
		}
		b.socket.mu.Unlock()
	}
}

// continued returns a call for a query whose question was sent, with the answers that have arrived.
func (q *Query) continued(edns bool, arrivals ...arrival) *call {
	r := q.batch.resolver
	c := r.calls.Get().(*call)
	_ = c.put(dns.Fqdn(q.Host), r.firstType()) // it went well before
	c.withEDNS(edns)
	c.packet[0], c.packet[1] = byte(q.id>>8), byte(q.id) // for TCP
	c.sent, c.server, c.waits = q.batch.sent, q.batch.server, 1
	for _, a := range arrivals {
		c.arrivals <- a
	}
	return c
}

// alone continues a look-up in a goroutine of its own: after the first question of the call, or from the start if the
// call is nil.
func (q *Query) alone(c *call) {
	b := q.batch
	l := b.resolver.begin(time.Now())
	if c != nil {
		l = b.resolver.begin(b.sent)
		l.first, l.asked = c, true
	}
	go func() {
		q.Answer = b.resolver.lead(b.ctx, &l, q.flight, q.Host, b.resolver.families)
		b.done([]*Query{q})
	}()
}

// read reads the answer to the first question; now is when it arrived. If the answer does not end the look-up, it
// continues in a goroutine of its own, and read returns false.
func (q *Query) read(packet []byte, edns bool, now time.Time) bool {
	b := q.batch
	r := b.resolver
	m, err := unpack(packet)
	if err == nil && !m.Truncated && (m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError) {
		answer, ended := newChain(dns.Fqdn(q.Host), r.firstType()).read(m)
		if ended && !r.wantsSix(answer) {
			b.server.hear(r.log)
			b.server.learn(r.log, edns, 1)
			answer.Took = now.Sub(b.sent)
			r.counters.count(answer.Took)
			r.cache.finish(q.flight, answer, true)
			q.Answer = answer
			return true
		}
	}
	q.alone(q.continued(edns, arrival{server: b.server, packet: slices.Clone(packet), edns: edns}))
	return false
}

// done passes answered queries on.
func done(answered []*Query) {
	for len(answered) > 0 {
		n := 1
		for n < len(answered) && answered[n].batch == answered[0].batch {
			n++
		}
		answered[0].batch.done(answered[:n])
		answered = answered[n:]
	}
}

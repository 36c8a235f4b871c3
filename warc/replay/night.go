package replay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Night is a time with a scan of its own. It is a pipeline.Archive except for the type of its entries: Next returns
// sites by URL. It is not safe for concurrent use.
type Night struct {
	Date string // YYYY-MM-DD: the day; of several days the last with a capture
	Rows int64  // captures and rows, before one of each site is chosen
	// Reject, if not nil, receives the records of this night that give no row. The first night also receives those that
	// belong to no night.
	Reject func(inputs.Reject) error

	all *Nights
	key uint32

	exchange exchange.Exchange
	response exchange.Response // of the entry that Next returned last
	stats    inputs.Stats
	given    atomic.Int64
	err      error
}

// Next returns the nights in the order in which they can be read: the one before must be done or skipped. It returns
// nil after the last.
func (n *Nights) Next() *Night {
	if n.begun == len(n.order) {
		return nil
	}
	n.begun++
	return n.order[n.begun-1]
}

// Rest hands over the rejects of inputs without any night.
func (n *Nights) Rest(reject func(inputs.Reject) error) error {
	_, err := (&Night{all: n, Reject: reject}).begin()
	return err
}

// begin passes on the rejects without a night. These come first, and so go to the first night. begin reports whether
// captures of this night follow.
func (n *Night) begin() (more bool, err error) {
	rows := n.all.rows
	for ; !rows[0].ended && rows[0].flags&rejected != 0 && err == nil; err = rows.next() {
		n.stats.Rejects++
		if err := n.tell(&rows[0].record, string(rows[0].block)); err != nil {
			return false, err
		}
	}
	return !rows[0].ended && rows[0].night() == n.key, err
}

// tell hands a reject over.
func (n *Night) tell(r *record, reason string) error {
	if n.Reject == nil {
		return nil
	}
	text := r.input[:min(len(r.input), inputs.MaxText)]
	return n.Reject(inputs.Reject{Input: n.all.stats.Files[r.file].Name, Line: r.line, Text: string(text), Reason: reason,
		Duplicate: r.flags&rejected == 0})
}

// Skip passes over a night.
func (n *Night) Skip() error {
	if _, err := n.begin(); err != nil {
		return err
	}
	return n.all.rows.seek(binary.BigEndian.AppendUint32(nil, n.key+1))
}

// Next returns the next entry, or io.EOF after the last. Errors are returned again by later calls.
func (n *Night) Next() (entry inputs.Entry, err error) {
	for n.err == nil {
		more, err := n.begin()
		if n.err = cmp.Or(n.all.ctx.Err(), err); n.err == nil && !more {
			n.err = io.EOF
		}
		if n.err != nil {
			break
		}
		r := &n.all.counted
		if n.err = r.choose(n.all.rows, n.duplicate); n.err != nil || r.flags&target != 0 {
			continue
		}
		if entry, n.err = n.entry(&r.record); n.err == nil {
			n.stats.Entries++
			n.given.Add(1)
			return entry, nil
		}
	}
	return inputs.Entry{}, n.err
}

// choice is the capture that counts for a URL.
type choice struct {
	record
	memory []byte // of the record
}

// choose reads the captures of a night and URL, beginning with the next one, and passes those that do not count to
// lost.
func (k *choice) choose(from merger, lost func(*record) error) (err error) {
	for k.keep(from[0]); err == nil; {
		if err = from.next(); err != nil || from[0].ended || !bytes.Equal(from[0].site(), k.site()) {
			return err
		}
		if !from[0].outranks(&k.record) {
			err = lost(&from[0].record)
		} else if err = lost(&k.record); err == nil {
			k.keep(from[0])
		}
	}
	return err
}

func (k *choice) keep(c *cursor) {
	k.memory = append(k.memory[:0], c.text...)
	_, _ = k.decode(k.memory) // as c did
}

// outranks reports whether a capture counts before an earlier one of the same URL.
func (r *record) outranks(earlier *record) bool {
	const both = settled | unseen
	now, was := r.flags&both, earlier.flags&both
	return was != settled && (now != unseen || was == unseen)
}

func (n *Night) duplicate(r *record) error {
	if r.flags&target != 0 {
		return nil
	}
	n.stats.Duplicates++
	n.stats.Rejects++
	return n.tell(r, "another capture of the same file counts")
}

// entry replays a capture, and follows its redirects to others.
func (n *Night) entry(r *record) (inputs.Entry, error) {
	asked, ok := fetcher.ParseTarget(r.url())
	if !ok {
		return inputs.Entry{}, unread(errSpool)
	}
	entry := inputs.Entry{Seq: r.seq, Input: string(r.input), Origin: asked.Origin, Rank: int64(r.rank),
		Label: string(r.label)}
	if r.flags&auto != 0 {
		var err error
		if entry.Origin, err = origin.New(origin.Auto, asked.Origin.Host(), asked.Origin.Port()); err != nil {
			return entry, err
		}
	}
	n.exchange = exchange.Exchange{Origin: asked.Origin, Target: asked, Response: &n.response}
	if len(r.final) > 0 {
		if n.exchange.Target, ok = fetcher.ParseTarget(string(r.final)); !ok {
			return entry, unread(errSpool)
		}
	}
	if r.flags&unseen != 0 {
		n.all.fetch.Replay(n.all.ctx, &n.exchange, nil)
		if r.flags&carried != 0 {
			n.response.Outcome, n.response.Cause = exchange.Carried, exchange.CauseCarried
		}
		return entry, nil
	}
	next := n.all.fetch.Replay(n.all.ctx, &n.exchange, r.recorded())
	for next.Again {
		n.exchange.Target = next.Target
		of, err := n.find(siteKey(n.key, next.Target.AppendTo(nil)))
		if err != nil {
			return entry, err
		}
		next = n.all.fetch.Replay(n.all.ctx, &n.exchange, of)
		if of == nil {
			break
		}
	}
	return entry, nil
}

// find returns the answer of a site of this night, valid until the next call; nil if there is none.
func (n *Night) find(site []byte) (*fetcher.Recorded, error) {
	from, found := n.all.targets, &n.all.target
	if err := from.seek(site); err != nil || from[0].ended || !bytes.Equal(from[0].site(), site) {
		return nil, err
	}
	err := found.choose(from, func(*record) error { return nil })
	if err != nil || found.flags&unseen != 0 {
		return nil, err
	}
	return found.recorded(), nil
}

// recorded returns the answer, which views the record.
func (r *record) recorded() *fetcher.Recorded {
	of := &fetcher.Recorded{
		Block: r.block, Undone: r.flags&undone != 0, Ending: r.ending(),
		TLSVersion: uint16(r.tls), Proto: string(r.proto),
	}
	if r.flags&noTime == 0 {
		of.At = time.UnixMilli(int64(r.at)).UTC()
	}
	of.Addr, _ = netip.AddrFromSlice(r.addr)
	return of
}

// Recall swaps n's memory for the Response of the entry that Next returned last.
func (n *Night) Recall(response *exchange.Response) {
	*response, n.response = n.response, *response
}

// Stats returns the counts of this night.
func (n *Night) Stats() inputs.Stats {
	s := n.stats
	s.Lines = s.Entries + s.Rejects
	return s
}

// Progress returns how many entries were returned, and how many there are at most. It is safe for concurrent use.
func (n *Night) Progress() (read, total int64) { return n.given.Load(), n.Rows }

// Close ends the night: Next returns an error afterwards.
func (n *Night) Close() error {
	n.err = cmp.Or(n.err, errors.New("cannot read the night: it was closed"))
	n.response.Reset()
	n.Reject = nil // its Nights keeps n
	return nil
}

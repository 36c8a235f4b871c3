package replay

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// Night is a time with a scan of its own. It is a pipeline.Archive except for the type of its entries: Next returns settled
// sites by URL, and those whose capture is a redirect at the end. It is not safe for concurrent use.
type Night struct {
	Date string // YYYY-MM-DD: the day; of several days the last with a capture
	Rows int64  // captures and rows, before one of each site is chosen
	// Reject, if not nil, receives what gives no row: of this night, and with the first night what is of none.
	Reject func(inputs.Reject) error

	all       *Nights
	key       uint32
	redirects bool

	shelf   *shelf  // of a night with redirects
	waiting *cursor // of the shelf, for redirects; nil before the others are done
	kept    record  // the best of the captures of a URL so far
	memory  []byte  // of kept

	exchange exchange.Exchange
	response exchange.Response // of the entry that Next returned last
	stats    inputs.Stats
	given    atomic.Int64
	err      error
}

// Next returns the nights in the order in which they can be read: the one before must be done or skipped. It returns nil after the
// last.
func (n *Nights) Next() *Night {
	if len(n.order) == 0 {
		return nil
	}
	night := n.nights[n.order[0]]
	n.order = n.order[1:]
	return night
}

// Rest hands over the rejects of inputs without any night.
func (n *Nights) Rest(reject func(inputs.Reject) error) error {
	_, err := n.peek(&Night{all: n, Reject: reject})
	return err
}

// peek returns the next record that is no reject. Those go to a night: rejects come first, so that it is the first one.
func (n *Nights) peek(to *Night) (*record, error) {
	for {
		r, err := n.merged.peek()
		if err != nil || r == nil || r.flags&rejected == 0 {
			return r, err
		}
		to.stats.Rejects++
		if err := to.tell(r, string(r.block)); err != nil {
			return nil, err
		}
		n.merged.pass()
	}
}

// tell hands a reject over.
func (n *Night) tell(r *record, reason string) error {
	if n.Reject == nil {
		return nil
	}
	text := r.input[:min(len(r.input), inputs.MaxText)]
	return n.Reject(inputs.Reject{Input: n.all.names[r.file], Line: r.line, Text: string(text), Reason: reason, Duplicate: r.flags&rejected == 0})
}

// Skip passes over a night.
func (n *Night) Skip() error {
	for {
		r, err := n.all.peek(n)
		if err != nil || r == nil || r.night() != n.key {
			return err
		}
		n.all.merged.pass()
	}
}

// Next returns the next entry, or io.EOF after the last. Errors are returned again by later calls.
func (n *Night) Next() (inputs.Entry, error) {
	for n.err == nil {
		if n.err = n.all.ctx.Err(); n.err != nil {
			break
		}
		var r *record
		if n.waiting == nil {
			r, n.err = n.choose()
		} else if n.err = n.waiting.next(); n.waiting.flags&(target|redirect) == redirect {
			r = &n.waiting.record
		}
		if n.err != nil {
			break
		}
		if r == nil {
			continue
		}
		entry, err := n.entry(r)
		if err != nil {
			n.err = err
			break
		}
		n.stats.Entries++
		n.given.Add(1)
		return entry, nil
	}
	return inputs.Entry{}, n.err
}

// choose returns the capture that counts of the next URL, if it gives an entry now.
func (n *Night) choose() (*record, error) {
	r, err := n.all.peek(n)
	if err != nil {
		return nil, err
	}
	if r == nil || r.night() != n.key {
		if n.shelf == nil {
			return nil, io.EOF
		}
		n.waiting, err = n.shelf.end()
		return nil, err
	}
	n.keep(r)
	for {
		n.all.merged.pass()
		r, err := n.all.merged.peek()
		if err != nil {
			return nil, err
		}
		if r == nil || r.night() != n.key || !bytes.Equal(r.site(), n.kept.site()) {
			break
		}
		lost, better := r, r.outranks(&n.kept)
		if better {
			lost = &n.kept
		}
		if err := n.duplicate(lost); err != nil {
			return nil, err
		}
		if better {
			n.keep(r)
		}
	}
	if n.redirects {
		if n.shelf == nil {
			n.shelf = &shelf{chunks: chunks{dir: n.all.opt.TempDir}}
		}
		if err := n.shelf.put(&n.kept); err != nil {
			return nil, err
		}
	}
	if n.kept.flags&(target|redirect) != 0 {
		return nil, nil
	}
	return &n.kept, nil
}

// outranks reports whether a capture counts before an earlier one of the same URL.
func (r *record) outranks(earlier *record) bool {
	const both = settled | unseen
	now, was := r.flags&both, earlier.flags&both
	return was != settled && (now != unseen || was == unseen)
}

// keep copies a record to n.kept.
func (n *Night) keep(r *record) {
	n.memory = r.append(n.memory[:0])
	_, _ = n.kept.decode(n.memory) // it was just made
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
	entry := inputs.Entry{Seq: r.seq, Input: string(r.input), Origin: asked.Origin, Rank: int64(r.rank), Label: string(r.label)}
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
		var of *fetcher.Recorded
		if n.shelf != nil {
			found, err := n.shelf.find(siteKey(n.key, next.Target.AppendTo(nil)))
			if err != nil {
				return entry, err
			}
			if found != nil && found.flags&unseen == 0 {
				of = found.recorded()
			}
		}
		next = n.all.fetch.Replay(n.all.ctx, &n.exchange, of)
		if of == nil {
			break
		}
	}
	return entry, nil
}

// recorded returns the answer, which views the record.
func (r *record) recorded() *fetcher.Recorded {
	of := &fetcher.Recorded{
		Block: r.block, Undone: r.flags&undone != 0, Ending: fetcher.Ending(r.flags >> endingShift & 3),
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

// Close removes what the night keeps on disk. Next returns an error afterwards.
func (n *Night) Close() error {
	if n.err == nil {
		n.err = errors.New("cannot read the night: it was closed")
	}
	n.response.Reset()
	n.Reject, n.waiting, n.kept, n.memory = nil, nil, record{}, nil // its Nights keep n
	if n.shelf == nil {
		return nil
	}
	err := n.shelf.close()
	n.shelf = nil
	return err
}

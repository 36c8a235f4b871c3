package queries

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file writes ledgers without scans, for the macros of views.sql.

// Ledger describes the ledger of a list that is scanned every night. In a night, 0.3 % of the sites change their
// policy, a third of them from the 2 % that do so often; 3 % fail, and 1 % are not listed. The same Ledger makes the
// same rows.
type Ledger struct {
	Sites  int
	Nights int
	Last   string // date of the last night, YYYY-MM-DD
}

// Write replaces the ledger of a dataset, as if each night had been merged by itself: one file of closed rows for each
// night and table, and the open rows.
func (l *Ledger) Write(ctx context.Context, st store.Store) error {
	last, err := history.ParseDate(l.Last)
	if err != nil {
		return err
	}
	f := ledgerFiles{ctx: ctx, store: st}
	rng := rand.New(rand.NewPCG(3, 9309))
	policies := madePolicies(rng)
	judge := tokens.Default().Version + " 1.0.0"
	episodes, gaps := make([]history.Episode, l.Sites), make([]history.Gap, l.Sites)
	classes := []string{"unreachable", "server_error", "rate_limited", "challenged"}
	var closed []history.Episode
	var ended []history.Gap
	for n := range l.Nights {
		night := last - history.Date(l.Nights-1-n)
		f.night(night)
		closed, ended = closed[:0], ended[:0]
		for i := range episodes {
			e, g := &episodes[i], &gaps[i]
			flaps := i%50 == 0
			chance, class := rng.IntN(10000), ""
			switch {
			case n == 0:
			case g.Nights > 0 && rng.IntN(5) < 2:
				class = g.Class
			case chance < 60:
				class = history.Unlisted
			case chance < 240:
				class = classes[chance%len(classes)]
			}
			if class != "" && e.Observations > 0 {
				if class != history.Unlisted {
					e.Pending++
				}
				if g.Nights > 0 && g.Class != class {
					ended = append(ended, *g)
					g.Nights = 0
				}
				if g.Nights == 0 {
					*g = history.Gap{Site: e.Site, Class: class, First: night}
				}
				g.Last = night
				g.Nights++
				continue
			}
			if g.Nights > 0 {
				ended = append(ended, *g)
				g.Nights = 0
			}
			changes := chance >= 9980
			if flaps {
				changes = chance >= 9500
			}
			if e.Observations > 0 && !changes {
				e.ValidTo, e.Failures, e.Pending = night, e.Failures+e.Pending, 0
				e.Observations++
				continue
			}
			next := history.Episode{
				Site: int64(i)*1_000_003 - 1<<39, Host: fmt.Sprintf("www.site-%d.example", i), Port: 443, Requested: "auto",
				Policy: policies[rng.IntN([]int{4, len(policies), len(policies)}[rng.IntN(3)])].ID, ValidFrom: night,
				ValidTo: night, Observations: 1, Bodies: 1,
				LastBody: int64(i), Cause: history.First, Observer: "live bulkscan", Judge: judge,
			}
			if e.Observations > 0 {
				closed = append(closed, *e)
				next.Host, next.Cause, next.PreviousLast = e.Host, history.ByPolicy, e.ValidTo
				if flaps {
					next.Policy = policies[(i+int(night)%2*17)%len(policies)].ID
				}
			}
			*e = next
		}
		ledgerFile(&f, history.History, closed, false)
		ledgerFile(&f, history.Gaps, ended, false)
	}
	open := ended[:0]
	for _, g := range gaps {
		if g.Nights > 0 {
			open = append(open, g)
		}
	}
	ledgerFile(&f, history.Policies, policies, false)
	ledgerFile(&f, history.History, episodes, true)
	ledgerFile(&f, history.Gaps, open, true)
	return f.record()
}

// madePolicies returns a policy of each other class, and policies with rules that treat some tokens by name.
func madePolicies(rng *rand.Rand) []history.Policy {
	known := tokens.Default().Tokens
	var all []history.Policy
	for _, class := range []string{history.ClassNone, history.ClassNoRules, history.ClassHTML, history.ClassRefused} {
		all = append(all, history.Policy{Class: class}.Canonical())
	}
	for i := range 1600 {
		p := history.Policy{Class: history.ClassRules, License: strconv.Itoa(i), StarVerdict: []string{"allowed", "partial",
			"partial", "blocked"}[rng.IntN(4)]}
		if i%2 == 0 {
			for range rng.IntN(30) {
				into := []*[]string{&p.OwnBlocked, &p.OwnBlocked, &p.OwnPartial, &p.OwnAllowed}[rng.IntN(4)]
				*into = append(*into, known[rng.IntN(len(known))].Name)
			}
		}
		all = append(all, p.Canonical())
	}
	return all
}

// ledgerFiles writes the files of a ledger and its record.
type ledgerFiles struct {
	ctx    context.Context
	store  store.Store
	ledger history.Ledger
	err    error // the first one
}

// night adds a night to the record.
func (f *ledgerFiles) night(date history.Date) {
	f.ledger.Scans = append(f.ledger.Scans, history.MergedScan{ScanID: "night-" + date.String(), ScanDate: date.String(),
		FinishedAt: time.Unix(int64(date)*86400, 0)})
}

// ledgerFile writes a file of a table, and adds it to the record. Closed files without rows are left out.
func ledgerFile[T any](f *ledgerFiles, name string, rows []T, open bool) {
	if f.err != nil || len(rows) == 0 && !open {
		return
	}
	w := table.NewWriter[T](name, 1024, 128<<10, map[string]string{table.MetaSchema: strconv.Itoa(schema.Version)})
	f.err = w.Begin(f.ctx, f.store, fmt.Sprintf("%s%s/made-%d.parquet", history.Folder, name, len(f.ledger.Files)))
	if f.err == nil {
		f.err = errors.Join(w.Write(rows), w.Seal(), w.Publish(f.ctx))
	}
	f.ledger.Files = append(f.ledger.Files, history.File{File: w.Describe(), Open: open})
}

// record writes the record of the ledger.
func (f *ledgerFiles) record() error {
	if f.err != nil {
		return f.err
	}
	f.ledger.SchemaVersion = schema.Version
	data, err := commit.SealRecord(&f.ledger, &f.ledger.Sum)
	if err != nil {
		return err
	}
	if err := f.store.Put(f.ctx, history.LedgerName, data); err != nil {
		return err
	}
	return commit.Change(f.ctx, f.store, nil, func(h *commit.Head) error {
		h.SetLedger(commit.Merge{SHA256: f.ledger.Sum}, "")
		return nil
	})
}

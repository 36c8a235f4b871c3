// Package stats answers one question: which statistics has a scan? It computes the tables token_stats (tokens.go) and
// record_stats (records.go): it opens the parts of a scan, and has workers count each of them. Its memory is bounded,
// however many sites there are, and however many agents they name (window.go).
package stats

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// options are those of one computation.
type options struct {
	survey.Options
	limit int // keys of unknown agents in memory; tests lower it
}

// maxKeys bounds the unknown agents and keys that a worker counts at once: 32 MB at most.
const maxKeys = 1 << 17

// maxWorkers bounds the parts that are read at once: each worker has counts of its own.
const maxWorkers = 4

// maxLabels bounds the label segments. A list with more labels uses them as keys, not as segments, and gets none.
const maxLabels = 1000

// maxTLDs bounds the segments of top-level domains. The DNS root has some 1,450, and bulkscan writes no others. A
// dataset with more was written by another program and gets none, since the order of its parts would choose them.
const maxTLDs = 2000

// Write computes the tables token_stats and record_stats of a scan from its committed parts, and replaces the file of
// each. For the last scan of a unit they count all scans of the unit, also if that scan is only about to be complete.
// token_stats needs the tables sites, policies and verdicts, record_stats needs evidence. A table that lacks what it
// needs is left out; if both do, the error is commit.ErrNoTable. The caller holds the scan's lock, by its sink.Writer
// or statistics.Lock.
func Write(ctx context.Context, st store.Store, scanID string, o survey.Options) error {
	return write(ctx, st, scanID, &options{o.WithDefaults(), maxKeys})
}

func write(ctx context.Context, st store.Store, scanID string, o *options) error {
	scan, err := index.ReadUnit(ctx, st, scanID, o.Alone, commit.ReadScan)
	if err == nil && scan.Manifest.ScanID != scanID {
		scan, err = index.ReadUnit(ctx, st, scanID, true, commit.ReadScan)
	}
	if err != nil {
		return err
	}
	scan.Sealing = true
	if err := scan.Whole(); err != nil {
		return fmt.Errorf("cannot compute statistics of scan %s: %w", scanID, err)
	}
	compute := func(table func(context.Context, store.Store, *commit.Scan, *options) error) error {
		err := table(ctx, st, scan, o)
		if errors.Is(err, commit.ErrNoTable) && scan.Unit.Sum != "" { // another scan of the unit may lack a table
			var own *commit.Scan
			if own, err = index.ReadUnit(ctx, st, scanID, true, commit.ReadScan); err == nil {
				own.Sealing = true
				err = table(ctx, st, own, o)
			}
		}
		return err
	}
	errTokens, errRecords := compute(writeTokenStats), compute(writeRecordStats)
	if errors.Is(errTokens, commit.ErrNoTable) && errors.Is(errRecords, commit.ErrNoTable) {
		return errTokens
	}
	var errs []error
	for _, err := range []error{errTokens, errRecords} {
		if !errors.Is(err, commit.ErrNoTable) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WriteUnits recomputes the statistics that do not match their unit's rows, because a scan of the unit was published
// or has changed since.
func WriteUnits(ctx context.Context, st store.Store, o survey.Options) error {
	ids, err := index.OutdatedStats(ctx, st)
	if err != nil {
		return err
	}
	for _, id := range ids {
		lock, err := statistics.Lock(ctx, st, id)
		if err != nil {
			return err
		}
		if err := errors.Join(Write(ctx, st, id, o), lock.Unlock()); err != nil && !errors.Is(err, commit.ErrNoTable) {
			return err
		}
	}
	return nil
}

// writeTable publishes rows as the scan's file of a table.
func writeTable[T any](ctx context.Context, st store.Store, scan *commit.Scan, o *options, table string,
	fill func(add func(T) error) error) error {
	name := commit.StatsName(table, scan.Manifest.ScanDate, scan.Manifest.ScanID)
	w, err := statistics.Create[T](ctx, st, scan, name, table, o.ToolVersion)
	if err != nil {
		return err
	}
	if err := fill(w.Add); err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Close(ctx)
}

func writeTokenStats(ctx context.Context, st store.Store, scan *commit.Scan, o *options) error {
	for _, table := range []string{schema.Sites, schema.Verdicts} {
		if !scan.Has(table) {
			return fmt.Errorf("cannot compute %s of scan %s: table %s: %w; bulkscan summary needs no statistics",
				schema.TokenStats, scan.Manifest.ScanID, table, commit.ErrNoTable)
		}
	}
	return writeTable(ctx, st, scan, o, schema.TokenStats, func(add func(schema.TokenStatsRow) error) error {
		return tokenRows(ctx, scan, o, add)
	})
}

// Tokens calls add for each row of token_stats, which it computes from a scan's parts. The options have their
// defaults.
func Tokens(ctx context.Context, scan *commit.Scan, o *survey.Options, add func(schema.TokenStatsRow) error) error {
	return tokenRows(ctx, scan, &options{*o, maxKeys}, add)
}

func tokenRows(ctx context.Context, scan *commit.Scan, o *options, add func(schema.TokenStatsRow) error) error {
	fail := func(err error) error {
		return fmt.Errorf("cannot compute %s of scan %s: %w", schema.TokenStats, scan.Manifest.ScanID, err)
	}
	policies, err := survey.ReadPolicies(ctx, scan, o.Registry)
	if err != nil {
		return fail(err)
	}
	foreign := o.Foreign(scan,
		"tokens that the scan did not know, or says nothing of, have no row; those that only the scan knew count as unknown agents, which heed *")
	var workers []*counter
	for range workersFor(scan) {
		workers = append(workers, newCounter(o, policies, foreign))
	}
	for first := true; ; first = false {
		c, err := countParts(ctx, scan, workers, first)
		if err != nil {
			return fail(err)
		}
		if first {
			c.warn(o.Log)
			if err := c.registryRows(add); err != nil {
				return fail(err)
			}
		}
		if o.Only != nil {
			return nil
		}
		if err := c.unknownRows(add); err != nil {
			return fail(err)
		}
		if !c.unknown.advance() {
			return nil
		}
		for _, w := range workers[1:] {
			w.unknown.follow(c.unknown)
		}
	}
}

func workersFor(scan *commit.Scan) int {
	return max(1, min(maxWorkers, runtime.GOMAXPROCS(0), len(scan.Commits)))
}

// countParts reads all committed parts once, each by one of the workers. It returns the first worker, with the counts
// of all.
func countParts(ctx context.Context, scan *commit.Scan, workers []*counter, first bool) (*counter, error) {
	for _, c := range workers {
		c.first = first
	}
	err := eachCommit(ctx, scan, len(workers), func(ctx context.Context, worker int, commit *commit.Commit) error {
		return workers[worker].commit(ctx, scan, commit)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range workers[1:] {
		workers[0].merge(c)
	}
	return workers[0], nil
}

// eachCommit calls do for every commit, from so many numbered goroutines. It returns the first error and begins no
// commit after it.
func eachCommit(ctx context.Context, scan *commit.Scan, workers int, do func(ctx context.Context, worker int,
	commit *commit.Commit) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(scan.Commits) {
					return
				}
				if err := do(ctx, worker, &scan.Commits[i]); err != nil {
					cancel(err) // the first call counts
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// siteColumns are the columns of sites that token_stats needs.
type siteColumns struct {
	Seq      int64  `parquet:"seq"`
	Rank     int64  `parquet:"rank"`
	Label    string `parquet:"label"`
	TLD      string `parquet:"tld"`
	Status   int32  `parquet:"status"`
	Access   string `parquet:"access"`
	Finding  string `parquet:"finding"`
	PolicyID int64  `parquet:"policy_id"`
}

// answered reports whether there was an HTTP status.
func (s *siteColumns) answered() bool { return s.Status != 0 }

// unreachable reports whether requests were made and there was no HTTP status.
func (s *siteColumns) unreachable() bool {
	return !s.answered() && s.Access != "unknown"
}

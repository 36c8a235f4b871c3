package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file computes the tables token_stats and record_stats: it opens the parts of a scan, and has workers count each
// of them. tokenstats.go and recordstats.go count.

// Options of Stats and Summarize.
type Options struct {
	Registry    *tokens.Registry // nil is tokens.Default()
	Only        []string         // the tokens that count; nil is all
	ToolVersion string
	Unlisted    bool // as in sink.Options
	Alone       bool // read the scan by itself, and not the scans of its date, observer and list

	// Skip lets Summarize, SensitivityOf and Take leave out damaged files, and lists them afterwards.
	Skip *Skip

	Uncertainty // without LeastGroup the constant counts, and without SampleOf the scan's --sample

	// Log receives warnings that a reader of the result needs: the registry is not the scan's, or segments are
	// missing. nil discards them.
	Log *slog.Logger

	limit int // keys of unknown agents in memory; 0 is maxKeys. Tests set it.
}

func (o Options) withDefaults() Options {
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.limit == 0 {
		o.limit = maxKeys
	}
	o.LeastGroup = cmp.Or(o.LeastGroup, LeastGroup)
	return o
}

// open opens the rows that figures count: those of the scan's unit, or of the scan alone if o says so or if readers do
// not get the scan.
func (o *Options) open(ctx context.Context, st store.Store, scanID string) (*commit.Scan, error) {
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	return index.ReadUnit(ctx, st, scanID, o.Alone || !m.Published(), func(ctx context.Context, st store.Store,
		id string) (*commit.Scan, error) {
		s, err := o.Skip.ReadScan(ctx, st, id)
		if id != scanID && IsDamage(err) && o.Skip.Without("scan "+id, id, err) {
			err = store.ErrNotExist
		}
		return s, err
	})
}

// foreign reports whether the registry differs from that of the scan, or of a part of a scan that was judged again. It
// logs a warning with the effect.
func (o *Options) foreign(scan *commit.Scan, effect string) bool {
	m := scan.Manifest
	for _, other := range scan.Read() {
		if other.RegistryVersion != o.Registry.Version {
			m = other
		}
	}
	if m.RegistryVersion == o.Registry.Version {
		sites := scan.ByOtherRegistry()
		if sites > 0 {
			o.Log.Warn("sites keep the judgement of another token registry, as their bodies were not stored", "sites", sites,
				"registry", o.Registry.Version,
				"effect",
				"tokens that it did not have count there as not named and not blocked; those of which no other site says anything have no row", "remedy", "scan again")
		}
		return sites > 0
	}
	o.Log.Warn("the scan was judged by another token registry", "scan_registry", m.RegistryVersion, "registry",
		o.Registry.Version,
		"effect", effect, "remedy", "give --tokens FILE as the scan had it, or scan again")
	return true
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

// Stats computes the tables token_stats and record_stats of a scan from its committed parts, and replaces the file of
// each. For the last scan of a unit they count all scans of the unit, also if that scan is only about to be complete.
// token_stats needs the tables sites, policies and verdicts, record_stats needs evidence. A table that lacks what it
// needs is left out; if both do, the error is commit.ErrNoTable. The caller holds the scan's lock, by its sink.Writer
// or statistics.Lock.
func Stats(ctx context.Context, st store.Store, scanID string, o Options) error {
	o = o.withDefaults()
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
	write := func(table func(context.Context, store.Store, *commit.Scan, *Options) error) error {
		err := table(ctx, st, scan, &o)
		if errors.Is(err, commit.ErrNoTable) && scan.Unit.Sum != "" { // another scan of the unit may lack a table
			var own *commit.Scan
			if own, err = index.ReadUnit(ctx, st, scanID, true, commit.ReadScan); err == nil {
				own.Sealing = true
				err = table(ctx, st, own, &o)
			}
		}
		return err
	}
	errTokens, errRecords := write(writeTokenStats), write(writeRecordStats)
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

// StatsOfUnits recomputes the statistics that do not match their unit's rows, because a scan of the unit was published
// or has changed since.
func StatsOfUnits(ctx context.Context, st store.Store, o Options) error {
	ids, err := index.OutdatedStats(ctx, st)
	if err != nil {
		return err
	}
	for _, id := range ids {
		lock, err := statistics.Lock(ctx, st, id)
		if err != nil {
			return err
		}
		if err := errors.Join(Stats(ctx, st, id, o), lock.Unlock()); err != nil && !errors.Is(err, commit.ErrNoTable) {
			return err
		}
	}
	return nil
}

// writeTable publishes rows as the scan's file of a table.
func writeTable[T any](ctx context.Context, st store.Store, scan *commit.Scan, o *Options, table string,
	fill func(add func(T) error) error) error {
	name := commit.StatsName(table, scan.Manifest.ScanDate, scan.Manifest.ScanID)
	w, err := statistics.Create[T](ctx, st, scan, name, table, o.ToolVersion)
	if err != nil {
		return err
	}
	w.Unlisted = w.Unlisted || o.Unlisted
	if err := fill(w.Add); err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Close(ctx)
}

func writeTokenStats(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) error {
	for _, table := range []string{schema.Sites, schema.Verdicts} {
		if !scan.Has(table) {
			return fmt.Errorf("cannot compute %s of scan %s: table %s: %w; bulkscan summary needs no statistics",
				schema.TokenStats, scan.Manifest.ScanID, table, commit.ErrNoTable)
		}
	}
	return writeTable(ctx, st, scan, o, schema.TokenStats, func(add func(schema.TokenStatsRow) error) error {
		return tokenStats(ctx, scan, o, add)
	})
}

// tokenStats calls add for each row of token_stats.
func tokenStats(ctx context.Context, scan *commit.Scan, o *Options, add func(schema.TokenStatsRow) error) error {
	fail := func(err error) error {
		return fmt.Errorf("cannot compute %s of scan %s: %w", schema.TokenStats, scan.Manifest.ScanID, err)
	}
	policies, err := readPolicies(ctx, scan, o.Registry)
	if err != nil {
		return fail(err)
	}
	foreign := o.foreign(scan,
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

// verdictColumns are those of verdicts.
type verdictColumns struct {
	Seq         int64  `parquet:"seq"`
	Token       string `parquet:"token"`
	Known       bool   `parquet:"known"`
	Category    string `parquet:"category"`
	Verdict     string `parquet:"verdict"`
	Via         string `parquet:"via"`
	RootAllowed bool   `parquet:"root_allowed"`
	DPI         string `parquet:"dpi"`
	Lenient     bool   `parquet:"lenient"`

	id int32 // of Token in the registry, noToken for unknown agents
}

// lenientColumns are the columns of verdicts that lenient names need.
var lenientColumns = table.Some("seq", "token", "known", "lenient")

// verdictReader reads verdicts together with sites: a commit has both in the same order.
type verdictReader struct {
	registry *tokens.Registry
	row      verdictColumns        // set by the cursor of verdicts
	rows     []verdictColumns      // of the current site
	each     func(*verdictColumns) // called for each row, if not nil
}

// read calls do for each site of a commit, with the fields of both tables set, and closes the cursors. seq is where
// the cursor of sites stores the row's number.
func (r *verdictReader) read(commit *commit.Commit, sites *table.Cursor, seq *int64, verdicts *table.Cursor,
	do func()) error {
	verdict := func() {
		if r.row.id = noToken; r.row.Known {
			r.row.id = int32(r.registry.Lookup(r.row.Token))
		}
		r.rows = append(r.rows, r.row)
		if r.each != nil {
			r.each(&r.row)
		}
	}
	return beside(commit, sites, seq, verdicts, &r.row.Seq, verdict, func() {
		do()
		r.rows = r.rows[:0]
	})
}

// beside calls do for each site of a commit. Before, it calls row for each row of another table that has the site's
// number. It closes the cursors.
func beside(commit *commit.Commit, sites *table.Cursor, seq *int64, others *table.Cursor, of *int64, row,
	do func()) error {
	more := others.Next()
	err := eachOf(sites, func() {
		for ; more && *of == *seq; more = others.Next() {
			row()
		}
		do()
	})
	if err == nil {
		err = others.Err()
	}
	if err == nil && more {
		err = fmt.Errorf("part %s-%d: the rows of seq %d are not in the order of sites", commit.Shard, commit.N, *of)
	}
	return errors.Join(err, others.Close())
}

// together calls each for each commit, with the open files of sites and of another table.
func together(ctx context.Context, scan *commit.Scan, fields []table.Field, tableName string, columns []table.Field,
	each func(c *commit.Commit, sites, others *table.Cursor) error) error {
	others, stop := iter.Pull2(read.Cursors(ctx, scan, tableName, columns...))
	defer stop()
	part := 0
	for sites, err := range read.Cursors(ctx, scan, schema.Sites, fields...) {
		if err != nil {
			return err
		}
		rows, err, _ := others() // both tables have one file a commit
		if err != nil {
			return errors.Join(err, sites.Close())
		}
		if err := each(&scan.Commits[part], sites, rows); err != nil {
			return err
		}
		part++
	}
	return nil
}

// answered reports whether there was an HTTP status.
func (s *siteColumns) answered() bool { return s.Status != 0 }

// unreachable reports whether requests were made and there was no HTTP status.
func (s *siteColumns) unreachable() bool {
	return !s.answered() && s.Access != "unknown"
}

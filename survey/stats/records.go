package stats

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// This file counts for the table record_stats.

// evidenceColumns are the columns of evidence that record_stats needs.
type evidenceColumns struct {
	Seq  int64  `parquet:"seq"`
	Kind string `parquet:"kind"`
	Key  string `parquet:"key"`
}

// recordTally counts one key.
type recordTally struct {
	sites, lines int64
	last         int64 // seq of the last site counted, + 1
}

func writeRecordStats(ctx context.Context, st store.Store, scan *commit.Scan, o *options) error {
	if !scan.Has(schema.Evidence) {
		return fmt.Errorf("cannot compute %s of scan %s: %w", schema.RecordStats, scan.Manifest.ScanID, commit.ErrNoTable)
	}
	return writeTable(ctx, st, scan, o, schema.RecordStats, func(add func(schema.RecordStatsRow) error) error {
		return recordRows(ctx, scan, o, add)
	})
}

// Records calls add for each row of record_stats, which it computes from a scan's parts. The options have their
// defaults.
func Records(ctx context.Context, scan *commit.Scan, o *survey.Options, add func(schema.RecordStatsRow) error) error {
	return recordRows(ctx, scan, &options{*o, maxKeys}, add)
}

func recordRows(ctx context.Context, scan *commit.Scan, o *options, add func(schema.RecordStatsRow) error) error {
	workers := make([]recordCounter, workersFor(scan))
	for i := range workers {
		workers[i] = recordCounter{window: newWindow[recordTally](o.limit)}
	}
	keys := workers[0].window
	for {
		err := eachCommit(ctx, scan, len(workers), func(ctx context.Context, worker int, commit *commit.Commit) error {
			row := evidenceColumns{}
			return eachRow(ctx, scan, commit, schema.Evidence, table.FieldsOf(&row, false, nil),
				func() { workers[worker].count(&row) })
		})
		if err != nil {
			return fmt.Errorf("cannot compute %s of scan %s: %w", schema.RecordStats, scan.Manifest.ScanID, err)
		}
		for _, w := range workers[1:] {
			keys.merge(w.window, func(t, from *recordTally) { t.sites, t.lines = t.sites+from.sites, t.lines+from.lines })
		}
		for _, key := range slices.Sorted(maps.Keys(keys.values)) {
			t := keys.values[key]
			kind, name, _ := strings.Cut(key, "\x00")
			if err := add(schema.RecordStatsRow{Kind: kind, Key: name, Sites: t.sites, Lines: t.lines}); err != nil {
				return err
			}
		}
		if !keys.advance() {
			return nil
		}
		for _, w := range workers[1:] {
			w.follow(keys)
		}
	}
}

// eachRow calls do for each row of a table's file in a commit, after it has set the fields to the row.
func eachRow(ctx context.Context, scan *commit.Scan, commit *commit.Commit, table string, fields []table.Field,
	do func()) error {
	rows, err := read.OpenCursor(ctx, scan, commit, table, fields...)
	if err != nil {
		return err
	}
	return survey.EachRow(rows, do)
}

// recordCounter counts keys by kind of evidence. A map key is the kind, a NUL, and the key in lower case. The kinds
// sitemap and orphan, which have one or two keys, are left out, and so are lines without a key.
type recordCounter struct {
	*window[recordTally]
	key []byte // scratch
}

func (c *recordCounter) count(row *evidenceColumns) {
	switch row.Kind {
	case "unknown", "extension", "legacy", "signal", "usage", "license", "invalid", "typo":
	default:
		return
	}
	if row.Key == "" {
		return
	}
	c.key = appendLower(append(append(c.key[:0], row.Kind...), 0), row.Key)
	t := c.atBytes(c.key)
	if t == nil {
		return
	}
	t.lines++
	if t.last != row.Seq+1 {
		t.last = row.Seq + 1
		t.sites++
	}
}

// appendLower appends s in lower case.
func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			return append(b, strings.ToLower(s[i:])...)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

package sink

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestHardDataset writes a scan in parts of several row groups, with values that are hard to keep in every column. It
// checks them before and after the parts are merged. With READERS_DATASET=DIR it keeps the dataset in DIR for other
// readers, and the rows of each table in DIR-rows, for internal/integration/readers/check.mjs.
func TestHardDataset(t *testing.T) {
	dir, rowsDir := t.TempDir(), t.TempDir()
	kept := os.Getenv("READERS_DATASET")
	if kept != "" {
		dir, rowsDir = kept, kept+"-rows"
		if err := os.MkdirAll(rowsDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	const parts, sitesEach = 3, 400
	sites, verdicts := hardRows[schema.SiteRow](parts*sitesEach), hardRows[schema.VerdictRow](3*parts*sitesEach)
	evidence, bodies := hardRows[schema.EvidenceRow](3*parts*sitesEach), hardRows[schema.BodyRow](parts*sitesEach)
	for i := range sites {
		sites[i].Seq = int64(i)
		if i == len(sites)-1 {
			sites[i].Seq = math.MaxInt64
		}
		sites[i].FetchedAt = times(i, sites[i].FetchedAt)
		for k := range 3 {
			verdicts[3*i+k].Seq, evidence[3*i+k].Seq = sites[i].Seq, sites[i].Seq
		}
	}
	policies := hardRows[schema.PolicyRow](parts * sitesEach)
	tokenStats, recordStats := hardRows[schema.TokenStatsRow](2000), hardRows[schema.RecordStatsRow](2000)

	w := mustOpen(t, st, Options{ScanID: "hard", Date: "2026-11-21", Tables: schema.AllTables})
	for n := range parts {
		w.mu.Lock()
		if err := w.begin(); err != nil {
			t.Fatal(err)
		}
		p := w.open
		for _, half := range []int{2 * n, 2*n + 1} { // each a row group
			from, to := half*sitesEach/2, (half+1)*sitesEach/2
			for _, err := range []error{
				p.sites.Write(sites[from:to]), p.verdicts.Write(verdicts[3*from : 3*to]),
				p.evidence.Write(evidence[3*from : 3*to]), p.bodies.Write(bodies[from:to]), p.policies.Write(policies[from:to]),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range p.files {
				if err := f.EndGroup(); err != nil {
					t.Fatal(err)
				}
			}
			for i := from; i < to; i++ {
				p.seqs = append(p.seqs, uint64(sites[i].Seq))
			}
		}
		w.roll()
		w.mu.Unlock()
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeStats(t, st, "hard", schema.TokenStats, tokenStats...)
	writeStats(t, st, "hard", schema.RecordStats, recordStats...)
	if err := completeListed(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	writePlain(t, rowsDir, schema.Sites, sites)
	writePlain(t, rowsDir, schema.Verdicts, verdicts)
	writePlain(t, rowsDir, schema.Evidence, evidence)
	writePlain(t, rowsDir, schema.Bodies, bodies)
	writePlain(t, rowsDir, schema.Policies, policies)
	writePlain(t, rowsDir, schema.TokenStats, tokenStats)
	writePlain(t, rowsDir, schema.RecordStats, recordStats)
	check := func() {
		t.Helper()
		scan := mustReadScan(t, st, "hard")
		sameRows(t, collect[schema.SiteRow](t, scan, schema.Sites), sites)
		sameRows(t, collect[schema.VerdictRow](t, scan, schema.Verdicts), verdicts)
		sameRows(t, collect[schema.EvidenceRow](t, scan, schema.Evidence), evidence)
		sameRows(t, collect[schema.BodyRow](t, scan, schema.Bodies), bodies)
		sameRows(t, collect[schema.PolicyRow](t, scan, schema.Policies), policies)
	}
	check()
	if kept != "" {
		return // the test of other readers merges the dataset itself
	}
	if _, err := compact.Scan(context.Background(), st, "hard", compact.Options{}); err != nil {
		t.Fatal(err)
	}
	check()
}

// times are the limits of other readers' timestamps, and times within them.
func times(i int, millis int64) int64 {
	const first, last = -62135596800000, 253402300799999 // of the years 1 and 9999
	if ends := []int64{first, last, -1, 0, 1}; i < len(ends) {
		return ends[i]
	}
	return millis % last
}

// sameRows compares rows column by column.
func sameRows[T any](t *testing.T, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for n := range want {
		g, w := reflect.ValueOf(got[n]), reflect.ValueOf(want[n])
		for i := range w.NumField() {
			if !same(g.Field(i), w.Field(i)) {
				t.Fatalf("row %d, %s: %+v, want %+v", n, w.Type().Field(i).Name, g.Field(i), w.Field(i))
			}
		}
	}
}

// writePlain writes rows as JSON lists for comparison with other readers: 64-bit integers as text, bytes in
// hexadecimal, null for absent values. It uses no reader of bulkscan.
func writePlain[T any](t *testing.T, dir, table string, rows []T) {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	row := reflect.TypeFor[T]()
	for n := range rows {
		list := make([]any, row.NumField())
		for i := range list {
			field := reflect.ValueOf(rows[n]).Field(i)
			if !schema.HasOption(row.Field(i), "optional") || !field.IsZero() {
				list[i] = plainValue(field)
			}
		}
		if err := encoder.Encode(list); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, table+".jsonl"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func plainValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return plainValue(v.Elem())
	case reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float32:
		return v.Float() // a double represents it exactly
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return hex.EncodeToString(v.Bytes())
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainValue(v.Index(i))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for i := range v.NumField() {
			fields[schema.ColumnName(v.Type().Field(i))] = plainValue(v.Field(i))
		}
		return fields
	}
	return v.Interface()
}

package sink

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// far is a Store with slow Opens. It counts open objects.
type far struct {
	store.Store
	takes time.Duration
	fails string          // suffix of names whose Open fails
	first *sync.WaitGroup // if not nil, the first Opens wait for each other by it

	mu                         sync.Mutex
	opening, open, most, asked int // opening and open now; maximum of their sum; Opens in total
}

func (f *far) Open(ctx context.Context, name string) (store.Object, error) {
	if f.add(1, 0) <= store.ReadAtOnce && f.first != nil {
		f.first.Done()
		f.first.Wait()
	}
	opened := 0
	defer func() { f.add(-1, opened) }()
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f.fails != "" && strings.HasSuffix(name, f.fails) {
		return nil, errFar
	}
	object, err := f.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	opened = 1
	return &counted{object, f}, nil
}

var errFar = errors.New("the server has no time")

// add updates the counts and returns the number of Opens so far.
func (f *far) add(opening, open int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked += max(0, opening)
	f.opening, f.open = f.opening+opening, f.open+open
	f.most = max(f.most, f.opening+f.open)
	return f.asked
}

type counted struct {
	store.Object
	f *far
}

func (c *counted) Close() error {
	c.f.add(0, -1)
	return c.Object.Close()
}

// partsOf returns a folder with a scan of so many parts of one site each.
func partsOf(tb testing.TB, parts int) *store.Dir {
	tb.Helper()
	dir := newDir(tb)
	o := crashOptions
	o.PartRows, o.Tables = 1, []string{schema.Sites}
	w := mustOpen(tb, dir, o)
	for seq := range uint64(parts) {
		if err := w.Add(typicalSite(tb, seq)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// TestAhead shows that records and files are opened eight at a time while rows come in their order, and that no more
// wait to be read. No file is left open, whether all rows are read, an error occurs, or the reader stops.
func TestAhead(t *testing.T) {
	const parts = 40
	dir := partsOf(t, parts)
	rows := func(s *commit.Scan, each func(seq int64) bool) error {
		for row, err := range read.Rows[schema.SiteRow](t.Context(), s, schema.Sites) {
			if err != nil {
				return err
			}
			if !each(row.Seq) {
				break
			}
		}
		return nil
	}
	cursors := func(s *commit.Scan, each func(seq int64) bool) error {
		var seq int64
		for cursor, err := range read.Cursors(t.Context(), s, schema.Sites, table.Field{Name: "seq", Into: &seq}) {
			if err != nil {
				return err
			}
			for cursor.Next() {
				if !each(seq) {
					return cursor.Close()
				}
			}
			if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	f := func(what string, read func(*commit.Scan, func(int64) bool) error, stop int, fails string) {
		t.Helper()
		// together returns a store whose first Opens wait for each other. It hangs if they are sequential.
		together := func() *far {
			st := &far{Store: dir, fails: fails, first: &sync.WaitGroup{}}
			st.first.Add(store.ReadAtOnce)
			return st
		}
		tidy := func(st *far, of string) {
			t.Helper()
			if st.open != 0 || st.opening != 0 || st.most < store.ReadAtOnce || st.most > store.ReadAtOnce+1 {
				// plus the one being read
				t.Errorf("%s, %s: %d are open, %d being opened; %d were at once", what, of, st.open, st.opening, st.most)
			}
		}
		st := together()
		commits, err := commit.Commits(t.Context(), st, crashOptions.ScanID)
		if err != nil || len(commits) != parts {
			t.Fatal(len(commits), err)
		}
		tidy(st, "records")
		scan := mustReadScan(t, dir, crashOptions.ScanID)
		st = together()
		scan.Store = st
		var got, want []int64
		err = read(scan, func(seq int64) bool {
			got = append(got, seq)
			return len(got) != stop || fails != ""
		})
		for seq := range int64(stop) {
			want = append(want, seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: rows %v", what, got)
		}
		if fails == "" && err != nil || fails != "" && !errors.Is(err, errFar) {
			t.Errorf("%s: %v", what, err)
		}
		tidy(st, "files")
		if most := min(parts, stop+store.ReadAtOnce); st.asked > most {
			t.Errorf("%s: %d files were opened, of which at most %d may have been of use", what, st.asked, most)
		}
	}
	for name, read := range map[string]func(*commit.Scan, func(int64) bool) error{"rows": rows, "cursors": cursors} {
		f(name, read, parts, "")
		f(name+", the first", read, 1, "")
		f(name+", some", read, 12, "")
		f(name+", failing", read, 10, "-10.parquet")
	}
}

// BenchmarkFar reads a column of 200 parts of a store that takes 20 ms to open a file. Run:
//
//	go test ./sink -run '^$' -bench Far
func BenchmarkFar(b *testing.B) {
	scan := mustReadScan(b, partsOf(b, 200), crashOptions.ScanID)
	scan.Store = &far{Store: scan.Store, takes: 20 * time.Millisecond}
	for b.Loop() {
		var seq, n int64
		for cursor, err := range read.Cursors(b.Context(), scan, schema.Sites, table.Field{Name: "seq", Into: &seq}) {
			if err != nil {
				b.Fatal(err)
			}
			for cursor.Next() {
				n++
			}
			if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
				b.Fatal(err)
			}
		}
		if n != 200 {
			b.Fatalf("%d rows", n)
		}
	}
}

package sink

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// busy is a dataset that gets a commit before each listing of its records.
type busy struct {
	store.Store
	t    *testing.T
	next commit.Commit
}

func (b *busy) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	if prefix == commit.CommitsFolder(b.next.ScanID) {
		if b.next.N++; b.next.N > 20 {
			return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, errors.New("listed too often")) }
		}
		b.next.Rows, b.next.Finished = 1, bitmapOf(b.t, uint64(1000+b.next.N))
		if err := b.next.Write(b.t.Context(), b.Store); err != nil {
			b.t.Error(err)
		}
	}
	return b.Store.List(ctx, prefix)
}

// TestCommitsOfABusyScan shows that reading ends although commits arrive faster than listings, and sees all commits
// that existed at the beginning.
func TestCommitsOfABusyScan(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, "a", typicalSites(t, 5)...)
	first, err := commit.Commits(t.Context(), dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{Store: dir, t: t, next: first[0]}
	commits, err := commit.Commits(t.Context(), b, "a")
	if err != nil {
		t.Fatal(err)
	}
	if n := b.next.N; n > 3 || len(commits) < 2 || commits[0].Rows != 5 {
		t.Errorf("%d listings, %d commits, %d rows in the first", n, len(commits), commits[0].Rows)
	}
}

// counting counts Opens of commit records.
type counting struct {
	store.Store
	opened atomic.Int64
}

func (c *counting) Open(ctx context.Context, name string) (store.Object, error) {
	if strings.HasPrefix(name, schema.ScansFolder) {
		c.opened.Add(1)
	}
	return c.Store.Open(ctx, name)
}

// TestReopeningReadsRecordsOnce shows that a reader whose files a compaction has merged reads the records once, not
// once for each part, and again after another compaction.
func TestReopeningReadsRecordsOnce(t *testing.T) {
	dir := newDir(t)
	const parts = 24
	w := mustOpen(t, dir, Options{ScanID: "o", Date: "2026-11-21", ToolVersion: "test", PartRows: 1})
	for _, s := range typicalSites(t, parts) {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &counting{Store: dir}
	old := mustReadScan(t, c, "o")
	want := cursorSeqs(t, old, schema.Sites)
	for _, size := range []int64{3 * old.Commits[0].Bytes(), compact.DefaultPartBytes} {
		if _, err := compact.Scan(t.Context(), dir, "o", compact.Options{PartBytes: size}); err != nil {
			t.Fatal(err)
		}
		c.opened.Store(0)
		if got := cursorSeqs(t, old, schema.Sites); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if n, records := c.opened.Load(), int64(len(mustReadScan(t, dir, "o").Commits)); n > 2*records {
			t.Errorf("%d records were opened to read %d parts, there are %d", n, parts, records)
		}
	}
}

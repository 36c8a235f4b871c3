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

// listing counts the listings of each prefix, up to a bound. Records in gone are listed and cannot be opened.
type listing struct {
	store.Store
	prefixes []string
	gone     string
}

func (l *listing) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	if l.prefixes = append(l.prefixes, prefix); len(l.prefixes) > 20 {
		return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, errors.New("listed too often")) }
	}
	return l.Store.List(ctx, prefix)
}

func (l *listing) Open(ctx context.Context, name string) (store.Object, error) {
	if name == l.gone {
		return nil, store.ErrNotExist
	}
	return l.Store.Open(ctx, name)
}

// TestRecordsAreListedOnce shows that a history lists the records once, and then those of compactions only, and that
// reading ends if a record is listed and not there.
func TestRecordsAreListedOnce(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	folder := commit.CommitsFolder(crashOptions.ScanID)
	f := func(gone string, commits int, prefixes ...string) {
		t.Helper()
		l := &listing{Store: dir, gone: gone}
		past, err := commit.ReadHistory(t.Context(), l, crashOptions.ScanID)
		if gone != "" && !errors.Is(err, store.ErrNotExist) || gone == "" && (err != nil || len(past.Current) != commits) ||
			!slices.Equal(l.prefixes, prefixes) {
			t.Errorf("want %d commits of %+v; listed %q, %v", commits, past, l.prefixes, err)
		}
	}
	f("", 3, folder, folder+"compacted-")
	f(crashCommit(1), 0, folder, folder)
	mustCompact(t, dir, compact.Options{})
	f("", 1, folder, folder+"compacted-")
	f(folder+"compacted-0.json", 0, folder, folder)
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

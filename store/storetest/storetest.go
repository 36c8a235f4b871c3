// Package storetest answers one question: does a Store keep its promises? Run checks an implementation against the
// interface. Faults ends the process between any two steps. Disk is a disk that loses power, fails and fills up.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/store"
)

// Run checks an implementation. Each call of open's result returns another Store on the same place, as another process
// would. The place is empty at first and belongs to one test. in runs each test, as synctest.Test does; nil runs it as
// it is.
func Run(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) func() store.Store) {
	if in == nil {
		in = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, open func() store.Store)
	}{
		{"put", testPut},
		{"create if absent", testCreateIfAbsent},
		{"create if absent, many at once", testCreateRace},
		{"draft", testDraft},
		{"draft replaces", testDraftReplaces},
		{"draft misuse", testDraftMisuse},
		{"discard", testDiscard},
		{"sweep", testSweep},
		{"list", testList},
		{"folders", testFolders},
		{"delete", testDelete},
		{"readers keep their bytes", testReaders},
		{"readers of much", testBigReaders},
		{"names", testNames},
		{"context", testContext},
		{"lock", testLock},
		{"lock, many at once", testLockRace},
	} {
		t.Run(test.name, func(t *testing.T) { in(t, func(t *testing.T) { test.run(t, open(t)) }) })
	}
}

var background = context.Background()

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content returns the content of an object, or "absent".
func content(t *testing.T, s store.Store, name string) string {
	t.Helper()
	data, err := store.ReadAll(background, s, name, 64<<20)
	if errors.Is(err, store.ErrNotExist) {
		return "absent"
	}
	must(t, err)
	return string(data)
}

func names(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()
	var all []string
	for entry, err := range s.List(background, prefix) {
		must(t, err)
		all = append(all, entry.Name)
	}
	return all
}

func wantContent(t *testing.T, s store.Store, name, want string) {
	t.Helper()
	if got := content(t, s, name); got != want {
		t.Errorf("%s is %.80q, want %.80q", name, got, want)
	}
}

func wantNames(t *testing.T, s store.Store, prefix string, want ...string) {
	t.Helper()
	if got := names(t, s, prefix); !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func testPut(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	wantContent(t, s, "a/b", "absent")
	data := []byte("one")
	must(t, s.Put(background, "a/b", data))
	data[0] = 'X'
	wantContent(t, other, "a/b", "one")
	must(t, other.Put(background, "a/b", []byte("two, longer")))
	wantContent(t, s, "a/b", "two, longer")
	must(t, s.Put(background, "a/b", nil))
	wantContent(t, s, "a/b", "")
	big := strings.Repeat("0123456789", 1<<20)
	must(t, s.Put(background, "a/b", []byte(big)))
	wantContent(t, other, "a/b", big)
}

func testCreateIfAbsent(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	must(t, s.CreateIfAbsent(background, "c/1.json", []byte("first")))
	wantError(t, other.CreateIfAbsent(background, "c/1.json", []byte("second")), store.ErrExist)
	wantContent(t, other, "c/1.json", "first")
	wantNames(t, s, "", "c/1.json")
	must(t, s.Delete(background, "c/1.json"))
	must(t, other.CreateIfAbsent(background, "c/1.json", []byte("third")))
	wantContent(t, s, "c/1.json", "third")
}

func testCreateRace(t *testing.T, open func() store.Store) {
	const callers = 16
	var won atomic.Int32
	var winner atomic.Pointer[string]
	var wait sync.WaitGroup
	for i := range callers {
		s := open()
		wait.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 1000)
			err := s.CreateIfAbsent(background, "one", []byte(text))
			switch {
			case err == nil:
				won.Add(1)
				winner.Store(&text)
			case !errors.Is(err, store.ErrExist):
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d callers created the object", won.Load())
	}
	wantContent(t, open(), "one", *winner.Load())
}

func testDraft(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	draft, err := s.Create(background, "t/p.parquet")
	must(t, err)
	var want bytes.Buffer
	for i := range 1000 {
		line := fmt.Sprintf("%d,", i)
		want.WriteString(line)
		n, err := io.WriteString(draft, line)
		must(t, err)
		if n != len(line) {
			t.Fatalf("Write returned %d of %d", n, len(line))
		}
	}
	invisible := func(when string) {
		t.Helper()
		if got := content(t, other, "t/p.parquet"); got != "absent" {
			t.Errorf("%s the draft shows: %.40q", when, got)
		}
		if got := names(t, other, ""); len(got) > 0 {
			t.Errorf("%s the draft is listed: %q", when, got)
		}
	}
	invisible("before Seal")
	must(t, draft.Seal())
	invisible("before Publish")
	must(t, draft.Publish(background))
	wantContent(t, other, "t/p.parquet", want.String())
	wantNames(t, other, "", "t/p.parquet")
	must(t, draft.Discard())
	wantContent(t, other, "t/p.parquet", want.String())
}

func testDraftReplaces(t *testing.T, open func() store.Store) {
	s := open()
	must(t, s.Put(background, "x", []byte("old")))
	draft, err := s.Create(background, "x")
	must(t, err)
	_, err = io.WriteString(draft, "new")
	must(t, err)
	wantContent(t, s, "x", "old")
	must(t, draft.Seal())
	must(t, draft.Publish(background))
	wantContent(t, s, "x", "new")
}

func testDraftMisuse(t *testing.T, open func() store.Store) {
	s := open()
	draft, err := s.Create(background, "x")
	must(t, err)
	if draft.Publish(background) == nil {
		t.Error("Publish before Seal")
	}
	must(t, draft.Seal())
	if _, err := io.WriteString(draft, "late"); err == nil {
		t.Error("Write after Seal")
	}
	must(t, draft.Publish(background))
	wantContent(t, s, "x", "")
	if draft.Publish(background) == nil {
		t.Error("Publish twice")
	}
}

func testDiscard(t *testing.T, open func() store.Store) {
	s := open()
	for _, sealed := range []bool{false, true} {
		draft, err := s.Create(background, "x")
		must(t, err)
		_, err = io.WriteString(draft, "gone")
		must(t, err)
		if sealed {
			must(t, draft.Seal())
		}
		must(t, draft.Discard())
		must(t, draft.Discard())
		if draft.Publish(background) == nil {
			t.Error("Publish after Discard")
		}
		wantNames(t, s, "")
	}
}

// testSweep checks that Sweep removes drafts of dead processes only.
func testSweep(t *testing.T, open func() store.Store) {
	dead, s := open(), open()
	for _, name := range []string{"t/part-a-0-1", "t/part-a-1-1", "t/part-b-0-1", "u/part-a-0-1"} {
		draft, err := dead.Create(background, name)
		must(t, err)
		_, err = io.WriteString(draft, "half")
		must(t, err)
		must(t, draft.Seal()) // an unsealed one may leave nothing
	}
	must(t, s.Put(background, "t/part-a-0-0", []byte("kept")))
	alive, err := s.Create(background, "t/part-b-0-2")
	must(t, err)
	spared, err := s.Create(background, "t/part-a-9-9")
	must(t, err)
	must(t, spared.Seal())
	var asked []string
	ours := func(name string) bool {
		asked = append(asked, name)
		return name != "t/part-a-9-9"
	}
	must(t, s.Sweep(background, "t/part-a-", ours))
	slices.Sort(asked)
	if want := []string{"t/part-a-0-1", "t/part-a-1-1", "t/part-a-9-9"}; !slices.Equal(asked, want) {
		t.Errorf("Sweep asked for %q, want %q", asked, want)
	}
	asked = nil
	must(t, s.Sweep(background, "nowhere/", ours))
	must(t, s.Sweep(background, "t/part-a-", ours))
	if want := []string{"t/part-a-9-9"}; !slices.Equal(asked, want) {
		t.Errorf("after Sweep there are %q, want %q", asked, want)
	}
	must(t, spared.Discard())
	wantNames(t, s, "", "t/part-a-0-0")
	must(t, alive.Seal())
	must(t, alive.Publish(background))
	wantNames(t, s, "", "t/part-a-0-0", "t/part-b-0-2")
}

func testList(t *testing.T, open func() store.Store) {
	s := open()
	wantNames(t, s, "")
	wantNames(t, s, "nowhere/")
	// No name is another's folder: it would be a file and a folder.
	all := []string{"_scans/x/manifest.json", "a-b/c", "a/b-1", "a/bc", "b"}
	for _, i := range []int{3, 0, 4, 2, 1} {
		must(t, s.Put(background, all[i], []byte(all[i])))
	}
	f := func(prefix string, want ...string) {
		t.Helper()
		wantNames(t, s, prefix, want...)
	}
	f("", all...)
	f("a", "a-b/c", "a/b-1", "a/bc")
	f("a/", "a/b-1", "a/bc")
	f("a/b", "a/b-1", "a/bc")
	f("a/b-", "a/b-1")
	f("a/b-1", "a/b-1")
	f("a/b-1/")
	f("a/c")
	f("_scans/", "_scans/x/manifest.json")
	f("_scans/x/man", "_scans/x/manifest.json")
	for entry, err := range s.List(background, "a-b/c") {
		must(t, err)
		if entry.Size != int64(len("a-b/c")) || time.Since(entry.Modified).Abs() > time.Hour {
			t.Errorf("%+v", entry)
		}
	}
	for _, err := range s.List(background, "") {
		if err != nil {
			t.Error(err)
		}
		break // a List may be ended early
	}
}

func testFolders(t *testing.T, open func() store.Store) {
	s := open()
	wantFolders := func(want ...string) {
		t.Helper()
		var got []string
		for name, err := range open().Folders(background, "f/") {
			must(t, err)
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("Folders are %q, want %q", got, want)
		}
	}
	wantFolders()
	for _, name := range []string{"f/a/1", "f/a/b/2", "f/c/3", "f/d", "f/z-1/4", "f/z/5", "g/6"} {
		must(t, s.Put(background, name, nil))
	}
	wantFolders("f/a", "f/c", "f/z", "f/z-1")
	for _, err := range s.Folders(background, "f/") {
		must(t, err)
		break
	}
}

func testDelete(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	must(t, s.Put(background, "a/b", []byte("x")))
	must(t, other.Delete(background, "a/b"))
	wantContent(t, s, "a/b", "absent")
	wantNames(t, s, "")
	must(t, s.Delete(background, "a/b"))
	must(t, s.Delete(background, "never/was"))
}

func testReaders(t *testing.T, open func() store.Store) {
	s := open()
	must(t, s.Put(background, "a", []byte("before")))
	object, err := s.Open(background, "a")
	must(t, err)
	defer object.Close()
	must(t, s.Put(background, "a", []byte("after, and longer")))
	must(t, s.Delete(background, "a"))
	if object.Size() != 6 {
		t.Errorf("Size() = %d", object.Size())
	}
	got := make([]byte, 4)
	if _, err := object.ReadAt(got, 2); err != nil || string(got) != "fore" {
		t.Errorf("ReadAt: %q, %v", got, err)
	}
	if n, err := object.ReadAt(got, 4); n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt over the end: %d, %v", n, err)
	}
}

// testBigReaders checks that a reader of a large object, replaced and deleted meanwhile, gets its bytes or ErrChanged,
// and never other bytes.
func testBigReaders(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	const size = 6 << 20
	for _, change := range []func() error{
		func() error { return other.Put(background, "a", bytes.Repeat([]byte("new"), size/3+10)) },
		func() error { return other.Delete(background, "a") },
	} {
		must(t, s.Put(background, "a", bytes.Repeat([]byte("old"), size/3)))
		object, err := s.Open(background, "a")
		must(t, err)
		got := make([]byte, 300)
		changed := false
		for offset := int64(0); offset < size; offset += 300_000 {
			if n, err := object.ReadAt(got, offset); errors.Is(err, store.ErrChanged) {
				changed = true
			} else if err != nil || n != len(got) || !bytes.Equal(got, bytes.Repeat([]byte("old"), 100)) {
				t.Fatalf("%d bytes at %d: %.12q, %v", n, offset, got, err)
			}
			if offset == 0 {
				if changed {
					t.Error("changed before it was")
				}
				must(t, change())
			}
		}
		if object.Size() != size {
			t.Errorf("Size() = %d", object.Size())
		}
		must(t, object.Close())
	}
}

func testNames(t *testing.T, open func() store.Store) {
	s := open()
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.hidden", `a\b`, "a\x00b", "a\nb",
		"ä", strings.Repeat("a", 1025), strings.Repeat("a", 201),
	} {
		wantError(t, s.Put(background, name, nil), store.ErrName)
		wantError(t, s.CreateIfAbsent(background, name, nil), store.ErrName)
		wantError(t, s.Delete(background, name), store.ErrName)
		_, err := s.Open(background, name)
		wantError(t, err, store.ErrName)
		_, err = s.Create(background, name)
		wantError(t, err, store.ErrName)
		_, err = s.Lock(background, name, nil)
		wantError(t, err, store.ErrName)
	}
	wantNames(t, s, "")
	odd := "sites/scan_date=2026-11-21/part-Scan_1.a-0-0.parquet"
	must(t, s.Put(background, odd, []byte("x")))
	wantNames(t, s, "sites/", odd)
	if _, err := s.Open(background, "sites"); err == nil {
		t.Error("Open of a folder")
	}
}

func testContext(t *testing.T, open func() store.Store) {
	s := open()
	must(t, s.Put(background, "a", []byte("x")))
	over, cancel := context.WithCancel(background)
	cancel()
	wantError(t, s.Put(over, "a", []byte("y")), context.Canceled)
	wantError(t, s.CreateIfAbsent(over, "b", nil), context.Canceled)
	wantError(t, s.Delete(over, "a"), context.Canceled)
	_, err := s.Open(over, "a")
	wantError(t, err, context.Canceled)
	_, err = s.Create(over, "b")
	wantError(t, err, context.Canceled)
	_, err = s.Lock(over, "lock", nil)
	wantError(t, err, context.Canceled)
	wantError(t, s.Held(over, "lock"), context.Canceled)
	for _, err := range s.List(over, "") {
		wantError(t, err, context.Canceled)
	}
	wantContent(t, s, "a", "x")
	wantContent(t, s, "b", "absent")
}

func testLock(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	held, err := s.Lock(background, "_scans/x/lock", []byte("me"))
	must(t, err)
	for _, second := range []store.Store{s, other} {
		_, err = second.Lock(background, "_scans/x/lock", []byte("you"))
		var e *store.HeldError
		if !errors.As(err, &e) || string(e.Holder) != "me" || e.Name != "_scans/x/lock" {
			t.Fatalf("the second Lock: %v", err)
		}
		if err := second.Held(background, "_scans/x/lock"); !errors.As(err, &e) || string(e.Holder) != "me" ||
			e.Name != "_scans/x/lock" {
			t.Fatalf("Held: %v", err)
		}
	}
	must(t, other.Held(background, "_scans/y/lock"))
	another, err := other.Lock(background, "_scans/y/lock", nil)
	must(t, err)
	must(t, another.Unlock())
	wantNames(t, s, "")
	must(t, held.Unlock())
	must(t, held.Unlock())
	must(t, other.Held(background, "_scans/x/lock"))
	held, err = other.Lock(background, "_scans/x/lock", []byte("you"))
	must(t, err)
	must(t, held.Unlock())
}

// testLockRace checks that of many concurrent holders never two hold the lock at once.
func testLockRace(t *testing.T, open func() store.Store) {
	var inside, turns atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		s := open()
		wait.Go(func() {
			for done := 0; done < 20; {
				lock, err := s.Lock(background, "lock", []byte("somebody"))
				var held *store.HeldError
				if errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				turns.Add(1)
				done++
				inside.Add(-1)
				if err := lock.Unlock(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if turns.Load() != 8*20 {
		t.Errorf("%d turns", turns.Load())
	}
}

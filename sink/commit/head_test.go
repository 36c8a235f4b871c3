package commit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

func newStore(t *testing.T) *store.Dir {
	t.Helper()
	st, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// completed writes a complete scan without sites, and adds it to the head.
func completed(t *testing.T, st store.Store, id, date string) *Manifest {
	t.Helper()
	finished := time.Date(2026, 11, 20, 1, 0, 0, 0, time.UTC)
	m := &Manifest{SchemaVersion: schema.Version, ScanID: id, ScanDate: date, State: Complete,
		StartedAt: finished.Add(-time.Hour), FinishedAt: &finished, Ending: PublicationDone}
	if err := errors.Join(m.Write(t.Context(), st), Adopt(t.Context(), st, nil, m)); err != nil {
		t.Fatal(err)
	}
	return m
}

func mustHead(t *testing.T, st store.Store) *Head {
	t.Helper()
	h, err := ReadHead(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// says returns the scans of a head, each with its publication.
func says(t *testing.T, h *Head) string {
	t.Helper()
	all, err := h.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, s := range all {
		text += fmt.Sprintf("%s %s, ", s.ScanID, s.Publication)
	}
	return strings.TrimSuffix(text, ", ")
}

// TestHeadChain publishes scans of several months: each change makes a head that follows the one before, a closed month
// is in a file of its own that changes only with its scans, and no more than 16 heads and their files stay.
func TestHeadChain(t *testing.T) {
	st := newStore(t)
	for n := range 40 {
		completed(t, st, fmt.Sprintf("s%02d", n), time.Date(2026, 9, 1+2*n, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
	}
	h := mustHead(t, st)
	if h.Number != 40 || len(h.Months) != 2 || h.Months[0].Table != "2026-09" || h.Months[0].Rows != 15 ||
		h.Months[1].Rows != 16 || len(h.Scans) != 9 {
		t.Errorf("head %d has the months %+v and %d scans", h.Number, h.Months, len(h.Scans))
	}
	before := h.Months[1]
	if err := Withdraw(t.Context(), st, nil, "s02", "a wrong list"); err != nil {
		t.Fatal(err)
	}
	h = mustHead(t, st)
	if h.Months[1] != before || h.Months[0].Rows != 15 || h.Causes[0].What != CauseWithdraw ||
		h.Causes[0].Why != "a wrong list" || !slices.Equal(h.Causes[0].Scans, []string{"s02"}) {
		t.Errorf("%+v", h)
	}
	if text := says(t, h); !strings.Contains(text, "s01 published, s02 discarded, s03 published") ||
		strings.Count(text, "published") != 39 {
		t.Error(text)
	}
	var names, heads []string
	for entry, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if IsHead(entry.Name) {
			names = append(names, entry.Name)
		}
	}
	named := map[string]bool{}
	var last *Head
	heads, err := Heads(t.Context(), st)
	for _, name := range heads {
		next, errOpen := OpenHead(t.Context(), st, name)
		if err = errors.Join(err, errOpen); err != nil {
			t.Fatal(err)
		}
		if last != nil && (!next.Follows(last) || next.Number != last.Number+1) {
			t.Errorf("%s does not follow %s", name, last.Name())
		}
		last, named[name] = next, true
		for _, f := range next.Chunks() {
			named[f.Name] = true
		}
	}
	if len(heads) != 16 || len(names) != len(named) ||
		slices.ContainsFunc(names, func(n string) bool { return !named[n] }) {
		t.Errorf("%d heads, %d names, of which %d are named", len(heads), len(names), len(named))
	}
}

// TestHeadDamaged damages the newest head, and each file that it names, in every byte: no reader uses it, and the next
// change continues from the head before, or without a damaged month as soon as it needs that month.
func TestHeadDamaged(t *testing.T) {
	st := newStore(t)
	completed(t, st, "one", "2026-09-30")
	completed(t, st, "two", "2026-10-01")
	if err := Change(t.Context(), st, nil, func(h *Head) error {
		return h.Prune(t.Context(), &Pruned{Through: "2026-09-01"}, nil, nil)
	}); err != nil {
		t.Fatal(err)
	}
	h := mustHead(t, st)
	read := func() error {
		h, err := ReadHead(t.Context(), st)
		if err != nil {
			return err
		}
		_, errAll := h.All(t.Context())
		_, errPruned := h.ReadPruned(t.Context())
		return errors.Join(errAll, errPruned)
	}
	for _, name := range append([]string{h.Name()}, h.Months[0].Name, h.Pruned.Name) {
		good, err := store.ReadAll(t.Context(), st, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := slices.Clone(good)
			bad[i] ^= 1
			if err := st.Put(t.Context(), name, bad); err != nil {
				t.Fatal(err)
			}
			if err := read(); err == nil || !strings.Contains(err.Error(), "; "+h.Remedy(schema.File{Name: name})) {
				t.Fatalf("%s, byte %d: %v", name, i, err)
			}
		}
		for _, bad := range [][]byte{{}, good[:len(good)/2]} {
			if err := st.Put(t.Context(), name, bad); err != nil {
				t.Fatal(err)
			}
			if read() == nil {
				t.Errorf("%s is read with %d bytes", name, len(bad))
			}
		}
		if err := st.Put(t.Context(), name, good); err != nil || read() != nil {
			t.Fatal(err, read())
		}
	}
	if err := st.Put(t.Context(), h.Name(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	completed(t, st, "three", "2026-10-02")
	now := mustHead(t, st)
	if now.Number != h.Number+1 || now.Causes[0].What != CauseLost || now.Causes[0].Why != "damaged: 00000003.json" ||
		says(t, now) != "one published, two published, three published" {
		t.Errorf("%+v: %s", now, says(t, now))
	}
	month := now.Months[0].Name
	if err := st.Put(t.Context(), month, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	completed(t, st, "four", "2026-10-03")
	if now = mustHead(t, st); now.Months[0].Name != month || len(now.Scans) != 3 {
		t.Errorf("a change of another month: %+v", now)
	}
	if err := Change(t.Context(), st, nil, func(h *Head) error {
		_, err := h.All(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if now = mustHead(t, st); now.Causes[0].What != CauseLost || now.Causes[0].Why != "damaged: "+path.Base(month) ||
		says(t, now) != "two published, three published, four published" {
		t.Errorf("%+v: %s", now, says(t, now))
	}
}

// TestHeadAndManifest compares manifests with the head. A manifest of an earlier or another scan of the same name is
// damage, and so is a missing one. A scan that no head names waits.
func TestHeadAndManifest(t *testing.T) {
	st := newStore(t)
	completed(t, st, "before", "2026-11-19")
	good := completed(t, st, "one", "2026-11-20")
	f := func(what string, change func(m *Manifest), damaged bool) {
		t.Helper()
		m := *good
		change(&m)
		if err := m.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		read, err := ReadManifest(t.Context(), st, "one")
		if errors.Is(err, ErrRecord) != damaged || !damaged && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !damaged && read.Published() != (read.State == Complete) {
			t.Errorf("%s: it is %s, %s", what, read.State, read.Publication)
		}
		all, err := Scans(t.Context(), st)
		if _, is := errors.AsType[*DamagedScansError](err); is != damaged || len(all) != map[bool]int{true: 1,
			false: 2}[damaged] {
			t.Errorf("%s: %d scans, %v", what, len(all), err)
		}
	}
	earlier, later := good.FinishedAt.Add(-time.Minute), good.FinishedAt.Add(time.Minute)
	f("as it is", func(*Manifest) {}, false)
	f("an earlier copy", func(m *Manifest) { m.FinishedAt = &earlier }, true)
	f("a copy of before its end", func(m *Manifest) { m.State, m.FinishedAt = Running, nil }, true)
	f("another scan of its name", func(m *Manifest) { m.StartedAt = later }, true)
	f("continued", func(m *Manifest) { m.State, m.FinishedAt, m.ResumedAt = Running, nil, &later }, false)
	f("being repaired", func(m *Manifest) { m.State, m.FinishedAt, m.Repairing = Running, nil, true }, false)
	f("completed again, and killed before its head", func(m *Manifest) { m.FinishedAt = &later }, false)
	if err := st.Delete(t.Context(), ManifestName("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := Scans(t.Context(), st); err == nil || !strings.Contains(err.Error(), "00000002.json names the scan") {
		t.Errorf("without its manifest: %v", err)
	}
	if err := Withdraw(t.Context(), st, nil, "one", "lost"); err != nil {
		t.Fatal(err)
	}
	if all, err := Scans(t.Context(), st); err != nil || len(all) != 1 {
		t.Errorf("withdrawn: %v, %v", all, err)
	}
	waits := *good
	waits.ScanID = "waits"
	if err := waits.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadManifest(t.Context(), st, "waits"); err != nil || m.Published() || !m.Waits() {
		t.Errorf("not named: %+v, %v", m, err)
	}
}

// TestPublishPending publishes many scans by few heads. A scan that a person has discarded, or that is no longer
// pending, stays as it is.
func TestPublishPending(t *testing.T) {
	st := newStore(t)
	good := completed(t, st, "before", "2026-10-01")
	var ids []string
	for n := range 2*lockedAtOnce + 2 {
		m := *good
		m.ScanID, m.Ending = fmt.Sprintf("s%03d", n), PublicationPending
		if err := m.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ScanID)
	}
	if err := SetPublication(t.Context(), st, nil, "s000", PublicationDiscarded); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := PublishPending(t.Context(), st, nil, ids); err != nil {
			t.Fatal(err)
		}
		h := mustHead(t, st)
		if h.Number != 5 || strings.Count(says(t, h), "published") != len(ids) || !strings.Contains(says(t, h),
			"s000 discarded") {
			t.Errorf("head %d: %s", h.Number, says(t, h))
		}
	}
}

// TestHeadWriters publishes with many processes at once: no change is lost.
func TestHeadWriters(t *testing.T) {
	st := newStore(t)
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			other, err := store.NewDir(st.Root())
			if err != nil {
				t.Error(err)
				return
			}
			completed(t, other, fmt.Sprint("s", n), "2026-11-20")
		})
	}
	writers.Wait()
	if h := mustHead(t, st); h.Number != 8 || len(h.Scans) != 8 {
		t.Errorf("head %d names %s", h.Number, says(t, h))
	}
}

// lateHead is a store in which another process, that has lost the lock, creates its head first.
type lateHead struct {
	store.Store
	before func(name string)
}

func (s *lateHead) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	if do := s.before; do != nil && strings.HasPrefix(name, schema.HeadFolder) {
		s.before = nil
		do(name)
	}
	return s.Store.CreateIfAbsent(ctx, name, data)
}

// TestHeadFence lets a late head of an earlier holder of the lock come first: both changes count.
func TestHeadFence(t *testing.T) {
	st := newStore(t)
	late := &lateHead{Store: st}
	late.before = func(name string) {
		h := &Head{SchemaVersion: schema.Version, Number: 1, Scans: []Named{{ScanID: "late", ScanDate: "2026-11-19",
			Publication: PublicationHeld}}, Causes: []Cause{{What: CauseHold}}}
		if err := WriteRecord(t.Context(), st.CreateIfAbsent, name, h, &h.Sum); err != nil {
			t.Error(err)
		}
	}
	completed(t, late, "one", "2026-11-20")
	if h := mustHead(t, st); h.Number != 2 || says(t, h) != "late held, one published" {
		t.Errorf("head %d says %s", h.Number, says(t, h))
	}
}

// processes returns a function that opens one dataset in memory, as another process would.
func processes(t *testing.T) func() *store.Dir {
	disk := storetest.NewDisk()
	return func() *store.Dir {
		st, err := store.NewDirOn(disk, "/data/out")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

// TestHeadWaits waits for a holder of the dataset's lock that takes an hour: no process gives up, as long as the holder
// lives.
func TestHeadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := processes(t)
		begun := time.Now()
		held := make(chan struct{})
		go func() {
			err := Change(t.Context(), open(), nil, func(*Head) error {
				close(held)
				time.Sleep(time.Hour)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		<-held
		completed(t, open(), "one", "2026-11-20")
		if waited := time.Since(begun); waited < time.Hour || waited > time.Hour+longestPause {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestWaitsSayWhy lets each change of what counts wait for another process. The change logs this, and names the
// process.
func TestWaitsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := processes(t)
		m := completed(t, open(), "one", "2026-11-20")
		f := func(what string, held time.Duration, says int, change func(st store.Store, log *slog.Logger) error) {
			t.Helper()
			lock, err := lockDataset(t.Context(), open(), nil)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(held, func() { _ = lock.Unlock() })
			var log bytes.Buffer
			if err := change(open(), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if text := log.String(); strings.Count(text, "waiting for another process") != says ||
				strings.Count(text, fmt.Sprintf(`\"pid\":%d`, os.Getpid())) != says {
				t.Errorf("%s: it says %q", what, text)
			}
		}
		adopt := func(st store.Store, log *slog.Logger) error { return Adopt(t.Context(), st, log, m) }
		f("adopt", time.Hour, 1, adopt)
		f("adopt", lockPause, 0, adopt)
		f("publish", time.Minute, 1, func(st store.Store, log *slog.Logger) error {
			return SetPublication(t.Context(), st, log, "one", PublicationDone)
		})
		f("withdraw", time.Minute, 1, func(st store.Store, log *slog.Logger) error {
			return Withdraw(t.Context(), st, log,
				"one", "")
		})
		f("restart", time.Minute, 1, func(st store.Store, log *slog.Logger) error {
			return Forget(t.Context(), st, log,
				"one")
		})
		f("prune", time.Minute, 1, func(st store.Store, log *slog.Logger) error { return Removed(t.Context(), st, log) })
	})
}

// TestWithdrawTwice repeats the withdrawal of each kind of scan, as after a kill: it succeeds, and writes no second
// head. A scan that no head names cannot be withdrawn.
func TestWithdrawTwice(t *testing.T) {
	f := func(what string, then func(st *store.Dir) error) {
		t.Helper()
		st := newStore(t)
		completed(t, st, "one", "2026-11-20")
		if err := then(st); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := Withdraw(t.Context(), st, nil, "one", "a wrong list"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if h := mustHead(t, st); says(t, h) != "one discarded" || h.Number != 2 || h.Causes[0].Why != "a wrong list" {
			t.Errorf("%s: head %d says %s, for %+v", what, h.Number, says(t, h), h.Causes)
		}
		if err := Withdraw(t.Context(), st, nil, "none", ""); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("a scan that never was: %v", err)
		}
	}
	f("whole", func(*store.Dir) error { return nil })
	f("without its manifest", func(st *store.Dir) error { return st.Delete(t.Context(), ManifestName("one")) })
	f("with a damaged manifest", func(st *store.Dir) error {
		return st.Put(t.Context(), ManifestName("one"),
			[]byte("{}"))
	})
	f("with a damaged commit", func(st *store.Dir) error {
		return st.Put(t.Context(), CommitsFolder("one")+"0-0.json",
			[]byte("{}"))
	})
	f("with lost commits", func(st *store.Dir) error {
		m, err := ReadManifest(t.Context(), st, "one")
		if err == nil {
			m.Counts = &Counts{Parts: 1, Rows: 10}
			err = m.Write(t.Context(), st)
		}
		return err
	})
}

// TestHeadsOfTheKilled shows that files of a head whose writer was killed before it wrote the head are deleted, once 16
// later heads are there.
func TestHeadsOfTheKilled(t *testing.T) {
	st := newStore(t)
	date := func(n int) string { return time.Date(2026, 9, 1+2*n, 0, 0, 0, 0, time.UTC).Format(time.DateOnly) }
	for n := range 60 {
		dying := &storetest.Faults{Store: st, Fail: func(s storetest.Step) error {
			if s.Op == "create-if-absent" && IsHead(s.Name) && len(s.Name) == len("_head/00000001.json") {
				return storetest.ErrCrashed
			}
			return nil
		}}
		err := Change(t.Context(), dying, nil, func(h *Head) error {
			return h.Prune(t.Context(), &Pruned{Through: fmt.Sprintf("2026-08-%02d", 1+n%28)}, nil, nil)
		})
		if !errors.Is(err, storetest.ErrCrashed) {
			t.Fatal(err)
		}
		completed(t, st, fmt.Sprintf("s%02d", n), date(n))
	}
	heads, chunks, err := headsAndChunks(t.Context(), st)
	if err != nil || len(heads) != 16 || len(chunks) > 16+4 {
		t.Errorf("%d heads, %d files: %q, %v", len(heads), len(chunks), chunks, err)
	}
}

// TestHeadLostAnswer loses the answer to the creation of each head, so that the writer finds its own head like that of
// another process. The change is made again without an error, and no scan is named twice.
func TestHeadLostAnswer(t *testing.T) {
	f := func(what, want string, change func(st store.Store) error) {
		t.Helper()
		st := newStore(t)
		completed(t, st, "one", "2026-11-20")
		m := completed(t, st, "two", "2026-11-21")
		m.ScanID, m.Ending = "new", PublicationPending
		if err := m.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		lost := 0
		err := change(&storetest.Faults{Store: st, Lose: func(s storetest.Step) error {
			if lost == 0 && s.Op == "create-if-absent" && IsHead(s.Name) {
				lost++
				return store.ErrExist
			}
			return nil
		}})
		if h := mustHead(t, st); err != nil || lost != 1 || says(t, h) != want || h.Number > 4 {
			t.Errorf("%s: %v; head %d says %s, want %s", what, err, h.Number, says(t, h), want)
		}
	}
	set := func(to Publication) func(store.Store) error {
		return func(st store.Store) error { return SetPublication(t.Context(), st, nil, "new", to) }
	}
	f("publish", "one published, new published, two published", set(PublicationDone))
	f("hold", "one published, new held, two published", set(PublicationHeld))
	f("discard", "one published, new discarded, two published", set(PublicationDiscarded))
	f("adopt", "one published, new published, two published", func(st store.Store) error {
		m, err := ReadManifest(t.Context(), st, "new")
		if err == nil {
			m.Ending = PublicationDone
			err = errors.Join(m.Write(t.Context(), st), Adopt(t.Context(), st, nil, m))
		}
		return err
	})
	f("withdraw", "one published, two discarded", func(st store.Store) error {
		return Withdraw(t.Context(), st, nil, "two",
			"")
	})
	f("withdraw what is lost", "one published, two discarded", func(st store.Store) error {
		return errors.Join(st.Delete(t.Context(), ManifestName("two")), Withdraw(t.Context(), st, nil, "two", ""))
	})
	f("restart", "one published", func(st store.Store) error { return Forget(t.Context(), st, nil, "two") })
	f("prune", "two published", func(st store.Store) error {
		return Change(t.Context(), st, nil, func(h *Head) error {
			if slices.Contains(h.Removing, "one") {
				return nil
			}
			return h.Prune(t.Context(), &Pruned{Through: "2026-11-20"}, []*Manifest{{ScanID: "one", ScanDate: "2026-11-20"}},
				nil)
		})
	})
	f("removed", "one published, two published", func(st store.Store) error { return Removed(t.Context(), st, nil) })
}

// TestHeadForeign shows that files in the folder of heads are only deleted if they have the name of a head or of its
// files.
func TestHeadForeign(t *testing.T) {
	st := newStore(t)
	mine := []string{"notes.txt", "00000001.json.bak", "00000000-2026-10-copy.json", "1.json"}
	for _, name := range mine {
		if err := st.Put(t.Context(), schema.HeadFolder+name, []byte("mine")); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 20 {
		completed(t, st, fmt.Sprint("s", n), "2026-11-20")
	}
	for _, name := range mine {
		if data, err := os.ReadFile(filepath.Join(st.Root(), filepath.FromSlash(schema.HeadFolder+name))); err != nil ||
			string(data) != "mine" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// lateStore has leases; an earlier holder may have a request on its way.
type lateStore struct {
	store.Store
	fenced int
}

type lateLease struct {
	store.Unlocker
	st *lateStore
}

func (s *lateStore) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	lock, err := s.Store.Lock(ctx, name, holder)
	return lateLease{lock, s}, err
}

func (l lateLease) Late() bool { return l.st.fenced == 0 }
func (l lateLease) Fenced()    { l.st.fenced++ }

// TestHeadLate shows that with a late lease a restart writes a head although none names the scan, since a late head
// may. Only a head with another ledger ends the danger.
func TestHeadLate(t *testing.T) {
	late := &lateStore{Store: newStore(t)}
	completed(t, late, "one", "2026-11-20")
	f := func(what string, err error, number, fenced int) {
		t.Helper()
		if h := mustHead(t, late); err != nil || h.Number != number || late.fenced != fenced ||
			says(t, h) != "one published" {
			t.Errorf("%s: head %d says %s, fenced %d times, %v", what, h.Number, says(t, h), late.fenced, err)
		}
	}
	f("restart", Forget(t.Context(), late, nil, "another"), 2, 0)
	f("publish", SetPublication(t.Context(), late, nil, "one", PublicationDone), 2, 0)
	f("merge", Change(t.Context(), late, nil, func(h *Head) error {
		if !h.Late {
			t.Error("the head does not say that it is late")
		}
		h.SetLedger(Merge{Number: 1}, "")
		return nil
	}), 3, 1)
	f("restart", Forget(t.Context(), late, nil, "another"), 3, 1)
}

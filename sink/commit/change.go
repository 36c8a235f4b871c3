package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file changes what counts: it sets publications, and writes heads.

// before lists, for each publication, the publications from which a scan may change to it. Only a withdrawal takes back
// a published scan.
var before = map[Publication][]Publication{
	PublicationDone:      {PublicationPending, PublicationHeld, PublicationDiscarded, PublicationEmpty},
	PublicationHeld:      {PublicationPending},
	PublicationDiscarded: {PublicationPending, PublicationHeld},
}

// SetPublication changes the publication of a complete scan, as one step. An incomplete scan can only be discarded. If
// the scan already has that publication, nothing changes. The files that readers open (index and views) are not updated
// here.
func SetPublication(ctx context.Context, st store.Store, log *slog.Logger, scanID string, to Publication) error {
	what := map[Publication]string{PublicationDone: CausePublish, PublicationHeld: CauseHold,
		PublicationDiscarded: CauseDiscard}[to]
	return setPublication(ctx, st, log, scanID, to, before[to], what, "")
}

// Withdraw discards a published scan, also one whose data is lost. The head keeps the reason, which a person gives.
func Withdraw(ctx context.Context, st store.Store, log *slog.Logger, scanID, why string) error {
	if _, err := ReadManifest(ctx, st, scanID); errors.Is(err, ErrRecord) || errors.Is(err, store.ErrNotExist) {
		return Change(ctx, st, log, func(h *Head) error {
			if named, errHead := h.rename(ctx, scanID, PublicationDiscarded, CauseWithdraw, why); named || errHead != nil {
				return errHead
			}
			return err
		})
	}
	return setPublication(ctx, st, log, scanID, PublicationDiscarded, []Publication{PublicationDone}, CauseWithdraw, why)
}

func setPublication(ctx context.Context, st store.Store, log *slog.Logger, scanID string, to Publication,
	from []Publication, what, why string) error {
	return changeScans(ctx, st, log, []string{scanID}, func(h *Head, m *Manifest) error {
		switch was := m.Publication; {
		case m.State != Complete && to != PublicationDiscarded:
			return fmt.Errorf("scan %s is not complete, and cannot be %s", scanID, to)
		case was == to:
			return nil
		case m.State == Complete && !slices.Contains(from, was):
			return fmt.Errorf("scan %s is %s, and cannot be %s%s", scanID, was, to, otherwise[what])
		}
		return h.name(ctx, m, to, what, why)
	})
}

// otherwise names, by cause, the command that discards a scan of another publication.
var otherwise = map[string]string{
	CauseDiscard:  "; bulkscan nightly --withdraw DATE takes a published night back",
	CauseWithdraw: "; bulkscan nightly --discard DATE lets a night go that is not published",
}

// lockedAtOnce bounds how many scans a process locks at once.
const lockedAtOnce = 64

// PublishPending publishes those of the scans that are complete and pending. It writes one head for up to lockedAtOnce.
func PublishPending(ctx context.Context, st store.Store, log *slog.Logger, scanIDs []string) error {
	for some := range slices.Chunk(scanIDs, lockedAtOnce) {
		if err := changeScans(ctx, st, log, some, func(h *Head, m *Manifest) error {
			if m.State != Complete || m.Publication != PublicationPending {
				return nil
			}
			return h.name(ctx, m, PublicationDone, CausePublish, "")
		}); err != nil {
			return err
		}
	}
	return nil
}

// changeScans locks scans and calls do with the next head and the manifest of each. A manifest has the publication that
// the newest head says.
func changeScans(ctx context.Context, st store.Store, log *slog.Logger, scanIDs []string,
	do func(h *Head, m *Manifest) error) (err error) {
	var all []*Manifest
	for _, id := range scanIDs {
		lock, m, errLock := LockScan(ctx, st, id, DoingPublish)
		if errLock != nil {
			return errLock
		}
		defer func() { err = errors.Join(err, lock.Unlock()) }()
		all = append(all, m)
	}
	return Change(ctx, st, log, func(h *Head) error {
		for _, m := range all {
			err := h.place(ctx, m)
			if err == nil {
				err = do(h, m)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A process that waits for the dataset's lock tries again after lockPause, and then after ever longer pauses, up to
// longestPause.
const (
	lockPause    = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// Change holds the dataset's lock while do changes the newest head and its files. Then Change writes the next head, if
// it has a cause. While another living process holds the lock, Change waits, and logs so; log may be nil. If the newest
// head cannot be read, the next head follows the newest readable one, without months that cannot be read. If do needs a
// month that cannot be read, Change calls do once more with a head without it.
func Change(ctx context.Context, st store.Store, log *slog.Logger, do func(h *Head) error) (err error) {
	lock, err := lockDataset(ctx, st, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := st.Sweep(ctx, schema.HeadFolder, IsHead); err != nil {
		return err
	}
	lease, isLease := lock.(store.Lease)
	whole := false
	for round := 0; round < headRounds; round++ {
		h, errHead := newestHead(ctx, st, whole)
		if errHead != nil {
			return errHead
		}
		before := h.Ledger
		h.Late = isLease && lease.Late()
		err = do(h)
		changed := err == nil && len(h.Causes) > 0 && !h.lost
		if changed {
			err = h.write(ctx, st)
		}
		if h.lost && !whole {
			whole = true
			round--
			continue
		}
		if err == nil && h.Late && h.Ledger != before {
			// the new ledger and the new head refuse late ones; other names are used once
			lease.Fenced()
		}
		if !changed || !errors.Is(err, store.ErrExist) { // else a late head of an earlier holder has come
			return err
		}
	}
	return fmt.Errorf(
		"cannot write a head: %w; if that is no file, move it away, else other processes write heads without the lock of the dataset", err)
}

func lockDataset(ctx context.Context, st store.Store, log *slog.Logger) (store.Unlocker, error) {
	holder, err := json.Marshal(ThisProcess(time.Now().UTC().Truncate(time.Second), DoingPublish))
	if err != nil {
		return nil, err
	}
	name := schema.HeadFolder + "lock"
	lock, err := st.Lock(ctx, name, holder)
	for pause := lockPause; err != nil; pause = min(2*pause, longestPause) {
		held, ok := errors.AsType[*store.HeldError](err)
		if !ok {
			return nil, fmt.Errorf("cannot lock the dataset: %w", err)
		}
		if log != nil && pause == 4*lockPause {
			log.Info("waiting for another process that publishes into this dataset", "holder", string(held.Holder))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		lock, err = st.Lock(ctx, name, holder)
	}
	return lock, nil
}

// newestHead returns a copy of the newest head that can be read, as the next one. If that is not the newest of all, or
// with whole, it reads all months and drops those that cannot be read.
func newestHead(ctx context.Context, st store.Store, whole bool) (*Head, error) {
	names, chunks, err := headsAndChunks(ctx, st)
	if err != nil {
		return nil, err
	}
	h := newHead(st)
	var lost []string
	for _, name := range slices.Backward(names) {
		newest, err := OpenHead(ctx, st, name)
		if err == nil {
			h = newest
			break
		}
		if !isLost(err) {
			return nil, err
		}
		lost = append(lost, path.Base(name))
	}
	var all []schema.File
	if whole || len(lost) > 0 {
		all = h.Months
	}
	for _, f := range all { // scans of a lost month count again if they wait or the ledger has them
		if _, err := h.in(ctx, f.Table); err != nil && !isLost(err) {
			return nil, err
		} else if err != nil {
			lost = append(lost, path.Base(f.Name))
			h.months[f.Table] = &month{read: true, changed: true}
		}
	}
	h.names, h.chunks, h.lost = names, chunks, false
	h.SchemaVersion, h.Previous, h.Causes, h.Number = schema.Version, h.bytes, nil, 1
	if len(names) > 0 {
		newest, _ := strconv.Atoi(headName.FindStringSubmatch(names[len(names)-1])[1]) // eight digits
		h.Number = newest + 1
	}
	if len(names) == 0 {
		if err := headless(ctx, st); errors.Is(err, ErrRecord) {
			lost = []string{"all"}
		} else if err != nil {
			return nil, err
		}
	}
	if len(lost) > 0 { // the lost heads may have noted changes
		for _, m := range h.months {
			m.changed = true
			for i := range m.scans {
				m.scans[i].Changing, m.scans[i].Since = true, h.Number
			}
		}
		h.cause(CauseLost, "damaged: "+strings.Join(lost, ", "))
	}
	return h, nil
}

// isLost reports whether an error says that a file is damaged, or no file.
func isLost(err error) bool {
	_, irregular := errors.AsType[*store.IrregularError](err)
	return irregular || Remedied(err, "") != err
}

// write creates the head behind the files that it names, and deletes the oldest heads.
func (h *Head) write(ctx context.Context, st store.Store) error {
	last := ""
	maps.DeleteFunc(h.months, func(_ string, m *month) bool { return m.read && len(m.scans) == 0 })
	for name := range h.months {
		last = max(last, name)
	}
	h.Months, h.Scans = nil, []Named{}
	for _, name := range slices.Sorted(maps.Keys(h.months)) {
		m, err := h.months[name], error(nil)
		switch {
		case name == last:
			m, err = h.in(ctx, name)
			if err == nil {
				h.Scans = m.scans
			}
		case m.changed || m.file == nil:
			m.file, err = h.writeChunk(ctx, name, m.scans, len(m.scans))
		}
		if err != nil {
			return err
		}
		if name != last {
			h.Months = append(h.Months, *m.file)
		}
	}
	if h.pruned != nil {
		file, err := h.writeChunk(ctx, "pruned", h.pruned, len(h.pruned.Scans))
		if err != nil {
			return err
		}
		h.Pruned = file
	}
	h.WrittenAt = time.Now().UTC().Truncate(time.Millisecond)
	if err := WriteRecord(ctx, st.CreateIfAbsent, h.Name(), h, &h.Sum); err != nil {
		return err
	}
	return h.deleteOld(ctx, st)
}

// writeChunk creates a file of the head. No other head has a file of its name with another content.
func (h *Head) writeChunk(ctx context.Context, what string, value any, rows int) (*schema.File, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, err
	}
	f := &schema.File{Table: what, Rows: int64(rows), Bytes: int64(len(data)), SHA256: schema.SumOf(data)}
	f.Name = fmt.Sprintf("%s%08d-%s-%.12s.json", schema.HeadFolder, h.Number, what, f.SHA256)
	if err := h.store.CreateIfAbsent(ctx, f.Name, data); err != nil && !errors.Is(err, store.ErrExist) {
		return nil, err
	}
	return f, nil
}

// deleteOld deletes the oldest of the heads that the new head found, and before them the files that no kept head names:
// files older than the oldest kept head, unless that head names them. A later head names an old file only if all heads
// between name it, too. Some of these files belong to no head, since their writer was killed.
func (h *Head) deleteOld(ctx context.Context, st store.Store) error {
	names := append(slices.Clone(h.names), h.Name())
	if len(names) <= heads {
		return nil
	}
	old, oldest := names[:len(names)-heads], names[len(names)-heads]
	chunks := slices.DeleteFunc(h.chunks, func(name string) bool { return name > oldest })
	if first, err := OpenHead(ctx, st, oldest); err == nil { // else a later call deletes the files
		chunks = slices.DeleteFunc(chunks, func(name string) bool {
			return slices.ContainsFunc(first.Chunks(), func(f schema.File) bool { return f.Name == name })
		})
		old = slices.Concat(chunks, old)
	}
	for _, name := range old {
		if err := st.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// HeldError says that another process holds the scan's lock.
type HeldError struct {
	ScanID string
	Share  string // its number; "" if the lock is the scan's
	Holder Holder
}

// Holder describes the process that holds a scan's lock, as that process wrote it.
type Holder struct {
	PID       int       `json:"pid"`
	Host      string    `json:"host"`
	StartedAt time.Time `json:"started_at"`
	Doing     string    `json:"doing,omitempty"` // DoingCompact, DoingStats, DoingCollect, DoingPublish, DoingPrune; "" for a scan
}

func (e *HeldError) Error() string {
	if e.Share != "" {
		return fmt.Sprintf(
			"share %s of scan %s is being written by process %d on %.100q since %s; one process writes a share",
			e.Share, e.ScanID, e.Holder.PID, e.Holder.Host, e.Holder.StartedAt.Format(time.RFC3339))
	}
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("scan %s is being written by another process; wait for it, or give another --scan-id", e.ScanID)
	}
	what, remedy := "is being written", "wait for it, or give another --scan-id"
	switch e.Holder.Doing {
	case DoingCompact:
		what, remedy = "is being compacted", "wait for it"
	case DoingCollect:
		what, remedy = "is being collected from its shares", "wait for it"
	case DoingStats:
		what, remedy = "is being counted for its statistics", "wait for it"
	case DoingPublish:
		what, remedy = "is being published, held or discarded", "wait for it"
	case DoingPrune:
		what, remedy = "is being pruned", "wait for it"
	}
	return fmt.Sprintf("scan %s %s by process %d on %.100q since %s; %s",
		e.ScanID, what, e.Holder.PID, e.Holder.Host, e.Holder.StartedAt.Format(time.RFC3339), remedy)
}

// StoreError says that a scan ended because its dataset could not be written. The dataset itself is intact.
type StoreError struct {
	ScanID string
	Err    error
}

func (e *StoreError) Error() string {
	if errors.Is(e.Err, store.ErrLockLost) {
		return fmt.Sprintf("%v; everything committed is kept, and that one goes on with scan %s", e.Err, e.ScanID)
	}
	remedy, _ := RemedyFor(e.Err)
	return fmt.Sprintf("%v; %severything committed is kept, and the same command resumes scan %s", e.Err, remedy, e.ScanID)
}

func (e *StoreError) Unwrap() error { return e.Err }

// BrokenOff wraps an error in a *StoreError if the cause is certainly the store: a full disk, a missing permission, an
// unavailable server. Any other error may mean damage, which a resumed scan does not mend.
func BrokenOff(scanID string, err error) error {
	_, is := errors.AsType[*StoreError](err)
	if _, certain := RemedyFor(err); is || !certain || errors.Is(err, store.ErrLockLost) {
		return err
	}
	return &StoreError{ScanID: scanID, Err: err}
}

// RemedyFor returns what to do about an error of the operating system before resuming a scan, and whether the store
// certainly caused the error. Errors of an object store name their own remedies.
func RemedyFor(err error) (remedy string, certain bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room there: ", true
	case errors.Is(err, store.ErrUnavailable):
		return "", true
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		if _, local := errors.AsType[syscall.Errno](err); local {
			remedy = "make it writable: "
		}
		return remedy, true
	}
	return "", false
}

// Remedies for missing or damaged records and files, and for changed settings. A scan without its manifest cannot be
// repaired: no other file names its lists.
const (
	DamageRemedy   = "restore the files that bulkscan verify names; or fetch the lost sites again by scan --repair; or begin the scan anew with --restart"
	ManifestRemedy = "restore the files that bulkscan verify names, or begin the scan anew with --restart"
	LostRemedy     = ManifestRemedy + "; bulkscan nightly --withdraw lets it go, by its date or name"
	ChangedRemedy  = "begin it anew with --restart, or give another --scan-id, or for several nights another -o"
)

// What a process does with the lock if it does not scan.
const (
	DoingCompact = "compact"
	DoingStats   = "stats"
	DoingCollect = "collect"
	DoingPublish = "publish"
	DoingPrune   = "prune"
)

// LockScan takes the lock of an existing scan for another purpose than scanning, and reads its manifest.
func LockScan(ctx context.Context, st store.Store, scanID, doing string) (store.Unlocker, *Manifest, error) {
	// Checked before taking the lock, which would create a folder for a scan that does not exist.
	if _, err := ReadManifest(ctx, st, scanID); err != nil {
		return nil, nil, err
	}
	lock, err := TakeLock(ctx, st, scanID, doing, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	m, err := ReadManifest(ctx, st, scanID)
	if err == nil && m.Restarting {
		err = fmt.Errorf("scan %s is being restarted, and the restart was interrupted; repeat the command that scans it",
			scanID)
	}
	if err == nil && m.Uncollected() && doing != DoingCollect {
		err = &UncollectedError{scanID, m.Shares}
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return lock, m, nil
}

// TakeLock locks a scan for this process. A *HeldError describes the process that holds it.
func TakeLock(ctx context.Context, st store.Store, scanID, doing string, now time.Time) (store.Unlocker, error) {
	return takeLock(ctx, st, lockName(scanID), scanID, ThisProcess(now, doing))
}

// ThisProcess describes this process as a holder of locks.
func ThisProcess(now time.Time, doing string) Holder {
	host, _ := os.Hostname() // a lock without a host still says the process
	return Holder{PID: os.Getpid(), Host: host, StartedAt: now, Doing: doing}
}

func takeLock(ctx context.Context, st store.Store, name, scanID string, holder Holder) (store.Unlocker, error) {
	text, err := json.Marshal(holder)
	if err != nil {
		return nil, fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	lock, err := st.Lock(ctx, name, text)
	if err != nil {
		return nil, lockError(err, scanID)
	}
	return lock, nil
}

// Held returns the *HeldError with which taking the lock of a scan, or of a share of it, would fail now, or nil.
func Held(ctx context.Context, st store.Store, scanID, share string) error {
	name := lockName(scanID)
	if share != "" {
		name = shareLockName(scanID, share)
	}
	err := lockError(st.Held(ctx, name), scanID)
	if held, ok := errors.AsType[*HeldError](err); ok {
		held.Share = share
	}
	return err
}

// lockError is the error of a lock that cannot be taken; nil stays nil.
func lockError(err error, scanID string) error {
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		e := &HeldError{ScanID: scanID}
		// The holder may not have written the text yet. Then it cannot be read and the error names no process.
		_ = json.Unmarshal(held.Holder, &e.Holder)
		return e
	}
	if err != nil {
		return fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	return nil
}

// Remedied adds the remedy to an error about a damaged record or file.
func Remedied(err error, remedy string) error {
	if _, damaged := errors.AsType[*schema.DamagedError](err); damaged || errors.Is(err, ErrRecord) {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

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

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// HeldError says that another process writes the scan.
type HeldError struct {
	ScanID string
	Holder Holder
}

// Holder is who holds a scan's lock, as it said itself.
type Holder struct {
	PID       int       `json:"pid"`
	Host      string    `json:"host"`
	StartedAt time.Time `json:"started_at"`
	Doing     string    `json:"doing,omitempty"` // "compact", "stats"; "" is to scan
}

func (e *HeldError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("scan %s is being written by another process; wait for it, or give another --scan-id", e.ScanID)
	}
	what, remedy := "is being written", "wait for it, or give another --scan-id"
	switch e.Holder.Doing {
	case DoingCompact:
		what, remedy = "is being compacted", "wait for it"
	case DoingStats:
		what, remedy = "is being counted for its statistics", "wait for it"
	}
	return fmt.Sprintf("scan %s %s by process %d on %.100q since %s; %s",
		e.ScanID, what, e.Holder.PID, e.Holder.Host, e.Holder.StartedAt.Format(time.RFC3339), remedy)
}

// StoreError says that a scan broke off because its dataset could not be written, which is nothing that is wrong with the
// dataset.
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

// BrokenOff makes an error a *StoreError where it is one for certain: that there is no room, or that one may not write.
// What else goes wrong with a dataset may be damage, which is there to stay.
func BrokenOff(scanID string, err error) error {
	_, is := errors.AsType[*StoreError](err)
	if _, certain := RemedyFor(err); is || !certain || errors.Is(err, store.ErrLockLost) {
		return err
	}
	return &StoreError{ScanID: scanID, Err: err}
}

// RemedyFor says what to do about an error of the operating system before a scan is resumed, and whether an error is for
// certain one of the store's. What a server refuses or does not answer names its remedy itself.
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

// What to do about records and files that are missing, or not as they were written; and about a manifest, without which
// nothing tells of which lists the scan is.
const (
	DamageRemedy   = "put back what was there, see bulkscan verify; or have what is lost asked again by scan --repair; or begin the scan anew with --restart"
	ManifestRemedy = "put back what was there, see bulkscan verify, or begin the scan anew with --restart"
)

// What is done with the lock, but to scan.
const (
	DoingCompact = "compact"
	DoingStats   = "stats"
)

// LockScan takes the lock of a scan that is there, to do something else with it than to scan, and reads its manifest.
func LockScan(ctx context.Context, st store.Store, scanID, doing string) (store.Unlocker, *Manifest, error) {
	// Before the lock, which would make a folder for a scan that is none.
	if _, err := ReadManifest(ctx, st, scanID); err != nil {
		return nil, nil, err
	}
	lock, err := TakeLock(ctx, st, scanID, doing, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	m, err := ReadManifest(ctx, st, scanID)
	if err == nil && m.Restarting {
		err = fmt.Errorf("scan %s is being begun anew, and that was broken off; give the command that scans it again", scanID)
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return lock, m, nil
}

// TakeLock locks a scan for one process, which the lock names. A HeldError says which other process has it.
func TakeLock(ctx context.Context, st store.Store, scanID, doing string, now time.Time) (store.Unlocker, error) {
	host, _ := os.Hostname() // a lock without a host still says the process
	text, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, StartedAt: now, Doing: doing})
	if err != nil {
		return nil, fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	lock, err := st.Lock(ctx, lockName(scanID), text)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		e := &HeldError{ScanID: scanID}
		// Its holder may be about to write the text, so that it cannot be read: then the error names nobody.
		_ = json.Unmarshal(held.Holder, &e.Holder)
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	return lock, nil
}

// Remedied says what to do about a record, or a file, that is not as it was written.
func Remedied(err error, remedy string) error {
	if _, damaged := errors.AsType[*schema.DamagedError](err); damaged || errors.Is(err, ErrRecord) {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

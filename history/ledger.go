package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// Options of Add and Rebuild.
type Options struct {
	ToolVersion string
	// Rejudge judges stored bodies again, where body and judge of a site changed in one night. Without it, or if it is
	// not the night's judge, such a change has the cause UnknownJudge.
	Rejudge *Rejudge
	// Progress, if not nil, is called after each merged night.
	Progress func(Merged)
}

// Rejudge is a judge at hand.
type Rejudge struct {
	Judge  string // as Source.Judge: versions of registry and check, with a space between
	Policy func(body []byte) Policy
}

// ErrOtherObserver says that a scan is by another observer than the ledger's, and from before its last night.
var ErrOtherObserver = errors.New("the ledger has the scans of another observer")

// ErrNoScan says that a dataset has no complete scan.
var ErrNoScan = errors.New("the dataset has no complete scan")

// Rebuild derives the ledger from all complete scans of the default observer, which is that of the newest date, and of
// archives. If the newest scan is of an archive, the newest live scan has the default observer.
func Rebuild(ctx context.Context, st store.Store, o Options) error {
	return locked(ctx, st, func() error { return rebuild(ctx, st, o) })
}

// Add merges one more complete scan. A scan that is merged already changes nothing. If the scan is not after the last
// night, the ledger is derived anew from its scans and this one; if there is no ledger, or the scan brings a new default
// observer, from all scans as Rebuild does.
func Add(ctx context.Context, st store.Store, scanID string, o Options) error {
	return locked(ctx, st, func() error {
		m, err := commit.ReadManifest(ctx, st, scanID)
		if err != nil {
			return err
		}
		if m.State != commit.Complete {
			return fmt.Errorf("cannot add scan %s to the history: it is not complete", scanID)
		}
		ledger, err := ReadLedger(ctx, st)
		if errors.Is(err, store.ErrNotExist) {
			return rebuild(ctx, st, o)
		}
		if err != nil {
			return fmt.Errorf("%w; derive the ledger anew by history --rebuild", err)
		}
		now := merged(m)
		same := func(s MergedScan) bool { return s.ScanID == scanID }
		i := slices.IndexFunc(ledger.Scans, same)
		switch {
		case i >= 0 && ledger.Scans[i].FinishedAt.Equal(now.FinishedAt):
			return nil
		case !follows(m, ledger.Observer):
			if m.ScanDate < ledger.last() && ledger.Observer.Source != commit.Archive {
				return fmt.Errorf("cannot add scan %s to the history: %w: %s", scanID, ErrOtherObserver, ledger.Observer)
			}
			return rebuild(ctx, st, o)
		case i < 0 && m.ScanDate > ledger.last():
			return derive(ctx, st, o, ledger, []MergedScan{now})
		}
		scans := append(slices.DeleteFunc(slices.Clone(ledger.Scans), same), now)
		return derive(ctx, st, o, &Ledger{Observer: ledger.Observer}, scans)
	})
}

func merged(m *commit.Manifest) MergedScan {
	s := MergedScan{ScanID: m.ScanID, ScanDate: m.ScanDate}
	if m.FinishedAt != nil {
		s.FinishedAt = *m.FinishedAt
	}
	return s
}

// follows reports whether the ledger of an observer has a scan.
func follows(m *commit.Manifest, observer commit.Observer) bool {
	return m.Observer == observer || m.Observer.Source == commit.Archive
}

// locked holds the ledger's lock meanwhile.
func locked(ctx context.Context, st store.Store, do func() error) error {
	lock, err := st.Lock(ctx, lockName, nil)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return fmt.Errorf("another process is writing the history: %w", held)
	}
	if err != nil {
		return err
	}
	if lease, ok := lock.(store.Lease); ok && lease.Late() {
		if err := fence(ctx, st, lease); err != nil {
			return errors.Join(err, lock.Unlock())
		}
	}
	return errors.Join(do(), lock.Unlock())
}

// fence makes a late Put of an earlier lock holder fail, by replacing the record with itself. Other late requests are of
// names that are never used again. Without a record, the lease stays unfenced until the next time.
func fence(ctx context.Context, st store.Store, lease store.Lease) error {
	data, err := store.ReadAll(ctx, st, LedgerName, maxLedger)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = st.Put(ctx, LedgerName, data)
	}
	if err == nil {
		lease.Fenced()
	}
	return err
}

func rebuild(ctx context.Context, st store.Store, o Options) error {
	manifests, err := commit.Scans(ctx, st)
	if err != nil {
		return err
	}
	manifests = slices.DeleteFunc(manifests, func(m *commit.Manifest) bool { return m.State != commit.Complete })
	if len(manifests) == 0 {
		return fmt.Errorf("cannot derive the history: %w", ErrNoScan)
	}
	slices.SortStableFunc(manifests, func(a, b *commit.Manifest) int { // stable: of one date, the scan that began last
		return cmp.Or(compareLive(a, b), cmp.Compare(a.ScanDate, b.ScanDate))
	})
	observer := manifests[len(manifests)-1].Observer
	var scans []MergedScan
	for _, m := range manifests {
		if follows(m, observer) {
			scans = append(scans, merged(m))
		}
	}
	return derive(ctx, st, o, &Ledger{Observer: observer}, scans)
}

// compareLive orders scans of archives before others.
func compareLive(a, b *commit.Manifest) int {
	rank := func(m *commit.Manifest) int {
		if m.Observer.Source == commit.Archive {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

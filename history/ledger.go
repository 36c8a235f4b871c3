package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/store"
)

// Options of Update and Rebuild.
type Options struct {
	ToolVersion string
	// Rejudge judges the stored files of all nights, if it is the judge of the last night. Without it, each night keeps
	// its own judgement.
	Rejudge *Rejudge
	// Progress, if not nil, is called after each merged night.
	Progress func(Merged)
	Log      *slog.Logger // may be nil
}

// Rejudge is a judge that this program can apply.
type Rejudge struct {
	// as Source.Judge: versions of registry and rules (commit.Check.Rules), with a space between
	Judge  string
	Policy func(body []byte) (p Policy, unmanaged int64) // p is valid until the next call; unmanaged is as in Episode
}

// judge returns Rejudge if it is the judge of the last of these scans.
func (o *Options) judge(scans []MergedScan) *Rejudge {
	if o.Rejudge == nil || len(scans) == 0 || scans[len(scans)-1].judge != o.Rejudge.Judge {
		return nil
	}
	return o.Rejudge
}

// RejudgeBy returns the judge of this program with a registry.
func RejudgeBy(registry *tokens.Registry) *Rejudge {
	auditor, row := audit.New(registry), siterows.Judged(registry)
	return &Rejudge{Judge: judgeOf(registry.Version, siterows.Check()), Policy: func(body []byte) (Policy, int64) {
		of := row(&judged(auditor, body).Report)
		return PolicyOf(of), unmanagedOf(of)
	}}
}

// judged returns a site with a stored file.
func judged(auditor *audit.Auditor, body []byte) *audit.Site {
	site := &audit.Site{}
	site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Body = exchange.Answered, 200, body
	auditor.Judge(site)
	return site
}

func judgeOf(registryVersion string, check commit.Check) string {
	return registryVersion + " " + check.Rules()
}

// ErrNoScan says that a dataset has no complete scan.
var ErrNoScan = errors.New("the dataset has no complete scan")

// GoneError says that nights would have to be merged again, but that some of their scans cannot be read any more.
type GoneError struct{ ScanIDs []string }

func (e *GoneError) Error() string {
	return fmt.Sprintf(
		"nights have to be merged into the history again, and %d of their scans are not complete any more, or gone; the first is %s; restore them from a copy of the dataset; bulkscan nightly --withdraw DATE lets a night go", len(e.ScanIDs), e.ScanIDs[0])
}

// Updated says what Update did.
type Updated struct {
	Observer commit.Observer // whose scans the ledger has, beside archives
	// nights were merged again, since a scan before the last one was added, a scan changed, or the judge changed
	Again  bool
	Pruned string // date of the last pruned night, "" without one; up to that date, the ledger takes in no other scan
	scans  []MergedScan
}

// Has reports whether the ledger has a scan.
func (u *Updated) Has(scanID string) bool {
	return slices.ContainsFunc(u.scans, func(s MergedScan) bool { return s.ScanID == scanID })
}

// Rebuild derives the ledger from all published scans that it follows (see follow.go). Scans that wait for the next
// publishing are published with it.
func Rebuild(ctx context.Context, st store.Store, o Options) error {
	return commit.Change(ctx, st, o.Log, func(h *commit.Head) error {
		ledger, ledgerErr := readLedger(ctx, st, h)
		scans, err := adopted(ctx, st, h, ledger, true)
		if err != nil {
			return err
		}
		p, err := readPast(ctx, h)
		if err == nil && ledgerErr == nil { // else there is nothing to lose
			p.gone = len(p.missing(ledger, among(scans))) > 0
		}
		if err == nil {
			err = p.sound(ctx, st)
		}
		if err != nil {
			return fmt.Errorf("cannot derive the history: %w", err)
		}
		if len(scans)+len(p.base().Scans) == 0 {
			return fmt.Errorf("cannot derive the history: %w", ErrNoScan)
		}
		followed, observer := p.follow(scans)
		base := p.base()
		base.Observer = observer
		return derive(ctx, st, o, h, p, base, followed[len(base.Scans):], "rebuilt")
	})
}

// Update merges the published scans that the ledger follows and does not have. If such a scan is not after the last
// night, or if a scan was repaired, withdrawn or begun anew since it was merged, the nights since the last checkpoint
// before it are merged again. All nights are, if the last one has another judge and Rejudge is that judge. A scan that
// the dataset no longer has stays in the ledger. If it would have to be merged again, the error is a *GoneError.
func Update(ctx context.Context, st store.Store, o Options) (u *Updated, err error) {
	err = commit.Change(ctx, st, o.Log, func(h *commit.Head) (err error) {
		u, err = catchUp(ctx, st, o, h, false)
		return err
	})
	return u, err
}

// catchUp is Update with the lock held. With all it reads every scan's manifest, else only manifests that may differ:
// see adopted.
func catchUp(ctx context.Context, st store.Store, o Options, h *commit.Head, all bool) (*Updated, error) {
	ledger, ledgerErr := readLedger(ctx, st, h)
	scans, err := adopted(ctx, st, h, ledger, all)
	damaged := (*commit.DamagedScansError)(nil)
	if err != nil && !errors.As(err, &damaged) {
		return nil, err
	}
	p, err := readPast(ctx, h)
	if err != nil {
		return nil, err
	}
	if errors.Is(ledgerErr, store.ErrNotExist) {
		if damaged != nil { // no other file has the nights of these scans
			return nil, damaged
		}
		ledger, ledgerErr = p.base(), nil
	}
	if ledgerErr != nil {
		return nil, fmt.Errorf("%w; derive the ledger anew by history --rebuild", ledgerErr)
	}
	gone := &GoneError{ScanIDs: p.missing(ledger, among(scans))}
	lost := map[string]bool{}
	for _, id := range gone.ScanIDs {
		lost[id] = true
	}
	for _, had := range ledger.Scans {
		if lost[had.ScanID] {
			scans = append(scans, had)
		}
	}
	p.gone = len(gone.ScanIDs) > 0
	u := &Updated{Pruned: p.Through}
	u.scans, u.Observer = p.follow(scans)
	base := ledger.before(u.scans, p)
	added := u.scans[len(base.Scans):]
	if judge := o.judge(added); judge != nil && judge.Judge != ledger.Judge && !p.gone && len(ledger.Scans) > 0 {
		base = p.base()
		added = u.scans[len(base.Scans):]
	}
	if len(added) == 0 && len(base.Scans) == len(ledger.Scans) {
		if ledger.Sum != "" && (h.Ledger == nil || ledger.Number > h.Ledger.Number) {
			// its merge was killed before the head named it
			h.SetLedger(ledger.version(), "")
		}
		return u, nil
	}
	if base != ledger && !all { // scans that are merged again must exist
		return catchUp(ctx, st, o, h, true)
	}
	redone := among(added)
	gone.ScanIDs = slices.DeleteFunc(gone.ScanIDs, func(id string) bool { return !redone(id) })
	if len(gone.ScanIDs) > 0 {
		return nil, gone
	}
	why := ""
	if u.Again = base != ledger && len(ledger.Scans) > 0; u.Again {
		if err := p.sound(ctx, st); err != nil {
			return nil, err
		}
		why = "derived anew"
	}
	base.Observer = u.Observer
	return u, derive(ctx, st, o, h, p, base, added, why)
}

func among(scans []MergedScan) func(scanID string) bool {
	ids := map[string]bool{}
	for _, s := range scans {
		ids[s.ScanID] = true
	}
	return func(scanID string) bool { return ids[scanID] }
}

// isOf returns a function that finds a scan with the same rows among these; it returns nil if there is none.
func isOf(scans []MergedScan) func(scanID string, finished time.Time) *MergedScan {
	byID := map[string]*MergedScan{}
	for i := range scans {
		byID[scans[i].ScanID] = &scans[i]
	}
	return func(scanID string, finished time.Time) *MergedScan {
		if s := byID[scanID]; s != nil && s.FinishedAt.Equal(finished) {
			return s
		}
		return nil
	}
}

// adopted lets a head that is being changed adopt the scans that wait for their publication, and returns all scans that
// the head then publishes. ledger is the ledger so far, or nil. A scan whose entry in the head is the same as when the
// ledger merged the scan is not read again, unless all is true. With a *commit.DamagedScansError, adopted returns the
// scans that can be read.
func adopted(ctx context.Context, st store.Store, h *commit.Head, ledger *Ledger, all bool) (scans []MergedScan,
	err error) {
	named, err := h.All(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := commit.ScanIDs(ctx, st)
	if err != nil {
		return nil, err
	}
	merged := isOf(nil)
	if ledger != nil {
		merged = isOf(ledger.Scans)
	}
	known := make([]MergedScan, 0, len(named))
	same := map[string]bool{}
	for _, s := range named {
		ids = append(ids, s.ScanID)
		switch {
		case all || s.Changing:
		case s.Publication != commit.PublicationDone:
			same[s.ScanID] = true
		default:
			if had := merged(s.ScanID, s.FinishedAt); had != nil {
				known, same[s.ScanID] = append(known, *had), true
			}
		}
	}
	manifests, err := h.ManifestsOf(ctx, slices.DeleteFunc(ids, func(id string) bool { return same[id] }))
	for _, m := range manifests {
		had := m.State == commit.Complete && m.FinishedAt != nil && merged(m.ScanID, *m.FinishedAt) != nil
		if err := h.Adopt(ctx, m, had); err != nil {
			return nil, err
		}
		if err := h.Settle(ctx, m); err != nil {
			return nil, err
		}
	}
	return append(known, published(manifests)...), err
}

// published returns the scans that the head publishes.
func published(manifests []*commit.Manifest) (scans []MergedScan) {
	for _, m := range manifests {
		if m.Published() && slices.Contains(m.Tables, schema.Sites) {
			scans = append(scans, mergedScan(m))
		}
	}
	return scans
}

func mergedScan(m *commit.Manifest) MergedScan {
	s := MergedScan{ScanID: m.ScanID, ScanDate: m.ScanDate, StartedAt: m.StartedAt, Observer: m.Observer,
		judge: judgeOf(m.RegistryVersion, m.Check)}
	if m.FinishedAt != nil {
		s.FinishedAt = *m.FinishedAt
	}
	return s
}

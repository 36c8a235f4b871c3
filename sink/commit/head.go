package commit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Head is the record of what counts in a dataset: which scans readers get, which version of the ledger belongs to them,
// and what was pruned. Each change creates the next head, which names the hash of the one before and the causes. The
// newest one counts. A file that a head names is damaged if it is missing or has other contents (docs/head.md).
type Head struct {
	SchemaVersion int           `json:"schema_version"`
	Number        int           `json:"number"`             // from 1
	Previous      string        `json:"previous,omitempty"` // SHA-256 of the head before
	WrittenAt     time.Time     `json:"written_at"`
	Causes        []Cause       `json:"causes"`
	Months        []schema.File `json:"months,omitempty"` // lists of the scans of earlier months, which change rarely; Table is the month
	Scans         []Named       `json:"scans"`            // those of the newest month, by date
	Ledger        *Merge        `json:"ledger,omitempty"`
	Pruned        *schema.File  `json:"pruned,omitempty"`   // see Pruned
	Removing      []string      `json:"removing,omitempty"` // ids of pruned scans of which files may be left
	Sum           string        `json:"sum,omitempty"`      // see SealRecord

	// Late says that a head or a ledger of an earlier holder of the dataset's lock may still arrive (see store.Lease).
	// Until this head is written, no file may be deleted that a late head or ledger may name.
	Late bool `json:"-"`

	store  store.Store
	mu     sync.Mutex // of the reading of months
	bytes  string     // SHA-256 of the record
	months map[string]*month
	lost   bool    // a month was needed and cannot be read
	pruned *Pruned // to be written with the next head

	names, chunks []string // of the head that is being made: those that were there before, see headsAndChunks
}

// Cause says why a head was written.
type Cause struct {
	What  string   `json:"what"`
	Scans []string `json:"scans,omitempty"`
	Why   string   `json:"why,omitempty"`
}

// What a head was written for.
const (
	CausePublish  = "publish"
	CauseRepair   = "repair" // or another end of a published scan that was opened again
	CauseRestart  = "restart"
	CauseHold     = "hold"
	CauseDiscard  = "discard"
	CauseWithdraw = "withdraw"
	CauseHistory  = "history"
	CausePrune    = "prune"
	CauseChange   = "change"    // parts or statistics of a published scan are about to change
	CauseSettle   = "settle"    // the command that changed a scan has ended
	CauseLost     = "lost head" // the head before cannot be read
)

// Named is a scan in a head.
type Named struct {
	ScanID      string      `json:"scan_id"`
	ScanDate    string      `json:"scan_date"`
	Publication Publication `json:"publication"` // published, held or discarded
	StartedAt   time.Time   `json:"started_at"`
	FinishedAt  time.Time   `json:"finished_at"`
	Commits     string      `json:"commits,omitempty"`       // see digest; "" of a scan that was discarded before it was complete or published
	Pruned      []string    `json:"pruned_tables,omitempty"` // tables whose files were deleted for their age

	// Changing says that a command is changing the scan's records, or was killed while it did. Otherwise the records are
	// as they were when head Since was written, and a reader that has read them since need not read them again.
	Changing bool `json:"changing,omitempty"`
	Since    int  `json:"since,omitempty"`
}

// Merge identifies a version of the ledger's record.
type Merge struct {
	Number int    `json:"number"` // counts the versions
	SHA256 string `json:"sha256"` // its sum, see SealRecord
}

// month has the scans of a month.
type month struct {
	file    *schema.File // nil: the head itself lists them
	read    bool
	changed bool
	scans   []Named
}

// heads is the number of heads that are kept. headRounds bounds how often a change begins again because another process
// has created a head of the same number.
const (
	heads      = 16
	headRounds = 5
)

var headName = regexp.MustCompile(`^` + schema.HeadFolder +
	`([0-9]{8})(-(?:[0-9]{4}-[0-9]{2}|pruned)-[0-9a-f]{12})?\.json$`)

// IsHead reports whether a name is that of a head, or of a list that heads name.
func IsHead(name string) bool { return headName.MatchString(name) }

// Name is the name of the head in the dataset.
func (h *Head) Name() string { return fmt.Sprintf("%s%08d.json", schema.HeadFolder, h.Number) }

// Heads returns the names of the heads, the oldest first.
func Heads(ctx context.Context, st store.Store) ([]string, error) {
	names, _, err := headsAndChunks(ctx, st)
	return names, err
}

// headsAndChunks returns the names of the heads, and of the files that heads name, in the order of their numbers.
func headsAndChunks(ctx context.Context, st store.Store) (names, chunks []string, err error) {
	for entry, err := range st.List(ctx, schema.HeadFolder) {
		if err != nil {
			return nil, nil, fmt.Errorf("cannot find the heads: %w", err)
		}
		switch match := headName.FindStringSubmatch(entry.Name); {
		case match == nil:
		case match[2] == "":
			names = append(names, entry.Name)
		default:
			chunks = append(chunks, entry.Name)
		}
	}
	return names, chunks, nil
}

// HeadRemedy is what to do about a damaged head.
const HeadRemedy = "restore it from a copy of the dataset; or bulkscan history --rebuild continues without it, and bulkscan verify says what that lacks"

// ReadHead reads the newest head. Before the first head it returns an empty one, with Number 0. If the heads of a
// dataset are lost, it returns an ErrRecord.
func ReadHead(ctx context.Context, st store.Store) (*Head, error) {
	for missing := 0; ; missing++ {
		names, err := Heads(ctx, st)
		if err == nil && len(names) == 0 {
			if err = headless(ctx, st); err == nil {
				return newHead(st), nil
			}
		}
		if err != nil {
			return nil, Remedied(err, HeadRemedy)
		}
		h, err := OpenHead(ctx, st, names[len(names)-1])
		if err == nil || !errors.Is(err, store.ErrNotExist) || missing == 3 { // else many newer heads were written meanwhile
			return h, Remedied(err, HeadRemedy)
		}
	}
}

func newHead(st store.Store) *Head { return &Head{store: st, months: map[string]*month{}} }

// headless returns an ErrRecord if a dataset without heads has lost them: it has a history, of a schema version with
// heads.
func headless(ctx context.Context, st store.Store) error {
	data, err := store.ReadAll(ctx, st, schema.LedgerName, schema.MaxLedger)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ledger := struct {
		SchemaVersion int `json:"schema_version"`
	}{schema.Version}
	if err := json.Unmarshal(data, &ledger); err == nil && ledger.SchemaVersion < schema.Version {
		return nil
	}
	return fmt.Errorf("cannot read %s: %w: the dataset has a history and no head", schema.HeadFolder, ErrRecord)
}

// OpenHead reads a head.
func OpenHead(ctx context.Context, st store.Store, name string) (*Head, error) {
	h := newHead(st)
	data, err := store.ReadAll(ctx, st, name, schema.MaxLedger)
	if err == nil {
		err = OpenRecord(data, h, &h.Sum)
	}
	if err == nil {
		err = schema.CheckVersion(h.SchemaVersion)
	}
	if err == nil && h.Name() != name {
		err = fmt.Errorf("%w: its content is that of head %d", ErrRecord, h.Number)
	}
	for _, f := range h.Chunks() {
		if err == nil && !IsHead(f.Name) {
			err = fmt.Errorf("%w: it names %.200q", ErrRecord, f.Name)
		}
	}
	for _, s := range h.Scans {
		if err == nil {
			err = errors.Join(CheckScanID(s.ScanID), CheckDate(s.ScanDate))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	h.bytes = schema.SumOf(data)
	for i := range h.Months {
		h.months[h.Months[i].Table] = &month{file: &h.Months[i]}
	}
	for _, s := range h.Scans {
		m := h.months[monthOf(s.ScanDate)]
		if m == nil {
			m = &month{read: true}
			h.months[monthOf(s.ScanDate)] = m
		}
		m.scans = append(m.scans, s)
	}
	return h, nil
}

// Follows reports whether the head names another one as the one before.
func (h *Head) Follows(before *Head) bool { return h.Previous == before.bytes }

// Chunks returns the files that the head names.
func (h *Head) Chunks() []schema.File {
	if h.Pruned == nil {
		return h.Months
	}
	return append(slices.Clone(h.Months), *h.Pruned)
}

func monthOf(date string) string { return date[:min(len(date), len("2006-01"))] }

// readChunk reads a file of the head, which has the JSON of value.
func (h *Head) readChunk(ctx context.Context, f *schema.File, value any) error {
	data, err := store.ReadAll(ctx, h.store, f.Name, schema.MaxLedger)
	switch {
	case errors.Is(err, store.ErrNotExist):
		err = &schema.DamagedError{What: "file", Expected: f.SHA256, Found: "none"}
	case err == nil && schema.SumOf(data) != f.SHA256:
		err = &schema.DamagedError{What: "sha256", Expected: f.SHA256, Found: schema.SumOf(data)}
	}
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return Remedied(fmt.Errorf("cannot read %s: %w", f.Name, err), h.Remedy(*f))
	}
	return nil
}

// Remedy is what to do about a damaged file of the head.
func (h *Head) Remedy(f schema.File) string {
	if h.Pruned != nil && f.Name == h.Pruned.Name {
		return "restore it from a copy of the dataset"
	}
	return HeadRemedy
}

// in returns the month of a date, read.
func (h *Head) in(ctx context.Context, date string) (*month, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.months[monthOf(date)]
	if m == nil {
		m = &month{read: true}
		h.months[monthOf(date)] = m
	}
	if !m.read {
		if err := h.readChunk(ctx, m.file, &m.scans); err != nil {
			h.lost = h.lost || isLost(err)
			return nil, err
		}
		m.read = true
	}
	return m, nil
}

// All returns all scans that the head names, by date.
func (h *Head) All(ctx context.Context) ([]Named, error) { return h.AllBut(ctx, nil) }

// AllBut is All without the scans of these months, whose files it does not read.
func (h *Head) AllBut(ctx context.Context, months map[string]bool) ([]Named, error) {
	var all [][]Named
	for _, name := range slices.Sorted(maps.Keys(h.months)) {
		if months[name] {
			continue
		}
		m, err := h.in(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, m.scans)
	}
	return slices.Concat(all...), nil
}

// find returns the head's entry of a scan of a date, or nil. Several goroutines may call it.
func (h *Head) find(ctx context.Context, date, scanID string) (*Named, error) {
	m, err := h.in(ctx, date)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(m.scans, func(s Named) bool { return s.ScanID == scanID }); i >= 0 {
		return &m.scans[i], nil
	}
	return nil, nil
}

// Needs reports whether the head names a scan that has not been discarded.
func (h *Head) Needs(ctx context.Context, scanID string) (bool, error) {
	all, err := h.All(ctx)
	return slices.ContainsFunc(all, func(s Named) bool {
		return s.ScanID == scanID && s.Publication != PublicationDiscarded
	}), err
}

// set replaces the head's entry of a scan. With the publication "" it removes the entry.
func (h *Head) set(ctx context.Context, s Named) error {
	m, err := h.in(ctx, s.ScanDate)
	if err != nil {
		return err
	}
	m.changed = true
	m.scans = slices.DeleteFunc(slices.Clone(m.scans), func(was Named) bool { return was.ScanID == s.ScanID })
	if s.Publication != "" {
		m.scans = append(m.scans, s)
	}
	slices.SortFunc(m.scans, func(a, b Named) int {
		return cmp.Or(strings.Compare(a.ScanDate, b.ScanDate), strings.Compare(a.ScanID, b.ScanID))
	})
	return nil
}

// cause adds a cause. Only a head with a cause is written.
func (h *Head) cause(what, why string, scans ...string) {
	if i := len(h.Causes) - 1; i >= 0 && h.Causes[i].What == what && h.Causes[i].Why == why {
		h.Causes[i].Scans = append(h.Causes[i].Scans, scans...)
		return
	}
	h.Causes = append(h.Causes, Cause{what, scans, why})
}

// SetLedger names a version of the ledger.
func (h *Head) SetLedger(merge Merge, why string) {
	h.Ledger = &merge
	h.cause(CauseHistory, why)
}

// place gives a manifest the publication in the head, and compares the manifest with the head.
func (h *Head) place(ctx context.Context, m *Manifest) error {
	named, err := h.find(ctx, m.ScanDate, m.ScanID)
	if err != nil {
		return err
	}
	m.Publication, m.named = m.Ending, named
	switch {
	case named == nil && !m.wanted():
		return nil
	case named == nil && m.SchemaVersion < schema.Version:
		m.Publication = PublicationDone // of a dataset that is older than heads
		return nil
	case named == nil:
		m.Publication = PublicationPending // the next publication of a scan publishes it, too
		return nil
	}
	m.Publication, m.Pruned = m.named.Publication, m.named.Pruned
	m.Tables = slices.DeleteFunc(slices.Clone(m.Tables), m.pruned)
	again := m.Repairing || m.ResumedAt != nil && !m.ResumedAt.Before(m.named.FinishedAt)
	if !m.Restarting && (!m.StartedAt.Equal(m.named.StartedAt) || m.named.Commits != "" && !again &&
		m.finished().Before(m.named.FinishedAt)) {
		return fmt.Errorf("%w: it is of another time than the one that %s names; %s", ErrRecord, h.Name(), ManifestRemedy)
	}
	return nil
}

func (m *Manifest) finished() time.Time {
	if m.FinishedAt == nil {
		return time.Time{}
	}
	return *m.FinishedAt
}

// digest identifies the rows of a scan by the commits with which the scan wrote them. Merging parts does not change it.
func (m *Manifest) digest(commits []Commit) string {
	var keys []string
	rows := int64(0)
	for i := range commits {
		c := &commits[i]
		rows += c.Rows
		if c.Shard != CompactedShard {
			keys = append(keys, c.Key().String())
		}
		for _, r := range c.Replaces {
			if r.Shard != CompactedShard {
				keys = append(keys, r.Key().String())
			}
		}
	}
	slices.Sort(keys)
	return schema.SumOf(fmt.Appendf(nil, "%s %s %d %s", m.ScanID, m.StartedAt.UTC().Format(time.RFC3339Nano), rows, keys))
}

// wanted reports whether the scan is to be published once it is complete.
func (m *Manifest) wanted() bool { return m.Ending == PublicationDone || m.Ending == "" }

// Waits reports whether a complete scan is to be published, and no head names it yet.
func (m *Manifest) Waits() bool {
	return m.named == nil && m.SchemaVersion == schema.Version && m.State == Complete && !m.Restarting && m.wanted()
}

// Unlike says in words that the commits of a scan differ from those that the head names; "" if they are equal.
func (m *Manifest) Unlike(commits []Commit) string {
	if m.named == nil || m.named.Commits == "" || m.State != Complete || m.finished().After(m.named.FinishedAt) ||
		m.digest(commits) == m.named.Commits {
		return ""
	}
	return "its commits are not those that were published"
}

// name sets the head's entry of a scan from its manifest and records.
func (h *Head) name(ctx context.Context, m *Manifest, to Publication, what, why string) error {
	s := Named{ScanID: m.ScanID, ScanDate: m.ScanDate, Publication: to, StartedAt: m.StartedAt, FinishedAt: m.finished(),
		Changing: true, Since: h.Number} // its writer may not have ended
	if m.named != nil {
		s.Commits, s.Pruned = m.named.Commits, m.named.Pruned
	}
	if m.State == Complete && (to != PublicationDiscarded || what == CauseRepair) { // a discarded scan needs no rows
		past, err := ReadHistory(ctx, h.store, m.ScanID)
		if err != nil {
			return err
		}
		if lost := past.Lost(m); lost != nil {
			return fmt.Errorf("cannot publish scan %s: %w", m.ScanID, lost)
		}
		s.Commits = m.digest(past.Current)
	}
	m.Publication, m.named = to, &s
	h.cause(what, why, m.ScanID)
	return h.set(ctx, s)
}

// Adopt makes the head name three kinds of complete scans: one that is to be published; one that was opened and
// completed again since the head named it; and one that the ledger has merged, which a lost head had published. Other
// scans stay as they are.
func (h *Head) Adopt(ctx context.Context, m *Manifest, merged bool) error {
	if err := h.place(ctx, m); err != nil {
		return err
	}
	if m.named != nil && m.State == Complete && !m.Restarting && m.finished().After(m.named.FinishedAt) {
		return h.name(ctx, m, m.named.Publication, CauseRepair, "")
	}
	if m.named != nil || !m.Waits() && !merged {
		return nil
	}
	pruned, err := h.ReadPruned(ctx)
	if err != nil || m.ScanDate <= pruned.Through {
		return err
	}
	return h.name(ctx, m, PublicationDone, CausePublish, "")
}

// Settle clears Changing for a scan whose commands have ended.
func (h *Head) Settle(ctx context.Context, m *Manifest) error {
	if m.named == nil || !m.named.Changing {
		return nil
	}
	// A command that locks the scan from now on waits for this head before it changes anything.
	if err := Held(ctx, h.store, m.ScanID, ""); err != nil {
		if _, held := errors.AsType[*HeldError](err); held {
			err = nil
		}
		return err
	}
	now, err := h.Manifest(ctx, m.ScanID)
	if err != nil || now.State != Complete || now.Restarting || now.finished().After(now.named.FinishedAt) {
		return ctx.Err()
	}
	s := *now.named
	s.Changing = false
	h.cause(CauseSettle, "", m.ScanID)
	return h.set(ctx, s)
}

// Changing writes a head which says that the holder of the scan's lock is about to change the scan's records. It writes
// none if the newest head says so already, or does not name the scan.
func (m *Manifest) Changing(ctx context.Context, st store.Store, log *slog.Logger) error {
	if m.named == nil && m.State != Complete {
		return nil // no process names it but the holder of its lock
	}
	return Change(ctx, st, log, func(h *Head) error {
		named, err := h.find(ctx, m.ScanDate, m.ScanID)
		if err != nil || named == nil || named.Changing {
			return err
		}
		s := *named
		s.Changing, s.Since = true, h.Number
		h.cause(CauseChange, "", m.ScanID)
		return h.set(ctx, s)
	})
}

// Adopt is Head.Adopt on the newest head, and writes the next.
func Adopt(ctx context.Context, st store.Store, log *slog.Logger, m *Manifest) error {
	return Change(ctx, st, log, func(h *Head) error { return h.Adopt(ctx, m, false) })
}

// Forget removes a scan from the head before the scan is begun anew. If a late head of another process may name the
// scan, Forget writes a head in any case.
func Forget(ctx context.Context, st store.Store, log *slog.Logger, scanID string) error {
	return Change(ctx, st, log, func(h *Head) error {
		named, err := h.rename(ctx, scanID, "", CauseRestart, "")
		if !named && h.Late {
			h.cause(CauseRestart, "", scanID)
		}
		return err
	})
}

// rename gives the head's entry of a scan another publication, and reports whether there was an entry.
func (h *Head) rename(ctx context.Context, scanID string, to Publication, what, why string) (named bool, err error) {
	all, err := h.All(ctx)
	i := slices.IndexFunc(all, func(s Named) bool { return s.ScanID == scanID })
	if i < 0 || all[i].Publication == to {
		return i >= 0, err
	}
	s := all[i]
	s.Publication, s.Since = to, h.Number
	h.cause(what, why, scanID)
	return true, h.set(ctx, s)
}

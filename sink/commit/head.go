package commit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Head is the record of what counts in a dataset: which scans readers get, which version of the ledger belongs to them, and what was
// pruned. Each change creates the next head, which names the hash of the one before and the causes. The newest one counts. What a head
// names and is not there, or is something else, is damage (docs/head.md).
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

	store  store.Store
	bytes  string // SHA-256 of the record
	months map[string]*month
	pruned *Pruned // to be written with the next head
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
	CauseLost     = "lost head" // the head before cannot be read
)

// Named is a scan in a head.
type Named struct {
	ScanID      string        `json:"scan_id"`
	ScanDate    string        `json:"scan_date"`
	Publication Publication   `json:"publication"` // published, held or discarded
	StartedAt   time.Time     `json:"started_at"`
	FinishedAt  time.Time     `json:"finished_at"`
	Commits     string        `json:"commits,omitempty"` // see digest; "" of an incomplete scan
	Pages       []schema.File `json:"pages,omitempty"`   // of its night
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

// heads is how many heads stay, and headRounds bounds how often a change begins again because another process has created its head.
const (
	heads      = 16
	headRounds = 5
)

var headName = regexp.MustCompile(`^` + schema.HeadFolder + `([0-9]{8})(-(?:[0-9]{4}-[0-9]{2}|pruned)-[0-9a-f]{12})?\.json$`)

// IsHead reports whether a name is that of a head, or of a list that heads name.
func IsHead(name string) bool { return headName.MatchString(name) }

// Name is the name of the head in the dataset.
func (h *Head) Name() string { return fmt.Sprintf("%s%08d.json", schema.HeadFolder, h.Number) }

// Heads returns the names of the heads, the oldest first.
func Heads(ctx context.Context, st store.Store) (names []string, err error) {
	for entry, err := range st.List(ctx, schema.HeadFolder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the heads: %w", err)
		}
		if match := headName.FindStringSubmatch(entry.Name); match != nil && match[2] == "" {
			names = append(names, entry.Name)
		}
	}
	return names, nil
}

// HeadRemedy is what to do about a damaged head.
const HeadRemedy = "restore it from a copy of the dataset; or bulkscan history --rebuild continues from the head before, and bulkscan verify says what that lacks"

// ReadHead reads the newest head; without one it is empty, and its Number 0.
func ReadHead(ctx context.Context, st store.Store) (*Head, error) {
	for missing := 0; ; missing++ {
		names, err := Heads(ctx, st)
		if err != nil || len(names) == 0 {
			return &Head{SchemaVersion: schema.Version, store: st, months: map[string]*month{}}, err
		}
		h, err := OpenHead(ctx, st, names[len(names)-1])
		if err == nil || !errors.Is(err, store.ErrNotExist) || missing == 3 { // else many newer ones have come meanwhile
			return h, Remedied(err, HeadRemedy)
		}
	}
}

// OpenHead reads a head.
func OpenHead(ctx context.Context, st store.Store, name string) (*Head, error) {
	h := &Head{store: st, months: map[string]*month{}}
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

// Chunks are the files of the head beside it.
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
		return Remedied(fmt.Errorf("cannot read %s: %w", f.Name, err), HeadRemedy)
	}
	return nil
}

// in returns the month of a date, read.
func (h *Head) in(ctx context.Context, date string) (*month, error) {
	m := h.months[monthOf(date)]
	if m == nil {
		m = &month{read: true}
		h.months[monthOf(date)] = m
	}
	if !m.read {
		if err := h.readChunk(ctx, m.file, &m.scans); err != nil {
			return nil, err
		}
		m.read = true
	}
	return m, nil
}

// All returns all scans that the head names, by date.
func (h *Head) All(ctx context.Context) (all []Named, err error) {
	for _, name := range slices.Sorted(maps.Keys(h.months)) {
		m, err := h.in(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, m.scans...)
	}
	return all, nil
}

// find returns what the head says of a scan of a date; nil: nothing. After All it may be called by several goroutines.
func (h *Head) find(ctx context.Context, date, scanID string) (*Named, error) {
	if h.months[monthOf(date)] == nil {
		return nil, nil
	}
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
	return slices.ContainsFunc(all, func(s Named) bool { return s.ScanID == scanID && s.Publication != PublicationDiscarded }), err
}

// set makes the head name a scan so, or with "" not at all.
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

// place gives a manifest the publication that the head says, and holds it against the head.
func (h *Head) place(ctx context.Context, m *Manifest) error {
	named, err := h.find(ctx, m.ScanDate, m.ScanID)
	if err != nil {
		return err
	}
	m.Publication, m.named = m.Ending, named
	switch {
	case m.named == nil && (m.Ending == "" || m.Ending == PublicationDone):
		m.Publication = PublicationPending // the next scan that is published brings it along
		return nil
	case m.named == nil:
		return nil
	}
	m.Publication = m.named.Publication
	again := m.Repairing || m.ResumedAt != nil && m.ResumedAt.After(m.named.FinishedAt)
	if !m.Restarting && (!m.StartedAt.Equal(m.named.StartedAt) || m.named.Commits != "" && !again && m.finished().Before(m.named.FinishedAt)) {
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
				keys = append(keys, Key{r.Shard, r.N}.String())
			}
		}
	}
	slices.Sort(keys)
	return schema.SumOf(fmt.Appendf(nil, "%s %s %d %s", m.ScanID, m.StartedAt.UTC().Format(time.RFC3339Nano), rows, keys))
}

// Waits reports whether a complete scan is to be published, and no head names it yet.
func (m *Manifest) Waits() bool {
	return m.named == nil && m.State == Complete && !m.Restarting && (m.Ending == PublicationDone || m.Ending == "")
}

// Unlike says in words that the commits of a scan are not those that the head names; "" if they are.
func (m *Manifest) Unlike(commits []Commit) string {
	if m.named == nil || m.named.Commits == "" || m.State != Complete || m.finished().After(m.named.FinishedAt) || m.digest(commits) == m.named.Commits {
		return ""
	}
	return "its commits are not those that were published"
}

// name makes the head name a scan as it is.
func (h *Head) name(ctx context.Context, m *Manifest, to Publication, what, why string) error {
	s := Named{ScanID: m.ScanID, ScanDate: m.ScanDate, Publication: to, StartedAt: m.StartedAt, FinishedAt: m.finished()}
	if m.named != nil {
		s.Pages = m.named.Pages
	}
	if m.State == Complete {
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

// Adopt makes the head name a complete scan that is to be published, or one that was opened and completed again since the head
// named it. Other scans stay as they are.
func (h *Head) Adopt(ctx context.Context, m *Manifest) error {
	if err := h.place(ctx, m); err != nil {
		return err
	}
	if m.named != nil && m.State == Complete && !m.Restarting && m.finished().After(m.named.FinishedAt) {
		return h.name(ctx, m, m.named.Publication, CauseRepair, "")
	}
	if !m.Waits() {
		return nil
	}
	pruned, err := h.ReadPruned(ctx)
	if err != nil || m.ScanDate <= pruned.Through {
		return err
	}
	return h.name(ctx, m, PublicationDone, CausePublish, "")
}

// Adopt is the method of this name, of the newest head.
func Adopt(ctx context.Context, st store.Store, m *Manifest) error {
	return Change(ctx, st, nil, func(h *Head, _ store.Unlocker) error { return h.Adopt(ctx, m) })
}

// Forget makes the head name a scan no more, before it is begun anew.
func Forget(ctx context.Context, st store.Store, scanID string) error {
	return rename(ctx, st, scanID, "", CauseRestart, "")
}

// rename makes the head name a scan with another publication, as it is or was.
func rename(ctx context.Context, st store.Store, scanID string, to Publication, what, why string) error {
	return Change(ctx, st, nil, func(h *Head, _ store.Unlocker) error {
		all, err := h.All(ctx)
		for _, s := range all {
			if err == nil && s.ScanID == scanID {
				s.Publication = to
				h.cause(what, why, scanID)
				err = h.set(ctx, s)
			}
		}
		return err
	})
}

// before lists the publications from which a scan may go to another. Only a withdrawal takes back a published scan.
var before = map[Publication][]Publication{
	PublicationDone:      {PublicationPending, PublicationHeld, PublicationDiscarded, PublicationEmpty},
	PublicationHeld:      {PublicationPending},
	PublicationDiscarded: {PublicationPending, PublicationHeld},
}

// SetPublication changes the publication of a complete scan, as one step. An incomplete scan can only be discarded. Where the scan has
// it already, nothing changes. What readers open is derived from it, and not yet changed.
func SetPublication(ctx context.Context, st store.Store, scanID string, to Publication) error {
	what := map[Publication]string{PublicationDone: CausePublish, PublicationHeld: CauseHold, PublicationDiscarded: CauseDiscard}[to]
	return setPublication(ctx, st, scanID, to, before[to], what, "")
}

// Withdraw discards a published scan, or lets one go that is lost. The head keeps the reason, which a person gives.
func Withdraw(ctx context.Context, st store.Store, scanID, why string) error {
	if _, err := readNamed(ctx, st, scanID); errors.Is(err, ErrRecord) {
		return rename(ctx, st, scanID, PublicationDiscarded, CauseWithdraw, why)
	}
	return setPublication(ctx, st, scanID, PublicationDiscarded, []Publication{PublicationDone}, CauseWithdraw, why)
}

func setPublication(ctx context.Context, st store.Store, scanID string, to Publication, from []Publication, what, why string) (err error) {
	lock, m, err := LockScan(ctx, st, scanID, DoingPublish)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	return Change(ctx, st, nil, func(h *Head, _ store.Unlocker) error {
		if err := h.place(ctx, m); err != nil {
			return err
		}
		switch was := m.Publication; {
		case m.State != Complete && to != PublicationDiscarded:
			return fmt.Errorf("scan %s is not complete, and cannot be %s", scanID, to)
		case was == to:
			return nil
		case m.State == Complete && !slices.Contains(from, was):
			return fmt.Errorf("scan %s is %s, and cannot be %s", scanID, was, to)
		}
		return h.name(ctx, m, to, what, why)
	})
}

// lockPause is how long a process waits at first before it looks again whether the dataset's lock is free, and longestPause at last.
const (
	lockPause    = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// Change holds the dataset's lock while do changes the newest head and what it names, and writes the next head, if it has a cause. It
// waits for another holder as long as that lives, and logs so; log may be nil. If the newest head cannot be read, the next one
// follows the newest that can.
func Change(ctx context.Context, st store.Store, log *slog.Logger, do func(h *Head, lock store.Unlocker) error) (err error) {
	lock, err := lockDataset(ctx, st, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := st.Sweep(ctx, schema.HeadFolder, IsHead); err != nil {
		return err
	}
	for range headRounds {
		h, err := newestHead(ctx, st)
		if err == nil {
			err = do(h, lock)
		}
		if err != nil || len(h.Causes) == 0 {
			return err
		}
		if err = h.write(ctx, st); !errors.Is(err, store.ErrExist) { // else a late head of an earlier holder has come
			return err
		}
	}
	return errors.New("cannot write a head: other processes write heads without the lock of the dataset")
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

// newestHead returns a copy of the newest head that can be read, as the next one.
func newestHead(ctx context.Context, st store.Store) (*Head, error) {
	names, err := Heads(ctx, st)
	if err != nil {
		return nil, err
	}
	h := &Head{store: st, months: map[string]*month{}}
	var lost []string
	for _, name := range slices.Backward(names) {
		newest, err := OpenHead(ctx, st, name)
		if err == nil {
			h = newest
			break
		}
		if Remedied(err, "") == err { // it is not damaged
			return nil, err
		}
		lost = append(lost, path.Base(name))
	}
	h.SchemaVersion, h.Previous, h.Causes, h.Number = schema.Version, h.bytes, nil, 1
	if len(names) > 0 {
		newest, _ := strconv.Atoi(headName.FindStringSubmatch(names[len(names)-1])[1]) // eight digits
		h.Number = newest + 1
	}
	if len(lost) > 0 {
		h.cause(CauseLost, "damaged: "+strings.Join(lost, ", "))
	}
	return h, nil
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
	return deleteHeads(ctx, st)
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

// deleteHeads deletes the heads that are too old, each behind the files that its successor does not name: no later one does.
func deleteHeads(ctx context.Context, st store.Store) error {
	names, err := Heads(ctx, st)
	for i := 0; err == nil && i < len(names)-heads; i++ {
		old, errOld := OpenHead(ctx, st, names[i])
		next, errNext := OpenHead(ctx, st, names[i+1])
		if errOld == nil && errNext == nil {
			for _, f := range old.Chunks() {
				if err == nil && !slices.ContainsFunc(next.Chunks(), func(n schema.File) bool { return n.Name == f.Name }) {
					err = st.Delete(ctx, f.Name)
				}
			}
		}
		if err == nil {
			err = st.Delete(ctx, names[i])
		}
	}
	return err
}

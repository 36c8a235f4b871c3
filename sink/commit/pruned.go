package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Pruned is the record of scans that were deleted for their age. A head names the record before the files of the scans
// are deleted. From then on only the history has these nights, and they cannot be derived again.
type Pruned struct {
	Through    string              `json:"through"`              // date of the last deleted night; "" before the first
	Scans      []PrunedScan        `json:"scans"`                // by date
	Tables     map[string]string   `json:"tables,omitempty"`     // by table: date of the last night whose files of the table were deleted
	Registries map[string][]string `json:"registries,omitempty"` // by version: the tokens of registries, from the statistics of the scans
	History    json.RawMessage     `json:"history,omitempty"`    // what package history keeps in their place
}

// PrunedScan is a scan that was deleted.
type PrunedScan struct {
	ScanID      string      `json:"scan_id"`
	ScanDate    string      `json:"scan_date"`
	StartedAt   time.Time   `json:"started_at"`
	FinishedAt  time.Time   `json:"finished_at"`
	Observer    Observer    `json:"observer"`
	ListID      string      `json:"list_id,omitempty"`
	Tables      []string    `json:"tables"`
	Publication Publication `json:"publication"`
	Rows        int64       `json:"rows"`
	Bytes       int64       `json:"bytes"` // of its parts
}

// ReadPruned reads the record that the newest head names; it is empty if nothing was deleted.
func ReadPruned(ctx context.Context, st store.Store) (*Pruned, error) {
	h, err := ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	return h.ReadPruned(ctx)
}

// ReadPruned reads the record that this head names.
func (h *Head) ReadPruned(ctx context.Context) (*Pruned, error) {
	p := &Pruned{}
	if h.Pruned == nil {
		return p, nil
	}
	err := h.readChunk(ctx, h.Pruned, p)
	if err == nil && p.Through != "" {
		err = CheckDate(p.Through)
	}
	for _, s := range p.Scans {
		if err == nil {
			err = errors.Join(CheckScanID(s.ScanID), CheckDate(s.ScanDate))
		}
	}
	return p, err
}

// Prune makes the head name the record of pruned scans. It removes the scans that are about to be deleted from the
// head, and notes the tables that others lose.
func (h *Head) Prune(ctx context.Context, p *Pruned, going []*Manifest, without map[string][]*Manifest) error {
	h.pruned = p
	h.cause(CausePrune, "")
	for _, m := range going {
		h.cause(CausePrune, "", m.ScanID)
		h.Removing = append(h.Removing, m.ScanID)
		if err := h.set(ctx, Named{ScanID: m.ScanID, ScanDate: m.ScanDate}); err != nil {
			return err
		}
	}
	for _, table := range slices.Sorted(maps.Keys(without)) {
		for _, m := range without[table] {
			named, err := h.find(ctx, m.ScanDate, m.ScanID)
			if err != nil || named == nil {
				return err
			}
			now := *named
			now.Pruned = append(slices.Clone(now.Pruned), table)
			h.cause(CausePrune, table, m.ScanID)
			if err := h.set(ctx, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// Removed notes in the head that no file of pruned scans is left.
func Removed(ctx context.Context, st store.Store, log *slog.Logger) error {
	return Change(ctx, st, log, func(h *Head) error {
		h.Removing = nil
		h.cause(CausePrune, "nothing is left of the pruned scans")
		return nil
	})
}

// Has reports whether a scan was deleted.
func (p *Pruned) Has(scanID string) bool {
	return slices.ContainsFunc(p.Scans, func(s PrunedScan) bool { return s.ScanID == scanID })
}

// HasDiscarded reports whether a scan was discarded, and deleted.
func (p *Pruned) HasDiscarded(scanID string) bool {
	return slices.ContainsFunc(p.Scans, func(s PrunedScan) bool {
		return s.ScanID == scanID && s.Publication == PublicationDiscarded
	})
}

// Left says what is left of a deleted scan.
func (p *Pruned) Left(scanID string) string {
	if p.HasDiscarded(scanID) {
		return "it was discarded, and nothing of it is left"
	}
	return "only the history has its night"
}

// HasDate reports whether a published scan of a date was deleted.
func (p *Pruned) HasDate(date string) bool {
	return slices.ContainsFunc(p.Scans, func(s PrunedScan) bool {
		return s.ScanDate == date && s.Publication != PublicationDiscarded
	})
}

// Refuses returns an error if a scan may not be begun: its id or its date was pruned.
func (p *Pruned) Refuses(scanID, date string) error {
	switch {
	case p.Has(scanID):
		return fmt.Errorf("scan %s was pruned, and its name is not used again; give another --scan-id", scanID)
	case date <= p.Through:
		return fmt.Errorf(
			"the nights up to %s were pruned, and the history takes in no other night of %s; scan into another dataset",
			p.Through, date)
	}
	return nil
}

// RemoveScan deletes the remaining files of a pruned scan: first the records, without which no reader finds the parts.
// Then it deletes empty folders, which each later listing would read. Its manifest was deleted before.
func RemoveScan(ctx context.Context, st store.Store, s *PrunedScan) error {
	prefixes := []string{ScanFolder(s.ScanID), RejectsName(s.ScanID)}
	for _, t := range schema.Tables() {
		prefixes = append(prefixes, partitionFolder(t.Name, s.ScanDate)+"part-"+s.ScanID)
	}
	for _, prefix := range prefixes {
		ours := func(name string) bool { return s.owns(name) }
		names, err := SweepAndList(ctx, st, prefix, ours)
		for _, name := range names {
			if err == nil {
				err = st.Delete(ctx, name)
			}
		}
		if err != nil {
			return err
		}
	}
	folders := []string{ScanFolder(s.ScanID)}
	for _, t := range schema.Tables() {
		folders = append(folders, partitionFolder(t.Name, s.ScanDate))
	}
	return RemoveEmpty(ctx, st, folders)
}

// RemoveEmpty removes empty folders of a dataset, if the store has folders. No process writes there again.
func RemoveEmpty(ctx context.Context, st store.Store, folders []string) error {
	in, ok := st.(store.Folders)
	for _, folder := range folders {
		if ok {
			if err := in.RemoveEmpty(ctx, strings.TrimSuffix(folder, "/")); err != nil {
				return err
			}
		}
	}
	return nil
}

// owns reports whether a file is the scan's. The id of another scan may begin with this scan's id.
func (s *PrunedScan) owns(name string) bool {
	table, base, _ := strings.Cut(name, "/")
	base = base[strings.LastIndexByte(base, '/')+1:]
	switch {
	case IsRecord(s.ScanID, name), name == RejectsName(s.ScanID):
		return true
	case schema.IsStatistics(table):
		return name == StatsName(table, s.ScanDate, s.ScanID)
	}
	_, _, ok := ShardOf(s.ScanID, base)
	return ok
}

// pruned reports whether the files of a table of the scan were deleted for their age.
func (m *Manifest) pruned(table string) bool { return slices.Contains(m.Pruned, table) }

// Without removes the files of pruned tables from commits.
func (m *Manifest) Without(commits []Commit) {
	if len(m.Pruned) == 0 {
		return
	}
	for i := range commits {
		commits[i].Files = slices.DeleteFunc(slices.Clone(commits[i].Files),
			func(f schema.File) bool { return m.pruned(f.Table) })
	}
}

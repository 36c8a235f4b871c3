package nightly

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Entry is a scan or a night in the listing of a dataset. Programs rely on its JSON; docs/FIELDS.md describes it.
type Entry struct {
	Date        string             `json:"scan_date,omitempty" about:"YYYY-MM-DD; left out if no record has it"`
	ScanID      string             `json:"scan_id" about:"scan"`
	State       string             `json:"state" about:"of a night as in its record, of another scan complete or running; or damaged, or newer"`
	StartedAt   time.Time          `json:"started_at,omitzero" about:"RFC 3339"`
	Observer    string             `json:"observer,omitempty" about:"who made the requests, and how"`
	ListID      string             `json:"list_id,omitempty" about:"--list-id"`
	Sites       int64              `json:"sites" about:"of a complete scan"`
	Publication commit.Publication `json:"publication,omitempty" about:"of a complete scan: published, pending, empty, held or discarded"`
	Tables      []string           `json:"tables,omitempty" about:"tables that it has; none if it was pruned"`
	Pruned      []string           `json:"pruned_tables,omitempty" about:"of a scan that was deleted: the tables that it had left"`
	Bytes       int64              `json:"bytes" about:"of the files of its tables that are there"`
	Note        string             `json:"note,omitempty" about:"what else is to be known, in words"`

	Manifest *commit.Manifest `json:"-"` // nil if there is none
}

// The states of scans whose records cannot be read.
const (
	Damaged = "damaged"
	Newer   = "newer" // of a later schema version
)

// unreadable says in an entry why a record cannot be read.
func (e *Entry) unreadable(err error) {
	e.State, e.Note = Damaged, bounded(err)
	if _, newer := errors.AsType[*schema.NewerError](err); newer {
		e.State = Newer
	}
}

// Listing returns every scan and night of a dataset by date, also those that were pruned. A scan whose record cannot be
// read, or is gone although the head names it, is Damaged or Newer. Only records are read.
func Listing(ctx context.Context, st store.Store) ([]*Entry, error) {
	scans, err := commit.StoredScans(ctx, st)
	damaged, ok := errors.AsType[*commit.DamagedScansError](err)
	if err != nil && !ok {
		return nil, err
	}
	pruned, err := commit.ReadPruned(ctx, st) // after the scans, since it names scans that are deleted meanwhile
	if err != nil {
		return nil, err
	}
	byID := map[string]*Entry{}
	for _, s := range pruned.Scans {
		byID[s.ScanID] = &Entry{
			Date: s.ScanDate, ScanID: s.ScanID, State: string(commit.Complete), StartedAt: s.StartedAt,
			Observer: s.Observer.String(), ListID: s.ListID,
			Sites: s.Rows, Publication: s.Publication, Pruned: s.Tables,
		}
	}
	for _, m := range scans {
		e := &Entry{
			Date: m.ScanDate, ScanID: m.ScanID, State: string(m.State), StartedAt: m.StartedAt, Observer: m.Observer.String(),
			ListID: m.ListID,
			Tables: m.Tables, Pruned: m.Pruned, Manifest: m,
		}
		if m.SchemaVersion < schema.Version {
			e.Note = (&schema.OlderError{Version: m.SchemaVersion}).Error()
		}
		if m.State == commit.Complete && m.Counts != nil {
			e.Sites, e.Publication = m.Counts.Rows, cmp.Or(m.Publication, commit.PublicationDone)
		}
		byID[m.ScanID] = e
	}
	if damaged != nil {
		for _, s := range damaged.Scans {
			byID[s.ScanID] = &Entry{ScanID: s.ScanID}
			byID[s.ScanID].unreadable(s.Err)
		}
	}
	if err := addNights(ctx, st, byID); err != nil {
		return nil, err
	}
	if err := addSizes(ctx, st, byID); err != nil {
		return nil, err
	}
	list := make([]*Entry, 0, len(byID))
	for _, e := range byID {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int {
		return cmp.Or(strings.Compare(a.Date, b.Date), a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ScanID, b.ScanID))
	})
	return list, nil
}

// addNights adds the records of nights to the entries of their scans.
func addNights(ctx context.Context, st store.Store, byID map[string]*Entry) error {
	all, err := dates(ctx, st)
	if err != nil {
		return err
	}
	readOne := func(ctx context.Context, date string) (*Night, error) { return ReadNight(ctx, st, date) }
	for date, r := range store.ReadAhead(ctx, all, readOne) {
		id, night := scanOf(date), r.Value
		if r.Err == nil {
			id = night.ScanID
		}
		e := byID[id]
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(r.Err, store.ErrNotExist) && (e == nil || e.Publication != commit.PublicationDone):
			continue // Verify ignores such nights, too; or the file is another program's
		case e == nil:
			e = &Entry{ScanID: id}
			byID[id] = e
		}
		e.Date = date
		switch {
		case e.State == Damaged, e.State == Newer:
		case r.Err != nil:
			e.unreadable(r.Err)
		default:
			e.State, e.Note = string(night.State), night.Note()
			if e.StartedAt.IsZero() {
				e.StartedAt = night.StartedAt
			}
		}
	}
	return nil
}

// addSizes adds up the files of each scan: for a running or pruned scan, the manifest does not have the right sizes.
func addSizes(ctx context.Context, st store.Store, byID map[string]*Entry) error {
	for _, table := range schema.AllTables {
		for entry, err := range st.List(ctx, table+"/") {
			if err != nil {
				return err
			}
			id, _, _, _ := commit.SplitPart(path.Base(entry.Name)) // "" is no scan's
			if e := byID[id]; e != nil {
				e.Bytes += max(entry.Size, 0)
			}
		}
	}
	return nil
}

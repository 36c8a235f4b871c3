package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Names in a dataset.
const (
	Folder     = "history/"
	LedgerName = schema.LedgerName
)

// The tables of the ledger.
const (
	Policies = "policies"
	History  = "history"
	Gaps     = "gaps"
)

// Ledger is the record of the ledger. Only the files that it names count. A merge publishes its files first and then
// replaces the record; it never reuses a name. So a killed merge leaves the earlier ledger, and files that the next
// merge deletes, unless its lock is late (see commit.Head). Files that a merge replaces stay until the next merge, for
// readers of the record before.
type Ledger struct {
	SchemaVersion int             `json:"schema_version"`
	ToolVersion   string          `json:"tool_version"`
	Observer      commit.Observer `json:"observer"` // whose scans are merged, beside archives
	Judge         string          `json:"judge"`    // that judged the stored files of all nights; "": each night has its own; or severalJudges
	Scans         []MergedScan    `json:"scans"`    // by date
	Files         []File          `json:"files"`
	Checkpoints   []Checkpoint    `json:"checkpoints"`   // by date
	Number        int             `json:"number"`        // counts the versions; the head names the last one
	Sum           string          `json:"sum,omitempty"` // see commit.SealRecord
}

// MergedScan is a scan whose observations are in the ledger.
type MergedScan struct {
	ScanID     string          `json:"scan_id"`
	ScanDate   string          `json:"scan_date"`
	StartedAt  time.Time       `json:"started_at"`
	FinishedAt time.Time       `json:"finished_at"` // another time means that the scan was repaired or restarted
	Observer   commit.Observer `json:"observer"`
	judge      string          // see Source; empty if it was read from a record
}

// same reports whether two entries are of one scan with the same rows.
func (s MergedScan) same(other MergedScan) bool {
	return s.ScanID == other.ScanID && s.FinishedAt.Equal(other.FinishedAt)
}

func (s MergedScan) isArchive() bool { return s.Observer.Source == commit.Archive }

// File is a file of the ledger.
type File struct {
	schema.File
	Open   bool `json:"open,omitempty"`   // its rows are open, and the next merge replaces it
	Nights int  `json:"nights,omitempty"` // how many nights the ledger had when the last rows were closed
	Level  int  `json:"level,omitempty"`  // how often closed rows were gathered into larger files, see draft.gather
}

// ReadLedger reads the record. The error is store.ErrNotExist if the dataset has no ledger, and a *schema.DamagedError
// if the record is not the one that the head names. A later record is no damage: its merge was killed before the head
// named it, or is about to write the head.
func ReadLedger(ctx context.Context, st store.Store) (*Ledger, error) {
	h, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	return readLedger(ctx, st, h)
}

// readLedger is ReadLedger with this head.
func readLedger(ctx context.Context, st store.Store, h *commit.Head) (*Ledger, error) {
	data, err := store.ReadAll(ctx, st, LedgerName, schema.MaxLedger)
	l := &Ledger{Scans: make([]MergedScan, 0, len(data)/200)} // about as many as there are
	if err == nil {
		err = commit.OpenRecord(data, l, &l.Sum)
	}
	if err == nil {
		err = schema.CheckVersion(l.SchemaVersion)
	}
	for _, f := range l.Files {
		if err == nil {
			err = store.CheckName(f.Name)
		}
	}
	switch named := h.Ledger; {
	case named == nil:
	case err == nil && (l.Number < named.Number || l.Number == named.Number && l.Sum != named.SHA256):
		err = &schema.DamagedError{What: "version", Expected: fmt.Sprint(named.Number), Found: fmt.Sprintf("another, %d",
			l.Number)}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", LedgerName, err)
	}
	return l, nil
}

// write replaces the record, as the next version. The head that is being made names it.
func (l *Ledger) write(ctx context.Context, st store.Store, h *commit.Head, why string) error {
	l.Number++
	if h.Ledger != nil {
		l.Number = max(l.Number, h.Ledger.Number+1)
	}
	if err := commit.WriteRecord(ctx, st.Put, LedgerName, l, &l.Sum); err != nil {
		return err
	}
	h.SetLedger(l.version(), why)
	return nil
}

func (l *Ledger) version() commit.Merge { return commit.Merge{Number: l.Number, SHA256: l.Sum} }

// rowsOf yields the rows of the ledger's files of a table, closed or open: all columns, or these.
func rowsOf[T any](ctx context.Context, st store.Store, files []File, tableName string, open bool,
	columns ...string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		fail := func(err error) {
			if tableName != Bodies {
				err = withRemedy(ctx, err)
			}
			yield(nil, err)
		}
		for _, f := range files {
			if f.Table != tableName || f.Open != open {
				continue
			}
			// A damaged episode would be merged night after night.
			if err := table.CompareHash(ctx, st, f.File); err != nil {
				fail(err)
				return
			}
			for row, err := range table.RecordedRows[T](ctx, st, f.File, columns...) {
				if err != nil {
					fail(err)
					return
				}
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// sweep deletes files of the ledger's tables that are not in keep: those of the runs that begin with runs; "" is all.
// The caller holds the lock.
func sweep(ctx context.Context, st store.Store, keep []File, runs string) error {
	named := map[string]bool{}
	for _, f := range keep {
		named[f.Name] = true
	}
	for _, t := range []string{Policies, History, Gaps, Bodies} {
		prefix := Folder + t + "/"
		ours := func(name string) bool {
			run, ok := runOf(strings.TrimPrefix(name, prefix))
			return ok && strings.HasPrefix(run, runs)
		}
		names, err := commit.SweepAndList(ctx, st, prefix, ours)
		if err != nil {
			return err
		}
		for _, name := range names {
			if named[name] {
				continue
			}
			if err := st.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return commit.SweepFiles(ctx, st, LedgerName)
}

const (
	batchRows  = 1024
	pageBytes  = 128 << 10
	groupBytes = 32 << 20 // of bodies in a row group
)

// Kinds of files.
const (
	openRows   = "open"
	closedRows = "closed"
)

// output writes one file of a table. The file begins with its first row, or by begin. Rows are encoded in batches while
// the merge continues.
type output[T any] struct {
	table, kind string // in the names of its files
	writer      *table.Writer[T]
	begun       bool
	rows, spare []T        // spare is being written, if written is not nil
	written     chan error // receives one
	bodies      int        // bytes in the row group
}

// begin begins a file of the draft, unless it has begun.
func (w *output[T]) begin(d *draft) error {
	if w.begun {
		return nil
	}
	d.made++
	name := fmt.Sprintf("%s%s/%s-%s-%d.parquet", Folder, w.table, w.kind, d.run, d.made)
	if w.writer == nil {
		w.writer = table.NewWriter[T](w.table, 0, pageBytes, map[string]string{table.MetaSchema: strconv.Itoa(schema.Version),
			table.MetaTool: d.options.ToolVersion})
	}
	if err := w.writer.Begin(d.ctx, d.store, name); err != nil {
		return err
	}
	w.begun = true
	return nil
}

// add appends a row.
func (w *output[T]) add(d *draft, row *T) error {
	if err := w.begin(d); err != nil {
		return err
	}
	w.rows = append(w.rows, *row)
	body, ok := any(row).(*schema.BodyRow)
	if !ok && len(w.rows) < batchRows {
		return nil
	}
	if err := w.flush(); err != nil || !ok {
		return err
	}
	if err := w.wait(); err != nil { // the body is valid only now
		return err
	}
	if w.bodies += len(body.Body); w.bodies < groupBytes {
		return nil
	}
	w.bodies = 0
	return w.writer.EndGroup()
}

// flush begins to write the rows, once those before are written.
func (w *output[T]) flush() error {
	if err := w.wait(); err != nil {
		return err
	}
	w.rows, w.spare = w.spare[:0], w.rows
	rows, written := w.spare, make(chan error, 1)
	w.written = written
	go func() { written <- w.writer.Write(rows) }()
	return nil
}

// wait waits until the rows of the last flush are written.
func (w *output[T]) wait() error {
	if w.written == nil {
		return nil
	}
	err := <-w.written
	if w.written = nil; err != nil {
		return fmt.Errorf("cannot write the history: %w", err)
	}
	return nil
}

// publish ends the file and returns its entry; none if it has not begun.
func (w *output[T]) publish(d *draft) ([]File, error) {
	if !w.begun {
		return nil, nil
	}
	err := w.flush()
	if err == nil {
		err = w.wait()
	}
	if err == nil {
		err = w.writer.Seal()
	}
	if err == nil {
		err = w.writer.Publish(d.ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.discard())
	}
	w.begun = false
	return []File{{File: w.writer.Describe(), Open: w.kind == openRows, Nights: d.nights}}, nil
}

// discard drops a file that was not published.
func (w *output[T]) discard() error {
	if !w.begun {
		return nil
	}
	w.begun, w.rows = false, w.rows[:0]
	return errors.Join(w.wait(), w.writer.Discard())
}

// fileName matches the names of the ledger's files: see output.begin, newRun and newPrunedDraft.
var fileName = regexp.MustCompile(`^(?:open|closed|all|kept|gathered[0-9]+)-((?:` + prunedRun +
	`)?[0-9a-f]{12})-[0-9]+\.parquet$`)

// runOf returns the run in a file's name; ok is false if the name is not of the ledger.
func runOf(base string) (run string, ok bool) {
	match := fileName.FindStringSubmatch(base)
	if match == nil {
		return "", false
	}
	return match[1], true
}

// newRun returns a part of file names that no other merge has used. Otherwise a late request of a dead process could
// delete a file of this merge.
func newRun() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

package commit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file writes and reads the records beside the tables (manifests, commits, hashes of other files) so that a change
// of any byte is noticed. A record is indented JSON whose last field is `sum`: the SHA-256, in hex, of the record
// without that field. The sum is checked before the JSON is decoded.

const (
	sumOpens  = ",\n  \"sum\": \""
	sumCloses = "\"\n}\n"
	sumLength = 2 * sha256.Size
)

// ErrRecord says that a record has changed since it was written.
var ErrRecord = errors.New("it is damaged")

// errSum is the ErrRecord of a record whose bytes have changed.
var errSum = fmt.Errorf("%w: its sum is not that of its bytes", ErrRecord)

// SealRecord sets sum, the last field of a record, and returns the record's JSON.
func SealRecord(record any, sum *string) ([]byte, error) {
	*sum = ""
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, err
	}
	*sum = schema.SumOf(data)
	data = append(bytes.TrimSuffix(data, []byte("\n}")), sumOpens...)
	return append(append(data, *sum...), sumCloses...), nil
}

// WriteRecord seals a record and hands its JSON to write, which is a method of a Store.
func WriteRecord(ctx context.Context, write func(ctx context.Context, name string, data []byte) error, name string,
	record any, sum *string) error {
	data, err := SealRecord(record, sum)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return write(ctx, name, data)
}

// ReadRecord reads a record of at most limit bytes. The error is store.ErrNotExist if there is none.
func ReadRecord(ctx context.Context, st store.Store, name string, limit int64, record any, sum *string) error {
	data, err := store.ReadAll(ctx, st, name, limit)
	if err != nil {
		return err
	}
	if err := OpenRecord(data, record, sum); err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	return nil
}

// OpenRecord checks the sum of a record's bytes and decodes them into record.
func OpenRecord(data []byte, record any, sum *string) error {
	at := len(data) - len(sumOpens) - sumLength - len(sumCloses)
	if at < 0 || !bytes.HasPrefix(data[at:], []byte(sumOpens)) || !bytes.HasSuffix(data, []byte(sumCloses)) {
		return fmt.Errorf("%w: it does not end with a sum", ErrRecord)
	}
	written := data[at+len(sumOpens) : at+len(sumOpens)+sumLength]
	unsealed := append(bytes.Clone(data[:at]), "\n}"...)
	if schema.SumOf(unsealed) != string(written) {
		return errSum
	}
	if err := json.Unmarshal(data, record); err != nil {
		return err
	}
	if *sum != string(written) {
		return errSum
	}
	return nil
}

// FileRecord has the hash of a file that no commit names and that may be replaced: the statistics of a scan, or its
// rejects.
type FileRecord struct {
	ScanID   string      `json:"scan_id"`
	Observer string      `json:"observer,omitempty"` // of statistics, see Observer.String
	File     schema.File `json:"file"`
	// SchemaVersion is the version of a table's file. It may be later than the scan's.
	SchemaVersion int `json:"schema_version,omitempty"`
	// Sites is the number of the scan's sites from which a table was computed; nil for rejects. A scan only gains sites,
	// so the number tells whether the table is up to date.
	Sites *int64 `json:"sites,omitempty"`
	// Unit is the sum of the rows from which statistics were computed, see UnitSum; "" if they are of one scan.
	Unit  string `json:"unit,omitempty"`
	Folds        // of a unit's rows that do not count
	// Earlier lists hashes that the file may still have: the record is written before the file is published, and the
	// process may die in between.
	Earlier []string `json:"earlier_sha256,omitempty"`
	Sum     string   `json:"sum,omitempty"` // see SealRecord
}

// FileRejects is the table name in the record of the rejects.
const FileRejects = "rejects"

// RecordedFiles lists the files of a scan that have a FileRecord.
var RecordedFiles = []string{FileRejects, schema.TokenStats, schema.RecordStats}

const maxFileRecord = 1 << 20

// PublishRecorded publishes a sealed draft and writes its record. At every moment the record allows the hash of the
// published file. The caller holds the scan's lock: with two writers, the file of one could stand beside the record of
// the other.
func PublishRecorded(ctx context.Context, st store.Store, record FileRecord,
	publish func(context.Context) error) error {
	switch before, err := ReadFileRecord(ctx, st, record.ScanID, record.File.Table); {
	case err == nil:
		record.Earlier = append(before.Earlier, before.File.SHA256)
	case !errors.Is(err, store.ErrNotExist) && ctx.Err() != nil:
		return err
	}
	if len(record.Earlier) > 0 {
		if err := record.write(ctx, st); err != nil {
			return err
		}
	}
	if err := publish(ctx); err != nil {
		return err
	}
	record.Earlier = nil
	return record.write(ctx, st)
}

func (r *FileRecord) write(ctx context.Context, st store.Store) error {
	return WriteRecord(ctx, st.Put, FileRecordName(r.ScanID, r.File.Table), r, &r.Sum)
}

// ReadFileRecord reads the record of a file; the error is store.ErrNotExist if it has none. If a later version wrote
// it, ReadFileRecord returns it with a *schema.NewerError.
func ReadFileRecord(ctx context.Context, st store.Store, scanID, table string) (*FileRecord, error) {
	name, r := FileRecordName(scanID, table), &FileRecord{}
	if err := ReadRecord(ctx, st, name, maxFileRecord, r, &r.Sum); err != nil {
		return nil, err
	}
	if r.ScanID != scanID || r.File.Table != table {
		return nil, fmt.Errorf("cannot read %s: %w: its content is that of %.80q of scan %.80q", name, ErrRecord,
			r.File.Table, r.ScanID)
	}
	if err := schema.CheckVersion(r.SchemaVersion); err != nil {
		return r, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return r, nil
}

// ListFileRecords returns the table names of a scan's files that have a record.
func ListFileRecords(ctx context.Context, st store.Store, scanID string) (recorded []string, err error) {
	for entry, err := range st.List(ctx, FilesFolder(scanID)) {
		if err != nil {
			return nil, err
		}
		if name := strings.TrimSuffix(path.Base(entry.Name), ".json"); slices.Contains(RecordedFiles, name) {
			recorded = append(recorded, name)
		}
	}
	return recorded, nil
}

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

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file is how the records beside the tables (manifests, commits, hashes of other files) are written so that any
// change of a byte in them is noticed. A record is indented JSON whose last field is `sum`: the SHA-256, in hex, of the
// record as it would stand without that field. What the bytes say is not asked before they are known to be those that
// were written.

const (
	sumOpens  = ",\n  \"sum\": \""
	sumCloses = "\"\n}\n"
	sumLength = 2 * sha256.Size
)

// ErrRecord says that a record is not as it was written.
var ErrRecord = errors.New("it is damaged")

// errSum is the errRecord of a record whose bytes have changed.
var errSum = fmt.Errorf("%w: its sum is not that of its bytes", ErrRecord)

// SealRecord returns the JSON of a record whose last field is sum, and sets that.
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

// OpenRecord checks a record's bytes and reads them into record.
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

// FileRecord is the hash of a file that no commit names and that may be replaced: the statistics of a scan, its rejects.
type FileRecord struct {
	ScanID string      `json:"scan_id"`
	File   schema.File `json:"file"`
	// Sites are those that the commits had from which a table was computed; nil for rejects. The sites of a scan become more and never others, so the number says whether the table is up to date.
	Sites *int64 `json:"sites,omitempty"`
	// Earlier are the hashes of what the file may still be: the record is written first, and its writer may have died
	// before the file appeared.
	Earlier []string `json:"earlier_sha256,omitempty"`
	Sum     string   `json:"sum,omitempty"` // see sealRecord
}

// FileRejects is what the record of the rejects calls its table.
const FileRejects = "rejects"

// RecordedFiles are the files of a scan that have such a record.
var RecordedFiles = []string{FileRejects, schema.TokenStats, schema.RecordStats}

const maxFileRecord = 1 << 20

// PublishRecorded publishes a sealed draft and writes the record of it: at every moment the file is one of those that its
// record allows. The scan's lock is held: of two at once the file of one would stand beside the record of the other.
func PublishRecorded(ctx context.Context, st store.Store, record FileRecord, publish func(context.Context) error) error {
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
	name := FileRecordName(r.ScanID, r.File.Table)
	data, err := SealRecord(r, &r.Sum)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return st.Put(ctx, name, data)
}

// ReadFileRecord reads the record of a file; store.ErrNotExist where it has none.
func ReadFileRecord(ctx context.Context, st store.Store, scanID, table string) (*FileRecord, error) {
	name := FileRecordName(scanID, table)
	data, err := store.ReadAll(ctx, st, name, maxFileRecord)
	if err != nil {
		return nil, err
	}
	r := &FileRecord{}
	if err := OpenRecord(data, r, &r.Sum); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if r.ScanID != scanID || r.File.Table != table {
		return nil, fmt.Errorf("cannot read %s: %w: it calls itself %.80q of scan %.80q", name, ErrRecord, r.File.Table, r.ScanID)
	}
	return r, nil
}

// ListFileRecords are the files of a scan that have a record, as it calls them.
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

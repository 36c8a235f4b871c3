package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// File verifies one file that a record names: a Parquet file or the rejects.
func File(ctx context.Context, st store.Store, f schema.File, scanID string) ([]Finding, error) {
	return (&verifier{store: st}).file(ctx, f, scanID)
}

func (v *verifier) file(ctx context.Context, f schema.File, scanID string) ([]Finding, error) {
	if f.Table == commit.FileRejects {
		return v.bytes(ctx, f)
	}
	return v.parquet(ctx, f, scanID)
}

func (v *verifier) bytes(ctx context.Context, f schema.File) ([]Finding, error) {
	object, findings, err := v.openFile(ctx, f)
	if object != nil {
		_ = object.Close() // it was only read
	}
	return findings, err
}

// openFile opens a file that a record names, and verifies its size and hash. The object is nil if the file is missing,
// has another size, or cannot be read.
func (v *verifier) openFile(ctx context.Context, f schema.File) (object store.Object, findings []Finding, err error) {
	object, err = v.store.Open(ctx, f.Name)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, []Finding{damaged(f.Name, "it is missing")}, nil
	case err != nil:
		return nil, []Finding{unreadable(f.Name, err)}, ctx.Err()
	case object.Size() != f.Bytes:
		return nil, []Finding{differs(f.Name, "bytes", f.Bytes, object.Size())}, object.Close()
	}
	switch sum, err := store.SumOf(object); {
	case err != nil:
		_ = object.Close() // the first error counts
		return nil, []Finding{unreadable(f.Name, err)}, ctx.Err()
	case sum != f.SHA256:
		findings = append(findings, differs(f.Name, "sha256", f.SHA256, sum))
	}
	return object, findings, nil
}

// parquet verifies one Parquet file: its size and hash, and its footer. It decodes no page: if the hash is right, the
// pages are as they were written. No length in the file decides how much memory is allocated.
func (v *verifier) parquet(ctx context.Context, f schema.File, scanID string) ([]Finding, error) {
	object, findings, err := v.openFile(ctx, f)
	if object == nil {
		return findings, err
	}
	defer object.Close()
	_, encoded, err := table.OpenTail(object)
	if err != nil {
		return append(findings, damaged(f.Name, err.Error())), ctx.Err()
	}
	footer, err := table.DecodeFooter(encoded)
	if later, ok := errors.AsType[*schema.NewerError](err); ok {
		return append(findings, newer(f.Name, later.Version)), nil
	}
	if err != nil {
		return append(findings, damaged(f.Name, err.Error())), nil
	}
	if footer.NumRows != f.Rows {
		findings = append(findings, differs(f.Name, "rows", f.Rows, footer.NumRows))
	}
	if n := len(footer.RowGroups); f.Groups != 0 && n != f.Groups {
		findings = append(findings, differs(f.Name, "row groups", f.Groups, n))
	}
	for _, kv := range footer.KeyValueMetadata {
		if kv.Key == table.MetaScan && kv.Value != scanID {
			findings = append(findings, differs(f.Name, "scan in its metadata", scanID, fmt.Sprintf("%.80q", kv.Value)))
		}
	}
	return findings, nil
}

// RecordedIsSound reports whether the file of rejects or statistics matches its record, and whether the record matches
// the manifest.
func RecordedIsSound(ctx context.Context, st store.Store, id, file string, m *commit.Manifest) (bool, error) {
	v := &verifier{store: st, committed: map[string]bool{}}
	_, findings, err := v.recordAndFile(ctx, id, file, m)
	return sound(findings), err
}

// recorded verifies a file with a record of its own. A writer may replace both, or a restart may delete them, while
// they are read. So it repeats the check if either has changed.
func (v *verifier) recorded(ctx context.Context, id, table string, s *verifiedScan) error {
	for retries := 0; ; retries++ {
		record, findings, err := v.recordAndFile(ctx, id, table, s.settled())
		if err != nil {
			return err
		}
		if !sound(findings) && retries < 3 {
			resumed, err := v.resumed(ctx, id, s)
			if err != nil {
				return err
			}
			if again, err := commit.ReadFileRecord(ctx, v.store, id, table); resumed || err == nil &&
				(record == nil || again.Sum != record.Sum) {
				continue
			}
		}
		for _, f := range findings {
			v.report(f)
		}
		if record != nil {
			v.done.Files++
			v.done.Rows += record.File.Rows
			v.done.Bytes += record.File.Bytes
		}
		return nil
	}
}

// recordAndFile verifies such a record and its file. The returned record is nil if no record can be read.
func (v *verifier) recordAndFile(ctx context.Context, id, table string, m *commit.Manifest) (*commit.FileRecord,
	[]Finding, error) {
	name := commit.FileRecordName(id, table)
	record, err := commit.ReadFileRecord(ctx, v.store, id, table)
	switch {
	case errors.Is(err, store.ErrNotExist) && m != nil && slices.Contains(m.Recorded, table):
		v.committed[nameOfRecorded(id, table, m)] = true
		return nil, []Finding{damaged(name, "it is missing, and was there when the scan became complete")}, nil
	case errors.Is(err, store.ErrNotExist):
		return nil, nil, nil // unnamed finds the file, if there is one
	case ctx.Err() != nil:
		return nil, nil, err
	case err != nil:
		v.committed[nameOfRecorded(id, table, m)] = true
		if later, ok := errors.AsType[*schema.NewerError](err); ok {
			return nil, []Finding{newer(name, later.Version)}, nil
		}
		return nil, []Finding{damaged(name, cause(err))}, nil
	}
	v.committed[record.File.Name] = true
	if want := nameOfRecorded(id, table, m); m != nil && record.File.Name != want {
		return record, []Finding{differs(name, "name of the file", want, record.File.Name)}, nil
	}
	findings, err := v.recordedFile(ctx, record)
	if m != nil && m.Counts != nil && record.Sites != nil && *record.Sites != m.Counts.Rows {
		findings = append(findings, differs(record.File.Name, "it does not have all sites; bulkscan stats computes it anew",
			m.Counts.Rows, *record.Sites))
	}
	return record, findings, err
}

// recordedFile verifies the file of a record. The file may still have an earlier hash that the record allows.
func (v *verifier) recordedFile(ctx context.Context, record *commit.FileRecord) ([]Finding, error) {
	findings, err := v.file(ctx, record.File, record.ScanID)
	if err != nil || sound(findings) || len(record.Earlier) == 0 {
		return findings, err
	}
	object, err := v.store.Open(ctx, record.File.Name)
	if errors.Is(err, store.ErrNotExist) {
		return findings, nil
	} else if err != nil {
		return findings, ctx.Err()
	}
	defer object.Close()
	sum, err := store.SumOf(object)
	if err != nil {
		return findings, ctx.Err()
	}
	if slices.Contains(record.Earlier, sum) {
		return nil, nil
	}
	return findings, nil
}

func nameOfRecorded(id, table string, m *commit.Manifest) string {
	switch {
	case table == commit.FileRejects:
		return commit.RejectsName(id)
	case m == nil:
		return ""
	}
	return commit.StatsName(table, m.ScanDate, id)
}

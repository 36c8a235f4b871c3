package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// unnamed reports files that no record names, with the probable reason. Scans may begin, commit and end while the files
// are listed, so the records of scans with such files are read again after the listing.
func (v *verifier) unnamed(ctx context.Context) error {
	prefixes := []string{"_rejects/"}
	for _, table := range schema.Tables() {
		prefixes = append(prefixes, table.Name+"/")
	}
	var names []string
	for _, prefix := range prefixes {
		for entry, err := range v.store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if !v.committed[entry.Name] {
				names = append(names, entry.Name)
			}
		}
	}
	again := map[string]bool{}
	for _, name := range names {
		if id := scanOf(name); !again[id] && commit.CheckScanID(id) == nil &&
			(v.options.ScanID == "" || v.options.ScanID == id) {
			again[id] = true
			if err := v.again(ctx, id); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		if v.committed[name] {
			continue
		}
		if f, ok := v.whyUnnamed(name); ok {
			v.report(f)
		}
	}
	return nil
}

// scanOf returns the scan id in a file's name. There may be no such scan.
func scanOf(name string) string {
	base := path.Base(name)
	switch folder, _, _ := strings.Cut(name, "/"); {
	case folder == "_rejects":
		return strings.TrimSuffix(base, ".jsonl")
	case schema.IsStatistics(folder):
		return strings.TrimSuffix(strings.TrimPrefix(base, "part-"), ".parquet")
	}
	id, _, _, _ := commit.SplitPart(base)
	return id
}

// again adds the files that a scan's records name at this time. Errors in records have been reported, or the next run
// reports them.
func (v *verifier) again(ctx context.Context, id string) error {
	s := v.scans[id]
	if s == nil {
		s = &verifiedScan{}
	}
	manifest, err := v.read(ctx, id, s)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		s.manifest = manifest
	case v.scans[id] == nil:
		return nil // no scan of that id has begun
	}
	v.scans[id] = s
	s.unreadable = map[string]bool{}
	if s.past, err = commit.GatherHistory(ctx, v.store, id, "", v.commitReader(ctx, s.unreadable, false)); err != nil {
		return err
	}
	s.without()
	s.stale, s.next = s.past.Stale(), map[string]int{}
	for i := range s.past.Current {
		for _, f := range s.past.Current[i].Files {
			v.committed[f.Name] = true
		}
	}
	for _, table := range commit.RecordedFiles {
		if record, err := commit.ReadFileRecord(ctx, v.store, id, table); err == nil {
			v.committed[record.File.Name] = true
		}
	}
	return ctx.Err()
}

// ofDiscarded explains a file of a discarded scan that has no other files left.
func ofDiscarded(name string) Finding {
	return leftover(name, "its scan was discarded, and its records are gone: no reader finds it, and it can be deleted")
}

// whyUnnamed explains a file that no record names; ok is false if it is not to be reported.
func (v *verifier) whyUnnamed(name string) (f Finding, ok bool) {
	base := path.Base(name)
	if v.pruned.Has(scanOf(name)) {
		return v.ofPruned(name, scanOf(name)), v.options.ScanID == ""
	}
	if id, ok := strings.CutSuffix(base, ".jsonl"); ok && strings.HasPrefix(name, "_rejects/") {
		s := v.scans[id]
		if s == nil && v.withdrawn[id] {
			return ofDiscarded(name), true
		}
		return s.unrecorded(name), s != nil || v.options.ScanID == ""
	}
	if !strings.HasSuffix(base, ".parquet") {
		return leftover(name,
			"it is not a file of bulkscan; programs that read the whole folder may fail on it"), v.options.ScanID == ""
	}
	table, _, _ := strings.Cut(name, "/")
	if s := v.scans[scanOf(name)]; s != nil && s.manifest != nil && slices.Contains(s.manifest.Pruned, table) {
		return leftover(name, whatPruned), true
	}
	if id := scanOf(name); schema.IsStatistics(table) && v.scans[id] != nil &&
		base == path.Base(commit.StatsName("", "", id)) {
		if m := v.scans[id].manifest; v.scans[id].restarting() {
			return leftover(name, whatRestarts), true
		} else if m != nil && name != commit.StatsName(table, m.ScanDate, id) {
			return damaged(name, "statistics in a partition that is not the scan's"), true
		}
		return v.scans[id].unrecorded(name), true
	}
	id, shard, n, _ := commit.SplitPart(base)
	s := v.scans[id]
	switch {
	case s == nil && v.options.ScanID != "":
		return Finding{}, false
	case s == nil && v.withdrawn[scanOf(name)]:
		return ofDiscarded(name), true
	case s == nil || s.past == nil:
		return damaged(name, "no commit names it, and it belongs to no scan"), true
	case s.unreadable[commit.RecordName(id, shard, n)]:
		return Finding{}, false // the record is reported
	case s.restarting() && s.stale[commit.Key{Shard: shard, N: n}]:
		return leftover(name, whatRestarts), true
	case s.stale[commit.Key{Shard: shard, N: n}]:
		return leftover(name,
			"a compaction or repair replaced it, and was killed before deleting it, or is about to delete it"), true
	case shard == commit.CompactedShard:
		return leftover(name, "no commit names it: a compaction was killed before committing it, or is about to"), true
	case slices.ContainsFunc(s.past.Tombstones, func(c commit.Commit) bool { return c.Shard == shard && c.N >= n }):
		return leftover(name, "no commit names it: its writer lost the lock of the scan before committing it"), true
	case n >= s.nextOf(shard) && s.manifest != nil && s.manifest.State == commit.Running:
		return leftover(name, "no commit names it: the scan was killed before committing it, or is about to"), true
	}
	return damaged(name, "no commit names it"), true
}

// unrecorded returns a finding for rejects or statistics without a record. In a running scan they may be a leftover:
// the first file of that name is published before its record.
func (s *verifiedScan) unrecorded(name string) Finding {
	if s != nil && s.manifest != nil && s.manifest.State == commit.Running {
		return leftover(name, "no record has its hash: its writer was killed before writing the record, or is about to")
	}
	return damaged(name, "no record has its hash")
}

// unpublished reports incomplete uploads, if the store has any and can list them. They take space, and no listing of
// files shows them.
func (v *verifier) unpublished(ctx context.Context) error {
	place, ok := v.store.(store.Unpublished)
	if !ok {
		return nil
	}
	for draft, err := range place.Unpublished(ctx, "") {
		switch {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
			return nil // some stores do not let a reader list uploads
		case err != nil:
			return err
		case v.options.ScanID == "" || v.options.ScanID == scanOf(draft.Name):
			v.report(leftover(draft.Name, fmt.Sprintf(
				"an upload begun at %s and not completed: its writer was killed or is still running; resuming the scan, or compact, aborts leftovers", draft.Modified.Format(time.RFC3339))))
		}
	}
	return nil
}

const again = "; any scan, stats or compact writes it anew"

// derived reports a file that is missing, unreadable or changed, although any scan can derive it from the records.
func (v *verifier) derived(ctx context.Context, name string, err error, sound bool) error {
	switch {
	case errors.Is(err, store.ErrNotExist):
		if v.done.Parts > 0 { // a new scan writes the file before its first part
			v.report(damaged(name, "it is missing"+again))
		}
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		v.report(damaged(name, cause(err)))
	case !sound:
		v.report(damaged(name, "it is not as bulkscan wrote it"+again))
	}
	return nil
}

// views verifies views.sql, which ends with the hash of the text before.
func (v *verifier) views(ctx context.Context) error {
	data, err := store.ReadAll(ctx, v.store, views.Name, views.MaxBytes)
	return v.derived(ctx, views.Name, err, views.Sound(data))
}

// index verifies the index, which every reader of views.sql opens. It does not compare the index with damaged records,
// since the right contents are then unknown.
func (v *verifier) index(ctx context.Context) error {
	state, err := index.Check(ctx, v.store)
	if undamaged := err == nil && v.done.Damaged+v.done.Newer == 0; undamaged && state == index.Older {
		v.report(leftover(index.Name,
			"it is older than the records: a scan or compaction was killed before writing it, or is about to; bulkscan compact writes it anew"))
	} else if undamaged && state == index.Undescribed {
		v.report(leftover(schema.PackageName,
			"it does not describe what is there: it was changed or deleted, or a scan or compaction was killed before writing it, or is about to"+again))
	}
	if _, err := store.ReadAll(ctx, v.store, schema.PackageName, 0); table.IsDamage(err) {
		// the file may be long, or another program's, but must be no pipe
		v.report(damaged(schema.PackageName, cause(err)))
	}
	return v.derived(ctx, index.Name, err, state != index.Damaged)
}

// months verifies the merged statistics of past months, and the files of units. Each file has a record; the index says
// which of them count.
func (v *verifier) months(ctx context.Context) error {
	recorded, met := map[string]bool{}, map[string]bool{} // names of files
	for entry, err := range v.store.List(ctx, index.MonthsFolder) {
		if err != nil {
			return err
		}
		if !index.IsMonth(entry.Name) {
			v.report(foreign(entry))
			continue
		}
		record, err := index.MonthRecord(ctx, v.store, entry.Name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrNotExist):
			v.report(leftover(entry.Name,
				"it has no record: a scan was killed while it wrote the file, or is about to write the record"))
			continue
		case err != nil:
			if strings.HasSuffix(entry.Name, ".json") { // it is the record
				v.report(damaged(entry.Name, cause(err)+deleteMonth))
			}
			continue
		case entry.Name != record.File.Name:
			recorded[record.File.Name] = true
			continue
		}
		met[entry.Name] = true
		findings, err := v.parquet(ctx, record.File, "")
		if err != nil {
			return err
		}
		if _, err := index.MonthRecord(ctx, v.store, entry.Name); errors.Is(err, store.ErrNotExist) {
			continue // a scan has deleted both meanwhile
		}
		if len(findings) > 0 { // one remedy mends all
			if findings[0].Kind == Damaged {
				findings[0].What += deleteMonth
			}
			v.report(findings[0])
		}
		v.done.Files++
		v.done.Bytes += record.File.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if _, err := index.MonthRecord(ctx, v.store, name); !met[name] && err == nil {
			v.report(damaged(name, "it is missing"+again))
		}
	}
	return nil
}

const deleteMonth = "; delete it: it is derived, and the next scan writes it anew"

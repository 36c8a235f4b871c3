// Package verify answers one question: is a dataset what its records say? See Dataset.
package verify

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
)

// This file holds a dataset against what its records say, from the outside in: the records themselves (sums, numbers
// without gaps, no site twice), the files that they name (size, hash, footer, checksum and length of each page), what is
// in them (rows, the seq of each), and at last what lies there that no record names.
//
// Files are read in pieces, their bytes once and the seq of their rows again, and nothing is believed before it has been
// checked: no length that a file gives for itself decides how much memory is taken.

// Finding is one thing that there is to say of a file.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	File     string      `json:"file"` // name of the object
	What     string      `json:"what"`
	Expected string      `json:"expected,omitempty"`
	Found    string      `json:"found,omitempty"`
}

// FindingKind is how bad it is.
type FindingKind string

// The kinds of findings.
const (
	// Damaged: something is not as it was written, or is gone.
	Damaged FindingKind = "damaged"
	// Leftover: a file that no commit names, or an upload that was not completed, as a process leaves that was killed.
	// Records do not lead to it, and the next run deletes it; whoever reads all files of a folder reads it too.
	Leftover FindingKind = "leftover"
	// Newer: a later version of bulkscan wrote it, and only its bytes were verified.
	Newer FindingKind = "newer"
)

func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s: %s", f.Kind, f.File, f.What)
	if f.Expected != "" || f.Found != "" {
		text += fmt.Sprintf(": expected %s, found %s", f.Expected, f.Found)
	}
	return text
}

// Totals is what was looked at.
type Totals struct {
	Scans     int   `json:"scans"`
	Parts     int   `json:"parts"`
	Files     int   `json:"files"` // Parquet files and rejects
	Rows      int64 `json:"rows"`  // of all tables
	Bytes     int64 `json:"bytes"` // of these files
	Damaged   int   `json:"damaged"`
	Leftovers int   `json:"leftovers"`
	Newer     int   `json:"newer"`
}

// Options say what is verified.
type Options struct {
	ScanID string        // "" is all scans, and what belongs to none
	Report func(Finding) // is told of each finding as it is made; nil is nobody
}

// Dataset holds a dataset against its records. What it finds are findings; an error is a store that cannot be read, or a
// context that has ended. A dataset that is being written may be verified: what is committed stays as it is.
func Dataset(ctx context.Context, st store.Store, o Options) (*Totals, error) {
	v := &verifier{store: st, options: o, committed: map[string]bool{}, scans: map[string]*verifiedScan{}}
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("cannot verify the dataset: %w", err)
	}
	return &v.done, nil
}

// verifier is one run of Dataset.
type verifier struct {
	store   store.Store
	options Options
	done    Totals

	committed map[string]bool          // files that a commit or a record names
	scans     map[string]*verifiedScan // by id
}

// verifiedScan is what later checks need to know of a scan.
type verifiedScan struct {
	manifest   *commit.Manifest // nil where it cannot be read
	past       *commit.History
	stale      map[commit.Key]bool // commits whose rows a compaction has
	next       map[string]int      // by shard, of those that have been asked for: history.next
	unreadable map[string]bool     // names of damaged records; what they named is not known
}

// restarting reports whether what the scan had written is being deleted.
func (s *verifiedScan) restarting() bool { return s.manifest != nil && s.manifest.Restarting }

// settled is the manifest by which the scan's files are named; nil where it cannot be read, or a later version wrote it, or while
// the scan is begun anew: what it had written before may be of another date and other tables.
func (s *verifiedScan) settled() *commit.Manifest {
	if s.restarting() || s.manifest != nil && s.manifest.SchemaVersion > schema.Version {
		return nil
	}
	return s.manifest
}

// whatRestarts is what files and records are that a restart deletes.
const whatRestarts = "its scan is begun anew, which was killed before it had deleted it, or is about to"

func (s *verifiedScan) nextOf(shard string) int {
	n, ok := s.next[shard]
	if !ok {
		n = s.past.Next(shard)
		s.next[shard] = n
	}
	return n
}

func (v *verifier) run(ctx context.Context) error {
	ids, err := v.findScans(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := v.scan(ctx, id); err != nil {
			return err
		}
	}
	if err := v.unnamed(ctx); err != nil {
		return err
	}
	if err := v.unpublished(ctx); err != nil {
		return err
	}
	if v.options.ScanID == "" {
		return v.views(ctx)
	}
	return nil
}

func (v *verifier) report(f Finding) {
	switch f.Kind {
	case Damaged:
		v.done.Damaged++
	case Leftover:
		v.done.Leftovers++
	case Newer:
		v.done.Newer++
	}
	if v.options.Report != nil {
		v.options.Report(f)
	}
}

// newer is a finding of what a later version wrote.
func newer(file string, version int) Finding {
	return Finding{Kind: Newer, File: file, What: fmt.Sprintf("it is of schema version %d, and this bulkscan knows versions up to %d: only bytes are verified", version, schema.Version)}
}

// sound reports whether none of a file's findings is damage.
func sound(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == Damaged })
}

func damaged(file, what string) Finding { return Finding{Kind: Damaged, File: file, What: what} }

// unreadable is a finding of a file that the store does not give: a bad sector, a right that is missing.
func unreadable(file string, err error) Finding {
	return damaged(file, fmt.Sprintf("it cannot be read: %v", cause(err)))
}

// differs is a finding where two values are not the same.
func differs(file, what string, expected, found any) Finding {
	return Finding{Kind: Damaged, File: file, What: what, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
}

// findScans lists every scan that has left anything in the folder of scans.
func (v *verifier) findScans(ctx context.Context) ([]string, error) {
	ids := map[string]bool{}
	for entry, err := range v.store.List(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, err
		}
		id, rest, _ := strings.Cut(strings.TrimPrefix(entry.Name, schema.ScansFolder), "/")
		if v.options.ScanID != "" && id != v.options.ScanID {
			continue
		}
		base := path.Base(rest)
		known := rest == "manifest.json" || rest == "commits/"+base && strings.HasSuffix(base, ".json") ||
			rest == "files/"+base && slices.Contains(commit.RecordedFiles, strings.TrimSuffix(base, ".json"))
		if commit.CheckScanID(id) != nil || !known {
			v.report(Finding{Kind: Leftover, File: entry.Name, What: "it is no record of bulkscan"})
			continue
		}
		ids[id] = true
	}
	if v.options.ScanID != "" && !ids[v.options.ScanID] {
		return nil, fmt.Errorf("no scan %s: %w", v.options.ScanID, store.ErrNotExist)
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// scan verifies the records of a scan and all files that they name.
func (v *verifier) scan(ctx context.Context, id string) error {
	v.done.Scans++
	s := &verifiedScan{}
	v.scans[id] = s
	if err := v.manifest(ctx, id, s); err != nil {
		return err
	}
	// A compaction or a restart may take files away while they are verified. Then what there is instead is verified, and what
	// was found wrong with those that are gone does not matter: no commit has the key of an earlier one.
	checked, suspects := map[commit.Key]bool{}, map[commit.Key][]Finding{}
	for rounds := 0; ; rounds++ {
		s.unreadable = map[string]bool{}
		past, err := commit.GatherHistory(ctx, v.store, id, v.commitReader(ctx, s.unreadable, rounds == 0))
		if err != nil {
			return err
		}
		s.past = past
		fresh := 0
		for i := range past.Current {
			c := &past.Current[i]
			if checked[c.Key()] {
				continue
			}
			checked[c.Key()] = true
			fresh++
			findings, err := v.commit(ctx, c)
			if err != nil {
				return err
			}
			if len(findings) > 0 {
				suspects[c.Key()] = findings
			}
		}
		if len(suspects) > 0 && fresh > 0 {
			continue
		}
		if resumed, err := v.resumed(ctx, id, s); err != nil {
			return err
		} else if resumed {
			continue
		}
		v.records(id, s)
		break
	}
	for i := range s.past.Current {
		c := &s.past.Current[i]
		v.done.Parts++
		for _, f := range c.Files {
			v.committed[f.Name] = true
			v.done.Files++
			v.done.Rows += f.Rows
			v.done.Bytes += f.Bytes
		}
		for _, f := range slices.Concat(Misnamed(c, s.settled()), suspects[c.Key()]) {
			v.report(f)
		}
	}
	for _, table := range commit.RecordedFiles {
		if err := v.recorded(ctx, id, table, s); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) manifest(ctx context.Context, id string, s *verifiedScan) error {
	name := commit.ManifestName(id)
	m, err := commit.ReadAnyManifest(ctx, v.store, id)
	switch {
	case err == nil:
		s.manifest = m
		if m.SchemaVersion > schema.Version {
			v.report(newer(name, m.SchemaVersion))
		}
	case errors.Is(err, store.ErrNotExist):
		v.report(damaged(name, "it is missing, and the scan has other records"))
	case ctx.Err() != nil:
		return err
	default:
		v.report(damaged(name, cause(err)))
	}
	return nil
}

// resumed reads the manifest once more, and reports whether the scan has gone on, ended, or been begun anew since it was
// read: the commits are not those that its totals, date and tables are of.
func (v *verifier) resumed(ctx context.Context, id string, s *verifiedScan) (bool, error) {
	if s.manifest == nil {
		return false, nil
	}
	now, err := commit.ReadAnyManifest(ctx, v.store, id)
	if err != nil {
		return false, ctx.Err() // it was there before: the next run says what is wrong with it
	}
	was := s.manifest
	s.manifest = now
	return !reflect.DeepEqual(was, now), nil
}

// cause is what an error says behind the names that a finding has anyway: `cannot read this: cannot open that: why`.
func cause(err error) string {
	text := err.Error()
	for strings.HasPrefix(text, "cannot ") {
		_, why, ok := strings.Cut(text, ": ")
		if !ok {
			break
		}
		text = why
	}
	return text
}

// commitReader judges records for gatherHistory: what is wrong with one is a finding, and it is left out.
func (v *verifier) commitReader(ctx context.Context, unreadable map[string]bool, aloud bool) func(string, *commit.Commit, error) (*commit.Commit, error) {
	return func(name string, c *commit.Commit, err error) (*commit.Commit, error) {
		later, isLater := errors.AsType[*schema.NewerError](err)
		switch {
		case isLater:
			if aloud {
				v.report(newer(name, later.Version))
			}
			return c, nil
		case err == nil:
			return c, nil
		case errors.Is(err, store.ErrNotExist), errors.Is(err, store.ErrChanged), ctx.Err() != nil:
			return nil, err
		}
		if unreadable[name] = true; aloud {
			v.report(damaged(name, cause(err)))
		}
		return nil, nil
	}
}

// records holds the records of a scan against each other.
func (v *verifier) records(id string, s *verifiedScan) {
	for _, name := range s.past.Claimed {
		v.report(Finding{Kind: Leftover, File: name, What: "an empty record: its writer was killed before it had committed anything"})
	}
	for i := range s.past.Replaced {
		what := "a compaction has its rows, or a repair has set it aside, and was killed before it had deleted it"
		if s.restarting() {
			what = whatRestarts
		}
		v.report(Finding{Kind: Leftover, File: s.past.Replaced[i].Name(), What: what})
	}
	v.gaps(id, s.past, s.unreadable)
	v.overlaps(s.past)
	if m := s.settled(); m != nil && m.State == commit.Complete && len(s.unreadable) == 0 {
		v.counts(m, s.past)
	}
}

// gaps reports commits that must have been there.
func (v *verifier) gaps(id string, past *commit.History, unreadable map[string]bool) {
	var damaged []commit.Key
	for name := range unreadable {
		key, ok := commit.KeyOf(name)
		if !ok {
			continue
		}
		if key.Shard == commit.CompactedShard {
			return // it may have been in the place of any
		}
		damaged = append(damaged, key)
	}
	for _, gap := range past.Gaps(damaged...) {
		v.report(Finding{Kind: Damaged, File: commit.RecordName(id, gap.Shard, gap.From), What: gap.Missing()})
	}
}

// overlaps reports commits that hold the same site.
func (v *verifier) overlaps(past *commit.History) {
	all := roaring64.New()
	for i := range past.Current {
		seqs, err := past.Current[i].Bitmap()
		if err != nil {
			v.report(damaged(past.Current[i].Name(), cause(err)))
			continue
		}
		if twice := roaring64.And(all, seqs); !twice.IsEmpty() {
			v.report(damaged(past.Current[i].Name(), fmt.Sprintf("%d of its sites are in commits before it too, the first is seq %d", twice.GetCardinality(), twice.Minimum())))
		}
		all.Or(seqs)
	}
}

// counts holds the commits against the totals of a complete scan.
func (v *verifier) counts(m *commit.Manifest, past *commit.History) {
	name := commit.ManifestName(m.ScanID)
	if m.Counts == nil {
		v.report(damaged(name, "a complete scan without counts"))
		return
	}
	for _, t := range m.Unaccounted(past.Current) {
		v.report(differs(name, "counts."+t.What, t.Expected, t.Found))
	}
}

// Misnamed holds the names of a commit's files against the scan's date and tables.
func Misnamed(c *commit.Commit, m *commit.Manifest) (findings []Finding) {
	if m == nil {
		return nil
	}
	tables := make([]string, 0, len(c.Files))
	for _, f := range c.Files {
		tables = append(tables, f.Table)
		if want := commit.PartName(f.Table, m.ScanDate, c.ScanID, c.Shard, c.N); f.Name != want {
			findings = append(findings, differs(c.Name(), "name of the file of "+f.Table, want, f.Name))
		}
	}
	if want := slices.Sorted(slices.Values(m.Tables)); !slices.Equal(slices.Sorted(slices.Values(tables)), want) {
		findings = append(findings, differs(c.Name(), "tables", strings.Join(want, ","), strings.Join(tables, ",")))
	}
	return findings
}

// commit verifies one commit with its files.
func (v *verifier) commit(ctx context.Context, c *commit.Commit) (findings []Finding, err error) {
	if c.SchemaVersion > schema.Version {
		for _, f := range c.Files {
			wrong, err := v.bytes(ctx, f)
			if err != nil {
				return nil, err
			}
			findings = append(findings, wrong...)
		}
		return findings, nil
	}
	seqs, err := c.Bitmap()
	if err != nil {
		seqs = nil // overlaps reports it
	}
	var readable []schema.File
	for _, f := range c.Files {
		if f.Table == schema.Sites && f.Rows != c.Rows {
			findings = append(findings, differs(c.Name(), "rows of sites", c.Rows, f.Rows))
		}
		wrong, err := v.parquet(ctx, f, c.ScanID)
		if err != nil {
			return nil, err
		}
		findings = append(findings, wrong...)
		if sound(wrong) && !slices.ContainsFunc(wrong, func(f Finding) bool { return f.Kind == Newer }) {
			readable = append(readable, f)
		}
	}
	if seqs == nil {
		return findings, nil
	}
	wrong, err := v.content(ctx, c, readable, seqs)
	return append(findings, wrong...), err
}

// content holds the seq of all rows against the commit's bitmap, in files whose bytes are what they should be.
func (v *verifier) content(ctx context.Context, c *commit.Commit, readable []schema.File, seqs *roaring64.Bitmap) (findings []Finding, err error) {
	scan := &commit.Scan{Store: v.store}
	file := func(table string) (schema.File, bool) {
		i := slices.IndexFunc(readable, func(f schema.File) bool { return f.Table == table })
		if i < 0 {
			return schema.File{}, false
		}
		return readable[i], true
	}
	each := func(tableName string, do func(seq int64)) error {
		var seq int64
		rows, err := openCursor(ctx, scan, c, tableName, table.Field{Name: "seq", Into: &seq})
		if err != nil {
			return err
		}
		for rows.Next() {
			do(seq)
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	failed := func(f schema.File, err error) error {
		if ctx.Err() != nil {
			return err
		}
		findings = append(findings, damaged(f.Name, cause(err)))
		return nil
	}
	sites, hasSites := file(schema.Sites)
	if hasSites {
		left := seqs.Clone()
		var strange int64
		err := each(schema.Sites, func(seq int64) {
			if !left.CheckedRemove(uint64(seq)) {
				strange++
			}
		})
		if err != nil {
			return findings, failed(sites, err)
		}
		if strange > 0 || !left.IsEmpty() {
			findings = append(findings, damaged(sites.Name, fmt.Sprintf("its seq are not those of its commit: %d rows too many, %d sites without a row", strange, left.GetCardinality())))
		}
	}
	for _, tableName := range []string{schema.Verdicts, schema.Evidence} {
		f, ok := file(tableName)
		if !ok {
			continue
		}
		// The sites are read along, up to that of each row.
		var strange int
		at, inOrder := int64(-1), true
		var along *table.Cursor
		if hasSites {
			if along, err = openCursor(ctx, scan, c, schema.Sites, table.Field{Name: "seq", Into: &at}); err != nil {
				return findings, failed(sites, err)
			}
		}
		err := each(tableName, func(seq int64) {
			if !seqs.Contains(uint64(seq)) {
				strange++
				return
			}
			for hasSites && inOrder && at != seq {
				inOrder = along.Next()
			}
		})
		if hasSites {
			if wrong := errors.Join(along.Err(), along.Close()); wrong != nil {
				return findings, failed(sites, wrong)
			}
		}
		if err == nil && strange > 0 {
			err = fmt.Errorf("%d rows of sites that are not in its commit", strange)
		} else if err == nil && !inOrder {
			err = errors.New("its rows are not in the order of sites")
		}
		if err != nil {
			if err := failed(f, err); err != nil {
				return findings, err
			}
		}
	}
	return findings, nil
}

// openCursor opens the file of a table in a commit.
func openCursor(ctx context.Context, s *commit.Scan, c *commit.Commit, name string, fields ...table.Field) (*table.Cursor, error) {
	open := func() table.Opened {
		at, err := s.Open(ctx, c, name)
		return table.Opened{Place: table.Place(at), Err: err}
	}
	return table.NewCursor(ctx, open(), open, fields...)
}

// recorded verifies a file that has a record of its own. Both may be replaced while they are read, or go with a restart: what
// is wrong with them is found again, or it does not matter.
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
			if again, err := commit.ReadFileRecord(ctx, v.store, id, table); resumed || err == nil && (record == nil || again.Sum != record.Sum) {
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

// recordAndFile verifies such a record, which is nil where there is none that can be read, and its file.
func (v *verifier) recordAndFile(ctx context.Context, id, table string, m *commit.Manifest) (*commit.FileRecord, []Finding, error) {
	name := commit.FileRecordName(id, table)
	record, err := commit.ReadFileRecord(ctx, v.store, id, table)
	switch {
	case errors.Is(err, store.ErrNotExist) && m != nil && slices.Contains(m.Recorded, table):
		v.committed[nameOfRecorded(id, table, m)] = true
		return nil, []Finding{damaged(name, "it is missing, and was there when the scan became complete")}, nil
	case errors.Is(err, store.ErrNotExist):
		return nil, nil, nil // the file, where there is one, is found among those that nothing names
	case ctx.Err() != nil:
		return nil, nil, err
	case err != nil:
		v.committed[nameOfRecorded(id, table, m)] = true
		return nil, []Finding{damaged(name, cause(err))}, nil
	}
	v.committed[record.File.Name] = true
	if want := nameOfRecorded(id, table, m); m != nil && record.File.Name != want {
		return record, []Finding{differs(name, "name of the file", want, record.File.Name)}, nil
	}
	findings, err := v.recordedFile(ctx, record)
	if m != nil && m.Counts != nil && record.Sites != nil && *record.Sites != m.Counts.Rows {
		findings = append(findings, differs(record.File.Name, "it is not of all sites, and bulkscan stats computes it anew", m.Counts.Rows, *record.Sites))
	}
	return record, findings, err
}

// File verifies one file that a record names: Parquet, or rejects.
func File(ctx context.Context, st store.Store, f schema.File, scanID string) ([]Finding, error) {
	v := &verifier{store: st}
	if f.Table == commit.FileRejects {
		return v.rejects(ctx, f)
	}
	return v.parquet(ctx, f, scanID)
}

// RecordedIsSound reports whether the file of rejects or statistics is what its record says, and the record what the manifest says.
func RecordedIsSound(ctx context.Context, st store.Store, id, file string, m *commit.Manifest) (bool, error) {
	v := &verifier{store: st, committed: map[string]bool{}}
	_, findings, err := v.recordAndFile(ctx, id, file, m)
	return sound(findings), err
}

// recordedFile verifies the file of a record.
func (v *verifier) recordedFile(ctx context.Context, record *commit.FileRecord) ([]Finding, error) {
	var findings []Finding
	var err error
	if record.File.Table == commit.FileRejects {
		findings, err = v.rejects(ctx, record.File)
	} else {
		findings, err = v.parquet(ctx, record.File, record.ScanID)
	}
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
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(object, 0, object.Size())); err != nil {
		return findings, ctx.Err()
	}
	if slices.Contains(record.Earlier, hex.EncodeToString(sum.Sum(nil))) {
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

// unnamed reports the files that no record names, and says why they may be there. Scans may have begun, committed and
// ended since their records were read: what those say that have such files is read once more when all has been listed.
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
		if id := scanOf(name); !again[id] && commit.CheckScanID(id) == nil && (v.options.ScanID == "" || v.options.ScanID == id) {
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

// scanOf is the scan whose file it is by its name; it may be none's.
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

// again reads what a scan's records name by now. What is wrong with them has been reported, or will be by the next run.
func (v *verifier) again(ctx context.Context, id string) error {
	manifest, err := commit.ReadAnyManifest(ctx, v.store, id)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s := v.scans[id]
	if s == nil {
		if err != nil {
			return nil // no scan of that id has begun
		}
		s = &verifiedScan{}
		v.scans[id] = s
	}
	if err == nil {
		s.manifest = manifest
	}
	s.unreadable = map[string]bool{}
	if s.past, err = commit.GatherHistory(ctx, v.store, id, v.commitReader(ctx, s.unreadable, false)); err != nil {
		return err
	}
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

// whyUnnamed says what a file is that no record names; ok is false where it is nobody's concern.
func (v *verifier) whyUnnamed(name string) (f Finding, ok bool) {
	base := path.Base(name)
	if id, ok := strings.CutSuffix(base, ".jsonl"); ok && strings.HasPrefix(name, "_rejects/") {
		s := v.scans[id]
		return s.unrecorded(name), s != nil || v.options.ScanID == ""
	}
	if !strings.HasSuffix(base, ".parquet") {
		return Finding{Kind: Leftover, File: name, What: "it is no file of bulkscan; who reads all files of the folder may stumble over it"}, v.options.ScanID == ""
	}
	table, _, _ := strings.Cut(name, "/")
	if id := scanOf(name); schema.IsStatistics(table) && v.scans[id] != nil && base == path.Base(commit.StatsName("", "", id)) {
		if m := v.scans[id].manifest; v.scans[id].restarting() {
			return Finding{Kind: Leftover, File: name, What: whatRestarts}, true
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
	case s == nil || s.past == nil:
		return damaged(name, "no commit names it, and it belongs to no scan"), true
	case s.unreadable[commit.RecordName(id, shard, n)]:
		return Finding{}, false // the record is reported
	case s.restarting() && s.stale[commit.Key{Shard: shard, N: n}]:
		return Finding{Kind: Leftover, File: name, What: whatRestarts}, true
	case s.stale[commit.Key{Shard: shard, N: n}]:
		return Finding{Kind: Leftover, File: name, What: "a compaction has its rows, or a repair has set it aside, and was killed before it had deleted it, or is about to"}, true
	case shard == commit.CompactedShard:
		return Finding{Kind: Leftover, File: name, What: "no commit names it: a compaction was killed before it had committed it, or is about to"}, true
	case slices.ContainsFunc(s.past.Tombstones, func(c commit.Commit) bool { return c.Shard == shard && c.N >= n }):
		return Finding{Kind: Leftover, File: name, What: "no commit names it: its writer had lost the lock of the scan before it had committed it"}, true
	case n >= s.nextOf(shard) && s.manifest != nil && s.manifest.State == commit.Running:
		return Finding{Kind: Leftover, File: name, What: "no commit names it: the scan was killed before it had committed it, or is about to"}, true
	}
	return damaged(name, "no commit names it"), true
}

// unrecorded is what rejects or statistics are that have no record, which is written after the first file of the name.
func (s *verifiedScan) unrecorded(name string) Finding {
	if s != nil && s.manifest != nil && s.manifest.State == commit.Running {
		return Finding{Kind: Leftover, File: name, What: "no record has its hash: its writer was killed before it had noted it, or is about to"}
	}
	return damaged(name, "no record has its hash")
}

// unpublished reports what was uploaded and has no name, where the store keeps such things and tells of them: it costs
// room, and no listing of files shows it.
func (v *verifier) unpublished(ctx context.Context) error {
	place, ok := v.store.(store.Unpublished)
	if !ok {
		return nil
	}
	for draft, err := range place.Unpublished(ctx, "") {
		switch {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
			return nil // who may read may not see them everywhere
		case err != nil:
			return err
		case v.options.ScanID == "" || v.options.ScanID == scanOf(draft.Name):
			v.report(Finding{Kind: Leftover, File: draft.Name, What: fmt.Sprintf("an upload begun at %s and not completed: its writer was killed, or is at work; the same scan again, or compact, aborts what it has left", draft.Modified.Format(time.RFC3339))})
		}
	}
	return nil
}

// views verifies the file of views, which ends with the hash of what stands before.
func (v *verifier) views(ctx context.Context) error {
	data, err := store.ReadAll(ctx, v.store, views.Name, views.MaxBytes)
	switch {
	case errors.Is(err, store.ErrNotExist):
		if v.done.Parts > 0 { // a scan that has just begun writes them before its first part
			v.report(damaged(views.Name, "it is missing; any scan, stats or compact writes it anew"))
		}
	case ctx.Err() != nil:
		return err
	case err != nil:
		v.report(damaged(views.Name, cause(err)))
	case !views.Sound(data):
		v.report(damaged(views.Name, "it is not as bulkscan wrote it; any scan, stats or compact writes it anew"))
	}
	return nil
}

// bytes verifies no more of a file than that it is the one that was written.
func (v *verifier) bytes(ctx context.Context, f schema.File) ([]Finding, error) {
	object, findings, err := v.openFile(ctx, f)
	if object == nil {
		return findings, err
	}
	defer object.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(object, 0, object.Size())); err != nil {
		return []Finding{unreadable(f.Name, err)}, ctx.Err()
	}
	return hashFinding(f, sum), nil
}

// rejects verifies the file of rejected lines.
func (v *verifier) rejects(ctx context.Context, f schema.File) ([]Finding, error) {
	object, findings, err := v.openFile(ctx, f)
	if object == nil {
		return findings, err
	}
	defer object.Close()
	sum := sha256.New()
	lines := bufio.NewReaderSize(io.TeeReader(io.NewSectionReader(object, 0, object.Size()), sum), 64<<10)
	var rows int64
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 && err == nil {
			rows++
			if !json.Valid(line) {
				findings = append(findings, damaged(f.Name, fmt.Sprintf("line %d is no JSON", rows)))
				break
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return append(findings, unreadable(f.Name, err)), ctx.Err()
		}
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		return append(findings, unreadable(f.Name, err)), ctx.Err()
	}
	if rows != f.Rows && len(findings) == 0 {
		findings = append(findings, differs(f.Name, "lines", f.Rows, rows))
	}
	return append(findings, hashFinding(f, sum)...), ctx.Err()
}

// openFile opens a file that a record names, of the size that it says; the object is nil where it is not so.
func (v *verifier) openFile(ctx context.Context, f schema.File) (store.Object, []Finding, error) {
	object, err := v.store.Open(ctx, f.Name)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, []Finding{damaged(f.Name, "it is missing")}, nil
	case err != nil:
		return nil, []Finding{unreadable(f.Name, err)}, ctx.Err()
	case object.Size() != f.Bytes:
		return nil, []Finding{differs(f.Name, "bytes", f.Bytes, object.Size())}, object.Close()
	}
	return object, nil, nil
}

func hashFinding(f schema.File, sum hash.Hash) []Finding {
	if found := hex.EncodeToString(sum.Sum(nil)); found != f.SHA256 {
		return []Finding{differs(f.Name, "sha256", f.SHA256, found)}
	}
	return nil
}

// parquet verifies one Parquet file: its bytes against the record, and what it says of itself.
func (v *verifier) parquet(ctx context.Context, f schema.File, scanID string) ([]Finding, error) {
	object, findings, err := v.openFile(ctx, f)
	if object == nil {
		return findings, err
	}
	defer object.Close()
	problems, err := table.Check(ctx, object, f, scanID)
	for _, p := range problems {
		if p.Newer > 0 {
			findings = append(findings, newer(f.Name, p.Newer))
			continue
		}
		findings = append(findings, Finding{Kind: Damaged, File: f.Name, What: p.What, Expected: p.Expected, Found: p.Found})
	}
	if err != nil {
		return append(findings, unreadable(f.Name, err)), ctx.Err()
	}
	return findings, nil
}

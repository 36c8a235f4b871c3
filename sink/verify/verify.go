// Package verify answers one question: is a dataset what its records say? Dataset compares it from the outside in: the
// records themselves (heads.go, records.go), the files that they name (files.go), the rows in these (rows.go), and last
// the files that no record names (unnamed.go).
package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Files are read in pieces: their bytes once, and the seq of their rows again. Nothing is trusted before it has been
// checked: no length in a file decides how much memory is allocated.

// Finding is one problem of one file.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	File     string      `json:"file"` // name of the object
	What     string      `json:"what"`
	Expected string      `json:"expected,omitempty"`
	Found    string      `json:"found,omitempty"`
}

// FindingKind is the severity of a finding.
type FindingKind string

// Kinds of findings.
const (
	// Damaged: something was changed or deleted after it had been written.
	Damaged FindingKind = "damaged"
	// Leftover: a file that no commit names, or an upload that was not completed; a killed process leaves both. Records
	// do not refer to it, and the next run deletes it if bulkscan wrote it. Programs that read whole folders read it, too.
	Leftover FindingKind = "leftover"
	// Newer: a later version of bulkscan wrote it; only its bytes were verified.
	Newer FindingKind = "newer"
)

func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s: %s", f.Kind, f.File, f.What)
	if f.Expected != "" || f.Found != "" {
		text += fmt.Sprintf(": expected %s, found %s", f.Expected, f.Found)
	}
	return text
}

// Totals counts what was verified and found.
type Totals struct {
	Scans     int   `json:"scans"`
	Parts     int   `json:"parts"`
	Files     int   `json:"files"` // Parquet files and rejects
	Rows      int64 `json:"rows"`  // of all tables
	Bytes     int64 `json:"bytes"` // of these files
	Damaged   int   `json:"damaged"`
	Leftovers int   `json:"leftovers"`
	Newer     int   `json:"newer"`
	// Remedies say how to repair the damaged shares of scans that are not collected.
	Remedies []string `json:"remedies,omitempty"`
}

// Options say what to verify.
type Options struct {
	ScanID string        // "" is all scans, and files that belong to no scan
	Report func(Finding) // called for each finding at once; may be nil
}

// Dataset compares a dataset with its records and reports the differences. An error means that the store cannot be
// read, or that the context has ended. A dataset may be verified while it is written, since committed files do not
// change.
func Dataset(ctx context.Context, st store.Store, o Options) (*Totals, error) {
	v := &verifier{store: st, options: o, committed: map[string]bool{}, broken: map[string][]string{},
		scans: map[string]*verifiedScan{}, withdrawn: map[string]bool{}}
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("cannot verify the dataset: %w", err)
	}
	return &v.done, nil
}

type verifier struct {
	store   store.Store
	options Options
	done    Totals

	head      *commit.Head             // empty if it cannot be read
	withdrawn map[string]bool          // scans that it names as discarded
	pruned    *commit.Pruned           // scans that were deleted for their age
	gone      func() bool              // reports whether the scan being verified was pruned meanwhile; nil between scans
	committed map[string]bool          // files that a commit or a record names
	broken    map[string][]string      // by scan: the shards of damaged files
	scans     map[string]*verifiedScan // by id
}

type verifiedScan struct {
	manifest   *commit.Manifest // nil if it cannot be read
	head       *commit.Head     // the head that it was read with; nil if no head can be read
	misfit     error            // why the manifest is not the one that the head names
	past       *commit.History
	stale      map[commit.Key]bool // commits that a compaction or repair replaced
	next       map[string]int      // cache of past.Next, by shard
	unreadable map[string]bool     // names of damaged records, whose files are not known
}

// restarting reports whether a restart is deleting the scan's earlier data.
func (s *verifiedScan) restarting() bool { return s.manifest != nil && s.manifest.Restarting }

// without leaves out the files of pruned tables, and returns the number of these tables.
func (s *verifiedScan) without() int {
	if s.manifest == nil {
		return 0
	}
	s.manifest.Without(s.past.Current)
	return len(s.manifest.Pruned)
}

// settled returns the manifest with the scan's date and tables. It is nil if the manifest cannot be read, if a later
// version wrote it, or during a restart: the earlier data may have another date and other tables.
func (s *verifiedScan) settled() *commit.Manifest {
	if s.restarting() || s.manifest != nil && s.manifest.SchemaVersion > schema.Version {
		return nil
	}
	return s.manifest
}

// whatRestarts describes files and records that a restart deletes.
const whatRestarts = "a restart of its scan was killed before deleting it, or is about to delete it"

// whatPruned describes files and records of a pruned scan.
const whatPruned = "the pruning of its scan was killed before deleting it, or is about to; the next pruning deletes it"

// ofPruned explains a file of a scan that was deleted.
func (v *verifier) ofPruned(name, id string) Finding {
	what := whatPruned
	if !slices.Contains(v.head.Removing, id) {
		what = "its scan was pruned, and this was copied back; the next pruning deletes it if the scan's manifest was copied back, too"
	}
	return leftover(name, what)
}

func (s *verifiedScan) nextOf(shard string) int {
	n, ok := s.next[shard]
	if !ok {
		n = s.past.Next(shard)
		s.next[shard] = n
	}
	return n
}

func (v *verifier) run(ctx context.Context) (err error) {
	if err := v.heads(ctx); err != nil {
		return err
	}
	ids, err := v.findScans(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := v.undisturbed(ctx, id); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if s := v.scans[id]; s != nil && s.manifest != nil && s.manifest.Uncollected() && len(v.broken[id]) > 0 {
			v.done.Remedies = append(v.done.Remedies, s.manifest.Remedy(v.broken[id]...))
		}
	}
	if err := v.unnamed(ctx); err != nil {
		return err
	}
	if err := v.unpublished(ctx); err != nil {
		return err
	}
	if v.options.ScanID == "" {
		return errors.Join(v.views(ctx), v.index(ctx), v.months(ctx))
	}
	return nil
}

// undisturbed verifies a scan. If the scan is pruned meanwhile, it reports no damage.
func (v *verifier) undisturbed(ctx context.Context, id string) error {
	v.gone = func() bool {
		if now, err := commit.ReadPruned(ctx, v.store); err == nil {
			v.pruned = now
		}
		return v.pruned.Has(id)
	}
	err := v.scan(ctx, id)
	v.gone = nil
	if v.pruned.Has(id) {
		delete(v.scans, id)
	}
	return err
}

// Count counts a finding.
func (t *Totals) Count(f Finding) {
	switch f.Kind {
	case Damaged:
		t.Damaged++
	case Leftover:
		t.Leftovers++
	case Newer:
		t.Newer++
	}
}

func (v *verifier) report(f Finding) {
	if f.Kind == Damaged && v.gone != nil && v.gone() {
		return
	}
	v.done.Count(f)
	if id, shard := commit.WrittenBy(f.File); f.Kind == Damaged && shard != "" {
		v.broken[id] = append(v.broken[id], shard)
	}
	if v.options.Report != nil {
		v.options.Report(f)
	}
}

func newer(file string, version int) Finding {
	return Finding{Kind: Newer, File: file,
		What: fmt.Sprintf("it is of schema version %d, and this bulkscan knows versions up to %d: only bytes are verified",
			version, schema.Version)}
}

func sound(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == Damaged })
}

// foreign returns a finding for a file in the folder of records that bulkscan did not write. No command deletes it.
func foreign(entry store.Entry) Finding {
	if entry.Size == store.Irregular {
		return damaged(entry.Name,
			"it is no file, or a link that leads nowhere; bring back what it led to (a disk: mount it), or move it away")
	}
	return leftover(entry.Name, "it is not a record of bulkscan")
}

func leftover(file, what string) Finding { return Finding{Kind: Leftover, File: file, What: what} }

func damaged(file, what string) Finding { return Finding{Kind: Damaged, File: file, What: what} }

// share verifies the record of a share. Until the shares are collected, it also verifies the rejects of the share, and
// that no commit of it is missing.
func (v *verifier) share(ctx context.Context, id, shard string) {
	name := commit.ShareName(id, shard)
	s, err := commit.ReadShareRecord(ctx, v.store, id, shard)
	later, isLater := errors.AsType[*schema.NewerError](err)
	switch {
	case isLater:
		v.report(newer(name, later.Version))
		return
	case errors.Is(err, store.ErrNotExist):
		return
	case err == nil && s.Result != nil:
		held := table.CompareHash(ctx, v.store, s.Result.Rejects)
		past, errPast := commit.ReadShard(ctx, v.store, id, shard)
		m, errManifest := commit.ReadAnyManifest(ctx, v.store, id) // after the commits: collected shares are merged
		switch {
		case errManifest != nil || !m.Uncollected():
		case errPast == nil && !s.Result.HasSites(past.Current):
			err = errors.New("of some of its sites there is no commit")
		case held != nil:
			name, err = s.Result.Rejects.Name, held
		}
	}
	if err != nil && ctx.Err() == nil {
		v.report(damaged(name, cause(err)))
	}
}

// unreadable returns a finding for a file that the store cannot read, for example because of a bad sector or a missing
// permission.
func unreadable(file string, err error) Finding {
	return damaged(file, fmt.Sprintf("it cannot be read: %v", cause(err)))
}

// differs returns a finding for two values that should be equal.
func differs(file, what string, expected, found any) Finding {
	return Finding{Kind: Damaged, File: file, What: what, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
}

// findScans lists every scan with anything in the folder of scans.
func (v *verifier) findScans(ctx context.Context) ([]string, error) {
	ids := map[string]bool{}
	for entry, err := range v.store.List(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, err
		}
		if entry.Name == index.Name || strings.HasPrefix(entry.Name, index.MonthsFolder) {
			continue
		}
		id, rest, _ := strings.Cut(strings.TrimPrefix(entry.Name, schema.ScansFolder), "/")
		if v.options.ScanID != "" && id != v.options.ScanID {
			continue
		}
		if commit.CheckScanID(id) != nil || !commit.IsRecord(id, entry.Name) {
			v.report(foreign(entry))
			continue
		}
		if v.pruned.Has(id) {
			v.report(v.ofPruned(entry.Name, id))
			continue
		}
		if shard, ok := strings.CutSuffix(path.Base(rest), ".json"); ok && strings.HasPrefix(rest, "shares/") {
			v.share(ctx, id, shard)
		}
		ids[id] = true
	}
	named, err := v.head.All(ctx)
	if ctx.Err() != nil {
		return nil, err
	}
	lost := false
	for _, s := range named {
		if v.withdrawn[s.ScanID] = s.Publication == commit.PublicationDiscarded; ids[s.ScanID] || v.options.ScanID != "" &&
			v.options.ScanID != s.ScanID {
			continue
		}
		if now, err := commit.ReadHead(ctx, v.store); err == nil { // the scan may have been pruned meanwhile
			if still, err := now.Needs(ctx, s.ScanID); err == nil && still {
				v.report(damaged(commit.ManifestName(s.ScanID), "it is missing, and "+now.Name()+" names the scan"))
				lost = true
			}
		}
	}
	if v.options.ScanID != "" && v.pruned.Has(v.options.ScanID) {
		return nil, fmt.Errorf("scan %s was pruned: %s", v.options.ScanID, v.pruned.Left(v.options.ScanID))
	}
	if v.options.ScanID != "" && !ids[v.options.ScanID] && !lost {
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
	suspects, err := v.commits(ctx, id, s)
	if err != nil {
		return err
	}
	v.named(id, s)
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

// commits verifies the commits of a scan and returns their findings. A compaction or a restart may delete files while
// they are verified. Then their replacements are verified, and findings on the deleted files are dropped: the key of a
// commit is never reused.
func (v *verifier) commits(ctx context.Context, id string, s *verifiedScan) (map[commit.Key][]Finding, error) {
	checked, suspects := map[commit.Key]bool{}, map[commit.Key][]Finding{}
	for rounds := 0; ; rounds++ {
		s.unreadable = map[string]bool{}
		past, err := commit.GatherHistory(ctx, v.store, id, "", v.commitReader(ctx, s.unreadable, rounds == 0))
		if err != nil {
			return nil, err
		}
		s.past = past
		pruned := s.without()
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
				return nil, err
			}
			if len(findings) > 0 {
				suspects[c.Key()] = findings
			}
		}
		if len(suspects) > 0 && fresh > 0 {
			continue
		}
		if resumed, err := v.resumed(ctx, id, s); err != nil {
			return nil, err
		} else if resumed {
			if s.manifest != nil && len(s.manifest.Pruned) > pruned {
				clear(checked)
				clear(suspects)
			}
			continue
		}
		v.records(id, s)
		return suspects, nil
	}
}

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
		seqs = nil // overlaps reports this error
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
	wrong, err := v.rows(ctx, c, readable, seqs)
	return append(findings, wrong...), err
}

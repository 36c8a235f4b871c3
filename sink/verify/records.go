package verify

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

func (v *verifier) manifest(ctx context.Context, id string, s *verifiedScan) error {
	name := commit.ManifestName(id)
	m, err := v.read(ctx, id, s)
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

// read reads a manifest, with its entry in the newest head if that can be read and matches.
func (v *verifier) read(ctx context.Context, id string, s *verifiedScan) (*commit.Manifest, error) {
	s.head, s.misfit = nil, nil
	if h, err := commit.ReadHead(ctx, v.store); err == nil {
		m, err := h.AnyManifest(ctx, id)
		if s.head, s.misfit = h, err; err == nil {
			return m, nil
		}
	}
	return commit.ReadAnyManifest(ctx, v.store, id)
}

// resumed reads the manifest again and reports whether the scan was continued, completed or restarted since the last
// reading. If so, the commits read so far may not match its totals, date and tables.
func (v *verifier) resumed(ctx context.Context, id string, s *verifiedScan) (bool, error) {
	if s.manifest == nil {
		return false, nil
	}
	now, err := v.read(ctx, id, s)
	if err != nil {
		return false, ctx.Err() // the manifest could be read before; the next run reports the cause
	}
	was := s.manifest
	s.manifest = now
	return !reflect.DeepEqual(was, now), nil
}

// cause strips the leading names from an error's text, which a finding has anyway: `cannot read this: cannot open that:
// why`.
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

// commitReader returns a judge for GatherHistory. It reports a bad record as a finding, if aloud, and leaves it out.
func (v *verifier) commitReader(ctx context.Context, unreadable map[string]bool, aloud bool) func(string,
	*commit.Commit, error) (*commit.Commit, error) {
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

// records compares the records of a scan with each other.
func (v *verifier) records(id string, s *verifiedScan) {
	for _, name := range s.past.Claimed {
		v.report(leftover(name, "an empty record: its writer was killed before committing anything"))
	}
	for i := range s.past.Replaced {
		what := "a compaction or repair replaced it, and was killed before deleting it"
		if s.restarting() {
			what = whatRestarts
		}
		v.report(leftover(s.past.Replaced[i].Name(), what))
	}
	v.gaps(id, s.past, s.unreadable)
	v.overlaps(s.past)
	if m := s.settled(); m != nil && m.State == commit.Complete && len(s.unreadable) == 0 {
		v.counts(m, s.past)
	}
}

// gaps reports missing commits.
func (v *verifier) gaps(id string, past *commit.History, unreadable map[string]bool) {
	var damaged []commit.Key
	for name := range unreadable {
		key, ok := commit.KeyOf(name)
		if !ok {
			continue
		}
		if key.Shard == commit.CompactedShard {
			return // it may have replaced any of them
		}
		damaged = append(damaged, key)
	}
	for _, gap := range past.Gaps(damaged...) {
		v.report(Finding{Kind: Damaged, File: commit.RecordName(id, gap.Shard, gap.From), What: gap.Missing()})
	}
}

func (v *verifier) overlaps(past *commit.History) {
	all := roaring64.New()
	for i := range past.Current {
		seqs, err := past.Current[i].Bitmap()
		if err != nil {
			v.report(damaged(past.Current[i].Name(), cause(err)))
			continue
		}
		if twice := roaring64.And(all, seqs); !twice.IsEmpty() {
			v.report(damaged(past.Current[i].Name(),
				fmt.Sprintf("%d of its sites are in earlier commits, too; the first is seq %d", twice.GetCardinality(),
					twice.Minimum())))
		}
		all.Or(seqs)
	}
}

// counts compares the commits with the totals of a complete scan.
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

// Misnamed compares the names of a commit's files with the scan's date and tables. A nil manifest yields no findings.
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

package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// heads verifies the heads and the files that they name, and keeps the newest head. If only one scan is verified, heads
// reads only the newest one.
func (v *verifier) heads(ctx context.Context) (err error) {
	v.head, v.pruned = &commit.Head{}, &commit.Pruned{}
	names, err := commit.Heads(ctx, v.store)
	if err != nil {
		return err
	}
	if v.options.ScanID != "" {
		names = names[max(0, len(names)-1):]
	}
	named := map[string]bool{}
	var before *commit.Head
	var unread []Finding
	for i, name := range names {
		h, err := commit.OpenHead(ctx, v.store, name)
		switch newerErr, isNewer := errors.AsType[*schema.NewerError](err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrNotExist): // a newer one has replaced the oldest
			continue
		case isNewer:
			v.report(newer(name, newerErr.Version))
			return nil
		case err != nil:
			unread = append(unread, damaged(name, cause(err)+"; "+commit.HeadRemedy))
			before = nil
			continue
		case before != nil && (h.Number != before.Number+1 || !h.Follows(before)):
			v.report(damaged(name, "it does not follow "+before.Name()))
		}
		if slices.ContainsFunc(h.Causes, func(c commit.Cause) bool { return c.What == commit.CauseLost }) {
			for _, f := range unread {
				v.report(leftover(f.File, "it cannot be read, and "+h.Name()+" continues without it"))
			}
			unread = nil
		}
		before = h
		for _, f := range h.Chunks() {
			if named[f.Name] {
				continue
			}
			err := table.CompareHash(ctx, v.store, f)
			// else a newer head may have deleted it, or names it, too
			named[f.Name] = i == len(names)-1 || !errors.Is(err, store.ErrNotExist)
			if err != nil && named[f.Name] {
				unread = append(unread, damaged(f.Name, cause(err)+"; "+h.Remedy(f)))
			}
		}
	}
	for _, f := range unread {
		v.report(f)
	}
	for entry, err := range v.store.List(ctx, schema.HeadFolder) {
		switch {
		case v.options.ScanID != "":
		case err != nil:
			return err
		case !commit.IsHead(entry.Name):
			v.report(foreign(entry))
		case !named[entry.Name] && !slices.Contains(names, entry.Name):
			v.report(leftover(entry.Name, "no head names it: its writer was killed before it wrote the head, or is about to"))
		}
	}
	h, err := commit.ReadHead(ctx, v.store)
	if err == nil {
		v.head = h
		v.pruned, err = h.ReadPruned(ctx)
	}
	if err != nil {
		v.pruned = &commit.Pruned{}
	}
	return ctx.Err()
}

// named compares a scan with its entry in the head. It reports a scan that is to be published and that no head names
// yet.
func (v *verifier) named(id string, s *verifiedScan) {
	m, name := s.manifest, commit.ManifestName(id)
	switch {
	case m == nil, m.SchemaVersion > schema.Version, s.head == nil: // which was reported
	case s.misfit != nil:
		v.report(damaged(name, cause(s.misfit)))
	case m.Waits() && m.ScanDate <= v.pruned.Through:
		v.report(leftover(name, "it is not published, and cannot be: the nights up to "+v.pruned.Through+" were pruned"))
	case m.Waits():
		v.report(leftover(name,
			"it is complete, and no head names it: the scan was killed before its publication, or is about to be published; the next scan publishes it, too"))
	default:
		if unlike := m.Unlike(s.past.Current); unlike != "" && s.past.Lost(m) == nil {
			v.report(damaged(name, unlike+": see "+s.head.Name()))
		}
	}
}

package history

import (
	"cmp"
	"iter"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// When a registry gains a token, only the stored files of earlier nights show how sites treated the token. So when a
// night has another judge than the nights before, all nights are merged again, and the new judge judges their stored
// files. If a file is not stored, its night keeps its old judgement, in an episode of its own.

// severalJudges is Ledger.Judge after a late scan by another judge than the last night's, and after a night by another
// judge while a scan of the ledger is gone. The next night judges all, once its judge and all scans are there.
const severalJudges = "several"

// again judges the files of the nights of a ledger in the making.
type again struct {
	*Rejudge
	policies policySet
	files    judgedFiles // files of the night that is being merged
	kept     judgedFiles // files of pruned nights, until the first night is merged
}

// judgedFiles are files with rules by their hashes.
type judgedFiles map[int64]judgedFile

type judgedFile struct {
	*Policy
	unmanaged int64 // as Episode.Unmanaged
}

// judgeAgain returns an again, or nil without a judge.
func judgeAgain(judge *Rejudge) *again {
	if judge == nil {
		return nil
	}
	return &again{Rejudge: judge, policies: policySet{}}
}

// judged judges files into a map by their hashes. It copies files that are known.
func (a *again) judged(into, known judgedFiles, rows iter.Seq2[*schema.BodyRow, error]) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		file := cmp.Or(into[row.BodyHash], known[row.BodyHash])
		if file.Policy == nil {
			p, unmanaged := a.Policy(row.Body)
			file = judgedFile{a.policies.intern(p), unmanaged}
		}
		into[row.BodyHash] = file
	}
	return nil
}

// judgedBy reports whether a judge has judged all sites of a scan.
func judgedBy(judge string, m *commit.Manifest) bool {
	// else some sites may keep an earlier judgement
	return judgeOf(m.RegistryVersion, m.Check) == judge && m.Rejudged == nil
}

// open judges the stored files of a night's scans that another judge has judged.
func (a *again) open(d *draft, scans []*commit.Scan) error {
	if a == nil {
		return nil
	}
	before := a.files
	a.files = judgedFiles{}
	for _, s := range scans {
		if judgedBy(a.Judge, s.Manifest) || !s.Has(schema.Bodies) {
			continue
		}
		if err := a.judged(a.files, before, read.Rows[schema.BodyRow](d.ctx, s, schema.Bodies)); err != nil {
			return err
		}
	}
	return nil
}

// file returns the file of an observation, if it was judged again.
func (a *again) file(o *Observation) judgedFile {
	if a == nil || o.Finding != ClassRules || o.From.Judge == a.Judge {
		return judgedFile{}
	}
	return a.files[o.Body]
}

// source returns the Source of observations by an observer.
func (a *again) source(observer string) *Source {
	if a == nil {
		return nil
	}
	return &Source{Observer: observer, Judge: a.Judge}
}

// judgeKept returns Merger.Judged for the first night after those that were pruned, nil for others.
func (a *again) judgeKept(tonight *night) func(*Episode) {
	if a == nil || len(a.kept) == 0 {
		return nil
	}
	kept := a.kept
	a.kept = nil
	return func(e *Episode) {
		if file := kept[e.LastBody]; file.Policy != nil {
			tonight.policies[file.ID] = file.Policy
			e.Policy, e.Unmanaged, e.Judge = file.ID, file.unmanaged, a.Judge
		}
	}
}

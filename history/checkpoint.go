package history

import (
	"slices"
)

// Checkpoint is the state of the ledger after an earlier night: its scans are the first scans of the ledger, and its
// closed rows are in files that the ledger still names. So if a scan of an earlier night is added, or another scan of
// the last night, only the nights since the last checkpoint before it are merged again.
type Checkpoint struct {
	Nights int    `json:"nights"`
	Scans  int    `json:"scans"`
	Judge  string `json:"judge"`
	Files  []File `json:"files"` // with open rows, and of policies
}

// keeps reports whether a ledger of so many nights keeps the checkpoint after an earlier one. It keeps the checkpoints
// of the last two nights, and one or two at distances up to 4, 8, 16 nights and so on: about 12 for a year. No later
// ledger needs a checkpoint that was dropped.
func keeps(nights, checkpoint int) bool {
	return checkpoint > 0 && nights-checkpoint <= 2*(checkpoint&-checkpoint)
}

// at returns the ledger as it was at one of its checkpoints.
func (l *Ledger) at(c Checkpoint) *Ledger {
	was := *l
	was.Scans, was.Judge = l.Scans[:c.Scans], c.Judge
	was.Files = slices.Concat(c.Files, slices.DeleteFunc(slices.Clone(l.Files), func(f File) bool {
		return f.Open || f.Table == Policies || f.Nights > c.Nights
	}))
	was.Checkpoints = slices.DeleteFunc(slices.Clone(l.Checkpoints),
		func(o Checkpoint) bool { return o.Nights >= c.Nights })
	return &was
}

// before returns the last version of the ledger into which the rest of these scans can be merged: it has the first of
// these scans, and no scan of the date of the next one. It is the current ledger, the ledger at a checkpoint, or the
// snapshot of pruned nights.
func (l *Ledger) before(scans []MergedScan, p *past) *Ledger {
	same := 0
	for same < min(len(l.Scans), len(scans)) && l.Scans[same].same(scans[same]) {
		same++
	}
	ends := func(n int) bool {
		return n > 0 && n <= same && n >= len(p.base().Scans) &&
			(n == len(scans) || scans[n].ScanDate > l.Scans[n-1].ScanDate)
	}
	if ends(len(l.Scans)) {
		return l
	}
	for _, c := range slices.Backward(l.Checkpoints) {
		if ends(c.Scans) {
			return l.at(c)
		}
	}
	return p.base()
}

// all returns the files of the ledger and of its checkpoints, each once: they share the files of policies.
func (l *Ledger) all() []File {
	files := slices.Clone(l.Files)
	for _, c := range l.Checkpoints {
		for _, f := range c.Files {
			if !slices.ContainsFunc(files, func(had File) bool { return had.Name == f.Name }) {
				files = append(files, f)
			}
		}
	}
	return files
}

// segment is how many checkpoints are before the nights of a file. Only closed rows of one segment are gathered.
func (l *Ledger) segment(f File) int {
	before := func(c Checkpoint) bool { return c.Nights >= f.Nights }
	if i := slices.IndexFunc(l.Checkpoints, before); i >= 0 {
		return i
	}
	return len(l.Checkpoints)
}

// nights is the number of dates of the ledger's scans.
func (l *Ledger) nights() (n int) {
	for range byNight(l.Scans) {
		n++
	}
	return n
}

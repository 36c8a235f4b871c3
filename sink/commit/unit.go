package commit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// A unit is the published scans of one date, observer and list. Each site counts once in it (package units).

// Unit says which rows of one or several scans count.
type Unit struct {
	Scans  []*Manifest // in the order of ByStart
	Alone  bool        // only one of Scans is read, since the user named its id
	Sum    string      // see UnitSum; "" if the rows of one scan alone are read
	Choice             // of the rows that are read
}

// Choice says which rows do not count, because another row counts for their site.
type Choice struct {
	Superseded map[string]*roaring64.Bitmap // their seq, by scan
	Folds
}

// Folds counts the sites of an archive with captures by http and by https.
type Folds struct {
	Folded   int64 `json:"folded,omitempty"`
	Disagree int64 `json:"folds_disagree,omitempty"` // both captures were observed, with different findings or bodies
}

// Replaced is the number of rows that do not count.
func (c *Choice) Replaced() (n int64) {
	for _, seqs := range c.Superseded {
		n += int64(seqs.GetCardinality())
	}
	return n
}

// InUnit reports whether a published scan is of the same unit as another scan.
func (m *Manifest) InUnit(o *Manifest) bool {
	return m.Published() && m.ScanDate == o.ScanDate && m.Observer == o.Observer && m.ListID == o.ListID
}

// ByStart orders the scans of a unit: of two otherwise equal rows, the row of the later scan counts.
func ByStart(a, b *Manifest) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ScanID, b.ScanID))
}

// UnitSum identifies the rows of scans by their files of the table sites.
func UnitSum(sites []schema.File) string {
	sum := sha256.New()
	for _, f := range slices.SortedFunc(slices.Values(sites), func(a, b schema.File) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		fmt.Fprintf(sum, "%s %.16s\n", f.Name, f.SHA256)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Read returns the manifests of the scans whose rows are read together as this scan, in the order of ByStart.
func (s *Scan) Read() []*Manifest {
	if s.Unit.Alone || len(s.Unit.Scans) == 0 {
		return []*Manifest{s.Manifest}
	}
	return s.Unit.Scans
}

// Sites returns the scan's files of the table sites.
func (s *Scan) Sites() (files []schema.File) {
	for i := range s.Commits {
		if f, ok := s.Commits[i].File(schema.Sites); ok {
			files = append(files, f)
		}
	}
	return files
}

// Together returns the scans of a unit as one. A single scan stays as it is. Several get the manifest of the last, with
// the settings of the first, the lists of all, and the tables that all of them have. The scans are in the order of
// ByStart.
func Together(scans []*Scan) *Scan {
	last := scans[len(scans)-1]
	if len(scans) == 1 {
		return last
	}
	m := *last.Manifest
	m.Config, m.Inputs = scans[0].Manifest.Config, nil // a later scan may fetch a part of the sites again
	all := &Scan{Manifest: &m, Store: last.Store, of: map[string]*Scan{}}
	for _, s := range scans {
		for _, in := range s.Manifest.Inputs {
			if !slices.Contains(m.Inputs, in) {
				m.Inputs = append(m.Inputs, in)
			}
		}
		m.Tables = slices.DeleteFunc(slices.Clone(m.Tables), func(table string) bool { return !s.Has(table) })
		all.Commits = append(all.Commits, s.Commits...)
		all.of[s.Manifest.ScanID] = s
		if s.lost != nil {
			all.lost = s.lost
		}
	}
	return all
}

package sink

import (
	"testing"

	"github.com/bulkscan/bulkscan/audit"
)

// TestNullsStayNull writes a sparse column in every shape of one run of values within 64 rows.
func TestNullsStayNull(t *testing.T) {
	dir := newDir(t)
	var sites []*audit.Site
	want := map[int64]string{}
	for y := range 34 {
		for i := range batchRows {
			seq := uint64(len(sites))
			s := deadSite(t, seq)
			if i >= y && i < 2*y {
				s.Label = "value"
				want[int64(seq)] = s.Label
			}
			sites = append(sites, s)
		}
	}
	writeSites(t, dir, "nulls", sites...)
	type row struct {
		Seq   int64   `parquet:"seq"`
		Label *string `parquet:"label,optional"`
	}
	for _, r := range readAll[row](t, dir, "nulls", TableSites) {
		text, has := want[r.Seq]
		if (r.Label != nil) != has || has && *r.Label != text {
			t.Errorf("row %d of its batch of %d: label null %v, want null %v", r.Seq%batchRows, r.Seq/batchRows, r.Label == nil, !has)
			return
		}
	}
}

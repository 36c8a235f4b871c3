package stats

import (
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/survey"
)

// tally counts sites by what they make of one token.
type tally struct {
	blocks  [len(audit.Definitions)]int64 // by definition
	partial int64
	// sites with rules by whose group decides: all, those that block the token, and those that block at least a part
	via, full, any [survey.NumVias]int64
}

func (t *tally) add(c audit.Cell, n survey.SitesOf) {
	definitions := survey.Definitions()
	for i := range definitions {
		if blocksBy[c]>>i&1 == 1 {
			t.blocks[i] += n.Over(&definitions[i])
		}
	}
	by := survey.Via(c)
	if by < 0 {
		return
	}
	t.via[by] += n.Rules
	switch c.Decision() {
	case audit.Blocked:
		t.full[by] += n.Rules
		t.any[by] += n.Rules
	case audit.Partial:
		t.partial += n.Rules
		t.any[by] += n.Rules
	}
}

// merge adds the counts of another tally, so many times.
func (t *tally) merge(o *tally, times int64) {
	for i, n := range o.blocks {
		t.blocks[i] += n * times
	}
	t.partial += o.partial * times
	for i := range survey.NumVias {
		t.via[i] += o.via[i] * times
		t.full[i] += o.full[i] * times
		t.any[i] += o.any[i] * times
	}
}

// blocksBy has for each cell a bit for each definition by which it blocks.
var blocksBy = func() (m [1 << 8]uint16) {
	for c := range m {
		for i, d := range survey.Definitions() {
			m[c] |= uint16(survey.One(d.Blocks(audit.Cell(c)))) << i
		}
	}
	return m
}()

package commit

// Rejudged counts what re-evaluating a part or a scan changed. Differences compare the columns that the stored part
// had.
type Rejudged struct {
	Bodies   int64            `json:"bodies"`            // sites evaluated by their body
	Answers  int64            `json:"without_body"`      // sites evaluated without a body: by their status, or because there was no answer
	Carried  map[string]int64 `json:"carried,omitempty"` // sites that kept their evaluation, by reason (reaudit.CarriedHTML, …)
	Sites    int64            `json:"sites_differ"`      // sites with any differing row
	Columns  map[string]int64 `json:"columns,omitempty"` // sites that differ, by column of table sites
	Verdicts Difference       `json:"verdicts"`
	Evidence Difference       `json:"evidence"`

	// Other counts the sites of Carried that have groups and were evaluated with another registry. The registry of the
	// re-evaluation may name or block more of their agents.
	Other int64 `json:"stayed_by_other_registry,omitempty"`

	// Checks and Decisions count changes of check status and verdict, such as "pass to warn"; Kinds counts differing
	// evidence by kind. A word unknown to bulkscan counts as "other".
	Checks    map[string]int64      `json:"check_status,omitempty"`
	Decisions map[string]int64      `json:"verdict,omitempty"`
	Kinds     map[string]Difference `json:"evidence_kinds,omitempty"`
}

// Difference counts differing rows of a table. Rows of verdicts are compared by token. Rows of evidence only appear or
// vanish.
type Difference struct {
	Changed  int64 `json:"changed"`
	Appeared int64 `json:"appeared"`
	Vanished int64 `json:"vanished"`
}

// Judged is the number of sites that were re-evaluated.
func (r *Rejudged) Judged() int64 { return r.Bodies + r.Answers }

// Stayed is the number of sites that kept their evaluation.
func (r *Rejudged) Stayed() (n int64) {
	for _, many := range r.Carried {
		n += many
	}
	return n
}

// And returns the sum; nil counts as zero.
func (r *Rejudged) And(o *Rejudged) *Rejudged {
	if r == nil || o == nil {
		if r == nil {
			return o
		}
		return r
	}
	sum := NewRejudged()
	for _, one := range []*Rejudged{r, o} {
		sum.Bodies, sum.Answers, sum.Sites = sum.Bodies+one.Bodies, sum.Answers+one.Answers, sum.Sites+one.Sites
		sum.Other += one.Other
		sum.Verdicts, sum.Evidence = sum.Verdicts.And(one.Verdicts), sum.Evidence.And(one.Evidence)
		for _, counts := range [...][2]map[string]int64{{sum.Carried, one.Carried}, {sum.Columns, one.Columns},
			{sum.Checks, one.Checks}, {sum.Decisions, one.Decisions}} {
			for key, n := range counts[1] {
				counts[0][key] += n
			}
		}
		for kind, d := range one.Kinds {
			sum.Kinds[kind] = sum.Kinds[kind].And(d)
		}
	}
	return sum
}

// NewRejudged returns counts of zero.
func NewRejudged() *Rejudged {
	return &Rejudged{Carried: map[string]int64{}, Columns: map[string]int64{}, Checks: map[string]int64{},
		Decisions: map[string]int64{}, Kinds: map[string]Difference{}}
}

// And returns the sum of both.
func (d Difference) And(o Difference) Difference {
	return Difference{d.Changed + o.Changed, d.Appeared + o.Appeared, d.Vanished + o.Vanished}
}

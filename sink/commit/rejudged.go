package commit

// Rejudged is what judging a part, or a scan, again came to. Differences are those to what was stored, in columns that it had.
type Rejudged struct {
	Bodies   int64            `json:"bodies"`            // sites judged by their body
	Answers  int64            `json:"without_body"`      // sites judged by what needs none: their status, or that there is no answer
	Carried  map[string]int64 `json:"carried,omitempty"` // sites whose judgement stayed, by why (see CarriedHTML …)
	Sites    int64            `json:"sites_differ"`      // sites of which any row differs
	Columns  map[string]int64 `json:"columns,omitempty"` // sites that differ, by column of the table sites
	Verdicts Difference       `json:"verdicts"`
	Evidence Difference       `json:"evidence"`

	// Other are the sites of Carried that have groups and were judged by another registry: by this one more may be named or blocked.
	Other int64 `json:"stayed_by_other_registry,omitempty"`

	// By kind: what checks and verdicts were and are, such as "pass to warn", and the kinds of evidence. What is no word of
	// ours is "other".
	Checks    map[string]int64      `json:"check_status,omitempty"`
	Decisions map[string]int64      `json:"verdict,omitempty"`
	Kinds     map[string]Difference `json:"evidence_kinds,omitempty"`
}

// Difference is how rows of a table differ: those of verdicts by their token; those of evidence appear and vanish only.
type Difference struct {
	Changed  int64 `json:"changed"`
	Appeared int64 `json:"appeared"`
	Vanished int64 `json:"vanished"`
}

// Judged is how many sites were judged again.
func (r *Rejudged) Judged() int64 { return r.Bodies + r.Answers }

// Stayed is how many sites were not.
func (r *Rejudged) Stayed() (n int64) {
	for _, many := range r.Carried {
		n += many
	}
	return n
}

// And returns the sum; nil is nothing.
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
		for _, counts := range [...][2]map[string]int64{{sum.Carried, one.Carried}, {sum.Columns, one.Columns}, {sum.Checks, one.Checks}, {sum.Decisions, one.Decisions}} {
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
	return &Rejudged{Carried: map[string]int64{}, Columns: map[string]int64{}, Checks: map[string]int64{}, Decisions: map[string]int64{}, Kinds: map[string]Difference{}}
}

// And returns the sum of both.
func (d Difference) And(o Difference) Difference {
	return Difference{d.Changed + o.Changed, d.Appeared + o.Appeared, d.Vanished + o.Vanished}
}

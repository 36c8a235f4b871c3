package tables

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// This file makes the tables of the report page that are counted from rows. One pass over sites, with verdicts, counts
// the summaries and all tables but the part of content-signals that is in evidence. Here are the tables of answers and
// files; blocks.go counts who is blocked, records.go the records of files, and cells.go bounds the
// memory of each.

// fromSites counts the summaries by all definitions and the tables.
func (s *Survey) fromSites(ctx context.Context, _ store.Store, scan *commit.Scan, o *Options) error {
	of := summary.Options{Options: o.Options, Selection: survey.Selection{Category: surveyCategory}}
	policies, err := survey.ReadPolicies(ctx, scan, o.Registry)
	if err != nil {
		return err
	}
	answers, blocks, records := newAnswerTables(), newBlockTables(policies), newRecordTables()
	var columns surveyColumns
	var sites survey.SitesByPolicy
	s.Summaries, sites, err = summary.ByDefinitions(ctx, scan, &of, policies, survey.Definitions(), summary.Further{
		Sites: append(table.FieldsOf(&columns, false, nil), table.Field{Name: "advice", Into: &columns.Advice,
			Index: answers.adviceIndex}),
		Verdicts: table.FieldsOf(&records.row, false, nil),
		Verdict:  records.verdict,
		Site: func(r *summary.Columns) {
			answers.site(r, &columns)
			blocks.site(r, &columns)
			records.site(r, &columns)
			o.Counted.Add(1)
		},
	})
	if err = cmp.Or(err, blocks.surveyed.Err); err != nil {
		return err
	}
	if err := records.readEvidence(ctx, scan); err != nil {
		return err
	}
	answers.tables(s, s.Summaries[0], blocks.networks)
	records.tables(s)
	return blocks.tables(s, sites)
}

// surveyColumns are the columns of sites that the tables need and a summary does not.
type surveyColumns struct {
	Rank           int64   `parquet:"rank"`
	Origin         string  `parquet:"origin"`
	CDN            string  `parquet:"cdn"`
	License        string  `parquet:"license"`
	TTFBMillis     float32 `parquet:"ttfb_ms"`
	StepFetch      string  `parquet:"step_fetch"`
	StepCore       string  `parquet:"step_core_syntax"`
	StepExtensions string  `parquet:"step_extensions"`
	Invalid        int32   `parquet:"n_invalid"`
	Unknown        int32   `parquet:"n_unknown"`
	Legacy         int32   `parquet:"n_legacy"`
	Typo           int32   `parquet:"n_typo"`
	Orphan         int32   `parquet:"n_orphan"`
	Groups         int32   `parquet:"n_groups"`
	BOM            bool    `parquet:"has_bom"`
	UTF8           *bool   `parquet:"valid_utf8"`
	Advice         []int32 // indexes of answerTables.advice
}

// answerTables counts answers, and what is wrong with files.
type answerTables struct {
	ranked, rankedAnswered [stats.LastBucket + 2]int64 // sites by RankBucket; the last have no rank
	outcomes, statuses     *cells[int64]               // by RankBucket, and outcome or status

	sizes [len(sizeClasses)]struct{ sites, bytes int64 }
	bytes [64]int64 // sites by the logarithm of their size, to the base of 2

	scores, steps *cells[int64] // of sites asked

	faults [len(faultKinds)]struct{ sites, lines int64 } // of sites with rules

	adviceIDs *cells[int32] // indexes of advice
	advice    []advised
}

// advised is an id of advice, with the first site in the alphabet that gets it.
type advised struct {
	id     string
	sites  int64
	origin string
}

func newAnswerTables() *answerTables {
	return &answerTables{
		outcomes: newCells[int64](survey.MaxValues), statuses: newCells[int64](survey.MaxValues),
		scores: newCells[int64](survey.MaxValues), steps: newCells[int64](survey.MaxValues),
		adviceIDs: newCells[int32](survey.MaxValues),
	}
}

// adviceIndex returns the index of an id, or NoToken if there are too many.
func (a *answerTables) adviceIndex(id string) int32 {
	i := a.adviceIDs.at(key{a: id})
	switch {
	case i == a.adviceIDs.rest:
		return survey.NoToken
	case *i == 0: // new
		a.advice = append(a.advice, advised{id: strings.Clone(id)})
		*i = int32(len(a.advice))
	}
	return *i - 1
}

// sizeClasses are those of sizes.sql, in its order, with the first size above each.
var sizeClasses = [...]struct {
	name  string
	below int64
}{
	{"empty", 1}, {"below 100 B", 100}, {"below 1 KiB", 1 << 10}, {"below 10 KiB", 10 << 10}, {"below 100 KiB", 100 << 10},
	{"up to 500 KiB", 500<<10 + 1}, {"above 500 KiB", math.MaxInt64},
}

func sizeClass(r *summary.Columns) int {
	class := 0
	for class < len(sizeClasses)-1 && (r.Truncated || r.BodyBytes >= sizeClasses[class].below) {
		class++
	}
	return class
}

// faultKinds are those of syntax.sql. The first counted of them are of lines.
var faultKinds = [...]string{"invalid", "unknown", "legacy", "typo", "orphan", "bom", "not_utf8", "no_group"}

const countedFaults = 5

func (a *answerTables) site(r *summary.Columns, s *surveyColumns) {
	bucket := stats.LastBucket + 1
	if s.Rank > 0 {
		bucket = stats.RankBucket(s.Rank)
	}
	a.ranked[bucket]++
	*a.outcomes.at(key{a: r.Outcome, n: float64(bucket)})++
	if r.Status != 0 {
		a.rankedAnswered[bucket]++
		*a.statuses.at(key{n: float64(bucket), m: float64(r.Status)})++
	}
	if r.Status == 200 && r.Outcome == "answered" {
		size := &a.sizes[sizeClass(r)]
		size.sites++
		size.bytes += r.BodyBytes
		if r.BodyBytes > 0 {
			a.bytes[bits.Len64(uint64(r.BodyBytes))-1]++
		}
	}
	if r.Access != "unknown" {
		if !math.IsNaN(r.Score) { // which equals no key
			*a.scores.at(key{a: r.CheckStatus, n: r.Score})++
		}
		*a.steps.at(key{a: "step_fetch", b: s.StepFetch})++
		*a.steps.at(key{a: "step_core_syntax", b: s.StepCore})++
		*a.steps.at(key{a: "step_extensions", b: s.StepExtensions})++
	}
	if r.Finding == "rules" {
		a.file(s)
	}
	for _, i := range s.Advice {
		if i != survey.NoToken {
			to := &a.advice[i]
			if to.sites++; to.sites == 1 || s.Origin < to.origin {
				to.origin = strings.Clone(s.Origin)
			}
		}
	}
}

func (a *answerTables) file(s *surveyColumns) {
	for i, lines := range [countedFaults]int32{s.Invalid, s.Unknown, s.Legacy, s.Typo, s.Orphan} {
		a.faults[i].sites += survey.One(lines > 0)
		a.faults[i].lines += int64(lines)
	}
	for i, is := range [len(faultKinds) - countedFaults]bool{s.BOM, s.UTF8 != nil && !*s.UTF8, s.Groups == 0} {
		a.faults[countedFaults+i].sites += survey.One(is)
	}
}

// tables adds the tables to a survey. all is any of its summaries.
func (a *answerTables) tables(s *Survey, all *summary.Summary, networks *cells[network]) {
	findings := s.add("findings", []string{"finding", "sites", "share"}, nil)
	for _, c := range all.Findings {
		findings.Rows = append(findings.Rows, []any{c.Value, c.Rows, survey.Share(c.Rows, all.Rows)})
	}
	byRank(s, "outcomes-by-rank", "outcome", a.outcomes, &a.ranked, func(k key) any { return k.a })
	byRank(s, "status-by-rank", "status", a.statuses, &a.rankedAnswered, func(k key) any { return int64(k.m) })
	a.sizeTables(s, networks)
	a.checkTables(s, all)
	a.faultTable(s, all.Rules)
	a.adviceTable(s, all)
}

// byRank adds a table of sites by rank and another value.
func byRank(s *Survey, query, column string, counts *cells[int64], ranked *[stats.LastBucket + 2]int64,
	value func(k key) any) {
	rows := sorted(counts.rows(func(k key, sites int64) []any {
		bucket := int64(k.n)
		return []any{bucket, value(k), sites, survey.Share(sites, ranked[bucket])}
	}), 0, ^2, 1)
	for _, row := range rows {
		bucket := int(row[0].(int64))
		if row[0] = nil; bucket <= stats.LastBucket {
			row[0] = stats.RankLimit(bucket)
		}
	}
	s.add(query, []string{"ranks_to", column, "sites", "share"}, rows).Note = counts.note("pairs of a rank and " + column)
}

func (a *answerTables) sizeTables(s *Survey, networks *cells[network]) {
	sites := int64(0)
	for _, size := range a.sizes {
		sites += size.sites
	}
	sizes := s.add("sizes", []string{"size", "sites", "share", "bytes"}, nil)
	for i, size := range a.sizes {
		if size.sites > 0 {
			sizes.Rows = append(sizes.Rows, []any{sizeClasses[i].name, size.sites, survey.Share(size.sites, sites), size.bytes})
		}
	}
	bins := s.add("histograms", []string{"kind", "from", "to", "sites"}, nil)
	add := func(kind string, at, perDoubling int, sites int64) {
		if sites > 0 {
			bins.Rows = append(bins.Rows, []any{kind, math.Exp2(float64(at) / float64(perDoubling)),
				math.Exp2(float64(at+1) / float64(perDoubling)), sites})
		}
	}
	for at, sites := range a.bytes {
		add("body_bytes", at, 1, sites)
	}
	millis := map[int]int64{}
	for n := range networks.each() {
		for at, sites := range n.total.HalfDoublings() {
			millis[at] += sites
		}
	}
	for _, at := range slices.Sorted(maps.Keys(millis)) {
		add("total_ms", at, 2, millis[at])
	}
}

func (a *answerTables) checkTables(s *Survey, all *summary.Summary) {
	s.add("scores", []string{"score", "check_status", "sites", "share"},
		sorted(a.scores.rows(func(k key, sites int64) []any {
			return []any{k.n, k.a, sites, survey.Share(sites, all.Asked)}
		}), 0, 1)).Note = a.scores.note("scores")
	s.add("steps", []string{"step", "status", "sites"}, sorted(a.steps.rows(func(k key, sites int64) []any {
		return []any{k.a, k.b, sites}
	}), 0, 1)).Note = a.steps.note("statuses")
}

func (a *answerTables) faultTable(s *Survey, rules int64) {
	rows := [][]any{}
	for i, f := range a.faults {
		var lines any = f.lines
		if i >= countedFaults || rules == 0 {
			lines = nil
		}
		rows = append(rows, []any{faultKinds[i], f.sites, shareOrNil(f.sites, rules), lines})
	}
	s.add("syntax", []string{"kind", "sites", "share", "lines"}, sorted(rows, ^1, 0))
}

func (a *answerTables) adviceTable(s *Survey, all *summary.Summary) {
	rows := [][]any{}
	for _, to := range a.advice {
		if to.sites > 0 {
			rows = append(rows, []any{to.id, to.sites, shareOrNil(to.sites, all.Answered), to.origin})
		}
	}
	s.add("advice", []string{"advice", "sites", "share", "example"}, sorted(rows, ^1, 0)).Note = a.adviceIDs.note("ids")
}

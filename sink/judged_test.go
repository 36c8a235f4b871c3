package sink

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/siterows"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// onlyFacts is a row without what is judged; onlyJudged has nothing else.
func onlyFacts(row schema.SiteRow) schema.SiteRow { return withoutColumns(row, true) }

func onlyJudged(row schema.SiteRow) schema.SiteRow { return withoutColumns(row, false) }

func withoutColumns(row schema.SiteRow, judged bool) schema.SiteRow {
	value := reflect.ValueOf(&row).Elem()
	for i := range value.NumField() {
		if (value.Type().Field(i).Tag.Get("judged") != "") == judged {
			value.Field(i).SetZero()
		}
	}
	return row
}

// TestJudgedColumns shows that a judgement sets exactly the columns that say so, whatever they held.
func TestJudgedColumns(t *testing.T) {
	s := typicalSite(t, 1)
	s.Report = audit.Report{}
	c := siterows.New("s", tokens.Default())
	for i, before := range hardRows[schema.SiteRow](40) {
		got := before
		c.Judge(&got, &s.Report)
		if !reflect.DeepEqual(onlyFacts(got), onlyFacts(before)) {
			t.Fatalf("row %d: a fact has changed", i)
		}
		var nothing schema.SiteRow
		c.Judge(&nothing, &s.Report)
		if !reflect.DeepEqual(onlyJudged(got), onlyJudged(nothing)) {
			t.Fatalf("row %d: what was judged before shows\n%+v\n%+v", i, onlyJudged(got), onlyJudged(nothing))
		}
	}
}

// TestBodiesOfParts shows that a part has each distinct body of its sites once, in the order in which the sites came,
// as it was kept; and that HTML, bodies without a record and empty ones are in no part.
func TestBodiesOfParts(t *testing.T) {
	sites := judgedSites(t, 300)
	dir := newDir(t)
	if err := finish(mustOpen(t, dir, Options{ScanID: "stored", PartRows: 40}), sites); err != nil {
		t.Fatal(err)
	}
	source := mustReadScan(t, dir, "stored")
	next, truncated, dropped, repeated := 0, 0, map[string]int{}, 0
	for i := range source.Commits {
		c := &source.Commits[i]
		var want []schema.BodyRow
		seen := map[uint64]bool{}
		for _, s := range sites[next : next+int(c.Rows)] {
			body, hash := s.Fetch.Body, s.Report.BodyHash
			switch {
			case len(body) == 0:
				dropped["empty"]++
			case s.Report.IsHTML:
				dropped["html"]++
			case s.Report.Counts.Records == 0:
				dropped["no records"]++
			case seen[hash]:
				repeated++
			default:
				seen[hash] = true
				want = append(want, schema.BodyRow{BodyHash: int64(hash), Body: body})
				if s.Fetch.Truncated {
					truncated++
				}
			}
			if len(body) > 0 && hash != xxhash.Sum64(body) || len(body) == 0 && hash != 0 {
				t.Errorf("seq %d: hash %x", s.Seq, hash)
			}
		}
		next += int(c.Rows)
		var got []schema.BodyRow
		for row, err := range read.CommitRows[schema.BodyRow](t.Context(), source, c, schema.Bodies, 0, math.MaxInt64) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, *row)
		}
		if !slices.EqualFunc(got, want, func(a, b schema.BodyRow) bool {
			return a.BodyHash == b.BodyHash &&
				string(a.Body) == string(b.Body)
		}) {
			t.Errorf("part %d has %d bodies, want %d, or others", i, len(got), len(want))
		}
	}
	if next != len(sites) || truncated == 0 || repeated == 0 || len(dropped) != 3 {
		t.Errorf("the test looks at too little: %d sites, %d truncated, %d repeated, %v", next, truncated, repeated, dropped)
	}
}

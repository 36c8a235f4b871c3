package reaudit

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
)

// This file counts in what the rows of a site differ from the stored ones, and prints the counts.

// The words by which changes are counted. Any other word of a stored row counts as otherWord, which bounds the number
// of counts.
var (
	checkWords    = []string{audit.Pass.String(), audit.Warn.String(), audit.Fail.String()}
	decisionWords = []string{audit.Allowed.String(), audit.Partial.String(), audit.Blocked.String()}
	kindWords     = func() (words []string) {
		for k := range audit.NumKinds {
			words = append(words, k.String())
		}
		return words
	}()
)

const otherWord = "other"

func word(s string, words []string) string {
	if i := slices.Index(words, s); i >= 0 {
		return words[i] // s shares memory with a page
	}
	return otherWord
}

func change(was, is string, words []string) string {
	return word(was, words) + " to " + word(is, words)
}

// differences counts differences of the sites of one part.
type differences struct {
	came    *commit.Rejudged
	columns []judgedColumn
}

// judgedColumn is a column of sites that is judged, by its index in the row.
type judgedColumn struct {
	name  string
	index int
}

// newDifferences returns an empty count for a part of a schema version. The version of the registry is not counted,
// since it is a cause. Columns that the part cannot have are not counted either.
func newDifferences(came *commit.Rejudged, version int) *differences {
	d := &differences{came: came}
	row := reflect.TypeFor[schema.SiteRow]()
	for i := range row.NumField() {
		name := schema.ColumnName(row.Field(i))
		since, _ := strconv.Atoi(row.Field(i).Tag.Get("since")) // 0: since the first
		if row.Field(i).Tag.Get("judged") != "" && name != "registry_version" && since <= version {
			d.columns = append(d.columns, judgedColumn{name, i})
		}
	}
	return d
}

// count counts a site that was judged. It returns a table in copied whose rows differ, or are in another order; "" if
// there is none.
func (d *differences) count(was, is *siterows.Rows, site *audit.Site, copied map[string]bool) (table string) {
	came, differs := d.came, false
	if len(site.Fetch.Body) > 0 {
		came.Bodies++
	} else {
		came.Answers++
	}
	a, b := reflect.ValueOf(&was.Site).Elem(), reflect.ValueOf(&is.Site).Elem()
	for _, c := range d.columns {
		if !sameValue(a.Field(c.index), b.Field(c.index)) {
			came.Columns[c.name]++
			differs = true
		}
	}
	if was.Site.CheckStatus != is.Site.CheckStatus {
		came.Checks[change(was.Site.CheckStatus, is.Site.CheckStatus, checkWords)]++
	}
	sameSite := !differs && was.Site.RegistryVersion == is.Site.RegistryVersion
	sameVerdicts := compare(was.Verdicts, is.Verdicts, func(v *schema.VerdictRow) string { return v.Token }, sameVerdict,
		func(was, is *schema.VerdictRow) {
			differs = true
			came.Verdicts = came.Verdicts.And(difference(was != nil, is != nil))
			if was != nil && is != nil && was.Verdict != is.Verdict {
				came.Decisions[change(was.Verdict, is.Verdict, decisionWords)]++
			}
		})
	itself := func(e *schema.EvidenceRow) schema.EvidenceRow { return *e }
	equal := func(a, b *schema.EvidenceRow) bool { return *a == *b }
	sameEvidence := compare(was.Evidence, is.Evidence, itself, equal, func(was, is *schema.EvidenceRow) {
		differs = true
		one, row := difference(was != nil, is != nil), is
		if row == nil {
			row = was
		}
		came.Evidence = came.Evidence.And(one)
		kind := word(row.Kind, kindWords)
		came.Kinds[kind] = came.Kinds[kind].And(one)
	})
	if differs {
		came.Sites++
	}
	switch {
	case copied[schema.Sites] && !sameSite:
		return schema.Sites
	case copied[schema.Verdicts] && !sameVerdicts:
		return schema.Verdicts
	case copied[schema.Evidence] && !sameEvidence:
		return schema.Evidence
	}
	return ""
}

// printed are the columns that fingerprint covers: the inputs of a judgement beside the body, and its results.
var (
	printedSites = fieldsOf[schema.SiteRow](func(name string, judged bool) bool {
		return judged || slices.Contains(factsToJudge, name)
	})
	printedVerdicts = fieldsOf[schema.VerdictRow](judgedInRow)
	printedEvidence = fieldsOf[schema.EvidenceRow](judgedInRow)
)

func judgedInRow(name string, _ bool) bool {
	return !slices.Contains(siterows.Shared, name)
}

func fieldsOf[T any](wanted func(name string, judged bool) bool) (fields []int) {
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		if f := row.Field(i); wanted(schema.ColumnName(f), f.Tag.Get("judged") != "") {
			fields = append(fields, i)
		}
	}
	return fields
}

var printSeed = maphash.MakeSeed()

// fingerprint hashes the rows of a site, except what differs between sites of the same answer. It is not 0. b is
// memory that it may use.
func fingerprint(rows *siterows.Rows, b []byte) (uint64, []byte) {
	b = appendFields(b[:0], reflect.ValueOf(&rows.Site).Elem(), printedSites)
	b = appendNumber(b, len(rows.Verdicts))
	for i := range rows.Verdicts {
		b = appendFields(b, reflect.ValueOf(&rows.Verdicts[i]).Elem(), printedVerdicts)
	}
	for i := range rows.Evidence {
		b = appendFields(b, reflect.ValueOf(&rows.Evidence[i]).Elem(), printedEvidence)
	}
	return max(maphash.Bytes(printSeed, b), 1), b
}

// appendFields appends the values of some columns. Different values give different bytes.
func appendFields(b []byte, row reflect.Value, fields []int) []byte {
	for _, i := range fields {
		v := row.Field(i)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				b = append(b, 0)
				continue
			}
			b, v = append(b, 1), v.Elem()
		}
		switch v.Kind() {
		case reflect.Bool:
			b = strconv.AppendBool(b, v.Bool())
		case reflect.Int32, reflect.Int64:
			b = appendNumber(b, int(v.Int()))
		case reflect.Float64:
			b = appendNumber(b, int(math.Float64bits(v.Float())))
		case reflect.Slice:
			list := *v.Addr().Interface().(*[]string)
			b = appendNumber(b, len(list))
			for _, text := range list {
				b = append(appendNumber(b, len(text)), text...)
			}
		default:
			b = append(appendNumber(b, v.Len()), v.String()...) // Len panics if it is no text
		}
	}
	return b
}

func appendNumber(b []byte, n int) []byte { return binary.AppendVarint(b, int64(n)) }

// difference is one row that changed, appeared or vanished.
func difference(was, is bool) commit.Difference {
	switch {
	case was && is:
		return commit.Difference{Changed: 1}
	case is:
		return commit.Difference{Appeared: 1}
	}
	return commit.Difference{Vanished: 1}
}

// compare pairs rows of the same key, and calls f for each pair that is not equal, and for each row without a pair:
// then one of its arguments is nil. It reports whether the rows are the same, in the same order.
func compare[R any, K comparable](was, is []R, key func(*R) K, equal func(a, b *R) bool,
	f func(was, is *R)) (same bool) {
	same = true
	pair := func(a, b *R) {
		if !equal(a, b) {
			same = false
			f(a, b)
		}
	}
	for len(was) > 0 && len(is) > 0 && key(&was[0]) == key(&is[0]) {
		pair(&was[0], &is[0])
		was, is = was[1:], is[1:]
	}
	if len(was)+len(is) == 0 {
		return same
	}
	unpaired := map[K][]*R{}
	for i := range was {
		k := key(&was[i])
		unpaired[k] = append(unpaired[k], &was[i])
	}
	for i := range is {
		k := key(&is[i])
		if left := unpaired[k]; len(left) > 0 {
			unpaired[k] = left[1:]
			pair(left[0], &is[i])
		} else {
			f(nil, &is[i])
		}
	}
	for _, left := range unpaired {
		for _, row := range left {
			f(row, nil)
		}
	}
	return false
}

// sameValue compares two values of a column.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || sameValue(a.Elem(), b.Elem()))
	case reflect.Slice:
		return slices.Equal(*a.Addr().Interface().(*[]string), *b.Addr().Interface().(*[]string))
	}
	return a.Equal(b)
}

func sameVerdict(was, is *schema.VerdictRow) bool {
	a, b := *was, *is
	same := equalOrNil(a.CrawlDelay, b.CrawlDelay) && equalOrNil(a.VisitFrom, b.VisitFrom) &&
		equalOrNil(a.VisitTo, b.VisitTo)
	a.CrawlDelay, a.VisitFrom, a.VisitTo = nil, nil, nil
	b.CrawlDelay, b.VisitFrom, b.VisitTo = nil, nil, nil
	return same && a == b
}

func equalOrNil[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// Print prints the result of judging a scan again, in some lines.
func Print(w io.Writer, r *commit.Rejudged, scanID string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "scan %s: %d sites judged again, %d of them by a stored body\n", scanID, r.Judged(), r.Bodies)
	if n := r.Stayed(); n > 0 {
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(r.Carried)) {
			why = append(why, fmt.Sprintf("%s %d", printable.Clip(reason, maxWord), r.Carried[reason]))
		}
		fmt.Fprintf(&b, "  %d keep the judgement that they had: %s\n", n, strings.Join(why, ", "))
	}
	if r.Other > 0 {
		fmt.Fprintf(&b,
			"  %d of these have groups, and were judged by another registry: tokens that it did not have were not looked for there\n", r.Other)
	}
	if r.Sites == 0 {
		b.WriteString("  no differences\n")
	} else {
		fmt.Fprintf(&b, "  %d sites differ\n", r.Sites)
		for _, column := range schema.ColumnsOf(reflect.TypeFor[schema.SiteRow]()) {
			if n := r.Columns[column.Name]; n > 0 {
				fmt.Fprintf(&b, "    sites.%s: %d\n", column.Name, n)
			}
		}
		byKind(&b, "of check_status", r.Checks)
		d, e := r.Verdicts, r.Evidence
		fmt.Fprintf(&b, "    verdicts: %d rows changed, %d appeared, %d vanished\n", d.Changed, d.Appeared, d.Vanished)
		byKind(&b, "of verdict", r.Decisions)
		fmt.Fprintf(&b, "    evidence: %d rows appeared, %d vanished\n", e.Appeared, e.Vanished)
		for _, kind := range append(kindWords, otherWord) {
			if d := r.Kinds[kind]; d != (commit.Difference{}) {
				fmt.Fprintf(&b, "      %s: %d appeared, %d vanished\n", kind, d.Appeared, d.Vanished)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxWord bounds how much of a word of a commit is shown, in bytes. A commit may come from elsewhere.
const maxWord = 100

func byKind(b *strings.Builder, what string, kinds map[string]int64) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(b, "      %s, %s: %d\n", what, printable.Clip(kind, maxWord), kinds[kind])
	}
}

// Package compare answers one question: did the scan find what the web has? It compares a dataset with the truth file
// of a simulated web, row by row.
package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Result is what a comparison found.
type Result struct {
	Rows     int            // in the dataset
	Expected int            // in the truth file
	Twice    int            // further rows of an origin
	Missing  int            // origins without a row
	Unknown  int            // rows of origins that are not in the truth file
	Differ   int            // rows that differ in some column
	Late     int            // of them, time-outs of hosts that answer: the machine was too busy, or the time-out too short
	Columns  map[string]int // number of rows in which a column differs
	Examples []string       // the first differences, described
}

// OK reports whether every origin has exactly one row, and each row is true.
func (r *Result) OK() bool {
	return r.Rows == r.Expected && r.Twice+r.Missing+r.Unknown+r.Differ == 0
}

// Sentence says in one line whether the rows are true, and names the first that is not. Hosts that answered too late
// are counted apart.
func (r *Result) Sentence() string {
	sound := r.Rows == r.Expected && r.Twice+r.Missing+r.Unknown == 0
	switch {
	case r.OK():
		return "every row is what its host did"
	case sound && r.Differ == r.Late:
		return fmt.Sprintf("every row is what its host did, but for %d that answered too late on this busy machine", r.Late)
	}
	first, _, _ := strings.Cut(r.String(), "\n")
	return fmt.Sprintf("not every row is what its host did: %s. The first: %s", first, r.Examples[0])
}

// String describes the result in a few lines.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows of %d origins: %d twice, %d missing, %d unknown, %d differ from the truth", r.Rows,
		r.Expected, r.Twice, r.Missing, r.Unknown, r.Differ)
	for column, n := range r.Columns {
		fmt.Fprintf(&b, "\n  %s differs in %d rows", column, n)
	}
	for _, example := range r.Examples {
		fmt.Fprintf(&b, "\n  %s", example)
	}
	return b.String()
}

// maxExamples bounds the examples of a result.
const maxExamples = 20

// key is the stable key of a site.
type key struct {
	host      string
	port      int
	requested string
}

// site holds the compared columns of a row.
type site struct {
	Host        string  `parquet:"host"`
	Port        int32   `parquet:"port"`
	Requested   string  `parquet:"requested"`
	Origin      string  `parquet:"origin"`
	Outcome     string  `parquet:"outcome"`
	Status      *int32  `parquet:"status,optional"`
	Hops        int32   `parquet:"hops"`
	FinalURL    *string `parquet:"final_url,optional"`
	TLSVerified *bool   `parquet:"tls_verified,optional"`
	BodyBytes   int64   `parquet:"body_bytes"`
	Truncated   bool    `parquet:"truncated"`
	BodyHash    int64   `parquet:"body_hash"`
	Access      string  `parquet:"access"`
	Finding     string  `parquet:"finding"`
	Attempts    int32   `parquet:"attempts"`
}

// Compare compares a scan's committed rows with a truth file.
func Compare(ctx context.Context, scan *commit.Scan, truth io.Reader) (*Result, error) {
	expected, err := readTruth(truth)
	if err != nil {
		return nil, err
	}
	r := &Result{Expected: len(expected), Columns: map[string]int{}}
	seen := make(map[key]bool, len(expected))
	for row, err := range read.Rows[site](ctx, scan, schema.Sites) {
		if err != nil {
			return nil, err
		}
		r.Rows++
		k := key{row.Host, int(row.Port), row.Requested}
		want, known := expected[k]
		switch {
		case !known:
			r.Unknown++
			r.example("%v is in no list", k)
			continue
		case seen[k]:
			r.Twice++
			r.example("%v has two rows", k)
			continue
		}
		seen[k] = true
		r.compare(row, &want)
	}
	for k, want := range expected {
		if !seen[k] {
			r.Missing++
			r.example("%v (%s) has no row", k, want.Behaviour)
		}
	}
	return r, nil
}

func readTruth(in io.Reader) (map[key]simweb.Truth, error) {
	expected := map[key]simweb.Truth{}
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		var t simweb.Truth
		if err := json.Unmarshal(scanner.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("cannot read line %d of the truth: %w", n, err)
		}
		k := key{t.Host, t.Port, t.Requested}
		if _, again := expected[k]; !again { // the first entry of a key counts, as in a scan
			expected[k] = t
		}
	}
	return expected, scanner.Err()
}

// compare compares a row with the truth.
func (r *Result) compare(row *site, want *simweb.Truth) {
	var wrong []string
	check := func(column string, same bool, got, wanted any) {
		if !same {
			r.Columns[column]++
			wrong = append(wrong, fmt.Sprintf("%s is %v, not %v", column, got, wanted))
		}
	}
	status, expectedStatus := 0, 0
	if row.Status != nil {
		status = int(*row.Status)
	}
	if want.Status != nil {
		expectedStatus = *want.Status
	}
	check("outcome", slices.Contains(want.Outcomes, row.Outcome), row.Outcome, want.Outcomes)
	check("status", status == expectedStatus, status, expectedStatus)
	check("origin", row.Origin == want.Origin, row.Origin, want.Origin)
	check("body_bytes", row.BodyBytes == want.BodyBytes, row.BodyBytes, want.BodyBytes)
	check("body_hash", row.BodyHash == want.BodyHash, row.BodyHash, want.BodyHash)
	check("truncated", row.Truncated == want.Truncated, row.Truncated, want.Truncated)
	check("hops", int(row.Hops) == want.Hops, row.Hops, want.Hops)
	if row.Outcome == want.Outcome { // another right outcome may have other access and attempts
		check("access", row.Access == want.Access, row.Access, want.Access)
		check("finding", want.Finding == "" || row.Finding == want.Finding, row.Finding, want.Finding)
		if want.Attempts != nil {
			check("attempts", int(row.Attempts) == *want.Attempts, row.Attempts, *want.Attempts)
		}
	}
	if want.Status != nil { // scanners may differ in what they keep of a failed handshake
		check("tls_verified", same(row.TLSVerified, want.TLSVerified), show(row.TLSVerified), show(want.TLSVerified))
	}
	if len(wrong) > 0 {
		r.Differ++
		if want.Status != nil && slices.Contains(timeouts, row.Outcome) {
			r.Late++
		}
		r.example("%s (%s): %s", row.Host, want.Behaviour, strings.Join(wrong, "; "))
	}
}

// timeouts are the outcomes of hosts that did not answer in time, or whose name servers did not.
var timeouts = []string{exchange.Timeout.String(), exchange.ConnectTimeout.String(), exchange.DNSTimeout.String()}

func (r *Result) example(format string, args ...any) { addExample(&r.Examples, format, args...) }

// addExample adds a description, up to maxExamples.
func addExample(to *[]string, format string, args ...any) {
	if len(*to) < maxExamples {
		*to = append(*to, fmt.Sprintf(format, args...))
	}
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func show[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

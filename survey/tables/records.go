package tables

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// This file counts, for the report page, the records that are no rules of sites with rules: Content-Signal,
// Content-Usage, License and Crawl-delay.

const (
	maxKnown    = 1 << 15 // above the number of tokens that a registry may have
	maxHosts    = 1 << 15 // hosts of licences
	maxLicenses = 1 << 20 // distinct licences, of 8 bytes
	maxDelays   = 1 << 19 // distinct delays of all agents, before they are rounded
)

// recordTables counts records.
type recordTables struct {
	row struct { // of verdicts
		Delay  *float64 `parquet:"crawl_delay"`
		Signal string   `parquet:"content_signal"`
		Usage  string   `parquet:"content_usage"`
	}
	noEvidence bool

	signals, usages *cells[sitesOnce] // by scope and value
	hosts           *cells[hostLicenses]
	licenses        map[uint64]struct{} // hashes

	// known is for tokens of the registry and `*`, others for other agents.
	known, others *cells[delays]
	distinct      int
	rounded       bool // there were more than maxDelays
}

// sitesOnce counts sites, whose rows come one after another.
type sitesOnce struct {
	sites, last int64 // last is seq of the last site counted, + 1
}

func (c *sitesOnce) add(seq int64) {
	if c.last != seq+1 {
		c.sites, c.last = c.sites+1, seq+1
	}
}

type hostLicenses struct {
	sites, distinct int64
	example         string // the least
}

type delays struct {
	sites       int64
	least, most float64
	values      map[float64]int64
}

func newRecordTables() *recordTables {
	return &recordTables{
		signals: newCells[sitesOnce](survey.MaxValues), usages: newCells[sitesOnce](survey.MaxValues),
		hosts: newCells[hostLicenses](maxHosts), licenses: map[uint64]struct{}{},
		known: newCells[delays](maxKnown), others: newCells[delays](survey.MaxValues),
	}
}

// verdict counts the records of a group.
func (t *recordTables) verdict(r *summary.Columns, v *survey.Verdict) {
	if r.Finding != "rules" || v.Lenient || v.Via != "own" && v.Via != "star" {
		return
	}
	scope := "named"
	if v.Token == "*" {
		scope = "*"
	}
	if t.row.Signal != "" {
		for signal := range strings.SplitSeq(t.row.Signal, ", ") {
			t.signal(scope, signal, v.Seq)
		}
	}
	if t.row.Usage != "" {
		t.usages.at(key{a: scope, b: t.row.Usage}).add(v.Seq)
	}
	if t.row.Delay != nil {
		of := t.others
		if v.ID != survey.NoToken || v.Token == "*" {
			of = t.known
		}
		t.delay(of.at(key{a: v.Token}), *t.row.Delay)
	}
}

func (t *recordTables) signal(scope, signal string, seq int64) {
	if signal != "" {
		t.signals.at(key{a: scope, b: signal}).add(seq)
	}
}

// delay counts a delay. If there are too many distinct ones, further ones are rounded to two digits.
func (t *recordTables) delay(of *delays, v float64) {
	if v != v {
		return // NaN, which equals no key
	}
	if of.sites == 0 {
		of.least, of.most, of.values = v, v, map[float64]int64{}
	}
	of.sites++
	of.least, of.most = min(of.least, v), max(of.most, v)
	if _, known := of.values[v]; !known {
		if t.distinct == maxDelays {
			v, t.rounded = rounded(v), true
		} else {
			t.distinct++
		}
	}
	of.values[v]++
}

// rounded returns a number with two digits, one of a thousand.
func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(min(v, 1e9), 'e', 1, 64), 64)
	if v < 0.01 {
		return 0
	}
	return v
}

// quantile returns the delay of the site that stands at so many thousandths: a value that occurs, as quantile_disc has
// it.
func (d *delays) quantile(thousandths int64) float64 {
	rank := (d.sites*thousandths + 999) / 1000
	for _, v := range slices.Sorted(maps.Keys(d.values)) {
		if rank -= d.values[v]; rank <= 0 {
			return v
		}
	}
	return d.most
}

// urlHost is that of the views: the host of an absolute URL, in lower case.
var urlHost = regexp.MustCompile(`(?i)^[a-z]+://(?:[^/\\?#]*@)?(\[[^\]]*\]|[^/\\:?#]*)`)

func (t *recordTables) site(r *summary.Columns, s *surveyColumns) {
	if r.Finding != "rules" || s.License == "" {
		return
	}
	host := ""
	if parts := urlHost.FindStringSubmatch(s.License); parts != nil {
		host = strings.ToLower(parts[1])
	}
	of := t.hosts.at(key{a: host})
	if of.sites++; of.sites == 1 || s.License < of.example {
		of.example = strings.Clone(s.License)
	}
	hash := xxhash.Sum64String(s.License)
	if _, known := t.licenses[hash]; !known && len(t.licenses) < maxLicenses {
		t.licenses[hash] = struct{}{}
		of.distinct++
	}
}

// readEvidence counts the signals outside of groups, if the scan has evidence.
func (t *recordTables) readEvidence(ctx context.Context, scan *commit.Scan) error {
	if t.noEvidence = !scan.Has(schema.Evidence); t.noEvidence {
		return nil
	}
	var site, seq int64
	var group int32
	var finding, kind, value string
	sites := []table.Field{{Name: "seq", Into: &site}, {Name: "finding", Into: &finding}}
	fields := []table.Field{{Name: "seq", Into: &seq}, {Name: "group_line", Into: &group}, {Name: "kind", Into: &kind},
		{Name: "value", Into: &value}}
	blanks := strings.NewReplacer(" ", "", "\t", "")
	row := func() {
		if finding == "rules" && kind == "signal" && group == 0 && !strings.HasPrefix(value, "/") &&
			!strings.HasPrefix(value, "*") {
			// a value that begins with a path is for some paths only
			for signal := range strings.SplitSeq(strings.ToLower(blanks.Replace(value)), ",") {
				t.signal("file", signal, seq)
			}
		}
	}
	return survey.OpenBeside(ctx, scan, sites, schema.Evidence, fields, func(commit *commit.Commit, sites,
		evidence *table.Cursor) error {
		return survey.ReadBeside(commit, sites, &site, evidence, &seq, row, func() {})
	})
}

func (t *recordTables) tables(s *Survey) {
	bySites := func(counts *cells[sitesOnce]) [][]any {
		return sorted(counts.rows(func(k key, n sitesOnce) []any { return []any{k.a, k.b, n.sites} }), 0, ^2, 1)
	}
	signals := s.add("content-signals", []string{"scope", "signal", "sites"}, bySites(t.signals))
	signals.Note = t.signals.note("signals")
	if t.noEvidence {
		signals.Note = "without those outside of groups: the scan has no table evidence"
	}
	s.add("content-usage", []string{"scope", "content_usage", "sites"}, bySites(t.usages)).Note = t.usages.note("values")

	licenses := s.add("licenses", []string{"license_host", "sites", "licenses", "example"},
		firstRows(sorted(t.hosts.rows(func(k key, n hostLicenses) []any {
			return []any{k.a, n.sites, n.distinct, n.example}
		}), ^1, 0)))
	if licenses.Note = t.hosts.note("hosts"); len(t.licenses) == maxLicenses {
		licenses.Note = fmt.Sprintf("licences are of the first %d", maxLicenses)
	}

	row := func(k key, d delays) []any {
		return []any{k.a, d.sites, d.least, d.quantile(500), d.quantile(900), d.most}
	}
	agents := s.add("crawl-delay", []string{"token", "sites", "least", "median", "p90", "most"},
		firstRows(sorted(append(t.known.rows(row), t.others.rows(row)...), ^1, 0)))
	if agents.Note = t.others.note("agents that the registry does not have"); t.rounded {
		agents.Note = "median and p90 of some have two digits: there are too many distinct delays"
	}
}

// firstRows are the rows that a query with a LIMIT returns.
func firstRows(rows [][]any) [][]any { return rows[:min(len(rows), topShown)] }

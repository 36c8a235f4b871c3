// Package summary answers one question: what are the headline figures of a scan? It counts all commits, complete or
// not, and does not use token_stats: that table may be missing, outdated or of another registry. It makes one pass over
// Columns of sites. Where the scan has verdicts, it reads the columns for lenient names together with them. blocking.go
// counts tokens, sensitivity.go one token's share by other choices, and ending.go says how a run ended. The memory is
// bounded, however many sites there are; sensitivity.go says which it needs.
package summary

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// Summary is the headline figures of a scan. Programs rely on its JSON; docs/FIELDS.md describes each field.
type Summary struct {
	ScanID          string      `json:"scan_id" about:"scan"`
	ScanDate        string      `json:"scan_date" about:"YYYY-MM-DD"`
	State           string      `json:"state" about:"complete or running"`
	Publication     string      `json:"publication" about:"of a complete scan: published, pending (scan --no-publish), empty, held or discarded; else empty"`
	StartedAt       time.Time   `json:"started_at" about:"RFC 3339"`
	FinishedAt      *time.Time  `json:"finished_at" about:"RFC 3339; null while incomplete"`
	ListRead        *int64      `json:"list_lines_read" about:"while incomplete: lines of the list that are done"`
	SchemaVersion   int         `json:"schema_version" about:"of tables"`
	ToolVersion     string      `json:"tool_version" about:"last writer"`
	RegistryVersion string      `json:"registry_version" about:"token registry"`
	Observer        string      `json:"observer" about:"who made the requests, and how"`
	ListID          string      `json:"list_id" about:"--list-id"`
	OtherScans      []OtherScan `json:"other_scans" about:"scans that are not counted, by start"`
	survey.Uncertainty

	Unit     []string `json:"unit" about:"ids of the published scans of its date, observer and list, by start; the figures count each site of them once"`
	Alone    bool     `json:"alone" about:"the figures are of scan_id alone (--scan-id)"`
	Replaced int64    `json:"replaced" about:"rows that are not counted, since another row counts for their site"`

	Lost    []commit.Total   `json:"lost" about:"totals that the commits do not reach"`
	LeftOut survey.Omissions `json:"left_out" about:"what --skip-damaged left out"`

	Rows       int64 `json:"rows" about:"listed"`
	Asked      int64 `json:"asked" about:"access is not unknown"`
	Answered   int64 `json:"answered" about:"status is not null, even if the exchange failed later"`
	WithFile   int64 `json:"conditional" about:"sites with a file: access is conditional"`
	Rules      int64 `json:"rules" about:"sites with rules: finding is rules"`
	Redirected int64 `json:"redirected" about:"asked, hops > 0"`
	HTML       int64 `json:"html" about:"is_html"`
	Truncated  int64 `json:"truncated" about:"truncated"`
	Managed    int64 `json:"managed_block" about:"managed_block"`

	Blocking Blocking `json:"blocking" about:"selected tokens"`

	Findings      []survey.Count `json:"findings" about:"of rows"`
	Outcomes      []survey.Count `json:"outcomes" about:"of rows"`
	StatusClasses []survey.Count `json:"status_classes" about:"of answered rows"`
	Statuses      []survey.Count `json:"statuses" about:"of answered rows"`
	Access        []survey.Count `json:"access" about:"of rows"`
	Checks        []survey.Count `json:"check_status" about:"of asked rows"`
	MeanScore     *float64       `json:"mean_score" about:"of asked rows; null without any"`
	Scores        []Bin          `json:"scores" about:"ten bins of asked rows"`

	MedianMillis *float64 `json:"median_ms" about:"total_ms of answered rows, within 2 %; null without any"`
	P99Millis    *float64 `json:"p99_ms" about:"99th percentile of total_ms, within 2 %; null without any"`

	BodyBytes    int64 `json:"body_bytes" about:"decoded, kept"`
	DatasetBytes int64 `json:"dataset_bytes" about:"parts without statistics"`
	Parts        int   `json:"parts" about:"parts"`

	PartRows    *int64   `json:"part_rows" about:"while incomplete: number of sites at which the open part is committed"`
	PartSeconds *float64 `json:"part_seconds" about:"while incomplete: or seconds after its first site"`
}

// shownScans is how many scans of a unit are named, the last ones.
const shownScans = 3

// Counted says which scans the figures are of, and how many rows were replaced; "" if each site of one scan has one
// row.
func (s *Summary) Counted() string {
	names := s.Unit[max(0, len(s.Unit)-shownScans):]
	scans := fmt.Sprintf("scans of this date, observer and list (%s)", strings.Join(names, ", "))
	if more := len(s.Unit) - len(names); more > 0 {
		scans = strings.Replace(scans, "(", fmt.Sprintf("(%d more, ", more), 1)
	}
	replaced := fmt.Sprintf(
		"each site once; rows replaced: %s (of a site the last observation counts, else the last failure; of captures those by https)", printable.Number(s.Replaced))
	switch {
	case s.Alone:
		return fmt.Sprintf("scan %s alone, one of %d %s; without --scan-id each site of them counts once", s.ScanID,
			len(s.Unit), scans)
	case len(s.Unit) > 1:
		return fmt.Sprintf("%d %s, %s", len(s.Unit), scans, replaced)
	case s.Replaced > 0:
		return replaced
	}
	return ""
}

// OtherScan is another scan of the same dataset.
type OtherScan struct {
	ScanID   string `json:"scan_id" about:"scan"`
	ScanDate string `json:"scan_date" about:"YYYY-MM-DD"`
	State    string `json:"state" about:"complete or running"`
	Observer string `json:"observer" about:"who made the requests, and how"`
}

// Bin is how many rows have a value from From to below To. The last bin includes To.
type Bin struct {
	From float64 `json:"from" about:"lowest score"`
	To   float64 `json:"to" about:"score below which it ends; the last has this score, too"`
	Rows int64   `json:"rows" about:"rows"`
}

// Complete reports whether the scan is finished.
func (s *Summary) Complete() bool { return s.State == string(commit.Complete) }

// Columns are the columns of sites that a summary counts. Texts are valid until the next row.
type Columns struct {
	Seq         int64   // set only if verdicts are read together with sites
	PolicyID    int64   `parquet:"policy_id"`
	Outcome     string  `parquet:"outcome"`
	Status      int32   `parquet:"status"`
	Hops        int32   `parquet:"hops"`
	TotalMillis float32 `parquet:"total_ms"`
	BodyBytes   int64   `parquet:"body_bytes"`
	Truncated   bool    `parquet:"truncated"`
	Access      string  `parquet:"access"`
	CheckStatus string  `parquet:"check_status"`
	Score       float64 `parquet:"score"`
	Finding     string  `parquet:"finding"`
	IsHTML      bool    `parquet:"is_html"`
	Managed     bool    `parquet:"managed_block"`
}

// lenientColumns are the columns of verdicts that lenient names need.
var lenientColumns = table.Some("seq", "token", "known", "lenient")

// Options are the options of Of.
type Options struct {
	survey.Options
	Definition string // one of DefinitionNames; "" is Full
	Selection  survey.Selection
	Top        int // tokens listed at most; 0 is all
}

// Of reads the committed parts of a scan, complete or not. It takes no lock and writes nothing. If the scan
// lacks the table sites or policies, the error is commit.ErrNoTable.
func Of(ctx context.Context, st store.Store, scanID string, o Options) (*Summary, error) {
	o.Options = o.WithDefaults()
	definition, ok := survey.DefinitionNamed(cmp.Or(o.Definition, survey.Full))
	if !ok {
		return nil, fmt.Errorf("cannot summarize by %.40q: the definitions are %s", o.Definition,
			strings.Join(survey.DefinitionNames(), ", "))
	}
	scan, err := o.Open(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	policies, err := survey.ReadPolicies(ctx, scan, o.Registry)
	if err == nil {
		var all []*Summary
		if all, _, err = ByDefinitions(ctx, scan, &o, policies, []survey.Definition{definition}, Further{}); err == nil {
			return all[0], nil
		}
	}
	return nil, fmt.Errorf("cannot summarize scan %s: %w", scanID, err)
}

// ByDefinitions returns a summary by each of the definitions, and the sites by policy, all from the same pass, which
// also counts what is further. The options have their defaults.
func ByDefinitions(ctx context.Context, scan *commit.Scan, o *Options, policies *survey.Policies,
	definitions []survey.Definition, also Further) ([]*Summary, survey.SitesByPolicy, error) {
	o.Selection.Tokens = append([]string{}, o.Only...)
	s, err := summaryOf(scan)
	if err != nil {
		return nil, nil, err
	}
	if !scan.Has(schema.Sites) {
		return nil, nil, fmt.Errorf("table %s: %w", schema.Sites, commit.ErrNoTable)
	}
	foreign := o.Foreign(scan, "tokens that only one of the two has are missing among those that are counted")
	g := newGatherer(s, policies, foreign, also)
	if err := g.read(ctx, scan); err != nil {
		return nil, nil, err
	}
	g.finish()
	s.LeftOut = o.Skip.Omissions()
	uncertainty, err := o.UncertaintyOf(scan.Read(), s.Rows)
	if err != nil {
		return nil, nil, err
	}
	var all []*Summary
	for i := range definitions {
		of := *s
		if of.Blocking, err = g.blocks.blocking(policies, &definitions[i], o.Selection, s, o.Top); err != nil {
			return nil, nil, err
		}
		if !scan.Has(schema.Verdicts) {
			of.Blocking.Lenient = nil
		}
		of.judge(&uncertainty, &definitions[i])
		all = append(all, &of)
	}
	return all, g.blocks.sites, nil
}

// summaryOf fills in what the scan's records say.
func summaryOf(scan *commit.Scan) (*Summary, error) {
	m := scan.Manifest
	s := &Summary{
		ScanID: m.ScanID, ScanDate: m.ScanDate, State: string(m.State), Publication: publicationOf(m), StartedAt: m.StartedAt,
		FinishedAt:    m.FinishedAt,
		SchemaVersion: m.SchemaVersion, ToolVersion: m.ToolVersion, RegistryVersion: m.RegistryVersion,
		Observer: m.Observer.String(), ListID: m.ListID, OtherScans: []OtherScan{}, Unit: []string{}, Lost: []commit.Total{},
		Parts: len(scan.Commits),
	}
	if lost := scan.Lost(); lost != nil {
		s.Lost = lost.Totals
	}
	s.Alone, s.Replaced = scan.Unit.Alone, scan.Unit.Replaced()
	s.Unit = append(s.Unit, survey.ScanIDs(scan.Unit.Scans)...)
	for _, c := range scan.Commits {
		for _, f := range c.Files {
			s.DatasetBytes += f.Bytes
		}
	}
	if s.Complete() {
		return s, nil
	}
	// The length of the list is known only at its end. Until then, its last finished line says how far it was read.
	lines := int64(0)
	for i := range scan.Commits {
		done, err := scan.Commits[i].Bitmap()
		if err != nil {
			return nil, err
		}
		if !done.IsEmpty() && done.Maximum() < math.MaxInt64 {
			lines = max(lines, int64(done.Maximum())+1)
		}
	}
	s.ListRead = &lines
	for _, setting := range m.Config {
		switch setting.Name {
		case "part-rows":
			if n, err := strconv.ParseInt(setting.Value, 10, 64); err == nil {
				s.PartRows = &n
			}
		case "part-age":
			if age, err := time.ParseDuration(setting.Value); err == nil {
				seconds := age.Seconds()
				s.PartSeconds = &seconds
			}
		}
	}
	return s, nil
}

// publicationOf says whether readers get a scan, "" for one that is not complete.
func publicationOf(m *commit.Manifest) string {
	if m.State != commit.Complete {
		return ""
	}
	return string(cmp.Or(m.Publication, commit.PublicationDone))
}

// Further is what a pass counts besides the summary. The zero value counts nothing.
type Further struct {
	Sites, Verdicts []table.Field // columns that this needs

	// Verdict is called for each row of verdicts, with its site, before that is counted; Site for each site.
	Verdict func(r *Columns, v *survey.Verdict)
	Site    func(r *Columns)
}

type gatherer struct {
	s        *Summary
	policies *survey.Policies
	columns  Columns
	further  Further
	blocks   blockCounts

	findings, outcomes, access, checks survey.Counts
	statuses                           [maxStatus + 1]int64 // the last is for invalid statuses
	scores                             [scoreBins]int64
	score                              int64 // the sum, in units of 1/scoreUnit
	latency                            survey.Histogram
}

const (
	maxStatus = 1000
	scoreBins = 10
	// Scores are added as whole numbers, so that the mean does not depend on the order of parts. Scores have few
	// digits, and the sum of nine thousand million fits.
	scoreUnit = 1e9
)

func newGatherer(s *Summary, policies *survey.Policies, foreign bool, also Further) *gatherer {
	return &gatherer{
		s: s, policies: policies, further: also, findings: survey.Counts{}, outcomes: survey.Counts{},
		access: survey.Counts{}, checks: survey.Counts{},
		blocks: blockCounts{sites: survey.SitesByPolicy{}, lenient: make([]int64, len(policies.Registry.Tokens)),
			traces: survey.NewTraces(policies.Registry, foreign)},
	}
}

// read reads each site of a scan, with its verdicts where the scan has them.
func (g *gatherer) read(ctx context.Context, scan *commit.Scan) error {
	registry := g.policies.Registry
	fields := slices.Concat(table.FieldsOf(&g.columns, false, nil), g.blocks.traces.Fields(registry), g.further.Sites)
	if !scan.Has(schema.Verdicts) {
		return survey.EachSite(ctx, scan, fields, g.row)
	}
	reader := survey.VerdictReader{Registry: registry, Each: g.verdict}
	columns := table.FieldsOf(&reader.Row, false, lenientColumns)
	if g.further.Verdict != nil {
		columns = append(table.FieldsOf(&reader.Row, false, nil), g.further.Verdicts...)
	}
	fields = append(fields, table.Field{Name: "seq", Into: &g.columns.Seq})
	return survey.OpenBeside(ctx, scan, fields, schema.Verdicts, columns, func(c *commit.Commit, sites,
		verdicts *table.Cursor) error {
		return reader.Read(c, sites, &g.columns.Seq, verdicts, g.row)
	})
}

// verdict counts a row of verdicts of the current site.
func (g *gatherer) verdict(v *survey.Verdict) {
	r := &g.columns
	if g.further.Verdict != nil {
		g.further.Verdict(r, v)
	}
	if v.Lenient && v.ID != survey.NoToken && r.Access == survey.Conditional {
		g.blocks.traces.Token(v.ID)
		g.blocks.lenient[v.ID] += survey.One(r.Finding == survey.FindingRules && !g.policies.Names(r.PolicyID, v.ID))
	}
}

func (g *gatherer) row() {
	s, r := g.s, &g.columns
	s.Rows++
	s.BodyBytes += r.BodyBytes
	g.outcomes.Add(r.Outcome)
	g.access.Add(r.Access)
	if r.Access != "unknown" {
		s.Asked++
		g.checks.Add(r.CheckStatus)
		g.rated(r.Score)
		s.Redirected += survey.One(r.Hops > 0) // rows without a request have no redirects that count
	}
	if r.Status != 0 {
		s.Answered++
		g.statuses[statusPlace(r.Status)]++
		g.latency.Add(float64(r.TotalMillis))
	}
	s.Truncated += survey.One(r.Truncated)
	s.HTML += survey.One(r.IsHTML)
	s.Managed += survey.One(r.Managed)
	rules := r.Finding == survey.FindingRules
	s.Rules += survey.One(rules)
	g.findings.Add(r.Finding)
	switch r.Access {
	case survey.Conditional:
		s.WithFile++
		g.blocks.traces.Site()
		g.blocks.sites.Add(r.PolicyID, survey.SiteOf(rules, r.Status != 0))
	case survey.FullDisallow:
		g.blocks.failing += survey.One(r.Status != 0)
	}
	if g.further.Site != nil {
		g.further.Site(r)
	}
}

// rated counts a valid score: any program may have written the dataset.
func (g *gatherer) rated(score float64) {
	if score >= 0 && score <= 1 {
		g.scores[min(int(score*scoreBins), scoreBins-1)]++
		g.score += int64(math.Round(score * scoreUnit))
	}
}

// statusPlace returns the index of a status.
func statusPlace(status int32) int {
	if status > 0 && status < maxStatus {
		return int(status)
	}
	return maxStatus
}

func (g *gatherer) finish() {
	s := g.s
	s.Findings = g.findings.Ordered()
	s.Outcomes, s.Access, s.Checks = g.outcomes.Ordered(), g.access.Ordered(), g.checks.Ordered()
	g.finishStatuses()
	rated := int64(0)
	for i, n := range g.scores {
		s.Scores = append(s.Scores, Bin{From: float64(i) / scoreBins, To: float64(i+1) / scoreBins, Rows: n})
		rated += n
	}
	if rated > 0 {
		mean := float64(g.score) / scoreUnit / float64(rated)
		s.MeanScore = &mean
	}
	if median, ok := g.latency.Quantile(0.5); ok {
		p99, _ := g.latency.Quantile(0.99)
		s.MedianMillis, s.P99Millis = &median, &p99
	}
}

// finishStatuses lists the statuses and their classes.
func (g *gatherer) finishStatuses() {
	statuses, classes := survey.Counts{}, survey.Counts{}
	for status, n := range g.statuses {
		if n == 0 {
			continue
		}
		name, class := strconv.Itoa(status), StatusClass(status)
		if status == maxStatus {
			name = survey.Other
		}
		statuses[name] += n
		classes[class] += n
	}
	g.s.Statuses, g.s.StatusClasses = statuses.Ordered(), classes.Ordered()
	slices.SortFunc(g.s.StatusClasses, func(a, b survey.Count) int { return cmp.Compare(a.Value, b.Value) })
}

// StatusClass returns the class of an HTTP status, `2xx` and so on, or `other`.
func StatusClass(status int) string {
	if status < 100 || status > 599 {
		return survey.Other
	}
	return strconv.Itoa(status/100) + "xx"
}

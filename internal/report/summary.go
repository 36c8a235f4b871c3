package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// Summary is a scan's headline figures. Shares are between 0 and 1, and say of what.
type Summary struct {
	ScanID          string     `json:"scan_id"`
	ScanDate        string     `json:"scan_date"`
	State           string     `json:"state"`
	StartedAt       time.Time  `json:"started_at"`
	FinishedAt      *time.Time `json:"finished_at,omitempty"`
	ToolVersion     string     `json:"tool_version"`
	RegistryVersion string     `json:"registry_version"`

	Rows       int64 `json:"rows"`
	Asked      int64 `json:"asked"`       // not opted out, not a refused address
	Answered   int64 `json:"answered"`    // with an HTTP status
	WithRules  int64 `json:"conditional"` // the rules decide: the sites below
	Redirected int64 `json:"redirected"`
	Truncated  int64 `json:"truncated"`
	HTML       int64 `json:"html"`
	Managed    int64 `json:"managed_block"`

	Outcomes    []Count `json:"outcomes"`
	Statuses    []Count `json:"statuses"`
	Access      []Count `json:"access"`
	Checks      []Count `json:"check_status"`
	MeanScore   float64 `json:"mean_score"`   // of rows asked
	NamesAI     int64   `json:"names_ai"`     // sites that name an AI token
	BlocksAI    int64   `json:"blocks_ai"`    // sites that block one, by name or by *
	BlocksAllAI int64   `json:"blocks_every"` // sites whose group * blocks whoever is not named

	MostBlocked []TokenCount `json:"most_blocked_ai"` // AI tokens, at most MostBlocked

	MedianMillis float64 `json:"median_ms"` // total_ms of answered rows, within 2 %
	P99Millis    float64 `json:"p99_ms"`

	BodyBytes    int64 `json:"body_bytes"`    // decoded
	DatasetBytes int64 `json:"dataset_bytes"` // of all committed files
	Parts        int   `json:"parts"`
}

// Count is how many rows have a value.
type Count struct {
	Value string `json:"value"`
	Rows  int64  `json:"rows"`
}

// TokenCount is how many sites, access conditional, name or block a token.
type TokenCount struct {
	Token    string  `json:"token"`
	Operator string  `json:"operator"`
	Purpose  string  `json:"purpose"`
	Named    int64   `json:"named"`
	Blocked  int64   `json:"blocked"`
	Partial  int64   `json:"partial"`
	Share    float64 `json:"blocked_share"` // of sites with access conditional
}

// MostBlocked bounds Summary.MostBlocked.
const MostBlocked = 20

// summaryColumns are the columns of sites that a summary needs.
type summaryColumns struct {
	Outcome     string
	Status      int32
	Hops        int32
	TotalMillis float32
	BodyBytes   int64
	Truncated   bool
	Access      string
	CheckStatus string
	Score       float64
	IsHTML      bool
	Managed     bool
	StarVerdict string
	Named       []int32 // registry indexes, noToken for others
	Blocked     []int32
	Partial     []int32
}

func (s *summaryColumns) fields(index func(token string) int32) []sink.Field {
	return []sink.Field{
		{Name: "outcome", Into: &s.Outcome},
		{Name: "status", Into: &s.Status},
		{Name: "hops", Into: &s.Hops},
		{Name: "total_ms", Into: &s.TotalMillis},
		{Name: "body_bytes", Into: &s.BodyBytes},
		{Name: "truncated", Into: &s.Truncated},
		{Name: "access", Into: &s.Access},
		{Name: "check_status", Into: &s.CheckStatus},
		{Name: "score", Into: &s.Score},
		{Name: "is_html", Into: &s.IsHTML},
		{Name: "managed_block", Into: &s.Managed},
		{Name: "star_verdict", Into: &s.StarVerdict},
		{Name: "named", Into: &s.Named, Index: index},
		{Name: "blocked", Into: &s.Blocked, Index: index},
		{Name: "partial", Into: &s.Partial, Index: index},
	}
}

// Summarize reads the committed parts of a scan, complete or not, in one pass.
func Summarize(ctx context.Context, st store.Store, scanID string, o Options) (*Summary, error) {
	o = o.withDefaults()
	scan, err := sink.ReadScan(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	m := scan.Manifest
	s := &Summary{
		ScanID: m.ScanID, ScanDate: m.ScanDate, State: string(m.State), StartedAt: m.StartedAt, FinishedAt: m.FinishedAt,
		ToolVersion: m.ToolVersion, RegistryVersion: m.RegistryVersion, Parts: len(scan.Commits),
	}
	for _, c := range scan.Commits {
		for _, f := range c.Files {
			s.DatasetBytes += f.Bytes
		}
	}
	if !scan.Has(sink.TableSites) {
		return nil, fmt.Errorf("cannot summarize scan %s: table %s: %w", scanID, sink.TableSites, sink.ErrNoTable)
	}
	o.foreign(m, "tokens that only one of the two has are missing among the AI crawlers")
	g := newGatherer(s, o.Registry)
	row, index := summaryColumns{}, newTokenIndex(o.Registry).index
	for rows, err := range sink.Cursors(ctx, scan, sink.TableSites, row.fields(index)...) {
		if err == nil {
			err = eachOf(rows, func() { g.row(&row) })
		}
		if err != nil {
			return nil, fmt.Errorf("cannot summarize scan %s: %w", scanID, err)
		}
	}
	g.finish()
	return s, nil
}

// gatherer makes a Summary row by row.
type gatherer struct {
	s                                  *Summary
	outcomes, statuses, access, checks map[string]int64
	score                              float64
	latency                            histogram
	ai                                 []*TokenCount // by registry index; nil for other tokens
}

func newGatherer(s *Summary, registry *tokens.Registry) *gatherer {
	g := &gatherer{
		s: s, outcomes: map[string]int64{}, statuses: map[string]int64{}, access: map[string]int64{}, checks: map[string]int64{},
		ai: make([]*TokenCount, len(registry.Tokens)),
	}
	for i, t := range registry.Tokens {
		if t.Category == "ai" {
			g.ai[i] = &TokenCount{Token: t.Name, Operator: t.Operator, Purpose: t.Purpose}
		}
	}
	return g
}

func (g *gatherer) row(r *summaryColumns) {
	s := g.s
	s.Rows++
	s.BodyBytes += r.BodyBytes
	count(g.outcomes, r.Outcome)
	count(g.access, r.Access)
	if r.Access != "unknown" {
		s.Asked++
		if r.Score >= 0 && r.Score <= 1 { // no other sum can be written as JSON, if the dataset is not ours
			g.score += r.Score
		}
		count(g.checks, r.CheckStatus)
	}
	if r.Status != 0 {
		s.Answered++
		count(g.statuses, strconv.Itoa(int(r.Status)))
		g.latency.add(float64(r.TotalMillis))
	}
	s.Redirected += one(r.Hops > 0)
	s.Truncated += one(r.Truncated)
	s.HTML += one(r.IsHTML)
	s.Managed += one(r.Managed)
	if r.Access == "conditional" {
		g.rules(r)
	}
}

// rules counts what a site says of AI tokens.
func (g *gatherer) rules(r *summaryColumns) {
	s := g.s
	s.WithRules++
	s.BlocksAllAI += one(r.StarVerdict == "blocked")
	s.NamesAI += one(g.each(r.Named, func(t *TokenCount) { t.Named++ }))
	s.BlocksAI += one(g.each(r.Blocked, func(t *TokenCount) { t.Blocked++ }))
	g.each(r.Partial, func(t *TokenCount) { t.Partial++ })
}

// each calls f for the AI tokens of a list, and reports whether there was one.
func (g *gatherer) each(ids []int32, f func(*TokenCount)) bool {
	found := false
	for _, id := range ids {
		if id == noToken || g.ai[id] == nil {
			continue
		}
		f(g.ai[id])
		found = true
	}
	return found
}

func (g *gatherer) finish() {
	s := g.s
	s.Outcomes, s.Statuses, s.Access, s.Checks = ordered(g.outcomes), ordered(g.statuses), ordered(g.access), ordered(g.checks)
	s.MeanScore = share(g.score, float64(s.Asked))
	s.MedianMillis, s.P99Millis = g.latency.quantile(0.5), g.latency.quantile(0.99)
	for _, t := range g.ai {
		if t != nil && t.Blocked > 0 {
			t.Share = share(float64(t.Blocked), float64(s.WithRules))
			s.MostBlocked = append(s.MostBlocked, *t)
		}
	}
	slices.SortFunc(s.MostBlocked, func(a, b TokenCount) int {
		return cmp.Or(cmp.Compare(b.Blocked, a.Blocked), cmp.Compare(b.Named, a.Named), cmp.Compare(a.Token, b.Token))
	})
	s.MostBlocked = s.MostBlocked[:min(len(s.MostBlocked), MostBlocked)]
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// maxValues bounds the values that are told apart: our own are a few dozen, but a dataset is a file like any other.
const maxValues = 2000

// other is where further values are counted.
const other = "other"

func count(counts map[string]int64, value string) {
	if _, ok := counts[value]; !ok {
		if value = strings.Clone(value); len(counts) >= maxValues {
			value = other
		}
	}
	counts[value]++
}

// ordered lists counts, the greatest first.
func ordered(counts map[string]int64) []Count {
	list := make([]Count, 0, len(counts))
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, Count{value, counts[value]})
	}
	slices.SortStableFunc(list, func(a, b Count) int { return cmp.Compare(b.Rows, a.Rows) })
	return list
}

// histogram counts milliseconds in buckets that grow by 2^(1/32), so that a quantile is right within 2 %.
type histogram struct {
	counts [2048]int64
	total  int64
}

const (
	bucketsPerDoubling = 32
	bucketOfOne        = 640 // 1 ms; the first bucket is about a nanosecond, the last more than a century
)

func (h *histogram) add(v float64) {
	if !(v > 0) {
		return
	}
	bucket := math.Floor(math.Log2(v)*bucketsPerDoubling) + bucketOfOne
	h.counts[int(max(0, min(bucket, float64(len(h.counts)-1))))]++
	h.total++
}

// quantile returns the value below which the share q of all lies: the middle of its bucket; 0 where there are none.
func (h *histogram) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.total)))
	for bucket, n := range h.counts {
		if rank -= n; n > 0 && rank <= 0 {
			return math.Exp2((float64(bucket-bucketOfOne) + 0.5) / bucketsPerDoubling)
		}
	}
	return 0
}

// Print writes the summary as aligned tables for a terminal.
func (s *Summary) Print(w io.Writer) error {
	p := &printer{}
	p.heading("Scan " + s.ScanID + ", " + s.ScanDate + ", " + s.State)
	p.line("started", s.StartedAt.UTC().Format(time.DateTime)+" UTC")
	if s.FinishedAt != nil {
		p.line("finished", fmt.Sprintf("%s UTC, after %s", s.FinishedAt.UTC().Format(time.DateTime), s.FinishedAt.Sub(s.StartedAt).Round(time.Second)))
	}
	p.line("versions", "bulkscan "+s.ToolVersion+", registry "+s.RegistryVersion)
	p.line("dataset", fmt.Sprintf("%s in %s", bytesText(s.DatasetBytes), plural(s.Parts, "part")))

	p.heading("Sites")
	p.share("rows", s.Rows, 0, "")
	p.share("asked", s.Asked, s.Rows, "rows")
	p.share("answered", s.Answered, s.Asked, "asked")
	p.share("with rules", s.WithRules, s.Asked, "asked")
	p.share("redirected", s.Redirected, s.Asked, "asked")
	p.share("HTML", s.HTML, s.Asked, "asked")
	p.share("truncated", s.Truncated, s.Asked, "asked")
	p.share("managed block", s.Managed, s.WithRules, "sites with rules")
	p.line("bodies", bytesText(s.BodyBytes))
	if s.MedianMillis > 0 {
		p.line("latency", fmt.Sprintf("median %s, 99 %% within %s", millisText(s.MedianMillis), millisText(s.P99Millis)))
	}

	p.counts("Outcomes", s.Outcomes, s.Rows)
	p.counts("Statuses", s.Statuses, s.Answered)
	p.counts("Access", s.Access, s.Rows)
	p.counts("Check robots.txt", s.Checks, s.Asked)
	p.line("mean score", strconv.FormatFloat(s.MeanScore, 'f', 3, 64))

	p.heading("AI crawlers")
	p.share("name one", s.NamesAI, s.WithRules, "sites with rules")
	p.share("block one", s.BlocksAI, s.WithRules, "sites with rules")
	p.share("block all unnamed", s.BlocksAllAI, s.WithRules, "sites with rules")
	if len(s.MostBlocked) > 0 {
		p.heading("Most blocked AI tokens")
		p.row("token", "blocked", "share", "partial", "named", "operator")
		for _, t := range s.MostBlocked {
			p.row(t.Token, number(t.Blocked), percent(t.Share), number(t.Partial), number(t.Named), t.Operator)
		}
	}
	p.flush()
	_, err := io.WriteString(w, p.out.String())
	return err
}

// maxCell bounds a text in a summary, in bytes.
const maxCell = 200

// printer lays tables out: the first column to the left, numbers to the right, each table as wide as it must be.
type printer struct {
	out  strings.Builder
	rows [][]string
}

func (p *printer) heading(text string) {
	p.flush()
	if p.out.Len() > 0 {
		p.out.WriteByte('\n')
	}
	p.out.WriteString(printable.Clip(text, maxCell) + "\n")
}

func (p *printer) row(cells ...string) { p.rows = append(p.rows, cells) }

// line is a row of a name and a text.
func (p *printer) line(name, text string) {
	p.flush()
	fmt.Fprintf(&p.out, "  %-18s %s\n", printable.Clip(name, maxCell), printable.Clip(text, maxCell))
}

func (p *printer) share(name string, n, whole int64, of string) {
	p.flush()
	fmt.Fprintf(&p.out, "  %-18s %12s", name, number(n))
	if of != "" {
		fmt.Fprintf(&p.out, "  %s of %s", percent(share(float64(n), float64(whole))), of)
	}
	p.out.WriteByte('\n')
}

func (p *printer) counts(title string, counts []Count, whole int64) {
	if len(counts) == 0 {
		return
	}
	p.heading(title)
	for _, c := range counts {
		p.row(c.Value, number(c.Rows), percent(share(float64(c.Rows), float64(whole))))
	}
	p.flush()
}

// flush writes the rows so far as one table.
func (p *printer) flush() {
	var width []int
	for _, row := range p.rows {
		for i, cell := range row {
			row[i] = printable.Clip(cell, maxCell)
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range p.rows {
		line := " "
		for i, cell := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				line += " " + cell + gap
			case i == len(row)-1 && i > 2:
				line += "  " + cell // a text at the end
			default:
				line += "  " + gap + cell
			}
		}
		p.out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	p.rows = p.rows[:0]
}

// number groups digits by three.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(share float64) string { return fmt.Sprintf("%6.2f %%", 100*share) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(int64(n)) + " " + what + "s"
}

func bytesText(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.95 {
		value /= 1000
		unit++
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

func millisText(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

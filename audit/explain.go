package audit

import (
	"fmt"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// Result has everything that Judge made of a site, for people and programs. It owns its memory. All strings are valid
// UTF-8 but not escaped: texts from the site may contain control characters.
type Result struct {
	Check       string  `json:"check"`
	Version     string  `json:"version"`
	Suite       string  `json:"suite"`
	Title       string  `json:"title"`
	Category    string  `json:"category"`
	Subcategory string  `json:"subcategory"`
	Group       string  `json:"group"`
	GroupID     string  `json:"group_id"`
	Maturity    string  `json:"maturity"`
	Scope       string  `json:"scope"`
	Weight      float64 `json:"weight"`
	Resource    string  `json:"resource"`

	Origin             string `json:"origin,omitempty"`
	FinalURL           string `json:"final_url,omitempty"`
	Outcome            string `json:"outcome,omitempty"` // absent, like the status, for a local file
	Error              string `json:"error,omitempty"`
	HTTPStatus         int    `json:"http_status,omitempty"`
	RemoteIP           string `json:"remote_ip,omitempty"`    // dialled last
	XRobotsTag         string `json:"x_robots_tag,omitempty"` // response fields on the file itself
	ContentUsageHeader string `json:"content_usage_header,omitempty"`
	Finding            string `json:"finding"`
	Challenge          string `json:"challenge,omitempty"`
	Access             string `json:"access"`
	AccessSource       string `json:"access_source"`

	Redirects []RedirectResult `json:"redirects"` // followed, in order
	BodyBytes int              `json:"body_bytes"`
	BodyHash  int64            `json:"body_hash,string"` // as in the table `sites`
	Truncated bool             `json:"truncated"`

	// Known is that of Site. Where it is false, Status, Score and Star are absent, and Steps, Advice, Tokens and
	// Verdicts are empty. Such a site gave no answer, so crawlers must wait. The dataset counts its check as failed.
	Known  bool         `json:"known"`
	Status string       `json:"status,omitempty"`
	Score  *float64     `json:"score,omitempty"`
	Steps  []StepResult `json:"steps"`

	Advice []AdviceResult `json:"advice"` // in the order of the table

	Counts       CountsResult `json:"counts"`
	HasBOM       bool         `json:"has_bom"`
	IsHTML       bool         `json:"is_html"`
	ValidUTF8    *bool        `json:"valid_utf8,omitempty"` // absent for no body or an empty one
	HTMLTitle    string       `json:"html_title,omitempty"`
	ManagedBlock bool         `json:"managed_block"`
	ManagedBy    string       `json:"managed_by,omitempty"`

	Evidence      []EvidenceResult `json:"evidence"`
	KnownAgents   []AgentResult    `json:"known_agents"`
	UnknownAgents []AgentResult    `json:"unknown_agents"`
	Sitemaps      []string         `json:"sitemaps"`
	Signals       []SignalResult   `json:"content_signals"`
	ContentSignal string           `json:"content_signal,omitempty"` // of the table `sites`: what holds for `/`
	Usages        []UsageResult    `json:"content_usages"`
	Licenses      []string         `json:"licenses"`

	RegistryVersion string          `json:"registry_version"`
	Star            *TokenResult    `json:"star,omitempty"`
	Tokens          []TokenResult   `json:"tokens"`   // every token of the registry
	Verdicts        []VerdictResult `json:"verdicts"` // the rows of the table `verdicts`
}

// RedirectResult is a redirect that was followed.
type RedirectResult struct {
	Status int    `json:"status"`
	URL    string `json:"url"` // target, absolute
}

// StepResult is the result of one step.
type StepResult struct {
	ID      string  `json:"id"`
	Title   string  `json:"title"`
	Cite    string  `json:"cite"`
	Weight  float64 `json:"weight"`
	Status  string  `json:"status"`
	Message string  `json:"message"`
}

// AdviceResult is an advice to the site's owner.
type AdviceResult struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Line int    `json:"line,omitempty"` // that shows it; absent where the whole answer does
}

// CountsResult are the file's totals; see Counts.
type CountsResult struct {
	Lines      int `json:"lines"`
	Records    int `json:"records"`
	Groups     int `json:"groups"`
	Agents     int `json:"agents"`
	Allow      int `json:"allow"`
	Disallow   int `json:"disallow"`
	Sitemaps   int `json:"sitemaps"`
	Extensions int `json:"extensions"`
	Legacy     int `json:"legacy"`
	Unknown    int `json:"unknown"`
	Orphan     int `json:"orphan"`
	Invalid    int `json:"invalid"`
	Typo       int `json:"typo"`
}

// EvidenceResult is a noteworthy line.
type EvidenceResult struct {
	Line      int    `json:"line"`
	GroupLine int    `json:"group_line,omitempty"` // first line of its group; absent before any group
	Kind      string `json:"kind"`
	Key       string `json:"key"`
	Value     string `json:"value"`
}

// AgentResult is an agent that the file names.
type AgentResult struct {
	Line     int    `json:"line"`
	Token    string `json:"token"`
	Category string `json:"category,omitempty"`
	Operator string `json:"operator,omitempty"`
	Lenient  bool   `json:"lenient,omitempty"` // found by the second reading only
}

// SignalResult is a valid Content-Signal record. Keys and values are in lower case.
type SignalResult struct {
	Line  int               `json:"line"`
	Path  string            `json:"path,omitempty"` // pattern of the paths that it is for; absent for all
	Scope string            `json:"scope"`          // group, or file: before any group
	Pairs map[string]string `json:"pairs"`          // the narrower of contradictory values, or both with a space between

	Agents []string `json:"agents,omitempty"` // agents to which it applies, with scope group; at most MaxEvidenceRows
}

// UsageResult is a valid Content-Usage record; the preferences are y, n, or empty if not stated.
type UsageResult struct {
	Line    int    `json:"line"`
	Path    string `json:"path,omitempty"`
	TrainAI string `json:"train_ai,omitempty"`
	Search  string `json:"search,omitempty"`

	Scope  string   `json:"scope"`            // as in SignalResult
	Agents []string `json:"agents,omitempty"` // as in SignalResult
}

// TokenResult is the verdict of one registry token, whether the file names it or not.
type TokenResult struct {
	Token       string `json:"token"`
	Category    string `json:"category,omitempty"`
	Operator    string `json:"operator,omitempty"`
	Purpose     string `json:"purpose,omitempty"`
	Verdict     string `json:"verdict"` // allowed, partial, blocked; unknown if access is unknown
	Via         string `json:"via"`
	Follows     string `json:"follows,omitempty"` // name whose groups it follows
	Line        int    `json:"line,omitempty"`
	RootAllowed bool   `json:"root_allowed"`
	Limited     bool   `json:"limited,omitempty"`
}

// VerdictResult is a row of the table `verdicts`.
type VerdictResult struct {
	Token           string   `json:"token"`
	Known           bool     `json:"known"`
	Verdict         string   `json:"verdict"`
	Via             string   `json:"via"`
	RootAllowed     bool     `json:"root_allowed"`
	NAllow          int      `json:"n_allow"`
	NDisallow       int      `json:"n_disallow"`
	HasDisallowRoot bool     `json:"has_disallow_root"`
	DPI             string   `json:"dpi"`
	CrawlDelay      *float64 `json:"crawl_delay,omitempty"`
	RequestRate     float64  `json:"request_rate,omitempty"` // requests per second
	VisitFrom       *int     `json:"visit_from,omitempty"`   // minutes after midnight UTC, like visit_to
	VisitTo         *int     `json:"visit_to,omitempty"`
	ContentSignal   string   `json:"content_signal,omitempty"`
	ContentUsage    string   `json:"content_usage,omitempty"` // for `/`
	Line            int      `json:"line,omitempty"`
	Lenient         bool     `json:"lenient,omitempty"`
	Limited         bool     `json:"limited,omitempty"`
}

// Explain returns Judge's result for the site. A site that has not been judged is judged with the default registry.
func Explain(s *Site) Result {
	if s.Report.scratch == nil || s.Report.scratch.by == nil {
		Judge(s)
	}
	var out Result
	out.identify(s)
	out.Steps, out.Advice, out.Tokens, out.Verdicts = []StepResult{}, []AdviceResult{}, []TokenResult{}, []VerdictResult{}
	out.listLines(s)
	out.listSignals(s)
	if out.Known = s.Known(); out.Known {
		out.explainSteps(s)
		out.listAdvice(s)
		out.listVerdicts(s)
	}
	return out
}

// clean returns text from a site as valid UTF-8.
func clean(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// identify sets the check's identity and the facts of the exchange.
func (out *Result) identify(s *Site) {
	f, r := &s.Fetch, &s.Report
	out.Check, out.Version, out.Suite, out.Title = CheckID, CheckVersion, CheckSuite, CheckTitle
	out.Category, out.Subcategory, out.Group, out.GroupID = CheckCategory, CheckSubcategory, CheckGroup, CheckGroupID
	out.Maturity, out.Scope, out.Weight, out.Resource = CheckMaturity, CheckScope, CheckWeight, CheckResource
	switch {
	case f.Answered.IsValid():
		out.Origin = f.Answered.String()
	case s.Origin.IsValid():
		out.Origin = s.Origin.String()
	}
	if len(f.Hops) > 0 {
		out.FinalURL = clean([]byte(f.Final.String()))
	}
	if !s.IsFile {
		out.Outcome, out.HTTPStatus = f.Outcome.String(), f.Status
	}
	if addr := f.Remote.Addr(); addr.IsValid() {
		out.RemoteIP = addr.String()
	}
	out.Error = f.Cause.String()
	out.Redirects = []RedirectResult{}
	for _, hop := range f.Hops {
		out.Redirects = append(out.Redirects, RedirectResult{hop.Status, clean([]byte(hop.URL))})
	}
	out.BodyBytes, out.BodyHash, out.Truncated = len(f.Body), int64(r.BodyHash), f.Truncated
	out.XRobotsTag, out.ContentUsageHeader = clean(f.Fields.XRobotsTag), clean(f.Fields.ContentUsage)
	out.Access, out.AccessSource = r.Access.String(), AccessSource
	out.Finding, out.Challenge = r.Finding.String(), f.Fields.Challenge
	out.HTMLTitle, out.ManagedBy = clean(r.HTMLTitle), r.ManagedBy
	out.HasBOM, out.IsHTML, out.ManagedBlock = r.HasBOM, r.IsHTML, r.ManagedBlock
	if r.ValidUTF8 != exchange.Unknown {
		valid := r.ValidUTF8 == exchange.Yes
		out.ValidUTF8 = &valid
	}
	out.Counts = CountsResult(r.Counts)
	out.RegistryVersion = r.scratch.by.reg.Version
}

func (out *Result) explainSteps(s *Site) {
	score := s.Report.Score
	out.Status, out.Score = s.Report.Status.String(), &score
	for i, step := range steps {
		out.Steps = append(out.Steps, StepResult{
			ID: step.id, Title: step.title, Cite: step.cite, Weight: step.weight,
			Status: s.Report.Steps[i].String(), Message: s.explainStep(i),
		})
	}
}

// listAdvice sets the advice. It names the crawlers and the lines of some.
func (out *Result) listAdvice(s *Site) {
	reg, notes := s.Report.scratch.by.reg, &s.Report.scratch.advice
	for a := range s.Report.Advice.All() {
		result := AdviceResult{ID: a.String(), Text: a.Text()}
		if notes.set.Has(a) {
			result.Line = int(notes.lines[a])
		}
		switch a {
		case AdviceOperator:
			blocked, open := &reg.Tokens[notes.blocked], &reg.Tokens[notes.open]
			result.Text += fmt.Sprintf(" Here, of %s: %s is blocked, %s is not.", blocked.Operator, blocked.Name, open.Name)
		case AdviceJoined:
			result.Text += fmt.Sprintf(" Here, line %d joins the user-agent line %d to those before it.", result.Line,
				notes.joined)
		case AdviceOverruled:
			result.Text += fmt.Sprintf(" Here, line %d overrules line %d.", notes.overruled, result.Line)
		case AdviceNear:
			separator := " Here: write "
			for miss := range s.Report.scratch.nearMisses() {
				result.Text += fmt.Sprintf("%s%s (line %d)", separator, reg.Tokens[miss.id].Name, miss.line)
				separator = ", "
			}
			result.Text += "."
		}
		out.Advice = append(out.Advice, result)
	}
}

// listLines sets evidence, agents and sitemaps. Lists are never null in JSON.
func (out *Result) listLines(s *Site) {
	reg, r := s.Report.scratch.by.reg, &s.Report
	out.Evidence, out.Sitemaps = []EvidenceResult{}, []string{}
	for _, e := range r.Evidence {
		out.Evidence = append(out.Evidence, EvidenceResult{e.Line, e.GroupLine, e.Kind.String(), clean(e.Key),
			clean(e.Value)})
	}
	for _, u := range r.Sitemaps {
		out.Sitemaps = append(out.Sitemaps, clean(u))
	}
	out.KnownAgents, out.UnknownAgents = []AgentResult{}, []AgentResult{}
	for _, v := range r.Verdicts {
		switch {
		case v.Via != ViaOwn:
		case v.ID >= 0:
			t := &reg.Tokens[v.ID]
			out.KnownAgents = append(out.KnownAgents, AgentResult{v.Line, t.Name, t.Category, t.Operator, v.Lenient})
		default:
			out.UnknownAgents = append(out.UnknownAgents, AgentResult{Line: v.Line, Token: clean(v.Token)})
		}
	}
}

// listSignals sets usage preferences, at most MaxEvidenceRows of each kind.
func (out *Result) listSignals(s *Site) {
	out.Signals, out.Usages, out.Licenses = []SignalResult{}, []UsageResult{}, []string{}
	out.ContentSignal = string(s.Report.ContentSignal)
	for i := range s.Robots.Records() {
		rec := s.Robots.Record(i)
		switch rec.Key {
		case parser.KeyContentSignal:
			if path, pairs, valid := SignalValue(rec.Value); valid && len(out.Signals) < MaxEvidenceRows {
				out.Signals = append(out.Signals, signalResult(s, i, path, pairs))
			}
		case parser.KeyContentUsage:
			if u, ok := ParseUsage(rec.Value); ok && len(out.Usages) < MaxEvidenceRows {
				out.Usages = append(out.Usages, usageResult(s, i, &u))
			}
		case parser.KeyLicense:
			if isAbsoluteURL(rec.Value) && len(out.Licenses) < MaxEvidenceRows {
				out.Licenses = append(out.Licenses, clean(rec.Value))
			}
		}
	}
}

func signalResult(s *Site, i int, path, pairs []byte) SignalResult {
	signal := SignalResult{Line: s.Robots.Record(i).Line, Path: clean(path), Pairs: map[string]string{}}
	signal.Scope, signal.Agents = scope(s, i)
	var said signalFacts // by this record, as if for all paths
	all := signalSet(0)
	for key, value := range SignalPairs(pairs) {
		if i := said.fact(nil, key, value); i >= 0 {
			all |= 1 << i
		}
	}
	for key, value := range SignalPairs(said.atRoot(all)) {
		key, value := string(key), string(value)
		if before := signal.Pairs[key]; before != "" {
			value = before + " " + value
		}
		signal.Pairs[key] = value
	}
	return signal
}

func usageResult(s *Site, i int, u *Usage) UsageResult {
	usage := UsageResult{Line: s.Robots.Record(i).Line, Path: clean(u.Path), TrainAI: u.TrainAI.String(),
		Search: u.Search.String()}
	usage.Scope, usage.Agents = scope(s, i)
	return usage
}

// scope returns to which agents a usage preference applies: to those that its group lists before it, or, before any
// group, to all.
func scope(s *Site, i int) (scope string, agents []string) {
	rec := s.Robots.Record(i)
	if rec.Group < 0 {
		return "file", nil
	}
	first, _ := s.Robots.GroupRecords(uint32(rec.Group))
	for ; first < i && len(agents) < MaxEvidenceRows; first++ {
		if agent := s.Robots.Record(first); agent.Key == parser.KeyUserAgent {
			agents = append(agents, clean(cut(agent.Value, MaxToken)))
		}
	}
	return "group", agents
}

// listVerdicts sets the rows of verdicts and the verdict of every registry token.
func (out *Result) listVerdicts(s *Site) {
	a, r := s.Report.scratch.by, &s.Report
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		row := VerdictResult{
			Token: clean(v.Token), Known: v.ID >= 0, Verdict: v.Decision.String(), Via: v.Via.String(),
			RootAllowed: v.RootAllowed, NAllow: v.NAllow, NDisallow: v.NDisallow, HasDisallowRoot: v.HasDisallowRoot,
			DPI: v.DPI.String(), RequestRate: v.RequestRate,
			ContentSignal: string(v.ContentSignal), ContentUsage: v.ContentUsage.String(), Line: v.Line, Lenient: v.Lenient,
			Limited: v.Limited,
		}
		if v.HasCrawlDelay {
			delay := v.CrawlDelay
			row.CrawlDelay = &delay
		}
		if v.HasVisit {
			from, to := int(v.Visit.From), int(v.Visit.To)
			row.VisitFrom, row.VisitTo = &from, &to
		}
		out.Verdicts = append(out.Verdicts, row)
	}
	star := a.tokenResult(s, -1)
	out.Star = &star
	out.Tokens = make([]TokenResult, len(a.reg.Tokens))
	for id := range out.Tokens {
		out.Tokens[id] = a.tokenResult(s, id)
	}
}

// tokenResult returns the verdict of a registry token; -1 is an agent that no group names.
func (a *Auditor) tokenResult(s *Site, id int) TokenResult {
	t := tokens.Token{Name: "*"}
	if id >= 0 {
		t = a.reg.Tokens[id]
	}
	out := TokenResult{Token: t.Name, Category: t.Category, Operator: t.Operator, Purpose: t.Purpose}
	if s.Report.Access != parser.AccessConditional {
		out.Via, out.Verdict, out.RootAllowed = ViaHTTP.String(), s.Report.Star.String(), s.Report.Star == Allowed
		if s.Report.Access == parser.AccessUnknown {
			out.Via, out.Verdict, out.RootAllowed = ViaNone.String(), "unknown", false
		}
		return out
	}
	agent, via := s.Robots.Star(), ViaStar
	if id >= 0 {
		agent, via, _ = a.follows(s, id, false)
	}
	if agent < 0 {
		via = ViaNone
	} else {
		out.Follows = clean(s.Robots.Agent(agent).Name)
	}
	var v Verdict
	s.fill(&v, agent)
	out.Verdict, out.Via, out.Line, out.RootAllowed, out.Limited = v.Decision.String(), via.String(), v.Line,
		v.RootAllowed, v.Limited
	return out
}

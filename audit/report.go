package audit

import (
	"unsafe"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// Report is Judge's result for a site. All byte slices are views of the site's body or of the Report, valid until the
// Site is Reset. They are raw bytes from the network.
type Report struct {
	Access  parser.Access
	Finding Finding

	Status Status           // of the check
	Score  float64          // 0 to 1
	Steps  [numSteps]Status // by Step

	Advice AdviceSet // what the site might change

	Counts Counts

	HasBOM, IsHTML bool
	ManagedBlock   bool              // it has a block that a delivery network wrote
	ManagedBy      string            // who wrote the file or a block of it; "" if no comment says so exactly
	HTMLTitle      []byte            // of an HTML page; nil if there is none
	ValidUTF8      exchange.Tristate // Unknown for no body or an empty one

	CrawlDelay    float64 // seconds, for `*`
	HasCrawlDelay bool

	// canonical: what holds for `/` and agents that no group names, records before any group included; nil for nothing
	ContentSignal         []byte
	ContentUsage, License []byte // the first valid value of each; nil for none

	Sitemaps [][]byte // the first MaxSitemaps valid ones
	BodyHash uint64   // xxh64 of the body; 0 = no body

	Star                    Decision // verdict of an agent that no group names
	Named, Blocked, Partial []uint16 // registry tokens, as indices into tokens.Registry.Tokens, ascending

	Policy    Policy // what the file makes of all crawlers
	RFCPolicy Policy // the same in the RFC dialect
	Unmanaged uint64 // ID of the Policy of the file without its managed blocks; 0 if ManagedBlock is false

	Verdicts []Verdict  // rows of the table `verdicts`
	Evidence []Evidence // rows of the table `evidence`

	scratch *scratch // nil before the first Reset
}

// MaxSitemaps bounds Report.Sitemaps; the number in the file is Counts.Sitemaps.
const MaxSitemaps = 100

// Counts are a file's totals, independent of the bounds on evidence.
type Counts struct {
	Lines           int
	Records         int // lines with any key
	Groups          int
	Agents          int // distinct names, including `*`, without preferences of drafts (`__usage_…`)
	Allow, Disallow int // lines, including empty and orphaned ones

	// Lines by kind of evidence. Each line is counted once, except that Typo is counted in addition. An extension
	// record with an invalid value is Invalid, and not Extension or Sitemap. Extension includes signals, usages and
	// licenses.
	Sitemaps, Extensions, Legacy, Unknown, Orphan, Invalid, Typo int
}

// AccessSource is the value of the column `access_source` in every row: each scan fetches every site and uses no
// earlier answer.
const AccessSource = "fresh"

// Status is how a check or one of its steps ended.
type Status uint8

// Values of Status. The zero value is Skipped.
const (
	Skipped Status = iota
	Pass
	Warn
	Fail
)

// String returns the stable text: skipped, pass, warn, fail.
func (s Status) String() string {
	return [...]string{"skipped", "pass", "warn", "fail"}[s&3]
}

// Decision is a verdict in the words of surveys.
type Decision uint8

// Values of Decision. The zero value is Allowed.
const (
	Allowed Decision = iota
	Partial
	Blocked
)

// String returns the stable text: allowed, partial, blocked.
func (d Decision) String() string {
	return [...]string{"allowed", "partial", "blocked", "?"}[d&3]
}

// Via says why a token follows its group.
type Via uint8

// Values of Via. The zero value is ViaNone: no group applies, everything is allowed.
const (
	ViaNone     Via = iota
	ViaOwn          // a group names it
	ViaFallback     // a group names one of its fallbacks
	ViaStar         // the group of `*`
	ViaHTTP         // access is not conditional: the status decides
)

// String returns the stable text of the dataset's column `via`.
func (v Via) String() string {
	switch v {
	case ViaOwn:
		return "own"
	case ViaFallback:
		return "fallback"
	case ViaStar:
		return "star"
	case ViaHTTP:
		return "http"
	}
	return "none"
}

// DPI is the Data Provenance Initiative's classification of a group's rules.
type DPI uint8

// Values of DPI. The zero value is DPINone.
const (
	DPINone DPI = iota
	DPISome
	DPIAll
)

// String returns the stable text: none, some, all.
func (d DPI) String() string {
	return [...]string{"none", "some", "all", "?"}[d&3]
}

// Verdict is one row of the table `verdicts`: what one agent may do on the site.
type Verdict struct {
	Token           []byte // as the registry spells it; lower case if unknown; "*" for the wildcard
	ID              int    // index into tokens.Registry.Tokens, -1 if unknown and for "*"
	Decision        Decision
	Via             Via
	DPI             DPI
	RootAllowed     bool
	HasDisallowRoot bool
	Lenient         bool
	Limited         bool
	HasCrawlDelay   bool
	NAllow          int
	NDisallow       int
	Line            int     // 1-based, of the first user-agent line that names it
	CrawlDelay      float64 // seconds
	RequestRate     float64 // requests per second; 0 for none
	ContentSignal   []byte  // canonical: what its groups state of `/`; nil for nothing
	Visit           Hours
	HasVisit        bool
	ContentUsage    Preferences // for `/`
}

// Kind is the kind of an evidence row.
type Kind uint8

// Kinds of evidence, in the order of the documents.
const (
	KindSitemap Kind = iota
	KindExtension
	KindSignal
	KindUsage
	KindLicense
	KindLegacy
	KindUnknown
	KindOrphan
	KindInvalid
	KindTypo
	KindConflict
	NumKinds
)

// String returns the stable text of the dataset's column `kind`.
func (k Kind) String() string {
	if k < NumKinds {
		return [NumKinds]string{"sitemap", "extension", "signal", "usage", "license", "legacy", "unknown", "orphan",
			"invalid", "typo", "conflict"}[k]
	}
	return "?"
}

// Meaning describes the lines of this kind, as a phrase for documents.
func (k Kind) Meaning() string {
	if k < NumKinds {
		return kindMeanings[k]
	}
	return ""
}

var kindMeanings = [NumKinds]string{
	KindSitemap:   "a `sitemap` record with an absolute URL",
	KindExtension: "a known extension record that is none of the other kinds",
	KindSignal:    "a `content-signal` record, with or without a path; before any group it applies to the whole file",
	KindUsage:     "a `content-usage` record; a record or a user-agent value that a draft defines for preferences: `disallowaitraining`, `allowaitraining`, `__usage_…`",
	KindLicense:   "a `license` record",
	KindLegacy:    "a record that was never standard and is no longer supported",
	KindUnknown:   "a record with an unknown key",
	KindOrphan:    "a rule before any user-agent line, which is ignored",
	KindInvalid: "a line without a key; a user-agent value that is neither `*` nor a product token nor a known name; a rule " +
		"or usage value that begins with neither `/` nor `*`; a `sitemap` or `license` that is not an absolute URL; a `crawl-delay` that is " +
		"not a decimal number (at most nine digits before the point); a `request-rate` that is not like `1/5` or `10/1m 0600-0845`; " +
		"a `visit-time` that is not like `0600-0845`; a `content-signal` with a part that is no valid pair; a `content-usage` that is empty or not a dictionary",
	KindTypo: "a record that is read only because Google's code tolerates the spelling of its key, or `content-signals`, which " +
		"nothing reads; counts in addition to the record's own kind",
	KindConflict: "a `content-signal` that contradicts an earlier one of the same agent, key and path, or itself; stands beside the row " +
		"of its own kind",
}

// Evidence is one row of the table `evidence`: a noteworthy line.
type Evidence struct {
	Line      int // 1-based
	GroupLine int // first user-agent line of the group with this line; 0 before any group (file scope)
	Kind      Kind
	Key       []byte
	Value     []byte // at most MaxEvidenceValue bytes
}

// Bounds of kept evidence.
const (
	MaxEvidenceKey   = 100 // bytes of a key
	MaxEvidenceValue = 500 // bytes of a value
	MaxEvidenceRows  = 32  // rows of one kind for an origin
)

// MaxToken bounds Verdict.Token, in bytes.
const MaxToken = 200

// Reset prepares the Report for another site. It keeps its memory up to a bound.
func (r *Report) Reset() {
	if r.scratch == nil {
		r.scratch = new(scratch)
	}
	r.scratch.reset()
	// Views are cleared so that they do not keep a body in memory.
	clear(r.Sitemaps)
	clear(r.Verdicts)
	clear(r.Evidence)
	*r = Report{
		Sitemaps: r.Sitemaps[:0],
		Named:    r.Named[:0], Blocked: r.Blocked[:0], Partial: r.Partial[:0],
		Verdicts: trimmed(r.Verdicts), Evidence: r.Evidence[:0],
		scratch: r.scratch,
	}
}

// keepBytes bounds the memory that Reset keeps for each slice whose length depends on the site.
const keepBytes = 256 << 10

// trimmed returns s with length 0, or nil if its memory exceeds keepBytes.
func trimmed[T any](s []T) []T {
	var element T
	if uintptr(cap(s))*unsafe.Sizeof(element) > keepBytes {
		return nil
	}
	return s[:0]
}

package sink

// This file is the schema: one struct a table, one field a column, in the order of the columns. The tags say all there
// is to say about a column, once: `parquet` its name and how it is written, `about` its meaning in one line, `stats` that
// somebody filters by it, so that its minimum and maximum a page are worth computing. Schema, the Parquet writers, the
// readers, the JSON lines and docs/SCHEMA.md are all made from them.
//
// Null. An `optional` column that is no pointer is null where the field is its type's zero: an absent rank is 0, an
// absent header field is "". Where the zero is a value of its own (a crawl delay of 0), the field is a pointer.
//
// Encoding. `dict` where few values repeat, `plain` where they do not (host names, paths): looking distinct strings up
// in a dictionary costs a fifth of the writer's time and saves nothing. Numbers are plain: zstd finds what repeats.
//
// Versions. Columns are only ever added, at the end of their struct or where they read best: readers go by name.

// SchemaVersion is the version of all tables, in the metadata of every file. It grows when a column is added or a
// meaning changes.
const SchemaVersion = 2

// The bounds of what is stored, in bytes of valid UTF-8 after repair. What is longer is cut at a character's end.
const (
	MaxInput   = 2048 // sites.input
	MaxLabel   = 200  // sites.label
	MaxURL     = 2048 // sites.final_url, redirects.url, sitemaps, license
	MaxField   = 500  // header fields, content_signal, content_usage
	MaxError   = 200  // sites.error
	MaxToken   = 200  // verdicts.token
	MaxKey     = 100  // evidence.key
	MaxValue   = 500  // evidence.value
	MaxReject  = 500  // text of a rejected input line
	MaxHops    = 20   // entries of sites.redirects
	maxInt32   = 1<<31 - 1
	maxVersion = 64 // scan ids, versions
)

// SiteRow is a row of the table sites: what one list entry came to.
type SiteRow struct {
	ScanID          string   `parquet:"scan_id,dict" about:"the scan that wrote the row"`
	RegistryVersion string   `parquet:"registry_version,dict" about:"version of the token registry that judged it"`
	Seq             int64    `parquet:"seq" stats:"y" about:"0-based line over all inputs"`
	Input           string   `parquet:"input,plain" about:"the entry as listed, at most 2,048 bytes"`
	Host            string   `parquet:"host,plain" stats:"y" about:"host as listed, normalised; with port and requested the stable key of a site between scans"`
	Port            int32    `parquet:"port" about:"port as listed, or the default"`
	Requested       string   `parquet:"requested,dict" about:"scheme as listed: https, http, ftp, or auto where the entry names none"`
	Origin          string   `parquet:"origin,plain" about:"origin that answered, or was tried first; port only if not the default"`
	Rank            int64    `parquet:"rank,optional" stats:"y" about:"rank from the list"`
	Label           string   `parquet:"label,optional,dict" about:"label from the list, at most 200 bytes"`
	Domain          string   `parquet:"registrable_domain,optional,plain" about:"public suffix and one label"`
	TLD             string   `parquet:"tld,optional,dict" stats:"y" about:"top-level domain by the public suffix list"`
	FetchedAt       int64    `parquet:"fetched_at,optional,timestamp(millisecond)" stats:"y" about:"time of the last attempt"`
	Outcome         string   `parquet:"outcome,dict" stats:"y" about:"how the last exchange ended, docs/outcomes.md"`
	Error           string   `parquet:"error,optional,dict" about:"detail of the outcome in our words, at most 200 bytes"`
	Status          int32    `parquet:"status,optional" stats:"y" about:"HTTP status of the last exchange; null where it ended without one, also behind a redirect"`
	Hops            int32    `parquet:"hops" about:"redirects followed"`
	FinalURL        string   `parquet:"final_url,optional,plain" about:"where the file was, if not at origin + /robots.txt; at most 2,048 bytes"`
	Redirects       []HopRow `parquet:"redirects,list" about:"the redirects followed, in order, at most the first 20; their number is hops"`
	Attempts        int32    `parquet:"attempts" about:"exchanges; redirect hops, further addresses of a name and the first, short try of a silent host are not counted; a failed DNS question is one"`
	RemoteIP        string   `parquet:"remote_ip,optional,plain" about:"address dialled last"`
	HTTPVersion     string   `parquet:"http_version,optional,dict" about:"HTTP/1.1 or HTTP/1.0"`
	Server          string   `parquet:"server,optional,dict" about:"response field Server, at most 500 bytes"`
	ContentType     string   `parquet:"content_type,optional,dict" about:"response field Content-Type, at most 500 bytes"`
	CDN             string   `parquet:"cdn,optional,dict" stats:"y" about:"delivery network, told by header fields"`
	ETag            string   `parquet:"etag,optional,plain" about:"response field ETag, at most 500 bytes"`
	LastModified    string   `parquet:"last_modified,optional,plain" about:"response field Last-Modified, at most 500 bytes"`
	CacheControl    string   `parquet:"cache_control,optional,dict" about:"response field Cache-Control, at most 500 bytes"`
	XRobotsTag      string   `parquet:"x_robots_tag,optional,dict" about:"response field X-Robots-Tag, at most 500 bytes"`
	UsageHeader     string   `parquet:"content_usage_header,optional,dict" about:"response field Content-Usage, which speaks of the file itself, not of the site; at most 500 bytes"`
	TLSVersion      string   `parquet:"tls_version,optional,dict" about:"TLS 1.0 to TLS 1.3; null on plain connections"`
	TLSVerified     *bool    `parquet:"tls_verified,optional" about:"whether the certificate could be verified; null without TLS, and where this machine has no roots to tell"`
	DNSMillis       float32  `parquet:"dns_ms,optional" about:"milliseconds for the DNS answer of the last exchange; null from a cache"`
	ConnectMillis   float32  `parquet:"connect_ms,optional" about:"milliseconds to connect in the last exchange"`
	TLSMillis       float32  `parquet:"tls_ms,optional" about:"milliseconds for the TLS handshake of the last exchange"`
	TTFBMillis      float32  `parquet:"ttfb_ms,optional" about:"milliseconds from the request to the first byte of the last response"`
	TotalMillis     float32  `parquet:"total_ms,optional" about:"milliseconds of all exchanges, without waiting; null where we never asked"`
	BodyBytes       int64    `parquet:"body_bytes" about:"decoded bytes kept"`
	Truncated       bool     `parquet:"truncated" about:"the body was cut at the limit"`
	BodyHash        int64    `parquet:"body_hash" about:"xxh64 of the body as kept; 0 = no body; key of the table bodies"`
	Access          string   `parquet:"access,dict" stats:"y" about:"conditional, full_allow, full_disallow, unknown (RFC 9309 §2.3.1)"`
	AccessSource    string   `parquet:"access_source,dict" about:"fresh, cached, stale, expired"`
	CheckStatus     string   `parquet:"check_status,dict" about:"of the check robots.txt 1.0.0: pass, warn, fail"`
	Score           float64  `parquet:"score" about:"of the check, 0 to 1"`
	StepFetch       string   `parquet:"step_fetch,dict" about:"pass, warn, fail, skipped"`
	StepCoreSyntax  string   `parquet:"step_core_syntax,dict" about:"pass, warn, fail, skipped"`
	StepExtensions  string   `parquet:"step_extensions,dict" about:"pass, warn, fail, skipped"`
	NLines          int32    `parquet:"n_lines" about:"lines of the file in force; this and all below but star_verdict are 0, false, null or empty unless access is conditional"`
	NGroups         int32    `parquet:"n_groups" about:"groups"`
	NAgents         int32    `parquet:"n_agents" about:"distinct agents named, * included"`
	NAllow          int32    `parquet:"n_allow" about:"allow lines"`
	NDisallow       int32    `parquet:"n_disallow" about:"disallow lines"`
	NSitemaps       int32    `parquet:"n_sitemaps" about:"sitemap lines with an absolute URL"`
	NExtensions     int32    `parquet:"n_extensions" about:"lines with a known extension key other than sitemap, and a value that it may have"`
	NLegacy         int32    `parquet:"n_legacy" about:"lines with an unsupported legacy key"`
	NUnknown        int32    `parquet:"n_unknown" about:"lines with an unknown key"`
	NOrphan         int32    `parquet:"n_orphan" about:"rules before any user-agent line"`
	NInvalid        int32    `parquet:"n_invalid" about:"lines that are no record, or one with a value that its key cannot have (docs/CHECKS.md)"`
	NTypo           int32    `parquet:"n_typo" about:"misspelled records that were read all the same"`
	HasBOM          bool     `parquet:"has_bom" about:"the file begins with a whole UTF-8 byte order mark"`
	IsHTML          bool     `parquet:"is_html" about:"the body is an HTML page"`
	ValidUTF8       bool     `parquet:"valid_utf8" about:"the body is valid UTF-8; false where no rules decide"`
	ManagedBlock    bool     `parquet:"managed_block" about:"it has a block that a CDN manages"`
	CrawlDelay      *float64 `parquet:"crawl_delay,optional" about:"seconds, of the group *"`
	ContentSignal   string   `parquet:"content_signal,optional,dict" about:"the first valid Content-Signal in one form for all that say the same: search, ai-input, ai-train, use, then other keys, such as search=yes, ai-train=no; at most 500 bytes"`
	ContentUsage    string   `parquet:"content_usage,optional,dict" about:"the first valid Content-Usage of the file, at most 500 bytes"`
	License         string   `parquet:"license,optional,plain" about:"the first License that is an absolute URL, at most 2,048 bytes"`
	Sitemaps        []string `parquet:"sitemaps,list" parquet-element:",plain" about:"the first 100 sitemaps that are absolute URLs, each at most 2,048 bytes; their number is n_sitemaps"`
	StarVerdict     string   `parquet:"star_verdict,dict" about:"verdict of an agent that nobody names: allowed, partial, blocked; unknown where access is"`
	Named           []string `parquet:"named,list" parquet-element:",dict" about:"registry tokens that a group names"`
	Blocked         []string `parquet:"blocked,list" parquet-element:",dict" about:"registry tokens whose verdict by the rules is blocked, by own group, fallback or *; empty unless access is conditional"`
	Partial         []string `parquet:"partial,list" parquet-element:",dict" about:"registry tokens whose verdict by the rules is partial; empty unless access is conditional"`
}

// HopRow is an element of SiteRow.Redirects.
type HopRow struct {
	Status int32  `parquet:"status" about:"status that sent us on"`
	URL    string `parquet:"url,plain" about:"absolute URL to which, at most 2,048 bytes"`
}

// VerdictRow is a row of the table verdicts: what one agent may do on one site.
type VerdictRow struct {
	Origin          string   `parquet:"origin,plain" about:"as in sites"`
	Host            string   `parquet:"host,plain" stats:"y" about:"as in sites"`
	Port            int32    `parquet:"port" about:"as in sites"`
	Requested       string   `parquet:"requested,dict" about:"as in sites"`
	Seq             int64    `parquet:"seq" stats:"y" about:"as in sites; with scan_id of sites the key of a row there"`
	Rank            int64    `parquet:"rank,optional" stats:"y" about:"as in sites"`
	TLD             string   `parquet:"tld,optional,dict" about:"as in sites"`
	Token           string   `parquet:"token,dict" stats:"y" about:"product token as the registry spells it, else in lower case; * for the wildcard; at most 200 bytes"`
	Known           bool     `parquet:"known" about:"the registry has the token"`
	Category        string   `parquet:"category,optional,dict" stats:"y" about:"category of a known token"`
	Verdict         string   `parquet:"verdict,dict" stats:"y" about:"allowed, partial, blocked"`
	Via             string   `parquet:"via,dict" about:"whose rules it follows: own, fallback, star, none; http where access is not conditional"`
	RootAllowed     bool     `parquet:"root_allowed" about:"/ may be fetched"`
	NAllow          int32    `parquet:"n_allow" about:"allow lines of its group"`
	NDisallow       int32    `parquet:"n_disallow" about:"disallow lines of its group"`
	HasDisallowRoot bool     `parquet:"has_disallow_root" about:"its group has Disallow: /"`
	DPI             string   `parquet:"dpi,dict" about:"reading of the Data Provenance Initiative: all, some, none"`
	CrawlDelay      *float64 `parquet:"crawl_delay,optional" about:"seconds, of its group"`
	RequestRate     float64  `parquet:"request_rate,optional" about:"requests a second by the Request-rate of its group"`
	VisitFrom       *int32   `parquet:"visit_from,optional" about:"beginning of the Visit-time of its group, in minutes after midnight UTC"`
	VisitTo         *int32   `parquet:"visit_to,optional" about:"end of it, 1440 for 2400; before visit_from if midnight lies between"`
	ContentSignal   string   `parquet:"content_signal,optional,dict" about:"the first valid Content-Signal of its group, in the form that sites has it"`
	ContentUsage    string   `parquet:"content_usage,optional,dict" about:"what the Content-Usage lines of its group say about /, such as train-ai=n, search=y, whether or not it may be fetched (root_allowed)"`
	Line            int32    `parquet:"line,optional" about:"1-based line of the group"`
	Lenient         bool     `parquet:"lenient" about:"named only by a name that is no RFC 9309 product token; outside all definitions of blocking"`
	Limited         bool     `parquet:"limited" about:"the bound of work was reached before every path was tried that the rules name: the verdict is partial; all other columns hold (in files of over a million records, for those that were kept)"`
}

// EvidenceRow is a row of the table evidence: a noteworthy line.
type EvidenceRow struct {
	Origin    string `parquet:"origin,plain" about:"as in sites"`
	Seq       int64  `parquet:"seq" stats:"y" about:"as in sites"`
	Line      int32  `parquet:"line" about:"1-based line of the file"`
	GroupLine int32  `parquet:"group_line,optional" about:"where the group begins in which it stands; null before any group: it speaks of the whole file"`
	Kind      string `parquet:"kind,dict" stats:"y" about:"sitemap, extension, signal, usage, license, legacy, unknown, orphan, invalid, typo"`
	Key       string `parquet:"key,dict" stats:"y" about:"key of the line, at most 100 bytes"`
	Value     string `parquet:"value,plain" about:"value of the line, at most 500 bytes"`
}

// BodyRow is a row of the table bodies: each distinct body of robots records once a part, no HTML.
type BodyRow struct {
	BodyHash int64  `parquet:"body_hash" about:"xxh64 of the body, as in sites"`
	Body     []byte `parquet:"body,plain" about:"the body as kept, raw bytes"`
}

// TokenStatsRow is a row of the table token_stats: one token in one segment of a scan's sites.
type TokenStatsRow struct {
	Token         string `parquet:"token,plain" stats:"y" about:"as in verdicts"`
	Known         bool   `parquet:"known" about:"the registry has the token"`
	Category      string `parquet:"category,optional,dict" stats:"y" about:"category of a known token"`
	Operator      string `parquet:"operator,optional,dict" about:"who runs the crawler"`
	Purpose       string `parquet:"purpose,optional,dict" about:"what it crawls for"`
	SegmentKind   string `parquet:"segment_kind,dict" stats:"y" about:"all, rank (cumulative), tld, label"`
	SegmentValue  string `parquet:"segment_value,dict" stats:"y" about:"empty for all; 1000, 10000 … for rank"`
	SitesAll      int64  `parquet:"sites_all" about:"rows of sites in the segment"`
	SitesAnswered int64  `parquet:"sites_answered" about:"of them with an HTTP status"`
	Sites         int64  `parquet:"sites" about:"of them with access conditional"`
	Mention       int64  `parquet:"mention" about:"sites where a group names it"`
	ExplicitRoot  int64  `parquet:"explicit_root" about:"sites where its own group denies /"`
	Full          int64  `parquet:"full" about:"sites where its verdict is blocked"`
	Partial       int64  `parquet:"partial" about:"sites where its verdict is partial"`
	Any           int64  `parquet:"any" about:"full + partial"`
	DPIAll        int64  `parquet:"dpi_all" about:"sites where the Data Provenance Initiative reads its group, or else that of *, as all"`
	RFCEffective  int64  `parquet:"rfc_effective" about:"of sites_answered, those that block it with the meaning of the status applied"`
	Unreachable   int64  `parquet:"unreachable" about:"rows asked that gave no HTTP status"`
	ViaOwn        int64  `parquet:"via_own" about:"sites where it follows its own group"`
	ViaStar       int64  `parquet:"via_star" about:"sites where it follows the group *"`
	ViaFallback   int64  `parquet:"via_fallback" about:"sites where it follows the group of a later name of its chain"`
}

// RecordStatsRow is a row of the table record_stats: one key in the files of a scan.
type RecordStatsRow struct {
	Kind  string `parquet:"kind,dict" stats:"y" about:"as in evidence: unknown, legacy, extension, signal, usage, license, invalid, typo"`
	Key   string `parquet:"key,plain" stats:"y" about:"as in evidence, in lower case; lines without a key are not counted"`
	Sites int64  `parquet:"sites" about:"sites with such a line in evidence"`
	Lines int64  `parquet:"lines" about:"lines in evidence, which keeps at most 32 a site and kind"`
}

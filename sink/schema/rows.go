// Package schema answers one question: what is a row? It has one struct for each table, whose tags describe the
// columns, and derives descriptions and documents from them.
package schema

// This file is the schema: one struct for each table, one field for each column, in the order of the columns. A
// property of several columns, such as a bound, is in the description of their table (schema.go). The tags have the
// rest:
//
//   - `parquet` is its name and encoding.
//   - `about` is its meaning in one line.
//   - `max` bounds a text in bytes, by one of the constants below.
//   - `example` is a possible value; lists and structs are JSON.
//   - `stats` asks for minimum and maximum of each page. It is for columns that queries filter by and whose equal
//     values are close together. In dictionary columns each page has nearly all values, so it is useless there.
//   - `json:",string"` marks an id of 64 bits. It is text wherever JSON is written, since many readers of JSON keep numbers
//     in 53 bits.
//   - `judged` marks a column of sites that the evaluation sets. Re-evaluating stored bodies sets these again and
//     copies all others.
//   - `since` is the version that added the column, where it is not the first.
//
// The Parquet writers, the readers, the JSON lines and docs/SCHEMA.md are all derived from the tags.
//
// Null. An `optional` column that is not a pointer is null if the field is its type's zero: an absent rank is 0, an
// absent header field is "". If zero is a value of its own (a crawl delay of 0), the field is a pointer.
//
// Encoding. `dict` is for few values that repeat, `plain` for distinct ones (host names, paths): looking distinct
// strings up in a dictionary costs a fifth of the writer's time and saves nothing. `delta` is for numbers close to the
// one before: zstd then has an eighth of the bytes to compress and writes a quarter. It is also for texts that mostly
// equal the one before (the origin of verdicts, not of sites), which it stores once. Other numbers are plain, since
// zstd finds repetitions. The counts of verdicts have a dictionary: they are small, few, and repeat with their agents.
// That takes a byte a row, which zstd compresses better in a third of the time. For line numbers, `delta` is faster
// than a dictionary.
//
// Versions. Columns are only ever added, at the end of their struct or where they read best: readers go by name.

// Version is the version of all tables, in the metadata of every file. It is incremented when a column is added or a
// meaning changes.
//
// 2: the table policies, and its keys in sites. 3: a head says what counts (docs/head.md).
const Version = 3

// Bounds of stored texts, in bytes of valid UTF-8. Longer texts are cut at the end of a character.
const (
	MaxInput   = 2048 // sites.input
	MaxLabel   = 200  // sites.label
	MaxURL     = 2048 // sites.final_url, redirects.url, sitemaps, license
	MaxTitle   = 200  // sites.html_title
	MaxField   = 500  // header fields, content_signal, content_usage
	MaxError   = 200  // sites.error
	MaxToken   = 200  // verdicts.token
	MaxKey     = 100  // evidence.key
	MaxValue   = 500  // evidence.value
	MaxReject  = 500  // text of a rejected input line
	MaxHops    = 20   // entries of sites.redirects
	MaxVersion = 64   // scan ids, versions
)

// SiteRow is a row of the table sites: the result of one list entry.
type SiteRow struct {
	ScanID          string   `parquet:"scan_id,dict" about:"scan that wrote it" example:"2026-11-21-5f3a9c"`
	RegistryVersion string   `parquet:"registry_version,dict" judged:"y" about:"token registry that judged it" example:"1"`
	Seq             int64    `parquet:"seq,delta" stats:"y" about:"0-based line over all inputs" example:"41"`
	Input           string   `parquet:"input,plain" max:"2048" about:"entry as listed" example:"www.example.co.uk"`
	Host            string   `parquet:"host,plain" stats:"y" about:"as listed, normalised; with port and requested a site's key between scans" example:"www.example.co.uk"`
	Port            int32    `parquet:"port" about:"as listed, or the default" example:"443"`
	Requested       string   `parquet:"requested,dict" about:"scheme as listed: https, http, ftp; auto for none" example:"auto"`
	Origin          string   `parquet:"origin,plain" about:"origin that answered, or was tried first, without default port" example:"https://www.example.co.uk"`
	Rank            int64    `parquet:"rank,optional,delta" stats:"y" about:"from the list" example:"42"`
	Label           string   `parquet:"label,optional,dict" max:"200" about:"from the list" example:"news"`
	Domain          string   `parquet:"registrable_domain,optional,plain" about:"public suffix and one label" example:"example.co.uk"`
	ICANN           string   `parquet:"icann_domain,optional,plain" about:"registrable_domain where suffixes of companies, such as github.io, are none; null for hosts without such a suffix" example:"github.io"`
	TLD             string   `parquet:"tld,optional,dict" about:"by the public suffix list" example:"uk"`
	FetchedAt       int64    `parquet:"fetched_at,optional,delta,timestamp(millisecond)" stats:"y" about:"time of the last attempt" example:"2026-11-21T04:05:06.789Z"`
	Outcome         string   `parquet:"outcome,dict" about:"how the last exchange ended, docs/outcomes.md" example:"answered"`
	Error           string   `parquet:"error,optional,dict" max:"200" about:"detail of the outcome, or why a 5xx, 408 or 429 was not retried" example:"the name does not exist (NXDOMAIN)"`
	Status          int32    `parquet:"status,optional" stats:"y" about:"HTTP status of the last exchange; null if it ended without one" example:"200"`
	Hops            int32    `parquet:"hops" about:"redirects followed" example:"1"`
	FinalURL        string   `parquet:"final_url,optional,plain" max:"2048" about:"where the file was, unless at origin + /robots.txt" example:"https://www.example.co.uk/static/robots.txt"`
	Redirects       []HopRow `parquet:"redirects,list" about:"redirects in order, at most the first 20" example:"[{\"status\": 301, \"url\": \"https://www.example.co.uk/static/robots.txt\"}]"`
	RedirectScope   string   `parquet:"redirect_scope,dict" about:"how far the redirects led: none, same_host, www (only a leading www. differs), same_domain (registrable_domain), other_domain" example:"same_host"`
	Attempts        int32    `parquet:"attempts" about:"exchanges and failed look-ups, without redirect hops and further addresses" example:"1"`
	RemoteIP        string   `parquet:"remote_ip,optional,plain" about:"address dialled last" example:"192.0.2.7"`
	HTTPVersion     string   `parquet:"http_version,optional,dict" about:"HTTP/1.1 or HTTP/1.0" example:"HTTP/1.1"`
	Server          string   `parquet:"server,optional,dict" max:"500" about:"response field Server" example:"nginx"`
	ContentType     string   `parquet:"content_type,optional,dict" max:"500" about:"response field Content-Type" example:"text/plain; charset=utf-8"`
	CDN             string   `parquet:"cdn,optional,dict" about:"delivery network, by response fields" example:"cloudflare"`
	Challenge       string   `parquet:"challenge,optional,dict" about:"whose bot challenge the last response is, by a documented response field: cloudflare, aws-waf, vercel" example:"cloudflare"`
	ETag            string   `parquet:"etag,optional,plain" max:"500" about:"response field ETag" example:"\"5f3a-62b1\""`
	LastModified    string   `parquet:"last_modified,optional,plain" max:"500" about:"response field Last-Modified" example:"Sat, 21 Nov 2026 04:05:06 GMT"`
	CacheControl    string   `parquet:"cache_control,optional,dict" max:"500" about:"response field Cache-Control" example:"max-age=3600"`
	XRobotsTag      string   `parquet:"x_robots_tag,optional,dict" max:"500" about:"response field X-Robots-Tag" example:"noai"`
	UsageHeader     string   `parquet:"content_usage_header,optional,dict" max:"500" about:"response field Content-Usage, about the file itself" example:"search=y"`
	TLSVersion      string   `parquet:"tls_version,optional,dict" about:"TLS 1.0 to 1.3; null without TLS" example:"TLS 1.3"`
	TLSVerified     *bool    `parquet:"tls_verified,optional" about:"the certificate is valid; null without TLS or known roots" example:"true"`
	DNSMillis       float32  `parquet:"dns_ms,optional" about:"milliseconds for the DNS answer; null from a cache" example:"15.5"`
	ConnectMillis   float32  `parquet:"connect_ms,optional" about:"milliseconds to connect" example:"40.25"`
	TLSMillis       float32  `parquet:"tls_ms,optional" about:"milliseconds for the TLS handshake" example:"61"`
	TTFBMillis      float32  `parquet:"ttfb_ms,optional" about:"milliseconds from request to first byte" example:"90.5"`
	TotalMillis     float32  `parquet:"total_ms,optional" about:"milliseconds of all exchanges, without waiting; null if never asked" example:"207"`
	BodyBytes       int64    `parquet:"body_bytes" about:"decoded bytes kept" example:"1234"`
	Truncated       bool     `parquet:"truncated" about:"the body was cut at the limit" example:"false"`
	BodyHash        int64    `parquet:"body_hash" json:",string" about:"xxh64 of the kept body, key of bodies; 0 without one" example:"-4265267296055464877"`
	Finding         string   `parquet:"finding,dict" judged:"y" about:"what was seen, in one word; surveys count by it, docs/CHECKS.md" example:"rules"`
	Access          string   `parquet:"access,dict" judged:"y" about:"conditional, full_allow, full_disallow, unknown (RFC 9309 §2.3.1)" example:"conditional"`
	AccessSource    string   `parquet:"access_source,dict" judged:"y" about:"fresh; other words are reserved" example:"fresh"`
	CheckStatus     string   `parquet:"check_status,dict" judged:"y" about:"check robots.txt 1.0.0: pass, warn, fail" example:"warn"`
	Score           float64  `parquet:"score" judged:"y" about:"of the check, 0 to 1" example:"0.85"`
	StepFetch       string   `parquet:"step_fetch,dict" judged:"y" about:"pass, warn, fail, skipped" example:"pass"`
	StepCoreSyntax  string   `parquet:"step_core_syntax,dict" judged:"y" about:"pass, warn, fail, skipped" example:"warn"`
	StepExtensions  string   `parquet:"step_extensions,dict" judged:"y" about:"pass, warn, fail, skipped" example:"skipped"`
	NLines          int32    `parquet:"n_lines" judged:"y" about:"lines of the file" example:"57"`
	NGroups         int32    `parquet:"n_groups" judged:"y" about:"groups" example:"3"`
	NAgents         int32    `parquet:"n_agents" judged:"y" about:"distinct agents named, * included" example:"5"`
	NAllow          int32    `parquet:"n_allow" judged:"y" about:"allow lines" example:"2"`
	NDisallow       int32    `parquet:"n_disallow" judged:"y" about:"disallow lines" example:"31"`
	NSitemaps       int32    `parquet:"n_sitemaps" judged:"y" about:"sitemaps with an absolute URL" example:"1"`
	NExtensions     int32    `parquet:"n_extensions" judged:"y" about:"valid lines with other known extensions" example:"2"`
	NLegacy         int32    `parquet:"n_legacy" judged:"y" about:"lines with an unsupported legacy key" example:"1"`
	NUnknown        int32    `parquet:"n_unknown" judged:"y" about:"lines with an unknown key" example:"0"`
	NOrphan         int32    `parquet:"n_orphan" judged:"y" about:"rules before any user-agent" example:"0"`
	NInvalid        int32    `parquet:"n_invalid" judged:"y" about:"lines without a record, or with an invalid value (docs/CHECKS.md)" example:"1"`
	NTypo           int32    `parquet:"n_typo" judged:"y" about:"misspelled records, read all the same" example:"0"`
	HasBOM          bool     `parquet:"has_bom" judged:"y" about:"a whole UTF-8 byte order mark comes first" example:"false"`
	IsHTML          bool     `parquet:"is_html" judged:"y" about:"the body is an HTML page" example:"false"`
	HTMLTitle       string   `parquet:"html_title,optional,plain" judged:"y" max:"200" about:"title of an HTML page, character references as they stand" example:"404 Not Found"`
	ValidUTF8       *bool    `parquet:"valid_utf8,optional" judged:"y" about:"the body is valid UTF-8; null if empty or absent" example:"true"`
	ManagedBlock    bool     `parquet:"managed_block" judged:"y" about:"a block that a CDN manages" example:"false"`
	ManagedBy       string   `parquet:"managed_by,optional,dict" judged:"y" about:"who wrote the file or a block of it, by an exact comment, docs/CHECKS.md" example:"cloudflare"`
	CrawlDelay      *float64 `parquet:"crawl_delay,optional" judged:"y" about:"seconds, of group *" example:"10"`
	ContentSignal   string   `parquet:"content_signal,optional,dict" judged:"y" max:"500" about:"what Content-Signal lines say of / and agents that no group names, added up: no over yes, search, ai-input, ai-train, use, other keys" example:"search=yes, ai-train=no"`
	ContentUsage    string   `parquet:"content_usage,optional,dict" judged:"y" max:"500" about:"first valid Content-Usage" example:"train-ai=n"`
	License         string   `parquet:"license,optional,plain" judged:"y" max:"2048" about:"first License with an absolute URL" example:"https://example.co.uk/license.xml"`
	Sitemaps        []string `parquet:"sitemaps,list" judged:"y" parquet-element:",plain" about:"first 100 sitemaps with an absolute URL, of at most 2,048 bytes" example:"[\"https://www.example.co.uk/sitemap.xml\"]"`
	StarVerdict     string   `parquet:"star_verdict,dict" judged:"y" about:"of unnamed agents: allowed, partial, blocked; unknown as access" example:"partial"`
	Named           []string `parquet:"named,list" judged:"y" parquet-element:",dict" about:"registry tokens that groups name" example:"[\"GPTBot\", \"Googlebot\"]"`
	Blocked         []string `parquet:"blocked,list" judged:"y" parquet-element:",dict" about:"registry tokens that are blocked, also by fallback or *" example:"[\"GPTBot\"]"`
	Partial         []string `parquet:"partial,list" judged:"y" parquet-element:",dict" about:"registry tokens that are partly blocked" example:"[\"Googlebot\"]"`
	PolicyID        int64    `parquet:"policy_id,optional,dict" json:",string" judged:"y" since:"2" about:"key of policies: what the file makes of all crawlers" example:"6151466271542271102"`
	RFCPolicyID     int64    `parquet:"rfc_policy_id,optional,dict" json:",string" judged:"y" since:"2" about:"the same, of the file as RFC 9309 has it to the letter" example:"6151466271542271102"`
	UnmanagedID     int64    `parquet:"unmanaged_policy_id,optional,dict" json:",string" judged:"y" since:"3" about:"the same, of the file without the blocks that a CDN manages; null without one" example:"6151466271542271102"`
	Advice          []string `parquet:"advice,list" judged:"y" parquet-element:",dict" about:"ids of advice to the site's owner, in the order of docs/CHECKS.md" example:"[\"noindex_in_robots\"]"`
}

// HopRow is an element of SiteRow.Redirects.
type HopRow struct {
	Status int32  `parquet:"status" about:"status that redirected" example:"301"`
	URL    string `parquet:"url,plain" about:"absolute target, at most 2,048 bytes" example:"https://www.example.co.uk/static/robots.txt"`
}

// PolicyRow is a row of the table policies: how files treat all crawlers (audit.Policy). It contains only what the file
// itself says. For a token that no group names, a fallback or `*` decides, depending on the registry.
type PolicyRow struct {
	PolicyID       int64    `parquet:"policy_id" json:",string" about:"hash of all other columns, as in sites" example:"6151466271542271102"`
	Star           bool     `parquet:"star" about:"there is a group of *" example:"true"`
	StarVerdict    string   `parquet:"star_verdict,dict" about:"as in sites" example:"partial"`
	StarRootDenied bool     `parquet:"star_root_denied" about:"the group of * denies /" example:"false"`
	StarDPIAll     bool     `parquet:"star_dpi_all" about:"the group of * is all by the Data Provenance Initiative" example:"false"`
	Own            []string `parquet:"own,list" parquet-element:",dict" about:"registry tokens that a group of their own names, not by the lenient reading; sorted" example:"[\"GPTBot\", \"Googlebot\"]"`
	OwnBlocked     []string `parquet:"own_blocked,list" parquet-element:",dict" about:"of own: blocked" example:"[\"GPTBot\"]"`
	OwnPartial     []string `parquet:"own_partial,list" parquet-element:",dict" about:"of own: partly blocked" example:"[\"Googlebot\"]"`
	OwnRootDenied  []string `parquet:"own_root_denied,list" parquet-element:",dict" about:"of own: / may not be fetched" example:"[\"GPTBot\"]"`
	OwnDPIAll      []string `parquet:"own_dpi_all,list" parquet-element:",dict" about:"of own: all by the Data Provenance Initiative" example:"[\"GPTBot\"]"`
	ContentSignal  string   `parquet:"content_signal,optional,plain" max:"500" about:"as in sites, other keys in alphabetical order" example:"search=yes, ai-train=no"`
	ContentUsage   string   `parquet:"content_usage,optional,dict" about:"what Content-Usage says about / for *, as in verdicts" example:"train-ai=n"`
	Licensed       bool     `parquet:"licensed" about:"sites.license is not null" example:"true"`
	ManagedBy      string   `parquet:"managed_by,optional,dict" about:"as in sites" example:"cloudflare"`
}

// VerdictRow is a row of the table verdicts: what one agent may do on one site.
type VerdictRow struct {
	Origin          string   `parquet:"origin,delta" about:"as in sites" example:"https://www.example.co.uk"`
	Host            string   `parquet:"host,delta" about:"as in sites" example:"www.example.co.uk"`
	Port            int32    `parquet:"port,delta" about:"as in sites" example:"443"`
	Requested       string   `parquet:"requested,dict" about:"as in sites" example:"auto"`
	Seq             int64    `parquet:"seq,delta" stats:"y" about:"as in sites; with scan_id the key there" example:"41"`
	Rank            int64    `parquet:"rank,optional,delta" stats:"y" about:"as in sites" example:"42"`
	TLD             string   `parquet:"tld,optional,dict" about:"as in sites" example:"uk"`
	Token           string   `parquet:"token,dict" max:"200" about:"as the registry spells it, else lower case; * for the wildcard" example:"GPTBot"`
	Known           bool     `parquet:"known" about:"the registry has it" example:"true"`
	Category        string   `parquet:"category,optional,dict" about:"of a known token" example:"ai"`
	Verdict         string   `parquet:"verdict,dict" about:"allowed, partial, blocked" example:"blocked"`
	Via             string   `parquet:"via,dict" about:"whose group it follows: own, fallback, star, none; http unless access is conditional" example:"own"`
	RootAllowed     bool     `parquet:"root_allowed" about:"/ may be fetched" example:"false"`
	NAllow          int32    `parquet:"n_allow,dict" about:"allow lines" example:"0"`
	NDisallow       int32    `parquet:"n_disallow,dict" about:"disallow lines" example:"1"`
	HasDisallowRoot bool     `parquet:"has_disallow_root" about:"has Disallow: /" example:"true"`
	DPI             string   `parquet:"dpi,dict" about:"by the Data Provenance Initiative: all, some, none" example:"all"`
	CrawlDelay      *float64 `parquet:"crawl_delay,optional" about:"seconds" example:"10"`
	RequestRate     float64  `parquet:"request_rate,optional" about:"requests a second" example:"0.2"`
	VisitFrom       *int32   `parquet:"visit_from,optional" about:"start of Visit-time, minutes after midnight UTC" example:"0"`
	VisitTo         *int32   `parquet:"visit_to,optional" about:"end of Visit-time, at most 1440; less than visit_from across midnight" example:"525"`
	ContentSignal   string   `parquet:"content_signal,optional,dict" max:"500" about:"what the agent's groups say of / by Content-Signal, as in sites; without lines before any group" example:"ai-train=no"`
	ContentUsage    string   `parquet:"content_usage,optional,dict" about:"what Content-Usage says about /, even if / is disallowed" example:"train-ai=n, search=y"`
	Line            int32    `parquet:"line,optional,delta" about:"1-based line of the group" example:"12"`
	Lenient         bool     `parquet:"lenient" about:"named only by the lenient reading; in no definition of blocking" example:"false"`
	Limited         bool     `parquet:"limited" about:"too many paths: the verdict is partial; other columns hold, of the first million records" example:"false"`
}

// EvidenceRow is a row of the table evidence: a noteworthy line.
type EvidenceRow struct {
	Origin    string `parquet:"origin,delta" about:"as in sites" example:"https://www.example.co.uk"`
	Seq       int64  `parquet:"seq,delta" stats:"y" about:"as in sites" example:"41"`
	Line      int32  `parquet:"line,delta" about:"1-based line of the file" example:"7"`
	GroupLine int32  `parquet:"group_line,optional,delta" about:"where its group begins; null before any group" example:"5"`
	Kind      string `parquet:"kind,dict" about:"sitemap, extension, signal, usage, license, legacy, unknown, orphan, invalid, typo, conflict" example:"unknown"`
	Key       string `parquet:"key,dict" max:"100" about:"key of the record" example:"users-agent"`
	Value     string `parquet:"value,delta" max:"500" about:"its value" example:"GPTBot"`
}

// BodyRow is a row of the table bodies: each distinct body of robots records once a part, no HTML.
type BodyRow struct {
	BodyHash int64  `parquet:"body_hash" json:",string" about:"as in sites" example:"-4265267296055464877"`
	Body     []byte `parquet:"body,plain" about:"raw bytes as kept" example:"User-agent: *\nDisallow: /private/\n"`
}

// TokenStatsRow is a row of the table token_stats: one token in one segment of a scan's sites.
type TokenStatsRow struct {
	Token         string `parquet:"token,plain" about:"as in verdicts" example:"GPTBot"`
	Known         bool   `parquet:"known" about:"the registry has it" example:"true"`
	Category      string `parquet:"category,optional,dict" about:"of a known token" example:"ai"`
	Operator      string `parquet:"operator,optional,dict" about:"who runs the crawler" example:"OpenAI"`
	Purpose       string `parquet:"purpose,optional,dict" about:"what it crawls for" example:"training"`
	SegmentKind   string `parquet:"segment_kind,dict" about:"all, rank (cumulative), tld, label" example:"rank"`
	SegmentValue  string `parquet:"segment_value,dict" about:"empty for all; 1000, 10000 … for rank" example:"1000"`
	SitesAll      int64  `parquet:"sites_all" about:"all rows of sites" example:"1000"`
	SitesAnswered int64  `parquet:"sites_answered" about:"sites with an HTTP status" example:"961"`
	Sites         int64  `parquet:"sites" about:"sites with access conditional" example:"849"`
	SitesRules    int64  `parquet:"sites_rules" about:"sites with finding rules" example:"841"`
	Mention       int64  `parquet:"mention" about:"sites that name it" example:"178"`
	ExplicitRoot  int64  `parquet:"explicit_root" about:"sites whose own group for it denies /" example:"147"`
	Full          int64  `parquet:"full" about:"sites where it is blocked" example:"160"`
	Partial       int64  `parquet:"partial" about:"sites where it is partly blocked" example:"322"`
	Any           int64  `parquet:"any" about:"full + partial" example:"482"`
	DPIAll        int64  `parquet:"dpi_all" about:"sites whose group, or else *, the Data Provenance Initiative reads as all" example:"158"`
	RFCEffective  int64  `parquet:"rfc_effective" about:"sites_answered that block it, by the rules of any access conditional or by status" example:"171"`
	Unreachable   int64  `parquet:"unreachable" about:"sites asked, without an HTTP status" example:"39"`
	ViaOwn        int64  `parquet:"via_own" about:"sites where it follows its own group" example:"178"`
	ViaStar       int64  `parquet:"via_star" about:"sites where it follows *" example:"612"`
	ViaFallback   int64  `parquet:"via_fallback" about:"sites where it follows its fallback's group" example:"0"`
	Lenient       int64  `parquet:"lenient" about:"sites that name it by the lenient reading only" example:"9"`

	FullViaOwn          int64 `parquet:"full_via_own" about:"of full: sites where it is blocked by its own group" example:"147"`
	FullViaFallback     int64 `parquet:"full_via_fallback" about:"of full: sites where it is blocked by its fallback's group" example:"0"`
	FullViaStar         int64 `parquet:"full_via_star" about:"of full: sites where it is blocked by *" example:"13"`
	AnyViaOwn           int64 `parquet:"any_via_own" about:"of any: sites where it is blocked or partly blocked by its own group" example:"170"`
	AnyViaFallback      int64 `parquet:"any_via_fallback" about:"of any: sites where it is blocked or partly blocked by its fallback's group" example:"0"`
	AnyViaStar          int64 `parquet:"any_via_star" about:"of any: sites where it is blocked or partly blocked by *" example:"312"`
	AnsweredRules       int64 `parquet:"answered_rules" about:"of sites_answered: finding rules" example:"841"`
	AnsweredNoRules     int64 `parquet:"answered_no_rules" about:"of sites_answered: finding no_rules" example:"8"`
	AnsweredHTML        int64 `parquet:"answered_html" about:"of sites_answered: finding html" example:"12"`
	AnsweredNone        int64 `parquet:"answered_none" about:"of sites_answered: finding none" example:"71"`
	AnsweredRefused     int64 `parquet:"answered_refused" about:"of sites_answered: finding refused" example:"9"`
	AnsweredChallenged  int64 `parquet:"answered_challenged" about:"of sites_answered: finding challenged" example:"6"`
	AnsweredRateLimited int64 `parquet:"answered_rate_limited" about:"of sites_answered: finding rate_limited" example:"4"`
	AnsweredServerError int64 `parquet:"answered_server_error" about:"of sites_answered: finding server_error" example:"9"`
	AnsweredUnreachable int64 `parquet:"answered_unreachable" about:"of sites_answered: finding unreachable" example:"1"`
}

// SupersededRow is a row of the table superseded.
type SupersededRow struct {
	ScanID string `parquet:"scan_id,dict" about:"of the row" example:"20261121-5f3a9c"`
	Seq    int64  `parquet:"seq,delta" about:"of the row" example:"41"`
}

// RecordStatsRow is a row of the table record_stats: one key in the files of a scan.
type RecordStatsRow struct {
	Kind  string `parquet:"kind,dict" about:"as in evidence, without sitemap and orphan" example:"legacy"`
	Key   string `parquet:"key,plain" about:"as in evidence, in lower case; never empty" example:"noindex"`
	Sites int64  `parquet:"sites" about:"sites with such a line" example:"812"`
	Lines int64  `parquet:"lines" about:"lines in evidence, at most 32 a site and kind" example:"3071"`
}

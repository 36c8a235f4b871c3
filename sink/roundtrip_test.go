package sink

import (
	"context"
	"flag"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file, which -update writes.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not up to date; see what changed with git diff after go test -update. Now:\n%s", path, got)
	}
}

// TestParquetSchema pins the physical and logical types of every column as parquet-go writes them.
func TestParquetSchema(t *testing.T) {
	var b strings.Builder
	for _, row := range []any{schema.SiteRow{}, schema.HopRow{}, schema.VerdictRow{}, schema.EvidenceRow{},
		schema.BodyRow{}, schema.PolicyRow{}, schema.TokenStatsRow{}, schema.RecordStatsRow{}} {
		b.WriteString(parquet.SchemaOf(row).String())
		b.WriteString("\n")
	}
	golden(t, "testdata/schema.txt", []byte(b.String()))
}

func writeSites(t *testing.T, st store.Store, scanID string, sites ...*audit.Site) {
	t.Helper()
	w := mustOpen(t, st, Options{ScanID: scanID, Date: "2026-11-21", ToolVersion: "test"})
	for _, s := range sites {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := completeListed(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func readAll[T any](t *testing.T, st store.Store, scanID, table string) []T {
	t.Helper()
	scan, err := commit.ReadScan(context.Background(), st, scanID)
	if err != nil {
		t.Fatal(err)
	}
	var rows []T
	for row, err := range read.Rows[T](context.Background(), scan, table) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}

// extremeSite returns a site with extreme values from a hostile host and list.
func extremeSite(t *testing.T, seq uint64) *audit.Site {
	s := typicalSite(t, seq)
	bad := []byte("a\xff\x00\x1b[31m\u202e\xe2\x82")
	long := []byte(strings.Repeat("€", 2000))
	s.Input, s.Label, s.Rank = "x\xff"+strings.Repeat("y", 5000), "\xc3", math.MaxInt64
	s.SetOrigin(mustOrigin(t, "ftp://[2001:db8::1]:65535"))
	s.Fetch.Answered = s.Origin
	s.Fetch.Final = exchange.Target{Origin: s.Origin, Path: "/\xff" + strings.Repeat("z", 5000)}
	s.Fetch.Hops = nil
	for range 50 {
		s.Fetch.Hops = append(s.Fetch.Hops, exchange.Hop{Status: 999, URL: "http://h/" + string(bad)})
	}
	s.Fetch.Status, s.Fetch.Attempts = 599, math.MaxInt
	s.Fetch.Fields = exchange.Fields{Server: bad, ContentType: long, ETag: []byte("\xff"), LastModified: []byte{},
		CacheControl: long, XRobotsTag: bad, CDN: ""}
	s.Fetch.TLSVersion, s.Fetch.TLSVerified = 0x7f00, exchange.No
	s.Fetch.FetchedAt = time.UnixMilli(1).UTC()
	s.Report.Score, s.Report.CrawlDelay = 1, math.Inf(1)
	s.Report.Counts.Lines = math.MaxInt
	s.Report.ContentSignal, s.Report.License = bad, long
	s.Report.Sitemaps = nil
	for range 150 {
		s.Report.Sitemaps = append(s.Report.Sitemaps, bad)
	}
	s.Report.BodyHash = math.MaxUint64
	s.Report.Named = append(s.Report.Named, math.MaxUint16) // no such token
	s.Report.Verdicts = append(s.Report.Verdicts, audit.Verdict{Token: bad, ID: math.MaxInt32,
		ContentSignal: []byte("search=no" + strings.Repeat(", a=b", 200)), CrawlDelay: math.NaN(), HasCrawlDelay: true})
	s.Report.Evidence = append(s.Report.Evidence, audit.Evidence{Line: math.MaxInt, GroupLine: math.MaxInt,
		Kind: audit.KindInvalid, Key: long, Value: bad})
	return s
}

// TestRoundTrip writes sites with every column filled, with every nullable column null, and with values from hostile
// hosts, and reads all tables back. The expected rows are literals.
func TestRoundTrip(t *testing.T) {
	dir := newDir(t)
	typical, dead, extreme := typicalSite(t, 7), deadSite(t, 8), extremeSite(t, 9)
	writeSites(t, dir, "round-trip", typical, dead, extreme)
	version := tokens.Default().Version

	sites := readAll[schema.SiteRow](t, dir, "round-trip", schema.Sites)
	if len(sites) != 3 {
		t.Fatalf("%d sites", len(sites))
	}
	zero := 0.0
	host := "www7.example.co.uk"
	want := schema.SiteRow{
		ScanID: "round-trip", RegistryVersion: version, Seq: 7, Input: host, Host: host, Port: 443, Requested: "auto",
		Origin: "https://" + host, Rank: 8, Label: "news", Domain: "example.co.uk", ICANN: "co.uk", TLD: "uk",
		FetchedAt: time.Date(2026, 11, 21, 4, 5, 6, 796e6, time.UTC).UnixMilli(),
		Outcome:   "answered", Status: 200, Hops: 1, FinalURL: "https://" + host + "/static/robots.txt",
		Redirects: []schema.HopRow{{Status: 301, URL: "https://" + host + "/static/robots.txt"}}, Attempts: 1,
		RemoteIP:    "192.0.2.7",
		HTTPVersion: "HTTP/1.1", Server: "nginx", ContentType: "text/plain; charset=utf-8", CDN: "cloudflare",
		Challenge: "vercel",
		ETag:      string(typical.Fetch.Fields.ETag), LastModified: "Sat, 21 Nov 2026 04:05:06 GMT", CacheControl: "max-age=3600",
		XRobotsTag: "noai", UsageHeader: "search=y",
		TLSVersion: "TLS 1.3", TLSVerified: new(true),
		DNSMillis: 1.5, ConnectMillis: 20, TLSMillis: 30, TTFBMillis: 40, TotalMillis: 100,
		RedirectScope: "same_host", Finding: "rules", ManagedBy: "cloudflare", HTMLTitle: "a title",
		BodyBytes: int64(len(typical.Fetch.Body)), BodyHash: math.MinInt64 + 7, Access: "conditional", AccessSource: "fresh",
		CheckStatus: "warn", Score: 0.75, StepFetch: "pass", StepCoreSyntax: "warn", StepExtensions: "skipped",
		NLines: 1, NGroups: 2, NAgents: 3, NAllow: 4, NDisallow: 5, NSitemaps: 6, NExtensions: 7, NLegacy: 8, NUnknown: 9,
		NOrphan: 10, NInvalid: 11, NTypo: 12,
		HasBOM: true, ValidUTF8: new(true), ManagedBlock: true, CrawlDelay: &zero,
		ContentSignal: "ai-train=no", ContentUsage: "train-ai=n", License: "https://example.com/license.xml",
		Sitemaps: []string{"https://" + host + "/sitemap.xml", "https://" + host + "/news.xml"}, StarVerdict: "partial",
		Named: sites[0].Named, Blocked: []string{"GPTBot"}, Partial: []string{"Googlebot"},
		PolicyID: math.MinInt64 + 5, RFCPolicyID: 6, UnmanagedID: 7,
		Advice: []string{"noindex_in_robots", "x_robots_tag_of_robots"},
	}
	equal(t, "typical", sites[0], want)
	if len(want.Named) != 2 || want.Named[0] == want.Named[1] {
		t.Errorf("named %v", want.Named)
	}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() && v.Type().Field(i).Name != "Error" && v.Type().Field(i).Name != "Truncated" &&
			v.Type().Field(i).Name != "IsHTML" {
			t.Errorf("the typical site leaves column %s empty: nothing is tested", v.Type().Field(i).Name)
		}
	}

	equal(t, "dead", sites[1], schema.SiteRow{
		ScanID: "round-trip", RegistryVersion: version, Seq: 8, Input: "http://dead.invalid:8080/", Host: "dead.invalid",
		Port: 8080, Requested: "http",
		Origin: "http://dead.invalid:8080", Domain: "dead.invalid", Outcome: "dns_not_found",
		Error:     "the name does not exist (NXDOMAIN)",
		Redirects: []schema.HopRow{}, RedirectScope: "none", Attempts: 2, Finding: "unreachable", Access: "full_disallow",
		AccessSource: "fresh", CheckStatus: "fail",
		StepFetch: "fail", StepCoreSyntax: "skipped", StepExtensions: "skipped", Sitemaps: []string{}, StarVerdict: "allowed",
		Named: []string{}, Blocked: []string{}, Partial: []string{}, Advice: []string{},
	})

	x := sites[2]
	repaired := "a\ufffd\x00\x1b[31m\u202e\ufffd\ufffd"
	f := func(name string, got, want any) {
		t.Helper()
		equal(t, "extreme "+name, got, want)
	}
	f("input", x.Input, "x\ufffd"+strings.Repeat("y", schema.MaxInput-4))
	f("label", x.Label, "\ufffd")
	f("rank", x.Rank, int64(math.MaxInt64))
	f("host", x.Host, "2001:db8::1")
	f("origin", x.Origin, "ftp://[2001:db8::1]:65535")
	f("domain", x.Domain+x.TLD, "")
	f("hops", x.Hops, int32(50))
	f("redirects", len(x.Redirects), schema.MaxHops)
	f("redirect", x.Redirects[schema.MaxHops-1], schema.HopRow{Status: 999, URL: "http://h/" + repaired})
	f("final_url", len(x.FinalURL), schema.MaxURL)
	f("server", x.Server, repaired)
	f("content_type", x.ContentType, strings.Repeat("€", 166))
	f("etag", x.ETag, "\ufffd")
	f("last_modified", x.LastModified, "")
	f("tls_version", x.TLSVersion, "other")
	f("tls_verified", *x.TLSVerified, false)
	f("attempts", x.Attempts, int32(math.MaxInt32))
	f("fetched_at", x.FetchedAt, int64(1))
	f("crawl_delay", x.CrawlDelay, (*float64)(nil))
	f("n_lines", x.NLines, int32(math.MaxInt32))
	f("sitemaps", len(x.Sitemaps), audit.MaxSitemaps)
	f("sitemap", x.Sitemaps[audit.MaxSitemaps-1], repaired)
	f("body_hash", x.BodyHash, int64(-1))
	f("named", x.Named, want.Named)

	policies := readAll[schema.PolicyRow](t, dir, "round-trip", schema.Policies)
	if len(policies) != 2 {
		t.Fatalf("%d policies", len(policies))
	}
	equal(t, "policy", policies[0], schema.PolicyRow{
		PolicyID: math.MinInt64 + 5, Star: true, StarVerdict: "partial", StarRootDenied: true, StarDPIAll: true,
		Own: []string{"Googlebot", "GPTBot"}, OwnBlocked: []string{"GPTBot"}, OwnPartial: []string{"Googlebot"},
		OwnRootDenied: []string{"Googlebot", "GPTBot"}, OwnDPIAll: []string{"GPTBot"},
		ContentSignal: "ai-train=no", ContentUsage: "train-ai=n", Licensed: true, ManagedBy: "cloudflare",
	})
	equal(t, "policy by the RFC", policies[1], schema.PolicyRow{
		PolicyID: 6, StarVerdict: "allowed", Own: []string{"GPTBot"}, OwnBlocked: []string{}, OwnPartial: []string{},
		OwnRootDenied: []string{}, OwnDPIAll: []string{},
	})

	for i, judged := range []audit.Policy{typical.Report.Policy, typical.Report.RFCPolicy} {
		judged.Lenient = nil // the table does not have it
		p := siterows.PolicyOf(&policies[i], tokens.Default())
		if got, want := p.Cells(nil, tokens.Default()), judged.Cells(nil, tokens.Default()); !slices.Equal(got, want) {
			t.Errorf("policy %d means %v, and meant %v", p.ID, got, want)
		}
	}

	verdicts := readAll[schema.VerdictRow](t, dir, "round-trip", schema.Verdicts)
	if len(verdicts) != 4+1+5 {
		t.Fatalf("%d verdicts", len(verdicts))
	}
	base := schema.VerdictRow{Origin: "https://" + host, Host: host, Port: 443, Requested: "auto", Seq: 7, Rank: 8,
		TLD: "uk"}
	row := func(change func(*schema.VerdictRow)) schema.VerdictRow { r := base; change(&r); return r }
	delay, from, to := 2.5, int32(0), int32(525)
	equal(t, "verdict 0", verdicts[0], row(func(r *schema.VerdictRow) {
		r.Token, r.Known, r.Category, r.Verdict, r.Via, r.NDisallow, r.HasDisallowRoot, r.DPI, r.Line,
			r.ContentSignal = "GPTBot", true, "ai", "blocked", "own", 1, true, "all", 1, "ai-train=no"
	}))
	equal(t, "verdict 1", verdicts[1], row(func(r *schema.VerdictRow) {
		r.Token, r.Known, r.Category, r.Verdict, r.Via, r.RootAllowed, r.NAllow, r.NDisallow, r.DPI, r.CrawlDelay, r.Line,
			r.Limited = "Googlebot", true, "search", "partial", "own", true, 2, 3, "some", &delay, 4, true
		r.RequestRate, r.VisitFrom, r.VisitTo, r.ContentUsage = 0.2, &from, &to, "train-ai=n, search=y"
	}))
	equal(t, "verdict 2", verdicts[2], row(func(r *schema.VerdictRow) {
		r.Token, r.Verdict, r.Via, r.RootAllowed, r.DPI, r.Line, r.Lenient = "mybot", "allowed", "own", true, "none", 9, true
	}))
	equal(t, "verdict 3", verdicts[3], row(func(r *schema.VerdictRow) {
		r.Token, r.Verdict, r.Via, r.RootAllowed, r.NDisallow, r.DPI, r.Line = "*", "partial", "star", true, 1, "some", 12
	}))
	equal(t, "verdict 4", verdicts[4], schema.VerdictRow{Origin: "http://dead.invalid:8080", Host: "dead.invalid",
		Port: 8080, Requested: "http", Seq: 8, Token: "*", Verdict: "blocked", Via: "http", DPI: "none"})
	equal(t, "verdict 9", verdicts[9], schema.VerdictRow{Origin: x.Origin, Host: x.Host, Port: 65535, Requested: "ftp",
		Seq: 9, Rank: math.MaxInt64, Token: repaired,
		Verdict: "allowed", Via: "none", DPI: "none", ContentSignal: ("search=no" +
			strings.Repeat(", a=b", 200))[:schema.MaxField]})

	evidence := readAll[schema.EvidenceRow](t, dir, "round-trip", schema.Evidence)
	if len(evidence) != 7 {
		t.Fatalf("%d rows of evidence", len(evidence))
	}
	equal(t, "evidence 0", evidence[0], schema.EvidenceRow{Origin: "https://" + host, Seq: 7, Line: 3, GroupLine: 0,
		Kind: "sitemap", Key: "Sitemap", Value: "https://" + host + "/sitemap.xml"})
	equal(t, "evidence 1", evidence[1], schema.EvidenceRow{Origin: "https://" + host, Seq: 7, Line: 7, GroupLine: 5,
		Kind: "unknown", Key: "users-agent", Value: "x"})
	equal(t, "evidence 6", evidence[6], schema.EvidenceRow{Origin: x.Origin, Seq: 9, Line: math.MaxInt32,
		GroupLine: math.MaxInt32, Kind: "invalid", Key: strings.Repeat("€", 33), Value: repaired})

	bodies := readAll[schema.BodyRow](t, dir, "round-trip", schema.Bodies)
	equal(t, "bodies", bodies, []schema.BodyRow{{BodyHash: math.MinInt64 + 7, Body: typical.Fetch.Body},
		{BodyHash: -1, Body: extreme.Fetch.Body}})

	metadata(t, dir, "sites/scan_date=2026-11-21/part-round-trip-0-0.parquet", map[string]string{
		"schema_version": strconv.Itoa(schema.Version), "tool_version": "test", "registry_version": version,
		"scan_id": "round-trip"})
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func metadata(t *testing.T, st store.Store, name string, want map[string]string) {
	t.Helper()
	object, err := st.Open(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	file, err := parquet.OpenFile(object, object.Size())
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range want {
		if got, _ := file.Lookup(key); got != value {
			t.Errorf("metadata %s = %q, want %q", key, got, value)
		}
	}
}

// TestBodiesOnce shows which bodies are kept: each distinct one once per part, and only those with robots records.
func TestBodiesOnce(t *testing.T) {
	dir := newDir(t)
	var sites []*audit.Site
	for seq := range uint64(6) {
		sites = append(sites, typicalSite(t, seq))
	}
	sites[1].Report.BodyHash = sites[0].Report.BodyHash
	sites[2].Report.IsHTML = true
	sites[3].Report.Counts = audit.Counts{Lines: 3, Invalid: 3}
	sites[4].Report.BodyHash = 0
	writeSites(t, dir, "bodies", sites...)
	var hashes []int64
	for _, row := range readAll[schema.BodyRow](t, dir, "bodies", schema.Bodies) {
		hashes = append(hashes, row.BodyHash)
	}
	equal(t, "hashes", hashes, []int64{math.MinInt64, math.MinInt64 + 5})
}

// TestBoundsOfTexts writes a site whose foreign texts are all longer than any bound. Each column's text is as long as
// its description says. A column without a bound has a text of ours.
func TestBoundsOfTexts(t *testing.T) {
	dir := newDir(t)
	s := extremeSite(t, 9)
	long := strings.Repeat("x", 5000)
	s.Input, s.Label = long, long
	f := &s.Fetch.Fields
	for _, text := range []*[]byte{&f.Server, &f.ContentType, &f.ETag, &f.LastModified, &f.CacheControl, &f.XRobotsTag,
		&f.ContentUsage, &s.Report.HTMLTitle, &s.Report.ContentSignal, &s.Report.ContentUsage, &s.Report.License} {
		*text = []byte(long)
	}
	s.Report.Policy.ContentSignal = []byte(long)
	s.Report.Verdicts = append(s.Report.Verdicts, audit.Verdict{Token: []byte(long), ID: math.MaxInt32,
		ContentSignal: []byte(long)})
	s.Report.Evidence = append(s.Report.Evidence, audit.Evidence{Kind: audit.KindInvalid, Key: []byte(long),
		Value: []byte(long)})
	writeSites(t, dir, "round-trip", s)
	bounded := 0
	columns := func(name string, rows ...any) {
		table := schema.Tables()[slices.IndexFunc(schema.Tables(),
			func(table schema.Table) bool { return table.Name == name })]
		for i, c := range table.Columns {
			longest := 0
			for _, row := range rows {
				if v := reflect.ValueOf(row).Field(i); v.Kind() == reflect.String {
					longest = max(longest, v.Len())
				}
			}
			if c.MaxBytes > 0 {
				bounded++
			}
			if c.MaxBytes > 0 && longest != c.MaxBytes && c.Name != "error" || c.MaxBytes == 0 && longest > 100 {
				// errors are texts of ours
				t.Errorf("%s.%s has %d bytes of at most %d", name, c.Name, longest, c.MaxBytes)
			}
		}
	}
	columns(schema.Sites, anys(readAll[schema.SiteRow](t, dir, "round-trip", schema.Sites))...)
	columns(schema.Policies, anys(readAll[schema.PolicyRow](t, dir, "round-trip", schema.Policies))...)
	columns(schema.Verdicts, anys(readAll[schema.VerdictRow](t, dir, "round-trip", schema.Verdicts))...)
	columns(schema.Evidence, anys(readAll[schema.EvidenceRow](t, dir, "round-trip", schema.Evidence))...)
	if bounded != 20 {
		t.Errorf("%d columns are bounded", bounded)
	}
}

func anys[T any](rows []T) (all []any) {
	for _, row := range rows {
		all = append(all, row)
	}
	return all
}

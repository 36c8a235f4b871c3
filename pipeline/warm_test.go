package pipeline_test

import (
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/store"
)

// Between the end of an exchange and the sink nothing is allocated once everything is warm: the body is parsed, judged
// and copied into columns in memory that is reused. The columns themselves grow until a part is full, which is why the
// test warms up a part first.
func TestFromAnswerToSinkNothingIsAllocated(t *testing.T) {
	bodies := []string{
		"",
		"User-agent: *\nDisallow:\n",
		"User-agent: *\r\nDisallow: /private/\r\nAllow: /private/public/\r\nCrawl-delay: 10\r\nSitemap: https://example.com/sitemap.xml\r\n",
		"User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: MJ12bot\nDisallow: /*.gif$\n\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n",
		"<!DOCTYPE html>\n<html><head><title>Not found: 404</title></head><body>\n<p>nothing: here</p></body></html>\n",
		"Disallow: /orphan\nuser agent: typo\nDisalow: /typo\nNoindex: /x\nnonsense\nunknown: \xff\xfe\nUser-agent: " +
			strings.Repeat("x", 300) + "\nDisallow: /" + strings.Repeat("a*b", 100) + "\n",
		strings.Repeat("User-agent: bot-a\nDisallow: /a\nAllow: /b*c$\n", 200),
	}
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	registry := tokens.Default()
	options := sink.Options{ScanID: "warm", PartRows: 1 << 20, ToolVersion: "test", Registry: registry}
	writer, err := sink.Open(t.Context(), dir, options)
	if err != nil {
		t.Fatal(err)
	}
	auditor := audit.New(registry)
	type named struct {
		origin      origin.Origin
		domain, tld string
	}
	var origins []named
	for i := range 1000 {
		o, err := origin.Parse(fmt.Sprintf("host%d.example.co.uk", i))
		if err != nil {
			t.Fatal(err)
		}
		origins = append(origins, named{o, o.RegistrableDomain(), o.TLD()})
	}
	served := make([][]byte, len(bodies))
	for i, body := range bodies {
		served[i] = []byte(body)
	}
	server, content := []byte("nginx"), []byte("text/plain; charset=utf-8")

	site := &audit.Site{}
	seq := 0
	step := func() {
		n := origins[seq%len(origins)]
		o := n.origin
		site.Reset()
		site.Seq, site.Input, site.Rank = uint64(seq), o.Host(), int64(seq+1)
		site.Origin, site.Domain, site.TLD = o, n.domain, n.tld
		site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Attempts = exchange.Answered, 200, 1
		site.Fetch.Answered, site.Fetch.Final = o.As(origin.HTTPS), exchange.Target{Origin: o.As(origin.HTTPS)}
		site.Fetch.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(seq)}), 443)
		site.Fetch.FetchedAt = time.UnixMilli(1_800_000_000_000 + int64(seq))
		site.Fetch.Timing = exchange.Timing{DNS: time.Millisecond, Connect: 2 * time.Millisecond, Total: 9 * time.Millisecond}
		site.Fetch.Proto, site.Fetch.TLSVersion, site.Fetch.TLSVerified = "HTTP/1.1", 0x0304, exchange.Yes
		site.Fetch.Fields.Server, site.Fetch.Fields.ContentType = site.Fetch.Keep(server), site.Fetch.Keep(content)
		site.Fetch.Body = served[seq%len(served)]
		auditor.Judge(site)
		if got, want := site.Report.BodyHash, xxhash.Sum64(site.Fetch.Body); got != want && len(site.Fetch.Body) > 0 {
			t.Fatalf("body hash %x; want %x", got, want)
		}
		if err := writer.Add(site); err != nil {
			t.Fatal(err)
		}
		seq++
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools of the Parquet writer
	for range 20000 {
		step()
	}
	if err := writer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		step()
	}
	if n := testing.AllocsPerRun(5000, step); n != 0 {
		t.Errorf("%v allocations an origin; want 0", n)
	}
	if err := writer.Abort(); err != nil {
		t.Fatal(err)
	}
}

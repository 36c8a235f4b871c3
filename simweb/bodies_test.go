package simweb

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestFiles compares the made-up files with measurements of real ones.
func TestFiles(t *testing.T) {
	p, err := newBodyPool(Config{Seed: 1, Bodies: 4096, AIShare: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	count := map[string]float64{}
	total, html := 0, 0
	distinct := map[string]bool{}
	for i := range p.len() {
		b := p.at(i)
		sizes = append(sizes, len(b))
		total += len(b)
		distinct[string(b)] = true
		add := func(key string, is bool) {
			if is {
				count[key] += 1 / float64(p.len())
			}
		}
		isHTML := bytes.Contains(b[:min(len(b), 100)], []byte("<!DOCTYPE html"))
		add("html", isHTML)
		add("crlf", bytes.Contains(b, []byte("\r\n")))
		add("cr", bytes.Contains(b, []byte("\r")) && !bytes.Contains(b, []byte("\n")))
		add("bom", bytes.HasPrefix(b, []byte("\xef\xbb\xbf")))
		add("nul", bytes.IndexByte(b, 0) >= 0)
		add("latin", !utf8.Valid(b))
		if isHTML {
			html += len(b)
			continue
		}
		lower := strings.ToLower(string(b))
		wild, ai := false, false
		for line := range strings.FieldsFuncSeq(lower, func(r rune) bool { return r == '\r' || r == '\n' }) {
			wild = wild || strings.HasPrefix(line, "disallow: ") && strings.ContainsAny(line, "*$")
			agent, ok := strings.CutPrefix(line, "user-agent: ")
			ai = ai || ok && slices.ContainsFunc(aiTokens, func(t aiToken) bool { return strings.ToLower(t.name) == agent })
		}
		add("wildcard", wild)
		add("ai", ai)
		add("delay", strings.Contains(lower, "crawl-delay:"))
		add("sitemap", strings.Contains(lower, "sitemap: http"))
		add("managed", strings.Contains(lower, "cloudflare managed content"))
	}
	slices.Sort(sizes)
	f := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s: %.4f, want %.4f ± %.4f", what, got, want, within)
		}
	}
	at := func(q float64) float64 { return float64(sizes[int(q*float64(len(sizes)))]) }
	f("p50", at(0.5), 327, 60)
	f("p90", at(0.9), 9600, 1000)
	f("p99", at(0.99), 178_000, 10_000)
	if m := sizes[len(sizes)-1]; m < 1_000_000 || m > 3_700_300 {
		t.Errorf("the largest is %d bytes", m)
	}
	f("html", count["html"], 0.12, 0.01)
	f("html's bytes", float64(html)/float64(total), 0.84, 0.05)
	f("crlf", count["crlf"], 0.34, 0.01)
	f("cr", count["cr"], 0.0014, 0.0005)
	f("bom", count["bom"], 0.018, 0.002)
	f("nul", count["nul"], 0.0025, 0.0005)
	f("latin", count["latin"], 0.011, 0.002)
	f("wildcard", count["wildcard"], 0.31, 0.03)
	f("delay", count["delay"], 0.125, 0.01)
	f("sitemap", count["sitemap"], 0.48, 0.01)
	f("ai", count["ai"], 0.2, 0.02)
	f("managed", count["managed"], 0.03, 0.005)
	if len(distinct) < p.len()*3/4 {
		t.Errorf("only %d of %d differ", len(distinct), p.len())
	}
}

func TestCorpus(t *testing.T) {
	pack := func(bodies ...string) string {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range bodies {
			n := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
			if _, err := z.Write(append(n, body...)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "pack.bin.zst")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	w := testWeb(t, Config{Corpus: pack("User-agent: one\nDisallow: /\n", "", "User-agent: two\nDisallow: /\n"),
		Only: []string{"ok"}})
	if got := w.world.bodies.len(); got != 2 {
		t.Errorf("%d files, want 2", got)
	}
	check(t, w, "http://example.com", DefaultPolicy())
	w.Close()
	f := func(path, want string) {
		t.Helper()
		if _, err := readCorpus(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(pack(), "no file in it")
	raw, err := os.ReadFile(pack("User-agent: one\nDisallow: /\n"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, raw[:len(raw)-6], 0o644); err != nil {
		t.Fatal(err)
	}
	f(cut, "cannot read the corpus")
	f(pack(strings.Repeat("x", maxCorpusOne+1)), "exceeds the bounds")
}

// TestRealCorpus serves real files, if the shared corpus exists.
func TestRealCorpus(t *testing.T) {
	w := testWeb(t, Config{Corpus: sharedtest.Path(t, "corpus", "modern-ai.bin.zst"), Only: []string{"ok", "ok-chunked",
		"ok-gzip", "close-body"}})
	if n := w.world.bodies.len(); n < 1000 {
		t.Errorf("%d files", n)
	}
	for _, host := range Names(0, 60) {
		check(t, w, "http://"+host, DefaultPolicy())
	}
}

func TestKept(t *testing.T) {
	f := func(body string, most int64, want string, truncated bool) {
		t.Helper()
		got, cut := whole(body).kept(most)
		if string(got) != want || cut != truncated {
			t.Errorf("%q cut at %d: %q %v, want %q %v", body, most, got, cut, want, truncated)
		}
	}
	f("a\nb\nc", 5, "a\nb\nc", false)
	f("a\nb\nc", 4, "a\nb\n", true)
	f("a\nb\nc", 3, "a\n", true)
	f("abc", 2, "", true)
	if got, cut := (content{[]byte("ab\n"), 8}).kept(100); string(got) != "ab\nab\nab" || cut {
		t.Errorf("%q %v", got, cut)
	}
	if got, cut := (content{[]byte("ab\n"), -1}).kept(5); string(got) != "ab\n" || !cut {
		t.Errorf("%q %v", got, cut)
	}
}

// TestFindingsOfFiles compares the truth about made-up files with a parser's results.
func TestFindingsOfFiles(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		p, err := newBodyPool(Config{Seed: seed, Bodies: 3000})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for i := range p.plans {
			body := p.at(i)
			s := &audit.Site{Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200, Body: body}}
			audit.Judge(s)
			got := findingAfter(&result{outcomes: []exchange.Outcome{exchange.Answered}, status: 200, body: body})
			if seen[got]++; got != s.Report.Finding.String() {
				t.Errorf("seed %d, file %d: %s, judged %v: %.200q", seed, i, got, s.Report.Finding, body)
			}
		}
		if len(seen) != 3 {
			t.Errorf("findings %v", seen)
		}
	}
}

package simweb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// bodyPool holds the files that hosts serve. A file is made at its first request, so that an idle web is small, and
// kept, so that a busy one is fast. All files are planned together, so that even a property of one in a thousand has
// its exact share.
type bodyPool struct {
	seed  uint64
	plans []plan
	made  []atomic.Pointer[[]byte]
}

// plan describes one file.
type plan struct {
	size  int
	marks marks
}

// marks are a file's properties.
type marks uint32

const (
	markHTML marks = 1 << iota
	markCRLF
	markCR
	markBOM
	markNUL
	markLatin
	markWildcards
	markDelay
	markSitemap
	markAI
	markManaged
	markSignal
	markUsage
	markLicense
	markNoindex
	markTypo
	markUnknown
	markBlockAll
)

// markShares lists properties of files, with their shares of all files, measured on real ones. least is the size in
// bytes from which a file can have the property and keep its size. A property follows those that it excludes or needs.
var markShares = []struct {
	mark    marks
	share   float64
	least   int
	not     marks // never with these
	ofHTML  bool  // also in HTML pages
	ofWhich marks // only with one of these; 0: any
}{
	{mark: markCR, share: 0.0014, least: 60, not: markHTML},
	{mark: markCRLF, share: 0.34, not: markCR, ofHTML: true},
	{mark: markBOM, share: 0.018, ofHTML: true},
	{mark: markNUL, share: 0.0025, least: 100, not: markHTML},
	{mark: markLatin, share: 0.011, least: 100, ofHTML: true},
	{mark: markWildcards, share: 0.31, least: 90, not: markHTML},
	{mark: markDelay, share: 0.125, least: 60, not: markHTML},
	{mark: markSitemap, share: 0.48, least: 75, not: markHTML},
	{mark: markAI, least: 110, not: markHTML}, // share: Config.AIShare
	{mark: markManaged, share: 0.03, least: 110, not: markHTML, ofWhich: markAI},
	{mark: markSignal, share: 0.02, least: 200, not: markHTML},
	{mark: markUsage, share: 0.004, least: 200, not: markHTML},
	{mark: markLicense, share: 0.004, least: 200, not: markHTML},
	{mark: markNoindex, share: 0.012, least: 150, not: markHTML},
	{mark: markTypo, share: 0.01, least: 100, not: markHTML},
	{mark: markUnknown, share: 0.03, least: 150, not: markHTML},
	{mark: markBlockAll, share: 0.04, not: markHTML},
}

const (
	htmlShare    = 0.12
	maxCorpusOne = 8 << 20 // bytes of one file of a corpus
	maxCorpusAll = 2 << 30 // bytes of all
	maxCorpus    = 1 << 20 // files
)

// newBodyPool plans the files, or reads the corpus.
func newBodyPool(cfg Config) (*bodyPool, error) {
	if cfg.Corpus != "" {
		return readCorpus(cfg.Corpus)
	}
	n := cfg.Bodies
	p := &bodyPool{seed: mix(cfg.Seed + 77), plans: make([]plan, n), made: make([]atomic.Pointer[[]byte], n)}
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	for i := range p.plans {
		p.plans[i].size = sizeAt((float64(i) + 0.5) / float64(n))
	}
	p.planHTML()
	for _, m := range markShares {
		share := m.share
		if m.mark == markAI {
			share = cfg.AIShare
		}
		var fit []int
		for i, pl := range p.plans {
			if pl.size < m.least || pl.marks&m.not != 0 || m.ofWhich != 0 && pl.marks&m.ofWhich == 0 {
				continue
			}
			fit = append(fit, i)
		}
		p.deal(rng, fit, int(math.Round(share*float64(n))), m.mark)
	}
	rng.Shuffle(n, func(i, j int) { p.plans[i], p.plans[j] = p.plans[j], p.plans[i] })
	return p, nil
}

// planHTML makes large files web pages: 12 % of the files hold 81 % of the bytes.
func (p *bodyPool) planHTML() {
	n := len(p.plans)
	left := int(math.Round(htmlShare * float64(n)))
	for i := n - 1; i >= 0 && left > 0; i-- {
		// Of the largest tenth all but every seventh, then every twelfth down to the middle.
		fromTop := n - 1 - i
		if fromTop < n/10 && fromTop%7 != 3 || fromTop >= n/10 && fromTop%12 == 0 {
			p.plans[i].marks |= markHTML
			left--
		}
	}
}

// deal marks count of the fitting files, spread evenly over their sizes.
func (p *bodyPool) deal(rng *rand.Rand, fit []int, count int, mark marks) {
	if count = min(count, len(fit)); count == 0 {
		return
	}
	for k := range count {
		from, to := k*len(fit)/count, (k+1)*len(fit)/count
		p.plans[fit[from+rng.IntN(to-from)]].marks |= mark
	}
}

// sizeAt returns the size in bytes at a quantile. Half of all files are smaller than 327 bytes; one in a thousand is
// larger than what a scanner keeps.
func sizeAt(u float64) int {
	points := [...]struct{ u, size float64 }{
		{0, 14}, {0.1, 25}, {0.25, 68}, {0.5, 327}, {0.75, 1500}, {0.9, 9600}, {0.99, 178_000}, {0.9987, 512_000},
		{1, 3_700_000},
	}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if u <= b.u {
			t := (u - a.u) / (b.u - a.u)
			return int(a.size * math.Pow(b.size/a.size, t))
		}
	}
	return int(points[len(points)-1].size)
}

func (p *bodyPool) len() int { return len(p.made) }

// at returns a file, which must not be changed.
func (p *bodyPool) at(i int) []byte {
	if b := p.made[i].Load(); b != nil {
		return *b
	}
	b := p.make(i)
	// Concurrent calls make the same file.
	p.made[i].CompareAndSwap(nil, &b)
	return *p.made[i].Load()
}

func (p *bodyPool) make(i int) []byte {
	w := writer{
		plan: p.plans[i],
		rng:  rand.New(rand.NewPCG(p.seed, uint64(i))),
		out:  make([]byte, 0, p.plans[i].size+256),
		eol:  "\n",
	}
	switch {
	case w.has(markCR):
		w.eol = "\r"
	case w.has(markCRLF):
		w.eol = "\r\n"
	}
	if w.has(markBOM) {
		w.out = append(w.out, "\ufeff"...)
	}
	if w.has(markHTML) {
		w.page()
	} else {
		w.file()
	}
	return w.out
}

// readCorpus reads real files, within bounds.
func readCorpus(path string) (*bodyPool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the corpus: %w", err)
	}
	defer file.Close()
	decoder, err := zstd.NewReader(bufio.NewReader(file), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, fmt.Errorf("cannot read the corpus: %w", err)
	}
	defer decoder.Close()
	var bodies [][]byte
	for total := 0; ; {
		var head [4]byte
		if _, err := io.ReadFull(decoder, head[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read the corpus: %w", err)
		}
		n := int(binary.LittleEndian.Uint32(head[:]))
		if total += n; n > maxCorpusOne || total > maxCorpusAll || len(bodies) == maxCorpus {
			return nil, fmt.Errorf("cannot read the corpus: file %d exceeds the bounds (%d bytes a file, %d in all, %d files)",
				len(bodies), maxCorpusOne, maxCorpusAll, maxCorpus)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(decoder, b); err != nil {
			return nil, fmt.Errorf("cannot read the corpus: %w", err)
		}
		if n < 16 {
			continue // answers that end in the middle of the body need a body
		}
		bodies = append(bodies, b)
	}
	if len(bodies) == 0 {
		return nil, fmt.Errorf("cannot read the corpus: no file in it")
	}
	p := &bodyPool{made: make([]atomic.Pointer[[]byte], len(bodies))}
	for i := range bodies {
		p.made[i].Store(&bodies[i])
	}
	return p, nil
}

// writer makes one file.
type writer struct {
	plan plan
	rng  *rand.Rand
	out  []byte
	eol  string
}

func (w *writer) has(m marks) bool { return w.plan.marks&m != 0 }

// room reports whether n more bytes fit into the planned size.
func (w *writer) room(n int) bool { return len(w.out)+n <= w.plan.size }

func (w *writer) line(parts ...string) {
	for _, p := range parts {
		w.out = append(w.out, p...)
	}
	w.out = append(w.out, w.eol...)
}

func (w *writer) pick(from []string) string { return from[w.rng.IntN(len(from))] }

// aiToken is an AI crawler's name, with its share of the files that name any.
type aiToken struct {
	name  string
	share float64
}

// The words that files are made of.
var (
	pathWords = strings.Fields(
		"admin account api archive assets backup blog cart cache catalog category checkout cms comments compare config " +
			"content customer data db dev download editor error export feed files forum gallery help home images img inc includes index install " +
			"internal js lib library list log login mail media members modules news node old order page pages partner photos plugins print private " +
			"product profile public register report review rss scripts search secure service session shop site static stats store style support " +
			"system tag temp test themes thread tmp tools topic tracking upload user users video view webmail wiki wp-admin wp-includes xmlrpc")
	wildRules = []string{"/*?", "/*.pdf$", "/*?sort=", "/*/feed/", "/*.php$", "/*&page=", "/*?utm_*", "/search*",
		"/*/print$", "/*sessionid=",
		"/*?replytocom", "/*/trackback/", "/tag/*/page/", "/*.xls$", "/*.json$", "/*?filter*=", "/cgi-bin/*", "/*/amp$"}
	crawlers = []string{"Googlebot", "bingbot", "YandexBot", "Baiduspider", "AhrefsBot", "SemrushBot", "MJ12bot", "DotBot",
		"Slurp", "PetalBot",
		"Googlebot-Image", "AdsBot-Google", "Mediapartners-Google", "DuckDuckBot", "SeznamBot", "Screaming Frog SEO Spider",
		"ia_archiver",
		"Twitterbot", "HTTrack", "WebZIP", "wget", "BLEXBot"}
	aiTokens = []aiToken{
		{"GPTBot", 0.84}, {"CCBot", 0.79}, {"ClaudeBot", 0.71}, {"Google-Extended", 0.66}, {"Bytespider", 0.55},
		{"anthropic-ai", 0.5},
		{"Amazonbot", 0.42}, {"Applebot-Extended", 0.42}, {"ChatGPT-User", 0.4}, {"PerplexityBot", 0.4},
		{"meta-externalagent", 0.34},
		{"FacebookBot", 0.3}, {"Claude-Web", 0.28}, {"cohere-ai", 0.26}, {"Diffbot", 0.24}, {"omgili", 0.2},
		{"omgilibot", 0.18},
		{"ImagesiftBot", 0.16}, {"OAI-SearchBot", 0.14}, {"YouBot", 0.12}, {"Timpibot", 0.1}, {"AI2Bot", 0.08},
		{"Claude-SearchBot", 0.06},
		{"Perplexity-User", 0.05}, {"Meta-ExternalFetcher", 0.05}, {"img2dataset", 0.05}, {"DeepSeekBot", 0.04},
		{"Kangaroo Bot", 0.02},
	}
	typos = []string{"Dissallow: /typo/", "Disalow: /typo/", "Useragent: *", "User agent: *", "Diallow: /typo/",
		"Disallow /typo/", "Sitemaps: x", "Allowed: /typo/"}
	unknowns = []string{"Clean-param: ref /articles/", "Host: www.example.com", "Request-rate: 1/5",
		"Visit-time: 0600-0845", "ACAP-crawler: *",
		"Disallow-Images: /", "Robot-version: 2.0.0", "LLM-Policy: /llms.txt", "Comment: please be kind",
		"X-Powered-By: rain"}
	proseWords = strings.Fields(
		"the and for with our your page site new all more about from home contact news products services information " +
			"read welcome company online free best world time people work first last long great little own other old right big high different " +
			"small large next early young important few public bad same able")
)

func (w *writer) path() string {
	s := "/" + w.pick(pathWords)
	for w.rng.IntN(3) == 0 {
		s += "/" + w.pick(pathWords)
	}
	switch w.rng.IntN(5) {
	case 0:
		return s + ".php"
	case 1:
		return s
	}
	return s + "/"
}

// file writes a robots.txt file: its marks, then rules up to the planned size.
func (w *writer) file() {
	if w.plan.size < 27 && w.plan.marks&^(markCRLF|markBOM|markBlockAll) == 0 && !w.has(markBlockAll) {
		w.line(w.pick([]string{"User-agent: *", "User-Agent: *\t", "# robots.txt", "User-agent: *" + w.eol + "Allow:"}))
		return
	}
	if w.plan.size > 150 && w.rng.IntN(3) == 0 {
		w.line("# robots.txt for this site")
	}
	if w.has(markManaged) {
		w.managed()
	}
	if w.has(markUnknown) && w.rng.IntN(4) == 0 {
		w.line("Disallow: ", w.path()) // before any group
	}
	w.star()
	if w.has(markAI) && !w.has(markManaged) {
		w.ai()
	}
	if w.has(markNUL) {
		w.line("# \x00\x00 torn")
	}
	if w.has(markLatin) {
		w.line("# Zug\xe4nge f\xfcr Suchmaschinen")
	}
	if w.has(markTypo) {
		w.line(w.pick(typos))
	}
	if w.has(markUnknown) {
		w.line(w.pick(unknowns))
	}
	if w.has(markLicense) {
		w.line("License: https://rsl.example/license.xml")
	}
	sitemaps := ""
	if w.has(markSitemap) {
		sitemaps = "Sitemap: https://www." + w.pick(pathWords) + "-" + strconv.Itoa(w.rng.IntN(1000)) + ".example/sitemap.xml"
		if w.rng.IntN(100) == 0 {
			sitemaps = "Sitemap: /sitemap.xml"
		}
	}
	for w.room(len(sitemaps) + 48) {
		w.more()
	}
	if sitemaps != "" {
		w.line(sitemaps)
	}
}

// star writes the group of `*`.
func (w *writer) star() {
	w.line(w.pick([]string{"User-agent: *", "User-agent: *", "User-Agent: *", "user-agent: *"}))
	if w.has(markDelay) {
		w.line("Crawl-delay: ", w.pick([]string{"10", "5", "1", "30", "2", "20", "0.5", "3", "10", "5", "1", "10s"}))
		if w.rng.IntN(20) == 0 && w.room(60) {
			w.line(w.pick([]string{"Request-rate: 1/5", "Request-rate: 10/1m", "Visit-time: 0200-0600", "Request-rate: often"}))
		}
	}
	if w.has(markSignal) {
		w.line("Content-Signal: ", w.pick([]string{"search=yes, ai-train=no", "search=yes,ai-input=yes,ai-train=yes",
			"ai-train=no"}))
	}
	if w.has(markUsage) {
		w.line("Content-Usage: ", w.pick([]string{"train-ai=n", "search=y, train-ai=n", "/images/ train-ai=n"}))
	}
	switch {
	case w.has(markBlockAll):
		w.line("Disallow: /")
	case w.plan.size < 40:
		w.line("Disallow:")
	case w.rng.IntN(4) == 0 && w.room(60):
		w.line("Disallow: /wp-admin/")
		w.line("Allow: /wp-admin/admin-ajax.php")
	default:
		w.line("Disallow: ", w.path())
	}
	if w.has(markWildcards) {
		w.line("Disallow: ", w.pick(wildRules))
	}
	if w.has(markNoindex) {
		w.line("Noindex: ", w.path())
	}
}

// ai writes groups of AI crawlers.
func (w *writer) ai() {
	w.line()
	style := w.rng.IntN(10)
	wrote := false
	for i, t := range aiTokens {
		last := i == len(aiTokens)-1
		if wrote && (!w.room(60) || w.rng.Float64() >= t.share) || !wrote && !last && w.rng.Float64() >= t.share {
			continue
		}
		wrote = true
		w.line("User-agent: ", t.name)
		switch {
		case style < 3:
			// One group of all names: the rules come at the end.
		case style < 8:
			w.line("Disallow: /")
			w.line()
		case style == 8:
			w.line("Disallow: ", w.path())
			w.line()
		default:
			w.line("Allow: /")
			w.line()
		}
	}
	if style < 3 {
		w.line("Disallow: /")
		w.line()
	}
}

// managed writes a block as a delivery network puts it before its customers' files.
func (w *writer) managed() {
	w.line("# BEGIN Cloudflare Managed content")
	w.line()
	w.line("User-Agent: *")
	w.line("Content-signal: search=yes,ai-train=no")
	w.line("Allow: /")
	w.line()
	for _, name := range []string{"Amazonbot", "Applebot-Extended", "Bytespider", "CCBot", "ClaudeBot", "Google-Extended",
		"GPTBot", "meta-externalagent"} {
		w.line("User-agent: ", name)
		w.line("Disallow: /")
		w.line()
	}
	w.line("# END Cloudflare Managed Content")
	w.line()
}

// more writes another comment, rule or group.
func (w *writer) more() {
	switch r := w.rng.IntN(40); {
	case r == 0 && w.room(120):
		w.line()
		w.line("User-agent: ", w.pick(crawlers))
		w.line("Disallow: ", w.pick([]string{"/", "", w.path()}))
	case r == 1:
		w.line("# ", w.pick(proseWords), " ", w.pick(proseWords), " ", w.pick(pathWords))
	case r < 5:
		w.line("Allow: ", w.path())
	case r < 10 && w.has(markWildcards):
		w.line("Disallow: ", w.pick(wildRules))
	default:
		w.line("Disallow: ", w.path())
	}
}

// page writes a web page, as servers send that answer every path with one.
func (w *writer) page() {
	w.line("<!DOCTYPE html>")
	w.line("<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", w.pick(pathWords), "</title>")
	w.line("<link rel=\"stylesheet\" href=\"/static/site.css\"></head><body>")
	if w.has(markLatin) {
		w.line("<p>caf\xe9</p>")
	}
	for w.room(120) {
		w.out = append(w.out, "<p class=\"c\"><a href=\"/"...)
		w.out = append(w.out, w.pick(pathWords)...)
		w.out = append(w.out, "\">"...)
		for range 4 + w.rng.IntN(12) {
			w.out = append(append(w.out, w.pick(proseWords)...), ' ')
		}
		w.line("</a></p>")
	}
	w.line("</body></html>")
}

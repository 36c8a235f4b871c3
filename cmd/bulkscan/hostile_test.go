package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// hostileSite is a site with a harmful text in every place. The tests check all outputs that show such a text:
// terminals, logs, tables, and data for programs. Its hosts are h0.hostile.test and so on, one for each text, by http
// and by https. Hosts below to.hostile.test redirect to places with such names, and hosts below alias.hostile.test are
// aliases of such a name.
type hostileSite struct {
	flags []string // that lead a scan there
}

// hostileHead is the answer of a host.
func hostileHead(host string, text string) []byte {
	// these bytes would end the field or the answer
	one := strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(text)
	if len(one) > 8000 {
		one = one[:8000]
	}
	if strings.HasSuffix(host, ".to.hostile.test") {
		return []byte("HTTP/1.1 302 " + one + "\r\nLocation: http://h0.hostile.test/robots.txt?" + one +
			"\r\nContent-Length: 0\r\n\r\n")
	}
	if strings.HasSuffix(host, ".away.hostile.test") {
		return []byte("HTTP/1.1 302 Found\r\nLocation: http://" + one + ".test/" + one + "\r\nContent-Length: 0\r\n\r\n")
	}
	body := "User-agent: a" + text + "\nUser-agent: *\nDisallow: /" + text + "\nAllow: " + text + "\n" + text + ": " +
		text +
		"\nSitemap: https://hostile.test/" + text + "\nSitemap: " + text + "\nCrawl-delay: " + text +
		"\nContent-Signal: ai-train=no, " + text + "=yes" +
		"\nContent-Usage: " + text + "\nLicense: " + text + "\nNoindex: " + text + "\nDisalow: " + text + "\nHost: " + text +
		"\n" + text + "\n"
	head := "HTTP/1.1 200 " + one + "\r\n"
	for _, field := range []string{"Server", "ETag", "Last-Modified", "Cache-Control", "X-Robots-Tag", "Content-Usage",
		"Via", "X-" + "Powered-By"} {
		head += field + ": " + one[:min(len(one), 4000)] + "\r\n"
	}
	return []byte(head + "Content-Type: text/plain; charset=" + one[:min(len(one), 4000)] +
		fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
}

// startHostile starts the site, its names and its certificates.
func startHostile(t *testing.T) *hostileSite {
	t.Helper()
	texts := hostiletest.Texts()
	serve := func(c net.Conn) {
		defer c.Close()
		request, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		host := request.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		n := 0
		_, _ = fmt.Sscanf(host, "h%d.", &n)
		_, _ = c.Write(hostileHead(host, texts[n%len(texts)].Text))
	}
	listen := func(config *tls.Config) string {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if config != nil {
			l = tls.NewListener(l, config)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-ended })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	plain, secure := listen(nil), listen(&tls.Config{Certificates: []tls.Certificate{hostileCertificate(t)}})

	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m, name := new(dns.Msg).SetReply(q), q.Question[0].Name
		if strings.Contains(name, "alias.hostile.test") {
			// A label is any bytes; \DDD is how they are written.
			target := `\027\091\050\074\155\0491m\226\128\174\000\255MARK.hostile.test.`
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET,
				Ttl: 60}, Target: target})
			name = target
		}
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
				A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = names.ActivateAndServe() // ends with the socket
	}()
	t.Cleanup(func() { _ = packets.Close(); <-ended })
	return &hostileSite{flags: []string{"--resolver", packets.LocalAddr().String(), "--allow-private",
		"--connect-to", ":80::" + plain, "--connect-to", ":443::" + secure, "--timeout", "5s", "--retries", "0"}}
}

// hostileCertificate is a certificate with such names.
func hostileCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: hostiletest.Lines(), Organization: []string{"\x1b[31m" + hostiletest.Mark}}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: name, Issuer: name, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"\x1b[31m" + hostiletest.Mark, "a\nb"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		// The library makes certificates only with some bytes in names.
		template.Subject.CommonName, template.DNSNames = "\x1b[31m\u202e"+hostiletest.Mark,
			[]string{"\x1b[31m" + hostiletest.Mark}
		if der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// list writes a list of the site's hosts, and of lines that are no hosts at all.
func (s *hostileSite) list(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for i := range hostiletest.Texts() {
		fmt.Fprintf(&b,
			"http://h%d.hostile.test\nhttps://h%d.hostile.test\nhttp://h%d.to.hostile.test\nhttp://h%d.away.hostile.test\nhttp://h%d.alias.hostile.test\n", i, i, i, i, i)
	}
	for _, h := range hostiletest.Texts() {
		b.WriteString(h.Text + "\nhttp://" + h.Text + ".test\n")
	}
	// The name of a file may have any bytes but a slash and NUL.
	path := filepath.Join(dir, "li\x1b[31m\u202e\nst"+hostiletest.Mark+".txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Skipf("SKIPPED: no file of such a name here: %v", err)
	}
	return path
}

const (
	// maximum bytes of a line of the log, or of a page: the longest texts are escaped, six bytes for one
	hostileLine = 16 << 10
	hostileRow  = 2 << 20 // of JSON that contains a complete site or file
)

// hostileRun runs bulkscan and returns what it printed.
func hostileRun(t *testing.T, stdin string, args ...string) (code int, stdout, stderr []byte) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs)
	return code, out.Bytes(), errs.Bytes()
}

// TestHostileScan scans the site, and checks the log, the output and the dataset.
func TestHostileScan(t *testing.T) {
	t.Parallel()
	site, dir := startHostile(t), t.TempDir()
	list := site.list(t, dir)
	out := filepath.Join(dir, "o\x1b[31m\u202eut"+hostiletest.Mark)
	if kept := os.Getenv("HOSTILE_DATASET"); kept != "" { // to look at it with another reader
		out = kept
	}
	common := append([]string{"--host-rate", "0", "--ip-rate", "0", "--dns-rate", "0", "--log-level", "debug"},
		site.flags...)
	for _, format := range []string{"text", "json"} {
		args := append([]string{"scan", list, "-o", out, "--scan-id", "s", "--restart", "--log-format", format, "--progress",
			"log"}, common...)
		code, stdout, stderr := hostileRun(t, "", args...)
		if code != 0 || len(stdout) > 0 {
			t.Fatalf("exit code %d, printed %.200q\n%s", code, stdout, stderr)
		}
		hostiletest.Check(t, "the log as "+format, stderr, hostileLine)
		rejected := 0
		for line := range strings.Lines(string(stderr)) {
			if !strings.Contains(line, "rejected") || strings.Contains(line, "duplicates") {
				if strings.Contains(line, "kept=1000000") {
					t.Errorf("somebody else has written a line of the log: %q", line)
				}
				continue
			}
			rejected++
			if format == "json" {
				var record map[string]any
				if err := json.Unmarshal([]byte(line), &record); err != nil || record["msg"] != "rejected" {
					t.Errorf("%v: %.300q", err, line)
				}
			} else if !strings.HasPrefix(line, "time=") {
				t.Errorf("a line of the log is %.300q", line)
			}
		}
		if rejected < len(hostiletest.Texts()) || !bytes.Contains(stderr, []byte(hostiletest.Mark)) {
			t.Errorf("%d lines tell of what was rejected", rejected)
		}
	}

	st := mustPlace(t, out)
	scan, err := commit.ReadScan(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	texts := hostiletest.Texts()
	servers, hosts := map[string]bool{}, 0
	each(t, scan, schema.Sites, func(r *schema.SiteRow) {
		mustBeUTF8(t, "sites", reflect.ValueOf(*r))
		servers[r.Server] = true
		hosts++
	})
	if hosts < 5*len(texts) {
		t.Errorf("%d rows", hosts)
	}
	// The dataset keeps texts unchanged: escaping belongs to display. But U+FFFD replaces invalid UTF-8, and spaces
	// replace the controls of ASCII, which a header field cannot have (RFC 9110 §5.5).
	spaced := func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}
	for _, h := range texts {
		if strings.ContainsAny(h.Text, "\r\n\x00") || len(h.Text) > 400 {
			continue
		}
		text := strings.TrimSpace(strings.Map(spaced, h.Text))
		if want := strings.ToValidUTF8(text, "\ufffd"); !servers[want] && !servers[string([]rune(text))] {
			t.Errorf("no site has the server %q (%s)", want, h.Name)
		}
	}
	each(t, scan, schema.Verdicts, func(r *schema.VerdictRow) { mustBeUTF8(t, "verdicts", reflect.ValueOf(*r)) })
	evidence := 0
	each(t, scan, schema.Evidence, func(r *schema.EvidenceRow) {
		mustBeUTF8(t, "evidence", reflect.ValueOf(*r))
		evidence += strings.Count(r.Value, hostiletest.Mark)
	})
	if evidence < len(texts) {
		t.Errorf("%d values of the evidence tell of what is in the files", evidence)
	}
	rejects, err := os.ReadFile(filepath.Join(out, "_rejects", "s.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	hostiletest.Check(t, "rejects", rejects, hostileLine)

	for _, args := range [][]string{
		{"summary", out}, {"summary", out, "--json"}, {"stats", out}, {"verify", out}, {"verify", out, "--json"},
		{"summary", out, "--scan-id", hostiletest.All()},
		{"verify", out, "--scan-id", hostiletest.Lines()}, {"verify", hostiletest.Lines()}, {"compact", out},
		{"reaudit", out, "-o", t.TempDir()}, {"reaudit", out, "-o", t.TempDir(), "--json"},
		{"reaudit", out, "-o", hostiletest.All(), "--scan-id", hostiletest.All()},
		{"scan", list, "--dry-run"}, {"scan", hostiletest.Lines()}, {"scan", list, "-o", out, "--scan-id", hostiletest.All()},
		{"scan", list, "--column", hostiletest.All()},
	} {
		_, stdout, stderr := hostileRun(t, "", args...)
		what := fmt.Sprintf("bulkscan %.40q", args)
		hostiletest.Check(t, what, stdout, hostileLine)
		hostiletest.Check(t, what, stderr, 4*hostileLine)
		if len(stdout)+len(stderr) == 0 && args[0] != "stats" {
			t.Errorf("%s says nothing", what)
		}
	}

	code, stdout, stderr := hostileRun(t, "", append([]string{"scan", list, "-o", "-"}, common...)...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	hostiletest.Check(t, "JSON lines", stdout, hostileRow)
	for line := range strings.Lines(string(stdout)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is no JSON: %.300q", line)
		}
	}
	if n := bytes.Count(stdout, []byte("\n")); n != hosts {
		t.Errorf("%d lines of JSON, %d rows", n, hosts)
	}
}

// mustBeUTF8 checks every text of a row.
func mustBeUTF8(t *testing.T, what string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) || v.Len() > 64<<10 {
			t.Errorf("%s: %d bytes, %.100q", what, v.Len(), v.String())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			mustBeUTF8(t, what, v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				mustBeUTF8(t, what, v.Index(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			mustBeUTF8(t, what, v.Elem())
		}
	}
}

// TestHostileDataset has harmful file names and records in a dataset that another program has written.
func TestHostileDataset(t *testing.T) {
	t.Parallel()
	site, dir := startHostile(t), t.TempDir()
	list := site.list(t, dir)
	out := filepath.Join(dir, "out")
	if code, _, stderr := hostileRun(t, "", append([]string{"scan", list, "-o", out, "--scan-id", "s", "--progress",
		"none", "--date", "2026-11-21", "--host-rate", "0", "--ip-rate", "0"}, site.flags...)...); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	nasty := "\x1b]0;pwned\x07\u202e\n\x9b31m" + hostiletest.Mark
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(out, name)), 0o777),
			os.WriteFile(filepath.Join(out, name), []byte(text), 0o644)); err != nil {
			t.Skipf("SKIPPED: no file of such a name here: %v", err)
		}
	}
	write("sites/scan_date=2026-11-21/part-s-0-"+nasty+".parquet", nasty)
	write("sites/"+nasty+"/part-s-0-99.parquet", nasty)
	write("_scans/s/commits/0-99999.json", `{"`+nasty)
	write("_scans/"+nasty+"/manifest.json", nasty)
	write("_scans/other/manifest.json", fmt.Sprintf(`{"scan_id":"other","state":%q}`, nasty))
	told := false
	for _, args := range [][]string{{"verify", out}, {"verify", out, "--json"}, {"summary", out},
		{"summary", out, "--json"}, {"reaudit", out, "-o", t.TempDir()}, {"compact", out}, {"stats", out}} {
		_, stdout, stderr := hostileRun(t, "", args...)
		what := fmt.Sprintf("bulkscan %q", args)
		hostiletest.Check(t, what, stdout, 4*hostileLine)
		hostiletest.Check(t, what, stderr, 4*hostileLine)
		told = told || bytes.Contains(stdout, []byte(hostiletest.Mark))
		for line := range strings.Lines(string(stdout)) {
			if strings.HasPrefix(line, hostiletest.Mark) {
				t.Errorf("%s: a line is somebody else's: %q", what, line)
			}
		}
	}
	if !told {
		t.Error("nobody tells of the files")
	}
}

// TestHostilePages checks the pages about one site or file.
func TestHostilePages(t *testing.T) {
	notShort(t)
	t.Parallel()
	site, dir := startHostile(t), t.TempDir()
	for i, h := range hostiletest.Texts() {
		robots := filepath.Join(dir, fmt.Sprintf("robots-%d\x1b[31m\u202e.txt", i))
		_, body, _ := bytes.Cut(hostileHead("", h.Text), []byte("\r\n\r\n"))
		if err := os.WriteFile(robots, body, 0o644); err != nil {
			t.Skipf("SKIPPED: no file of such a name here: %v", err)
		}
		host := fmt.Sprintf("h%d.hostile.test", i)
		tokens := filepath.Join(dir, fmt.Sprintf("tokens-%d.txt", i))
		if err := os.WriteFile(tokens, []byte("token "+h.Text+"\n"+h.Text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		line := strings.ReplaceAll(h.Text, "\x00", "")
		// The URLs are like those of visitors in a log: no URL may end the reading of the others.
		urls := "/a\n" + h.Text + "\nhttps://" + host + "/" + h.Text + "\n/" + h.Text + "\n"
		for _, c := range []struct {
			args    []string
			longest int
		}{
			{append([]string{"check", "http://" + host}, site.flags...), hostileLine},
			{append([]string{"check", "https://" + host, "--json"}, site.flags...), hostileLine},
			{append([]string{"check", fmt.Sprintf("http://h%d.to.hostile.test", i)}, site.flags...), hostileLine},
			{append([]string{"check", fmt.Sprintf("http://h%d.away.hostile.test", i), "--json"}, site.flags...), hostileLine},
			{append([]string{"check", fmt.Sprintf("http://h%d.alias.hostile.test", i)}, site.flags...), hostileLine},
			{append([]string{"check", fmt.Sprintf("http://h%d.alias.hostile.test", i), "--json"}, site.flags...), hostileLine},
			{[]string{"check", robots, "--all"}, hostileLine},
			{[]string{"check", "no-such-file-" + line}, hostileLine},
			{[]string{"check", "--category", line, robots}, hostileLine},
			{[]string{"test", "--robots", robots, "--agent", "GPTBot,*"}, hostileLine},
			{[]string{"test", "--robots", robots, "--agent", "GPTBot,*", "--json"}, hostileRow},
			{[]string{"test", "--robots", robots, "--agent", line, "/x"}, 4 * hostileLine},
			{[]string{"test", "--robots", line, "--agent", "GPTBot", "/x"}, hostileLine},
			{[]string{"test", "--robots", robots, "--agent", "GPTBot", line}, hostileLine},
			{[]string{"tokens", line}, hostileLine},
			{[]string{"tokens", "--category", line}, hostileLine},
			{[]string{"tokens", "--tokens", tokens}, hostileLine},
			{[]string{"scan", "--log-level", line}, 4 * hostileLine},
			{[]string{line}, 4 * hostileLine},
		} {
			if len(line) > 60_000 && strings.Contains(strings.Join(c.args, ""), line) {
				continue // the system bounds an argument, and so a file name
			}
			_, stdout, stderr := hostileRun(t, urls, c.args...)
			what := fmt.Sprintf("%s: bulkscan %.60q", h.Name, c.args)
			hostiletest.Check(t, what, stdout, c.longest)
			hostiletest.Check(t, what, stderr, c.longest)
			if len(stdout)+len(stderr) == 0 {
				t.Errorf("%s says nothing", what)
			}
		}
		if t.Failed() {
			return
		}
	}
	if _, page, _ := hostileRun(t, "", append([]string{"check", "http://h0.hostile.test", "--all"},
		site.flags...)...); bytes.Count(page, []byte(`\u001b[31mMARK`)) < 5 {
		t.Errorf("the page does not tell what is in the file:\n%s", page)
	}
}

// TestHostileObjectStore has harmful texts in the errors of an object store.
func TestHostileObjectStore(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			text := strings.NewReplacer("<", "&lt;", "&", "&amp;").Replace(h.Text)
			fmt.Fprintf(w,
				"<Error><Code>%s</Code><Message>%s</Message><BucketName>%[1]s</BucketName><Region>%[1]s</Region></Error>", text,
				text)
		}))
		t.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
		t.Setenv("AWS_ACCESS_KEY_ID", "x")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
		t.Setenv("AWS_REGION", "")
		for _, args := range [][]string{{"summary", "s3://bucket/prefix"}, {"verify", "s3://bucket/prefix", "--json"}} {
			code, stdout, stderr := hostileRun(t, "", args...)
			what := fmt.Sprintf("%s: bulkscan %q", h.Name, args)
			if code == 0 || len(stderr) == 0 {
				t.Errorf("%s: exit code %d, %q", what, code, stderr)
			}
			hostiletest.Check(t, what, stdout, hostileLine)
			hostiletest.Check(t, what, stderr, 4*hostileLine)
			if n := bytes.Count(stderr, []byte("\n")); n > 2 {
				t.Errorf("%s: an error of %d lines:\n%s", what, n, stderr)
			}
		}
		server.Close()
	}
}

package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

var update = flag.Bool("update", false, "rewrite what scripts compare output to (cmp)")

// TestMain makes the test binary act as bulkscan if it is called by that name, as it is through $PATH.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"bulkscan": main})
}

// tests runs more tests at once than there are processors: they mostly wait for processes and hosts, above all in short
// mode. The processes live for some 50 ms; of these, garbage collection at the usual rate takes 20 ms.
type tests struct{ *testing.M }

func (m tests) Run() int {
	flag.Parse()
	debug.SetGCPercent(400)
	_ = os.Setenv("GOGC", "400")                 // for the processes; the name is valid
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process would wait a second for late races at its end
	if !raceEnabled {                            // under the race detector each process takes ten times as long
		atOnce := 2 * runtime.GOMAXPROCS(0)
		if testing.Short() {
			atOnce *= 2
		}
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // the flag is there
	}
	return m.M.Run()
}

// TestScript runs the scripts of testdata/script, one behaviour each. Every script has a simulated web of its own,
// which its environment points to: a plain `bulkscan scan list.txt` fetches hosts of that web, with names like
// `not-found.zoo.test` (`go run ./simweb/cmd/simweb --behaviours` lists them). The functions cmd… are the scripts'
// commands.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scripts("script", setupScript))
}

// TestScriptS3 runs the scripts of testdata/s3, which are about datasets in an object store. They share a real object
// store, in whose bucket `dataset` each script has a prefix of its own. $OBJECTS is the folder with the bucket.
func TestScriptS3(t *testing.T) {
	t.Parallel()
	g := storetest.StartGateway(t)
	testscript.Run(t, scripts("s3", func(env *testscript.Env) error {
		for name, value := range g.Environment() {
			env.Setenv(name, value)
		}
		env.Setenv("SERVER", g.URL)
		env.Setenv("BULKSCAN_S3_LEASE", "2s")
		env.Setenv("OBJECTS", filepath.Join(g.Folder, storetest.Bucket))
		return setupScript(env)
	}))
}

// scripts says how the scripts of a folder are run.
func scripts(folder string, setup func(*testscript.Env) error) testscript.Params {
	return testscript.Params{
		Dir:           filepath.Join("testdata", folder),
		Setup:         setup,
		UpdateScripts: *update,
		Condition: func(condition string) (bool, error) {
			if condition != "ipv6" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			return hasIPv6(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"asked":   cmdAsked,
			"await":   cmdAwait,
			"bytes":   cmdBytes,
			"cut":     cmdCut,
			"exits":   cmdExits,
			"heard":   cmdHeard,
			"hosts":   cmdHosts,
			"json":    cmdJSON,
			"later":   cmdLater(1),
			"earlier": cmdLater(-1),
			"lines":   cmdLines,
			"pack":    cmdPack,
			"plain":   cmdPlain,
			"rows":    cmdRows,
			"matches": cmdMatches,
		},
	}
}

// around is the environment of a script.
type around struct {
	web   *simweb.Web
	heard *heard
}

// heard is a server that remembers its requests, and answers with bytes that a terminal must never get.
type heard struct {
	mu     sync.Mutex
	agents []string
}

func (h *heard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.agents = append(h.agents, r.UserAgent())
	h.mu.Unlock()
	w.Header()["Server"] = []string{"evil\x1b[31m\u202eserver"}
	_, _ = io.WriteString(w, hostiletest.Robots) // the test does not mind a client that leaves
}

// hasIPv6 reports whether this machine has an IPv6 loopback.
func hasIPv6() bool {
	listener, err := net.Listen("tcp", "[::1]:0")
	return err == nil && listener.Close() == nil
}

// setupScript starts the web, and sets the variables that point to it.
func setupScript(env *testscript.Env) error {
	web, err := simweb.Start(context.Background(), simweb.Config{Seed: 1, Addresses: 4, Bodies: 64,
		Slow: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	env.Defer(web.Close)
	h := &heard{}
	server := httptest.NewServer(h)
	env.Defer(server.Close)
	env.Values["around"] = &around{web, h}
	if listener, err := net.Listen("tcp", "[::1]:0"); err == nil {
		six := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}}
		six.Start()
		env.Defer(six.Close)
		env.Setenv("HEARER6", six.URL)
		env.Setenv("PORT6", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}

	// The system's roots are replaced by a single one, of no server here: reading all roots takes a process 10 ms.
	roots := filepath.Join(env.WorkDir, "roots")
	other := httptest.NewTLSServer(h)
	env.Defer(other.Close)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	if err := errors.Join(os.Mkdir(roots, 0o755), os.WriteFile(filepath.Join(roots, "root.pem"), root,
		0o644)); err != nil {
		return err
	}
	ca := filepath.Join(env.WorkDir, "ca.pem")
	if err := os.WriteFile(ca, web.CAPEM(), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(env.WorkDir, "hearer"), []byte(server.URL+"\n"), 0o644); err != nil {
		return err
	}
	// FTP servers: one with a file, one without, one that refuses every login, one with a file above the limit.
	var list []string
	for _, site := range []*ftpSite{{file: "User-agent: *\nDisallow: /\n"}, {}, {private: true},
		{file: strings.Repeat("Disallow: /x\n", 100_000)}} {
		url, stop, err := startFTP(site)
		if err != nil {
			return err
		}
		env.Defer(stop)
		list = append(list, url)
	}
	env.Setenv("FTP", list[0])
	if err := os.WriteFile(filepath.Join(env.WorkDir, "ftp"), []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	connect := web.ConnectTo()
	older, err := filepath.Abs("../../sink/reaudit/testdata/version1")
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		// By name, for scripts that are about these flags.
		"RESOLVER": web.DNSAddr().String(), "CONNECT_HTTP": connect[0], "CONNECT_TLS": connect[1], "CA": ca,
		"HEARER": server.URL, "CRLF": "\r\n", "ESC": "\x1b", "OLDER": older,
		// For all others.
		"BULKSCAN_RESOLVER": web.DNSAddr().String(), "BULKSCAN_CONNECT_TO": strings.Join(connect, " "),
		"BULKSCAN_ALLOW_PRIVATE": "true",
		"BULKSCAN_HOST_RATE":     "0", "BULKSCAN_IP_RATE": "0", "BULKSCAN_RETRY_AFTER": "0s", "BULKSCAN_CONCURRENCY": "20",
		"BULKSCAN_PROGRESS": "none", "GOGC": os.Getenv("GOGC"), "GORACE": os.Getenv("GORACE"),
		"TMPDIR": env.Getenv("WORK"), "SSL_CERT_FILE": filepath.Join(roots, "root.pem"), "SSL_CERT_DIR": roots,
	} {
		env.Setenv(name, value)
	}
	return nil
}

func of(ts *testscript.TestScript) *around { return ts.Value("around").(*around) }

// cmdExits runs a program, and compares its exit code with what is expected: `exits 2 bulkscan scan --nonsense`.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, err := 0, ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdAsked compares the number of requests that the web has had since its start with an expectation.
func cmdAsked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: asked N")
	}
	if got := strconv.FormatInt(of(ts).web.Stats().Requests, 10); got != args[0] {
		ts.Fatalf("the web has had %s requests, want %s", got, args[0])
	}
}

// cmdAwait waits until a file exists.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	path := ts.MkAbs(args[0])
	if !eventually(func() bool { _, err := os.Stat(path); return err == nil }) {
		ts.Fatalf("%s did not appear", args[0])
	}
}

// eventually polls a condition until it is true, and reports whether it became true.
func eventually(holds func() bool) bool { return waittest.Until(5*time.Millisecond, holds) }

// cmdBytes writes a file from Go's notation of a string, for bytes that a script cannot hold.
func cmdBytes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bytes FILE TEXT")
	}
	text, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// cmdCut shortens a file by so many bytes.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cut FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile(args[0]))[:len(ts.ReadFile(args[0]))-n], 0o644))
}

// cmdHeard prints the User-Agent of every request to $HEARER.
func cmdHeard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: heard")
	}
	h := of(ts).heard
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, agent := range h.agents {
		fmt.Fprintln(ts.Stdout(), agent)
	}
}

// cmdHosts writes a list of hosts with ranks, which have the named behaviours in turn, or all answer well.
func cmdHosts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: hosts N FILE [BEHAVIOUR…]")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	behaviours := args[2:]
	if len(behaviours) == 0 {
		behaviours = []string{"ok"}
	}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,h%d.%s.zoo.test\n", i+1, i+1, behaviours[i%len(behaviours)])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o644))
}

// cmdLater changes a record into that of a later schema version, or of an earlier one, with the sum of that version.
func cmdLater(by int) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: later RECORD, earlier RECORD")
		}
		text, _, ok := strings.Cut(ts.ReadFile(args[0]), ",\n  \"sum\": ")
		was := fmt.Sprintf("\"schema_version\": %d,", schema.Version)
		if !ok || !strings.Contains(text, was) {
			ts.Fatalf("%s is no record", args[0])
		}
		text = strings.Replace(text, was, fmt.Sprintf("\"schema_version\": %d,", schema.Version+by), 1)
		if by < 0 { // earlier versions had no head, and their manifests said that a night is published
			text = strings.Replace(text, `"publication": "pending"`, `"publication": "published"`, 1)
		}
		text = fmt.Sprintf("%s,\n  \"sum\": \"%x\"\n}\n", text, sha256.Sum256([]byte(text+"\n}")))
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
	}
}

// cmdLines compares the number of a file's lines with an expectation.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines N FILE")
	}
	if got := strconv.Itoa(strings.Count(ts.ReadFile(args[1]), "\n")); got != args[0] {
		ts.Fatalf("%s has %s lines, want %s", args[1], got, args[0])
	}
}

// cmdMatches compares the number of files that match a pattern with an expectation.
func cmdMatches(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: matches N PATTERN")
	}
	found, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if strconv.Itoa(len(found)) != args[0] {
		ts.Fatalf("%d files match %s, want %s: %v", len(found), args[1], args[0], found)
	}
}

// cmdPack compresses a file as the ending of the new name says.
func cmdPack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pack FILE FILE.gz|FILE.zst|FILE.zip")
	}
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch end := filepath.Ext(args[1]); end {
	case ".gz":
		w = gzip.NewWriter(&b)
	case ".zst":
		w, err = zstd.NewWriter(&b)
		ts.Check(err)
	case ".zip":
		archive := zip.NewWriter(&b)
		member, err := archive.Create(args[0])
		ts.Check(err)
		w = struct {
			io.Writer
			io.Closer
		}{member, archive}
	default:
		ts.Fatalf("cannot pack as %q", end)
	}
	_, err = io.WriteString(w, ts.ReadFile(args[0]))
	ts.Check(err)
	ts.Check(w.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o644))
}

// cmdPlain checks that the output of a program is harmless to a terminal.
func cmdPlain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: plain stdout|stderr|FILE …")
	}
	for _, name := range args {
		text := ts.ReadFile(name)
		if !utf8.ValidString(text) {
			ts.Fatalf("%s is not valid UTF-8", name)
		}
		for i, r := range text {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				ts.Fatalf("%s has %U: %q", name, r, text[max(0, i-20):min(len(text), i+20)])
			}
		}
	}
}

// cmdRows prints columns of a dataset's table, one row per line, in the order of seq.
func cmdRows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: rows DIR TABLE COLUMN,…")
	}
	scan, err := latest(context.Background(), ts.MkAbs(args[0]))
	ts.Check(err)
	columns := strings.Split(args[2], ",")
	var lines []string
	switch args[1] {
	case schema.Sites:
		lines, err = tableLines[schema.SiteRow](scan, args[1], columns)
	case schema.Verdicts:
		lines, err = tableLines[schema.VerdictRow](scan, args[1], columns)
	case schema.Evidence:
		lines, err = tableLines[schema.EvidenceRow](scan, args[1], columns)
	case schema.Bodies:
		lines, err = tableLines[schema.BodyRow](scan, args[1], columns)
	default:
		ts.Fatalf("no table %s", args[1])
	}
	ts.Check(err)
	for _, line := range lines {
		fmt.Fprintln(ts.Stdout(), line)
	}
}

// latest opens the scan of a dataset that started last.
func latest(ctx context.Context, dir string) (*commit.Scan, error) {
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, err
	}
	scans, err := commit.Scans(ctx, st)
	if err != nil {
		return nil, err
	}
	if len(scans) == 0 {
		return nil, fmt.Errorf("no scan in %s", dir)
	}
	return commit.ReadScan(ctx, st, scans[len(scans)-1].ScanID)
}

// tableLines reads the rows of a table as lines.
func tableLines[T any](scan *commit.Scan, table string, columns []string) ([]string, error) {
	type line struct {
		seq  int64
		text string
	}
	var lines []line
	for row, err := range read.Rows[T](context.Background(), scan, table) {
		if err != nil {
			return nil, err
		}
		v := reflect.ValueOf(row).Elem()
		cells := make([]string, len(columns))
		for i, name := range columns {
			f := column(v, name)
			if !f.IsValid() {
				return nil, fmt.Errorf("table %s has no column %s", table, name)
			}
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			cells[i] = fmt.Sprint(f.Interface())
			if f.Kind() == reflect.Pointer || cells[i] == "" {
				cells[i] = "-"
			}
		}
		l := line{text: strings.Join(cells, " ")}
		if seq := column(v, "seq"); seq.IsValid() {
			l.seq = seq.Int()
		}
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.seq - b.seq) })
	texts := make([]string, len(lines))
	for i := range lines {
		texts[i] = lines[i].text
	}
	return texts, nil
}

// column finds a row's field by the name of its column.
func column(row reflect.Value, name string) reflect.Value {
	for i := range row.NumField() {
		if tag, _, _ := strings.Cut(row.Type().Field(i).Tag.Get("parquet"), ","); tag == name {
			return row.Field(i)
		}
	}
	return reflect.Value{}
}

// cmdJSON prints fields of every JSON value in a file, or of every element if the file is one list; lines are sorted.
// Dots in a path separate levels, and len is the length of a list.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: json FILE PATH,…")
	}
	var values []any
	d := json.NewDecoder(bufio.NewReader(strings.NewReader(ts.ReadFile(args[0]))))
	d.UseNumber()
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
		if list, ok := v.([]any); ok {
			values = append(values, list...)
		} else {
			values = append(values, v)
		}
	}
	var lines []string
	for _, v := range values {
		var cells []string
		for path := range strings.SplitSeq(args[1], ",") {
			field, err := descend(v, strings.Split(path, "."))
			ts.Check(err)
			cells = append(cells, fmt.Sprint(field))
		}
		lines = append(lines, strings.Join(cells, " "))
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(ts.Stdout(), line)
	}
}

func descend(v any, path []string) (any, error) {
	for _, step := range path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, fmt.Errorf("no field %s", step)
			}
			v = next
		case []any:
			if step == "len" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				return nil, fmt.Errorf("no element %s in a list of %d", step, len(at))
			}
			v = at[i]
		default:
			return nil, fmt.Errorf("nothing below %v for %s", v, step)
		}
	}
	return v, nil
}

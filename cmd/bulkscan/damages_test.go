//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file damages each kind of file of a dataset in each way, and then runs each command.

// dataset is a dataset with the contents of all its files.
type dataset struct {
	t       *testing.T
	w       *world
	folder  string
	place   string            // where it lies
	files   map[string]string // as they were written
	earlier map[string]string // as they were before the last night
	hosts   []string          // some hosts with a history; the first is no longer in the list
}

// answered is the output of a command.
type answered struct {
	code           int
	stdout, stderr string
}

// said reports whether a command has reported a problem that it does not report without damage.
func (a answered) said(want answered) bool {
	return a.code != want.code || a.stderr != want.stderr || strings.Contains(a.stdout, `"lost": [`+"\n") ||
		strings.Contains(a.stdout, `"state": "damaged"`)
}

// incidental matches times in answers, and sizes of files, which depend on times.
var incidental = regexp.MustCompile(
	`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|"(dataset_)?bytes": -?[0-9]+|<p>The sites were asked from.*`)

// ask runs a command in this process.
func (d *dataset) ask(args ...string) answered {
	var stdout, stderr bytes.Buffer
	c := d.w.client()
	a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, network: network{c, c.listen},
		notify: func(chan<- os.Signal) func() { return func() {} }}
	code := a.run(args)
	text := func(b *bytes.Buffer) string {
		return strings.ReplaceAll(incidental.ReplaceAllString(b.String(), "-"), d.place, "OUT")
	}
	return answered{code, text(&stdout), text(&stderr)}
}

// newDataset makes a dataset that has each kind of file: nights of two months, of which the first two are pruned, of
// two observers and in shares, one date with two scans of a list, and a scan that is not published.
func newDataset(t *testing.T, w *world) *dataset {
	t.Helper()
	t.Setenv("BULKSCAN_CONCURRENCY", "1") // rows come in one order
	d := &dataset{t: t, w: w, folder: t.TempDir()}
	d.place = filepath.Join(d.folder, "out")
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: nightWeb.Seed + 1, Only: nightWeb.Only, Addresses: 16,
		Bodies: 128, Network: w.net})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	list, err := os.ReadFile(w.list)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(list), "\n")
	write := func(lines []string) { // one line is no host
		for _, at := range []string{w.list, filepath.Join(d.folder, "list.csv")} {
			if err := os.WriteFile(at, []byte(strings.Join(lines, "")+"no host\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(lines)
	for _, line := range lines[1:4] {
		d.hosts = append(d.hosts, strings.TrimSpace(strings.Split(line, ",")[1]))
	}
	webs := []*world{w, {web: web, list: filepath.Join(d.folder, "list.csv"), net: w.net}}
	time.Sleep(28*24*time.Hour + time.Hour)
	for night := range 6 {
		at := webs[night%2]
		do := func(p *process) {
			t.Helper()
			p.exits(t, 0)
		}
		var flags []string
		switch night {
		case 1:
			write(slices.Delete(slices.Clone(lines), 1, 2))
		case 4:
			flags = []string{"--keep-nights", "3d", "--keep-bodies", "2d", "--keep-evidence", "2d"}
		case 5:
			d.earlier = filesIn(t, d.place)
		}
		do(at.nightOf(t, d.place, "", 0, flags...))
		switch night {
		case 1:
			do(at.scan(t, d.place, "--scan-id", "far", "--vantage", "far"))
		case 2:
			for i := range 2 {
				do(at.scan(t, d.place, "--scan-id", "shared", "--vantage", "shared", "--part-rows", "10", "--shard",
					fmt.Sprintf("%d/2", i), "--workers", "1"))
			}
			do(w.start(t, "collect", d.place, "--no-compact"))
		case 3:
			do(at.scan(t, d.place, "--scan-id", "again"))
			do(at.scan(t, d.place, "--scan-id", "pending", "--no-publish"))
		}
		time.Sleep(24 * time.Hour)
	}
	d.files = filesIn(t, d.place)
	return d
}

// filesIn reads the files of a dataset.
func filesIn(t *testing.T, place string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(place, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(at)
		name, _ := filepath.Rel(place, at)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// copied returns a copy of the dataset, in another folder.
func (d *dataset) copied(t *testing.T) *dataset {
	t.Helper()
	c := *d
	c.place = filepath.Join(t.TempDir(), "out")
	for name, data := range d.files {
		at := filepath.Join(c.place, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &c
}

// command is a command that is run on a damaged dataset.
type command struct {
	name string
	dear bool // takes much longer than others
	args func(d *dataset) []string
}

// answer runs a command. If reaudit has made a dataset, which has no damage, answer also runs other readers on that.
func (d *dataset) answer(c command) answered {
	got := d.ask(c.args(d)...)
	if c.name != judgedAgain || got.code != 0 {
		return got
	}
	again := *d
	again.place += "-again"
	for _, r := range readers() {
		if !r.dear {
			of := again.ask(r.args(&again)...)
			got.stdout += of.stdout + of.stderr
		}
	}
	return got
}

const judgedAgain = "reaudit"

// readers only read. sealers write or delete files that they derive from the files that they read.
func readers() []command {
	history := func(i int, flags ...string) func(d *dataset) []string {
		return func(d *dataset) []string { return append([]string{"history", d.place, d.hosts[i], "--json"}, flags...) }
	}
	return []command{
		{"summary", false, func(d *dataset) []string { return []string{"summary", d.place, "--json"} }},
		{"summary of a pruned date", false, func(d *dataset) []string {
			return []string{"summary", d.place, "--json",
				"--date", "2000-01-31"}
		}},
		{"diff", false, func(d *dataset) []string { return []string{"diff", d.place, "2000-01-31", "2000-02-01", "--json"} }},
		{"history", false, history(1)},
		{"history of a lost site", false, history(0)},
		{"history of a token", false, history(2, "--token", "GPTBot")},
		{"status", false, func(d *dataset) []string { return []string{"status", d.place, "--json"} }},
		{"report", true, func(d *dataset) []string { return []string{"report", d.place, "-o", "-", "--progress", "none"} }},
		{judgedAgain, true, func(d *dataset) []string {
			// reaudit writes a dataset, and reports for each column how many sites it judged otherwise
			again := d.place + "-again"
			if err := os.RemoveAll(again); err != nil {
				d.t.Fatal(err)
			}
			return []string{"reaudit", d.place, "-o", again, "--scan-id", "night-2000-02-01", "--json", "--log-level", "warn",
				"--progress", "none"}
		}},
	}
}

const next = "next night"

func sealers() []command {
	return []command{
		{"stats", false, func(d *dataset) []string { return []string{"stats", d.place} }},
		{"compact", false, func(d *dataset) []string { return []string{"compact", d.place} }},
		{"history --rebuild", false, func(d *dataset) []string { return []string{"history", d.place, "--rebuild"} }},
		{"prune", false, func(d *dataset) []string {
			return []string{"nightly", "-o", d.place, "--prune", "--keep-nights", "2d", "--accept-pruning", "3"}
		}},
		{next, false, func(d *dataset) []string { return d.w.nightArguments(d.t, d.place, "", 0) }},
	}
}

// kinds are the kinds of files, by their names. The newest head is a kind of its own.
var kinds = []struct {
	kind string
	name *regexp.Regexp
}{
	{"head", regexp.MustCompile(`^_head/[0-9]+\.json$`)},
	{"head: month", regexp.MustCompile(`^_head/[0-9]+-2000-`)},
	{"head: pruned", regexp.MustCompile(`^_head/[0-9]+-pruned-`)},
	{"manifest", regexp.MustCompile(`^_scans/[^/]+/manifest\.json$`)},
	{"commit", regexp.MustCompile(`^_scans/[^/]+/commits/`)},
	{"record of a month", regexp.MustCompile(`^_scans/_months/files/`)},
	{"record of a file", regexp.MustCompile(`^_scans/[^/]+/files/`)},
	{"share", regexp.MustCompile(`^_scans/[^/]+/shares/`)},
	{"index.parquet", regexp.MustCompile(`^_scans/index`)},
	{"month", regexp.MustCompile(`^_scans/_months/`)},
	{"rejects", regexp.MustCompile(`^_rejects/`)},
	{"night.json", regexp.MustCompile(`^_nights/.*/night\.json$`)},
	{"page of a night", regexp.MustCompile(`^_nights/`)},
	{"_ledger.json", regexp.MustCompile(`^history/_ledger\.json$`)},
	{"history: kept bodies", regexp.MustCompile(`^history/bodies/`)},
	{"history: pruned nights", regexp.MustCompile(`^history/.*-pruned`)},
	{"history", regexp.MustCompile(`^history/`)},
	{"statistics", regexp.MustCompile(`^(token|record)_stats/`)},
	{"sites", regexp.MustCompile(`^sites/`)},
	{"verdicts", regexp.MustCompile(`^verdicts/`)},
	{"policies", regexp.MustCompile(`^policies/`)},
	{"evidence", regexp.MustCompile(`^evidence/`)},
	{"bodies", regexp.MustCompile(`^bodies/`)},
	{"page of the newest night", regexp.MustCompile(`^(report\.html|summary\.json)$`)},
	{"views.sql, README.md, datapackage.json", regexp.MustCompile(`^(views\.sql|README\.md|datapackage\.json)$`)},
}

// kindsOf returns the files of each kind.
func (d *dataset) kindsOf(t *testing.T) map[string][]string {
	t.Helper()
	all, newest := map[string][]string{}, ""
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		i := slices.IndexFunc(kinds, func(k struct {
			kind string
			name *regexp.Regexp
		}) bool {
			return k.name.MatchString(name)
		})
		if i < 0 {
			t.Fatalf("%s is of no kind", name)
		}
		kind := kinds[i].kind
		switch {
		case kind == "head":
			newest = name
		case kind == "history" && !strings.Contains(d.files[schema.LedgerName], name):
			kind = "history: replaced"
		}
		all[kind] = append(all[kind], name)
	}
	heads := all["head"]
	all["head"], all["newest head"] = heads[:len(heads)-1], []string{newest}
	return all
}

// damage is a way to damage a file. content returns the damaged file; nil: no file.
type damage struct {
	what    string
	content func(d *dataset, of []string, name string) (data string, there bool)
	put     func(d *dataset, name string) error // instead
}

// flip changes a bit of the byte at a share of the file.
func flip(of, all int) func(d *dataset, _ []string, name string) (string, bool) {
	return func(d *dataset, _ []string, name string) (string, bool) {
		data := []byte(d.files[name])
		if len(data) == 0 {
			return "", false
		}
		data[(len(data)-1)*of/all] ^= 1
		return string(data), true
	}
}

const beside = "copy beside"

func damages() []damage {
	return []damage{
		{what: "flip, early", content: flip(1, 9)},
		{what: "flip, middle", content: flip(4, 7)},
		{what: "flip, late", content: flip(19, 20)},
		{what: "empty", content: func(*dataset, []string, string) (string, bool) { return "", true }},
		{what: "half", content: func(d *dataset, _ []string, name string) (string, bool) {
			return d.files[name][:len(d.files[name])/2], true
		}},
		{what: "delete", put: func(d *dataset, name string) error { return nil }},
		{what: "swap", content: func(d *dataset, of []string, name string) (string, bool) {
			other := of[(slices.Index(of, name)+1)%len(of)]
			return d.files[other], other != name
		}},
		{what: "earlier", content: func(d *dataset, _ []string, name string) (string, bool) {
			data, there := d.earlier[name]
			return data, there && data != d.files[name]
		}},
		{what: beside, put: func(d *dataset, name string) error {
			return os.WriteFile(d.at(copyOf(name)), []byte(d.files[name]), 0o644)
		}},
		{what: "link", put: func(d *dataset, name string) error {
			copied := filepath.Join(d.folder, "elsewhere")
			return cmp.Or(os.WriteFile(copied, []byte(d.files[name]), 0o644), os.Symlink(copied, d.at(name)))
		}},
		{what: "FIFO", put: func(d *dataset, name string) error { return syscall.Mkfifo(d.at(name), 0o644) }},
	}
}

// copyOf is the name of a second copy of a file.
func copyOf(name string) string {
	extension := path.Ext(name)
	return strings.TrimSuffix(name, extension) + " copy" + extension
}

func (d *dataset) at(name string) string { return filepath.Join(d.place, name) }

// can reports whether the damage is possible: it may need another file of the same kind, or an earlier version.
func (d *dataset) can(by damage, of []string, name string) bool {
	if by.content == nil {
		return true
	}
	data, there := by.content(d, of, name)
	return there && data != d.files[name]
}

// damage does a damage to a file.
func (d *dataset) damage(t *testing.T, by damage, of []string, name string) {
	t.Helper()
	put := by.put
	if put == nil {
		put = func(d *dataset, name string) error {
			data, _ := by.content(d, of, name)
			return os.WriteFile(d.at(name), []byte(data), 0o644)
		}
	}
	if by.what != beside {
		if err := os.Remove(d.at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(d, name); err != nil {
		t.Fatal(err)
	}
}

// mend undoes damage.
func (d *dataset) mend(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_ = os.Remove(d.at(name))
		_ = os.Remove(d.at(copyOf(name)))
		if err := os.WriteFile(d.at(name), []byte(d.files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// told has the outcomes of a kind of damage to a kind of file.
type told struct{ asked, said, wrong int }

// matrix runs commands on damaged datasets, and counts the outcomes.
type matrix struct {
	t      *testing.T
	d      *dataset
	before map[string]answered            // answers of the readers, without damage
	after  map[string]map[string]answered // likewise, behind a sealer
	counts map[[2]string]*told            // by kind and damage
}

func newMatrix(t *testing.T, w *world) *matrix {
	t.Helper()
	m := &matrix{t: t, d: newDataset(t, w), after: map[string]map[string]answered{}, counts: map[[2]string]*told{}}
	m.before = m.undamaged(m.d)
	for name, got := range m.before {
		if got.code != 0 || got.stderr != "" {
			t.Fatal(name, got)
		}
	}
	for _, s := range sealers() {
		d := m.d.copied(t)
		if got := d.ask(s.args(d)...); got.code != 0 {
			t.Fatal(s.name, got)
		}
		m.after[s.name] = m.undamaged(d)
	}
	return m
}

// undamaged returns the readers' answers for an undamaged dataset.
func (m *matrix) undamaged(d *dataset) map[string]answered {
	if got := d.ask("verify", d.place); got.code != 0 || !strings.HasSuffix(got.stdout, " 0 damaged, 0 leftovers\n") {
		m.t.Fatal(got)
	}
	all := map[string]answered{}
	for _, r := range readers() {
		all[r.name] = d.answer(r)
	}
	return all
}

// count returns the outcomes of a kind of damage to a kind of file.
func (m *matrix) count(kind, what string) *told {
	key := [2]string{kind, what}
	if m.counts[key] == nil {
		m.counts[key] = &told{}
	}
	return m.counts[key]
}

func (m *matrix) wrong(c *told, format string, args ...any) {
	m.t.Helper()
	c.wrong++
	m.t.Errorf(format, args...)
}

// read runs readers on the damaged dataset. Each gives the same answer as without damage, or reports a problem.
func (m *matrix) read(c *told, what string, some ...command) {
	m.t.Helper()
	for _, r := range some {
		want, got := m.before[r.name], m.d.answer(r)
		c.asked++
		switch {
		case got.said(want):
			c.said++
		case got.stdout != want.stdout:
			m.wrong(c, "%s: %s gives another answer: %s", what, r.name, firstOther(want.stdout, got.stdout))
		}
	}
}

// verify runs `bulkscan verify` on the damaged dataset. It must report the file if another command depends on it.
func (m *matrix) verify(c *told, what string, must bool) {
	m.t.Helper()
	got := m.d.ask("verify", m.d.place)
	c.asked++
	switch {
	case got.code != 0:
		c.said++
	case must:
		m.wrong(c, "%s: verify finds no damage", what)
	}
}

// seal runs a command that writes or deletes, on a damaged copy of the dataset. If verify finds no damage afterwards,
// readers must give the undamaged answer or an error, or the head must record the loss.
func (m *matrix) seal(c *told, what string, s command, damage func(d *dataset)) {
	m.t.Helper()
	d := m.d.copied(m.t)
	defer os.RemoveAll(filepath.Dir(d.place))
	damage(d)
	sealed := d.ask(s.args(d)...)
	c.asked++
	if sealed.code != 0 {
		c.said++
	}
	if verified := d.ask("verify", d.place); verified.code != 0 || d.lost() || sealed.code != 0 && s.name == next {
		// a night that fails is there
		return
	}
	for _, r := range readers() {
		got, want := d.answer(r), m.after[s.name][r.name]
		if got.said(want) || got.stdout == want.stdout || sealed.code != 0 && got.stdout == m.before[r.name].stdout {
			continue
		}
		m.wrong(c, "%s: after %s, which exits with %d, verify finds no damage, and %s gives another answer: %s", what, s.name,
			sealed.code, r.name, firstOther(want.stdout, got.stdout))
	}
}

// firstOther shows the first lines in which two texts differ.
func firstOther(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%.200q instead of %.200q", b[i], a[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(b), len(a))
}

// lost reports whether a head records a loss.
func (d *dataset) lost() bool {
	heads, _ := filepath.Glob(d.at(schema.HeadFolder + "????????.json"))
	return slices.ContainsFunc(heads, func(name string) bool {
		var head commit.Head
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() { // opening a FIFO waits for a writer
			return false
		}
		data, err := os.ReadFile(name)
		return err == nil && json.Unmarshal(data, &head) == nil && slices.ContainsFunc(head.Causes,
			func(c commit.Cause) bool { return c.What == commit.CauseLost })
	})
}

// unknowable reports whether no other file shows that a file existed. That is so for the manifest of an unpublished
// scan, and for the record of a night whose scan was pruned.
func (d *dataset) unknowable(what, name string) bool {
	night, file := path.Split(strings.TrimPrefix(name, "_nights/"))
	counts := slices.ContainsFunc(slices.Collect(maps.Keys(d.files)), func(other string) bool {
		return strings.HasPrefix(other, "sites/scan_date="+night)
	})
	return what == "delete" && (strings.HasPrefix(name, "_scans/pending/manifest") || file == "night.json" && !counts)
}

// mustFind reports whether verify must find a damage.
func mustFind(kind, what string) bool {
	switch {
	case slices.Contains([]string{"head", "head: month", "history: replaced", "page of a night",
		"page of the newest night", "views.sql, README.md, datapackage.json"}, kind):
		return false // only earlier versions name these files, and may be gone; or they are written for people
	case slices.Contains([]string{"newest head", "record of a month", "share"}, kind) && what == "delete":
		return false // the head before counts; the next scan writes the month anew; the share is collected
	}
	return what != beside && what != "link" && what != "earlier"
}

// TestDamages damages each kind of file in each way. No command that succeeds silently gives another answer, and
// commands that write or delete hide no damage. bench/results has the counts.
func TestDamages(t *testing.T) {
	inBubble(t, 45, nightWeb, func(t *testing.T, w *world) {
		m := newMatrix(t, w)
		if page := incidental.ReplaceAllString(m.d.files["report.html"], "-"); page != m.before["report"].stdout {
			t.Error("the page of the night is not that of the command: ", firstOther(m.before["report"].stdout, page))
		}
		m.single()
		m.footers()
		m.pairs(1)
		m.results()
	})
}

// every is the sampling in short mode: one of so many combinations is tested.
const every = 197

// single does one damage at a time to some files of each kind. It runs each sealer on the first file, and one sealer on
// the others.
func (m *matrix) single() {
	kinds, n := m.d.kindsOf(m.t), 0
	turn := func() bool {
		n++
		return !testing.Short() || n%every == 0
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		of := kinds[kind]
		for i := 0; i < len(of); i += max(1, len(of)/3) {
			name := of[i]
			for k, by := range damages() {
				if !m.d.can(by, of, name) || m.d.unknowable(by.what, name) {
					continue
				}
				c, what := m.count(kind, by.what), by.what+" of "+name
				if turn() {
					m.d.damage(m.t, by, of, name)
					some := readers()
					if i > 0 { // the report takes longest
						some = slices.DeleteFunc(some, func(r command) bool { return r.dear })
					}
					m.read(c, what, some...)
					m.verify(c, what, i == 0 && mustFind(kind, by.what))
					m.d.mend(m.t, name)
				}
				for at, s := range sealers() {
					if (i == 0 || (i+k)%len(sealers()) == at) && turn() {
						m.seal(c, what, s, func(d *dataset) { d.damage(m.t, by, of, name) })
					}
				}
			}
		}
	}
}

// footers flips bytes of the footers of a file of each kind, each time before another reader. TestDamagedFooters of
// package scan flips all bytes in footers of tables, and TestDamagedDerivedFooters in those of the ledger and the
// index.
func (m *matrix) footers() {
	step := 23
	if testing.Short() {
		step *= every
	}
	for kind, of := range m.d.kindsOf(m.t) {
		name, data := of[0], m.d.files[of[0]]
		if path.Ext(name) != ".parquet" {
			continue
		}
		some := slices.DeleteFunc(readers(), func(r command) bool { return r.dear })
		for at := len(data) - 8 - int(binary.LittleEndian.Uint32([]byte(data[len(data)-8:]))); at < len(data); at += step {
			flip := damage{what: "flip in the footer", content: func(d *dataset, _ []string, name string) (string, bool) {
				data := []byte(d.files[name])
				data[at] ^= 1 << (at % 8)
				return string(data), true
			}}
			m.d.damage(m.t, flip, of, name)
			m.read(m.count(kind, flip.what), fmt.Sprintf("byte %d of %s", at, name), some[at%len(some)])
			m.d.mend(m.t, name)
		}
	}
}

// pairs does two damages at a time.
func (m *matrix) pairs(seed uint64) {
	dice, n := rand.New(rand.NewPCG(seed, 0)), 100
	if testing.Short() {
		n = 4
	}
	kinds := m.d.kindsOf(m.t)
	names := slices.Sorted(maps.Keys(kinds))
	c := m.count("two files", "two of these")
	for range n {
		var what []string
		var do []func(d *dataset)
		var files []string
		for len(do) < 2 {
			kind := names[dice.IntN(len(names))]
			of, by := kinds[kind], damages()[dice.IntN(len(damages()))]
			name := of[dice.IntN(len(of))]
			if slices.Contains(files, name) || !m.d.can(by, of, name) || m.d.unknowable(by.what, name) {
				continue
			}
			what, files = append(what, by.what+" of "+name), append(files, name)
			do = append(do, func(d *dataset) { d.damage(m.t, by, of, name) })
		}
		both := func(d *dataset) {
			for _, one := range do {
				one(d)
			}
		}
		both(m.d)
		m.read(c, strings.Join(what, ", "), readers()[dice.IntN(len(readers()))], readers()[dice.IntN(len(readers()))])
		m.d.mend(m.t, files...)
		m.seal(c, strings.Join(what, ", "), sealers()[dice.IntN(len(sealers()))], both)
	}
}

const damagesResults = "../../bench/results/2026-11-27-xeon-2cpu/damages.md"

// results compares the counts with the table in bench/results, or writes the table. The numbers of reported problems
// are not compared, since they depend on the version.
func (m *matrix) results() {
	if testing.Short() {
		return
	}
	var text strings.Builder
	all, kinds := told{}, map[string]bool{}
	var ways []string
	for key, c := range m.counts {
		kinds[key[0]] = true
		all.asked, all.said, all.wrong = all.asked+c.asked, all.said+c.said, all.wrong+c.wrong
		if !slices.Contains(ways, key[1]) {
			ways = append(ways, key[1])
		}
	}
	slices.Sort(ways)
	fmt.Fprintf(&text, damagesHead, all.asked, all.said, all.wrong, strings.Join(ways, " | "),
		strings.Repeat("--:|", len(ways)))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&text, "| %s |", kind)
		wrong := 0
		for _, way := range ways {
			c := m.counts[[2]string{kind, way}]
			if c == nil {
				text.WriteString(" |")
				continue
			}
			fmt.Fprintf(&text, " %d, %d |", c.asked, c.said)
			wrong += c.wrong
		}
		fmt.Fprintf(&text, " %d |\n", wrong)
	}
	if *update {
		if err := os.WriteFile(damagesResults, []byte(text.String()), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	written, err := os.ReadFile(damagesResults)
	said := regexp.MustCompile(`, [0-9]+ |they said so [0-9]+ times`)
	if err != nil || said.ReplaceAllString(string(written), "") != said.ReplaceAllString(text.String(), "") {
		m.t.Errorf("%s has other questions: -update writes it anew (%v)", damagesResults, err)
	}
}

const damagesHead = `# Damaged files, 27 November 2026

TestDamages of cmd/bulkscan damages the files of a dataset: nights of two months, of which some were pruned, of several observers, in
shares, and two scans of one date. Then it asks commands: summary, diff, history, status, report, reaudit and verify; and on a copy stats, compact,
history --rebuild, pruning and the next night, with verify and the readers after each. ` + "`-update`" + ` writes this page.

Commands were asked %d times, and they said so %d times: by an error, by a warning, or in the answer. Answers that were other ones without a word:
%d. Empty cells: no other file of the kind, or no earlier version of it.

Each cell has how often commands were asked, and how often they said that something is wrong.

| file | %s | wrong |
|---|%s--:|
`

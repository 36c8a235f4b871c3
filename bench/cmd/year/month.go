package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// This file runs the nights of a script by bulkscan nightly, as a scheduler does. Some are killed, interrupted, met by a second
// run, or go without name servers, without a list, by a clock that has stepped back, or by another token registry. After each
// night its state must be the one that the script asks for, and at the end the ledger.

// month is a script that bulkscan nightly follows.
type month struct {
	*year
	dir      string
	wrong    []string
	counts   int    // published nights by the night's observer
	released bool   // a night that was held
	disk     bool   // the dataset has a disk of its own
	metrics  string // address at which a scan shows its metrics; "" for none
}

// record is what is read of a night's record.
type record struct {
	Date  string           `json:"date"`
	State string           `json:"state"`
	Runs  int              `json:"runs"`
	Out   []map[string]any `json:"out_of_bounds"`
}

// The states of a night that has ended.
const (
	published = "published"
	held      = "held"
	discarded = "discarded"
)

// incident is what goes wrong on a night.
type incident struct {
	night int
	what  string
	do    func(m *month, ctx context.Context, night int)
	disk  bool // it takes a disk of the dataset's own
}

var incidents = []incident{
	{1, "kill -9 in the middle of the scan, and a second run beside it", (*month).killed, false},
	{2, "the clock steps back by a week", (*month).backwards, false},
	{6, "no name server answers, and a person discards the night", (*month).resolverDead, false},
	{9, "the list is empty, and is there again after an hour", (*month).listEmpty, false},
	{12, "SIGTERM in the middle of the scan", (*month).terminated, false},
	{15, "another version of the token registry, for one night", (*month).otherRegistry, false},
	{18, "the disk is full in the middle of the scan", (*month).diskFull, true},
	{21, "kill -9 after the scan, while the night is published", (*month).killedLate, false},
}

// newMonth makes a script, a folder for the dataset, and a web that follows the script. Close the web after use.
func newMonth(ctx context.Context, seed uint64, of size, silent func(night int) bool, dir string, out io.Writer) (*month, error) {
	s, err := newScript(seed, of, silent)
	if err != nil {
		return nil, err
	}
	s.name = func(night int) string { return "night-" + s.date(night).String() }
	m := &month{year: &year{script: s, out: out}, dir: dir}
	root := filepath.Join(dir, "out")
	if err := os.MkdirAll(root, 0o777); err != nil {
		return nil, err
	}
	if m.store, err = store.NewDir(root); err != nil {
		return nil, err
	}
	return m, m.start(ctx, dir)
}

// unattendedMonth runs all nights and judges them.
func unattendedMonth(ctx context.Context, seed uint64, of size, dir string, out io.Writer) error {
	m, err := newMonth(ctx, seed, of, silentOn, dir, out)
	if err != nil {
		return err
	}
	defer m.web.Close()
	defer m.ownDisk(ctx)()
	fmt.Fprintf(out, "\n## nightly: %d sites, %d nights\n\n| night | what | state | runs | seconds |\n|---|---|---|--:|--:|\n", of.sites, of.nights)
	for n := range of.nights {
		if err := m.one(ctx, n); err != nil {
			return err
		}
	}
	return m.end(ctx)
}

// one runs a night and whatever goes wrong with it. Then its state must be the right one.
func (m *month) one(ctx context.Context, night int) error {
	m.night.Store(int64(night))
	if night == m.change {
		m.counts = 0
	}
	if err := m.writeList(night, true); err != nil {
		return err
	}
	at := slices.IndexFunc(incidents, func(i incident) bool { return i.night == night && (m.disk || !i.disk) })
	begun, what := time.Now(), ""
	if at >= 0 {
		what = incidents[at].what
		incidents[at].do(m, ctx, night)
	}
	outage := m.outage[0][night] >= 0 || m.outage[1][night] >= 0
	want := published
	switch {
	case m.dead.Swap(false):
		want = discarded
	case outage && m.counts >= 3:
		want = held
	}
	if outage {
		what = strings.TrimPrefix(what+"; a network fails", "; ")
	}
	if want != discarded {
		m.run(ctx, map[bool]int{true: 0, false: 3}[want == published], night)
	}
	var n record
	data, err := store.ReadAll(ctx, m.store, "_nights/"+m.date(night).String()+"/night.json", 1<<24)
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return err
	}
	m.check(n.State == want, "night %d is %s, want %s: %v", night, n.State, want, n.Out)
	switch {
	case n.State == held && !m.released: // before the registry changes: a ledger that is derived anew knows one registry
		m.released = true
		what += "; a person releases the night"
		m.decides(ctx, night, "--release")
		m.counts++
	case n.State == published:
		m.counts++
	default:
		m.outside[night] = true
	}
	fmt.Fprintf(m.out, "| %s | %s | %s | %d | %.1f |\n", n.Date, what, n.State, n.Runs, time.Since(begun).Seconds())
	return ctx.Err()
}

// check notes what is not as it must be.
func (m *month) check(ok bool, format string, args ...any) {
	if !ok {
		m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	}
}

func (m *month) listName() string { return filepath.Join(m.dir, "hosts.txt") }

// writeList writes the night's list, or an empty one.
func (m *month) writeList(night int, full bool) error {
	var list bytes.Buffer
	for site, host := range m.hosts {
		if full && m.shown(site, night).gap != unlisted {
			fmt.Fprintln(&list, host)
		}
	}
	return os.WriteFile(m.listName(), list.Bytes(), 0o666)
}

// config writes the configuration of a night. A slow one can be stopped in the middle.
func (m *month) config(night int, slow bool) string {
	timeout := map[bool]string{true: "2s", false: "10s"}[silentOn(night)]
	rate := 0
	if slow {
		rate = max(20, m.sites/4)
	}
	var to []string
	for _, t := range m.web.ConnectTo() {
		to = append(to, fmt.Sprintf("%q", t))
	}
	text := fmt.Sprintf("[scan]\nout = %q\nuser-agent = \"%s/1.0\"\nresolver = [%q]\nallow-private = true\nscheme = \"http\"\nhost-rate = 0\nip-rate = 0\ndns-rate = 0\nrate = %d\n"+
		"timeout = %q\nretries = 1\nretry-after = \"0s\"\nmax-retry-after = \"0s\"\nprogress = \"none\"\npart-rows = %d\nconnect-to = [%s]\nmetrics-addr = %q\n[nightly]\nlist = %q\n",
		m.store.Root(), m.observer(night, false).Product, m.web.DNSAddr(), rate, timeout, max(10, m.sites/8), strings.Join(to, ", "), m.metrics, m.listName())
	name := filepath.Join(m.dir, "nightly.toml")
	m.check(os.WriteFile(name, []byte(text), 0o666) == nil, "cannot write %s", name)
	return name
}

// command is bulkscan nightly for a night.
func (m *month) command(ctx context.Context, night int, slow bool, flags ...string) (*exec.Cmd, *bytes.Buffer) {
	args := append([]string{"nightly", "--config", m.config(night, slow), "--date", m.date(night).String()}, flags...)
	c, text := exec.CommandContext(ctx, m.program, args...), &bytes.Buffer{}
	c.Stdout, c.Stderr = text, text
	return c, text
}

// run runs the night, which must end with that code.
func (m *month) run(ctx context.Context, code, night int, flags ...string) {
	c, text := m.command(ctx, night, false, flags...)
	_ = c.Run() // the state says more
	m.check(c.ProcessState != nil && c.ProcessState.ExitCode() == code, "night %d %v ends with %v, want %d:\n%s", night, flags, c.ProcessState, code, text)
}

// decides is what a person does who has looked at a night that was held: --release, or --discard.
func (m *month) decides(ctx context.Context, night int, flag string) {
	c, text := m.command(ctx, night, false, flag, m.date(night).String())
	m.check(c.Run() == nil, "night %d: %s fails:\n%s", night, flag, text)
}

// end judges the ledger and the dataset.
func (m *month) end(ctx context.Context) error {
	fmt.Fprintln(m.out)
	wrong := m.judge(ctx)
	for _, args := range [][]string{{"nightly", "-o", m.store.Root(), "--status"}, {"verify", m.store.Root()}} {
		text, err := exec.CommandContext(ctx, m.program, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && !bytes.Contains(text, []byte(" 0 damaged, 0 leftovers")) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", args[0], err))
		}
		fmt.Fprintf(m.out, "\n```\n$ bulkscan %s\n%s```\n", strings.ReplaceAll(strings.Join(args, " "), m.store.Root(), "out"), bytes.ReplaceAll(text, []byte(m.store.Root()), []byte("out")))
	}
	if err := m.reportBytes(ctx); err != nil {
		return err
	}
	for _, text := range m.wrong {
		fmt.Fprintf(m.out, "- **WRONG**: %s\n", text)
	}
	if len(m.wrong) > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%d nights are not as they must be: see above", len(m.wrong)))
	}
	return wrong
}

// reportBytes says what a year takes on disk: what grows with the sites, for a million of them, and what each night takes besides.
func (m *month) reportBytes(ctx context.Context) error {
	bytesOf := map[string]int64{}
	for entry, err := range m.store.List(ctx, "") {
		if err != nil {
			return err
		}
		folder, _, _ := strings.Cut(entry.Name, "/")
		bytesOf[folder] += entry.Size
	}
	perYear := func(folders ...string) (gb float64) {
		for _, folder := range folders {
			gb += float64(bytesOf[folder]) / float64(m.nights) * 365 / 1e9
		}
		return gb
	}
	millions := float64(m.sites) / 1e6
	all := perYear("sites", "verdicts", "evidence", "bodies", "policies", "history", "_rejects") / millions
	fmt.Fprintf(m.out, "\n| GB a year | |\n|---|--:|\n| a million sites of this web | %.1f |\n| of these, bodies | %.1f |\n| of these, history | %.2f |\n| for any number of sites: statistics, reports, records | %.2f |\n\n",
		all, perYear("bodies")/millions, perYear("history")/millions, perYear("token_stats", "record_stats", "_scans", "_nights"))
	return nil
}

// killed kills the night in the middle of its scan; meanwhile a second run ends at once.
func (m *month) killed(ctx context.Context, night int) {
	m.stopped(ctx, night, func(c *exec.Cmd) {
		m.run(ctx, 75, night)
		m.check(c.Process.Kill() == nil, "night %d cannot be killed", night)
	}, -1)
}

func (m *month) terminated(ctx context.Context, night int) {
	m.stopped(ctx, night, func(c *exec.Cmd) {
		m.check(c.Process.Signal(os.Interrupt) == nil, "night %d cannot be interrupted", night)
	}, 130)
}

// stopped runs the night slowly and stops it after its first commit.
func (m *month) stopped(ctx context.Context, night int, stop func(c *exec.Cmd), code int) {
	c, text := m.command(ctx, night, true)
	if err := c.Start(); err != nil {
		m.check(false, "night %d: %v", night, err)
		return
	}
	m.await(ctx, func() bool {
		scan, err := commit.ReadScan(ctx, m.store, m.name(night))
		return err == nil && len(scan.Commits) > 0
	})
	stop(c)
	_ = c.Wait() // the state says more
	m.check(c.ProcessState.ExitCode() == code, "the stopped night %d ends with %v, want %d:\n%s", night, c.ProcessState, code, text)
}

// killedLate kills the night once its scan is complete.
func (m *month) killedLate(ctx context.Context, night int) {
	c, _ := m.command(ctx, night, false)
	if err := c.Start(); err != nil {
		m.check(false, "night %d: %v", night, err)
		return
	}
	m.await(ctx, func() bool {
		manifest, err := commit.ReadManifest(ctx, m.store, m.name(night))
		return err == nil && manifest.State == commit.Complete
	})
	_ = c.Process.Kill() // it may have ended, on a slow machine
	_ = c.Wait()
}

// await waits until something holds, for two minutes at most.
func (m *month) await(ctx context.Context, holds func() bool) {
	for begun := time.Now(); !holds() && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			m.check(false, "nothing is committed within two minutes")
			return
		}
	}
}

// backwards runs a night by a clock that is a week behind: it must be refused.
func (m *month) backwards(ctx context.Context, night int) { m.run(ctx, 1, night-7) }

// resolverDead runs a night on which no name resolves. It must be held, and a person discards it.
func (m *month) resolverDead(ctx context.Context, night int) {
	m.dead.Store(true)
	m.run(ctx, 3, night)
	m.decides(ctx, night, "--discard")
}

// ownDisk gives the dataset a disk of its own, in memory, whose size can be changed. Where nothing may be mounted, no disk is full.
func (m *month) ownDisk(ctx context.Context) (undo func()) {
	text, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "size=4g", "bulkscan-month", m.store.Root()).CombinedOutput()
	if err != nil {
		fmt.Fprintf(m.out, "\nSKIPPED: the full disk, since nothing can be mounted here: %v: %s\n", err, bytes.TrimSpace(text))
		return func() {}
	}
	m.disk = true
	return func() {
		if err := exec.Command("umount", m.store.Root()).Run(); err != nil {
			fmt.Fprintf(m.out, "\nThe disk at %s cannot be unmounted: %v\n", m.store.Root(), err)
		}
	}
}

// diskFull runs a night while there is room for the half of one: it says so. With room again, the next run ends it.
func (m *month) diskFull(ctx context.Context, night int) {
	resize := func(size uint64) {
		text, err := exec.CommandContext(ctx, "mount", "-o", fmt.Sprintf("remount,size=%d", size), m.store.Root()).CombinedOutput()
		m.check(err == nil, "the disk cannot be resized: %v: %s", err, text)
	}
	var disk syscall.Statfs_t
	m.check(syscall.Statfs(m.store.Root(), &disk) == nil, "cannot ask for the room on the disk")
	resize((disk.Blocks-disk.Bfree)*uint64(disk.Bsize) + uint64(m.sites)*70)
	c, text := m.command(ctx, night, false)
	_ = c.Run() // its exit code and its words say more
	m.check(c.ProcessState != nil && c.ProcessState.ExitCode() == 1 && bytes.Contains(text.Bytes(), []byte("make room there")), "night %d ends with %v on a full disk:\n%s", night, c.ProcessState, text)
	resize(4 << 30)
}

func (m *month) listEmpty(ctx context.Context, night int) {
	m.check(m.writeList(night, false) == nil, "cannot write a list")
	m.run(ctx, 1, night)
	m.check(m.writeList(night, true) == nil, "cannot write a list")
}

// otherRegistry runs the night with a further token, which makes another version of the registry.
func (m *month) otherRegistry(ctx context.Context, night int) {
	name := filepath.Join(m.dir, "tokens.txt")
	m.otherJudge = night
	m.check(os.WriteFile(name, []byte(furtherToken), 0o666) == nil, "cannot write %s", name)
	c, text := m.command(ctx, night, false)
	c.Env = append(os.Environ(), "BULKSCAN_TOKENS="+name)
	err := c.Run()
	m.check(err == nil || c.ProcessState.ExitCode() == 3, "night %d: %v\n%s", night, err, text)
}

const furtherToken = `version 1
name   | aliases | category | purpose  | operator | *  | fallback  | source              | checked
MyBot  |         | ai       | training | Me       | no |           | https://example.org | 2026-01-01
`

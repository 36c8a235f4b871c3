//go:build unix

package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// pipedDataset makes a dataset with a pruned night, published nights of two months, an interrupted night, and a scan in
// shares, one of which is done. It returns the names of its files and of its locks.
func pipedDataset(t *testing.T, w *world, out string) (names []string) {
	t.Helper()
	st, err := store.NewDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, date := range []string{"2026-10-29", "2026-10-30", "2026-10-31", "2026-11-01"} {
		w.nightOf(t, out, date, 0).exits(t, 0)
	}
	if _, err := scan.Prune(t.Context(), st, scan.Retention{Nights: "2026-10-30"},
		scan.Publishing{Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	w.scan(t, out, "--scan-id", "shares", "--date", "2026-11-01", "--shard", "0/2").exits(t, 0)
	p := w.nightOf(t, out, "2026-11-02", 20)
	p.await(t, "commit", func() bool {
		scan, err := commit.ReadScan(t.Context(), st, "night-2026-11-02")
		return err == nil && len(scan.Commits) > 0
	})
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitTerm)
	err = filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, filepath.ToSlash(path[len(out)+1:]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(names, "_nights/lock", "_scans/night-2026-11-01/lock", "_scans/night-2026-11-02/lock",
		"_scans/_months/lock", "history/lock", "_scans/shares/shares/1.lock",
		"sites/scan_date=2026-11-02/.part-night-2026-11-02-0-9.parquet.ABCDEFGH.bulkscan.tmp")
}

// varying matches the parts that differ between names of files of one kind.
var varying = regexp.MustCompile(`2026-[0-9-]+|[0-9a-f]{12,}|-[0-9]+\.|gathered[0-9]+`)

// unverified are files that verify does not check: commands do without them, or a person may replace them.
var unverified = regexp.MustCompile(`^README\.md$|^report\.html$|^summary\.json$|^_nights/[^/]*/list-|lock$|\.tmp$`)

// byList are files that readers find only by listing: a folder in the place of such a file counts as a missing file.
var byList = regexp.MustCompile(`/commits/|/shares/|/_months/`)

// TestIrregular puts a named pipe, or a link to nothing, in the place of each file of a dataset, one at a time, and
// calls the commands that read or continue it. No command waits for it. A command that fails because of it names it;
// commands that only read do so with the exit code of damage. verify finds it. A folder in the place of a file has the
// same effect on commands that only read.
func TestIrregular(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, 60, simweb.Config{Seed: 3, Only: []string{"ok", "not-found"}}), t.TempDir()
	made := filepath.Join(dir, "made")
	names := pipedDataset(t, w, made)
	host := ""
	for _, host = range w.web.Names(1) { // the first of the list
	}
	// run calls a command about a dataset.
	run := func(t *testing.T, args []string) (code int, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Hanging)
		defer cancel()
		c := exec.CommandContext(ctx, "bulkscan", args...)
		c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		output, err := c.CombinedOutput()
		if ctx.Err() != nil {
			t.Fatalf("%q hangs", args)
		}
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		return c.ProcessState.ExitCode(), string(output)
	}
	commands := func(out string) [][]string {
		const night = "night-2026-11-01"
		return [][]string{
			{"status", out}, {"summary", out}, {"report", out, "-o", out + ".html", "--scan-id", night},
			{"diff", out, "2026-10-31", "2026-11-01"},
			{"history", out, host}, {"verify", out}, {"nightly", "-o", out, "--status"},
			{"stats", out, "--scan-id", night}, {"compact", out, "--scan-id", night}, {"reaudit", out, "-o", out + ".again",
				"--scan-id", night},
			w.arguments(t, out, w.web.ConnectTo(), "--scan-id", "shares", "--date", "2026-11-01", "--shard", "1/2"),
			{"collect", out},
			{"history", out, "--rebuild"}, w.nightArguments(t, out, "2026-11-02", 0), {"nightly", "-o", out, "--prune",
				"--keep-nights", "3d", "--date", "2026-11-02"},
		}
	}
	calm := filepath.Join(dir, "calm")
	linked(t, made, calm)
	for _, args := range commands(calm) {
		if code, text := run(t, args); code != 0 {
			t.Fatalf("%q: code %d\n%s", args, code, text)
		}
	}
	recorded := ""
	for _, name := range []string{schema.LedgerName} {
		text, err := os.ReadFile(filepath.Join(made, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		recorded += name + string(text)
	}
	irregulars := map[string]func(path string) error{
		"pipe":    func(path string) error { return syscall.Mkfifo(path, 0o777) },
		"folder":  func(path string) error { return os.Mkdir(path, 0o777) },
		"nowhere": func(path string) error { return os.Symlink(".git/annex/objects/gone", path) },
	}
	const reading = 7 // the commands that only read come first
	seen := map[string]bool{}
	for _, name := range names {
		// the next merge deletes other files
		verified := !unverified.MatchString(name) && (!strings.HasPrefix(name, "history/") ||
			strings.Contains(recorded, name))
		kind := varying.ReplaceAllString(name, "*") + strconv.FormatBool(verified)
		stride := 1
		if testing.Short() {
			stride = 40
		}
		if seen[kind] {
			continue
		}
		if seen[kind] = true; len(seen)%stride != 0 {
			continue
		}
		for what, put := range irregulars {
			if what == "folder" && byList.MatchString(name) {
				continue
			}
			t.Run(what+" "+strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(t.TempDir(), "out")
				linked(t, made, out)
				path := filepath.Join(out, filepath.FromSlash(name))
				called := commands(out)
				if what == "folder" {
					called = called[:reading]
				}
				for i, args := range called {
					if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
						// the command before has replaced the file, or it is a link to nothing
						_ = os.Remove(path)
						if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), put(path)); err != nil {
							t.Fatal(err)
						}
					}
					code, text := run(t, args)
					switch {
					case args[0] == "collect" && strings.Contains(text, "share 1 is not done"): // the pipe was in its way
					case code != 0 && !strings.Contains(text, name):
						t.Errorf("%q: code %d, and it does not name the file:\n%s", args, code, text)
					case i < reading && code != 0 && code != exitDamaged:
						t.Errorf("%q: code %d\n%s", args, code, text)
					case args[0] == "verify" && code != exitDamaged && verified:
						t.Errorf("verify: code %d\n%s", code, text)
					}
				}
			})
		}
	}
}

// TestPipesAsInput shows that a pipe is read where a person names it: as a list of a scan or of a night, or as the
// sites that opt out.
func TestPipesAsInput(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, 60, simweb.Config{Seed: 3, Only: []string{"ok", "not-found"}}), t.TempDir()
	list, err := os.ReadFile(w.list)
	if err != nil {
		t.Fatal(err)
	}
	optOut := filepath.Join(dir, "opt-out")
	// feed makes a pipe of that name, and writes to it when it is read.
	feed := func(name string, text []byte) {
		t.Helper()
		_ = os.Remove(name)
		if err := syscall.Mkfifo(name, 0o666); err != nil {
			t.Fatal(err)
		}
		go func() { _ = os.WriteFile(name, text, 0) }()
	}
	st := func(out string) store.Store { return mustPlace(t, filepath.Join(dir, out)) }
	has := func(out, id string, sites uint64) {
		t.Helper()
		scan, err := commit.ReadScan(t.Context(), st(out), id)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := commit.SitesOf(scan.Commits); err != nil || found.GetCardinality() != sites {
			t.Errorf("%s: %d sites, %v", out, found.GetCardinality(), err)
		}
	}
	feed(w.list, list)
	feed(optOut, []byte("opted-out.example\n"))
	w.scan(t, filepath.Join(dir, "scanned"), "--opt-out", optOut).exits(t, 0)
	has("scanned", "s", 60)
	feed(w.list, list)
	w.nightOf(t, filepath.Join(dir, "night"), "2026-11-01", 0).exits(t, 0)
	has("night", "night-2026-11-01", 60)
}

// TestSilentPipes shows that a signal ends a command that reads a list from a pipe whose writer is silent.
func TestSilentPipes(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, 1, simweb.Config{Seed: 3}), t.TempDir()
	for what, args := range map[string][]string{
		"scan": {"scan", "pipe", "-o", "out"}, "lines": {"scan", "pipe", "-o", "-"}, "dry": {"scan", "pipe", "-o", "out",
			"--dry-run"},
		"plan": {"plan", "pipe"}, "import": {"import", "pipe", "-o", "out", "--date", "2026-11-01"},
		"nightly": {"nightly", "--list", "pipe", "-o", "out"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pipe, out := filepath.Join(dir, what), filepath.Join(dir, what+".out")
			if err := syscall.Mkfifo(pipe, 0o666); err != nil {
				t.Fatal(err)
			}
			for i, arg := range args {
				args[i] = strings.NewReplacer("pipe", pipe, "out", out).Replace(arg)
			}
			p := w.start(t, args...)
			var writer *os.File
			p.await(t, "reader of the pipe", func() bool {
				var err error
				writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				return err == nil
			})
			defer writer.Close()
			p.signal(t, syscall.SIGTERM)
			p.exits(t, exitTerm)
		})
	}
}

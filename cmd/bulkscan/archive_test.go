//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/warc"
)

// TestArchiveIsJudgedAlike scans the complete zoo with --warc-out, kills the scan on the way and resumes it. Then it
// judges the archive: each origin that answered has the same row, and each file belongs to a committed part.
func TestArchiveIsJudgedAlike(t *testing.T) {
	notShort(t)
	t.Parallel()
	w := newWorld(t, 600, simweb.Config{Seed: 5})
	var zoo strings.Builder
	for _, format := range []string{"0,a.%s.zoo.test\n", "0,http://b.%s.zoo.test\n", "0,https://c.%s.zoo.test\n"} {
		for _, behaviour := range simweb.Behaviours() {
			fmt.Fprintf(&zoo, format, behaviour.Name)
		}
	}
	if list, err := os.ReadFile(w.list); err != nil || os.WriteFile(w.list, append(list, zoo.String()...), 0o600) != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	out, kept := filepath.Join(folder, "out"), filepath.Join(folder, "kept")
	flags := []string{"--warc-out", kept, "--part-rows", "40", "--no-compact", "--concurrency", "100"}
	first := w.scan(t, out, flags...)
	first.await(t, "commits", func() bool { return commits(out) >= 3 })
	first.signal(t, syscall.SIGKILL)
	first.exits(t, -1)
	w.scan(t, out, flags...).exits(t, 0)
	archived(t, out, kept)

	// Another dataset may have a scan of the same name, which must not touch the archive of the first.
	other := w.scan(t, filepath.Join(folder, "other"), flags...)
	other.exits(t, exitFailed)
	other.says(t, "a scan s of another dataset has its archive there")

	judgedAlike(t, out, kept, 700)
}

// judgedAlike judges the archive of scan s, and compares the rows of origins that answered: they are the same, and at
// least so many.
func judgedAlike(t *testing.T, out, kept string, least int) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(kept, "*.warc.gz"))
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again")
	replay := start(t, append([]string{"import", "--date", "2026-11-26", "-o", again, "--scan-id", "s", "--progress",
		"none"}, archives...)...)
	replay.exits(t, 0)
	live, replayed := answeredSites(t, out), answeredSites(t, again)
	for origin, want := range live {
		if got, ok := replayed[origin]; !ok || got != want {
			t.Errorf("%s\n     was %s\n  is now %s", origin, want, got)
		}
	}
	if len(live) < least {
		t.Errorf("only %d origins answered", len(live))
	}
}

// TestKilledReplayResumes kills the judging of an archive on the way, and finishes it. The dataset is that of an
// undisturbed run, including the redirects, which come last.
func TestKilledReplayResumes(t *testing.T) {
	notShort(t)
	t.Parallel()
	const n, rows = 3000, 100
	folder := t.TempDir()
	path := filepath.Join(folder, "x.warc.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := warc.NewWriter("test")
	err = w.Begin(file, "x.warc.gz", time.Unix(0, 0))
	for i := 0; i < n && err == nil; i++ {
		host, head := fmt.Sprintf("https://%d.example", i), "HTTP/1.1 200 OK\r\n\r\n"
		if i%3 == 0 {
			head = fmt.Sprintf("HTTP/1.1 301 Moved\r\nLocation: https://%d.example/robots.txt\r\n\r\n", (i*7+1)%n)
		}
		response := fmt.Appendf(nil, "%sUser-agent: *\nDisallow: /%d\nSitemap: https://x.example/s.xml\n", head, i%50)
		err = w.Write(&warc.Exchange{URI: host + "/robots.txt", Date: time.Unix(1_700_000_000+int64(i), 0),
			Response: response, Payload: len(head)})
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	replay := func(out string) *process {
		return start(t, "scan", "--format", "warc", path, "-o", out, "--scan-id", "s", "--part-rows", fmt.Sprint(rows),
			"--no-compact", "--progress", "none")
	}
	calm, out := filepath.Join(folder, "calm"), filepath.Join(folder, "out")
	replay(calm).exits(t, 0)
	killed := 0
	for _, parts := range []int{2, 12, 24} {
		p := replay(out)
		p.await(t, "commits", func() bool { return commits(out) >= parts })
		p.signal(t, syscall.SIGKILL)
		if _ = p.cmd.Wait(); p.cmd.ProcessState.ExitCode() == -1 {
			killed++
		}
	}
	p := replay(out)
	p.exits(t, 0)
	if had := len(committed(t, out)); had != n {
		t.Errorf("%d origins of %d are there", had, n)
	}
	same(t, snapshot(t, out), snapshot(t, calm), fmt.Sprintf("killed %d times", killed))
	if killed == 0 {
		t.Error("it was never killed")
	}
}

// answeredSites returns a scan's rows of the origins that answered, without columns that only a live exchange has.
func answeredSites(t *testing.T, out string) map[string]string {
	t.Helper()
	dir := mustPlace(t, out)
	scan, err := commit.ReadScan(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	sites := map[string]string{}
	each(t, scan, schema.Sites, func(r *schema.SiteRow) {
		if r.Status == 0 {
			return
		}
		outcome := r.Outcome
		if outcome == "reset" { // no archive shows how a connection was lost
			outcome = "closed_early"
		}
		sites[r.Origin] = fmt.Sprint(outcome, r.Status, r.Redirects, r.FinalURL, r.Truncated, r.BodyBytes, r.BodyHash,
			r.Access, r.CheckStatus, r.Score, r.StarVerdict,
			len(r.Named), len(r.Blocked), len(r.Partial), r.Server, r.ContentType, r.CDN, r.HTTPVersion, r.TLSVersion,
			r.RemoteIP)
	})
	return sites
}

// archived checks that an archive has only files of committed parts of scan s, and has files of most parts. A part may
// have none, if its origins were fetched while an earlier part was filled.
func archived(t *testing.T, out, kept string) {
	t.Helper()
	dir := mustPlace(t, out)
	list, err := commit.Commits(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"scan-s-0.txt": true}
	for _, c := range list {
		want[fmt.Sprintf("part-s-0-%d-0.warc.gz", c.N)] = true
	}
	entries, err := os.ReadDir(kept)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !want[entry.Name()] {
			t.Errorf("the archive has %s, of no part that counts", entry.Name())
		}
	}
	if len(entries) < len(want)/2 {
		t.Errorf("the archive has %d files, of %d parts", len(entries), len(want)-1)
	}
}

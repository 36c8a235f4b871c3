//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// inNamespace is the variable that tells the test binary that it may mount file systems.
const inNamespace = "BULKSCAN_TEST_IN_NAMESPACE"

// mayMount reports whether the test may mount file systems. If it may not, mayMount runs it again in a namespace of its
// own.
func mayMount(t *testing.T) bool {
	if os.Getenv(inNamespace) != "" {
		return true
	}
	t.Parallel()
	mount := exec.Command("unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", t.TempDir())
	if text, err := mount.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no disk to fill: this test mounts one in a namespace of its own: %v\n%s", err, text)
	}
	c := exec.Command("unshare", "--user", "--map-root-user", "--mount", os.Args[0], "-test.run", "^"+t.Name()+"$",
		"-test.v", "-test.count", "1")
	c.Env = append(os.Environ(), inNamespace+"=1")
	text, err := c.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(string(text), "--- SKIP"): // something else is missing, as the text says
		t.Skipf("%s", text)
	}
	return false
}

// TestDiskFull scans onto a small disk that fills up, and gives it room again: at each size the scan reports once which
// file had no room and what to do; committed parts stay, and the same command finishes the scan. The disk is a tmpfs in
// a mount namespace of the test's own, which takes root or user namespaces.
func TestDiskFull(t *testing.T) {
	notShort(t)
	if !mayMount(t) {
		return
	}
	w := newKillWorld(t, 400)
	folder := filepath.Dir(w.list)
	flags := []string{"--part-rows", "40", "--concurrency", "20", "--retries", "0"}
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)

	disk := filepath.Join(folder, "disk")
	if err := os.Mkdir(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	// A file of a tmpfs takes at least a page.
	const page = 4096
	all := 0
	err := filepath.WalkDir(calm, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			all += int(info.Size()+page-1) / page
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pages := range []int{1, 2, 4, all / 20, all / 5, all / 2, all * 9 / 10} {
		size := fmt.Sprintf("size=%d", page*pages)
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, size); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
		out := filepath.Join(disk, "out")
		p := w.scan(t, out, flags...)
		p.exits(t, exitFailed)
		p.says(t, "cannot ",
			"no space left on device; make room there: everything committed is kept, and the same command resumes scan s")
		if n := strings.Count(p.stderr.String(), "no space left on device"); n != 1 {
			t.Errorf("%s: it is said %d times\n%s", size, n, &p.stderr)
		}
		had := map[uint64]bool{}
		if _, err := os.Stat(filepath.Join(out, "_scans", "s", "commits")); err == nil {
			had = committed(t, out)
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
			t.Fatalf("cannot give room: %v", err)
		}
		p = w.scan(t, out, flags...)
		p.exits(t, 0)
		p.says(t, fmt.Sprintf("already_kept=%d", len(had)))
		same(t, snapshot(t, out), want, size)
		tidy(t, out)
		t.Logf("%s: %d of 400 committed when the disk was full", size, len(had))
		if err := unix.Unmount(disk, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSpoolFull scans to an object store while the folder of temporary files is full, or may not be written to: the
// scan reports which folder that is and what to do; committed parts stay, and the same command finishes the scan.
func TestSpoolFull(t *testing.T) {
	notShort(t)
	if !mayMount(t) {
		return
	}
	g := startGateway(t)
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	w := newKillWorld(t, 200)
	folder := filepath.Dir(w.list)
	flags := []string{"--part-rows", "10", "--concurrency", "4", "--retries", "0"}
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)
	spool := filepath.Join(folder, "spool")
	if err := os.Mkdir(spool, 0o777); err != nil {
		t.Fatal(err)
	}
	room := func(data string) error { return unix.Mount("tmpfs", spool, "tmpfs", unix.MS_REMOUNT, data) }
	f := func(what string, mount uintptr, data, later, why string) {
		t.Helper()
		place, out := "s3://"+storetest.Bucket+"/"+what, filepath.Join(g.Folder, storetest.Bucket, what)
		if err := unix.Mount("tmpfs", spool, "tmpfs", mount, data); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
		t.Setenv("TMPDIR", spool)
		p := w.scan(t, place, flags...)
		if later != "" && !eventually(func() bool { return commits(out) > 2 && room(later) == nil }) {
			// not while it is in use
			t.Errorf("%s: it cannot be filled", what)
		}
		p.exits(t, exitFailed)
		p.says(t, "no temporary file in "+spool+" (TMPDIR says where)", why+
			": everything committed is kept, and the same command resumes scan s")
		had := len(committed(t, out))
		if had == 0 && later != "" {
			t.Errorf("%s: nothing was committed", what)
		}
		if err := room("size=64m"); err != nil {
			t.Fatalf("cannot give room: %v", err)
		}
		p = w.scan(t, place, flags...)
		p.exits(t, 0)
		p.says(t, fmt.Sprintf("already_kept=%d", had))
		same(t, snapshotOf(t, mustPlace(t, place)), want, what)
		clean(t, place)
		if err := unix.Unmount(spool, 0); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d of 200 committed", what, had)
	}
	const full = "no space left on device; make room there"
	f("closed", unix.MS_RDONLY, "", "", "read-only file system; make it writable")
	f("full", 0, "size=4k", "", full)
	f("fills", 0, "size=64m", "size=4k", full)
}

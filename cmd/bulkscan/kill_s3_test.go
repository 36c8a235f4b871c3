//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestKilledOnS3 kills a scan some times whose dataset is in an object store, and compares it with an undisturbed scan
// in a folder. There are fewer kills than in a folder, since each next process first waits for the end of the dead
// process's lease.
func TestKilledOnS3(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	const kills, each = 6, 60 // and so many requests between two of them, on average
	w := newKillWorld(t, kills*each*3/2)
	folder := filepath.Dir(w.list)
	flags := []string{"--part-rows", fmt.Sprint(killPart), "--concurrency", fmt.Sprint(killConcurrency), "--retries", "0"}
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)

	// The server keeps objects as files, so that the test can read them as a folder, without requests.
	const place = "s3://" + storetest.Bucket + "/killed"
	out := filepath.Join(g.Folder, storetest.Bucket, "killed")
	dice := rand.New(rand.NewPCG(3, 4))
	done := map[uint64]bool{}
	for n := range kills {
		before := w.web.Stats().Requests
		had := commits(out)
		p := w.scan(t, place, flags...)
		requests := int64(each/2 + dice.IntN(each))
		m := []moment{
			{"any time", func() bool { return w.web.Stats().Requests >= before+requests },
				time.Duration(dice.IntN(20)) * time.Millisecond},
			{"commit made", func() bool { return commits(out) > had+int(requests)/killPart/2 },
				time.Duration(dice.IntN(20)) * time.Millisecond},
		}[n%2]
		if p.killAt(t, m, syscall.SIGKILL) {
			t.Fatalf("the list was done after %d kills", n)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != -1 {
			t.Fatalf("exit code %d\n%s", code, &p.stderr)
		}
		now := committed(t, out)
		for seq := range done {
			if !now[seq] {
				t.Errorf("seq %d was committed, and is no more", seq)
			}
		}
		done = now
	}
	w.scan(t, place, flags...).exits(t, 0)
	same(t, snapshot(t, out), want, "resumed to the end")
	clean(t, place)
}

// clean checks that verify finds nothing wrong in a place, and that no upload is left there.
func clean(t *testing.T, place string) {
	t.Helper()
	p := start(t, "verify", place)
	p.exits(t, 0)
	if text := p.stdout.String(); !strings.Contains(text, ": 0 damaged, 0 leftovers") {
		t.Errorf("verify says\n%s", text)
	}
	err := mustPlace(t, place).Sweep(t.Context(), "", func(name string) bool {
		t.Errorf("left: an upload of %s", name)
		return false
	})
	if err != nil {
		t.Error(err)
	}
}

// startGateway starts an object store, which the commands of this test find in their environment.
func startGateway(t *testing.T) *storetest.Gateway {
	t.Helper()
	g := storetest.StartGateway(t)
	for name, value := range g.Environment() {
		t.Setenv(name, value)
	}
	return g
}

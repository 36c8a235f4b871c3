//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/simweb"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
)

// TestKilledOnS3 takes a scan whose dataset is in an object store through some deaths, and holds it against an undisturbed
// one in a folder. Each next process first waits for the lease of the dead to end, so they are fewer than in a folder.
func TestKilledOnS3(t *testing.T) {
	g := storetest.StartGateway(t)
	for name, value := range g.Environment() {
		t.Setenv(name, value)
	}
	t.Setenv("BULKSCAN_S3_LEASE", "1s")
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 7, Addresses: 16, Bodies: 128, Only: append(slices.Clone(onceAsked), neverAsked...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	kills, each := 6, 60 // and so many requests between two of them, on average
	if long {
		kills *= 10
	}
	folder := t.TempDir()
	w := &world{web: web, list: filepath.Join(folder, "list.txt")}
	killList(t, w.list, kills*each*3/2)
	flags := []string{"--part-rows", fmt.Sprint(killPart), "--concurrency", fmt.Sprint(killConcurrency), "--patience", "0s", "--retries", "0"}
	calm := filepath.Join(folder, "calm")
	w.scan(t, calm, flags...).exits(t, 0)
	want := snapshot(t, calm)

	// The server keeps objects as files, so that what reads a folder can look at what there is without asking it.
	const place = "s3://" + storetest.Bucket + "/killed"
	out := filepath.Join(g.Folder, storetest.Bucket, "killed")
	dice := rand.New(rand.NewPCG(3, 4))
	done := map[uint64]bool{}
	for n := range kills {
		before := web.Stats().Requests
		had := commits(out)
		p := w.scan(t, place, flags...)
		requests := int64(each/2 + dice.IntN(each))
		m := []moment{
			{"any time", func() bool { return web.Stats().Requests >= before+requests }, time.Duration(dice.IntN(20)) * time.Millisecond},
			{"commit made", func() bool { return commits(out) > had+int(requests)/killPart/2 }, time.Duration(dice.IntN(20)) * time.Millisecond},
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
	p := start(t, "verify", place)
	p.exits(t, 0)
	if text := p.stdout.String(); !strings.Contains(text, ": 0 damaged, 0 leftovers") {
		t.Errorf("verify says\n%s", text)
	}
	st, err := openPlace(place)
	if err != nil {
		t.Fatal(err)
	}
	err = st.Sweep(t.Context(), "", func(name string) bool {
		t.Errorf("left: an upload of %s", name)
		return false
	})
	if err != nil {
		t.Error(err)
	}
}

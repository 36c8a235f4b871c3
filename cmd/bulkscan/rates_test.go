//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// hotWorld is a web of two addresses, and a list of as many hosts at each: at the hot one, those below hot.test.
func hotWorld(t *testing.T, each int) *world {
	t.Helper()
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 9, Addresses: 2, Bodies: 64, Only: []string{"ok"}, RecordAccepts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	w := &world{web: web, list: filepath.Join(t.TempDir(), "list.txt"), timeout: allAnswer}
	err = writeTo(w.list, func(list *bufio.Writer) error {
		for i, host := range web.Names(each) {
			fmt.Fprintf(list, "h%d.hot.test\n%s\n", i, host)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// mostIn returns how many connections tasks may open in that time that share a rate. In one second each promises at most 1.1 of its
// part and one more (pipeline/limiter.go). Counted from the start of the processes, a busy machine only allows more.
func mostIn(took time.Duration, rate float64, tasks int) int {
	return int(math.Ceil(took.Seconds()) * (1.1*rate + float64(tasks)))
}

// TestRatesOfTwoAddresses scans hosts at two addresses that have each a rate of its own: each gets it, as its server counts.
func TestRatesOfTwoAddresses(t *testing.T) {
	notQuick(t)
	t.Parallel()
	const each, hotRate, rate = 60, 30, 12
	w, dir := hotWorld(t, each), t.TempDir()
	rates := filepath.Join(dir, "rates.txt")
	if err := os.WriteFile(rates, fmt.Appendf(nil, "%v %d\n127.0.0.0/8 %d\n", w.web.HotAddr(), hotRate, rate), 0o666); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	w.scan(t, filepath.Join(dir, "out"), "--rates", rates, "--ip-rate", "1").exits(t, 0)
	record := w.web.Record()
	check := func(load *simweb.Load, rate float64) {
		t.Helper()
		if load == nil || load.Total < each { // a site may be asked again
			t.Fatalf("an address had %+v; want %d connections", load, each)
		}
		if took := load.Last.Sub(begun); load.Total > mostIn(took, rate, 1) {
			t.Errorf("%s: %d connections in %v, at most %d are allowed at %v a second", load.Name, load.Total, took, mostIn(took, rate, 1), rate)
		}
		t.Logf("%s: %d connections in %v, %v a second allowed: %d in the busiest", load.Name, load.Total, load.Last.Sub(load.First), rate, load.Second)
	}
	check(record.Hot, hotRate)
	check(record.Address, rate)
}

// TestRatesWhileScanning changes the file of --rates while a slow scan runs. A file that cannot be read changes nothing; the next
// holds for what waits, and the log and the manifest say so.
func TestRatesWhileScanning(t *testing.T) {
	notShort(t)
	w, dir := hotWorld(t, 100), t.TempDir()
	rates, out := filepath.Join(dir, "rates.txt"), filepath.Join(dir, "out")
	write := func(text string) {
		t.Helper()
		next := rates + ".next" // what is half written must not be read
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o666), os.Rename(next, rates)); err != nil {
			t.Fatal(err)
		}
	}
	write("hot.test 1\n") // 100 s in all
	begun := time.Now()
	p := w.scan(t, out, "--rates", rates)
	p.await(t, "the hot address is asked", func() bool { return w.web.Record().Hot != nil })
	write("hot.test fast\n")
	p.await(t, "a bad file is told of", func() bool {
		return strings.Contains(p.stderr.String(), `the rates stay as they were" error="rates.txt:1: \"fast\" is no rate`)
	})
	slow := w.web.Record().Hot.Total
	if most := mostIn(time.Since(begun), 1, 1); slow > most {
		t.Errorf("%d connections at 1 a second, at most %d are allowed", slow, most)
	}
	write("hot.test 50\n127.0.0.0/8 100\n")
	p.exits(t, 0)
	p.says(t, `msg="the file of --rates has changed, and holds from now on" entries=2`)
	scan, err := commit.ReadScan(t.Context(), mustPlace(t, out), "s")
	if err != nil {
		t.Fatal(err)
	}
	if changes := scan.Manifest.Changes; len(changes) != 1 || changes[0].Flag != "rates" || changes[0].Entries != 2 {
		t.Errorf("the manifest has %+v", changes)
	}
	if load := w.web.Record().Hot; load.Total < 100 || load.Second <= mostIn(time.Second, 1, 1) {
		t.Errorf("the hot address had %+v; want 100 connections, and more in its busiest second than the old rate allows", load)
	}
}

package main

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jimsmart/grobotstxt"
)

// everybody is every parser that answers.
func everybody() []Peer { return append([]Peer{bulkscan}, peers...) }

func body(text string) *Body { return &newPack("", [][]byte{[]byte(text)}).Bodies[0] }

// TestPeersAnswer asks every parser what all must answer alike, one file after another, so that a parser that is asked
// wrongly, in the wrong order or of the last file is found out.
func TestPeersAnswer(t *testing.T) {
	q := Questions{[]string{"GPTBot", "OtherBot"}, []string{"/", "/private/x", "/a.pdf"}}
	for _, peer := range everybody() {
		judge := peer.New(q)
		f := func(text, want string) {
			t.Helper()
			allowed := make([]bool, q.Len())
			if err := judge(body(text), allowed); err != nil {
				t.Errorf("%s: %q is refused: %v", peer.Name, text, err)
			}
			if got := bits(allowed); got != want {
				t.Errorf("%s: %q: %s, want %s", peer.Name, text, got, want)
			}
		}
		f("User-agent: *\nDisallow: /private/\n", "101 101")
		f("User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nDisallow: /*.pdf$\n", "000 110")
		f("Sitemap: https://a.example/sitemap.xml\n", "111 111") // benjaminestes/robots panics on a file without a record
		f("User-agent: gptbot\nUser-agent: otherbot\nDisallow: /\nAllow: /private/\n", "010 010")
		f("User-agent: OtherBot\r\nDisallow: /private/\r\n", "111 101")
	}
}

// bits spells answers to questions about three paths.
func bits(allowed []bool) string {
	var b strings.Builder
	for i, a := range allowed {
		if i > 0 && i%3 == 0 {
			b.WriteByte(' ')
		}
		b.WriteByte("01"[btoi(a)])
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestPeersParse lets every parser, and the yardstick, read files without being asked anything.
func TestPeersParse(t *testing.T) {
	pack := newPack("generated", generate(50))
	for _, peer := range append(everybody(), lineLoop) {
		judge := peer.New(Questions{})
		for i := range pack.Bodies {
			if err := judge(&pack.Bodies[i], nil); err != nil {
				t.Errorf("%s refuses %q: %v", peer.Name, pack.Bodies[i].Text, err)
			}
		}
	}
	lines = 0
	if err := lineLoop.New(Questions{})(body("a\n\nb\nc"), nil); err != nil || lines != 3 {
		t.Errorf("%d lines, want 3 (%v)", lines, err)
	}
}

// TestGrobotstxt holds our way of asking grobotstxt, one parse for all questions, against its own.
func TestGrobotstxt(t *testing.T) {
	q := Questions{[]string{"GPTBot", "bingbot", "nobody"}, []string{"/", "/search1?s=2", "/private/a.pdf", "/index.html"}}
	judge, allowed := newGrobotstxt(q), make([]bool, q.Len())
	pack := newPack("generated", generate(200))
	pack.Bodies = append(pack.Bodies, *body("User-agent: *\nDisallow: /\nAllow: /index.html\n"), *body("Disallow /\nuser-agent *\ndisalow /"))
	for i := range pack.Bodies {
		if err := judge(&pack.Bodies[i], allowed); err != nil {
			t.Fatal(err)
		}
		k := 0
		for _, token := range q.Tokens {
			for _, path := range q.Paths {
				if want := grobotstxt.AgentAllowed(pack.Bodies[i].Text, token, path); allowed[k] != want {
					t.Errorf("%s on %s: %v, want %v\n%s", token, path, allowed[k], want, pack.Bodies[i].Text)
				}
				k++
			}
		}
	}
}

// TestMeasure lets everybody take turns on a few files, one of which a parser panics on.
func TestMeasure(t *testing.T) {
	pack := newPack("generated", generate(40))
	seen := 0
	panicky := Peer{Name: "panicky", New: func(Questions) Judge {
		return func(b *Body, _ []bool) error {
			seen++
			if b == &pack.Bodies[7] {
				panic("no")
			}
			return errors.New("refused")
		}
	}}
	plan := Plan{Rounds: 2, Turn: time.Nanosecond, Budget: time.Hour}
	load := Workloads()[3]
	if load.Len() != 150 {
		t.Errorf("%d questions, want 150", load.Len())
	}
	results := measure(pack, load.Questions, plan, append([]Peer{lineLoop, panicky}, peers...))
	if got, want := len(results), 3+len(peers); got != want {
		t.Fatalf("%d results, want %d", got, want)
	}
	for i, r := range results {
		turns, ours := 2, 2
		if i == 0 {
			turns, ours = 2*(len(results)-1), 0 // one before each turn of the others
		}
		if len(r.Times) != turns || len(r.Ours) != ours || r.Size != pack.Size || r.Allocations < 0 {
			t.Errorf("%+v", r)
		}
	}
	if r := results[0]; r.Name != bulkscan.Name || r.Allocations != 0 {
		t.Errorf("%s: %g allocations a file, want none", r.Name, r.Allocations)
	}
	if r := results[2]; r.Panics != 1 || seen != len(pack.Bodies)*3 { // no turn is given up for a panic
		t.Errorf("%d panics, %d files seen", r.Panics, seen)
	}

	var out bytes.Buffer
	report := Report{out: &out}
	report.Speed(load, results)
	for _, peer := range everybody() {
		if !strings.Contains(out.String(), "\n| "+peer.Name+" | ") {
			t.Errorf("%s is not in the report:\n%s", peer.Name, out.String())
		}
	}
	if !strings.Contains(out.String(), "panicky panics on 1 of the files") || report.temoto.Min <= 0 {
		t.Errorf("%s\nleast ratios: %+v", out.String(), report.temoto)
	}
}

// TestBudget gives a parser that takes longer than it may fewer turns, but one.
func TestBudget(t *testing.T) {
	pack := newPack("generated", generate(3))
	f := func(budget time.Duration, want int) {
		t.Helper()
		if r := newRunner(bulkscan, pack, Questions{}, Plan{Rounds: 9, Turn: 1, Budget: budget}); r.turns != want {
			t.Errorf("a budget of %v: %d turns, want %d", budget, r.turns, want)
		}
	}
	f(time.Nanosecond, 1)
	f(time.Hour, 9)
}

func TestRatio(t *testing.T) {
	r := Result{Times: []time.Duration{40, 60, 90}, Ours: []time.Duration{4, 2, 3}, Size: 80}
	if got, want := r.Ratio(), (Ratio{Best: 20, Median: 30, Min: 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := math.Round(r.Rate(r.Best())); got != 2000 { // 80 bytes in 40 ns
		t.Errorf("%g MB/s, want 2000", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median %g, want 2.5", got)
	}
}

// TestScore compares parsers that do all that can go wrong with what Google is to have said.
func TestScore(t *testing.T) { synctest.Test(t, testScore) }

func testScore(t *testing.T) {
	pack := newPack("", [][]byte{[]byte("0"), []byte("1"), []byte("2"), []byte("3")})
	truth := Truth{Questions: Questions{[]string{"a", "b"}, []string{"/"}}, Bits: []string{"11", "01", "11", "00"}}
	never := make(chan bool)
	defer close(never)
	f := func(name string, judge Judge, want Score) {
		t.Helper()
		want.Files, want.Decisions = 4, 8
		var got Score
		got.New = func(Questions) Judge { return judge }
		got.add(pack, truth, maxTime)
		if got.summary() != want.summary() {
			t.Errorf("%s: %v, want %v", name, got.summary(), want.summary())
		}
	}
	all := func(answer bool) Judge {
		return func(_ *Body, allowed []bool) error {
			for i := range allowed {
				allowed[i] = answer
			}
			return nil
		}
	}
	on := func(file string, then func() error) Judge {
		return func(b *Body, allowed []bool) error {
			if b.Text == file {
				return then()
			}
			return all(true)(b, allowed)
		}
	}
	f("allows all", all(true), Score{Differ: 3, Agreeing: 2})
	f("allows none", all(false), Score{Differ: 5, Agreeing: 1})
	f("refuses", on("1", func() error { return errors.New("no") }), Score{Differ: 2, Agreeing: 2, Refused: 1})
	f("panics", on("3", func() error { panic("no") }), Score{Differ: 1, Agreeing: 2, Panicked: 1})
	f("hangs", on("0", func() error { <-never; return nil }), Score{Differ: 3, Agreeing: 1, Late: 1})
	f("always hangs", func(*Body, []bool) error { <-never; return nil }, Score{Late: 4})
}

// summary is what can be compared of a score.
func (s Score) summary() [8]float64 {
	return [8]float64{float64(s.Files), float64(s.Decisions), float64(s.Differ), float64(s.Agreeing), float64(s.Refused),
		float64(s.Panicked), float64(s.Late), s.Agreement()}
}

// TestClaims shows that each claim can fail.
func TestClaims(t *testing.T) {
	f := func(temoto float64, differ int, want bool) {
		t.Helper()
		var out bytes.Buffer
		r := Report{out: &out, pack: "p", differ: differ}
		r.noteTemoto(Ratio{Best: 50, Median: 50, Min: 3}, Workload{Name: "fast"})
		r.noteTemoto(Ratio{Best: temoto, Median: 60, Min: 4}, Workload{Name: "slow"})
		r.noteTemoto(Ratio{Best: 60, Median: 70, Min: 5}, Workload{Name: "fast"})
		if r.Claims(true); r.failed == want || strings.Contains(out.String(), "**NO**") == want ||
			!strings.Contains(out.String(), "p, slow; the least median by rounds is 50.0, the least round 3.00") {
			t.Errorf("%g times, %d differ: %s", temoto, differ, out.String())
		}
	}
	f(20, 0, true)
	f(19.9, 0, false)
	f(40, 1, false)
}

func TestSpelling(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(digits(0), "0")
	f(digits(0.333), "0.33")
	f(digits(9.996), "10.0")
	f(digits(99.96), "100")
	f(digits(1763.4), "1763")
	f(percent(1), "100 %")
	f(percent(0.99999999), "99.9999 %")
	f(percent(0.5), "50.0000 %")
}

// TestTruth sees that Google's decisions belong to the files that are here.
func TestTruth(t *testing.T) {
	pack, found, err := readPack("modern-ai")
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Skip("SKIPPED: needs ../shared/corpus, which is not here")
	}
	truth, err := readTruth(pack)
	if err != nil || truth.Len() != 160 || len(truth.Bits) != len(pack.Bodies) {
		t.Errorf("%d questions, %d files of %d: %v", truth.Len(), len(truth.Bits), len(pack.Bodies), err)
	}
	pack.Bodies[3] = *body("another")
	if _, err := readTruth(pack); err == nil || !strings.Contains(err.Error(), "file 3 is not the one that was judged") {
		t.Errorf("a file that was not judged: %v", err)
	}
}

// TestAbsent sees that files are made up where there are no real ones.
func TestAbsent(t *testing.T) {
	pack, found, err := readPack("no-such-pack")
	if found || err != nil || len(pack.Bodies) == 0 || pack.Name != "generated" {
		t.Errorf("%s, %v, %v", pack.Name, found, err)
	}
}

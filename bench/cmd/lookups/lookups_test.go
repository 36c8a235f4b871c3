package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestMain is also the server and the contenders, which the command starts as processes of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if part, ok := parts[os.Args[1]]; ok {
			exit(part(os.Stdin, os.Stdout))
		}
	}
	if os.Getenv("GORACE") == "" {
		// The race detector has every process wait a second before it ends, and here are dozens.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			exit(err)
		}
	}
	os.Exit(m.Run())
}

// TestExperiments does small experiments with everybody. What they say of time is not looked at: it is this machine's, at
// this moment. That every name has its address is, and that each contender has asked as often as it says.
func TestExperiments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "report.md")
	l, err := run(t.Context(), []string{
		"-runs", "2", "-speed", "300", "-warm", "50", "-c", "8", "-names", "500", "-few", "20", "-pace", "2000", "-drop", "1", "-delay", "20", "-late", "30ms",
		"-memory", "600", "-steps", "3", "-o", file,
	}, io.Discard, io.Discard)
	report := l.report.String()
	if err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	f := func(pattern string, n int) {
		t.Helper()
		if got := len(regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllString(report, -1)); got != n {
			t.Errorf("%d lines are %q, want %d", got, pattern, n)
		}
	}
	speed := func(name string, questions int) { // more where a busy machine has let some be repeated
		t.Helper()
		f(fmt.Sprintf(`\| %s \| 8 \| .* \| %d\.\d+ \| [^|]* \| [^|]* \| 0 \|`, name, questions), 1)
	}
	f(`## speed: 300 names`, 1)
	speed("bulkscan", 1)
	speed("bulkscan at 64", 1)
	speed("bulkscan at 1024", 1)
	speed("net.Resolver", 2)
	speed("net.Resolver A only", 1)
	speed("miekg/dns", 1)
	speed("miekg/dns with a socket a goroutine", 1)
	f(`## loss: the server drops 1 % of the packets and answers 20 % 30ms late`, 1)
	f(`\| bulkscan \| 500 \| \d+ \| 0 \| 0 \| 1\.\d+ \| [1-9]\d* \| [1-9]\d* \|.*`, 1)
	f(`\| (miekg/dns|miekg/dns with 3 tries|net.Resolver A only) \| 20 \| \d+ \| \d+ \| 0 \|.*`, 3)
	f(`## memory: 600 names as fast as it goes, 8 at a time`, 1)
	f(`\| [246]00 \| \d+ \| \d+ \| \d+ \| \d+ \| \d+ \|`, 3)
	f(`Of sizes so small nothing is claimed.`, 3)
	f(`Made by .go run ./bench/cmd/lookups -c 8 -delay 20 .*`, 1)
	if written, err := os.ReadFile(file); err != nil || string(written) != report {
		t.Errorf("the file is not what was shown: %v", err)
	}
	if t.Failed() {
		t.Log(report)
	}
}

// TestProfile shows that a profile is written for whoever is measured.
func TestProfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	l, err := run(t.Context(), []string{"-only", "speed", "-contenders", "miekg/dns", "-runs", "1", "-speed", "50", "-warm", "0", "-cpuprofile", dir}, io.Discard, io.Discard)
	if err != nil {
		t.Fatalf("%v\n%s", err, l.report.String())
	}
	if info, err := os.Stat(filepath.Join(dir, "speed-miekg-dns.prof")); err != nil || info.Size() == 0 {
		t.Errorf("no profile: %v", err)
	}
}

func TestUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if _, err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lookups %v: %v, want %q", args, err, want)
		}
	}
	f(`no experiment "nonsense"`, "-only", "speed,nonsense")
	f(`no contender "nobody"`, "-contenders", "bulkscan,nobody")
	f(`unexpected argument "now"`, "now")
	f("-runs 0: from 1 to 1000", "-runs", "0")
	f("-drop NaN: from 0 to 100", "-drop", "NaN")
	f("-delay 60: from 0 to 50", "-drop", "50", "-delay", "60")
	f("-late 61: from 0 to 60", "-late", "61s")
	f("-memory 4: from 5 to 1000000000", "-memory", "4")
	if _, err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
}

// TestContenders shows that each can be named on the command line.
func TestContenders(t *testing.T) {
	for _, c := range contenders {
		if all, err := wanted(c.name); err != nil || len(all) != 1 || all[0].name != c.name {
			t.Errorf("%q finds %d (%v)", c.name, len(all), err)
		}
	}
}

func TestDue(t *testing.T) {
	f := func(elapsed time.Duration, pace float64, all, want int) {
		t.Helper()
		if got := due(elapsed, pace, all); got != want {
			t.Errorf("due(%v, %v, %d) = %d, want %d", elapsed, pace, all, got, want)
		}
	}
	f(0, 10_000, 100, 0)
	f(99*time.Microsecond, 10_000, 100, 0)
	f(100*time.Microsecond, 10_000, 100, 1)
	f(time.Millisecond, 10_000, 100, 10)
	f(time.Hour, 10_000, 100, 100)
	f(3*time.Second, 0.5, 100, 1)
	f(100*time.Second, 10_000, 1_000_000, 1_000_000)
}

// TestStream shows that look-ups begin at their pace, however long those before take, and that all are waited for.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var all tally
		offered, took := stream(slowly(10*time.Second), 3000, 1000, &all)
		if elapsed := time.Since(began); elapsed < 12*time.Second || elapsed > 14*time.Second {
			t.Errorf("all that took %v", elapsed)
		}
		if offered < 999 || offered > 1001 {
			t.Errorf("%v began a second", offered)
		}
		if took[0] != 10*time.Second || took[4] != 10*time.Second {
			t.Errorf("they took %v", took)
		}
		if n := all.right.Load(); n != 3000 {
			t.Errorf("%d are right", n)
		}
	})
}

func TestQuantile(t *testing.T) {
	f := func(share float64, want time.Duration, sorted ...time.Duration) {
		t.Helper()
		if got := quantile(sorted, share); got != want {
			t.Errorf("%v of %v is %v, want %v", share, sorted, got, want)
		}
	}
	f(0.5, 0)
	f(0.5, 7, 7)
	f(1, 7, 7)
	f(0.5, 2, 1, 2, 3, 4)
	f(0.51, 3, 1, 2, 3, 4)
	f(0.75, 3, 1, 2, 3, 4)
	f(0.999, 4, 1, 2, 3, 4)
	f(1, 4, 1, 2, 3, 4)
}

// TestTally shows that a wrong address is not taken for a right one, nor a lost name for either.
func TestTally(t *testing.T) {
	var all tally
	all.look(slowly(0), 1)
	all.look(slowly(0), 2)
	for range 5 {
		all.look(wrongly, 3)
	}
	all.look(never, 4)
	if right, wrong, lost := all.right.Load(), all.wrong.Load(), all.lost.Load(); right != 2 || wrong != 5 || lost != 1 {
		t.Errorf("%d right, %d wrong, %d lost", right, wrong, lost)
	}
	if len(all.examples) != maxExamples || all.examples[0] != "h3.bulk.test: 192.0.2.1, not "+addressOf("h3.bulk.test").String() {
		t.Errorf("examples: %q", all.examples)
	}
}

func TestMarks(t *testing.T) {
	f := func(marks []mark, want string) {
		t.Helper()
		got := ""
		for _, m := range marks {
			got += map[bool]string{true: "+", false: "-"}[m.ok]
		}
		if got != want {
			t.Errorf("%v is %q, want %q", marks, got, want)
		}
	}
	speed := func(want string, names int, turns ...*measured) {
		t.Helper()
		f(speedMarks([]result{{contender: contenders[1], turns: turns}, {contender: contenders[0], turns: turns}}, names), want)
	}
	turn := func(right, lost int, wall, cpu time.Duration) *measured {
		return &measured{Right: right, Lost: lost, Wall: wall, CPU: cpu}
	}
	const s, ms = time.Second, time.Millisecond
	speed("+++", 100_000, turn(100_000, 0, s, 1200*ms))
	speed("-++", 100_000, turn(100_000, 0, 1001*ms, 1200*ms))
	speed("+-+", 100_000, turn(100_000, 0, s, 1201*ms))
	speed("++-", 100_000, turn(99_999, 1, s, s))
	speed("+++", 100_000, turn(100_000, 0, s, s), turn(100_000, 0, 9*s, 9*s), turn(100_000, 0, s, s)) // medians
	speed("--+", 100_000, turn(100_000, 0, 9*s, 9*s), turn(100_000, 0, 9*s, 9*s), turn(100_000, 0, s, s))
	speed("", 99_999, turn(99_999, 0, 9*s, s))

	loss := func(want string, names int, m measured) {
		t.Helper()
		p := defaults
		p.names = names
		m.Server.Packets = 111_000
		f(lossMarks(&m, &p), want)
	}
	seen := counts{Dropped: 5550, Delayed: 5550}
	loss("++++", 100_000, measured{Right: 100_000, Offered: 9990, Server: seen})
	loss("-+++", 100_000, measured{Right: 99_999, Lost: 1, Offered: 9990, Server: seen})
	loss("-+++", 100_000, measured{Right: 99_999, Offered: 9990, Server: seen}) // one is missing
	loss("+-++", 100_000, measured{Right: 99_999, Wrong: 1, Offered: 9990, Server: seen})
	loss("++-+", 100_000, measured{Right: 100_000, Offered: 9700, Server: seen})
	loss("+++-", 100_000, measured{Right: 100_000, Offered: 9990, Server: counts{Dropped: 5550}})
	loss("", 99_999, measured{Right: 99_999, Lost: 9, Offered: 9990, Server: seen})

	memory := func(want string, last state) {
		t.Helper()
		f(memoryMarks(&measured{States: []state{{1_000_000, 6 << 20, 200 << 20, 9, 12, 0}, {2_000_000, 9 << 30, 9 << 30, 99, 99, 0}, last}}, 1_000_000), want)
	}
	memory("+++++", state{5_000_000, 10 << 20, 210 << 20, 17, 20, 0})
	memory("-++++", state{5_000_000, 10<<20 + 1024, 0, 0, 0, 0})
	memory("+-+++", state{5_000_000, 0, 210<<20 + 1024, 0, 0, 0})
	memory("++-++", state{5_000_000, 0, 0, 18, 0, 0})
	memory("+++-+", state{5_000_000, 0, 0, 0, 21, 0})
	f(memoryMarks(&measured{Lost: 1, States: make([]state, 2)}, 1_000_000), "++++-")
	f(memoryMarks(&measured{States: make([]state, 2)}, 999_999), "")
}

// TestFigures shows that what was only asked to warm up counts nowhere.
func TestFigures(t *testing.T) {
	m := &measured{Right: 9000, Wrong: 500, Lost: 500, Wall: 2 * time.Second, CPU: time.Second, Objects: 50_000, Warm: 2000,
		Server: counts{Packets: 18_000, CPU: 180 * time.Millisecond}}
	f := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.999999 || got > want*1.000001 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("rate", m.rate(), 5000)
	f("cost", m.cost(), 1)
	f("objects", m.objects(), 5)
	f("questions", m.questions(), 1.5)
	f("serverCost", m.serverCost(), 0.1)
	f("serverShare", m.serverShare(), 0.075)
}

func TestUDPCount(t *testing.T) {
	const text = "Tcp: RtoAlgorithm RcvbufErrors\nTcp: 1 77\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 10 20 30 40 50 60\nUdpLite: InDatagrams\nUdpLite: 9\n"
	f := func(text, name string, want int64) {
		t.Helper()
		if got := udpCount(text, name); got != want {
			t.Errorf("%s of %q: %d, want %d", name, text, got, want)
		}
	}
	f(text, "RcvbufErrors", 50)
	f(text, "SndbufErrors", 60)
	f(text, "RtoAlgorithm", 0)
	f("Udp: A B\nUdp: 1\n", "B", 0)
	f("Udp: A\nUdp: x\n", "A", 0)
	f("", "A", 0)
}

func TestSpelling(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(brief(123456*time.Nanosecond), "123µs")
	f(brief(123456*time.Microsecond), "123.46ms")
	f(brief(1234*time.Millisecond), "1.23s")
	f(profileName("loss", "miekg/dns with 3 tries"), "loss-miekg-dns-with-3-tries.prof")
	f(questionsASecond(0), "as many questions a second as it likes")
	f(questionsASecond(15_000), "15000 questions a second")
	f(hostOf(12), "h12.bulk.test")
}

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
)

// fetchFlagsOf are the flags of a command line.
func fetchFlagsOf(t *testing.T, args ...string) *fetchFlags {
	t.Helper()
	f, c := &fetchFlags{}, &cobra.Command{}
	f.add(c.Flags())
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f
}

// The resolver looks up addresses that can be dialled: those of the chosen family, or of the family of the source
// address.
func TestFamilyOfSource(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		record := " 60 A 192.0.2.1"
		if q.Question[0].Qtype == dns.TypeAAAA {
			record = " 60 AAAA 2001:db8::1"
		}
		m := new(dns.Msg).SetReply(q)
		rr, err := dns.NewRR(q.Question[0].Name + record)
		if err == nil {
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ActivateAndServe() // ends with the socket
	}()
	t.Cleanup(func() { _ = packets.Close(); <-ended })

	f := func(want string, args ...string) {
		t.Helper()
		flags := fetchFlagsOf(t, append(args, "--allow-private", "--resolver", packets.LocalAddr().String())...)
		fetch, done, err := flags.fetcher(network{})
		if err != nil {
			t.Errorf("%v: %v", args, err)
			return
		}
		defer done()
		o, err := origin.Parse("https://dual.example")
		if err != nil {
			t.Fatal(err)
		}
		if l := fetch.Resolve(t.Context(), exchange.Target{Origin: o}); l.Addr.String() != want || l.Outcome != 0 {
			t.Errorf("%v: got %v, %v (%v), want %s", args, l.Addr, l.Outcome, l.Cause, want)
		}
	}
	f("192.0.2.1")
	f("192.0.2.1", "--ipv4")
	f("2001:db8::1", "--ipv6")
	f("192.0.2.1", "--source-ip", "127.0.0.1")
	f("192.0.2.1", "--source-ip", "127.0.0.1", "--ipv4")
	f("192.0.2.1", "--source-ip", "::ffff:127.0.0.1")
	if hasIPv6() {
		f("2001:db8::1", "--source-ip", "::1")
		f("2001:db8::1", "--source-ip", "::1", "--ipv6")
	}
}

// zoo lists hosts of every behaviour, except names without any DNS answer, which only take time.
func zoo(t *testing.T, each int) string {
	t.Helper()
	var b strings.Builder
	for i := range each {
		for _, behaviour := range simweb.Behaviours() {
			if behaviour.Name != "dns-silent" {
				fmt.Fprintf(&b, "h%d.%s.zoo.test\n", i, behaviour.Name)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "zoo.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// held returns the goroutines and files of this process, except the simulated web's, by their purpose.
func held(t *testing.T) (goroutines, files []string) {
	t.Helper()
	// the simulated web alone has more than one MiB of stacks, and a stack that is cut off does not show its owner
	buf := make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "simweb") && !strings.Contains(stack, "miekg/dns") &&
			!strings.Contains(stack, "tRunner") {
			goroutines = append(goroutines, stack)
		}
	}
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skipf("no list of the files that are open: %v", err)
	}
	for _, file := range open {
		name, _ := os.Readlink("/dev/fd/" + file.Name()) // closed meanwhile, or unreadable here: the number suffices
		files = append(files, file.Name()+" "+name)
	}
	return goroutines, files
}

// However a scan ends, it leaves no goroutine and no open file: at its end, stopped, cut off, and by an error of ours.
func TestScanLeavesNothing(t *testing.T) {
	notQuick(t)
	// Interrupts are for the scans; a late interrupt must not end the test.
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Bodies: 64, Slow: 100 * time.Millisecond,
		Hold: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	list := zoo(t, 1)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, web.CAPEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	// scan runs the command, and calls during once so many requests were made.
	scan := func(want int, after int64, during func(out string), flags ...string) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"scan", list, "-o", out, "--resolver", web.DNSAddr().String(), "--ca-file", ca, "--allow-private",
			"--host-rate", "0", "--ip-rate", "0",
			"--dns-rate", "0", "--retry-after", "0s", "--retries", "0", "--timeout", "700ms", "--concurrency", "100",
			"--progress", "log", "--part-rows", "20",
			"--metrics-addr", "127.0.0.1:0", "--metrics-file", filepath.Join(filepath.Dir(out), "scan.prom")}
		for _, to := range web.ConnectTo() {
			args = append(args, "--connect-to", to)
		}
		before := web.Stats().Requests
		ended, end := context.WithCancel(t.Context())
		acted := make(chan struct{})
		go func() {
			defer close(acted)
			if during == nil {
				return
			}
			waittest.Until(time.Millisecond, func() bool { return web.Stats().Requests >= before+after || ended.Err() != nil })
			if ended.Err() == nil {
				during(out)
			}
		}()
		var stderr bytes.Buffer
		code := run(append(args, flags...), strings.NewReader(""), io.Discard, &stderr)
		end()
		<-acted
		if code != want {
			t.Errorf("exit code %d, want %d\n%s", code, want, &stderr)
		}
	}
	interrupt := func(string) {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = errors.Join(self.Signal(os.Interrupt), self.Release())
		}
		if err != nil {
			t.Error(err)
		}
	}
	// The collector closes files without references, so it would hide forgotten ones.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	goroutines, files := held(t)
	nothingLeft := func(ending string) {
		t.Helper()
		var leftGoroutines, leftFiles []string
		if !eventually(func() bool {
			leftGoroutines, leftFiles = held(t)
			return len(leftGoroutines) <= len(goroutines) && len(leftFiles) <= len(files)
		}) {
			leftFiles = slices.DeleteFunc(leftFiles, func(file string) bool { return slices.Contains(files, file) })
			t.Errorf("%s: %d goroutines are left, %d before; files %q\n%s", ending, len(leftGoroutines), len(goroutines),
				leftFiles, strings.Join(leftGoroutines, "\n\n"))
		}
	}
	scan(0, 0, nil)
	nothingLeft("at its end")
	runtime.GC()
	scan(exitInt, 50, interrupt)
	nothingLeft("stopped")
	runtime.GC()
	scan(exitInt, 50, func(string) { interrupt(""); time.Sleep(20 * time.Millisecond); interrupt("") })
	nothingLeft("cut off")
	scan(exitFailed, 50, func(out string) {
		if !eventually(func() bool { return os.RemoveAll(out) == nil }) { // a file may be created meanwhile
			t.Errorf("%s is still there", out)
		}
	})
	nothingLeft("without its folder")
}

// A scan collects garbage at gcPercent, unless the user sets GOGC. After the scan, the process has its old setting
// again.
func TestScanCollectsEarly(t *testing.T) {
	setting := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := setting()
	for given, want := range map[string]uint64{"": gcPercent, "400": before} {
		t.Setenv("GOGC", given)
		var during uint64
		list := readerFunc(func([]byte) (int, error) {
			during = setting()
			return 0, io.EOF
		})
		run([]string{"scan", "-", "--dry-run", "-o", t.TempDir()}, list, io.Discard, io.Discard)
		if after := setting(); during != want || after != before {
			t.Errorf("GOGC=%s: %d while the list is read, want %d; %d afterwards, want %d", given, during, want, after, before)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// --cpuprofile writes a profile whose samples have the stage as a label. The file's name is no setting of the scan.
func TestCPUProfile(t *testing.T) {
	notQuick(t)
	t.Parallel()
	w := newWorld(t, 1500, simweb.Config{Seed: 5, Only: []string{"ok"}})
	dir := t.TempDir()
	path, out := filepath.Join(dir, "cpu.prof"), filepath.Join(dir, "out")
	w.scan(t, out, "--cpuprofile", path).exits(t, 0)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	profile, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	// Names and values of labels are complete strings in the profile's table of strings, field 6 of its message. As parts
	// of functions' names they occur in any profile.
	for _, name := range []string{"stage", "tls"} { // other stages may be too quick for a sample
		if !bytes.Contains(profile, append([]byte{6<<3 | 2, byte(len(name))}, name...)) {
			t.Errorf("no label %s in a profile of %d bytes", name, len(profile))
		}
	}
	manifest, err := os.ReadFile(filepath.Join(out, "_scans", "s", "manifest.json"))
	if err != nil || bytes.Contains(manifest, []byte("cpuprofile")) {
		t.Errorf("%v; the manifest is %s", err, manifest)
	}
}

//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
)

// quietLine connects to a server until it falls silent: then it accepts connections, and discards all bytes.
type quietLine struct {
	address string
	silent  atomic.Bool
	taken   atomic.Int64 // connections while it is silent
}

func newQuietLine(t *testing.T, to string) *quietLine {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &quietLine{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if l.silent.Load() {
				l.taken.Add(1)
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go l.copy(server, client)
			go l.copy(client, server)
		}
	}()
	return l
}

func (l *quietLine) copy(to, from net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.silent.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestInterruptBeforeSilentStore interrupts scans whose object store has fallen silent. While the dataset is opened,
// the first signal ends them in order. Later the second signal does, and a third ends them at once.
func TestInterruptBeforeSilentStore(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	w := newWorld(t, 2, simweb.Config{Seed: 4, Only: []string{"silent"}, Hold: time.Hour})
	start := func(prefix string) (*process, *quietLine) {
		t.Helper()
		line := newQuietLine(t, g.Address())
		t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+line.address)
		return w.scan(t, "s3://dataset/"+prefix, "--timeout", "1h"), line
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	line := newQuietLine(t, g.Address())
	line.silent.Store(true)
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+line.address)
	p := &process{cmd: exec.Command("bulkscan", "scan", "-", "-o", "s3://dataset/opening")}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader("a.test\n"), &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.await(t, "connection", func() bool { return line.taken.Load() > 0 })
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitTerm)
	p.says(t, "bulkscan: interrupted")
	if left, err := filepath.Glob(filepath.Join(temporary, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err) // the copy of standard input among them
	}

	p, line = start("twice")
	p.await(t, "connections", func() bool { return w.web.Stats().Accepts >= 2 })
	line.silent.Store(true)
	p.signal(t, os.Interrupt)
	p.await(t, "word of the first interrupt", func() bool {
		return strings.Contains(p.stderr.String(),
			"once more to abort")
	})
	p.signal(t, os.Interrupt)
	p.exits(t, exitInt)
	p.says(t, "interrupted; ", "the same command resumes scan s")

	before := w.web.Stats().Accepts
	p, line = start("thrice")
	p.await(t, "connections", func() bool { return w.web.Stats().Accepts >= before+2 })
	line.silent.Store(true)
	p.signal(t, os.Interrupt)
	p.await(t, "word of the first interrupt", func() bool {
		return strings.Contains(p.stderr.String(),
			"once more to abort")
	})
	p.signal(t, os.Interrupt)
	p.await(t, "word of the second", func() bool { return strings.Contains(p.stderr.String(), "aborted; ") })
	p.signal(t, os.Interrupt)
	p.exits(t, -1)
}

// TestInterruptWhileBlocked interrupts a scan whose object store has fallen silent while parts fill: the pipeline waits
// until the previous part is written, and the second signal ends this wait, too.
func TestInterruptWhileBlocked(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	w := newWorld(t, 400, simweb.Config{Seed: 4, Only: []string{"ok"}})
	line := newQuietLine(t, g.Address())
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+line.address)
	p := w.scan(t, "s3://dataset/blocked", "--part-rows", "2", "--rate", "30")
	p.await(t, "connections", func() bool { return w.web.Stats().Accepts >= 10 })
	line.silent.Store(true)
	before := w.web.Stats().Accepts
	p.await(t, "connections behind two full parts", func() bool { return w.web.Stats().Accepts >= before+20 })
	p.signal(t, os.Interrupt)
	p.await(t, "word of the first interrupt", func() bool {
		return strings.Contains(p.stderr.String(),
			"once more to abort")
	})
	p.signal(t, os.Interrupt)
	p.exits(t, exitInt)
	p.says(t, "interrupted; what was committed is kept, and the same command resumes scan s")
}

package hostiletest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkscan/bulkscan/internal/waittest"
)

// Terminal returns both ends of a terminal with so many columns. Text written to the terminal can be read from the
// master.
func Terminal(tb testing.TB, width int) (master, terminal *os.File) {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("SKIPPED: this machine has no pseudo-terminals: %v", err)
	}
	tb.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		tb.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("SKIPPED: this machine has no pseudo-terminals: %v", err)
	}
	Resize(tb, terminal, width)
	return master, terminal
}

// Resize gives a terminal another number of columns.
func Resize(tb testing.TB, terminal *os.File, width int) {
	tb.Helper()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: 24, Col: uint16(width)}); err != nil {
		tb.Fatal(err)
	}
}

// Screen is what has been written to a terminal so far.
type Screen struct {
	mu    sync.Mutex
	text  []byte
	ended chan struct{}
}

// Watch reads from the master of a terminal until its last writer has closed it.
func Watch(master *os.File) *Screen {
	s := &Screen{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.text = append(s.text, buf[:n]...)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// Text returns what has been written, line ends as \n.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(string(s.text), "\r\n", "\n")
}

// End waits for the last writer to close the terminal, and returns all that was written.
func (s *Screen) End() string {
	<-s.ended
	return s.Text()
}

// Await waits until a line, or what has been drawn over it, is as wanted.
func (s *Screen) Await(tb testing.TB, what string, wanted func(line string) bool) {
	tb.Helper()
	lines := func() []string {
		return strings.FieldsFunc(s.Text(), func(r rune) bool { return r == '\r' || r == '\n' })
	}
	if !waittest.Until(10*time.Millisecond, func() bool { return slices.ContainsFunc(lines(), wanted) }) {
		tb.Fatalf("no %s on the terminal:\n%q", what, s.Text())
	}
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/simweb"
)

// TestLinesOnTerminal scans with -o - on a terminal. It prints a line per site for a person, without remains of the
// bar. With --fields it prints JSON, as it does in a pipe.
func TestLinesOnTerminal(t *testing.T) {
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Addresses: 4, Bodies: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	t.Chdir(t.TempDir())
	leadTo(t, web)
	if err := errors.Join(os.WriteFile("ca.pem", web.CAPEM(), 0o644),
		os.WriteFile("list.txt", []byte("bare-lf.zoo.test\nnot-found.zoo.test\nnxdomain.zoo.test\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		master, terminal := hostiletest.Terminal(t, 80)
		screen := hostiletest.Watch(master)
		c := exec.Command("bulkscan", append([]string{"scan", "list.txt", "-o", "-"}, args...)...)
		c.Stdout, c.Stderr = terminal, terminal
		err := c.Run()
		_ = terminal.Close()
		if text := screen.End(); err != nil || len(regexp.MustCompile(want).FindAllString(text, -1)) != 3 ||
			!strings.Contains(text, "2 of 3 sites answered") {
			t.Errorf("%q: %v\n%q", args, err, text)
		}
	}
	f(
		`\r\x1b\[K(bare-lf|not-found|nxdomain)\.zoo\.test +(rules|none|unreachable) +\x1b\[\d+m[✓✗?] (\d+ blocked|unknown)\x1b\[0m`, "--progress", "bar")
	f(`(?m)^\{"finding":"[a-z]+","host":"[a-z.-]+"\}$`, "--fields", "finding,host")
	if stdout, _ := said(t, 0, "scan", "list.txt", "-o", "-"); strings.Count(stdout, `{"scan_id":`) != 3 {
		t.Errorf("a pipe gets\n%.1000s", stdout)
	}
}

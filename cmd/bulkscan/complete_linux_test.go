package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/simweb"
)

// bashCompletion has the functions of the package bash-completion, which the script for bash needs.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// shells are the shells whose completion is tested: the place of the script by docs/install.md, a further file that it
// needs, the command that starts the shell without a person's settings, and the line that loads the completion and sets
// the prompt "ready> ".
var shells = []struct {
	name, script, needs string
	args                []string
	begin               string
}{
	{
		"bash", "completions/bulkscan.bash", bashCompletion, []string{"--norc", "--noprofile", "-i"},
		"source " + bashCompletion + "; source completions/bulkscan.bash; PS1='re''ady> '",
	},
	{
		"zsh", "completions/_bulkscan", "", []string{"-f", "-i"},
		"fpath=($HOME/completions $fpath); autoload -U compinit; compinit -u -D; PS1='re''ady> '",
	},
	{
		"fish", ".config/fish/completions/bulkscan.fish", "", []string{"-i"},
		"function fish_prompt; echo -n 're''ady> '; end",
	},
}

// TestCompletionInShells types the beginnings of commands into real shells, and TAB. Instead of the program the shell
// then starts a stand-in, which writes down its arguments. For completions the stand-in calls the real program.
func TestCompletionInShells(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it starts shells, which make long does")
	}
	t.Parallel()
	w := newWorld(t, 2, simweb.Config{Only: []string{"ok"}})
	for _, shell := range shells {
		t.Run(shell.name, func(t *testing.T) {
			program, err := exec.LookPath(shell.name)
			if err == nil && shell.needs != "" {
				_, err = os.Stat(shell.needs)
			}
			if err != nil {
				t.Skipf("SKIPPED: whether %s completes: %v", shell.name, err)
			}
			home := t.TempDir()
			if text, err := exec.Command("bulkscan", w.arguments(t, filepath.Join(home, "out"), w.web.ConnectTo(), "--scan-id",
				"only-one")...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			real, err := exec.LookPath("bulkscan")
			if err != nil {
				t.Fatal(err)
			}
			script, _ := said(t, 0, "completion", shell.name)
			writeFile(t, filepath.Join(home, shell.script), script)
			writeFile(t, filepath.Join(home, "bin/bulkscan"), "#!/bin/sh\ncase $1 in __complete*) exec "+real+
				" \"$@\" ;; esac\necho \"$*\" >>\"$HOME/typed\"\n")

			master, terminal := hostiletest.Terminal(t, 100)
			screen := hostiletest.Watch(master)
			c := exec.Command(program, shell.args...)
			c.Dir, c.Stdin, c.Stdout, c.Stderr = home, terminal, terminal, terminal
			c.Env = []string{"HOME=" + home, "PATH=" + filepath.Join(home, "bin") + ":/usr/bin:/bin", "TERM=xterm",
				"LC_ALL=C.UTF-8"}
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = c.Process.Kill()
				_ = c.Wait()
			})
			enter := func(text string) {
				if _, err := master.WriteString(text); err != nil {
					t.Fatal(err)
				}
			}
			enter(shell.begin + "\n")
			screen.Await(t, "prompt", func(line string) bool { return strings.Contains(line, "ready> ") })
			for _, typed := range []struct{ begun, want string }{
				{"sche\t", "schema"},
				{"scan --format js\t", "scan --format jsonl"},
				{"tokens --operator Open\t", "tokens --operator OpenAI"},
				{"summary ou\t --definition dp\t", "summary out --definition dpi_all"},
				{"summary out --scan-id on\t", "summary out --scan-id only-one"},
			} {
				if err := os.Remove(filepath.Join(home, "typed")); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				enter("bulkscan " + typed.begun + "\n")
				if got := awaitLine(t, filepath.Join(home, "typed"), screen); strings.Replace(got, "out/", "out", 1) != typed.want {
					t.Errorf("%q becomes %q, want %q", typed.begun, got, typed.want)
				}
			}
			enter("bulkscan sc\t\t")
			screen.Await(t, "offer", func(line string) bool { return strings.Contains(line, "Describe every table") })
		})
	}
}

// awaitLine waits for a file to have a line.
func awaitLine(t *testing.T, name string, screen *hostiletest.Screen) string {
	t.Helper()
	var text []byte
	if !eventually(func() bool { text, _ = os.ReadFile(name); return bytes.HasSuffix(text, []byte("\n")) }) {
		t.Fatalf("nothing was started:\n%q", screen.Text())
	}
	return strings.TrimSpace(string(text))
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

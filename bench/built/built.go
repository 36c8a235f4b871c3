// Package built answers one question: how does one run what this project builds? It compiles commands of the main
// module, and runs the simulated web in a process of its own.
package built

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const module = "github.com/bulkscan/bulkscan"

// Commands of the main module.
const (
	Bulkscan = "cmd/bulkscan"
	Simweb   = "simweb/cmd/simweb"
)

// Root returns the folder of the main module.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Command compiles a command as a user gets it, into the folder dir, and returns the program's path.
func Command(ctx context.Context, dir, command string) (path string, err error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(command))
	c := exec.CommandContext(ctx, "go", "build", "-o", path, "./"+command)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", command, err, text)
	}
	return path, nil
}

// Web is a simulated web that runs in a process of its own.
type Web struct {
	Resolver  string   `json:"resolver"`    // address and port of its name server
	ConnectTo []string `json:"connect_to"`  // values of --connect-to
	HTTPPort  int      `json:"http_port"`   // of plain HTTP, at each address
	TLSPort   int      `json:"tls_port"`    // of HTTPS
	Hot       string   `json:"hot_address"` // the address that all hosts named *.hot.test share

	process *exec.Cmd
	stderr  bytes.Buffer
}

// StartWeb runs the program of the simulated web, with these flags, until Stop.
func StartWeb(ctx context.Context, program string, flags ...string) (*Web, error) {
	w := &Web{process: exec.CommandContext(ctx, program, append([]string{"--json"}, flags...)...)}
	w.process.Stderr = &w.stderr
	w.process.Cancel = func() error { return w.process.Process.Signal(os.Interrupt) }
	out, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.process.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the simulated web: %w", err)
	}
	if err := json.NewDecoder(out).Decode(w); err != nil {
		err = fmt.Errorf("cannot start the simulated web: %w", err)
		return nil, errors.Join(err, w.process.Process.Kill(), w.process.Wait(), errors.New(w.stderr.String()))
	}
	return w, nil
}

// Flags are those of a scan that reaches the web.
func (w *Web) Flags() []string {
	flags := []string{"--resolver", w.Resolver, "--allow-private", "--dns-rate", "0"}
	for _, to := range w.ConnectTo {
		flags = append(flags, "--connect-to", to)
	}
	return flags
}

// Stop ends the web and returns the processor time that it has used.
func (w *Web) Stop() (time.Duration, error) {
	if err := w.process.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	if err := w.process.Wait(); err != nil {
		return 0, fmt.Errorf("the simulated web ended badly: %w\n%s", err, &w.stderr)
	}
	return CPU(w.process.ProcessState), nil
}

// CPU is the processor time that a process has used, user's and system's, when it has ended.
func CPU(s *os.ProcessState) time.Duration { return s.UserTime() + s.SystemTime() }

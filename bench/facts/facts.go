// Package facts answers one question: what has a measuring program to say about the machine, the source and itself? It is what
// the programs in bench have in common; what they measure is theirs.
package facts

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
)

// unknown is what is said where the system does not tell.
const unknown = "unknown"

// Commit names the source as git does, "unknown" outside of a checkout.
func Commit() string {
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(out))
}

// Processor is the processors' model, the architecture where the system does not tell.
func Processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Load is how busy the machine was in the last minute, "unknown" where the system does not tell.
func Load() string {
	last, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	return last
}

// Kernel is the release of the system's kernel, "unknown" where it does not tell.
func Kernel() string { return firstLine("/proc/sys/kernel/osrelease") }

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// The fields that Memory knows of a process.
const (
	Resident     = "VmRSS" // what it holds now
	PeakResident = "VmHWM" // the most that it has held
)

// Memory is what a process holds, in bytes, by its id or "self" (proc_pid_status(5)); 0 where there is no /proc. For the
// peak, what wait4 tells is no use: it counts the memory of who started the process, before the exec.
func Memory(pid, field string) int64 {
	file, err := os.Open(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name != field {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return kilobytes << 10
	}
	return 0
}

// Command is what to type for the same report of a module of bench, which make knows by the same name. Where the report goes
// (-o) is left out.
func Command(module string, flags *flag.FlagSet) string {
	typed := ""
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "o" {
			typed += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	if typed == "" {
		return "make " + module
	}
	return "go -C bench/" + module + " run ." + typed
}

// Digits spells a number from 0 on with three digits, or more where it is large.
func Digits(x float64) string {
	switch {
	case x < 0.0005:
		return "0"
	case x < 0.9995:
		return fmt.Sprintf("%.3f", x)
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Profile writes a profile of this process's processor time to a file until it is stopped; "" writes none.
func Profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("cannot write a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write a profile: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

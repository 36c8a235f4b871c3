package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakRSS is the most memory that a process has held since it began, in bytes, and 0 where there is no /proc. (What wait4
// tells is no use: it counts the memory of who started the process, before the exec.)
func peakRSS(pid string) int64 { return statusOf(pid, "VmHWM") }

// residentNow is what this process holds now, in bytes, and 0 where there is no /proc.
func residentNow() int64 { return statusOf("self", "VmRSS") }

func statusOf(pid, field string) int64 {
	file, err := os.Open(fmt.Sprintf("/proc/%s/status", pid))
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

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// What /proc tells; 0 where there is none.

// filesNow is how many files this process has open.
func filesNow() int {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	return len(names) - 1 // dir itself
}

// overflows is how many UDP packets have been thrown away, since the system began, because the socket that they were for
// was full: anybody's.
func overflows() int64 {
	data, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return 0
	}
	return udpCount(string(data), "RcvbufErrors")
}

// udpCount finds a count in the text of /proc/net/snmp, in which a line of names goes before one of numbers.
func udpCount(text, name string) int64 {
	at := -1
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if at < 0 {
			if at = slices.Index(fields, name); at < 0 {
				return 0
			}
			continue
		}
		if at >= len(fields) {
			return 0
		}
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}

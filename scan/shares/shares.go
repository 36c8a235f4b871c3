// Package shares answers one question: which part of a scan is mine, and what is missing? A scan that is too large for
// one machine is cut into shares, which are tasks of an array job. shares.go says which share a site belongs to,
// engine.go which share an engine assigns to this process, missing.go whether all shares of a scan are done.
package shares

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/origin"
)

// Max bounds the number of shares. AWS Batch has arrays of at most 10,000 tasks.
const Max = 10_000

// Share is one of N parts of a scan. The zero Share is the complete scan.
type Share struct{ I, N int } // I from 0

// Of returns the share of a site, from 0 to n-1. All hosts of a registrable domain are in one share. Only the name of
// the host counts: the share does not depend on the order, the form or the length of a list.
func Of(o origin.Origin, n int) int {
	return int(key(o) % uint64(n))
}

func key(o origin.Origin) uint64 {
	return xxhash.Sum64String(cmp.Or(o.RegistrableDomain(), o.Host()))
}

// Has reports whether a site belongs to the share. Each task calls it for the complete list, and most sites belong to
// other shares. For most of these, Has avoids the public suffix list, which costs more than all else.
func (s Share) Has(o origin.Origin) bool {
	return s.N == 0 || s.mayHave(o.Host()) && Of(o, s.N) == s.I
}

// mayHave reports whether the host, or any domain above it except the last label, falls into the share. key hashes one
// of these names.
func (s Share) mayHave(host string) bool {
	for {
		if int(xxhash.Sum64String(host)%uint64(s.N)) == s.I {
			return true
		}
		_, parent, ok := strings.Cut(host, ".")
		if !ok || strings.IndexByte(parent, '.') < 0 {
			return false
		}
		host = parent
	}
}

// Whole reports whether the share is the complete scan.
func (s Share) Whole() bool { return s.N == 0 }

// Name is the share's name in the names of files.
func (s Share) Name() string { return strconv.Itoa(s.I) }

// String returns the share as Parse reads it.
func (s Share) String() string { return fmt.Sprintf("%d/%d", s.I, s.N) }

// Parse reads a share of the form I/N, with I from 0 to N-1.
func Parse(text string) (Share, error) {
	before, after, ok := strings.Cut(text, "/")
	i, errI := strconv.Atoi(before)
	n, errN := strconv.Atoi(after)
	if !ok || errI != nil || errN != nil {
		return Share{}, fmt.Errorf("%.40q is not of the form I/N, as in 0/8", text)
	}
	return check(Share{i, n})
}

func check(s Share) (Share, error) {
	switch {
	case s.N < 1 || s.N > Max:
		return Share{}, fmt.Errorf("a scan has from 1 to %d shares, not %d", Max, s.N)
	case s.I < 0 || s.I >= s.N:
		return Share{}, fmt.Errorf("of %d shares the first is 0 and the last is %d; there is no share %d", s.N, s.N-1, s.I)
	}
	return s, nil
}

package simweb

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin"
)

func hostsOf(seed uint64, n int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, host := range Names(seed, n) {
			if !yield(host) {
				return
			}
		}
	}
}

func TestNames(t *testing.T) {
	const n = 60_000 // more than the pairs of words
	seen := map[string]bool{}
	domains := map[string]int{}
	tlds := map[string]bool{}
	idn, last := 0, 0
	for rank, host := range Names(1, n) {
		if rank != last+1 {
			t.Fatalf("rank %d after %d", rank, last)
		}
		last = rank
		o, err := origin.Parse(host)
		if err != nil || o.Host() != host {
			t.Fatalf("%q: %v", host, err)
		}
		if seen[host] {
			t.Fatalf("%q twice", host)
		}
		seen[host] = true
		domains[o.RegistrableDomain()]++
		tlds[host[strings.LastIndexByte(host, '.')+1:]] = true
		if strings.Contains(host, "xn--") {
			idn++
		}
	}
	if last != n {
		t.Errorf("%d names", last)
	}
	several := 0
	for _, hosts := range domains {
		if hosts > 1 {
			several++
		}
	}
	if several < len(domains)/20 || len(tlds) < 20 || idn < n/200 {
		t.Errorf("%d domains, %d with several hosts, %d endings, %d internationalised", len(domains), several, len(tlds), idn)
	}
	if slices.Equal(slices.Collect(hostsOf(1, 50)), slices.Collect(hostsOf(2, 50))) {
		t.Error("another seed made the same names")
	}
	pairs := map[string]bool{}
	for _, a := range nameFirst {
		for _, b := range nameSecond {
			pairs[a+b] = true
		}
	}
	if len(pairs) != len(nameFirst)*len(nameSecond) {
		t.Error("two pairs of words make one name")
	}
}

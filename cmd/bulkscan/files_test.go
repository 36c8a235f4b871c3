package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestFileBudget(t *testing.T) {
	f := func(limit, held uint64, asked, each int, want files) {
		t.Helper()
		got, err := fileBudget(limit, held, asked, each)
		if err != nil || got != want {
			t.Errorf("%d files, %d held, %d asked: got %+v, %v, want %+v", limit, held, asked, got, err, want)
		}
	}
	// Room for all, or no telling.
	f(0, 10, 1000, 1, files{1000, 256, 64})
	f(1<<63, 10, 100_000, 1, files{100_000, 256, 64})
	f(20_000, 20, 10_000, 1, files{10_000, 256, 64})
	f(1378, 10, 1000, 1, files{1000, 256, 64})
	f(2378, 10, 1000, 2, files{1000, 256, 64})
	f(64, 10, 2, 1, files{2, 2, 2})
	// One short, and ever shorter.
	f(1377, 10, 1000, 1, files{999, 256, 64})
	f(700, 10, 1000, 1, files{442, 160, 40})
	f(300, 10, 1000, 1, files{167, 60, 15})
	f(300, 10, 1000, 2, files{83, 60, 15})
	f(300, 10, 167, 1, files{167, 60, 15})
	f(83, 10, 1000, 1, files{18, 6, 1})
	f(69, 10, 4, 1, files{4, 2, 1})
	f(64, 10, 4, 1, files{4, 1, 1})

	refused := func(limit, held uint64, asked, each int, wanted int) {
		t.Helper()
		got, err := fileBudget(limit, held, asked, each)
		if err == nil || got != (files{}) || !strings.Contains(err.Error(), fmt.Sprintf("limit of %d open files", limit)) || !strings.Contains(err.Error(), fmt.Sprintf("ulimit -n %d", wanted)) {
			t.Errorf("%d files, %d held, %d asked: got %+v, %v", limit, held, asked, got, err)
		}
		if _, err := fileBudget(uint64(wanted), held, asked, each); err != nil {
			t.Errorf("the remedy is none: %v", err)
		}
	}
	refused(64, 10, 1000, 1, 1378)
	refused(78, 10, 1000, 1, 1378)
	refused(90, 40, 1000, 1, 1408)
	refused(40, 60, 1000, 1, 1428)
	refused(1, 1, 1, 1, 52)
	refused(100, 10, 1000, 2, 2378)
}

// Whatever the limit, what is shared out fits into it beside the rest.
func TestFileBudgetFits(t *testing.T) {
	for limit := uint64(1); limit < 3000; limit++ {
		for _, asked := range []int{1, 3, 16, 17, 100, 256, 257, 1000, 5000} {
			for each := 1; each <= 2; each++ {
				b, err := fileBudget(limit, 12, asked, each)
				if err != nil {
					continue
				}
				if all := 12 + otherFiles + b.concurrency*each + b.resolvers + b.transfers; uint64(all) > limit {
					t.Fatalf("%d files, %d asked: %+v are %d", limit, asked, b, all)
				}
				if b.concurrency < min(asked, leastConcurrency) || b.concurrency > asked || b.resolvers < 1 || b.transfers < 1 {
					t.Fatalf("%d files, %d asked: %+v", limit, asked, b)
				}
			}
		}
	}
}

func TestHeldFiles(t *testing.T) {
	if n := heldFiles(); n < 3 || n > 1000 {
		t.Errorf("%d files are held", n)
	}
	if limit := raiseFiles(); limit != 0 && limit < heldFiles() {
		t.Errorf("%d files of at most %d are held", heldFiles(), limit)
	}
}

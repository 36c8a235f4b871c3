package limits

import (
	"fmt"
	"strings"
	"testing"
)

func TestFileBudget(t *testing.T) {
	f := func(limit, held uint64, asked, silent, each int, want Files) {
		t.Helper()
		got, err := ShareFiles(limit, held, asked, silent, each)
		if err != nil || got != want {
			t.Errorf("%d files, %d held, %d asked, %d silent: got %+v, %v, want %+v", limit, held, asked, silent, got, err, want)
		}
	}
	// Room for all, or an unknown limit.
	f(0, 10, 1000, 4000, 1, Files{1000, 4000, 64, 64})
	f(1<<63, 10, 100_000, 4096, 1, Files{100_000, 4096, 64, 64})
	f(20_000, 20, 10_000, 4096, 1, Files{10_000, 4096, 64, 64})
	f(5186, 10, 1000, 4000, 1, Files{1000, 4000, 64, 64})
	f(10186, 10, 1000, 4000, 2, Files{1000, 4000, 64, 64})
	f(70, 10, 2, 8, 1, Files{2, 6, 3, 1})
	// Ever fewer files: first the silent exchanges shrink, then both kinds.
	f(5185, 10, 1000, 4000, 1, Files{1000, 3999, 64, 64})
	f(2186, 10, 1000, 4000, 1, Files{1000, 1000, 64, 64})
	f(1186, 10, 1000, 4000, 1, Files{800, 200, 64, 64})
	f(700, 10, 1000, 4000, 1, Files{430, 108, 64, 40})
	f(300, 10, 1000, 4000, 1, Files{157, 40, 30, 15})
	f(300, 10, 1000, 4000, 2, Files{78, 20, 30, 15})
	f(300, 10, 167, 668, 1, Files{157, 40, 30, 15})
	f(83, 10, 1000, 4000, 1, Files{16, 5, 3, 1})
	f(68, 10, 4, 16, 1, Files{4, 2, 3, 1})

	refused := func(limit, held uint64, asked, silent, each int, wanted int) {
		t.Helper()
		got, err := ShareFiles(limit, held, asked, silent, each)
		if err == nil || got != (Files{}) || !strings.Contains(err.Error(), fmt.Sprintf("limit of %d open files", limit)) ||
			!strings.Contains(err.Error(), fmt.Sprintf("ulimit -n %d", wanted)) {
			t.Errorf("%d files, %d held, %d asked: got %+v, %v", limit, held, asked, got, err)
		}
		if _, err := ShareFiles(uint64(wanted), held, asked, silent, each); err != nil {
			t.Errorf("the remedy is none: %v", err)
		}
	}
	refused(64, 10, 1000, 4000, 1, 5186)
	refused(81, 10, 1000, 4000, 1, 5186)
	refused(90, 40, 1000, 4000, 1, 5216)
	refused(40, 60, 1000, 4000, 1, 5236)
	refused(1, 1, 1, 4, 1, 59)
	refused(92, 10, 1000, 4000, 2, 10186)
}

// For any limit, the shares fit into it beside the other files.
func TestFileBudgetFits(t *testing.T) {
	for limit := uint64(1); limit < 3000; limit++ {
		for _, asked := range []int{1, 3, 16, 17, 100, 256, 257, 1000, 5000} {
			for each := 1; each <= 2; each++ {
				b, err := ShareFiles(limit, 12, asked, 4*asked, each)
				if err != nil {
					continue
				}
				if all := 12 + otherFiles + (b.Concurrency+b.Silent)*each + b.Sockets + b.Transfers; uint64(all) > limit {
					t.Fatalf("%d files, %d asked: %+v are %d", limit, asked, b, all)
				}
				if b.Concurrency < min(asked, leastConcurrency) || b.Concurrency > asked || b.Silent < 1 || b.Silent > 4*asked ||
					b.Sockets < 1 || b.Transfers < 1 {
					t.Fatalf("%d files, %d asked: %+v", limit, asked, b)
				}
			}
		}
	}
}

func TestHeldFiles(t *testing.T) {
	if n := HeldFiles(); n < 3 || n > 1000 {
		t.Errorf("%d files are held", n)
	}
	if limit := RaiseFiles(); limit != 0 && limit < HeldFiles() {
		t.Errorf("%d files of at most %d are held", HeldFiles(), limit)
	}
}

package limits

import (
	"fmt"
	"strings"
	"testing"
)

func TestFileBudget(t *testing.T) {
	f := func(limit, held uint64, asked, each int, want Files) {
		t.Helper()
		got, err := ShareFiles(limit, held, asked, each)
		if err != nil || got != want {
			t.Errorf("%d files, %d held, %d asked: got %+v, %v, want %+v", limit, held, asked, got, err, want)
		}
	}
	// Room for all, or no telling.
	f(0, 10, 1000, 1, Files{1000, 64, 64})
	f(1<<63, 10, 100_000, 1, Files{100_000, 64, 64})
	f(20_000, 20, 10_000, 1, Files{10_000, 64, 64})
	f(1186, 10, 1000, 1, Files{1000, 64, 64})
	f(2186, 10, 1000, 2, Files{1000, 64, 64})
	f(64, 10, 2, 1, Files{2, 3, 1})
	// One short, and ever shorter.
	f(1185, 10, 1000, 1, Files{999, 64, 64})
	f(700, 10, 1000, 1, Files{538, 64, 40})
	f(300, 10, 1000, 1, Files{197, 30, 15})
	f(300, 10, 1000, 2, Files{98, 30, 15})
	f(300, 10, 167, 1, Files{167, 30, 15})
	f(83, 10, 1000, 1, Files{21, 3, 1})
	f(69, 10, 4, 1, Files{4, 3, 1})
	f(66, 10, 4, 1, Files{4, 3, 1})

	refused := func(limit, held uint64, asked, each int, wanted int) {
		t.Helper()
		got, err := ShareFiles(limit, held, asked, each)
		if err == nil || got != (Files{}) || !strings.Contains(err.Error(), fmt.Sprintf("limit of %d open files", limit)) || !strings.Contains(err.Error(), fmt.Sprintf("ulimit -n %d", wanted)) {
			t.Errorf("%d files, %d held, %d asked: got %+v, %v", limit, held, asked, got, err)
		}
		if _, err := ShareFiles(uint64(wanted), held, asked, each); err != nil {
			t.Errorf("the remedy is none: %v", err)
		}
	}
	refused(64, 10, 1000, 1, 1186)
	refused(77, 10, 1000, 1, 1186)
	refused(90, 40, 1000, 1, 1216)
	refused(40, 60, 1000, 1, 1236)
	refused(1, 1, 1, 1, 55)
	refused(92, 10, 1000, 2, 2186)
}

// Whatever the limit, what is shared out fits into it beside the rest.
func TestFileBudgetFits(t *testing.T) {
	for limit := uint64(1); limit < 3000; limit++ {
		for _, asked := range []int{1, 3, 16, 17, 100, 256, 257, 1000, 5000} {
			for each := 1; each <= 2; each++ {
				b, err := ShareFiles(limit, 12, asked, each)
				if err != nil {
					continue
				}
				if all := 12 + otherFiles + b.Concurrency*each + b.Sockets + b.Transfers; uint64(all) > limit {
					t.Fatalf("%d files, %d asked: %+v are %d", limit, asked, b, all)
				}
				if b.Concurrency < min(asked, leastConcurrency) || b.Concurrency > asked || b.Sockets < 1 || b.Transfers < 1 {
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

package pipeline

import "sync/atomic"

// table has a cell for each key, which keys may share. Its pages are made when first used: a short list needs few of
// them.
type table[C any] struct {
	pages []atomic.Pointer[[pageCells]C]
	mask  uint64
}

const (
	tableCells = 1 << 20 // of 8 bytes: 8 MiB in all
	pageCells  = 1 << 9
)

// newTable returns a table with a number of cells, a power of two.
func newTable[C any](cells int) *table[C] {
	return &table[C]{make([]atomic.Pointer[[pageCells]C], (cells+pageCells-1)/pageCells), uint64(cells - 1)}
}

func (t *table[C]) cells() int { return int(t.mask) + 1 }

// cell returns the cell of a key. Many goroutines may call it.
func (t *table[C]) cell(k key) *C {
	i := uint64(k) & t.mask
	page := t.pages[i/pageCells].Load()
	if page == nil {
		t.pages[i/pageCells].CompareAndSwap(nil, new([pageCells]C))
		page = t.pages[i/pageCells].Load()
	}
	return &page[i%pageCells]
}

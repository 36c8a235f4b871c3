package stats

import (
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// window counts by keys of unknown number, exactly and in bounded memory. It keeps the keys whose hash lies in a
// range, and narrows the range when there are too many. Further passes over the data count the others.
type window[V any] struct {
	low, high uint64 // of the hashes kept, inclusive
	limit     int    // keys kept at most
	values    map[string]*V
}

func newWindow[V any](limit int) *window[V] {
	return &window[V]{high: math.MaxUint64, limit: limit, values: map[string]*V{}}
}

// at returns the value of a key and adds a new key. It returns nil if the key is left to another pass.
func (w *window[V]) at(key string) *V {
	if v, ok := w.values[key]; ok {
		return v
	}
	hash := xxhash.Sum64String(key)
	for len(w.values) >= w.limit && w.low <= hash && hash <= w.high && w.high > w.low {
		w.narrow(w.low + (w.high-w.low)/2)
	}
	if hash < w.low || hash > w.high {
		return nil
	}
	v := new(V)
	w.values[strings.Clone(key)] = v
	return v
}

// atBytes is at without a copy of a known key.
func (w *window[V]) atBytes(key []byte) *V {
	if v, ok := w.values[string(key)]; ok {
		return v
	}
	return w.at(string(key))
}

// narrow ends the range at high.
func (w *window[V]) narrow(high uint64) {
	w.high = high
	for key := range w.values {
		if xxhash.Sum64String(key) > high {
			delete(w.values, key)
		}
	}
}

// merge adds the values of another window with the same start. The merged range is the one of a single window over the
// same keys: the widest that halving yields whose keys are not too many.
func (w *window[V]) merge(o *window[V], add func(into, from *V)) {
	if o.high < w.high {
		w.narrow(o.high)
	}
	for key, from := range o.values {
		if into := w.at(key); into != nil {
			add(into, from)
		}
	}
}

// follow moves the window to the pass that the merged window has advanced to.
func (w *window[V]) follow(o *window[V]) {
	w.low, w.high = o.low, o.high
	clear(w.values)
}

// advance moves to the next range. It returns false after the last.
func (w *window[V]) advance() bool {
	if w.high == math.MaxUint64 {
		return false
	}
	w.low, w.high = w.high+1, math.MaxUint64
	clear(w.values)
	return true
}

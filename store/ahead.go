package store

import (
	"context"
	"iter"
)

// ReadAtOnce bounds how many records or files are read at a time, since each read may wait for a server. It also bounds
// how many opened files wait to be read.
const ReadAtOnce = 8

// Ahead calls read for each item, up to ReadAtOnce at a time, and yields the results in the order of the items. Results
// that the caller does not take go to drop. The context of every read is cancelled at the end.
func Ahead[T, R any](ctx context.Context, items []T, read func(context.Context, T) R, drop func(R)) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var results [ReadAtOnce]chan R // ring: one for each read that has begun
		begun, taken := 0, 0
		defer func() {
			cancel() // ends the reads whose results are not wanted
			for ; taken < begun; taken++ {
				drop(<-results[taken%ReadAtOnce])
			}
		}()
		for taken < len(items) {
			for ; begun < min(len(items), taken+ReadAtOnce); begun++ {
				result, item := make(chan R, 1), items[begun]
				results[begun%ReadAtOnce] = result
				go func() { result <- read(ctx, item) }()
			}
			item, result := items[taken], <-results[taken%ReadAtOnce]
			if taken++; !yield(item, result) {
				return
			}
		}
	}
}

// Read is a value that was read, or the error.
type Read[V any] struct {
	Value V
	Err   error
}

// ReadAhead is Ahead for values that need not be closed.
func ReadAhead[T, V any](ctx context.Context, items []T,
	read func(context.Context, T) (V, error)) iter.Seq2[T, Read[V]] {
	return Ahead(ctx, items, func(ctx context.Context, item T) (r Read[V]) {
		r.Value, r.Err = read(ctx, item)
		return r
	}, func(Read[V]) {})
}

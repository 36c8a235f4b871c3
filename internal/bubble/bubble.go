// Package bubble answers one question: how does a test run in virtual time that reads Parquet files?
package bubble

import (
	"testing"
	"testing/synctest"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Test is synctest.Test for code that reads Parquet files. The library keeps its decoders in a pool, and they have
// channels, which end the process outside the bubble that they were made in: so the pool is empty before and after.
// Parallel tests, which may read at the same time, cannot use it.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	forget()
	defer forget()
	synctest.Test(t, f)
}

// forget empties the pool, by the value that it has at first.
func forget() { parquet.Zstd = zstd.Codec{Level: zstd.DefaultLevel} }

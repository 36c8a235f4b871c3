// Package bubble answers one question: how does a test that reads Parquet files run in virtual time?
package bubble

import (
	"testing"
	"testing/synctest"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Test is synctest.Test for code that reads Parquet files. The library keeps its decoders in a pool. They have
// channels, and the use of a channel outside the bubble that made it ends the process. So Test empties the pool before
// and after. Parallel tests may read at the same time, so they cannot use it.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	forget()
	defer forget()
	synctest.Test(t, f)
}

// forget empties the pool: it sets its initial value.
func forget() { parquet.Zstd = zstd.Codec{Level: zstd.DefaultLevel} }

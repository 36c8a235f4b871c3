package table

import (
	"fmt"
	"sync"

	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// codec compresses pages with zstd. It makes what parquet-go's codec makes of the same pages, in a fixed amount of
// memory: that one keeps encoders in a pool, each with room for a window of 8 MB, and a run of many tables held up to
// six of them. Pages are at most 1 MiB, so a window of that size forgets nothing.
type codec struct {
	zstd.Codec // the names, and reading
	encoder    *kzstd.Encoder
}

// Encode implements compress.Codec. It may be called from several goroutines.
func (c *codec) Encode(dst, src []byte) ([]byte, error) {
	return c.encoder.EncodeAll(src, dst[:0]), nil
}

// compression is the codec of every file. Two encoders are enough: one goroutine fills a part while another seals one.
var compression = sync.OnceValue(func() compress.Codec {
	encoder, err := kzstd.NewWriter(nil,
		kzstd.WithEncoderConcurrency(2), kzstd.WithWindowSize(1<<20),
		kzstd.WithLowerEncoderMem(true), kzstd.WithZeroFrames(true), kzstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants: they are right, or a test has failed
	}
	return &codec{encoder: encoder}
})

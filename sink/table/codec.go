package table

import (
	"fmt"
	"sync"

	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// codec compresses pages with zstd. Its output equals that of parquet-go's codec, in a fixed amount of memory:
// parquet-go's codec pools encoders with an 8 MB window each, up to six in a run with many tables. Pages have at most 1
// MiB, so a window of 1 MiB suffices.
type codec struct {
	zstd.Codec // names and decoding
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
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants
	}
	return &codec{encoder: encoder}
})

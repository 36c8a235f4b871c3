package table

import (
	"fmt"

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
// The encoder makes a channel at its first use, which belongs to the bubble of a test in virtual time if it is made
// there, and ends the process elsewhere; so it is used here.
var compression = func() compress.Codec {
	encoder, err := kzstd.NewWriter(nil,
		kzstd.WithEncoderConcurrency(2), kzstd.WithWindowSize(1<<20),
		kzstd.WithLowerEncoderMem(true), kzstd.WithZeroFrames(true), kzstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants
	}
	encoder.EncodeAll(nil, nil)
	return &codec{encoder: encoder}
}()

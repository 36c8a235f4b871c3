package s3

import (
	"io"
	"testing"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// The gateway runs on the same machine and takes most of the time:
//
//	go test ./store/s3 -run '^$' -bench . -benchmem

func BenchmarkWrite(b *testing.B) {
	s := open(b, storetest.StartGateway(b), "bench", func(c *Config) { c.PartSize = 0 })
	chunk := make([]byte, 256<<10)
	const size = 128 << 20
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		draft, err := s.Create(b.Context(), "x")
		for range size / len(chunk) {
			if err == nil {
				_, err = draft.Write(chunk)
			}
		}
		if err == nil {
			err = draft.Seal()
		}
		if err == nil {
			err = draft.Publish(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s := open(b, storetest.StartGateway(b), "bench", nil)
	const size = 64 << 20
	if err := s.Put(b.Context(), "x", make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	buffer := make([]byte, 64<<10)
	for b.Loop() {
		o, err := s.Open(b.Context(), "x")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(o, 0, size)},
			buffer); err != nil {
			b.Fatal(err)
		}
		if err := o.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

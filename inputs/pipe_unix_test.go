//go:build unix

package inputs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenFilePipe shows that the end of the context ends the opening of a pipe that has no writer, and the reading of
// one whose writer is silent.
func TestOpenFilePipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := OpenFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("opened without a writer: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0) // this also ends the opening in the background
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	ctx, cancel = context.WithCancel(t.Context())
	file, err := OpenFile(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	go cancel()
	if n, err := file.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a silent writer", n)
	}
	if text, err := ReadText(ctx, path, false, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("read %q, %v", text, err)
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/compact"
)

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// A compaction that is interrupted between two scans reports that once, and leaves the other scans alone.
func TestCompactInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("list", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		said(t, 0, "scan", "list", "-o", "out", "--scan-id", id, "--allow-empty", "--quiet")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told strings.Builder
	a := &app{stderr: &strings.Builder{}, stdout: writerFunc(func(p []byte) (int, error) {
		cancel()
		return told.Write(p)
	})}
	err := a.compact(ctx, "out", "", compact.Options{}, false)
	if !errors.Is(err, context.Canceled) || strings.Count(err.Error(), "canceled") != 1 || strings.Count(told.String(),
		"\n") != 1 {
		t.Errorf("%v\n%s", err, &told)
	}
}

package job

import (
	"github.com/bulkscan/bulkscan/internal/bubble"
	"testing"
)

func TestBubbles(t *testing.T) {
	scan := func(t *testing.T) {
		st := newDisk(t)
		completed(t, st, "one", "2026-11-01", false)
		if err := Publish(t.Context(), st, "one", publishing); err != nil {
			t.Fatal(err)
		}
		completed(t, st, "two", "2026-11-02", false)
		if err := Publish(t.Context(), st, "two", publishing); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		bubble.Test(t, scan)
	}
	scan(t)
	bubble.Test(t, scan)
}

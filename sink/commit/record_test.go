package commit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestBitmapDamaged shows that a bitmap takes memory in proportion to its bytes.
func TestBitmapDamaged(t *testing.T) {
	f := func(finished ...byte) {
		t.Helper()
		c := Commit{ScanID: "x", Shard: "0", Finished: finished}
		if b, err := c.Bitmap(); err == nil {
			t.Errorf("% x is a bitmap of %d", finished, b.GetCardinality())
		}
	}
	f()
	f(1)
	f(1, 0, 0, 0, 0, 0, 0, 0)
	f(0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0)
	f(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	f(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
	f(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3a, 0x30, 0, 0, 0xff, 0xff, 0xff, 0xff)
	f(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3b, 0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	c := Commit{ScanID: "x", Shard: "0", Rows: -1}
	var err error
	if c.Finished, err = roaring64.BitmapOf(1, 2, 1<<40).ToBytes(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bitmap(); err == nil {
		t.Error("a bitmap of -1 rows")
	}
	c.Rows = 3
	if _, err := c.Bitmap(); err != nil {
		t.Error(err)
	}
	c.Finished = append(c.Finished, 0)
	if _, err := c.Bitmap(); err == nil {
		t.Error("a bitmap with a tail")
	}
}

// TestRecords shows that files without a sum, or with other content than a record, are refused.
func TestRecords(t *testing.T) {
	f := func(data, want string) {
		t.Helper()
		r := FileRecord{}
		err := OpenRecord([]byte(data), &r, &r.Sum)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", data, got, want)
		}
	}
	r := FileRecord{ScanID: "s", File: schema.File{Table: "t"}}
	sealed, err := SealRecord(&r, &r.Sum)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(sealed)
	const open = `{"scan_id":"s","file":{"table":"t","name":"","rows":0,"bytes":0,"sha256":""}`
	f(whole, "<nil>")
	f(open+"}\n", "it does not end with a sum")
	f(strings.Replace(whole, `"s"`, `"S"`, 1), "its sum is not that of its bytes")
	f(strings.Replace(whole, r.Sum, strings.Repeat("0", len(r.Sum)), 1), "its sum is not that of its bytes")
	f(strings.Replace(whole, `"sum"`, `"sun"`, 1), "it does not end with a sum")
	f(strings.TrimSuffix(whole, "\n"), "it does not end with a sum")
	f(whole+"\n", "it does not end with a sum")
	f(open+"} \n", "it does not end with a sum")
	f(open+`,"sum":"x"}`+"\n", "it does not end with a sum")
	f(open+`,"more":1}`+"\n", "it does not end with a sum")
	f("", "it does not end with a sum")
	f("null\n", "it does not end with a sum")
	f("[]\n", "it does not end with a sum")
	f(whole[:len(whole)/2], "it does not end with a sum")
}

// TestPrunedDate shows that a record of pruned nights is refused if its date is not a date: the README and the views
// repeat it.
func TestPrunedDate(t *testing.T) {
	for through, good := range map[string]bool{"": true, "2026-11-21": true, "2026-11-21\n# x": false, "`": false,
		"'); DROP TABLE x; --": false, "\x1b[31m": false} {
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := Change(t.Context(), st, nil, func(h *Head) error {
			return h.Prune(t.Context(), &Pruned{Through: through}, nil, nil)
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPruned(t.Context(), st); (err == nil) != good {
			t.Errorf("%q: %v", through, err)
		}
	}
}

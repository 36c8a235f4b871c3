package table

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// TestListTimes reads dates and times of each unit as texts in UTC, and refuses those of a day.
func TestListTimes(t *testing.T) {
	type row struct {
		Millis   int64  `parquet:"millis,timestamp(millisecond)"`
		Micros   int64  `parquet:"micros,timestamp(microsecond)"`
		Nanos    int64  `parquet:"nanos,timestamp(nanosecond)"`
		Day      int32  `parquet:"day,date"`
		Nullable *int64 `parquet:"nullable,optional,timestamp(millisecond)"`
		Clock    int32  `parquet:"clock,time(millisecond)"`
	}
	at := time.Date(2024, 5, 18, 12, 30, 15, 123e6, time.UTC)
	file := writeList(t, []row{
		{Millis: at.UnixMilli(), Micros: at.UnixMicro(), Nanos: at.UnixNano(), Day: int32(at.Unix() / 86400)},
		{Millis: -1, Micros: 1<<63 - 1, Nanos: -1 << 63, Day: -1 << 31},
	}, parquet.DataPageVersion(1))
	list, err := OpenList(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if _, holds := list.Column(5); holds != "times of a day" || list.Select(5) == nil {
		t.Errorf("the time of a day is %q", holds)
	}
	if err := list.Select(0, 1, 2, 3, 4); err != nil {
		t.Fatal(err)
	}
	const want = "2024-05-18T12:30:15.123Z"
	for i := 0; ; i++ {
		if err := list.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for column, want := range []string{want, want, want, "2024-05-18T00:00:00Z"} {
			if got, ok := list.Text(column); !ok || i == 0 && string(got) != want {
				t.Errorf("column %d: %s, %v", column, got, ok)
			}
		}
		if _, ok := list.Text(4); ok {
			t.Error("null is a time")
		}
	}
}

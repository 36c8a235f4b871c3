package jsonlines

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestJSONLines shows that a line has the columns of sites and the remaining columns of verdicts, that all values
// survive, and that no line affects a terminal.
func TestJSONLines(t *testing.T) {
	bad := []byte("a\xff\x00\x1b[31m\u202e\xe2\x82")
	hostile := sitetest.Typical(t, 9)
	hostile.Input, hostile.Label, hostile.Fetch.Fields.Server = "x\xff", string(bad), bad
	hostile.Report.Score, hostile.Report.CrawlDelay = math.MaxFloat64, math.Inf(1)
	hostile.Report.Verdicts = append(hostile.Report.Verdicts, audit.Verdict{Token: bad, ID: math.MaxInt32,
		CrawlDelay: math.NaN(), HasCrawlDelay: true})
	var out bytes.Buffer
	j := New(&out, "json", tokens.Default())
	for _, s := range []func() error{
		func() error { return j.Add(sitetest.Typical(t, 7)) },
		func() error { return j.Add(sitetest.Dead(t, 8)) },
		func() error { return j.Add(hostile) },
		func() error { return j.Close(t.Context()) },
		func() error { return j.Close(t.Context()) },
	} {
		if err := s(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Add(sitetest.Typical(t, 1)); err == nil {
		t.Error("Add after Close")
	}
	for _, r := range out.String() {
		if r != '\n' && (r == utf8.RuneError || !unicode.IsPrint(r)) && r != '\ufffd' {
			t.Errorf("unescaped %q", r)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	schema := schema.Tables()
	for i, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("line %d: %v\n%s", i, err, line)
		}
		for _, c := range schema[0].Columns {
			v, ok := object[c.Name]
			if !ok || (v == nil) && !strings.HasSuffix(c.Type, "?") {
				t.Errorf("line %d: column %s is %v", i, c.Name, v)
			}
		}
		if len(object) != len(schema[0].Columns)+1 {
			t.Errorf("line %d has %d names", i, len(object))
		}
	}
	got := strings.ReplaceAll(lines[0]+"\n"+lines[1]+"\n", tokens.Default().Version, "VERSION")
	if want, err := os.ReadFile("testdata/site.jsonl"); err != nil || got != string(want) {
		t.Errorf("testdata/site.jsonl is not up to date (%v). Now:\n%s", err, got)
	}
	var extreme struct {
		Server   string
		Verdicts []struct{ Token string }
	}
	if err := json.Unmarshal([]byte(lines[2]), &extreme); err != nil {
		t.Fatal(err)
	}
	if want := "a\ufffd\x00\x1b[31m\u202e\ufffd\ufffd"; extreme.Server != want || extreme.Verdicts[4].Token != want {
		t.Errorf("server %q, token %q", extreme.Server, extreme.Verdicts[4].Token)
	}
}

// TestJSONLinesFlow shows that a slow stream of sites is not held back.
func TestJSONLinesFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := New(&out, "json", tokens.Default())
		for n := 1; n <= 3; n++ {
			if err := j.Add(sitetest.Typical(t, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(delay + time.Millisecond)
			synctest.Wait()
			if got := strings.Count(out.String(), "\n"); got != n {
				t.Errorf("%d lines, want %d", got, n)
			}
		}
		if err := j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestJSONLinesError(t *testing.T) {
	j := New(failingWriter{}, "", tokens.Default())
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = j.Add(sitetest.Typical(t, 1))
	}
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add: %v", err)
	}
	if err := j.Close(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

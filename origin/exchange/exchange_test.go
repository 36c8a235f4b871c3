package exchange

import (
	"bytes"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/origin"
)

// TestTexts checks the texts of the dataset's columns outcome and error.
func TestTexts(t *testing.T) {
	check := func(kind string, texts []string) {
		t.Helper()
		seen := map[string]bool{}
		for i, text := range texts {
			if text == "" || len(text) > 200 || !utf8.ValidString(text) {
				t.Errorf("%s %d has the text %q", kind, i+1, text)
			}
			if seen[text] {
				t.Errorf("%s %d: another one has the text %q, too", kind, i+1, text)
			}
			seen[text] = true
		}
	}
	var outcomes, causes []string
	for _, o := range Outcomes() {
		outcomes = append(outcomes, o.String())
	}
	for c := Cause(1); c < numCauses; c++ {
		causes = append(causes, c.String())
	}
	check("outcome", outcomes)
	check("cause", causes)
	if len(outcomes) != NumOutcomes-1 {
		t.Errorf("%d outcomes are listed, of %d", len(outcomes), NumOutcomes-1)
	}
	if Outcome(0).String() != "none" || numOutcomes.String() != "none" {
		t.Error("an invalid outcome has the text of a valid one")
	}
	if Cause(0).String() != "" || numCauses.String() != CauseOther.String() {
		t.Errorf("texts of the zero cause and of an unknown one: %q, %q", Cause(0), numCauses)
	}
}

// TestOutcomes checks the properties of each outcome: `T` transient, `F` falls back to http, `-` never asked.
func TestOutcomes(t *testing.T) {
	want := map[Outcome]string{
		0:               "-",
		Answered:        "",
		RedirectLimit:   "",
		RedirectInvalid: "",
		DNSNotFound:     "",
		DNSFailed:       "T",
		DNSTimeout:      "T",
		ConnectRefused:  "F",
		ConnectTimeout:  "TF",
		ConnectFailed:   "F",
		TLSFailed:       "F",
		Timeout:         "TF",
		Reset:           "TF",
		ClosedEarly:     "TF",
		BadResponse:     "",
		BadEncoding:     "",
		HeaderTooLarge:  "",
		BlockedAddress:  "-",
		OptedOut:        "-",
		NotArchived:     "-",
		Carried:         "-",
	}
	for o := Outcome(0); o < numOutcomes; o++ {
		got := ""
		if o.Transient() {
			got += "T"
		}
		if o.FallsBack() {
			got += "F"
		}
		if !o.Asked() {
			got += "-"
		}
		text, ok := want[o]
		if !ok || got != text {
			t.Errorf("%v: %q, want %q (in the table: %v)", o, got, text, ok)
		}
	}
}

func TestTarget(t *testing.T) {
	o, err := origin.Parse("http://example.com:8080")
	if err != nil {
		t.Fatal(err)
	}
	if got := (Target{Origin: o}).String(); got != "http://example.com:8080/robots.txt" {
		t.Errorf("without a path: %s", got)
	}
	if got := (Target{Origin: o, Path: "/a?b"}).String(); got != "http://example.com:8080/a?b" {
		t.Errorf("with a path: %s", got)
	}
}

// TestKeep fills the arena far beyond its first block. No view may move or be overwritten before Reset.
func TestKeep(t *testing.T) {
	var r Response
	for round := range 3 {
		var views, want [][]byte
		for i := range 100 {
			value := fmt.Appendf(nil, "%d/%d:%s", round, i, bytes.Repeat([]byte{'x'}, i))
			views = append(views, r.Keep(value))
			want = append(want, bytes.Clone(value))
			for j := range value {
				value[j] = '!' // the caller may reuse its memory
			}
		}
		for i, view := range views {
			if !bytes.Equal(view, want[i]) {
				t.Fatalf("round %d: view %d is %q, want %q", round, i, view, want[i])
			}
			if cap(view) != len(view) {
				t.Fatalf("round %d: appending to view %d would overwrite the next", round, i)
			}
		}
		r.Reset()
	}
}

func TestKeepBounds(t *testing.T) {
	var r Response
	if r.Keep(nil) != nil || r.Keep([]byte{}) != nil {
		t.Error("an empty value is kept")
	}
	long := bytes.Repeat([]byte{'v'}, 10*MaxField)
	if got := r.Keep(long); len(got) != MaxField {
		t.Errorf("%d bytes of a long value are kept", len(got))
	}
	for range 1000 {
		r.Keep(long)
	}
	r.Reset()
	if cap(r.arena) > 8<<10 {
		t.Errorf("%d bytes are kept over Reset", cap(r.arena))
	}
	// Once the arena is allocated, an ordinary response's fields need no allocation.
	value := []byte("text/plain; charset=utf-8")
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			r.Keep(value)
		}
		r.Reset()
	}); n != 0 {
		t.Errorf("%v allocations a response", n)
	}
}

type recycled [][]byte

func (r *recycled) Recycle(body []byte) { *r = append(*r, body) }

func TestResetRecyclesOnce(t *testing.T) {
	var bin recycled
	body := []byte("User-agent: *")
	r := Response{Outcome: Answered, Status: 200, Body: body, BodyFrom: &bin, Truncated: true, Hops: []Hop{{Status: 301}}}
	r.Fields.Server = r.Keep([]byte("x"))
	r.Reset()
	r.Reset()
	if len(bin) != 1 || &bin[0][0] != &body[0] {
		t.Errorf("the body was recycled %d times", len(bin))
	}
	if r.Outcome != 0 || r.HasStatus() || r.Body != nil || r.Truncated || r.Hops != nil || r.Fields.Server != nil ||
		r.BodyFrom != nil {
		t.Errorf("after Reset: %+v", r)
	}
}

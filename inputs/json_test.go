package inputs

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSONLines(t *testing.T) {
	f := func(content string, opt Options, want string) {
		t.Helper()
		got, _, err := origins(t, opt, listFile(t, "list", []byte(content)))
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", content, got, err, want)
		}
	}
	// Usual keys, at the top or below, and chosen keys.
	f(`{"domain":"a.example","x":{"url":"b.example"}}`, Options{}, "0:a.example")
	f(`{"site":{"host":"a.example","n":[1,{"host":"x"}]}}`, Options{}, "0:a.example")
	f(`{"site":{"host":"a.example","alias":"b.example"}}`, Options{Column: "site.alias"}, "0:b.example")
	f(`{"site.alias":"a.example","site":{"alias":"b.example"}}`, Options{Column: "site.alias"}, "0:a.example")
	f(`{"Site":{"Alias":"b.example"}}`, Options{Column: "site.alias"}, "0:b.example")
	f(`{"ho\u0073t":"a.example"}`, Options{}, "0:a.example")
	f(`{"host":"a.ex\u0061mple\/x"}`, Options{}, "0:a.example")
	f(
		"{\"host\":null}\r\n{\"host\":\"a.example\"}\n\n{}\n[]\n{\"host\":\"b.example\"}x\n{\"host\":{\"x\":1}}\n\"c.example\"", Options{Format: JSONL},
		"!1 1:a.example !4 !5 !6 !7 7:c.example")
	// The last of equal keys counts, whatever its value.
	f(
		"{\"host\":\"a.example\",\"host\":\"b.example\"}\n{\"host\":\"c.example\",\"host\":1.5e}\n{\"host\":\"c.example\",\"host\":[]}", Options{}, "0:b.example !2 !3")
	f("{\"s\":{\"host\":\"a.example\"}}\n{\"s\":{\"host\":\"b.example\"},\"s\":{}}", Options{}, "0:a.example !2")
	f(`{"host":"a.example","deep":`+strings.Repeat("[", maxJSONDepth+1)+strings.Repeat("]", maxJSONDepth+1)+"}\n",
		Options{}, "!1")

	path := listFile(t, "list", []byte(`{"a":{"rank":7,"url":"https://a.example"},"b":{"tag":"x\u00e9"}}`))
	r, err := Open(t.Context(), []string{path}, Options{LabelColumn: "b.tag"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if e, err := r.Next(); err != nil || e.Rank != 7 || e.Label != "xé" ||
		r.Stats().Files[0].Layout != `jsonl, host under "a.url", rank under "a.rank", label under "b.tag"` {
		t.Errorf("%+v, %v, %+v", e, err, r.Stats())
	}
	for _, opt := range []Options{{Column: "host"}, {LabelColumn: "host"}} {
		_, err = Open(t.Context(), []string{path}, opt)
		if err == nil || !strings.Contains(err.Error(), `"a.rank", "a.url", "b.tag"`) || !strings.Contains(err.Error(),
			path) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// TestJSONKeys: if there are too many keys, every run looks at the same ones, those at the top first.
func TestJSONKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"links":{`)
	for i := range 2 * maxPaths {
		fmt.Fprintf(&b, `"k%d":1,`, i)
	}
	b.WriteString(`"url":"b.example"},"rank":1,"url":"a.example"}`)
	path := listFile(t, "list", []byte(b.String()))
	for range 10 {
		if got, _, err := origins(t, Options{}, path); err != nil || got != "0:a.example" {
			t.Fatalf("%s, %v", got, err)
		}
	}
}

// TestDetectionAnyChunks: the detected layout does not depend on how reads divide the bytes.
func TestDetectionAnyChunks(t *testing.T) {
	far := strings.Repeat(`{"domain":"a.example","x":"`+strings.Repeat("x", 1000)+"\"}\n", 66) // more than detection reads
	content := far + `{"url":"b.example","domain":"c.example"}` + "\n"
	want, _, err := origins(t, Options{}, listFile(t, "list", []byte(content)))
	if err != nil || !strings.HasSuffix(want, " 66:c.example") {
		t.Fatalf("%s, %v", want, err)
	}
	for _, chunk := range []int{1000, 50_000, 65_537} {
		got, _, err := origins(t, Options{Stdin: &inChunks{content, chunk}}, "-")
		if err != nil || got != want {
			t.Errorf("%d bytes at a time: %s, %v, want %s", chunk, got, err, want)
		}
	}
}

// inChunks is a text that is read so many bytes at a time.
type inChunks struct {
	rest string
	n    int
}

func (r *inChunks) Read(p []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(len(r.rest), r.n)])
	r.rest = r.rest[n:]
	return n, nil
}

// TestJSONLabels: labels are converted like cells of a table.
func TestJSONLabels(t *testing.T) {
	f := func(value, want string) {
		t.Helper()
		path := listFile(t, "list", []byte("{\"host\":\"a.example\",\"tag\":\"x\"}\n{\"host\":\"b.example\",\"tag\":"+value+
			"}\n"))
		r, err := Open(t.Context(), []string{path}, Options{LabelColumn: "tag"})
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		if entries, err := readAll(r); err != nil || len(entries) != 2 || entries[1].Label != want {
			t.Errorf("%s: %+v, %v, want %q", value, entries, err, want)
		}
	}
	f(`" a b "`, "a b")
	f(`7`, "7")
	f(`-7.5`, "-7.5")
	f(`true`, "true")
	f(`null`, "")
	f(`{"x":"y"}`, "")
	f(`["y"]`, "")
}

// FuzzJSONWalk compares what is read of lines with encoding/json: which lines are objects, and the values at their
// paths.
//
//	go test -run - -fuzz FuzzJSONWalk -fuzztime 10s ./inputs
func FuzzJSONWalk(f *testing.F) {
	for _, line := range []string{
		`{}`, `{"a":"x"}`, `{"a":{"b":"x","b":1}}`, `{"a":{"b":1},"a":2}`, `{"a":-0.5e+3,"r":[1,null,{"a":true}]}`,
		`{"\u0061":"\ud800"}`,
		`{"a":01}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a" :	{ "b" : "y" } } `, `{"a":1}}`, `{"a":tru}`, `{,}`,
		`{"a":1,}`, `[1]`, "{\"a\":\"\x01\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if !utf8.ValidString(line) || strings.Count(line, "[")+strings.Count(line, "{") > maxJSONDepth {
			return // rejected earlier, or not by the rules of encoding/json
		}
		got, ok := parseJSON(line)
		object, isObject := plainObject([]byte(line))
		if !ok && strings.Contains(line, `\u`) {
			return // half a surrogate pair in a key
		}
		if ok != isObject {
			t.Fatalf("%q is an object: %v, want %v", line, ok, isObject)
		}
		if !ok {
			return
		}
		for _, path := range []jsonPath{{"a"}, {"a", "b"}, {"r"}} {
			within := object
			for _, key := range path[:len(path)-1] {
				within, _ = plainObject(within[key])
			}
			found, want := "", within[path[len(path)-1]]
			value := path.of(got)
			if value != nil {
				found = strings.TrimSpace(value.JSON())
			}
			if found != string(want) {
				t.Fatalf("%q: at %v there is %q, want %q", line, path, found, want)
			}
			var text string
			if is := jsonText(value); json.Unmarshal(want, &text) == nil && want[0] == '"' && (is == nil || string(is) != text) {
				t.Fatalf("%q: %q, want %q", line, is, text)
			}
		}
	})
}

// plainObject reads the first level of an object with encoding/json.
func plainObject(line []byte) (object map[string]json.RawMessage, ok bool) {
	err := json.Unmarshal(line, &object)
	return object, err == nil && object != nil
}

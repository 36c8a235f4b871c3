package parser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// A question is one `expect` of a block of testdata/vectors, see the README there.
type question struct {
	agent, url string
	line       int // -1 = any
	allow      bool
}

// TestVectors asks every question of testdata/vectors, in each dialect that its block is for.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	n := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "-----\n") {
			head, body, _ := strings.Cut(block, "\n\n")
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(name), ".txt"), i+1), func(t *testing.T) {
				n += askBlock(t, head, body)
			})
		}
	}
	t.Logf("%d answers in %d files", n, len(files))
}

// askBlock asks a block's questions and returns their number.
func askBlock(t *testing.T, head, body string) (n int) {
	cite, dialects, repeat := "", []parser.Dialect{parser.Google, parser.RFC}, ""
	var questions []question
	now := question{line: -1}
	for line := range strings.Lines(head) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "%") {
			continue
		}
		field, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("not a field: %q", line)
		}
		switch field {
		case "cite":
			cite = value
		case "dialect":
			dialects = map[string][]parser.Dialect{"google": {parser.Google}, "rfc": {parser.RFC}, "both": dialects}[value]
		case "repeat":
			count, text, _ := strings.Cut(value, " ")
			times, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			repeat = strings.Repeat(text, times)
		case "body":
			var err error
			if body, err = strconv.Unquote(value); err != nil {
				t.Fatalf("body %s: %v", value, err)
			}
		case "agent":
			now.agent = value
		case "url":
			now.url = value
		case "line":
			var err error
			if now.line, err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
		case "expect":
			now.allow = value == "allow"
			if !now.allow && value != "disallow" {
				t.Fatalf("expect %q", value)
			}
			questions = append(questions, now)
			now.line = -1
		default:
			t.Fatalf("unknown field %q", field)
		}
	}
	if cite == "" || len(dialects) == 0 || len(questions) == 0 {
		t.Fatal("the block cites nothing, has no dialect, or asks nothing")
	}
	if repeat != "" {
		body = strings.ReplaceAll(body, "@", repeat)
	}
	var file parser.File
	for _, d := range dialects {
		file.ParseDialect([]byte(body), d)
		for _, q := range questions {
			if repeat != "" {
				q.url = strings.ReplaceAll(q.url, "@", repeat)
			}
			n++
			got := file.Decide(q.agent, parser.AppendPath(nil, q.url))
			if got.Allow != q.allow || q.line >= 0 && got.Line != q.line {
				t.Errorf("%s\n%v: %s on %.60s: allow = %v by line %d, want %v by line %d", cite, d, q.agent, q.url, got.Allow, got.Line, q.allow, q.line)
			}
		}
	}
	return n
}

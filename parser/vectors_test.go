package parser_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// A vector is a block of testdata/vectors, see README.md there.
type vector struct {
	name, cite string
	dialects   []parser.Dialect
	body       []byte
	kinds      []string // of all lines; nil if the block has none
	ends       []int    // of all lines; nil if the block has none
	questions  []question
}

// A question is one `expect` of a block.
type question struct {
	agent, url string
	group      string // the name followed, "*", "none"; "" = any
	line       int    // -1 = any
	allow      bool
}

// readVectors reads all blocks of testdata/vectors.
func readVectors(tb testing.TB) (all []vector) {
	tb.Helper()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "-----\n") {
			head, body, _ := strings.Cut(block, "\n\n")
			v := vector{name: fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(file), ".txt"), i+1)}
			if err := v.read(head, body); err != nil {
				tb.Fatalf("%s: %v", v.name, err)
			}
			all = append(all, v)
		}
	}
	return all
}

// read fills the vector from a block.
func (v *vector) read(head, body string) (err error) {
	repeat, now := "", question{line: -1}
	v.dialects = dialects
	for line := range strings.Lines(head) {
		field, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case strings.HasPrefix(line, "%"):
			continue
		case !ok:
			return fmt.Errorf("not a field: %q", line)
		}
		switch field {
		case "cite":
			v.cite = value
		case "dialect":
			v.dialects = map[string][]parser.Dialect{"google": {parser.Google, parser.GoogleExact}, "usage": {parser.Google},
				"exact": {parser.GoogleExact}, "rfc": {parser.RFC}, "both": v.dialects}[value]
		case "repeat":
			count, text, _ := strings.Cut(value, " ")
			times, err := strconv.Atoi(count)
			if err != nil {
				return err
			}
			if strings.HasPrefix(text, `"`) {
				if text, err = strconv.Unquote(text); err != nil {
					return fmt.Errorf("repeat %s: %w", value, err)
				}
			}
			repeat = strings.Repeat(text, times)
		case "body":
			if body, err = strconv.Unquote(value); err != nil {
				return fmt.Errorf("body %s: %w", value, err)
			}
		case "kinds":
			v.kinds = strings.Fields(value)
		case "ends":
			for word := range strings.FieldsSeq(value) {
				end, err := strconv.Atoi(word)
				if err != nil {
					return err
				}
				v.ends = append(v.ends, end)
			}
		case "agent":
			now.agent, now.group = strings.Trim(value, `"`), ""
		case "group":
			now.group = value
		case "url":
			now.url = value
		case "line":
			if now.line, err = strconv.Atoi(value); err != nil {
				return err
			}
		case "expect":
			now.allow = value == "allow"
			if !now.allow && value != "disallow" {
				return fmt.Errorf("expect %q", value)
			}
			v.questions = append(v.questions, now)
			now.line = -1
		default:
			return fmt.Errorf("unknown field %q", field)
		}
	}
	if v.cite == "" || len(v.dialects) == 0 || len(v.questions) == 0 && v.kinds == nil {
		return fmt.Errorf("the block cites nothing, has no dialect, or asks nothing")
	}
	if repeat != "" {
		body = strings.ReplaceAll(body, "@", repeat)
		for i := range v.questions {
			v.questions[i].url = strings.ReplaceAll(v.questions[i].url, "@", repeat)
		}
	}
	v.body = []byte(body)
	return nil
}

// TestVectors asks every question of testdata/vectors in each dialect of its block, and checks the lines.
func TestVectors(t *testing.T) {
	vectors := readVectors(t)
	var file parser.File
	questions, groups, lines := 0, 0, 0
	for i := range vectors {
		v := &vectors[i]
		t.Run(v.name, func(t *testing.T) {
			for _, d := range v.dialects {
				v.checkLines(t, d)
				lines += len(v.kinds)
				file.ParseDialect(v.body, d)
				for _, q := range v.questions {
					questions++
					groups += min(len(q.group), 1)
					v.ask(t, &file, q)
				}
			}
		})
	}
	t.Logf("%d blocks; in either dialect %d answers, %d of them with the group, %d kinds of lines", len(vectors),
		questions, groups, lines)
}

// ask compares the answer to one question with the vector, and the reference's, too.
func (v *vector) ask(t *testing.T, file *parser.File, q question) {
	t.Helper()
	path := parser.AppendPath(nil, q.url)
	got := file.Decide(q.agent, path)
	if got.Allow != q.allow || q.line >= 0 && got.Line != q.line {
		t.Errorf("%s\n%v: %s on %.60s: allow = %v by line %d, want %v by line %d", v.cite, file.Dialect(), q.agent, q.url,
			got.Allow, got.Line, q.allow, q.line)
	}
	if len(v.body) < 1<<12 && len(path) < 100 && q.agent != "" { // the reference is slow, and takes no empty name
		allow, line := slowDecide(string(v.body), q.agent, string(path), file.Dialect())
		if allow != q.allow || q.line >= 0 && line != q.line {
			t.Errorf("%s\n%v: %s on %.60s: the reference says %v by line %d", v.cite, file.Dialect(), q.agent, q.url, allow,
				line)
		}
	}
	group := "none"
	if got.Agent >= 0 {
		group = string(file.Agent(got.Agent).Name)
	}
	if q.group != "" && group != q.group {
		t.Errorf("%s\n%v: %s follows %s, want %s", v.cite, file.Dialect(), q.agent, group, q.group)
	}
}

var lineEnd = regexp.MustCompile("(\r\n|\n|\r)$")

// checkLines compares the kinds and ends of lines. Lines must always partition the body and contain their texts.
func (v *vector) checkLines(t *testing.T, d parser.Dialect) {
	t.Helper()
	var kinds []string
	var ends []int
	end := 0
	for s := parser.NewScanner(v.body, d); s.Next(); {
		l := s.Line()
		kinds, ends = append(kinds, l.Kind.String()), append(ends, l.End)
		if l.Start != end || l.End <= l.Start || l.Number != len(kinds) {
			t.Fatalf("%s\n%v: line %d is [%d, %d), behind %d", v.cite, d, l.Number, l.Start, l.End, end)
		}
		text := lineEnd.ReplaceAll(v.body[l.Start:l.End], nil)
		if bytes.ContainsAny(text, "\r\n") || !bytes.Contains(text, l.KeyText) || !bytes.Contains(text, l.Value) {
			t.Errorf("%s\n%v: line %d is %.60q with the key %.60q and the value %.60q", v.cite, d, l.Number, text, l.KeyText,
				l.Value)
		}
		end = l.End
	}
	if end != len(v.body) {
		t.Errorf("%s\n%v: the lines end at %d of %d", v.cite, d, end, len(v.body))
	}
	if v.kinds != nil && !slices.Equal(kinds, v.kinds) {
		t.Errorf("%s\n%v: lines are\n%s, want\n%s", v.cite, d, strings.Join(kinds, " "), strings.Join(v.kinds, " "))
	}
	if v.ends != nil && !slices.Equal(ends, v.ends) {
		t.Errorf("%s\n%v: lines end at %v, want %v", v.cite, d, ends, v.ends)
	}
}

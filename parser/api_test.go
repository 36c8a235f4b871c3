package parser_test

import (
	"archive/zip"
	"bytes"
	"flag"
	"go/ast"
	goparser "go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// TestAPI compares the exported declarations with testdata/api.txt: nothing is changed or removed, and additions are
// intended.
func TestAPI(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, name, nil, goparser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d)) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			if err := (&printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}).Fprint(&text, set, decl); err != nil {
				t.Fatal(err)
			}
			declared = append(declared, text.String()+"\n")
		}
	}
	slices.Sort(declared)
	got := strings.Join(declared, "")
	if *update {
		if err := os.WriteFile("testdata/api.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf(
			"the exported declarations are not those of testdata/api.txt (go test ./parser -run TestAPI -update writes it):\n%s",
			got)
	}
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return of.(*ast.Ident).Name
}

// TestConsumer builds a program that imports the parser, from a module proxy that has go.mod and this folder and
// nothing else. Whatever `go get` or `go mod tidy` wanted beside them would be missing, and go.sum would name it.
func TestConsumer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: runs the go command five times")
	}
	const module, version = "github.com/bulkscan/bulkscan", "v1.0.0"
	dir := t.TempDir()
	write := func(name string, text []byte) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	proxy := path.Join("proxy", module, "@v")
	write(proxy+"/list", []byte(version+"\n"))
	write(proxy+"/"+version+".info", []byte(`{"Version":"`+version+`"}`))
	write(proxy+"/"+version+".mod", mod)
	write(proxy+"/"+version+".zip", moduleZip(t, module+"@"+version, mod))

	write("crawler/go.mod", []byte("module example.com/crawler\n\ngo 1.26.0\n"))
	write("crawler/main.go", []byte(`package main

import (
	"fmt"

	"github.com/bulkscan/bulkscan/parser"
)

func main() { fmt.Println(parser.Parse(404, nil).Allows("ExampleBot", "/")) }
`))
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join(dir, "crawler")
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(dir)+"/proxy", "GOMODCACHE="+
			filepath.Join(dir, "cache"),
			"GOFLAGS=-modcacherw -buildvcs=false", "GOSUMDB=off", "GONOPROXY=none", "GOTOOLCHAIN=local", "GOWORK=off",
			"CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	checkSums := func() {
		t.Helper()
		sums, err := os.ReadFile(filepath.Join(dir, "crawler", "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(sums)) {
			if !strings.HasPrefix(line, module+" ") {
				t.Errorf("go.sum names %s", line)
			}
		}
	}
	run("get", module+"/parser@latest")
	checkSums()
	run("mod", "tidy")
	run("mod", "download")
	checkSums()
	run("vet", ".")
	if out := run("run", "."); out != "true\n" {
		t.Errorf("the program says %q", out)
	}
	checkSums()
}

// moduleZip returns a module with this folder, tests included.
func moduleZip(t *testing.T, prefix string, mod []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	add := func(name string, text []byte) {
		w, err := z.Create(prefix + "/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("go.mod", mod)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		add("parser/"+filepath.ToSlash(name), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitecture compares the source, as the go command sees it, with the tables in layout_test.go.
func TestArchitecture(t *testing.T) {
	for _, problem := range Problems(packages(t)) {
		t.Error(problem)
	}
}

// packages lists the packages of the module, including those that do not compile.
func packages(t *testing.T) []Package {
	t.Helper()
	watchFolders(t)
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot list the packages: %v\n%s", err, stderr.Bytes())
	}
	var all []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("cannot read go list: %v", err)
		}
		all = append(all, p)
	}
}

// watchFolders opens every folder of the module. The go command caches a test's result until a file or folder that the
// test itself opened changes; it does not see what child processes read.
func watchFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err == nil && entry.IsDir() && (name == "node_modules" || name != ".." &&
			strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProblems checks the message for each broken rule.
func TestProblems(t *testing.T) {
	f := func(room, imports, want string) {
		t.Helper()
		p := Package{ImportPath: Module + "/" + room, Name: "x", Imports: strings.Fields(strings.ReplaceAll(imports, "~",
			Module))}
		got := strings.Join(check(p), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s imports %s:\ngot  %q\nwant %q", room, imports, got, want)
		}
	}
	f("parser", "bytes errors", "")
	f("parser", "bytes ~/origin", "parser must not import origin: an arrow only goes down")
	f("parser", "golang.org/x/text/unicode/norm",
		"parser must not import golang.org/x/text/unicode/norm: no door leads there")
	f("audit", "~/parser ~/audit/tokens github.com/cespare/xxhash/v2", "")
	f("audit", "~/sink", "audit must not import sink: an arrow only goes down, and sink is not below audit")
	f("pipeline", "~/sink", "pipeline must not import sink: an arrow only goes down")
	f("pipeline", "~/fetcher", "pipeline must not import fetcher: it may import audit, origin, origin/exchange")
	f("pipeline", "golang.org/x/sync/errgroup", "")
	f("fetcher", "golang.org/x/sync/errgroup", "the only door to golang.org/x/sync/errgroup is pipeline")
	f("fetcher", "golang.org/x/sync/semaphore", "")
	f("sink", "github.com/valyala/fasthttp", "the only door to github.com/valyala/fasthttp is fetcher")
	f("sink/table", "github.com/parquet-go/parquet-go/compress/zstd", "")
	f("survey", "github.com/parquet-go/parquet-go", "the only door to github.com/parquet-go/parquet-go is sink")
	f("inputs", "golang.org/x/net/publicsuffix", "the only door to golang.org/x/net/publicsuffix is origin")
	f("origin/exchange", "~/audit",
		"origin/exchange must not import audit: an arrow only goes down, and audit is not below origin")
	f("inputs", "~/fetcher", "inputs must not import fetcher: an arrow only goes down")
	f("sink/table", "~/sink", "sink/table must not import sink: the arrow runs from sink to sink/table")
	f("sink", "~/internal/limits", "sink must not import internal/limits: an arrow only goes down")
	f("kitchen", "fmt", "kitchen is in no table")

	// A library whose name begins with that of another has its own door.
	f("fetcher", "github.com/valyala/fasthttpx", "no door leads there")
}

// TestFloorsOfTheDocument compares the table of floors in ARCHITECTURE.md with that of layout_test.go.
func TestFloorsOfTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := bytes.Cut(page, []byte("| floors, from the highest |\n|---|\n"))
	table, _, _ = bytes.Cut(table, []byte("\n\n"))
	var got []string
	for row := range bytes.Lines(table) {
		var rooms []string
		for _, room := range regexp.MustCompile("`([^`]*)`").FindAllSubmatch(row, -1) {
			rooms = append(rooms, strings.TrimSuffix(string(room[1]), "/bulkscan"))
		}
		got = append(got, strings.Join(rooms, " "))
	}
	if want := strings.Join(floors, "\n"); strings.Join(got, "\n") != want {
		t.Errorf("ARCHITECTURE.md has the floors\n%s\nand layout_test.go\n%s", strings.Join(got, "\n"), want)
	}
}

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWallClock checks that tests wait in bubbles, except those in exceptions_test.go, and that each exception is
// needed.
func TestWallClock(t *testing.T) {
	left := map[string]bool{} // exceptions that no test needs
	for room, names := range wallClock {
		for name, reason := range names {
			left[room+" "+name] = true
			if reason == "" {
				t.Errorf("%s %s is an exception for no reason", room, name)
			}
		}
	}
	fset := token.NewFileSet()
	for room, files := range sources(t, fset) {
		room, _, _ = strings.Cut(room, " ")
		for _, r := range readings(fset, files) {
			delete(left, room+" "+r.name)
			if wallClock[room][r.name] == "" {
				t.Errorf(
					"%v: %s calls %s outside a bubble: wait in one (testing/synctest, internal/bubble), or give the reason in internal/arch/exceptions_test.go", r.at, r.name, r.call)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s is an exception in internal/arch/exceptions_test.go, and does not read the clock: remove it", name)
	}
}

// TestSharedChannels checks that no package has a channel of its own, since two bubbles could use it.
func TestSharedChannels(t *testing.T) {
	for room, files := range sources(t, token.NewFileSet()) {
		for _, name := range sharedChannels(files) {
			t.Errorf("%s: the variable %s has a channel: give one to each owner", room, name)
		}
	}
}

// TestReadings shows what counts as a bubble, and as a reading of the clock.
func TestReadings(t *testing.T) {
	f := func(what, source, want string) {
		t.Helper()
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x_test.go", "package x\n"+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range readings(fset, []*ast.File{file}) {
			got = append(got, r.name+" "+r.call)
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	const imports = "import (\"testing/synctest\"; \"time\"; \"testing\"; \"bubble\")\n"
	inTest := func(body string) string { return imports + "func TestX(t *testing.T) {\n" + body + "\n}\n" }
	const sleeps = "func(t *testing.T) { time.Sleep(1) }"
	for call := range strings.SplitSeq(
		"time.Sleep(1); <-time.After(1); _ = time.Since(t0); _ = time.Until(t0); time.NewTimer(1); time.NewTicker(1); time.Tick(1); time.AfterFunc(1, f); waittest.Until(1, f); "+
			"_ = time.Now().After(t0); _ = t0.Before(time.Now()); _ = time.Now().Sub(t0); _ = t0.Compare(time.Now().Add(1))",
		"; ") {
		name := regexp.MustCompile(`(waittest|time)\.\w+(\(\)\.(After|Sub))?|t0\.\w+`).FindString(call)
		f(call, inTest(call), "TestX "+name)
		f(call+" in a bubble", inTest("synctest.Test(t, func(t *testing.T) { "+call+" })"), "")
	}
	f("the date", inTest("_ = time.Now().Add(1); _ = t0.Before(t1); _ = x.Sleep(1)"), "")
	f("in a subtest", inTest("t.Run(``, "+sleeps+")"), "TestX time.Sleep")
	f("in a subtest of a bubble", inTest("t.Run(``, func(t *testing.T) { bubble.Test(t, "+sleeps+") })"), "")
	f("in a goroutine", inTest("synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() })"), "")
	f("beside a bubble", inTest("synctest.Test(t, func(t *testing.T) {}); time.Sleep(1)"), "TestX time.Sleep")
	f("a variable", inTest("f := "+sleeps+"; synctest.Test(t, f)"), "")
	f("a variable, used beside it", inTest("f := "+sleeps+"; synctest.Test(t, f); f(t)"), "TestX time.Sleep")
	f("a variable that is not used", inTest("f := "+sleeps+"; _ = 1"), "TestX time.Sleep")
	f("a parameter", inTest("in := func(f func(*testing.T)) { synctest.Test(t, f) }; in("+sleeps+")"), "")
	f("a parameter that is called in it",
		inTest("in := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }; in(func() { time.Sleep(1) })"), "")
	f("a parameter that is called beside it",
		inTest("in := func(f func()) { synctest.Test(t, func(*testing.T) {}); f() }; in(func() { time.Sleep(1) })"),
		"TestX time.Sleep")
	f("a field",
		inTest(
			"for _, c := range []struct{ f func() }{{func() { time.Sleep(1) }}, {f: func() { time.Sleep(1) }}} { synctest.Test(t, func(*testing.T) { c.f() }) }"), "")
	f("a field, used beside it", inTest("for _, c := range []struct{ f func() }{{f: func() { time.Sleep(1) }}} { c.f() }"),
		"TestX time.Sleep")
	helper := "func help() { time.Sleep(1) }\nfunc (k kind) wait() { time.Sleep(1) }\ntype kind int\n"
	f("helpers", inTest("synctest.Test(t, func(*testing.T) { help(); new(kind).wait() })")+helper, "")
	f("helpers of helpers", inTest("synctest.Test(t, func(*testing.T) { more() })")+
		"func more() { help(); new(kind).wait() }\n"+helper, "")
	f("helpers, used beside it", inTest("synctest.Test(t, func(*testing.T) { help() }); help(); new(kind).wait()")+helper,
		"help time.Sleep, kind.wait time.Sleep")
	f("a method that others call", inTest("synctest.Test(t, func(*testing.T) { use(new(kind)) })")+
		"func (k *kind) Read() { time.Sleep(1) }\ntype kind int\n", "")
	f("a method that others call, beside it", inTest("use(new(kind))")+
		"func (k *kind) Read() { time.Sleep(1) }\ntype kind int\n", "kind.Read time.Sleep")
	f("a benchmark", imports+"func BenchmarkX(b *testing.B) { time.Sleep(1); help() }\nfunc help() { time.Sleep(1) }\n",
		"")
}

// TestSharedChannelsAreFound shows which variables have a channel.
func TestSharedChannelsAreFound(t *testing.T) {
	f := func(source, want string) {
		t.Helper()
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(sharedChannels([]*ast.File{file}), " "); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
	f("var a chan int", "a")
	f("var a = make(chan struct{}, 4)", "a")
	f("var ( a int; b, c <-chan int )", "b")
	f("var a = map[string]chan int{}", "a")
	f("var a = &pool{free: make(chan int)}", "a")
	f("var a = struct{ c chan int }{}", "a")
	f("var a = sync.Pool{New: func() any { return make(chan int) }}", "")
	f("var a func(chan int)", "")
	f("func f() { var a chan int }", "")
	f("type a chan int", "")
}

// sources parses every file of the module, by folder and package.
func sources(t *testing.T, fset *token.FileSet) map[string][]*ast.File {
	t.Helper()
	found := map[string][]*ast.File{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != "../.." && (strings.HasPrefix(name, ".") || name == "testdata" ||
			name == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		room := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), filepath.FromSlash("../../"))) + " " + file.Name.Name
		found[room] = append(found[room], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

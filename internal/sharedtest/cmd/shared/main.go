// Command shared writes a file of ../shared to standard output, unpacked if its name ends in .zst. It fails with
// a text that begins with "SKIPPED: " if the file is absent.
//
// The tests of package parser run it instead of importing a decoder: `go mod tidy` downloads what the tests of an
// imported package import, so the decoder's module would be in the go.sum of every program that uses the parser.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

func main() {
	err := sharedtest.Try(func(tb testing.TB) {
		path := sharedtest.Path(tb, os.Args[1:]...)
		if strings.HasSuffix(path, ".zst") {
			_, err := os.Stdout.Write(sharedtest.Unpacked(tb, os.Args[1:]...))
			fail(tb, err)
			return
		}
		file, err := os.Open(path)
		fail(tb, err)
		_, err = io.Copy(os.Stdout, file)
		fail(tb, err)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fail(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

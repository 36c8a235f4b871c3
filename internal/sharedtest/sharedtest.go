// Package sharedtest finds the optional folder ../shared next to the project: real bodies, conformance cases and lists
// that are not part of it. Tests and benchmarks that need an absent file are skipped and say so.
package sharedtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Path returns the path of a file or folder in ../shared. It skips the test if that is absent.
func Path(tb testing.TB, elem ...string) string {
	tb.Helper()
	path := filepath.Join(append([]string{project(), "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("SKIPPED: needs ../shared/%s, which is not here", filepath.ToSlash(filepath.Join(elem...)))
	}
	return path
}

// project returns the path of the project, in which tests and experiments have their working directory: a program that
// is built with -trimpath does not know where its source lies. Elsewhere it returns the root of all files, where
// nothing is found.
func project() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "internal", "sharedtest")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Unpacked reads a zstd-compressed file in ../shared.
func Unpacked(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	file, err := os.Open(Path(tb, elem...))
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	decoder, err := zstd.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer decoder.Close()
	raw, err := io.ReadAll(decoder)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// Bodies reads a pack of robots.txt bodies from ../shared/corpus: a zstd stream of (uint32 little-endian length, body).
func Bodies(tb testing.TB, name string) [][]byte {
	tb.Helper()
	raw := Unpacked(tb, "corpus", name+".bin.zst")
	var bodies [][]byte
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint32(raw)
		bodies = append(bodies, bytes.Clone(raw[4:4+n]))
		raw = raw[4+n:]
	}
	return bodies
}

// Try runs functions for tests, such as those of this package, in a program. A skipped test becomes an AbsentError, a
// failed one its error.
func Try(read func(testing.TB)) (err error) {
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case AbsentError:
			err = failure
		case fatalError:
			err = failure.error
		default:
			panic(failure)
		}
	}()
	read(notTest{})
	return nil
}

// notTest implements the methods of testing.TB that this package needs.
type notTest struct{ testing.TB }

// AbsentError says what is missing in ../shared.
type AbsentError string

type fatalError struct{ error }

func (e AbsentError) Error() string { return string(e) }

func (notTest) Helper()                          {}
func (notTest) Skipf(format string, args ...any) { panic(AbsentError(fmt.Sprintf(format, args...))) }
func (notTest) Fatal(args ...any)                { panic(fatalError{errors.New(fmt.Sprint(args...))}) }

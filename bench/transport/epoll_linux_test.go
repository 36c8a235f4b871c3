package main

import (
	"bytes"
	"testing"
)

// TestLook: the floor knows a whole answer from a part of one, and a wrong one from a right one.
func TestLook(t *testing.T) {
	f := func(got []byte, whole, wrong bool) {
		t.Helper()
		flight := new(flight)
		flight.length = copy(flight.response[:], got)
		if w, err := flight.look(); w != whole || (err != nil) != wrong {
			t.Errorf("%v, %v of %q", w, err, got)
		}
	}
	for n := range answer {
		f(answer[:n], false, false)
	}
	f(answer, true, false)
	f(bytes.Replace(answer, []byte("200"), []byte("500"), 1), true, true)
	f(bytes.Replace(answer, []byte("private"), []byte("pirvate"), 1), true, true)
	f(append(bytes.Clone(answer), 'x'), true, true)
	f([]byte("HTTP/1.1 200 OK\r\n\r\n"), false, true)
	f([]byte("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), false, true)
	f([]byte("H\r\nContent-Length: 0\r\n\r\n"), false, true)
}

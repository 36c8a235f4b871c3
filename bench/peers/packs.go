package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// Pack is a named set of files.
type Pack struct {
	Name   string
	Bodies []Body
	Size   int64 // bytes of all bodies
}

func newPack(name string, bodies [][]byte) Pack {
	p := Pack{Name: name}
	for _, body := range bodies {
		// Nobody writes to a body, so both of its forms may be the same memory.
		p.Bodies = append(p.Bodies, Body{Bytes: body, Text: unsafe.String(unsafe.SliceData(body), len(body))})
		p.Size += int64(len(body))
	}
	return p
}

// readPack returns the real files of ../shared/corpus that have the name, or made-up ones where the folder is absent.
func readPack(name string) (pack Pack, found bool, err error) {
	err = sharedtest.Try(func(tb testing.TB) { pack = newPack(name, sharedtest.Bodies(tb, name)) })
	if absent := sharedtest.AbsentError(""); errors.As(err, &absent) {
		fmt.Fprintf(os.Stderr, "%v: made-up files are measured\n", absent)
		return newPack("generated", generate(5000)), false, nil
	}
	return pack, true, err
}

// Truth is what Google's open-source matcher says of the files of a pack.
type Truth struct {
	Questions
	Bits []string // for each file a zero or one for each question, in the order of a Judge's answers
}

// readTruth reads what belongs to the pack, and sees that it is these files that were judged.
func readTruth(pack Pack) (Truth, error) {
	var t Truth
	read := func(file *os.File) error {
		lines := json.NewDecoder(bufio.NewReader(file))
		var head struct{ Agents, Paths []string }
		if err := lines.Decode(&head); err != nil {
			return err
		}
		t.Tokens, t.Paths = head.Agents, head.Paths
		for i, body := range pack.Bodies {
			var line struct{ SHA1, Bits string }
			if err := lines.Decode(&line); err != nil {
				return fmt.Errorf("file %d of %d: %w", i, len(pack.Bodies), err)
			}
			if sum := sha1.Sum(body.Bytes); hex.EncodeToString(sum[:]) != line.SHA1 {
				return fmt.Errorf("file %d is not the one that was judged", i)
			}
			if len(line.Bits) != t.Len() {
				return fmt.Errorf("file %d has %d answers to %d questions", i, len(line.Bits), t.Len())
			}
			t.Bits = append(t.Bits, line.Bits)
		}
		return nil
	}
	err := sharedtest.Try(func(tb testing.TB) {
		file, err := os.Open(sharedtest.Path(tb, "corpus", "google-allow-"+pack.Name+".jsonl"))
		if err != nil {
			tb.Fatal(err)
		}
		defer file.Close()
		if err := read(file); err != nil {
			tb.Fatal(err)
		}
	})
	if err != nil {
		return Truth{}, fmt.Errorf("cannot read the truth of %s: %w", pack.Name, err)
	}
	return t, nil
}

// generate makes up n files: all with a group for everybody, some with one for the crawlers that many sites turn away.
func generate(n int) [][]byte {
	r := rand.New(rand.NewPCG(9309, 1))
	names := []string{"GPTBot", "ClaudeBot", "CCBot", "Bytespider", "Googlebot", "bingbot", "PerplexityBot", "AhrefsBot"}
	places := []string{"/wp-admin/", "/search", "/*?s=", "/cgi-bin/", "/private/*.pdf$", "/tag/", "/", "/caf%C3%A9", "/images/*/large"}
	bodies := make([][]byte, n)
	for i := range bodies {
		var b []byte
		if r.IntN(4) == 0 {
			for _, name := range names[:1+r.IntN(len(names))] {
				b = fmt.Appendf(b, "User-agent: %s\n", name)
			}
			b = append(b, "Disallow: /\n\n"...)
		}
		b = append(b, "# Everybody else\nUser-agent: *\n"...)
		for range r.IntN(30) {
			key := "Disallow"
			if r.IntN(5) == 0 {
				key = "Allow"
			}
			b = fmt.Appendf(b, "%s: %s%d\n", key, places[r.IntN(len(places))], r.IntN(100))
		}
		bodies[i] = fmt.Appendf(b, "\nSitemap: https://%d.example/sitemap.xml\n", i)
	}
	return bodies
}

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/terminal"
)

// questions are the URLs of a run, each of which is answered as it comes.
type questions struct {
	app      *app
	speaksOf func(url string) error // see audit.Site.SpeaksOf
	out      *bufio.Writer
	rows     *terminal.Rows
	crawlers int

	line       int // of standard input
	decisions  int
	disallowed int
	bad        int // lines of standard input without a URL, or with one of another site
}

const (
	maxURL      = 64 << 10 // bytes of a line with a URL; servers take far less
	maxShownBad = 5        // lines that cannot be judged and are shown
)

// add answers one URL.
func (q *questions) add(url string) error {
	disallowed, err := q.rows.Add(url)
	q.decisions += q.crawlers
	q.disallowed += disallowed
	return err
}

// addAll reads URLs, one a line, and writes their rows. It reports lines that contain no URL, or a URL of another site,
// and reads the others. Before addAll waits for more lines it writes out its rows, since a user or a program may wait
// for them.
func (q *questions) addAll(in io.Reader) error {
	if terminal.Is(in) {
		q.app.note("reading URLs from this terminal, one a line; Ctrl-D ends it")
	}
	read := bufio.NewReaderSize(in, maxURL)
	urls := 0
	for {
		if waiting, _ := read.Peek(read.Buffered()); bytes.IndexByte(waiting, '\n') < 0 {
			if err := q.out.Flush(); err != nil {
				return err
			}
		}
		text, err := read.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			if urls == 0 && q.bad == 0 {
				q.app.note("no URL on standard input")
			}
			return nil
		}
		q.line++
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = read.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read standard input, line %d: %w", q.line, err)
		}
		if tooLong {
			q.reject(fmt.Errorf("longer than %d bytes", maxURL))
			continue
		}
		if q.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\uFEFF"))
			q.look(read)
		}
		if text = bytes.Trim(text, blank); len(text) == 0 {
			continue
		}
		url := string(text)
		if err = audit.CheckURL(url); err != nil {
			err = fmt.Errorf("%q %w", clipped(url), err)
		} else {
			err = q.speaksOf(url)
		}
		if err != nil {
			q.reject(err)
			continue
		}
		urls++
		if err := q.add(url); err != nil {
			return err
		}
	}
}

// blank is the white space that is dropped around URLs: that of ASCII, since all other characters may be part of a
// path.
const blank = " \t\r\n\v\f"

// reject reports a line that cannot be judged.
func (q *questions) reject(why error) {
	if q.bad++; q.bad <= maxShownBad {
		q.app.note("standard input, line %d: skipped: %v", q.line, why)
	}
}

// look widens the column for all URLs that are already buffered, so that a short list is aligned from the start.
func (q *questions) look(read *bufio.Reader) {
	ahead, _ := read.Peek(read.Buffered()) // no more than there is
	for text := range bytes.Lines(ahead) {
		q.rows.Widen(string(bytes.Trim(text, blank)))
	}
}

// verdict is how the run ends: nil if every URL was judged and may be fetched. A disallowed URL decides the end. If
// there is none, lines that could not be judged are an error: they might have been disallowed.
func (q *questions) verdict() error {
	var text []string
	if q.decisions > 0 {
		text = append(text, fmt.Sprintf("%d of %d disallowed", q.disallowed, q.decisions))
	}
	if q.bad > 0 {
		text = append(text, fmt.Sprintf("%d of %d lines of standard input could not be judged", q.bad, q.line))
	}
	err := errors.New(strings.Join(text, "; "))
	switch {
	case q.disallowed > 0:
		return &exitError{exitThreshold, err}
	case q.bad > 0:
		return err
	}
	return nil
}

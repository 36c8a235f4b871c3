package warc

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	lookedAt   = 1 << 20 // bytes of text of the first gzip member; bgzip's have 64 KiB
	lookedLine = 4 << 10 // bytes of a plain file
)

// Look reports whether a file begins as an archive. It returns an error if the first lines or the first gzip member
// show an archive that cannot be read. Damage is no error: the Reader reports it.
func Look(file io.ReaderAt, size int64) (archive bool, err error) {
	section := io.NewSectionReader(file, 0, size)
	in := bufio.NewReader(section)
	text, whole := member(in, lookedAt)
	if len(text) == 0 {
		text, _ = in.Peek(lookedLine)
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	if line = bytes.TrimSpace(line); bytes.HasSuffix(line, []byte(".warc.gz")) || bytes.HasSuffix(line, []byte(".warc")) {
		return false,
			errors.New(
				"it is a list of archives: download those that it names (Common Crawl's are under https://data.commoncrawl.org/), and name them here")
	}
	if archive = bytes.HasPrefix(text, recordBegin); !whole || len(text) == lookedAt || !archive {
		// members of other files may end anywhere
		return archive, nil
	}
	at, err := section.Seek(0, io.SeekCurrent)
	end := at - int64(in.Buffered()) // of the member
	if next, whole := member(in, len(recordBegin)); err != nil || !whole || len(next) == 0 ||
		bytes.Equal(next, recordBegin) || !endsWithin(file, end) {
		return true, nil
	}
	return false,
		errors.New(
			"its gzip members end within records, as bgzip writes them: write it anew, as `gzip -dc OLD | gzip > NEW.warc.gz` does")
}

var recordBegin = []byte("WARC/")

// member reads up to most bytes of a gzip member's text. whole reports whether there is a member, and what was read of
// it is undamaged.
func member(in *bufio.Reader, most int) (text []byte, whole bool) {
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte("\x1f\x8b")) {
		return nil, false
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, false
	}
	z.Multistream(false)
	text, err = io.ReadAll(io.LimitReader(z, int64(most)))
	return text, err == nil
}

// endsWithin reports whether the records of a file up to a gzip member's end, at an offset, end with a part of one.
func endsWithin(file io.ReaderAt, end int64) bool {
	within := false
	records := NewReader(0)
	records.Broken = func(Broken) error { within = true; return nil }
	err := records.Reset(file, end, 0)
	for err == nil {
		_, err = records.Next()
	}
	return within
}

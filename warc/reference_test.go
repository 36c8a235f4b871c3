package warc

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// This file reads archives the plainest way: the whole file in memory, members unpacked by the standard library, heads
// split as text. It defines what a Reader must find, damage included.

// found is the compared part of a record or of damage.
type found struct {
	Offset, Bytes int64 // Bytes: of damage, else 0
	Records       int   // of damage: records returned before it was found
	Text          string
}

func describe(r *Record) found {
	return found{Offset: r.Offset, Text: fmt.Sprintf("%s %q %q %q %s %d %q", r.Type, r.TargetURI, r.IP, r.date,
		r.Truncated, r.Length, r.Block)}
}

// slowRead returns the records and damage of a file, in order.
func slowRead(file []byte, maxBlock int) (list []found) {
	packed := bytes.HasPrefix(file, []byte("\x1f\x8b"))
	if !packed && !bytes.HasPrefix(file, []byte("WARC/1.")) {
		packed = slowNext(file, 1, true) < slowNext(file, 1, false)
	}
	for at := 0; at < len(file); {
		records, size, ok := slowRecord(file, at, maxBlock, packed)
		if packed {
			records, size, ok = slowMember(file, at, maxBlock)
		}
		list = append(list, records...)
		if ok {
			at += size
			continue
		}
		if !packed { // line ends before the broken record are not part of it
			for blank := 0; blank < maxBlank && at < len(file) && (file[at] == '\r' || file[at] == '\n'); blank++ {
				at++
			}
			if at-size >= 0 && size == maxBlank {
				at -= maxBlank
			}
		}
		next := slowNext(file, at+1, packed)
		damage := found{Offset: int64(at), Bytes: int64(next - at)}
		if packed {
			damage.Records = len(records)
		}
		list = append(list, damage)
		at = next
	}
	return list
}

// slowMember reads the records of the member at an offset.
func slowMember(file []byte, at, maxBlock int) (list []found, size int, ok bool) {
	src := bytes.NewReader(file[at:])
	z, err := gzip.NewReader(src)
	if err != nil {
		return nil, 0, false
	}
	z.Multistream(false)
	text, err := io.ReadAll(z)
	for pos := 0; pos < len(text); {
		records, size, ok := slowRecord(text, pos, maxBlock, true)
		if !ok {
			return list, 0, false
		}
		for _, r := range records {
			r.Offset = int64(at)
			// A record is returned if another one or a valid end of the member follows.
			behind := text[pos+size:]
			if err != nil && !bytes.Contains(behind, versionOne) {
				return list, 0, false
			}
			list = append(list, r)
		}
		pos += size
	}
	return list, len(file) - at - src.Len(), err == nil
}

// slowRecord reads the record at an offset of a text, with the line ends around it. There is none if only line ends
// are left.
func slowRecord(text []byte, at, maxBlock int, packed bool) (list []found, size int, ok bool) {
	begin := at
	for at < len(text) && (text[at] == '\r' || text[at] == '\n') {
		if at++; at-begin >= maxBlank {
			return nil, maxBlank, false
		}
	}
	if at == len(text) {
		return nil, at - begin, true
	}
	rest := string(text[at:])
	if !strings.HasPrefix(rest, "WARC/1.") {
		return nil, 0, false
	}
	end := -1
	for i := range rest {
		if i < MaxHead && strings.HasPrefix(rest[i:], "\n\n") {
			end = i + 2
			break
		}
		if strings.HasPrefix(rest[i:], "\n\r\n") {
			end = i + 3
			break
		}
	}
	if end < 0 || end > MaxHead {
		return nil, 0, false
	}
	var r Record
	r.Offset = int64(at)
	lines := strings.Split(rest[:end], "\n")
	if len(strings.TrimRight(lines[0], "\r ")) != len("WARC/1.0") {
		return nil, 0, false
	}
	r.Length = -1
	for _, line := range lines[1:] {
		name, value, is := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !is || name == "" || name[0] == ' ' || name[0] == '\t' {
			continue
		}
		switch lower(name) {
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || len(value) > 18 || value[0] == '+' || r.Length >= 0 && r.Length != int64(n) {
				return nil, 0, false
			}
			r.Length = int64(n)
		case "warc-type":
			for t, text := range typeNames {
				if lower(value) == text && r.Type == Other {
					r.Type = Type(t)
				}
			}
		case "warc-truncated":
			for t := CutAtLength; t <= CutUnspecified && r.Truncated == Whole; t++ {
				if lower(value) == t.String() || t == CutUnspecified {
					r.Truncated = t
				}
			}
		case "warc-target-uri":
			if len(value) > 2 && strings.HasPrefix(value, "<") && strings.HasSuffix(value, ">") {
				value = value[1 : len(value)-1]
			}
			if r.TargetURI == nil && len(value) <= MaxURI {
				r.TargetURI = []byte(value)
			}
		case "warc-date":
			if r.date == nil {
				r.date = []byte(value)
			}
		case "warc-ip-address":
			if r.IP == nil {
				r.IP = []byte(value)
			}
		}
	}
	if r.Length < 0 || r.Length > int64(len(rest)-end) {
		return nil, 0, false
	}
	r.Block = []byte(rest[end:][:min(int(r.Length), maxBlock)])
	behind, halfEnd := rest[end+int(r.Length):], "\n"
	if strings.HasSuffix(rest[:end], "\r\n") {
		halfEnd = "\r\n"
	}
	if !behindRecord.MatchString(behind) && (packed || behind != halfEnd) {
		return nil, 0, false
	}
	return []found{describe(&r)}, at - begin + end + int(r.Length), true
}

// behindRecord is what may follow a block.
var behindRecord = regexp.MustCompile(`^(|(\r\n\r\n|\n\n)(WARC/1\.(?s:.*))?)$`)

// lower is strings.ToLower of ASCII letters alone.
func lower(s string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, s)
}

// slowNext returns where reading continues.
func slowNext(file []byte, from int, packed bool) int {
	for at := from; at < len(file); at++ {
		if !packed {
			if file[at-1] == '\n' && bytes.HasPrefix(file[at:], []byte("WARC/1.")) {
				return at
			}
			continue
		}
		if !bytes.HasPrefix(file[at:], []byte("\x1f\x8b\x08")) {
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(file[at:min(len(file), at+trialBytes)]))
		if err != nil || file[at+3] > 0x1f {
			continue
		}
		begin := make([]byte, len("WARC/1."))
		if _, err := io.ReadFull(z, begin); err == nil && string(begin) == "WARC/1." {
			return at
		}
	}
	return len(file)
}
